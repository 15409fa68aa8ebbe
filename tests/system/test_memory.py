"""What users submit does not decide how much memory the daemon takes."""

import os
import pathlib
import re
import signal

import pytest

import harness
from harness import wait_for

# Gigabytes of scripts: not in memory, where they would take room from what is measured.
ON_DISK = True
MOST_BYTES = 256 << 20
SCRIPT_BYTES = 4_000_000  # just below Slurm's max_script_size


def peak_bytes(daemon):
    return int(re.search(r"^VmHWM:\s+(\d+) kB",
                         pathlib.Path(f"/proc/{daemon.process.pid}/status").read_text(),
                         re.M).group(1)) << 10


def blank_script(job):
    """Compresses to almost nothing, so that the journal alone would let in any number of them."""
    head = b"#!/bin/bash\n# %d\n" % job
    return head + b" " * (SCRIPT_BYTES - len(head) - 1) + b"\n"


@pytest.mark.skipif(harness.SANITIZED, reason="a sanitizer's own memory would be measured")
def test_with_nobody_to_ask_400_scripts_of_4_mb_take_no_more_memory_than_a_few(fresh_slurm,
                                                                               make_daemon,
                                                                               archive, spool):
    slurm = fresh_slurm("--nodes", "1")
    controller = int((slurm.directory / "run" / "slurmctld.pid").read_text().split()[0])
    jobs = range(1, 401)
    for job in jobs:
        spool.write(job, script=blank_script(job))
    # It listens and does not answer: each question ends at its time limit.
    os.kill(controller, signal.SIGSTOP)
    try:
        daemon = make_daemon(sources={"slurm": {"resolve": "slurmctld",
                                                "slurm_conf": str(slurm.conf),
                                                "resolve_timeout_seconds": 3600}},
                             sinks={"archive": {"layout": "{job_id}.{ext}"}})
        peaks = []
        for _ in range(2):
            daemon.start()
            daemon.wait_status(lambda s: s["sources"]["slurm"]["owners"]["waiting"] == len(jobs),
                               "all wait for their owner", 120)
            daemon.wait_status(lambda s: s["sources"]["slurm"]["owners"]["failed_queries"] >= 1,
                               "the scheduler was asked", 60)
            peaks.append(peak_bytes(daemon))
            daemon.kill()
        daemon.start()
        daemon.wait_status(lambda s: s["sources"]["slurm"]["owners"]["waiting"] == len(jobs),
                           "all wait for their owner", 60)
    finally:
        os.kill(controller, signal.SIGCONT)
    wait_for(lambda: len(archive.scripts()) == len(jobs),
             lambda: f"{len(archive.scripts())} of {len(jobs)} are archived", 240)
    daemon.wait_acknowledged(len(jobs))
    peaks.append(peak_bytes(daemon))
    wrong = [job for job in jobs if (archive.path / f"{job}.sh").read_bytes() != blank_script(job)]
    assert not wrong, f"{len(wrong)} scripts differ"
    print("peaks in MB: captured, restarted, delivered:", [round(peak / 1e6) for peak in peaks])
    assert max(peaks) <= MOST_BYTES, peaks
