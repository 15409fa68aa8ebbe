"""Beside a Slurm of a real site's size: thousands of jobs wait before the daemon starts, and new
ones keep coming.

SCRIPTORIUM_SLURM_SIZE_SECONDS is how long each of the two rates lasts (default 45; 150 for the
five-minute run)."""

import concurrent.futures
import json
import os
import pwd
import re
import threading
import time

import pytest

import harness
from harness import wait_for

ON_DISK = True

SECONDS = int(os.environ.get("SCRIPTORIUM_SLURM_SIZE_SECONDS", "45"))
RATES = (4, 20)
# Held jobs, arrays and heterogeneous jobs of each of the two users. A heterogeneous job has an
# entry for each component.
HELD, ARRAYS, HETS, COMPONENTS = 1750, 250, 10, 50
WAITING = 2 * (HELD + ARRAYS + HETS * COMPONENTS)


def second_user(first):
    for name in ("daemon", "nobody", "bin", "mail"):
        try:
            user = pwd.getpwnam(name)
        except KeyError:
            continue
        if user.pw_uid != first.pw_uid:
            return user
    pytest.skip("no second user to submit as")


def submit_all(slurm, user):
    """Submits what is to wait, as fast as it goes; returns the ids of all entries."""
    sbatch = "sbatch --parsable -o /dev/null -H"
    loops = [f"for i in $(seq {HELD // 2}); do {sbatch} --wrap \"echo $i\" || exit; done"] * 2
    loops.append(f"for i in $(seq {ARRAYS}); do {sbatch} -a 0-9%2 --wrap \"echo $i\" || exit; done")
    with concurrent.futures.ThreadPoolExecutor(len(loops)) as pool:
        outputs = list(pool.map(lambda loop: slurm.run("sh", "-c", loop, user=user,
                                                       seconds=600).stdout, loops))
    ids = [int(line) for output in outputs for line in output.split()]
    script = "#!/bin/sh\n" + "#SBATCH hetjob\n".join(["#SBATCH -n1\n"] * COMPONENTS) + "true\n"
    for _ in range(HETS):
        leader = int(slurm.sbatch("-H", script=script, user=user))
        ids += range(leader, leader + COMPONENTS)
    return ids


class Diagnostics:
    """What slurmctld has spent on questions for jobs. Nobody but the daemon asks any in this
    test."""

    def __init__(self, slurm):
        self.slurm = slurm
        self.begun = time.monotonic()
        self.first = self.read()

    def read(self):
        rows = re.findall(
            r"^\s+(REQUEST_JOB_INFO\w*)\s.*count:(\d+)\s+ave_time:\d+\s+total_time:(\d+)",
                          self.slurm.run("sdiag").stdout, re.MULTILINE)
        return {name: (int(count), int(microseconds)) for name, count, microseconds in rows}

    def since(self):
        """Its share of slurmctld's time, and the counts that make it, in words."""
        now = self.read()
        seconds = time.monotonic() - self.begun
        spent = {name: (count - self.first.get(name, (0, 0))[0],
                        total - self.first.get(name, (0, 0))[1])
                 for name, (count, total) in now.items()}
        share = sum(total for _, total in spent.values()) / 1e6 / seconds
        self.counts = {name: count for name, (count, _) in spent.items()}
        words = ", ".join(f"{count} x {name} {total / 1000:.0f} ms" for name, (count, total)
                          in spent.items())
        return share, f"{100 * share:.2f} % of {seconds:.0f} s: {words}"


def test_thousands_of_waiting_jobs_and_new_ones_at_two_rates(fresh_slurm, make_daemon, archive,
                                                             ordinary_user, record_property):
    if not harness.IS_ROOT:
        pytest.skip("only root can submit as another user")
    users = [ordinary_user, second_user(ordinary_user)]
    slurm = fresh_slurm("--nodes", "1", "--cpus", "8", "--min-job-age", "3600", "--conf",
                        "MaxJobCount=50000")
    owners = {}
    begun = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for user, ids in zip(users, pool.map(lambda user: submit_all(slurm, user), users)):
            owners.update(dict.fromkeys(ids, user.pw_name))
    print(f"{len(owners)} entries submitted in {time.monotonic() - begun:.0f} s")
    assert len(owners) == WAITING

    diagnostics = Diagnostics(slurm)
    daemon = make_daemon(sources={"slurm": {"spool": slurm.state, "rescan_seconds": 5,
                                            "resolve": "slurmctld",
                                            "slurm_conf": slurm.conf}},
                         sinks={"archive": {"layout": "user-month"}}).start()
    lock = threading.Lock()

    def submit(number):
        user = users[number % 2]
        # Most of them wait too. Tasks that run take numbers of their own.
        options = ["-H"] if number % 10 else ["-a", "0-4"]
        job = int(slurm.sbatch(*options, user=user))
        with lock:
            owners[job] = user.pw_name

    late = 0
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        pending = []
        number = 0
        pace = threading.Event()  # never set: the jobs come at their times
        for rate in RATES:
            start = time.monotonic()
            for i in range(rate * SECONDS):
                due = start + i / rate
                late = max(late, time.monotonic() - due)
                pace.wait(max(0, due - time.monotonic()))
                pending.append(pool.submit(submit, number))
                number += 1
                assert daemon.running(), daemon.log_tail()
        for future in pending:
            future.result()
    print(f"{number} new jobs; the latest began {late:.1f} s after its time")

    def settled(status):
        source = status["sources"]["slurm"]
        return (source["captured"] >= len(owners) and source["owners"]["waiting"] == 0
                and source["gaps"]["waiting"] == 0
                and status["sinks"]["archive"]["waiting"] == 0)
    status = daemon.wait_status(settled, "every job is archived and every number is judged", 240)
    share, words = diagnostics.since()
    print("slurmctld for us: " + words)
    record_property("slurmctld", words)
    # How long slurmctld takes is the machine's affair; how often it is asked is ours. A list costs
    # it milliseconds, one job a fraction of one.
    assert diagnostics.counts.get("REQUEST_JOB_INFO", 0) <= 10, words
    assert diagnostics.counts.get("REQUEST_JOB_INFO_SINGLE", 0) <= 2 * number, words
    source = status["sources"]["slurm"]
    gaps = source["gaps"]
    assert (gaps["suspected"], gaps["confirmed"], gaps["count_changes"]) == (0, 0, 0), gaps
    assert source["captured"] == len(owners) and source["missed"] == {"vanished": 0}, source
    found = {}
    for file in archive.path.rglob("*.json"):
        event = json.loads(file.read_bytes())
        assert event["user"]["verified"] is True, file
        found[int(event["job"]["id"])] = (file.relative_to(archive.path).parts[0],
                                          event["user"]["name"])
    wrong = {job: (found.get(job), owner) for job, owner in owners.items() if found.get(job)
             != (owner, owner)}
    assert not wrong, f"{len(wrong)} of {len(owners)}, such as {dict(list(wrong.items())[:5])}"
    assert len(found) == len(owners)
    assert daemon.terminate() == 0
    assert wait_for(lambda: "JOB_NUMBERS_SKIPPED" not in daemon.log_text(),
                    "nothing was suspected on the way")
