"""scriptorium checkpoint: a user's own images, made by scriptorium-checkpointd with the stand-in
engine (tests/support/fake-criu)."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess

import checkpoint_lab
import harness
import pytest
from checkpoint_lab import failure, is_running, program_of, wait_lines
from harness import wait_for

MISSING = checkpoint_lab.what_is_missing()
pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)


@pytest.fixture
def node(work):
    node = checkpoint_lab.Node(work, checkpoint_lab.fake_criu(work))
    yield node.start()
    node.cleanup()


def life(node, directory, job_id=None):
    """One life up to its save; its first half second of work, and exit 99."""
    job = node.job(node.alice, directory, job_id=job_id)
    wait_lines(directory)
    job.signal()
    assert job.wait() == 99, node.log()
    return job


def checkpoint(node, *arguments, user=None, **kwargs):
    """The command, as the user."""
    return harness.scriptorium("checkpoint", *arguments, cwd=kwargs.pop("cwd", node.work),
                               preexec_fn=harness.become_user(user or node.alice), **kwargs)


def listed(node, *arguments, **kwargs):
    return json.loads(checkpoint(node, "list", "--json", *arguments, **kwargs).stdout)["images"]


def names(directory):
    return sorted(path.name for path in directory.iterdir() if path.is_dir())


def doctor(path, **members):
    """Changes members of a manifest, as its owner can."""
    manifest = path / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), **members}))


def put(node, path, text):
    path.write_text(text)
    node.give(node.alice, path)


# ---- list and show -------------------------------------------------------------------------------
def test_list_shows_each_image_with_what_became_of_it(node):
    first = node.directory(node.alice, "first")
    job = life(node, first)
    again = life(node, first)
    waiting, older = listed(node, first)
    manifest = json.loads((first / "checkpoint" / "manifest.json").read_text())
    # The tests' folder may be in memory.
    assert waiting.pop("node_only", "") == manifest["node_only"]
    assert waiting == {
        "path": f"{first}/checkpoint", "directory": str(first), "name": "checkpoint",
        "job": str(again.id), "made": manifest["made"], "bytes": manifest["bytes"],
        "engine": "criu", "engine_version": manifest["engine_version"],
        "processes": manifest["processes"], "node": manifest["node"], "waits": True}
    assert (older["name"], older["job"], older["waits"], older["resumed_by"]) == (
        "checkpoint.old", str(job.id), False, str(again.id))

    # Resumed, then ended: the newest image says both.
    last = node.job(node.alice, first)
    wait_lines(first)
    [resumed, _] = listed(node, first)
    assert (resumed["waits"], resumed["resumed_by"]) == (False, str(last.id))
    (first / "stop").touch()
    assert last.wait() == 99
    [ended, _] = listed(node, first)
    assert ended["exit_code"] == "7"
    assert ended["not_resumed"]["reason"] == "ended"

    # The folders in a directory are searched too, and the newest image is first.
    second = node.directory(node.alice, "second")
    job = life(node, second)
    table = checkpoint(node, "list", cwd=second.parent).stdout.splitlines()
    assert [word for word in table[0].split() if word != "WHERE"] == [
        "MADE", "AGE", "JOB", "SIZE", "ENGINE", "PROCESSES", "STATE", "IMAGE"]
    assert [line.split()[-1] for line in table[1:]] == [
        f"{second}/checkpoint", f"{first}/checkpoint", f"{first}/checkpoint.old"]
    assert f" {job.id} " in table[1] and "waits for its resume" in table[1]
    assert "ended, exit code 7" in table[2]
    assert f"resumed by job {again.id}" in table[3]
    assert [image["name"] for image in listed(node, first / "checkpoint.old")] == [
        "checkpoint.old"]
    assert checkpoint(node, "list", node.spool).stdout == \
        "no image in these directories or the folders in them\n"
    assert checkpoint(node, "list", first / "none", check=False).returncode == 66


def test_show_says_all_of_an_image_and_whether_this_node_could_resume_it(node):
    directory = node.directory(node.alice)
    job = life(node, directory)
    life(node, directory)
    newest = json.loads((directory / "checkpoint" / "manifest.json").read_text())
    text = checkpoint(node, "show", directory).stdout
    assert text.startswith(f"image {directory}/checkpoint\n")
    for expected in (newest["kernel"], newest["cpu_model"], newest["files"][0]["sha256"],
                     "nothing is against it on this node", f"checkpoint.old: job {job.id}, made "):
        assert expected in text
    shown = json.loads(checkpoint(node, "show", "--json", directory / "checkpoint.old").stdout)
    assert shown["job"] == str(job.id)
    assert shown["manifest"] == json.loads((directory / "checkpoint.old" / "manifest.json")
                                           .read_text())
    assert [each["name"] for each in shown["beside"]] == ["checkpoint"]

    # Of another processor, and of another node.
    doctor(directory / "checkpoint", cpu_flags=["scr_none"])
    text = checkpoint(node, "show", directory).stdout
    assert "not on this node: other_cpu: " in text and "lacks scr_none" in text
    doctor(directory / "checkpoint.old", node="n99", node_only="/tmp/x is on n99 only")
    assert [image["not_resumed"]["reason"] for image in listed(node, directory)] == [
        "other_cpu", "other_node"]
    assert "other_node" in checkpoint(node, "list", directory).stdout


def test_a_manifest_cannot_write_to_the_terminal(node):
    directory = node.directory(node.alice)
    life(node, directory)
    bad = "\x1b]0;x\x07\u202e"
    doctor(directory / "checkpoint", job=bad, node=bad, engine=bad, kernel=bad, node_only=bad,
           made="not a time", cpu_model=bad)
    put(node, directory / "checkpoint" / "resumed_by", bad)
    for command in (["list"], ["list", "--json"], ["show"], ["show", "--json"]):
        said = checkpoint(node, *command, directory)
        assert not set("\x1b\x07\u202e") & set(said.stdout + said.stderr), command
        assert "x1b" in said.stdout or "u001b" in said.stdout


# ---- verify --------------------------------------------------------------------------------------
def test_verify_names_every_file_that_is_not_as_it_was(node):
    directory = node.directory(node.alice)
    life(node, directory)
    life(node, directory)
    good = checkpoint(node, "verify", directory)
    assert [line.split()[0] for line in good.stdout.splitlines()] == ["whole", "whole"]

    saved = (directory / "checkpoint" / "tree.img").read_bytes()
    (directory / "checkpoint" / "tree.img").write_bytes(saved[::-1])  # of the same size
    (directory / "checkpoint" / "new.img").touch()
    bad = checkpoint(node, "verify", directory, check=False)
    image = directory / "checkpoint"
    assert (bad.returncode, bad.stdout.splitlines()[:2]) == (1, [
        f"damaged  {image}: new.img is not in the manifest",
        f"damaged  {image}: tree.img is not as it was when it was made"])
    assert bad.stdout.splitlines()[2].startswith(f"whole    {directory}/checkpoint.old: 1 file, ")
    assert checkpoint(node, "verify", directory / "checkpoint.old").returncode == 0
    # Not even a file of the right contents, if it is a link.
    (directory / "checkpoint" / "new.img").unlink()
    (directory / "tree").write_bytes(saved)
    (directory / "checkpoint" / "tree.img").unlink()
    (directory / "checkpoint" / "tree.img").symlink_to("../tree")
    assert checkpoint(node, "verify", image, check=False).returncode == 1
    assert checkpoint(node, "verify", directory / "none", check=False).returncode == 1


def test_verify_says_on_a_terminal_how_far_it_is(node):
    directory = node.directory(node.alice)
    life(node, directory)
    image = directory / "checkpoint"
    huge = image / "huge.img"
    put(node, huge, "")
    os.truncate(huge, 1 << 36)  # without any block; it takes longer than the test waits
    files = json.loads((image / "manifest.json").read_text())["files"]
    doctor(image, files=[*files, {"name": "huge.img", "bytes": 1 << 36, "sha256": "0" * 64}])
    terminal, other = os.openpty()
    verify = subprocess.Popen([harness.SCRIPTORIUM, "checkpoint", "verify", image], stdin=other,
                              stdout=other, stderr=other,
                              preexec_fn=harness.become_user(node.alice))
    os.close(other)
    os.set_blocking(terminal, False)
    said = b""

    def says():
        nonlocal said
        said += os.read(terminal, 4096)
        return re.search(rb"\d [KMG]iB of 64.0 GiB: checkpoint", said)
    try:
        wait_for(says, lambda: f"progress: {said}")
    finally:
        verify.kill()
        verify.wait()
        os.close(terminal)


# ---- prune ---------------------------------------------------------------------------------------
def test_prune_keeps_an_image_that_waits_until_it_is_named_with_all(node):
    directory = node.directory(node.alice)
    life(node, directory)
    life(node, directory)
    dry = checkpoint(node, "prune", "--dry-run", directory).stdout.splitlines()
    assert dry[0] == (f"kept     {directory}/checkpoint: it waits for its resume "
                      "(--all removes it)")
    assert dry[1].startswith(f"would remove {directory}/checkpoint.old: job ")
    assert names(directory) == ["checkpoint", "checkpoint.old"]

    old = directory / "checkpoint.old"
    (old / "tmpdir").mkdir()  # as scriptorium-run makes it
    (old / "tmpdir" / "file").write_text("12345")
    said = checkpoint(node, "prune", directory, check=False)
    assert (said.returncode, said.stderr) == (
        65, f"scriptorium: {old}: not all that is in it could be removed\n"), "it is root's"
    node.give(node.alice, old / "tmpdir")
    size = sum(path.stat().st_size for path in old.rglob("*") if path.is_file())
    said = checkpoint(node, "prune", directory)
    assert said.stdout.splitlines()[-1] == f"1 image, {size / 1024:.1f} KiB removed"
    assert names(directory) == ["checkpoint"]
    # It can be named, and remains; and its resume works.
    checkpoint(node, "prune", directory / "checkpoint")
    assert names(directory) == ["checkpoint"]
    life(node, directory)

    checkpoint(node, "prune", "--all", directory)
    assert names(directory) == []
    assert not (directory / "checkpoint_ok").exists(), "so the next life begins at the start"
    job = node.job(node.alice, directory)
    program_of(job)
    assert checkpoint(node, "prune", directory, check=False).returncode == 66


def test_prune_removes_what_has_ended_and_obeys_keep_and_age(node):
    directory = node.directory(node.alice)
    for _ in range(3):
        life(node, directory)
    assert names(directory) == ["checkpoint", "checkpoint.old"]
    checkpoint(node, "prune", "--keep", "2", directory)
    checkpoint(node, "prune", "--older-than", "1h", directory)
    assert names(directory) == ["checkpoint", "checkpoint.old"]
    assert checkpoint(node, "prune", "--older-than", "x", directory,
                      check=False).returncode == 64
    doctor(directory / "checkpoint.old", made="2020-01-01T00:00:00Z")
    checkpoint(node, "prune", "--keep", "2", "--older-than", "1h", directory)
    assert names(directory) == ["checkpoint", "checkpoint.old"]

    # A damaged newest image is not one that is kept: the one before is what is left to resume.
    (directory / "checkpoint" / "tree.img").write_text("{}")
    checkpoint(node, "prune", directory)
    assert names(directory) == ["checkpoint", "checkpoint.old"]
    shutil.rmtree(directory / "checkpoint")
    (directory / "checkpoint.old").rename(directory / "checkpoint")
    put(node, directory / "checkpoint" / "exit_code", "7\n")
    said = checkpoint(node, "prune", "--keep", "2", directory).stdout
    assert "ended, exit code 7" in said
    assert names(directory) == []


def test_prune_touches_nothing_that_is_not_an_image_of_the_caller(node):
    directory = node.directory(node.alice)
    life(node, directory)
    life(node, directory)
    # A folder of a user's own with a name like that, a link to an image, another user's image.
    mine = directory / "checkpoint.mine"
    mine.mkdir()
    node.give(node.alice, mine)
    (mine / "file").touch()
    elsewhere = node.directory(node.alice, "elsewhere")
    life(node, elsewhere)
    (directory / "checkpoint.old3").symlink_to(elsewhere / "checkpoint")
    other = directory / "checkpoint.old2"
    shutil.copytree(directory / "checkpoint.old", other)
    other.chmod(0o700)
    for path in (other, *other.iterdir()):
        node.give(node.mallory, path)
    said = checkpoint(node, "prune", "--all", directory, check=False)
    assert said.returncode == 65
    assert names(directory) == ["checkpoint.mine", "checkpoint.old2", "checkpoint.old3"]
    assert list(mine.iterdir()) and sorted(os.listdir(other)) and is_image(elsewhere)
    assert "checkpoint.mine" not in said.stdout
    for name in ("checkpoint.old2", "checkpoint.old3"):
        assert f"kept     {directory}/{name}: it is not an image: " in said.stdout
    # The link as an argument is not followed either.
    said = checkpoint(node, "prune", "--all", directory / "checkpoint.old3", check=False)
    assert (said.returncode, is_image(elsewhere)) == (65, True)

    # Root sees the other user's image, and does not remove it; the other user sees nothing.
    for command in (["prune", "--all"], ["prune", "--all", "--dry-run"]):
        said = harness.scriptorium("checkpoint", *command, elsewhere, check=False)
        assert (said.returncode, is_image(elsewhere)) == (65, True)
        assert "it belongs to another user" in said.stdout
    assert harness.scriptorium("checkpoint", "verify", elsewhere).stdout.startswith("whole ")
    for path in (elsewhere.parent, elsewhere):
        path.chmod(0o755)
    said = checkpoint(node, "list", elsewhere, user=node.mallory)
    assert "not an image" in said.stdout and "ermission denied" in said.stdout
    said = checkpoint(node, "prune", "--all", elsewhere, user=node.mallory, check=False)
    assert (said.returncode, is_image(elsewhere)) == (65, True)


def is_image(directory):
    return (directory / "checkpoint" / "manifest.json").is_file() and \
        (directory / "checkpoint" / "tree.img").is_file()


def test_prune_does_nothing_while_a_request_works_in_the_directory(node):
    directory = node.directory(node.alice)
    life(node, directory)
    life(node, directory)
    node.orders(node.alice, directory, dump_seconds=600)
    job = node.job(node.alice, directory)
    wait_lines(directory)
    program = int((directory / "checkpoint" / "pidfile").read_text())
    job.signal()
    wait_for((directory / "checkpoint.tmp").exists, "the dump begins")
    [worker] = wait_for(lambda: [pid for pid in node.workers() if is_dumping(pid)],
                        "the engine works")
    before = names(directory)
    for arguments in ((), ("--all",), ("--dry-run",)):
        said = checkpoint(node, "prune", *arguments, directory, check=False)
        assert (said.returncode, said.stderr) == (
            75, f"scriptorium: a request works in {directory}; nothing is removed there\n")
    assert names(directory) == before == ["checkpoint", "checkpoint.old", "checkpoint.tmp"]
    os.kill(worker, signal.SIGKILL)
    assert failure(directory).startswith("interrupted: ")
    assert is_running(program)
    # What is left of the dump is not an image.
    checkpoint(node, "prune", directory)
    assert names(directory) == ["checkpoint", "checkpoint.tmp"]


def is_dumping(pid):
    """The service's process for a request, while its engine works."""
    children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return any("\0dump\0" in pathlib.Path(f"/proc/{child}/cmdline").read_text()
               for child in children)
