"""The configurations of docs/preempt.md under a real Slurm: jobs that make room for others by a
checkpoint, with scriptorium-run and the real criu."""

import contextlib
import datetime
import grp
import itertools
import shutil

import checkpoint_lab
import harness
import pytest
import usage_lab
from harness import wait_for
from test_checkpoint_slurm import Job
from test_run import COUNTER, FORMS, RUN, RunJob

MISSING = checkpoint_lab.what_is_missing()
pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)

RECIPES = harness.ROOT / "checkpoint" / "slurm"
PREEMPTIONS = 20
LIVES = 10
_numbers = itertools.count(1)
SAVES_ITSELF = """#!/bin/bash
n=0
[ -z "$SCRIPTORIUM_RESUMES" ] || n=$(cat "$SCRIPTORIUM_SAVE_DIR/n")
while [ ! -e stop ]; do
    n=$((n + 1)); echo $n >> lines
    if [ -e "$SCRIPTORIUM_SAVE_DIR/save_now" ]; then
        echo $n > "$SCRIPTORIUM_SAVE_DIR/n"
        touch "$SCRIPTORIUM_SAVE_DIR/saved"; rm "$SCRIPTORIUM_SAVE_DIR/save_now"
        sleep 3600
    fi
    sleep 0.05
done
"""


class Lab:
    """A Slurm with a recipe, and the checkpoint service. Each job has a node to itself."""

    def __init__(self, slurm, node):
        self.slurm, self.node = slurm, node

    def counter(self, partition, place):
        """A job that counts in its memory and is saved."""
        directory = self.node.directory(self.node.alice, f"job-{next(_numbers)}", COUNTER)
        job = RunJob(self.slurm, self.node, directory, FORMS["last"], "--exclusive",
                     f"--partition={partition}", f"--nodelist={place}", "--signal=B:USR2@60")
        job.wait_output()
        return job

    def plain(self, partition, *options):
        """A job that any signal ends."""
        user = self.node.mallory
        directory = self.node.directory(user, f"job-{next(_numbers)}")
        return Job(self.slurm, self.node, directory, "--exclusive", f"--partition={partition}",
                   *options, user=user, script="#!/bin/bash\nexec sleep 3600\n")

    def start_again(self, job, life, place):
        job.wait_submitted_again(life)
        job.check_no_gap()
        job.start_on(place)
        job.wait_state("RUNNING")
        job.wait_output()


def options_of(recipe, instead=()):
    """`instead`: texts of the recipe, and what this machine has for them."""
    text = (RECIPES / f"{recipe}.conf").read_text()
    for name, other in dict(instead).items():
        assert name in text
        text = text.replace(name, other)
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [word for line in lines for word in ("--conf", line)]


@contextlib.contextmanager
def running(recipe, work, criu, nodes=1, instead=()):
    with harness.running_slurm("--nodes", str(nodes), *options_of(recipe, instead),
                               kind=usage_lab.CgroupSlurm) as lab:
        node = checkpoint_lab.Node(work, criu)
        try:
            yield Lab(lab, node.start())
        finally:
            lab.cancel_all()
            node.cleanup()


def test_an_urgent_job_takes_the_place_of_one_that_comes_back(work, criu):
    with running("two-partitions", work, criu, instead={"00:10:00": "00:00:00"}) as lab:
        [place] = lab.slurm.nodes
        job = lab.counter("normal", place)
        for life in range(1, PREEMPTIONS + 1):
            urgent = lab.plain("urgent")
            urgent.wait_state("RUNNING")
            urgent.cancel()
            lab.start_again(job, life, place)


def test_the_command_says_what_a_configuration_lacks(work, criu):
    command = str(harness.BUILD / "scriptorium-migrate")

    def check(lab, exit_code):
        # The lab's own partition, in which no job of a recipe runs.
        lab.slurm.run("scontrol", "update", "PartitionName=p", "PreemptMode=OFF")
        result = lab.slurm.run(command, "--check-config", check=False, user=lab.node.alice)
        assert result.returncode == exit_code, result.stdout + result.stderr
        return result.stdout
    with running("two-partitions", work, criu) as lab:
        text = check(lab, 0)
        assert "needed" not in text and "fine    RequeueExit=99\n" in text
        assert "fine    PartitionName=normal PreemptMode=REQUEUE GraceTime=300" in text
    instead = {"GraceTime=300": "GraceTime=0", "preempt_send_user_signal": "enable_configless"}
    with running("two-partitions", work, criu, instead=instead) as lab:
        text = check(lab, 1)
        assert "needed  PartitionName=normal GraceTime=300: " in text
        assert "needed  SlurmctldParameters=enable_configless,preempt_send_user_signal: " in text


def test_a_job_runs_for_a_while_before_it_is_preempted(work, criu):
    with running("two-partitions", work, criu, instead={"00:10:00": "00:00:20"}) as lab:
        [place] = lab.slurm.nodes
        job = lab.counter("normal", place)
        begun = datetime.datetime.fromisoformat(job.field("StartTime"))
        urgent = lab.plain("urgent")
        urgent.wait_state("RUNNING")
        taken = datetime.datetime.fromisoformat(urgent.field("StartTime"))
        assert taken - begun >= datetime.timedelta(seconds=20)
        job.wait_submitted_again(1)
        job.check_no_gap()


def test_only_jobs_that_can_be_saved_are_preempted(work, criu):
    with running("only-checkpointable", work, criu, nodes=2) as lab:
        first, second = lab.slurm.nodes
        plain = lab.plain("normal", f"--nodelist={first}")
        plain.wait_state("RUNNING")
        begun = plain.field("StartTime")
        job = lab.counter("saveable", second)
        # The first one gets the only place that may be taken, the next one has to wait.
        urgent = [lab.plain("urgent") for _ in range(2)]
        urgent[0].wait_state("RUNNING")
        assert urgent[0].field("NodeList") == second
        job.wait_submitted_again(1)
        urgent[0].cancel()
        urgent[1].wait_state("RUNNING")
        assert urgent[1].field("NodeList") == second
        urgent[1].cancel()
        lab.start_again(job, 1, second)
        assert plain.field("JobState") == "RUNNING"
        assert plain.field("StartTime") == begun and plain.field("Restarts") == "0"


def test_the_owners_of_nodes_get_them_and_the_job_continues_elsewhere(work, criu):
    chem = grp.getgrgid(checkpoint_lab.Node(work, criu).mallory.pw_gid).gr_name
    instead = {"AllowGroups=chem": f"AllowGroups={chem}", "AllowGroups=bio": "AllowGroups=root",
               "c[01-16]": "@1", "b[01-16]": "@2"}
    with running("owned-nodes", work, criu, nodes=2, instead=instead) as lab:
        of_chem, of_bio = lab.slurm.nodes
        job = lab.counter("shared", of_chem)
        refused = lab.slurm.run("sbatch", "--partition=chem", "--wrap=true", user=job.user,
                                check=False)
        assert refused.returncode != 0, "who is not in the group has no part in its nodes"
        owners = lab.plain("chem")
        owners.wait_state("RUNNING")
        assert owners.field("NodeList") == of_chem
        lab.start_again(job, 1, of_bio)
        assert owners.field("JobState") == "RUNNING"


def test_a_job_without_end_fills_the_machine_and_gives_way(work, criu):
    with running("never-ending", work, criu) as lab:
        [place] = lab.slurm.nodes
        job = lab.counter("endless", place)
        assert job.field("TimeLimit") == "12:00:00"
        for life in range(1, LIVES):
            if life % 2 == 0:
                job.signal()  # as at the time limit
            else:
                normal = lab.plain("normal")
                normal.wait_state("RUNNING")
                normal.cancel()
            lab.start_again(job, life, place)
        (job.directory / "stop").touch()
        job.wait_state("FAILED")
        job.check_no_gap()
        assert job.field("ExitCode") == "7:0"


# ---- by QOS, with slurmdbd and job_submit.lua; there are no control groups, so programs save
# themselves

class SlurmWithQos(harness.Slurm):
    def up(self, *options):
        etc = self.directory / "etc"
        etc.mkdir(parents=True)
        shutil.copy(RECIPES / "job_submit.lua", etc)
        result = super().up(*options)
        if result.returncode == 0:
            self.run("sacctmgr", "-i", "add", "qos", "saveable", "set", "PreemptMode=requeue",
                     "GraceTime=300")
            self.run("sacctmgr", "-i", "add", "qos", "urgent", "set", "Preempt=saveable")
        return result


@pytest.fixture(scope="module")
def by_qos():
    with harness.running_slurm("--nodes", "2", "--accounting",
                               *options_of("only-checkpointable-qos"), kind=SlurmWithQos) as lab:
        yield lab


class PlacedJob(Job):
    """Without the options that other tests give."""

    def __init__(self, slurm, user, directory, script, *options):
        self.slurm, self.user, self.directory = slurm, user, directory
        self.id = slurm.sbatch("--exclusive", "-D", str(directory), "-o", str(directory / "out"),
                               "--open-mode=append", *options, script=script, user=user)


def test_the_comment_says_whether_a_job_may_be_preempted(work, criu, by_qos):
    node = checkpoint_lab.Node(work, criu)
    directory = node.directory(node.alice)

    def submitted(*options):
        job = PlacedJob(by_qos, node.alice, directory, "#!/bin/bash\n", "--hold", *options)
        return [job.field(name) for name in ("QOS", "Requeue", "Comment")]
    assert submitted("--comment=project7,checkpoint") == \
        ["saveable", "1", "project7,checkpoint"]
    assert submitted("--comment=no-checkpoint,project7", "--requeue")[1:] == \
        ["0", "no-checkpoint,project7"]
    for comment in ("project7", "checkpoints"):
        qos, requeue, left = submitted(f"--comment={comment}", "--no-requeue")
        assert (requeue, left) == ("0", comment) and qos != "saveable"
    for options in (["--comment=no-checkpoint", "--qos=saveable"],
                    ["--comment=checkpoint", "--qos=urgent"],
                    ["--comment=checkpoint,no-checkpoint"]):
        refused = by_qos.run("sbatch", "--wrap=true", *options, user=node.alice, check=False)
        assert refused.returncode != 0 and "saveable" in refused.stderr, refused.stderr
    by_qos.cancel_all()


def test_only_jobs_of_one_qos_are_preempted(work, criu, by_qos):
    node = checkpoint_lab.Node(work, criu)
    first, second = "n1", "n2"
    plain = PlacedJob(by_qos, node.mallory, node.directory(node.mallory),
                      "#!/bin/bash\nexec sleep 3600\n", f"--nodelist={first}")
    plain.wait_state("RUNNING")
    begun = plain.field("StartTime")
    directory = node.directory(node.alice, program=SAVES_ITSELF)
    job = PlacedJob(by_qos, node.alice, directory,
                    f"#!/bin/bash\n{RUN} --engine=app ./program\n", f"--nodelist={second}",
                    "--comment=checkpoint", "--signal=B:USR2@60")
    checkpoint_lab.wait_lines(directory)
    urgent = PlacedJob(by_qos, node.mallory, node.directory(node.mallory, "urgent"),
                       "#!/bin/bash\nexec sleep 3600\n", "--qos=urgent")
    urgent.wait_state("RUNNING")
    assert urgent.field("NodeList") == second
    urgent.cancel()
    job.wait_submitted_again(1)
    checkpoint_lab.check_no_gap(directory)
    job.start_on(second)
    job.wait_state("RUNNING")
    checkpoint_lab.wait_lines(directory)
    (directory / "stop").touch()
    wait_for(lambda: job.field("JobState") == "COMPLETED", "the program ends", 120, 0.1)
    checkpoint_lab.check_no_gap(directory)
    assert plain.field("JobState") == "RUNNING"
    assert plain.field("StartTime") == begun and plain.field("Restarts") == "0"
    by_qos.cancel_all()
