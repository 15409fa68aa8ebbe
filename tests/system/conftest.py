"""Fixtures of the system tests; what they hand out is in harness.py."""

import contextlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import checkpoint_lab  # noqa: E402
import harness  # noqa: E402
import kafka_lab  # noqa: E402
import usage_lab  # noqa: E402
from harness import Archive, Daemon, Spool, Storm  # noqa: E402


def pytest_configure(config):
    if not harness.SCRIPTORIUM.exists():
        raise pytest.UsageError(
            f"{harness.SCRIPTORIUM} is not there: build it (cmake --build --preset dev), "
                                "or point SCRIPTORIUM_BUILD_DIR at a build folder")


def pytest_generate_tests(metafunc):
    """A module's tests with `node` run on each server of its KINDS, one server after the other."""
    if "node" in metafunc.fixturenames and hasattr(metafunc.module, "KINDS"):
        metafunc.parametrize("node", metafunc.module.KINDS, indirect=True, scope="module")


@pytest.hookimpl(tryfirst=True, hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    if report.when == "call":
        item.failed_in_call = report.failed


@pytest.fixture
def work(request):
    """A short-named folder of the test's own (a Unix socket's path is bounded), kept if the test
    failed."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="scr-",
                                         dir=harness.test_directory(getattr(request.module,
                                                                            "ON_DISK", False))))
    path.chmod(0o755)
    yield path
    if getattr(request.node, "failed_in_call", True):
        print(f"kept for a look: {path}")
    else:
        shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def spool(work):
    return Spool(work / "spool")


@pytest.fixture
def archive(work):
    return Archive(work / "archive")


@pytest.fixture
def make_storm(work, spool):
    storms = []

    def make(jobs, **options):
        storm = Storm(spool, work, jobs, **options)
        storms.append(storm)
        return storm
    yield make
    for storm in storms:
        if storm.running():
            storm.process.kill()
            storm.process.wait()


@pytest.fixture
def make_daemon(work):
    """make_daemon(sources={...}, sinks={...}, key=value): a Daemon on a config, not yet started."""
    daemons = []

    def make(sources=None, sinks=None, environment=None, directory=None, **core):
        directory = pathlib.Path(directory or work)
        daemon = Daemon(directory, harness.config_text(directory, sources, sinks, **core),
                        environment)
        daemons.append(daemon)
        return daemon
    yield make
    for daemon in daemons:
        daemon.cleanup()


@pytest.fixture(scope="session")
def session_slurm():
    with harness.running_slurm("--nodes", "1", "--min-job-age", "300") as lab:
        yield lab


@pytest.fixture
def slurm(session_slurm):
    """One real Slurm for the session. A test's jobs end with it: one that waits for resources would
    hold up the next test's."""
    yield session_slurm
    session_slurm.cancel_all()


@pytest.fixture
def fresh_slurm():
    """fresh_slurm("--nodes", "1", ...): a Slurm of the test's own."""
    with contextlib.ExitStack() as stack:
        yield lambda *options: stack.enter_context(harness.running_slurm(*options))


@pytest.fixture(scope="session")
def lab():
    """One real Slurm of two nodes under control groups for the session."""
    with harness.running_slurm("--nodes", "2", kind=usage_lab.CgroupSlurm) as slurm:
        yield slurm


@pytest.fixture(scope="session")
def criu():
    """The program, where every user can execute it. The download is kept in the build folder."""
    folder = harness.BUILD / "criu-for-tests"
    made = subprocess.run([str(checkpoint_lab.CRIU_FOR_TESTS), str(folder)], capture_output=True,
                          text=True, timeout=600)
    if made.returncode != 0:
        pytest.skip(f"NO CRIU, so nothing was saved: {made.stderr[-300:]}")
    check = subprocess.run([str(folder / "criu"), "check", "--unprivileged"], capture_output=True,
                           text=True, timeout=60)
    if check.returncode != 0:
        pytest.skip(f"CRIU DOES NOT WORK HERE, so nothing was saved: {check.stderr[-300:]}")
    with tempfile.TemporaryDirectory(prefix="scr-", dir=harness.test_directory()) as copy:
        copy = pathlib.Path(copy)
        copy.chmod(0o755)
        shutil.copytree(folder / "root", copy / "root", symlinks=True)
        shutil.copy(folder / "criu", copy / "criu")
        yield copy / "criu"


@pytest.fixture
def groups(work):
    """make(job) and remove(job) of a job of Slurm with one process, under cpuacct: plain files in
    the shapes of v1."""
    parent = work / "cgroup" / "cpuacct" / "slurm" / "uid_1001"
    parent.mkdir(parents=True)
    process = subprocess.Popen(["sleep", "600"])

    class Groups:
        root = work / "cgroup"

        @staticmethod
        def make(job):
            made = work / f"made-{job}"
            task = made / "step_batch" / "task_0"
            task.mkdir(parents=True)
            (task / "cgroup.procs").write_text(f"{process.pid}\n")
            (made / "cgroup.procs").write_text("")
            (made / "cpuacct.usage").write_text("2000000000\n")
            (made / "cpuacct.stat").write_text("user 150\nsystem 50\n")
            made.rename(parent / f"job_{job}")  # whole and at once, as the kernel makes them

        @staticmethod
        def remove(job):
            for path in sorted((parent / f"job_{job}").rglob("*"), reverse=True):
                path.rmdir() if path.is_dir() else path.unlink()
            (parent / f"job_{job}").rmdir()
    yield Groups
    process.kill()
    process.wait()


@pytest.fixture(scope="session")
def certificates(tmp_path_factory):
    return kafka_lab.make_certificates(tmp_path_factory.mktemp("pki"))


@pytest.fixture(scope="session")
def secured_brokers(certificates):
    """Here, because a fixture that several modules import would start its brokers for each of
    them."""
    yield from kafka_lab.secured_brokers(certificates)


@pytest.fixture
def ordinary_user():
    user = harness.ordinary_user()
    if user is None:
        pytest.skip("no ordinary user to submit as")
    return user


@pytest.fixture
def mount_tmpfs(work):
    """mount(name, options): a tmpfs in the test's folder."""
    mounted = []

    def mount(name, options):
        if not harness.IS_ROOT:
            pytest.skip("mounting a tmpfs needs root")
        path = work / name
        path.mkdir()
        result = subprocess.run(["mount", "-t", "tmpfs", "-o", f"{options},mode=750", "tmpfs",
                                 str(path)], capture_output=True, text=True)
        if result.returncode != 0:
            pytest.skip(f"cannot mount a tmpfs here: {result.stderr.strip()}")
        mounted.append(path)
        return path
    yield mount
    for path in mounted:
        subprocess.run(["umount", "-l", str(path)], check=False)


def filesystem_of(place):
    """The type of the uppermost mount there, without asking that file system itself."""
    types = [line.split(" - ")[1].split()[0]
             for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines()
             if line.split()[4] == str(place)]
    return types[-1] if types else ""


@pytest.fixture
def bindfs(work):
    """A file system that a process of ours serves, so that it can be made to stall and to die, for
    the archive: (mount point, serve())."""
    if not shutil.which("bindfs") or not os.path.exists("/dev/fuse") or not harness.IS_ROOT:
        pytest.skip("needs root, bindfs and /dev/fuse; apt-get install bindfs")
    (work / "behind").mkdir()
    place = work / "archive"
    place.mkdir()
    # What lies below the mount takes no file, as on a site that protects its mount points: nothing
    # can be written there between the end of one server and the start of the next.
    for mount in (["--bind", str(place), str(place)], ["-o", "remount,bind,ro", str(place)]):
        subprocess.run(["mount", *mount], check=True)
    servers = []

    def serve():
        # The kernel remembers nothing, so that every call must ask the server.
        server = subprocess.Popen(["bindfs", "-f", "-o", "attr_timeout=0,entry_timeout=0",
                                   str(work / "behind"), str(place)])
        servers.append(server)
        harness.wait_for(lambda: "fuse" in filesystem_of(place), "bindfs has mounted")
        return server
    yield place, serve
    for server in servers:
        if server.poll() is None:
            server.kill()
            server.wait()
        subprocess.run(["umount", "-l", str(place)], check=False, capture_output=True)
    subprocess.run(["umount", "-l", str(place)], check=False, capture_output=True)
