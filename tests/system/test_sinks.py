"""Sinks that come and go: one that is removed, forgotten, filled from an archive, or down for
longer than the journal is large."""

import base64
import datetime
import json
import os
import re
import signal

import pytest

from harness import EX_CONFIG, PATIENCE, Archive, config_text, scriptorium, sha256, wait_for

JOURNAL = 4 << 20
# A file of that name where the layout wants a folder: the sink retries until it is away.
BLOCKED = "blocked/{job_id}.{ext}"


def script(size=0):
    """A unique script; what `size` adds to it cannot be compressed much."""
    return b"#!/bin/sh\n# " + base64.b64encode(os.urandom(24 + size * 3 // 4)) + b"\ntrue\n"


class Jobs:
    """Writes jobs into the spool and knows what each archive must hold."""

    def __init__(self, spool):
        self.spool = spool
        self.written = {}
        self.last = 0

    def write(self, count, size=0):
        for _ in range(count):
            self.last += 1
            content = script(size)
            environment = [b"HOME=/home/alice", b"JOB=%d" % self.last]
            self.spool.write(self.last, content, environment)
            self.written[str(self.last)] = (sha256(content),
                                            sha256(b"".join(e + b"\0" for e in environment)))
        return self


@pytest.fixture
def jobs(spool):
    return Jobs(spool)


@pytest.fixture
def second(work):
    """The archive of a second sink, which is down: its folder is blocked."""
    path = work / "second"
    path.mkdir(mode=0o750)
    (path / "blocked").write_text("a file, not a folder")
    return Archive(path / "blocked")


def second_sink(work, **options):
    return {"plugin": "file", "root": str(work / "second"), "layout": BLOCKED,
            "acl": "best-effort", "retry_max_ms": 500, **options}


def reconfigure(daemon, work, sinks, **core):
    reloads = daemon.log_text().count("RELOADED") + 1
    daemon.config.write_text(config_text(work, sinks=sinks, **core))
    daemon.process.send_signal(signal.SIGHUP)
    daemon.wait_log("RELOADED", count=reloads)


def with_released_events(make_daemon, work, jobs):
    """A daemon whose second sink is down for so long that the archive alone holds some events."""
    daemon = make_daemon(sinks={"second": second_sink(work)}, journal_max_bytes=JOURNAL).start()
    jobs.write(300, 20_000)
    daemon.wait_acknowledged(300)
    daemon.wait_status(lambda s: s["sinks"]["second"]["refill_from_archive"] > 20,
                       "something was released")
    return daemon


def arrived(daemon, count):
    """Whether the archive has as many, or the daemon was killed."""
    try:
        return daemon.sink()["acknowledged_total"] >= count
    except OSError:
        return not daemon.running()
    except ValueError:  # cut off in an answer
        return not daemon.running()


def wait_journal_empty(daemon):
    """Until what was delivered has left the journal: a fill counts the rest of it as there, and not
    as sent."""
    daemon.wait_status(lambda s: s["journal"]["events"] == 0, "the journal is empty")


def filled(daemon):
    """What a fill says that it sent, and that was there or on its way. Which of the two an event
    counts as is a matter of time: the fill may be a second one if the first came to its end, and
    what the journal still holds gets to the sink by itself."""
    said = daemon.command("sinks", "fill", "new").stdout
    counts = re.fullmatch(
        r"(\d+) events sent to new from archive, (\d+) were already there or in flight\n", said)
    assert counts, said
    return int(counts[1]), int(counts[2])


def longest_wait_for_room(daemon):
    """Seconds that capture waited at the most because the journal was full; a moment, where a busy
    machine releases late."""
    longest, since = 0.0, None
    for time, what in re.findall(r"^(\S+) \w+ (JOURNAL_FULL|JOURNAL_HAS_ROOM|STARTED): ",
                                 daemon.log_text(), re.MULTILINE):
        at = datetime.datetime.fromisoformat(time)
        if what == "JOURNAL_HAS_ROOM" and since:
            longest = max(longest, (at - since).total_seconds())
        since = at if what == "JOURNAL_FULL" else None
    return float("inf") if since else longest


def outlast(daemon, jobs, archive, down, limit):
    """Ten times what the journal may hold passes it while the sink `down` takes nothing; nobody
    else notices."""
    before = jobs.last
    for round_number in range(160):
        jobs.write(15, 40_000)  # a tenth of the journal's limit, which is 8 MiB
        daemon.wait_acknowledged(jobs.last)
        if round_number in (60, 120):  # in the middle of it
            daemon.kill()
            daemon.start()
    assert sum(len(p.read_bytes()) for p in archive.path.glob("*.sh")) > 10 * limit
    archive.compare(jobs.written)
    status = daemon.status()
    waiting, written = status["sinks"][down], jobs.last - before
    assert waiting["waiting"] == written and waiting["refill_from_archive"] > written / 2, waiting
    assert status["journal"]["bytes"] < limit
    # A time, and so in the load tier: a release takes milliseconds, and the other sink stays away
    # for as long as this test likes.
    assert longest_wait_for_room(daemon) < 2 * PATIENCE, \
        "the healthy sink never waits for the other"
    return waiting


def sink_list(daemon):
    return {s["sink"]: s for s in json.loads(daemon.command("sinks", "list", "--json").stdout)}


def test_a_removed_sink_holds_nothing_new_and_the_others_go_on(make_daemon, work, jobs, archive,
                                                               second):
    core = {"journal_max_bytes": JOURNAL}
    daemon = make_daemon(sinks={"second": second_sink(work)}, **core).start()
    jobs.write(20, 16_000)
    daemon.wait_acknowledged(20)
    reconfigure(daemon, work, {}, **core)
    assert "SINK_UNKNOWN" in daemon.log_text() and "scriptorium sinks forget second" \
        in daemon.log_text()
    jobs.write(320, 30_000)
    daemon.wait_acknowledged(340)
    archive.compare(jobs.written)
    # The write-ahead log counts too, and is shorter after the next checkpoint.
    status = daemon.wait_status(lambda s: s["journal"]["bytes"] < JOURNAL / 2,
                                "what nobody needs has left the journal")
    assert status["sinks"]["second"]["waiting"] == 20
    text = daemon.command("status").stdout
    assert "not configured: 20 waiting" in text and "sinks forget second" in text
    check = daemon.command("status", "--check", check=False)
    assert check.returncode == 1 and "not configured: 20 waiting" in check.stdout

    # The same after a restart, and said again.
    daemon.terminate()
    daemon.start()
    daemon.wait_log("SINK_UNKNOWN", count=2)
    jobs.write(50)
    daemon.wait_acknowledged(390)
    assert daemon.sink("second")["waiting"] == 20

    # Back and reachable, it gets what waited, and what comes from now on.
    (work / "second" / "blocked").unlink()
    reconfigure(daemon, work, {"second": second_sink(work)}, **core)
    jobs.write(10)
    daemon.wait_acknowledged(30, "second")
    expected = {j: jobs.written[j] for j in list(jobs.written)[:20] + list(jobs.written)[-10:]}
    second.compare(expected)
    # The gap is closed from the archive.
    wait_journal_empty(daemon)
    again = daemon.command("sinks", "fill", "second")
    assert "400 events sent to second from archive" in again.stdout, again.stdout
    daemon.wait_acknowledged(430, "second")
    second.compare(jobs.written)


def test_what_waits_for_a_removed_sink_can_be_forgotten(make_daemon, work, jobs, archive, second):
    daemon = make_daemon(sinks={"second": second_sink(work)}).start()
    jobs.write(7)
    daemon.wait_acknowledged(7)
    refused = daemon.command("sinks", "forget", "second", "--yes", check=False)
    assert refused.returncode != 0 and "remove it there first" in refused.stderr
    reconfigure(daemon, work, {})
    asked = daemon.command("sinks", "forget", "second", check=False)
    assert asked.returncode != 0 and re.search(
        "7 waiting events, the oldest .* old, 0 dead letters", asked.stderr), asked.stderr
    assert sink_list(daemon)["second"]["waiting"] == 7 \
        and not sink_list(daemon)["second"]["configured"]
    forgotten = daemon.command("sinks", "forget", "second", "--yes")
    assert "forgotten, with 7 waiting events and 0 dead letters" in forgotten.stdout
    assert set(sink_list(daemon)) == {"archive"}
    wait_journal_empty(daemon)
    assert daemon.command("sinks", "forget", "second", "--yes", check=False).returncode != 0

    # With the daemon stopped.
    reconfigure(daemon, work, {"second": second_sink(work)})
    jobs.write(5)
    daemon.wait_acknowledged(12)
    daemon.terminate()
    daemon.config.write_text(config_text(work))
    forgotten = daemon.command("sinks", "forget", "second", "--yes")
    assert "forgotten, with 5 waiting events" in forgotten.stdout
    assert set(sink_list(daemon)) == {"archive"}
    daemon.start()
    assert "second" not in daemon.status()["sinks"]


def test_a_sink_that_is_down_for_ten_times_the_journal_stops_nobody_and_is_refilled(make_daemon,
                                                                                    work, jobs,
                                                                                    archive,
                                                                                    second):
    limit = 2 * JOURNAL  # of which the write-ahead log may be a megabyte
    daemon = make_daemon(sinks={"second": second_sink(work)}, journal_max_bytes=limit).start()
    waiting = outlast(daemon, jobs, archive, "second", limit)
    assert f"will be refilled from archive: {waiting['refill_from_archive']}" in daemon.command(
        "status").stdout
    before = archive.snapshot()

    (work / "second" / "blocked").unlink()
    daemon.wait_status(lambda s: s["sinks"]["second"]["acknowledged_total"] > 100,
                       "some of it was refilled")
    daemon.kill()
    daemon.start()
    daemon.wait_status(lambda s: s["sinks"]["second"]["waiting"] == 0, "all of it was refilled",
                       seconds=180)
    second.compare(jobs.written)
    assert archive.snapshot() == before
    for job in list(jobs.written)[:: jobs.last // 50]:
        assert second.metadata(job) == archive.metadata(job)
    wait_journal_empty(daemon)
    assert daemon.sink("second")["dead"] == 0


def test_what_is_gone_from_the_archive_is_a_dead_letter_of_the_sink_that_waited(make_daemon, work,
                                                                                jobs, archive,
                                                                                second):
    daemon = with_released_events(make_daemon, work, jobs)
    released = daemon.sink("second")["refill_from_archive"]
    daemon.terminate()  # so that the first ones are not in hand
    daemon.start()
    assert daemon.sink("second")["refill_from_archive"] >= released
    (archive.path / "3.json").unlink()
    (archive.path / "5.sh").write_text("changed\n")
    (work / "second" / "blocked").unlink()
    daemon.wait_status(lambda s: s["sinks"]["second"]["waiting"] == 0, "nothing waits", seconds=120)
    letters = json.loads(daemon.command("deadletters", "list", "--json").stdout)
    reasons = {letter["job_id"]: letter["reason"] for letter in letters}
    # What the sink had in its hands while it was down it has got all the same.
    assert set(reasons) <= {"3", "5"} and all("gone from the archive" in r
                                              for r in reasons.values()), reasons
    have = second.scripts()
    assert have | set(reasons) >= set(jobs.written)


def test_a_new_sink_is_filled_from_the_archive_across_a_kill(make_daemon, work, jobs, archive):
    daemon = make_daemon().start()
    jobs.write(1500)
    daemon.wait_acknowledged(1500)
    target = Archive(work / "new")
    new = {"new": {"plugin": "file", "root": str(target.path), "layout": "{job_id}.{ext}",
                   "acl": "best-effort",
                   "retry_max_ms": 500}}
    reconfigure(daemon, work, new)
    jobs.write(10)
    daemon.wait_acknowledged(10, "new")
    wait_journal_empty(daemon)
    daemon.command("sinks", "fill", "new", "--no-wait")
    daemon.wait_status(lambda s: s["sinks"]["new"]["fill"]["sent"] > 0, "the fill has begun")
    daemon.kill()
    daemon.start()
    assert sum(filled(daemon)) == 1510
    daemon.wait_acknowledged(1520, "new")
    target.compare(jobs.written)
    for job in list(jobs.written)[::100]:
        assert target.metadata(job) == archive.metadata(job)
    before = target.snapshot()
    daemon.command("sinks", "fill", "new", "--from", "archive", "--since", "1d")
    wait_for(lambda: daemon.sink("new")["waiting"] == 0, "nothing waits")
    assert target.snapshot() == before, "a second fill changes nothing"
    assert daemon.status()["sinks"]["archive"]["waiting"] == 0

    refused = daemon.command("sinks", "fill", "new", "--stop", check=False)
    assert refused.returncode != 0 and "new is not being filled" in refused.stderr
    # While its archive cannot be read a fill would wait for ever.
    archive.path.rename(work / "away")
    daemon.command("sinks", "fill", "new", "--no-wait")
    daemon.wait_log("FILL_WAITS")
    assert "stopped: 0 of 0" in daemon.command("sinks", "fill", "new", "--stop").stdout
    (work / "away").rename(archive.path)
    assert "stopped" in daemon.command("sinks", "list").stdout
    daemon.command("sinks", "fill", "new")
    assert target.snapshot() == before, "a fill after a stop changes nothing either"

    for arguments, words in ((["nobody"], "no sink nobody"),
                             (["new", "--from", "new"], "cannot be filled from itself"),
                             (["new", "--from", "nobody"], "no sink nobody that can be read"),
                             (["new", "--since", "soon"], "soon")):
        result = daemon.command("sinks", "fill", *arguments, check=False)
        assert result.returncode != 0 and words in result.stderr, (arguments, result.stderr)
    daemon.terminate()
    result = daemon.command("sinks", "fill", "new", check=False)
    assert result.returncode != 0 and "no daemon runs" in result.stderr


@pytest.mark.parametrize("point", ["release.before", "journal.before_release",
                                   "journal.after_release", "journal.after_commit"])
def test_a_kill_at_any_step_of_a_release_loses_nothing(make_daemon, work, jobs, archive, second,
                                                       point):
    nth = 40 if point == "journal.after_commit" else 2
    daemon = make_daemon(sinks={"second": second_sink(work)}, journal_max_bytes=JOURNAL)
    daemon.start(environment={"SCRIPTORIUM_FAULT": f"{point}:{nth}:kill"})
    while daemon.running() and jobs.last < 3000:
        jobs.write(20, 20_000)
        wait_for(lambda: arrived(daemon, jobs.last), "the archive has them")
    assert daemon.wait_exit() == -signal.SIGKILL, "the point was not reached"
    daemon.start()
    daemon.wait_status(lambda s: s["sinks"]["archive"]["waiting"] == 0
                       and s["sinks"]["second"]["waiting"] == jobs.last,
                       "the archive has all, and all wait for the other")
    archive.compare(jobs.written)
    (work / "second" / "blocked").unlink()
    daemon.wait_status(lambda s: s["sinks"]["second"]["waiting"] == 0, "nothing waits", seconds=120)
    second.compare(jobs.written)
    assert daemon.sink("second")["dead"] == 0


def test_a_kill_in_a_fill_loses_nothing(make_daemon, work, jobs, archive):
    target = Archive(work / "new")
    new = {"plugin": "file", "root": str(target.path), "layout": "{job_id}.{ext}",
           "acl": "best-effort"}
    daemon = make_daemon().start()
    jobs.write(1200)
    daemon.wait_acknowledged(1200)
    wait_journal_empty(daemon)
    daemon.terminate()
    daemon.config.write_text(config_text(work, sinks={"new": new}))
    daemon.start(environment={"SCRIPTORIUM_FAULT": "fill.before:2:kill"})
    daemon.command("sinks", "fill", "new", "--no-wait")
    assert daemon.wait_exit() == -signal.SIGKILL
    daemon.start()
    assert sum(filled(daemon)) == 1200
    wait_for(lambda: daemon.sink("new")["waiting"] == 0, "nothing waits")
    target.compare(jobs.written)


def test_a_refused_reload_is_seen_and_acknowledged_goes_on(make_daemon, work, jobs):
    daemon = make_daemon().start()
    jobs.write(12)
    daemon.wait_acknowledged(12)
    good = daemon.config.read_text()
    daemon.config.write_text(good.replace('layout = "{job_id}.{ext}"', 'layout = "{jobid}.{ext}"'))
    daemon.process.send_signal(signal.SIGHUP)
    daemon.wait_log("RELOAD_REFUSED")
    lines = daemon.command("status", check=False).stdout.splitlines()
    assert any("reload was refused" in line and "layout" in line for line in lines[:3]), lines[:5]
    check = daemon.command("status", "--check", check=False)
    assert check.returncode == 1 and "the last reload was refused" in check.stdout
    assert "{jobid}" in daemon.status()["reload_refused"] \
        or "layout" in daemon.status()["reload_refused"]

    # A changed sink is a new one; its count continues.
    daemon.config.write_text(good.replace("retry_max_ms = 500", "retry_max_ms = 600"))
    daemon.process.send_signal(signal.SIGHUP)
    daemon.wait_log("RELOADED")
    assert daemon.status()["reload_refused"] is None
    row = next(line for line in daemon.command("status").stdout.splitlines()
               if line.startswith("archive "))
    assert re.search(r"\b12\b", row), row
    assert daemon.command("status", "--check").returncode == 0


@pytest.mark.parametrize("root", ["archive", "archive/inner", "link"])
def test_two_sinks_with_one_root_are_refused(make_daemon, work, root):
    (work / "archive").mkdir(mode=0o750)
    (work / "link").symlink_to(work / "archive")
    daemon = make_daemon(sinks={"second": {"plugin": "file", "root": str(work / root),
                                           "acl": "best-effort"}})
    checked = daemon.command("check", check=False)
    assert checked.returncode != 0 and "give each its own directory" in checked.stdout, \
        checked.stdout
    started = daemon.command("run", "--once", check=False)
    assert started.returncode == EX_CONFIG and "give each its own directory" \
        in started.stderr, started.stderr
    assert scriptorium("version").returncode == 0


def test_a_sink_gets_what_an_older_archive_holds_by_the_rules_of_today(make_daemon, work, spool,
                                                                       archive):
    daemon = make_daemon(redact="off").start()
    secret, name = b"Kx9blaueKatze", b"LAB_SESSION=gruenerHund"
    for job in range(1, 21):
        line = b"export DB_PASSWORD=%s\n" % secret if job % 5 == 0 else b""
        spool.write(job, b"#!/bin/bash\n%strue\n" % line, [b"HOME=/home/alice", name])
    daemon.wait_acknowledged(20)
    daemon.terminate()
    target = Archive(work / "new")
    new = {"new": {"plugin": "file", "root": str(target.path), "layout": "{job_id}.{ext}",
                   "acl": "best-effort"}}
    daemon.config.write_text(config_text(
        work, redact="default", sinks=new,
        sources={"slurm": {"environment": {"drop": ["LAB_*"]}}}))
    daemon.start()
    daemon.command("sinks", "fill", "new")
    wait_for(lambda: daemon.sink("new")["waiting"] == 0, "all of it has arrived")
    assert target.scripts() == archive.scripts() == {str(job) for job in range(1, 21)}
    for file in (f for f in target.path.iterdir() if f.is_file()):
        content = file.read_bytes()
        assert secret not in content and name not in content, file
    assert b"DB_PASSWORD=[redacted:" in (target.path / "10.sh").read_bytes()
    for job in range(1, 21):
        was, now = archive.metadata(job), target.metadata(job)
        assert (now["id"] != was["id"]) == (job % 5 == 0), "the id is over the script that is kept"
        assert (target.path / f"{job}.env").read_bytes() == b"HOME=/home/alice\0"
    before = target.snapshot()
    daemon.command("sinks", "fill", "new")
    wait_for(lambda: daemon.sink("new")["waiting"] == 0, "all of it has arrived again")
    assert target.snapshot() == before


def test_an_archive_that_is_not_mounted_is_not_begun_again_in_its_mount_point(make_daemon, work,
                                                                              jobs, archive,
                                                                              second):
    daemon = with_released_events(make_daemon, work, jobs)
    daemon.terminate()
    archive.path.rename(work / "mounted")
    archive.path.mkdir()
    (work / "second" / "blocked").unlink()
    daemon.start()
    status = daemon.wait_status(lambda s: s["sinks"]["archive"]["not_ready"], "it is not ready")
    assert "is its file system mounted?" in status["sinks"]["archive"]["not_ready"]
    daemon.wait_log("JOURNAL_READ_FAILED")
    jobs.write(2)
    daemon.wait_status(lambda s: s["sinks"]["archive"]["waiting"] == 2, "two jobs wait for it")
    assert not list(archive.path.iterdir())
    assert daemon.sink("second")["dead"] == 0
    archive.path.rmdir()
    (work / "mounted").rename(archive.path)
    daemon.wait_status(lambda s: all(sink["waiting"] == 0 for sink in s["sinks"].values()),
                       "all was delivered", seconds=120)
    assert [daemon.sink(name)["dead"] for name in ("archive", "second")] == [0, 0]
    archive.compare(jobs.written)
    second.compare(jobs.written)
