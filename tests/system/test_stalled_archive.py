"""An archive whose file server stalls (a FUSE file system whose process is stopped, as a hard NFS
mount whose server is gone): the daemon, its other sinks and its commands go on."""

import signal

import pytest

from harness import EX_OK, EX_UNAVAILABLE, Archive, config_text, wait_for

ARCHIVE = {"acl": "none"}  # on the file system of the fixture bindfs


def file_sink(path, **options):
    return {"plugin": "file", "root": str(path), "acl": "none", "layout": "{job_id}.{ext}",
            **options}


def waits_in(call):
    return lambda s: (s["sinks"]["archive"]["call_under_way"] or {}).get("name") == call


def wait_ready(daemon):
    daemon.wait_status(lambda s: s["sinks"]["archive"]["ready"], "the archive is ready")


def reload(daemon, text):
    daemon.config.write_text(text)
    daemon.process.send_signal(signal.SIGHUP)
    daemon.wait_log("RELOADED")


def stop(daemon, server, hangs):
    """The daemon gives up on what hangs while the server stays stopped. A thread of it may then
    still wait in the kernel for an answer, and the process can go only when that is there."""
    daemon.process.send_signal(signal.SIGTERM)
    daemon.wait_log(f"SINK_HANGS.* {hangs}")
    wait_for(lambda: daemon.log_text().rstrip().endswith("STOPPED: ends"), "it has ended its work")
    server.send_signal(signal.SIGCONT)
    assert daemon.wait_exit() == EX_OK, daemon.log_tail()


@pytest.mark.parametrize("when", ["at the start", "at a reload"])
def test_the_other_sink_gets_its_jobs_and_a_stop_ends_in_time(make_daemon, spool, work, archive,
                                                             bindfs, when):
    _, serve = bindfs
    server = serve()
    sinks = {"archive": ARCHIVE, "other": file_sink(work / "other")}
    daemon = make_daemon(sinks=sinks, shutdown_seconds=2)
    if when == "at the start":
        server.send_signal(signal.SIGSTOP)
        daemon.start()
    else:
        daemon.start()
        wait_ready(daemon)
        server.send_signal(signal.SIGSTOP)
        reload(daemon, config_text(work, sinks=sinks, shutdown_seconds=2, log_level="debug"))
    for job in range(1, 11):
        spool.write(job)
    daemon.wait_acknowledged(10, "other")
    assert len(Archive(work / "other").scripts()) == 10
    call = "start" if when == "at the start" else "deliver"
    daemon.wait_status(waits_in(call), "the call that hangs is named")
    assert "SCRIPTORIUM WARNING - archive: in a call" in wait_for(
        lambda: (text := daemon.command("status", "--check", check=False).stdout)
        and "WARNING" in text and text, "the monitoring is told")
    stop(daemon, server, f"sink=archive call={call}")
    daemon.start()
    daemon.wait_acknowledged(10)
    assert len(archive.scripts()) == 10


def test_a_sink_that_is_refilled_from_it_can_be_stopped_and_reloaded(make_daemon, make_storm, work,
                                                                    bindfs):
    _, serve = bindfs
    server = serve()
    blocked = work / "blocked"
    blocked.write_text("a file, not a folder")
    sinks = {"archive": ARCHIVE, "copy": file_sink(blocked / "copy", retry_max_ms=500)}
    core = {"journal_max_bytes": 1 << 20, "user_share_percent": 100, "shutdown_seconds": 2}
    daemon = make_daemon(sinks=sinks, **core).start()
    make_storm(400, script_bytes=8192).finish()
    daemon.wait_status(lambda s: s["sinks"]["archive"]["acknowledged_total"] == 400
                       and s["sinks"]["copy"]["refill_from_archive"] > 0,
                       "the journal leaves events to the archive")
    daemon.terminate()  # it has the newest events in memory
    daemon.start()
    wait_ready(daemon)
    server.send_signal(signal.SIGSTOP)
    blocked.unlink()
    blocked.mkdir(mode=0o700)
    daemon.wait_status(waits_in("read"), "the archive hangs in a read")
    # A reload that replaces the sink whose thread waits in that read.
    sinks["copy"]["batch_max_events"] = 50
    reload(daemon, config_text(work, sinks=sinks, **core))
    assert daemon.sink("copy")["waiting"] > 0
    stop(daemon, server, 'sink=copy call="read from an archive"')
    daemon.start()
    daemon.wait_acknowledged(400, "copy")
    assert len(Archive(blocked / "copy").scripts()) == 400


def test_check_says_which_sink_does_not_answer(make_daemon, spool, work, bindfs):
    _, serve = bindfs
    daemon = make_daemon(sinks={"archive": ARCHIVE, "other": file_sink(work / "other")})
    serve().send_signal(signal.SIGSTOP)
    checked = daemon.command("check", check=False)
    assert checked.returncode == EX_UNAVAILABLE, checked.stdout
    assert "failed   sink.archive: no answer within 30 s" in checked.stdout, checked.stdout
    assert "ok       sink.other: ready" in checked.stdout
