"""One user cannot stop capture for everybody, on a real Slurm with two users and a destination that
is away."""

import base64
import os
import pwd
import signal

import pytest

import harness
from harness import wait_for

ON_DISK = True
SCRIPT_BYTES = 3_000_000


@pytest.fixture
def two_users():
    if not harness.IS_ROOT:
        pytest.skip("jobs of two users need root")
    found = []
    for name in ("games", "daemon", "nobody", "news"):
        try:
            found.append(pwd.getpwnam(name))
        except KeyError:
            continue
    if len(found) < 2:
        pytest.skip("there are no two users to submit as")
    return found[:2]


def incompressible(seed):
    noise = base64.b64encode(os.urandom(SCRIPT_BYTES * 3 // 4)).decode()
    return f"#!/bin/bash\n# {seed}\n: '{noise}'\n"


def test_a_user_at_his_share_waits_in_the_spool_and_the_others_are_captured(slurm, two_users,
                                                                            make_daemon, archive):
    greedy, modest = two_users
    # Full share after some five of his scripts, the last fifth after some twenty.
    daemon = make_daemon(journal_max_bytes=64 << 20,
                         sources={"slurm": {"spool": str(slurm.state), "resolve": "slurmctld",
                                            "slurm_conf": str(slurm.conf)}},
                         sinks={"archive": {"layout": "{user}/{job_id}.{ext}",
                                            "min_free_bytes": 1 << 50}}).start()
    scripts = {}
    for i in range(30):
        script = incompressible(i)
        scripts[slurm.sbatch("-H", script=script, user=greedy)] = script
    status = daemon.wait_status(lambda s: any(u["user"] == greedy.pw_name and u["waiting"] >= 10
                                              for u in s["journal"]["over_share"]),
                                "he is named, and his entries wait", 90)
    journal = status["journal"]
    held = next(u for u in journal["over_share"] if u["user"] == greedy.pw_name)
    assert held["bytes"] <= journal["user_share_bytes"] == 16 << 20
    assert not journal["full"], journal
    text = daemon.command("status", check=False).stdout
    assert greedy.pw_name in text and "wait in the spool" in text, text
    assert greedy.pw_name in daemon.command("status", "--check", check=False).stdout

    captured = daemon.source()["captured"]
    small = {slurm.sbatch("-H", script=f"#!/bin/bash\ntrue {i}\n",
                          user=modest): f"#!/bin/bash\ntrue {i}\n" for i in range(20)}
    daemon.wait_status(lambda s: s["sources"]["slurm"]["captured"] >= captured + len(small),
                       "the other user's jobs are captured", 60)
    assert daemon.status()["journal"]["bytes"] < 40 << 20

    daemon.config.write_text(daemon.config.read_text().replace(f"min_free_bytes = {1 << 50}",
                                                               "min_free_bytes = 0"))
    daemon.process.send_signal(signal.SIGHUP)
    for user, jobs in ((greedy, scripts), (modest, small)):
        folder = archive.path / user.pw_name
        wait_for(lambda: all((folder / f"{job}.sh").exists() for job in jobs),
                 lambda: f"{sum((folder / f'{job}.sh').exists() for job in jobs)} of {len(jobs)} "
                         f"of {user.pw_name} are archived", 120)
        for job, script in jobs.items():
            assert (folder / f"{job}.sh").read_bytes() == script.encode(), job
    daemon.wait_status(lambda s: not s["journal"]["over_share"], "nobody waits", 60)
