"""`scriptorium import`: trees of SArchive, job_archive and XDMoD's savescript layout, made by hand
as these programs write them."""

import datetime
import fcntl
import json
import os
import pathlib
import re
import signal
import socket
import struct
import subprocess

import pytest

import harness
from harness import (EX_CONFIG, EX_TEMPFAIL, EX_UNAVAILABLE, EX_USAGE, Archive, sha256)

EX_DATAERR, EX_NOINPUT = 65, 66
FIRST_DAY = datetime.datetime(2024, 11, 3, 12, tzinfo=datetime.timezone.utc)
LAYOUT = {"archive": {"layout": "{year}{month}{day}/{job_id}.{ext}"}}


def put(path, data, when):
    """A file of the tree with the time that its archiver wrote it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    os.utime(path, ns=(int(when.timestamp()) * 10**9 + 123_456_789,) * 2)
    return path


def day_of(job):
    """Jobs spread over ten days."""
    return FIRST_DAY + datetime.timedelta(days=job % 10, seconds=job)


def sarchive_tree(top, jobs, first=1):
    """{job: (day, script, environment)} as SArchive writes it: the spool's bytes for every other
    job, as it did until 2023, and for the rest a script without its NUL and variables as lines."""
    made = {}
    for job in range(first, first + jobs):
        when = day_of(job)
        script = b"#!/bin/bash\n#SBATCH --time=1\n\necho job %d\n" % job
        strings = [b"SLURM_JOB_NAME=job-%d" % job, b"A=b=c", b"PATH=/usr/bin:/bin"]
        folder = top / when.strftime("%Y%m%d")
        if job % 2:
            put(folder / f"job.{job}_script", script + b"\0", when)
            put(folder / f"job.{job}_environment",
                struct.pack("=I", len(strings)) + b"".join(s + b"\0" for s in strings), when)
        else:
            put(folder / f"job.{job}_script", script, when)
            put(folder / f"job.{job}_environment", b"\n".join(strings), when)
        made[str(job)] = (when.strftime("%Y%m%d"), script, b"".join(s + b"\0" for s in strings))
    return made


def job_archive_tree(top, jobs):
    """The same as job_archive writes it: no blank survives in the environment, each NUL is a
    newline, the count stays in front."""
    made = {}
    for job in range(1, jobs + 1):
        when = day_of(job)
        script = b"#!/bin/bash\necho job %d\n" % job
        user, name = b"user%d" % (job % 7), b"job-%d" % job
        strings = [b"USER=" + user, b"SLURM_JOB_NAME=" + name, b"TITLE=two words",
                   b"LINES=one\ntwo"]
        raw = struct.pack("=I", len(strings)) + b"".join(s + b"\0" for s in strings)
        text = bytes(c for c in raw if c not in b" \t\n\v\f\r").replace(b"\0", b"\n")
        folder = top / user.decode() / when.strftime("%Y/%m")
        put(folder / f"{job}-{name.decode()}.sh", script + b"\0", when)
        put(folder / f"{job}-{name.decode()}.env", text, when)
        kept = b"USER=" + user + b"\0SLURM_JOB_NAME=" + name + b"\0TITLE=twowords\0LINES=onetwo\0"
        made[str(job)] = (when.strftime("%Y%m%d"), script, kept)
    return made


def savescript_tree(top, jobs):
    made = {}
    for job in range(1, jobs + 1):
        when = day_of(job)
        script = b"#!/bin/bash\n#SBATCH -J named\necho job %d\n" % job
        put(top / when.strftime("%Y%m%d") / f"{job}.savescript", script, when)
        made[str(job)] = (when.strftime("%Y%m%d"), script, None)
    return made


def compare(work, made):
    """Every job of the tree is in the archive, under its own date, byte for byte, once."""
    archive = work / "archive"
    have = sorted(str(p.relative_to(archive)) for p in archive.rglob("*.sh"))
    assert have == sorted(f"{day}/{job}.sh" for job, (day, _, _) in made.items())
    for job, (day, script, environment) in made.items():
        assert (archive / day / f"{job}.sh").read_bytes() == script, job
        if environment is None:
            assert not (archive / day / f"{job}.env").exists()
        else:
            assert (archive / day / f"{job}.env").read_bytes() == environment, job
        event = json.loads((archive / day / f"{job}.json").read_bytes())
        assert event["capture"] == "import" and event["user"]["verified"] is False
        assert event["time"].startswith(f"{day[:4]}-{day[4:6]}-{day[6:]}T12:")
    assert not [p for p in archive.rglob(".*") if p.is_file() and p.name != harness.MARKER], \
        "temporary files left behind"


def run(daemon, *arguments, check=True, **kwargs):
    """The import with its summary as JSON; returns (summary, CompletedProcess)."""
    result = daemon.command("import", *arguments, "--json", check=check, **kwargs)
    return json.loads(result.stdout) if result.stdout else None, result


# ---- each job once -------------------------------------------------------------------------------
@pytest.mark.parametrize("name, make",
                         [("sarchive", sarchive_tree), ("job_archive", job_archive_tree),
                                        ("savescript", savescript_tree)])
def test_1000_jobs_imported_twice_are_each_there_once(make_daemon, spool, work, name, make):
    made = make(work / "tree", 1000)
    daemon = make_daemon(sinks=LAYOUT)
    summary, _ = run(daemon, name, work / "tree")
    assert (summary["jobs"], summary["imported"], summary["already_imported"],
            summary["skipped"]) == (1000, 1000, 0, {})
    assert summary["sinks"]["archive"] == {"acknowledged": 1000, "waiting": 0, "dead": 0,
                                           "last_error": None}
    assert (summary["first"][:10], summary["last"][:10]) == ("2024-11-03", "2024-11-12")
    compare(work, made)
    before = Archive(work / "archive").snapshot()

    summary, _ = run(daemon, name, work / "tree")
    assert (summary["jobs"], summary["imported"], summary["already_imported"]) == (1000, 0, 1000)
    assert Archive(work / "archive").snapshot() == before
    # The same jobs from a copy, and once more although they are known: the sink gets them again and
    # changes nothing.
    subprocess.run(["cp", "-a", work / "tree", work / "copy"], check=True)
    for arguments in ([work / "copy"], [work / "tree", "--again"]):
        summary, _ = run(daemon, name, *arguments)
        assert summary["jobs"] == 1000
        assert Archive(work / "archive").snapshot() == before


def test_a_tree_that_grew_brings_only_what_is_new(make_daemon, spool, work):
    made = sarchive_tree(work / "tree", 20)
    daemon = make_daemon(sinks=LAYOUT)
    run(daemon, "sarchive", work / "tree")
    made |= sarchive_tree(work / "tree", 5, first=21)
    summary, _ = run(daemon, "sarchive", work / "tree")
    assert (summary["imported"], summary["already_imported"]) == (5, 20)
    compare(work, made)


def test_torque_trees_of_sarchive_are_read_by_the_torque_adapter(make_daemon, work):
    when = FIRST_DAY
    record = (
        b"<job>\n<jobid>4711.server</jobid>\n<attributes>\n<Job_Name>md</Job_Name>\n"
        b"<Job_Owner>alice@login</Job_Owner>\n"
              b"</attributes>\n</job>\n")
    put(work / "tree" / "20241103" / "4711.server.SC", b"#!/bin/sh\n#PBS -l nodes=1\necho\n", when)
    put(work / "tree" / "20241103" / "4711.server.JB", record, when)
    (work / "jobs").mkdir()
    daemon = make_daemon(sources={"slurm": None, "torque": {"spool": str(work / "jobs")}},
                         sinks=LAYOUT)
    summary, _ = run(daemon, "sarchive", work / "tree")
    assert (summary["imported"], summary["scheduler"]) == (1, "torque")
    event = json.loads(next((work / "archive").rglob("*.json")).read_bytes())
    assert event["scheduler"] == "torque" and event["script"]["directives"] == ["-l nodes=1"]
    assert event["user"]["verified"] is False, "a record in somebody's tree proves nothing"
    assert event["time"] == "2024-11-03T12:00:00.123Z"


# ---- hostile trees -------------------------------------------------------------------------------
def test_a_hostile_tree_is_named_and_counted_and_never_stops_the_import(make_daemon, spool, work):
    made = sarchive_tree(work / "tree", 20)
    folder = work / "tree" / "20241103"
    secret = work / "secret"
    secret.write_bytes(b"not yours")
    (folder / "job.101_script").symlink_to(secret)
    (folder / "job.102_script").symlink_to("job.102_script")
    os.mkfifo(folder / "job.103_script")
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(os.path.relpath(folder / "job.104_script"))
    (folder / "job.105_script").write_bytes(b"")
    (folder / "job.106_environment").write_bytes(b"A=b")
    (work / "tree" / "up").symlink_to(work)
    (folder / "job.abc_script").write_bytes(b"x")
    (folder / "README").write_bytes(b"x")
    os.mkfifo(folder / "job.107_scripture")
    (os.fsencode(folder) and pathlib.Path(os.fsdecode(os.fsencode(folder)
                                                      + b"/job.\xff\xfe_script"))).write_bytes(b"x")
    (folder / "evil\n\x1b[31mname").write_bytes(b"x")
    # Taken, each with what is odd about it:
    put(folder / "job.201_script", b"#!/bin/sh\n\xff\xfe\0", FIRST_DAY)
    put(folder / "job.202_script", b"#!/bin/sh\nhal", FIRST_DAY)
    put(folder / "job.202_environment", struct.pack("=I", 2) + b"A=b\0C", FIRST_DAY)
    (folder / "job.203_script").write_bytes(b"#!/bin/sh\n")
    os.truncate(folder / "job.203_script", 100_000_000)
    os.utime(folder / "job.203_script", ns=(int(FIRST_DAY.timestamp()) * 10**9,) * 2)

    daemon = make_daemon(sources={"slurm": {"max_file_bytes": 20_000_000}}, sinks=LAYOUT)
    summary, result = run(daemon, "sarchive", work / "tree", check=False, seconds=300)
    assert result.returncode == EX_DATAERR, result.stderr
    assert summary["skipped"] == {"symbolic link": 2, "not a regular file": 2, "empty script": 1,
                                  "no script": 1}
    assert summary["foreign_names"] == 6
    assert summary["imported"] == len(made) + 3
    assert summary["sinks"]["archive"]["acknowledged"] == len(made) + 3
    for words in ("skipped: 20241103/job.101_script: symbolic link",
                  "skipped: 20241103/job.103_script: not a regular file",
                  "skipped: 20241103/job.105_script: empty script",
                  "not a job: 20241103/job.abc_script", r"job.\xff\xfe_script",
                  r"evil\n\x1b[31mname"):
        assert words in result.stderr, result.stderr
    assert b"\x1b" not in result.stderr.encode()
    found = {p.read_bytes() for p in (work / "archive").rglob("*.sh") if p.stat().st_size < 1000}
    assert b"not yours" not in found

    def event(job):
        return json.loads((work / "archive" / "20241103" / f"{job}.json").read_bytes())
    assert (work / "archive" / "20241103" / "201.sh").read_bytes() == b"#!/bin/sh\n\xff\xfe\n"[:-1]
    assert event(202)["complete"] is False and any("final NUL" in p for p in event(202)["problems"])
    assert any(p.startswith("environment: count 2") for p in event(202)["problems"])
    assert event(203)["complete"] is False and event(203)["script"]["size"] == 20_000_000
    assert any("max_file_bytes" in p for p in event(203)["problems"])


def test_the_rule_for_environments_holds_for_what_is_imported(make_daemon, spool, work):
    put(work / "tree" / "job.1_script", b"#!/bin/sh\n\0", FIRST_DAY)
    put(work / "tree" / "job.1_environment", struct.pack("=I", 2) + b"A_TOKEN=secret\0PATH=/bin\0",
        FIRST_DAY)
    put(work / "tree" / "job.2_script", b"#!/bin/sh\n", FIRST_DAY)
    put(work / "tree" / "job.2_environment", b"PATH=/bin\nX=1\nA_TOKEN=secret", FIRST_DAY)
    daemon = make_daemon(sources={"slurm": {"spool": str(work / "spool")}}, sinks=LAYOUT)
    text = daemon.config.read_text().replace('resolve = "none"',
                                             'resolve = "none"\nenvironment = { drop = '
                                             '["*TOKEN*"] }')
    daemon.config.write_text(text)
    run(daemon, "sarchive", work / "tree")
    kept = {p.name: p.read_bytes() for p in (work / "archive").rglob("*.env")}
    assert kept == {"1.env": b"PATH=/bin\0"}, "of a guessed environment nothing may stay"
    everything = b"".join(p.read_bytes() for p in work.joinpath("archive").rglob("*")
                          if p.is_file())
    everything += b"".join(p.read_bytes() for p in (work / "state").rglob("*") if p.is_file())
    assert b"secret" not in everything


# ---- beside the daemon, and when a sink is away --------------------------------------------------
def test_the_daemon_may_run_and_capture_meanwhile(make_daemon, make_storm, work):
    made = sarchive_tree(work / "tree", harness.storm_jobs(1000))
    daemon = make_daemon(sinks={"archive": {"layout": "{job_id}.{ext}"}}).start()
    storm = make_storm(200, first_id=500_001, rate=200, lifetime_ms=100)
    summary, _ = run(daemon, "sarchive", work / "tree")
    storm.finish()
    assert summary["imported"] == len(made)
    daemon.wait_acknowledged(200)
    manifest = {**storm.manifest(),
                **{job: (sha256(s), sha256(e)) for job, (_, s, e) in made.items()}}
    Archive(work / "archive").compare(manifest)


def test_what_a_sink_cannot_take_now_waits_and_the_next_run_goes_on(make_daemon, spool, work):
    made = sarchive_tree(work / "tree", 50)
    daemon = make_daemon(sinks=LAYOUT, shutdown_seconds=2)
    (work / "archive").mkdir(mode=0o750)
    for day in {day for day, _, _ in made.values()}:
        (work / "archive" / day).write_text("a file stands in the way of the folder")
    summary, result = run(daemon, "sarchive", work / "tree", check=False)
    assert result.returncode == EX_UNAVAILABLE
    assert summary["sinks"]["archive"]["waiting"] == 50 \
        and summary["sinks"]["archive"]["last_error"]
    assert "run the same command again to continue" in result.stderr
    for day in {day for day, _, _ in made.values()}:
        (work / "archive" / day).unlink()
    summary, _ = run(daemon, "sarchive", work / "tree")
    assert (summary["imported"], summary["already_imported"]) == (0, 50)
    assert summary["sinks"]["archive"]["acknowledged"] == 50
    compare(work, made)


def test_a_full_journal_ends_the_import_and_the_next_run_goes_on(make_daemon, spool, work):
    made = {}
    for job in range(1, 601):
        script = b"#!/bin/sh\n# " + os.urandom(2000).hex().encode() + b"\n"
        put(work / "tree" / "20241103" / f"job.{job}_script", script, FIRST_DAY)
        made[str(job)] = ("20241103", script, None)
    daemon = make_daemon(sinks=LAYOUT, shutdown_seconds=2, journal_max_bytes=1 << 20)
    (work / "archive").mkdir(mode=0o750)
    (work / "archive" / "20241103").write_text("a file stands in the way of the folder")
    summary, result = run(daemon, "sarchive", work / "tree", check=False)
    assert result.returncode == EX_UNAVAILABLE \
        and "the import's journal is full and no sink accepts events" in result.stderr
    assert 0 < summary["sinks"]["archive"]["waiting"] < 600
    (work / "archive" / "20241103").unlink()
    summary, _ = run(daemon, "sarchive", work / "tree")
    assert summary["jobs"] == 600 and summary["sinks"]["archive"]["acknowledged"] == 600
    compare(work, made)


def test_an_import_that_is_ended_half_way_goes_on(make_daemon, spool, work):
    made = sarchive_tree(work / "tree", 3000)
    # Small batches, so that there is a half way.
    daemon = make_daemon(sinks={"archive": {**LAYOUT["archive"], "batch_max_events": 20}})
    command = [str(harness.SCRIPTORIUM), "import", "sarchive", str(work / "tree"), "--config",
               str(daemon.config)]
    for end, code in ((signal.SIGKILL, -signal.SIGKILL), (signal.SIGTERM, EX_TEMPFAIL)):
        before = len(list((work / "archive").rglob("*.sh")))
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        harness.wait_for(lambda: len(list((work / "archive").rglob("*.sh"))) > before,
                         "a job is imported")
        process.send_signal(end)
        assert process.wait(60 * harness.PATIENCE) == code
        assert len(list((work / "archive").rglob("*.sh"))) < len(made), \
        "it was done before it could be ended"
    summary, _ = run(daemon, "sarchive", work / "tree", seconds=300)
    assert summary["jobs"] == len(made)
    # of the killed run, in a folder that needed nothing more
    for leftover in (work / "archive").rglob(".*.tmp-*"):
        leftover.unlink()
    compare(work, made)


def test_dead_letters_of_an_import_are_listed_and_tried_again(make_daemon, spool, work):
    for job in ("1poison", "2poison"):
        put(work / "tree" / f"job.{job}_script", b"#!/bin/sh\n", FIRST_DAY)
    daemon = make_daemon(sinks={"archive": None, "thrower": {"plugin": "throwing"}},
                         plugin_dirs=harness.PLUGIN_DIRS)
    summary, result = run(daemon, "sarchive", work / "tree", check=False)
    assert result.returncode == EX_UNAVAILABLE
    assert summary["sinks"]["thrower"]["dead"] == 2
    assert "scriptorium deadletters list --import" in result.stderr
    letters = json.loads(daemon.command("deadletters", "list", "--import", "--json").stdout)
    assert sorted(letter["job_id"] for letter in letters) == ["1poison", "2poison"]
    shown = daemon.command("deadletters", "show", "--import", letters[0]["event_id"]).stdout
    assert '"capture": "import"' in shown
    assert daemon.command("deadletters", "retry", "--import",
                          "--all").stdout.startswith("2 dead letters will be delivered again")
    summary, _ = run(daemon, "sarchive", work / "tree", check=False)
    assert summary["sinks"]["thrower"]["dead"] == 2, \
        "tried again by the next import, and refused again"
    assert "2 dead letters discarded" in daemon.command("deadletters", "discard", "--import",
                                                        "--all", "--yes").stdout


def test_two_imports_at_once_are_refused_with_words(make_daemon, spool, work):
    sarchive_tree(work / "tree", 3)
    daemon = make_daemon(sinks=LAYOUT)
    run(daemon, "sarchive", work / "tree")
    with open(work / "state" / "import" / "lock", "r+b") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _, result = run(daemon, "sarchive", work / "tree", check=False)
    assert result.returncode == EX_TEMPFAIL and "another import runs" in result.stderr


# ---- options -------------------------------------------------------------------------------------
def test_a_dry_run_counts_and_changes_nothing(make_daemon, spool, work):
    sarchive_tree(work / "tree", 12)
    daemon = make_daemon(sinks=LAYOUT)
    summary, _ = run(daemon, "sarchive", work / "tree", "--dry-run")
    assert (summary["dry_run"], summary["imported"], summary["first"][:10]) == (True, 12,
                                                                                "2024-11-03")
    assert not (work / "archive").exists() and not (work / "state").exists()
    text = daemon.command("import", "sarchive", work / "tree", "--dry-run").stdout
    assert text.startswith("12 jobs found, 12 would be imported, 0 skipped\n")


def test_before_cluster_and_scheduler_choose_and_name(make_daemon, spool, work):
    sarchive_tree(work / "tree", 10)
    daemon = make_daemon(sinks=LAYOUT)
    summary, _ = run(daemon, "sarchive", work / "tree", "--before", "2024-11-05", "--cluster",
                     "old", "--scheduler", "pbs")
    assert (summary["imported"], summary["not_before"]) == (2, 8)
    event = json.loads(next((work / "archive").rglob("*.json")).read_bytes())
    assert (event["cluster"], event["scheduler"]) == ("old", "pbs")
    for option, value in (("--before", "soon"), ("--cluster", "../x"), ("--source", "lsf"),
                          ("--sink", "lsf")):
        _, result = run(daemon, "sarchive", work / "tree", option, value, check=False)
        assert result.returncode in (EX_USAGE,
                                     EX_CONFIG) and value in result.stderr, (option, result.stderr)


def test_one_sink_alone_and_later_the_other(make_daemon, spool, work):
    made = sarchive_tree(work / "tree", 10)
    daemon = make_daemon(sinks={**LAYOUT,
                                "second": {"plugin": "file", "root": str(work / "second"),
                                           "layout": "{job_id}.{ext}",
                                                     "acl": "best-effort"}})
    summary, _ = run(daemon, "sarchive", work / "tree", "--sink", "second")
    assert list(summary["sinks"]) == ["second"]
    assert Archive(work / "second").scripts() == set(made) and not (work / "archive").exists()
    summary, _ = run(daemon, "sarchive", work / "tree")
    assert summary["sinks"]["archive"]["acknowledged"] == 10
    compare(work, made)
    # A sink that is taken out of the configuration would be owed every event for ever.
    text = daemon.config.read_text()
    daemon.config.write_text(text[:text.index("[sink.second]")])
    _, result = run(daemon, "sarchive", work / "tree", check=False)
    assert result.returncode == EX_CONFIG and "[sink.second], which is not configured any more" \
        in result.stderr


def test_several_sources_must_be_told_apart(make_daemon, spool, work):
    sarchive_tree(work / "tree", 1)
    daemon = make_daemon(sources={"other": {"plugin": "slurm", "spool": str(work / "spool"),
                                            "resolve": "none"}}, sinks=LAYOUT)
    _, result = run(daemon, "sarchive", work / "tree", check=False)
    assert result.returncode == EX_USAGE and "--source" in result.stderr and "slurm, other" \
        in result.stderr
    summary, _ = run(daemon, "sarchive", work / "tree", "--source", "other")
    assert summary["imported"] == 1


def test_a_tree_that_is_not_there_and_a_format_that_is_none(make_daemon, spool, work):
    daemon = make_daemon()
    _, result = run(daemon, "sarchive", work / "nowhere", check=False)
    assert result.returncode == EX_NOINPUT and "nowhere" in result.stderr
    result = daemon.command("import", "tarball", work, check=False)
    assert result.returncode == EX_USAGE


def test_accounting_says_whose_the_jobs_were(make_daemon, spool, work):
    job_archive_tree(work / "tree", 3)  # of user1, user2, user3, as their environments claim
    lines = ["JobIDRaw|User|UID|Group|GID|Account|Submit"]
    for job, user, seconds in ((1, "alice", -3), (2, "bob", -90_000), (4, "carol", 0)):
        submitted = day_of(job) + datetime.timedelta(seconds=seconds)
        lines.append(f"{job}|{user}|100{job}|chem|2001|proj|{submitted:%Y-%m-%dT%H:%M:%S}")
    owners = work / "owners.txt"
    owners.write_text("\n".join(lines) + "\n")
    owners.chmod(0o600)
    daemon = make_daemon(sinks={"archive": {"layout": "{user}/{job_id}.{ext}"}})
    summary, _ = run(daemon, "job_archive", work / "tree", "--owners", owners)
    assert (summary["imported"], summary["verified_owners"]) == (3, 1)
    alice = json.loads((work / "archive" / "alice" / "1.json").read_bytes())
    assert alice["user"] == {"name": "alice", "id": "1001",
                             "group": {"name": "chem", "id": "2001"}, "verified": True}
    assert alice["job"]["account"] == "proj" and alice["job"]["submitted_at"].startswith(
        "2024-11-04T11:59:58")
    assert harness.names_in(work / "archive") == ["alice", "unverified"], "a claim opens nothing"
    owners.chmod(0o666)
    _, result = run(daemon, "job_archive", work / "tree", "--owners", owners, check=False)
    assert result.returncode == EX_CONFIG and "others could have written it" in result.stderr


def test_the_command_of_the_page_gives_the_owners_of_a_real_slurm(fresh_slurm, make_daemon, spool,
                                                                  work, ordinary_user):
    page = (harness.ROOT / "docs" / "migrate.md").read_text()
    command = re.search(r"^(TZ=UTC sacct .*) > owners.txt", page, re.M).group(1)
    lab = fresh_slurm("--accounting")
    job = lab.sbatch(user=ordinary_user)
    # What SArchive does: two seconds later the files are elsewhere under its names.
    entry = lab.state / f"hash.{int(job) % 10}" / f"job.{job}"
    when = datetime.datetime.fromtimestamp((entry / "script").stat().st_mtime + 2,
                                           datetime.timezone.utc)
    for name in ("script", "environment"):
        put(work / "tree" / when.strftime("%Y%m%d") / f"job.{job}_{name}",
            (entry / name).read_bytes(), when)
    rows = harness.wait_for(lambda: (lambda text: text if f"\n{job}|" in text
                                     else None)(lab.run("sh", "-c", command).stdout),
                            "accounting knows the job", 60, step=0.5)
    owners = work / "owners.txt"
    owners.write_text(rows)
    owners.chmod(0o600)
    summary, _ = run(make_daemon(), "sarchive", work / "tree", "--owners", owners)
    assert (summary["imported"], summary["verified_owners"]) == (1, 1), rows
    user = Archive(work / "archive").metadata(job)["user"]
    assert (user["name"], user["id"], user["verified"]) == (ordinary_user.pw_name,
                                                            str(ordinary_user.pw_uid), True)


@pytest.mark.skipif(not harness.IS_ROOT, reason="needs root, to become another user")
def test_root_reads_the_tree_and_the_daemons_user_keeps_it(make_daemon, spool, work, ordinary_user):
    made = job_archive_tree(work / "tree", 10)
    for path in (work / "tree").rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)
    (work / "out").mkdir()
    os.chown(work / "out", ordinary_user.pw_uid, ordinary_user.pw_gid)
    daemon = make_daemon(user=ordinary_user.pw_name,
                         sinks={"archive": {**LAYOUT["archive"],
                                            "root": str(work / "out" / "archive")}})
    summary, _ = run(daemon, "job_archive", work / "tree")
    assert summary["imported"] == len(made)
    files = [p for p in (work / "out" / "archive").rglob("*") if p.is_file()]
    assert len(files) == 3 * len(made) + 1  # and the marker
    assert {p.stat().st_uid for p in files} == {ordinary_user.pw_uid}
    assert (work / "state" / "import").stat().st_uid == ordinary_user.pw_uid
    assert not list(pathlib.Path("/tmp").glob("scriptorium-import.*")), \
        "what the opener was told is taken away"
