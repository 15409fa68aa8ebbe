"""`scriptorium redact`: what users see of their scripts, and an archive from before the rules that
keeps no byte of a secret, wherever the command dies."""

import json
import os
import pathlib
import shutil
import signal
import subprocess

import pytest

import harness
from harness import EX_TEMPFAIL, scriptorium, sha256
from test_crash import needs_fault_build

EX_FOUND, EX_DATA = 1, 65
SECRETS = [f"labtok_{n:032x}" for n in range(100, 104)]
VALUES = ["weak-pass-1", "weak-pass-2", "weak-pass-3", "weak-pass-4"]
# A rule of the test's own, so that what it finds does not depend on the shipped ones.
RULE = r"""
[[rule]]
name = "lab-token"
about = "a token of the lab"
keywords = ["labtok_"]
regex = '(labtok_[0-9a-f]{32})'
hits = [{ text = "T=labtok_0123456789abcdef0123456789abcdef", secret = "labtok_0123456789abcdef0123456789abcdef" }]
misses = ["labtok_ is how our tokens begin"]
"""
KILL_POINTS = ["redact.contents_written", "redact.prepared", "redact.content_replaced",
               "redact.before_metadata", "redact.metadata_replaced", "redact.contents_moved",
               "redact.metadata_moved"]


def script(job):
    return (f"#!/bin/bash\n#SBATCH --comment={SECRETS[job % 4]}\n"
            f"export T={SECRETS[job % 4]}\ncurl -H \"X: $T\"\n").encode()


@pytest.fixture
def old_archive(make_daemon, spool, archive, work):
    """old_archive(**sink): a daemon that archived four leaky jobs and a clean one without any rule,
    and has ended; now there are rules."""
    def make(**sink):
        daemon = make_daemon(sinks={"archive": sink}, redact="off")
        for job in (1, 2, 3, 4):
            spool.write(job, script(job), [b"SLURM_JOB_NAME=job-%d" % job, b"HOME=/home/alice",
                                           b"DB_PASSWORD=" + VALUES[job % 4].encode(),
                                           b"COPY=" + SECRETS[job % 4].encode()])
        spool.write(5)
        daemon.start()
        daemon.wait_acknowledged(5)
        daemon.terminate()
        text = daemon.config.read_text().replace('redact = "off"\n', "")
        daemon.config.write_text(text)
        (work / "redact.d").mkdir()
        (work / "redact.d" / "lab.toml").write_text(RULE)
        return daemon
    return make


def redact(daemon, *arguments, check=False, **kwargs):
    return daemon.command("redact", *arguments, check=check, **kwargs)


def leaks(place):
    """Each file below `place` that holds a secret in its bytes or its name."""
    found = []
    for directory, names, files in os.walk(place):
        for name in names + files:
            path = pathlib.Path(directory) / name
            data = name.encode() + (path.read_bytes() if path.is_file() else b"")
            if any(s.encode() in data for s in SECRETS + VALUES):
                found.append(str(path))
    return sorted(found)


def expect_whole(archive, style="nul"):
    """Each job's files are what its metadata say, and nothing else lies there."""
    records = sorted(archive.path.rglob("*.json"))
    assert len(records) == 5
    for record in records:
        event = json.loads(record.read_bytes())
        files = {f["name"]: f for f in event["files"]}
        text = record.with_suffix(".sh").read_bytes()
        assert (len(text), sha256(text)) == (files["script"]["size"], files["script"]["sha256"])
        assert event["script"]["sha256"] == files["script"]["sha256"]
        if style == "nul":
            data = record.with_suffix(".env").read_bytes()
            assert (len(data), sha256(data)) == (files["environment"]["size"],
                                                 files["environment"]["sha256"])
    left = [p for p in archive.path.rglob(".*") if p.name != harness.MARKER]
    assert not left, left


def attributes(archive):
    """Owner, group, mode and access list of each file, by its name."""
    result = {}
    for path in sorted(p for p in archive.path.rglob("*") if p.is_file()):
        info = path.stat()
        acl = subprocess.run(["getfacl", "-cn", path], capture_output=True, text=True).stdout \
            if shutil.which("getfacl") else ""
        result[str(path)] = (info.st_uid, info.st_gid, info.st_mode, acl)
    return result


def test_a_dry_run_says_what_it_would_remove_and_changes_nothing(old_archive, archive):
    daemon = old_archive()
    before = archive.snapshot()
    result = redact(daemon, "--archive", archive.path, "--dry-run")
    assert result.returncode == EX_FOUND, result.stderr
    assert "5 events read, 4 would be changed" in result.stdout
    assert f"{archive.path}/1.json: job 1: " in result.stdout and "lab-token" in result.stdout
    assert not any(s in result.stdout + result.stderr for s in SECRETS + VALUES)
    assert archive.snapshot() == before
    assert not (daemon.state_dir / "redactions.jsonl").exists()


@pytest.mark.parametrize("style", ["nul", "lines", "shell"])
def test_apply_leaves_no_byte_of_a_secret_and_whole_jobs(old_archive, archive, style):
    daemon = old_archive(environment_format=style)
    assert len(leaks(archive.path)) == 12
    before, ids = attributes(archive), {j: archive.metadata(j)["id"] for j in range(1, 6)}
    result = redact(daemon, "--archive", archive.path, "--apply")
    assert result.returncode == 0, result.stdout + result.stderr
    assert leaks(archive.path) == []
    expect_whole(archive, style)
    assert attributes(archive) == before
    for job in range(1, 5):
        event = archive.metadata(job)
        assert event["id"] != ids[job] and ids[job] not in json.dumps(event)
        assert {(r["rule"], r["where"]) for r in event["redactions"]} >= {
            ("lab-token", "script"), ("variable-name", "environment")}
        assert "[redacted:" in event["script"]["directives"][0]
        assert b"[redacted:lab-token]" in (archive.path / f"{job}.sh").read_bytes()
    assert archive.metadata(5)["id"] == ids[5] and "redactions" not in archive.metadata(5)

    record = daemon.state_dir / "redactions.jsonl"
    assert record.stat().st_mode & 0o777 == 0o600
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    assert sorted(line["job_id"] for line in lines) == ["1", "2", "3", "4"]
    assert all(line["by"] and line["path"].startswith(str(archive.path))
               and sum(r["count"] for r in line["redactions"]) >= 3 for line in lines)
    assert leaks(daemon.state_dir / "redactions.jsonl") == [] and not any(
        s in record.read_text() for s in [*SECRETS, *VALUES, *ids.values()])

    after = archive.snapshot()
    again = redact(daemon, "--archive", archive.path, "--apply", "--json")
    assert again.returncode == 0, again.stderr
    assert (json.loads(again.stdout)["changed"], archive.snapshot()) == (0, after)
    assert len(record.read_text().splitlines()) == 4
    shown = daemon.command("show", "1", "--raw").stdout
    assert shown.encode() == (archive.path / "1.sh").read_bytes()


@needs_fault_build
@pytest.mark.parametrize("point", KILL_POINTS)
@pytest.mark.parametrize("nth", [1, 2])
def test_a_kill_at_any_step_is_completed_by_the_next_run(old_archive, spool, archive, work, point,
                                                         nth):
    # The layout shows the job's name, so that files move as well.
    daemon = old_archive(layout="{job_id}-{job_name}.{ext}")
    for record in sorted(archive.path.glob("*.json"))[:3]:
        # As if the jobs had been named so: the name in the metadata and in the files' names.
        event = json.loads(record.read_bytes())
        name = event["job"]["name"]
        if name is None or event["job"]["id"] == "5":
            continue
        leaky = "run-" + SECRETS[int(event["job"]["id"]) % 4]
        event["job"]["name"] = leaky
        record.write_text(json.dumps(event))
        for ending in (".json", ".sh", ".env"):
            path = record.with_suffix(ending)
            path.rename(path.with_name(path.name.replace(name, leaky)))
    assert any(SECRETS[1] in p.name for p in archive.path.iterdir()), "no name holds a secret"
    reached = work / "reached"
    killed = redact(daemon, "--archive", archive.path, "--apply",
                    env={"SCRIPTORIUM_FAULT": f"{point}:{nth}:kill",
                         "SCRIPTORIUM_FAULT_LOG": str(reached)})
    assert killed.returncode == -signal.SIGKILL, f"{point} was not reached:\n{killed.stderr}"
    assert point in reached.read_text()
    looked = redact(daemon, "--archive", archive.path, "--dry-run")
    assert looked.returncode in (EX_FOUND, EX_DATA)
    done = redact(daemon, "--archive", archive.path, "--apply")
    assert done.returncode == 0, done.stdout + done.stderr
    assert leaks(archive.path) == []
    expect_whole(archive)
    after = archive.snapshot()
    assert redact(daemon, "--archive", archive.path, "--apply").returncode == 0
    assert archive.snapshot() == after
    lines = (daemon.state_dir / "redactions.jsonl").read_text().splitlines()
    assert {json.loads(line)["job_id"] for line in lines} == {"1", "2", "3", "4"}


@needs_fault_build
def test_a_signal_stops_it_between_two_jobs_and_the_next_run_continues(old_archive, archive, work):
    daemon = old_archive()
    reached = work / "reached"
    process = subprocess.Popen(
        [str(harness.SCRIPTORIUM), "redact", "--config", str(daemon.config), "--archive",
         str(archive.path), "--apply"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "SCRIPTORIUM_FAULT": "redact.prepared:1:delay=1500",
             "SCRIPTORIUM_FAULT_LOG": str(reached)})
    harness.wait_for(reached.exists, "the first job is about to change")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == EX_TEMPFAIL, out + err
    assert "run the same command again" in err
    assert 0 < len(leaks(archive.path)) < 12
    assert redact(daemon, "--archive", archive.path, "--apply").returncode == 0
    assert leaks(archive.path) == []
    expect_whole(archive)


def test_a_running_daemon_keeps_its_archive(old_archive, archive):
    daemon = old_archive()
    daemon.start()
    before = archive.snapshot()
    result = redact(daemon, "--archive", archive.path, "--apply")
    assert result.returncode == EX_TEMPFAIL
    assert "stop it, run this command again, then start it" in result.stderr
    assert archive.snapshot() == before
    # To look is always possible.
    assert redact(daemon, "--archive", archive.path, "--dry-run").returncode == EX_FOUND


def test_a_daemon_that_starts_again_finds_its_archive_and_adds_nothing(old_archive, archive):
    daemon = old_archive()
    assert redact(daemon, "--archive", archive.path, "--apply").returncode == 0
    after = archive.snapshot()
    daemon.start()
    daemon.wait_status(lambda s: s["sources"]["slurm"]["scans"] > 0
                       and s["sources"]["slurm"]["pending"] == 0, "it has looked")
    assert daemon.terminate() == 0
    assert archive.snapshot() == after


def test_links_and_foreign_files_are_left_alone_and_counted(old_archive, archive, work):
    daemon = old_archive()
    outside = work / "outside"
    outside.mkdir()
    (outside / "note.json").write_text(SECRETS[0])
    (archive.path / "elsewhere").symlink_to(outside)
    (archive.path / "9.json").symlink_to(outside / "note.json")
    (archive.path / "notes.txt").write_text(SECRETS[1])
    result = redact(daemon, "--archive", archive.path, "--apply")
    assert result.returncode == EX_DATA, result.stdout + result.stderr
    assert "left alone: 2 (a link or special file)" in result.stdout
    assert "left alone: 1 (no metadata beside it)" in result.stdout
    assert (outside / "note.json").read_text() == SECRETS[0]
    # os.walk() follows no link to a folder, but the link to a file is one of its files.
    assert leaks(archive.path) == [str(archive.path / "9.json"), str(archive.path / "notes.txt")]


def test_a_tree_that_no_sink_writes_to_any_more_needs_no_stop(old_archive, archive, work):
    daemon = old_archive()
    old = work / "older"
    shutil.copytree(archive.path, old)
    daemon.start()
    result = redact(daemon, "--archive", old, "--apply", "--record", work / "record.jsonl")
    assert result.returncode == 0, result.stdout + result.stderr
    assert leaks(old) == [] and len(leaks(archive.path)) == 12
    assert len((work / "record.jsonl").read_text().splitlines()) == 4


def test_a_user_sees_what_is_removed_without_any_configuration(work):
    (work / "job.sh").write_text("#!/bin/bash\n"
                                 "git clone https://ghp_0123456789abcdefghijABCDEFGHIJ012345@"
                                 "github.com/a/b\n")
    (work / "clean.sh").write_text("#!/bin/bash\necho hello\n")
    result = scriptorium("redact", work / "job.sh", work / "clean.sh", check=False)
    assert result.returncode == EX_FOUND, result.stderr
    assert f"{work}/job.sh:2: " in result.stdout and "what looks like" in result.stdout
    assert "0123456789abcdef" not in result.stdout
    assert scriptorium("redact", work / "clean.sh").stdout == ""
    printed = scriptorium("redact", work / "job.sh", "--print", check=False).stdout
    assert "[redacted:" in printed and printed.startswith("#!/bin/bash\ngit clone")
