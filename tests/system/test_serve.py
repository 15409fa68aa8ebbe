"""`scriptorium serve` on a real catalog: two ordinary users, who each find their own jobs and none
of the other's, and a member of a reader group, who finds all."""

import collections
import functools
import json
import os
import pathlib
import pwd
import shutil
import socket
import subprocess
import tempfile
import time

import pytest

import harness
from harness import EX_OK, EX_UNAVAILABLE, wait_for
from test_search import MIB, NOTHING_FOUND, accounting_rows, archived
from test_search_reference import FakeSlurm

pytestmark = pytest.mark.skipif(not harness.IS_ROOT, reason="only root can be several users")

ALICE, BOB, SUPPORT, SERVICE, COORDINATOR = "games", "irc", "news", "backup", "uucp"
GONE = 999
# id: owner, seconds before now at which it was submitted, state
JOBS = {201: (ALICE, 9000, "COMPLETED"), 202: (ALICE, 8000, "FAILED"),
        203: (ALICE, 7000, "COMPLETED"),
        301: (BOB, 6500, "COMPLETED"), 302: (BOB, 5500, "FAILED")}


# The coordinator's; the other jobs are of the account bio.
CHEM = {201, 203, 302}
# Their account was changed while they waited.
MOVED = {202, 302}


def account_of(job, submitted=False):
    return "chem" if (job in CHEM) != (submitted and job in MOVED) else "bio"


def jobs_of(user):
    return sorted(str(job) for job, (owner, _, _) in JOBS.items() if owner == user)


class Site:
    def __init__(self, work):
        self.work, self.process = work, None
        self.socket = work / "run" / "query.sock"
        self.socket.parent.mkdir()
        shutil.chown(self.socket.parent, SERVICE)
        slurm, spool, now = FakeSlurm(work), harness.Spool(work / "spool"), int(time.time())
        (slurm.directory / "rows").write_text("".join(
            accounting_rows(job, now - before, 1000, 100 * MIB, state, user=user,
                            account=account_of(job))
            for job, (user, before, state) in JOBS.items()))
        slurm.queue.write_text("".join(
            f"{job}|{job}|N/A|{(uid := pwd.getpwnam(user).pw_uid)}|{uid}|{now - before}|N/A|N/A|"
            f"0|PD|1|{account_of(job, submitted=True)}@normal@cpu@/tmp@md_{job}@\n"
            for job, (user, before, _) in JOBS.items()))
        for job, (_, before, _) in JOBS.items():
            spool.write(job, f"#!/bin/bash\nmodule load GROMACS/2024.2\nmpirun gmx_mpi mdrun -s "
                             f"run_{job}.tpr -v\ncp confout.gro results\n".encode(),
                        [b"SLURM_JOB_NAME=md_%d" % job])
            os.utime(spool.entry(job) / "script", (now - before, now - before))
        (work / "sacctmgr").write_text(f"#!/bin/sh\necho 'bio|'; echo 'chem|{COORDINATOR}'\n")
        (work / "sacctmgr").chmod(0o755)
        self.daemon = archived(self.make_daemon, work, "catalog", events=2 * len(JOBS))
        self.configure(f'[serve]\nsocket = "{self.socket}"\nreader_groups = ["{SUPPORT}"]\n')

    def make_daemon(self, sources, sinks):
        sinks["catalog"]["reader_group"] = SERVICE
        daemon = harness.Daemon(self.work, harness.config_text(self.work, sources, sinks))
        daemon.config.chmod(0o644)
        self.plain_config = daemon.config.read_text()
        # The group of the catalog's readers must be one of the daemon's.
        groups = [pwd.getpwnam(SERVICE).pw_gid]
        daemon.start = functools.partial(daemon.start, extra_groups=groups)
        return daemon

    def configure(self, serve):
        self.daemon.config.write_text(self.plain_config + "\n" + serve)

    def start(self, **how):
        log = open(self.work / "serve.log", "ab")
        before = self.log().count("SERVE_STARTED")
        self.process = subprocess.Popen(
            [str(harness.SCRIPTORIUM), "serve", "--config", str(self.daemon.config)],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            preexec_fn=harness.become_user(pwd.getpwnam(SERVICE)), **how)
        log.close()
        wait_for(lambda: self.process.poll() is not None
                 or self.log().count("SERVE_STARTED") > before, "the service answers")
        assert self.process.poll() is None, self.log()

    def stop(self):
        self.process.terminate()
        assert self.process.wait(60) == 0, self.log()

    def log(self):
        return (self.work / "serve.log").read_text() if self.process else ""

    def ask(self, user, *command):
        """What the command says to this user."""
        who = pwd.getpwnam(user)
        return self.daemon.command(*command, check=False, cwd="/", user=who.pw_uid,
                                   group=who.pw_gid, extra_groups=[],
                                   env={"USER": user, "LOGNAME": user})


@pytest.fixture(scope="module")
def site():
    work = pathlib.Path(tempfile.mkdtemp(prefix="scr-", dir=harness.test_directory()))
    work.chmod(0o755)
    site = Site(work)
    site.start()
    yield site
    site.stop()
    assert not site.socket.exists()
    site.daemon.cleanup()
    shutil.rmtree(work, ignore_errors=True)


@pytest.mark.parametrize("user", [ALICE, BOB])
def test_a_user_finds_the_own_jobs_and_counts_no_others(site, user):
    own = jobs_of(user)
    found = site.ask(user, "search", "--ids", "mdrun")
    assert (found.returncode, sorted(found.stdout.split())) == (EX_OK, own), found
    assert found.stderr == ""
    assert json.loads(site.ask(user, "search", "--count", "--json").stdout)["count"] == {
        "jobs": len(own), "at_least": False}
    facets = json.loads(site.ask(user, "search", "--facets", "user,module,state", "--json").stdout)
    users = {v["value"]: v["jobs"] for f in facets["facets"] if f["field"] == "user"
             for v in f["values"]}
    assert users == {user: len(own)}
    states = collections.Counter(state for owner, _, state in JOBS.values() if owner == user)
    assert {v["value"]: v["jobs"] for f in facets["facets"] if f["field"] == "state"
            for v in f["values"]} == states
    other = BOB if user == ALICE else ALICE
    for query in (f"user:{other}", f"job:{jobs_of(other)[0]}", f"run_{jobs_of(other)[0]}"):
        refused = site.ask(user, "search", query)
        assert (refused.returncode, refused.stdout) == (NOTHING_FOUND, ""), query


def test_a_member_of_a_reader_group_finds_all(site):
    found = site.ask(SUPPORT, "search", "--ids", "mdrun")
    assert sorted(found.stdout.split()) == sorted(str(job) for job in JOBS), found
    assert "run_301" in site.ask(SUPPORT, "show", "301").stdout
    by = json.loads(site.ask(SUPPORT, "report", "--by", "user", "--since", "1d", "--json").stdout)
    assert {row["user"] for row in by["rows"]} == {ALICE, BOB}


def test_a_coordinator_finds_the_jobs_of_the_account_for_a_day(site):
    file = site.work / "catalog" / "coordinators.json"
    wait_for(file.exists, "the daemon has asked who coordinates")
    found = site.ask(COORDINATOR, "search", "--ids")
    assert sorted(found.stdout.split()) == sorted(str(job) for job in CHEM), found
    assert "run_302" in site.ask(COORDINATOR, "show", "302").stdout
    absent = site.ask(COORDINATOR, "show", str(GONE))
    for other in ("202", "301"):
        denied = site.ask(COORDINATOR, "show", other)
        assert (denied.returncode, denied.stdout, denied.stderr.replace(other, "")) == (
            absent.returncode, absent.stdout, absent.stderr.replace(str(GONE), ""))
    by = json.loads(site.ask(COORDINATOR, "report", "--by", "account", "--since", "1d",
                             "--json").stdout)
    assert [(row["account"], row["jobs"]) for row in by["rows"]] == [("chem", len(CHEM))]
    lists = json.loads(file.read_text())
    kept = file.read_text()
    for change in ({"asked_at": "2026-01-01T00:00:00Z"}, {"accounts": {"chem": []}}):
        file.write_text(json.dumps({"lab": {**lists["lab"], **change}}))
        gone = site.ask(COORDINATOR, "search", "--ids")
        assert (gone.returncode, gone.stdout) == (NOTHING_FOUND, ""), (change, gone)
    file.write_text(kept)
    assert site.ask(COORDINATOR, "search", "--ids").returncode == EX_OK


def test_a_user_shows_compares_and_reports_the_own_jobs(site):
    shown = site.ask(ALICE, "show", "203")
    assert shown.returncode == EX_OK and "run_203.tpr" in shown.stdout, shown
    assert shown.stderr == ""
    refused = site.ask(ALICE, "show", "301")
    assert (refused.returncode, refused.stderr.splitlines()[-1]) == (
        harness.EX_NOINPUT, "scriptorium: there is no job 301 that you may see")
    assert site.ask(ALICE, "show", "203", "--raw").stdout.startswith("#!/bin/bash\nmodule load")
    diff = site.ask(ALICE, "diff", "201", "203")
    assert diff.returncode == 1 and "run_203.tpr" in diff.stdout, diff
    runs = json.loads(site.ask(ALICE, "history", "203", "--json").stdout)
    assert sorted(run["job"]["id"] for run in runs["runs"]) == jobs_of(ALICE)
    report = site.ask(ALICE, "report", "203")
    assert report.returncode == EX_OK and "by the most that 3 runs needed" in report.stdout
    software = json.loads(site.ask(ALICE, "software", "--json").stdout)
    assert software["jobs"] == len(jobs_of(ALICE))
    by = json.loads(site.ask(ALICE, "report", "--by", "user", "--since", "1d", "--json").stdout)
    assert [(row["user"], row["jobs"]) for row in by["rows"]] == [(ALICE, len(jobs_of(ALICE)))]


@pytest.mark.parametrize("command", [["show"], ["diff"], ["history"], ["report"],
                                     ["search", "--ids"]])
def test_another_users_job_is_as_one_that_never_was(site, command):
    def said(job):
        word = f"job:{job}" if command[0] == "search" else str(job)
        answer = site.ask(ALICE, *command, word)
        return answer.returncode, answer.stdout.replace(str(job), "ID"), \
            answer.stderr.replace(str(job), "ID")
    denied, absent = said(301), said(GONE)
    assert denied == absent
    assert denied[0] != EX_OK and "run_301" not in denied[1]


def test_what_is_asked_for_is_logged_with_its_user_and_its_events(site):
    site.ask(BOB, "search", "run_301")
    (line,) = [line for line in site.log().splitlines() if "asked=run_301" in line
               and f"user={BOB}" in line and "hits=1" in line]
    (event,) = json.loads(site.ask(SUPPORT, "show", "301", "--json").stdout)
    assert f"uid={pwd.getpwnam(BOB).pw_uid}" in line and "sees=own" in line
    assert f"events={event['event']['id']}" in line


def test_idle_connections_of_one_user_change_nothing_for_another(site):
    program = ("import socket, sys, time\nall = []\nfor i in range(1000):\n"
               f"    s = socket.socket(socket.AF_UNIX); s.connect({str(site.socket)!r})\n"
               "    all.append(s)\nprint('open', flush=True)\nsys.stdin.read()\n")
    who = pwd.getpwnam(ALICE)
    with subprocess.Popen(["prlimit", "--nofile=2000:2000", "python3", "-c", program], text=True,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          user=who.pw_uid, group=who.pw_gid, extra_groups=[]) as idle:
        assert idle.stdout.readline() == "open\n"
        found = site.ask(BOB, "search", "--ids")
        assert sorted(found.stdout.split()) == jobs_of(BOB), found
        refused = site.ask(ALICE, "search", "--ids")
        assert refused.returncode == EX_UNAVAILABLE and "too many connections" in refused.stderr
        idle.stdin.close()


def test_a_service_that_is_stopped_is_said_and_is_no_empty_answer(site):
    site.process.kill()  # so that its socket stays
    site.process.wait(60)
    try:
        for command in (["search"], ["diff", "201"], ["history", "201"], ["software"],
                        ["show", "201"], ["report", "201"], ["report", "--by", "user"]):
            refused = site.ask(ALICE, *command)
            assert (refused.returncode, refused.stdout) == (EX_UNAVAILABLE, ""), (command, refused)
            assert "the query service does not run" in refused.stderr, refused.stderr
        assert site.ask("root", "search", "--ids", "job:201").stdout == "201\n"
    finally:
        site.start()


def test_without_the_socket_the_command_says_so_and_answers_from_the_tree(site):
    away = site.socket.rename(site.socket.with_name("away"))
    archive = site.work / "archive"
    archive.chmod(0o755)
    for file in archive.iterdir():
        file.chmod(0o644)
    try:
        found = site.ask(ALICE, "search", "--ids", "job:201")
        assert (found.returncode, found.stdout) == (EX_OK, "201\n"), found
        assert "the query service is not on this host" in found.stderr
        site.configure("")
        assert site.ask(ALICE, "search", "--ids", "job:201").stderr == ""
    finally:
        site.configure(f'[serve]\nsocket = "{site.socket}"\nreader_groups = ["{SUPPORT}"]\n')
        archive.chmod(0o700)
        away.rename(site.socket)


def test_an_answer_that_cannot_be_logged_is_not_given(site):
    site.stop()
    full = os.open("/dev/full", os.O_WRONLY)
    process = subprocess.Popen(
        [str(harness.SCRIPTORIUM), "serve", "--config", str(site.daemon.config)], stderr=full,
        preexec_fn=harness.become_user(pwd.getpwnam(SERVICE)))
    os.close(full)
    try:
        wait_for(lambda: site.socket.exists(), "the socket is there")
        refused = site.ask(ALICE, "search", "--ids")
        assert (refused.returncode, refused.stdout) == (EX_UNAVAILABLE, ""), refused
        assert "cannot log what it is asked" in refused.stderr
    finally:
        process.terminate()
        assert process.wait(60) == 0
        site.start()


def test_a_socket_of_systemd_is_taken_and_left(site):
    site.stop()
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(site.socket))
    site.socket.chmod(0o666)
    listening.listen(64)

    def become():
        os.dup2(listening.fileno(), 3)
        harness.become_user(pwd.getpwnam(SERVICE))()
    process = subprocess.Popen(
        ["sh", "-c", 'LISTEN_PID=$$ LISTEN_FDS=1 exec "$0" "$@"', str(harness.SCRIPTORIUM), "serve",
         "--config", str(site.daemon.config)],
        close_fds=False, stderr=subprocess.DEVNULL, preexec_fn=become)
    try:
        found = site.ask(BOB, "search", "--ids")
        assert sorted(found.stdout.split()) == jobs_of(BOB), found
    finally:
        process.terminate()
        assert process.wait(60) == 0
        assert site.socket.exists()
        site.socket.unlink()
        listening.close()
        site.start()


def test_a_second_service_is_refused_and_the_first_continues(site):
    second = site.ask(SERVICE, "serve")
    assert second.returncode == EX_UNAVAILABLE and "another query service answers" in second.stderr
    assert site.ask(BOB, "search", "--ids").returncode == EX_OK


def test_a_user_who_may_not_read_the_catalog_cannot_serve_it(site):
    refused = site.ask(ALICE, "serve")
    assert refused.returncode == EX_UNAVAILABLE and "may not read the sink" in refused.stderr
