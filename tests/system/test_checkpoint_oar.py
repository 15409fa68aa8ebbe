"""scriptorium-checkpointd and the real criu under a real OAR with real cpusets: the script of
checkpoint-job.sh, submitted as its users do, signalled by `oardel -c` and submitted again by OAR
for its exit code. Paths in the lab's namespaces begin with /home; the test sees them below the
lab's folder."""

import contextlib
import json
import pathlib
import re
import shutil
import subprocess
import tempfile
import time

import checkpoint_lab
import harness
import pytest
from checkpoint_lab import (CGROUPS, DAEMON, JOB_SCRIPT, PROGRAM, check_no_gap, failure, is_running,
                            processes_in, wait_lines)
from harness import wait_for
from test_run import COUNTER, RUN

MISSING = checkpoint_lab.what_is_missing()
pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)

OAR_LAB = harness.ROOT / "tests" / "support" / "oar-lab"
USER = "games"
# OAR submits a job again only if it ran longer than a minute.
SHORTEST_LIFE = 61


class Oar:
    """OAR's server and one node, with the service on it."""

    def __init__(self, folder, criu):
        self.folder = folder
        for program in (DAEMON, RUN):
            shutil.copy(program, folder / "opt")
        for name in ("criu", "root"):
            subprocess.run(["cp", "-r", str(criu.parent / name), str(folder / "opt")], check=True)
        (folder / "opt" / "checkpoint.toml").write_text('criu = "/opt/criu"\n')
        self.log_file = folder / "checkpointd.log"
        with open(self.log_file, "wb") as log:
            self.service = subprocess.Popen(
                [*self.inside(), *checkpoint_lab.rights_of_the_unit(), f"/opt/{DAEMON.name}",
                 "--config", "/opt/checkpoint.toml"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait_for(lambda: "CHECKPOINT_STARTED" in self.log_file.read_text(), "the service starts")

    def inside(self):
        init = (self.folder / "init").read_text().strip()
        return ["nsenter", "--target", init, "--mount", "--pid", "--net", "--uts", "--ipc"]

    def run(self, command, user=USER):
        done = subprocess.run([*self.inside(), "su", user, "-c", command], capture_output=True,
                              text=True, timeout=60 * harness.PATIENCE)
        assert done.returncode == 0, done
        return done.stdout

    def directory(self, name):
        path = self.folder / "home" / name
        path.mkdir()
        shutil.chown(path, USER)
        for file, text in (("program", PROGRAM), ("job.sh", JOB_SCRIPT.read_text())):
            (path / file).write_text(text)
            (path / file).chmod(0o755)
        return path

    def submit(self, directory, command="-S ./job.sh"):
        said = self.run(f"cd /home/{directory.name} && oarsub {command}")
        return int(said.rpartition("OAR_JOB_ID=")[2])

    def job(self, job):
        return json.loads(self.run(f"oarstat -f -J -j {job}"))[str(job)]

    def wait_state(self, job, *states):
        wait_for(lambda: self.job(job)["state"] in states,
                 lambda: f"job {job} becomes {states}: {self.job(job)}", 120, 0.5)

    def processes(self, job):
        return [pid for pid in processes_in(CGROUPS / "cpuset" / "oar" / f"{USER}_{job}")
                if is_running(pid)]

    def program(self, job):
        """The process of the job's program, as the test and as the job sees it."""
        def found():
            for pid in self.processes(job):
                with contextlib.suppress(OSError):
                    if "./program" in pathlib.Path(f"/proc/{pid}/cmdline").read_text():
                        status = pathlib.Path(f"/proc/{pid}/status").read_text()
                        return pid, int(status.partition("NSpid:")[2].split("\n")[0].split()[-1])
            return None
        return wait_for(found, "the job's program runs", 60)

    def save(self, job, directory):
        """To the end of this life."""
        wait_lines(directory)
        self.run(f"oardel -c {job}")
        self.wait_state(job, "Terminated")
        assert self.job(job)["exit_code"] == 99 << 8, self.log_file.read_text()

    def wait_long_enough(self, job):
        begun = self.job(job)["startTime"]
        wait_for(lambda: time.time() > begun + SHORTEST_LIFE, "OAR submits the job again", 120, 1)

    def next_life(self, job):
        def found():
            jobs = json.loads(self.run("oarstat -f -J") or "{}")
            return [int(each) for each, fields in jobs.items()
                    if fields.get("resubmit_job_id") == job]
        again, = wait_for(found, f"OAR submits job {job} again", 60, 0.5)
        return again


@pytest.fixture(scope="module")
def oar(criu):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="scr-oar-", dir=harness.test_directory()))
    folder.chmod(0o755)
    cache = harness.BUILD / "oar-for-tests"
    started = subprocess.run([str(OAR_LAB), "up", str(folder), str(cache)], capture_output=True,
                             text=True, timeout=900)
    try:
        if started.returncode == 3:
            pytest.skip(f"NO OAR, so nothing was saved under it: {started.stderr[-300:]}")
        assert started.returncode == 0, started.stderr
        yield Oar(folder, criu)
    finally:
        subprocess.run([str(OAR_LAB), "down", str(folder)], check=True, timeout=60)
        shutil.rmtree(folder)


def test_a_counter_goes_through_three_lives_and_a_cancelled_one_leaves_nothing(oar):
    directory = oar.directory("lives")
    job = oar.submit(directory)
    for _ in range(2):
        oar.program(job)
        oar.wait_long_enough(job)
        oar.save(job, directory)
        check_no_gap(directory)
        before, job = job, oar.next_life(job)
        oar.wait_state(job, "Running")
        host_pid, pid = oar.program(job)
        assert (directory / "checkpoint" / "pidfile").read_text() == f"{pid}\n"
        wait_lines(directory)
        assert oar.job(before)["state"] == "Terminated"
    check_no_gap(directory)
    tree = oar.processes(job)
    assert host_pid in tree
    oar.run(f"oardel {job}")
    oar.wait_state(job, "Error")
    assert not any(is_running(pid) for pid in tree)
    wait_for(lambda: oar.processes(job) == [], "the job's control group is empty")


def test_a_program_of_another_job_is_not_saved(oar):
    directory = oar.directory("victim")
    other_directory = oar.directory("attacker")
    victim = oar.submit(directory)
    attacker = oar.submit(other_directory, "-l core=1 'sleep 600'")
    try:
        host_pid, pid = oar.program(victim)
        oar.wait_state(attacker, "Running")
        wait_for(lambda: oar.processes(attacker), "the other job's process runs")
        request = f"{pid}\\n/home/{other_directory.name}\\n"
        oar.run(f"printf '{request}' > /var/lib/checkpoints/{attacker}.checkpoint")
        assert failure(other_directory) == \
            f"not_in_job: process {pid} is not in the control group of job {attacker}\n"
        wait_lines(directory)
        assert is_running(host_pid)
        assert oar.job(attacker)["state"] == "Running"
    finally:
        oar.run(f"oardel {victim} {attacker}")


def test_a_job_whose_resume_is_refused_ends(oar):
    directory = oar.directory("damaged")
    job = oar.submit(directory)
    oar.program(job)
    oar.save(job, directory)
    image = next((directory / "checkpoint").glob("core-*.img"))
    image.write_bytes(image.read_bytes() + b"x")
    job = oar.submit(directory)
    assert failure(directory).startswith(f"image_damaged: {image.name} is not as it was")
    oar.wait_state(job, "Terminated", "Error")
    assert oar.processes(job) == []


RUN_SCRIPT = f"""#!/bin/bash
#OAR -l core=1
echo begin >> begins
/opt/{RUN.name} ./program
echo "after $?" >> ends
exit 5
"""


def run_directory(oar, name, script):
    directory = oar.directory(name)
    for file, text in (("program", COUNTER), ("job.sh", script)):
        (directory / file).write_text(text)
    return directory


def said(directory, job):
    """By scriptorium-run, in that life."""
    return (directory / f"OAR.{job}.stderr").read_text()


def test_a_command_in_a_script_without_a_trap_goes_through_three_lives(oar):
    directory = run_directory(oar, "run", RUN_SCRIPT.replace("\n", "\n#OAR -t idempotent\n", 1))
    job = oar.submit(directory)
    output = directory / f"scriptorium-run.{job}" / "output"

    def numbers():
        """The bash of OAR's image also says that the user has no .bashrc."""
        return re.findall(r"(?m)^\d+$", output.read_text()) if output.exists() else []

    def wait_output():
        begun = len(numbers())
        wait_for(lambda: len(numbers()) > begun + 3,
                 lambda: f"the program writes further lines: {said(directory, job)}")
    for _ in range(2):
        oar.wait_state(job, "Running")
        wait_output()
        oar.run(f"oardel -c {job}")
        oar.wait_state(job, "Terminated")
        assert oar.job(job)["exit_code"] == 99 << 8, said(directory, job)
        assert "OAR will not" not in said(directory, job)
        assert "OAR removes" not in said(directory, job)
        job = oar.next_life(job)
    oar.wait_state(job, "Running")
    wait_output()
    assert not (directory / "ends").exists()
    (directory / "stop").touch()
    oar.wait_state(job, "Terminated")
    assert oar.job(job)["exit_code"] == 5 << 8
    assert (directory / "ends").read_text() == "after 7\n"
    assert (directory / "begins").read_text() == "begin\n" * 3
    assert numbers() == [str(n + 1) for n in range(len(numbers()))]


def test_the_owner_is_told_that_a_job_which_is_not_idempotent_has_one_life(oar):
    directory = run_directory(oar, "once", RUN_SCRIPT)
    (directory / "stop").touch()
    job = oar.submit(directory)
    oar.wait_state(job, "Terminated")
    assert oar.job(job)["exit_code"] == 5 << 8
    assert "submitted without -t idempotent" in said(directory, job)
