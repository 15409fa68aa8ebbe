"""`check` and `run` agree, and `check` finds in seconds what would make every event wrong."""

import os
import re

import pytest

import harness
from harness import EX_CANTCREAT, EX_CONFIG, EX_OK, EX_UNAVAILABLE, IS_ROOT


def edit(daemon, pattern, text):
    daemon.config.write_text(re.sub(pattern, text, daemon.config.read_text(), flags=re.M))


def no_spool(daemon, work):
    edit(daemon, r'^spool = .*$', f'spool = "{work}/nowhere"')


def not_a_spool(daemon, work):
    (work / "photos").mkdir()
    (work / "photos" / "holiday.jpg").write_text("x")
    edit(daemon, r'^spool = .*$', f'spool = "{work}/photos"')


def root_below_nothing(daemon, work):
    edit(daemon, r'^root = .*$', f'root = "{work}/no/where/archive"')


def root_is_a_file(daemon, work):
    (work / "file").write_text("x")
    edit(daemon, r'^root = .*$', f'root = "{work}/file"')


def state_dir_is_a_file(daemon, work):
    (work / "file").write_text("x")
    edit(daemon, r'^state_dir = .*$', f'state_dir = "{work}/file"')


def unknown_plugin(daemon, work):
    edit(daemon, r'^plugin = "file"$', 'plugin = "fiel"')


def unknown_key(daemon, work):
    edit(daemon, r'^root = ', 'rooot = ')


def unknown_user(daemon, work):
    daemon.config.write_text('user = "no-such-user-here"\n' + daemon.config.read_text())


def unknown_group(daemon, work):
    edit(daemon, r'^acl = .*$', 'acl_groups = ["no-such-group-here"]')


def factory_refuses(daemon, work):
    edit(daemon, r'^plugin = "file"$', 'plugin = "refusing_factory"')
    edit(daemon, r'^(root|layout|acl) = .*\n', '')
    daemon.config.write_text(f'plugin_dirs = ["{harness.TEST_PLUGINS}"]\n'
                             + daemon.config.read_text())


FAULTS = {no_spool: EX_CONFIG, not_a_spool: EX_CONFIG, root_below_nothing: EX_CONFIG,
          root_is_a_file: EX_CONFIG,
          state_dir_is_a_file: EX_CANTCREAT, unknown_plugin: EX_CONFIG, unknown_key: EX_CONFIG,
          unknown_user: EX_CONFIG,
          unknown_group: EX_CONFIG, factory_refuses: EX_CONFIG}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.__name__)
def test_check_and_run_end_with_the_same_code_for_the_same_fault(make_daemon, spool, work, fault):
    daemon = make_daemon()
    fault(daemon, work)
    checked = daemon.command("check", check=False)
    ran = daemon.command("run", "--once", check=False)
    assert (checked.returncode, ran.returncode) == (FAULTS[fault], FAULTS[fault]), \
        f"check: {checked.stdout}{checked.stderr}\nrun: {ran.stderr}"


def test_check_knows_the_name_that_the_packages_give_the_cluster(make_daemon, spool):
    checked = make_daemon(cluster="change-me").command("check", check=False)
    assert checked.returncode == EX_UNAVAILABLE
    assert re.search(r"failed +cluster: \"change-me\"", checked.stdout), checked.stdout


@pytest.fixture
def squeue(work):
    """A squeue and a scontrol that wait for a slurmctld that never answers, and note that they were
    asked."""
    for name in ("squeue", "scontrol"):
        (work / name).write_text(f"#!/bin/sh\necho {name} >>{work}/asked\nexec sleep 1000\n")
        (work / name).chmod(0o755)
    return work / "squeue"


def test_check_reports_a_slurm_conf_that_is_not_there(make_daemon, spool, squeue, work):
    daemon = make_daemon(sources={"slurm": {"resolve": "slurmctld", "squeue": str(squeue),
                                            "slurm_conf": str(work / "slurm.conf")}})
    result = daemon.command("check", check=False)
    assert not (work / "asked").exists(), "nobody is asked who cannot answer"
    assert result.returncode == EX_UNAVAILABLE
    assert f"slurm_conf: there is no {work}/slurm.conf" in result.stdout


def test_check_compares_cluster_and_spool_with_slurms_own(make_daemon, spool, squeue, work):
    (work / "more.conf").write_text("StateSaveLocation=/var/spool/elsewhere\n")
    (work / "slurm.conf").write_text("ClusterName=another\nInclude more.conf\n")
    daemon = make_daemon(sources={"slurm": {"squeue": str(squeue)}})
    result = daemon.command("check", check=False, env={"SLURM_CONF": str(work / "slurm.conf")})
    assert not (work / "asked").exists(), "the files say it"
    assert result.returncode == EX_OK, result.stdout
    assert 'cluster = "lab", but Slurm\'s ClusterName is "another"' in result.stdout
    assert 'Slurm\'s StateSaveLocation is "/var/spool/elsewhere"' in result.stdout


@pytest.mark.skipif(not IS_ROOT,
                    reason="only root can give a folder to a group that is not its user's")
def test_a_plugin_folder_that_a_group_may_write_stops_the_start(make_daemon, spool, work):
    folder = work / "plugins"
    folder.mkdir()
    for name in ("file", "slurm"):
        (folder / f"{name}.so").write_bytes((harness.BUILD / "plugins" / f"{name}.so").read_bytes())
    os.chown(folder, 0, 54321)
    folder.chmod(0o775)
    daemon = make_daemon(plugin_dirs=[str(folder)])
    for command in (("run", "--once"), ("check",)):
        result = daemon.command(*command, check=False)
        assert result.returncode == EX_CONFIG
        assert f"that group 54321 may write ({folder}, mode 0775)" in result.stderr \
        and f"chmod g-w {folder}" in result.stderr
    folder.chmod(0o755)
    assert daemon.command("run", "--once", check=False).returncode == EX_OK


def test_plugin_dirs_adds_to_the_default(make_daemon, spool, work):
    (work / "more").mkdir(mode=0o755)
    assert make_daemon(plugin_dirs=[str(work / "more")]).command("check",
                                                                 check=False).returncode == EX_OK


# ---- a root that was there before ----------------------------------------------------------------
def as_uid(uid, gid, groups=()):
    def become():
        os.setgroups(list(groups))
        os.setgid(gid)
        os.setuid(uid)
    return become


def has_access_lists(path):
    try:
        os.getxattr(path, "system.posix_acl_access")
    except OSError as e:
        return e.errno != 95  # EOPNOTSUPP
    return True


@pytest.mark.skipif(not IS_ROOT, reason="only root can look as another user")
def test_support_staff_reach_what_is_in_a_root_that_was_made_by_hand(make_daemon, spool, archive):
    archive.path.mkdir(mode=0o700)
    if not has_access_lists(archive.path):
        pytest.skip("no access lists on this file system")
    spool.write(1)
    daemon = make_daemon(sinks={"archive": {"acl_groups": ["23456"], "acl": "required"}})
    daemon.command("run", "--once")
    harness.subprocess.run(["cat", str(archive.path / "1.sh")], check=True, capture_output=True,
                           preexec_fn=as_uid(12345, 12345, [23456]))
    refused = harness.subprocess.run(["ls", str(archive.path)], capture_output=True,
                                     preexec_fn=as_uid(12346, 12346))
    assert refused.returncode != 0, "others still may not"


@pytest.mark.skipif(not IS_ROOT, reason="only root can run a daemon as another user")
def test_check_prints_the_setfacl_line_for_a_root_that_is_not_the_daemons(make_daemon, spool, work,
                                                                          archive):
    archive.path.mkdir()
    archive.path.chmod(0o770)
    if not has_access_lists(archive.path):
        pytest.skip("no access lists on this file system")
    os.chown(archive.path, 0, 12345)
    spool.path.chmod(0o755)
    daemon = make_daemon(sinks={"archive": {"acl_groups": ["23456"], "acl": "required"}})
    os.chmod(daemon.config, 0o644)
    result = harness.subprocess.run([str(harness.SCRIPTORIUM), "check", "--config",
                                     str(daemon.config)], capture_output=True, text=True,
                                    preexec_fn=as_uid(12345, 12345))
    assert result.returncode != EX_OK
    assert f"setfacl -m g:23456:rx -- {archive.path}" in result.stdout, \
        result.stdout + result.stderr


# ---- root beside a daemon of another user --------------------------------------------------------
@pytest.mark.skipif(not IS_ROOT, reason="only root leaves files of root")
def test_no_command_of_roots_leaves_a_file_of_roots_in_another_users_state_dir(make_daemon, spool,
                                                                               work, archive):
    spool.path.chmod(0o755)
    state = work / "state"
    for folder in (state, archive.path):
        folder.mkdir(mode=0o750)
        os.chown(folder, 12345, 12345)
    daemon = make_daemon(shutdown_seconds=2)
    os.chmod(daemon.config, 0o644)
    spool.write(1)
    for name in spool.path.rglob("*"):
        os.chmod(name, 0o755)
    ran = harness.subprocess.run([str(harness.SCRIPTORIUM), "run", "--once", "--config",
                                  str(daemon.config)], capture_output=True, text=True,
                                 preexec_fn=as_uid(12345, 12345))
    assert ran.returncode == EX_OK, ran.stderr
    (work / "old").mkdir()

    def not_theirs():
        return [str(p) for p in state.rglob("*") if p.lstat().st_uid != 12345]
    assert not_theirs() == []
    for command in (("show", "1"), ("show", "99"), ("deadletters", "list"),
                    ("deadletters", "retry", "--all"), ("check",),
                    ("import", "sarchive", str(work / "old"))):
        result = daemon.command(*command, check=False)
        assert not_theirs() == [], f"{command}: {result.stdout}{result.stderr}"
    shown = daemon.command("show", "1")
    assert "echo job 1" in shown.stdout
