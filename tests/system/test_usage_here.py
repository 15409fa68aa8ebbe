"""`scriptorium usage --here` in jobs of a real Slurm under cgroup v1, as an ordinary user, with no
daemon and no configuration."""

import datetime
import json
import os
import pathlib
import shlex
import subprocess
import time

import pytest

import harness
from harness import wait_for
from usage_lab import BUSY_JOB, ROUNDED

HERE = f"{shlex.quote(str(harness.SCRIPTORIUM))} usage --here"
ON_ALL_NODES = ('(srun --overlap -n "$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 '
                f"{HERE} --until-exit &)\n")


@pytest.fixture
def folder(work, ordinary_user):
    """Where the user's jobs run."""
    if not harness.IS_ROOT:
        pytest.skip("needs root, for a Slurm with control groups")
    if pathlib.Path("/etc/scriptorium/scriptorium.toml").exists():
        pytest.skip("this machine has a configuration")
    folder = work / "home"
    folder.mkdir()
    os.chown(folder, ordinary_user.pw_uid, ordinary_user.pw_gid)
    return folder


@pytest.fixture
def submit(lab, folder, ordinary_user):
    """submit(lines, options...): a user's job; its id."""
    def make(script, *options):
        return lab.sbatch("--mem=200", "-D", str(folder), "-o", str(folder / "output"), *options,
                          script="#!/bin/bash\n" + script, user=ordinary_user)
    yield make
    lab.cancel_all()


def report(folder, job):
    """The newest report, or nothing yet; a torn one is an error."""
    try:
        text = (folder / f"scriptorium-usage-{job}.txt").read_text()
        whole = json.loads((folder / f"scriptorium-usage-{job}.json").read_text())
    except FileNotFoundError:
        return None
    assert text.startswith(f"job {job}") and text.endswith("\n")
    return whole


def wait_report(folder, job, condition, what):
    def there():
        found = report(folder, job)
        return found if found and condition(found["event"]) else None
    return wait_for(there, f"the report of job {job} {what}", 120)


def has_ended(event):
    return "state" not in event["job"]


def exit_code(lab, job):
    shown = lab.run("scontrol", "show", "job", job).stdout
    return next(word for word in shown.split() if word.startswith("ExitCode="))[9:]


def hidden(folder):
    return [path.name for path in folder.iterdir() if path.name.startswith(".")]


def test_a_user_gets_the_report_of_his_own_job_and_its_exit_code_stays(lab, folder, submit):
    used, go, done = folder / "used", folder / "go", folder / "done"
    before = lab.charged()
    job = submit(f"""set -e
{HERE} --until-exit
mkfifo {go}
{BUSY_JOB} {used} 5 100 0 &
wait    # for busy-job alone
read word < {go}
{HERE} > report
touch {done}
exit 3
""", "-J", "relax")
    wait_for(used.exists, f"job {job} has used its CPU time", 120)
    burnt = json.loads(used.read_text())
    found = wait_report(folder, job, lambda e: e["usage"]["cpu"]["time_seconds"] >= burnt["cpu"]
                        and e["usage"]["memory"]["peak_bytes"] >= 100 << 20, "has what it used")
    go.write_text("go\n")
    assert lab.wait_ended(job) == "FAILED"
    assert exit_code(lab, job) == "3:0"
    assert done.exists(), (folder / "output").read_text()
    event, nodes = found["event"], found["nodes"]
    print(json.dumps(event))
    usage = event["usage"]
    print(f"{usage['cpu']['time_seconds']} s of {burnt['cpu']} s")
    assert usage["cpu"]["time_seconds"] == pytest.approx(burnt["cpu"], rel=0.03)
    assert usage["cpu"]["time_seconds"] <= lab.charged() - before + ROUNDED
    assert usage["memory"]["peak_bytes"] < 130 << 20
    assert event["kind"] == "usage.job" and event["job"]["name"] == "relax"
    assert event["job"]["state"] == "RUNNING" and event["complete"] is False
    assert usage["request"]["memory_bytes"] == 200 << 20
    assert [node["kind"] for node in nodes] == ["usage.node"]
    assert "busy-job" in [p.get("script", p["name"]) for p in usage["programs"]]
    printed = (folder / "report").read_text()
    assert printed.startswith(f"job {job}  relax  RUNNING\n") and "of 200 MiB" in printed
    assert (folder / "output").read_text() == ""
    for kind in ("txt", "json"):
        file = folder / f"scriptorium-usage-{job}.{kind}"
        assert file.stat().st_uid == folder.stat().st_uid and not file.is_symlink()


def test_two_nodes_make_one_report(lab, folder, submit):
    used = folder / "used"
    before = lab.charged()
    job = submit(f"{ON_ALL_NODES}srun {BUSY_JOB} {used} 1 20 0\nwait\nexit 4\n",
                 "-N2", "-n4", "-O")  # on a machine with one CPU, too
    lab.wait_ended(job)
    assert exit_code(lab, job) == "4:0"
    most = lab.charged() - before
    found = wait_report(folder, job, has_ended, "is of all of it")
    burnt = dict.fromkeys(lab.nodes, 0)  # by node: what its last task to end saw
    for end in ("", ".1", ".2", ".3"):
        task = json.loads(pathlib.Path(f"{used}{end}").read_text())
        burnt[task["node"]] = max(burnt[task["node"]], task["cpu"])
    usage = found["event"]["usage"]
    print(json.dumps(usage))
    assert {node["host"]["name"] for node in found["nodes"]} == set(lab.nodes)
    assert usage["quality"]["nodes_reporting"] == usage["quality"]["nodes_expected"] == 2
    assert sum(burnt.values()) - ROUNDED <= usage["cpu"]["time_seconds"] <= most + ROUNDED
    for node in found["nodes"]:
        assert node["usage"]["cpu"]["time_seconds"] >= burnt[node["host"]["name"]] - ROUNDED
    wait_for(lambda: not hidden(folder), "the hidden files are gone")


@pytest.mark.parametrize("how", ["scancel", "time limit"])
def test_a_job_that_is_stopped_leaves_a_report(lab, folder, submit, how):
    job = submit(f"{ON_ALL_NODES}sleep 600\n",
                 *(["-t", "1"] if how != "scancel" else []))
    wait_report(folder, job, lambda event: event["usage"]["quality"]["samples"] >= 3, "is begun")
    cancelled = time.time()
    if how == "scancel":
        lab.run("scancel", job)
    state = lab.wait_ended(job)
    assert state == ("CANCELLED" if how == "scancel" else "TIMEOUT")
    usage = wait_report(folder, job, has_ended, "is of all of it")["event"]["usage"]
    print(json.dumps(usage))
    if how == "scancel":
        ended = datetime.datetime.fromisoformat(usage["ended_at"].replace("Z", "+00:00"))
        assert ended.timestamp() >= cancelled
    else:
        assert usage["elapsed_seconds"] > 59
    assert hidden(folder) == []


def test_a_kill_in_the_middle_of_writing_leaves_a_whole_report(lab, folder, submit):
    if b"SCRIPTORIUM_FAULT" not in harness.SCRIPTORIUM.read_bytes():
        pytest.skip("a build without fault points")
    stop = folder / "stop"
    # The first report takes two files, the third is half of the second report.
    job = submit(f"export SCRIPTORIUM_FAULT=usage.before_rename:3:kill\n{HERE} --until-exit\n"
                 f"until [ -e {stop} ]; do sleep 0.1; done\n")
    left = folder / f".scriptorium-usage-{job}.json.{lab.nodes[0]}~"

    def is_killed():
        return any(path.name.endswith("~") and path.stat().st_size > 0 for path in
                   folder.iterdir()) and not subprocess.run(
                       ["pgrep", "-f", f"^{harness.SCRIPTORIUM} usage"],
                       capture_output=True).stdout
    wait_for(is_killed, f"the command was killed, which leaves {left}", 60)
    assert report(folder, job)["event"]["usage"]["quality"]["samples"] == 1
    stop.touch()
    assert lab.wait_ended(job) == "COMPLETED"


def test_it_ends_with_the_script_that_called_it(lab, folder, submit):
    stop = folder / "stop"
    job = submit(f"bash -c '{HERE} --until-exit; true'\n"
                 f"until [ -e {stop} ]; do sleep 0.1; done\n")
    wait_report(folder, job, has_ended, "is of all of the inner script")
    stop.touch()
    assert lab.wait_ended(job) == "COMPLETED"


def test_a_folder_that_cannot_be_written_is_said_once_and_does_not_fail_the_job(lab, folder,
                                                                                submit):
    closed = folder / "closed"
    job = submit(f"set -e\nmkdir {closed}; chmod 500 {closed}; cd {closed}\n{HERE} --until-exit\n"
                 "sleep 3\n")
    assert lab.wait_ended(job) == "COMPLETED"
    lines = (folder / "output").read_text().splitlines()
    assert len(lines) == 1 and "permission denied" in lines[0], lines


def run_outside(ordinary_user, *options, **variables):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "PBS"))}
    return subprocess.run([str(harness.SCRIPTORIUM), "usage", "--here", *options],
                          capture_output=True, text=True, timeout=60, cwd="/tmp",
                          env={**env, **variables},
                          preexec_fn=harness.become_user(ordinary_user) if harness.IS_ROOT
                          else None)


def test_outside_of_a_job_it_says_so(ordinary_user):
    for options in ([], ["--until-exit"]):
        result = run_outside(ordinary_user, *options)
        assert (result.returncode, result.stdout) == (66, "")
        assert "this process does not run in a job" in result.stderr


def test_a_job_without_control_groups_here_is_refused_but_never_fails(ordinary_user):
    result = run_outside(ordinary_user, SLURM_JOB_ID="4000000000")
    assert (result.returncode, result.stdout) == (69, "")
    assert "job 4000000000 has no control groups on this node" in result.stderr
    result = run_outside(ordinary_user, "--until-exit", SLURM_JOB_ID="4000000000")
    assert (result.returncode, result.stdout) == (0, "")
    assert "job 4000000000 has no control groups on this node" in result.stderr


def test_the_template_measures_other_users_jobs_from_inside_a_job(lab, folder, submit,
                                                                  ordinary_user):
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("a node needs one CPU for the template's job and one for the other")
    tree = folder / "tree"
    template = harness.ROOT / "examples" / "usage-in-a-job.sbatch"
    own = lab.sbatch("-D", str(folder), "-t", "60",
                     script=template.read_text(), user=ordinary_user,
                     env={"SCRIPTORIUM": str(harness.SCRIPTORIUM), "TREE": str(tree),
                          "SCRATCH_OF_NODE": str(folder)})

    def logs_say(what):
        logs = [file.read_text() for file in folder.glob("scriptorium-*/log")]
        return len(logs) == 2 and all(what in log for log in logs)
    wait_for(lambda: logs_say(" STARTED: "), "two daemons run", 120)
    used = folder / "used-by-root"
    other = lab.sbatch("--mem=100", script=f"#!/bin/bash\nexec {BUSY_JOB} {used} 1 10 0\n")
    assert lab.wait_ended(other) == "COMPLETED"

    def there():
        for file in tree.rglob("*.json"):
            event = json.loads(file.read_bytes()) if not file.name.startswith(".") else {}
            if event.get("kind") == "usage.job" and event["job"]["id"] == other:
                return event
        return None
    event = wait_for(there, "the other job is in the tree", 60)
    assert event["user"]["id"] == "0" and event["job"]["state"] == "COMPLETED"
    if event["complete"]:
        burnt = json.loads(used.read_text())["cpu"]
        assert event["usage"]["cpu"]["time_seconds"] >= burnt - ROUNDED
    assert tree.stat().st_mode & 0o077 == 0
    lab.run("scancel", own)
    lab.wait_ended(own)
    wait_for(lambda: logs_say(" STOPPED: "), "both ended in order")
