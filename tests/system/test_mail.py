"""`scriptorium report --mail`: mails to users of this machine, delivered to their mailboxes by
Debian's exim4 (which needs no daemon for that) or taken by a script in its place."""

import contextlib
import datetime
import email
import email.policy
import html.parser
import itertools
import json
import mailbox
import os
import pathlib
import pwd
import re
import shutil
import signal
import subprocess

import pytest

import harness
from harness import EX_CONFIG, EX_OK, EX_TEMPFAIL, EX_UNAVAILABLE, wait_for
from test_crash import needs_fault_build
from test_metrics import UnixConnection, samples, scrape

EXIM = "/usr/sbin/exim4"
ADMIN_PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
WEEK, SINCE, UNTIL = "2025-W03", "2025-01-13", "2025-01-20"
IN_WEEK = "2025-01-15T12:00:00Z"
HEADERS = ["From", "To", "Subject", "Date", "Message-ID", "MIME-Version", "Auto-Submitted",
           "Precedence", "List-Id", "List-Unsubscribe", "Content-Language", "Content-Type"]
FROM_EXIM = {"return-path", "envelope-to", "delivery-date", "received"}


def admin(*command):
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "PATH": ADMIN_PATH})


class User:
    """A Unix user of this test run, with a home and a mailbox."""

    def __init__(self, name):
        self.name = name
        self.mailbox = pathlib.Path("/var/mail") / name

    @property
    def home(self):
        return pathlib.Path(pwd.getpwnam(self.name).pw_dir)

    def put_in_home(self, name):
        file = self.home / ".scriptorium" / name
        file.parent.mkdir()
        file.touch()

    def reset(self):
        self.mailbox.unlink(missing_ok=True)
        shutil.rmtree(self.home / ".scriptorium", ignore_errors=True)

    def mails(self):
        """All that were delivered, once exim has nothing more for this user. Exim delivers in a
        process of its own, but has a mail in its queue before it says that it took it."""
        def queue():
            return subprocess.run([EXIM, "-bp"], capture_output=True, text=True, check=True).stdout
        wait_for(lambda: self.name not in queue(), lambda: f"all is delivered: {queue()}", 120)
        return mails_in(self.mailbox) if self.mailbox.exists() else []

    def mail(self):
        mails = self.mails()
        assert len(mails) == 1, f"{self.name} has {len(mails)} mails"
        return mails[0]


@pytest.fixture(scope="module")
def module_users():
    if not harness.IS_ROOT:
        pytest.skip("needs root, to make users")
    missing = [program for program in (EXIM, "useradd", "userdel", "usermod")
               if not shutil.which(program, path=ADMIN_PATH)]
    if missing:
        pytest.skip(f"no {', '.join(missing)} here; apt-get install exim4-daemon-light passwd")
    # Mails go out in this order.
    users = [User(f"scrmail{os.getpid()}{letter}") for letter in "abc"]
    try:
        for user in users:
            admin("useradd", "-m", user.name)
        yield users
    finally:
        for user in users:
            subprocess.run(["userdel", "-r", user.name], capture_output=True, check=False,
                           env={**os.environ, "PATH": ADMIN_PATH})
            user.mailbox.unlink(missing_ok=True)


@pytest.fixture
def users(module_users):
    for user in module_users:
        user.reset()
    yield module_users
    for user in module_users:
        user.mails()  # a delivery that is under way runs as the user
        user.reset()


class Site:
    """A tree of usage.job events, as a file sink writes them, and a configuration with mails."""

    numbers = itertools.count(4711)

    def __init__(self, work):
        self.work = work
        self.slurm = None  # options of a source that knows coordinators
        self.tree = work / "tree"
        self.tree.mkdir()
        self.state = work / "mail"
        self.config = work / "scriptorium.toml"
        self.configure()

    def configure(self, sendmail=EXIM, **options):
        options = {"from": "HPC support <root@localhost>", "sendmail": str(sendmail),
                   "state_dir": str(self.state), "min_wasted_core_hours": 1, "min_jobs": 1,
                   **options}
        self.config.write_text(harness.config_text(
            self.work, sources={"slurm": self.slurm, "usage": {}}, sinks={"archive": {
                "root": str(self.tree), "kinds": ["usage.*"], "layout": None,
                "retry_max_ms": None, "acl": None}}) + "\n[report.mail]\n"
            + "".join(f"{key} = {harness.toml(value)}\n" for key, value in options.items()))

    def job(self, user, *, ended=IN_WEEK, cpus=16, hours=2, used=0.25, cluster="lab", name="relax",
            findings=("cpu_low",), suggest=None, verified=True, gpu=None, account="chem"):
        """A finished job; its id. `findings`: ids, or as an event has them."""
        number = next(self.numbers)
        end = datetime.datetime.fromisoformat(ended.replace("Z", "+00:00"))

        def utc(moment):
            return moment.astimezone(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.000Z")
        began = utc(end - datetime.timedelta(hours=hours))
        if isinstance(findings, tuple):
            findings = [{"id": one, "severity": "warning", "value": used, "unit": "ratio",
                         "scope": "job", "text": f"{one} of {number}"} for one in findings]
        event = {
            "schema": "scriptorium.event/1", "capture": "usage", "complete": True, "details": {},
            "id": f"{number:064x}", "kind": "usage.job", "cluster": cluster, "scheduler": "slurm",
            "host": {"name": "ctl"}, "captured_at": utc(end), "time": utc(end),
            "user": {"name": user, "id": "1000", "verified": verified},
            "job": {"id": str(number), "name": name, "state": "COMPLETED", "partition": "batch",
                    "account": account, "ended_at": utc(end)},
            "usage": {"elapsed_seconds": hours * 3600, "started_at": began, "ended_at": utc(end),
                      "request": {"nodes": 1, "cpus": cpus},
                      "cpu": {"allocated": cpus, "time_seconds": hours * 3600 * cpus * used,
                              "efficiency_ratio": used},
                      **({"gpu": gpu} if gpu else {}),
                      "quality": {"status": "ok"}, "findings": findings,
                      "suggest": suggest or {"cpus": 4, "directives": ["#SBATCH --ntasks=4"]}}}
        (self.tree / f"{number}.usage.job.json").write_text(json.dumps(event))
        return str(number)

    def jobs_of(self, users):
        for user in users:
            self.job(user.name)

    def command(self, *arguments, period=WEEK):
        return [str(harness.SCRIPTORIUM), "report", "--mail", *arguments, "--period", period,
                "--config", str(self.config)]

    def mail(self, *arguments, code=EX_OK, env=None, period=WEEK, **how):
        """One call; `code`: the exit status that it must have."""
        result = subprocess.run(self.command(*(arguments or ["--all"]), period=period),
                                stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                timeout=120 * harness.PATIENCE, check=False,
                                env={**os.environ, "TZ": "UTC", **(env or {})}, **how)
        assert result.returncode == code, \
            f"exit status {result.returncode}, not {code}\n{result.stdout}\n{result.stderr}"
        return result

    def begin(self):
        return subprocess.Popen(self.command("--all"), stdin=subprocess.DEVNULL, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                env={**os.environ, "TZ": "UTC"})

    def last(self):
        return json.loads((self.state / "last.json").read_text())

    def waiting(self):
        return list((self.state / "waiting").iterdir())

    # ---- programs in the place of exim -----------------------------------------------------------
    def program(self, name, *lines):
        path = self.work / name
        path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
        path.chmod(0o755)
        return path

    def recorder(self):
        """Takes every mail, for sent()."""
        (self.work / "sent").mkdir(exist_ok=True)
        return self.program("recorder", f'file=$(mktemp "{self.work}/sent/XXXXXXXX") || exit 1',
                            'printf "%s\\n" "$@" > "$file.arguments"', 'cat > "$file"')

    def sent(self):
        """{recipient: its mails} of the recorder."""
        mails = {}
        for file in (self.work / "sent").glob("*.arguments"):
            arguments = file.read_text().splitlines()
            assert arguments[:4] == ["-i", "-f", "root@localhost", "--"], arguments
            assert len(arguments) == 5, arguments
            mails.setdefault(arguments[4], []).append(read_mail(file.with_suffix("")))
        return mails

    def gate(self):
        """(program, began, let()): a program that says that it has a mail, and gives it to exim
        once it is let."""
        began, fifo = self.work / "began", self.work / "let"
        os.mkfifo(fifo)
        program = self.program("gate", f"cat > {self.work}/message", f"echo > {began}",
                               f"read word < {fifo}", f'exec {EXIM} "$@" < {self.work}/message')
        return program, began, lambda: fifo.write_text("go\ngo\ngo\n")

    def begin_at_gate(self):
        """(process, let()): a call whose mail program has the first mail."""
        program, began, let = self.gate()
        self.configure(program)
        process = self.begin()
        wait_for(began.exists, "the mail program has the mail")
        return process, let


@pytest.fixture
def site(work, users):
    before = os.umask(0o022)  # users read the configuration and the tree
    yield Site(work)
    os.umask(before)


def mails_in(file):
    with contextlib.closing(mailbox.mbox(
            file, create=False, factory=lambda mail: email.message_from_binary_file(
                mail, policy=email.policy.default))) as box:
        return list(box)


def read_mail(file):
    return email.message_from_bytes(pathlib.Path(file).read_bytes(), policy=email.policy.default)


def text_of(mail):
    return mail.get_body(("plain",)).get_content()


def html_of(mail):
    return mail.get_body(("html",)).get_content()


def words_of(mail):
    """The text in one line, with plain blanks."""
    return " ".join(text_of(mail).split())


def figures_of(mail):
    """Jobs, core hours had and unused, GPU hours had and unused, as the mail writes them."""
    words = words_of(mail)
    jobs = re.search(r"(\d+) of your jobs on|(One) of your jobs on", words)
    sums = re.search(r"Reserved: (\S+) core hours(?: and (\S+) GPU hours)?\. "
                     r"Not used: (\S+) core hours \(\d+ %\)(?: and (\S+) GPU hours)?", words)
    assert jobs and sums, words
    had, gpu_had, unused, gpu_unused = sums.groups()
    return jobs.group(1) or "1", had, unused, gpu_had or "0", gpu_unused or "0"


def hours(seconds):
    count = seconds / 3600
    return "0" if seconds == 0 else str(round(count)) if count >= 9.95 else f"{count:.1f}"


def tags_of(text):
    tags = set()
    parser = html.parser.HTMLParser()
    parser.handle_starttag = lambda tag, _: tags.add(tag)
    parser.feed(text)
    return tags


def ids_of(mails):
    return [mail["Message-ID"] for mail in mails]


def named(result):
    """The users that a call names as those who may have got no mail."""
    return set(re.findall(r"may have got no mail: (\S+) on lab, \S+; to send it again: "
                          r"scriptorium report --mail --resend --user \1 --period", result.stderr))


# ---- what a mail says ----------------------------------------------------------------------------
def test_each_of_three_users_gets_one_mail_about_jobs_of_their_own(site, users):
    wanted = {}
    for user, count, job in zip(users, (6, 9, 5), (
            dict(cpus=16, hours=2, used=0.25, findings=("cpu_low",)),
            dict(cpus=4, hours=7, used=0.5, findings=("mem_over",)),
            dict(cpus=8, hours=1, used=0.9, findings=("gpu_low",),
                 gpu={"count": 2, "utilization_ratio": 0.1}))):
        line = {16: "#SBATCH --cpus-per-task=4", 4: "#SBATCH --mem=3G", 8: "#SBATCH --gpus=1"}
        directive = line[job["cpus"]]
        jobs = [site.job(user.name, name=f"run_{user.name[-1]}_{n}",
                         suggest={"directives": [directive]}, **job) for n in range(count)]
        site.job(user.name, ended="2025-01-12T23:59:59Z", **job)  # of the week before
        wanted[user.name] = jobs, directive
    rows = {row["user"]: row for row in json.loads(harness.scriptorium(
        "report", "--by", "user", "--since", SINCE, "--until", UNTIL, "--json", "--config",
        site.config, env={"TZ": "UTC"}).stdout)["rows"]}

    result = site.mail()
    assert f"{WEEK}: 3 mails sent" in result.stdout and result.stderr == ""
    for user in users:
        mail = user.mail()
        assert [name for name in mail.keys() if name.lower() not in FROM_EXIM] == HEADERS
        assert str(mail["From"]) == "HPC support <root@localhost>"
        assert mail["Return-path"] == "<root@localhost>"
        assert [one.username for one in mail["To"].addresses] == [user.name]
        assert mail["List-Unsubscribe"] == "<mailto:root@localhost>"
        assert mail.get_content_type() == "multipart/alternative"
        assert [part.get_content_type() for part in mail.iter_parts()] == ["text/plain",
                                                                           "text/html"]
        assert not mail.defects and not any(part.defects for part in mail.iter_parts())
        row = rows[user.name]
        jobs, had, unused, gpu_had, gpu_unused = (
            str(row["jobs"]), *(hours(row[key]) for key in (
                "core_seconds", "wasted_core_seconds", "gpu_seconds", "wasted_gpu_seconds")))
        assert figures_of(mail) == (jobs, had, unused, gpu_had, gpu_unused)
        subject = f"Your jobs in week 3 of 2025: {unused} of {had} core hours"
        if user is users[2]:
            subject += f" and {gpu_unused} of {gpu_had} GPU hours"
        assert mail["Subject"] == subject + " unused"
        assert f"In the week before, {hours(row['before']['wasted_core_seconds'])} of " \
            f"{hours(row['before']['core_seconds'])} core hours" in words_of(mail)
        own, directive = wanted[user.name]
        example = re.search(r"For example job (\d+), “(run_(\w)_\d)”", words_of(mail))
        assert example and example.group(1) in own and example.group(3) == user.name[-1]
        for text in (text_of(mail), html_of(mail)):
            assert directive in text and example.group(1) in text
            assert f"scriptorium report {example.group(1)}" in text
            for other in users:
                if other is user:
                    continue
                others, line = wanted[other.name]
                assert not set(re.findall(r"\d+", text)) & set(others)
                assert other.name not in text and f"run_{other.name[-1]}_" not in text
                assert line not in text


def test_a_page_of_the_site_is_linked_with_the_users_own_login(site, users):
    site.jobs_of(users[:1])
    site.configure(site.recorder())
    with open(site.config, "a", encoding="utf-8") as config:
        config.write('\n[report]\npage_url = "https://hpc.example/jobs?user={user}&a=1"\n')
    site.mail()
    page = f"https://hpc.example/jobs?user={users[0].name}&a=1"
    [mail] = site.sent()[users[0].name]
    assert page in text_of(mail) and f'href="{page.replace("&", "&amp;")}"' in html_of(mail)


# ---- one mail ------------------------------------------------------------------------------------
def test_ten_calls_and_calls_in_other_zones_send_one_mail(site, users):
    site.jobs_of(users)
    for turn in range(10):
        # Every second call reads the archive again, since it is not for all.
        chosen = [word for user in users for word in ("--user", user.name)]
        result = site.mail(*(chosen if turn % 2 else ["--all"]))
        assert f"{WEEK}: {0 if turn else 3} mails sent" in result.stdout
        if turn % 2:
            assert "3 not written: sent before" in result.stdout
    for zone in ("Pacific/Kiritimati", "Pacific/Pago_Pago", "Europe/Berlin"):
        for arguments in (["--all"], ["--user", users[0].name]):
            site.mail(*arguments, env={"TZ": zone})
    assert [len(user.mails()) for user in users] == [1, 1, 1]


def test_a_late_job_and_a_second_period_are_no_reason_for_a_second_mail(site, users):
    site.jobs_of(users[:1])
    site.mail()
    site.jobs_of(users)
    assert "everybody was considered before" in site.mail().stdout
    month = site.mail(period="2025-01")
    assert "2025-01: 3 mails sent" in month.stdout
    assert [len(user.mails()) for user in users] == [2, 1, 1]
    assert len(set(ids_of(users[0].mails()))) == 2


def test_a_call_beside_another_sends_nothing_and_says_why(site, users):
    site.jobs_of(users[:1])
    first, let = site.begin_at_gate()
    second = site.mail(code=EX_TEMPFAIL)
    assert "another process sends mails now" in second.stderr and second.stdout == ""
    let()
    output, errors = first.communicate(timeout=120)
    assert first.returncode == EX_OK, errors
    assert "1 mail sent" in output
    site.mail()
    users[0].mail()


@pytest.mark.parametrize("week, next_week, sunday, monday", [
    pytest.param("2025-W13", "2025-W14", "2025-03-30T23:30:00+02:00", "2025-03-31T00:30:00+02:00",
                 id="spring"),
    pytest.param("2025-W43", "2025-W44", "2025-10-26T23:30:00+01:00", "2025-10-27T00:30:00+01:00",
                 id="autumn")])
def test_weeks_begin_at_local_midnight_where_the_clock_changes(site, users, week, next_week, sunday,
                                                               monday):
    if not pathlib.Path("/usr/share/zoneinfo/Europe/Berlin").exists():
        pytest.skip("no zone Europe/Berlin here; apt-get install tzdata")
    user = users[0].name
    jobs = {week: site.job(user, ended=sunday, hours=1),
            next_week: site.job(user, ended=monday, hours=3)}
    site.configure(site.recorder())
    for period in (week, next_week):
        for _ in range(2):
            site.mail(period=period, env={"TZ": "Europe/Berlin"})
    mails = {mail["Subject"].split()[4]: mail for mail in site.sent()[user]}
    assert len(site.sent()[user]) == 2
    for period, had in ((week, "16"), (next_week, "48")):
        mail = mails[period[-2:]]
        assert figures_of(mail)[:2] == ("1", had)
        assert f"For example job {jobs[period]}," in words_of(mail)


# ---- killed --------------------------------------------------------------------------------------
def check_nobody_has_two_and_all_without_one_are_named(site, users, result):
    counts = {user.name: len(user.mails()) for user in users}
    assert max(counts.values()) <= 1, counts
    without = {name for name, count in counts.items() if count == 0}
    lost = {name.split()[0] for name in site.last()["may_be_lost"]}
    assert named(result) == lost
    assert without <= lost, f"{without - lost} have no mail and are not named"
    return lost


@needs_fault_build
@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize("point", ["before_claim", "claimed", "handed_over", "noted"])
def test_a_kill_at_any_step_sends_no_mail_twice_and_names_who_may_have_none(site, users, work,
                                                                            point, nth):
    site.jobs_of(users)
    reached = work / "reached"
    site.mail(code=-signal.SIGKILL, env={"SCRIPTORIUM_FAULT": f"mail.{point}:{nth}",
                                         "SCRIPTORIUM_FAULT_LOG": str(reached)})
    assert f"mail.{point}" in reached.read_text()
    before = {user.name: ids_of(user.mails()) for user in users}
    expected = nth - (point in ("before_claim", "claimed"))
    assert [len(before[user.name]) for user in users] == [1] * expected + [0] * (3 - expected)

    is_undecided = point in ("claimed", "handed_over")
    result = site.mail(code=EX_TEMPFAIL if is_undecided else EX_OK)
    lost = check_nobody_has_two_and_all_without_one_are_named(site, users, result)
    victim = users[nth - 1]
    assert lost == ({victim.name} if is_undecided else set())
    # The user stays named, however often the command is called.
    again = site.mail(code=EX_TEMPFAIL if is_undecided else EX_OK)
    assert check_nobody_has_two_and_all_without_one_are_named(site, users, again) == lost
    if not is_undecided:
        return
    resent = site.mail("--resend", "--user", victim.name)
    assert "1 mail sent" in resent.stdout
    counts = [len(user.mails()) for user in users]
    assert counts == [1 + (user is victim and point == "handed_over") for user in users]
    assert len(set(ids_of(victim.mails()))) == 1  # so that a reader can see that it is the same
    for arguments in (["--all"], ["--resend", "--all"]):
        result = site.mail(*arguments)
        assert not named(result) and site.last()["may_be_lost"] == []
    assert counts == [len(user.mails()) for user in users]


def test_a_kill_while_the_mail_program_works_names_the_user(site, users):
    site.jobs_of(users)
    process, let = site.begin_at_gate()
    process.kill()
    process.communicate()
    let()
    wait_for(users[0].mails, "exim delivers what it was given", 120)
    site.configure()
    result = site.mail(code=EX_TEMPFAIL)
    lost = check_nobody_has_two_and_all_without_one_are_named(site, users, result)
    assert lost == {users[0].name}


def test_a_stop_lets_the_mail_under_way_end_and_leaves_the_others_for_the_next_call(site, users):
    site.jobs_of(users)
    process, let = site.begin_at_gate()
    process.send_signal(signal.SIGTERM)
    let()
    _, errors = process.communicate(timeout=120)
    assert process.returncode == EX_TEMPFAIL
    assert "stopped; 2 mails not tried" in errors, errors
    assert [len(user.mails()) for user in users] == [1, 0, 0]
    site.configure()
    result = site.mail()
    assert "2 mails sent" in result.stdout and not named(result)
    assert [len(user.mails()) for user in users] == [1, 1, 1]


# ---- a mail program that does not take it --------------------------------------------------------
@pytest.mark.parametrize("status", [1, 69, 75, "missing", "not executable"])
def test_a_mail_that_was_not_taken_waits_and_is_delivered_by_the_next_call(site, users, status):
    site.jobs_of(users[:2])
    program = site.program("refuses", "echo 'no route to host' >&2", f"exit {status}")
    if status == "missing":
        program.unlink()
    elif status == "not executable":
        program.chmod(0o644)
    site.configure(program)
    result = site.mail()
    assert "0 mails sent, 2 to be tried again" in result.stdout
    for user in users[:2]:
        said = re.search(f"the mail to {user.name} on lab, {WEEK}: (.*)", result.stderr)
        assert said, result.stderr
        if isinstance(status, int):
            assert said.group(1) == f"refuses: exit status {status}: no route to host"
    assert site.last()["waiting"] == 2 and site.last()["may_be_lost"] == []
    kept = sorted(ids_of(map(read_mail, site.waiting())))
    assert len(kept) == 2
    assert "2 to be tried again" in site.mail().stdout  # and nobody else is asked
    assert sorted(ids_of(map(read_mail, site.waiting()))) == kept

    site.configure()
    assert "2 mails sent" in site.mail().stdout
    assert site.waiting() == [] and site.last()["waiting"] == 0
    assert sorted(user.mail()["Message-ID"] for user in users[:2]) == kept
    site.mail()
    assert [len(user.mails()) for user in users] == [1, 1, 0]


@pytest.mark.parametrize("status", [64, 65, 67, 68])
def test_a_mail_that_is_refused_for_good_is_named_and_never_tried_again(site, users, status):
    site.jobs_of(users[:1])
    calls = site.work / "calls"
    site.configure(site.program("refuses", f"echo call >> {calls}", "echo unknown >&2",
                                f"exit {status}"))
    result = site.mail(code=EX_UNAVAILABLE)
    assert "1 refused" in result.stdout
    assert f"the mail to {users[0].name} on lab, {WEEK}: refuses: exit status {status}: unknown" \
        in result.stderr
    assert site.last()["refused"] == 1 and site.waiting() == []
    site.mail()
    assert "1 not written: refused before" in site.mail("--user", users[0].name).stdout
    assert calls.read_text().count("call") == 1


@pytest.mark.parametrize("end", ["kills itself", "is killed"])
def test_a_mail_whose_program_was_killed_may_be_lost(site, users, end):
    site.jobs_of(users[:1])
    pid = site.work / "pid"
    if end == "is killed":  # as one that hangs is, after a minute
        site.configure(site.program("hangs", f"echo $$ > {pid}.new", f"mv {pid}.new {pid}",
                                    "exec sleep 600"))
        process = site.begin()
        wait_for(pid.exists, "the mail program runs")
        os.kill(int(pid.read_text()), signal.SIGKILL)
        _, errors = process.communicate(timeout=120)
        code = process.returncode
    else:
        site.configure(site.program("dies", "kill -9 $$"))
        result = site.mail(code=EX_TEMPFAIL)
        code, errors = result.returncode, result.stderr
    assert code == EX_TEMPFAIL and f"may have got no mail: {users[0].name} on lab" in errors
    site.configure()
    assert named(site.mail(code=EX_TEMPFAIL)) == {users[0].name}
    assert users[0].mails() == []
    site.mail("--resend", "--user", users[0].name)
    users[0].mail()
    assert not named(site.mail())


def test_a_mail_that_was_refused_can_be_sent_again(site, users):
    # As by a relay that refused the sender, until the site repaired that: msmtp ends with 65.
    site.jobs_of(users[:2])
    site.configure(site.program("refuses", f'[ "$5" != {users[0].name} ] || exit 65',
                                f'exec {EXIM} "$@"'))
    site.mail(code=EX_UNAVAILABLE)
    site.configure()
    resent = site.mail("--resend", "--all")
    assert "1 mail sent" in resent.stdout and "1 not written: not lost" in resent.stdout
    assert [len(user.mails()) for user in users] == [1, 1, 0]


def test_a_mail_program_that_does_not_answer_is_given_three_mails_a_call(site, users):
    site.jobs_of(users[:1])
    staff = [f"staff{n}@localhost" for n in range(4)]
    site.configure(site.program("dies", "kill -9 $$"), site=staff)
    result = site.mail(code=EX_TEMPFAIL)
    assert "the mail program does not answer; 2 mails not tried" in result.stderr
    lost = [users[0].name, *staff[:2]]
    assert [name.split()[0] for name in site.last()["may_be_lost"]] == lost
    site.configure(site.recorder(), site=staff)
    again = site.mail(code=EX_TEMPFAIL)
    assert "2 mails sent" in again.stdout and sorted(site.sent()) == staff[2:]
    site.mail("--resend", "--all")
    assert sorted(site.sent()) == sorted([users[0].name, *staff])
    assert all(len(mails) == 1 for mails in site.sent().values())


# ---- who gets none -------------------------------------------------------------------------------
def write(file, text):
    file.write_text(text)
    return str(file)


REASONS = {
    "few jobs": ("below the thresholds", lambda site, user: dict(min_jobs=2)),
    "little waste": ("below the thresholds", lambda site, user: dict(min_wasted_core_hours=25)),
    "list": ("opted out", lambda site, user: dict(
        no_mail=write(site.work / "no-mail", f"# on leave\n{user.name}  # since May\n"))),
    "file at home": ("opted out", lambda site, user: user.put_in_home("no-mail") or {}),
    "address command fails": ("address command failed", lambda site, user: dict(
        address_command=str(site.program("address", f'[ "$1" != {user.name} ] || exit 3',
                                         'echo "$1"')))),
    "no address": ("address command failed", lambda site, user: dict(
        address_command=str(site.program("address", f'[ "$1" = {user.name} ] || echo "$1"')))),
    "bad address": ("bad address", lambda site, user: dict(
        address_command=str(site.program("address", f'[ "$1" != {user.name} ] || set -- "|touch x"',
                                         'echo "$1"')))),
}


@pytest.mark.parametrize("case", REASONS)
def test_a_user_without_a_mail_is_counted_under_the_reason(site, users, case):
    user, other, _ = users
    site.job(user.name)  # 24 core hours unused
    for _ in range(2):
        site.job(other.name)
    why, prepare = REASONS[case]
    site.configure(site.recorder(), **prepare(site, user))
    result = site.mail()
    assert f"{WEEK}: 1 mail sent\n  1 not written: {why}\n" in result.stdout
    assert site.last()["skipped"] == {why: 1} and site.last()["sent"] == 1
    assert list(site.sent()) == [other.name]


def test_with_opt_in_only_users_with_the_file_get_a_mail(site, users):
    site.jobs_of(users)
    users[1].put_in_home("mail")
    site.configure(site.recorder(), consent="opt-in")
    result = site.mail()
    assert "2 not written: not opted in" in result.stdout
    assert site.last()["skipped"] == {"not opted in": 2}
    assert list(site.sent()) == [users[1].name]


def test_accounts_of_the_system_unknown_ones_and_unverified_owners_get_none(site, users):
    site.job("games")
    site.job("root")
    site.job("scrmail-unknown")
    site.job(users[0].name, verified=False)
    site.job(users[1].name)
    site.job(users[1].name, verified=False)  # would be in the figures
    site.configure(site.recorder())
    result = site.mail()
    assert site.last()["skipped"] == {"system account": 2, "no account": 1}
    assert "1 not written: no account\n" in result.stdout
    sent = site.sent()
    assert list(sent) == [users[1].name]
    assert figures_of(sent[users[1].name][0])[:2] == ("1", "32")
    assert "1 not written: no job of this user ended then" in \
        site.mail("--user", users[0].name).stdout


def test_a_home_that_is_closed_to_its_owner_is_no_consent(site, users):
    site.jobs_of(users[:2])
    home = users[0].home
    was = home.stat()
    site.configure(site.recorder())
    os.chown(home, 0, 0)
    home.chmod(0o700)
    try:
        result = site.mail()
    finally:
        os.chown(home, was.st_uid, was.st_gid)
        home.chmod(was.st_mode & 0o7777)
    assert f"no mail for {users[0].name}: home is closed: {home}/.scriptorium/no-mail" in \
        result.stderr
    assert site.last()["skipped"] == {"home is closed": 1}
    assert list(site.sent()) == [users[1].name]


def test_a_home_that_hangs_holds_up_no_other_user(site, users, bindfs):
    site.jobs_of(users[:2])
    site.configure(site.recorder())
    place, serve = bindfs
    home = users[0].home
    admin("usermod", "-d", str(place), users[0].name)
    server = serve()
    try:
        server.send_signal(signal.SIGSTOP)
        result = site.mail()
    finally:
        server.send_signal(signal.SIGCONT)
        admin("usermod", "-d", str(home), users[0].name)
    assert f"no mail for {users[0].name}: home does not answer: {place}/.scriptorium/no-mail: " \
        "no answer in time" in result.stderr
    assert site.last()["skipped"] == {"home does not answer": 1}
    assert list(site.sent()) == [users[1].name]


def test_addresses_are_taken_from_the_list_then_the_command_then_the_domain(site, users):
    site.jobs_of(users)
    a, b, c = (user.name for user in users)
    listed = write(site.work / "addresses", f"{a} {a}+hpc@listed.example\n")
    site.configure(site.recorder(), addresses=listed, domain="site.example")
    site.mail("--user", a, "--user", b)
    site.configure(site.recorder(), addresses=listed, domain="site.example", address_command=str(
        site.program("address", 'echo "$1@asked.example"')))
    site.mail()
    assert set(site.sent()) == {f"{a}+hpc@listed.example", f"{b}@site.example",
                                f"{c}@asked.example"}
    for address, [mail] in site.sent().items():
        assert str(mail["To"]) == address


# ---- hostile texts -------------------------------------------------------------------------------
HOSTILE = {
    "header": "x\r\nBcc: {other}\r\nSubject: mine\r\n\r\nbody",
    "newlines": "x\n\n.\nFrom root\n--=_boundary\n",
    "html": '"><script>alert(1)</script><img src=x onerror=alert(2)><a href="javascript:x">&lt;',
    "10,000 characters": "x" * 10_000,
    "10,000 words": "ä " * 5_000,
    "bidi": "a\u202eb\u2066c\u200fd\u2028e\u061c",
    "controls": "a\x1b[31mb\x00c\x7fd\x9be",
    "encoded word": "=?utf-8?B?QmNjOiB4?= {{braces}} {user} %s",
}


@pytest.mark.parametrize("case", HOSTILE)
def test_what_a_job_says_makes_no_header_and_no_element(site, users, case):
    user, other, _ = users
    text = HOSTILE[case].replace("{other}", other.name)
    site.job(user.name, ended="2024-01-01T12:00:00Z")
    site.mail(period="2024-W01")
    plain_tags = tags_of(html_of(user.mail()))
    user.reset()
    hostile = {"name": text, "suggest": {"condition": text, "directives": [
        text, "#SBATCH " + text, "#SBATCH --mem=2G"]}}
    for finding in ("cpu_low", text):
        site.job(user.name, findings=[{"id": finding, "severity": "warning", "text": text}],
                 **hostile)
    site.job(user.name, cluster=text, **hostile)
    site.mail()
    mails = user.mails()
    assert other.mails() == []
    assert len(mails) == 2  # of two clusters
    for mail in mails:
        assert [name for name in mail.keys() if name.lower() not in FROM_EXIM] == HEADERS
        assert [one.username for one in mail["To"].addresses] == [user.name]
        assert re.fullmatch(r"Your jobs in week 3 of 2025: \d+ of \d+ core hours unused",
                            mail["Subject"])
        assert len(list(mail.iter_parts())) == 2 and not mail.defects
        assert tags_of(html_of(mail)) <= plain_tags
        assert len(text_of(mail)) < 20_000 and len(html_of(mail)) < 40_000
        assert max(map(len, text_of(mail).splitlines())) <= 78
        for part in (text_of(mail), html_of(mail)):
            bad = [c for c in part if c not in "\r\n" and (
                ord(c) < 32 or 0x7f <= ord(c) < 0xa0 or c in "\u202e\u2066\u200f\u2028\u061c")]
            assert not bad, bad
        assert "#SBATCH --mem=2G" in text_of(mail)
    if case == "html":
        assert "&lt;script&gt;" in html_of(mails[0]) and "<script>" in text_of(mails[0])


def test_events_with_values_of_wrong_types_hold_up_no_mail(site, users):
    for broken in (dict(name=17), dict(name={"a": ["b"]}), dict(findings="cpu_low"),
                   dict(findings=[17, {"id": 3}, {"id": "cpu_low", "text": []}]),
                   dict(suggest={"directives": "#SBATCH"}), dict(suggest={"directives": [1, {}]}),
                   dict(suggest=[1]), dict(gpu=[1])):
        site.job(users[0].name, **broken)
    site.jobs_of(users)
    (site.tree / "1.usage.job.json").write_text('{"kind": "usage.job", "job": 7}')
    (site.tree / "2.usage.job.json").write_bytes(b"\xff\xfe not JSON")
    site.configure(site.recorder())
    site.mail()
    sent = site.sent()
    assert sorted(sent) == [user.name for user in users]
    assert all(len(mails) == 1 for mails in sent.values())


def test_logins_that_a_mail_program_might_misread_are_not_given_to_it(site, users):
    a, b, _ = (user.name for user in users)
    logins = [f"{a}\nBcc: {b}", f"{a},{b}", f"{a} {b}", "|/bin/touch x", "/etc/passwd", "-bp",
              f"{a}@localhost", "x" * 10_000, "\u202e"]
    for login in logins:
        site.job(login)
    site.configure(site.recorder())
    result = site.mail()
    assert site.sent() == {}
    assert site.last()["skipped"] == {"no account": len(logins)}
    assert all(c == "\n" or c.isprintable() for c in result.stdout + result.stderr)


def test_the_words_of_the_sender_are_encoded_and_cannot_end_the_header(site, users):
    site.jobs_of(users[:1])
    words = 'Büro für "HPC", Raum 1'
    site.configure(**{"from": f"{words} <root@localhost>"}, unsubscribe="help+hpc@localhost")
    site.mail()
    mail = users[0].mail()
    [sender] = mail["From"].addresses
    assert (sender.display_name, sender.addr_spec) == (words, "root@localhost")
    assert mail["List-Unsubscribe"] == "<mailto:help+hpc@localhost>"
    assert "Write to help+hpc@localhost" in words_of(mail)
    for sender in ("HPC\nBcc: x <root@localhost>", "root@localhost, x@localhost", "-bp", ""):
        site.configure(**{"from": sender})
        assert "report.mail.from" in site.mail(code=EX_CONFIG).stderr


# ---- the daemon ----------------------------------------------------------------------------------
def test_status_its_check_and_the_metrics_show_what_the_last_call_did(site, users, work):
    site.jobs_of(users)
    a, b, c = (user.name for user in users)
    refuses = site.program("refuses", f'case $5 in {a}) exit 75 ;; {b}) kill -9 $$ ;; esac')
    site.configure(refuses, min_jobs=2)
    site.job(a), site.job(b)  # and one of c, below the threshold
    daemon = harness.Daemon(work, site.config.read_text())

    def seen():
        """The status for people, the check, and some metrics."""
        assert daemon.status()["mail"] == site.last()
        metrics = samples(scrape(UnixConnection(work / "state" / "metrics.sock"))[1])
        return (daemon.command("status").stdout, daemon.command("status", "--check", check=False),
                [metrics[f"scriptorium_mail_{name}", labels] for name, labels in (
                    ("sent", ""), ("waiting", ""), ("waiting_for_a_day", ""), ("may_be_lost", ""),
                    ("refused", ""), ("skipped", 'reason="below the thresholds"'))])
    try:
        daemon.start()
        assert daemon.status()["mail"] is None
        assert "MAIL" not in daemon.command("status").stdout
        site.mail(code=EX_TEMPFAIL)
        text, check, metrics = seen()
        assert f"MAIL  {WEEK}: 0 sent at {site.last()['time']}, 1 waiting\n" \
            "  1 not written: below the thresholds\n" \
            f"  may have got no mail: {b} on lab, {WEEK}\n" in text
        assert "1 user may have got no mail" in check.stdout and check.returncode == 1
        assert metrics == [0, 1, 0, 1, 0, 1]
        site.configure(site.recorder(), min_jobs=2)
        site.mail(code=EX_TEMPFAIL)
        site.mail("--resend", "--all")  # the last call with something to do
        text, check, metrics = seen()
        assert "may have got no mail" not in text + check.stdout
        assert metrics == [1, 0, 0, 0, 0, 1]
        assert sorted(site.sent()) == [a, b] and c not in text
    finally:
        daemon.cleanup()


# ---- written into a folder -----------------------------------------------------------------------
def test_a_dry_run_writes_the_mails_that_would_be_sent_and_leaves_no_trace(site, users, work):
    site.jobs_of(users)
    site.configure("/nonexistent")
    result = site.mail("--all", "--dry-run", str(work / "eml"))
    assert f"{WEEK}: 3 mails written to {work}/eml" in result.stdout
    assert not site.state.exists()
    site.configure()
    site.mail()
    for user in users:
        written = read_mail(work / "eml" / f"{user.name}-{WEEK}-lab.eml")
        sent = user.mail()
        for header in HEADERS:
            if header not in ("Date", "To"):  # exim completes the address
                assert written[header] == sent[header]
        assert str(written["To"]) == user.name
        assert text_of(written) == text_of(sent) and html_of(written) == html_of(sent)
    before = {file.name: file.read_bytes() for file in site.state.iterdir() if file.is_file()}
    site.mail("--all", "--dry-run", str(work / "eml"))
    assert before == {file.name: file.read_bytes() for file in site.state.iterdir()
                      if file.is_file()}


def test_a_user_can_make_a_dry_run_for_himself(site, users, work):
    site.jobs_of(users)
    user = pwd.getpwnam(users[0].name)
    folder = work / "eml"
    folder.mkdir()
    os.chown(folder, user.pw_uid, user.pw_gid)
    site.mail("--user", user.pw_name, "--dry-run", str(folder), cwd="/",
              preexec_fn=harness.become_user(user))
    [file] = folder.iterdir()
    assert file.stat().st_uid == user.pw_uid and file.stat().st_mode & 0o777 == 0o600
    assert f"Hello {user.pw_name}," in text_of(read_mail(file))
    assert not site.state.exists()
    users[0].put_in_home("no-mail")
    os.chown(users[0].home / ".scriptorium", user.pw_uid, user.pw_gid)
    refused = site.mail("--user", user.pw_name, "--dry-run", str(folder), cwd="/",
                        preexec_fn=harness.become_user(user))
    assert "1 not written: opted out" in refused.stdout


# ---- coordinators of accounts --------------------------------------------------------------------
@pytest.fixture(scope="module")
def accounting():
    """A real Slurm with slurmdbd; science has the accounts chem and bio."""
    with harness.running_slurm("--accounting", "--nodes", "1") as slurm:
        for name, parent in (("science", "root"), ("chem", "science"), ("bio", "science"),
                             ("law", "root")):
            slurm.run("sacctmgr", "-i", "add", "account", name, f"parent={parent}", check=False)
        yield slurm


@pytest.fixture
def coordinated(accounting, site, users):
    """Jobs of all three users in two accounts and of one in a third; the first user coordinates
    both, the second one of them."""
    head, part = users[0].name, users[1].name
    for account, user in (("science", head), ("chem", part)):
        accounting.run("sacctmgr", "-i", "add", "user", user, f"account={account}")
        accounting.run("sacctmgr", "-i", "add", "coordinator", f"account={account}",
                       f"names={user}")
    for hours_used, user in enumerate(users, 1):
        site.job(user.name, account="chem", hours=hours_used)
        site.job(user.name, account="bio", hours=10 * hours_used)
    site.job(users[2].name, account="law", hours=1000)
    site.job(users[2].name, account="chem", hours=1000, verified=False)
    site.slurm = {"spool": str(accounting.state), "resolve": "slurmctld",
                  "slurm_conf": str(accounting.conf)}
    site.configure(site.recorder())
    yield site
    for user in (head, part):
        accounting.run("sacctmgr", "-i", "delete", "user", user, check=False)


def about_accounts(mails):
    return [mail for mail in mails if mail["Subject"].startswith("Jobs of your accounts")]


def accounts_figures(mail):
    """Jobs and core hours had, and what is said of each account or user."""
    words = words_of(mail)
    ran = re.search(r"(\d+) jobs of the accounts that you coordinate on lab ended", words)
    had = re.search(r"Reserved: (\S+) core hours", words)
    return ran.group(1), had.group(1), dict(re.findall(r"- (\S+): (\d+|one) jobs?,", words))


def test_three_users_a_coordinator_of_them_and_the_site_get_one_mail_each(coordinated, users):
    head, part, other = users
    coordinated.configure(site=[f"{other.name}@localhost"])  # delivered by exim
    result = coordinated.mail()
    assert "6 mails sent" in result.stdout and result.stderr == ""
    for arguments in (["--all"], ["--account", "chem"], ["--user", head.name]):
        coordinated.mail(*arguments)
    sent = {user.name: user.mails() for user in users}
    assert {name: len(mails) for name, mails in sent.items()} == {user.name: 2 for user in users}
    assert len(set(ids_of(mail for mails in sent.values() for mail in mails))) == 6
    rows = {row["account"]: row for row in json.loads(harness.scriptorium(
        "report", "--by", "account", "--since", SINCE, "--until", UNTIL, "--json", "--config",
        coordinated.config, env={"TZ": "UTC"}).stdout)["rows"]}
    chem = 16 * (1 + 2 + 3)  # core hours, without those of the unverified job
    bio = rows["bio"]["core_seconds"] // 3600
    assert rows["chem"]["core_seconds"] / 3600 == chem + 16 * 1000
    for user, figures in ((head, ("6", str(chem + bio), {"bio": "3", "chem": "3"})),
                          (part, ("3", str(chem), {"chem": "3"}))):
        [mail] = about_accounts(sent[user.name])
        assert accounts_figures(mail) == figures
        for text in (text_of(mail), html_of(mail)):
            assert "relax" not in text and "law" not in text
            assert not any(one.name in text for one in users if one is not user)
        assert "Seen in" in text_of(mail) and "#SBATCH" not in text_of(mail)
        assert "~/.scriptorium/no-mail" in text_of(mail)
    [site] = [mail for mail in sent[other.name] if mail["Subject"].startswith("Jobs on lab")]
    all_hours = sum(row["core_seconds"] for row in rows.values()) // 3600
    assert "8 jobs on lab ended in week 3 of 2025" in words_of(site)
    assert f"Reserved: {all_hours} core hours" in words_of(site)
    assert re.findall(r"- (\S+): (\d+|one) jobs?,", words_of(site)) == [
        ("chem", "4"), ("law", "one"), ("bio", "3")]
    assert not any(user.name in text_of(site) + html_of(site) for user in users)


def test_coordinators_read_names_only_if_the_site_wants_it(coordinated, users):
    coordinated.configure(coordinated.recorder(), account_names=True, language="de",
                          languages=write(coordinated.work / "languages", f"{users[1].name} en\n"))
    coordinated.mail("--account", "bio")
    assert set(coordinated.sent()) == {users[0].name}
    coordinated.mail("--account", "chem")
    sent = coordinated.sent()
    assert len(sent[users[0].name]) == len(sent[users[1].name]) == 1
    words = words_of(sent[users[0].name][0])
    assert "6 Jobs der Accounts, die Sie auf lab koordinieren" in words
    listed = words[words.index("Personen, die am meisten ungenutzt ließen"):]
    assert [name for name, _ in re.findall(r"- (\S+): (\d+) Jobs", listed)] == [
        user.name for user in reversed(users)]
    assert accounts_figures(sent[users[1].name][0])[2] == {
        "chem": "3", **{user.name: "one" for user in users}}


def test_who_coordinates_is_asked_again_if_accounting_did_not_answer(coordinated, accounting,
                                                                    users, work):
    failing = coordinated.program("sacctmgr", f"[ -e {work}/answers ] || {{",
                                  "echo 'sacctmgr: error: Problem talking to the database' >&2",
                                  "exit 1; }", f'exec {shutil.which("sacctmgr")} "$@"')
    coordinated.slurm["squeue"] = str(failing.parent / "squeue")
    coordinated.configure(coordinated.recorder())
    first = coordinated.mail(code=EX_UNAVAILABLE)
    assert "3 mails sent" in first.stdout
    assert "slurm: sacctmgr: exit status 1: sacctmgr: error: Problem talking" in first.stderr
    assert "Problem talking" in coordinated.mail("--account", "chem", code=EX_UNAVAILABLE).stderr
    (work / "answers").touch()
    assert "2 mails sent" in coordinated.mail().stdout
    assert "everybody was considered before" in coordinated.mail().stdout
    assert {user: len(about_accounts(mails)) for user, mails in coordinated.sent().items()} == {
        users[0].name: 1, users[1].name: 1, users[2].name: 0}
    unknown = coordinated.mail("--account", "law", code=harness.EX_NOINPUT)
    assert "--account: no scheduler here has a coordinator of law" in unknown.stderr


def test_the_daemon_keeps_in_the_catalog_who_coordinates(coordinated, accounting, users,
                                                         make_daemon, work):
    daemon = make_daemon(sources={"slurm": coordinated.slurm},
                         sinks={"catalog": {"root": str(work / "catalog")}})
    daemon.start()
    file = work / "catalog" / "coordinators.json"
    wait_for(file.exists, "the daemon has asked")
    [(cluster, kept)] = json.loads(file.read_text()).items()
    assert cluster == "lab"
    assert kept["accounts"]["science"] == [users[0].name]
    assert sorted(kept["accounts"]["chem"]) == [user.name for user in users[:2]]
    assert "law" not in kept["accounts"]


def test_a_coordinators_mail_that_may_be_lost_is_named_and_sent_again(coordinated, users):
    users[0].put_in_home("no-mail")
    killed = coordinated.program("killed", f'case "$*" in *{users[1].name}) ;; *) exit 0;; esac',
                                 "grep -qx 'Subject: Jobs.*' && kill -9 $PPID", "exit 0")
    coordinated.configure(killed)
    call = subprocess.run(coordinated.command("--all"), capture_output=True, text=True,
                          check=False, env={**os.environ, "TZ": "UTC"})
    assert call.returncode == -signal.SIGKILL
    coordinated.configure(coordinated.recorder())
    [lost] = coordinated.mail(code=EX_TEMPFAIL).stderr.splitlines()
    assert lost == (f"scriptorium: may have got no mail: {users[1].name} about accounts on lab, "
                    f"{WEEK}; to send it again: scriptorium report --mail --resend --user "
                    f"{users[1].name} --period {WEEK}")
    coordinated.mail("--resend", "--user", users[1].name)
    assert list(coordinated.sent()) == [users[1].name]
    assert len(about_accounts(coordinated.sent()[users[1].name])) == 1


# ---- languages -----------------------------------------------------------------------------------
def test_each_user_reads_the_own_language_and_the_sites_own_sentences(site, users, work):
    site.jobs_of(users)
    a, b, c = (user.name for user in users)
    (work / "mail").mkdir(exist_ok=True)  # the site's texts, beside the configuration
    site.state = work / "state-of-mail"
    (work / "mail" / "de.toml").write_text('[mail]\ngreeting = "Moin {user},"\n'
                                           'gretting = "Tach"\nreserved = "{hat} Stunden"\n')
    site.configure(site.recorder(), language="fr",
                   languages=write(work / "languages", f"{a} de\n{b} en\n"))
    result = site.mail()
    sent = {name: mails[0] for name, mails in site.sent().items()}
    assert [sent[name]["Content-Language"] for name in (a, b, c)] == ["de", "en", "fr"]
    assert text_of(sent[a]).startswith(f"Moin {a},")
    assert text_of(sent[b]).startswith(f"Hello {b},")
    assert text_of(sent[c]).startswith(f"Bonjour {c},")
    assert 'lang="de"' in html_of(sent[a]) and 'lang="fr"' in html_of(sent[c])
    assert f"{work}/mail/de.toml:3: mail.gretting: unknown key" in result.stderr
    assert f"{work}/mail/de.toml:4: mail.reserved:" in result.stderr
    assert "{hat}" not in text_of(sent[a])
