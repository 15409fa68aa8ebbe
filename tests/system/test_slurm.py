"""Against a real Slurm (tests/support/slurm-lab): from sbatch to the archive."""

import json
import os

import pytest

import harness
from harness import wait_for

ON_DISK = True  # a real file system, with its ACLs and its syncs


def slurm_source(slurm, **options):
    return {"slurm": {"spool": str(slurm.state), "resolve": "slurmctld",
                      "slurm_conf": str(slurm.conf), **options}}


def find_event(archive, job):
    """The metadata of a job, wherever in the tree it lies; None if it is not there."""
    for file in archive.path.rglob("*.json"):
        if file.name.startswith("."):
            continue
        event = json.loads(file.read_bytes())
        if event["job"]["id"] == job:
            return file, event
    return None


def wait_event(archive, job):
    return wait_for(lambda: find_event(archive, job), f"job {job} is in the archive")


def script_of(file):
    return file.with_name(file.name[:-len(".json")] + ".sh").read_bytes()


LAYOUT = {"archive": {"layout": "user-month"}}


def test_submitted_jobs_stand_in_the_tree_byte_for_byte(slurm, make_daemon, archive, work):
    daemon = make_daemon(sources=slurm_source(slurm), sinks=LAYOUT).start()
    script = "#!/bin/bash\n#SBATCH --time=5\n# caf\u00e9\necho ordinary\nexit 0"  # no final newline
    jobs = {
        "ordinary": slurm.sbatch("-J", "md", script=script),
        "array": slurm.sbatch("-a", "0-9%2", "-J", "sweep"),
        "wrapped": slurm.run("sbatch", "--parsable", "-o", "/dev/null", "--wrap",
                             "true").stdout.strip(),
        "hostile": slurm.sbatch("-J", "../../../etc/cron.d/x"),
        "newline": slurm.sbatch("-J", "a\nb\x1b[31m"),
        "dash": slurm.sbatch("-J", "-rf"),
        "long": slurm.sbatch("-J", "n" * 1000),
    }
    cancelled = slurm.sbatch("-J", "cancelled", "--hold")
    slurm.run("scancel", cancelled)
    jobs["cancelled"] = cancelled
    me = os.environ.get("USER") if not harness.IS_ROOT else "root"
    for kind, job in jobs.items():
        file, event = wait_event(archive, job)
        assert script_of(file) == slurm.batch_script(job), kind
        assert event["user"]["verified"] is True, kind
        assert me is None or event["user"]["name"] == me
        assert file.resolve().is_relative_to(archive.path.resolve())
        assert not file.name.startswith((".", "-"))
        parts = file.relative_to(archive.path).parts
        assert parts[0] == event["user"]["name"] and parts[1].isdigit() and parts[2].isdigit() \
        and len(parts) == 4
    event = wait_event(archive, jobs["array"])[1]
    assert event["job"]["array"]["job_id"] == jobs["array"]
    assert event["job"]["name"] == "sweep"
    assert wait_event(archive, jobs["newline"])[1]["job"]["name"].startswith("a\nb")
    assert daemon.sink()["dead"] == 0


def test_a_job_with_a_forged_user_lands_under_its_owners_name(slurm, make_daemon, archive,
                                                              ordinary_user):
    make_daemon(sources=slurm_source(slurm), sinks=LAYOUT).start()
    job = slurm.sbatch("-J", "forged", user=ordinary_user,
                       env={"USER": "root", "LOGNAME": "root", "HOME": "/root",
                            "SLURM_JOB_USER": "root"})
    file, event = wait_event(archive, job)
    assert event["user"] == {**event["user"], "name": ordinary_user.pw_name,
                             "id": str(ordinary_user.pw_uid), "verified": True}
    assert file.relative_to(archive.path).parts[0] == ordinary_user.pw_name
    env = file.with_name(file.name[:-5] + ".env").read_bytes().split(b"\0")
    assert b"USER=root" in env, "the environment is kept as it was sent"
    assert script_of(file) == slurm.batch_script(job)


def test_with_slurmctld_stopped_a_job_lands_under_unverified(fresh_slurm, make_daemon, archive,
                                                             ordinary_user):
    slurm = fresh_slurm("--nodes", "1", "--min-job-age", "300")
    job = slurm.sbatch("--hold", "-J", "orphan", user=ordinary_user, env={"USER": "root"})
    script = slurm.batch_script(job)
    slurm.stop_controller()
    daemon = make_daemon(sources=slurm_source(slurm, resolve_timeout_seconds=2),
                         sinks=LAYOUT).start()
    # Although slurmctld stays stopped.
    file, event = wait_event(archive, job)
    assert not (event["user"] or {}).get("verified")
    assert file.relative_to(archive.path).parts[0] == "unverified"
    assert script_of(file) == script
    # Later jobs are verified again once slurmctld is back.
    assert slurm.up().returncode == 0
    later = slurm.sbatch("-J", "later", user=ordinary_user)
    file, event = wait_event(archive, later)
    assert event["user"]["verified"] is True and event["user"]["name"] == ordinary_user.pw_name
    assert daemon.running()


def test_submit_and_cancel_at_once_at_the_shortest_job_age_loses_none(fresh_slurm, make_daemon,
                                                                      archive):
    slurm = fresh_slurm("--nodes", "1", "--min-job-age", "2")
    daemon = make_daemon(sources=slurm_source(slurm),
                         sinks={"archive": {"layout": "{job_id}.{ext}"}}).start()
    jobs = []
    for i in range(60):
        job = slurm.sbatch("--hold", script=f"#!/bin/sh\necho short {i}\n")
        slurm.run("scancel", job)
        jobs.append((job, i))
    wait_for(lambda: archive.scripts() >= {job for job, _ in jobs},
             lambda: f"{len({job for job, _ in jobs} - archive.scripts())} of "
                     f"{len(jobs)} are missing")
    for job, i in jobs:
        assert (archive.path / f"{job}.sh").read_bytes() == f"#!/bin/sh\necho short {i}\n".encode()
    assert sum(daemon.source()["missed"].values()) == 0


PBS = "#!/bin/bash\n#PBS -N other\n#SBATCH -J own\n#SBATCH -t 9\ncd /\n#PBS -l walltime=00:07:00\n"
BSUB = "#!/bin/bash\n#SBATCH -J own\n#PBS -l walltime=00:07:00\n#BSUB -J other\n"


@pytest.mark.parametrize("script, env, name, limit, directives", [
    (PBS, {}, "other", "00:07:00", ["-J own", "-t 9", "#PBS -N other",
                                    "#PBS -l walltime=00:07:00"]),
    (BSUB, {}, "other", "UNLIMITED", ["-J own", "#BSUB -J other"]),
    (PBS, {"SBATCH_IGNORE_PBS": ""}, "own", "00:09:00", ["-J own", "-t 9"]),
    (PBS.replace("#SBATCH -t", "#SBATCH --ig -t"), {}, "own", "00:09:00",
     ["-J own", "--ig -t 9"]),
], ids=["pbs", "bsub", "ignored-by-variable", "ignored-by-directive"])
def test_the_directives_are_those_that_sbatch_obeyed(slurm, make_daemon, archive, script, env,
                                                     name, limit, directives):
    make_daemon(sources=slurm_source(slurm), sinks=LAYOUT).start()
    job = slurm.sbatch("--hold", script=script, env=env)
    said = slurm.run("scontrol", "show", "job", job).stdout
    assert f" JobName={name}\n" in said and f" TimeLimit={limit} " in said, said
    _, event = wait_event(archive, job)
    assert event["script"]["directives"] == directives
    assert event["job"]["name"] == name
    slurm.run("scancel", job)


def test_het_components_are_told_apart_and_the_stub_is_marked(slurm, make_daemon, archive):
    make_daemon(sources=slurm_source(slurm), sinks=LAYOUT).start()
    job = slurm.sbatch("-J", "het",
                       script="#!/bin/bash\n#SBATCH -n1\n#SBATCH hetjob\n#SBATCH -n1\nsrun true\n")
    _, leader = wait_event(archive, job)
    _, component = wait_event(archive, str(int(job) + 1))
    assert leader["job"]["het"]["job_id"] == job and leader["job"]["het"]["component"] == 0
    assert component["job"]["het"]["job_id"] == job and component["job"]["het"]["component"] == 1


def test_an_id_that_slurm_gives_again_makes_a_second_event(fresh_slurm, make_daemon, archive):
    slurm = fresh_slurm("--nodes", "1", "--min-job-age", "2", "--conf", "FirstJobId=2", "--conf",
                        "MaxJobId=4")
    daemon = make_daemon(sources=slurm_source(slurm),
                         sinks={"archive": {"layout": "{job_id}.{ext}"}}).start()
    scripts = {}
    for i in range(4):  # ids 2 and 3 only: each comes twice
        text = f"#!/bin/sh\necho round {i}\n"
        job = slurm.sbatch(script=text)
        scripts.setdefault(job, []).append(text.encode())
        daemon.wait_acknowledged(i + 1)
        if len(scripts) * 2 <= i + 1 or i == 1:
            # The ids are used up until slurmctld forgets the jobs, a minute after their end at the
            # latest, and sbatch would retry for long. Slurm 24.11 may leave their files there even
            # then, until it forgets another job.
            wait_for(lambda: not slurm.run("squeue", "-h", "-t", "all").stdout.strip(),
                     "slurmctld forgets the finished jobs", 180)
    assert sorted(len(s) for s in scripts.values()) == [2, 2], scripts
    found = sorted((archive.path / f"{name}.sh").read_bytes() for name in archive.scripts())
    assert found == sorted(s for list_ in scripts.values() for s in list_)


def test_check_against_a_running_slurm_is_good_and_says_so(slurm, make_daemon):
    result = make_daemon(sources=slurm_source(slurm), sinks=LAYOUT).command("check")
    assert result.returncode == 0
    assert "slurm" in result.stdout


@pytest.mark.skipif(not harness.IS_ROOT, reason="needs jobs of two users")
def test_the_owner_alone_may_read_his_job_with_owner_may_read(slurm, make_daemon, archive,
                                                              ordinary_user, work):
    daemon = make_daemon(sources=slurm_source(slurm),
                         sinks={"archive": {"layout": "user-month", "owner_may_read": True,
                                            "acl": "required"}})
    check = daemon.command("check", check=False)
    if check.returncode != 0 and "ACL" in check.stdout + check.stderr:
        pytest.skip("this file system has no ACLs")
    daemon.start()
    job = slurm.sbatch("-J", "mine", user=ordinary_user)
    file, _ = wait_event(archive, job)
    acl = harness.subprocess.run(["getfacl", "-cpn", str(file)], capture_output=True,
                                 text=True).stdout
    assert f"user:{ordinary_user.pw_uid}:r--" in acl, acl
    assert "other::---" in acl, acl
