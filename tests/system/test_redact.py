"""No byte of a secret reaches a disk, whatever happens to the daemon: scripts, variables and names
with a marker in each secret, and a search for the marker in the raw image of the disk that holds
everything the daemon writes."""

import mmap
import subprocess

import pytest

import harness
from test_crash import fault_points, needs_fault_build

MARK = b"Lk4gMarker"
# Where a common run comes by; test_crash.py has the others.
FAULTS = ["capture.content_read", "capture.parsed", "capture.before_append", "journal.after_begin",
          "journal.after_blob", "journal.before_commit", "journal.after_commit",
          "delivery.before_deliver", "file.temp_created", "file.written", "file.synced",
          "file.renamed", "file.dir_synced", "file.before_ack", "delivery.after_deliver",
          "journal.before_settle", "journal.after_settle"]


@pytest.fixture
def disk(work):
    """A file system in a file of its own, and a function that counts a text in the raw file."""
    if not harness.IS_ROOT:
        pytest.skip("only root can mount a file system")
    image, place = work / "disk.img", work / "disk"
    place.mkdir()
    with open(image, "wb") as file:
        file.truncate(96 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True, capture_output=True)
    mounted = subprocess.run(["mount", "-o", "loop", image, place], capture_output=True, text=True)
    if mounted.returncode != 0:
        pytest.skip(f"no loop device here: {mounted.stderr.strip()}")
    place.chmod(0o755)

    def count(text):
        subprocess.run(["sync", "-f", place], check=True)
        with open(image, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as raw:
            hits, at = 0, raw.find(text)
            while at >= 0:
                hits, at = hits + 1, raw.find(text, at + 1)
            return hits
    yield place, count
    subprocess.run(["umount", "--lazy", place], check=True)


def secret(job):
    return MARK + b"%07d" % job


def write(spool, job):
    """A job with secrets in its script, its variables, its directives and its name."""
    word = secret(job)
    script = (b"#!/bin/bash\n#SBATCH --comment=\"password=%s\"\nexport DB_PASSWORD=%s\n"
              b"mysql -u bob -p%s lab < in.sql\ncurl -u bob:%s https://x.example.org/\n"
              b"echo job %d\n" % (word, word, word, word, job))
    spool.write(job, script, [b"SLURM_JOB_NAME=run-" + word, b"HF_TOKEN=" + word, b"A=b",
                              b"URL=https://bob:" + word + b"@db.example.org/x"])


def start(make_daemon, work, place, archive, **core):
    # The spool is the scheduler's: it stays on another disk.
    daemon = make_daemon({"slurm": {"spool": str(work / "spool")}},
                         {"archive": {"root": str(place / "archive"), "batch_max_events": 5}},
                         state_dir=str(place / "state"), **core)
    daemon.log_file = place / "daemon.log"
    archive.path = place / "archive"
    return daemon


def read(archive, job):
    return b"".join((archive.path / f"{job}.{end}").read_bytes() for end in ("sh", "env", "json"))


@needs_fault_build
def test_no_secret_is_on_the_disk_wherever_the_daemon_dies(make_daemon, spool, archive, work, disk):
    place, count = disk
    missing = set(FAULTS) - set(fault_points("FAULT_POINT"))
    assert not missing, f"no such fault point any more: {missing}"
    daemon = start(make_daemon, work, place, archive)
    job = 0
    for fault in FAULTS:
        daemon.start(ready=False, environment={"SCRIPTORIUM_FAULT": f"{fault}:1:kill"})
        for _ in range(10):
            job += 1
            write(spool, job)
        harness.wait_for(lambda: not daemon.running(), lambda: f"it dies at {fault}")
        assert daemon.process.returncode == -9, daemon.log_tail()
        assert count(MARK) == 0, f"{fault}: a secret is on the disk"
        daemon.start()
        expected = {str(n) for n in range(1, job + 1)}
        harness.wait_for(lambda e=expected: e <= archive.scripts(),
                         lambda e=expected: f"{len(e - archive.scripts())} jobs are not archived")
        daemon.terminate()
    assert count(MARK) == 0, "a secret is on the disk"
    assert count(b"[redacted:") >= 4 * job, "this test looks at the wrong disk"
    for number in range(1, job + 1):
        text = read(archive, number)
        assert b"echo job %d\n" % number in text and b"A=b\0" in text, "ordinary text is gone"
        assert b'"redactions"' in text


def test_without_rules_the_same_search_finds_the_secrets(make_daemon, spool, archive, work, disk):
    """Proves that the search above can see what it looks for, in the journal too."""
    place, count = disk
    daemon = start(make_daemon, work, place, archive, redact="off")
    daemon.start()
    write(spool, 1)
    harness.wait_for(lambda: "1" in archive.scripts(), "the job is archived")
    daemon.kill()
    assert count(MARK) > read(archive, 1).count(MARK) >= 6, "the journal should hold it too"


def test_what_was_removed_is_told_by_rule_and_place_and_not_by_its_hash(make_daemon, spool, archive,
                                                                        work):
    daemon = make_daemon().start()
    write(spool, 1)
    harness.wait_for(lambda: "1" in archive.scripts(), "the job is archived")
    event = archive.metadata("1")
    found = {(r["where"], r["rule"]) for r in event["redactions"]}
    assert any(where == "script" for where, _ in found), event["redactions"]
    assert ("environment", "variable-name") in found, event["redactions"]
    assert any(where == "job.name" for where, _ in found), event["redactions"]
    kept = {"script": "1.sh", "environment": "1.env"}
    for file in event["files"]:
        data = (archive.path / kept[file["name"]]).read_bytes()
        assert (file["size"], file["sha256"]) == (len(data), harness.sha256(data))
    text = read(archive, 1) + daemon.log_file.read_bytes()
    assert MARK not in text
    assert MARK.decode() not in str(daemon.status())


def test_mode_flag_keeps_every_byte_and_says_so(make_daemon, make_storm, spool, archive):
    make_daemon(redact="flag").start()
    write(spool, 1)
    harness.wait_for(lambda: "1" in archive.scripts(), "the job is archived")
    assert (archive.path / "1.sh").read_bytes().count(secret(1)) == 4
    assert all(r["kept"] for r in archive.metadata("1")["redactions"])
    storm = make_storm(20, first_id=101).finish()
    harness.wait_for(lambda: len(archive.scripts()) == 21, "all are archived")
    for job in storm.manifest():
        assert not archive.metadata(job).get("redactions"), "ordinary jobs have none"


@pytest.mark.parametrize("text, key", [
    ('[[rule]]\nname = "x"\nabout = "y"\nkeywords = ["abc"]\nregex = "abc("\n', "regex"),
    ('off = ["no-such-rule"]\n', "off"),
    ("word = 1\n", "word"),
])
def test_a_bad_rule_refuses_the_start_and_a_reload(make_daemon, spool, archive, work, text, key):
    daemon = make_daemon()
    folder = work / "redact.d"
    folder.mkdir()
    (folder / "site.toml").write_text('words = ["hunter2x"]\n')
    daemon.start()
    (folder / "site.toml").write_text(text)
    daemon.process.send_signal(harness.signal.SIGHUP)
    harness.wait_for(lambda: "RELOAD_REFUSED" in daemon.log_file.read_text(), "the reload is over")
    spool.write(1, b"#!/bin/sh\necho hunter2x\n")
    harness.wait_for(lambda: "1" in archive.scripts(), "the old rules stay in force")
    assert (archive.path / "1.sh").read_bytes() == b"#!/bin/sh\necho [redacted:site-word]\n"
    daemon.terminate()
    checked = subprocess.run([harness.SCRIPTORIUM, "check", "--config", daemon.config],
                             capture_output=True, text=True)
    assert checked.returncode == harness.EX_CONFIG and "site.toml:" in checked.stderr, checked
    daemon.start(ready=False)
    assert daemon.wait_exit() == harness.EX_CONFIG
    assert "redact.d/site.toml:" in daemon.log_file.read_text() and key in daemon.log_tail()


def test_a_reload_puts_new_rules_in_force(make_daemon, spool, archive, work):
    daemon = make_daemon().start()
    spool.write(1, b"#!/bin/sh\necho hunter2x\n")
    harness.wait_for(lambda: "1" in archive.scripts(), "the job is archived")
    assert b"hunter2x" in (archive.path / "1.sh").read_bytes()
    (work / "redact.d").mkdir()
    (work / "redact.d" / "site.toml").write_text('words = ["hunter2x"]\n')
    daemon.process.send_signal(harness.signal.SIGHUP)
    harness.wait_for(lambda: "RELOADED" in daemon.log_file.read_text(), "the reload is over")
    spool.write(2, b"#!/bin/sh\necho hunter2x\n")
    harness.wait_for(lambda: "2" in archive.scripts(), "the job is archived")
    assert (archive.path / "2.sh").read_bytes() == b"#!/bin/sh\necho [redacted:site-word]\n"
    assert archive.scripts() == {"1", "2"}, "the first job is not archived again"


@needs_fault_build
def test_what_cannot_be_redacted_is_a_dead_letter_without_its_contents(make_daemon, spool, archive):
    daemon = make_daemon().start(environment={"SCRIPTORIUM_FAULT": "redact.fails:2:error=EIO"})
    for job in (1, 2, 3):
        write(spool, job)
        harness.wait_for(lambda j=job: daemon.source()["captured"] == j, "the job is captured")
    harness.wait_for(lambda: archive.scripts() == {"1", "3"}, "the others are archived")
    (letter,) = daemon.request({"command": "deadletters.list"})
    assert letter["job_id"] == "2" and "redaction failed" in letter["reason"], letter
    shown = daemon.request({"command": "deadletters.show", "event_id": letter["event_id"]})
    assert MARK.decode() not in str(shown), "the dead letter holds the secret"
    assert "REDACTION_FAILED" in daemon.log_file.read_text()
    daemon.terminate()
    daemon.start()
    spool.write(4)
    harness.wait_for(lambda: "4" in archive.scripts(), "a later job is archived")
    assert archive.scripts() == {"1", "3", "4"}
    assert daemon.sink()["dead"] == 1
    assert MARK not in daemon.log_file.read_bytes()
