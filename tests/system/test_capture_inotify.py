"""Capture without CAP_SYS_ADMIN, as an ordinary user: what inotify can give, and an honest count of
the rest."""

import os
import pathlib
import subprocess
import sys

import pytest

import harness
from harness import Storm, wait_for


@pytest.fixture
def as_ordinary_user(ordinary_user, work, spool):
    """The daemon and the scheduler run as one user, who is not root and has no capability."""
    if not harness.IS_ROOT:
        yield
        return
    for directory in (work, spool.path):
        os.chown(directory, ordinary_user.pw_uid, ordinary_user.pw_gid)

    def become():
        for file in work.iterdir():  # such as a storm's manifest
            os.chown(file, ordinary_user.pw_uid, ordinary_user.pw_gid)
        harness.become_user(ordinary_user)()
    with harness.begun_with(become):
        yield


def make_hash_directories(spool):
    for digit in range(10):
        os.mkdir(spool.hash_directory(digit), 0o700)
        if harness.IS_ROOT:
            os.chown(spool.hash_directory(digit), spool.path.stat().st_uid,
                     spool.path.stat().st_gid)


def ready(daemon):
    daemon.start()
    source = daemon.source()
    assert source["capture"] == "inotify" and "CAP_SYS_ADMIN" in source["why_not_better"], source
    assert int(next(line.split()[1] for line
                    in pathlib.Path(f"/proc/{daemon.process.pid}/status").read_text().splitlines()
                    if line.startswith("CapEff")), 16) == 0
    daemon.wait_status(lambda s: s["sources"]["slurm"]["scans"] >= 1, "the first scan")
    return daemon


def accounted(daemon, jobs):
    status = daemon.wait_status(
        lambda s: s["sources"]["slurm"]["captured"] + sum(s["sources"]["slurm"]["missed"].values())
        >= jobs
        and s["sources"]["slurm"]["pending"] == 0, f"{jobs} are captured or missed")
    return status["sources"]["slurm"]


def test_captured_and_missed_are_exactly_what_was_written(make_daemon, archive, spool, work,
                                                          as_ordinary_user):
    make_hash_directories(spool)
    daemon = ready(make_daemon(sources={"slurm": {"rescan_seconds": 86400,
                                                  "incomplete_after_seconds": 5}}))
    # Side by side, for three seconds. Most of those that cannot be read are of the first kind.
    storms = {lifetime_ms: Storm(spool, work, harness.storm_jobs(3 * rate), rate=rate,
                                 first_id=1 + 1000 * n, lifetime_ms=lifetime_ms)
              for n, (lifetime_ms, rate) in enumerate([(0, 300), (1, 100), (5, 100), (50, 100),
                                                       (2000, 100)])}
    manifests = {lifetime_ms: storm.finish().manifest() for lifetime_ms, storm in storms.items()}
    written = {job: sums for manifest in manifests.values() for job, sums in manifest.items()}
    source = accounted(daemon, len(written))
    missed = sum(source["missed"].values())
    assert source["captured"] + missed == len(written), source
    assert set(source["missed"]) <= {"vanished"}
    daemon.wait_acknowledged(source["captured"])
    archived = {path.name.removesuffix(".json") for path in archive.path.glob("*.json")}
    assert len(archived) == source["captured"], "each captured job is one in the archive"
    for lifetime_ms, manifest in manifests.items():
        print(f"lifetime {lifetime_ms} ms: {len(archived & set(manifest))} of {len(manifest)} "
              "captured")
    # What is said to be whole is whole.
    for job in archived:
        if archive.metadata(job)["complete"]:
            assert harness.sha256((archive.path / f"{job}.sh").read_bytes()) == written[job][0]
            assert harness.sha256((archive.path / f"{job}.env").read_bytes()) == written[job][1]
    if not harness.SANITIZED:
        assert archived >= set(manifests[2000]), source


def test_hash_directories_that_are_made_with_the_first_jobs_cost_no_job_that_stays(
        make_daemon, archive, spool, work, as_ordinary_user):
    daemon = ready(make_daemon(sources={"slurm": {"rescan_seconds": 86400}}))
    storm = Storm(spool, work, 100).finish()
    daemon.wait_acknowledged(100)
    archive.compare(storm.manifest())
    assert accounted(daemon, 100)["captured"] == 100


def test_a_file_that_is_open_is_read_to_its_end_though_its_entry_goes_first(make_daemon, archive,
                                                                            spool, work,
                                                                            as_ordinary_user):
    """The scheduler's writer is slow, and the entry is removed in the moment it is whole."""
    make_hash_directories(spool)
    daemon = ready(make_daemon(sources={"slurm": {"rescan_seconds": 86400,
                                                  "incomplete_after_seconds": 60}}))
    code = f"""
import sys
sys.path.insert(0, {str(pathlib.Path(__file__).parent)!r})
import harness
spool = harness.Spool({str(spool.path)!r})
spool.write(1)
print("written", flush=True)
sys.stdin.readline()
spool.make_entry(11)
spool.write_environment(11, [b"A=1"])
file = open(spool.entry(11) / "script", "wb", buffering=0)
file.write(b"#!/bin/sh\\n")
print("begun", flush=True)
sys.stdin.readline()
file.write(b"true\\n\\0")
file.close()
spool.remove(11)
"""
    # The one that runs this test may stand where only root can reach it.
    python = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable
    writer = subprocess.Popen([python, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              text=True)
    assert writer.stdout.readline() == "written\n"
    daemon.wait_acknowledged(1)
    daemon.wait_status(lambda s: s["sources"]["slurm"]["pending"] == 0,
                       "the first one is behind us")
    writer.stdin.write("\n")
    writer.stdin.flush()
    assert writer.stdout.readline() == "begun\n"
    # The count of the environment, its one string, and the script's first line.
    begun = len(b"\x01\0\0\0A=1\0" + b"#!/bin/sh\n")
    daemon.wait_status(lambda s: s["sources"]["slurm"]["pending_bytes"] == begun,
                       "it has read the beginning")
    writer.stdin.write("\n")
    writer.stdin.flush()
    assert writer.wait(60) == 0
    wait_for(lambda: (archive.path / "11.json").exists(), "job 11 is archived")
    if archive.metadata("11")["complete"]:
        assert (archive.path / "11.sh").read_bytes() == b"#!/bin/sh\ntrue\n"
    else:  # it came to this a second too late, and held the file no longer
        assert (archive.path / "11.sh").read_bytes() == b"#!/bin/sh\n"
    assert accounted(daemon, 2)["captured"] == 2
