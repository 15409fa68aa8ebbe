"""An event that ends the process in a plugin costs a few restarts and becomes a dead letter; all
others arrive."""

import json

import pytest

import harness

JOBS = 1000
CULPRIT = "500"

pytestmark = pytest.mark.skipif(not (harness.TEST_PLUGINS / "crashing.so").exists(),
                                reason="the test plugins are not built")


def run_as_systemd(daemon, settled, most_restarts):
    """Starts it again whenever it dies, at once; returns how often, when settled(status) is
    true."""
    restarts = 0
    daemon.start(ready=False)

    def look():
        nonlocal restarts
        if not daemon.running():
            restarts += 1
            assert restarts <= most_restarts, \
        f"{restarts} restarts: a crash loop\n{daemon.log_tail()}"
            daemon.start(ready=False)
            return False
        return settled(daemon.status())
    harness.wait_for(
        look, lambda: f"all is settled, after {restarts} restarts\n{daemon.log_tail()}", 120)
    return restarts


# A crash of the kernel's making or by SIGKILL of anybody needs more of a proof.
@pytest.mark.parametrize("how, restarts", [("segfault", 3), ("recursion", 3), ("callback", 3),
                                           ("kill", 6)])
def test_the_event_that_ends_the_process_becomes_a_dead_letter_and_999_arrive(make_daemon,
                                                                              make_storm, work,
                                                                              archive, how,
                                                                              restarts):
    if harness.SANITIZED and how == "recursion":
        pytest.skip("a sanitizer handles the end of the stack itself")
    jobs = JOBS
    delivered = work / "delivered"
    daemon = make_daemon(sinks={"bad": {"plugin": "crashing", "job": CULPRIT,
                                        "file": str(delivered), "how": how,
                                        "batch_max_events": 100}}, plugin_dirs=harness.PLUGIN_DIRS)
    storm = make_storm(jobs).finish()
    needed = run_as_systemd(daemon, lambda s: s["sinks"]["bad"]["waiting"] == 0
                            and s["sinks"]["bad"]["dead"] == 1
                            and s["sinks"]["archive"]["waiting"] == 0 and len(archive.scripts())
                            == jobs, restarts)
    assert needed == restarts, f"{needed} restarts"
    assert set(delivered.read_text().split()) == set(storm.manifest()) - {CULPRIT}
    status = daemon.status()["sinks"]
    assert (status["bad"]["acknowledged_total"], status["bad"]["dead"]) == (jobs - 1,
                                                                            1), status["bad"]
    assert (status["archive"]["acknowledged_total"],
            status["archive"]["dead"]) == (jobs, 0), status["archive"]
    archive.compare(storm.manifest())
    letters = json.loads(daemon.command("deadletters", "list", "--json").stdout)
    letters = letters["dead_letters"] if isinstance(letters, dict) else letters
    assert [(letter["sink"], letter["job_id"]) for letter in letters] == [("bad", CULPRIT)]
    assert letters[0]["reason"].startswith("plugin crashed"), letters
    # After a clean stop and start no event is suspect any more.
    daemon.terminate()
    assert not (daemon.state_dir / "in-flight" / "suspects").exists()
    log = daemon.log_text()
    daemon.start()
    assert "CRASHED_BEFORE" not in daemon.log_text()[len(log):]


def test_so_does_one_that_comes_from_an_archive(make_daemon, spool, work, archive):
    """Its contents are not in the journal when the next start looks for what was in hand."""
    daemon = make_daemon(plugin_dirs=harness.PLUGIN_DIRS)
    daemon.start()
    for job in range(1, 21):
        spool.write(job)
    daemon.wait_acknowledged(20)
    daemon.terminate()
    daemon.config.write_text(harness.config_text(
        work, sinks={"bad": {"plugin": "crashing", "job": "7", "file": str(work / "delivered"),
                             "batch_max_events": 5}}, plugin_dirs=harness.PLUGIN_DIRS))
    daemon.start()
    daemon.command("sinks", "fill", "bad", "--no-wait", check=False)
    assert daemon.wait_exit() != 0, "the plugin ends it"
    run_as_systemd(daemon, lambda s: s["sinks"]["bad"]["dead"] == 1
                   and s["sinks"]["bad"]["acknowledged_total"] == 19, 3)
    assert set((work / "delivered").read_text().split()) == {str(job) for job in range(1, 21)
                                                             if job != 7}


def test_a_kill_from_outside_while_events_are_in_hand_condemns_none(make_daemon, make_storm, work):
    """Events that a slow destination holds are in flight at each kill; none of them is the
    cause."""
    gate = work / "gate"
    daemon = make_daemon(sinks={"archive": None, "slow": {"plugin": "sleepy", "file": str(gate),
                                                          "batch_max_events": 10}},
                         plugin_dirs=harness.PLUGIN_DIRS)
    make_storm(30).finish()
    for _ in range(4):
        daemon.start()
        daemon.wait_status(lambda s: s["sinks"]["slow"]["in_flight"] > 0, "a batch is in hand")
        daemon.kill()
    daemon.start()
    gate.touch()
    daemon.wait_status(lambda s: s["sinks"]["slow"]["acknowledged_total"] == 30,
                       "all are acknowledged")
    assert daemon.sink("slow")["dead"] == 0


def test_a_spool_entry_that_ends_the_process_is_passed_over_and_the_others_are_archived(
    make_daemon, spool, archive, work):
    if harness.SANITIZED:
        pytest.skip("the sanitizer's report takes the place of a quick end")
    scripts = {str(job): "#!/bin/sh\n# poison\n" if job == 5 else f"#!/bin/sh\n# {job}\n"
               for job in range(1, 10)}
    for job, script in scripts.items():
        (work / "odd" / job).mkdir(parents=True)
        (work / "odd" / job / "script").write_text(script)
    daemon = make_daemon(sources={"slurm": None,
                                  "odd": {"plugin": "odd_source", "at": "crash",
                                          "spool": str(work / "odd"),
                                          "resolve_timeout_seconds": 1}},
                         plugin_dirs=harness.PLUGIN_DIRS)
    restarts = run_as_systemd(daemon, lambda s: s["sinks"]["archive"]["waiting"] == 0
                              and len(archive.scripts()) == 8, 3)
    assert restarts == 2
    assert archive.scripts() == set(scripts) - {"5"}
    daemon.wait_log("ENTRY_UNPARSABLE.*ended the process")
    # And at every later start, until the entry changes.
    daemon.terminate()
    daemon.start()
    daemon.wait_log("ENTRY_UNPARSABLE.*ended the process", count=2)
    (work / "odd" / "5" / "script").write_text("#!/bin/sh\n# repaired\n")
    harness.wait_for(lambda: archive.scripts() == set(scripts),
                     lambda: f"the repaired entry is archived\n{daemon.log_tail()}")
