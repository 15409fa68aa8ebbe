"""scriptorium-checkpointd with the real criu, as tests/support/criu-for-tests gets it. Where that
one does not work, these are skipped, loudly."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import time

import checkpoint_lab
import harness
import pytest
from checkpoint_lab import (LAYOUTS, check_no_gap, failure, is_running, processes_in, program_of,
                            wait_lines)
from harness import wait_for

MISSING = checkpoint_lab.what_is_missing()
pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)


@pytest.fixture
def node(work, criu):
    node = checkpoint_lab.Node(work, criu)
    yield node
    node.cleanup()


def save(node, job):
    job.signal()
    assert job.wait() == 99, node.log()


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.__name__)
def test_a_counter_goes_through_several_lives_without_a_gap(node, layout):
    node.start()
    directory = node.directory(node.alice)
    for life in range(4):
        job = node.job(node.alice, directory, layout=layout)
        wait_lines(directory, 10)
        if life > 0:
            program = int((directory / "checkpoint" / "pidfile").read_text())
            assert program in processes_in(job.group)
            status = pathlib.Path(f"/proc/{program}/status").read_text()
            assert "CapPrm:\t0000000000000000" in status
        save(node, job)
        check_no_gap(directory)
    job = node.job(node.alice, directory, layout=layout)
    wait_lines(directory)
    (directory / "stop").touch()
    assert job.wait() == 99
    exit_code = directory / "checkpoint" / "exit_code"
    assert wait_for(exit_code.exists, "the program's exit code is kept")
    assert exit_code.read_text() == "7\n"
    check_no_gap(directory)
    expected = ["made", *["restarted", "made"] * 3, "restarted", "ended"]
    wait_for(lambda: node.actions() == expected, lambda: f"records {expected}: {node.actions()}")


def first_life(node, directory, user=None):
    job = node.job(user or node.alice, directory)
    wait_lines(directory)
    save(node, job)
    return job


def resume(node, directory):
    """The next life, without the script's own polling: only the request."""
    job = node.job(node.alice, directory, "sleep", "600")
    node.request(node.alice, f"{job.id}.resume", f"{directory}\n")
    return job


def test_a_cancelled_job_leaves_nothing_of_what_was_restored(node):
    node.start()
    directory = node.directory(node.alice)
    first_life(node, directory)
    job = node.job(node.alice, directory)
    wait_lines(directory)
    tree = [pid for pid in processes_in(job.group) if is_running(pid)]
    job.cancel()
    assert not any(is_running(pid) for pid in tree)
    # Nobody ended it but the scheduler, so it can be resumed once more.
    job = node.job(node.alice, directory)
    wait_lines(directory)


def test_an_older_image_can_be_pruned_and_the_newest_is_resumed(node):
    node.start()
    directory = node.directory(node.alice)

    def said(*words, **how):
        return harness.scriptorium("checkpoint", *words, directory,
                                   preexec_fn=harness.become_user(node.alice), **how).stdout
    first_life(node, directory)
    first_life(node, directory)
    images = json.loads(said("list", "--json"))["images"]
    assert [(image["engine"], image["waits"]) for image in images] == [
        ("criu", True), ("criu", False)]
    assert [line.split()[0] for line in said("verify").splitlines()] == ["whole", "whole"]
    pages = next((directory / "checkpoint.old").glob("pages-*.img"))
    with open(pages, "r+b") as file:
        byte = file.read(1)
        file.seek(0)
        file.write(bytes([byte[0] ^ 1]))
    assert f"{pages.name} is not as it was" in said("verify", check=False)
    said("prune")
    assert not (directory / "checkpoint.old").exists()
    first_life(node, directory)
    check_no_gap(directory)


def test_an_image_with_a_doctored_user_makes_no_process_of_root(node):
    node.start()
    directory = node.directory(node.alice)
    first_life(node, directory)
    image = directory / "checkpoint"
    uid, gid = node.alice.pw_uid, node.alice.pw_gid
    assert uid < 128 and gid < 128, "one byte each in the image"
    # criu's CredsEntry: uid, gid, euid, egid, suid, sgid, fsuid, fsgid
    true = b"".join(bytes([field << 3, (uid, gid)[(field - 1) % 2]]) for field in range(1, 9))
    false = b"".join(bytes([field << 3, 0]) for field in range(1, 9))
    doctored = 0
    for core in image.glob("core-*.img"):
        content = core.read_bytes()
        doctored += content.count(true)
        core.write_bytes(content.replace(true, false))
    assert doctored > 0
    # Its owner can also make the manifest fit.
    manifest = json.loads((image / "manifest.json").read_text())
    for file in manifest["files"]:
        file["sha256"] = harness.sha256((image / file["name"]).read_bytes())
    (image / "manifest.json").write_text(json.dumps(manifest))
    job = resume(node, directory)
    assert failure(directory).startswith("engine: ")
    assert job.wait() == -signal.SIGTERM
    wait_for(lambda: processes_in(job.group) == [], "nothing is left in the job")


def python_program(setup):
    return f"""#!/usr/bin/python3 -I
import os, socket, time
{setup}
n = 0
while not os.path.exists("stop"):
    n += 1
    with open("lines", "a") as file:
        file.write(f"{{n}}\\n")
    time.sleep(0.05)
"""


OBSTACLES = {
    "flock": "import fcntl; lock = open('lock', 'w'); fcntl.flock(lock, fcntl.LOCK_EX)",
    "tcp": "peer = socket.create_connection(('127.0.0.1', PORT))",
    "external_socket": "peer = socket.socket(socket.AF_UNIX); peer.connect('WORK/outside')",
    "device": "device = os.open('/dev/net/tun', os.O_RDWR)",
    "deleted_file": "gone = open('big', 'wb'); gone.write(bytes(2 << 20)); gone.flush(); "
                    "os.unlink('big')",
}


@pytest.mark.parametrize("reason", OBSTACLES)
def test_what_could_not_be_resumed_is_not_saved_and_runs_on(node, reason):
    tun = pathlib.Path("/dev/net/tun")
    if reason == "device" and not (tun.exists() and tun.stat().st_mode & 0o006 == 0o006):
        pytest.skip("this machine has no /dev/net/tun that users can open")
    node.start()
    server = socket.create_server(("127.0.0.1", 0))
    outside = socket.socket(socket.AF_UNIX)
    outside.bind(str(node.work / "outside"))
    (node.work / "outside").chmod(0o777)
    outside.listen()
    setup = OBSTACLES[reason].replace("PORT", str(server.getsockname()[1]))
    directory = node.directory(node.alice, program=python_program(
        setup.replace("WORK", str(node.work))))
    job = node.job(node.alice, directory)
    wait_lines(directory)
    program = program_of(job)
    job.signal()
    assert failure(directory).startswith(f"{reason}: ")
    wait_lines(directory)
    assert is_running(program)
    assert not (directory / "checkpoint").exists()
    server.close()
    outside.close()


def test_sockets_pipes_and_threads_within_the_program_are_saved(node):
    node.start()
    setup = ("import threading; pair = socket.socketpair(); pipe = os.pipe()\n"
             "threading.Thread(target=pair[0].recv, args=(1,), daemon=True).start()\n"
             "small = open('small', 'w'); small.write('x'); small.flush(); os.unlink('small')")
    directory = node.directory(node.alice, program=python_program(setup))
    first_life(node, directory)
    job = node.job(node.alice, directory)
    wait_lines(directory)
    save(node, job)
    check_no_gap(directory)


def test_a_changed_program_or_a_missing_file_is_the_reason(node):
    node.start()
    directory = node.directory(node.alice)
    shell = directory / "shell"
    shell.write_bytes(pathlib.Path("/bin/bash").read_bytes())
    shell.chmod(0o755)
    program = directory / "program"
    program.write_text(program.read_text().replace("/bin/bash", str(shell)))
    first_life(node, directory)
    whole = shell.read_bytes()
    shell.write_bytes(whole + b"\0")
    job = resume(node, directory)
    assert failure(directory).startswith("file_changed: ")
    assert job.wait() == -signal.SIGTERM
    shell.write_bytes(whole)
    (directory / "output").unlink()
    (directory / "checkpoint_failed").unlink()
    job = resume(node, directory)
    assert failure(directory).startswith("file_missing: ")
    assert job.wait() == -signal.SIGTERM


def test_a_process_id_that_is_taken_for_some_seconds_is_waited_for(node):
    node.start()
    directory = node.directory(node.alice)
    first_life(node, directory)
    image = directory / "checkpoint"
    pid = min(int(path.stem.split("-")[1]) for path in image.glob("core-*.img"))
    wait_for(lambda: not pathlib.Path(f"/proc/{pid}").exists(), "the first life is reaped")
    taker = checkpoint_lab.take_pid(pid, lambda: subprocess.Popen(["sleep", "3"]))
    resume(node, directory)
    assert not (directory / "resume_ok").exists()
    taker.wait()
    wait_for((directory / "resume_ok").exists, "it is resumed")
    wait_lines(directory)


def test_without_room_the_program_runs_on(node):
    node.start()
    directory = node.directory(node.alice)
    room = directory / "room"
    room.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "room", str(room)], check=True)
    try:
        node.give(node.alice, room)
        job = node.job(node.alice, directory)
        wait_lines(directory)
        node.request(node.alice, f"{job.id}.checkpoint", f"{program_of(job)}\n{room}\n")
        assert failure(room).startswith("no_space: ")
        wait_lines(directory)
    finally:
        subprocess.run(["umount", "-l", str(room)], check=True)


def test_a_disk_that_fills_while_criu_writes_leaves_the_program_running(node):
    directory = node.directory(node.alice,
                               program=python_program("x = os.urandom(1 << 20) * 200"))
    room = directory / "room"
    room.mkdir()
    # Others take what the service has just seen to be free.
    engine = node.work / "criu"
    engine.write_text(f"""#!/bin/sh
case " $* " in *" dump "*) head -c 300M /dev/zero > {room}/others ;; esac
exec {node.criu} "$@"
""")
    engine.chmod(0o755)
    node.start(criu=str(engine))
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400m", "room", str(room)], check=True)
    try:
        node.give(node.alice, room)
        job = node.job(node.alice, directory)
        wait_lines(directory)
        program = program_of(job)
        begun = time.monotonic()
        node.request(node.alice, f"{job.id}.checkpoint", f"{program}\n{room}\n")
        # There is no room for the reason either, until the unfinished image is gone.
        assert failure(room).startswith("no_space: "), node.log()
        assert time.monotonic() - begun < 10 * harness.PATIENCE
        assert (room / "others").stat().st_size == 300 << 20
        assert not (room / "checkpoint.tmp").exists() and not (room / "checkpoint_ok").exists()
        wait_lines(directory)
        assert is_running(program)
    finally:
        subprocess.run(["umount", "-l", str(room)], check=True)


def test_a_program_larger_than_allowed_runs_on(node):
    node.start(max_image_bytes=4 << 20)
    directory = node.directory(node.alice, program=python_program("x = bytes(8 << 20)"))
    job = node.job(node.alice, directory)
    wait_lines(directory)
    job.signal()
    assert failure(directory).startswith("too_large: ")
    wait_lines(directory)


def test_a_program_runs_on_when_criu_is_killed_while_it_saves(node):
    node.start()
    directory = node.directory(node.alice,
                               program=python_program("x = os.urandom(1 << 20) * 1000"))
    job = node.job(node.alice, directory)
    wait_lines(directory)
    program = program_of(job)
    for _ in range(3):
        (directory / "checkpoint_failed").unlink(missing_ok=True)
        job.signal()
        pages = directory / "checkpoint.tmp" / "pages-1.img"
        worker, = wait_for(lambda: pages.exists() and pages.stat().st_size > 1 << 20 and
                           node.workers(), "criu writes pages", step=0.001)
        os.kill(worker, signal.SIGKILL)
        assert failure(directory).startswith("interrupted: ")
        wait_lines(directory)
        assert is_running(program)
    save(node, job)
    check_no_gap(directory)


def test_an_image_of_this_node_only_is_refused_on_another(node):
    node.start()
    directory = node.directory(node.alice)
    first_life(node, directory)
    manifest = json.loads((directory / "checkpoint" / "manifest.json").read_text())
    assert "is on a file system that other nodes do not have" in manifest["node_only"]
    node.stop()
    node.start(by=("unshare", "--uts", "sh", "-c", 'hostname elsewhere; exec "$@"', "sh"))
    job = resume(node, directory)
    assert failure(directory).startswith(
        f"other_node: the image can be restored on {socket.gethostname()} only: ")
    assert job.wait() == -signal.SIGTERM
