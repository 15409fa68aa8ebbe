"""A full disk delays, and loses nothing: neither the archive's nor the journal's."""

import base64
import os
import subprocess

import pytest

import harness


def fill(path):
    """A file that takes all that is left."""
    ballast = path / "ballast"
    with open(ballast, "wb", buffering=0) as file:
        try:
            while True:
                file.write(b"\0" * 4096)
        except OSError:
            pass
    return ballast


def test_with_the_archive_full_and_then_freed_every_job_arrives(make_daemon, make_storm,
                                                                mount_tmpfs, archive):
    mount_tmpfs("archive", "size=8m")
    ballast = fill(archive.path)
    with open(ballast, "r+b") as file:
        file.truncate(ballast.stat().st_size - 200_000)  # room for some, not for all
    daemon = make_daemon().start()
    storm = make_storm(300, rate=500).finish()
    status = daemon.wait_status(lambda s: any("no space left" in reason
                                              for reason in s["sinks"]["archive"]["retries"]),
                                "the archive is full and status says so")
    assert status["sinks"]["archive"]["waiting"] > 0
    assert "no space left" in (daemon.sink()["last_error"] or "")
    torn = [f for f in archive.scripts() if harness.sha256((archive.path / f"{f}.sh").read_bytes())
            != storm.manifest()[f][0]]
    assert not torn, f"torn files are visible: {torn}"

    ballast.unlink()
    daemon.wait_acknowledged(300)
    archive.compare(storm.manifest())
    assert daemon.sink()["dead"] == 0


def test_with_the_journals_disk_full_and_then_freed_every_job_arrives(make_daemon, make_storm,
                                                                      mount_tmpfs, work, archive):
    state = mount_tmpfs("state", "size=16m")
    state.chmod(0o700)
    daemon = make_daemon(state_dir=str(state)).start()
    ballast = fill(state)
    storm = make_storm(300, rate=500).finish()
    daemon.wait_log("JOURNAL_WRITE_FAILED")
    assert daemon.running()
    ballast.unlink()
    daemon.wait_acknowledged(300)
    archive.compare(storm.manifest())


def test_at_journal_max_bytes_capture_waits_and_goes_on_when_the_sink_is_back(make_daemon,
                                                                              make_storm,
                                                                              mount_tmpfs, archive):
    mount_tmpfs("archive", "size=64m")
    ballast = fill(archive.path)
    jobs = harness.storm_jobs(3000)
    daemon = make_daemon(journal_max_bytes=1 << 20).start()
    storm = make_storm(jobs, script_bytes=4000).finish()
    status = daemon.wait_status(lambda s: s["journal"]["bytes"] > 0.9
                                * s["journal"]["limit_bytes"], "the journal is full")
    assert status["journal"]["bytes"] < 2 * status["journal"]["limit_bytes"], \
        "the limit does not hold"
    ballast.unlink()
    daemon.wait_status(lambda s: s["sinks"]["archive"]["waiting"] == 0 and len(archive.scripts())
                       >= jobs, "all are archived", 120)
    archive.compare(storm.manifest())


def pinned(path):
    """Bytes that the file system has in use beyond the files that are to be seen there."""
    disk = os.statvfs(path)
    visible = sum(os.lstat(os.path.join(folder, name)).st_blocks * 512 for folder, _, names
                  in os.walk(path) for name in names)
    return (disk.f_blocks - disk.f_bfree) * disk.f_frsize - visible


def test_while_the_journal_is_full_no_deleted_file_is_kept_on_the_disk_and_no_job_is_lost(
    make_daemon, mount_tmpfs, work):
    site = mount_tmpfs("site", "size=400m")
    spool, archive = harness.Spool(site / "spool"), harness.Archive(site / "archive")
    down = mount_tmpfs("down", "size=1m")
    ballast = fill(down)
    daemon = make_daemon(state_dir=str(site / "state"), journal_max_bytes=1 << 20,
                         sources={"slurm": {"spool": spool.path}},
                         sinks={"archive": {"root": str(archive.path)},
                                "down": {"plugin": "file", "root": str(down)}}).start()
    if daemon.source()["capture"] != "fanotify":
        pytest.skip("only fanotify's notifications keep files")
    jobs = harness.storm_jobs(3000)
    storm = harness.Storm(spool, work, jobs, script_bytes=4000, lifetime_ms=300)
    storm.finish()
    daemon.wait_status(lambda s: s["journal"]["full"] and s["sources"]["slurm"]["waiting_for_room"]
                       > 0, "jobs wait for room")
    # As slurmctld saves its state.
    for _ in range(80):
        new = spool.path / "job_state.new"
        new.write_bytes(b"x" * (2 << 20))
        os.replace(new, spool.path / "job_state")
    harness.wait_for(lambda: pinned(site) <= 40 << 20,
                     lambda: f"{pinned(site) >> 20} MB of deleted files are kept")
    assert daemon.source()["waiting_for_room"] > 0, "the journal had room, so this shows nothing"
    ballast.unlink()
    subprocess.run(["mount", "-o", "remount,size=400m", str(down)], check=True)
    status = daemon.wait_status(lambda s: s["sources"]["slurm"]["pending"] == 0
                                and s["sinks"]["archive"]["waiting"] == 0
                                and s["sinks"]["down"]["waiting"] == 0 and len(archive.scripts())
                                >= jobs, "all are archived", 120)
    archive.compare(storm.manifest())
    assert status["sources"]["slurm"]["missed"] == {"vanished": 0}
    assert status["sources"]["slurm"]["gaps"]["suspected"] == 0


def test_what_waits_for_room_is_kept_by_a_restart_with_a_larger_journal(make_daemon, work, spool,
                                                                        archive):
    options = {"shutdown_seconds": 1, "user_share_percent": 100}
    daemon = make_daemon(journal_max_bytes=1 << 20, sinks={"archive": {"min_free_bytes": 1 << 50}},
                         **options).start()
    manifest = {}
    for job in range(1, 101):
        script = b"#!/bin/sh\n#" + base64.b64encode(os.urandom(15_000)) + b"\n"
        manifest[str(job)] = [harness.sha256(part) for part in spool.write(job, script)]
    status = daemon.wait_status(lambda s: s["sources"]["slurm"]["captured"]
                                + s["sources"]["slurm"]["waiting_for_room"] == 100, "all are read")
    assert status["sources"]["slurm"]["waiting_for_room"] > 30
    for job in range(1, 101):
        spool.remove(job)
    daemon.terminate()
    daemon.config.write_text(harness.config_text(work, journal_max_bytes=64 << 20, **options))
    daemon.start()
    daemon.wait_acknowledged(100)
    archive.compare(manifest)
