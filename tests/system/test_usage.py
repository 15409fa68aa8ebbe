"""The usage source against real control groups: jobs of a real Slurm under cgroup v1, whose use is
known exactly (usage_lab), and v2 groups made by hand."""

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time

import pytest

import harness
from harness import wait_for
from usage_lab import BusyJob, CGROUPS, ROUNDED, measure


def usage_source(work, **options):
    # Other labs may run on this machine, with the same job ids.
    return {"slurm": None, "usage": {"interval_seconds": 5,
                                     "state_file": str(work / "state" / "usage.state"), **options}}


def all_events(work, kind):
    for file in (work / "archive").rglob("*.json"):
        if file.name.startswith("."):
            continue
        event = json.loads(file.read_bytes())
        if event["kind"] == kind:
            yield event


def events(work, kind):
    """All events of a kind in the archive, by job id and host."""
    return {(event["job"]["id"], event["host"]["name"]): event for event in all_events(work, kind)}


def samples(work, job, node=None):
    """What was read of a job, in this order."""
    found = [e for e in all_events(work, "usage.sample")
             if e["job"]["id"] == job and node in (None, e["host"]["name"])]
    return [e["usage"] for e in sorted(found, key=lambda e: e["usage"]["seq"])]


def wait_sample(work, job, condition, what, node=None):
    return wait_for(lambda: [s for s in samples(work, job, node) if condition(s)],
                    f"a sample of job {job} {what}")[0]


def wait_cpu(work, job, used):
    """Until a reading on that node has as much as its task said."""
    return wait_sample(work, job, lambda s: s["cpu"]["time_seconds"] >= used["cpu"],
                       f"on {used['node']} has its CPU time", used["node"])


def wait_memory(work, job, size, name="working_set_bytes"):
    wait_sample(work, job, lambda s: s["memory"].get(name, 0) >= size, f"with {size} {name}")


def until(file):
    """For a job's script: waits for it."""
    return f"until [ -e {file} ]; do sleep 0.1; done\n"


def held_memory(work, mib):
    """For measure(): until a reading has seen so much memory."""
    return lambda job: wait_memory(work, job.id, mib << 20)


def wait_node(work, job, node=None):
    def there():
        return [e for (i, host), e in events(work, "usage.node").items() if i == job
                and node in (None, host)]
    return wait_for(there, f"usage.node of job {job} is in the archive")[0]


def wait_job(work, job):
    def there():
        return [e for (i, _), e in events(work, "usage.job").items() if i == job]
    return wait_for(there, f"usage.job of job {job} is in the archive")[0]


@pytest.fixture
def daemon(make_daemon, lab, work):
    kinds = ["usage.sample", "usage.node", "usage.job"]
    daemon = make_daemon(sources=usage_source(work, slurm_conf=str(lab.conf), nodes=lab.nodes,
                                              samples=True),
                         sinks={"archive": {"kinds": kinds}})
    return daemon.start().prefer()


def test_a_job_that_keeps_one_of_two_cpus_busy_is_measured_as_it_was_charged(daemon, lab, work):
    job, node = measure(lab, work, lambda job: wait_node(work, job), "-c2", "--mem=300", cpu=4,
                        mib=100, held=held_memory(work, 100))
    usage = node["usage"]
    assert usage["memory"]["peak_working_set_bytes"] == pytest.approx(job.used()[0]["anon"],
                                                                      rel=0.05)
    assert usage["cpu"]["allocated"] == 2
    assert usage["cpu"]["efficiency_ratio"] == pytest.approx(
        usage["cpu"]["time_seconds"] / (2 * usage["elapsed_seconds"]), rel=0.001)
    assert usage["memory"]["limit_bytes"] == 300 << 20
    assert usage["memory"]["oom_kills"] == 0
    assert usage["quality"]["last_read"] == "removal"
    assert node["user"]["verified"] is True and node["user"]["id"] == "0"
    whole = wait_job(work, job.id)
    assert whole["usage"]["cpu"]["time_seconds"] == pytest.approx(usage["cpu"]["time_seconds"],
                                                                  abs=ROUNDED)


def test_a_job_that_only_sleeps_has_used_no_more_than_its_start(daemon, lab, work):
    before = lab.charged()
    job = lab.sbatch("-n1", "--mem=50", script="#!/bin/bash\nsleep 3\n")
    lab.wait_ended(job)
    usage = wait_node(work, job)["usage"]
    most = lab.charged() - before + ROUNDED
    assert usage["cpu"]["time_seconds"] <= most
    for sample in samples(work, job):
        cpu = sample["cpu"]
        if "utilization_ratio" in cpu:
            assert cpu["utilization_ratio"] * cpu["allocated"] * sample["interval_seconds"] \
                <= most * 1.001, sample
    assert usage["memory"]["peak_working_set_bytes"] < 10 << 20


def test_a_job_that_is_killed_for_its_memory_says_so(daemon, lab, work):
    job = lab.sbatch("-n1", "--mem=60",
                     script="#!/bin/bash\npython3 -c 'b = bytearray(200 << 20)'\n")
    lab.wait_ended(job)
    usage = wait_node(work, job)["usage"]
    # Absent where the task's group was gone before it could be asked, but never 0.
    assert usage["memory"].get("oom_kills", 1) >= 1
    whole = wait_job(work, job)
    assert whole["job"]["state"] == "OUT_OF_MEMORY"
    assert "mem_oom" in [finding["id"] for finding in whole["usage"]["findings"]]


def test_a_step_that_is_killed_for_its_memory_is_named(daemon, lab, work):
    # As above, a kill is not known where the task's group was gone before it could be asked; then
    # another job is.
    for _ in range(5):
        job = lab.sbatch("-n1", "--mem=60", script="""#!/bin/bash
srun sleep 2
srun python3 -c 'b = bytearray(200 << 20)'
srun sleep 0
""")
        lab.wait_ended(job)
        usage = wait_job(work, job)["usage"]
        print(json.dumps(usage))
        steps = {step["name"]: step.get("memory", {}).get("oom_kills") for step in usage["steps"]}
        assert list(steps) == ["batch", "0", "1", "2"]
        if "oom_kills" in usage["memory"]:
            break
    assert steps["1"] >= 1 and not steps["0"] and not steps["2"]
    found = next(f for f in usage["findings"] if f["id"] == "mem_oom")
    assert found["steps"] == ["1"] and " It happened in step 1. " in found["text"]


def test_page_cache_is_not_what_a_job_needs(daemon, lab, work):
    # On the disk: what lies in a file system in memory is shared memory, not cache.
    go = work / "go"
    with tempfile.NamedTemporaryFile(prefix="scr-usage-", dir="/var/tmp") as big:
        job = lab.sbatch("-n1", "--mem=100",
                         script=f"#!/bin/bash\ndd if=/dev/zero of={big.name} bs=1M count=200 "
                                f"2>/dev/null\n{until(go)}")
        wait_memory(work, job, 60 << 20, "peak_charged_bytes")
        go.touch()
        lab.wait_ended(job)
        memory = wait_node(work, job)["usage"]["memory"]
    assert memory["peak_working_set_bytes"] < 20 << 20
    assert memory["peak_charged_bytes"] > 60 << 20, "or the test had no cache to look at"
    assert memory["oom_kills"] == 0


def test_shared_memory_is_what_a_job_needs(daemon, lab, work):
    file, go = f"/dev/shm/scr-usage-{os.getpid()}", work / "go"
    job = lab.sbatch("-n1", "--mem=200",
                     script=f"#!/bin/bash\nhead -c {50 << 20} /dev/zero > {file}\n{until(go)}"
                            f"rm {file}\n")
    wait_memory(work, job, 50 << 20)
    go.touch()
    lab.wait_ended(job)
    memory = wait_node(work, job)["usage"]["memory"]
    assert memory["peak_working_set_bytes"] == pytest.approx(50 << 20, rel=0.05)


def test_two_nodes_are_measured_each_and_told_as_one_job(daemon, lab, work):
    job = BusyJob(lab, work, "-N2", "--mem=100", cpu=1.5, hold=True, tasks=2)
    burnt = {used["node"]: used for used in job.wait_burnt()}
    assert set(burnt) == set(lab.nodes)
    for used in burnt.values():
        wait_cpu(work, job.id, used)
    job.release()
    job.wait_ended()
    nodes = {node: wait_node(work, job.id, node) for node in lab.nodes}
    for name, node in nodes.items():
        assert node["usage"]["cpu"]["time_seconds"] >= burnt[name]["cpu"] - ROUNDED
    whole = wait_job(work, job.id)
    assert whole["usage"]["quality"]["nodes_reporting"] == 2
    assert {n["host"]["name"] for n in whole["usage"]["nodes"]} == set(lab.nodes)
    job.check_cpu(whole["usage"]["cpu"], whole["complete"])
    total = sum(node["usage"]["cpu"]["time_seconds"] for node in nodes.values())
    assert whole["usage"]["cpu"]["time_seconds"] == pytest.approx(total, abs=ROUNDED)


def test_each_of_many_short_jobs_is_told_once(daemon, lab, work):
    jobs = {lab.sbatch("-n1", "--mem=20") for _ in range(20)}
    for job in jobs:
        lab.wait_ended(job)

    # Where the daemon got no CPU at the wrong moment, a job's directory came and went with that of
    # its user before either could be watched: at least one is counted then for each such directory.
    def told():
        return {job for job, _ in events(work, "usage.node")}

    def plugin():
        return daemon.source("usage")["plugin_status"]
    sweeps = plugin()["sweeps"]
    wait_for(lambda: told() == jobs or (plugin()["sweeps"] > sweeps + 1 and plugin()["missed"] > 0),
             lambda: f"{sorted(jobs - told())} of {len(jobs)} are told, or counted: {plugin()}")
    nodes = events(work, "usage.node")
    assert {job for job, _ in nodes} <= jobs
    status = plugin()
    read = [e for e in nodes.values() if e["usage"]["quality"]["samples"] > 0]
    print(f"{len(read)} of {len(jobs)} jobs of some milliseconds were read; {status}")
    # How many depends on the machine; without a reading nothing is made up.
    for event in nodes.values():
        if event["usage"]["quality"]["samples"] == 0:
            assert "cpu" not in event["usage"] and event["complete"] is False


def test_a_job_that_comes_and_goes_while_the_daemon_gets_no_cpu_is_counted(daemon, lab, work):
    seen = lab.sbatch("-n1", "--mem=20")
    lab.wait_ended(seen)
    wait_node(work, seen)

    def no_user_directory():
        return not [d for node in lab.nodes for d in CGROUPS.glob(f"*/slurm_{node}/uid_*")]
    wait_for(no_user_directory, "Slurm has removed the directories of users")
    daemon.process.send_signal(signal.SIGSTOP)
    try:
        lab.wait_ended(lab.sbatch("-n1", "--mem=20"))
        wait_for(no_user_directory, "Slurm has removed the directories of users")
    finally:
        daemon.process.send_signal(signal.SIGCONT)
    wait_for(lambda: daemon.source("usage")["plugin_status"]["missed"] == 1,
             "it is counted as missed")
    assert "USAGE_JOBS_MISSED" in daemon.log_text()
    after = lab.sbatch("-n1", "--mem=20")
    lab.wait_ended(after)
    wait_node(work, after)
    assert {job for job, _ in events(work, "usage.node")} == {seen, after}


@pytest.mark.parametrize("how", ["terminate", "kill"])
def test_a_restart_of_the_daemon_does_not_cut_a_job_in_two(daemon, lab, work, how):
    job = BusyJob(lab, work, "--mem=200", cpu=3, mib=60, hold=True)
    burnt = job.wait_burnt()[0]
    seen = time.monotonic()
    wait_cpu(work, job.id, burnt)
    wait_for(lambda: "life " in (work / "state" / "usage.state").read_text(),
             "the job is in the state file")
    getattr(daemon, how)()
    before = len(samples(work, job.id))
    restarted = time.monotonic()
    daemon.start().prefer()
    wait_for(lambda: len(samples(work, job.id)) > before, "the job is sampled again")
    job.release()
    job.wait_ended()
    node = wait_node(work, job.id)
    usage = node["usage"]
    assert [i for i, _ in events(work, "usage.node")] == [job.id]
    job.check_cpu(usage["cpu"], node["complete"])
    # All of this was read before the restart, so that it counts however the end was read.
    assert usage["cpu"]["time_seconds"] >= burnt["cpu"] - ROUNDED
    assert usage["memory"]["peak_working_set_bytes"] == pytest.approx(burnt["anon"], rel=0.05)
    # It had been there for its CPU time when that was seen to be used.
    assert usage["elapsed_seconds"] >= 3 + restarted - seen
    # One life: the readings are counted through.
    told = samples(work, job.id)
    assert [s["seq"] for s in told] == sorted({s["seq"] for s in told})
    assert told[before]["cpu"]["time_seconds"] >= told[before - 1]["cpu"]["time_seconds"]
    assert usage["quality"]["samples"] >= len(told)


def test_an_ordinary_user_may_measure_all_jobs(make_daemon, lab, work, ordinary_user):
    if not harness.IS_ROOT:
        pytest.skip("needs root, to become another user")
    daemon = make_daemon(sources=usage_source(work, resolve="none", nodes=lab.nodes, samples=True),
                         user=ordinary_user.pw_name,
                         sinks={"archive": {"kinds": ["usage.*"]}})
    (work / "archive").mkdir(exist_ok=True)
    os.chown(work / "archive", ordinary_user.pw_uid, ordinary_user.pw_gid)
    daemon.start().prefer()
    job, node = measure(lab, work, lambda job: wait_node(work, job), "--mem=100", cpu=2, mib=30,
                        held=held_memory(work, 30))
    usage = node["usage"]
    assert usage["memory"]["peak_working_set_bytes"] == pytest.approx(job.used()[0]["anon"],
                                                                      rel=0.08)
    assert "read_bytes" not in usage.get("io", {}), \
        "it may not read the processes' own counts, and says nothing instead"


# Burns CPU seconds, says how much that was, and waits: as Python, as a shell, and as a program.
PYTHON_BURNS = """import os, sys, threading, time
for _ in range(3): threading.Thread(target=threading.Event().wait, daemon=True).start()
out, seconds = sys.argv[1], float(sys.argv[2])
def say(name):
    with open(f"{out}.{name}.new", "w") as file:
        file.write(str(time.process_time()))
    os.rename(f"{out}.{name}.new", f"{out}.{name}")
while time.process_time() < seconds: pass
say("burnt")
while not os.path.exists("{go}"): time.sleep(0.2)
say("end")
"""
PERL_BURNS = """my $out = shift; my $seconds = shift;
sub say_used { my ($u, $s) = times; open F, '>', "$out.$_[0].new"; print F $u + $s; close F;
               rename "$out.$_[0].new", "$out.$_[0]"; }
while (1) { my ($u, $s) = times; last if $u + $s >= $seconds; for (1 .. 10000) { } }
say_used('burnt');
select undef, undef, undef, 0.2 until -e '{go}';
say_used('end');
"""
# Of its own times, which `times` has on its first line, not those of its children.
SHELL_BURNS = """out=$1 loops=$2 i=0
say() { times > $out.$1.new; mv $out.$1.new $out.$1; }
while [ $i -lt $loops ]; do i=$((i+1)); done
say burnt
until [ -e {go} ]; do read -r -t 0.2 <> {pipe}; done
say end
"""


def said(file):
    """Seconds, as the programs above write them."""
    first = file.read_text().splitlines()[0].split()
    if "m" not in first[0]:
        return float(first[0])
    return sum(60 * float(minutes) + float(seconds.rstrip("s"))
               for minutes, seconds in (word.split("m") for word in first))


def test_each_program_of_a_job_has_the_cpu_time_that_it_used(make_daemon, lab, work,
                                                             ordinary_user):
    if not harness.IS_ROOT:
        pytest.skip("needs root, to become another user: no right is needed to see programs")
    state = work / "state" / "usage.state"
    state.parent.mkdir()
    (work / "archive").mkdir(exist_ok=True)
    for directory in (state.parent, work / "archive"):
        os.chown(directory, ordinary_user.pw_uid, ordinary_user.pw_gid)
    daemon = make_daemon(sources=usage_source(work, resolve="none", nodes=lab.nodes,
                                              interval_seconds=2),
                         user=ordinary_user.pw_name, sinks={"archive": {"kinds": ["usage.*"]}})
    daemon.start().prefer()
    go, pipe = work / "go", work / "pipe"
    os.mkfifo(pipe)
    for name, text in (("train.py", PYTHON_BURNS), ("burn.pl", PERL_BURNS),
                       ("count.sh", SHELL_BURNS)):
        (work / name).write_text(text.replace("{go}", str(go)).replace("{pipe}", str(pipe)))
    solver = work / "solver"
    shutil.copy("/usr/bin/perl", solver)
    solver.chmod(0o755)
    job = lab.sbatch("-N1", "-n1", "--mem=300", script=f"""#!/bin/bash
/usr/bin/python3 {work}/train.py {work}/python 4 --token=hidden &
bash {work}/count.sh {work}/shell 200000 hidden &
{solver} {work}/burn.pl {work}/solver-used 2 hidden &
srun -n2 --overlap --overcommit bash -c 'exec {solver} {work}/burn.pl {work}/task-$SLURM_PROCID 1' &
wait
""")
    names = ("python", "shell", "solver-used", "task-0", "task-1")
    wait_for(lambda: all((work / f"{name}.burnt").exists() for name in names),
             "all programs have used their CPU time", 300)
    burnt = {name: said(work / f"{name}.burnt") for name in names}
    least = {("python3", "train.py"): burnt["python"], ("bash", "count.sh"): burnt["shell"],
             ("solver", ""): burnt["solver-used"] + burnt["task-0"] + burnt["task-1"]}
    ticks = {("python3", "train.py"): 0.03, ("bash", "count.sh"): 0.03, ("solver", ""): 0.09}

    def used(programs):
        return {(p["name"], p.get("script", "")): p["cpu_seconds"] for p in programs}

    def all_read():
        lives = [json.loads(line[5:]) for line in state.read_text().splitlines()
                 if line.startswith("life ")]
        seen = [used(life["programs"].get("seen", [])) for life in lives
                if life["job"]["id"] == job and "programs" in life]
        return seen and all(seen[0].get(key, 0) >= least[key] - ticks[key] for key in least)
    wait_for(all_read, lambda: f"a reading has {least}: {state.read_text()}")
    # What was read outlives the daemon, and counts once.
    daemon.kill()
    daemon.start().prefer()
    wait_for(lambda: daemon.source("usage")["plugin_status"]["sweeps"] > 0,
             "it has read them again")
    go.touch()
    lab.wait_ended(job)
    node = wait_node(work, job)
    usage = node["usage"]
    end = {name: said(work / f"{name}.end") for name in names}
    most = {("python3", "train.py"): end["python"], ("bash", "count.sh"): end["shell"],
            ("solver", ""): end["solver-used"] + end["task-0"] + end["task-1"]}
    got = used(usage["programs"])
    print(got, "of", least, "to", most, usage["cpu"], usage.get("programs_unseen"))
    for key in least:
        assert least[key] - ticks[key] <= got[key] <= most[key] + ticks[key], key
    programs = {(p["name"], p.get("script", "")): p for p in usage["programs"]}
    assert programs["solver", ""]["ranks"] == 2 and programs["solver", ""]["processes"] == 3
    assert "ranks" not in programs["python3", "train.py"]
    assert ("bash", "slurm_script") in programs
    train = programs["python3", "train.py"]
    assert (train["threads"], train["busy_threads"]) == (4, 1)
    assert programs["solver", ""]["busy_threads"] == 3
    assert sum(got.values()) + usage["programs_unseen"]["cpu_seconds"] == pytest.approx(
        usage["cpu"]["time_seconds"], abs=ROUNDED)
    assert programs["python3", "train.py"]["cpu_ratio"] == pytest.approx(
        got["python3", "train.py"] / usage["cpu"]["time_seconds"], abs=1e-3)
    assert "hidden" not in json.dumps(node)
    whole = wait_job(work, job)["usage"]
    assert [p["name"] for p in whole["programs"]] == [p["name"] for p in usage["programs"]]
    report = daemon.command("report", job).stdout
    print(json.dumps({k: whole[k] for k in whole if k.startswith("programs")}), report, sep="\n")
    assert re.search(r"^solver +[0-9.]+ s +[0-9]+ % +3 +3 +3 +2$", report, re.M), report


def test_each_step_of_a_job_has_what_it_used(make_daemon, lab, work):
    state = work / "state" / "usage.state"
    daemon = make_daemon(sources=usage_source(work, slurm_conf=str(lab.conf), nodes=lab.nodes,
                                              interval_seconds=2),
                         sinks={"archive": {"kinds": ["usage.*"]}})
    daemon.start().prefer()
    (work / "burn.py").write_text("""import os, sys, time
out, seconds, mib, go = sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
held = bytearray(os.urandom(1)) * (mib << 20)
while time.process_time() < seconds: pass
while go and not os.path.exists(go): time.sleep(0.1)
with open(out, "w") as file: file.write(str(time.process_time()))
""")

    def held_memory(job):
        lives = [json.loads(line[5:]) for line in state.read_text().splitlines()
                 if line.startswith("life ")]
        return any(step["name"] == "0" and step.get("peak_working_set", 0) > 60 << 20
                   for life in lives if life["job"]["id"] == job
                   for step in life.get("steps", {}).get("seen", []))

    def measured(number):
        go = work / f"go-{number}"
        outs = [work / f"{number}-{name}" for name in ("first", "0", "1")]
        job = lab.sbatch("-N1", "-n1", "--mem=400", script=f"""#!/bin/bash
srun python3 {work}/burn.py {outs[0]} 1.5 60 {go}
srun -n2 --overcommit bash -c 'exec python3 {work}/burn.py {work}/{number}-$SLURM_PROCID 1 0 ""'
sleep 1
""")
        wait_for(lambda: state.exists() and held_memory(job), "a reading has the memory of step 0")
        go.touch()
        assert lab.wait_ended(job) == "COMPLETED"
        return job, wait_node(work, job)["usage"], [float(out.read_text()) for out in outs]
    # As in usage_lab.measure(): the end of a step is read in the moment before it vanishes.
    for number in range(5):
        job, usage, used = measured(number)
        steps = {step["name"]: step for step in usage["steps"]}
        print(json.dumps(usage["steps"]), used, usage["cpu"])
        if all(step["last_read"] == "removal" for step in steps.values()):
            break
    assert list(steps) == ["batch", "0", "1"]
    assert {step["last_read"] for step in steps.values()} == {"removal"}
    times = {name: step["cpu"]["time_seconds"] for name, step in steps.items()}
    assert times["0"] >= used[0] - ROUNDED and times["1"] >= used[1] + used[2] - ROUNDED
    # What they have together is what the job has, but for the extern step's next to nothing.
    assert sum(times.values()) == pytest.approx(usage["cpu"]["time_seconds"], abs=0.02)
    assert "steps_other" not in usage
    memory = steps["0"]["memory"]
    assert 60 << 20 < memory["peak_working_set_bytes"] <= memory["peak_charged_bytes"]
    assert memory["oom_kills"] == 0
    for step in steps.values():
        assert step["cpu"]["allocated"] == usage["cpu"]["allocated"]
        assert step["cpu"]["efficiency_ratio"] == pytest.approx(
            step["cpu"]["time_seconds"] / step["elapsed_seconds"] / step["cpu"]["allocated"],
            abs=1e-3)
    begins = [step["started_at"] for step in usage["steps"]]
    assert begins == sorted(begins) and steps["0"]["ended_at"] <= steps["1"]["started_at"]
    whole = wait_job(work, job)["usage"]
    assert [step["name"] for step in whole["steps"]] == ["batch", "0", "1"]
    assert "steps" not in whole["nodes"][0]
    report = daemon.command("report", job).stdout
    print(report)
    assert re.search(r"^STEP +STARTED .*\nbatch +20.*\n0 +20.*\n1 +20", report, re.M), report


def test_one_run_measures_what_is_there_and_goes_on_at_the_next(make_daemon, lab, work):
    daemon = make_daemon(sources=usage_source(work, slurm_conf=str(lab.conf), nodes=lab.nodes,
                                              samples=True),
                         sinks={"archive": {"kinds": ["usage.sample", "usage.node"]}})
    job = BusyJob(lab, work, "--mem=100", cpu=1, hold=True)
    burnt = job.wait_burnt()[0]
    daemon.command("run", "--once")
    assert samples(work, job.id)
    job.release()
    job.wait_ended()
    daemon.command("run", "--once")
    node = wait_node(work, job.id)
    assert node["usage"]["quality"]["last_read"] == "sample" and node["complete"] is False
    assert node["usage"]["cpu"]["time_seconds"] >= burnt["cpu"] - ROUNDED
    job.check_cpu(node["usage"]["cpu"], complete=False)


# ---- v2, by hand ---------------------------------------------------------------------------------

@pytest.fixture
def v2_root(work):
    """A root for the source with a real v2 hierarchy in it, that holds nothing else."""
    if not harness.IS_ROOT:
        pytest.skip("NO REAL V2 CONTROL GROUPS: needs root")
    mounted = CGROUPS / "unified" if (CGROUPS / "unified"
                                      / "cgroup.controllers").exists() else CGROUPS
    if not (mounted / "cgroup.controllers").exists():
        pytest.skip("NO REAL V2 CONTROL GROUPS: none is mounted")
    top = mounted / f"scr-usage-{os.getpid()}"
    try:
        top.mkdir()
    except OSError as e:
        pytest.skip(f"NO REAL V2 CONTROL GROUPS: {e}")
    root = work / "cgroup"
    root.mkdir()
    (root / "unified").symlink_to(top)
    yield root
    for directory in sorted((p for p in top.rglob("*") if p.is_dir()), key=lambda p: -len(p.parts)):
        with contextlib.suppress(OSError):
            for pid in (directory / "cgroup.procs").read_text().split():
                os.kill(int(pid), signal.SIGKILL)
        wait_for(lambda d=directory: not (d / "cgroup.procs").read_text(), f"{directory} is empty")
        directory.rmdir()
    top.rmdir()


def test_a_job_in_real_v2_groups_is_measured_until_its_last_process_ends(make_daemon, v2_root,
                                                                         work):
    daemon = make_daemon(sources=usage_source(work, root=str(v2_root), resolve="none",
                                              interval_seconds=1),
                         sinks={"archive": {"kinds": ["usage.node"]}}).start()
    job = v2_root / "unified" / "system.slice" / "n7_slurmstepd.scope" / "job_31"
    task, of_srun = (job / step / "user" / "task_0" for step in ("step_batch", "step_0"))

    def burn(seconds, group):
        group.mkdir(parents=True)
        program = (f"import time\nwhile time.process_time() < {seconds}: pass\n"
                   "print(time.process_time())")

        def enter():
            (group / "cgroup.procs").write_text(str(os.getpid()))
        return float(subprocess.run(["python3", "-c", program], preexec_fn=enter, check=True,
                                    capture_output=True, text=True).stdout)
    burnt = burn(2, task)
    burnt_by_step = burn(1, of_srun)
    wait_for(lambda: re.search(r'"name":"0"[^}]*"last_read":"removal"',
                               (work / "state" / "usage.state").read_text()),
             "the step was read when its last process had ended")
    for directory in (of_srun, of_srun.parent, of_srun.parent.parent):
        directory.rmdir()
    wait_for(lambda: "populated 0" in (job / "cgroup.events").read_text(),
             "the kernel has seen the end")
    # slurmstepd takes its time too; a busy machine may give the daemon none for a while.
    sweeps = daemon.source("usage")["plugin_status"]["sweeps"]
    wait_for(lambda: daemon.source("usage")["plugin_status"]["sweeps"] > sweeps + 1,
             "the daemon has had its turn")
    charged = int(re.search(r"usage_usec (\d+)", (job / "cpu.stat").read_text()).group(1)) / 1e6
    for directory in (task, task.parent, task.parent.parent, job):
        directory.rmdir()
    node = wait_node(work, "31", "n7")
    usage = node["usage"]
    assert usage["cpu"]["time_seconds"] == pytest.approx(charged, abs=ROUNDED)
    assert charged >= burnt + burnt_by_step
    batch, step = usage["steps"]
    assert (batch["name"], step["name"], step["last_read"]) == ("batch", "0", "removal")
    assert burnt_by_step - ROUNDED <= step["cpu"]["time_seconds"] <= charged - burnt + ROUNDED
    assert usage["source"]["cpu"] == "cgroup2" and node["capture"] == "cgroup2"
    assert node["complete"] is True and usage["quality"]["last_read"] in ("populated", "removal")
    assert node["user"] == {"name": "root", "id": "0",
                            "verified": True}, "the owner of the task's process"


def test_a_set_uid_program_does_not_make_a_job_its_owners(make_daemon, v2_root, work,
                                                          ordinary_user):
    program = work / "sleep"
    shutil.copy("/bin/sleep", program)
    os.chown(program, 0, 0)
    program.chmod(0o4755)

    def become():
        os.setgroups([])
        os.setresgid(*[ordinary_user.pw_gid] * 3)
        os.setresuid(*[ordinary_user.pw_uid] * 3)
    process = subprocess.Popen([program, "600"], preexec_fn=become)
    own = subprocess.Popen(["sleep", "600"])
    try:
        wait_for(lambda: os.readlink(f"/proc/{process.pid}/exe") == str(program),
                 "the program runs")
        if "\t0\t" not in pathlib.Path(f"/proc/{process.pid}/status").read_text().split(
            "Uid:")[1].splitlines()[0]:
            pytest.skip(f"{work} is mounted nosuid")
        daemon = make_daemon(sources=usage_source(work, root=str(v2_root), resolve="none",
                                                  interval_seconds=1),
                             sinks={"archive": {"kinds": ["usage.node"]}}).start()
        scope = v2_root / "unified" / "system.slice" / "n7_slurmstepd.scope"
        tasks = {job: scope / f"job_{job}" / "step_batch" / "user" / "task_0"
                 for job in ("41", "42")}
        for task in tasks.values():
            task.mkdir(parents=True)
        (tasks["41"] / "cgroup.procs").write_text(f"{process.pid}\n")
        sweeps = daemon.source("usage")["plugin_status"]["sweeps"]
        wait_for(lambda: daemon.source("usage")["plugin_status"]["sweeps"] > sweeps + 1,
                 "the process was looked at")
        # The other one has processes of two users.
        (tasks["42"] / "cgroup.procs").write_text(f"{process.pid}\n")
        (tasks["42"] / "cgroup.procs").write_text(f"{own.pid}\n")
        sweeps = daemon.source("usage")["plugin_status"]["sweeps"]
        wait_for(lambda: daemon.source("usage")["plugin_status"]["sweeps"] > sweeps + 1,
                 "both were looked at")
    finally:
        for one in (process, own):
            one.kill()
            one.wait()
    for job, task in tasks.items():
        for directory in (task, task.parent, task.parent.parent, scope / f"job_{job}"):
            wait_for(lambda d=directory: not (d / "cgroup.procs").read_text(),
                     f"{directory} is empty")
            directory.rmdir()
    user = wait_node(work, "41", "n7")["user"]
    assert user["id"] == str(ordinary_user.pw_uid) and user["verified"] is True, user
    user = wait_node(work, "42", "n7")["user"]
    assert user["verified"] is False and "several users" in user["unverified_reason"], user


# ---- the files of programs -----------------------------------------------------------------------

def as_unit(user, capability=None):
    """What starts the daemon as a unit does that has this user and one ambient capability."""
    held = f"+{capability}" if capability else "-all"
    return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups",
            "--no-new-privs", f"--inh-caps={held}", f"--ambient-caps={held}",
            *([f"--bounding-set=-all,{held}"] if capability else [])]


@pytest.fixture
def solver_in_a_job(work, v2_root):
    """A program of root's in a job's groups; removes them at the end of the job."""
    program = work / "solver"
    shutil.copy("/bin/sleep", program)
    process = subprocess.Popen([program, "600"])
    task = (v2_root / "unified" / "system.slice" / "n7_slurmstepd.scope" / "job_51"
            / "step_batch" / "user" / "task_0")
    task.mkdir(parents=True)

    def end():
        process.kill()
        process.wait()
        for directory in (task, task.parent, task.parent.parent, task.parent.parent.parent):
            wait_for(lambda d=directory: not (d / "cgroup.procs").read_text(),
                     f"{directory} is empty")
            directory.rmdir()
    try:
        wait_for(lambda: os.readlink(f"/proc/{process.pid}/exe") == str(program),
                 "the program runs")
        (task / "cgroup.procs").write_text(f"{process.pid}\n")
        yield program, end
    finally:
        process.kill()
        process.wait()


def executables_daemon(make_daemon, work, v2_root, user):
    for directory in (work / "archive", work / "state"):
        directory.mkdir()
        os.chown(directory, user.pw_uid, user.pw_gid)
    return make_daemon(sources=usage_source(work, root=str(v2_root), resolve="none",
                                            interval_seconds=1, executables=True),
                       sinks={"archive": {"kinds": ["usage.node"]}})


def test_with_the_right_the_files_of_other_users_programs_are_reported(make_daemon, v2_root, work,
                                                                       ordinary_user,
                                                                       solver_in_a_job):
    program, end_job = solver_in_a_job
    daemon = executables_daemon(make_daemon, work, v2_root, ordinary_user)
    daemon.start(by=as_unit(ordinary_user, "sys_ptrace"))
    privileges = daemon.status()["privileges"]
    reader = privileges["executable_reader"]
    assert reader["capabilities"] == ["CAP_SYS_PTRACE"] and privileges["capabilities"] == []
    status = pathlib.Path(f"/proc/{daemon.process.pid}/status").read_text()
    assert re.search(r"^CapEff:\s*0+$", status, re.M), status
    state = work / "state" / "usage.state"
    wait_for(lambda: state.exists() and f'"path":"{program}"' in state.read_text(),
             lambda: f"the file of the program is found: {daemon.log_tail()}")
    # Without its reader the daemon continues, and keeps what it has.
    os.kill(reader["pid"], signal.SIGKILL)
    wait_for(lambda: "EXECUTABLE_READER_DIED" in daemon.log_text(), "its end is in the log")
    assert daemon.status()["privileges"]["executable_reader"] is None
    end_job()
    programs = wait_node(work, "51", "n7")["usage"]["programs"]
    found = {one["name"]: one for one in programs}["solver"]
    assert found["path"] == str(program), programs
    said = subprocess.run(["readelf", "-n", program], capture_output=True, text=True)
    assert found["build_id"] == re.search(r"Build ID: ([0-9a-f]+)", said.stdout).group(1)
    assert daemon.terminate() == 0


def test_the_image_of_a_container_is_named(make_daemon, lab, work):
    if not shutil.which("ch-run"):
        pytest.skip("ch-run is not installed: apt-get install charliecloud-runtime")
    image, go = work / "tiny", work / "go"
    for name in ("dev", "etc", "home", "proc", "root", "run", "sys", "tmp", "usr", "var"):
        (image / name).mkdir(parents=True)
    for name in ("passwd", "group", "hosts", "resolv.conf"):
        (image / "etc" / name).touch()
    for name in ("bin", "lib", "lib64"):
        (image / name).symlink_to(f"usr/{name}")
    daemon = make_daemon(sources=usage_source(work, slurm_conf=str(lab.conf), nodes=lab.nodes),
                         sinks={"archive": {"kinds": ["usage.job"]}}).start()
    # /tmp and /dev/shm are those of the machine.
    job = lab.sbatch("--mem=100", script="#!/bin/bash\nexport USER=root\n"
                     f"ch-run -b /usr:/usr {image} -- /usr/bin/sh -c '{until(go).strip()}'\n")
    state = work / "state" / "usage.state"
    wait_for(lambda: '"container":"tiny"' in state.read_text(), "the container was seen")
    go.touch()
    assert lab.wait_ended(job) == "COMPLETED"
    programs = wait_job(work, job)["usage"]["programs"]
    containers = {(one["name"], one.get("container")) for one in programs}
    assert ("sh", "tiny") in containers and ("bash", None) in containers, programs
    report = daemon.command("report", job).stdout
    assert re.search(r"^sh in tiny ", report, re.M), report


def test_a_file_server_that_hangs_holds_up_no_reading(make_daemon, v2_root, work, ordinary_user,
                                                      solver_in_a_job):
    if b"executables.hang" not in harness.SCRIPTORIUM.read_bytes():
        pytest.skip("this build has no fault points (preset dev has)")
    _, end_job = solver_in_a_job
    reached = work / "reached"
    daemon = executables_daemon(make_daemon, work, v2_root, ordinary_user)
    reached.touch()
    os.chown(reached, ordinary_user.pw_uid, ordinary_user.pw_gid)
    daemon.start(by=as_unit(ordinary_user, "sys_ptrace"),
                 environment={"SCRIPTORIUM_FAULT": "executables.hang:error=EIO,"
                                                   "executables.kill:error=EIO",
                              "SCRIPTORIUM_FAULT_LOG": str(reached)})
    reader = daemon.status()["privileges"]["executable_reader"]["pid"]
    children = pathlib.Path(f"/proc/{reader}/task/{reader}/children")
    wait_for(lambda: children.read_text().split(), "a child of the reader hangs")
    sweeps = daemon.source("usage")["plugin_status"]["sweeps"]
    wait_for(lambda: daemon.source("usage")["plugin_status"]["sweeps"] > sweeps + 2,
             "the source reads as ever")
    assert children.read_text().split(), "it hangs still"
    end_job()
    programs = wait_node(work, "51", "n7")["usage"]["programs"]
    assert "solver" in [one["name"] for one in programs], programs
    assert not any("path" in one for one in programs), programs
    assert "executables.hang" in reached.read_text()
    assert daemon.terminate() == 0
    wait_for(lambda: not pathlib.Path(f"/proc/{reader}").exists(), "the reader ends as well")


def test_without_the_right_no_file_is_reported_and_the_drop_in_is_named(make_daemon, v2_root, work,
                                                                        ordinary_user,
                                                                        solver_in_a_job):
    _, end_job = solver_in_a_job
    daemon = executables_daemon(make_daemon, work, v2_root, ordinary_user)
    checked = subprocess.run([*as_unit(ordinary_user), harness.SCRIPTORIUM, "check", "--config",
                              daemon.config], capture_output=True, text=True, timeout=120)
    assert checked.returncode == 0, checked
    assert re.search(r"^warning .*executables = true has no effect.*usage-programs\.conf",
                     checked.stdout, re.M), checked.stdout
    daemon.start(by=as_unit(ordinary_user))
    assert daemon.status()["privileges"]["executable_reader"] is None
    wait_for(lambda: "USAGE_NO_EXECUTABLES" in daemon.log_text(), "the log says it")
    state = work / "state" / "usage.state"
    wait_for(lambda: state.exists() and '"name":"solver"' in state.read_text(),
             "the program was read")
    end_job()
    programs = wait_node(work, "51", "n7")["usage"]["programs"]
    assert "solver" in [one["name"] for one in programs], programs
    assert not any(one.keys() & {"path", "build_id"} for one in programs), programs
    assert daemon.terminate() == 0
