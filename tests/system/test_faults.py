"""What the machine around the daemon can do to it: disks that stall, fill or turn read-only, clocks
that jump, names that move, processes that cannot be made. Nothing is lost by any of it, and what is
not hit continues. docs/testing.md says which fault of which kind is tested where."""

import contextlib
import gzip
import http.server
import json
import mmap
import os
import pathlib
import re
import resource
import shutil
import signal
import socket
import struct
import subprocess
import threading
import time

import pytest

import harness
from harness import wait_for


# ---- the archive's disk --------------------------------------------------------------------------
def remount(path, options):
    subprocess.run(["mount", "-o", f"remount,{options}", str(path)], check=True)


def retries_for(words, sink="archive"):
    return lambda s: any(words in reason for reason in s["sinks"][sink]["retries"])


def test_with_every_inode_of_the_archives_disk_used_jobs_wait_until_there_are_more(make_daemon,
                                                                                   make_storm,
                                                                                   mount_tmpfs,
                                                                                   archive):
    mount_tmpfs("archive", "size=64m,nr_inodes=100")
    daemon = make_daemon().start()
    storm = make_storm(100).finish()  # three files each
    daemon.wait_status(retries_for("no space left"), "status says that the disk is full")
    assert 0 < len(archive.scripts()) < 100
    remount(archive.path, "nr_inodes=100000")
    daemon.wait_acknowledged(100)
    archive.compare(storm.manifest())
    assert daemon.sink()["dead"] == 0


def test_an_archive_that_is_remounted_read_only_is_waited_for(make_daemon, make_storm, mount_tmpfs,
                                                              archive):
    mount_tmpfs("archive", "size=64m")
    daemon = make_daemon().start()
    make_storm(50).finish()
    daemon.wait_acknowledged(50)
    before = archive.snapshot()
    remount(archive.path, "ro")
    storm = make_storm(50, first_id=101).finish()
    daemon.wait_status(retries_for("read-only"), "status says that the file system is read-only")
    assert archive.snapshot() == before
    remount(archive.path, "rw")
    daemon.wait_acknowledged(100)
    assert set(storm.manifest()) <= archive.scripts()
    assert daemon.sink()["dead"] == 0


def test_an_archive_that_stalls_holds_up_neither_the_other_sink_nor_status_nor_the_end(
    bindfs, make_daemon, make_storm, work, archive):
    place, serve = bindfs
    server = serve()
    other = harness.Archive(work / "other")
    daemon = make_daemon(sinks={"other": {"plugin": "file", "root": str(other.path),
                                          "layout": "{job_id}.{ext}", "acl": "none"},
                                "archive": {"acl": "none"}}, shutdown_seconds=2).start()
    make_storm(20).finish()
    daemon.wait_acknowledged(20)
    server.send_signal(signal.SIGSTOP)
    storm = make_storm(30, first_id=101).finish()
    status = daemon.wait_status(lambda s: s["sinks"]["other"]["acknowledged_total"] == 50,
                                "the other sink has all")
    assert status["sinks"]["archive"]["acknowledged_total"] == 20
    assert status["sinks"]["archive"]["waiting"] == 30
    daemon.process.send_signal(signal.SIGTERM)
    # It waits no longer for the sink, although the server stays stopped. Its thread waits in the
    # kernel for the server, and only then can the process go.
    daemon.wait_log("SINK_HANGS")
    server.send_signal(signal.SIGCONT)
    daemon.wait_exit()
    daemon.start()
    daemon.wait_acknowledged(50)
    assert set(storm.manifest()) <= archive.scripts()

    # And one whose server dies: an error at each call until it is mounted again.
    server.kill()
    server.wait()
    make_storm(10, first_id=201).finish()
    daemon.wait_status(lambda s: s["sinks"]["archive"]["retries"]
                       and s["sinks"]["other"]["acknowledged_total"] == 60,
                       "the archive's deliveries are tried again, the other sink has all")
    subprocess.run(["umount", "-l", str(place)], check=True)
    serve()
    daemon.wait_acknowledged(60)
    assert len(archive.scripts()) == 60 and daemon.sink()["dead"] == 0


# ---- the clock -----------------------------------------------------------------------------------
CLOCK = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static volatile long* shift(void) {
  static volatile long* at;
  if (at == 0) {
    static long none;
    const char* file = getenv("CLOCK_SHIFT");
    int fd = file == 0 ? -1 : open(file, O_RDONLY | O_CLOEXEC);
    void* map = fd < 0 ? MAP_FAILED : mmap(0, 4096, PROT_READ, MAP_SHARED, fd, 0);
    if (fd >= 0) close(fd);
    at = map == MAP_FAILED ? &none : map;
  }
  return at;
}
int clock_gettime(clockid_t id, struct timespec* t) {
  int result = (int)syscall(SYS_clock_gettime, id, t);
  if (result == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) t->tv_sec += *shift();
  return result;
}
int gettimeofday(struct timeval* t, void* zone) {
  struct timespec now;
  (void)zone;
  clock_gettime(CLOCK_REALTIME, &now);
  t->tv_sec = now.tv_sec;
  t->tv_usec = now.tv_nsec / 1000;
  return 0;
}
time_t time(time_t* t) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (t != 0) *t = now.tv_sec;
  return now.tv_sec;
}
"""


@pytest.fixture
def clock(work):
    """(environment, set(seconds)): the wall clock of one process only, off by so
    many seconds at any time."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or harness.SANITIZED:
        pytest.skip(
            "needs a C compiler, and a build without sanitizers (they want to be preloaded first)")
    source, library, offset = work / "clock.c", work / "clock.so", work / "clock.offset"
    source.write_text(CLOCK)
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(source)],
                   check=True)
    offset.write_bytes(b"\0" * 4096)
    file = open(offset, "r+b")
    memory = mmap.mmap(file.fileno(), 4096)
    yield ({"LD_PRELOAD": str(library), "CLOCK_SHIFT": str(offset)},
           lambda seconds: memory.__setitem__(slice(0, 8), struct.pack("=q", seconds)))
    memory.close()
    file.close()


def test_a_clock_that_jumps_neither_holds_a_retry_nor_brings_anything_twice(clock, make_daemon,
                                                                            make_storm, work,
                                                                            archive):
    environment, shift = clock
    daemon = make_daemon(sinks={"archive": {"retry_max_ms": 2000}}, environment=environment).start()
    make_storm(30).finish()
    daemon.wait_acknowledged(30)
    # The archive is away; while its deliveries wait for their back-off the clock goes back, as at
    # the end of summer and by far.
    archive.path.rename(work / "away")
    archive.path.write_text("")
    make_storm(30, first_id=101).finish()
    daemon.wait_status(lambda s: s["sinks"]["archive"]["retries"], "deliveries are tried again")
    shift(-3600)
    archive.path.unlink()
    (work / "away").rename(archive.path)
    daemon.wait_acknowledged(60)  # not an hour later
    # A day ahead, everything is inspected again: nothing comes twice, for no id is made of our
    # clock.
    shift(86400)
    scans = daemon.source()["scans"]
    daemon.process.send_signal(signal.SIGHUP)
    daemon.wait_status(lambda s: s["sources"]["slurm"]["scans"] > scans,
                       "the spool is scanned again")
    before = archive.snapshot()
    # After the 32-bit seconds have ended, and then before all that it knows, also at the start.
    for first, years in ((1001, 20), (2001, -20)):
        daemon.terminate()
        shift(years * 365 * 86400)
        daemon.start()
        make_storm(20, first_id=first).finish()
        daemon.wait_status(lambda s, f=first: {str(f + i) for i in range(20)} <= archive.scripts()
                           and s["sinks"]["archive"]["waiting"] == 0,
                           "the new ones are archived")
        assert daemon.command("status", check=False).returncode == 0
        year = int(archive.metadata(first)["captured_at"][:4])
        assert abs(year - time.gmtime().tm_year
                   - years) <= 1, f"the daemon's clock was not set off: {year}"
    after = archive.snapshot()
    assert {name: after[name] for name in before} == before
    assert daemon.sink()["dead"] == 0 and daemon.sink()["acknowledged_total"] == 100


# ---- processes -----------------------------------------------------------------------------------
PERIOD_SECONDS = 1.5  # the watchdog's


def test_stopped_and_continued_it_has_lost_nothing_and_told_the_watchdog_no_lie(make_daemon,
                                                                                make_storm, work,
                                                                                archive):
    if b"WATCHDOG=1" not in harness.SCRIPTORIUM.read_bytes():
        pytest.skip("built without libsystemd")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        address = str(work / "notify")
        notify.bind(address)
        os.chmod(address, 0o777)
        daemon = make_daemon(environment={"NOTIFY_SOCKET": address,
                                          "WATCHDOG_USEC": str(int(PERIOD_SECONDS * 1e6))}).start()

        def waiting_pings():
            """Signs of life that were told and not read yet."""
            count = 0
            notify.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while True:
                    count += b"WATCHDOG=1" in notify.recv(4096)
            return count

        def wait_pings():
            """Until two came within one period; the machine may delay some of them."""
            last = [float("-inf")]

            def two():
                before = last[0]
                if waiting_pings() > 0:
                    last[0] = time.monotonic()
                return last[0] > before and last[0] - before < PERIOD_SECONDS
            wait_for(two, "it tells that it lives, more than once in each period")
        wait_pings()
        daemon.process.send_signal(signal.SIGSTOP)
        wait_for(lambda: pathlib.Path(f"/proc/{daemon.process.pid}/stat").read_text().rsplit(
            ")", 1)[1].split()[0] == "T", "it is stopped")
        waiting_pings()
        storm = make_storm(500, rate=200).finish()  # for longer than the watchdog's period
        assert waiting_pings() == 0, "a stopped process tells that it lives"
        daemon.process.send_signal(signal.SIGCONT)
        daemon.wait_acknowledged(500)
        wait_pings()
        archive.compare(storm.manifest())
        notify.setblocking(True)
        notify.settimeout(60)
        daemon.process.terminate()
        while not (told := notify.recv(4096)).startswith(b"STOPPING=1"):
            pass
        # systemd's TimeoutStopSec may be shorter than shutdown_seconds.
        assert int(told.split(b"EXTEND_TIMEOUT_USEC=")[1]) > 30_000_000


def start_as(daemon, uid, most=None, **how):
    """As a user who may have so many threads and processes, `most`."""
    def become():
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
        if most is not None:
            resource.setrlimit(resource.RLIMIT_NPROC, (most, most))
    daemon.start(preexec_fn=become, **how)
    if most is None:
        # Its socket answers before all of its threads are made.
        wait_for(lambda: "STARTED" in daemon.log_file.read_text(), "it has started")


def test_with_no_process_to_be_had_jobs_are_archived_unverified_and_squeue_is_asked_again(
    make_daemon, make_storm, work, archive):
    if not harness.IS_ROOT:
        pytest.skip("needs root, to be a user whose processes are counted, and who has none")
    uid = 200_000_000 + os.getpid()
    asked = work / "asked"
    squeue = work / "squeue"
    squeue.write_text(f"#!/bin/sh\necho . >> {asked}\nexit 1\n")
    squeue.chmod(0o755)
    for name in ("spool", "state", "archive"):
        (work / name).mkdir(exist_ok=True)
        os.chown(work / name, uid, uid)
    asked.write_text("")
    os.chmod(asked, 0o666)
    daemon = make_daemon(sources={"slurm": {"resolve": "slurmctld", "resolve_timeout_seconds": 2,
                                            "squeue": str(squeue), "rescan_seconds": 1}},
                         sinks={"archive": {"acl": "none"}})

    def entries(first):
        for job in range(first, first + 5):
            spool.write(job)
        for path in spool.path.rglob("*"):
            os.chown(path, uid, uid)
    spool = harness.Spool(work / "spool")
    start_as(daemon, uid)
    threads = len(os.listdir(f"/proc/{daemon.process.pid}/task"))
    daemon.terminate()
    start_as(daemon, uid, threads)  # so many it needs itself, and one more cannot be had
    entries(1)
    daemon.wait_acknowledged(5, seconds=60)
    assert not asked.read_text(), "squeue was run after all"
    owners = daemon.source()["owners"]
    assert owners["failed_queries"] > 0 and sum(owners["unverified"].values()) == 5, owners
    assert "temporarily unavailable" in owners["last_error"], owners
    daemon.terminate()
    start_as(daemon, uid)
    entries(11)
    wait_for(lambda: asked.read_text(), lambda: f"squeue is run again\n{daemon.log_tail()}")
    daemon.wait_acknowledged(10, seconds=60)
    assert daemon.sink()["dead"] == 0


def test_with_too_few_threads_it_says_so_or_delivers_with_fewer_workers(make_daemon, work):
    if not harness.IS_ROOT:
        pytest.skip("needs root, to be a user whose threads are counted, and who has none")
    uid = 300_000_000 + os.getpid()
    for name in ("spool", "state", "archive"):
        (work / name).mkdir(exist_ok=True)
        os.chown(work / name, uid, uid)
    daemon = make_daemon(sources={"slurm": {"resolve": "none"}},
                         sinks={"archive": {"acl": "none", "workers": 3}})

    def threads():
        tasks = pathlib.Path(f"/proc/{daemon.process.pid}/task")
        return [(task / "comm").read_text() for task in tasks.iterdir()]
    start_as(daemon, uid)
    wait_for(lambda: sum("archive" in name for name in threads()) == 3,
             lambda: f"three workers: {threads()}")
    enough = len(threads())
    daemon.terminate()
    spool = harness.Spool(work / "spool")
    # The sanitizer's search for leaks would need a thread of its own.
    options = os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"
    delivered = 0
    for most in range(1, enough + 1):
        job = 1000 + most
        spool.write(job)
        for path in spool.path.rglob("*"):
            os.chown(path, uid, uid)
        daemon.log_file.write_text("")
        start_as(daemon, uid, most, ready=False, environment={"ASAN_OPTIONS": options})
        wait_for(lambda job=job: not daemon.running() or (
            any((work / "archive").rglob(f"{job}*.sh"))
            and "STARTED" in daemon.log_file.read_text()),
            lambda: f"it has ended, or started and delivers\n{daemon.log_tail()}")
        if daemon.running():
            delivered += 1
            assert daemon.terminate() == 0
            log = daemon.log_file.read_text()
            assert ("SINK_FEWER_WORKERS" in log) == (most < enough), log
        else:
            assert daemon.process.returncode == 75, daemon.log_tail()
            assert "no more threads can be had" in daemon.log_file.read_text()
    assert daemon.process.returncode == 0 and delivered >= 1


# ---- names ---------------------------------------------------------------------------------------
class BulkServer(http.server.ThreadingHTTPServer):
    """As much of Elasticsearch as the sink needs: it keeps the ids of what it is given."""

    def __init__(self, address):
        self.ids = []
        self.connections = []

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self):
                super().setup()
                self.server.connections.append(self.connection)

            def answer(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                result = {"version": {"number": "8.19.0", "build_flavor": "default"},
                          "tagline": "You Know, for Search"}
                if self.path.startswith("/_bulk") or "/_bulk" in self.path:
                    items = [json.loads(line) for line in body.splitlines()[::2]]
                    ids = [next(iter(item.values()))["_id"] for item in items]
                    self.server.ids += ids
                    result = {"took": 1, "errors": False,
                              "items": [{"create": {"_id": i, "status": 201, "result": "created"}}
                                        for i in ids]}
                elif self.path != "/":
                    result = {}
                data = b"" if self.command == "HEAD" else json.dumps(result).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("X-Elastic-Product", "Elasticsearch")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)
            do_GET = do_POST = do_PUT = do_HEAD = answer

            def log_message(self, *_):
                pass
        super().__init__(address, Handler)
        self.daemon_threads = True
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def stop(self):
        self.shutdown()
        self.server_close()
        for connection in self.connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it has ended by itself

    def handle_error(self, *_):
        pass


def test_a_destination_whose_name_leads_elsewhere_is_followed(make_daemon, make_storm, work):
    """The name's address changes while the daemon runs, and the old one answers no more."""
    if not harness.IS_ROOT or not shutil.which("unshare"):
        pytest.skip("needs root: the daemon gets an /etc/hosts of its own, in a mount namespace")
    if not (harness.BUILD / "plugins" / "elasticsearch.so").exists():
        pytest.skip("the plugin for Elasticsearch is not built")
    first = BulkServer(("127.0.0.2", 0))
    port = first.server_address[1]
    hosts = work / "hosts"
    hosts.write_text("127.0.0.2 search.test\n")
    daemon = make_daemon(sinks={"archive": None, "search": {"plugin": "elasticsearch",
                                                            "hosts": [f"http://search.test:{port}"],
                                                            "retry_max_ms": 1000}})
    daemon.start(by=["unshare", "-m", "sh", "-c",
                     f'mount --bind "{hosts}" /etc/hosts && exec "$@"', "sh"])
    make_storm(20).finish()
    daemon.wait_acknowledged(20, "search")
    assert len(set(first.ids)) == 20
    second = BulkServer(("127.0.0.3", port))
    first.stop()
    make_storm(20, first_id=101).finish()
    daemon.wait_status(lambda s: s["sinks"]["search"]["waiting"] == 20 or second.ids,
                       "the old address answers no more")
    hosts.write_text("127.0.0.3 search.test\n")
    daemon.wait_acknowledged(40, "search")
    assert len(set(second.ids)) == 20 and not set(first.ids) & set(second.ids)
    assert daemon.sink("search")["dead"] == 0
    second.stop()


# ---- one entry for very many jobs ----------------------------------------------------------------
def resident_mb(pid):
    return int(re.search(r"VmHWM:\s+(\d+)",
                         pathlib.Path(f"/proc/{pid}/status").read_text()).group(1)) / 1024


def test_an_array_of_75000_tasks_is_one_event_and_costs_no_memory(fresh_slurm, make_daemon, work,
                                                                  archive, ordinary_user):
    from test_slurm import LAYOUT, slurm_source, wait_event
    slurm = fresh_slurm("--nodes", "1", "--conf", "MaxArraySize=75001", "--conf",
                        "MaxJobCount=80000")
    daemon = make_daemon(sources=slurm_source(slurm), sinks=LAYOUT).start()
    job = slurm.sbatch("--hold", "-a", "0-74999", user=ordinary_user)
    _, event = wait_event(archive, job)
    assert event["user"]["verified"] is True and event["job"]["array"]["task_spec"] == "0-74999", \
        event["job"]
    # Tasks of their own, with job ids of their own and no entry in the spool.
    for task in range(5, 10):
        slurm.run("scontrol", "update", f"JobId={job}_{task}", "Nice=1")
        own = re.search(r"JobId=(\d+)",
                        slurm.run("scontrol", "show", "job", f"{job}_{task}").stdout).group(1)
        assert own != job, "the task did not become a job of its own"
    slurm.run("scancel", job)
    status = daemon.wait_status(lambda s: s["sinks"]["archive"]["waiting"] == 0, "nothing waits")
    assert status["sources"]["slurm"]["captured"] == 1, status["sources"]["slurm"]
    assert status["sources"]["slurm"]["gaps"]["suspected"] == 0, status["sources"]["slurm"]["gaps"]
    assert resident_mb(daemon.process.pid) < 128 * harness.PATIENCE
