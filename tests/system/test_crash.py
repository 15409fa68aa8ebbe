"""Nothing lost and nothing twice, wherever the daemon dies."""

import pathlib
import random
import re
import signal

import pytest

import harness

SEED = 20261121


def finish_and_compare(daemon, storms, archive, seconds=300):
    manifest = {}
    for storm in storms if isinstance(storms, list) else [storms]:
        manifest |= storm.finish(seconds).manifest()
    harness.wait_for(lambda: set(manifest) <= archive.scripts(),
                     lambda: f"{len(set(manifest) - archive.scripts())} of {len(manifest)} jobs "
                             f"are not archived", seconds)
    daemon.wait_acknowledged(len(manifest), seconds=seconds)
    archive.compare(manifest)
    status = daemon.sink()
    assert status["acknowledged_total"] == len(manifest), \
        f"{status['acknowledged']} settled, {len(manifest)} jobs: one was settled twice"
    assert status["dead"] == 0, status


def test_sigkill_at_random_moments_of_a_storm_of_20000_jobs_loses_none_and_doubles_none(
    make_daemon, make_storm, archive):
    jobs = harness.storm_jobs(20_000)
    chance = random.Random(SEED)
    daemon = make_daemon(shutdown_seconds=60).start()
    storms = [make_storm(jobs, rate=1500, script_bytes=1000, variables=20)]
    kills, least = 0, 3 if harness.SANITIZED else 5
    while kills < least or storms[-1].running():
        if not storms[-1].running():  # a slow machine takes longer to start the daemon
            storms.append(make_storm(jobs // 10, first_id=1_000_000 * len(storms), rate=1500))
        storm = storms[-1]
        # A random moment, told by the storm's own progress or by the time if the daemon is slow to
        # show any.
        target = len(archive.scripts()) + chance.randrange(50, 2000)
        moment = chance.uniform(0.05, 2.0)
        try:
            harness.wait_for(lambda t=target, s=storm: len(archive.scripts()) >= t
                             or not s.running(), "progress", moment / harness.PATIENCE,
                             step=0.005)
        except AssertionError:
            pass  # the time is up: that is a moment as good as any
        daemon.kill()
        kills += 1
        # Every third time it dies again while it starts.
        daemon.start(ready=kills % 3 != 0)
    daemon.wait_ready()
    finish_and_compare(daemon, storms, archive)


# ---- named fault points --------------------------------------------------------------------------
def fault_points(macro):
    """Every named point in the sources, so that a new one is tested without a word here."""
    names = set()
    for folder in ("core", "backends", "schedulers"):
        for file in (harness.ROOT / folder).rglob("*.cc"):
            names.update(re.findall(macro + r'\("([^"]+)"\)', file.read_text()))
    return sorted(names)


def is_fault_build():
    return b"SCRIPTORIUM_FAULT" in harness.SCRIPTORIUM.read_bytes()


needs_fault_build = pytest.mark.skipif(not is_fault_build(),
                                       reason="this build has no fault points (preset dev has)")


# Points that the common run, a storm of 300 jobs into one file sink, does not come by: how to come
# by them.
#   start    it lies in the start, so it is reached once in a life
#   large    scripts of 1.5 MB, as a checkpoint comes every 32 MiB of the write-ahead log
#   damage   the journal's file is damaged before the daemon starts with the fault
#   poison   a second sink throws at two of the jobs, which come from a second source
#   SIGTERM, SIGHUP   the daemon gets this signal in the middle of the storm
#   resolve  owners are asked of a scheduler that does not answer, so events wait for a second
#            before they go out
SCENARIO = {
    "journal.quarantine": "damage",
    "delivery.before_dead": "poison",
    "journal.before_resolved": "resolve",
    "journal.checkpoint": "large",
    "daemon.drain": "SIGTERM",
    "daemon.reload": "SIGHUP",
    "daemon.locked": "start",
    "journal.before_key": "start",
}
# Not reached by a storm into one file sink: the test that covers it.
ELSEWHERE = {
    "release.before": "test_sinks.py: a kill at any step of a release",
    "journal.before_release": "test_sinks.py: a kill at any step of a release",
    "journal.after_release": "test_sinks.py: a kill at any step of a release",
    "journal.dead_inserted": "journal_crash_test: a kill before the commit",
    "fill.before": "test_sinks.py: a kill in the middle of a fill",
    "usage.before_rename": "test_usage_here.py: a kill in the middle of writing",
    **dict.fromkeys(("mail.before_claim", "mail.claimed", "mail.handed_over", "mail.noted"),
                    "test_mail.py: a kill at any step"),
    **dict.fromkeys(("owners.before_replace", "journal.before_replace", "file.replaced",
                     "file.replaced_contents_removed"),
                    "test_owners_later.py: a kill at any step"),
    **dict.fromkeys(("redact.contents_written", "redact.prepared", "redact.content_replaced",
                     "redact.before_metadata", "redact.metadata_replaced", "redact.contents_moved",
                     "redact.metadata_moved"),
                    "test_redact_command.py: a kill at any step"),
    **dict.fromkeys(("catalog.new_database", "catalog.segment_made", "catalog.segment_added",
                     "catalog.block_written", "catalog.replaced", "catalog.families_committed",
                     "catalog.before_commit", "catalog.committed", "catalog.before_ack",
                     "catalog.sealed", "catalog.finish_step", "catalog.leaving",
                     "catalog.move_batch", "catalog.moved", "catalog.move_file_removed"),
                    "catalog_crash_test: a kill at any step"),
}


def kill_cases():
    for name in fault_points("FAULT_POINT"):
        for nth in (1, 5):
            if name in SCENARIO and nth > 1:
                continue
            yield pytest.param(name, nth, id=f"{name}:{nth}")


def damage_journal(daemon):
    """Turns a page in the middle of the journal's file into noise."""
    file = daemon.state_dir / "journal.db"
    for suffix in ("-wal", "-shm"):
        pathlib.Path(str(file) + suffix).unlink(missing_ok=True)
    data = bytearray(file.read_bytes())
    assert len(data) >= 8192, "the journal has only one page"
    for page in range(1, len(data) // 4096):
        data[page * 4096:page * 4096 + 64] = random.Random(page).randbytes(64)
    file.write_bytes(data)


@needs_fault_build
@pytest.mark.parametrize("name, nth", kill_cases())
def test_death_at_a_fault_point_and_again_at_the_same_point_loses_nothing(make_daemon, make_storm,
                                                                          work, archive, name, nth):
    reached = work / "reached"
    fault = {"SCRIPTORIUM_FAULT": f"{name}:{nth}:kill", "SCRIPTORIUM_FAULT_LOG": str(reached)}
    scenario = SCENARIO.get(name, "")
    if name in ELSEWHERE:
        pytest.skip(ELSEWHERE[name])
    sources, sinks, core = {}, {}, {}
    if scenario == "poison":
        recorded = work / "recorded"
        for job in ("poison-1", "poison-2"):
            (recorded / job).mkdir(parents=True)
            (recorded / job / "environment").write_bytes(b"A=1\0")
            (recorded / job / "script").write_bytes(b"#!/bin/sh\n")
        sources = {"replay": {"folder": str(recorded)}}
        sinks = {"poisoned": {"plugin": "throwing", "retry_max_ms": 20}}
        core = {"plugin_dirs": harness.PLUGIN_DIRS}
    elif scenario == "resolve":
        squeue = work / "squeue"
        squeue.write_text("#!/bin/sh\necho 'squeue: error: nobody answers' >&2\nexit 1\n")
        squeue.chmod(0o755)
        sources = {"slurm": {"resolve": "slurmctld", "resolve_timeout_seconds": 1,
                             "squeue": str(squeue)}}
    # Small batches, so that every step comes by many times.
    daemon = make_daemon(sources, {"archive": {"batch_max_events": 20, "batch_max_ms": 5},
                                   **sinks}, **core)
    if scenario == "damage":
        before = make_storm(50).finish()
        daemon.start()
        daemon.wait_acknowledged(50)
        daemon.terminate()
        damage_journal(daemon)
    daemon.start(ready=False, environment=fault)
    storms = []

    def next_storm():
        # A slow machine commits more jobs at once, so it reaches a point less often in the same
        # number of jobs.
        storms.append(make_storm(300, first_id=1001 * (len(storms) + 1), rate=600,
                                 script_bytes=1_500_000 if scenario == "large" else 2048))
    next_storm()
    died = 0
    signal_number = getattr(signal, scenario, None)
    # Twice: a recovery that dies at the same place must be as good.
    for _ in range(2):
        if signal_number is not None:
            daemon.wait_ready()
            seen = len(archive.scripts())
            harness.wait_for(lambda s=seen: len(archive.scripts()) > s or not storms[-1].running(),
                             "another job is archived")
            daemon.process.send_signal(signal_number)
        while True:
            harness.wait_for(lambda: not daemon.running()
                             or (not storms[-1].running() and settled(daemon, archive, storms)),
                             lambda: f"the daemon dies at its point, or is "
                                     f"done\n{daemon.log_tail()}", 60)
            if scenario or not daemon.running() or len(storms) == 5:
                break
            next_storm()
        if daemon.running():
            break
        assert daemon.process.returncode == -9, \
        f"ended with {daemon.process.returncode}, not by its fault\n{daemon.log_tail()}"
        died += 1
        daemon.start(ready=False, environment=fault)
    if daemon.running():
        # A point in the way of stopping is met now.
        daemon.process.terminate()
        if daemon.wait_exit() == -9:
            died += 1
    assert reached.exists() and died > 0, \
        f"dead test: {name} was not reached {nth} times in this run"
    daemon.start()
    for storm in storms:
        storm.finish()
    manifest = manifest_of(storms)
    if scenario == "damage":
        manifest.update(before.manifest())
    if scenario == "poison":
        manifest.update({job: (harness.sha256(b"#!/bin/sh\n"), harness.sha256(b"A=1\0"))
                         for job in ("poison-1", "poison-2")})
        daemon.wait_status(lambda s: s["sinks"]["poisoned"]["dead"] == 2
                           and s["sinks"]["poisoned"]["waiting"] == 0,
                           "both poisoned jobs are dead letters of the throwing sink")
    harness.wait_for(lambda: set(manifest) <= archive.scripts(),
                     lambda: f"{len(set(manifest) - archive.scripts())} of {len(manifest)} jobs "
                             f"are not archived\n{daemon.log_tail()}")
    daemon.wait_status(lambda s: s["sinks"]["archive"]["waiting"] == 0, "nothing waits")
    archive.compare(manifest)
    if scenario != "damage":  # a salvaged journal starts its counters at zero
        assert daemon.sink()["acknowledged_total"] == len(manifest), "an event was settled twice"
    assert daemon.sink()["dead"] == 0


def manifest_of(storms):
    return {job: sums for storm in storms for job, sums in storm.manifest().items()}


def settled(daemon, archive, storms):
    return set(manifest_of(storms)) <= archive.scripts() and daemon.sink()["waiting"] == 0


@needs_fault_build
@pytest.mark.parametrize("error", ["ENOSPC", "EIO"])
# Those of a start that finds damage are test_journal_damage.py's: there an error ends the start.
# What cannot be redacted is not delivered: test_redact.py. Executables: executable_reader_test.
@pytest.mark.parametrize("name", [name for name in fault_points("FAULT_ERROR")
                                  if not re.match(r"journal\.(quarantine|salvage)|redact|"
                                                  r"executables", name)])
def test_an_error_at_a_fault_point_delays_and_loses_nothing(make_daemon, make_storm, work, archive,
                                                            name, error):
    reached = work / "reached"
    fault = ",".join(f"{name}:{nth}:error={error}" for nth in (2, 3, 7))
    daemon = make_daemon(sinks={"archive": {"batch_max_events": 20, "batch_max_ms": 5}},
                         environment={"SCRIPTORIUM_FAULT": fault,
                                      "SCRIPTORIUM_FAULT_LOG": str(reached)}).start()
    storm = make_storm(300, rate=600)
    finish_and_compare(daemon, storm, archive, seconds=60)
    assert len(reached.read_text().split()) >= 3, \
        f"dead test: {name} was reached only {reached.read_text().split()}"
    assert daemon.running()
