"""`scriptorium run --once`: scan, deliver, exit 0 only if everything was settled."""

import signal
import subprocess

import harness
from harness import EX_OK


def test_once_archives_a_spool_of_10000_entries_and_a_second_run_changes_nothing(make_daemon,
                                                                                 make_storm,
                                                                                 archive):
    storm = make_storm(harness.storm_jobs(10_000), script_bytes=600, variables=20).finish()
    daemon = make_daemon()
    daemon.command("run", "--once", seconds=300)
    archive.compare(storm.manifest())
    before = archive.snapshot()

    daemon.command("run", "--once", seconds=300)
    assert archive.snapshot() == before, "the second run changed the archive"


def test_once_takes_what_came_between_two_runs(make_daemon, make_storm, spool, archive):
    daemon = make_daemon()
    assert daemon.command("run", "--once").returncode == EX_OK, "the spool is empty"
    assert archive.scripts() == set()
    first = make_storm(20).finish()
    daemon.command("run", "--once")
    second = make_storm(20, first_id=21).finish()
    daemon.command("run", "--once")
    archive.compare({**first.manifest(), **second.manifest()})


def test_once_exits_69_and_keeps_the_events_when_the_archive_cannot_be_written(make_daemon,
                                                                               make_storm, work,
                                                                               archive):
    storm = make_storm(10).finish()
    # A file is in the place of the archive's date folder.
    daemon = make_daemon(sinks={"archive": {"layout": "blocked/{job_id}.{ext}"}},
                         shutdown_seconds=1)
    archive.path.mkdir(mode=0o750)
    (archive.path / "blocked").write_text("a file, not a folder")
    result = daemon.command("run", "--once", check=False)
    assert result.returncode == harness.EX_UNAVAILABLE, result.stderr

    (archive.path / "blocked").unlink()
    daemon.command("run", "--once")
    harness.Archive(archive.path / "blocked").compare(storm.manifest())


def test_once_that_is_interrupted_ends_soon_and_the_next_run_takes_the_rest(make_daemon,
                                                                            make_storm, archive):
    storm = make_storm(harness.storm_jobs(5000)).finish()
    daemon = make_daemon()
    process = subprocess.Popen([str(harness.SCRIPTORIUM), "run", "--once", "--config",
                                str(daemon.config)],
                               stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    harness.wait_for(lambda: archive.scripts(), "the first job is archived")
    process.send_signal(signal.SIGINT)
    assert process.wait(60 * harness.PATIENCE) == harness.EX_TEMPFAIL
    assert len(archive.scripts()) < len(storm.manifest()), \
        "it was done before it could be interrupted"
    daemon.command("run", "--once", seconds=300)
    archive.compare(storm.manifest())
