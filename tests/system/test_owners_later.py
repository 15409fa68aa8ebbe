"""A job whose owner could not be verified when it was captured gets its owner later: from a real
slurmctld, or from a real slurmdbd once slurmctld has forgotten it."""

import json
import os
import re
import shutil
import signal
import subprocess

import pytest

import harness
from harness import Archive, wait_for
from test_crash import needs_fault_build
from test_slurm import script_of, slurm_source

ON_DISK = True  # a real file system, with its ACLs and its syncs
FLAT = {"archive": {"layout": "{job_id}.{ext}"}}
BY_USER = {"archive": {"layout": "user-month"}}


@pytest.fixture(scope="module")
def lab():
    """A Slurm with accounting, whose slurmctld forgets a job some seconds after its end."""
    with harness.running_slurm("--accounting", "--nodes", "1", "--min-job-age", "2") as slurm:
        yield slurm


@pytest.fixture
def slurm(lab):
    """With slurmctld running, and nothing in its spool."""
    assert lab.up().returncode == 0
    lab.cancel_all()
    # slurmctld removes their entries at its next purge, up to ten seconds later. It does not need
    # the entry of a job that has ended.
    for entry in lab.state.glob("hash.*/job.*"):
        shutil.rmtree(entry, ignore_errors=True)
    yield lab


def events(archive):
    """{job id: [(file, event), ...]} of the whole tree."""
    found = {}
    for file in archive.path.rglob("*.json"):
        if not file.name.startswith("."):
            event = json.loads(file.read_bytes())
            found.setdefault(event["job"]["id"], []).append((file, event))
    return found


def unverified(archive, jobs):
    there = events(archive)
    return set(there) >= set(jobs) and all(not there[j][0][1]["user"]["verified"] for j in jobs)


def verified(archive, jobs):
    there = events(archive)
    return set(there) >= set(jobs) and all(len(there[j]) == 1
                                           and there[j][0][1]["user"]["verified"] for j in jobs)


def expect_at_owner(archive, jobs, scripts, user, folder=True):
    there = events(archive)
    for job in jobs:
        (file, event), = there[job]
        owner = event["user"]
        assert (owner["verified"], owner["name"], owner["id"]) == (True, user.pw_name,
                                                                   str(user.pw_uid)), owner
        assert "unverified_reason" not in owner and re.fullmatch("[0-9a-f]{64}",
                                                                 event["replaces"]) \
        and event["replaces"] != event["id"]
        assert script_of(file) == scripts[job] and file.with_suffix(".env").stat().st_size > 0
        if folder:
            assert file.relative_to(archive.path).parts[0] == user.pw_name, file
        for name in (file, file.with_suffix(".sh"), file.with_suffix(".env")):
            acl = subprocess.run(["getfacl", "-cpn", str(name)], capture_output=True,
                                 text=True).stdout
            assert f"user:{user.pw_uid}:r--" in acl, (name, acl)
    left = [p for p in archive.path.rglob("*") if p.is_file() and "unverified"
            in p.relative_to(archive.path).parts]
    assert not left, left


def submit(slurm, user, count, *options):
    jobs = [slurm.sbatch("--hold", "-J", f"later{i}", *options,
                         script=f"#!/bin/sh\n# {os.urandom(8).hex()}\nsleep 600\n", user=user)
            for i in range(count)]
    return jobs, {job: slurm.batch_script(job) for job in jobs}


def captured_without_slurmctld(slurm, make_daemon, archive, jobs, sinks, **core):
    slurm.stop_controller()
    daemon = make_daemon(sources=slurm_source(slurm, resolve_timeout_seconds=2), sinks=sinks,
                         **core).start()
    wait_for(lambda: unverified(archive, jobs),
             lambda: f"the jobs are archived\n{daemon.log_tail()}")
    daemon.wait_status(lambda s: s["sources"]["slurm"]["owners"]["later"]["waiting"] == len(jobs),
                       "all wait for their owner")
    return daemon


def test_owners_come_from_slurmctld_and_for_jobs_that_it_forgot_from_slurmdbd(slurm, make_daemon,
                                                                              archive,
                                                                              ordinary_user):
    jobs, scripts = submit(slurm, ordinary_user, 2)
    array, array_script = submit(slurm, ordinary_user, 1, "-a", "0-2")
    gone, gone_scripts = submit(slurm, ordinary_user, 2)
    scripts |= array_script | gone_scripts
    everything = jobs + array + gone
    # A pending job comes into the accounting after some seconds.
    wait_for(lambda: set(gone) <= set(slurm.run("sacct", "-a", "-X", "-n", "-P", "-o", "JobIDRaw",
                                                "-j", ",".join(gone)).stdout.split()),
             "slurmdbd knows the jobs", 60)
    daemon = captured_without_slurmctld(slurm, make_daemon, archive, everything, BY_USER)
    listed = json.loads(daemon.command("owners", "list", "--json").stdout)
    assert {job["job_id"] for job in listed} == set(everything) and all(job["reason"]
                                                                        for job in listed)
    assert all(job in daemon.command("owners", "list").stdout for job in everything)
    assert "asked about again: 5 (scriptorium owners list)" in daemon.command("status").stdout
    daemon.terminate()
    refused = daemon.command("owners", "retry", check=False)
    assert refused.returncode == 69 and "no daemon runs" in refused.stderr

    assert slurm.up().returncode == 0
    slurm.run("scancel", *gone)
    wait_for(lambda: all("Invalid job id" in slurm.run("squeue", "-h", "-j", job,
                                                       check=False).stderr for job in gone),
             "slurmctld has forgotten the cancelled jobs", 60, 0.5)
    daemon.start()
    said = daemon.command("owners", "retry").stdout
    assert said == "owners found: 5; still unknown: 0\n", said
    wait_for(lambda: verified(archive, everything),
             lambda: f"all lie at their owner's\n{daemon.log_tail()}")
    daemon.wait_status(lambda s: s["sinks"]["archive"]["waiting"] == 0, "nothing waits")
    expect_at_owner(archive, everything, scripts, ordinary_user)
    assert daemon.command("owners", "list").stdout == "no job waits for its owner\n"
    later = daemon.source()["owners"]["later"]
    assert (later["waiting"], later["verified"], later["last_error"]) == (0, 5, None), later
    assert daemon.sink()["plugin_status"]["replaced"] == 5 and daemon.sink()["dead"] == 0

    # What is captured and delivered from now on changes none of it.
    before = archive.snapshot()
    daemon.kill()
    daemon.start()
    more = slurm.sbatch("-J", "more", user=ordinary_user)
    wait_for(lambda: more in events(archive), "a new job is archived")
    assert {k: v for k, v in archive.snapshot().items() if k in before} == before


def test_the_daemon_asks_by_itself_once_slurmctld_answers_again(slurm, make_daemon, archive,
                                                                ordinary_user):
    jobs, scripts = submit(slurm, ordinary_user, 3)
    daemon = captured_without_slurmctld(slurm, make_daemon, archive, jobs, FLAT)
    assert slurm.up().returncode == 0
    more, _ = submit(slurm, ordinary_user, 1)
    daemon.wait_log("OWNER_KNOWN")
    wait_for(lambda: verified(archive, jobs + more),
             lambda: f"the owners are known\n{daemon.log_tail()}")
    # Where the path does not name the owner it stays, and the same files get their access lists.
    expect_at_owner(archive, jobs, scripts, ordinary_user, folder=False)
    assert harness.names_in(archive.path) == sorted(f"{j}.{e}" for j in jobs + more
                                                    for e in ("sh", "env", "json"))
    assert "OWNERS_FOUND_LATER" in daemon.log_text()
    assert daemon.source()["owners"]["last_hour"] == {"decided": 4, "unverified": 0}
    assert "unverified" not in daemon.command("status", "--check", check=False).stdout


def test_a_sink_that_was_down_meanwhile_gets_only_what_is_right(slurm, make_daemon, archive, work,
                                                                ordinary_user):
    second = Archive(work / "second")
    second.path.mkdir(mode=0o755)
    (second.path / "unverified").write_text("a file, not a folder")
    (second.path / ordinary_user.pw_name).write_text("the same")
    sinks = {**BY_USER, "second": {"plugin": "file", "root": str(second.path),
                                   "layout": "user-month", "retry_max_ms": 500}}
    jobs, scripts = submit(slurm, ordinary_user, 3)
    daemon = captured_without_slurmctld(slurm, make_daemon, archive, jobs, sinks)
    assert slurm.up().returncode == 0
    daemon.command("owners", "retry")
    wait_for(lambda: verified(archive, jobs), "the first archive has them at their owner's")
    daemon.wait_status(lambda s: s["sinks"]["second"]["waiting"] == len(jobs),
                       "of the two events of each job the second needs one")
    assert "SINK_BACK" not in daemon.log_text(), "nothing came to the second"
    daemon.kill()
    daemon.start()
    (second.path / "unverified").unlink()
    (second.path / ordinary_user.pw_name).unlink()
    daemon.wait_status(lambda s: s["sinks"]["second"]["waiting"] == 0, "nothing waits")
    expect_at_owner(second, jobs, scripts, ordinary_user)
    assert not (second.path / "unverified").exists()
    assert daemon.sink("second")["dead"] == 0


@needs_fault_build
@pytest.mark.parametrize("sinks,point", [
    (BY_USER, "owners.before_replace"), (BY_USER, "journal.before_replace"),
    (BY_USER, "file.replaced_contents_removed"),
    (FLAT, "file.replaced"),
], ids=lambda v: v if isinstance(v, str) else "by-user" if v is BY_USER else "flat")
def test_a_kill_at_any_step_moves_each_job_once(slurm, make_daemon, archive, ordinary_user, sinks,
                                                point):
    jobs, scripts = submit(slurm, ordinary_user, 2)
    daemon = captured_without_slurmctld(slurm, make_daemon, archive, jobs, sinks)
    daemon.terminate()
    assert slurm.up().returncode == 0
    daemon.start(environment={"SCRIPTORIUM_FAULT": f"{point}:1:kill"})
    daemon.command("owners", "retry", "--no-wait", check=False)
    assert daemon.wait_exit() == -signal.SIGKILL, "the point was not reached"
    daemon.start()
    daemon.command("owners", "retry")
    wait_for(lambda: verified(archive, jobs),
             lambda: f"each lies once at its owner's\n{daemon.log_tail()}")
    daemon.wait_status(lambda s: s["sinks"]["archive"]["waiting"] == 0, "nothing waits")
    expect_at_owner(archive, jobs, scripts, ordinary_user, folder=sinks is BY_USER)
    assert daemon.sink()["dead"] == 0
    assert daemon.command("owners", "list").stdout == "no job waits for its owner\n"
