#!/usr/bin/env python3
"""Saves a program with scriptorium-checkpointd and with criu alone, in turn, while it runs on.

  checkpoint_bench.py [--build build/release] [--rounds 10] [--directory /var/tmp] [--json FILE]

The program holds 1 MB or 512 MB of random bytes and says when it did not run for 2 ms or more.
`frozen` is the longest of those times in a save. `start` is the time from the close of the request
to its beginning, so it has criu's own start in it. `after` is hashing and fsync, as the service's
log says, while the program runs again. criu alone has the same user, capabilities and options, and
images on the same disk. Run it as root, on a machine that does nothing else.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
MIB = 1 << 20
WARM_UP_ROUNDS = 3  # the first files of a size get memory that the machine has not used before
PROGRAM = """#!/usr/bin/python3 -I
import os, sys, time
held = os.urandom(int(sys.argv[1]))
last = time.monotonic()
with open("pauses", "w"):
    pass
while True:
    time.sleep(0.0005)
    now = time.monotonic()
    if now - last > 0.002:
        with open("pauses", "a") as pauses:
            pauses.write(f"{last} {now}\\n")
        now = time.monotonic()
    last = now
"""
# As scriptorium-checkpointd gives them to criu, where ptrace_scope is 0.
RIGHTS = "-all,+checkpoint_restore,+setpcap"


def longest_pause(directory, since):
    """(begin, seconds) of the longest time that the program did not run."""
    pauses = [tuple(map(float, line.split()))
              for line in (directory / "pauses").read_text().splitlines()]
    begin, end = max((each for each in pauses if each[1] >= since),
                     key=lambda each: each[1] - each[0])
    return begin, end - begin


class Bench:
    def __init__(self, work, lab, wait_for):
        self.lab, self.wait_for = lab, wait_for
        criu = work / "criu"
        subprocess.run([lab.CRIU_FOR_TESTS, criu], check=True, stdout=subprocess.DEVNULL)
        self.node = lab.Node(work, criu / "criu").start(dumps_at_a_time=2)
        self.user = self.node.alice

    def begin(self, size):
        self.directory = self.node.directory(self.user, f"of-{size}", program=PROGRAM)
        self.job = self.node.job(self.user, self.directory, "./program", str(size))
        self.wait_for((self.directory / "pauses").exists, "the program runs")
        bare = self.directory / "bare"
        bare.mkdir(mode=0o700)
        self.node.give(self.user, bare)

    def with_service(self):
        (self.directory / "checkpoint_ok").unlink(missing_ok=True)
        os.sync()
        said = len(self.node.log())
        name = self.node.spool / f"{self.job.id}.checkpoint"
        text = f"{self.job.process.pid}\nkeep_job\nruns_on\n{self.directory}\n"
        whole = self.node.spool / ".request"
        whole.write_text(text)
        self.node.give(self.user, whole)
        requested = time.monotonic()
        whole.rename(name)
        self.wait_for(lambda: "CHECKPOINT_" in self.node.log()[said:], "an answer")
        done = re.search(r"bytes=(\d+).*hash_ms=(\d+)", self.node.log()[said:])
        assert done, self.node.log()[said:]
        begin, frozen = longest_pause(self.directory, requested)
        return {"frozen_ms": 1000 * frozen, "start_ms": 1000 * (begin - requested),
                "after_ms": int(done[2]), "image_mb": int(done[1]) / 1e6}

    def with_criu_alone(self):
        bare = self.directory / "bare"
        images = bare / "new"
        images.mkdir(mode=0o700)
        self.node.give(self.user, images)
        os.sync()
        requested = time.monotonic()
        subprocess.run(
            ["setpriv", f"--reuid={self.user.pw_uid}", f"--regid={self.user.pw_gid}",
             "--init-groups", f"--inh-caps={RIGHTS}", f"--ambient-caps={RIGHTS}",
             f"--bounding-set={RIGHTS}", "--no-new-privs", self.node.criu, "dump", "--tree",
             str(self.job.process.pid), "--leave-running", "--unprivileged", "--shell-job",
             "--manage-cgroups=ignore", "--images-dir", images, "--log-file", "dump.log", "-v2"],
            check=True)
        begin, frozen = longest_pause(self.directory, requested)
        # As the service does: two are kept, and the third is removed after the save. If it were
        # removed before, the new files would get its memory, which is faster.
        shutil.rmtree(bare / "older", ignore_errors=True)
        if (bare / "images").exists():
            (bare / "images").rename(bare / "older")
        images.rename(bare / "images")
        return {"frozen_ms": 1000 * frozen, "start_ms": 1000 * (begin - requested)}

    def run(self, size, rounds):
        self.begin(size)
        figures = {"criu alone": [], "service": []}
        for number in range(rounds + WARM_UP_ROUNDS):
            for measure, who in ((self.with_service, "service"),
                                 (self.with_criu_alone, "criu alone")):
                measured = measure()
                if number >= WARM_UP_ROUNDS:
                    figures[who].append(measured)
        self.job.cancel()
        return {who: {name: {"median": round(statistics.median(values), 1),
                             "most": round(max(values), 1)}
                      for name in each[0] for values in [[one[name] for one in each]]}
                for who, each in figures.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--directory", type=pathlib.Path, default=pathlib.Path("/var/tmp"))
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    os.environ["SCRIPTORIUM_BUILD_DIR"] = str(options.build.resolve())
    sys.path[:0] = [str(ROOT / "tests" / "system"), str(ROOT / "tests" / "bench")]
    sys.dont_write_bytecode = True
    import checkpoint_lab  # pylint: disable=import-outside-toplevel
    from harness import wait_for  # pylint: disable=import-outside-toplevel
    from spool_bench import machine  # pylint: disable=import-outside-toplevel
    if missing := checkpoint_lab.what_is_missing():
        sys.exit(missing)
    result = {"machine": machine(options.directory)}
    with tempfile.TemporaryDirectory(prefix="scr-bench-", dir=options.directory) as folder:
        os.chmod(folder, 0o755)
        bench = Bench(pathlib.Path(folder), checkpoint_lab, wait_for)
        try:
            for size in (MIB, 512 * MIB):
                result[size] = bench.run(size, options.rounds)
                print(size // MIB, "MiB:", json.dumps(result[size]), flush=True)
        finally:
            bench.node.cleanup()
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
