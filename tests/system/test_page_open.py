"""`scriptorium serve --open`: the page for one person at a browser on this host."""

import fcntl
import http.client
import os
import pty
import pwd
import re
import select
import signal
import subprocess
import termios
import urllib.parse

import pytest

import harness
from harness import EX_OK, EX_UNAVAILABLE, wait_for
from test_serve import ALICE, BOB, SUPPORT, jobs_of, site  # noqa: F401

pytestmark = pytest.mark.skipif(not harness.IS_ROOT, reason="only root can be several users")


class Page:
    """The command of a user, and what a browser would ask its address."""

    def __init__(self, site, user, terminal=None):
        become = harness.become_user(pwd.getpwnam(user))

        def begin():
            if terminal is not None:
                fcntl.ioctl(0, termios.TIOCSCTTY, 0)
            become()

        self.errors = open(site.work / f"open-{user}.log", "wb+")
        self.process = subprocess.Popen(
            [str(harness.SCRIPTORIUM), "serve", "--open", "--config", str(site.daemon.config)],
            stdin=subprocess.DEVNULL if terminal is None else terminal,
            stdout=subprocess.PIPE if terminal is None else terminal,
            stderr=self.errors, cwd="/", preexec_fn=begin, start_new_session=True,
            env={"PATH": os.environ["PATH"], "USER": user, "LOGNAME": user})
        self.cookie = None

    def read_address(self, read):
        text = ""
        while not (found := re.search(r"http://(\S+)/\?key=(\w+)\s", text)):
            more = read()
            assert more, (text, self.said())
            text += more.decode()
        self.host, self.key = found.groups()
        return self

    def said(self):
        self.errors.seek(0)
        return self.errors.read().decode()

    def ask(self, target, host=None, cookie=None):
        connection = http.client.HTTPConnection(*self.host.split(":"), timeout=60)
        headers = {"Host": host or self.host}
        if cookie or self.cookie:
            headers["Cookie"] = cookie or self.cookie
        connection.request("GET", target, headers=headers)
        answer = connection.getresponse()
        return answer, answer.read().decode()

    def enter(self):
        answer, _ = self.ask(f"/?key={self.key}")
        assert answer.status == 303 and answer.getheader("Location") == "/"
        kept = answer.getheader("Set-Cookie")
        assert {"HttpOnly", "SameSite=Strict"} <= set(kept.split("; "))
        self.cookie = kept.split(";")[0]
        return self

    def jobs(self):
        answer, page = self.ask("/")
        assert answer.status == 200, page
        return sorted(set(re.findall(r'href="job/lab/(\d+)\?', page)))

    def end(self, by=signal.SIGINT):
        self.process.send_signal(by)
        assert self.process.wait(60) == EX_OK, self.said()


@pytest.fixture
def opened(site):  # noqa: F811
    pages = []

    def open_page(user, terminal=None):
        page = Page(site, user, terminal)
        pages.append(page)
        return page if terminal is not None else page.read_address(page.process.stdout.readline)

    yield open_page
    for page in pages:
        page.process.kill()
        page.process.wait()
        page.errors.close()


def test_a_user_gets_the_own_jobs_of_the_query_service(opened):
    alice, bob = opened(ALICE).enter(), opened(BOB).enter()
    assert alice.jobs() == jobs_of(ALICE)
    assert bob.jobs() == jobs_of(BOB)
    for job in jobs_of(ALICE):
        assert f"run_{job}.tpr" in alice.ask(f"/job/lab/{job}")[1]
        answer, page = bob.ask(f"/job/lab/{job}")
        assert answer.status == 404 and "run_" not in page
    answer, page = alice.ask("/?q=name%3Amd_202")
    assert re.findall(r'href="job/lab/(\d+)\?', page) == ["202"]
    alice.end()


def test_a_member_of_a_reader_group_gets_all(opened):
    assert opened(SUPPORT).enter().jobs() == sorted(jobs_of(ALICE) + jobs_of(BOB))


def test_another_person_on_the_host_gets_nothing(opened):
    """Whoever can reach the address, without the key or with a used one."""
    page = opened(ALICE)
    assert page.ask("/")[0].status == 403
    assert page.ask("/?key=" + "0" * len(page.key))[0].status == 403
    other = opened(BOB).enter()
    assert page.ask("/", cookie=other.cookie)[0].status == 403
    page.enter()
    mine, page.cookie = page.cookie, None
    answer, text = page.ask(f"/?key={page.key}")
    assert answer.status == 403 and "used already" in text
    for target in ("/", "/job/lab/201", "/job/lab/201/script", "/static/x/app.css"):
        assert page.ask(target)[0].status == 403, target
    page.cookie = mine
    assert page.jobs() == jobs_of(ALICE)


def test_a_foreign_host_is_refused(opened):
    """A name that leads here (DNS rebinding), or another address of this host."""
    page = opened(ALICE).enter()
    port = page.host.split(":")[1]
    for host in ("evil.example", f"localhost:{port}", f"127.0.0.1:{port}", page.host.split(":")[0]):
        assert page.ask("/", host=host)[0].status == 403, host
    assert page.jobs() == jobs_of(ALICE)


def test_the_key_is_in_no_command_line(opened):
    page = opened(ALICE)
    for process in os.listdir("/proc"):
        if process.isdigit():
            try:
                line = open(f"/proc/{process}/cmdline").read()
            except OSError:
                continue
            assert page.key not in line


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it(opened, by):
    page = opened(ALICE).enter()
    page.end(by)
    with pytest.raises(OSError):
        page.ask("/")


def test_it_ends_with_its_terminal(opened):
    terminal, of_command = pty.openpty()
    page = opened(ALICE, of_command)
    os.close(of_command)
    page.read_address(lambda: os.read(terminal, 4096))
    os.close(terminal)
    assert page.process.wait(60) == EX_OK, page.said()


def test_without_the_service_it_says_why(opened, site):  # noqa: F811
    site.stop()
    try:
        page = Page(site, ALICE)
        assert page.process.wait(60) == EX_UNAVAILABLE
        assert "query service" in page.said()
        assert page.process.stdout.read() == b""
    finally:
        site.start()


def test_a_browser_is_opened_by_a_file_of_the_user(site):  # noqa: F811
    """As on a desktop: xdg-open gets a file that only the user can read, and that is gone later."""
    programs = site.work / "programs"
    programs.mkdir()
    note = site.work / "opened"
    note.touch()
    note.chmod(0o666)
    (programs / "xdg-open").write_text(
        f'#!/bin/sh\nstat -c "%a %U" "$1" >{note}.new\ncat "$1" >>{note}.new\n'
        f'echo "" >>{note}.new\necho "$1" >>{note}.new\ncat {note}.new >{note}\n')
    (programs / "xdg-open").chmod(0o755)
    site.work.chmod(0o777)
    user = pwd.getpwnam(ALICE)
    process = subprocess.Popen(
        [str(harness.SCRIPTORIUM), "serve", "--open", "--config", str(site.daemon.config)],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, cwd="/",
        preexec_fn=harness.become_user(user),
        env={"PATH": f"{programs}:{os.environ['PATH']}", "DISPLAY": ":7"})
    try:
        wait_for(lambda: note.read_text().endswith(".html\n"), "the browser is opened")
        rights, page, file = note.read_text().splitlines()
        address = re.search(r"http://\S+\?key=\w+", page).group(0)
        assert rights == f"600 {ALICE}" and address in process.stdout.read1().decode()
        assert urllib.parse.urlsplit(address).hostname.startswith("127.")
        process.terminate()
        assert process.wait(60) == EX_OK
        assert not os.path.exists(file)
    finally:
        process.kill()
        process.wait()
