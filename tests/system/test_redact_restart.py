"""Rules for secrets that change between two starts: other rules would make other events of the same
entries, and none of them is sent twice."""

import json
import shutil

import pytest

import harness
from harness import wait_for

FIRST, SECOND = b"w7-Kestrel-first", b"w7-Kestrel-second"
WAYS = ["scan", "inotify", pytest.param("fanotify", marks=pytest.mark.skipif(
    not harness.IS_ROOT, reason="fanotify needs CAP_SYS_ADMIN"))]


def set_rules(daemon, *words):
    """The site's own words, which are never kept."""
    folder = daemon.config.parent / "redact.d"
    folder.mkdir(exist_ok=True)
    (folder / "site.toml").write_text(f"words = {json.dumps([w.decode() for w in words])}\n")


def script_of(job):
    return b"#!/bin/bash\necho %d\n./fetch %s %s\n" % (job, FIRST, SECOND)


def copy_spool(spool):
    """Other inodes, the same bytes and times: a restored or moved spool."""
    old = spool.path.with_name("spool.old")
    spool.path.rename(old)
    shutil.copytree(old, spool.path)  # copy2 keeps modification times
    for file in old.rglob("*"):
        copy = spool.path / file.relative_to(old)
        assert copy.stat().st_mtime_ns == file.stat().st_mtime_ns
        assert copy.stat().st_ino != file.stat().st_ino


def start(daemon):
    daemon.start()
    daemon.wait_status(lambda s: s["sources"]["slurm"]["scans"] >= 1
                       and s["sources"]["slurm"]["pending"] == 0, "the first scan")


def holds(folder, word):
    return sorted(str(f) for f in folder.rglob("*") if f.is_file() and word in f.read_bytes())


@pytest.mark.parametrize("moved", [False, True], ids=["same-spool", "copied-spool"])
@pytest.mark.parametrize("way", WAYS)
def test_other_rules_after_a_restart_send_no_event_twice(make_daemon, spool, archive, way, moved):
    daemon = make_daemon(sources={"slurm": {"capture": way, "rescan_seconds": 1,
                                            "incomplete_after_seconds": 1}})
    set_rules(daemon, FIRST)
    for job in (1, 2, 3):
        spool.write(job, script=script_of(job))
    # Half written: it has no end yet, and no environment.
    spool.make_entry(9)
    (spool.entry(9) / "script").write_bytes(script_of(9))
    start(daemon)
    daemon.wait_acknowledged(4)
    assert b"[redacted:site-word] " + SECOND in (archive.path / "1.sh").read_bytes()
    partial = archive.metadata(9)
    assert partial["complete"] is False
    second = holds(archive.path, SECOND)
    before = archive.snapshot()
    daemon.terminate()

    set_rules(daemon, SECOND)
    if moved:
        copy_spool(spool)
    start(daemon)
    if moved:
        daemon.wait_status(lambda s: s["sources"]["slurm"]["duplicates"] >= 4, "all are recognised")
    assert daemon.source()["captured"] == 0, daemon.source()
    assert archive.snapshot() == before
    assert holds(archive.path, FIRST) == holds(daemon.state_dir, FIRST) == []

    # What was half written grows: one more event, which names the one that was sent.
    spool.write_environment(9, [b"HOME=/home/alice"])
    spool.write_script(9, script_of(9) + b"true\n")
    daemon.wait_status(lambda s: s["sources"]["slurm"]["captured"] == 1, "the whole entry")
    daemon.wait_acknowledged(1)

    def superseding():
        found = [json.loads(f.read_bytes()) for f in archive.path.glob("9*.json")]
        return [event for event in found if event.get("supersedes")]
    wait_for(superseding, "the event that supersedes the first")
    (whole,) = superseding()
    assert whole["supersedes"] == partial["id"] and whole["complete"] is True
    assert set(holds(archive.path, SECOND)) <= set(second), "the present rules remove it"
    daemon.terminate()

    # And once more, with both.
    set_rules(daemon, FIRST, SECOND)
    after = archive.snapshot()
    start(daemon)
    assert daemon.source()["captured"] == 0, daemon.source()
    assert archive.snapshot() == after


def test_a_lost_key_is_replaced_and_unchanged_entries_are_still_recognised(make_daemon, spool,
                                                                           archive):
    daemon = make_daemon(sources={"slurm": {"rescan_seconds": 1}})
    set_rules(daemon, FIRST)
    for job in (1, 2):
        spool.write(job, script=script_of(job))
    start(daemon)
    daemon.wait_acknowledged(2)
    before = archive.snapshot()
    daemon.terminate()
    key = daemon.state_dir / "capture.key"
    first = key.read_bytes()
    assert len(first) == 32 and key.stat().st_mode & 0o777 == 0o600
    key.unlink()

    set_rules(daemon, SECOND)
    start(daemon)
    daemon.wait_log("CAPTURE_KEY_LOST")
    assert key.read_bytes() != first
    assert daemon.source()["captured"] == 0, daemon.source()
    assert archive.snapshot() == before


def test_a_key_that_others_may_read_ends_the_start(make_daemon, spool):
    spool.write(1)
    daemon = make_daemon()
    start(daemon)
    daemon.terminate()
    (daemon.state_dir / "capture.key").chmod(0o644)
    result = daemon.command("run", "--once", check=False)
    assert result.returncode == harness.EX_CONFIG
    assert "capture.key: others than its owner may read" in result.stderr, result.stderr
