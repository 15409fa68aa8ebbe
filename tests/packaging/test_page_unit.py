"""The page set up as docs/page.md says: from the packages, run by systemd, behind Apache."""

import base64
import re
import shutil

import pytest

import harness
from conftest import need
from harness import STORM
from page_lab import PROXY_USER, fetch, password
from search_lab import free_port
from test_running_unit import QueryService, Service

WEB, PAGE = "scriptorium-web.socket", "scriptorium-page.socket"
PAGE_SOCKET = "/run/scriptorium-web/page.sock"
# Other tests use this machine's port 80, and the root has no network of its own.
SITE = """
Listen 127.0.0.1:{port}
<VirtualHost 127.0.0.1:{port}>
Include /etc/apache2/scriptorium-web.conf
</VirtualHost>
"""


def set_up_login(root, section):
    """The commands that docs/page.md has below a heading, but nothing is started."""
    text = (harness.ROOT / "docs" / "page.md").read_text().partition(f"\n### {section}\n")[2]
    policy = root.file("/usr/sbin/policy-rc.d")
    policy.write_text("#!/bin/sh\nexit 101\n")
    policy.chmod(0o755)
    for line in re.search(r"```sh\n(.*?)```", text, re.S).group(1).splitlines():
        if packages := line.partition("apt-get install ")[2]:
            root.apt_install(*packages.split())
        elif line.startswith("htpasswd "):
            # It asks for the password; -b takes it as an argument.
            root.run(*line.replace("htpasswd", "htpasswd -b").split(), password("alice"))
        else:
            root.run("sh", "-c", line)
    policy.unlink()


def write_site(root):
    """Apache's one virtual host; its port."""
    port = free_port()
    root.file("/etc/apache2/ports.conf").write_text("")
    root.file("/etc/apache2/sites-available/000-default.conf").write_text(SITE.format(port=port))
    root.run("apachectl", "configtest")
    return port


class PageHost(QueryService):
    """A host with the query service, whose jobs Apache shows to alice and bob."""

    def __init__(self, root, packages):
        need(str(STORM))
        super().__init__(Service(root), packages,
                         f'page_socket = "{PAGE_SOCKET}"\nproxy_users = ["{PROXY_USER}"]\n')
        self.root.apt_install("curl")
        self.base = None

    def set_up_apache(self):
        set_up_login(self.root, "Apache with name and password")
        self.root.run("htpasswd", "-b", "/etc/apache2/jobs.users", "bob", password("bob"))
        self.base = f"http://127.0.0.1:{write_site(self.root)}/jobs/"
        self.root.run("systemctl", "start", "apache2")

    def log(self):
        apache = self.root.file("/var/log/apache2/error.log")
        self.root.run("journalctl", "--sync")
        return self.root.run("journalctl", "--no-pager", "-u", "scriptorium-web", "-u", PAGE) + (
            apache.read_text() if apache.exists() else "")

    def gives(self, user, job):
        """The status that this user's request for a job's page gets."""
        page = fetch(self.base, f"job/unit/{job}", user)
        if page.status == 200:
            assert f"job_{job}" in page.text, page.text
        return page.status

    def expect_own_pages(self):
        got = {(user, job): self.gives(user, job) for user in self.JOBS for job in
               self.JOBS.values()}
        assert got == {(user, job): 200 if job == self.JOBS[user] else 404 for user, job in got}, (
            got, self.log())

    def show(self, name, unit="scriptorium-web"):
        return self.root.run("systemctl", "show", unit, "--value", f"--property={name}").strip()

    def expect_nothing_runs(self):
        for unit in ("scriptorium-web.service", WEB, PAGE):
            assert self.show("ActiveState", unit) == "inactive", unit

    def expect_nothing_left(self):
        assert not list(self.root.file("/etc/systemd/system").rglob("scriptorium*"))
        assert self.root.try_run("ls", "/run/scriptorium-web").returncode != 0

    def curl(self, user, name="alice"):
        """As docs/page.md has an administrator ask; also as another user."""
        return self.root.try_run("runuser", "-u", user, "--", "curl", "-sS", "--unix-socket",
                                 PAGE_SOCKET, "-H", f"X-Remote-User: {name}", "http://localhost/")


@pytest.fixture
def host(booted_root_with_scriptorium, packages):
    return PageHost(booted_root_with_scriptorium, packages)


def test_the_page_set_up_as_documented_shows_each_login_its_own_jobs(host):
    host.set_up_apache()
    own = host.JOBS["alice"]
    assert fetch(host.base, "", "alice").status == 503

    # A running service takes no further socket.
    host.root.run("systemctl", "enable", "--now", WEB)
    assert host.ask("alice", "search", "--ids").stdout == f"{own}\n"
    refused = host.root.try_run("systemctl", "enable", "--now", PAGE)
    assert refused.returncode != 0 and host.show("ActiveState", PAGE) == "inactive", refused
    assert "already active, refusing" in host.log()
    host.root.run("systemctl", "stop", "scriptorium-web")
    host.root.run("systemctl", "enable", "--now", PAGE)

    # Both sockets.
    host.expect_own_pages()
    assert host.ask("alice", "search", "--ids").stdout == f"{own}\n"
    listed = fetch(host.base, "", "alice").text
    assert f"job_{own}" in listed and f"job_{host.JOBS['bob']}" not in listed

    # No login, a wrong password, and a name that only the request says.
    wrong = base64.b64encode(f"alice:{password('bob')}".encode()).decode()
    for headers in ({}, {"Authorization": f"Basic {wrong}"}, {"X-Remote-User": "alice"}):
        assert fetch(host.base, f"job/unit/{own}", headers=headers).status == 401, headers
    assert fetch(host.base, f"job/unit/{own}", "bob", headers={"X-Remote-User": "alice"}
                 ).status == 404

    # Only the web server opens the socket.
    assert f"job_{own}" in host.curl(PROXY_USER).stdout
    for user in ("alice", "bob", "nobody"):
        closed = host.curl(user)
        assert closed.returncode == 7 and closed.stdout == "", (user, closed)
    assert "Only the site&apos;s web server may ask here." in host.curl("root").stdout

    pages = [entry for entry in host.entries("SCRIPTORIUM_USER=alice")
             if entry.get("SCRIPTORIUM_ADDRESS")]
    assert pages, host.log()
    assert {(entry["SCRIPTORIUM_ADDRESS"], entry["_SYSTEMD_UNIT"]) for entry in pages} == {
        ("127.0.0.1", "scriptorium-web.service")}


def test_the_pages_socket_alone_answers_through_restarts_until_the_package_is_removed(host):
    host.set_up_apache()
    host.root.run("systemctl", "enable", "--now", PAGE)
    host.expect_own_pages()
    assert host.ask("alice", "search", "--ids").returncode != 0, "nobody enabled that socket"

    first = host.show("MainPID")
    host.root.run("systemctl", "restart", "scriptorium-web")
    host.expect_own_pages()
    second = host.show("MainPID")
    host.root.run("systemctl", "kill", "--kill-whom=main", "--signal=KILL", "scriptorium-web")
    host.expect_own_pages()
    third = host.show("MainPID")
    assert len({first, second, third, "0"}) == 4, host.log()

    host.root.run("apt-get", "remove", "-y", "scriptorium-web")
    host.expect_nothing_runs()
    assert fetch(host.base, "", "alice").status == 503
    host.root.run("apt-get", "purge", "-y", "scriptorium-web")
    host.expect_nothing_left()
    assert "scriptorium-web" not in host.root.file("/etc/passwd").read_text()


def test_the_commands_for_the_other_logins_make_configurations_that_their_servers_accept(
        packages, clean_root):
    root = clean_root
    root.install(packages, "scriptorium", "scriptorium-web")
    set_up_login(root, "Apache with OpenID Connect")
    root.file("/etc/apache2/oidc.secret").write_text("the provider's secret\n")
    write_site(root)

    set_up_login(root, "nginx with name and password")
    root.file("/etc/nginx/sites-available/default").write_text(
        f"server {{ listen 127.0.0.1:{free_port()}; include /etc/nginx/scriptorium-web.conf; }}\n")
    root.run("nginx", "-t")


def expect_an_upgrade_while_running(host, upgrade):
    """It restarts the service, and keeps the sockets open."""
    own = host.JOBS["alice"]

    def process_that_answers():
        assert f"job_{own}" in host.curl(PROXY_USER).stdout, host.log()
        assert host.ask("alice", "search", "--ids").stdout == f"{own}\n"
        return host.show("MainPID")

    host.root.run("systemctl", "enable", "--now", WEB, PAGE)
    before = process_that_answers()
    upgrade()
    for unit in (WEB, PAGE):
        assert (host.show("ActiveState", unit), host.show("UnitFileState", unit)) == (
            "active", "enabled"), unit
    assert host.show("ActiveState") == "active" and host.show("MainPID") != before, host.log()
    process_that_answers()


def test_an_upgrade_restarts_the_running_query_service(packages, packages_before, booted_root):
    booted_root.install(packages_before, "scriptorium")
    host = PageHost(booted_root, packages_before)
    expect_an_upgrade_while_running(
        host, lambda: booted_root.install(packages, "scriptorium", "scriptorium-web"))


class RpmPageHost(PageHost):
    """With the RPM of scriptorium-web: files and scriptlets that Debian understands, too."""

    def install(self, packages):
        (file,) = packages.glob("scriptorium-web-*.rpm")
        shutil.copy(file, self.root.file("/root/web.rpm"))
        self.root.apt_install("rpm")
        self.rpm("-i")

    def rpm(self, *how):
        """RPM does not know that Debian's packages have what this one requires."""
        self.root.run("rpm", *how, "--nodeps", "/root/web.rpm")


def test_the_rpms_scriptlets_restart_the_running_query_service_and_remove_what_they_made(
        packages, booted_root_with_scriptorium):
    host = RpmPageHost(booted_root_with_scriptorium, packages)
    for unit in (WEB, PAGE):
        assert host.show("UnitFileState", unit) == "disabled", unit
    # The same package again is an upgrade for the scriptlets.
    expect_an_upgrade_while_running(host, lambda: host.rpm("-U", "--replacepkgs"))

    host.root.run("rpm", "-e", "scriptorium-web")
    host.expect_nothing_runs()
    host.expect_nothing_left()
