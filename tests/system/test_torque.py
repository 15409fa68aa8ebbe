"""Torque, without a Torque: every recorded trace of a real server's spool is played again as the
same system calls, in their order and at their pace, and the archive must hold what the trace tells
was submitted, byte for byte, each once."""

import dataclasses
import hashlib
import json
import signal
import subprocess

import pytest

import harness
from harness import ROOT, wait_for

FIXTURES = ROOT / "tests" / "fixtures" / "torque"
SPOOL_TRACE = harness.BUILD / "tests" / "spool-trace"
TRACES = sorted(p.stem for p in (FIXTURES / "traces").glob("*.txt"))
CHUNK = 65536

# Shorter than that, inotify may come too late, and then must count it; what exists longer it must
# have.
INOTIFY_SEES = 100_000 * harness.PATIENCE  # microseconds


@dataclasses.dataclass
class Script:
    path: str
    job: str
    size: int
    sha256: str
    life: float  # microseconds; -1 = it stays
    chunks: int

    @property
    def complete(self):
        return self.size % CHUNK != 0


class Trace:
    def __init__(self, name, work):
        self.file = FIXTURES / "traces" / f"{name}.txt"
        self.home = work / "torque"
        self.manifest_file = work / "manifest"

    def run(self, command, *options):
        subprocess.run([str(SPOOL_TRACE), command, str(self.file), str(self.home), "--fixtures",
                        str(FIXTURES), *options],
                       check=True, timeout=300)

    def prepare(self):
        self.run("prepare")
        return self

    def play(self, **options):
        arguments = [w for key, value in options.items() for w in ("--" + key.replace("_", "-"),
                                                                   str(value))]
        self.run("play", "--manifest", str(self.manifest_file), *arguments)
        return self

    def scripts(self):
        rows = [line.split() for line in self.manifest_file.read_text().splitlines()]
        return [Script(path, job, int(size), digest, float(life), int(chunks))
                for path, job, size, digest, life, chunks in rows]


def archived(archive):
    """{job id: [(event, script's bytes)]} of everything in the folder, whatever its name is."""
    jobs = {}
    for file in sorted(archive.path.rglob("*.json")):
        if not file.name.startswith(".") and "fence" not in file.name:
            event = json.loads(file.read_bytes())
            script = file.with_name(file.name[:-len(".json")] + ".sh")
            jobs.setdefault(event["job"]["id"], []).append((event, script.read_bytes()))
    return jobs


def source(trace, way, **options):
    return {"slurm": None, "torque": {"spool": str(trace.home), "capture": way, **options}}


def start(make_daemon, trace, way, **options):
    if way == "fanotify" and not harness.IS_ROOT:
        pytest.skip("fanotify needs root")
    return make_daemon(sources=source(trace, way, **options)).start().prefer()


class Fence:
    """A job of our own that comes after everything else: when it is in the archive, all before it
    was seen."""

    def __init__(self, trace, daemon, archive):
        self.jobs = trace.home / "server_priv" / "jobs"
        self.daemon = daemon
        self.archive = archive
        self.count = 0

    def __call__(self):
        """Waits until the archive has all; returns the status then."""
        # Two of them: when the second one is read, the count of what waits has been brought up to
        # the first one.
        for _ in range(2):
            self.submit()
        self.daemon.wait_status(lambda s: s["sources"]["torque"]["pending"] == 0,
                                "every entry was given to the journal", 120)
        # An entry that was given to the journal a moment ago is in neither count. The journal keeps
        # the order, so it is committed before this one.
        self.submit()
        return self.daemon.wait_status(lambda s: s["sources"]["torque"]["pending"] == 0
                                       and s["journal"]["events"] == 0,
                                       "nothing waits any more", 120)

    def submit(self):
        self.count += 1
        stem = f"{99000 + self.count}.fence"
        record = (FIXTURES / "torque-6.1.3.h5/flat/jobs/65.pbshead.cluster.test.JB").read_text()
        (self.jobs / f"{stem}.SC").write_text(f"#!/bin/sh\n: {stem}\n")
        (self.jobs / f"{stem}.JB").write_text(record.replace("<jobid>65.pbshead.cluster.test",
                                                             f"<jobid>{stem}").replace(
            "<fileprefix>65.pbshead.cluster.test", f"<fileprefix>{stem}"))
        wait_for(lambda: any(self.archive.path.rglob(f"*{stem}*.json")),
                 lambda: f"{stem} is archived\n{self.daemon.log_tail()}")


def missed(status):
    return sum(status["sources"]["torque"]["missed"].values())


def check_event(script, event, data):
    where = f"{script.path} as {script.job}"
    assert hashlib.sha256(data).hexdigest() == script.sha256, \
        f"{where}: {len(data)} bytes instead of {script.size}"
    assert event["complete"] is script.complete, where
    assert event["scheduler"] == "torque"
    assert event["user"]["name"] == "carol" and event["user"]["verified"] is True, (where, event)
    assert {f["name"] for f in event["files"]} >= {"script", "record"}, where
    if "[]" in script.job:
        assert event["job"]["array"] == {"job_id": script.job,
                                         "task_spec": event["job"]["array"]["task_spec"]}, where


def compare(archive, scripts, status, way):
    """Each script that the trace tells of once, nothing else; with inotify, what was gone too soon
    is counted instead."""
    jobs = archived(archive)
    lost = 0
    for script in scripts:
        may_be_missed = way == "inotify" and 0 <= script.life < INOTIFY_SEES
        known = jobs.pop(script.job, [])
        if may_be_missed and not known:
            # Its record, which alone says that it is an array, may have gone before it could be
            # read.
            known = [(e, d) for e, d in jobs.pop(script.job.replace("[]", ""), [])
                     if not e["complete"]]
        found = [(e, d) for e, d in known if hashlib.sha256(d).hexdigest() == script.sha256]
        if not found and may_be_missed:
            lost += 1
            continue
        assert len(found) == 1, \
        f"{script.path} ({script.job}) is {len(found)} times in the archive"
        event, data = found[0]
        if may_be_missed and not event["complete"]:
            continue  # its record was gone before it could be read
        check_event(script, event, data)
    assert not jobs, f"nobody submitted {sorted(jobs)[:5]}"
    assert missed(status) == lost, \
        f"{lost} scripts were missed, and {missed(status)} are said to be"


@pytest.mark.parametrize("way", ["fanotify", "inotify"])
@pytest.mark.parametrize("name", TRACES)
def test_a_recorded_trace_is_archived_once_and_byte_for_byte(name, way, work, make_daemon, archive):
    trace = Trace(name, work).prepare()
    daemon = start(make_daemon, trace, way)
    settle = Fence(trace, daemon, archive)
    settle()  # the scan has what stood there before
    trace.play(max_gap_ms=500)
    status = settle()
    compare(archive, trace.scripts(), status, way)
    assert daemon.sink()["dead"] == 0
    assert not [line for line in daemon.log_text().splitlines()
                if " error " in line.lower()], daemon.log_tail()


def test_the_traces_hold_what_they_are_for(work):
    """A change of the player or of a trace must not make the test above one of nothing."""
    told = {}
    for name in TRACES:
        folder = work / name
        folder.mkdir()
        told[name] = Trace(name, folder).prepare().play(max_gap_ms=0).scripts()
    assert sum(len(s) for s in told.values()) >= 60
    assert not told["opbs-t1-qsub"] and not told["opbs-t2-run"] and not told["t16-interactive"]
    assert [s.size for s in told["t3-long"]] == [204808] and told["t3-long"][0].chunks == 4
    assert {s.job for s in told["t4-array"]} >= {"2[].pbshead.cluster.test"}
    assert [(s.path.rsplit("/")[-1], s.job) for s in told["t17-collision"]] == [
        ("67.pbshead.cluster.tesu.SC", "67.pbshead.cluster.test")]
    assert any(not s.complete for s in told["t10-slow"])
    assert sum(1 for s in told["t11-short"] if s.life > 0) >= 5
    assert any("/4/" in s.path for s in told["t7-subdirs"])
    assert told["v4-t2-long"][0].size == 204808


@pytest.mark.parametrize("way", ["fanotify", "inotify"])
def test_chunks_that_come_slowly_end_in_one_last_event_that_supersedes_the_others(way, work,
                                                                                  make_daemon,
                                                                                  archive):
    """At its own pace qsub waits 3 s between chunks: longer than we do. What came first is marked,
    and what comes later names it."""
    trace = Trace("t10-slow", work).prepare()
    daemon = start(make_daemon, trace, way)
    settle = Fence(trace, daemon, archive)
    settle()
    trace.play()
    script = next(s for s in trace.scripts() if s.chunks > 1)
    settle()
    events = sorted(archived(archive)[script.job], key=lambda found: len(found[1]))
    assert len(events) > 1
    for (shorter, data), (longer, more) in zip(events, events[1:]):
        assert longer["supersedes"] == shorter["id"] and more.startswith(data) \
        and not shorter["complete"]
    assert hashlib.sha256(events[-1][1]).hexdigest() == script.sha256
    assert events[-1][0]["complete"] is script.complete


def test_a_daemon_that_comes_later_or_again_captures_each_script_once(work, make_daemon, archive):
    """What happened while it was down is still in the spool; what it had is not captured twice."""
    first = Trace("t2-run-complete", work).prepare()
    daemon = start(make_daemon, first, "inotify")
    settle = Fence(first, daemon, archive)
    settle()
    Trace("t4-array", work).prepare().play(max_gap_ms=0)
    settle()
    daemon.kill()
    later = Trace("t3-long", work).prepare().play(max_gap_ms=0).scripts()
    restart = Trace("t14-restart", work)
    restart.prepare()
    daemon.start()
    settle()
    restart.play(max_gap_ms=100)
    settle()
    jobs = archived(archive)
    assert all(len(events) == 1 for events in jobs.values()), {job: len(events)
                                                               for job, events in jobs.items()}
    for script in later + restart.scripts():
        check_event(script, *jobs[script.job][0])
    assert "2[].pbshead.cluster.test" in jobs


def test_once_takes_what_stands_in_a_spool_of_both_layouts(work, make_daemon, archive):
    flat = Trace("t3-long", work).prepare().play(max_gap_ms=0).scripts()
    folders = Trace("t7-subdirs", work).prepare().play(max_gap_ms=0).scripts()
    daemon = make_daemon(sources=source(Trace("t1", work), "auto"))
    daemon.command("run", "--once")
    jobs = archived(archive)
    for script in flat + folders:
        if script.life < 0:
            assert len(jobs[script.job]) == 1
            check_event(script, *jobs[script.job][0])
    daemon.command("run", "--once")
    assert {job: len(events) for job, events in archived(archive).items()} == {job: 1
                                                                               for job in jobs}


def test_a_new_archive_is_filled_with_all_that_the_old_one_has_of_each_job(work, make_daemon,
                                                                           archive):
    trace = Trace("t3-long", work).prepare()
    daemon = start(make_daemon, trace, "inotify", environment="all")
    settle = Fence(trace, daemon, archive)
    settle()
    trace.play(max_gap_ms=0)
    settle()
    copy = harness.Archive(work / "copy")
    sinks = {"copy": {"plugin": "file", "root": str(copy.path), "layout": "{job_id}.{ext}",
                      "acl": "best-effort"}}
    daemon.config.write_text(harness.config_text(
        work, sinks=sinks, sources=source(trace, "inotify", environment="all")))
    daemon.process.send_signal(signal.SIGHUP)
    daemon.wait_log("RELOADED")
    daemon.command("sinks", "fill", "copy")
    daemon.wait_status(lambda s: s["sinks"]["copy"]["waiting"] == 0, "the copy has all")
    assert copy.scripts() == archive.scripts() and len(copy.scripts()) > 3
    contents = {name: digest for name, (_, _, digest) in archive.snapshot().items()}
    assert {name: digest for name, (_, _, digest) in copy.snapshot().items()} == contents
    for job in copy.scripts():
        event = copy.metadata(job)
        assert {f["name"] for f in event["files"]} == {"script", "environment", "record"}
        assert f"{job}.env" in contents and daemon.sink("copy")["dead"] == 0


def test_a_spool_of_openpbs_is_refused_with_why_and_what_to_do(work, make_daemon):
    home = work / "pbs"
    (home / "server_priv" / "jobs").mkdir(parents=True)
    (home / "datastore").mkdir()
    (home / "pbs_version").write_text("23.06.06\n")
    for spool in (home, home / "server_priv", home / "server_priv" / "jobs"):
        daemon = make_daemon(sources={"slurm": None, "torque": {"spool": str(spool)}})
        for arguments in (("check",), ("run", "--once")):
            result = daemon.command(*arguments, check=False)
            said = result.stdout + result.stderr
            assert result.returncode in (harness.EX_CONFIG, harness.EX_UNAVAILABLE), said
            assert "OpenPBS" in said and "in a database and none in its spool" in said \
        and "hook" in said, said


@pytest.mark.skipif(not harness.IS_ROOT, reason="fanotify needs root")
def test_a_manager_and_a_user_can_be_told_apart_and_numbers_are_added(work, make_daemon, archive,
                                                                      ordinary_user):
    """The record names the owner; his number, by which sinks give access, comes from this machine's
    accounts."""
    trace = Trace("t1", work).prepare()
    daemon = start(make_daemon, trace, "fanotify")
    Fence(trace, daemon, archive)()
    jobs = trace.home / "server_priv" / "jobs"
    record = (FIXTURES / "torque-6.1.3.h5/flat/jobs/65.pbshead.cluster.test.JB").read_text()
    record = record.replace("carol@", ordinary_user.pw_name + "@").replace(
        "<job_state", '<proxy_user flags="1">root</proxy_user><job_state')
    (jobs / "65.pbshead.cluster.test.SC").write_bytes(b"#!/bin/sh\nid\n")
    (jobs / "65.pbshead.cluster.test.JB").write_text(record)
    found = wait_for(lambda: archived(archive).get("65.pbshead.cluster.test"),
                     "the job is in the archive")
    event = found[0][0]
    assert event["user"]["id"] == str(ordinary_user.pw_uid) and event["user"]["verified"] is True
    assert event["details"] == {"proxy_user": "root", "run_as": "carol"}
