"""A sink that hangs, or that is not ready, holds up neither capture nor another sink, nor a reload,
a status or a stop."""

import signal

import pytest

import harness
from harness import EX_CONFIG, EX_OK, Archive, config_text

pytestmark = pytest.mark.skipif(not (harness.TEST_PLUGINS / "sleepy.so").exists(),
                                reason="this build has no test plugins: build the target "
                                       "broken_plugins")

CORE = {"plugin_dirs": harness.PLUGIN_DIRS, "shutdown_seconds": 1}


def stuck(work, at):
    return {"plugin": "sleepy", "at": at, "file": str(work / "gate"), "retry_max_ms": 20}


def reload(daemon, text):
    daemon.config.write_text(text)
    daemon.process.send_signal(signal.SIGHUP)
    daemon.wait_log("RELOADED")


def waits_in(call):
    return lambda s: (s["sinks"]["stuck"]["call_under_way"] or {}).get("name") == call


@pytest.mark.parametrize("at", ["start", "deliver"])
def test_a_sink_that_hangs_holds_up_nobody_and_gets_its_jobs_afterwards(make_daemon, spool, work,
                                                                        archive, at):
    daemon = make_daemon(sinks={"stuck": stuck(work, at)}, **CORE).start()
    spool.write(1)
    daemon.wait_acknowledged(1)
    status = daemon.wait_status(waits_in(at), "the call into the sink is named")
    assert status["sinks"]["stuck"]["ready"] == (at == "deliver")
    # A reload that does not concern it.
    reload(daemon, config_text(work, sinks={"stuck": stuck(work, at)}, log_level="debug", **CORE))
    spool.write(2)
    daemon.wait_acknowledged(2)
    # A sanitizer counts the thread that is left behind.
    assert daemon.terminate() == EX_OK or harness.SANITIZED, daemon.log_tail()
    daemon.wait_log(f"SINK_HANGS.* sink=stuck call={at}")
    assert archive.scripts() == {"1", "2"}

    daemon.start()
    spool.write(3)
    daemon.wait_acknowledged(3)
    (work / "gate").touch()
    daemon.wait_status(lambda s: s["sinks"]["stuck"]["acknowledged_total"] == 3,
                       "what waited is delivered")


@pytest.mark.parametrize("kept", [True, False], ids=["changed", "removed"])
def test_a_reload_does_not_wait_for_a_sink_that_hangs(make_daemon, spool, work, archive, kept):
    core = dict(CORE, shutdown_seconds=600)
    daemon = make_daemon(sinks={"stuck": stuck(work, "deliver")}, **core).start()
    spool.write(1)
    daemon.wait_status(waits_in("deliver"), "it hangs")
    other = dict(stuck(work, "deliver"), retry_max_ms=30) if kept else None
    reload(daemon, config_text(work, sinks={"stuck": other}, **core))
    assert daemon.status()["sinks"]["stuck"].get("configured", True) == kept
    spool.write(2)
    daemon.wait_acknowledged(2)
    (work / "gate").touch()
    if kept:
        daemon.wait_status(lambda s: s["sinks"]["stuck"]["acknowledged_total"] == 2,
                           "the new one starts when the old one has ended")
    assert daemon.terminate() == EX_OK, daemon.log_tail()
    assert "SINK_HANGS" not in daemon.log_text()


def test_a_start_that_is_refused_does_not_wait_for_a_sink_that_hangs(make_daemon, work, archive):
    daemon = make_daemon(sources={"slurm": {"spool": str(work / "nowhere")}},
                         sinks={"stuck": stuck(work, "start")}, **CORE).start(ready=False)
    assert daemon.wait_exit() == EX_CONFIG, daemon.log_tail()
    daemon.wait_log("START_REFUSED: source.slurm")


def test_a_sink_that_is_not_ready_is_tried_again_and_its_jobs_wait(make_daemon, spool, work,
                                                                   archive):
    """At a boot the folder may not be mounted yet; at a reload the same holds for a new sink."""
    late = {"plugin": "file", "root": str(work / "not" / "mounted"), "acl": "none",
            "layout": "{job_id}.{ext}", "retry_max_ms": 50}
    daemon = make_daemon(sinks={"late": late}, shutdown_seconds=1)
    checked = daemon.command("check", check=False)
    assert checked.returncode == EX_CONFIG and "no such directory" in checked.stdout
    daemon.start()
    spool.write(1)
    daemon.wait_acknowledged(1)
    status = daemon.wait_status(lambda s: s["sinks"]["late"]["not_ready"], "it is not ready")
    assert "no such directory" in status["sinks"]["late"]["not_ready"]
    assert status["sinks"]["late"]["waiting"] == 1
    health = daemon.command("status", "--check", check=False)
    assert health.returncode == 1 and "late: not ready: " in health.stdout, health.stdout
    assert "not ready: " in daemon.command("status").stdout

    later = dict(late, root=str(work / "later" / "mounted"))
    reload(daemon, config_text(work, sinks={"late": late, "later": later}, shutdown_seconds=1))
    spool.write(2)
    daemon.wait_acknowledged(2)

    # A new sink gets what the journal holds, so what waited for the other.
    for name, folder in (("later", "later"), ("late", "not")):
        (work / folder).mkdir(mode=0o700)
        daemon.wait_acknowledged(2, sink=name)
        assert Archive(work / folder / "mounted").scripts() == {"1", "2"}
    daemon.wait_log("SINK_READY", count=2)
    assert daemon.command("status", "--check").returncode == EX_OK
    assert daemon.terminate() == EX_OK


def test_two_sinks_that_meet_through_a_link_do_not_both_write(make_daemon, spool, work, archive):
    archive.path.mkdir()
    (work / "link").symlink_to(archive.path)
    linked = {"plugin": "file", "root": str(work / "link"), "acl": "none", "retry_max_ms": 50}
    daemon = make_daemon(sinks={"linked": linked}, shutdown_seconds=1)
    assert "both write into" in daemon.command("check", check=False).stdout
    daemon.start()
    spool.write(1)
    status = daemon.wait_status(
        lambda s: any(sink["not_ready"] for sink in s["sinks"].values())
        and sum(sink["acknowledged"] for sink in s["sinks"].values()) == 1,
        "one of them works, the other does not start")
    (refused,) = [sink["not_ready"] for sink in status["sinks"].values() if sink["not_ready"]]
    assert "[sink.archive] and [sink.linked] both write into" in refused \
        or "[sink.linked] and [sink.archive] both write into" in refused


def test_a_stop_does_not_wait_for_a_destination_that_takes_nothing(make_daemon, spool, archive):
    """A client library keeps events in hand while no broker can be reached."""
    if not (harness.BUILD / "plugins" / "kafka.so").exists():
        pytest.skip("this build has no sink kafka")
    if harness.THREAD_SANITIZED:
        pytest.skip("ThreadSanitizer of gcc 12 crashes in a thread that thrd_create() made, as "
                    "librdkafka's are: github.com/confluentinc/librdkafka/issues/4929")
    kafka = {"plugin": "kafka", "brokers": "127.0.0.1:1", "topic": "jobs"}  # nobody listens there
    daemon = make_daemon(sinks={"kafka": kafka}, shutdown_seconds=3600).start()
    spool.write(1)
    daemon.wait_acknowledged(1)
    daemon.wait_status(lambda s: s["sinks"]["kafka"]["plugin_status"]["connection"] == "down"
                       and s["sinks"]["kafka"]["in_flight"] == 1, "the event is in its hands")
    assert daemon.terminate() == EX_OK, daemon.log_tail()
    daemon.start()
    daemon.wait_status(lambda s: s["sinks"]["kafka"]["waiting"] == 1, "it is still there")
