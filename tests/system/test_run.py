"""scriptorium-run in job scripts of a real Slurm of two nodes, with the real criu."""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time

import checkpoint_lab
import harness
import pytest
from checkpoint_lab import is_running
from harness import wait_for
# pylint: disable-next=unused-import
from test_checkpoint_slurm import Job, node, slurm  # noqa: F401

MISSING = checkpoint_lab.what_is_missing()
pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)

RUN = harness.BUILD / "scriptorium-run"
COUNTER = """#!/bin/bash
n=0
while [ ! -e stop ]; do n=$((n + 1)); echo $n; sleep 0.05; done
exit 7
"""
# No trap is in any of them.
FORMS = {
    "last": f"#!/bin/bash\necho begin >> begins\n{RUN} -- ./program\n",
    "middle": f"""#!/bin/bash
trap 'echo trapped >> ends' EXIT
echo begin >> begins
(sleep 0.1; exit 3) &
background=$!
(
  {RUN} --engine=criu ./program
  echo "after $?" >> ends
)
wait $background
echo "waited $?" >> ends
exit 5
""",
    "exec": f"#!/bin/bash\necho begin >> begins\nexec {RUN} --keep=1 ./program\n",
}


def command_of(pid):
    return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()


def is_used(pid):
    """A zombie keeps the number of its session in use."""
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if int(path.name) == pid or os.getsid(int(path.name)) == pid:
                return True
    return False


class RunJob(Job):
    def __init__(self, slurm, node, directory, script, *options):
        super().__init__(slurm, node, directory, *options, script=script,
                         env={"SCRIPTORIUM_REQUESTS": str(node.spool)})
        self.save_dir = directory / f"scriptorium-run.{self.id}"

    def output(self):
        return (self.save_dir / "output").read_text().split()

    def said(self):
        return (self.directory / "job.out").read_text()

    def wait_output(self, more=3):
        begun = len(self.output()) if (self.save_dir / "output").exists() else 0
        wait_for(lambda: len(self.output()) >= begun + more,
                 lambda: f"the program writes further lines: {self.said()}")

    def wait_says(self, text, seconds=60):
        wait_for(lambda: text in self.said(), lambda: f"it says {text!r}: {self.said()}", seconds)

    def check_no_gap(self):
        """Neither in the output of all lives, nor in what the lives wrote to their own."""
        numbers = [str(n + 1) for n in range(len(self.output()))]
        assert self.output() == numbers
        assert re.findall(r"(?m)^\d+$", self.said()) == numbers, self.said()

    def next_life(self, life, place):
        self.wait_submitted_again(life)
        self.check_no_gap()
        self.start_on(place)
        self.wait_state("RUNNING")
        self.wait_output()


@pytest.mark.parametrize("form", FORMS)
def test_a_counter_in_an_unchanged_script_goes_through_three_lives(slurm, node, form):  # noqa: F811
    directory = node.directory(node.alice, program=COUNTER)
    job = RunJob(slurm, node, directory, FORMS[form])
    job.wait_output()
    for life, place in enumerate([slurm.nodes[0], slurm.nodes[1]], start=1):
        job.signal()
        job.next_life(life, place)
    assert not (directory / "ends").exists()
    (directory / "stop").touch()
    job.wait_state("FAILED")
    job.check_no_gap()
    assert (directory / "begins").read_text() == "begin\n" * 3
    assert "Slurm will not run" not in job.said()
    assert (job.save_dir / "checkpoint.old").exists() == (form != "exec"), "of two saves"
    if form == "middle":
        assert job.field("ExitCode") == "5:0"
        assert (directory / "ends").read_text() == "after 7\nwaited 3\ntrapped\n"
    else:
        assert job.field("ExitCode") == "7:0"


def test_a_command_that_cannot_be_saved_continues_and_the_reason_is_said(slurm, node):  # noqa: F811
    program = with_a_lock(COUNTER)
    directory = node.directory(node.alice, program=program)
    job = RunJob(slurm, node, directory, FORMS["last"])
    job.wait_output()
    for _ in range(2):
        job.signal()
        job.wait_output()
    job.wait_says("scriptorium-run: not saved: flock: ")
    job.wait_output()
    (directory / "stop").touch()
    job.wait_state("FAILED")
    assert job.field("ExitCode") == "7:0"
    job.check_no_gap()


def with_a_lock(program):
    """The program, holding a lock."""
    return program.replace("n=0\n", "exec 9> lock\nflock 9\nn=0\n")


def test_images_are_deleted_after_success_and_a_cancelled_job_leaves_nothing(slurm, node):  # noqa: F811
    directory = node.directory(node.alice, program=COUNTER.replace("exit 7", "exit 0"))
    job = RunJob(slurm, node, directory, FORMS["last"])
    job.wait_output()
    job.signal()
    job.next_life(1, slurm.nodes[0])
    assert (job.save_dir / "checkpoint" / "manifest.json").exists()
    (directory / "stop").touch()
    job.wait_state("COMPLETED")
    job.check_no_gap()
    assert sorted(path.name for path in job.save_dir.iterdir()) == ["lock", "output", "state"]

    (directory / "stop").unlink()
    job = RunJob(slurm, node, directory, FORMS["middle"])
    job.wait_output()
    job.signal()
    job.wait_submitted_again(1)
    job.start_on(slurm.nodes[1])
    job.wait_state("RUNNING")
    job.wait_output()
    tree = job.processes(slurm.nodes[1])
    assert int((job.save_dir / "checkpoint" / "pidfile").read_text()) in tree
    slurm.run("scancel", job.id, user=job.user)
    job.wait_state("CANCELLED")
    wait_for(lambda: not any(is_running(pid) for pid in tree), "the job's processes end")
    # A shell runs its exit trap, and nothing else, when SIGTERM ends it.
    ends = directory / "ends"
    assert not ends.exists() or ends.read_text() == "trapped\n"


def test_the_owner_is_told_at_the_start_that_no_next_life_would_come(slurm, node):  # noqa: F811
    directory = node.directory(node.alice, program=COUNTER)
    (directory / "stop").touch()
    job = RunJob(slurm, node, directory, FORMS["last"], "--no-requeue",
                 "--time=5")
    job.wait_state("FAILED")
    assert "submitted without --requeue" in job.said()
    assert "asks for no signal" in job.said()
    job = RunJob(slurm, node, directory,
                 FORMS["last"].replace("\n", "\n#SBATCH --signal=B:USR2@60\n", 1), "--time=5")
    job.wait_state("FAILED")
    assert job.said().count("asks for no signal") == 1
    job = RunJob(slurm, node, directory, f"#!/bin/bash\n{RUN} srun ./program\n")
    job.wait_state("FAILED")
    assert job.field("ExitCode") == "64:0"
    assert "refused: srun starts processes" in job.said()


def test_a_job_whose_save_directory_cannot_be_made_runs_all_the_same(slurm, node):  # noqa: F811
    directory = node.directory(node.alice, program=COUNTER)
    (directory / "stop").touch()
    job = RunJob(slurm, node, directory, f"#!/bin/bash\n{RUN} --save-dir=/proc/x ./program\n")
    job.wait_state("FAILED")
    assert job.field("ExitCode") == "7:0"
    assert "the command runs without being saved" in job.said()


def test_the_files_of_tmpdir_go_along_with_a_save_directory(slurm, node):  # noqa: F811
    directory = node.directory(node.alice, program="""#!/bin/bash
n=0
echo 0 > $TMPDIR/n
while [ ! -e stop ]; do
  [ -e $TMPDIR/n ] || exit 9
  n=$((n + 1)); echo $n >> $TMPDIR/n; echo $n; sleep 0.05
done
exit 7
""")
    tmpdir = directory / "tmp"
    job = RunJob(slurm, node, directory, f"""#!/bin/bash
export TMPDIR={tmpdir}
mkdir $TMPDIR
{RUN} --save-dir=save ./program
""")
    job.save_dir = directory / "save"
    for life, place in enumerate([slurm.nodes[0], slurm.nodes[1]], start=1):
        job.wait_output()
        job.signal()
        job.wait_submitted_again(life)
        kept = (tmpdir / "n").read_text()
        assert (job.save_dir / "checkpoint" / "tmpdir" / "n").read_text() == kept
        shutil.rmtree(tmpdir)  # another node has none of it
        job.start_on(place)
        job.wait_state("RUNNING")
        job.wait_output()
        assert (tmpdir / "n").read_text().startswith(kept)
    assert "$TMPDIR" not in job.said()
    (directory / "stop").touch()
    job.wait_state("FAILED")
    assert job.field("ExitCode") == "7:0", job.said()
    job.check_no_gap()


def test_without_a_service_the_command_runs_to_its_end_and_the_owner_knows(slurm, node):  # noqa: F811
    directory = node.directory(node.alice, program=COUNTER)
    nowhere = f"export SCRIPTORIUM_REQUESTS={node.work}/nowhere\n"
    job = RunJob(slurm, node, directory, FORMS["last"].replace("\n", f"\n{nowhere}", 1))
    job.wait_says(f"scriptorium-checkpointd does not run on this node ({node.work}/nowhere): the "
                  "command cannot be saved here")
    job.wait_output()
    job.signal()
    job.wait_says(f"not saved: write {node.work}/nowhere/{job.id}.checkpoint: ")
    job.wait_output()
    (directory / "stop").touch()
    job.wait_state("FAILED")
    assert job.field("ExitCode") == "7:0"
    job.check_no_gap()

    # It ended after the job's start.
    directory = node.directory(node.alice, "later", program=COUNTER)
    job = RunJob(slurm, node, directory, FORMS["last"])
    job.wait_output()
    node.stop()
    job.signal()
    wait_for(lambda: [path.name for path in node.requests()] == [f"{job.id}.checkpoint"],
             "the program is to be saved")
    job.wait_output()
    (directory / "stop").touch()
    job.wait_state("FAILED")
    assert job.field("ExitCode") == "7:0"
    job.check_no_gap()
    assert node.requests() == [], "a later service has nothing to save"


def test_a_job_that_no_service_resumes_is_run_again_for_another_node(slurm, node):  # noqa: F811
    directory = node.directory(node.alice, program=COUNTER)
    job = RunJob(slurm, node, directory, FORMS["last"])
    job.wait_output()
    job.signal()
    job.wait_submitted_again(1)
    node.stop()
    job.start_on(slurm.nodes[0])
    job.wait_says("not resumed: scriptorium-checkpointd does not run on this node. The job is run "
                  "again, for another node", 120)
    job.wait_submitted_again(2)
    assert node.requests() == []
    node.start()
    job.next_life(2, slurm.nodes[1])
    (directory / "stop").touch()
    job.wait_state("FAILED")
    assert job.field("ExitCode") == "7:0"
    job.check_no_gap()


def run_here(work, *command, **variables):
    """As the first process of a job, by its environment."""
    return subprocess.run([RUN, *command], cwd=work, env={**os.environ, **variables},
                          capture_output=True, text=True, timeout=60 * harness.PATIENCE)


def test_a_save_directory_whose_path_has_a_line_break_is_refused(work):
    folder = work / "a\nb"
    folder.mkdir()
    for place, options in ((folder, []), (work, ["--save-dir", "a\nb/c"])):
        done = run_here(place, *options, "touch", "begun", SLURM_JOB_ID="1")
        assert done.returncode == 64
        said, = done.stderr.splitlines()
        assert said.startswith("scriptorium-run: refused: the path of the save directory has a "
                               "line break: /"), said
        assert said.endswith(". Give another one with --save-dir")
    assert list(folder.iterdir()) == [] and list(work.iterdir()) == [folder]
    done = run_here(folder, "--save-dir", str(work / "c"), "touch", "begun", SLURM_JOB_ID="1")
    assert done.returncode == 0, done.stderr
    assert (folder / "begun").exists()


def test_the_owner_is_told_at_the_start_what_oar_would_not_do(work):
    oarstat = work / "oarstat"
    oarstat.write_text('#!/bin/sh\n[ "$*" = "-f -j 34" ] && cat "$0.out"\n')
    oarstat.chmod(0o755)
    (work / "oarstat.out").write_text("Job_Id: 34\n    types = besteffort\n")
    with tempfile.TemporaryDirectory(prefix="scr-run-", dir="/var/tmp") as folder:
        done = run_here(work, "--save-dir", folder, "true", OAR_JOB_ID="34",
                        PATH=f"{work}:{os.environ['PATH']}")
        assert done.returncode == 0
        said = done.stderr
        assert said.count("it was submitted without -t idempotent") == 1, said
        assert said.count("the save directory is in /var/tmp, where OAR removes your files") == 1
        assert "is on this node alone" not in said
        done = run_here(work, "--save-dir", folder, "true", SLURM_JOB_ID="34")
        assert "OAR" not in done.stderr


def test_the_image_before_is_used_if_the_newest_is_damaged(slurm, node):  # noqa: F811
    directory = node.directory(node.alice, program=COUNTER)
    job = RunJob(slurm, node, directory, FORMS["last"])
    job.wait_output()
    job.signal()
    job.next_life(1, slurm.nodes[0])
    job.signal()
    job.wait_submitted_again(2)
    saved = job.output()
    with open(job.save_dir / "checkpoint" / "pages-1.img", "r+b") as pages:
        pages.write(b"x")
    job.start_on(slurm.nodes[0])
    job.wait_says("the newest image cannot be resumed: image_damaged: ")
    job.wait_says(" of the command's work is done again")
    job.wait_says("bytes of the output were written after the save")
    wait_for(lambda: len(job.output()) > len(saved), "the program is beyond where it was")
    (directory / "stop").touch()
    job.wait_state("FAILED")
    assert job.field("ExitCode") == "7:0"
    assert job.output() == [str(n + 1) for n in range(len(job.output()))]


def test_a_job_whose_process_id_is_taken_is_run_again(slurm, node):  # noqa: F811
    directory = node.directory(node.alice, program=COUNTER)
    job = RunJob(slurm, node, directory, FORMS["middle"])
    job.wait_output()
    program, = (pid for pid in job.processes(job.field("NodeList"))
                if os.getsid(pid) == pid and b"./program" in command_of(pid))
    job.signal()
    job.wait_submitted_again(1)
    wait_for(lambda: not is_used(program), "its session is reaped, so that its number is free")
    taker = checkpoint_lab.take_pid(program, lambda: subprocess.Popen(["sleep", "600"]))
    try:
        job.start_on(slurm.nodes[0])
        job.wait_says("not resumed: pid_taken: ")
        job.wait_submitted_again(2)
    finally:
        taker.send_signal(signal.SIGKILL)
        taker.wait()
    assert not (directory / "ends").exists()
    job.next_life(2, slurm.nodes[1])
    (directory / "stop").touch()
    job.wait_state("FAILED")
    assert job.field("ExitCode") == "5:0"
    job.check_no_gap()


def test_a_lost_node_costs_the_time_since_the_last_periodic_save(slurm, node):  # noqa: F811
    directory = node.directory(node.alice, program=COUNTER)
    script = FORMS["last"].replace("--", "--every=1s --")
    job = RunJob(slurm, node, directory, script)
    saves = job.save_dir / "checkpoint" / "output_bytes"

    def wait_saved():
        before = saves.read_text() if saves.exists() else ""
        wait_for(lambda: saves.read_text() != before and saves.stat().st_size > 1,
                 "a periodic save")
        job.wait_output()
    wait_saved()
    wait_saved()
    # As after a lost node: the command is not asked to save before.
    slurm.run("scontrol", "requeue", job.id, user=job.user)
    job.wait_submitted_again(1)
    before = job.output()
    job.start_on(slurm.nodes[1])
    job.wait_state("RUNNING")
    wait_for(lambda: len(job.output()) > len(before), "the program is beyond where it was")
    assert "bytes of the output were written after the save" in job.said()
    # In the life of a resumed command too; there the service knows its exit code.
    for _ in range(3):
        wait_saved()
    (directory / "stop").touch()
    job.wait_state("FAILED")
    assert job.field("ExitCode") == "7:0", job.said()
    assert job.output() == [str(n + 1) for n in range(len(job.output()))]
    assert (directory / "begins").read_text() == "begin\n" * 2


def test_a_job_that_is_longer_than_its_time_limit_is_saved_before_it(slurm, node):  # noqa: F811
    directory = node.directory(node.alice, program=COUNTER)
    # Slurm signals up to 30 s early.
    job = RunJob(slurm, node, directory, FORMS["last"], "--time=2", "--signal=B:USR2@60")
    job.next_life(1, slurm.nodes[0])
    (directory / "stop").touch()
    job.wait_state("FAILED")
    assert job.field("ExitCode") == "7:0"
    job.check_no_gap()


def test_where_ptrace_is_refused_the_command_runs_and_the_owner_is_told(slurm, node):  # noqa: F811
    directory = node.directory(node.alice, program=COUNTER)
    script = f"""#!/bin/bash
{RUN} --save-dir=other sh -c 'echo begun; while [ ! -e stop ]; do sleep 0.02; done' &
while [ ! -s other/output ]; do sleep 0.02; done  # it is the tracer of this shell
{RUN} ./program
"""
    job = RunJob(slurm, node, directory, script)
    job.wait_says("so the command cannot be saved (ptrace: operation not permitted). Make it the "
                  "last line of the job script: exec scriptorium-run")
    job.wait_output()
    (directory / "stop").touch()
    job.wait_state("FAILED")
    assert job.field("ExitCode") == "7:0"


APP = f"""#!/usr/bin/python3 -I
import os, sys, time
sys.path.insert(0, {str(harness.ROOT / "checkpoint" / "app")!r})
import scriptorium_app as app
n = int(open(app.directory() + "/n").read()) if app.resumes() else 0
while not os.path.exists("stop"):
    n += 1
    print(n, flush=True)
    if app.save_now():
        with open(app.directory() + "/n", "w") as file:
            file.write(str(n))
        app.saved()
        if "exits" in sys.argv:
            sys.exit(0)
        while "waits" in sys.argv:
            time.sleep(1)
    time.sleep(0.05)
sys.exit(7)
"""


@pytest.mark.parametrize("end", ["exits", "waits"])
def test_a_program_that_saves_itself_needs_no_service(slurm, node, end):  # noqa: F811
    node.stop()
    directory = node.directory(node.alice, program=APP)
    script = FORMS["middle"].replace("--engine=criu ./program", f"--engine=app ./program {end}")
    job = RunJob(slurm, node, directory, script)
    job.wait_output()
    job.signal()
    job.next_life(1, slurm.nodes[1])
    (directory / "stop").touch()
    job.wait_state("FAILED")
    assert job.field("ExitCode") == "5:0"
    assert (directory / "ends").read_text() == "after 7\nwaited 3\ntrapped\n"
    job.check_no_gap()


def test_a_job_of_oar_finds_its_save_directory_although_its_id_changes(work, criu):
    """With the control groups, the variables and the signal of OAR, which would not submit a job
    again that ends before it is 61 s old."""
    node = checkpoint_lab.Node(work, criu).start()  # pylint: disable=redefined-outer-name
    try:
        directory = node.directory(node.alice, program=COUNTER)
        script = directory / "job.sh"
        script.write_text(FORMS["middle"])
        begin = ("export OAR_JOB_ID=$SLURM_JOB_ID OAR_ARRAY_ID=4 OAR_ARRAY_INDEX=3 "
                 "SCRIPTORIUM_REQUESTS=$REQUESTS; unset SLURM_JOB_ID; ./job.sh; exit $?")
        output = directory / "scriptorium-run.4_3" / "output"

        def life():
            begun = len(output.read_text().split()) if output.exists() else 0
            job = node.job(node.alice, directory, "bash", "-c", begin,
                           layout=checkpoint_lab.oar_v1)
            wait_for(lambda: len(output.read_text().split()) > begun + 3, "the program runs")
            return job
        begun = time.monotonic()
        job = life()
        job.process.send_signal(signal.SIGUSR2)
        assert job.process.wait(180 * harness.PATIENCE) == 99, job.log.read_text()
        assert time.monotonic() - begun > 60
        job = life()
        (directory / "stop").touch()
        assert job.wait() == 5, job.log.read_text()
        assert (directory / "ends").read_text() == "after 7\nwaited 3\ntrapped\n"
        numbers = output.read_text().split()
        assert numbers == [str(n + 1) for n in range(len(numbers))]
    finally:
        node.cleanup()


def test_the_header_for_programs_that_save_themselves(work):
    program = work / "program.c"
    program.write_text('''#include "scriptorium_app.h"
int main(void) {
  if (scriptorium_resumes()) return 3;
  if (!scriptorium_save_now()) return 1;
  return scriptorium_saved() == 0 && !scriptorium_save_now() ? 0 : 2;
}
''')
    for compiler, language in (("cc", "c"), ("c++", "c++")):
        subprocess.run([compiler, "-x", language, "-Wall", "-Wextra", "-Werror", "-I",
                        str(harness.ROOT / "checkpoint" / "app"), str(program), "-o",
                        str(work / "program")], check=True)
        where = {"SCRIPTORIUM_SAVE_DIR": str(work)}
        assert subprocess.run([work / "program"], env={}, check=False).returncode == 1
        assert subprocess.run([work / "program"], env=where, check=False).returncode == 1
        (work / "save_now").touch()
        assert subprocess.run([work / "program"], env=where, check=False).returncode == 0
        assert (work / "saved").exists()
        where["SCRIPTORIUM_RESUMES"] = "1"
        assert subprocess.run([work / "program"], env=where, check=False).returncode == 3
