#!/usr/bin/env python3
"""The spool storm as a benchmark: entries written with slurmctld's system calls, the daemon beside
them, its archive held against the manifest, and every figure beside a plain loop that saw the same
storm. docs/performance.md explains the columns.

Exit 1: a job was lost that must not be, or an archive differs from its manifest. Figures that miss
their aim are said, and are no failure: they depend on the machine.
"""

import argparse
import dataclasses
import fnmatch
import json
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
UNLIMITED = 0
KEPT = -1
GROUP = 64_123  # of the spool, in scenarios of an ordinary user; needs no name
TICKS = os.sysconf("SC_CLK_TCK")


@dataclasses.dataclass(frozen=True)
class Scenario:
    """One storm and one way to capture it."""
    name: str
    jobs: int
    rate: int = UNLIMITED
    lifetime: int = KEPT
    script_bytes: int = 2048
    noise: bool = False
    odd: bool = False        # some scripts are finished late, some are closed three times
    present: int = 0         # entries that stand in the spool before the daemon starts
    capture: str = "auto"
    group_user: bool = False  # the daemon is an ordinary user in the spool's group
    # the daemon is an ordinary user, and a spool opener beside it holds the rights
    separated: bool = False
    lossless: bool = True    # every job must be captured
    reference: bool = True   # also run the plain loop
    latency: bool = True     # a second sink notes when each job was handed over
    default: bool = False    # one of those that run unasked

    def storm_options(self):
        options = ["--rate", str(self.rate), "--lifetime-ms", str(self.lifetime), "--script-bytes",
                   str(self.script_bytes)]
        options += ["--slow-every", "10", "--slow-ms", "100", "--reopen-every",
                    "7"] if self.odd else []
        return options + (["--group-readable", "1"] if self.group_user else [])


def rate_name(rate):
    return "unlimited" if rate == UNLIMITED else f"{rate}ps"


def life_name(lifetime):
    return "kept" if lifetime == KEPT else f"{lifetime}ms"


LIFETIMES = (0, 1, 5, 50, 2000, KEPT)


def jobs_for(rate, seconds=8, unlimited=20_000):
    return unlimited if rate == UNLIMITED else rate * seconds


def all_scenarios():
    default = {"0ms/unlimited", "0ms/unlimited/noise", "1ms/1000ps", "5ms/100ps", "50ms/1000ps",
               "50ms/1000ps/noise",
               "2000ms/1000ps", "kept/1000ps"}
    for lifetime in LIFETIMES:
        for rate in (100, 1000, UNLIMITED):
            for noise in (False, True):
                name = f"{life_name(lifetime)}/{rate_name(rate)}" + ("/noise" if noise else "")
                yield Scenario(name, jobs_for(rate), rate, lifetime, noise=noise,
                               default=name in default)
    for lifetime in (0, 50, KEPT):
        yield Scenario(f"64k/{life_name(lifetime)}/unlimited", 4000, UNLIMITED, lifetime, 64 << 10,
                       default=lifetime == 0)
        yield Scenario(f"4M/{life_name(lifetime)}/20ps", 100, 20, lifetime, (4 << 20) - 64,
                       default=lifetime == 0)
    for lifetime, rate in ((0, UNLIMITED), (50, 1000), (KEPT, 1000)):
        yield Scenario(f"separated/{life_name(lifetime)}/{rate_name(rate)}", jobs_for(rate), rate,
                       lifetime, separated=True,
                       default=lifetime == 0)
    for lifetime in (0, 50, 2000):
        yield Scenario(f"odd/{life_name(lifetime)}/500ps", 4000, 500, lifetime, odd=True,
                       reference=False, default=lifetime == 50)
    yield Scenario("present/20000/500ps", 5000, 500, 50, present=20_000, latency=False,
                   reference=False, default=True)
    yield Scenario("present/100000/500ps", 10_000, 500, 50, present=100_000, latency=False,
                   reference=False)
    for capture, group_user in (("inotify", False), ("inotify", True), ("scan", False)):
        way = "group" if group_user else capture
        for lifetime in LIFETIMES:
            for rate in (100, 1000):
                yield Scenario(f"{way}/{life_name(lifetime)}/{rate_name(rate)}", jobs_for(rate),
                               rate, lifetime, capture=capture,
                               group_user=group_user, lossless=lifetime == KEPT, reference=False,
                               default=rate == 100
                               and lifetime in ((50, KEPT) if capture == "inotify" else (2000,)))


# ---- what the kernel says of processes -----------------------------------------------------------

def process_tree(pid):
    """The daemon, and the spool opener or whatever else it has started."""
    pids = [pid]
    for thread in os.listdir(f"/proc/{pid}/task"):
        children = pathlib.Path(f"/proc/{pid}/task/{thread}/children").read_text().split()
        for child in children:
            pids += process_tree(int(child))
    return pids


def status_kilobytes(pid, key):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1])
    return 0


def stat_times(path):
    text = pathlib.Path(path).read_text()
    fields = text[text.rindex(")") + 2:].split()
    return int(fields[11]) / TICKS, int(fields[12]) / TICKS


def thread_name(path):
    text = pathlib.Path(path).read_text()
    return text[text.index("(") + 1:text.rindex(")")]


@dataclasses.dataclass
class Usage:
    user: float = 0.0
    system: float = 0.0
    written: int = 0      # bytes given to the block layer, as /proc/PID/io counts them
    switches: int = 0
    peak_kilobytes: int = 0

    @staticmethod
    def of(pid, leave_out=()):
        usage = Usage()
        for one in process_tree(pid):
            user, system = stat_times(f"/proc/{one}/stat")
            usage.user += user
            usage.system += system
            for line in pathlib.Path(f"/proc/{one}/io").read_text().splitlines():
                if line.startswith("write_bytes:"):
                    usage.written += int(line.split()[1])
            usage.peak_kilobytes += status_kilobytes(one, "VmHWM")
            for thread in os.listdir(f"/proc/{one}/task"):
                base = f"/proc/{one}/task/{thread}"
                usage.switches += sum(int(line.split()[1]) for line
                                      in pathlib.Path(f"{base}/status").read_text().splitlines()
                                      if line.startswith("voluntary_ctxt_switches:"))
                if thread_name(f"{base}/stat") in leave_out:
                    user, system = stat_times(f"{base}/stat")
                    usage.user -= user
                    usage.system -= system
        return usage

    def since(self, before):
        return Usage(self.user - before.user, self.system - before.system,
                     self.written - before.written,
                     self.switches - before.switches, self.peak_kilobytes)


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else None


# ---- one run -------------------------------------------------------------------------------------

class Bench:
    def __init__(self, options):
        self.options = options
        os.environ["SCRIPTORIUM_BUILD_DIR"] = str(options.build)
        sys.path.insert(0, str(HERE.parent / "system"))
        import harness
        self.harness = harness
        self.storm = options.build / "tests" / "spool-storm"
        self.plain = options.build / "bench" / "plain_loop_bench"
        self.plugins = options.build / "bench" / "plugins"
        for needed in (harness.SCRIPTORIUM, self.storm, self.plain, self.plugins / "bench_sink.so"):
            if not needed.exists():
                sys.exit(f"spool_bench: {needed} is not there; build it: cmake --preset release "
                         f"-DSCRIPTORIUM_BENCH=ON && "
                         "cmake --build build/release --target bench")
        self.root = os.geteuid() == 0
        self.failures = []
        self.rows = []

    # A folder for one run. It is removed at once, and then ext4 gets the time (5 s) for which it
    # steps over inodes that were just removed: else one run would pay for the files of the last.
    def work(self):
        work = pathlib.Path(tempfile.mkdtemp(prefix="spool-bench-", dir=self.options.directory))
        work.chmod(0o755)
        return work

    def clean(self, *folders):
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)
        time.sleep(self.options.pause)

    def make_spool(self, work, scenario):
        base = self.options.spool_directory
        spool = pathlib.Path(tempfile.mkdtemp(prefix="spool-bench-",
                                              dir=base)) if base else work / "spool"
        # As on a cluster that has run for a day: slurmctld makes each hash.D once and keeps it.
        for folder in (spool, *(spool / f"hash.{digit}" for digit in range(10))):
            folder.mkdir(exist_ok=True)
            folder.chmod(0o750 if scenario.group_user else 0o700)
            if scenario.group_user and self.root:
                os.chown(folder, 0, GROUP)
        return spool

    def start_storm(self, spool, scenario, work, jobs=None, first_id=1, keep=False):
        command = [str(self.storm), str(spool), "--jobs", str(jobs or scenario.jobs), "--first-id",
                   str(first_id),
                   *scenario.storm_options()]
        if keep:
            command += ["--rate", "0", "--lifetime-ms", "-1"]
        else:
            if scenario.noise:
                (work / "noise").mkdir(exist_ok=True)
                command += ["--noise", str(work / "noise")]
        command += ["--manifest", str(work / "manifest")]
        group = {"group": GROUP} if scenario.group_user and self.root else {}
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **group)

    @staticmethod
    def end_storm(process):
        out, _ = process.communicate()
        if process.returncode != 0:
            raise RuntimeError("spool-storm failed")
        return json.loads(out)

    def start_daemon(self, work, spool, scenario, sinks=None, **core):
        harness = self.harness
        all_sinks = {"archive": {"acl": "none"}}
        (work / "clock").mkdir()
        if scenario.latency:
            all_sinks["clock"] = {"plugin": "bench_sink",
                                  "file": str(work / "clock" / "handed-over"), "batch_max_ms": 1}
        all_sinks.update(sinks or {})
        ordinary = harness.ordinary_user() if self.root and (scenario.group_user
                                                             or scenario.separated) else None
        if ordinary:
            for folder in (work / "state", work / "archive", work / "clock"):
                folder.mkdir(exist_ok=True)
                os.chown(folder, ordinary.pw_uid, ordinary.pw_gid)
            if scenario.separated:
                core["user"] = ordinary.pw_name
        text = harness.config_text(work, sources={"slurm": {"spool": str(spool),
                                                            "capture": scenario.capture}},
                                   sinks=all_sinks,
                                   plugin_dirs=[str(self.options.build / "plugins"),
                                                str(self.plugins)], **core)
        daemon = harness.Daemon(work, text)
        if not (scenario.group_user and self.root):
            return daemon.start()
        with open(daemon.log_file, "ab") as log:
            daemon.process = subprocess.Popen([str(harness.SCRIPTORIUM), "run", "--config",
                                               str(daemon.config)],
                                              stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                              user=ordinary.pw_uid,
                                              group=ordinary.pw_gid, extra_groups=[GROUP])
        return daemon.wait_ready()

    @staticmethod
    def wait_watching(daemon):
        daemon.wait_status(lambda s: s["sources"]["slurm"]["scans"] > 0
                           and s["sources"]["slurm"]["spool_there"],
                           "the first scan has begun")

    def wait_settled(self, daemon, jobs, lossless, sinks=("archive",)):
        """Until all is captured and delivered, or nothing has changed for long; returns the last
        status."""
        quiet_seconds = 30.0 if lossless else 4.0
        last, changed = None, time.monotonic()
        while True:
            status = daemon.status()
            source = status["sources"]["slurm"]
            delivered = all(status["sinks"][s]["waiting"] == 0 for s in sinks)
            if source["captured"] >= jobs and delivered:
                return status
            now = (source["captured"], sum(source["missed"].values()),
                   [status["sinks"][s]["acknowledged"] for s in sinks])
            if now != last:
                last, changed = now, time.monotonic()
            if time.monotonic() - changed > quiet_seconds and (delivered or lossless) \
        and (source["pending"] == 0 or lossless):
                return status
            time.sleep(0.1)

    def measure(self, scenario):
        """The daemon in one storm; returns the row of the table."""
        if not self.root:
            scenario = dataclasses.replace(scenario, group_user=False, separated=False)
        work = self.work()
        spool = self.make_spool(work, scenario)
        daemon = None
        try:
            if scenario.present:
                self.end_storm(self.start_storm(spool, scenario, work, jobs=scenario.present,
                                                keep=True))
            begin = time.monotonic()
            daemon = self.start_daemon(work, spool, scenario)
            if not scenario.present:
                self.wait_watching(daemon)
            leave_out = ("sink clock",)
            before = Usage() if scenario.present else Usage.of(daemon.process.pid, leave_out)
            storm = self.start_storm(spool, scenario, work, first_id=scenario.present + 1)
            present_seconds = self.wait_present(daemon, scenario,
                                                begin) if scenario.present else None
            wrote = self.end_storm(storm)
            ended = time.monotonic()
            waiting = daemon.status()["sinks"]["archive"]["waiting"]
            written = scenario.jobs + scenario.present
            sinks = ("archive", "clock") if scenario.latency else ("archive",)
            status = self.wait_settled(daemon, written, scenario.lossless, sinks)
            usage = Usage.of(daemon.process.pid, leave_out).since(before)
            seconds = time.monotonic() - begin
            code = daemon.terminate(120)
            row = self.row(scenario, work, status, usage, wrote, written)
            row["seconds"] = round(seconds, 2)
            row["waiting_at_end"], row["drain_seconds"] = waiting, round(begin + seconds - ended, 2)
            row["present_seconds"] = present_seconds
            if code != 0:
                self.fail(scenario.name, f"the daemon exited {code}")
        finally:
            if daemon is not None:
                daemon.cleanup()
            self.clean(work, spool)
        if scenario.reference and self.root:
            self.add_reference(row, scenario, self.plain_loop(scenario, "batch"))
        return row

    @staticmethod
    def wait_present(daemon, scenario, begin):
        while daemon.status()["sources"]["slurm"]["captured"] < scenario.present:
            if time.monotonic() - begin > 600:
                return None
            time.sleep(0.05)
        return round(time.monotonic() - begin, 2)

    def row(self, scenario, work, status, usage, wrote, written):
        source = status["sources"]["slurm"]
        manifest = self.read_manifest(work / "manifest")
        kept = self.verify(scenario, work / "archive", manifest)
        captured = source["captured"] - source["superseding"]
        jobs = max(1, captured)
        row = {"scenario": scenario.name, "way": source["capture"], "written": written,
               "storm_rate": wrote["jobs_per_second"],
               "captured": captured, "archived": kept["archived"], "missed": source["missed"],
               "incomplete": source["incomplete"],
               "ignored": source["ignored"], "pending": source["pending"],
               "overflows": source["overflows"],
               "user_us": round(usage.user / jobs * 1e6, 1),
               "system_us": round(usage.system / jobs * 1e6, 1),
               "switches": round(usage.switches / jobs, 2),
               "peak_mb": round(usage.peak_kilobytes / 1024, 1),
               "bytes_per_byte": round(usage.written / max(1, kept["bytes"]), 1),
               "load": round(os.getloadavg()[0], 1),
               "noise_files": wrote["noise_files"]}
        if scenario.latency:
            lags = []
            for line in (work / "clock" / "handed-over").read_text().splitlines():
                job, at = line.split()
                if job in manifest:
                    # The storm reads the clock after the close, so we may have been faster than
                    # that.
                    lags.append(max(0, int(at) - manifest[job][2]) / 1e6)
            row["latency_ms"] = {key: None if value is None else round(value, 2) for key, value in
                                 (("p50", percentile(lags, 0.5)), ("p99", percentile(lags, 0.99)),
                                  ("max", max(lags, default=None)))}
        histogram = source.get("close_to_durable_seconds")
        if histogram and histogram["count"]:
            row["durable_within"] = {f"{b['le'] * 1e3:g} ms": round(b["count"]
                                                                    / histogram["count"], 4)
                                     for b in histogram["buckets"] if b["le"] <= 1}
        if scenario.lossless and captured != written:
            self.fail(scenario.name, f"{written - captured} of {written} jobs were not captured")
        if captured + sum(source["missed"].values()) != written and source["capture"] != "scan":
            row["unaccounted"] = written - captured - sum(source["missed"].values())
        return row

    @staticmethod
    def read_manifest(file):
        rows = {}
        for line in file.read_text().splitlines():
            job, script, environment, closed = line.split()
            rows[job] = (script, environment, int(closed))
        return rows

    def verify(self, scenario, archive, manifest):
        """Holds the archive against the manifest: names, and every byte. A job may have a second
        copy beside the whole one, if that one is marked incomplete: it was seen half written first,
        and the whole one supersedes it."""
        sha256 = self.harness.sha256
        whole, archived, wrong = set(), set(), []
        total = 0
        for entry in os.scandir(archive) if archive.is_dir() else ():
            if entry.name == self.harness.MARKER:
                continue
            content = pathlib.Path(entry.path).read_bytes()
            total += len(content)
            stem, kind = os.path.splitext(entry.name)
            job = stem.split(".")[0]
            if entry.name.startswith(".") or job not in manifest:
                wrong.append(entry.name)
                continue
            wanted = manifest[job][{".sh": 0, ".env": 1}[kind]] if kind != ".json" else None
            if kind == ".sh":
                archived.add(job)
            if wanted is None or sha256(content) == wanted:
                if kind == ".sh":
                    whole.add(job)
            elif json.loads((archive / f"{stem}.json").read_bytes())["complete"]:
                wrong.append(entry.name)
        if wrong:
            self.fail(scenario.name,
                      f"{len(wrong)} files differ from the manifest or do not belong there, such "
                      f"as {wrong[:3]}")
        lost = [job for job in manifest if job not in whole]
        if lost and scenario.lossless:
            self.fail(scenario.name,
                      f"{len(lost)} of {len(manifest)} jobs are not whole in the archive, such "
                      f"as {lost[:3]}")
        return {"archived": len(archived), "bytes": total}

    def plain_loop(self, scenario, write):
        """The reference: the same storm before a plain loop."""
        work = self.work()
        spool = self.make_spool(work, scenario)
        plain = subprocess.Popen([str(self.plain), str(spool), "--jobs", str(scenario.jobs),
                                  "--write", write, "--archive",
                                  str(work / "archive")], stdout=subprocess.PIPE, text=True)
        try:
            assert plain.stdout.readline() == "ready\n"
            self.end_storm(self.start_storm(spool, scenario, work))
            result = json.loads(plain.communicate()[0])
        finally:
            plain.kill()
            plain.wait()
            self.clean(work, spool)
        return result

    @staticmethod
    def add_reference(row, scenario, plain):
        capture = plain["capture_user_us"] + plain["capture_system_us"]
        write = plain["write_user_us"] + plain["write_system_us"]
        row["plain"] = {"captured": plain["captured"], "capture_us": round(capture, 1),
                        "write_us": round(write, 1)}
        row["ratio"] = round((row["user_us"] + row["system_us"]) / max(0.1, capture + write), 2)

    def fail(self, name, words):
        self.failures.append(f"{name}: {words}")
        print(f"  FAILED {name}: {words}", flush=True)

    # ---- what issue 4 asks to be shown -----------------------------------------------------------

    def aim(self, words, reached):
        print(f"  {'reached' if reached else 'NOT REACHED'}: {words}", flush=True)
        self.rows.append({"aim": words, "reached": bool(reached)})

    def run(self, scenario):
        row = self.measure(scenario)
        self.rows.append(row)
        print_row(row)
        return row

    def shown_1(self):
        """Lifetime 0 ms, unlimited rate: all captured, three runs in a row, without and with
        noise."""
        jobs = self.scaled(100_000)
        rows = [self.run(Scenario(f"shown-1/{'noise' if noise else 'quiet'}/{turn}", jobs,
                                  UNLIMITED, 0, noise=noise, latency=False,
                                  reference=turn == 1))
                for noise in (False, True) for turn in (1, 2, 3)]
        self.aim(f"captured {jobs} of {jobs}, {len(rows)} runs",
                 all(r["captured"] == r["archived"] == jobs for r in rows))

    def shown_2(self):
        """CPU of the whole way against the two plain loops, turn by turn."""
        for lifetime in (50, KEPT):
            scenario = Scenario(f"shown-2/{life_name(lifetime)}/1000ps", self.scaled(20_000), 1000,
                                lifetime, latency=False,
                                reference=False)
            ratios, each_ratios = [], []
            for turn in range(3):
                row = self.measure(scenario)
                self.add_reference(row, scenario, self.plain_loop(scenario, "batch"))
                ratios.append(row["ratio"])
                each = self.plain_loop(scenario, "each")
                sum_each = sum(each[k] for k in each if k.endswith("_us"))
                row["plain"]["each_us"] = round(sum_each, 1)
                each_ratios.append((row["user_us"] + row["system_us"]) / sum_each)
                row["scenario"] += f"/{turn + 1}"
                self.rows.append(row)
                print_row(row)
            ratio = percentile(ratios, 0.5)
            self.aim(f"{scenario.name}: CPU {ratio:.2f} times the plain capture loop and plain "
                     f"writing with one sync a batch "
                     f"(at most 3); {percentile(each_ratios, 0.5):.2f} times with an "
                     f"fsync of each file", ratio <= 3)

    def shown_3_latency(self):
        """From close to durable at 1,000 jobs/s."""
        row = self.run(Scenario("shown-3/latency", self.scaled(20_000), 1000, 50, reference=False))
        p99 = row["latency_ms"]["p99"]
        within = row.get("durable_within", {}).get("20 ms")
        self.aim(f"p99 from close to durable {p99} ms at 1,000 jobs/s (at most 20; load "
                 f"{row['load']}); by the daemon's own "
                 f"histogram {'-' if within is None else f'{within:.1%}'} within 20 ms", p99 <= 20)

    def shown_3_present(self):
        """A start with 100,000 entries while 500 jobs/s come in."""
        present = self.scaled(100_000)
        row = self.run(Scenario("shown-3/present", self.scaled(15_000), 500, 50, present=present,
                                latency=False, reference=False))
        self.aim(f"{present} entries at start captured in {row['present_seconds']} s while 500 "
                 f"jobs/s came in (at most 30), "
                 f"{row['written'] - row['captured']} lost (load {row['load']})",
                 row["present_seconds"] is not None and row["present_seconds"] <= 30)

    def shown_3_sustained(self):
        """2,000 jobs/s for a minute: what waits at the end, and how long it takes to drain."""
        row = self.run(Scenario("shown-3/sustained", self.scaled(120_000), 2000, 50, latency=False,
                                reference=False))
        self.aim(f"2,000 jobs/s for {row['written'] / 2000:.0f} s (the storm reached "
                 f"{row['storm_rate']:.0f}): "
                 f"{row['waiting_at_end']} waited at its end, drained {row['drain_seconds']} s "
                 f"later (load {row['load']})",
                 row["drain_seconds"] <= 5)

    def shown_3_memory(self):
        """1,000,000 events waiting for a sink that is down."""
        events = self.scaled(1_000_000)
        scenario = Scenario("shown-3/memory", events, UNLIMITED, 0, latency=False, reference=False)
        work = self.work()
        spool = self.make_spool(work, scenario)
        sinks = {"archive": None, "down": {"plugin": "bench_sink", "down": True}}
        daemon = None
        try:
            daemon = self.start_daemon(work, spool, scenario, sinks, journal_max_bytes=1 << 36)
            self.wait_watching(daemon)
            storm = subprocess.Popen([str(self.storm), str(spool), "--jobs", str(events),
                                      "--lifetime-ms", "0", "--distinct", "20"],
                                     stdout=subprocess.PIPE, text=True)
            begin = time.monotonic()
            while storm.poll() is None or daemon.source()["captured"] < events:
                source = daemon.source()
                progress(f"memory: {source['captured']} of {events} waiting")
                if time.monotonic() - begin > 3600:
                    break
                time.sleep(1)
            wrote = self.end_storm(storm)
            status = daemon.status()
            pids = process_tree(daemon.process.pid)
            row = {"scenario": scenario.name, "written": events,
                   "captured": status["sources"]["slurm"]["captured"],
                   "waiting": status["sinks"]["down"]["waiting"],
                   "superseding": status["sources"]["slurm"]["superseding"],
                   "incomplete": status["sources"]["slurm"]["incomplete"],
                   "storm_rate": wrote["jobs_per_second"],
                   "peak_mb": round(sum(status_kilobytes(p, "VmHWM") for p in pids) / 1024, 1),
                   "resident_mb": round(sum(status_kilobytes(p, "VmRSS") for p in pids) / 1024, 1),
                   "journal_bytes_per_event": round(status["journal"]["bytes"] / events),
                   "load": round(os.getloadavg()[0], 1)}
            self.rows.append(row)
            print(f"  {json.dumps(row)}", flush=True)
            if row["waiting"] - status["sources"]["slurm"]["superseding"] != events:
                self.fail(scenario.name, f"{row['waiting']} of {events} wait")
            self.aim(f"{row['peak_mb']} MB resident at the most with {row['waiting']} events "
                     f"waiting (at most 128)",
                     row["peak_mb"] <= 128)
        finally:
            if daemon is not None:
                daemon.cleanup()
            self.clean(work, spool)

    def shown_4(self):
        """An ordinary user in the spool's group: what share is captured, and that nothing goes
        unaccounted."""
        rows = [self.run(dataclasses.replace(s, jobs=self.scaled(s.jobs))) for s in all_scenarios()
                if s.name.startswith("group/")]
        print("\n  as an ordinary user in the spool's group (inotify)\n"
              "  | lifetime, rate | captured whole | captured incomplete | missed | "
              "captured + missed |")
        for row in rows:
            missed, written = sum(row["missed"].values()), row["written"]
            print(f"  | {row['scenario'][6:]} | "
                  f"{(row['captured'] - row['incomplete']) / written:.1%} "
                  f"| {row['incomplete'] / written:.1%} | {missed / written:.1%} | "
                  f"{row['captured'] + missed} of {written} |")
        self.aim("captured + missed = written in every run",
                 not any("unaccounted" in r for r in rows))

    def shown_5(self):
        """capture = "scan": what came and went between two looks leaves no trace, and none is
        claimed."""
        rows = [self.run(dataclasses.replace(s, jobs=self.scaled(s.jobs))) for s in all_scenarios()
                if s.name.startswith("scan/") and s.rate == 1000]
        self.aim("what scans cannot see is neither captured nor claimed as missed, and kept "
                 "entries are all captured",
                 all(r["way"] == "scan" and r["archived"] == r["captured"] for r in rows))

    def scaled(self, jobs):
        return max(100, int(jobs * self.options.scale))


SHOWN = {name[:7].replace("_", "-") + name[7:].replace("_", "/"): getattr(Bench, name)
         for name in sorted(dir(Bench))
         if name.startswith("shown_")}

# ---- output --------------------------------------------------------------------------------------

COLUMNS = (("scenario", 26), ("captured", 15), ("missed", 8), ("p50/p99/max ms", 20),
           ("user+sys us", 13), ("plain us", 11),
           ("ratio", 6), ("sw/job", 7), ("peak MB", 8), ("B/B", 6), ("load", 5))


def progress(words):
    if sys.stderr.isatty():
        print(f"\r{words:<70}", end="\r", file=sys.stderr, flush=True)


def print_head():
    print("  ".join(name.ljust(width) for name, width in COLUMNS), flush=True)


def print_row(row):
    lag = row.get("latency_ms")
    plain = row.get("plain")
    cells = (row["scenario"], f"{row['captured']}/{row['written']}", sum(row["missed"].values()),
             f"{lag['p50']}/{lag['p99']}/{lag['max']}" if lag else "-",
             f"{row['user_us']:.0f}+{row['system_us']:.0f}",
             f"{plain['capture_us']:.0f}+{plain['write_us']:.0f}" if plain else "-",
             row.get("ratio", "-"), row["switches"],
             row["peak_mb"], row["bytes_per_byte"], row["load"])
    print("  ".join(str(cell).ljust(width) for cell, (_, width) in zip(cells, COLUMNS)), flush=True)


def file_system_of(directory):
    """Its type. Without a journal, as in some virtual machines, ext4 steps over every inode that
    was removed in the last minute whenever it makes a file: figures from there say little of a disk
    with one."""
    found = subprocess.run(["findmnt", "-nro", "FSTYPE,SOURCE", "-T", str(directory)],
                           capture_output=True, text=True, check=False)
    kind, _, source = found.stdout.strip().partition(" ")
    if kind == "ext4" and not list(
        pathlib.Path("/proc/fs/jbd2").glob(f"{os.path.basename(source)}-*")):
        kind += " without journal"
    return kind


def machine(directory):
    cpu = next((line.split(":")[1].strip()
                for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
                if line.startswith("model name")), "?")
    return {"kernel": platform.release(), "cpu": cpu, "cpus": os.cpu_count(),
            "directory": str(directory),
            "file_system": file_system_of(directory), "root": os.geteuid() == 0,
            "load_at_start": round(os.getloadavg()[0], 1)}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=HERE.parents[1] / "build"
                        / "release", help="a release build")
    parser.add_argument("--directory", type=pathlib.Path,
                        default=pathlib.Path("/var/lib" if os.geteuid() == 0 else "/var/tmp"),
                        help="where to work: a disk, not memory; separated/* want a folder that "
                             "only root can write to")
    parser.add_argument("--spool-directory", type=pathlib.Path, help="another place for the spool")
    parser.add_argument("--full", action="store_true",
                        help="every scenario and all of shown-1 to shown-5 (about an hour)")
    parser.add_argument("--only", action="append", metavar="PATTERN",
                        help="these, such as '50ms/*' or shown-3; may be repeated")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the jobs, to try it out")
    parser.add_argument("--pause", type=float, default=6.0, help="seconds between two runs")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE",
                        help="all rows, with what the table leaves out")
    parser.add_argument("--list", action="store_true", help="name the scenarios")
    options = parser.parse_args()
    scenarios = list(all_scenarios())
    if options.list:
        for scenario in scenarios:
            print(scenario.name + ("  (default)" if scenario.default else ""))
        for name, show in SHOWN.items():
            print(f"{name}  {' '.join(show.__doc__.split())}")
        return 0
    for folder in (options.directory, options.spool_directory):
        if folder:
            folder.mkdir(parents=True, exist_ok=True)

    def asked(name, unasked):
        if not options.only:
            return options.full or unasked
        return any(fnmatch.fnmatch(name, p) or name.split("/")[0] == p for p in options.only)

    chosen = [s for s in scenarios if asked(s.name, s.default)]
    shown = [name for name in SHOWN if asked(name, False)]
    if not chosen and not shown:
        sys.exit("spool_bench: no scenario of that name; --list names them")
    options.build = options.build.resolve()
    bench = Bench(options)
    where = machine(options.directory)
    print(json.dumps(where))
    if not bench.root:
        print("not root: no fanotify, so short lives are missed and there is no plain loop "
              "to compare with")
        chosen = [dataclasses.replace(s, lossless=s.lifetime == KEPT) for s in chosen]
    print_head()
    try:
        for scenario in chosen:
            bench.run(dataclasses.replace(scenario, jobs=bench.scaled(scenario.jobs),
                                          present=int(scenario.present * options.scale)))
        for name in shown:
            print(f"{name}: {SHOWN[name].__doc__}", flush=True)
            SHOWN[name](bench)
    finally:
        if options.json:
            options.json.write_text(json.dumps({"machine": where, "rows": bench.rows,
                                                "failures": bench.failures}, indent=1) + "\n")
    for failure in bench.failures:
        print(f"FAILED {failure}")
    return 1 if bench.failures else 0


if __name__ == "__main__":
    sys.exit(main())
