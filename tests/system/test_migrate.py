"""scriptorium-migrate on a real Slurm of two nodes, with the real criu."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile

import checkpoint_lab
import harness
import pytest
from checkpoint_lab import check_no_gap, is_running, wait_lines
from harness import wait_for
# pylint: disable-next=unused-import
from test_checkpoint_slurm import Job, node, slurm  # noqa: F401
from test_run import COUNTER, FORMS, RunJob

MISSING = checkpoint_lab.what_is_missing()
pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)

MIGRATE = harness.BUILD / "scriptorium-migrate"
# Longer than any wait of the tests.
SLEEPER = "#!/bin/bash\nexec sleep 3600\n"
ONE_CPU = "-n1"


class Migrate:
    """The command, as root or as a user, with a state folder of its own."""

    def __init__(self, slurm, user=None):  # noqa: F811
        self.slurm, self.user = slurm, user
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="scr-", dir="/tmp"))
        if user is not None:
            shutil.chown(self.home, user.pw_uid, user.pw_gid)

    @property
    def env(self):
        return {**self.slurm.environment(self.user), "XDG_STATE_HOME": str(self.home)}

    @property
    def states(self):
        """The files of moves and drains that are not done."""
        return sorted(self.home.glob("*/*.json"))

    def stages(self):
        found = []
        for path in self.states:
            with open(path) as file:
                found.append(json.load(file).get("stage"))
        return found

    def wait_stage(self, stage, process):
        """MoveStage of a move, while the process works on it."""
        wait_for(lambda: stage in self.stages() or process.poll() is not None,
                 f"the move is at step {stage}", 120, step=0.002)
        assert process.poll() is None, process.communicate()

    def begin(self, *options):
        become = harness.become_user(self.user) if self.user is not None else None
        return subprocess.Popen([str(MIGRATE), "-v", "--json", *options], env=self.env, cwd="/tmp",
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                preexec_fn=become)

    def end(self, process, code):
        out, said = process.communicate(timeout=240 * harness.PATIENCE)
        assert process.returncode == code, f"{process.returncode}: {out}{said}"
        return {job["job"]: job for job in json.loads(out)["jobs"]} if out else said

    def __call__(self, *options, code=0):
        """The report of each job, by its id."""
        return self.end(self.begin(*options), code)


@pytest.fixture
def migrate(slurm):  # noqa: F811
    made = []

    def make(user=None):
        made.append(Migrate(slurm, user))
        return made[-1]
    yield make
    for each in made:
        shutil.rmtree(each.home)
    for name in slurm.nodes:
        give_back(slurm, name)


def node_of(job):
    return job.field("NodeList")


def node_state(slurm, name):  # noqa: F811
    return slurm.run("sinfo", "-h", "-N", "-n", name, "-O", "StateComplete:|,Reason:|").stdout


def give_back(slurm, name):  # noqa: F811
    """A node that was just resumed does not respond yet, and Slurm has no place on it."""
    slurm.run("scontrol", "update", f"NodeName={name}", "State=RESUME", check=False)
    wait_for(lambda: "drain" not in node_state(slurm, name) and
             "not_responding" not in node_state(slurm, name), f"{name} responds")


class OnFirst:
    """While jobs are submitted, all start on the first node, without a request for it."""

    def __init__(self, slurm):  # noqa: F811
        self.slurm = slurm

    def __enter__(self):
        self.slurm.run("scontrol", "update", f"NodeName={self.slurm.nodes[1]}", "State=DRAIN",
                       "Reason=test")

    def __exit__(self, *_):
        give_back(self.slurm, self.slurm.nodes[1])


def counter(slurm, node, name, *options):  # noqa: F811
    job = RunJob(slurm, node, node.directory(node.alice, name, program=COUNTER), FORMS["middle"],
                 ONE_CPU, *options)
    job.wait_output()
    return job


def sleeper(slurm, node, name, *options):  # noqa: F811
    job = Job(slurm, node, node.directory(node.alice, name), ONE_CPU, *options, script=SLEEPER)
    return job


def sleep_of(job, place):
    """The process of a sleeper's script."""
    for pid in job.processes(place):
        if pathlib.Path(f"/proc/{pid}/cmdline").read_bytes() == b"sleep\x003600\x00":
            return pid
    return None


def check_no_line_lost(job):
    """Nor written twice, in the output of all lives."""
    assert job.output() == [str(n + 1) for n in range(len(job.output()))]


def check_moved(report, slurm):  # noqa: F811
    assert report["outcome"] == "moved" and report["as_asked"], report
    assert (report["from"], report["to"]) == tuple(slurm.nodes), report
    assert 0 < report["downtime_seconds"] < 120, report
    print(f"moved in {report['downtime_seconds']:.2f} s")


def test_a_drain_moves_what_can_be_saved_and_nothing_else(slurm, node, migrate):  # noqa: F811
    first, second = slurm.nodes
    with OnFirst(slurm):
        saved = counter(slurm, node, "saved")
        plain = sleeper(slurm, node, "plain")
        plain.wait_state("RUNNING")
    waiting = sleeper(slurm, node, "waiting", f"--nodelist={first}")
    plain_pid = wait_for(lambda: sleep_of(plain, first), "the job has its process")
    root = migrate()

    tested = root("--test-only", "--drain-node", first, code=1)
    assert tested[saved.id]["outcome"] == "movable"
    assert "drain" not in node_state(slurm, first)

    reports = root("--drain-node", first, "--reason=new fan", code=1)
    check_moved(reports[saved.id], slurm)
    assert reports[saved.id]["method"] == "scriptorium-run"
    assert reports[plain.id]["outcome"] == "left"
    assert "does not catch SIGUSR2" in reports[plain.id]["reason"]
    assert set(reports) == {saved.id, plain.id}
    saved.wait_output()
    check_no_line_lost(saved)
    assert node_of(saved) == second
    assert saved.field("ExcNodeList") == "(null)"
    assert sleep_of(plain, first) == plain_pid and plain.field("Restarts") == "0"
    assert waiting.field("JobState") == "PENDING" and waiting.field("Restarts") == "0"
    state, reason = node_state(slurm, first).strip("|\n").split("|")
    assert "drain" in state and reason == "new fan"

    root("--undo", "--drain-node", first)
    assert "drain" not in node_state(slurm, first)
    assert root.states == []


def test_a_script_with_a_trap_and_a_task_of_an_array_are_moved(slurm, node, migrate):  # noqa: F811
    first = slurm.nodes[0]
    with OnFirst(slurm):
        script = Job(slurm, node, node.directory(node.alice, "trap"), ONE_CPU)
        wait_lines(script.directory)
        task = counter(slurm, node, "task", "--array=3")
    wait_polls(script, first)
    slurm.run("scontrol", "update", f"NodeName={first}", "State=DRAIN", "Reason=of another")
    reports = migrate()("--drain-node", first)
    check_moved(reports[script.id], slurm)
    assert reports[script.id]["method"] == "trap"
    check_moved(reports[f"{task.id}_3"], slurm)
    assert len(reports) == 2
    wait_lines(script.directory)
    check_no_gap(script.directory)
    task.wait_output()
    check_no_line_lost(task)
    # It was drained before, so its reason remains and it is not given back.
    assert node_state(slurm, first).strip("|\n").endswith("|of another")
    migrate()("--undo", "--drain-node", first, code=1)
    assert "drain" in node_state(slurm, first)


def wait_polls(job, place):
    """The script has its program's pid, and polls."""
    def polls():
        return any(pathlib.Path(f"/proc/{pid}/cmdline").read_bytes() == b"sleep\x000.2\x00"
                   for pid in job.processes(place) if is_running(pid))
    wait_for(polls, "the job's script waits for its program")


def test_a_user_moves_a_job_of_his_own_and_no_other(slurm, node, migrate):  # noqa: F811
    first = slurm.nodes[0]
    with OnFirst(slurm):
        job = counter(slurm, node, "own")
    other = migrate(node.mallory)(job.id, code=1)[job.id]
    assert "only root or the job's owner" in other["reason"] and job.field("Restarts") == "0"

    own = migrate(node.alice)
    check_moved(own(job.id)[job.id], slurm)
    job.wait_output()
    check_no_line_lost(job)
    # Slurm lets nobody change it while the job runs.
    assert job.field("ExcNodeList") == first
    assert "only while it waits" in own("--undo", job.id, code=1)[job.id]["reason"]
    job.signal()
    job.wait_submitted_again(2)
    own("--undo", job.id)
    assert job.field("ExcNodeList") == "(null)" and own.states == []


def test_jobs_that_cannot_be_saved_are_requeued_only_if_that_is_asked_for(slurm, node,  # noqa: F811
                                                                         migrate):
    first = slurm.nodes[0]
    with OnFirst(slurm):
        plain = sleeper(slurm, node, "plain")
        kept = sleeper(slurm, node, "kept", "--no-requeue")
        plain.wait_state("RUNNING")
        kept.wait_state("RUNNING")
    reports = migrate()("--drain-node", first, "--no-ckpt=requeue", code=1)
    assert reports[plain.id]["outcome"] == "requeued" and reports[plain.id]["lost_seconds"] >= 0
    assert reports[kept.id]["outcome"] == "left" and "--no-requeue" in reports[kept.id]["reason"]
    assert node_of(plain) == slurm.nodes[1] and plain.field("Restarts") == "1"
    assert kept.field("JobState") == "RUNNING" and kept.field("Restarts") == "0"


def test_a_job_of_two_nodes_is_left(slurm, node, migrate):  # noqa: F811
    job = Job(slurm, node, node.directory(node.alice), "-N2", "--ntasks-per-node=1", script=SLEEPER)
    job.wait_state("RUNNING")
    report = migrate(node.alice)(job.id, code=1)[job.id]
    assert report["outcome"] == "left" and "runs on 2 nodes" in report["reason"]
    assert job.field("Restarts") == "0"


def test_a_held_job_needs_the_node_that_was_named_once_it_is_released(slurm, node,  # noqa: F811
                                                                     migrate):
    second = slurm.nodes[1]
    with OnFirst(slurm):
        job = counter(slurm, node, "job")
    root = migrate()
    report = root("-H", "-w", second, job.id)[job.id]
    assert report["outcome"] == "held" and "and needs the nodes " + second in report["reason"]
    assert (job.field("JobState"), job.field("Reason")) == ("PENDING", "JobHeldUser")
    slurm.run("scontrol", "release", job.id, user=node.alice)
    job.wait_state("RUNNING")
    assert node_of(job) == second
    job.wait_output()
    check_no_line_lost(job)


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_a_run_that_was_killed_after_a_step_is_continued_by_the_next(slurm, node,  # noqa: F811
                                                                    migrate, stage):
    first = slurm.nodes[0]
    with OnFirst(slurm):
        job = counter(slurm, node, "job")
    root = migrate()
    killed = root.begin("--drain-node", first)
    root.wait_stage(stage, killed)
    os.kill(killed.pid, signal.SIGKILL)
    killed.communicate()
    reports = root("--drain-node", first)
    if reports:
        check_moved(reports[job.id], slurm)
    wait_for(lambda: job.field("JobState") == "RUNNING" and node_of(job) == slurm.nodes[1],
             "the job is on the other node", 120)
    job.wait_output()
    check_no_line_lost(job)
    assert [path.name for path in root.states] == [f"node-{first}.json"]
    root("--undo", "--drain-node", first)


def test_an_interrupt_leaves_a_job_that_runs_on_and_says_how_to_continue(slurm, node,  # noqa: F811
                                                                        migrate):
    first = slurm.nodes[0]
    with OnFirst(slurm):
        job = counter(slurm, node, "job")
    root = migrate()
    process = root.begin("--drain-node", first)
    root.wait_stage(2, process)
    process.send_signal(signal.SIGINT)
    out, said = process.communicate(timeout=60 * harness.PATIENCE)
    assert process.returncode == 75, out + said
    assert f"this continues it: scriptorium-migrate -v --json --drain-node {first}" in said
    job.wait_state("RUNNING")
    check_moved(root("--drain-node", first)[job.id], slurm)
    job.wait_output()
    check_no_line_lost(job)


def restart_controller(slurm):  # noqa: F811
    started = slurm.directory / "run" / "slurmctld.started"
    pid = int(started.read_text().split()[0])
    os.kill(pid, signal.SIGTERM)
    wait_for(lambda: not is_running(pid), "slurmctld ends")
    with open(slurm.directory / "log" / "slurmctld.out", "ab") as log:
        process = subprocess.Popen(["slurmctld", "-D"], env=slurm.environment(), stdout=log,
                                   stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
    # As the lab writes it, which ends the process.
    stat = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    started.write_text(f"{process.pid} {stat[19]}\n")


def test_a_move_goes_through_a_restart_of_slurms_controller(slurm, node, migrate):  # noqa: F811
    first = slurm.nodes[0]
    with OnFirst(slurm):
        job = counter(slurm, node, "job")
    root = migrate()
    process = root.begin("--drain-node", first)
    root.wait_stage(2, process)
    restart_controller(slurm)
    check_moved(root.end(process, 0)[job.id], slurm)
    job.wait_output()
    check_no_line_lost(job)


def test_wrong_command_lines_are_refused(slurm):  # noqa: F811
    for words in ([], ["4711", "--drain-node=n1"], ["all"], ["--no-ckpt=kill", "1"]):
        result = subprocess.run([str(MIGRATE), *words], capture_output=True, text=True, timeout=60)
        assert result.returncode == 64 and "usage: " in result.stderr, result
