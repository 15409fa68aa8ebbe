"""`scriptorium catalog` on a real daemon's catalog: check, stats, rebuild, compact; and
`scriptorium redact --archive`, which cleans the catalog together with the file tree."""

import json
import sqlite3

import pytest

import harness
from harness import EX_NOINPUT, EX_OK, EX_USAGE, wait_for
from test_redact_command import RULE, SECRETS, VALUES, leaks, script

EX_FOUND, EX_DATAERR = 1, 65
JOBS = 20


def root_of(daemon):
    return daemon.directory / "catalog"


def segment_of(daemon):
    (file,) = (root_of(daemon) / "segments").glob("*.db")
    return file


@pytest.fixture
def daemon(make_daemon, work):
    return make_daemon(sinks={"catalog": {"root": str(work / "catalog")}})


@pytest.fixture
def filled(daemon, spool):
    """A daemon that runs, and whose catalog and file tree have the same jobs."""
    daemon.start()
    for job in range(1, JOBS + 1):
        spool.write(job)
    for sink in ("archive", "catalog"):
        daemon.wait_acknowledged(JOBS, sink)
    return daemon


def catalog(daemon, *words, code=EX_OK):
    result = daemon.command("catalog", *words, check=False)
    assert result.returncode == code, \
        f"{words}: {result.returncode}\n{result.stdout}\n{result.stderr}"
    return result


def answer(daemon, *words, code=EX_OK):
    return json.loads(catalog(daemon, *words, "--json", code=code).stdout)


def change(daemon, statement, *values):
    """Changes a row behind the daemon's back, as a bad disk would."""
    database = sqlite3.connect(segment_of(daemon))
    with database:
        assert database.execute(statement, values).rowcount == 1, "nothing was damaged"
    database.close()


def test_check_and_stats_of_a_running_daemons_catalog(filled):
    checked = answer(filled, "check")
    assert (checked["sink"], checked["findings"], checked["interrupted"]) == ("catalog", [], False)
    assert checked["figures"]["jobs"] == JOBS
    assert catalog(filled, "check").stdout.splitlines()[-1] == "intact"
    assert answer(filled, "stats")["figures"]["jobs"] == JOBS
    assert any(line.split() == ["jobs", str(JOBS)]
               for line in catalog(filled, "stats").stdout.splitlines())


def test_what_is_damaged_is_found_and_rebuilt_beside_the_daemon(filled, spool):
    change(filled, "UPDATE names SET text = 'nobody' "
                   "WHERE id = (SELECT name FROM jobs WHERE job = 7)")
    found = catalog(filled, "check", code=EX_FOUND)
    assert "segments/000001.db" in found.stdout
    assert "scriptorium catalog rebuild" in found.stdout and "sinks fill" not in found.stdout
    assert answer(filled, "rebuild")["findings"] == []
    assert answer(filled, "check")["figures"]["jobs"] == JOBS
    shown = filled.command("search", "--in", "catalog", "name:job-7", "--ids").stdout
    assert shown.split() == ["7"]
    spool.write(900)
    filled.wait_acknowledged(JOBS + 1, "catalog")
    assert answer(filled, "check")["figures"]["jobs"] == JOBS + 1


def test_a_daemon_that_has_done_nothing_yet_sees_what_a_command_changed(filled, spool):
    """What a command closes, fanotify hands to the daemon, whose locks must outlive that."""
    filled.terminate()
    filled.start()
    change(filled, "UPDATE jobs SET time = time + 1 WHERE job = 7")
    assert answer(filled, "rebuild")["figures"]["segments_rewritten"] == 1
    spool.write(900)
    wait_for(lambda: filled.command("search", "--in", "catalog", "--ids", "job:900",
                                    check=False).stdout, "the new job is found")
    assert answer(filled, "check")["figures"]["jobs"] == JOBS + 1


def test_what_is_lost_is_named_and_comes_back_from_the_file_tree(filled):
    filled.terminate()
    database = sqlite3.connect(segment_of(filled))
    # One against whose bytes no other is packed.
    (lost, environment), *_ = database.execute(
        "SELECT jobs.job, pending.id FROM jobs JOIN pending ON pending.id = jobs.environment "
        "WHERE pending.id NOT IN (SELECT base FROM pending WHERE base IS NOT NULL)")
    database.close()
    change(filled, "UPDATE pending SET data = x'00112233' WHERE id = ?", environment)
    catalog(filled, "check", code=EX_FOUND)
    rebuilt = catalog(filled, "rebuild", code=EX_DATAERR)
    assert f"job {lost}" in rebuilt.stdout, rebuilt.stdout
    assert "scriptorium sinks fill catalog" in rebuilt.stdout
    (kept,) = (root_of(filled) / "segments").glob("*.damaged")
    filled.start()
    filled.command("sinks", "fill", "catalog")
    wait_for(lambda: filled.sink("catalog")["waiting"] == 0, "what was sent has arrived")
    # That file is all that is found until it is deleted.
    (left,) = answer(filled, "check", code=EX_FOUND)["findings"]
    assert left["place"] == str(kept) and left["lost"]
    kept.unlink()
    assert answer(filled, "check")["figures"]["jobs"] == JOBS


def test_compact_beside_the_daemon_keeps_everything(filled):
    assert answer(filled, "compact")["findings"] == []
    assert answer(filled, "check")["figures"]["jobs"] == JOBS


def test_without_a_catalog_the_commands_say_what_to_add(make_daemon, daemon):
    assert catalog(daemon, "check", code=EX_NOINPUT).stderr
    none = catalog(make_daemon(), "check", code=EX_USAGE)
    assert "the configuration has no catalog" in none.stderr and "[sink.catalog]" in none.stderr


@pytest.fixture
def leaky(make_daemon, spool, work):
    """A daemon that archived four leaky jobs and a clean one without any rule, and has ended; now
    there are rules."""
    daemon = make_daemon(sinks={"catalog": {"root": str(work / "catalog")}}, redact="off")
    for job in (1, 2, 3, 4):
        spool.write(job, script(job), [b"SLURM_JOB_NAME=run-" + SECRETS[job % 4].encode(),
                                       b"DB_PASSWORD=" + VALUES[job % 4].encode()])
    spool.write(5)
    daemon.start()
    for sink in ("archive", "catalog"):
        daemon.wait_acknowledged(5, sink)
    daemon.terminate()
    daemon.config.write_text(daemon.config.read_text().replace('redact = "off"\n', ""))
    (work / "redact.d").mkdir()
    (work / "redact.d" / "lab.toml").write_text(RULE)
    return daemon


def redact(daemon, *words, code=EX_OK):
    result = daemon.command("redact", "--archive", *words, "--json", check=False)
    assert result.returncode == code, \
        f"{words}: {result.returncode}\n{result.stdout}\n{result.stderr}"
    return json.loads(result.stdout)


def found(daemon, *query):
    result = daemon.command("search", "--in", "catalog", *query, "--ids", check=False)
    return sorted(result.stdout.split())


def test_redact_without_a_directory_leaves_no_byte_of_a_secret_in_either_sink(leaky, archive,
                                                                            spool):
    stores = (archive.path, root_of(leaky))
    assert all(leaks(store) for store in stores)
    assert found(leaky, SECRETS[1]) == ["1"]
    before = redact(leaky, "--dry-run", code=EX_FOUND)
    assert {name: sink["changed"] for name, sink in before["sinks"].items()} \
        == {"archive": 4, "catalog": 4}
    assert all(leaks(store) for store in stores)

    done = redact(leaky, "--apply")
    assert list(done["sinks"]) == ["archive", "catalog"] and done["unchangeable"] == []
    for sink in done["sinks"].values():
        assert (sink["events"], sink["changed"], sink["left"]) == (5, 4, {})
    assert [leaks(store) for store in stores] == [[], []]
    assert [found(leaky, secret) for secret in SECRETS] == [[]] * 4
    assert found(leaky, "-state:none") == ["1", "2", "3", "4", "5"]
    record = [json.loads(line) for line
              in (leaky.state_dir / "redactions.jsonl").read_text().splitlines()]
    assert sorted(line["job_id"] for line in record) == sorted("1234" * 2)

    after = archive.snapshot()
    again = redact(leaky, "--apply")
    assert [sink["changed"] for sink in again["sinks"].values()] == [0, 0]
    assert archive.snapshot() == after
    assert catalog(leaky, "check").stdout.splitlines()[-1] == "intact"

    leaky.start()
    spool.write(6)
    for sink in ("archive", "catalog"):
        leaky.wait_acknowledged(6, sink)
    assert found(leaky, "job:6") == ["6"]


def test_redact_of_the_tree_alone_refuses_while_the_catalog_has_the_jobs(leaky, archive):
    before = archive.snapshot()
    refused = leaky.command("redact", "--archive", archive.path, "--apply", check=False)
    assert refused.returncode == harness.EX_UNAVAILABLE
    assert "the sink catalog holds the same jobs" in refused.stderr
    assert "without a directory" in refused.stderr
    assert archive.snapshot() == before


def test_redact_without_a_directory_waits_for_the_daemons_end(leaky, archive):
    leaky.start()
    before = archive.snapshot()
    refused = leaky.command("redact", "--archive", "--apply", check=False)
    assert refused.returncode == harness.EX_TEMPFAIL
    assert "stop it, run this command again, then start it" in refused.stderr
    assert archive.snapshot() == before
    redact(leaky, "--dry-run", code=EX_FOUND)
