"""Whose job is it? Against a real Slurm: jobs that were there, and had a life of their own, before
the daemon started."""

import json
import os

import pytest

from harness import wait_for
from test_privileges import rights_missing
from test_slurm import LAYOUT, slurm_source, wait_event

ON_DISK = True  # a real file system, with its ACLs and its syncs


def jobs_with_a_past(slurm, user):
    """A job that ran and was requeued, an array of which one task was, one that was requeued into
    hold, and one that is held: {what: job id}. Only the entry in the spool still says which job it
    is: a requeue sets a new submit time."""
    running = {
        "requeued": slurm.sbatch("-J", "requeued", script="#!/bin/sh\nsleep 600\n", user=user),
        "requeued into hold": slurm.sbatch("-J", "requeuehold", script="#!/bin/sh\nsleep 600\n",
                                           user=user),
        "array": slurm.sbatch("-J", "array", "-a", "0-2", script="#!/bin/sh\nsleep 600\n",
                              user=user),
    }

    def state(job, what):
        return slurm.run("squeue", "-h", "-j", job, "-o", what).stdout.split()
    for job in running.values():
        wait_for(lambda: "R" in state(job, "%t"), f"job {job} runs")
    slurm.run("scontrol", "requeue", running["requeued"])
    slurm.run("scontrol", "requeuehold", running["requeued into hold"])
    slurm.run("scontrol", "requeue", running["array"] + "_1")
    for job in running.values():
        restarts = ["squeue", "-h", "-a", "-t", "all", "-j", job, "-O", "RestartCnt:|"]
        wait_for(lambda: "1" in slurm.run(*restarts).stdout.replace("|", "\n").split(),
                 f"job {job} was requeued")
    return {**running, "held": slurm.sbatch("-J", "held", "--hold", user=user)}


def expect_owner(slurm, archive, jobs, user):
    for what, job in jobs.items():
        file, event = wait_event(archive, job)
        assert event["user"]["verified"] is True, (what, event["user"])
        assert event["user"]["name"] == user.pw_name, what
        assert file.relative_to(archive.path).parts[0] == user.pw_name, what
        assert file.with_name(file.name[:-5] + ".sh").read_bytes() == slurm.batch_script(job), what


def test_jobs_that_were_requeued_or_held_before_the_start_lie_under_their_owner(slurm, make_daemon,
                                                                                archive,
                                                                                ordinary_user):
    jobs = jobs_with_a_past(slurm, ordinary_user)
    daemon = make_daemon(sources=slurm_source(slurm), sinks=LAYOUT).start()
    expect_owner(slurm, archive, jobs, ordinary_user)
    assert not daemon.source()["owners"]["unverified"]


def test_so_they_do_where_only_the_opener_may_enter_the_spool(slurm, make_daemon, archive,
                                                              ordinary_user):
    reason = rights_missing()
    if reason:
        pytest.skip(reason)
    jobs = jobs_with_a_past(slurm, ordinary_user)
    archive.path.mkdir(exist_ok=True)
    os.chown(archive.path, ordinary_user.pw_uid, ordinary_user.pw_gid)
    daemon = make_daemon(sources=slurm_source(slurm), sinks=LAYOUT,
                         user=ordinary_user.pw_name).start()
    assert daemon.status()["privileges"]["separated"] is True
    expect_owner(slurm, archive, jobs, ordinary_user)
    assert not daemon.source()["owners"]["unverified"]


def test_a_script_that_a_slow_clock_dates_later_than_its_submission_has_its_owner_too(
    slurm, make_daemon, archive, ordinary_user):
    # As where the file server's clock, which dates the file, is ahead of slurmctld's, which dates
    # the job.
    job = slurm.sbatch("-J", "late", "--hold", user=ordinary_user)
    script = slurm.state / f"hash.{int(job) % 10}" / f"job.{job}" / "script"
    at = script.stat().st_mtime_ns + 5_000_000_000
    os.utime(script, ns=(at, at))
    make_daemon(sources=slurm_source(slurm), sinks=LAYOUT).start()
    expect_owner(slurm, archive, {"late": job}, ordinary_user)


def test_jobs_that_privatedata_hides_are_named_in_the_log_the_status_and_the_event(fresh_slurm,
                                                                                   make_daemon,
                                                                                   archive,
                                                                                   ordinary_user):
    # squeue runs as the daemon's user, who is neither SlurmUser nor root and so sees no job of
    # another one.
    reason = rights_missing()
    if reason:
        pytest.skip(reason)
    slurm = fresh_slurm("--nodes", "1", "--min-job-age", "300", "--conf", "PrivateData=jobs")
    archive.path.mkdir(exist_ok=True)
    os.chown(archive.path, ordinary_user.pw_uid, ordinary_user.pw_gid)
    hidden = [slurm.sbatch("-J", f"hidden{i}", "--hold") for i in range(3)]
    own = slurm.sbatch("-J", "own", "--hold", user=ordinary_user)
    daemon = make_daemon(sources=slurm_source(slurm), sinks=LAYOUT,
                         user=ordinary_user.pw_name).start()
    why = "slurmctld does not list the job, though its entry stands in the spool"
    for job in hidden:
        file, event = wait_event(archive, job)
        assert (event["user"]["verified"], event["user"]["unverified_reason"]) == (False, why)
        assert file.relative_to(archive.path).parts[0] == "unverified"
    event = wait_event(archive, own)[1]
    assert event["user"]["verified"] is True and "unverified_reason" not in event["user"]
    daemon.wait_log("SLURM_JOBS_HIDDEN")
    owners = daemon.source()["owners"]
    assert owners["unverified"] == {why: 3} and owners["last_hour"] == {"decided": 4,
                                                                        "unverified": 3}, owners

    screen = daemon.command("status").stdout
    head, row = screen.split("SOURCE", 1)[1].splitlines()[:2]
    assert ("SOURCE" + head).split()[5] == "UNVERIFIED" and row.split()[5] == "3", screen
    assert f"owner unverified 3 x: {why}" in screen and "asked the scheduler: " in screen, \
        screen
    assert f"(unverified: {why})" in daemon.command("show", hidden[0]).stdout

    assert daemon.command("status", "--check").returncode == 0, "three of four are few"
    hidden += [slurm.sbatch("-J", f"more{i}", "--hold") for i in range(7)]
    daemon.wait_status(lambda s: sum(s["sources"]["slurm"]["owners"]["unverified"].values())
                       == 10, "ten are unverified")
    health = daemon.command("status", "--check", check=False)
    assert health.returncode == 1, health.stdout
    assert f"slurm: the owners of 10 of the last hour's 11 jobs are unverified ({why})" \
        in health.stdout


def test_an_entry_that_was_written_again_does_not_borrow_the_requeued_jobs_owner(
    slurm, make_daemon, archive, ordinary_user, work):
    """While Slurm does not answer, the captured entry is replaced: the job that Slurm then names is
    another one."""
    job = slurm.sbatch("-J", "requeued", script="#!/bin/sh\nsleep 600\n", user=ordinary_user)
    wait_for(lambda: slurm.run("squeue", "-h", "-j", job, "-o", "%t").stdout.strip() == "R",
             "it runs")
    slurm.run("scontrol", "requeuehold", job)
    wait_for(lambda: slurm.run("squeue", "-h", "-j", job, "-o", "%t").stdout.strip() == "PD",
             "it was requeued")
    squeue = work / "squeue"
    squeue.write_text("#!/bin/sh\nexit 1\n")
    squeue.chmod(0o755)
    daemon = make_daemon(sources=slurm_source(slurm, squeue=str(squeue)), sinks=LAYOUT).start()
    entries = len(list(slurm.state.glob("hash.*/job.*")))
    daemon.wait_status(lambda s: s["sources"]["slurm"]["owners"]["waiting"] == entries,
                       f"{entries} entries are captured, and their owners unknown")
    script = slurm.state / f"hash.{int(job) % 10}" / f"job.{job}" / "script"
    at = script.stat().st_mtime_ns
    script.write_bytes(b"#!/bin/sh\n# another\n\0")
    os.utime(script, ns=(at, at + 1))
    squeue.write_text('#!/bin/sh\nexec /usr/bin/squeue "$@"\n')
    def old():
        for file in archive.path.rglob("*.json"):
            event = json.loads(file.read_bytes())
            script = file.with_suffix(".sh")
            if event["job"]["id"] == job and b"sleep 600" in script.read_bytes():
                return event
        return None
    assert not wait_for(old, "what was captured first goes out")["user"].get("verified")
