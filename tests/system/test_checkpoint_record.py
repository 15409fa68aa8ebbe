"""What scriptorium-checkpointd notes of its work, and its way through the archiving daemon to
`scriptorium show`."""

import json
import os
import pwd
import re
import signal
import subprocess

import checkpoint_lab
import harness
import kafka_lab
import pytest
from checkpoint_lab import RECORDS_GID, check_no_gap, failure, program_of, wait_lines
from harness import wait_for

MISSING = checkpoint_lab.what_is_missing()
pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)
SCHEMA = "job-checkpoint-1.schema.json"


@pytest.fixture
def node(work):
    node = checkpoint_lab.Node(work, checkpoint_lab.fake_criu(work))
    yield node
    node.cleanup()


def records(node):
    return node.record_files()


def wait_actions(node, *expected):
    wait_for(lambda: node.actions() == list(expected),
             lambda: f"records {expected}; there are {node.actions()}")


def save(node, job):
    job.signal()
    assert job.wait() == 99, node.log()


def test_every_step_of_a_program_is_recorded_with_what_is_known_of_it(node):
    node.start()
    directory = node.directory(node.alice)
    job = node.job(node.alice, directory)
    program = program_of(job)
    node.orders(node.alice, directory, dump_error="inet: Connected TCP socket")
    job.signal()
    assert failure(directory).startswith("tcp: ")
    node.orders(node.alice, directory)
    wait_lines(directory)
    save(node, job)
    manifest = (directory / "checkpoint" / "manifest.json").read_bytes()
    again = node.job(node.alice, directory, layout=checkpoint_lab.oar_v1)
    wait_lines(directory)
    resumed = int((directory / "checkpoint" / "pidfile").read_text())
    (directory / "stop").touch()
    assert again.wait() == 99
    last = node.job(node.alice, directory)
    assert last.wait() == -signal.SIGTERM
    wait_actions(node, "failed", "made", "restarted", "ended", "restart_failed")

    failed, made, restarted, ended, refused = [record["checkpoint"] for record in records(node)]
    image = {"image_path": f"{directory}/checkpoint",
             "image_bytes": sum(each["bytes"] for each in json.loads(manifest)["files"]),
             "manifest_sha256": harness.sha256(manifest)}
    engine = {"engine": made["engine"], "engine_version": made["engine_version"]}
    assert engine["engine"] == "criu"
    for step in (failed, made, restarted, refused):
        assert step.pop("duration_seconds") > 0
    assert made.pop("frozen_seconds") > 0
    for step in (made, restarted):
        assert step.pop("processes") in (1, 2)  # with a sleep of its own or without
    assert failed == {**engine, "action": "failed", "root_pid": program, "reason": "tcp"}
    assert made == {**engine, "action": "made", "root_pid": program, "runs_on": False, **image}
    assert restarted == {**engine, "action": "restarted", "root_pid": resumed, "tries": 1, **image}
    assert ended == {**engine, "action": "ended", "root_pid": resumed, "exit_code": 7}
    assert refused == {**engine, "action": "restart_failed", "reason": "ended"}
    assert [(record["scheduler"], record["job"]) for record in records(node)] == [
        ("slurm", str(job.id)), ("slurm", str(job.id)), ("oar", str(again.id)),
        ("oar", str(again.id)), ("slurm", str(last.id))]
    alice = {"name": node.alice.pw_name, "id": str(node.alice.pw_uid)}
    assert all(record["user"] == alice for record in records(node))

    # The archiving daemon's group, and nobody else, can read and remove them.
    one = sorted(node.records.glob("*.json"))[0]
    assert (node.records.stat().st_mode & 0o7777, node.records.stat().st_gid) == (0o2770,
                                                                                RECORDS_GID)
    assert (one.stat().st_mode & 0o7777, one.stat().st_uid, one.stat().st_gid) == (
        0o640, 0, RECORDS_GID)
    member = ["setpriv", f"--reuid={node.mallory.pw_uid}", f"--regid={RECORDS_GID}",
              "--clear-groups", "--inh-caps=-all", "sh", "-c", 'cat "$1" && rm "$1"', "sh", one]
    subprocess.run(member, check=True, stdout=subprocess.DEVNULL)
    assert len(records(node)) == 4


def test_a_save_after_which_the_program_runs_on_is_recorded_as_such(node):
    node.start()
    directory = node.directory(node.alice)
    job = node.job(node.alice, directory)
    wait_lines(directory)
    node.request(node.alice, f"{job.id}.checkpoint",
                 f"{program_of(job)}\nruns_on\n{directory}\n")
    wait_actions(node, "made")
    assert records(node)[0]["checkpoint"]["runs_on"] is True
    wait_lines(directory)


def test_nothing_is_recorded_of_a_job_that_is_not_the_requests_owners(node):
    node.start()
    directory = node.directory(node.alice)
    job = node.job(node.alice, directory)
    wait_lines(directory)
    own = node.directory(node.mallory)
    node.request(node.mallory, f"{job.id}.checkpoint", f"{program_of(job)}\n{own}\n")
    assert failure(own).startswith("not_in_job: ")
    (own / "checkpoint_failed").unlink()
    node.request(node.mallory, f"{job.id}.resume", f"{own}\n")
    assert failure(own).startswith("not_in_job: ")
    save(node, job)
    wait_actions(node, "made")
    assert records(node)[0]["user"]["name"] == node.alice.pw_name


def test_a_dump_whose_process_is_killed_is_recorded_as_interrupted(node):
    node.start()
    directory = node.directory(node.alice)
    node.orders(node.alice, directory, dump_seconds=600)
    job = node.job(node.alice, directory)
    program = program_of(job)
    job.signal()
    wait_for((directory / "checkpoint.tmp").exists, "the dump begins")
    [worker] = node.workers()
    os.kill(worker, signal.SIGKILL)
    wait_actions(node, "failed")
    [record] = records(node)
    assert (record["job"], record["checkpoint"]["root_pid"], record["checkpoint"]["reason"]) == (
        str(job.id), program, "interrupted")


@pytest.mark.parametrize("obstacle", ["full", "unusable", "no_group"])
def test_without_room_for_records_jobs_are_saved_all_the_same(node, obstacle):
    keys = {}
    if obstacle == "full":
        node.records.mkdir()
        os.chown(node.records, 0, RECORDS_GID)
        node.records.chmod(0o2770)
        for number in range(4096):
            (node.records / f"{number}-1.json").touch()
        said = "CHECKPOINT_RECORD_DROPPED"
    elif obstacle == "unusable":
        node.records.write_text("")
        said = "CHECKPOINT_RECORDS_UNUSABLE"
    else:
        keys["records_group"] = "scr-no-such-group"
        said = "CHECKPOINT_NO_RECORDS"
    node.start(**keys)
    directory = node.directory(node.alice)
    for _ in range(2):
        job = node.job(node.alice, directory)
        wait_lines(directory)
        save(node, job)
    wait_for(lambda: said in node.log(), "the service says so")
    if obstacle == "full":
        assert len(list(node.records.iterdir())) == 4096
    else:
        assert not node.records.is_dir()


# ---- through the daemon --------------------------------------------------------------------------
def make_archive(make_daemon, node, work, **sources):
    return make_daemon(
        sources={"checkpoint": {"folder": str(node.records)}, **sources},
        sinks={"catalog": {"root": str(work / "catalog"), "kinds": ["job.*"]},
               "archive": {"layout": "user-month", "kinds": ["job.*"]}})


def wait_collected(daemon, node, count):
    daemon.wait_status(lambda s: s["sources"]["checkpoint"]["captured"] >= count and
                       s["sinks"]["catalog"]["waiting"] == s["sinks"]["archive"]["waiting"] == 0,
                       f"{count} records are delivered")
    wait_for(lambda: records(node) == [], "the records are removed")


def chain_lines(text):
    """The lines behind "checkpoint" in `show`, without their times."""
    lines = text.splitlines()
    [first] = [at for at, line in enumerate(lines) if line.startswith("  checkpoint  ")]
    chain = [lines[first]]
    for line in lines[first + 1:]:
        if not line.startswith(" " * 14):
            break
        chain.append(line)
    return [line[14 + len("2026-11-28 16:10:00  "):] for line in chain]


def test_show_draws_the_chain_of_lives_of_a_job(node, make_daemon, spool, work):
    node.start()
    directory = node.directory(node.alice)
    job = node.job(node.alice, directory)
    spool.write(job.id, b"#!/bin/bash\n./program\n")
    daemon = make_archive(make_daemon, node, work).start()
    wait_lines(directory)
    save(node, job)
    wait_collected(daemon, node, 1)
    # The rest is written while the daemon is down, and found at its start.
    daemon.terminate()
    again = node.job(node.alice, directory, job_id=job.id)
    wait_lines(directory)
    save(node, again)
    last = node.job(node.alice, directory, job_id=job.id)
    wait_lines(directory)
    (directory / "stop").touch()
    assert last.wait() == 99
    wait_actions(node, "restarted", "made", "restarted", "ended")
    check_no_gap(directory)
    copies = {path: path.read_bytes() for path in node.records.glob("*.json")}
    daemon.start()
    wait_collected(daemon, node, 4)

    host = os.uname().nodename
    shown = daemon.command("show", str(job.id)).stdout
    *chain, _ = chain_lines(shown)
    assert [line.split(":")[0] for line in chain] == [
        f"saved on {host}", f"resumed on {host}", f"saved on {host}", f"resumed on {host}",
        f"ended on {host}"], shown
    assert ", frozen for " in chain[0] and "KiB" in chain[0], shown
    assert ", away for " in chain[1] and ", away for " in chain[3], shown
    assert chain[-1] == f"ended on {host}: exit code 7"
    assert re.search(r"^ {14}3 lives, \d.* lost of \d", shown, re.M), shown
    assert "unverified" not in "".join(chain)

    # A crash between the journal and the removal: they are read once more.
    for path, text in copies.items():
        (node.records / ".copy").write_bytes(text)
        (node.records / ".copy").rename(path)
    wait_collected(daemon, node, 8)
    [found] = json.loads(daemon.command("show", "--json", str(job.id)).stdout)
    [program] = found["checkpoint"]["programs"]
    assert program["lives"] == 3 and program["lost_seconds"] > 0, program
    assert found["checkpoint"]["findings"] == []
    steps = [event for event in found["later"] if event["kind"] == "job.checkpoint"]
    assert len(steps) == 5
    validator = kafka_lab.validator(SCHEMA)
    for step in steps:
        kafka_lab.assert_valid(validator, step, step["id"])
        assert step["user"] == {"name": node.alice.pw_name, "id": str(node.alice.pw_uid),
                                "verified": True}
    tree = list((work / "archive").rglob("*job-checkpoint*.json"))
    assert len(tree) == 5
    assert {path.parts[len(work.parts) + 1] for path in tree} == {node.alice.pw_name}


def test_the_daemons_own_user_collects_records_and_cannot_write_one(node, make_daemon, work):
    node.start()
    directory = node.directory(node.alice)
    job = node.job(node.alice, directory)
    wait_lines(directory)
    save(node, job)
    wait_actions(node, "made")
    [true] = node.records.glob("*.json")
    user = pwd.getpwnam("nobody")
    assert user.pw_gid == RECORDS_GID
    forged = node.records / "0-forged.json"
    text = true.read_bytes().replace(node.alice.pw_name.encode(), b"root")
    subprocess.run(["tee", forged], input=text, check=True, stdout=subprocess.DEVNULL,
                   preexec_fn=harness.become_user(user))
    for name in ("state", "archive", "catalog"):
        (work / name).mkdir()
        os.chown(work / name, user.pw_uid, user.pw_gid)
    daemon = make_archive(make_daemon, node, work, slurm=None)  # as on compute nodes
    daemon.start(preexec_fn=harness.become_user(user))
    wait_collected(daemon, node, 1)
    assert daemon.source("checkpoint")["captured"] == 1
    assert "it does not belong to the folder's owner" in daemon.log_file.read_text()
    assert "CHECKPOINT_RECORDS_UNREADABLE" not in daemon.log_file.read_text()
