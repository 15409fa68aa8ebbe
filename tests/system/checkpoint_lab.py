"""A node for scriptorium-checkpointd: control groups as a scheduler makes them, jobs in them that
run as users, and the service. A test does what a scheduler does: signal, exit 99, cancel."""

import contextlib
import grp
import itertools
import json
import os
import pathlib
import pwd
import re
import shutil
import signal
import subprocess

import harness
from harness import wait_for

DAEMON = harness.BUILD / "scriptorium-checkpointd"
FAKE_CRIU = harness.ROOT / "tests" / "support" / "fake-criu"
CRIU_FOR_TESTS = harness.ROOT / "tests" / "support" / "criu-for-tests"
JOB_SCRIPT = pathlib.Path(__file__).with_name("checkpoint-job.sh")
CGROUPS = pathlib.Path("/sys/fs/cgroup")
# It counts on in its memory; the fake engine starts it again, and then it reads where it was.
PROGRAM = """#!/bin/bash
n=0; [ ! -e fake-criu.json ] || n=$(tail -n 1 lines 2>/dev/null || echo 0)
while [ ! -e stop ]; do n=$((n + 1)); echo $n >> lines; sleep 0.05; done
exit 7
"""
# A group that neither root nor the users of the tests are in.
RECORDS_GID = pwd.getpwnam("nobody").pw_gid
_numbers = itertools.count(os.getpid() * 1000 + 1)


def what_is_missing():
    """Why this machine has no such control groups; "" if it has."""
    if not harness.IS_ROOT:
        return "only root makes control groups and becomes other users"
    try:
        group = CGROUPS / "freezer" / f"scr-try-{os.getpid()}"
        group.mkdir()
        group.rmdir()
        group = CGROUPS / "unified" / f"scr-try-{os.getpid()}"
        group.mkdir()
        group.rmdir()
    except OSError as e:
        return f"needs control groups of version 1 and 2 that can be made: {e}"
    return ""


def rights_of_the_unit():
    """A command that leaves root only what the unit does."""
    unit = (harness.ROOT / "packaging/systemd/scriptorium-checkpointd.service").read_text()
    [names] = re.findall(r"^CapabilityBoundingSet=(.*)$", unit, re.M)
    kept = ",".join(f"+{name.removeprefix('CAP_').lower()}" for name in names.split())
    return ["setpriv", "--no-new-privs", f"--bounding-set=-all,{kept}"]


def slurm_v1(user, job):
    return CGROUPS / "freezer" / f"slurm_ck{os.getpid()}" / f"uid_{user.pw_uid}" / f"job_{job}" \
        / "step_batch" / "task_0"


def slurm_v2(_user, job):
    return CGROUPS / "unified" / "system.slice" / f"ck{os.getpid()}_slurmstepd.scope" \
        / f"job_{job}" / "step_batch" / "user" / "task_0"


def oar_v1(user, job):
    return CGROUPS / "cpuset" / "oar" / f"{user.pw_name}_{job}"


def oar_v2(user, job):
    slice_name = f"oar-u{user.pw_uid}"
    return CGROUPS / "unified" / "oar.slice" / f"{slice_name}.slice" / \
        f"{slice_name}-j{job}.slice" / f"{slice_name}-j{job}-s1.scope"


LAYOUTS = [slurm_v1, slurm_v2, oar_v1, oar_v2]


def make_group(path):
    missing = [each for each in [path, *path.parents] if not each.exists()]
    for each in reversed(missing):
        each.mkdir()
        each.chmod(0o755)  # whatever the umask: those above are shared by all tests
        for name in ("cpuset.cpus", "cpuset.mems"):
            if (each / name).exists():
                (each / name).write_text((each.parent / name).read_text())


def processes_in(path):
    with contextlib.suppress(FileNotFoundError):
        return [int(pid) for pid in (path / "cgroup.procs").read_text().split()]
    return []


def is_running(pid):
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")


class Job:
    """One life: `command` as the user, in the job's control group and directory."""

    def __init__(self, node, user, directory, command, layout=slurm_v1, job_id=None):
        self.node, self.user, self.directory = node, user, directory
        self.id = job_id or next(_numbers)
        self.group = layout(user, self.id)
        make_group(self.group)
        if layout is oar_v1:  # as OAR's job_resource_manager_cgroups.pl does
            for path in [self.group, *self.group.iterdir()]:
                shutil.chown(path, "nobody")
        node.groups.append(self.group)
        procs = self.group / "cgroup.procs"

        def enter():
            os.setsid()  # as schedulers do; criu refuses a session that began outside
            procs.write_text("0")
            harness.become_user(user)()
        with open(directory.parent / f"job-{self.id}.log", "wb") as log:
            self.process = subprocess.Popen(
                command, cwd=directory, preexec_fn=enter, stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, env={"PATH": os.environ["PATH"], "SLURM_JOB_ID": str(self.id),
                                 "REQUESTS": str(node.spool)})
        self.log = directory.parent / f"job-{self.id}.log"

    def signal(self):
        """As schedulers do: only the first process gets it. Not before the script knows the
        program's pid, which it would otherwise leave out of its request."""
        wait_knows_program(self)
        self.process.send_signal(signal.SIGUSR2)

    def wait(self):
        try:
            return self.process.wait(60 * harness.PATIENCE)
        except subprocess.TimeoutExpired:
            failed = self.directory / "checkpoint_failed"
            raise AssertionError("\n".join(
                ["the job does not end; its log, checkpoint_failed, and the service's log:",
                 self.log.read_text(), failed.read_text() if failed.exists() else "none",
                 self.node.log()])) from None

    def cancel(self):
        """As schedulers do: every process of the control group."""
        def is_empty():
            for pid in processes_in(self.group):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.process.poll()
            return not processes_in(self.group)
        wait_for(is_empty, "the job's processes end")


class Node:
    def __init__(self, work, criu):
        self.work, self.criu = work, criu
        self.spool = work / "requests"
        self.records = work / "records"
        self.groups, self.jobs = [], []
        self.log_file = work / "checkpointd.log"
        self.process = None
        users = [pwd.getpwnam(name) for name in ("games", "daemon")]
        self.alice, self.mallory = users

    # ---- the service -----------------------------------------------------------------------------
    def start(self, by=(), **keys):
        config = self.work / "checkpoint.toml"
        keys = {"spool": str(self.spool), "criu": str(self.criu), "records": str(self.records),
                "records_group": grp.getgrgid(RECORDS_GID).gr_name, **keys}
        config.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items()))
        begun = self.log_file.stat().st_size if self.log_file.exists() else 0
        with open(self.log_file, "ab") as log:
            self.process = subprocess.Popen(
                [*by, *rights_of_the_unit(), str(DAEMON), "--config", str(config)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait_for(lambda: "CHECKPOINT_STARTED" in self.log()[begun:] or
                 self.process.poll() is not None, "the service starts")
        assert self.process.poll() is None, self.log()
        return self

    def log(self):
        return self.log_file.read_text()

    def stop(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        self.process.wait(60 * harness.PATIENCE)

    def record_files(self):
        return [json.loads(path.read_text()) for path in sorted(self.records.glob("*.json"))]

    def actions(self):
        return [record["checkpoint"]["action"] for record in self.record_files()]

    def requests(self):
        """What is in the spool: not taken yet, waiting for its turn, or being served."""
        return [path for path in self.spool.rglob("*") if path.is_file()]

    def wait_no_requests(self):
        wait_for(lambda: self.requests() == [], "no request is left in the spool")

    def workers(self):
        children = f"/proc/{self.process.pid}/task/{self.process.pid}/children"
        return [int(pid) for pid in pathlib.Path(children).read_text().split()]

    # ---- users and their jobs --------------------------------------------------------------------
    def directory(self, user, name="job", program=PROGRAM):
        path = self.work / user.pw_name
        path.mkdir(exist_ok=True)
        os.chown(path, user.pw_uid, user.pw_gid)
        path = path / name
        path.mkdir()
        self.give(user, path)
        for file, text in (("program", program), ("job.sh", JOB_SCRIPT.read_text())):
            (path / file).write_text(text)
            (path / file).chmod(0o755)
            self.give(user, path / file)
        if self.criu.name == FAKE_CRIU.name:
            self.orders(user, path)
        return path

    def give(self, user, path):
        os.chown(path, user.pw_uid, user.pw_gid, follow_symlinks=False)

    def orders(self, user, directory, **orders):
        (directory / "fake-criu.json").write_text(json.dumps(orders))
        self.give(user, directory / "fake-criu.json")

    def job(self, user, directory, *command, layout=slurm_v1, job_id=None):
        """`job_id`: of the life before, as Slurm submits a job again; OAR gives a new one."""
        job = Job(self, user, directory, command or ["./job.sh"], layout, job_id)
        self.jobs.append(job)
        return job

    def request(self, user, name, text):
        """Written by the user, as `echo > file` does."""
        path = self.spool / name
        subprocess.run(["tee", str(path)], input=text.encode(), check=True,
                       stdout=subprocess.DEVNULL, preexec_fn=harness.become_user(user))
        return path

    def cleanup(self):
        if self.process and self.process.poll() is None:
            self.stop()
        for job in self.jobs:
            job.cancel()
            job.process.wait(60 * harness.PATIENCE)
        for group in self.groups:
            for each in [group, *group.parents]:
                with contextlib.suppress(OSError):
                    each.rmdir()  # only what is empty, so nothing of others


def lines(directory):
    with contextlib.suppress(FileNotFoundError):
        return (directory / "lines").read_text().split()
    return []


def wait_lines(directory, more=3):
    begun = len(lines(directory))
    wait_for(lambda: len(lines(directory)) >= begun + more, "the program writes further lines")


def check_no_gap(directory):
    """No line is missing and none is there twice."""
    assert lines(directory) == [str(n + 1) for n in range(len(lines(directory)))]


def program_of(job):
    """The process of the program that the job's script started."""
    def found():
        children = pathlib.Path(f"/proc/{job.process.pid}/task/{job.process.pid}/children")
        for pid in children.read_text().split():
            if "./program" in pathlib.Path(f"/proc/{pid}/cmdline").read_text():
                return int(pid)
        return None
    return wait_for(found, "the job's program runs")


def wait_knows_program(job):
    """The job's script has the program's pid, and polls whether it runs."""
    def polls():
        children = pathlib.Path(f"/proc/{job.process.pid}/task/{job.process.pid}/children")
        return any(pathlib.Path(f"/proc/{pid}/cmdline").read_text() == "sleep\x000.2\x00"
                   for pid in children.read_text().split())
    wait_for(polls, "the job's script waits for its program")


def take_pid(pid, start):
    """Starts processes until one has that number."""
    for _ in range(100):
        pathlib.Path("/proc/sys/kernel/ns_last_pid").write_text(str(pid - 1))
        taker = start()
        if taker.pid == pid:
            return taker
        taker.kill()
        taker.wait()
    raise AssertionError(f"another process has {pid}")


def failure(directory):
    """What checkpoint_failed says."""
    path = directory / "checkpoint_failed"
    return wait_for(lambda: path.exists() and path.read_text(), "checkpoint_failed is written")


def fake_criu(work):
    """Where a user can execute it, whatever the rights of the source tree's folders."""
    path = work / FAKE_CRIU.name
    shutil.copy(FAKE_CRIU, path)
    path.chmod(0o755)
    return path
