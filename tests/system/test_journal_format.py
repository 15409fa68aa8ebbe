"""A journal of another format: never damaged, and refused in words by everything that would open
it."""

import hashlib
import json
import shutil
import sqlite3
from pathlib import Path

from harness import EX_CONFIG, Archive

FIXTURES = Path(__file__).parents[1] / "fixtures" / "journal"


def digest(folder):
    """Of everything in a state_dir that belongs to the journal. SQLite may leave an empty -wal, and
    -shm is no content."""
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(folder.iterdir())
            if p.name.startswith(("journal.db", "bad.")) and not p.name.endswith("-shm")
            and p.stat().st_size > 0}


def waiting_daemon(make_daemon, make_storm, archive):
    """A daemon that has ended and left 10 events in its journal, because something stands in the
    way of the archive's folder."""
    storm = make_storm(10).finish()
    daemon = make_daemon(sinks={"archive": {"layout": "blocked/{job_id}.{ext}"}},
                         shutdown_seconds=1)
    archive.path.mkdir(mode=0o750)
    (archive.path / "blocked").write_text("a file, not a folder")
    daemon.command("run", "--once", check=False)
    return daemon, storm


def edit(daemon, *statements):
    with sqlite3.connect(daemon.state_dir / "journal.db") as db:
        for statement in statements:
            db.execute(statement)
    db.close()


def check_refused(daemon, words):
    for command in (["run"], ["run", "--once"], ["deadletters", "list"]):
        result = daemon.command(*command, check=False)
        assert result.returncode == EX_CONFIG and words in result.stderr, (command, result.stderr)
        assert str(daemon.state_dir / "journal.db") in result.stderr
    result = daemon.command("check", check=False)
    assert result.returncode == EX_CONFIG and words in result.stdout


def test_an_older_journal_is_refused_by_every_command_and_not_touched(make_daemon, make_storm,
                                                                      archive):
    storm = make_storm(10).finish()
    daemon = make_daemon(sinks={"archive": {}})
    daemon.state_dir.mkdir(exist_ok=True)
    shutil.copy(FIXTURES / "format-3.db", daemon.state_dir / "journal.db")
    before = digest(daemon.state_dir)
    check_refused(daemon, "found journal format 3, this program needs 4; let the older "
                          "Scriptorium, which wrote it, deliver what it holds (until `scriptorium "
                          "status` says that nothing waits), then move the file away")
    assert digest(daemon.state_dir) == before
    (daemon.state_dir / "journal.db").rename(daemon.state_dir / "old-journal")
    daemon.command("run", "--once")
    archive.compare(storm.manifest())


def test_a_newer_journal_is_refused_by_every_command_and_not_touched(make_daemon, make_storm,
                                                                     archive):
    daemon, storm = waiting_daemon(make_daemon, make_storm, archive)
    edit(daemon, "PRAGMA user_version=5")
    before = digest(daemon.state_dir)
    check_refused(daemon, "found journal format 5, this program needs 4; install the newer "
                          "Scriptorium again, which wrote it")
    assert digest(daemon.state_dir) == before

    # The program that wrote it is installed again and continues.
    edit(daemon, "PRAGMA user_version=4")
    (archive.path / "blocked").unlink()
    daemon.command("run", "--once")
    Archive(archive.path / "blocked").compare(storm.manifest())


def test_what_a_newer_program_of_the_same_format_added_is_left_alone(make_daemon, make_storm,
                                                                     archive):
    daemon, storm = waiting_daemon(make_daemon, make_storm, archive)
    edit(daemon, "CREATE TABLE forecast(day TEXT, jobs INTEGER)",
         "INSERT INTO forecast VALUES('2027-01-01', 17)",
         "ALTER TABLE events ADD COLUMN colour TEXT", "UPDATE events SET colour='red'")
    (archive.path / "blocked").unlink()
    daemon.command("run", "--once")
    Archive(archive.path / "blocked").compare(storm.manifest())
    assert not list(daemon.state_dir.glob("bad.*")), "more than it knows is no damage"
    with sqlite3.connect(daemon.state_dir / "journal.db") as db:
        assert db.execute("SELECT day, jobs FROM forecast").fetchall() == [("2027-01-01", 17)]
    db.close()


def test_an_imports_journal_of_a_newer_format_is_refused_too(make_daemon, spool, work):
    daemon = make_daemon()
    (work / "tree").mkdir()
    (work / "tree" / "job.1_script").write_bytes(b"#!/bin/sh\n")
    daemon.command("import", "sarchive", work / "tree")
    with sqlite3.connect(daemon.state_dir / "import" / "journal.db") as db:
        db.execute("PRAGMA user_version=9")
    db.close()
    before = digest(daemon.state_dir / "import")
    result = daemon.command("import", "sarchive", work / "tree", "--json", check=False)
    assert result.returncode == EX_CONFIG and "found journal format 9" in result.stderr
    assert digest(daemon.state_dir / "import") == before
    # The daemon's own is another file, and works.
    assert json.loads(daemon.command("deadletters", "list", "--json", check=False).stdout
                      or "[]") == []
