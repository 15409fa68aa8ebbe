"""What an operator does: check, status, reload, dead letters, a second daemon, a broken plugin."""

import json
import os
import re
import signal

import pytest

import harness
from harness import EX_CONFIG, EX_TEMPFAIL, scriptorium, wait_for

ON_DISK = True  # a real file system, with its ACLs and its syncs


@pytest.mark.parametrize("command", ["run", "check"])
def test_a_config_that_is_not_there_exits_78_with_its_name(work, command):
    result = scriptorium(command, "--config", work / "nowhere.toml", check=False)
    assert result.returncode == EX_CONFIG
    assert "nowhere.toml" in result.stdout + result.stderr


def test_status_has_the_keys_of_the_contract_and_a_screen_for_people(make_daemon, spool, archive):
    daemon = make_daemon().start()
    daemon.command("check")  # disturbs nothing while the daemon runs
    spool.write(1)
    daemon.wait_acknowledged(1)
    spool.write(11)  # this one is found by notification: hash.1 exists and is watched
    daemon.wait_status(lambda s: s["sources"]["slurm"]["lag_seconds"] is not None,
                       "the lag of a notification is known")
    daemon.wait_acknowledged(2)
    status = json.loads(daemon.command("status", "--json").stdout)
    assert re.match(r"\d+\.\d+\.\d+", status["version"])
    assert status["uptime_seconds"] >= 0
    source = status["sources"]["slurm"]
    assert source["plugin"] == "slurm"
    assert source["capture"] in ("fanotify", "inotify", "scan")
    assert source["captured"] == 2 and source["incomplete"] == 0
    assert isinstance(source["missed"], dict)
    assert isinstance(source["lag_seconds"], (int, float))
    assert source["last_error"] is None
    journal = status["journal"]
    assert journal["limit_bytes"] == 1 << 30 and journal["bytes"] >= 0 and journal["events"] >= 0
    sink = status["sinks"]["archive"]
    assert sink["plugin"] == "file" and sink["acknowledged"] == 2 and sink["dead"] == 0
    assert sink["retries"] == {} and sink["waiting"] == 0 and sink["waiting_bytes"] == 0
    assert sink["oldest_waiting_seconds"] in (None, 0)
    assert sink["last_error"] is None
    assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$", sink["last_success"])
    text = daemon.command("status").stdout
    assert "slurm" in text and "archive" in text
    assert "\x1b" not in text, "no colour in a pipe"


def test_the_metadata_beside_a_script_has_the_shape_of_schema_1(make_daemon, archive, spool):
    script, environment = spool.write(
        4711, script=b"#!/bin/bash\n#SBATCH --time=00:10:00\nmodule load GROMACS/2023.1\nsrun md\n")
    make_daemon().command("run", "--once")
    event = archive.metadata("4711")
    assert event["schema"] == "scriptorium.event/1"
    assert re.fullmatch(r"[0-9a-f]{64}", event["id"])
    assert event["kind"] == "job.script" and event["cluster"] == "lab" and event["scheduler"] \
        == "slurm"
    assert event["complete"] is True and event["capture"] == "scan"
    assert event["job"]["id"] == "4711"
    assert event["user"] is None or not event["user"].get("verified"), \
        "nobody was asked, so nothing may be verified"
    assert event["script"]["sha256"] == harness.sha256(script) and event["script"]["size"] \
        == len(script)
    assert event["script"]["interpreter"] == "/bin/bash"
    assert event["script"]["directives"] == ["--time=00:10:00"]
    assert event["script"]["modules"] == ["GROMACS/2023.1"]
    assert {f["name"] for f in event["files"]} == {"script", "environment"}


# ---- two daemons, reload, plugins ----------------------------------------------------------------
def test_a_second_daemon_on_the_same_state_dir_refuses_to_start(make_daemon, spool, work, archive):
    daemon = make_daemon().start()
    second = scriptorium("run", "--config", daemon.config, check=False)
    assert second.returncode == EX_TEMPFAIL, second.stderr
    assert str(daemon.state_dir) in second.stderr
    once = scriptorium("run", "--once", "--config", daemon.config, check=False)
    assert once.returncode == EX_TEMPFAIL, once.stderr
    spool.write(1)
    daemon.wait_acknowledged(1)


def test_sighup_with_a_bad_config_keeps_the_old_one(make_daemon, spool, archive):
    daemon = make_daemon().start()
    good = daemon.config.read_text()
    daemon.config.write_text(good + "\n[sink.archive]\nroot = 5\nnonsense = true\n")
    daemon.process.send_signal(signal.SIGHUP)
    daemon.wait_log(r"scriptorium\.toml:\d+")
    spool.write(1)
    daemon.wait_acknowledged(1)
    assert daemon.running()


def test_sighup_with_a_good_config_takes_the_new_one(make_daemon, spool, work, archive):
    daemon = make_daemon().start()
    spool.write(1)
    daemon.wait_acknowledged(1)
    second = harness.config_text(work, sinks={"second": {"plugin": "file",
                                                         "root": str(work / "second"),
                                                         "layout": "{job_id}.{ext}",
                                                         "acl": "best-effort"}})
    daemon.config.write_text(second)
    daemon.process.send_signal(signal.SIGHUP)
    daemon.wait_status(lambda s: "second" in s["sinks"], "status shows the new sink")
    spool.write(2)
    daemon.wait_status(lambda s: s["sinks"]["archive"]["acknowledged"] == 2
                       and s["sinks"]["second"]["waiting"] == 0
                       and s["sinks"]["second"]["acknowledged"] >= 1, "both sinks have job 2")
    assert "2" in harness.Archive(work / "second").scripts()


def test_reloads_that_change_everything_lose_none_of_a_storm(make_daemon, make_storm, work,
                                                             archive):
    """With fanotify the jobs are gone in the moment in which they were written."""
    daemon = make_daemon().start()
    fanotify = daemon.source()["capture"] == "fanotify"
    jobs = harness.storm_jobs(3000)
    storm = make_storm(jobs, rate=1000, lifetime_ms=0 if fanotify else -1)
    reloads = 0
    while storm.running() or reloads == 0:
        reloads += 1
        daemon.config.write_text(harness.config_text(
            work, sources={"slurm": {"rescan_seconds": 60 + reloads}},
            sinks={"archive": {"batch_max_ms": reloads}}))
        daemon.process.send_signal(signal.SIGHUP)
        daemon.wait_log("RELOADED", count=reloads)
    storm.finish()
    daemon.wait_acknowledged(jobs)
    archive.compare(storm.manifest())
    source = daemon.source()
    assert source["captured"] == jobs and not any(source["missed"].values()), "as if none came"


def test_a_reload_that_is_refused_changes_nothing(make_daemon, spool, work, archive):
    daemon = make_daemon().start()
    spool.write(1)
    daemon.wait_acknowledged(1)
    # Only the last of these can be refused, when all others have been made.
    daemon.config.write_text(harness.config_text(
        work, sources={"slurm": {"rescan_seconds": 61}, "zz": {"plugin": "slurm", "resolve": "none",
                                                               "spool": str(work / "nowhere")}},
        sinks={"archive": {"layout": "other/{job_id}.{ext}"}, "new": {"plugin": "null"}}))
    daemon.process.send_signal(signal.SIGHUP)
    daemon.wait_log("RELOAD_REFUSED.*nowhere")
    spool.write(2)
    daemon.wait_acknowledged(2)
    assert archive.scripts() == {"1", "2"} and not (archive.path / "other").exists()
    status = daemon.status()
    assert set(status["sinks"]) == {"archive"} and set(status["sources"]) == {"slurm"}
    assert status["sinks"]["archive"]["acknowledged"] == 2, "the same sink is still running"
    assert daemon.source()["captured"] == 2
    assert daemon.command("status", "--check", check=False).returncode == 1, "it says so"


def test_a_plugin_that_is_not_there_stops_the_start_and_names_the_folders(make_daemon, spool):
    daemon = make_daemon(sinks={"archive": {"plugin": "nosuchthing"}})
    result = scriptorium("run", "--config", daemon.config, check=False)
    assert result.returncode == EX_CONFIG
    assert "nosuchthing" in result.stderr and "plugins" in result.stderr


# One that is refused when it is loaded, when it makes its sink, and when it never returns from it;
# plugin_loader_test has every other reason.
@pytest.mark.skipif(not harness.TEST_PLUGINS.is_dir(), reason="this build has no broken plugins")
@pytest.mark.parametrize("name", ["no_descriptor", "throwing_factory", "hanging_factory"])
def test_a_broken_plugin_stops_the_start_and_is_named(make_daemon, spool, name):
    daemon = make_daemon(sinks={"archive": None, "bad": {"plugin": name}},
                         plugin_dirs=harness.PLUGIN_DIRS)
    result = scriptorium("run", "--config", daemon.config, check=False)
    assert result.returncode == EX_CONFIG, f"{result.returncode}: {result.stderr}"
    assert f"{name}.so" in result.stderr


# ---- dead letters --------------------------------------------------------------------------------
def write_recording(folder, name):
    (folder / name).mkdir(parents=True)
    (folder / name / "environment").write_bytes(b"A=1\0")
    (folder / name / "script").write_bytes(b"#!/bin/sh\necho %s\n" % name.encode())


@pytest.fixture
def poisoned(make_daemon, work, archive):
    """A daemon with a good sink and one that throws at job ids with "poison" in them; two of five
    jobs are such."""
    if not (harness.TEST_PLUGINS / "throwing.so").exists():
        pytest.skip("this build has no test plugins")
    folder = work / "recorded"
    for name in ("good-1", "poison-1", "good-2", "poison-2", "good-3"):
        write_recording(folder, name)
    daemon = make_daemon(sources={"slurm": None, "replay": {"folder": str(folder)}},
                         sinks={"bad": {"plugin": "throwing", "retry_max_ms": 20}},
                         plugin_dirs=harness.PLUGIN_DIRS)
    daemon.start()
    daemon.wait_status(lambda s: s["sinks"]["bad"]["dead"] == 2 and s["sinks"]["bad"]["waiting"]
                       == 0, "both poisoned jobs are dead letters")
    return daemon


def test_a_sink_that_throws_makes_dead_letters_of_the_poisoned_jobs_only(poisoned, archive):
    status = poisoned.wait_status(lambda s: s["sinks"]["archive"]["acknowledged"] == 5,
                                  "the good sink has all five")
    assert status["sinks"]["bad"]["acknowledged"] == 3
    text = poisoned.command("deadletters", "list").stdout
    assert "poison-1" in text and "poison-2" in text and "good" not in text
    letters = poisoned.request({"command": "deadletters.list"})
    assert {letter["job_id"] for letter in letters} == {"poison-1", "poison-2"}
    for letter in letters:
        assert letter["sink"] == "bad" and letter["attempts"] >= 3 and "plugin threw" \
        in letter["reason"]
        assert letter["event_id"][:12] in text or letter["event_id"][:8] in text
        shown = poisoned.command("deadletters", "show", letter["event_id"]).stdout
        assert letter["job_id"] in shown


def test_dead_letters_survive_a_restart_and_can_be_retried_and_discarded(poisoned):
    poisoned.kill()
    poisoned.start()
    letters = poisoned.request({"command": "deadletters.list"})
    assert len(letters) == 2
    one, other = letters[0]["event_id"], letters[1]["event_id"]

    poisoned.command("deadletters", "retry", one)
    # It is tried again, throws again, and is a dead letter again, with a later last attempt.
    def dead_again():
        now = {l["event_id"]: l for l in poisoned.request({"command": "deadletters.list"})}
        return one in now and now[one]["last_attempt"] > letters[0]["last_attempt"]
    wait_for(dead_again, "the retried one is a dead letter again, with a later attempt")

    poisoned.command("deadletters", "discard", other, "--yes")
    assert [l["event_id"] for l in poisoned.request({"command": "deadletters.list"})] == [one]
    poisoned.terminate()
    # And without a daemon, from the journal on disk.
    text = poisoned.command("deadletters", "list").stdout
    assert one[:8] in text and other[:8] not in text
    poisoned.command("deadletters", "discard", one, "--yes")
    assert poisoned.command("deadletters", "list").stdout.count("poison") == 0


# ---- show ----------------------------------------------------------------------------------------
def test_show_finds_a_job_in_the_archive_and_prints_its_script_raw_into_a_pipe(make_daemon, spool,
                                                                               archive):
    script, _ = spool.write(4711, script=b"#!/bin/sh\necho \xc3\xa9 found me\n")
    daemon = make_daemon().start()
    daemon.wait_acknowledged(1)
    result = daemon.command("show", "4711")
    assert "found me" in result.stdout
    assert "4711.sh" in result.stdout or "4711.sh" in result.stderr, \
        "show does not say where the job lies"
    daemon.terminate()
    assert "found me" in daemon.command("show", "4711").stdout, "show needs no daemon"


def test_the_stdout_sink_prints_one_json_event_a_line(make_daemon, spool, work):
    spool.write(1)
    spool.write(2)
    daemon = make_daemon(sinks={"archive": None, "print": {"plugin": "stdout"}})
    result = daemon.command("run", "--once")
    events = [json.loads(line) for line in result.stdout.splitlines()]
    assert sorted(e["job"]["id"] for e in events) == ["1", "2"]
    assert all(e["script"]["text"].startswith("#!/bin/bash") for e in events)


def test_the_scan_way_alone_finds_every_entry(make_daemon, make_storm, archive):
    daemon = make_daemon(sources={"slurm": {"capture": "scan", "rescan_seconds": 1}}).start()
    storm = make_storm(100).finish()
    daemon.wait_acknowledged(100)
    archive.compare(storm.manifest())
    assert daemon.source()["capture"] == "scan"


def test_sigint_ends_it_as_cleanly_as_sigterm(make_daemon, spool):
    daemon = make_daemon().start()
    daemon.process.send_signal(signal.SIGINT)
    assert daemon.wait_exit() == 0
    assert not os.path.exists(daemon.state_dir / "control.sock") or daemon.start()
