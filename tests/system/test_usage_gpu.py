"""What NVIDIA's library says of a job's GPU, from the daemon to the report. The library is a
stand-in (tests/schedulers/usage/fake_nvml.cc): no GPU is needed."""

import json
import re

import pytest

import harness
import kafka_lab
from harness import wait_for


def event_of(work, kind):
    for file in (work / "archive").rglob("*.json"):
        if not file.name.startswith("."):
            event = json.loads(file.read_bytes())
            if event["kind"] == kind:
                return event
    return None


def test_energy_and_clocks_of_a_gpu_are_in_the_events_and_in_the_report(make_daemon, groups, work):
    (work / "gpus").mkdir()
    (work / "gpus" / "1").write_text("1 1001\n")  # the second GPU is that of job 1
    options = {"root": str(groups.root), "resolve": "none", "interval_seconds": 1,
               "nvml_library": str(harness.BUILD / "tests" / "fake_nvml.so"),
               "gpu_interval_seconds": 1, "gpu_jobs_dir": str(work / "gpus"),
               "state_file": str(work / "state" / "usage.state"),
               "findings": {"min_elapsed_seconds": 1, "min_covered_ratio": 0.2}}
    daemon = make_daemon(sources={"slurm": None, "usage": options},
                         sinks={"archive": {"kinds": ["usage.*"], "layout": "{job_id}.{ext}"}},
                         environment={"FAKE_NVML": "0:0:0:50000:0,1:90:4096:300000:7000000",
                                      "FAKE_NVML_RUNS": "1", "FAKE_NVML_REASONS": "0x44"}).start()
    wait_for(lambda: daemon.source("usage")["plugin_status"]["sweeps"] > 0, "the first scan")
    groups.make(1)
    state = work / "state" / "usage.state"
    wait_for(lambda: state.exists() and re.search(r'"samples":([4-9]|\d\d)', state.read_text()),
             "the GPU was read four times")
    groups.remove(1)
    job = wait_for(lambda: event_of(work, "usage.job"), "the job's summary")
    assert daemon.terminate() == 0

    for kind in ("job", "node"):
        kafka_lab.assert_valid(kafka_lab.validator(f"usage-{kind}-1.schema.json"),
                               event_of(work, f"usage.{kind}"), kind)
    gpu, = job["usage"]["nodes"][0]["gpus"]
    assert gpu["id"] == "GPU-00000001"
    assert gpu["throttled_ratio"] == 1
    # 300 W for at least the time between the first and the fourth reading, a second apart.
    assert 800 < gpu["energy_joules"] < 300 * job["usage"]["elapsed_seconds"]
    assert job["usage"]["gpu"]["energy_joules"] == pytest.approx(gpu["energy_joules"])
    assert {"gpu_throttled", "gpu_memory_low"} <= {f["id"] for f in job["usage"]["findings"]}
    said = daemon.command("report", "1").stdout
    assert " J by its GPUs\n" in said
    assert "1 of 1 GPUs worked with their clocks held down for 100 % of the time" in said
