"""Capture where something is short: queues, watches, descriptors; and writers that are slow, odd or
never done."""

import os
import pathlib
import resource
import subprocess

import pytest

import harness
from harness import wait_for


def total(source):
    return source["captured"] + sum(source["missed"].values())


def open_files(daemon):
    names = []
    for fd in os.listdir(f"/proc/{daemon.process.pid}/fd"):
        try:
            names.append(os.readlink(f"/proc/{daemon.process.pid}/fd/{fd}"))
        except FileNotFoundError:
            pass
    return names


def read_limit(name):
    return int(pathlib.Path("/proc/sys/fs/inotify", name).read_text())


def wait_until_held(pid):
    """SIGSTOP has come to every thread of it."""
    def held():
        return all(stat.read_text().rpartition(")")[2].split()[0] == "T"
                   for stat in pathlib.Path(f"/proc/{pid}/task").glob("*/stat"))
    harness.wait_for(held, "all threads are held")


@pytest.mark.parametrize("way", ["auto", "inotify"])
def test_a_queue_that_runs_over_costs_no_entry_that_stands(make_daemon, make_storm, archive, spool,
                                                           way):
    # The kernel's limit stays as it is, as others need it too: the daemon is held until it is
    # reached.
    limit = read_limit("max_queued_events")
    if limit > 100_000:
        pytest.skip(f"fs.inotify.max_queued_events is {limit}: it would take too long to fill")
    directory = spool.path / "hash.1"
    directory.mkdir(mode=0o700)
    daemon = make_daemon(sources={"slurm": {"capture": way, "rescan_seconds": 86400}}).start()
    daemon.wait_status(lambda s: s["sources"]["slurm"]["scans"] >= 1, "the first scan")
    daemon.process.send_signal(19)  # SIGSTOP
    wait_until_held(daemon.process.pid)
    try:
        for i in range(limit + 100):
            os.mkdir(directory / f"x{i}")  # not the scheduler's, but each is a notification
        storm = make_storm(200).finish()
    finally:
        daemon.process.send_signal(18)  # SIGCONT
    daemon.wait_acknowledged(200)
    archive.compare(storm.manifest())
    # The overflow is reported at the end of the queue, and by then everything may have been found.
    daemon.wait_status(lambda s: s["sources"]["slurm"]["overflows"] >= 1
                       and s["sources"]["slurm"]["scans"] >= 2, "the overflow")
    assert "fs.inotify.max_queued_events" in daemon.log_text()
    assert daemon.terminate() == 0


def test_watches_that_are_used_up_are_said_with_the_sysctl_and_the_scan_goes_on(make_daemon,
                                                                                make_storm,
                                                                                archive):
    if not harness.IS_ROOT:
        pytest.skip("only root can give a user namespace its own limit here")
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)

    def become():
        # The limit of a user namespace counts for its own processes alone.
        uid = os.getuid()
        if libc.unshare(0x10000000) != 0:  # CLONE_NEWUSER
            raise OSError(ctypes.get_errno(), "unshare")
        pathlib.Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1\n")
        pathlib.Path("/proc/sys/user/max_inotify_watches").write_text("3\n")
    try:
        subprocess.run(["true"], preexec_fn=become, check=True)
    except (OSError, subprocess.SubprocessError) as e:
        pytest.skip(f"no user namespace here: {e}")
    daemon = make_daemon(sources={"slurm": {"capture": "inotify",
                                            "rescan_seconds": 1}}).start(preexec_fn=become)
    storm = make_storm(100).finish()
    daemon.wait_acknowledged(100)
    archive.compare(storm.manifest())
    daemon.wait_log("CAPTURE_WATCH_FAILED")
    assert "fs.inotify.max_user_watches" in daemon.log_text()


@pytest.mark.parametrize("way", ["auto", "inotify"])
def test_few_descriptors_lose_nothing_that_can_be_kept(make_daemon, make_storm, archive, spool,
                                                       way):
    for digit in range(10):
        spool.hash_directory(digit).mkdir(mode=0o700)
    manifest = make_storm(500).finish().manifest()  # and what is there at the start
    daemon = make_daemon(sources={"slurm": {"capture": way, "rescan_seconds": 86400}})
    daemon.start(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)))
    fanotify = daemon.source()["capture"] == "fanotify"
    manifest |= make_storm(harness.storm_jobs(1000), first_id=1001,
                           lifetime_ms=0 if fanotify else -1).finish().manifest()
    daemon.wait_status(lambda s: total(s["sources"]["slurm"]) >= len(manifest),
                       "all are accounted for")
    daemon.wait_acknowledged(len(manifest))
    archive.compare(manifest)


def test_descriptors_stay_few_in_a_storm_of_large_scripts(make_daemon, make_storm, archive, spool):
    for digit in range(10):
        spool.hash_directory(digit).mkdir(mode=0o700)
    daemon = make_daemon(sources={"slurm": {"rescan_seconds": 86400}}).start()
    storm = make_storm(harness.storm_jobs(1000), lifetime_ms=0 if daemon.source()["capture"]
                       == "fanotify" else -1,
                       script_bytes=65536)
    most = 0
    while storm.running():
        most = max(most, len(os.listdir(f"/proc/{daemon.process.pid}/fd")))
    storm.finish()
    daemon.wait_acknowledged(len(storm.manifest()))
    archive.compare(storm.manifest())
    assert 0 < most < 300, f"{most} descriptors were open at once"


def test_an_entry_that_cannot_be_read_waits_until_it_can(make_daemon, archive, spool, work,
                                                         ordinary_user):
    """As another user in group access to the spool: the rights of one entry are wrong until
    somebody mends them."""
    if not harness.IS_ROOT:
        pytest.skip("only root can start the daemon as another user")
    os.chmod(spool.path, 0o755)
    spool.hash_directory(5).mkdir()
    os.chmod(spool.hash_directory(5), 0o755)
    spool.write(5)
    os.chmod(spool.entry(5), 0o700)
    daemon = start_as(make_daemon, ordinary_user, work,
                      {"rescan_seconds": 1, "incomplete_after_seconds": 1})
    daemon.wait_log("SPOOL_UNREADABLE")
    spool.write(15)
    os.chmod(spool.entry(15), 0o700)
    daemon.wait_status(lambda s: s["sources"]["slurm"]["pending"] == 2, "both wait")
    spool.remove(15)
    daemon.wait_status(lambda s: s["sources"]["slurm"]["missed"].get("unreadable") == 1,
                       "the one that went is counted")
    for name in ("script", "environment"):
        os.chmod(spool.entry(5) / name, 0o644)
    os.chmod(spool.entry(5), 0o755)
    wait_for(lambda: "5" in archive.scripts(), "the other one is archived")
    assert total(daemon.source()) == 2


def start_as(make_daemon, user, work, source):
    """A daemon of this user, without any capability, that can write what it must."""
    for name in ("state", "archive"):
        (work / name).mkdir(exist_ok=True)
        os.chown(work / name, user.pw_uid, user.pw_gid)
    return make_daemon(sources={"slurm": source}).start(preexec_fn=harness.become_user(user))


@pytest.mark.parametrize("way", ["auto", "inotify"])
def test_a_file_that_is_closed_many_times_is_taken_once_and_whole(make_daemon, archive, spool, way):
    daemon = make_daemon(sources={"slurm": {"capture": way, "rescan_seconds": 86400}}).start()
    entry = spool.make_entry(7)
    spool.write_environment(7, [b"A=1"])
    script = b"#!/bin/sh\n" + b"echo a line of a job\n" * 50
    for i in range(0, len(script) + 1, 40):
        with open(entry / "script", "ab") as file:
            file.write((script + b"\0")[i:i + 40])
    wait_for(lambda: (archive.path / "7.json").exists(), "job 7 is archived")
    assert (archive.path / "7.sh").read_bytes() == script
    assert archive.metadata("7")["complete"] is True
    assert total(daemon.source()) == 1


def test_a_file_that_grows_after_it_was_taken_is_followed_by_a_new_event(make_daemon, archive,
                                                                         spool):
    daemon = make_daemon(sources={"slurm": {"rescan_seconds": 86400}}).start()
    if daemon.source()["capture"] != "fanotify":
        pytest.skip(f"no fanotify here: {daemon.source()['why_not_better']}")
    spool.write(8, b"#!/bin/sh\ntrue\n")
    daemon.wait_acknowledged(1)
    # the scheduler never does; an administrator may
    spool.write_script(8, b"#!/bin/sh\ntrue\necho and more\n")
    daemon.wait_acknowledged(2)
    scripts = {(archive.path / f"{name}.sh").read_bytes() for name in archive.scripts()}
    assert scripts == {b"#!/bin/sh\ntrue\n", b"#!/bin/sh\ntrue\necho and more\n"}


def test_a_hundred_entries_that_are_never_finished_hold_nothing_up(make_daemon, make_storm,
                                                                   archive, spool):
    daemon = make_daemon(sources={"slurm": {"incomplete_after_seconds": 2,
                                            "rescan_seconds": 86400}}).start()
    for job in range(1, 101):
        spool.make_entry(job)
        spool._creat(spool.entry(job) / "script", 0o700, [b"#!/bin/sh\nhalf a scr"])
    storm = make_storm(100, first_id=1001).finish()
    daemon.wait_acknowledged(200)
    whole = storm.manifest()
    for job in whole:
        assert archive.metadata(job)["complete"] is True
    for job in range(1, 101):
        assert archive.metadata(str(job))["complete"] is False
    assert daemon.source()["incomplete"] == 100
    # Files of others on the same file system come and go among them.
    ours = [name for name in open_files(daemon) if name.startswith(str(spool.path))]
    assert len(ours) < 10, ours
