"""scriptorium-checkpointd: unchanged job scripts live several lives, and nobody reaches through the
service what is not theirs. Real processes of real users in real control groups; the engine is a
stand-in (tests/support/fake-criu). test_checkpoint_criu.py has the real one."""

import json
import os
import pathlib
import signal
import subprocess
import time

import checkpoint_lab
import harness
import pytest
from checkpoint_lab import (DAEMON, LAYOUTS, failure, is_running, lines, processes_in, program_of,
                            wait_lines)
from harness import wait_for

MISSING = checkpoint_lab.what_is_missing()
pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)


@pytest.fixture
def node(work):
    node = checkpoint_lab.Node(work, checkpoint_lab.fake_criu(work))
    yield node
    node.cleanup()


def save(node, job):
    """The scheduler's signal, up to the end of this life."""
    job.signal()
    assert job.wait() == 99, node.log()


def first_life(node, directory, user=None):
    job = node.job(user or node.alice, directory)
    wait_lines(directory)
    save(node, job)
    return job


def request_text(pid, directory):
    return f"{pid}\n{directory}\n"


# ---- lives ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.__name__)
def test_an_unchanged_script_lives_several_lives(node, layout):
    node.start()
    directory = node.directory(node.alice)
    for life in range(3):
        job = node.job(node.alice, directory, layout=layout)
        wait_lines(directory)
        if life > 0:
            pid = int((directory / "checkpoint" / "pidfile").read_text())
            assert pid in processes_in(job.group), "the resumed program is in this life's group"
        save(node, job)
    assert lines(directory) == [str(n + 1) for n in range(len(lines(directory)))]

    image = directory / "checkpoint"
    assert image.stat().st_mode & 0o7777 == 0o700
    assert {path.stat().st_uid for path in directory.rglob("*")} == {node.alice.pw_uid}
    manifest = json.loads((image / "manifest.json").read_text())
    assert manifest["files"][0]["sha256"] == harness.sha256((image / "tree.img").read_bytes())
    assert manifest["job"] == str(job.id)
    assert sorted(path.name for path in directory.glob("checkpoint*")) == [
        "checkpoint", "checkpoint.old", "checkpoint_ok"]
    node.wait_no_requests()

    # The program ends by itself: one life more, and the chain ends.
    job = node.job(node.alice, directory, layout=layout)
    wait_lines(directory)
    (directory / "stop").touch()
    assert job.wait() == 99
    assert wait_for((image / "exit_code").exists, "the exit code is kept")
    assert (image / "exit_code").read_text() == "7\n"
    job = node.job(node.alice, directory, layout=layout)
    assert job.wait() == -signal.SIGTERM
    assert failure(directory).startswith("ended: the program has ended by itself with exit code 7")


def test_a_program_that_has_ended_before_any_dump_ends_its_job(node):
    node.start()
    directory = node.directory(node.alice)
    job = node.job(node.alice, directory)
    wait_lines(directory)
    (directory / "stop").touch()
    program = program_of(job)
    wait_for(lambda: not is_running(program), "the program ends")
    job.signal()
    assert job.wait() == -signal.SIGTERM
    assert failure(directory) == f"process_gone: there is no process {program}\n"
    assert not (directory / "checkpoint_ok").exists()


def test_a_refused_dump_leaves_the_program_running(node):
    node.start()
    directory = node.directory(node.alice)
    job = node.job(node.alice, directory)
    program = program_of(job)
    node.orders(node.alice, directory, dump_error="inet: Connected TCP socket")
    job.signal()
    assert failure(directory).startswith("tcp: ")
    wait_lines(directory)
    assert is_running(program) and job.process.poll() is None
    assert not (directory / "checkpoint.tmp").exists()
    # Later it can be saved.
    node.orders(node.alice, directory)
    save(node, job)
    assert not (directory / "checkpoint_failed").exists()


def test_a_refused_resume_ends_the_job(node):
    node.start()
    directory = node.directory(node.alice)
    first_life(node, directory)
    (directory / "checkpoint" / "tree.img").write_text("{}")
    job = node.job(node.alice, directory)
    assert job.wait() == -signal.SIGTERM
    assert failure(directory) == "image_damaged: tree.img is not as it was when it was made\n"


def test_a_taken_process_id_is_tried_for_ten_seconds(node):
    node.start()
    directory = node.directory(node.alice)
    first_life(node, directory)
    node.orders(node.alice, directory, restore_error="Can't fork for 7: File exists")
    begun = time.monotonic()
    job = node.job(node.alice, directory)
    assert failure(directory).startswith("pid_taken: ")
    assert time.monotonic() - begun >= 10
    assert job.wait() == -signal.SIGTERM


def test_a_cancelled_job_leaves_nothing_of_what_was_restored(node):
    node.start()
    directory = node.directory(node.alice)
    first_life(node, directory)
    job = node.job(node.alice, directory)
    wait_lines(directory)
    program = int((directory / "checkpoint" / "pidfile").read_text())
    assert is_running(program)
    job.cancel()
    assert not is_running(program)
    ended = len(lines(directory))
    node.request(node.alice, "1.resume", "relative\n")  # the service has turned once more
    wait_for(lambda: "1.resume" in node.log(), "the service answers")
    assert len(lines(directory)) == ended
    assert not (directory / "checkpoint" / "exit_code").exists(), "it can be resumed again"


def test_a_signal_that_comes_twice_makes_one_dump(node):
    node.start()
    directory = node.directory(node.alice)
    node.orders(node.alice, directory, dump_seconds=1)
    job = node.job(node.alice, directory)
    wait_lines(directory)
    for _ in range(2):
        node.request(node.alice, f"{job.id}.checkpoint", request_text(program_of(job), directory))
    wait_for((directory / "checkpoint_ok").exists, "the program is saved")
    assert job.wait() == 99
    assert not (directory / "checkpoint.old").exists()
    assert not (directory / "checkpoint_failed").exists()


def test_a_signal_that_comes_again_after_the_dump_leaves_the_image_and_the_job(node):
    node.start()
    directory = node.directory(node.alice)
    job = node.job(node.alice, directory, "bash", "-c",
                   "./program >> output 2>&1 < /dev/null & while sleep 0.2; do :; done")
    wait_lines(directory)
    request = request_text(program_of(job), directory)
    node.request(node.alice, f"{job.id}.checkpoint", request)
    wait_for((directory / "checkpoint_ok").exists, "the program is saved")
    wait_for(lambda: node.log().count("CHECKPOINT_DONE") == 1, "the first request is served")
    node.request(node.alice, f"{job.id}.checkpoint", request)
    wait_for(lambda: node.log().count("CHECKPOINT_") == 3, "the second request is served")
    assert node.log().count("CHECKPOINT_DONE") == 2, node.log()
    assert (directory / "checkpoint_ok").exists()
    assert not (directory / "checkpoint_failed").exists()
    assert job.process.poll() is None
    node.job(node.alice, directory)
    wait_lines(directory)


def test_a_signal_that_comes_again_after_a_restart_in_mid_dump_does_not_end_the_job(node):
    node.start()
    directory = node.directory(node.alice)
    node.orders(node.alice, directory, dump_seconds=3)
    job = node.job(node.alice, directory)
    program = program_of(job)
    job.signal()
    wait_for((directory / "checkpoint.tmp").exists, "the dump begins")
    node.stop(signal.SIGKILL)
    node.start()
    node.request(node.alice, f"{job.id}.checkpoint", request_text(program, directory))
    assert failure(directory) == "busy: another request works in this directory\n"
    assert is_running(program)
    assert job.wait() == 99
    assert (directory / "checkpoint_ok").exists()
    assert not (directory / "checkpoint_failed").exists()
    assert not (directory / "checkpoint.old").exists(), "saved once"


# ---- the service ---------------------------------------------------------------------------------
def test_a_dump_is_finished_although_the_service_is_killed(node):
    node.start()
    directory = node.directory(node.alice)
    node.orders(node.alice, directory, dump_seconds=1)
    job = node.job(node.alice, directory)
    wait_lines(directory)
    job.signal()
    wait_for(lambda: (directory / "checkpoint.tmp").exists(), "the dump begins")
    node.stop(signal.SIGKILL)
    assert job.wait() == 99
    node.start()
    job = node.job(node.alice, directory)
    wait_lines(directory)


def dump_in_progress(node):
    """One that does not end. The directory, the job, its program and the service's process."""
    node.start()
    directory = node.directory(node.alice)
    node.orders(node.alice, directory, dump_seconds=600)
    job = node.job(node.alice, directory)
    program = program_of(job)
    job.signal()
    wait_for((directory / "checkpoint.tmp").exists, "the dump begins")
    worker, = node.workers()
    return directory, job, program, worker


def test_a_program_runs_on_when_the_process_that_saves_it_is_killed(node):
    directory, _, program, worker = dump_in_progress(node)
    begun = time.monotonic()
    os.kill(worker, signal.SIGKILL)
    assert failure(directory) == "interrupted: the service's process for it was ended\n"
    assert time.monotonic() - begun < 60
    wait_lines(directory)
    assert is_running(program)
    assert "CHECKPOINT_INTERRUPTED" in node.log()


def test_a_dump_that_takes_too_long_is_given_up(node):
    node.start(time_limit_seconds=1)
    directory = node.directory(node.alice)
    node.orders(node.alice, directory, dump_seconds=600)
    job = node.job(node.alice, directory)
    wait_lines(directory)
    job.signal()
    assert failure(directory) == "timeout: the time limit was reached\n"
    wait_lines(directory)


def test_an_engine_that_does_not_work_is_named_to_the_job(node):
    node.criu = pathlib.Path("/nonexistent/criu")
    node.start()
    assert "CHECKPOINT_ENGINE_UNUSABLE" in node.log()
    directory = node.directory(node.alice)
    job = node.job(node.alice, directory)
    wait_lines(directory)
    job.signal()
    assert failure(directory) == "engine: /nonexistent/criu cannot be executed\n"


def test_images_beyond_the_generations_are_removed(node):
    node.start(generations=1)
    directory = node.directory(node.alice)
    for _ in range(2):
        first_life(node, directory)
    assert sorted(path.name for path in directory.glob("checkpoint*")) == [
        "checkpoint", "checkpoint_ok"]


def test_a_bad_configuration_is_reported_with_its_lines(work):
    config = work / "checkpoint.toml"
    config.write_text('spol = "/x"\ndumps_at_a_time = 0\n')
    answer = subprocess.run([str(DAEMON), "--config", str(config)], capture_output=True, text=True,
                            timeout=60)
    assert answer.returncode == harness.EX_CONFIG
    assert answer.stderr.splitlines() == [
        f'{config}:1: spol: unknown key; did you mean "spool"?',
        f"{config}:2: dumps_at_a_time: out of range; allowed: 1 .. 64; given: 0"]


def test_check_says_what_is_missing(node):
    config = node.work / "checkpoint.toml"
    for criu, status, lines in (
            (node.criu, harness.EX_OK, ["good     criu: 9.9 works"]),
            ("/nonexistent/criu", harness.EX_UNAVAILABLE,
             ["missing  criu: /nonexistent/criu cannot be executed"])):
        config.write_text(f'criu = "{criu}"\nspool = "{node.spool}"\n')
        answer = subprocess.run([str(DAEMON), "--config", str(config), "check"],
                                capture_output=True, text=True, timeout=60)
        assert answer.returncode == status, answer
        assert set(lines) <= set(answer.stdout.splitlines())
    assert not node.spool.exists()


WAYS_TO_STOP = [signal.SIGTERM, signal.SIGKILL]


@pytest.mark.parametrize("how", WAYS_TO_STOP, ids=lambda how: how.name)
def test_requests_that_wait_are_served_by_the_next_start_each_once(node, how):
    node.start(dumps_at_a_time=1)
    jobs = []
    for name in ("first", "second", "third", "fourth"):
        directory = node.directory(node.alice, name)
        node.orders(node.alice, directory, dump_seconds=1)
        job = node.job(node.alice, directory)
        wait_lines(directory)
        jobs.append((job, directory))
    jobs[0][0].signal()
    begun = jobs[0][1] / "checkpoint.tmp"
    wait_for(begun.exists, "the first dump begins")
    for job, _ in jobs[1:]:
        job.signal()
    wait_for(lambda: len(list(node.spool.glob(".accepted/[0-9]*"))) == 3, "the others wait")
    node.stop(how)
    # Another one comes while no service is there.
    last = node.directory(node.alice, "last")
    jobs.append((node.job(node.alice, last), last))
    wait_lines(last)
    jobs[-1][0].signal()
    wait_for(lambda: list(node.spool.glob("*.checkpoint")), "the script writes its request")
    node.start(dumps_at_a_time=1)
    for job, directory in jobs:
        assert job.wait() == 99, node.log()
        assert (directory / "checkpoint_ok").exists()
        assert not (directory / "checkpoint_failed").exists()
        assert not (directory / "checkpoint.old").exists(), "saved once"
    wait_for(lambda: node.log().count("CHECKPOINT_DONE") >= 4, "the service notes its results")
    assert node.log().count("CHECKPOINT_DONE") == 4, "the first one's process outlived its service"
    assert "CHECKPOINT_NOT_DONE" not in node.log()
    node.wait_no_requests()


def test_a_request_that_was_removed_before_its_turn_is_noted_so(node):
    node.start(dumps_at_a_time=1)
    jobs = []
    for name in ("first", "second"):
        directory = node.directory(node.alice, name)
        node.orders(node.alice, directory, dump_seconds=2)
        jobs.append(node.job(node.alice, directory))
        wait_lines(directory)
        jobs[-1].signal()
        if name == "first":
            wait_for((directory / "checkpoint.tmp").exists, "the first dump begins")
    waiting, = wait_for(lambda: list(node.spool.glob(".accepted/[0-9]*")), "the second one waits")
    waiting.unlink()
    assert jobs[0].wait() == 99
    wait_for(lambda: "CHECKPOINT_WITHDRAWN" in node.log(), "it is noted")
    assert "its directory says why" not in node.log()
    assert jobs[1].process.poll() is None


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_dump_that_is_ended_as_well_as_its_service_is_reported_by_the_next_start(node, when):
    directory, job, program, worker = dump_in_progress(node)
    # Stopped, it does not see the end of its process.
    node.process.send_signal(signal.SIGSTOP)
    if when == "before":
        os.kill(worker, signal.SIGKILL)
    node.stop(signal.SIGKILL)
    node.start()
    if when == "after":
        node.request(node.alice, "1.resume", "relative\n")
        wait_for(lambda: "1.resume" in node.log(), "it has taken what was there")
        assert not (directory / "checkpoint_failed").exists()
        os.kill(worker, signal.SIGKILL)
    assert failure(directory) == "interrupted: the service's process for it was ended\n"
    node.wait_no_requests()
    wait_lines(directory)
    assert is_running(program) and not (directory / "checkpoint").exists(), "not begun again"
    assert node.log().count("CHECKPOINT_INTERRUPTED") == 1
    node.orders(node.alice, directory)
    save(node, job)


def test_a_request_that_cannot_be_kept_is_served(node):
    node.start()
    (node.spool / ".accepted").rmdir()
    first_life(node, node.directory(node.alice))
    node.wait_no_requests()
    assert "CHECKPOINT_NOT_DONE" not in node.log()


def test_a_request_waits_while_no_process_can_be_had(node):
    group = checkpoint_lab.CGROUPS / "pids" / f"scr-ck{os.getpid()}"
    group.mkdir()
    node.groups.append(group)
    node.start()
    directory = node.directory(node.alice)
    job = node.job(node.alice, directory)
    wait_lines(directory)
    (group / "cgroup.procs").write_text(str(node.process.pid))
    (group / "pids.max").write_text("1")
    job.signal()
    wait_for(lambda: "CHECKPOINT_NOT_STARTED" in node.log(), "no process can be had")
    used = cpu_seconds(node.process.pid)
    begun = time.monotonic()
    wait_lines(directory, 60)
    assert cpu_seconds(node.process.pid) - used < (time.monotonic() - begun) / 10, "it pauses"
    assert len(node.requests()) == 1
    (group / "pids.max").write_text("max")
    assert job.wait() == 99, node.log()
    node.wait_no_requests()


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(field) for field in fields[11:13]) / os.sysconf("SC_CLK_TCK")


# ---- attacks -------------------------------------------------------------------------------------
def test_the_engine_has_no_more_rights_than_the_owner_and_two_capabilities(node):
    node.start()
    directory = node.directory(node.alice)
    first_life(node, directory)
    saved = json.loads((directory / "checkpoint" / "tree.img").read_text())["status"]
    status = dict(line.split(":\t", 1) for line in saved.splitlines() if ":\t" in line)
    assert status["Uid"].split() == [str(node.alice.pw_uid)] * 4
    assert status["Gid"].split() == [str(node.alice.pw_gid)] * 4
    assert "0" not in status["Groups"].split()
    restricted = pathlib.Path("/proc/sys/kernel/yama/ptrace_scope")
    rights = 1 << 40 | 1 << 8  # CAP_CHECKPOINT_RESTORE, CAP_SETPCAP
    if restricted.exists() and restricted.read_text().strip() != "0":
        rights |= 1 << 19  # CAP_SYS_PTRACE
    for name in ("CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(status[name], 16) == rights, name
    assert status["NoNewPrivs"] == "1"


def test_another_users_process_is_not_saved(node):
    node.start()
    victim_directory = node.directory(node.alice)
    victim = node.job(node.alice, victim_directory)
    program = program_of(victim)
    directory = node.directory(node.mallory)
    attacker = node.job(node.mallory, directory, "sleep", "600")
    # In the attacker's own job, and in the victim's.
    for job, reason in ((attacker.id, "not_in_job: the process is another user's\n"),
                        (victim.id, "not_in_job: the process is another user's\n")):
        (directory / "checkpoint_failed").unlink(missing_ok=True)
        node.request(node.mallory, f"{job}.checkpoint", request_text(program, directory))
        assert failure(directory) == reason
    wait_lines(victim_directory)
    assert is_running(program) and attacker.process.poll() is None
    assert not (directory / "checkpoint").exists()


def test_a_process_outside_the_job_is_not_saved(node):
    node.start()
    directory = node.directory(node.alice)
    other_directory = node.directory(node.alice, "other")
    job = node.job(node.alice, directory, "sleep", "600")
    other = node.job(node.alice, other_directory)
    outside = subprocess.Popen(["sleep", "600"], preexec_fn=harness.become_user(node.alice))
    try:
        for pid in (program_of(other), outside.pid):
            (directory / "checkpoint_failed").unlink(missing_ok=True)
            node.request(node.alice, f"{job.id}.checkpoint", request_text(pid, directory))
            assert failure(directory) == \
                f"not_in_job: process {pid} is not in the control group of job {job.id}\n"
            assert is_running(pid)
    finally:
        outside.kill()
        outside.wait()
    assert job.process.poll() is None


def test_nothing_is_resumed_in_another_users_job(node):
    node.start()
    victim_directory = node.directory(node.alice)
    victim = node.job(node.alice, victim_directory)
    wait_lines(victim_directory)
    directory = node.directory(node.mallory)
    first_life(node, directory, node.mallory)
    node.request(node.mallory, f"{victim.id}.resume", f"{directory}\n")
    assert failure(directory).startswith(f"not_in_job: no process of job {victim.id} of ")
    owners = {os.stat(f"/proc/{pid}").st_uid for pid in processes_in(victim.group)
              if is_running(pid)}
    assert owners == {node.alice.pw_uid}
    assert victim.process.poll() is None


def test_no_image_of_another_user_is_restored(node):
    node.start()
    shared = node.work / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    doctored = node.directory(node.mallory)
    first_life(node, doctored, node.mallory)
    for command in (["cp", "-r", str(doctored / "checkpoint"), str(shared / "checkpoint")],
                    ["chmod", "-R", "a+rX", str(shared / "checkpoint")]):
        subprocess.run(command, check=True, preexec_fn=harness.become_user(node.mallory))
    job = node.job(node.alice, node.directory(node.alice), "sleep", "600")
    node.request(node.alice, f"{job.id}.resume", f"{shared}\n")
    assert failure(shared) == ("image_damaged: the image's folder is not one that only the job's "
                               "owner can enter\n")
    assert job.wait() == -signal.SIGTERM
    # The service's process for the request is in the job's group until it ends.
    wait_for(lambda: processes_in(job.group) == [], "nothing is left in the job")


def test_a_restored_process_with_rights_is_killed(node):
    node.start()
    directory = node.directory(node.alice)
    first_life(node, directory)
    node.orders(node.alice, directory, keep_rights=True)
    job = node.job(node.alice, directory)
    assert failure(directory) == \
        "not_in_group: a restored process has other rights than the job's owner\n"
    assert job.wait() == -signal.SIGTERM
    wait_for(lambda: processes_in(job.group) == [], "nothing is left in the job")
    assert not (directory / "checkpoint" / "pidfile").exists()


def test_a_directory_that_is_not_the_users_gets_nothing(node):
    node.start()
    private = node.work / "private"
    private.mkdir(mode=0o755)
    (private / "checkpoint_ok").write_text("root's")
    job_directory = node.directory(node.alice)
    job = node.job(node.alice, job_directory)
    program = program_of(job)
    node.request(node.alice, f"{job.id}.checkpoint", request_text(program, private))
    wait_for(lambda: "CHECKPOINT_NOT_DONE" in node.log(), "the request is refused")
    assert "reason=directory" in node.log() or '"directory"' in node.log(), node.log()
    assert {path.name: path.read_text() for path in private.iterdir()} == {"checkpoint_ok":
                                                                           "root's"}
    wait_lines(job_directory)
    assert is_running(program)


def test_links_in_place_of_the_results_are_replaced_not_followed(node):
    node.start()
    precious = node.work / "precious"
    precious.mkdir()
    (precious / "file").write_text("root's")
    directory = node.directory(node.alice)
    for name in ("checkpoint_failed", "resume_ok", ".checkpoint_ok.new", "checkpoint"):
        (directory / name).symlink_to(precious / "file")
        node.give(node.alice, directory / name)
    for name in ("checkpoint.tmp", "checkpoint.old"):
        (directory / name).symlink_to(precious)
        node.give(node.alice, directory / name)
    first_life(node, directory)
    job = node.job(node.alice, directory)
    wait_for(lambda: (directory / "resume_ok").is_file(), "it is resumed")
    (directory / "checkpoint" / "exit_code").symlink_to(precious / "file")
    (directory / "stop").touch()
    job.wait()
    for path in (precious, precious / "file"):
        assert path.stat().st_uid == 0, "no chown"
    assert (precious / "file").read_text() == "root's"
    assert [path.name for path in precious.iterdir()] == ["file"]


def test_two_jobs_do_not_overwrite_each_others_image(node):
    node.start()
    directory = node.directory(node.alice)
    slow = node.job(node.alice, directory)
    program = program_of(slow)
    wait_lines(directory)
    other = node.job(node.alice, directory)
    wait_lines(directory)
    save(node, other)
    kept = (directory / "checkpoint" / "manifest.json").read_bytes()
    slow.signal()
    assert failure(directory).startswith("directory_in_use: ")
    assert (directory / "checkpoint" / "manifest.json").read_bytes() == kept
    assert (directory / "checkpoint_ok").exists()
    assert is_running(program)


def test_a_flood_of_requests_does_not_hold_up_another_user(node):
    node.start(requests_per_minute=20)
    directory = node.directory(node.mallory)
    job = node.job(node.mallory, directory, "sleep", "600")
    flood = f"for i in $(seq 2000); do echo {directory} > {node.spool}/$i.resume; done"
    subprocess.run(["bash", "-c", flood], check=True,
                   preexec_fn=harness.become_user(node.mallory))
    first_life(node, node.directory(node.alice))
    taken = ".accepted"
    wait_for(lambda: [path.name for path in node.spool.iterdir()] == [taken], "all are taken")
    assert 900 < len(node.requests()) <= 1001, "served: 20 a minute; waiting: 1000 of one user"
    assert 1 <= node.log().count("too many requests of this user") <= 10, "such lines are limited"
    assert job.process.poll() is None


def test_a_process_id_that_another_program_has_by_now_is_not_saved(node):
    """The program ends while its request waits, and its number goes to another job's program."""
    node.start()
    directory = node.directory(node.alice)
    job = node.job(node.alice, directory)
    wait_lines(directory)
    program = program_of(job)
    node.process.send_signal(signal.SIGSTOP)
    job.signal()
    wait_for(lambda: list(node.spool.glob("*.checkpoint")), "the request is written")
    os.kill(program, signal.SIGKILL)
    wait_for(lambda: not pathlib.Path(f"/proc/{program}").exists(), "its number is free")
    other_directory = node.directory(node.alice, "other")
    other = checkpoint_lab.take_pid(program, lambda: node.job(
        node.alice, other_directory, "sleep", "600").process)
    node.process.send_signal(signal.SIGCONT)
    begun = time.monotonic()
    assert failure(directory).startswith(f"not_in_job: process {program} is not in the control")
    assert time.monotonic() - begun < 10 * harness.PATIENCE
    assert job.wait() == -signal.SIGTERM, "nothing is left that it could wait for"
    assert other.poll() is None
    assert not (directory / "checkpoint").exists()


def test_a_request_of_the_jobs_life_before_does_not_end_this_one(node):
    node.start()
    directory = node.directory(node.alice)
    job = node.job(node.alice, directory)
    ended = subprocess.Popen(["true"])
    ended.wait()
    path = directory / "late"
    path.write_text(request_text(ended.pid, directory))
    before = time.time() - 60
    os.utime(path, (before, before))
    node.give(node.alice, path)
    path.rename(node.spool / f"{job.id}.checkpoint")
    assert failure(directory) == f"process_gone: there is no process {ended.pid}\n"
    node.request(node.alice, "1.resume", "relative\n")
    wait_for(lambda: "1.resume" in node.log() and not node.workers(), "the service is idle")
    wait_lines(directory)
    assert job.process.poll() is None


def test_the_unit_has_the_right_to_read_requests_that_only_their_owner_can_read(node):
    node.start()
    directory = node.directory(node.alice)
    job = node.job(node.alice, directory)
    wait_lines(directory)
    path = directory / "private"
    path.write_text(request_text(program_of(job), directory))
    path.chmod(0o600)
    node.give(node.alice, path)
    path.rename(node.spool / f"{job.id}.checkpoint")
    assert job.wait() == 99, node.log()


def test_a_request_by_the_number_of_an_arrays_task_is_given_the_id_to_use(node):
    node.start()
    directory = node.directory(node.alice)
    job = node.job(node.alice, directory)
    program = program_of(job)
    node.request(node.alice, f"{job.id}_5.checkpoint", request_text(program, directory))
    assert failure(directory) == f"not_in_job: process {program} is not in the control group of " \
        f"job {job.id}_5 (use the task's SLURM_JOB_ID)\n"
    assert is_running(program) and job.process.poll() is None


def test_requests_of_root_are_refused(node):
    node.start()
    (node.spool / "7.resume").write_text("/root\n")
    wait_for(lambda: "it is root's" in node.log(), "the request is refused")
    assert not (node.spool / "7.resume").exists()
