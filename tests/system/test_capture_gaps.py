"""Job numbers that the scheduler gave out and that never came into the spool."""

import pytest

import harness
from harness import wait_for


def gaps(daemon):
    return daemon.source()["gaps"] or {}


def wait_baseline(daemon):
    """What the first scan finds is the start of the count: only a number passed over after that
    is a gap. One scan is over when the next one has begun."""
    daemon.wait_status(lambda s: s["sources"]["slurm"]["scans"] >= 2, "the first scan is over")


def fake_squeue(work, rows):
    """A squeue that answers each question with these rows of JobID, ArrayJobID, BatchFlag, and
    knows the guard of its texts."""
    answer = work / "squeue.answer"
    answer.write_text("".join(f"{job}|{array}|N/A|0|0|1|N/A|N/A|0|PD|{batch}|@@main@/@job@\n"
                              for job, array, batch in rows))
    command = work / "squeue"
    command.write_text(f"""#!/bin/sh
ID=
case "$*" in *' -j '*) ID=${{*##*-j }};; esac
awk -F'|' -v id="$ID" 'id == "" || $1 == id || $2 == id' "{answer}" | sed "s/@/${{SQUEUE_FORMAT2##*:}}/g"
""")
    command.chmod(0o755)
    return command


def test_numbers_that_were_passed_over_are_suspected_with_their_ranges(make_daemon, spool, archive):
    daemon = make_daemon(sources={"slurm": {"rescan_seconds": 1}}).start()
    wait_baseline(daemon)
    for job in (100, 101, 105, 107):
        spool.write(job)
    daemon.wait_acknowledged(4)
    daemon.wait_status(lambda s: s["sources"]["slurm"]["gaps"]["suspected"] == 4,
                       "4 numbers are suspected")
    assert gaps(daemon)["ranges"] == ["106", "102-104"]
    assert gaps(daemon)["highest"] == 107
    # A line for each time that numbers are classified, and none for each number: on a busy machine
    # the two ranges may be due at two times.
    assert daemon.log_text().count("JOB_NUMBERS_SKIPPED") in (1, 2)
    text = daemon.command("status").stdout
    assert "job numbers that never appeared: 106, 102-104 (4)" in text
    # one of them comes after all, from another host perhaps
    spool.write(103)
    daemon.wait_status(lambda s: s["sources"]["slurm"]["gaps"]["suspected"] == 3,
                       "103 is no longer suspected")
    assert gaps(daemon)["appeared_late"] == 1


def test_what_the_scheduler_explains_is_not_suspected_and_what_it_knows_is_confirmed(make_daemon,
                                                                                     spool, work):
    squeue = fake_squeue(work, [(100, 100, 1), (101, 100, 1), (102, 100, 1), (103, 103, 0),
                                (104, 104, 1), (106, 106, 1)])
    daemon = make_daemon(sources={"slurm": {"rescan_seconds": 1, "resolve": "slurmctld",
                                            "squeue": squeue,
                                            "resolve_timeout_seconds": 1}}).start()
    wait_baseline(daemon)
    spool.write(100)
    spool.write(106)
    daemon.wait_log("JOB_SCRIPT_NEVER_SEEN", 60)
    daemon.wait_status(lambda s: s["sources"]["slurm"]["gaps"]["waiting"] == 0, "all are judged")
    g = gaps(daemon)
    assert g["explained"] == {"job without a script": 1, "part of another job": 2}
    assert g["confirmed_ranges"] == ["104"] and g["ranges"] == ["105"], g
    assert "jobs whose script was never seen: 104 (1)" in daemon.command("status").stdout


def test_what_came_and_went_while_the_daemon_was_down_is_suspected(make_daemon, spool, archive):
    daemon = make_daemon(sources={"slurm": {"rescan_seconds": 1}}).start()
    for job in (10, 11, 12):
        spool.write(job)
    daemon.wait_acknowledged(3)
    assert daemon.terminate() == 0
    for job in (10, 11, 13, 14):
        if job > 12:
            spool.write(job)
        spool.remove(job)
    spool.write(15)
    daemon.start()
    daemon.wait_status(lambda s: s["sources"]["slurm"]["gaps"]["suspected"] == 2,
                       "13 and 14 are suspected")
    assert gaps(daemon)["ranges"] == ["13-14"]


def test_a_storm_without_gaps_leaves_nothing_suspected(make_daemon, make_storm, spool):
    daemon = make_daemon(sources={"slurm": {"rescan_seconds": 1}}).start()
    storm = make_storm(harness.storm_jobs(2000), first_id=1000, rate=2000, lifetime_ms=50).finish()
    last = 999 + len(storm.manifest())
    daemon.wait_status(lambda s: (s["sources"]["slurm"]["gaps"] or {}).get("highest") == last,
                       "the last number was seen")
    daemon.wait_status(lambda s: s["sources"]["slurm"]["gaps"]["waiting"] == 0, "nothing waits", 60)
    assert gaps(daemon)["suspected"] == 0 and gaps(daemon)["count_changes"] == 0, gaps(daemon)


def test_a_real_slurm_with_arrays_and_jobs_without_script_leaves_nothing_suspected(make_daemon,
                                                                                   fresh_slurm,
                                                                                   ordinary_user,
                                                                                   work):
    if not harness.IS_ROOT:
        pytest.skip("only root can submit as another user")
    slurm = fresh_slurm("--nodes", "1", "--cpus", "8", "--min-job-age", "300")
    daemon = make_daemon(sources={"slurm": {"spool": slurm.state, "rescan_seconds": 1,
                                            "resolve": "slurmctld",
                                            "slurm_conf": slurm.conf}}).start()
    first = int(slurm.sbatch(user=ordinary_user))
    slurm.sbatch("-a", "0-9", user=ordinary_user)
    slurm.run("srun", "-Q", "true", user=ordinary_user)
    # Each started task takes a number; the last one keeps the array's.
    wait_for(lambda: slurm.run("squeue", "-h", "-t", "pending,running", "-o", "%A").stdout == "",
             "all have ended", 120)
    last = int(slurm.sbatch(user=ordinary_user))
    assert last - first >= 11, "the tasks and srun took numbers"
    daemon.wait_status(lambda s: (s["sources"]["slurm"]["gaps"] or {}).get("highest") == last,
                       "the last job was seen")
    status = daemon.wait_status(lambda s: s["sources"]["slurm"]["gaps"]["waiting"] == 0,
                                "nothing waits", 120)
    g = status["sources"]["slurm"]["gaps"]
    assert g["suspected"] == 0 and g["confirmed"] == 0, g
    assert g["explained"] == {"job without a script": 1, "part of another job": 9}, g
    assert daemon.terminate() == 0
    assert "JOB_SCRIPT_NEVER_SEEN" not in daemon.log_text()
