"""scriptorium-checkpointd and the real criu under a real Slurm of two nodes: the script of
checkpoint-job.sh, signalled by Slurm before its time limit and submitted again for its exit code.
Both nodes are on this machine, so one service has the jobs of both."""

import checkpoint_lab
import harness
import pytest
import usage_lab
from checkpoint_lab import (CGROUPS, JOB_SCRIPT, check_no_gap, failure, is_running, processes_in,
                            wait_lines)
from harness import wait_for

MISSING = checkpoint_lab.what_is_missing()
pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)

FLOCK = """#!/usr/bin/python3 -I
import fcntl, time
lock = open("lock", "w")
fcntl.flock(lock, fcntl.LOCK_EX)
n = 0
while True:
    n += 1
    with open("lines", "a") as file:
        file.write(f"{n}\\n")
    time.sleep(0.05)
"""


class Job:
    def __init__(self, slurm, node, directory, *options, script=JOB_SCRIPT.read_text(), env=(),
                 user=None):
        self.slurm, self.user, self.directory = slurm, user or node.alice, directory
        self.id = slurm.sbatch(
            "--mem=200", "--requeue", "--open-mode=append", "-D", str(directory),
            "-o", str(directory / "job.out"), *options, script=script,
            user=self.user, env={"REQUESTS": str(node.spool), **dict(env)})

    def field(self, name):
        shown = self.slurm.run("scontrol", "show", "job", self.id).stdout.split()
        return next(word for word in shown if word.startswith(f"{name}=")).partition("=")[2]

    def processes(self, node):
        """Those that are in the job's control group on that node."""
        group = CGROUPS / "freezer" / f"slurm_{node}" / f"uid_{self.user.pw_uid}" / f"job_{self.id}"
        return [pid for folder in [group, *group.rglob("*/")] for pid in processes_in(folder)]

    def wait_state(self, state):
        wait_for(lambda: self.field("JobState") == state,
                 lambda: f"job {self.id} becomes {state}: {self.field('JobState')}", 120, 0.1)

    def wait_resumed(self, node):
        """The program runs on, on that node. Its process id."""
        self.wait_state("RUNNING")
        pidfile = self.directory / "checkpoint" / "pidfile"
        wait_for(lambda: int(pidfile.read_text()) in self.processes(node),
                 f"the program is in the job's control group on {node}")
        wait_lines(self.directory)
        return int(pidfile.read_text())

    def signal(self):
        self.slurm.run("scancel", "--batch", "--signal=USR2", self.id, user=self.user)

    def wait_submitted_again(self, life):
        wait_for(lambda: self.field("Restarts") == str(life) and
                 self.field("JobState") == "PENDING", f"life {life} is waiting", 120, 0.1)

    def start_on(self, node):
        """Slurm would wait two minutes before it starts a job again. In the second in which the
        last life ended, slurmd refuses the next one ("Job credential revoked")."""
        self.slurm.run("scontrol", "update", f"JobId={self.id}", f"ReqNodeList={node}",
                       "StartTime=now+2", user=self.user)

    def cancel(self):
        self.slurm.run("scancel", self.id)
        self.wait_state("CANCELLED")


@pytest.fixture(scope="module")
def slurm():
    with harness.running_slurm("--nodes", "2", kind=usage_lab.CgroupSlurm) as lab:
        yield lab


@pytest.fixture
def node(work, criu, slurm):
    node = checkpoint_lab.Node(work, criu)
    yield node.start()
    slurm.cancel_all()
    node.cleanup()


def test_a_counter_lives_on_beyond_its_time_limit_here_and_on_another_node(slurm, node):
    first, second = slurm.nodes
    directory = node.directory(node.alice)
    # Slurm signals up to 30 s early; before the script's trap, a signal would end it.
    job = Job(slurm, node, directory, "--time=1", "--signal=B:USR2@20", f"--nodelist={first}")
    for life, place in enumerate([first, first, second], start=1):
        job.wait_submitted_again(life)
        check_no_gap(directory)
        job.start_on(place)
        job.wait_resumed(place)
    (directory / "stop").touch()
    # What has ended by itself is not started again, and so the chain of jobs ends.
    job.wait_submitted_again(4)
    job.start_on(second)
    job.wait_state("FAILED")
    assert failure(directory).startswith("ended: ")
    assert (directory / "checkpoint" / "exit_code").read_text() == "7\n"
    check_no_gap(directory)


def test_a_cancelled_job_leaves_nothing_of_what_was_restored(slurm, node):
    place = slurm.nodes[0]
    directory = node.directory(node.alice)
    job = Job(slurm, node, directory, f"--nodelist={place}")
    wait_lines(directory)
    job.signal()
    job.wait_submitted_again(1)
    job.start_on(place)
    program = job.wait_resumed(place)
    tree = job.processes(place)
    assert program in tree
    slurm.run("scancel", job.id, user=job.user)
    job.wait_state("CANCELLED")
    wait_for(lambda: not any(is_running(pid) for pid in tree), "the job's processes end")


def test_a_program_that_cannot_be_saved_runs_on(slurm, node):
    directory = node.directory(node.alice, program=FLOCK)
    job = Job(slurm, node, directory)
    wait_lines(directory)
    job.signal()
    assert failure(directory).startswith("flock: ")
    wait_lines(directory)
    assert job.field("JobState") == "RUNNING"
    assert not (directory / "checkpoint_ok").exists()
