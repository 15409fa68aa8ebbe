#!/usr/bin/env python3
"""Asks `scriptorium serve` for pages at a fixed rate while jobs come in, as a site's users do.

  page_bench.py [--build build/release] [--jobs 1000000] [--seconds 60] [--json FILE]

A catalog of so many jobs of 90 days, of 200 users in 20 accounts, each with script and use, is made
once in --directory (default /var/tmp/page-bench-JOBS) and kept; each run works on a copy of it,
beside it. The service runs as root, with a user database of its own in a mount namespace, and takes
this program for its proxy; a tenth of the users may see all jobs.

First each kind of page is asked for alone, one after the other, by users who see their own jobs and
by those who see all. Then 50 requests a second are sent at fixed times, whether earlier ones were
answered or not, 40 % Job, 30 % Search, 20 % Home, 10 % Reports, and a request's time counts from
when it was due. Beside it page_bench adds 500 jobs a second. A miss is an answer with 429 or 5xx,
none at all, or a page that says that something is missing; of these, all but the last count as a
minute.
"""

import argparse
import collections
import contextlib
import json
import os
import pathlib
import random
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "tests" / "system")]
sys.dont_write_bytecode = True

from harness import config_text, wait_for  # noqa: E402
from spool_bench import machine  # noqa: E402

MIX = {"Job": 40, "Search": 30, "Home": 20, "Reports": 10}
READERS = "page-bench-readers"  # the group of those who see all
READER_GID = 29_999
WARM_UP_SECONDS = 5
PATIENCE_SECONDS = 60
TICKS = os.sysconf("SC_CLK_TCK")
# What pages say when they do not have all that was asked for (core/page/texts.txt).
INCOMPLETE = ("home_too_slow", "searched_back", "search_too_long", "counting_too_long",
              "report_too_long")


def words_of_incomplete():
    texts = dict(line.split(" = ", 1) for line in
                 (ROOT / "core" / "page" / "texts.txt").read_text().splitlines() if " = " in line)
    return [max(texts[name].split("{}"), key=len).strip().encode() for name in INCOMPLETE]


# ---- the catalog --------------------------------------------------------------------------------
def filled(directory, filler, jobs):
    """The folder with `catalog` and `sample`, filled unless it is complete."""
    mark = directory / "complete"
    if not mark.exists():
        directory.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(directory / "catalog", ignore_errors=True)
        done = subprocess.run([filler, "fill", directory / "catalog", str(jobs),
                               directory / "sample"], check=True, stdout=subprocess.PIPE)
        mark.write_bytes(done.stdout)
        print("filled:", done.stdout.decode().strip(), flush=True)
    age = (time.time() - mark.stat().st_mtime) / 86400
    if age > 1:
        print(f"the newest of the jobs are {age:.1f} days old, so Home and Reports have less to "
              f"do; remove {directory} to fill it again")
    return [json.loads(line) for line in (directory / "sample").read_text().splitlines()]


# ---- what is asked for --------------------------------------------------------------------------
class Asker:
    """Makes requests of one kind, of any of the users, always the same ones in the same order."""

    def __init__(self, sample, readers, seed):
        self.random = random.Random(seed)
        self.sample, self.readers = sample, set(readers)
        self.rows = collections.defaultdict(list)
        for row in sample:
            self.rows[row["user"]].append(row)
        self.users = sorted(self.rows)

    def request(self, kind, users=None):
        user = self.random.choice(users or self.users)
        row = self.random.choice(self.sample if user in self.readers else self.rows[user])
        return kind, user, getattr(self, kind.lower())(user, row)

    def home(self, user, row):
        return "/"

    def job(self, user, row):
        return f"/job/lab/{row['id']}?at={urllib.parse.quote(row['at'])}"

    def reports(self, user, row):
        return f"/reports?by={self.random.choice(('user', 'account', 'partition'))}&since=30d"

    def search(self, user, row):
        queries = ["{word}", "{word} {other_word}", "{word} state:FAILED", "{word} since:30d",
                   "{word} partition:{partition}", "{word} account:{account}",
                   "module:{module} state:(FAILED OR TIMEOUT)", "name:{name}* since:30d",
                   "finding:cpu_low partition:{partition} since:7d"]
        if user in self.readers:
            queries += ["user:{user} {word}", "user:{user} state:OUT_OF_MEMORY"]
        return "/?q=" + urllib.parse.quote(self.random.choice(queries).format(**row))


# ---- the service --------------------------------------------------------------------------------
class Service:
    """`scriptorium serve` on a catalog, with the sample's users in a user database of its own."""

    def __init__(self, build, work, catalog, sample, readers):
        self.work, self.socket = work, work / "page.sock"
        config = config_text(work, sources={"slurm": None}, sinks={
            "archive": None, "catalog": {"plugin": "catalog", "root": str(catalog),
                                         "kinds": ["job.*", "usage.job"]}},
            plugin_dirs=[str(build / "plugins")])
        config += (f'\n[serve]\nsocket = "{work}/query.sock"\npage_socket = "{self.socket}"\n'
                   f'proxy_users = ["root"]\nreader_groups = ["{READERS}"]\n')
        (work / "scriptorium.toml").write_text(config)
        uids = sorted({(row["user"], row["uid"]) for row in sample})
        (work / "passwd").write_text(pathlib.Path("/etc/passwd").read_text() + "".join(
            f"{user}:x:{uid}:{uid}::/nonexistent:/bin/false\n" for user, uid in uids))
        (work / "group").write_text(pathlib.Path("/etc/group").read_text()
                                    + f"{READERS}:x:{READER_GID}:{','.join(readers)}\n")
        mount = (f'mount --bind "{work}/passwd" /etc/passwd && '
                 f'mount --bind "{work}/group" /etc/group && exec "$@"')
        with open(work / "log", "wb") as log:
            self.process = subprocess.Popen(
                ["unshare", "--mount", "sh", "-c", mount, "sh", build / "scriptorium", "serve",
                 "--config", work / "scriptorium.toml"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait_for(lambda: self.process.poll() is not None or "SERVE_STARTED" in self.log(),
                 "the service answers")
        if self.process.poll() is not None:
            sys.exit(f"page_bench: the service ended: {self.log()}")

    def log(self):
        return (self.work / "log").read_text()

    def get(self, user, path):
        """All bytes of the answer."""
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as connection:
            connection.settimeout(PATIENCE_SECONDS)
            connection.connect(str(self.socket))
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: page\r\nX-Remote-User: {user}\r\n"
                               "Connection: close\r\n\r\n".encode())
            parts = []
            while part := connection.recv(1 << 18):
                parts.append(part)
            return b"".join(parts)

    def cpu_seconds(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2]
        user, system = fields.split()[11:13]
        return (int(user) + int(system)) / TICKS

    def memory_mb(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return {name: int(re.search(rf"^{name}:\s+(\d+) kB", status, re.M).group(1)) >> 10
                for name in ("VmHWM", "RssAnon")}

    def stop(self):
        self.process.terminate()
        self.process.wait(60)


class Answers:
    """What came of the requests of one kind."""

    def __init__(self):
        self.seconds, self.statuses, self.sizes = [], collections.Counter(), []
        self.misses = collections.Counter()
        self.slowest = (0, "")

    def add(self, seconds, status, answer, asked, incomplete):
        self.statuses[status] += 1
        self.sizes.append(len(answer))
        if not status.isdigit() or status == "429" or status.startswith("5"):
            self.misses[status] += 1
            seconds = max(seconds, PATIENCE_SECONDS)
        elif any(words in answer for words in incomplete):
            self.misses["incomplete"] += 1
        self.seconds.append(seconds)
        self.slowest = max(self.slowest, (seconds, asked))

    def figures(self):
        def at(share):
            return round(1e3 * sorted(self.seconds)[round(share * (len(self.seconds) - 1))], 1)
        return {"requests": len(self.seconds), "statuses": dict(self.statuses),
                "misses": dict(self.misses),
                "ms": {"p50": at(0.5), "p95": at(0.95), "p99": at(0.99), "largest": at(1)},
                "page_bytes": {"median": sorted(self.sizes)[len(self.sizes) // 2],
                               "largest": max(self.sizes)},
                "slowest": self.slowest[1]}


class Bench:
    def __init__(self, service, asker):
        self.service, self.asker = service, asker
        self.incomplete = words_of_incomplete()
        self.lock = threading.Lock()

    def ask(self, request, due, answers):
        kind, user, path = request
        try:
            answer = self.service.get(user, path)
            status = answer[9:12].decode(errors="replace") if answer else "closed"
        except OSError as e:
            answer, status = b"", "late" if isinstance(e, TimeoutError) else "refused"
        seconds = time.monotonic() - due
        with self.lock:
            answers[kind].add(seconds, status, answer, f"{user} {path}", self.incomplete)

    def alone(self, count, users):
        """One request after the other, of these users: {kind: figures}."""
        rows = {}
        for kind in MIX:
            requests = [self.asker.request(kind, users) for _ in range(count)]
            answers = collections.defaultdict(Answers)
            self.ask(requests[0], time.monotonic(), collections.defaultdict(Answers))
            cpu = self.service.cpu_seconds()
            for request in requests:
                self.ask(request, time.monotonic(), answers)
            cpu = self.service.cpu_seconds() - cpu
            rows[kind] = {**answers[kind].figures(), "cpu_ms": round(1e3 * cpu / count, 1)}
        return rows

    def first_view(self):
        """Bytes of a page's style sheet, script and picture."""
        page = self.service.get(self.asker.users[0], "/").decode(errors="replace")
        return sum(len(self.service.get(self.asker.users[0], "/" + path))
                   for path in sorted(set(re.findall(r'"((?:\./)?static/[^"]+)"', page))))

    def load(self, rate, seconds):
        """{kind: figures} of requests at fixed times, after those of the warm-up."""
        kinds = self.asker.random.choices(list(MIX), MIX.values(),
                                          k=rate * (seconds + WARM_UP_SECONDS))
        requests = [self.asker.request(kind) for kind in kinds]
        answers, warming = (collections.defaultdict(Answers) for _ in range(2))
        threads, begin = [], time.monotonic()
        for number, request in enumerate(requests):
            due = begin + number / rate
            time.sleep(max(0, due - time.monotonic()))
            into = warming if number < rate * WARM_UP_SECONDS else answers
            threads.append(threading.Thread(target=self.ask, args=(request, due, into)))
            threads[-1].start()
        for thread in threads:
            thread.join()
        return {kind: answers[kind].figures() for kind in MIX}


# ---- output -------------------------------------------------------------------------------------
def print_table(result):
    head = ("page", "requests", "misses", "p50 ms", "p95", "p99", "largest", "status",
            "first view B", *("alone p50", "p95", "CPU ms"), *("reader p50", "p95", "CPU ms"))
    rows = [head]
    for kind in MIX:
        row = result["load"][kind]
        alone = [of[kind] for of in (result["alone"], result["alone_of_readers"])]
        rows.append((kind, row["requests"],
                     " ".join(f"{n} x {what}" for what, n in row["misses"].items()) or 0,
                     *(row["ms"][at] for at in ("p50", "p95", "p99", "largest")),
                     " ".join(f"{n} x {status}" for status, n in row["statuses"].items()),
                     max(one["page_bytes"]["largest"] for one in (row, *alone))
                     + result["asset_bytes"],
                     *(cell for one in alone
                       for cell in (one["ms"]["p50"], one["ms"]["p95"], one["cpu_ms"]))))
    widths = [max(len(str(row[i])) for row in rows) for i in range(len(head))]
    for row in rows:
        print("  ".join(str(cell).ljust(width) for cell, width in zip(row, widths)).rstrip())


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release",
                        help="a release build with SCRIPTORIUM_BENCH=ON")
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--directory", type=pathlib.Path,
                        help="of the filled catalog; default /var/tmp/page-bench-JOBS")
    parser.add_argument("--seconds", type=int, default=60, help="of load")
    parser.add_argument("--rate", type=int, default=50, help="requests a second")
    parser.add_argument("--ingest", type=int, default=500, help="jobs a second; 0: none")
    parser.add_argument("--alone", type=int, default=20, help="requests of each kind, one by one, "
                        "of users and of readers")
    parser.add_argument("--seed", type=int, default=1, help="of what is asked for")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE")
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("page_bench: needs root, to give the service a user database of its own")
    build, filler = options.build.resolve(), options.build.resolve() / "bench" / "page_bench"
    if not filler.exists():
        sys.exit(f"page_bench: no {filler}; configure with -DSCRIPTORIUM_BENCH=ON")
    directory = options.directory or pathlib.Path(f"/var/tmp/page-bench-{options.jobs}")
    sample = filled(directory, filler, options.jobs)
    users = sorted({row["user"] for row in sample})
    readers = users[::10]

    with contextlib.ExitStack() as at_end:
        work = pathlib.Path(tempfile.mkdtemp(prefix="page-bench-run-", dir=directory.parent))
        at_end.callback(shutil.rmtree, work, ignore_errors=True)
        catalog = work / "catalog"
        subprocess.run(["cp", "-a", "--reflink=auto", directory / "catalog", catalog], check=True)
        os.sync()
        opened = json.loads(subprocess.run([filler, "open", catalog], check=True,
                                           stdout=subprocess.PIPE).stdout)
        result = {"machine": machine(directory), "jobs": options.jobs,
                  "catalog_mb": sum(f.stat().st_size for f in catalog.rglob("*")
                                    if f.is_file()) >> 20,
                  "opening_seconds": round(opened["seconds"], 1)}
        print(json.dumps(result), flush=True)
        service = Service(build, work, catalog, sample, readers)
        at_end.callback(service.stop)
        bench = Bench(service, Asker(sample, readers, options.seed))
        result["asset_bytes"] = bench.first_view()
        result["alone"] = bench.alone(options.alone, sorted(set(users) - set(readers)))
        result["alone_of_readers"] = bench.alone(options.alone, readers)
        result["memory_mb_alone"] = service.memory_mb()

        ingest = None
        if options.ingest:
            ingest = subprocess.Popen(
                [filler, "ingest", catalog, str(options.ingest),
                 str(options.seconds + WARM_UP_SECONDS)], stdin=subprocess.PIPE,
                stdout=subprocess.PIPE)
            at_end.callback(ingest.kill)
            ingest.stdin.write(b"\n")
            ingest.stdin.flush()
        cpu, begin = service.cpu_seconds(), time.monotonic()
        result["load"] = bench.load(options.rate, options.seconds)
        took = time.monotonic() - begin
        result["service"] = {"memory_mb": service.memory_mb(), "load_seconds": round(took, 1),
                             "cpus_busy": round((service.cpu_seconds() - cpu) / took, 2)}
        if ingest:
            result["ingest"] = json.loads(ingest.communicate()[0])
    print_table(result)
    print("service:", json.dumps(result["service"]))
    print("ingest:", json.dumps(result.get("ingest")))
    for kind in MIX:
        print(f"slowest {kind}: {result['load'][kind]['ms']['largest']} ms",
              result["load"][kind]["slowest"])
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
