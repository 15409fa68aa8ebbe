"""The daemon in two: a spool opener that keeps two capabilities, and everything else, which has
none and is an ordinary user."""

import errno
import os
import pathlib
import shutil
import signal
import subprocess

import pytest

import harness
from harness import EX_CONFIG, PATIENCE, storm_jobs, wait_for

EX_SOFTWARE = 70
CAP_DAC_READ_SEARCH, CAP_SYS_ADMIN = 2, 21
SPOOL_RIGHTS = 1 << CAP_DAC_READ_SEARCH | 1 << CAP_SYS_ADMIN


def proc_status(pid):
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    return {key: value.strip() for key, value in (line.split(":", 1) for line in lines)}


def capabilities(pid):
    status = proc_status(pid)
    return {name: int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd",
                                                     "CapAmb")}


def rights_missing():
    """Why this machine cannot show separation; "" if it can."""
    if not harness.IS_ROOT:
        return "run this as root: only root can give up its rights to become another user"
    if capabilities(os.getpid())["CapEff"] & SPOOL_RIGHTS != SPOOL_RIGHTS:
        return "this root has no CAP_SYS_ADMIN or no CAP_DAC_READ_SEARCH"
    return ""


@pytest.fixture
def user(ordinary_user):
    reason = rights_missing()
    if reason:
        pytest.skip(reason)
    return ordinary_user


@pytest.fixture
def make_separated(make_daemon, archive, spool, user):
    """A daemon that becomes an ordinary user, who owns the archive and nothing else."""
    def make(**kwargs):
        archive.path.mkdir(exist_ok=True)
        os.chown(archive.path, user.pw_uid, user.pw_gid)
        return make_daemon(user=user.pw_name, **kwargs)
    return make


def as_user(user, *command, **kwargs):
    return subprocess.run(["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}",
                           "--clear-groups", "--no-new-privs", *command],
                          capture_output=True, text=True, timeout=60 * PATIENCE, **kwargs)


def opener_of(daemon):
    return daemon.status()["privileges"]["opener"]["pid"]


def alive(pid):
    try:
        return proc_status(pid)["State"][0] not in "ZX"
    except OSError:
        return False


# ---- who may do what -----------------------------------------------------------------------------
def test_the_daemon_has_no_capability_and_no_way_into_the_spool_but_loses_no_job(make_separated,
                                                                                 make_storm,
                                                                                 archive, spool,
                                                                                 user):
    daemon = make_separated().start()
    privileges = daemon.status()["privileges"]
    assert privileges["separated"] is True and privileges["user"] == user.pw_name \
        and privileges["capabilities"] == []
    assert sorted(privileges["opener"]["capabilities"]) == ["CAP_DAC_READ_SEARCH", "CAP_SYS_ADMIN"]
    for task in pathlib.Path(f"/proc/{daemon.process.pid}/task").iterdir():
        status = proc_status(task.name)
        assert capabilities(task.name) == dict.fromkeys(("CapInh", "CapPrm", "CapEff", "CapBnd",
                                                         "CapAmb"), 0), status["Name"]
        assert status["NoNewPrivs"] == "1"
        assert status["Uid"].split() == [str(user.pw_uid)] * 4 and status["Gid"].split() \
        == [str(user.pw_gid)] * 4
        assert set(status["Groups"].split()) <= {str(g) for g in os.getgrouplist(user.pw_name,
                                                                                 user.pw_gid)}
    # What such a process can open is what this one can.
    spool.write(7)
    wait_for(lambda: "7" in archive.scripts(), "job 7 is archived")
    file = spool.entry(7) / "script"
    assert as_user(user, "ls", spool.path).returncode != 0
    refused = as_user(user, "cat", file)
    assert refused.returncode != 0 and "ermission denied" in refused.stderr, refused

    storm = make_storm(storm_jobs(20_000), first_id=1000, lifetime_ms=0).finish()
    daemon.wait_acknowledged(storm_jobs(20_000) + 1)
    script, environment = (archive.path / "7.sh").read_bytes(), (archive.path
                                                                 / "7.env").read_bytes()
    archive.compare({**storm.manifest(),
                     "7": (harness.sha256(script), harness.sha256(environment))})
    source = daemon.source()
    assert source["capture"] == "fanotify" and source["missed"] == {"vanished": 0}, source
    assert daemon.terminate() == 0


@pytest.mark.skipif(not (harness.TEST_PLUGINS / "prying.so").exists(),
                    reason="the test plugins are not built")
def test_who_takes_over_the_daemon_gets_no_file_by_the_descriptors_and_calls_of_the_opener(
    make_separated, spool, archive, work, user):
    others = work / "others"
    others.mkdir(mode=0o755)
    secret = others / "secret"
    secret.write_text("nobody's business")
    secret.chmod(0o600)
    loot = archive.path / "loot"
    daemon = make_separated(sinks={"prying": {"plugin": "prying", "file": str(loot),
                                              "directory": str(others)}},
                            plugin_dirs=[str(harness.BUILD / "plugins"),
                                         str(harness.TEST_PLUGINS)]).start()
    assert daemon.status()["privileges"]["system_calls_filtered"] is True
    spool.write(7)
    wait_for(lambda: loot.exists() and "program" in loot.read_text(),
             "the plugin has tried everything")
    outcome = dict(line.rsplit(" ", 1) for line in loot.read_text().splitlines())
    assert outcome.pop("a program that it starts") == "0"
    assert outcome.pop("open") == str(errno.EACCES)
    if harness.SANITIZED:
        outcome.pop("ptrace")
    assert outcome == dict.fromkeys(["fanotify_mark", "fanotify_init", "open_by_handle_at",
                                     "unshare", "io_uring_setup"]
                                    + ([] if harness.SANITIZED else ["ptrace"]),
                                    str(errno.EPERM)), outcome
    # Capture continues by the same descriptor.
    spool.write(8)
    wait_for(lambda: "8" in archive.scripts(), "job 8 is archived")
    assert daemon.source()["capture"] == "fanotify"
    assert daemon.terminate() == 0


def test_the_opener_keeps_two_capabilities_one_socket_and_the_notifications(make_separated, user):
    daemon = make_separated().start()
    opener = opener_of(daemon)
    status = proc_status(opener)
    assert status["PPid"] == str(daemon.process.pid)
    assert status["Name"] == "spool-opener" and status["Threads"] == "1" and status["NoNewPrivs"] \
        == "1"
    assert capabilities(opener) == {"CapPrm": SPOOL_RIGHTS, "CapEff": SPOOL_RIGHTS, "CapInh": 0,
                                    "CapBnd": 0, "CapAmb": 0}
    targets = {fd.name: os.readlink(fd) for fd in pathlib.Path(f"/proc/{opener}/fd").iterdir()}
    assert targets.pop("0") == targets.pop("1") == "/dev/null"
    targets.pop("2")  # its last words go where the daemon's go
    assert sorted(t.split(":")[0].strip("[]") for t in targets.values()) == ["anon_inode",
                                                                             "anon_inode",
                                                                             "socket"], targets
    libraries = {line.split()[-1]
                 for line in pathlib.Path(f"/proc/{opener}/maps").read_text().splitlines()
                 if "/plugins/" in line}
    assert not libraries, f"it has loaded {libraries}"
    # The daemon's user can neither look into it nor stop it.
    assert as_user(user, "cat", f"/proc/{opener}/mem").returncode != 0
    assert as_user(user, "kill", "-KILL", str(opener)).returncode != 0
    assert alive(opener)
    assert daemon.terminate() == 0
    wait_for(lambda: not alive(opener), "the opener ends with the daemon")


def test_a_unit_with_a_user_and_ambient_capabilities_is_separated_as_well(make_daemon, make_storm,
                                                                          work, archive, user):
    for directory in (archive.path, work / "state"):
        directory.mkdir()
        os.chown(directory, user.pw_uid, user.pw_gid)
    daemon = make_daemon()
    capabilities_text = "+sys_admin,+dac_read_search"
    daemon.start(by=["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}",
                     "--clear-groups", "--no-new-privs", f"--inh-caps={capabilities_text}",
                     f"--ambient-caps={capabilities_text}",
                     f"--bounding-set=-all,{capabilities_text}"])
    privileges = daemon.status()["privileges"]
    assert privileges["separated"] is True and privileges["user"] == user.pw_name, privileges
    have = capabilities(daemon.process.pid)
    # the unit's: who has no CAP_SETPCAP cannot change it, and no_new_privs makes it idle
    have.pop("CapBnd")
    assert set(have.values()) == {0}, have
    storm = make_storm(storm_jobs(2000), lifetime_ms=0).finish()
    daemon.wait_acknowledged(storm_jobs(2000))
    archive.compare(storm.manifest())
    assert daemon.terminate() == 0


def test_without_the_rights_access_is_direct_and_status_says_what_that_costs(make_daemon, work,
                                                                             spool, archive):
    user = harness.ordinary_user()
    by = []
    if harness.IS_ROOT:
        for directory in (archive.path, work / "state"):
            directory.mkdir()
            os.chown(directory, user.pw_uid, user.pw_gid)
        os.chown(spool.path, user.pw_uid, user.pw_gid)
        by = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
    daemon = make_daemon().start(by=by)
    status = daemon.status()
    assert status["privileges"]["separated"] is False and status["privileges"]["opener"] is None
    assert "CAP_SYS_ADMIN" in status["privileges"]["why"]
    assert status["sources"]["slurm"]["capture"] == "inotify" \
        and status["sources"]["slurm"]["why_not_better"]
    assert daemon.terminate() == 0


# ---- one of the two dies -------------------------------------------------------------------------
def test_the_daemon_ends_with_its_opener_and_nothing_is_lost_over_the_restart(make_separated,
                                                                              make_storm, archive):
    daemon = make_separated().start()
    jobs = storm_jobs(4000)
    storm = make_storm(jobs, rate=2000)
    daemon.wait_status(lambda s: s["sources"]["slurm"]["captured"] >= jobs // 10,
                       "a tenth is captured")
    assert storm.running(), "the storm was over before the opener was killed: this run " \
                            "shows nothing"
    os.kill(opener_of(daemon), signal.SIGKILL)
    assert daemon.wait_exit() == EX_SOFTWARE, daemon.log_tail()
    assert "OPENER_DIED" in daemon.log_text()
    daemon.start()
    storm.finish()
    daemon.wait_acknowledged(jobs)
    archive.compare(storm.manifest())
    assert daemon.status()["sinks"]["archive"]["acknowledged_total"] == jobs
    assert daemon.terminate() == 0


def test_the_opener_ends_with_a_daemon_that_is_killed(make_separated, make_storm, archive):
    daemon = make_separated().start()
    jobs = storm_jobs(2000)
    storm = make_storm(jobs, rate=2000)
    daemon.wait_status(lambda s: s["sources"]["slurm"]["captured"] >= jobs // 10,
                       "a tenth is captured")
    opener = opener_of(daemon)
    daemon.kill()
    wait_for(lambda: not alive(opener), "the opener ends with the daemon")
    daemon.start()
    storm.finish()
    daemon.wait_acknowledged(jobs)
    archive.compare(storm.manifest())


def test_a_stop_that_is_sent_to_both_is_an_ordered_one(make_separated, make_storm, archive):
    daemon = make_separated().start()
    storm = make_storm(storm_jobs(1000)).finish()
    os.kill(opener_of(daemon), signal.SIGTERM)  # as systemd does for every process of a unit
    os.kill(opener_of(daemon), signal.SIGINT)
    daemon.wait_acknowledged(storm_jobs(1000))
    assert daemon.terminate() == 0
    archive.compare(storm.manifest())
    assert "OPENER_DIED" not in daemon.log_text()


# ---- configuration -------------------------------------------------------------------------------
def test_a_reload_may_bring_in_another_spool(make_separated, work, archive, spool, user):
    daemon = make_separated().start()
    second = harness.Spool(work / "spool2")
    daemon.config.write_text(daemon.config.read_text()
                             + f'\n[source.other]\nplugin = "slurm"\nspool = '
                               f'"{second.path}"\nresolve = "none"\n')
    daemon.process.send_signal(signal.SIGHUP)
    daemon.wait_log("RELOADED")
    assert daemon.source("other")["capture"] == "fanotify"
    second.write(21)
    wait_for(lambda: "21" in archive.scripts(), "a job of the second spool is archived")
    assert daemon.terminate() == 0


def test_a_configuration_that_the_daemon_may_write_opens_no_spool(make_separated, work, user):
    daemon = make_separated()
    daemon.config.chmod(0o666)
    daemon.start(ready=False)
    assert daemon.wait_exit() == EX_CONFIG, daemon.log_tail()
    assert f"{daemon.config} can be written by uid {user.pw_uid}" in daemon.log_text()
    daemon.config.chmod(0o644)
    daemon.start()
    # and on a reload the old one stays in force
    daemon.config.write_text(daemon.config.read_text()
                             + '\n[source.other]\nplugin = "slurm"\nspool = '
                               '"/etc"\nresolve = "none"\n')
    daemon.config.chmod(0o666)
    daemon.process.send_signal(signal.SIGHUP)
    daemon.wait_log("RELOAD_REFUSED")
    assert f"{daemon.config} can be written" in daemon.log_text()
    assert list(daemon.status()["sources"]) == ["slurm"]
    assert daemon.terminate() == 0


def test_the_user_cannot_change_while_the_daemon_runs(make_separated):
    daemon = make_separated().start()
    daemon.config.write_text("\n".join(line for line in daemon.config.read_text().splitlines()
                                       if not line.startswith("user =")))
    daemon.process.send_signal(signal.SIGHUP)
    daemon.wait_log("RELOAD_REFUSED.*user cannot change")
    assert daemon.terminate() == 0


def test_an_unknown_user_refuses_the_start_with_the_remedy(make_daemon, spool):
    daemon = make_daemon(user="no-such-user-here").start(ready=False)
    assert daemon.wait_exit() == EX_CONFIG
    assert 'there is no user "no-such-user-here"' in daemon.log_text() and "useradd" \
        in daemon.log_text()
    result = daemon.command("check", check=False)
    assert result.returncode == EX_CONFIG, result
    failed = [line for line in result.stdout.splitlines() if line.startswith("failed")]
    assert len(failed) == 1 and "no-such-user-here" in failed[0], \
        "everything else was looked at, and is good"


# ---- state_dir, check, once ----------------------------------------------------------------------
def test_what_ran_as_root_goes_on_as_the_user_and_captures_nothing_twice(make_daemon,
                                                                         make_separated,
                                                                         make_storm, archive, user):
    reason = rights_missing()
    if reason:
        pytest.skip(reason)
    first = make_daemon().start()
    storm = make_storm(storm_jobs(500)).finish()
    first.wait_acknowledged(storm_jobs(500))
    assert first.terminate() == 0
    for file in archive.path.iterdir():
        os.chown(file, user.pw_uid, user.pw_gid)
    before = archive.snapshot()
    daemon = make_separated().start()
    assert os.stat(daemon.state_dir / "journal.db").st_uid == user.pw_uid
    daemon.wait_status(lambda s: s["sources"]["slurm"]["scans"] >= 1
                       and s["sources"]["slurm"]["pending"] == 0, "it has looked")
    assert daemon.terminate() == 0
    assert archive.snapshot() == before
    archive.compare(storm.manifest())


def test_check_sees_what_the_daemons_user_will_see(make_separated, work, archive, spool, user):
    daemon = make_separated()
    good = daemon.command("check")
    assert f"everything else runs as {user.pw_name}, without capabilities" in good.stdout
    assert f"`run` makes it, for {user.pw_name}" in good.stdout and "fanotify works" in good.stdout
    assert not daemon.state_dir.exists(), "a look makes nothing"

    os.chown(archive.path, 0, 0)
    archive.path.chmod(0o755)
    bad = daemon.command("check", check=False)
    assert bad.returncode == EX_CONFIG, bad
    assert any("sink.archive" in line and line.startswith("failed")
               for line in bad.stdout.splitlines()), bad.stdout

    os.chown(archive.path, user.pw_uid, user.pw_gid)
    daemon.state_dir.mkdir()
    os.chown(daemon.state_dir, user.pw_uid + 1, 0)
    bad = daemon.command("check", check=False)
    assert bad.returncode == EX_CONFIG \
        and f"state_dir {daemon.state_dir} belongs to uid {user.pw_uid + 1}" in bad.stdout, bad
    daemon.start(ready=False)
    assert daemon.wait_exit() == EX_CONFIG
    assert f"chown {user.pw_name} {daemon.state_dir}" in daemon.log_text()


def test_once_is_separated_too(make_separated, make_storm, archive, user):
    daemon = make_separated()
    storm = make_storm(storm_jobs(1000)).finish()
    result = daemon.command("run", "--once")
    assert "ONCE_DONE" in result.stderr
    archive.compare(storm.manifest())
    assert {file.stat().st_uid for file in archive.path.iterdir()} == {user.pw_uid}


def test_a_spool_that_cannot_be_reached_is_said(make_separated, spool):
    daemon = make_separated()
    shutil.rmtree(spool.path)
    result = daemon.command("check", check=False)
    assert result.returncode == EX_CONFIG, result
    assert f"{spool.path}: no such file or directory" in result.stdout, result.stdout
