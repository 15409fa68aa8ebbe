"""From a job to its report: usage.job of accounting and of a node, in files, Kafka and a search
server, and on the screen."""

import json
import os
import pwd
import re
import shutil
import time

import pytest

import harness
from harness import wait_for
from usage_lab import measure

jsonschema = pytest.importorskip("jsonschema",
                                 reason="python3-jsonschema is not installed: no event was held "
                                        "against the schema")

ON_DISK = True
USAGE_SINK = {"archive": {"kinds": ["usage.*"], "layout": "user-month"}}
SCHEMAS = {file.name: json.loads(file.read_text())
           for file in (harness.ROOT / "docs" / "schema").glob("*-1.schema.json")}
# One CPU busy until it has had so many seconds of it, and that many MB touched and held.
BUSY = """#!/bin/bash
exec python3 -c "
import time
held = bytearray({mb} << 20)
for i in range(0, len(held), 4096): held[i] = 1
while time.process_time() < {seconds}: pass
"
"""


def whole(document, part):
    """A schema without references, whichever way this jsonschema resolves them."""
    if isinstance(part, list):
        return [whole(document, item) for item in part]
    if not isinstance(part, dict):
        return part
    part = {key: value if key == "$defs" else whole(document, value) for key, value in part.items()
            if key != "$id"}
    if "$ref" not in part:
        return part
    file, _, pointer = part.pop("$ref").partition("#/")
    target = SCHEMAS[file or document]
    for step in pointer.split("/") if pointer else []:
        target = target[step]
    return {"allOf": [whole(file or document, target), part]}


VALIDATORS = {kind: jsonschema.Draft202012Validator(whole(name, SCHEMAS[name]))
              for kind in ("usage.sample", "usage.node", "usage.job")
              for name in [kind.replace(".", "-") + "-1.schema.json"]}


def hold_against_schema(event):
    errors = list(VALIDATORS[event["kind"]].iter_errors(event))
    assert not errors, (event["kind"],
                        [f"{'/'.join(map(str, e.path))}: {e.message[:200]}" for e in errors])


def usage_events(archive, kind="usage.job"):
    """{job id: event} of the archive, each held against its schema."""
    found = {}
    for file in archive.path.rglob("*usage*.json"):
        if file.name.startswith("."):
            continue
        event = json.loads(file.read_bytes())
        hold_against_schema(event)
        if event["kind"] == kind:
            found.setdefault(event["job"]["id"], []).append((file, event))
    return found


def only(events, job):
    assert len(events[job]) == 1, [str(file) for file, _ in events[job]]
    return events[job][0]


# ---- accounting, by a real slurmdbd --------------------------------------------------------------
@pytest.fixture(scope="module")
def accounted():
    """A Slurm of two nodes with mariadbd, slurmdbd and jobacct_gather/linux, with jobs that have
    ended."""
    lines = ["SelectTypeParameters=CR_CPU_Memory", "JobAcctGatherType=jobacct_gather/linux",
             "JobAcctGatherFrequency=1", "AccountingStorageTRES=gres/gpu:a100,gres/gpu:h100"]
    with harness.running_slurm("--accounting", "--nodes", "2", "--cpus", "4", "--min-job-age",
                               "300", "--gres", "gpu:a100:1,gpu:h100:1",
                               *[w for line in lines for w in ("--conf", line)]) as lab:
        run_jobs(lab)
        yield lab


def run_jobs(lab):
    """Jobs of each kind, until their ends are in the accounting; their ids are in lab.jobs."""
    lab.jobs = {
        "half": lab.sbatch("-n1", "-c2", "--mem=400", "-t", "5", "-J", "half\n|x",
                           script=BUSY.format(seconds=4, mb=150)),
        "wide": lab.sbatch("-N2", "-n2", "--mem-per-cpu=100", script="#!/bin/bash\nsrun sleep 2\n"),
        "array": lab.sbatch("-a", "0-1", "--mem=50", script="#!/bin/bash\nsleep 1\n"),
        "failed": lab.sbatch("--mem=50", script="#!/bin/bash\nexit 3\n"),
        "cancelled": lab.sbatch("--hold"),
    }
    lab.run("scancel", lab.jobs["cancelled"])

    # sacct knows of an end a moment after slurmctld does, and of a job that was never eligible not
    # at all.
    def finals():
        out = lab.run("sacct", "-a", "-X", "-n", "-P", "-o", "JobID,State").stdout
        rows = [line.split("|") for line in out.splitlines()]
        return sum(state in ("COMPLETED", "FAILED") for _, state in rows) == 5
    wait_for(finals, "all jobs have ended in the accounting", 90, 0.3)


def test_the_sacct_of_the_quickstart_says_of_jobs_what_sacct_says(accounted):
    fields = ("JobIDRaw,JobID,UID,GID,User,Group,Partition,Submit,Start,End,ElapsedRaw,"
              "TimelimitRaw,State,ExitCode,NNodes,AllocCPUS,NodeList,WorkDir,AllocTRES")

    def rows(command, *options):
        out = accounted.run(command, "--delimiter=|", "--starttime", "2026-01-01T00:00:00",
                            "--format", fields, *options).stdout
        found = {}
        for line in out.splitlines():
            *row, tres = line.removesuffix("|").split("|")
            found[row[0]] = (row, set(tres.split(",")))
        return found
    own = rows(str(harness.ROOT / "tests" / "support" / "sacct-by-scontrol"))
    real = rows("sacct", "-a", "-X", "-n", "-p", "--noconvert", "--state", "CD,F", "--endtime",
                "now")
    ended = {job: row for job, row in real.items() if row[0][1] != accounted.jobs["half"]}
    assert len(ended) == 4
    assert {job: own.get(job) for job in ended} == ended
    assert own.keys() - real.keys() == {accounted.jobs["cancelled"]}


def importing(lab, **options):
    return {"slurm": None, "usage": {"accounting": "sacct", "slurm_conf": str(lab.conf),
                                     "accounting_interval_seconds": 1,
                                     "findings.min_elapsed_seconds": 1, **options}}


def seconds(text):
    """[[HH:]MM:]SS[.mmm]"""
    return sum(float(part) * 60 ** place for place, part in enumerate(reversed(text.split(":"))))


def total_cpu(lab, job):
    """What sacct says of a job's steps."""
    rows = lab.run("sacct", "-n", "-P", "-o", "JobID,TotalCPU", "-j", job).stdout.split()
    return sum(seconds(row.split("|")[1]) for row in rows if row.split("|")[0] != job)


def test_finished_jobs_come_from_accounting_once(accounted, make_daemon, archive):
    page = "https://hpc.example.org/usage/{finding}"
    daemon = make_daemon(sources=importing(accounted, help_url=page), sinks=USAGE_SINK)
    daemon.command("run", "--once")
    events = usage_events(archive)
    jobs = accounted.jobs
    assert jobs["cancelled"] not in events, "it never ran"
    assert len(events) == 5

    file, half = only(events, jobs["half"])
    usage = half["usage"]
    assert half["capture"] == "accounting" and usage["quality"]["status"] == "accounting"
    assert half["job"]["name"] == "half\n|x" and half["user"]["verified"] is True
    assert file.relative_to(archive.path).parts[0] == half["user"]["name"]
    assert file.name.endswith(".usage.json")
    assert usage["request"] == {"nodes": 1, "cpus": 2, "memory_bytes": 400 << 20,
                                "time_limit_seconds": 300.0}
    assert usage["cpu"]["time_seconds"] == pytest.approx(total_cpu(accounted, jobs["half"]),
                                                         abs=0.001)
    assert usage["cpu"]["time_seconds"] >= 3.99, "sacct has whole milliseconds, and cuts them off"
    assert 150 << 20 < usage["memory"]["peak_bytes"] < 220 << 20
    assert {"cpu_low", "mem_over"} <= {f["id"] for f in usage["findings"]}
    assert all(f["help_url"] == page.format(finding=f["id"]) for f in usage["findings"])
    assert "\n           https://hpc.example.org/usage/cpu_low\n" in \
        daemon.command("report", jobs["half"]).stdout
    assert only(events, jobs["wide"])[1]["usage"]["request"]["nodes"] == 2
    tasks = [e for list_ in events.values() for _, e in list_
             if e["job"].get("array", {}).get("job_id") == jobs["array"]]
    assert sorted(e["job"]["array"]["task_id"] for e in tasks) == ["0", "1"]

    before = archive.snapshot()
    daemon.command("run", "--once")
    assert archive.snapshot() == before, "the second import tells nothing again"


def test_the_report_of_an_accounted_job_says_what_it_used_and_how_that_is_known(accounted,
                                                                                make_daemon,
                                                                                archive):
    daemon = make_daemon(sources=importing(accounted), sinks=USAGE_SINK)
    daemon.command("run", "--once")
    out = daemon.command("report", accounted.jobs["half"]).stdout
    assert "half\\n|x" in out and "of 2 CPUs busy" in out and "by the scheduler's accounting only" \
        in out
    assert "#SBATCH --mem=" in out
    out = daemon.command("report", accounted.jobs["array"]).stdout
    assert out.startswith(f"array {accounted.jobs['array']}") and "2 COMPLETED" in out, out
    me = pwd.getpwuid(os.geteuid()).pw_name
    rows = json.loads(daemon.command("report", "--user", me, "--json").stdout)["jobs"]
    assert len(rows) == 5
    assert rows[0]["wasted_core_hours"] == max(r["wasted_core_hours"] for r in rows)
    missing = daemon.command("report", accounted.jobs["cancelled"], check=False)
    assert missing.returncode == 66 and "no data on what job" in missing.stderr


def test_jobs_of_one_node_are_left_to_their_node_where_the_site_says_so(accounted, make_daemon,
                                                                        archive):
    daemon = make_daemon(sources=importing(accounted, accounting_jobs="multi_node"),
                         sinks=USAGE_SINK)
    daemon.command("run", "--once")
    assert set(usage_events(archive)) == {accounted.jobs["wide"]}


def test_an_outage_of_the_accounting_is_caught_up(accounted, make_daemon, archive):
    daemon = make_daemon(sources=importing(accounted), sinks=USAGE_SINK).start()
    wait_for(lambda: len(usage_events(archive)) == 5, "the first import", 60, 0.2)
    pid = int((accounted.directory / "run" / "slurmdbd.pid").read_text().split()[0])
    os.kill(pid, 15)
    job = accounted.sbatch("--mem=50", "-J", "during", script="#!/bin/bash\nsleep 1\n")
    daemon.wait_log("SOURCE_FAILED", 60)
    assert accounted.up().returncode == 0
    wait_for(lambda: job in usage_events(archive), "the job that ended while slurmdbd was down",
             120, 0.5)
    assert len(usage_events(archive)) == 6
    daemon.kill()
    before = archive.snapshot()
    daemon.start()
    daemon.wait_status(lambda s: s["sinks"]["archive"]["waiting"] == 0, "nothing waits")
    daemon.terminate()
    assert {k: v[2] for k, v in archive.snapshot().items()} == {k: v[2] for k, v in before.items()}
    accounted.jobs["during"] = job


HOLD = """python3 -c "
import time
held = bytearray({mib} << 20)
for i in range(0, len(held), 4096): held[i] = 1
time.sleep(6)
" """
SHARE = """python3 -c "
import mmap, os, time
held = mmap.mmap(-1, 200 << 20)
for i in range(0, 200 << 20, 4096): held[i] = 1
for _ in range(5):
    if os.fork() == 0:
        sum(held[i] for i in range(0, 200 << 20, 4096))
        time.sleep(6)
        os._exit(0)
time.sleep(8)
" """


def test_no_figure_of_a_part_is_taken_for_the_job(accounted, make_daemon, archive):
    """Jobs whose memory is known, each beside what accounting makes of it."""
    def job(name, body, *options):
        return accounted.sbatch("-J", name, "-t", "5", *options, script=f"#!/bin/bash\n{body}\n")

    def step(options=""):
        return f"srun -n1 -N1 --exact --mem=250 {options} {HOLD.format(mib=160)}"

    requeued = job("requeued", HOLD.format(mib=100), "--requeue", "--mem=300")
    def wait_state(state):
        wait_for(lambda: accounted.run("squeue", "-h", "-j", requeued, "-o", "%T").stdout.strip()
                 == state, f"the job to requeue is {state}", 60, 0.2)
    wait_state("RUNNING")
    accounted.run("scontrol", "requeue", requeued)
    wait_state("PENDING")  # and would be for two minutes
    accounted.run("scontrol", "update", f"JobId={requeued}", "StartTime=now")
    jobs = {
        "parallel": job("parallel", f"{step()} & {step()} & {step()} & wait", "-n3", "--mem=900"),
        "sequential": job("sequential", f"{step()}; {step()}", "-n1", "--mem=900"),
        "first": job("first", HOLD.format(mib=300), "-N2", "-n2", "--mem=400"),
        "farm": job("farm", f"{step('-w n1')} & {step('-w n2')} & wait", "-N2", "-n2",
                    "--mem=400"),
        "typed": job("typed", HOLD.format(mib=100), "--gres=gpu:a100:1", "-c2", "--mem=400"),
        "script": job("script", HOLD.format(mib=200), "-c2", "--mem=400"),
        "shared": job("shared", SHARE, "--mem=600"),
    }
    # The jobs hold their memory for six seconds. The first life of the requeued one ends as soon as
    # it is seen to run, which a busy machine makes two or three.
    daemon = make_daemon(sources=importing(accounted, **{"findings.min_elapsed_seconds": 5}),
                         sinks=USAGE_SINK).start()

    def used():
        found = usage_events(archive)
        ended = {e["job"]["state"] for _, e in found.get(requeued, [])}
        return ended == {"REQUEUED", "COMPLETED"} and set(jobs.values()) <= set(found) and found
    found = wait_for(used, "the jobs are in the accounting and imported", 300, 0.5)
    usage = {name: only(found, id)[1]["usage"] for name, id in jobs.items()}

    def mib(name):
        return usage[name]["memory"]["peak_bytes"] / 2**20

    def asked(name):
        return usage[name].get("suggest", {}).get("memory_bytes", 0) / 2**20
    # Beside what is held there are Python, and srun in the script's step: some 60 MiB at most.
    assert 480 < mib("parallel") < 640 and asked("parallel") > 1.2 * 480
    assert 160 < mib("sequential") < 250, "one after the other"
    assert usage["first"]["quality"]["status"] == "partial"
    assert usage["first"]["quality"]["nodes_reporting"] == 1
    assert usage["first"]["findings"] == [f for f in usage["first"]["findings"]
                                          if f["id"] in ("short_job", "time_over")]
    assert asked("first") > 1.2 * 300 and "condition" in usage["first"]["suggest"]
    assert 320 < mib("farm") < 440 and 1.2 * 160 < asked("farm") < 1.2 * 240, "on a node of its own"
    assert usage["typed"]["request"]["gpus"] == 1
    assert "cpu_low" not in {f["id"] for f in usage["typed"]["findings"]}
    assert usage["script"]["quality"]["status"] == "accounting"
    assert 200 < mib("script") < 260 and "cpu_low" in {f["id"] for f in usage["script"]["findings"]}
    doubt, = usage["shared"]["quality"]["not_credible"]
    assert doubt["figure"] == "memory.peak_bytes" and doubt["value"] > 1000 << 20, \
        "200 MiB for each of six processes"
    assert asked("shared") == 0
    said = daemon.command("report", jobs["shared"]).stdout
    assert "memory     no data" in said and "not used   Accounting has 1." in said, said
    said = daemon.command("report", jobs["first"]).stdout
    assert "only 1 of 2 nodes measured" in said, said
    assert "Next time, if the node that was not measured needed no more" in said, said
    first, = [e for _, e in found[requeued] if e["job"]["state"] == "REQUEUED"]
    assert first["usage"]["quality"]["status"] in ("none", "partial", "short")
    assert "suggest" not in first["usage"]


def test_the_energy_of_nodes_is_that_of_a_job_that_had_them_alone(accounted, make_daemon, archive,
                                                                  work):
    """No plugin measures energy here, so an energy is put into what sacct says of each job."""
    # After the outage of another test, slurmdbd has but one node of the next job.
    accounted.sbatch("-N2", "--mem=50", "--wait", script="#!/bin/bash\ntrue\n")
    wait_for(lambda: re.search(r"DBD Agent queue size: *0\b", accounted.run("sdiag").stdout),
             "the accounting has caught up", 60, 0.3)
    whole = accounted.sbatch("-N2", "--exclusive", "--mem=50", script="#!/bin/bash\nsleep 1\n")
    commands = work / "bin"
    commands.mkdir()
    (commands / "sinfo").symlink_to(shutil.which("sinfo"))
    sacct = commands / "sacct"
    sacct.write_text(f"#!/bin/bash\nset -o pipefail\n{shutil.which('sacct')} \"$@\" | "
                     "sed 's/,node=/,energy=7200,node=/'\n")
    sacct.chmod(0o755)
    wait_for(lambda: "COMPLETED" in accounted.run("sacct", "-n", "-X", "-j", whole).stdout,
             "the job has ended in the accounting", 60, 0.3)

    daemon = make_daemon(sources=importing(accounted, sacct=str(sacct)), sinks=USAGE_SINK)
    daemon.command("run", "--once")
    usages = {job: list_[0][1]["usage"] for job, list_ in usage_events(archive).items()}
    assert len(usages) > 5
    assert {job: usage["energy"] for job, usage in usages.items() if "energy" in usage} == {
        whole: {"nodes_joules": 7200}}
    assert "energy     2 Wh by its nodes" in daemon.command("report", whole).stdout


def test_without_a_plugin_that_measures_energy_there_is_none(accounted, make_daemon, archive):
    daemon = make_daemon(sources=importing(accounted), sinks=USAGE_SINK)
    daemon.command("run", "--once")
    events = [event for list_ in usage_events(archive).values() for _, event in list_]
    assert events and not any("energy" in event["usage"] for event in events)


# ---- a node, by real control groups --------------------------------------------------------------
def sampling(lab, **options):
    """Of this lab's nodes alone: another Slurm on this machine may run at the same time."""
    return {"slurm": None, "usage": {"slurm_conf": str(lab.conf), "interval_seconds": 1,
                                     "findings.min_elapsed_seconds": 5,
                                     "state_file": "", "nodes": lab.nodes, **options}}


def wait_job(archive, job):
    return only(wait_for(lambda: job in usage_events(archive) and usage_events(archive),
                         f"usage.job of {job}"), job)[1]


def test_a_busy_half_job_is_reported_within_ten_seconds_of_its_end(lab, make_daemon, archive, work):
    daemon = make_daemon(sources=sampling(lab), sinks=USAGE_SINK).start().prefer()
    ends = []

    def event_of(job):
        ends.append(time.monotonic())
        return wait_job(archive, job)
    job, event = measure(lab, work, event_of, "-c2", "--mem=600", "-t", "10", "-J", "half", cpu=12,
                         mib=200)
    said = daemon.command("report", job.id).stdout
    if not harness.SANITIZED:  # the time is what a user is promised: so this is in the servers tier
        assert time.monotonic() - ends[-1] < 10
    usage = event["usage"]
    assert usage["quality"]["status"] == "ok"
    assert usage["request"]["cpus"] == 2 and usage["request"]["memory_bytes"] == 600 << 20
    assert event["job"]["name"] == "half" and event["user"]["verified"] is True
    assert usage["cpu"]["efficiency_ratio"] == pytest.approx(usage["cpu"]["time_seconds"]
                                                             / usage["elapsed_seconds"] / 2,
                                                             rel=0.01)
    assert usage["cpu"]["efficiency_ratio"] < 0.55
    # Beside the 200 MiB there is Python itself.
    assert 200 << 20 < usage["memory"]["peak_bytes"] < 215 << 20
    ids = {f["id"] for f in usage["findings"]}
    assert "cpu_low" in ids
    assert usage["suggest"]["memory_bytes"] == pytest.approx(usage["memory"]["peak_bytes"] * 1.2,
                                                             rel=0.01)
    assert "of 2 CPUs busy on average" in said and "#SBATCH --mem=" in said, said
    assert "COMPLETED" in said or "state" not in event["job"], said


# Each task touches and holds 40 MiB; one 300 MiB.
SWEEP = """#!/bin/bash
exec python3 -c "
import time
held = bytearray((300 if $SLURM_ARRAY_TASK_ID == 3 else 40) << 20)
for i in range(0, len(held), 4096): held[i] = 1
time.sleep(4)
"
"""


def test_an_array_is_one_report_that_names_the_task_unlike_the_others(lab, make_daemon, archive,
                                                                      work):
    catalog = {"root": str(work / "catalog"), "kinds": ["job.script", "usage.*"]}
    daemon = make_daemon(sources=sampling(lab, **{"findings.min_elapsed_seconds": 1}),
                         sinks={**USAGE_SINK, "catalog": catalog}).start().prefer()
    job = lab.sbatch("-a", "0-5", "-c1", "--mem=400", "-t", "5", "-J", "sweep", script=SWEEP)

    def tasks():
        events = [e for list_ in usage_events(archive).values() for _, e in list_]
        return [e for e in events if e["job"].get("array", {}).get("job_id") == job]
    wait_for(lambda: len(tasks()) == 6, "usage.job of all tasks", 180)
    daemon.wait_status(lambda s: s["sinks"]["catalog"]["waiting"] == 0, "the catalog has them")
    stored = daemon.command("report", job).stdout
    assert stored == daemon.command("report", job, "--archive", str(archive.path)).stdout
    head, owner, states = stored.splitlines()[:3]
    assert head == f"array {job}  sweep  6 tasks" and "6 COMPLETED" in states, stored
    assert f"\n  {job}_3  needed 3" in stored, stored
    assert f"\nBut more for {job}_3 (--mem=3" in stored, stored
    suggested, = [line for line in stored.splitlines() if line.startswith("  #SBATCH --mem=")]
    assert 48 <= int(suggested.split("=")[1][:-1]) < 150, "1.2 x 40 MiB and what Python needs"
    array = json.loads(daemon.command("report", job, "--json").stdout)["array"]
    assert array["tasks"] == 6 and array["suggest"]["exceptions"][0]["task"] == f"{job}_3"
    assert daemon.command("report", f"{job}_3").stdout.startswith("job ")


def test_a_job_of_two_nodes_of_one_machine_is_one_summary(lab, make_daemon, archive, work):
    daemon = make_daemon(sources=sampling(lab, **{"findings.min_elapsed_seconds": 1}),
                         sinks=USAGE_SINK).start().prefer()
    job, event = measure(lab, work, lambda job: wait_job(archive, job), "-N2", "-c1", "--mem=100",
                         cpu=3, tasks=2)
    usage = event["usage"]
    assert len(usage["nodes"]) == 2 and usage["quality"]["nodes_expected"] == 2 \
        and usage["quality"]["nodes_reporting"] == 2
    request = {"nodes": 2, "cpus": 2, "memory_bytes": 200 << 20}
    # The accounting may have noted the partition's time limit, which is a year here.
    assert usage["request"] in (request, {**request, "time_limit_seconds": 365 * 86400.0})
    assert usage["cpu"]["time_seconds"] == pytest.approx(sum(n["cpu"]["time_seconds"]
                                                             for n in usage["nodes"]), abs=0.01)
    said = daemon.command("report", job.id).stdout
    assert all(node["host"]["name"] in said for node in usage["nodes"]) and "PEAK MEMORY" in said
    nodes = usage_events(archive, "usage.node")[job.id]
    assert {e["host"]["name"] for _, e in nodes} == {n["host"]["name"] for n in usage["nodes"]}


def test_a_job_that_is_killed_for_memory_is_said_to_be_so_however_short(lab, make_daemon, archive):
    daemon = make_daemon(sources=sampling(lab, **{"findings.min_elapsed_seconds": 300}),
                         sinks=USAGE_SINK).start()
    job = lab.sbatch("-n1", "--mem=60",
                     script="#!/bin/bash\npython3 -c 'x = bytearray(400 << 20); print(len(x))'\n")
    assert lab.wait_ended(job) in ("OUT_OF_MEMORY", "FAILED")
    event = wait_job(archive, job)
    assert event["usage"]["quality"]["status"] == "short"
    found = {f["id"]: f for f in event["usage"]["findings"]}
    assert found["mem_oom"]["severity"] == "critical" and set(found) <= {"mem_oom", "short_job"}
    assert event["usage"]["suggest"]["directives"] == ["#SBATCH --mem=120M"]
    said = daemon.command("report", job).stdout
    assert "critical" in said and "#SBATCH --mem=120M" in said and "too short to judge" in said


def test_a_job_of_two_seconds_is_measured_and_said_to_be_too_short_to_judge(lab, make_daemon,
                                                                            archive, work):
    daemon = make_daemon(sources=sampling(lab, interval_seconds=30,
                                          **{"findings.min_elapsed_seconds": 300}),
                         sinks=USAGE_SINK).start().prefer()
    job, event = measure(lab, work, lambda job: wait_job(archive, job), "-c2", "--mem=100",
                         cpu=1.5, mib=10)
    assert event["usage"]["quality"]["status"] == "short"
    assert [f["id"] for f in event["usage"]["findings"]] in (["short_job"], []), \
        "a busy machine may take it over 30 s"
    assert "too short to judge" in daemon.command("report", job.id).stdout


def test_without_a_scheduler_to_ask_a_job_is_told_by_its_node_alone(lab, make_daemon, archive,
                                                                    work):
    make_daemon(sources=sampling(lab, resolve="none"), sinks=USAGE_SINK).start().prefer()
    _, event = measure(lab, work, lambda job: wait_job(archive, job), "-c1", "--mem=100", "-J",
                       "nameless", cpu=1, mib=10)
    assert "request" not in event["usage"] and "name" not in event["job"] \
        and "state" not in event["job"]
    assert event["user"]["verified"] is True, "the path of a v1 control group tells the owner"
