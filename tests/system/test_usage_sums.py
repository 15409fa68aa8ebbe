"""Jobs of a minute on a real Slurm of two nodes, as a site has them: steps, several processes, an
idle tail, Perl beside Python, R, an array. What their programs measured of themselves is held
against usage.job, the report of an array and the sums of `report --by`; what the daemon itself
used meanwhile is printed."""

import json
import os
import pathlib
import re
import shutil

import pytest

from harness import wait_for
from test_usage import all_events, usage_source

SECONDS = 62  # from a minute on, figures are at most 3 % off
EXACT = 0.03
INTERVAL = 5  # of usage_source()

# Each keeps memory, and a part of a CPU busy, and writes down what it used: seconds of CPU time,
# bytes of memory, and for how long it was idle at its end.
PYTHON = """
import os, resource, sys, time
folder, mib, share, busy, seconds = sys.argv[1], *map(float, sys.argv[2:])
held = bytearray(int(mib) << 20)
held[::4096] = b"x" * len(held[::4096])
begin = last = time.monotonic()
while (now := time.monotonic()) - begin < seconds:
    while time.monotonic() - now < share / 2 and now - begin < busy:
        last = time.monotonic()
    time.sleep((1 - share) / 2)
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
use = resource.getrusage(resource.RUSAGE_SELF)
name = f"{os.environ['SLURM_JOB_ID']}.{os.environ['SLURMD_NODENAME']}.{os.getpid()}"
with open(f"{folder}/{name}", "w") as out:
    print(use.ru_utime + use.ru_stime, int(status["RssAnon"].split()[0]) << 10,
          time.monotonic() - last, file=out)
"""
PERL = r"""
my ($folder, $seconds) = @ARGV;
my $begin = time;
while (time - $begin < $seconds) {
  for (my $i = 0; $i < 900000; ++$i) {}
  select(undef, undef, undef, .2);
}
my ($user, $system) = times;
open my $status, "<", "/proc/self/status";
my ($anon) = join("", <$status>) =~ /RssAnon:\s+(\d+)/;
open my $out, ">", "$folder/$ENV{SLURM_JOB_ID}.perl.$$";
print $out $user + $system, " ", $anon * 1024, " 0\n";
"""
R = r"""
arguments <- commandArgs(TRUE)
held <- rep(1, 8e6)
begin <- Sys.time()
while (as.numeric(Sys.time() - begin, units = "secs") < as.numeric(arguments[2])) {
  for (i in 1:1000000) NULL
  Sys.sleep(0.1)
}
anon <- sub("[^0-9]*([0-9]+).*", "\\1", grep("RssAnon", readLines("/proc/self/status"), value = TRUE))
used <- proc.time()  # with the children of the script that starts R
cat(sum(used[c(1, 2, 4, 5)]), as.numeric(anon) * 1024 + 0 * held[1], 0, "\n",
    file = file.path(arguments[1], paste0(Sys.getenv("SLURM_JOB_ID"), ".R")))
"""


def jobs_of(work, own):
    """Options and script of each job, in the order in which they fill two nodes of two CPUs twice,
    or of one CPU four times."""
    def python(mib, share, busy=999, seconds=SECONDS):
        return f"/usr/bin/python3 {work}/work.py {own} {mib} {share} {busy} {seconds}"
    jobs = {
        "steps": (["-N2", "-n2"], "".join(f"srun {python(mib, 0.3, seconds=SECONDS / 3)}\n"
                                          for mib in (50, 140, 70))),
        "processes": ([], "".join(f"{python(mib, 0.15)} &\n" for mib in (40, 60, 80)) + "wait\n"),
        "idle-tail": ([], python(120, 0.6, busy=20) + "\n"),
        "perl": ([], f"perl {work}/work.pl {own} {SECONDS} &\n{python(90, 0.1)}\nwait\n"),
        "R": ([], f"Rscript {work}/work.R {own} {SECONDS}\n"),
        "array": (["--array=0-1"], python("$((60 + 60 * SLURM_ARRAY_TASK_ID))", 0.2) + "\n"),
    }
    if not shutil.which("Rscript"):
        print("no job in R: Rscript is missing (apt-get install r-base-core)")
        del jobs["R"]
    return jobs


def own_use(own, job):
    """What each program of a job said: seconds of CPU time, bytes, seconds idle at the end."""
    return [tuple(map(float, file.read_text().split())) for file in own.glob(f"{job}.*")]


def cost(process):
    """Seconds of CPU time of a process and of its children that have ended, and its largest memory
    in bytes."""
    place = pathlib.Path(f"/proc/{process.pid}")
    ticks = place.joinpath("stat").read_text().rsplit(")", 1)[1].split()[11:15]
    own, children = (sum(map(int, pair)) / os.sysconf("SC_CLK_TCK")
                     for pair in (ticks[:2], ticks[2:]))
    most = re.search(r"VmHWM:\s+(\d+)", place.joinpath("status").read_text())
    return own, children, int(most.group(1)) << 10


def run_jobs(lab, work, jobs):
    """All usage.job, and the id of the array. The control groups of a job are gone some 20 ms after
    its end; where the daemon got no CPU in that time, the event is not complete, and the job runs
    once more."""
    events, array = {}, None
    for _ in range(3):
        ids = {name: lab.sbatch("-J", name, "--mem=300", *options, script="#!/bin/bash\n" + script)
               for name, (options, script) in jobs.items()}
        array = array or ids["array"]
        expected = len(events) + len(jobs) + ("array" in jobs)

        def there():
            found = {e["job"]["id"]: e for e in all_events(work, "usage.job")}
            return found if len(found) == expected else None
        known, events = events, wait_for(there, f"there are {expected} usage.job", 600, step=0.5)
        again = {event["job"]["name"] for job, event in events.items()
                 if job not in known and not event["complete"]}
        if not again:
            return events, array
        print(f"not read at their end: {again}")
        jobs = {name: jobs[name] for name in again}
    raise AssertionError("the end of a job was not read in time, three times")


def test_what_is_reported_is_what_the_programs_used(make_daemon, lab, work):
    own = work / "own"
    own.mkdir()
    for name, text in (("work.py", PYTHON), ("work.pl", PERL), ("work.R", R)):
        (work / name).write_text(text)
    jobs = jobs_of(work, own)
    daemon = make_daemon(sources=usage_source(work, slurm_conf=str(lab.conf), nodes=lab.nodes),
                         sinks={"archive": {"kinds": ["usage.*"]},
                                "catalog": {"root": str(work / "catalog"), "kinds": ["usage.job"]}})
    daemon.start().prefer()
    before = cost(daemon.process)
    begin = os.times().elapsed
    events, array = run_jobs(lab, work, jobs)
    daemon.wait_acknowledged(len(events), "catalog")
    after = cost(daemon.process)
    print(f"the daemon of {len(events)} jobs in {os.times().elapsed - begin:.0f} s: "
          f"{after[0] - before[0]:.2f} s of CPU time, its commands {after[1] - before[1]:.2f} s, "
          f"at most {after[2] / 2**20:.1f} MiB of memory")

    total = 0
    for job, event in sorted(events.items()):
        name, usage = event["job"]["name"], event["usage"]
        used = own_use(own, job)
        cpu, peak = sum(one[0] for one in used), sum(one[1] for one in used)
        total += cpu
        if name == "steps":  # one after the other, on two nodes: the largest of each
            peak = sum(sorted(one[1] for one in used)[-2:])
        found = (usage["cpu"]["time_seconds"], usage["memory"]["peak_bytes"])
        print(f"{job} {name}: {found[0]:.3f} s of {cpu:.3f} s ({found[0] / cpu - 1:+.2%}), "
              f"{found[1] / 2**20:.1f} of {peak / 2**20:.1f} MiB ({found[1] / peak - 1:+.2%})")
        if not event["complete"]:
            continue
        assert found[0] == pytest.approx(cpu, rel=EXACT), name
        assert found[1] == pytest.approx(peak, rel=EXACT), name
        programs = {(one["name"], one.get("script")) for one in usage["programs"]}
        if name == "idle-tail":
            assert usage["cpu"]["idle_tail_seconds"] == pytest.approx(used[0][2], abs=2 * INTERVAL)
        elif name == "steps":
            assert [s["name"] for s in usage["steps"]] == ["batch", "0", "1", "2"]
        elif name == "perl":
            assert {("perl", "work.pl"), ("python3", "work.py")} <= programs
        elif name == "R":
            assert ("R", "work.R") in programs

    for by, names in (("user", {"root"}), ("node", set(lab.nodes)),
                      ("program", {"python3", "perl", "bash"})):
        answer = json.loads(daemon.command("report", "--by", by, "--json").stdout)
        assert names <= {row[by] for row in answer["rows"]}
        assert answer["total"]["jobs"] == len(events)
        used = answer["total"]["core_seconds"] - answer["total"]["wasted_core_seconds"]
        assert used == pytest.approx(total, rel=EXACT)
        # A job counts for its programs by shares of four digits, else in full.
        apart = len(answer["rows"]) if by == "program" else 0
        for figure in ("core_seconds", "wasted_core_seconds"):
            assert sum(row[figure] for row in answer["rows"]) \
                == pytest.approx(answer["total"][figure], abs=apart, rel=0), by
    screen = daemon.command("report", array).stdout
    assert re.search(rf"^array {array} .* 2 tasks$", screen, re.M), screen
