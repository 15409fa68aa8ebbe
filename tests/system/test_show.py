"""`show` under every name that Slurm's users have for a job, and for people who are not the
administrator."""

import os
import subprocess

import pytest

import harness
from harness import EX_NOINPUT, EX_OK, IS_ROOT, wait_for

LAYOUT = {"archive": {"layout": "{user}/{job_id}.{ext}"}}


@pytest.fixture
def three_kinds(slurm, make_daemon, archive):
    """A daemon beside a real Slurm with an array of three tasks and a heterogeneous job of three
    components in the archive."""
    array = slurm.sbatch("--array=1-3", "--hold", script="#!/bin/sh\necho array\n")
    het = slurm.run("sbatch", "--parsable", "--hold", "-o", "/dev/null", "-n1", "--wrap",
                    "echo het", ":", "-n1", ":", "-n1").stdout
    het = het.strip().split(";")[0].split("+")[0]
    daemon = make_daemon(sources={"slurm": {"spool": str(slurm.state), "resolve": "slurmctld",
                                            "slurm_conf": str(slurm.conf)}},
                         sinks=LAYOUT).start()
    wanted = {array, *(str(int(het) + n) for n in range(3))}
    wait_for(lambda: {p.stem for p in archive.path.rglob("*.json")} >= wanted,
             f"{wanted} are archived")
    return daemon, array, int(het)


def test_show_takes_each_name_that_slurm_has_for_a_job(three_kinds, slurm):
    daemon, array, het = three_kinds
    for name in (array, f"{array}_1", f"{array}_[1-3]"):
        shown = daemon.command("show", name).stdout
        assert f"job {array}" in shown and "echo array" in shown \
        and "one script for all its tasks" in shown, shown
    # A task that was split off has its own number, which is in no spool.
    slurm.run("scontrol", "release", f"{array}_2")
    raw = slurm.run("squeue", "-h", "-t", "all", "-j", f"{array}_2", "-O",
                    "JobID:20").stdout.strip()
    assert raw.isdigit() and raw != array
    assert "echo array" in daemon.command("show", raw).stdout

    for component in range(3):
        shown = daemon.command("show", f"{het}+{component}").stdout
        assert f"component {component + 1} of 3 of {het} ({het}+{component})" in shown, shown
    assert "echo het" in daemon.command("show", str(het)).stdout
    missing = daemon.command("show", f"{het}+7", check=False)
    assert missing.returncode == EX_NOINPUT, missing.stderr


@pytest.mark.skipif(not IS_ROOT, reason="only root can look as another user")
def test_an_owner_sees_his_own_job_and_is_told_what_he_could_not_look_into(make_daemon, archive,
                                                                           spool, work,
                                                                           ordinary_user):
    daemon = make_daemon(sinks=LAYOUT)
    os.chmod(daemon.config, 0o644)
    archive.path.mkdir(mode=0o711)
    archive.path.chmod(0o711)
    for name, job in ((ordinary_user.pw_name, "7"), ("somebody-else", "8")):
        folder = archive.path / name
        folder.mkdir()
        (folder / f"{job}.sh").write_text(f"#!/bin/sh\necho of {name}\n")
        (folder / f"{job}.json").write_text(
            '{"schema": "scriptorium.event/1", "id": "%s", "kind": "job.script", "job": '
            '{"id": "%s"}}'
                                            % (job * 64, job))
        folder.chmod(0o700)
    for path in (archive.path / ordinary_user.pw_name).iterdir():
        os.chown(path, ordinary_user.pw_uid, ordinary_user.pw_gid)
    os.chown(archive.path / ordinary_user.pw_name, ordinary_user.pw_uid, ordinary_user.pw_gid)

    def show(job):
        return subprocess.run([str(harness.SCRIPTORIUM), "show", job, "--config",
                               str(daemon.config)], capture_output=True, text=True,
                              preexec_fn=harness.become_user(ordinary_user))
    mine = show("7")
    assert mine.returncode == EX_OK, mine.stderr
    assert f"echo of {ordinary_user.pw_name}" in mine.stdout
    other = show("8")
    assert other.returncode != EX_OK and "echo of" not in other.stdout
    assert "may not read all of the archive" in other.stderr, other.stderr
