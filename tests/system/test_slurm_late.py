"""Whose jobs were that slurmctld has forgotten: the resolver alone, asked on a real Slurm with
slurmdbd and MariaDB."""
import grp
import json
import os
import pwd
import subprocess

import pytest

from harness import BUILD, IS_ROOT, wait_for

LATE_OWNERS = BUILD / "tests" / "slurm-late-owners"
pytestmark = pytest.mark.skipif(not IS_ROOT, reason="needs root, to submit jobs of two users")


def ask(conf, jobs):
    """`jobs`: (id, nanoseconds of the script's time) each. Their answers by id and time, and what
    was logged."""
    result = subprocess.run([LATE_OWNERS, conf], input="".join(f"{job} {when}\n" for job, when
                                                               in jobs), capture_output=True,
                            text=True, timeout=120, env={"PATH": "/usr/bin:/bin"})
    assert result.returncode == 0, result.stderr
    answers = [json.loads(line) for line in result.stdout.splitlines()]
    assert [a["job"] for a in answers] == [job for job, _ in jobs]
    return dict(zip(jobs, answers)), result.stderr


def words(answer):
    return f"{answer['state']} {answer['name']} {answer['uid']}:{answer['gid']} {answer['group']}" \
        if answer["verified"] else answer["state"]


def owner(user):
    return f"found {user.pw_name} {user.pw_uid}:{user.pw_gid} {grp.getgrgid(user.pw_gid).gr_name}"


def test_owners_of_forgotten_jobs_come_from_accounting(fresh_slurm):
    lab = fresh_slurm("--accounting", "--min-job-age", "2")
    ada, bob = pwd.getpwnam("daemon"), pwd.getpwnam("nobody")
    ends = "#!/bin/sh\ntrue\n"
    runs = "#!/bin/sh\nsleep 600\n"
    # The spool is full of held jobs first, so that none is purged before its time is read.
    lab.run("scontrol", "update", "partitionname=main", "state=down")
    whose = {}

    def submit(user, *options, script=ends):
        job = lab.sbatch(*options, script=script, user=user)
        whose[job] = user
        return job

    plain = submit(ada)
    named = submit(bob, "-J", "a|b\n99|99|0|0|1|lab\nc\\")
    array = submit(bob, "--array=0-3")
    never_ran = submit(ada, "--array=0-4%2", "--hold")
    held = submit(bob, "--hold")
    later = submit(ada, "--begin=now+2days")
    first = submit(bob, "-n1", ":", "-n1")
    second = str(int(first) + 1)
    whose[second] = bob
    requeued = submit(ada, "--requeue", script=runs)
    kept = submit(bob, "--hold")

    def written(job):
        return os.stat(lab.state / f"hash.{int(job) % 10}" / f"job.{job}" / "script").st_mtime_ns
    jobs = {job: written(job) for job in whose}
    lab.run("scontrol", "update", "partitionname=main", "state=up")
    wait_for(lambda: lab.run("squeue", "-h", "-j", requeued, "-t", "R", "-o", "%M").stdout.strip()
             >= "0:01", "the job runs", 60)

    def rows_of(*ids):
        return lab.run("sacct", "-a", "-X", "-D", "-n", "-P", "-j", ",".join(ids), "-o",
                       "JobIDRaw,JobID,Submit,State").stdout

    lab.run("scontrol", "requeue", requeued)
    wait_for(lambda: rows_of(requeued).count("\n") == 2,
             lambda: f"accounting knows both lives: {rows_of(requeued)}", 60, 0.5)
    lab.run("scancel", never_ran, held, later, requeued)
    # Forgotten: out of slurmctld's memory, and its entry out of the spool.
    wait_for(lambda: [e.name for e in lab.state.glob("hash.*/job.*")] == [f"job.{kept}"],
             "slurmctld has forgotten all but one", 120, 0.5)
    left = set(lab.run("squeue", "-h", "-a", "-t", "all", "-o", "%F").stdout.split())
    assert left == {kept}
    # A row for each task, component and life.
    wait_for(lambda: rows_of(*whose).count("\n") == 14,
             lambda: f"accounting knows all of it:\n{rows_of(*whose)}", 60, 0.5)
    rows = rows_of(*whose)

    asked = [(job, when) for job, when in jobs.items()]
    # Nobody's: other times of known ids, as of jobs that had them before, a task's own number, and
    # no job at all.
    hour = 3600 * 10**9
    task = next(line.split("|")[0] for line in rows.splitlines() if f"|{array}_0|" in line)
    others = [(plain, jobs[plain] - hour), (named, jobs[named] + hour),
              (requeued, jobs[requeued] + hour), (kept, jobs[kept] + hour),
              ("4711", jobs[plain])] + ([(task, jobs[array])] if task != array else [])
    answers, log = ask(lab.conf, asked + others)
    assert {job: words(answers[job, jobs[job]]) for job in jobs} == {job: owner(whose[job])
                                                                     for job in jobs}, rows
    assert {other: words(answers[other]) for other in others} == dict.fromkeys(others, "unknown")
    assert log == ""

    # slurmctld dead: what it alone could deny is not denied, and accounting answers for the rest.
    lab.stop_controller()
    text = lab.conf.read_text()
    quick = lab.directory / "etc" / "quick.conf"
    quick.write_text(text.replace("MessageTimeout=30", "MessageTimeout=5"))
    answers, log = ask(quick, [(plain, jobs[plain]), (array, jobs[array]), ("4711", jobs[plain])])
    assert [words(a) for a in answers.values()] == [owner(ada), owner(bob), "not asked"]
    assert log == ""


def test_a_dead_or_missing_accounting_leaves_slurmctlds_word(fresh_slurm):
    lab = fresh_slurm("--min-job-age", "2")
    bob = pwd.getpwnam("nobody")
    kept = lab.sbatch("--hold", user=bob)
    when = os.stat(lab.state / f"hash.{int(kept) % 10}" / f"job.{kept}" / "script").st_mtime_ns
    jobs = [(kept, when), ("4711", when)]
    answers, log = ask(lab.conf, jobs)
    assert [words(a) for a in answers.values()] == [owner(bob), "unknown"]
    assert log.startswith("SLURM_NO_ACCOUNTING: ")
    dead = lab.directory / "etc" / "dead.conf"
    dead.write_text(lab.conf.read_text()
                    + "\nAccountingStorageType=accounting_storage/slurmdbd\n"
                    "AccountingStorageHost=127.0.0.1\n"
                    "AccountingStoragePort=1\n")
    answers, log = ask(dead, jobs)
    assert [words(a) for a in answers.values()] == [owner(bob), "not asked"]
    assert log.startswith("SLURM_SACCT_FAILED: ") and "Connection refused" in log
