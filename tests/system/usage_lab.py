"""A real Slurm under control groups of v1 (tests/support/slurm-cgroup-lab), and jobs whose use is
known exactly: what the job read of its own groups at its end is the least that a measurement may
say, and what the kernel charged to all of the lab's jobs meanwhile is the most. Both grow on a
busy machine, where starting a shell costs more."""

import contextlib
import json
import pathlib
import subprocess

import harness
from harness import Slurm, wait_for

LAB = harness.ROOT / "tests" / "support" / "slurm-cgroup-lab"
BUSY_JOB = harness.ROOT / "tests" / "support" / "busy-job"
CGROUPS = pathlib.Path("/sys/fs/cgroup")
ROUNDED = 1e-3  # usage.job has milliseconds, the other events microseconds


class CgroupSlurm(Slurm):
    def up(self, *options):
        return subprocess.run([str(LAB), "up", str(self.directory), *options], capture_output=True,
                              text=True, timeout=180)

    def down(self):
        subprocess.run([str(LAB), "down", str(self.directory)], capture_output=True, text=True,
                       timeout=180)

    @property
    def nodes(self):
        return (self.directory / "etc" / "nodes").read_text().split()

    def wait_ended(self, job):
        """Returns the job's state then."""
        def ended():
            state = self.run("squeue", "-h", "-t", "all", "-j", job, "-o", "%T").stdout.strip()
            return state in ("COMPLETED", "FAILED", "OUT_OF_MEMORY", "CANCELLED", "TIMEOUT",
                             "NODE_FAIL") and state
        return wait_for(ended, f"job {job} ends", 180, step=0.1)

    def charged(self):
        """Seconds of CPU time that the kernel has charged to all jobs so far, those that have ended
        with them: a node's group outlives its jobs' groups, and counts what was below it."""
        total = 0
        for node in self.nodes:
            with contextlib.suppress(FileNotFoundError):  # before a node's first job
                group = CGROUPS / "cpuacct" / f"slurm_{node}"
                total += int((group / "cpuacct.usage").read_text())
        return total / 1e9


class BusyJob:
    """tests/support/busy-job as a job; no other may run beside it. With hold=True it stays until
    release()."""

    def __init__(self, lab, work, *options, cpu=0, mib=1, hold=False, tasks=1):
        self.lab = lab
        out = work / f"used-{len(list(work.glob('used-*')))}"
        self.outs = [out] + [pathlib.Path(f"{out}.{task}") for task in range(1, tasks)]
        self.charged_before = lab.charged()
        launch = "srun " if tasks > 1 else ""
        self.id = lab.sbatch(f"-n{tasks}", *options,
                             script=f"#!/bin/bash\nexec {launch}{BUSY_JOB} {out} {cpu} {mib} "
                                    f"{int(hold)}\n")

    def used(self):
        """What each task has said last."""
        return [json.loads(out.read_text()) for out in self.outs]

    def wait_burnt(self):
        wait_for(lambda: all(out.exists() for out in self.outs),
                 f"job {self.id} has used its CPU time", 300)
        return self.used()

    def release(self):
        pathlib.Path(f"{self.outs[0]}.go").touch()

    def wait_ended(self):
        return self.lab.wait_ended(self.id)

    def check_cpu(self, cpu, complete=True):
        """`cpu`: of an event about this job, which has ended. What was read last, if that was
        before the end, has no lower limit."""
        least = sum(used["cpu"] for used in self.used())
        most = self.lab.charged() - self.charged_before
        print(f"job {self.id}: {cpu['time_seconds']:.6f} of {least:.6f} to {most:.6f} s")
        if complete:
            assert cpu["time_seconds"] >= least - ROUNDED
        assert cpu["time_seconds"] <= most + ROUNDED


def measure(lab, work, event_of, *options, held=None, **what):
    """A BusyJob and the event that event_of(job id) waits for, which was read at the job's end. The
    job's control groups are removed some 20 ms after its end. If the daemon gets no CPU in that
    time, in spite of Daemon.prefer(), the event is not complete, and another job is measured.
    held(job) is called once the job has used its CPU time, while it holds its memory."""
    for _ in range(5):
        job = BusyJob(lab, work, *options, hold=held is not None, **what)
        if held is not None:
            job.wait_burnt()
            held(job)
            job.release()
        assert job.wait_ended() == "COMPLETED"
        event = event_of(job.id)
        job.check_cpu(event["usage"]["cpu"], event["complete"])
        if event["complete"]:
            return job, event
    raise AssertionError("the end of five jobs, one after the other, was not read in time")
