"""A journal that is damaged while the daemon uses it, or that cannot be put aside at the start."""

import random
import re
import sqlite3

import pytest

import harness
from test_crash import damage_journal, needs_fault_build

EX_IOERR = 74
# More than any disk has: the archive takes nothing.
NO_ROOM = {"archive": {"min_free_bytes": 1 << 50}}


def damage_in_use(journal):
    """Noise over the index that every new event goes into and over some events' files, in a journal
    that the daemon holds open and has just been made to read it again."""
    with sqlite3.connect(journal, timeout=60) as db:
        db.execute("INSERT INTO positions VALUES('another', x'00')")
        db.commit()
        assert db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
        try:
            leaves = {name: [row[0] for row
                             in db.execute("SELECT pageno FROM dbstat WHERE name=? AND "
                                           "pagetype='leaf'", (name,))]
                      for name in ("sqlite_autoindex_events_1", "packs")}
        except sqlite3.OperationalError as e:
            pytest.skip(f"this SQLite cannot say which page is whose: {e}")
    with open(journal, "r+b") as file:
        for page in leaves["sqlite_autoindex_events_1"] + leaves["packs"][10:13]:
            file.seek((page - 1) * 4096)
            file.write(random.Random(page).randbytes(64))


def test_damage_under_the_running_daemon_ends_it_and_the_next_start_saves_what_is_intact(
    make_daemon, make_storm, archive):
    daemon = make_daemon(sinks=NO_ROOM).start()
    waiting = make_storm(1500, script_bytes=4000).finish()
    daemon.wait_status(lambda s: s["sinks"]["archive"]["waiting"] == 1500, "all are in the journal")
    damage_in_use(daemon.state_dir / "journal.db")
    more = make_storm(300, first_id=10_001).finish()
    code = daemon.wait_exit()
    assert code == EX_IOERR, daemon.log_tail()
    # systemd starts it again after any code but those of RestartPreventExitStatus.
    unit = (harness.ROOT / "packaging" / "systemd" / "scriptorium.service").read_text()
    assert str(EX_IOERR) not in re.search(r"^RestartPreventExitStatus=(.*)$", unit,
                                          re.M).group(1).split()
    log = daemon.log_text()
    assert log.count("JOURNAL_DAMAGED") == 1, daemon.log_tail()
    assert "JOURNAL_WRITE_FAILED" not in log, "it says that nothing is lost"

    daemon.config.write_text(daemon.config.read_text().replace(f"min_free_bytes = {1 << 50}",
                                                               "min_free_bytes = 0"))
    daemon.start()
    daemon.wait_log("JOURNAL_QUARANTINED")
    salvaged = int(re.search(r"salvaged_events=(\d+)", daemon.log_text()).group(1))
    assert 1400 < salvaged < 1500, daemon.log_tail()
    # What could not be read is still in the spool, and is captured again.
    everything = {**waiting.manifest(), **more.manifest()}
    harness.wait_for(lambda: set(everything) <= archive.scripts(),
                     lambda: f"{len(set(everything) - archive.scripts())} of {len(everything)} "
                             f"are not archived", 120)
    daemon.wait_status(lambda s: s["sinks"]["archive"]["waiting"] == 0, "nothing waits")
    archive.compare(everything)


@needs_fault_build
@pytest.mark.parametrize("fault, said", [
    ("journal.salvage_fold", "write"), ("journal.quarantine_rename", "rename"),
    ("journal.quarantine_unlink", "remove")])
def test_a_damaged_journal_that_cannot_be_put_aside_ends_the_start_and_loses_nothing(make_daemon,
                                                                                     make_storm,
                                                                                     archive,
                                                                                     fault, said):
    daemon = make_daemon(sinks=NO_ROOM).start()
    storm = make_storm(200).finish()
    daemon.wait_status(lambda s: s["sinks"]["archive"]["waiting"] == 200, "all are in the journal")
    daemon.terminate()
    damage_journal(daemon)
    for nth in (1, 2, 3):
        daemon.start(ready=False, environment={"SCRIPTORIUM_FAULT": f"{fault}:1:error=ENOSPC"})
        assert daemon.wait_exit() in (harness.EX_CANTCREAT, harness.EX_TEMPFAIL), daemon.log_tail()
        refused = [line for line in daemon.log_text().splitlines() if "START_REFUSED" in line]
        assert len(refused) == nth and said in refused[-1] and "no space" in refused[-1].lower(), \
        refused
    daemon.config.write_text(daemon.config.read_text().replace(f"min_free_bytes = {1 << 50}",
                                                               "min_free_bytes = 0"))
    daemon.start()
    harness.wait_for(lambda: set(storm.manifest()) <= archive.scripts(), "all are archived", 60)
    daemon.wait_status(lambda s: s["sinks"]["archive"]["waiting"] == 0, "nothing waits")
    archive.compare(storm.manifest())
