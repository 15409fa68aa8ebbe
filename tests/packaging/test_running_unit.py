"""The installed unit under a private systemd: what the sandbox forbids, and that capture loses
nothing in it.

The spool's writer runs beside the unit, as a scheduler does: in the system's mounts, not in the
unit's.
"""

import datetime
import json
import os
import re
import shutil
import subprocess
import time

import pytest

import harness
import test_mail
from conftest import need
from harness import STORM, storm_jobs, wait_for
from test_search_reference import FakeSlurm

SPOOL = "/var/spool/slurmctld"
ARCHIVE = "/var/lib/scriptorium/archive"
CONFIG = f"""
cluster = "unit"
user = "scriptorium"
[source.slurm]
spool = "{SPOOL}"
resolve = "none"
[sink.archive]
plugin = "file"
root = "{ARCHIVE}"
layout = "{{job_id}}.{{ext}}"
"""
CAP_DAC_READ_SEARCH, CAP_SYS_ADMIN = 2, 21


class Service:
    """scriptorium.service in a booted root."""

    def __init__(self, root):
        self.root = root
        self.spool = root.file(SPOOL)
        self.archive = harness.Archive(root.file(ARCHIVE))
        self.spool.mkdir(mode=0o700)
        shutil.copy(STORM, root.file("/usr/local/bin/spool-storm"))
        self.configure(CONFIG)

    def configure(self, text):
        self.root.file("/etc/scriptorium/scriptorium.toml").write_text(text)

    def drop_in(self, name, text):
        folder = self.root.file("/etc/systemd/system/scriptorium.service.d")
        folder.mkdir(exist_ok=True)
        (folder / name).write_text(text)
        self.root.run("systemctl", "daemon-reload")

    def start(self):
        result = self.root.try_run("systemctl", "start", "scriptorium")
        assert result.returncode == 0, f"{result.stderr}\n{self.log()}"
        return self

    def stop(self):
        self.root.run("systemctl", "stop", "scriptorium")
        assert self.show("Result") == "success", self.log()

    def show(self, name):
        return self.root.run("systemctl", "show", "scriptorium", "--value",
                             f"--property={name}").strip()

    def log(self):
        return self.root.run("journalctl", "-u", "scriptorium", "-o", "cat", "--no-pager", "-n",
                             "30")

    def status(self):
        return json.loads(self.root.run("scriptorium", "status", "--json"))

    def process_status(self, pid):
        lines = self.root.run("cat", f"/proc/{pid}/status").splitlines()
        return {key: value.strip() for key, value in (line.split(":", 1) for line in lines)}

    def storm(self, jobs, **options):
        command = ["spool-storm", SPOOL, "--jobs", str(jobs), "--manifest",
                   f"/root/manifest-{options.get('first_id', 1)}"]
        for key, value in options.items():
            command += ["--" + key.replace("_", "-"), str(value)]
        return subprocess.Popen(self.root.command(*command), stdout=subprocess.PIPE, text=True)

    def manifest(self):
        rows = {}
        for file in self.root.file("/root").glob("manifest-*"):
            for line in file.read_text().splitlines():
                job, script, environment, _ = line.split()
                rows[job] = (script, environment)
        return rows

    def wait_acknowledged(self, count, seconds=180):
        last = {}

        def look():
            last.update(self.status())
            sink = last["sinks"]["archive"]
            return sink["acknowledged_total"] >= count and sink["waiting"] == 0
        wait_for(look, lambda: f"{count} are acknowledged: "
                               f"{json.dumps(last)[:1500]}\n{self.log()}", seconds, step=0.2)
        return last

    def compare(self):
        self.archive.compare(self.manifest())


@pytest.fixture
def service(booted_root_with_scriptorium):
    need(str(STORM))
    return Service(booted_root_with_scriptorium)


def test_under_the_unit_no_job_is_lost_and_nobody_has_more_rights_than_it_says(service):
    service.start()
    jobs = storm_jobs(10_000)
    storm = service.storm(jobs, lifetime_ms=0)
    assert storm.wait(300) == 0
    status = service.wait_acknowledged(jobs)
    service.compare()
    source = status["sources"]["slurm"]
    assert source["capture"] == "fanotify" and source["missed"] == {"vanished": 0}, source
    assert status["privileges"]["separated"] is True and status["privileges"]["user"] \
        == "scriptorium", status["privileges"]

    main = service.show("MainPID")
    opener = service.root.run("cat", f"/proc/{main}/task/{main}/children").split()[0]
    have, its = service.process_status(main), service.process_status(opener)
    passwd = service.root.run("id", "-u", "scriptorium").strip()
    for one, rights in ((have, 0), (its, 1 << CAP_DAC_READ_SEARCH | 1 << CAP_SYS_ADMIN)):
        assert (int(one["CapEff"], 16), int(one["CapPrm"], 16),
                int(one["CapAmb"], 16)) == (rights, rights, 0), one
        assert one["NoNewPrivs"] == "1" and one["Seccomp"] == "2" and one["Uid"].split() \
        == [passwd] * 4, one

    # The sandbox, as who is in it sees it. Root is asked to write, so that it is the mounts that
    # refuse.
    inside = ["nsenter", "-t", main, "-m", "--"]
    for place in (SPOOL, "/etc/scriptorium", "/usr/lib/scriptorium/plugins", "/var/spool"):
        refused = service.root.try_run(*inside, "touch", f"{place}/written-by-the-test")
        assert refused.returncode != 0 and "Read-only file system" in refused.stderr, (place,
                                                                                       refused)
    assert service.root.try_run(*inside, "touch", "/var/lib/scriptorium/probe").returncode == 0
    assert service.root.try_run(*inside, "ls", "/root").stdout == "", "ProtectHome hides it"
    # Neither a mount of ours in the spool nor one that would keep it from being unmounted.
    mounts = service.root.run("cat", f"/proc/{main}/mounts")
    assert not [line for line in mounts.splitlines() if line.split()[1].startswith(SPOOL)], mounts
    service.stop()


def test_the_metrics_file_can_be_read_by_node_exporter_whatever_the_units_umask(service):
    file = service.root.file("/var/lib/scriptorium/scriptorium.prom")
    service.configure(CONFIG.replace(
        "user =", 'metrics_textfile = "/var/lib/scriptorium/scriptorium.prom"\nuser ='))
    service.start()
    wait_for(file.exists, "the file is written")
    assert file.stat().st_mode & 0o777 == 0o644
    service.stop()


def test_a_daemon_that_is_killed_or_hangs_comes_back_and_nothing_is_lost(service):
    service.drop_in("test.conf", "[Service]\nWatchdogSec=6\nRestartSec=100ms\n")
    service.start()
    storm = service.storm(storm_jobs(3000), rate=500)
    wait_for(lambda: service.status()["sources"]["slurm"]["captured"] > 50, "it captures", step=0.1)
    first = service.show("MainPID")
    service.root.run("systemctl", "kill", "--kill-whom=main", "--signal=KILL", "scriptorium")
    wait_for(lambda: service.show("NRestarts") == "1" and service.show("SubState") == "running",
             lambda: f"it was started again\n{service.log()}",
             step=0.1)
    # Alive, it feeds the watchdog: two of its periods later it is the same process.
    second = service.show("MainPID")
    seen = {service.show("WatchdogTimestampMonotonic")}
    wait_for(lambda: seen.add(service.show("WatchdogTimestampMonotonic")) or len(seen) >= 6,
             "it says that it lives", step=0.1)
    assert service.show("MainPID") == second != first
    # Stopped, it does not.
    service.root.run("systemctl", "kill", "--kill-whom=main", "--signal=STOP", "scriptorium")
    wait_for(lambda: service.show("NRestarts") == "2" and service.show("SubState") == "running",
             lambda: f"the watchdog ended it, and it was started again\n{service.log()}",
             seconds=120, step=0.2)
    assert "watchdog" in service.root.run("journalctl", "--no-pager", "-o", "cat", "-u",
                                          "scriptorium").lower()
    assert storm.wait(300) == 0
    service.wait_acknowledged(storm_jobs(3000))
    service.compare()
    service.stop()


def test_a_configuration_that_is_wrong_is_said_once_and_not_tried_again(service):
    service.configure(CONFIG + "\nno_such_key = 1\n")
    refused = service.root.try_run("systemctl", "start", "scriptorium")
    assert refused.returncode != 0
    assert service.show("ExecMainStatus") == str(harness.EX_CONFIG) and service.show("NRestarts") \
        == "0", service.log()
    assert "no_such_key" in service.log()
    service.configure(CONFIG)
    service.root.run("systemctl", "reset-failed", "scriptorium")
    service.start()
    service.root.run("systemctl", "reload", "scriptorium")
    wait_for(lambda: service.status()["last_reload"], "it has read its configuration again")
    service.stop()


def test_a_credential_that_only_root_can_read_reaches_the_sink(service, packages):
    service.root.install(packages, "scriptorium-elasticsearch")
    secret = service.root.file("/etc/scriptorium/es-password")
    secret.write_text("hidden\n")
    secret.chmod(0o600)
    service.configure(
        CONFIG + '[sink.search]\nplugin = "elasticsearch"\nhosts = '
                 '["http://127.0.0.1:9"]\nuser = "x"\n'
                      'password_file = "es-password"\n')
    service.drop_in("test.conf",
                    "[Service]\nLoadCredential=es-password:/etc/scriptorium/es-password\n")
    service.start()
    storm = service.storm(10)
    assert storm.wait(60) == 0
    service.wait_acknowledged(10)
    wait_for(lambda: service.status()["sinks"]["search"]["retries"],
             lambda: f"the other sink tries\n{service.log()}")
    reasons = " ".join(service.status()["sinks"]["search"]["retries"])
    assert "credential" not in reasons and "password" not in reasons, reasons
    assert "hidden" not in service.log()


def test_without_any_capability_it_captures_by_inotify_as_the_spools_owner(service):
    service.root.run("adduser", "--system", "--group", "--quiet", "--no-create-home", "spooler")
    service.root.run("chown", "spooler:", SPOOL)
    drop_in = service.root.file("/usr/share/scriptorium/systemd/inotify.conf").read_text()
    assert "#User=slurm\n#Group=slurm\n" in drop_in
    service.drop_in("inotify.conf",
                    drop_in.replace("#User=slurm\n#Group=slurm\n", "User=spooler\nGroup=spooler\n"))
    service.configure(CONFIG.replace('user = "scriptorium"\n', ""))
    service.start()
    status = service.status()
    assert status["sources"]["slurm"]["capture"] == "inotify" and status["privileges"]["user"] \
        == "spooler", status["privileges"]
    have = service.process_status(service.show("MainPID"))
    assert {have[name] for name in ("CapEff", "CapPrm", "CapBnd", "CapAmb",
                                    "CapInh")} == {"0" * 16}, have
    storm = subprocess.Popen(service.root.command("setpriv", "--reuid=spooler", "--regid=spooler",
                                                  "--clear-groups", "spool-storm", SPOOL,
                                                  "--jobs", "500", "--rate", "500", "--manifest",
                                                  "/tmp/manifest"), stdout=subprocess.DEVNULL)
    assert storm.wait(120) == 0
    service.root.run("mv", "/tmp/manifest", "/root/manifest-1")
    service.wait_acknowledged(500)
    service.compare()
    service.stop()


def test_on_a_compute_node_it_sees_other_users_processes_and_holds_no_capability(packages,
                                                                                 booted_root):
    need(str(STORM))
    if not list(packages.glob("scriptorium-usage_*.deb")):
        pytest.skip("this build has no plugin usage")
    booted_root.install(packages, "scriptorium", "scriptorium-usage")
    service = Service(booted_root)
    service.drop_in("usage.conf",
                    booted_root.file("/usr/share/scriptorium/systemd/usage.conf").read_text())
    head, _, rest = CONFIG.partition("[source.slurm]")
    service.configure(head + '[source.usage]\nresolve = "none"\n'
                      + rest[rest.index("[sink.archive]"):])
    service.start()
    status = service.status()
    assert status["sources"]["usage"]["plugin"] == "usage" \
        and status["sources"]["usage"]["last_error"] is None, status["sources"]
    assert status["privileges"]["capabilities"] == [] and status["privileges"]["separated"] \
        is False, status["privileges"]
    main = service.show("MainPID")
    have = service.process_status(main)
    assert {have[name] for name in ("CapEff", "CapPrm", "CapBnd", "CapAmb")} == {"0" * 16}, have
    assert status["privileges"]["executable_reader"] is None
    # As the daemon's user, in its mounts: the processes of root, and the node's own numbers.
    inside = ["nsenter", "-t", main, "-m", "--", "setpriv", "--reuid=scriptorium",
              "--regid=scriptorium", "--clear-groups"]
    for file in ("/proc/1/status", "/proc/stat", "/proc/meminfo"):
        assert booted_root.run(*inside, "cat", file), file
    service.stop()
    # With the other drop-in, a process of its own has one capability, and the daemon none.
    service.drop_in("zz-usage-programs.conf",
                    booted_root.file("/usr/share/scriptorium/systemd/usage-programs.conf")
                    .read_text())
    service.configure(head + '[source.usage]\nresolve = "none"\nexecutables = true\n'
                      + rest[rest.index("[sink.archive]"):])
    service.start()
    privileges = service.status()["privileges"]
    assert privileges["executable_reader"]["capabilities"] == ["CAP_SYS_PTRACE"], privileges
    have = service.process_status(service.show("MainPID"))
    assert {have[name] for name in ("CapEff", "CapPrm", "CapAmb")} == {"0" * 16}, have
    service.stop()


# ---- mails ---------------------------------------------------------------------------------------
class MailUnit:
    """scriptorium-mail.service beside `service`, with exim."""

    def __init__(self, service, work):
        self.service, self.root = service, service.root
        self.root.apt_install("exim4-daemon-light")
        for user in ("alice", "bob"):
            self.root.run("useradd", "-m", user)
        (work / "site").mkdir()
        self.events = test_mail.Site(work / "site")
        self.events.tree = self.root.file(ARCHIVE)
        self.configure()

    def configure(self, sendmail="/usr/sbin/sendmail"):
        self.service.configure(CONFIG + f"""
kinds = ["job.script", "usage.*"]
[report.mail]
from = "HPC support <root@localhost>"
sendmail = "{sendmail}"
min_jobs = 1
min_wasted_core_hours = 1
""")

    def start(self, status):
        """One run of the unit, which must end with `status`."""
        started = self.root.try_run("systemctl", "start", "scriptorium-mail")
        self.root.run("journalctl", "--sync")
        log = self.root.run("journalctl", "-u", "scriptorium-mail", "-o", "cat", "--no-pager")
        assert started.returncode == (0 if status == 0 else 1), log
        assert self.show("ExecMainStatus") == str(status), log
        assert self.show("Result") == ("exit-code" if status else "success"), log
        return log

    def show(self, name, unit="scriptorium-mail"):
        return self.root.run("systemctl", "show", unit, "--value", f"--property={name}").strip()

    def mails(self, user):
        """Once exim has delivered what it took."""
        wait_for(lambda: self.root.run("exim4", "-bp") == "", "exim's queue is empty", step=0.1)
        box = self.root.file(f"/var/mail/{user}")
        return test_mail.mails_in(box) if box.exists() else []


def test_the_mail_unit_hands_mails_to_exim_once_and_fails_where_one_may_be_lost(service, tmp_path):
    mail = MailUnit(service, tmp_path)
    service.start()
    assert service.status()["mail"] is None
    today = datetime.datetime.now(datetime.timezone.utc)
    week = today - datetime.timedelta(days=7)
    mail.events.job("alice", cluster="unit", ended=week.isoformat())

    state = service.root.file("/var/lib/scriptorium-mail")
    assert not state.exists()
    assert "1 mail sent" in mail.start(0)
    assert (state.stat().st_uid, state.stat().st_mode & 0o7777) == (0, 0o711)
    [got] = mail.mails("alice")
    assert got["From"] == "HPC support <root@localhost>" and "alice" in got["To"]
    status = service.status()["mail"]
    assert (status["period"], status["sent"]) == (week.strftime("%G-W%V"), 1)
    mail.start(0)
    assert len(mail.mails("alice")) == 1
    assert service.status()["mail"] == status

    # As docs/mail.md has it for months; for the unit's second call of this test, another period.
    folder = service.root.file("/etc/systemd/system/scriptorium-mail.service.d")
    folder.mkdir()
    (folder / "month.conf").write_text(
        "[Service]\nExecStart=\n"
        "ExecStart=/usr/bin/scriptorium report --mail --all --period month\n")
    service.root.run("systemctl", "daemon-reload")
    month = today.replace(day=1) - datetime.timedelta(days=1)
    for user in ("alice", "bob"):
        mail.events.job(user, cluster="unit", ended=month.isoformat())
    refuses = service.root.file("/usr/local/sbin/refuses")
    refuses.write_text("#!/bin/sh\n[ $5 = bob ] || exit 67\nkill -9 $$\n")
    refuses.chmod(0o755)
    mail.configure("/usr/local/sbin/refuses")
    name = month.strftime("%Y-%m")
    log = mail.start(harness.EX_TEMPFAIL)
    assert f"the mail to alice on unit, {name}: refuses: exit status 67" in log
    assert f"may have got no mail: bob on unit, {name}" in log
    status = service.status()["mail"]
    assert status["may_be_lost"] == [f"bob on unit, {name}"] and status["refused"] == 1
    assert f"may have got no mail: bob on unit, {name}" in service.root.run("scriptorium", "status")
    mail.configure()
    mail.start(harness.EX_TEMPFAIL)
    assert mail.mails("bob") == []
    service.root.run("scriptorium", "report", "--mail", "--resend", "--all", "--period", "month")
    mail.start(0)
    assert [len(mail.mails(user)) for user in ("alice", "bob")] == [2, 1]
    service.stop()


def test_the_mail_timer_is_off_until_it_is_started_and_then_waits_for_the_next_hour(service):
    run = service.root.run
    timer = "scriptorium-mail.timer"
    assert service.root.try_run("systemctl", "is-enabled", timer).stdout.strip() == "disabled"
    run("systemctl", "enable", "--now", timer)
    assert run("systemctl", "is-active", timer).strip() == "active"
    due = run("systemctl", "show", timer, "--value", "--property=NextElapseUSecRealtime").strip()
    assert re.fullmatch(r"\w{3} [-\d]{10} (0[7-9]|1\d|2[01]):(1[5-9]|20:00).*", due), due


# ---- the query service ---------------------------------------------------------------------------
class QueryService:
    """scriptorium-web beside `service`, whose catalog has a job of alice and one of bob."""

    JOBS = {"alice": 11, "bob": 12}

    def __init__(self, service, packages, options=""):
        """`options` are further lines of [serve]."""
        self.service, self.root = service, service.root
        self.install(packages)
        folder, submitted = self.root.file("/opt/slurm"), int(time.time()) - 60
        folder.mkdir()
        slurm, spool = FakeSlurm(folder), harness.Spool(service.spool)
        for user, job in self.JOBS.items():
            self.root.run("useradd", "-m", user)
            uid = self.root.run("id", "-u", user).strip()
            spool.write(job)
            os.utime(spool.entry(job) / "script", (submitted, submitted))
            with slurm.queue.open("a") as queue:
                queue.write(f"{job}|{job}|N/A|{uid}|{uid}|{submitted}|N/A|N/A|0|PD|1|"
                            f"law@normal@cpu@/tmp@job_{job}@\n")
        service.configure(CONFIG.replace('resolve = "none"', 'squeue = "/opt/slurm/squeue"')
                          + '[sink.catalog]\nroot = "/var/lib/scriptorium-catalog"\n[serve]\n'
                          + options)
        service.start()
        wait_for(lambda: service.status()["sinks"]["catalog"]["acknowledged_total"] == 2,
                 lambda: f"the catalog has both jobs\n{service.log()}", step=0.1)

    def install(self, packages):
        self.root.install(packages, "scriptorium-web")

    def ask(self, user, *command):
        return self.root.try_run("runuser", "-u", user, "--", "scriptorium", *command)

    def entries(self, *matches):
        """Of the system's journal."""
        self.root.run("journalctl", "--sync")
        lines = self.root.run("journalctl", "-o", "json", "--no-pager", *matches)
        return [json.loads(line) for line in lines.splitlines()]


def test_users_ask_the_query_service_and_the_journal_keeps_who_asked_for_what(service, packages):
    web = QueryService(service, packages)
    state = web.root.try_run("systemctl", "is-enabled", "scriptorium-web.socket")
    assert state.stdout.strip() == "disabled"
    web.root.run("systemctl", "enable", "--now", "scriptorium-web.socket")
    for user, job in web.JOBS.items():
        found = web.ask(user, "search", "--ids")
        assert (found.returncode, found.stdout) == (harness.EX_OK, f"{job}\n"), (
            found, web.root.run("journalctl", "-u", "scriptorium-web", "--no-pager"))
    main = web.root.run("systemctl", "show", "scriptorium-web", "--value", "--property=MainPID")
    have = service.process_status(main.strip())
    web_uid = web.root.run("id", "-u", "scriptorium-web").strip()
    assert have["Uid"].split() == [web_uid] * 4
    assert {have[name] for name in ("CapEff", "CapPrm", "CapBnd", "CapAmb")} == {"0" * 16}, have

    [entry] = web.entries("SCRIPTORIUM_USER=alice")
    assert re.fullmatch("[0-9a-f]{64}", entry["SCRIPTORIUM_EVENTS"]), entry
    expected = {"SCRIPTORIUM_UID": web.root.run("id", "-u", "alice").strip(),
                "SCRIPTORIUM_SEES": "own", "SCRIPTORIUM_STORE": "catalog",
                "SCRIPTORIUM_CALL": "search", "SCRIPTORIUM_ASKED": "*", "SCRIPTORIUM_HITS": "1",
                "PRIORITY": "6", "SYSLOG_IDENTIFIER": "scriptorium", "_UID": web_uid,
                "_SYSTEMD_UNIT": "scriptorium-web.service"}
    assert {name: entry[name] for name in expected} == expected, entry
    assert entry["MESSAGE"].startswith("SERVE_ANSWERED: a question was answered user=alice ")
    message_id = entry["MESSAGE_ID"]
    assert message_id in (harness.ROOT / "docs" / "serve.md").read_text()

    forged = web.ask("bob", "search", '"x\nSCRIPTORIUM_USER=alice\nSCRIPTORIUM_UID=0"')
    assert forged.returncode == 1, forged
    users = [entry["SCRIPTORIUM_USER"] for entry in web.entries(f"MESSAGE_ID={message_id}")]
    assert users == ["alice", "bob", "bob"]
    assert not web.entries("SCRIPTORIUM_UID=0")
    assert len(web.entries("SCRIPTORIUM_USER=alice")) == 1

    web.root.run("apt-get", "purge", "-y", "scriptorium-web")
    refused = web.ask("alice", "search", "--ids")
    assert (refused.returncode, refused.stdout) == (harness.EX_UNAVAILABLE, ""), refused
    assert "scriptorium-web" not in web.root.file("/etc/passwd").read_text()
    service.stop()


def test_the_journal_keeps_every_question_however_many_a_user_asks(service, packages):
    web = QueryService(service, packages)
    few = web.root.file("/etc/systemd/journald.conf.d/few.conf")
    few.parent.mkdir()
    few.write_text("[Journal]\nRateLimitIntervalSec=1h\nRateLimitBurst=1\n")
    web.root.run("systemctl", "restart", "systemd-journald")
    web.root.run("systemctl", "start", "scriptorium-web.socket")
    for question in range(30):
        assert web.ask("alice", "search", "--ids", f"q{question}").returncode == 1
    kept = [entry["SCRIPTORIUM_ASKED"] for entry in web.entries("SCRIPTORIUM_USER=alice")]
    assert kept == [f"q{question}" for question in range(30)]


def test_an_upgrade_restarts_the_running_service_and_loses_no_job(packages, packages_before,
                                                                  booted_root):
    booted_root.install(packages_before, "scriptorium")
    service = Service(booted_root)
    service.start()
    before = service.show("MainPID")
    jobs = storm_jobs(10_000)
    storm = service.storm(jobs, rate=500, lifetime_ms=20_000)
    wait_for(lambda: service.status()["sources"]["slurm"]["captured"] > 50, "it captures", step=0.1)
    booted_root.install(packages, "scriptorium")
    assert storm.poll() is None, "the storm was over before the upgrade: this run shows nothing"
    wait_for(lambda: service.show("SubState") == "running"
             and service.show("MainPID") not in ("0", before),
             lambda: f"the new version runs\n{service.log()}", step=0.2)
    assert storm.wait(300) == 0
    status = service.wait_acknowledged(jobs)
    service.compare()
    assert status["sinks"]["archive"]["acknowledged_total"] == jobs, "nothing twice"
    assert service.show("UnitFileState") == "disabled", "nobody has enabled it"
    booted_root.run("apt-get", "purge", "-y", "scriptorium")
    assert service.show("LoadState") == "not-found"
    assert not booted_root.file("/var/lib/scriptorium").exists()
