"""What the system tests stand on: a spool, a daemon, a Slurm, an archive. Standard library only.

Nothing here sleeps in the hope that something has happened by then: `wait_for` polls a condition
and fails with words at its deadline.
"""

import contextlib
import hashlib
import json
import os
import pathlib
import pwd
import re
import shutil
import signal
import socket
import stat
import struct
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("SCRIPTORIUM_BUILD_DIR", ROOT / "build" / "dev"))
SCRIPTORIUM = BUILD / "scriptorium"
STORM = BUILD / "tests" / "spool-storm"
TEST_PLUGINS = BUILD / "tests" / "plugins"
PLUGIN_DIRS = [str(BUILD / "plugins"), str(TEST_PLUGINS)]
SLURM_LAB = ROOT / "tests" / "support" / "slurm-lab"
SANITIZED = bool(os.environ.get("SCRIPTORIUM_SANITIZE"))
THREAD_SANITIZED = os.environ.get("SCRIPTORIUM_SANITIZE") == "thread"
# Sanitizers make everything slower; a deadline only bounds how long a failure takes.
PATIENCE = 4.0 if SANITIZED else 1.0
IS_ROOT = os.geteuid() == 0
MARKER = ".scriptorium-tree"  # of a file tree

# sysexits.h, as the command uses them
EX_OK, EX_USAGE, EX_NOINPUT, EX_UNAVAILABLE, EX_CANTCREAT, EX_TEMPFAIL, EX_CONFIG = 0, 64, 66, 69, \
        73, 75, 78


def storm_jobs(jobs):
    """How many jobs a storm has here: fewer under a sanitizer, which is there for memory and
    threads, not for load."""
    return max(50, jobs // 10) if SANITIZED else jobs


def wait_for(condition, what, seconds=60.0, step=0.02):
    """Polls until condition() is true and returns its value. `what` says in the failure what did
    not happen."""
    deadline = time.monotonic() + seconds * PATIENCE
    last_error = None
    while True:
        try:
            value = condition()
            if value:
                return value
        except (OSError, KeyError, ValueError, AssertionError) as e:
            last_error = e
        if time.monotonic() > deadline:
            raise AssertionError(
                f"not within {seconds * PATIENCE:.0f} s: {what() if callable(what) else what}"
                                 + (f" (last: {last_error!r})" if last_error else ""))
        time.sleep(step)


def test_directory(on_disk=False):
    """Where tests work: SCRIPTORIUM_TEST_DIR, else in memory where there is room for a storm (a
    test kills processes, not the machine, so nothing is lost by it but time), else or if the module
    says ON_DISK = True on the disk."""
    chosen = os.environ.get("SCRIPTORIUM_TEST_DIR")
    if chosen:
        return chosen
    memory = pathlib.Path("/dev/shm")
    if not on_disk and os.access(memory, os.W_OK | os.X_OK):
        room = os.statvfs(memory)
        if room.f_bavail * room.f_frsize >= 2 << 30:
            return str(memory)
    return "/tmp"


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def ordinary_user():
    """A user who is neither root nor the daemon's: ourselves, or one that every Debian system
    has."""
    if not IS_ROOT:
        return pwd.getpwuid(os.geteuid())
    for name in ("games", "daemon", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    return None


def become_user(user):
    """For begun_with() and Popen: that user (a pwd entry), without any capability."""
    def become():
        os.setgroups([])
        os.setgid(user.pw_gid)
        os.setuid(user.pw_uid)
    return become


@contextlib.contextmanager
def begun_with(become):
    """Every process that is started meanwhile begins with become()."""
    original = subprocess.Popen
    subprocess.Popen = lambda *a, **o: original(*a, **o, preexec_fn=become)
    try:
        yield
    finally:
        subprocess.Popen = original


class Spool:
    """A spool folder, written as slurmctld writes it: mkdir, creat, write per variable, close;
    never a rename."""

    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)

    def hash_directory(self, job_id):
        return self.path / f"hash.{job_id % 10}"

    def entry(self, job_id):
        return self.hash_directory(job_id) / f"job.{job_id}"

    def make_entry(self, job_id):
        self.hash_directory(job_id).mkdir(mode=0o700, exist_ok=True)
        self.entry(job_id).mkdir(mode=0o700)
        return self.entry(job_id)

    @staticmethod
    def _creat(path, mode, pieces):
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        try:
            for piece in pieces:
                view = memoryview(piece)
                while view:
                    view = view[os.write(fd, view):]
        finally:
            os.close(fd)

    def write_environment(self, job_id, strings):
        self._creat(self.entry(job_id) / "environment", 0o600,
                    [struct.pack("=I", len(strings))] + [s + b"\0" for s in strings])

    def write_script(self, job_id, script):
        self._creat(self.entry(job_id) / "script", 0o700, [script + b"\0"])

    def write(self, job_id, script=None, environment=None):
        """One whole entry; returns (script, environment) as an archive must hold them."""
        if script is None:
            script = b"#!/bin/bash\n#SBATCH --time=1\necho job %d\n" % job_id
        if environment is None:
            environment = [b"SLURM_JOB_NAME=job-%d" % job_id, b"A=b=c", b"LINES=one\ntwo",
                           b"PATH=/usr/bin:/bin"]
        self.make_entry(job_id)
        self.write_environment(job_id, environment)
        self.write_script(job_id, script)
        return script, b"".join(s + b"\0" for s in environment)

    def remove(self, job_id):
        for name in ("environment", "script"):
            (self.entry(job_id) / name).unlink()
        self.entry(job_id).rmdir()


class Storm:
    """The spool-storm tool, running or done; its manifest is what must be in the archive."""

    def __init__(self, spool, directory, jobs, first_id=1, **options):
        self.manifest_file = pathlib.Path(tempfile.mkstemp(prefix="manifest-", dir=directory)[1])
        command = [str(STORM), str(spool.path), "--jobs", str(jobs), "--first-id", str(first_id),
                   "--manifest", str(self.manifest_file)]
        for key, value in options.items():
            command += ["--" + key.replace("_", "-"), str(value)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def running(self):
        return self.process.poll() is None

    def finish(self, seconds=300):
        out, _ = self.process.communicate(timeout=seconds * PATIENCE)
        assert self.process.returncode == 0, f"spool-storm failed: {self.process.returncode}"
        self.result = json.loads(out)
        return self

    def manifest(self):
        """{job id: (sha256 of the script, sha256 of the environment)}"""
        rows = {}
        for line in self.manifest_file.read_text().splitlines():
            job, script, environment, _ = line.split()
            rows[job] = (script, environment)
        return rows


class Archive:
    """A file tree with layout "{job_id}.{ext}": one job, one name, so a second copy under a suffix
    shows up as extra."""

    def __init__(self, path):
        self.path = pathlib.Path(path)

    def scripts(self):
        """Names, without the extension, of all scripts that are archived whole. The sink places
        the metadata last: a script without it is one that is being written."""
        try:
            with os.scandir(self.path) as entries:
                names = {e.name for e in entries if not e.name.startswith(".")}
        except FileNotFoundError:
            return set()
        return {name[:-3] for name in names
                if name.endswith(".sh") and name[:-3] + ".json" in names}

    def metadata(self, job):
        return json.loads((self.path / f"{job}.json").read_bytes())

    def snapshot(self):
        """Everything that a second delivery must not change: name -> (inode, mtime, sha256)."""
        result = {}
        for directory, _, names in os.walk(self.path):
            for name in names:
                file = pathlib.Path(directory) / name
                info = file.lstat()
                result[str(file.relative_to(self.path))] = (info.st_ino, info.st_mtime_ns,
                                                            sha256(file.read_bytes()))
        return result

    def compare(self, manifest):
        """Fails with numbers unless the archive holds exactly the manifest's jobs, byte for byte,
        each once."""
        have = self.scripts()
        want = set(manifest)
        lost = sorted(want - have, key=str)
        extra = sorted(have - want, key=str)
        assert not lost, f"{len(lost)} of {len(want)} jobs lost, such as {lost[:5]}"
        assert not extra, f"{len(extra)} names too many (twice?), such as {extra[:5]}"
        wrong = []
        for job, (script, environment) in manifest.items():
            if sha256((self.path / f"{job}.sh").read_bytes()) != script:
                wrong.append(f"{job}.sh")
            if sha256((self.path / f"{job}.env").read_bytes()) != environment:
                wrong.append(f"{job}.env")
            if not (self.path / f"{job}.json").is_file():
                wrong.append(f"{job}.json missing")
        assert not wrong, f"{len(wrong)} files differ, such as {wrong[:5]}"
        left = [n for n in os.listdir(self.path) if n.startswith(".") and n != MARKER]
        assert not left, f"temporary files left behind: {left[:5]}"


class Daemon:
    """`scriptorium run` on one config, started and ended as often as a test likes."""

    def __init__(self, directory, config_text, environment=None):
        self.directory = pathlib.Path(directory)
        self.config = self.directory / "scriptorium.toml"
        self.config.write_text(config_text)
        self.state_dir = pathlib.Path(re.search(r'^state_dir\s*=\s*"([^"]*)"', config_text,
                                                re.M).group(1))
        self.log_file = self.directory / "daemon.log"
        self.environment = environment or {}
        self.process = None

    # ---- running ---------------------------------------------------------------------------------
    def start(self, ready=True, environment=None, by=(), **how):
        """`by`: a command that runs it, such as setpriv; `how`: of Popen, such as its user."""
        assert self.process is None or self.process.poll() is not None, "it already runs"
        outer = {name: value for name, value in os.environ.items() if name != "NOTIFY_SOCKET"}
        with open(self.log_file, "ab") as log:
            self.process = subprocess.Popen([*by, str(SCRIPTORIUM), "run", "--config",
                                             str(self.config)],
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            env={**outer, **self.environment,
                                                 **(environment or {})}, **how)
        if ready:
            self.wait_ready()
        return self

    def wait_ready(self, seconds=60):
        def answering():
            # One that has ended will not answer any more.
            return self.process.poll() is not None or self.request({"command": "ping"}).get("pid")
        try:
            wait_for(answering, "the daemon answers on its socket", seconds)
        except AssertionError as e:
            raise AssertionError(f"{e}\n{self.log_tail()}") from None
        assert self.process.poll() is None, \
        f"the daemon ended with {self.process.returncode}:\n{self.log_tail()}"
        return self

    def prefer(self):
        """It gets a CPU before all others whenever it wants one, as a site may say with Nice=: for
        what is there for some milliseconds only. Without the right to do so, nothing is changed."""
        with contextlib.suppress(PermissionError):
            for thread in os.listdir(f"/proc/{self.process.pid}/task"):
                with contextlib.suppress(ProcessLookupError):
                    os.setpriority(os.PRIO_PROCESS, int(thread), -20)
        return self

    def running(self):
        return self.process is not None and self.process.poll() is None

    def kill(self):
        """As a power cut of the process: SIGKILL, nothing is flushed."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def terminate(self, seconds=60):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(seconds * PATIENCE)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"SIGTERM did not end the daemon within {seconds} s\n{self.log_tail()}") from None

    def wait_exit(self, seconds=60):
        try:
            return self.process.wait(seconds * PATIENCE)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"the daemon did not end within {seconds} s\n{self.log_tail()}") from None

    def cleanup(self):
        if self.running():
            self.kill()

    # ---- asking ----------------------------------------------------------------------------------
    def request(self, request):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
            s.settimeout(60 * PATIENCE)
            s.connect(str(self.state_dir / "control.sock"))
            s.sendall(json.dumps(request).encode() + b"\n")
            answer = b""
            while not answer.endswith(b"\n"):
                piece = s.recv(1 << 16)
                if not piece:
                    break
                answer += piece
        answer = json.loads(answer)
        if not answer["ok"]:
            raise ValueError(answer["error"])
        return answer["result"]

    def status(self):
        return self.request({"command": "status"})

    def source(self, name="slurm"):
        return self.status()["sources"][name]

    def sink(self, name="archive"):
        return self.status()["sinks"][name]

    def wait_status(self, condition, what, seconds=60):
        """Until condition(status) is true; returns that status. A daemon that ends meanwhile fails
        the test."""
        last = {}

        def look():
            if self.process.poll() is not None:
                return {"ended": self.process.returncode}
            last["status"] = self.status()
            return last["status"] if condition(last["status"]) else None
        try:
            status = wait_for(look, what, seconds, step=0.05)
            assert "ended" not in status, f"the daemon ended with {status['ended']}, before {what}"
            return status
        except AssertionError as e:
            raise AssertionError(
                f"{e}\nlast status: {json.dumps(last.get('status'))}\n{self.log_tail()}") from None

    def wait_acknowledged(self, count, sink="archive", seconds=120):
        return self.wait_status(lambda s: s["sinks"][sink]["acknowledged_total"] >= count
                                and s["sinks"][sink]["waiting"] == 0,
                                f"{sink} has acknowledged {count} and nothing waits", seconds)

    def log_text(self):
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def log_tail(self, lines=25):
        return "--- daemon.log, last lines\n" + "\n".join(self.log_text().splitlines()[-lines:])

    def wait_log(self, pattern, seconds=60, count=1):
        try:
            wait_for(lambda: len(re.findall(pattern, self.log_text())) >= count,
                     f"the log says {pattern!r}", seconds)
        except AssertionError as e:
            raise AssertionError(f"{e}\n{self.log_tail()}") from None

    def command(self, *arguments, check=True, seconds=120, **kwargs):
        return scriptorium(*arguments, "--config", str(self.config), check=check, seconds=seconds,
                           **kwargs)


def scriptorium(*arguments, check=True, seconds=120, env=None, **kwargs):
    """Runs one command to its end; returns the CompletedProcess with text output."""
    result = subprocess.run([str(SCRIPTORIUM), *map(str, arguments)], stdin=subprocess.DEVNULL,
                            capture_output=True,
                            text=kwargs.pop("text", True), timeout=seconds * PATIENCE,
                            env={**os.environ, **(env or {})}, **kwargs)
    if check:
        assert result.returncode == 0, \
        f"{' '.join(map(str, arguments))} exited " \
        f"{result.returncode}\n{result.stdout}\n{result.stderr}"
    return result


def names_in(root):
    """What lies in the root of a file tree, without its marker."""
    return sorted(name for name in os.listdir(root) if name != MARKER)


def toml(value):
    """A Python value as TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(toml(v) for v in value) + "]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{k} = {toml(v)}" for k, v in value.items()) + " }"
    return json.dumps(str(value))


def config_text(work, sources=None, sinks=None, **core):
    """A config with one Slurm source on work/spool and one file sink on work/archive, both to be
    changed by options: config_text(work, sources={"slurm": {"capture": "inotify"}}) merges into the
    default."""
    top = {"cluster": "lab", "state_dir": str(work / "state"), **core}
    all_sources = {"slurm": {"spool": str(work / "spool"), "resolve": "none"}}
    all_sinks = {"archive": {"plugin": "file", "root": str(work / "archive"),
                             "layout": "{job_id}.{ext}", "retry_max_ms": 500,
                             "acl": "best-effort"}}
    for merged, given in ((all_sources, sources), (all_sinks, sinks)):
        for name, options in (given or {}).items():
            if options is None:
                merged.pop(name, None)
            else:
                merged.setdefault(name, {}).update(options)
    lines = [f"{key} = {toml(value)}" for key, value in top.items()]
    for kind, instances in (("source", all_sources), ("sink", all_sinks)):
        for name, options in instances.items():
            lines += ["", f"[{kind}.{name}]"] + [f"{key} = {toml(value)}" for key, value
                                                 in options.items() if value is not None]
    return "\n".join(lines) + "\n"


class Slurm:
    """A real one-node Slurm in a private folder, by tests/support/slurm-lab."""

    def __init__(self, directory):
        self.directory = pathlib.Path(directory)
        self.options = []

    def up(self, *options):
        self.options = list(options) or self.options
        return subprocess.run([str(SLURM_LAB), "up", str(self.directory), *self.options],
                              capture_output=True, text=True, timeout=180)

    def down(self):
        subprocess.run([str(SLURM_LAB), "down", str(self.directory), "--purge"],
                       capture_output=True, text=True, timeout=180)

    @property
    def state(self):
        return self.directory / "state"

    @property
    def conf(self):
        return self.directory / "etc" / "slurm.conf"

    def environment(self, user=None):
        env = {k: v for k, v in os.environ.items()
               if not k.startswith(("SLURM", "SBATCH", "SQUEUE"))}
        env["SLURM_CONF"] = str(self.conf)
        if user is not None:
            env.update(USER=user.pw_name, LOGNAME=user.pw_name, HOME="/tmp")
        return env

    def run(self, *command, user=None, env=None, check=True, stdin=None, seconds=60, text=True):
        """A Slurm command, as `user` (a pwd entry) if given; `env` changes its environment."""
        result = subprocess.run(list(command), capture_output=True, text=text, input=stdin,
                                timeout=seconds, cwd="/tmp",
                                env={**self.environment(user), **(env or {})},
                                preexec_fn=become_user(user) if user is not None and IS_ROOT
                                else None)
        if check:
            assert result.returncode == 0, \
        f"{command}: {result.returncode}: {result.stdout} {result.stderr}"
        return result

    def sbatch(self, *options, script="#!/bin/bash\ntrue\n", user=None, env=None):
        """Submits a script on standard input; returns the job id as text."""
        result = self.run("sbatch", "--parsable", "-o", "/dev/null", *options, user=user, env=env,
                          stdin=script)
        return result.stdout.strip().split(";")[0]

    def batch_script(self, job):
        """What Slurm itself says that it holds: `scontrol write batch_script`, bytes."""
        return self.run("scontrol", "write", "batch_script", job, "-", text=False).stdout

    def cancel_all(self):
        def jobs():
            states = "pending,running,suspended,completing"
            return self.run("squeue", "-h", "-a", "-t", states, "-o", "%A").stdout.split()
        if left := jobs():
            self.run("scancel", *left, check=False)
        wait_for(lambda: not jobs(), "all jobs have ended", 90, 0.1)

    def stop_controller(self):
        pid = int((self.directory / "run" / "slurmctld.pid").read_text().split()[0])
        os.kill(pid, signal.SIGTERM)
        wait_for(lambda: not _alive(pid), "slurmctld ends", 60)


def _alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def slurm_missing():
    """Why no real Slurm can be started here; "" if no obstacle can be seen
    beforehand."""
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    missing = [c for c in ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol")
               if not shutil.which(c, path=path)]
    return f"no {', '.join(missing)} here; apt-get install munge slurmctld slurmd slurm-client" \
        if missing else ""


@contextlib.contextmanager
def running_slurm(*options, kind=Slurm):
    """A real Slurm while it is used. Skips the test with the reason where none can be had."""
    import pytest  # here, because benchmarks use this file without it
    if reason := slurm_missing():
        pytest.skip(reason)
    if "--accounting" in options and not IS_ROOT:
        pytest.skip("slurmdbd and its database need root")
    directory = pathlib.Path(tempfile.mkdtemp(prefix="scr-slurm-", dir="/tmp"))
    directory.chmod(0o755)
    lab = kind(directory / "lab")
    try:
        result = lab.up(*options)
        if result.returncode == 3:
            pytest.skip(f"packages are missing: {result.stderr.strip()}")
        assert result.returncode == 0, f"slurm-lab up: {result.stderr}"
        yield lab
    finally:
        lab.down()
        shutil.rmtree(directory, ignore_errors=True)


def is_mode_private(path):
    return stat.S_IMODE(os.lstat(path).st_mode) & 0o007 == 0
