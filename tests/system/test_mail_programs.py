"""`scriptorium report --mail` with the mail programs that docs/mail.md names, as Debian has them.

Each is installed by apt in the place of this machine's own, but in an overlay over this machine's
files that only processes in namespaces of their own see. They deliver to a small SMTP server here.
"""

import contextlib
import email
import email.policy
import os
import pathlib
import queue
import shutil
import socketserver
import subprocess
import tempfile
import threading

import pytest

import harness
from harness import EX_OK, EX_TEMPFAIL, EX_UNAVAILABLE, wait_for
from test_mail import HEADERS, WEEK, Site, mails_in, read_mail

USER, SENDER = "scrmail", "hpc@site.example"
ADDRESS = f"{USER}@site.example"


class Overlay:
    """This machine's files below those of `lower`; what is changed is in `folder`/upper. Its
    processes end with it."""

    MOUNTS = """set -e
mount --make-rprivate /
mount -t overlay overlay -o "lowerdir=$1,upperdir=$0/upper,workdir=$0/work" "$0/root"
cd "$0/root"
mount -t proc proc proc
mount --rbind /dev dev
shift
for place; do mkdir -p ".$place" && mount --bind "$place" ".$place"; done
exec chroot . sh -c 'echo mounted; exec cat'"""

    def __init__(self, folder, lower=()):
        for part in ("upper", "work", "root"):
            (folder / part).mkdir(parents=True)
        layers = ":".join([*map(str, lower), "/"])
        self.process = subprocess.Popen(
            ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", self.MOUNTS,
             str(folder), layers, str(harness.test_directory()), str(harness.BUILD)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if self.process.stdout.readline() != "mounted\n":
            _, errors = self.process.communicate()
            pytest.skip(f"no overlay of this machine's files can be mounted here: {errors}")
        pid = self.process.pid
        self.init = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0]

    def close(self):
        self.process.kill()
        self.process.communicate()

    def command(self, *command):
        return ["nsenter", f"--target={self.init}", "--mount", "--pid", "--root", "--wd",
                *map(str, command)]

    def run(self, *command, check=True):
        result = subprocess.run(self.command(*command), stdin=subprocess.DEVNULL, text=True,
                                capture_output=True, timeout=300, check=False,
                                env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C",
                                     "DEBIAN_FRONTEND": "noninteractive",
                                     **{k: v for k, v in os.environ.items()
                                        if k.lower().endswith("_proxy")}})
        assert not check or result.returncode == 0, (command, result)
        return result

    def file(self, path):
        return pathlib.Path(f"/proc/{self.init}/root{path}")


# ---- the programs: set up to give all mail to the server at `port`, with their daemon started ----
def with_msmtp(overlay, port):
    overlay.file("/etc/msmtprc").write_text(f"account default\nhost 127.0.0.1\nport {port}\n")


def with_dma(overlay, port):
    overlay.file("/etc/dma/dma.conf").write_text(f"SMARTHOST 127.0.0.1\nPORT {port}\n")


def with_nullmailer(overlay, port):
    overlay.file("/etc/nullmailer/remotes").write_text(f"127.0.0.1 smtp --port={port}\n")
    overlay.file("/etc/nullmailer/pausetime").write_text("1\n")  # seconds between two attempts
    overlay.run("setpriv", "--reuid=mail", "--regid=mail", "--clear-groups", "sh", "-c",
                "nullmailer-send >/dev/null 2>&1 &")


def with_postfix(overlay, port):
    overlay.run("postconf", "-e", f"relayhost=[127.0.0.1]:{port}", "smtp_tls_security_level=none",
                "maillog_file=/var/log/postfix.log", "mydestination=localhost")
    overlay.run("postconf", "-MX", "smtp/inet")  # it receives nothing from outside
    overlay.run("postfix", "start")


# {program: (package, how it is set up, the command that delivers what is in its queue)}
PROGRAMS = {"msmtp": ("msmtp-mta", with_msmtp, None),
            "dma": ("dma", with_dma, ["dma", "-q"]),
            "nullmailer": ("nullmailer", with_nullmailer, ["true"]),
            "postfix": ("postfix", with_postfix, ["postqueue", "-f"])}


@pytest.fixture(scope="module", params=PROGRAMS)
def layer(request):
    """(program, folder with what its installation changes), one program after the other."""
    if not harness.IS_ROOT:
        pytest.skip("needs root, to install a mail program beside this machine's")
    missing = [tool for tool in ("apt-get", "unshare", "nsenter", "useradd")
               if not shutil.which(tool, path="/usr/sbin:/usr/bin:/sbin:/bin")]
    if missing:
        pytest.skip(f"no {', '.join(missing)} here; apt-get install util-linux passwd")
    package = PROGRAMS[request.param][0]
    folder = pathlib.Path(tempfile.mkdtemp(prefix="scr-", dir=harness.test_directory()))
    folder.chmod(0o755)
    overlay = Overlay(folder)
    try:
        # apt starts no daemon.
        overlay.file("/usr/sbin/policy-rc.d").write_text("#!/bin/sh\nexit 101\n")
        overlay.file("/usr/sbin/policy-rc.d").chmod(0o755)
        install = ["apt-get", "install", "-y", "--no-install-recommends", "-o",
                   "Dpkg::Options::=--force-unsafe-io", package]
        if overlay.run(*install, check=False).returncode != 0:  # perhaps the lists are old
            overlay.run("apt-get", "update", check=False)
            result = overlay.run(*install, check=False)
            if result.returncode != 0:
                pytest.skip(f"apt-get install {package} fails: {result.stderr.strip()[-500:]}")
        overlay.run("useradd", "-m", USER)
        overlay.close()
        yield request.param, folder / "upper"
    finally:
        overlay.close()
        shutil.rmtree(folder)


class Server(socketserver.ThreadingTCPServer):
    """An SMTP server on loopback, as much as the programs need: `mails` has (sender, recipient,
    message) of those that it took."""

    allow_reuse_address = daemon_threads = True

    def __init__(self, port=0):
        # Recipient, or MAIL for any sender -> what it gets instead of 250.
        self.answers = {}
        self.ends_after_mail = False  # without an answer
        self.mails, self.refused = queue.Queue(), queue.Queue()
        super().__init__(("127.0.0.1", port), Session)
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}).start()

    @property
    def port(self):
        return self.server_address[1]

    def next_mail(self):
        sender, recipient, message = self.mails.get(timeout=120)
        return sender, recipient, email.message_from_bytes(message, policy=email.policy.default)

    def close(self):
        self.shutdown()
        self.server_close()


class Session(socketserver.StreamRequestHandler):
    def say(self, line):
        self.wfile.write(line.encode() + b"\r\n")

    def line(self):
        try:
            return self.rfile.readline()
        except ConnectionResetError:  # as dma ends
            return b""

    def handle(self):
        self.say("220 server.example ESMTP")
        while line := self.line():
            verb, _, rest = line.decode().strip().partition(" ")
            address = rest.partition("<")[2].partition(">")[0]
            answer = "250 2.0.0 ok"
            if verb.upper() == "MAIL":
                sender, recipients = address, []
                answer = self.server.answers.get("MAIL", answer)
                if not answer.startswith("250"):
                    self.server.refused.put(address)
            elif verb.upper() == "RCPT":
                answer = self.server.answers.get(address, answer)
                if answer.startswith("250"):
                    recipients.append(address)
                else:
                    self.server.refused.put(address)
            elif verb.upper() == "DATA":
                answer = "354 go ahead" if recipients else "503 5.5.1 no recipients"
            elif verb.upper() == "QUIT":
                answer = "221 2.0.0 bye"
            self.say(answer)
            if answer.startswith("354"):
                lines = []
                while (line := self.line()) not in (b".\r\n", b""):
                    lines.append(line[1:] if line.startswith(b".") else line)
                for one in recipients:
                    self.server.mails.put((sender, one, b"".join(lines)))
                if self.server.ends_after_mail:
                    return
                self.say("250 2.0.0 taken")


@pytest.fixture
def server():
    server = Server()
    yield server
    server.close()


class SiteInOverlay(Site):
    def __init__(self, work, program, overlay):
        self.program_name, self.overlay = program, overlay
        super().__init__(work)
        self.configure("/usr/sbin/sendmail", domain="site.example", language="de",
                       **{"from": f"Büro für HPC <{SENDER}>"})
        for _ in range(3):
            self.job(USER)

    def command(self, *arguments, **how):
        return self.overlay.command(*super().command(*arguments, **how))

    @property
    def has_queue(self):
        return PROGRAMS[self.program_name][2] is not None

    def mailq(self):
        return self.overlay.run("mailq").stdout.strip().replace("Mail queue is empty", "")

    def deliver_waiting(self, server):
        """What waits, in the program's queue or in state_dir, is with the server."""
        if not self.has_queue:
            assert "1 mail sent" in self.mail().stdout
            return
        # A queue may not know yet that the mail in it was refused.
        wait_for(lambda: self.overlay.run(*PROGRAMS[self.program_name][2])
                 and not server.mails.empty(), lambda: f"it is delivered: {self.mailq()}", 120,
                 step=0.2)

    def written(self):
        """The mail that a dry run writes."""
        self.mail("--all", "--dry-run", str(self.work / "eml"))
        return read_mail(self.work / "eml" / f"{USER}-{WEEK}-lab.eml")


@pytest.fixture
def site(work, layer, server):
    program, lower = layer
    folder = pathlib.Path(tempfile.mkdtemp(prefix="scr-", dir=harness.test_directory()))
    folder.chmod(0o755)
    overlay = Overlay(folder, [lower])
    before = os.umask(0o022)
    try:
        PROGRAMS[program][1](overlay, server.port)
        yield SiteInOverlay(work, program, overlay)
    finally:
        os.umask(before)
        overlay.close()
        shutil.rmtree(folder)


def check_is_unchanged(mail, written, recipient=ADDRESS):
    for header in HEADERS:
        if header != "Date":  # of the moment
            assert mail.get_all(header) == written.get_all(header), header
    assert str(mail["To"]) == recipient and "Büro für HPC" in str(mail["From"])
    parts, wanted = list(mail.iter_parts()), list(written.iter_parts())
    assert [part.get_content_type() for part in parts] == ["text/plain", "text/html"]
    for part, one in zip(parts, wanted, strict=True):
        assert part.get_payload(decode=True) == one.get_payload(decode=True) != b""
    assert not mail.defects and not any(part.defects for part in parts)


def check_is_delivered_once(site, server):
    sender, recipient, mail = server.next_mail()
    assert (sender, recipient) == (SENDER, ADDRESS)
    check_is_unchanged(mail, site.written())
    assert "0 mails sent" in site.mail().stdout
    if site.has_queue:
        wait_for(lambda: site.mailq() == "", lambda: f"the queue is empty: {site.mailq()}")
    assert server.mails.empty()


def check_is_kept(site, result, reason):
    """By the program in its queue, or in state_dir."""
    if site.has_queue:
        assert "1 mail sent" in result.stdout and result.stderr == ""
    else:
        assert "0 mails sent, 1 to be tried again" in result.stdout
        assert reason in result.stderr
        assert len(site.waiting()) == 1


def test_the_mail_is_delivered_as_it_was_written(site, server):
    result = site.mail()
    assert "1 mail sent" in result.stdout and result.stderr == ""
    check_is_delivered_once(site, server)


def test_a_mail_that_the_server_refuses_for_now_is_delivered_later(site, server):
    server.answers[ADDRESS] = "451 4.3.2 try again later"
    result = site.mail()
    assert server.refused.get(timeout=120) == ADDRESS
    check_is_kept(site, result, "451 4.3.2 try again later")
    server.answers.clear()
    site.deliver_waiting(server)
    check_is_delivered_once(site, server)


def test_a_mail_is_delivered_once_a_server_that_was_down_answers(site, server):
    server.close()
    check_is_kept(site, site.mail(), "Connection refused")
    with contextlib.closing(Server(server.port)) as started:
        site.deliver_waiting(started)
        check_is_delivered_once(site, started)


@pytest.mark.parametrize("refused", [ADDRESS, "MAIL"])
def test_a_mail_that_the_server_refuses_for_good_is_named_or_bounces_to_the_sender(site, server,
                                                                                  refused):
    server.answers[refused] = "550 5.7.1 not here"
    result = site.mail(code=EX_OK if site.has_queue else EX_UNAVAILABLE)
    assert server.refused.get(timeout=120) == (SENDER if refused == "MAIL" else ADDRESS)
    if not site.has_queue:
        assert "1 refused" in result.stdout and "550 5.7.1 not here" in result.stderr
        server.answers.clear()
        assert "0 mails sent" in site.mail().stdout
        assert "1 mail sent" in site.mail("--resend", "--all").stdout
        check_is_delivered_once(site, server)
        return
    assert "1 mail sent" in result.stdout and result.stderr == ""
    server.answers.clear()
    sender, recipient, bounce = server.next_mail()
    assert (sender, recipient) == ("", SENDER)
    assert "550 5.7.1 not here" in bounce.as_string()


@pytest.mark.parametrize("layer", ["msmtp"], indirect=True)
def test_a_mail_whose_connection_broke_after_the_server_took_it_is_not_sent_again(site, server):
    server.ends_after_mail = True
    result = site.mail(code=EX_TEMPFAIL)
    assert f"may have got no mail: {USER} on lab, {WEEK}" in result.stderr
    server.ends_after_mail = False
    site.mail(code=EX_TEMPFAIL)
    check_is_unchanged(server.next_mail()[2], site.written())
    assert server.mails.empty()


@pytest.mark.parametrize("layer", ["dma", "postfix"], indirect=True)
def test_the_mail_is_delivered_to_the_users_mailbox_here(site, server):
    site.configure("/usr/sbin/sendmail", domain="localhost", language="de",
                   **{"from": f"Büro für HPC <{SENDER}>"})
    assert "1 mail sent" in site.mail().stdout
    wait_for(lambda: site.mailq() == "", lambda: f"it is delivered: {site.mailq()}")
    [mail] = mails_in(site.overlay.file(f"/var/mail/{USER}"))
    check_is_unchanged(mail, site.written(), f"{USER}@localhost")
    assert server.mails.empty()
