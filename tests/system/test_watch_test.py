"""tests/support/watch-test, through which ctest runs every test: one that hangs shows its stacks,
any other does not notice."""

import shutil
import signal
import subprocess
import sys
import time

import pytest

import harness

WATCH = harness.ROOT / "tests" / "support" / "watch-test"
HANGING = harness.BUILD / "tests" / "hanging"
NEVER = 600


def watched(seconds, *command):
    """What ctest would see: the result, once nobody holds the output open any more."""
    return subprocess.run([sys.executable, WATCH, str(seconds), *map(str, command)],
                          capture_output=True, text=True, timeout=300)


def test_a_program_that_hangs_is_killed_with_the_stacks_of_all_of_its_threads():
    result = watched(1, HANGING)
    assert result.returncode == -signal.SIGKILL
    assert result.stdout == "both hang\n"
    assert f"{HANGING}: still running after 1 s; the stacks of its 1 processes" in result.stderr
    if shutil.which("gdb") and harness.IS_ROOT:
        for function in ("main", "the_other_thread_waits"):
            assert f" {function} " in result.stderr.replace("(anonymous namespace)::",
                                                            ""), result.stderr
        assert result.stderr.count("wait_for_nobody") >= 2, result.stderr
    else:
        assert result.stderr.count("\nthread ") == 2 and "futex" in result.stderr, result.stderr


def test_what_a_hanging_test_has_started_is_shown_and_ends_with_it():
    # A daemon: its parent has ended, and it has a session of its own. It holds the output open, so
    # that we wait for its end too.
    for seconds in (1, 3, 10, 60):  # on a busy machine not all of it may run before
        result = watched(seconds, "sh", "-c",
                         f"sh -c 'setsid {HANGING} & echo started'; exec sleep {NEVER}")
        assert result.returncode in (-signal.SIGABRT, -signal.SIGKILL)
        if f": {HANGING}\n" in result.stderr and f": sleep {NEVER}\n" in result.stderr:
            break
    assert result.returncode == -signal.SIGKILL and "started" in result.stdout
    assert f": {HANGING}\n" in result.stderr and f": sleep {NEVER}\n" in result.stderr, \
        result.stderr


def test_pytest_says_by_itself_where_all_of_its_threads_are(work):
    (work / "test_it.py").write_text(
        "import threading\ndef in_a_thread():\n    threading.Event().wait()\n"
        "def test_hangs():\n    threading.Thread(target=in_a_thread, daemon=True).start()\n    "
        "threading.Event().wait()\n")
    for seconds in (1, 3, 10, 60):  # on a busy machine pytest may not have come to its test before
        result = watched(seconds, sys.executable, "-B", "-m", "pytest", "-p", "no:cacheprovider",
                         "-q", work / "test_it.py")
        assert result.returncode in (-signal.SIGABRT, -signal.SIGKILL)
        if "in test_hangs" in result.stderr:
            break
    assert result.returncode == -signal.SIGABRT
    assert "in in_a_thread" in result.stderr and "in test_hangs" in result.stderr, result.stderr


@pytest.mark.parametrize("script,status",
                         [("exit 0", 0), ("exit 77", 77), ("kill -SEGV $$", -signal.SIGSEGV)])
def test_one_that_ends_in_time_keeps_its_output_its_status_and_its_process(script, status):
    begin = time.monotonic()
    result = watched(NEVER, "sh", "-c", f"echo out; echo err >&2; {script}")
    assert (result.returncode, result.stdout, result.stderr) == (status, "out\n", "err\n")
    assert time.monotonic() - begin < NEVER / 2, "nobody waits for the watcher"


def test_a_command_that_is_not_there_is_named():
    result = watched(NEVER, "/no/such/test")
    assert result.returncode == 127 and "/no/such/test: No such file" in result.stderr
