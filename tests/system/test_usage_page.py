"""What docs/usage.md shows of `scriptorium report` is what the command prints of the jobs that are
made here. A block beneath `<!-- printed by: report ... -->` is all of it; beneath `<!-- parts of:
report ... -->` those of its paragraphs that begin with the same word. To write the blocks again:

    SCRIPTORIUM_REWRITE_DOCS=1 /usr/bin/python3 -m pytest tests/system/test_usage_page.py

That job 4711 has these findings is a test of its own, in findings_test.cc.
"""

import datetime
import hashlib
import json
import os
import re

import harness

PAGE = harness.ROOT / "docs" / "usage.md"
MARK = re.compile(r"^<!-- (printed by|parts of): (report .*) -->\n```\w*\n(?:\$ .*\n)?"
                  r"((?:.*\n)*?)```$", re.M)
MIB = 1 << 20
DAY = datetime.datetime(2026, 11, 21, 8, tzinfo=datetime.timezone.utc)
MEM_OVER = ("At most 430 MiB of 2.0 GiB of memory were needed (21 %). No other job could use the "
            "rest, and a job that asks for less starts earlier. Ask for less.")
SERIAL = ("On average 1.00 CPUs were busy of 2: the program runs on one CPU at a time. More CPUs "
          "do not make such a program faster, but its job waits longer in the queue. Ask for one, "
          "or start several tasks or threads.")
LOW = ("The job used {} % of its 2 CPUs, and no other job could use the rest. Ask for fewer, or "
       "start as many tasks and threads as there are CPUs.")
THREADS = " Of the 4 threads of its main program, 1 ran."


def moment(time):
    return time.strftime("%Y-%m-%dT%H:%M:%S.000Z")


def finding(name, severity, text, page=True):
    link = {"help_url": f"https://hpc.example.org/usage/{name}"} if page else {}
    return {"id": name, "severity": severity, "value": 0.5, "unit": "ratio", "scope": "job",
            "text": text, **link}


def program(name, script, seconds, processes=1, threads=1, busy=1, **more):
    return {"name": name, **({"script": script} if script else {}), "cpu_seconds": seconds,
            "processes": processes, "threads": threads, "busy_threads": busy, **more}


def step(name, second, seconds, cpu, mib, last_read="removal", cpus=16, start=DAY):
    return {"name": name, "started_at": moment(start + datetime.timedelta(seconds=second)),
            "elapsed_seconds": seconds, "last_read": last_read,
            "cpu": {"time_seconds": cpu, "allocated": cpus,
                    "efficiency_ratio": cpu / seconds / cpus},
            "memory": {"peak_working_set_bytes": mib * MIB, "oom_kills": 0}}


def job(number, name, start, seconds, *, cpu, mib, cpus=2, limit=2048, hours=12, user="alice",
        state="COMPLETED", code="0:0", array=None, suggest=None, source="cgroup2", node="n12",
        readings=241, findings=(), **usage):
    """usage.job of one that kept the part `cpu` of its CPUs busy and needed so much memory."""
    end = start + datetime.timedelta(seconds=seconds)
    block = {"cpu": {"time_seconds": cpu * cpus * seconds, "allocated": cpus,
                     "efficiency_ratio": cpu}}
    ended = {"state": state, "exit_code": code} if state else {}
    return {
        "schema": "scriptorium.event/1", "id": hashlib.sha256(str(number).encode()).hexdigest(),
        "kind": "usage.job", "time": moment(start), "captured_at": moment(end), "capture": source,
        "complete": True, "cluster": "lab", "scheduler": "slurm", "host": {"name": node},
        "user": {"name": user, "id": "1000", "verified": True},
        "job": {"id": str(number), "name": name, **ended, "account": "chem", "partition": "batch",
                **({"array": array} if array else {})},
        "usage": {
            "started_at": moment(start), "ended_at": moment(end), "elapsed_seconds": seconds,
            "source": {"cpu": source, "memory": source},
            "request": {"nodes": 1, "cpus": cpus, "memory_bytes": limit * MIB,
                        "time_limit_seconds": hours * 3600}, **block,
            "memory": {"peak_bytes": mib * MIB, "peak_node_bytes": mib * MIB,
                       "limit_bytes": limit * MIB, "efficiency_ratio": mib / limit},
            "time": {"efficiency_ratio": seconds / hours / 3600},
            "nodes": [{"host": {"name": node}, **block}],
            "quality": {"status": "ok", "nodes_reporting": 1, "nodes_expected": 1,
                        "samples": readings, "covered_ratio": 1.0}, "findings": list(findings),
            "suggest": suggest or {"memory_bytes": int(1.2 * mib) * MIB,
                                   "directives": [f"#SBATCH --mem={int(1.2 * mib)}M"]}, **usage}}


def sweep(task):
    """A task of an array of 20; one failed, one needed more time and memory."""
    seconds, mib = {3: (20, 1000), 17: (5900, 3000)}.get(task, (3600 + 30 * task, 1000))
    found = {3: [finding("short_job", "info", "")], 17: []}
    return job(4900 + task, "sweep", DAY, seconds, cpu=0.9, mib=mib, cpus=8, limit=4000,
               hours=100 / 60, array={"job_id": "4900", "task_id": str(task)},
               findings=found.get(task, [finding("mem_over", "warning", "")]),
               state="FAILED" if task == 3 else "COMPLETED", code="3:0" if task == 3 else "0:0")


def made_jobs():
    yield job(4711, "md", DAY, 7200, cpu=0.5, mib=430, hours=3, findings=[
        finding("cpu_low", "warning", LOW.format(50) + THREADS),
        finding("cpu_serial", "warning", SERIAL + THREADS),
        finding("mem_over", "warning", MEM_OVER)],
        programs=[program("python3", "simulate.py", 7177.5, threads=4),
                  program("bash", "slurm_script", 0.12)],
        suggest={"cpus": 1, "memory_bytes": 520 * MIB, "directives": [
            "#SBATCH --cpus-per-task=1", "#SBATCH --ntasks=1", "#SBATCH --mem=520M"]})
    yield job(4712, "gmx", DAY, 7200, cpu=0.91, mib=13824, cpus=16, limit=16384, steps=[
        step("batch", 0, 7199.7, 2.1, 9.4), step("0", 3, 7118.7, 105214.81, 13824)],
        steps_other={"steps": 70, "cpu_seconds": 96.4})
    for run in range(43):  # each needs more memory than the one before; the last took long
        seconds = 7680 if run == 42 else 2412 + 37 * run % 287
        yield job(4770 + run, "relax", DAY + datetime.timedelta(hours=3 * (run - 42)), seconds,
                  cpu=0.93 + run % 4 / 100, mib=800 + 14 * run, limit=1800, hours=3, cpus=8)
    yield from map(sweep, range(20))
    start = datetime.datetime(2026, 11, 27, 12, 26, 21, tzinfo=datetime.timezone.utc)
    yield job(9, "md", start, 336, cpu=0.289, mib=360, hours=1, user="games", state=None,
              node="n1", source="cgroup1", readings=22, findings=[
                  finding("cpu_low", "warning", LOW.format(29), page=False)],
              io={"read_bytes": 354 << 10, "written_bytes": 203 << 10},
              programs=[program("python3", "simulate.py", 191.4),
                        program("scriptorium", None, 0.17, threads=2, ranks=1),
                        program("bash", "slurm_script", 0, busy=0),
                        program("srun", None, 0, processes=2, threads=5, busy=0)],
              steps=[step("batch", 0, 336, 193.8, 357, cpus=2, start=start),
                     step("0", 0, 336, 0.178, 3.1, "sample", 2, start)],
              suggest={"memory_bytes": 440 * MIB, "directives": ["#SBATCH --mem=440M"],
                       "condition": "the part that did not run needs no more"})
    start = datetime.datetime(2026, 1, 13, tzinfo=datetime.timezone.utc)
    for number in range(200):  # two weeks of five users
        seconds, cpu = 3600 + 977 * number % 30000, 0.15 + 0.2 * (number % 5)
        yield job(1000 + number, f"run{number % 7}", start + datetime.timedelta(
            hours=number * 1.6), seconds, cpu=cpu, mib=1500, cpus=16, hours=seconds / 2700,
            user=("alice", "bob", "carol", "dave", "erin")[(number + number // 40) % 5],
            findings=[finding("cpu_low", "warning", "")] if cpu < 0.8 else [])


def archive(root):
    """A file tree of the made jobs, with a script of each."""
    root.mkdir()
    for event in made_jobs():
        name = f"{event['job']['id']}-{event['job']['name']}"
        script = b"#!/bin/bash\nmodule load GROMACS/2024.2\nsrun gmx_mpi mdrun -s run.tpr\n"
        file = {"name": "script", "size": len(script), "sha256": hashlib.sha256(script).hexdigest()}
        submitted = {**event, "id": event["id"][::-1], "kind": "job.script", "capture": "scan",
                     "script": {**file, "interpreter": "/bin/bash"}, "files": [file]}
        del submitted["usage"]
        (root / f"{name}.sh").write_bytes(script)
        (root / f"{name}.json").write_text(json.dumps(submitted))
        (root / f"{name}.usage.json").write_text(json.dumps(event))


def paragraphs(text):
    return {part.split()[0]: part for part in text.strip("\n").split("\n\n")}


def test_the_page_shows_what_the_command_prints(make_daemon, work, monkeypatch):
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    page = PAGE.read_text()
    archive(work / "archive")
    daemon = make_daemon(sinks={"archive": {"kinds": ["job.script", "usage.*"]}})

    def printed(found):
        kind, command, shown = found.groups()
        text = daemon.command(*command.split()).stdout
        if kind == "parts of":
            whole = paragraphs(text)
            text = "\n\n".join(whole.get(word, f"{word} is not in it")
                               for word in paragraphs(shown)) + "\n"
        return page[found.start():found.start(3)] + text + "```"
    now, count = MARK.subn(printed, page)
    assert count >= 6, "the blocks have marks"
    if os.environ.get("SCRIPTORIUM_REWRITE_DOCS"):
        PAGE.write_text(now)
    else:
        assert now == page, "write it again, as the head of this file says"
