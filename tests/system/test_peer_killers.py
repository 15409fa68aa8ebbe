"""What ends the archiving of other collectors for good must cost nothing here: each with the best
way of capture that this machine allows, and with inotify alone."""

import json
import os
import shutil
import struct

import pytest

import harness

WAYS = ["auto", "inotify"]


@pytest.fixture(params=WAYS)
def way(request):
    return request.param


def start(make_daemon, way, **source):
    return make_daemon(sources={"slurm": {"capture": way, "rescan_seconds": 3600,
                                          **source}}).start()


def test_one_entry_gone_early_costs_no_other_job(make_daemon, make_storm, archive, spool, way):
    daemon = start(make_daemon, way)
    storm = make_storm(1000, rate=1000, early_every=500).finish()
    manifest = storm.manifest()
    gone_early = {"500", "1000"}
    if daemon.source()["capture"] == "fanotify":
        expected = set(manifest)  # the descriptor outlives the entry
    else:
        expected = set(manifest) - gone_early
    harness.wait_for(lambda: archive.scripts() >= expected,
                     lambda: f"{len(expected - archive.scripts())} jobs are not archived")
    daemon.wait_status(lambda s: s["sinks"]["archive"]["waiting"] == 0, "nothing waits")
    # inotify may get nothing, all or a part of the two that went; a part is marked, and nothing is
    # missed without a count.
    status = daemon.source()
    # A part may be the environment alone: the metadata tells of everything that was archived.
    archived = {path.name.removesuffix(".json") for path in archive.path.glob("*.json")}
    missed = set(manifest) - archived
    partial = {job for job in archived if archive.metadata(job)["complete"] is False}
    assert missed | partial <= set(manifest) - expected, f"missed {missed}, partial {partial}"
    assert sum(status["missed"].values()) >= len(missed), \
        f"{missed} missed, but status says {status}"
    for job in partial | missed:
        del manifest[job]
        for file in archive.path.glob(f"{job}.*"):
            file.unlink()
    archive.compare(manifest)
    script, environment = spool.write(5001)
    harness.wait_for(lambda: "5001" in archive.scripts(), "a later job is archived")


def test_hash_directories_that_are_made_and_made_again_lose_no_job(make_daemon, make_storm, archive,
                                                                   spool, way):
    start(make_daemon, way)
    assert not list(spool.path.glob("hash.*"))
    first = make_storm(30).finish()
    harness.wait_for(lambda: len(archive.scripts()) >= 30, "the first 30 are archived")
    shutil.rmtree(spool.path / "hash.3")
    second = make_storm(30, first_id=31).finish()
    harness.wait_for(lambda: len(archive.scripts()) >= 60,
                     lambda: f"only {len(archive.scripts())} of 60 archived")
    # once more, this time renamed away and back: the same names, another place in between
    os.rename(spool.path / "hash.4", spool.path / "gone")
    third = make_storm(30, first_id=61).finish()
    harness.wait_for(lambda: len(archive.scripts()) >= 90,
                     lambda: f"only {len(archive.scripts())} of 90 archived")
    archive.compare({**first.manifest(), **second.manifest(), **third.manifest()})


def test_foreign_things_in_a_hash_directory_are_ignored(make_daemon, make_storm, archive, spool,
                                                        way):
    for digit in range(10):
        (spool.path / f"hash.{digit}").mkdir(mode=0o700)
    daemon = start(make_daemon, way)
    for name in ("foreign", "job.abc", "job.", "job.12x", "job.99999999999999999999999",
                 "lost+found"):
        (spool.path / "hash.3" / name).mkdir()
        (spool.path / "hash.3" / name / "script").write_bytes(b"#!/bin/sh\n\0")
    (spool.path / "hash.3" / "job.13").write_text("a file where a directory should be")
    (spool.path / "hash.4" / "job.13").mkdir()  # the right name in the wrong place
    (spool.path / "hash.4" / "job.13" / "script").write_bytes(b"#!/bin/sh\n\0")
    (spool.path / "jwt_hs256.key").write_text("secret")
    storm = make_storm(40, first_id=101).finish()
    harness.wait_for(lambda: len(archive.scripts()) >= 40,
                     lambda: f"only {len(archive.scripts())} of 40 archived")
    archive.compare(storm.manifest())
    assert daemon.running()


def test_an_entry_without_a_whole_environment_is_archived_and_marked_incomplete(make_daemon,
                                                                                archive, spool,
                                                                                way):
    daemon = start(make_daemon, way, incomplete_after_seconds=1)
    script = b"#!/bin/sh\necho no environment\n"
    for job, size in ((7, None), (8, 0), (9, 1), (10, 2), (11, 3)):
        entry = spool.make_entry(job)
        if size is not None:  # of the four bytes that say how many variables there are
            spool._creat(entry / "environment", 0o600,
                         [struct.pack("=I", 5)[:size]] if size else [])
        spool.write_script(job, script)
    spool.write(17)
    for job in (7, 8, 9, 10, 11, 17):
        harness.wait_for(lambda j=job: (archive.path / f"{j}.json").exists(),
                         f"job {job} is archived")
        assert archive.metadata(str(job))["complete"] is (job == 17), job
    assert (archive.path / "7.sh").read_bytes() == script
    assert daemon.source()["incomplete"] == 5
    spool.write(18)
    harness.wait_for(lambda: "18" in archive.scripts(), "a later job is archived")
    assert daemon.running()


def test_an_entry_that_grows_slowly_is_taken_when_it_is_whole_and_not_before(make_daemon, archive,
                                                                             spool, way):
    daemon = start(make_daemon, way)
    entry = spool.make_entry(9)
    script = b"#!/bin/sh\n" + b"# a long line of a slow script\n" * 400 + b"exit 0\n"
    strings = [b"A=1", b"B=2", b"C=3"]
    environment = struct.pack("=I", len(strings)) + b"".join(s + b"\0" for s in strings)
    with open(entry / "environment", "wb", buffering=0) as file:
        for i in range(0, len(environment), 3):  # a piece may end exactly between two strings
            file.write(environment[i:i + 3])
    with open(entry / "script", "wb", buffering=0) as file:
        for i in range(0, len(script), 1000):
            file.write(script[i:i + 1000])
            # a job that is written whole and archived proves that the daemon had its chance to look
            # at 9
            marker = 100 + i // 1000
            spool.write(marker)
            harness.wait_for(lambda m=marker: str(m) in archive.scripts(),
                             f"job {marker} is archived")
            assert "9" not in archive.scripts(), "archived before its script was whole"
        file.write(b"\0")
    harness.wait_for(lambda: "9" in archive.scripts(), "the slow entry is archived")
    assert (archive.path / "9.sh").read_bytes() == script
    assert daemon.source()["incomplete"] == 0


def test_sigterm_in_a_storm_and_a_new_start_lose_nothing(make_daemon, make_storm, archive, way):
    daemon = start(make_daemon, way)
    storm = make_storm(harness.storm_jobs(4000), rate=1000)
    for share in (0.2, 0.5):
        count = int(storm_size(storm) * share)
        harness.wait_for(lambda c=count: len(archive.scripts()) >= c, f"{count} jobs are archived")
        assert daemon.terminate() == 0, daemon.log_tail()
        daemon.start()
    storm.finish()
    total = len(storm.manifest())
    daemon.wait_acknowledged(total)
    archive.compare(storm.manifest())
    assert daemon.sink()["acknowledged_total"] == total, "an event was settled twice"


def storm_size(storm):
    return int(storm.process.args[storm.process.args.index("--jobs") + 1])


def test_the_same_id_with_other_content_is_another_event(make_daemon, archive, spool, way):
    daemon = start(make_daemon, way)
    first, _ = spool.write(42, script=b"#!/bin/sh\necho first\n")
    daemon.wait_acknowledged(1)
    spool.remove(42)
    second, _ = spool.write(42, script=b"#!/bin/sh\necho second\n")
    daemon.wait_acknowledged(2)
    scripts = sorted((archive.path / f"{name}.sh").read_bytes() for name in archive.scripts())
    assert scripts == sorted([first, second]), f"in the archive: {archive.scripts()}"
    assert (archive.path / "42.sh").read_bytes() == first, "the first was overwritten"
    ids = {json.loads(file.read_bytes())["id"] for file in archive.path.glob("*.json")}
    assert len(ids) == 2


@pytest.mark.parametrize("lifetime_ms", [0, 1, 50])
def test_with_fanotify_entries_removed_at_once_are_all_archived(make_daemon, make_storm, archive,
                                                                spool, lifetime_ms):
    for digit in range(10):
        (spool.path / f"hash.{digit}").mkdir(mode=0o700)
    daemon = start(make_daemon, "auto")
    if daemon.source()["capture"] != "fanotify":
        pytest.skip(f"no fanotify here: {daemon.source()['why_not_better']}")
    storm = make_storm(harness.storm_jobs(5000), lifetime_ms=lifetime_ms).finish()
    daemon.wait_acknowledged(len(storm.manifest()))
    archive.compare(storm.manifest())
    assert sum(daemon.source()["missed"].values()) == 0
