"""For programs that save themselves, as COMMAND of `scriptorium-run --engine app`. Elsewhere
save_now() is never true.

    if save_now():                # as often as a save may begin
        write_my_state_to(directory())
        saved()                   # then exit, or continue
"""

import os


def directory():
    """A place for what the program saves, the same in all lives of the job; "" = there is none."""
    return os.environ.get("SCRIPTORIUM_SAVE_DIR", "")


def save_now():
    """The program should save itself."""
    return bool(directory()) and os.path.exists(directory() + "/save_now")


def resumes():
    """The program has saved itself in an earlier life, and should continue from there."""
    return os.environ.get("SCRIPTORIUM_RESUMES") == "1"


def saved():
    """The program is saved, and may be ended."""
    with open(directory() + "/saved", "w", encoding="ascii"):
        os.unlink(directory() + "/save_now")
