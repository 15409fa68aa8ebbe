"""The unit and its drop-ins as files: what systemd makes of them, and how much they leave open.

tests/packaging runs them, under a systemd of its own.
"""

import re
import shutil
import subprocess

import pytest

from harness import ROOT

PACKAGING = ROOT / "packaging" / "systemd"
UNIT = PACKAGING / "scriptorium.service"
# What stays open at most, as `systemd-analyze security` counts it: from 0, everything closed, to
# 10.
LIMITS = {None: 2.5, "inotify.conf": 1.5, "usage.conf": 2.0, "usage-programs.conf": 2.5}
# What else is there, and the name under which it is applied after that.
AFTER = {"usage-programs.conf": ("usage.conf", "zz-usage-programs.conf")}


@pytest.fixture
def analyze(tmp_path):
    """systemd-analyze on the unit, with a drop-in or without."""
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not installed (Debian: systemd)")

    def run(drop_in, *command):
        units = tmp_path / "etc" / "systemd" / "system"
        shutil.rmtree(tmp_path / "etc", ignore_errors=True)
        units.mkdir(parents=True)
        shutil.copy(UNIT, units)
        for target in ("sysinit", "basic", "shutdown", "network-online", "local-fs", "remote-fs"):
            (units / f"{target}.target").write_text(
                "[Unit]\nDescription=there is one on every system\n")
        binary = tmp_path / "usr" / "bin" / "scriptorium"
        binary.parent.mkdir(parents=True, exist_ok=True)
        for file in (binary, tmp_path / "bin" / "sh"):
            file.parent.mkdir(exist_ok=True)
            file.write_text("")
            file.chmod(0o755)
        if drop_in:
            folder = units / "scriptorium.service.d"
            folder.mkdir()
            first, name = AFTER.get(drop_in, (None, drop_in))
            shutil.copy(PACKAGING / drop_in, folder / name)
            if first:
                assert first < name
                shutil.copy(PACKAGING / first, folder)
        return subprocess.run(["systemd-analyze", "--no-pager", f"--root={tmp_path}", *command,
                               "scriptorium.service"],
                              capture_output=True, text=True, timeout=60)
    return run


@pytest.mark.parametrize("drop_in", LIMITS)
def test_the_sandbox_leaves_no_more_open_than_promised(analyze, drop_in):
    result = analyze(drop_in, "security", "--offline=true")
    figure = re.search(r"Overall exposure level for scriptorium\.service: ([0-9.]+)", result.stdout)
    assert figure, result
    print(f"{drop_in or 'as installed'}: {figure.group(1)}")
    assert float(figure.group(1)) <= LIMITS[drop_in], result.stdout


@pytest.mark.parametrize("drop_in", LIMITS)
def test_systemd_understands_every_line(analyze, drop_in):
    result = analyze(drop_in, "verify", "--man=no")
    ours = [line for line in (result.stdout + result.stderr).splitlines() if "scriptorium" in line]
    assert not ours, "\n".join(ours)


@pytest.fixture
def verified(tmp_path):
    """verified(NAME...): the folder with these units, each of which systemd understands."""
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not installed (Debian: systemd)")
    binary = tmp_path / "scriptorium"
    binary.write_text("")
    binary.chmod(0o755)

    def verify(*names):
        for name in names:
            text = (PACKAGING / name).read_text()
            (tmp_path / name).write_text(text.replace("/usr/bin/scriptorium", str(binary)))
        for name in names:
            result = subprocess.run(["systemd-analyze", "--no-pager", "verify", "--man=no",
                                     str(tmp_path / name)], capture_output=True, text=True,
                                    timeout=60)
            ours = [line for line in (result.stdout + result.stderr).splitlines()
                    if "scriptorium" in line]
            assert not ours, "\n".join(ours)
        return tmp_path
    return verify


def test_systemd_understands_the_unit_and_the_timer_of_mails(verified):
    folder = verified("scriptorium-mail.service", "scriptorium-mail.timer")
    text = (folder / "scriptorium-mail.timer").read_text()
    times = subprocess.run(["systemd-analyze", "calendar", "--iterations=20",
                            "--base-time=2026-11-15 12:00:00",
                            re.search("OnCalendar=(.*)", text).group(1)],
                           capture_output=True, text=True, timeout=60).stdout
    # The first of a Monday comes when the week is over and people are at work.
    assert "Mon 2026-11-16 07:15:00" in times, times


def test_the_query_services_units_leave_almost_nothing_open(verified):
    folder = verified("scriptorium-web.socket", "scriptorium-page.socket",
                      "scriptorium-web.service")
    result = subprocess.run(["systemd-analyze", "--no-pager", "security", "--offline=true",
                             str(folder / "scriptorium-web.service")],
                            capture_output=True, text=True, timeout=60)
    figure = re.search(r"Overall exposure level for scriptorium-web\.service: ([0-9.]+)",
                       result.stdout)
    assert figure and float(figure.group(1)) <= 1.0, result.stdout


def settings(text):
    """[(key, value, the comment above its paragraph's lines so far)]"""
    found, comment = [], ""
    for line in text.splitlines():
        if not line.strip():
            comment = ""
        elif line.startswith("#"):
            comment += line
        elif "=" in line:
            key, _, value = line.partition("=")
            found.append((key, value, comment))
    return found


OPENINGS = {"AmbientCapabilities": "CAP_.*", "CapabilityBoundingSet": "CAP_.*",
            "RestrictSUIDSGID": "no", "RestrictAddressFamilies": ".*",
            "ProtectProc": "default", "ProcSubset": "all", "PrivateDevices": "no",
            "DeviceAllow": ".*", "ReadWritePaths": ".*",
            "SystemCallFilter": "(?![~@]).*", "ProtectHome": "no|read-only",
            "ProtectSystem": "no|full|yes"}


@pytest.mark.parametrize("file", [UNIT.name, "scriptorium-web.service", *filter(None, LIMITS)])
def test_each_opening_says_why(file):
    bare = [f"{key}={value}" for key, value, comment in settings((PACKAGING / file).read_text())
            if re.fullmatch(OPENINGS.get(key, "(?!)"), value) and len(comment) < 40]
    assert not bare, f"{file}: no reason above {bare}"


def test_the_unit_and_the_daemon_agree():
    unit = {key: value for key, value, _ in settings(UNIT.read_text())}
    reference = (ROOT / "docs" / "reference" / "core.md").read_text()

    def default(key):
        return re.search(rf"^\| `{key}` \|[^|]*\| `([^`]*)`", reference, re.M).group(1).strip('"')

    assert int(unit["TimeoutStopSec"]) > int(default("shutdown_seconds")), \
        "a drain is not to be cut short"
    catalog = (ROOT / "docs" / "reference" / "catalog.md").read_text()
    root = re.search(r"^\| `root` \|[^|]*\| `\"([^`]*)\"`", catalog, re.M).group(1)
    assert [f"/var/lib/{name}" for name in unit["StateDirectory"].split()] \
        == [default("state_dir"), root]
    assert unit["Type"] == "notify" and int(unit["WatchdogSec"]) > 0
    assert unit["RestartPreventExitStatus"] == "78" and unit["Restart"] == "on-failure"
    # Far above what test_memory.py allows, far below what would hurt the scheduler; and who must go
    # is us.
    assert unit["MemoryMax"] == "1G" and int(unit["OOMScoreAdjust"]) >= 500
    config = (ROOT / "packaging" / "scriptorium.toml").read_text()
    assert re.search(rf'^user = "{unit["User"]}"$', config, re.M)
