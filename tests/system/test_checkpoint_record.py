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
RUN = harness.BUILD / "scriptorium-run"
# It saves itself, and runs on.
APP = """#!/bin/bash
echo "begun $SCRIPTORIUM_RESUMES"
while [ ! -e stop ]; do
  if [ -e "$SCRIPTORIUM_SAVE_DIR/save_now" ]; then
    touch "$SCRIPTORIUM_SAVE_DIR/saved"
    rm "$SCRIPTORIUM_SAVE_DIR/save_now"
  fi
  sleep 0.05
done
exit 7
"""


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
        # With a sleep or without; when it begins, it reads where it was by a subshell and a tail.
        assert step.pop("processes") in (1, 2, 3)
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
        sources={"checkpoint": {"folder": str(node.records),
                                "user_folder": str(work / "user-records")}, **sources},
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


def make_user_folder(work, owner=0, group=0):
    """As the drop-in checkpoint.conf makes it."""
    folder = work / "user-records"
    folder.mkdir()
    os.chown(folder, owner, group)
    folder.chmod(0o3733)
    return folder


class SelfSaving:
    """A life of a job that runs scriptorium-run, without a scheduler."""

    def __init__(self, node, user, directory, job_id, *command):
        self.log = directory.parent / f"run-{job_id}.log"
        environment = {"PATH": os.environ["PATH"], "SLURM_JOB_ID": str(job_id),
                       "SCRIPTORIUM_RECORDS": str(node.work / "user-records")}
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [RUN, "--engine=app", *(command or ["./program"])], cwd=directory,
                env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                preexec_fn=harness.become_user(user))

    def wait_says(self, text):
        wait_for(lambda: text in self.log.read_text(), lambda: f"{text}: {self.log.read_text()}")

    def wait(self):
        return self.process.wait(60 * harness.PATIENCE)


def test_a_program_that_saves_itself_is_recorded_as_its_owner_says(node, make_daemon, spool, work):
    make_user_folder(work)
    directory = node.directory(node.alice, program=APP)
    job_id = os.getpid()
    spool.write(job_id, b"#!/bin/bash\nscriptorium-run ./program\n")
    daemon = make_archive(make_daemon, node, work).start()
    # Any user can name any job.
    forged = {"format": 1, "scheduler": "slurm", "job": str(job_id),
              "user": {"name": node.alice.pw_name, "id": str(node.alice.pw_uid)},
              "checkpoint": {"action": "ended", "exit_code": 1}}
    subprocess.run(["tee", work / "user-records" / "forged"], check=True,
                   input=json.dumps(forged).encode() + b"\n", stdout=subprocess.DEVNULL,
                   preexec_fn=harness.become_user(node.mallory))
    life = SelfSaving(node, node.alice, directory, job_id)
    life.wait_says("begun \n")
    life.process.send_signal(signal.SIGUSR2)
    assert life.wait() == 99, life.log.read_text()
    life = SelfSaving(node, node.alice, directory, job_id)
    life.wait_says("begun 1\n")
    (directory / "stop").touch()
    assert life.wait() == 7, life.log.read_text()
    daemon.wait_status(lambda s: s["sources"]["checkpoint"]["captured"] == 4 and
                       s["sinks"]["catalog"]["waiting"] == 0, "4 records are delivered")
    wait_for(lambda: list((work / "user-records").iterdir()) == [], "the records are removed")

    # Nobody has said whose job it is, so all are shown, each with its writer.
    host = os.uname().nodename
    *chain, _ = chain_lines(daemon.command("show", str(job_id)).stdout)
    writers = [node.mallory, node.alice, node.alice, node.alice]
    for line, writer in zip(chain, writers):
        assert line.endswith(f" (unverified, written by {writer.pw_name})"), line
    assert [line.split(" (")[0].split(":")[0] for line in chain] == [
        f"ended on {host}", f"saved on {host}", f"resumed on {host}", f"ended on {host}"]
    [found] = json.loads(daemon.command("show", "--json", str(job_id)).stdout)
    steps = [event for event in found["later"] if event["kind"] == "job.checkpoint"]
    validator = kafka_lab.validator(SCHEMA)
    for step in steps:
        kafka_lab.assert_valid(validator, step, step["id"])
        assert step["user"]["verified"] is False
    by_mallory = [step["checkpoint"]["action"] for step in steps
                  if step["user"]["name"] == node.mallory.pw_name]
    assert by_mallory == ["ended"] and len(steps) == 4
    [made] = [step["checkpoint"] for step in steps if step["checkpoint"]["action"] == "made"]
    assert made.pop("duration_seconds") >= 0
    assert made.pop("root_pid") > 0
    assert made == {"action": "made", "engine": "app", "runs_on": False,
                    "image_path": f"{directory}/scriptorium-run.{job_id}/app"}


def test_without_a_folder_for_records_a_program_that_saves_itself_runs_the_same(node, work):
    directory = node.directory(node.alice, program=APP)
    (work / "user-records").write_text("not a folder")
    (directory / "stop").touch()
    life = SelfSaving(node, node.alice, directory, 1)
    assert life.wait() == 7
    assert "user-records" not in life.log.read_text()


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
    folder = make_user_folder(work, user.pw_uid, user.pw_gid)
    for name in ("state", "archive", "catalog"):
        (work / name).mkdir()
        os.chown(work / name, user.pw_uid, user.pw_gid)
    daemon = make_archive(make_daemon, node, work, slurm=None)  # as on compute nodes
    daemon.start(preexec_fn=harness.become_user(user))
    wait_collected(daemon, node, 1)
    assert daemon.source("checkpoint")["captured"] == 1
    # One of a program, which only the folder's group can read.
    foreign = ["sh", "-c", f'ls {folder} || rm {folder}/other']
    (folder / "other").mkdir()
    (folder / "other" / "inside").touch()
    assert subprocess.run(foreign, preexec_fn=harness.become_user(node.mallory), check=False,
                          stderr=subprocess.DEVNULL).returncode != 0
    os.umask(0o077)
    try:
        assert SelfSaving(node, node.alice, node.directory(node.alice, "app"), 7,
                          "true").wait() == 0
    finally:
        os.umask(0o022)
    daemon.wait_status(lambda s: s["sources"]["checkpoint"]["captured"] == 2, "it is collected")
    assert "it does not belong to the folder's owner" in daemon.log_file.read_text()
    assert "CHECKPOINT_RECORDS_UNREADABLE" not in daemon.log_file.read_text()
