"""An archive whose file server stalls (a FUSE file system whose process is stopped, as a hard NFS
mount whose server is gone): the daemon, its other sinks and its commands go on."""

import os
import shutil
import signal
import subprocess

import pytest

import harness
from harness import EX_OK, EX_UNAVAILABLE, Archive, config_text, wait_for

pytestmark = pytest.mark.skipif(os.geteuid() != 0 or not os.path.exists("/dev/fuse")
                                or not shutil.which("bindfs"),
                                reason="mounting with bindfs needs root, /dev/fuse and bindfs")


class Mount:
    """work/mounted shows work/behind, until the process between them is stopped."""

    def __init__(self, work):
        self.path = work / "mounted"
        (work / "behind").mkdir(mode=0o700)
        self.path.mkdir()
        # The kernel remembers nothing, so that every call must ask the server.
        self.server = subprocess.Popen(["bindfs", "-f", "-o", "attr_timeout=0,entry_timeout=0",
                                        str(work / "behind"), str(self.path)])
        wait_for(lambda: os.path.ismount(self.path), "the file system is mounted")

    def stall(self):
        self.server.send_signal(signal.SIGSTOP)

    def go_on(self):
        self.server.send_signal(signal.SIGCONT)

    def close(self):
        self.go_on()
        subprocess.run(["umount", "-l", str(self.path)], check=False)
        self.server.kill()
        self.server.wait()


@pytest.fixture
def mount(work):
    mounted = Mount(work)
    yield mounted
    mounted.close()


def stalled_sink(mount):
    return {"plugin": "file", "root": str(mount.path), "acl": "none", "layout": "{job_id}.{ext}"}


def in_call(sink, name):
    return lambda s: (s["sinks"][sink]["call_under_way"] or {}).get("name") == name


@pytest.mark.parametrize("when", ["at the start", "at a reload"])
def test_the_other_sink_gets_its_jobs_and_a_stop_ends_in_time(make_daemon, spool, work, archive,
                                                             mount, when):
    sinks = {"stalled": stalled_sink(mount)}
    daemon = make_daemon(sinks=sinks, shutdown_seconds=2)
    if when == "at the start":
        mount.stall()
        daemon.start()
    else:
        daemon.start()
        daemon.wait_status(lambda s: s["sinks"]["stalled"]["ready"], "the sink is ready")
        mount.stall()
        daemon.config.write_text(config_text(work, sinks=sinks, shutdown_seconds=2,
                                             log_level="debug"))
        daemon.process.send_signal(signal.SIGHUP)
        daemon.wait_log("RELOADED")
    for job in range(1, 11):
        spool.write(job)
    daemon.wait_acknowledged(10)
    assert len(archive.scripts()) == 10
    call = "start" if when == "at the start" else "deliver"
    daemon.wait_status(in_call("stalled", call), "the call that hangs is named")
    assert "SCRIPTORIUM WARNING - stalled: in a call" in wait_for(
        lambda: (text := daemon.command("status", "--check", check=False).stdout)
        and "WARNING" in text and text, "the monitoring is told")
    assert daemon.terminate() == EX_OK, daemon.log_tail()
    daemon.wait_log(f"SINK_HANGS.* sink=stalled call={call}")

    mount.go_on()
    daemon.start()
    daemon.wait_acknowledged(10, sink="stalled")
    assert len(Archive(mount.path).scripts()) == 10


def test_a_sink_that_is_refilled_from_it_can_be_stopped_and_reloaded(make_daemon, make_storm, work,
                                                                    mount):
    blocked = work / "blocked"
    blocked.write_text("a file, not a folder")
    sinks = {"archive": None, "stalled": stalled_sink(mount),
             "copy": {"plugin": "file", "root": str(blocked / "copy"), "acl": "none",
                      "layout": "{job_id}.{ext}", "retry_max_ms": 500}}
    core = {"journal_max_bytes": 1 << 20, "user_share_percent": 100, "shutdown_seconds": 2}
    daemon = make_daemon(sinks=sinks, **core).start()
    make_storm(400, script_bytes=8192).finish()
    daemon.wait_status(lambda s: s["sinks"]["stalled"]["acknowledged_total"] == 400
                       and s["sinks"]["copy"]["refill_from_archive"] > 0,
                       "the journal leaves events to the archive")
    daemon.terminate()  # it has the newest events in memory
    daemon.start()
    daemon.wait_status(lambda s: s["sinks"]["stalled"]["ready"], "the archive is ready")
    mount.stall()
    blocked.unlink()
    blocked.mkdir(mode=0o700)
    daemon.wait_status(in_call("stalled", "read"), "the archive hangs in a read")
    # A reload that replaces the sink whose thread waits in that read.
    sinks["copy"]["batch_max_events"] = 50
    daemon.config.write_text(config_text(work, sinks=sinks, **core))
    daemon.process.send_signal(signal.SIGHUP)
    daemon.wait_log("RELOADED")
    assert daemon.sink("copy")["waiting"] > 0
    assert daemon.terminate() == EX_OK, daemon.log_tail()
    mount.go_on()
    daemon.start()
    daemon.wait_acknowledged(400, sink="copy")
    assert len(Archive(blocked / "copy").scripts()) == 400


def test_check_says_which_sink_does_not_answer(make_daemon, spool, mount):
    daemon = make_daemon(sinks={"stalled": stalled_sink(mount)})
    mount.stall()
    checked = daemon.command("check", check=False)
    assert checked.returncode == EX_UNAVAILABLE, checked.stdout
    assert "failed   sink.stalled: no answer within 30 s" in checked.stdout, checked.stdout
    assert "ok       sink.archive: ready" in checked.stdout
