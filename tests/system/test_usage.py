"""The usage source against real control groups: jobs of a real Slurm under cgroup v1
(tests/support/slurm-cgroup-lab), and v2 groups made by hand. What a job really used is what the job
itself says at its end."""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile

import pytest

import harness
from harness import Slurm, wait_for

LAB = harness.ROOT / "tests" / "support" / "slurm-cgroup-lab"
CGROUPS = pathlib.Path("/sys/fs/cgroup")

# Uses `cpu` seconds of one CPU, holds `mib` of memory for `hold` seconds, and says what it really
# was.
BURN = """#!/bin/bash
exec python3 - <<'END'
import json, os, time
block = bytearray({mib} << 20)
for i in range(0, len(block), 4096): block[i] = 1
until = time.monotonic() + {hold}
while time.process_time() < {cpu}: pass
while time.monotonic() < until: time.sleep(0.05)
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
anon = (int(status["RssAnon"].split()[0]) + int(status["RssShmem"].split()[0])) * 1024
with open("{out}.tmp", "w") as out: json.dump({{"cpu": time.process_time(), "anon": anon}}, out)
os.rename("{out}.tmp", "{out}")
END
"""


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

    def wait_ended(self, job, seconds=180):
        def ended():
            state = self.run("scontrol", "-o", "show", "job", job).stdout
            return "JobState=COMPLETED" in state or "JobState=FAILED" in state \
        or "JobState=OUT_OF_MEMORY" in state \
                or "JobState=CANCELLED" in state or "JobState=NODE_FAIL" in state
        wait_for(ended, f"job {job} ends", seconds, step=0.2)


@pytest.fixture(scope="module")
def lab():
    directory = pathlib.Path(tempfile.mkdtemp(prefix="scr-cgslurm-", dir="/tmp"))
    directory.chmod(0o755)
    slurm = CgroupSlurm(directory / "lab")
    try:
        result = slurm.up("--nodes", "2")
        if result.returncode == 3:
            pytest.skip(f"NO REAL SLURM UNDER CGROUPS: {result.stderr.strip()}")
        assert result.returncode == 0, result.stderr
        yield slurm
    finally:
        slurm.down()
        shutil.rmtree(directory, ignore_errors=True)


def usage_source(work, **options):
    # Other labs may run on this machine, with the same job ids.
    return {"slurm": None, "usage": {"interval_seconds": 5,
                                     "state_file": str(work / "state" / "usage.state"), **options}}


def events(work, kind):
    """All events of a kind in the archive, by job id and host."""
    found = {}
    for file in (work / "archive").rglob("*.json"):
        if file.name.startswith("."):
            continue
        event = json.loads(file.read_bytes())
        if event["kind"] == kind:
            found[(event["job"]["id"], event["host"]["name"])] = event
    return found


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
    return make_daemon(sources=usage_source(work, slurm_conf=str(lab.conf), nodes=lab.nodes,
                                            samples=True),
                       sinks={"archive": {"kinds": kinds}}).start()


def burn(lab, work, options=(), **what):
    out = work / f"truth-{len(list(work.glob('truth-*')))}"
    what = {"cpu": 0, "mib": 1, "hold": 0, **what}
    job = lab.sbatch("-n1", *options, script=BURN.format(out=out, **what))
    return job, out


def truth_of(lab, job, out):
    lab.wait_ended(job)
    return json.loads(out.read_text())


def burn_and_measure(lab, work, options=(), **what):
    """A job, what it really used, and its usage.node. Its control groups stand for some 20 ms after
    its end: where the machine gives the daemon no CPU for that long, the event says that the end is
    missing, and the next job is looked at."""
    for _ in range(5):
        job, out = burn(lab, work, options, **what)
        truth = truth_of(lab, job, out)
        node = wait_node(work, job)
        if node["complete"]:
            return job, truth, node
        assert node["usage"]["quality"]["last_read"] == "sample"
        assert node["usage"]["cpu"]["time_seconds"] <= truth["cpu"] * 1.05
    raise AssertionError("the end of five jobs, one after the other, was not read in time")


def test_a_job_that_keeps_one_of_two_cpus_busy_is_measured_within_five_percent(daemon, lab, work):
    job, truth, node = burn_and_measure(lab, work, ["-c2", "--mem=300"], cpu=4, mib=100, hold=8)
    usage = node["usage"]
    # Beside what the job's own process says, bash and slurmstepd's start take some milliseconds.
    assert usage["cpu"]["time_seconds"] == pytest.approx(truth["cpu"], rel=0.05)
    assert usage["cpu"]["time_seconds"] >= truth["cpu"]
    assert usage["memory"]["peak_working_set_bytes"] == pytest.approx(truth["anon"], rel=0.05)
    assert usage["cpu"]["allocated"] == 2
    assert usage["cpu"]["efficiency_ratio"] == pytest.approx(truth["cpu"]
                                                             / (2 * usage["elapsed_seconds"]),
                                                             rel=0.06)
    assert usage["memory"]["limit_bytes"] == 300 << 20
    assert usage["memory"]["oom_kills"] == 0
    assert usage["quality"]["last_read"] == "removal"
    assert node["user"]["verified"] is True and node["user"]["id"] == "0"
    print(f"cpu {usage['cpu']['time_seconds']:.3f} of {truth['cpu']:.3f} s, "
          f"memory {usage['memory']['peak_working_set_bytes']} of {truth['anon']}")
    whole = wait_job(work, job)
    assert whole["usage"]["cpu"]["time_seconds"] == pytest.approx(usage["cpu"]["time_seconds"],
                                                                  abs=0.01)
    samples = events(work, "usage.sample")
    assert any(i == job for i, _ in samples), "samples were asked for"


def test_a_job_that_only_sleeps_used_next_to_nothing(daemon, lab, work):
    job = lab.sbatch("-n1", "--mem=50", script="#!/bin/bash\nsleep 3\n")
    lab.wait_ended(job)
    usage = wait_node(work, job)["usage"]
    assert usage["cpu"]["time_seconds"] < 0.2
    assert usage["cpu"]["utilization"]["max_ratio"] < 0.2
    assert usage["memory"]["peak_working_set_bytes"] < 10 << 20


def test_a_job_of_two_seconds_is_measured_to_its_end(daemon, lab, work):
    _, truth, node = burn_and_measure(lab, work, ["--mem=100"], cpu=2)
    assert node["usage"]["cpu"]["time_seconds"] == pytest.approx(truth["cpu"], rel=0.05)


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


def test_page_cache_is_not_what_a_job_needs(daemon, lab, work):
    # On the disk: what lies in a file system in memory is shared memory, not cache.
    with tempfile.NamedTemporaryFile(prefix="scr-usage-", dir="/var/tmp") as big:
        job = lab.sbatch("-n1", "--mem=100",
                         script=f"#!/bin/bash\ndd if=/dev/zero of={big.name} bs=1M count=200 "
                                f"2>/dev/null\nsleep 3\n")
        lab.wait_ended(job)
        memory = wait_node(work, job)["usage"]["memory"]
    assert memory["peak_working_set_bytes"] < 20 << 20
    assert memory["peak_charged_bytes"] > 60 << 20, "or the test had no cache to look at"
    assert memory["oom_kills"] == 0


def test_shared_memory_is_what_a_job_needs(daemon, lab, work):
    file = f"/dev/shm/scr-usage-{os.getpid()}"
    job = lab.sbatch("-n1", "--mem=200",
                     script=f"#!/bin/bash\nhead -c {50 << 20} /dev/zero > {file}\nsleep "
                            f"9\nrm {file}\n")
    lab.wait_ended(job)
    memory = wait_node(work, job)["usage"]["memory"]
    assert memory["peak_working_set_bytes"] == pytest.approx(50 << 20, rel=0.05)


def test_two_nodes_are_measured_each_and_told_as_one_job(daemon, lab, work):
    script = "#!/bin/bash\nsrun --mem=60 python3 -c 'import time\nwhile time.process_time() < " \
             "1.5: pass\ntime.sleep(2)'\n"
    job = lab.sbatch("-N2", "-n2", "--mem=100", script=script)
    lab.wait_ended(job)
    batch, other = [wait_node(work, job, node) for node in lab.nodes]
    for node in (batch, other):
        assert node["usage"]["cpu"]["time_seconds"] > 0.5
    whole = wait_job(work, job)
    assert whole["usage"]["quality"]["nodes_reporting"] == 2
    assert {n["host"]["name"] for n in whole["usage"]["nodes"]} == set(lab.nodes)
    total = sum(n["usage"]["cpu"]["time_seconds"] for n in (batch, other))
    assert whole["usage"]["cpu"]["time_seconds"] == pytest.approx(total, abs=0.02)


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
    job, out = burn(lab, work, ["--mem=200"], cpu=3, mib=60, hold=14)
    wait_for(lambda: (work / "state" / "usage.state").exists()
             and "life " in (work / "state" / "usage.state").read_text(),
             "the job is in the state file")
    wait_for(lambda: any(i == job for i, _ in events(work, "usage.sample")), "the job was sampled")
    getattr(daemon, how)()
    daemon.start()
    truth = truth_of(lab, job, out)
    usage = wait_node(work, job)["usage"]
    assert [i for i, _ in events(work, "usage.node")] == [job]
    # All of it was used before the restart, so that it counts however the end was read.
    assert usage["cpu"]["time_seconds"] == pytest.approx(truth["cpu"], rel=0.05)
    assert usage["memory"]["peak_working_set_bytes"] == pytest.approx(truth["anon"], rel=0.05)
    assert usage["elapsed_seconds"] > 12
    assert wait_job(work, job)["usage"]["quality"]["covered_ratio"] > 0.5


def test_an_ordinary_user_may_measure_all_jobs(make_daemon, lab, work, ordinary_user):
    if not harness.IS_ROOT:
        pytest.skip("needs root, to become another user")
    daemon = make_daemon(sources=usage_source(work, resolve="none", nodes=lab.nodes),
                         user=ordinary_user.pw_name,
                         sinks={"archive": {"kinds": ["usage.node", "usage.job"]}})
    (work / "archive").mkdir(exist_ok=True)
    os.chown(work / "archive", ordinary_user.pw_uid, ordinary_user.pw_gid)
    daemon.start()
    # Its memory is what the largest reading says, so it must be held for longer than the interval.
    _, truth, node = burn_and_measure(lab, work, ["--mem=100"], cpu=2, mib=30, hold=8)
    usage = node["usage"]
    assert usage["cpu"]["time_seconds"] == pytest.approx(truth["cpu"], rel=0.05)
    assert usage["memory"]["peak_working_set_bytes"] == pytest.approx(truth["anon"], rel=0.08)
    assert "read_bytes" not in usage.get("io", {}), \
        "it may not read the processes' own counts, and says nothing instead"


def test_one_run_measures_what_is_there_and_goes_on_at_the_next(make_daemon, lab, work):
    daemon = make_daemon(sources=usage_source(work, slurm_conf=str(lab.conf), nodes=lab.nodes,
                                              samples=True),
                         sinks={"archive": {"kinds": ["usage.sample", "usage.node"]}})
    job, out = burn(lab, work, ["--mem=100"], cpu=1, hold=6)
    wait_for(lambda: list(CGROUPS.glob(
        f"memory/slurm_{lab.nodes[0]}/uid_0/job_{job}/step_batch/task_0")), "the job's task runs")
    assert harness.scriptorium("run", "--once", "--config", str(daemon.config)).returncode == 0
    assert any(i == job for i, _ in events(work, "usage.sample"))
    truth_of(lab, job, out)
    assert harness.scriptorium("run", "--once", "--config", str(daemon.config)).returncode == 0
    node = wait_node(work, job)
    assert node["usage"]["quality"]["last_read"] == "sample" and node["complete"] is False


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
    task = job / "step_batch" / "user" / "task_0"
    task.mkdir(parents=True)

    def enter():
        (task / "cgroup.procs").write_text(str(os.getpid()))
    process = subprocess.run(["python3", "-c",
                              "import time\nwhile time.process_time() < 2: "
                              "pass\nprint(time.process_time())"],
                             preexec_fn=enter, capture_output=True, text=True, check=True)
    wait_for(lambda: "populated 0" in (job / "cgroup.events").read_text(),
             "the kernel has seen the end")
    # slurmstepd takes its time too; a busy machine may give the daemon none for a while.
    sweeps = daemon.source("usage")["plugin_status"]["sweeps"]
    wait_for(lambda: daemon.source("usage")["plugin_status"]["sweeps"] > sweeps + 1,
             "the daemon has had its turn")
    for directory in (task, task.parent, task.parent.parent, job):
        directory.rmdir()
    node = wait_node(work, "31", "n7")
    usage = node["usage"]
    assert usage["cpu"]["time_seconds"] == pytest.approx(float(process.stdout), rel=0.05)
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
