"""A reload that changes the usage source: never two samplers on one state file, and no job cut in
two. The control groups are plain files in the shapes of v1; the processes in them are real."""

import json
import os
import pathlib
import signal
import threading

from harness import wait_for

RELOADS = 15


def samplers(pid):
    """How many samplers the daemon has: each holds one inotify instance, and nothing else does
    here."""
    count = 0
    for descriptor in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        try:
            count += os.readlink(descriptor) == "anon_inode:inotify"
        except OSError:
            pass  # closed meanwhile
    return count


def told(work):
    found = {}
    for file in (work / "archive").rglob("*.json"):
        if not file.name.startswith("."):
            event = json.loads(file.read_bytes())
            found.setdefault(event["job"]["id"], []).append(event)
    return found


def test_reloads_never_run_two_samplers_and_cut_no_job_in_two(make_daemon, groups, work):
    options = {"root": str(groups.root), "resolve": "none", "interval_seconds": 1, "gpus": False,
               "state_file": str(work / "state" / "usage.state")}
    daemon = make_daemon(sources={"slurm": None, "usage": options},
                         sinks={"archive": {"kinds": ["usage.node"],
                                            "layout": "{job_id}.{ext}"}}).start()
    wait_for(lambda: daemon.source("usage")["plugin_status"]["sweeps"] > 0,
             "the source has looked for the first time")
    groups.make(1)
    wait_for(lambda: daemon.source("usage")["plugin_status"]["jobs"] == 1, "the job is measured")

    most = [0]
    ended = threading.Event()

    def count():
        while not ended.is_set():
            most[0] = max(most[0], samplers(daemon.process.pid))
    counter = threading.Thread(target=count)
    counter.start()
    try:
        text = daemon.config.read_text()
        for i in range(1, RELOADS + 1):
            groups.make(100 + i)
            daemon.config.write_text(text.replace("interval_seconds = 1",
                                                  f"interval_seconds = {1 + i % 2}"))
            daemon.process.send_signal(signal.SIGHUP)
            groups.make(200 + i)
            daemon.wait_log(r"\bRELOADED\b", count=i)
    finally:
        ended.set()
        counter.join()
    jobs = [1] + [hundred + i for hundred in (100, 200) for i in range(1, RELOADS + 1)]
    wait_for(lambda: daemon.source("usage")["plugin_status"]["jobs"] == len(jobs),
             "all jobs are measured")
    for job in jobs:
        groups.remove(job)
    wait_for(lambda: len(told(work)) == len(jobs),
             lambda: f"{len(told(work))} of {len(jobs)} jobs are told")
    assert daemon.terminate() == 0
    assert most[0] == 1, "one sampler at a time"
    assert "SOURCE_FAILED" not in daemon.log_text(), "nor did one find the state file taken"
    events = told(work)
    assert {job: len(e) for job, e in events.items()} == {str(job): 1
                                                          for job in jobs}, "one event each"
    assert events["1"][0]["usage"]["elapsed_seconds"] >= RELOADS * 0.01
