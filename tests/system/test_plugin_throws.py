"""A plugin may throw anything, also something that is not a std::exception, in any call: the
command says so and does not crash."""

import pytest

import harness
from harness import EX_CONFIG, EX_OK, EX_UNAVAILABLE

pytestmark = pytest.mark.skipif(not (harness.TEST_PLUGINS / "odd_sink.so").exists(),
                                reason="this build has no test plugins: build the target "
                                       "broken_plugins")


def odd_sink(make_daemon, at):
    return make_daemon(sinks={"odd": {"plugin": "odd_sink", "at": at, "retry_max_ms": 20}},
                       plugin_dirs=harness.PLUGIN_DIRS,
                       shutdown_seconds=2)


@pytest.mark.parametrize("at, command, code", [
    ("options", ("check",), EX_CONFIG),
    ("options", ("run", "--once"), EX_CONFIG),
    ("create", ("check",), EX_CONFIG),
    ("create", ("run", "--once"), EX_CONFIG),
    ("check", ("check",), EX_UNAVAILABLE),
    ("setup", ("setup", "odd"), 70),
    ("find", ("show", "1"), EX_UNAVAILABLE),
])
def test_a_command_names_what_a_sink_throws_and_ends_in_order(make_daemon, spool, at, command,
                                                              code):
    result = odd_sink(make_daemon, at).command(*command, check=False)
    assert result.returncode == code, f"{result.returncode}: {result.stdout}{result.stderr}"
    assert "something that is not a std::exception" in result.stdout + result.stderr


def test_a_sink_that_throws_when_it_starts_is_not_ready_and_the_other_gets_its_job(make_daemon,
                                                                                   spool, archive):
    spool.write(1)
    daemon = odd_sink(make_daemon, "start").start()
    daemon.wait_acknowledged(1)
    daemon.wait_status(lambda s: "something that is not a std::exception"
                       in str(s["sinks"]["odd"]["not_ready"]), "the odd sink was started")
    assert daemon.sink("odd")["waiting"] == 1 and daemon.sink("odd")["attempts"] == 0
    assert daemon.terminate() == EX_OK, daemon.log_tail()
    assert archive.scripts() == {"1"}


@pytest.mark.parametrize("at", ["deliver", "stop", "status_json", "batches_under_way"])
def test_the_daemon_survives_what_a_sink_throws_and_the_other_sink_gets_its_job(make_daemon, spool,
                                                                                archive, at):
    spool.write(1)
    daemon = odd_sink(make_daemon, at).start()
    daemon.wait_acknowledged(1)
    daemon.wait_status(lambda s: s["sinks"]["odd"]["waiting"] == 0 or s["sinks"]["odd"]["dead"]
                       == 1, "the odd sink settles")
    assert daemon.terminate() == EX_OK, daemon.log_tail()
    assert archive.scripts() == {"1"}


SOURCE_CALLS = ["scheduler", "spool_root", "check_root", "make_resolver", "make_number_resolver",
                "classify", "assess", "parse",
                "path_of", "file_names", "number_of", "min_interval", "resolve", "numbers",
                "resolver_check"]


@pytest.mark.parametrize("at", SOURCE_CALLS)
def test_a_source_that_throws_ends_neither_check_nor_the_daemon(make_daemon, spool, archive, work,
                                                                at):
    spool.write(7)
    for name in ("1", "3"):  # 2 is left out: the scheduler is asked for it
        (work / "odd" / name).mkdir(parents=True)
        (work / "odd" / name / "script").write_text("#!/bin/sh\n")
    daemon = make_daemon(sources={"odd": {"plugin": "odd_source", "at": at,
                                          "spool": str(work / "odd"),
                                          "resolve_timeout_seconds": 1}},
                         plugin_dirs=harness.PLUGIN_DIRS, shutdown_seconds=2)
    checked = daemon.command("check", check=False)
    assert checked.returncode in (EX_OK, EX_UNAVAILABLE,
                                  EX_CONFIG), f"{checked.returncode}: {checked.stderr}"
    if at in ("spool_root", "check_root", "make_resolver", "resolver_check"):
        assert "something that is not a std::exception" in checked.stdout, checked.stdout

    once = daemon.command("run", "--once", check=False)
    assert once.returncode in (EX_OK, EX_UNAVAILABLE,
                               EX_CONFIG), f"{once.returncode}: {once.stderr}"
    if at in ("scheduler", "spool_root", "check_root", "make_resolver", "make_number_resolver"):
        assert once.returncode == EX_CONFIG and "something that is not a std::exception" \
            in once.stderr, once.stderr
    else:
        assert "7" in archive.scripts(), once.stderr
