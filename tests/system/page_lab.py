"""The page of `scriptorium serve` behind the shipped configurations of Apache and nginx, as the
tests of the page use it. Debian's programs run on ports of loopback with files in a test's folder;
the machine's own servers and their configuration are not touched.
"""

import base64
import contextlib
import datetime
import hashlib
import http.client
import json
import os
import pathlib
import pwd
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.parse

import pytest

import harness
from harness import wait_for
from search_lab import free_port
from test_serve import ALICE, BOB, COORDINATOR, SUPPORT, Site

SHIPPED = harness.ROOT / "packaging" / "web"
PROXY_USER = "www-data"
USERS = (ALICE, BOB, COORDINATOR, SUPPORT)
# What tests need from outside is kept here, once for all trees of this user.
CACHE = pathlib.Path("~/.cache/scriptorium-tests").expanduser()


def password(user):
    return f"password of {user}"


def basic(user):
    token = base64.b64encode(f"{user}:{password(user)}".encode()).decode()
    return f"Basic {token}"


@contextlib.contextmanager
def as_user(name):
    """What is connected or opened meanwhile is that user's."""
    who = pwd.getpwnam(name)
    os.setegid(who.pw_gid)
    os.seteuid(who.pw_uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


class PageSite(Site):
    """The catalog of test_serve.py, with the page."""

    def __init__(self, work):
        super().__init__(work)
        self.page_socket = self.socket.with_name("page.sock")
        self.configure(f'[serve]\nsocket = "{self.socket}"\nreader_groups = ["{SUPPORT}"]\n'
                       f'page_socket = "{self.page_socket}"\nproxy_users = ["{PROXY_USER}"]\n')

    def add_jobs(self, user, scripts, environment=(), text="{job}", directory="/tmp"):
        """More jobs of a user: {id: script}. `text` is their name, and with the id left out their
        account and partition."""
        uid, now = pwd.getpwnam(user).pw_uid, int(time.time())
        group = text.replace("{job}", "") or "chem"
        queue = self.work / "queue"
        added = self.work / "queue.new"
        added.write_text(queue.read_text() + "".join(
            f"{job}|{job}|N/A|{uid}|{uid}|{now}|N/A|N/A|0|PD|1|{group}@normal@{group}@{directory}@"
            f"{text.replace('{job}', str(job))}@\n" for job in scripts))
        added.rename(queue)
        spool = harness.Spool(self.work / "spool")
        for job, script in scripts.items():
            spool.write(job, script, list(environment))
        wait_for(lambda: set(self.daemon.command("search", "--ids", "--all", f"user:{user}"
                                                 ).stdout.split())
                 >= set(map(str, scripts)), "the jobs are in the catalog")

    def add_events(self, user, events):
        """Events of that user's jobs, which the catalog gets by way of the file tree."""
        owner = {"name": user, "id": str(pwd.getpwnam(user).pw_uid), "verified": True}
        for event in events:
            job, kind = event["job"]["id"], event["kind"]
            part = {"usage.job": ".usage", "usage.sample":
                    f".usage-sample-{event['host']['name']}-"
                    + event["time"].replace("-", "").replace(":", "")}.get(kind, "")
            for file in event.get("files", ()):
                (self.work / "archive" / f"{job}.sh").write_bytes(SCRIPT)
                file.update(size=len(SCRIPT), sha256=hashlib.sha256(SCRIPT).hexdigest())
            text = json.dumps({**event, "user": owner})
            identity = hashlib.sha256(text.encode()).hexdigest()
            (self.work / "archive" / f"{job}{part}.json").write_text(
                json.dumps({**json.loads(text), "id": identity}))
        self.daemon.command("sinks", "fill", "catalog")

    def close(self):
        if self.process.poll() is None:
            self.stop()
        self.daemon.cleanup()
        shutil.rmtree(self.work, ignore_errors=True)

    def answered(self, position=0):
        """The users to whom pages were given, by the log from a position on."""
        return re.findall(r"SERVE_ANSWERED\b.*\buser=(\S+)", self.log()[position:])


SCRIPT = b"#!/bin/bash\n#SBATCH --mem=4G\nsrun step\n"


def event_of(kind, job, time, host="n1", usage=None, **more):
    """As a file tree has it; `time` is a datetime."""
    at = time.strftime("%Y-%m-%dT%H:%M:%S.000Z")
    body = {"usage": usage} if usage else {"script": {"interpreter": "/bin/bash"},
                                           "files": [{"name": "script"}]}
    return {"schema": "scriptorium.event/1", "kind": kind, "time": at, "captured_at": at,
            "capture": "scan", "complete": True, "cluster": "lab", "scheduler": "slurm",
            "host": {"name": host}, "job": {"id": str(job), "name": "made", **more}, **body}


def array_events(array, tasks, task_event):
    """An array's script, and for each task what task_event(task) says of it."""
    made = [task_event(task) for task in range(tasks)]
    begin = datetime.datetime.fromisoformat(made[0]["time"].replace("Z", "+00:00"))
    yield event_of("job.script", array, begin - datetime.timedelta(minutes=1),
                   array={"job_id": str(array), "task_spec": f"0-{tasks - 1}"})
    yield from made


def sampled_events(job, begin, nodes, samples, step=30):
    """A job on so many nodes that was read every `step` seconds."""
    yield event_of("job.script", job, begin)
    for node in range(nodes):
        for i in range(samples):
            second = step * i
            yield event_of("usage.sample", job, begin + datetime.timedelta(seconds=second + 60),
                           host=f"n{node + 1}", usage={
                "seq": i + 1, "interval_seconds": step, "elapsed_seconds": second,
                "source": {"cpu": "cgroup2", "memory": "cgroup2", "gpu": "nvml"},
                "cpu": {"time_seconds": 6.5 * second, "user_seconds": 6.0 * second,
                        "system_seconds": 0.5 * second, "allocated": 8,
                        "utilization_ratio": 0.5 + (i * 7 + node) % 40 / 100},
                "memory": {"working_set_bytes": (1 + node) * (256 << 20) + (i << 16),
                           "anon_bytes": 1 << 28, "file_bytes": 1 << 20, "limit_bytes": 4 << 30},
                "io": {"read_bytes": i << 20, "written_bytes": i << 10},
                "tasks": {"current": 9, "peak": 11},
                "gpus": [{"id": f"GPU-{node}", "index": 0, "model": "A100",
                          "utilization_ratio": i % 10 / 10, "memory_used_bytes": 1 << 30,
                          "memory_limit_bytes": 40 << 30, "power_watts": 250.5}]})


@contextlib.contextmanager
def running_site(kind=PageSite):
    if not harness.IS_ROOT:
        pytest.skip("only root can be several users")
    work = pathlib.Path(tempfile.mkdtemp(prefix="scr-", dir=harness.test_directory()))
    work.chmod(0o755)
    site = kind(work)
    site.start()
    try:
        yield site
    finally:
        site.close()


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body
        self.text = body.decode(errors="replace")


def fetch(base, path="", user=None, method="GET", headers=None):
    """One request below `base`, http://127.0.0.1:PORT/jobs/."""
    url = urllib.parse.urlsplit(base)
    connection = http.client.HTTPConnection(url.hostname, url.port, timeout=60 * harness.PATIENCE)
    with contextlib.closing(connection):
        connection.request(method, url.path + path, headers={
            **({"Authorization": basic(user)} if user else {}), **(headers or {})})
        answer = connection.getresponse()
        return Answer(answer.status, answer.headers, answer.read())


class Proxy:
    """A web server with one of the shipped configurations, between the lines of its own that every
    site has."""

    package = ""  # that has the program

    def __init__(self, work, shipped, page_socket, **replaced):
        missing = [file for file in self.files if not os.path.exists(file)]
        if missing:
            pytest.skip(f"no {missing[0]} here; apt-get install {self.package}")
        self.work = work / shipped
        self.work.mkdir()
        self.work.chmod(0o755)
        self.port = free_port()
        self.base = f"http://127.0.0.1:{self.port}/jobs/"
        self.write_secrets()
        text = (SHIPPED / shipped).read_text()
        for old, new in {"/run/scriptorium-web/page.sock": page_socket, **self.places(),
                         **{k: v.format(port=self.port) for k, v in replaced.items()}}.items():
            assert old in text, f"{shipped} does not name {old} any more"
            text = text.replace(old, str(new))
        (self.work / "page.conf").write_text(text)
        (self.work / "main.conf").write_text(self.main())
        (self.work / "log").touch()
        self.process = None

    def write_secrets(self):
        """For a login by name and password."""
        def hashed(user):
            return base64.b64encode(hashlib.sha1(password(user).encode()).digest()).decode()
        (self.work / "users").write_text("".join(f"{user}:{{SHA}}{hashed(user)}\n"
                                                 for user in USERS))

    def start(self):
        log = open(self.work / "log", "ab")
        self.process = subprocess.Popen(self.command(), stdin=subprocess.DEVNULL, stdout=log,
                                        stderr=log)
        log.close()
        try:
            wait_for(lambda: self.process.poll() is not None or self.listens(),
                     f"{self.package} listens")
            assert self.process.poll() is None, (self.work / "log").read_text()
        except AssertionError:
            self.stop()
            raise

    def listens(self):
        socket.create_connection(("127.0.0.1", self.port)).close()
        return True

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=60 * harness.PATIENCE)


class Apache(Proxy):
    package, program = "apache2", "/usr/sbin/apache2"
    files = [program]

    def modules(self):
        """Those that the page names, and those that Debian has enabled or a site has with TLS."""
        named = re.search(r"a2enmod (.*)", (self.work / "page.conf").read_text()).group(1).split()
        return ["mpm_event", "authn_core", "authz_core", "env", "proxy", *named]

    def places(self):
        return {"/etc/apache2/jobs.users": self.work / "users"}

    def main(self):
        loads = "".join(f"LoadModule {m}_module /usr/lib/apache2/modules/mod_{m}.so\n"
                        for m in self.modules())
        return (f"ServerRoot {self.work}\nDefaultRuntimeDir {self.work}\nPidFile pid\n"
                f"ServerName portal.example.org\nKeepAlive Off\n"
                f"Listen 127.0.0.1:{self.port}\n{loads}"
                f"User {PROXY_USER}\nGroup {PROXY_USER}\nErrorLog log\n"
                f"<VirtualHost *:{self.port}>\nInclude page.conf\n</VirtualHost>\n")

    def command(self):
        return [self.program, "-f", self.work / "main.conf", "-DFOREGROUND"]


class OpenIdApache(Apache):
    package = "apache2 libapache2-mod-auth-openidc"
    files = [Apache.program, "/usr/lib/apache2/modules/mod_auth_openidc.so"]

    def write_secrets(self):
        for name in ("secret", "key"):
            (self.work / f"oidc.{name}").write_text("not known to others")
            (self.work / f"oidc.{name}").chmod(0o600)

    def places(self):
        return {f"/etc/apache2/oidc.{name}": self.work / f"oidc.{name}" for name in
                ("secret", "key")}


class Nginx(Proxy):
    package, program = "nginx", "/usr/sbin/nginx"
    files = [program]

    def places(self):
        return {"/etc/nginx/jobs.users": self.work / "users"}

    def main(self):
        temporary = "".join(f"{kind}_temp_path {self.work}/{kind};\n" for kind in
                            ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        return (f"user {PROXY_USER};\npid {self.work}/pid;\ndaemon off;\nevents {{}}\n"
                f"http {{\naccess_log off;\n{temporary}server {{\n"
                f"listen 127.0.0.1:{self.port};\ninclude {self.work}/page.conf;\n}}\n}}\n")

    def command(self):
        return [self.program, "-e", self.work / "log", "-c", self.work / "main.conf"]


@contextlib.contextmanager
def running(proxy):
    proxy.start()
    try:
        yield proxy
    finally:
        proxy.stop()


# ---- from package registries ---------------------------------------------------------------------
def cached(name, command, purpose):
    """The folder CACHE/name with what `command`, run in a new folder, put there; skips the test
    if it cannot."""
    folder = CACHE / name
    if not folder.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        part = pathlib.Path(tempfile.mkdtemp(prefix=f"{name}-", dir=CACHE))
        try:
            subprocess.run(command, cwd=part, check=True, capture_output=True, text=True,
                           timeout=300)
            with contextlib.suppress(OSError):  # another test was faster
                part.rename(folder)
        except (OSError, subprocess.SubprocessError) as e:
            pytest.skip(f"{purpose} needs {name}, and `{' '.join(command)}` fails: "
                        f"{getattr(e, 'stderr', None) or e}".strip())
        finally:
            shutil.rmtree(part, ignore_errors=True)
    return folder
