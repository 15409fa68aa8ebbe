#!/usr/bin/env python3
"""Compares the Elasticsearch sink with curl: the same documents into the same real server, in turn,
in one run.

  elasticsearch_bench.py [SERVER] [--events N] [--rounds N]      SERVER: opensearch2 (default),
  opensearch3, elasticsearch8 ...

curl posts prepared bulk bodies of 5 MB, over one connection and over two; the sink takes its events
from a journal that holds them all, renders, compresses and sends them, and its journal notes each
answer. SCRIPTORIUM_BUILD_DIR names the build (default build/dev; for figures use build/release).
Prints documents a second for each round and the ratio of the medians.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "system"))
sys.dont_write_bytecode = True

import search_lab  # noqa: E402
from harness import BUILD  # noqa: E402

BENCH = BUILD / "bench" / "elasticsearch_bench"
BODY_BYTES = 5_000_000


def curl(server, bodies, connections, answers):
    """Seconds for all bodies by one curl."""
    parts = []
    for number, body in enumerate(bodies):
        parts.append(
            f'url = "{server.url}/_bulk?filter_path=took,errors,items.*.status"\nheader = '
            f'"Content-Type: application/x-ndjson"\n'
                     f'data-binary = "@{body}"\noutput = "{answers}/{number}"\n')
    options = "no-progress-meter\nfail\n" + (f"parallel\nparallel-max = {connections}\n"
                                             if connections > 1 else "")
    config = answers / "config"
    config.write_text(options + "next\n".join(parts))
    begin = time.monotonic()
    subprocess.run(["curl", "-K", str(config)], check=True)
    seconds = time.monotonic() - begin
    for number in range(len(bodies)):
        assert json.loads((answers / str(number)).read_text())["errors"] is False, \
        f"body {number} was refused"
    return {"seconds": seconds}


def sink(server, events, *settings):
    done = subprocess.run([str(BENCH), "deliver", server.url, str(events), *settings], check=True,
                          stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=" ".join(__doc__.split("\n\n")[0].split()))
    parser.add_argument("server", nargs="?", default="opensearch2",
                        choices=[k for k in search_lab.KINDS if "secure" not in k])
    parser.add_argument("--events", type=int, default=20000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--also", action="append", default=[], metavar="'KEY=NUMBER ...'",
                        help="the sink once more with these settings")
    options = parser.parse_args()
    if not BENCH.exists():
        parser.error(
            f"{BENCH} is not there: cmake --build {BUILD} --target elasticsearch_bench "
            f"elasticsearch_module")
    work = pathlib.Path(tempfile.mkdtemp(prefix="es-bench-"))
    server = search_lab.Server(options.server, environment={"TIER": "4"})
    ways = {
        "curl, 1 connection": lambda: curl(server, bodies, 1, work),
        "curl, 2 connections": lambda: curl(server, bodies, 2, work),
        "sink": lambda: sink(server, options.events),
    }
    for settings in options.also:
        ways[f"sink, {settings}"] = lambda settings=settings: sink(server, options.events,
                                                                   *settings.split())
    results = {name: [] for name in ways}
    try:
        server.start()
        subprocess.run([str(BENCH), "bodies", str(work / "bodies"), str(options.events),
                        str(BODY_BYTES)], check=True)
        bodies = sorted((work / "bodies").iterdir())
        size = sum(b.stat().st_size for b in bodies)
        print(f"{options.server}: {options.events} documents of {size / options.events / 1000:.1f} "
              f"KB in {len(bodies)} bodies, "
              f"load {os.getloadavg()[0]:.1f}")
        server.put_template()
        curl(server, bodies[:5], 2, work)  # the first requests after a start are the slow ones
        for turn in range(options.rounds):
            names = list(ways)
            for name in names[turn % len(names):] + names[:turn % len(names)]:
                server.wipe()
                server.put_template()
                result = ways[name]()
                found = server.count()
                assert found == options.events, f"{name}: {found} documents of {options.events}"
                results[name].append(result)
            print(f"round {turn + 1} of {options.rounds}, load {os.getloadavg()[0]:.1f}",
                  file=sys.stderr)
        base = {name: statistics.median(options.events / r["seconds"] for r in rows)
                for name, rows in results.items()}
        print("| way | documents a second, each round | median | of curl, 1 | of curl, 2 | CPU us "
              "a document | peak memory |")
        print("| --- | --- | --- | --- | --- | --- | --- |")
        for name, rows in results.items():
            each = " ".join(f"{options.events / r['seconds']:.0f}" for r in rows)
            own = ["", ""]
            if "cpu_seconds" in rows[0]:
                seconds = statistics.median(r["cpu_seconds"] for r in rows)
                peak = max(r["peak_kib"] for r in rows) / 1024
                before = max(r["before_kib"] for r in rows) / 1024
                own = [f"{seconds / options.events * 1e6:.0f}",
                       f"{peak:.0f} MiB (before: {before:.0f})"]
            print(f"| {name} | {each} | {base[name]:.0f} | "
                  f"{base[name] / base['curl, 1 connection']:.2f} | "
                  f"{base[name] / base['curl, 2 connections']:.2f} | {own[0]} | {own[1]} |")
    finally:
        server.remove()
        shutil.rmtree(work, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
