"""A clean root of this machine's Debian to install our packages in, and the packages: of this tree,
and of the commit before.

Roots come from Debian's own packages by mmdebstrap. They are kept as archives for a month, in
$SCRIPTORIUM_PLATFORMS/rootfs (default: build/rootfs), and unpacked for each test that asks for one.
While the packages are built, the roots are made beside them.
"""

import concurrent.futures
import os
import pathlib
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))
import harness  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build"
ROOTS = pathlib.Path(os.environ.get("SCRIPTORIUM_PLATFORMS") or BUILD) / "rootfs"
MONTH_SECONDS = 30 * 86400
# Nobody keeps the packages that a test builds. The format is that of a release.
QUICKLY = {"DPKG_DEB_COMPRESSOR_LEVEL": "1"}
# A package fits the release that it was built on.
SUITE = platform.freedesktop_os_release().get("VERSION_CODENAME", "bookworm")


def run(*command, **kwargs):
    """A command that must succeed; a failure shows its output."""
    kwargs.setdefault("timeout", 1800)
    result = subprocess.run([str(c) for c in command], capture_output=True, text=True,
                            stdin=subprocess.DEVNULL, **kwargs)
    assert result.returncode == 0, \
        f"{' '.join(map(str, command))}: exit " \
        f"{result.returncode}\n{result.stdout[-3000:]}\n{result.stderr[-3000:]}"
    return result


def need(*tools, root=False):
    missing = [tool for tool in tools if not shutil.which(tool)]
    if missing:
        pytest.skip(f"not installed: {' '.join(missing)}; ./quickstart install ci")
    if root and os.geteuid() != 0:
        pytest.skip("run this as root: a package is installed in a root of its own (chroot)")


def skip_without_mirror(message):
    """Where `message` of apt or mmdebstrap says so."""
    if re.search("Could not resolve|Could not connect|Cannot initiate", message):
        pytest.skip(f"Debian's mirror cannot be reached: {message.strip().splitlines()[-1]}")


@pytest.fixture(scope="session")
def packages():
    """Folder with the packages of this tree."""
    need("dpkg-buildpackage", "dh", "rpmbuild", "cmake", "ninja")
    # Other tests run beside it, and they have deadlines.
    run("nice", ROOT / "quickstart", "packages", env={**os.environ, **QUICKLY})
    return BUILD / "packages"


@pytest.fixture(scope="session")
def packages_before():
    """Folder with the Debian packages of the commit before: of HEAD where the tree is changed, else
    of the one before it."""
    need("dpkg-buildpackage", "dh", "cmake", "ninja", "git")
    git = ["git", "-c", f"safe.directory={ROOT}", "-C", str(ROOT)]
    changed = subprocess.run([*git, "status", "--porcelain"], capture_output=True, text=True)
    if changed.returncode != 0:
        pytest.skip("this is no git repository, so there is no commit before")
    commit = run(*git, "rev-parse", "HEAD" if changed.stdout else "HEAD~1").stdout.strip()
    place = BUILD / "before"
    source = place / "source"
    into = place / "packages"
    done = place / "commit"
    if done.exists() and done.read_text() == commit and list(into.glob("*.deb")):
        return into
    shutil.rmtree(source, ignore_errors=True)
    source.mkdir(parents=True)
    done.unlink(missing_ok=True)
    archive = subprocess.Popen([*git, "archive", commit], stdout=subprocess.PIPE)
    subprocess.run(["tar", "-x", "-C", str(source)], stdin=archive.stdout, check=True)
    assert archive.wait() == 0
    if not (source / "packaging" / "debian").exists():
        # From before there were packages: what it has, packed as now.
        for part in ("packaging", "cmake", "examples", "CMakeLists.txt"):
            if (ROOT / part).is_dir():
                shutil.copytree(ROOT / part, source / part, dirs_exist_ok=True)
            else:
                shutil.copy(ROOT / part, source / part)
    # As ./quickstart builds a release, and as deep in its tree: with the same commands and relative
    # paths, ccache knows what has not changed.
    release = source / "build" / "release"
    run("cmake", "--preset", "release", "-DSCRIPTORIUM_TESTS=OFF", cwd=source)
    run("nice", "cmake", "--build", release)
    # Nobody debugs these.
    run("nice", source / "packaging" / "build-packages", release, into, "deb",
        env={**os.environ, **QUICKLY, "SCRIPTORIUM_PACKAGE_VERSION": "0.0.1~before",
             "DEB_BUILD_OPTIONS": "noautodbgsym"})
    shutil.rmtree(source)
    done.write_text(commit)
    return into


class Root:
    """A Debian in a folder. Commands run in it with /proc and /dev of their own, which end with
    them."""

    def __init__(self, path):
        self.path = pathlib.Path(path)

    def command(self, *command):
        script = ('mount --make-rprivate / && mount -t proc proc "$0/proc" && mount --rbind '
                  '/dev "$0/dev" && '
                  'mount --bind /etc/resolv.conf "$0/etc/resolv.conf" && exec chroot "$0" "$@"')
        return ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", script,
                str(self.path), *map(str, command)]

    def try_run(self, *command, **kwargs):
        kwargs.setdefault("timeout", 900)
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
                       "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8",
                       "HOME": "/root",
                       **{k: v for k, v in os.environ.items() if k.lower().endswith("_proxy")}}
        return subprocess.run(self.command(*command), capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, env=environment, **kwargs)

    def run(self, *command, **kwargs):
        result = self.try_run(*command, **kwargs)
        assert result.returncode == 0, \
        f"{' '.join(map(str, command))}: exit " \
        f"{result.returncode}\n{result.stdout[-4000:]}\n{result.stderr[-4000:]}"
        return result.stdout

    def file(self, path):
        return self.path / str(path).lstrip("/")

    def install(self, folder, *names):
        """Packages of ours, by apt, with what they depend on."""
        self.file("packages").mkdir(exist_ok=True)
        chosen = []
        for name in names:
            found = sorted(folder.glob(f"{name}_*.deb"))
            assert len(found) == 1, f"{name}: {found}"
            shutil.copy(found[0], self.file("packages"))
            chosen.append(f"/packages/{found[0].name}")
        self.apt_install(*chosen)
        shutil.rmtree(self.file("packages"))

    def apt_install(self, *names):
        # The root's lists may be older than the mirror's files. A configuration that was edited and
        # is another one in the new version stays as it is, which is dpkg's default, unasked.
        command = ("sh", "-c", 'install() { apt-get install -y --no-install-recommends -o '
                             'Dpkg::Use-Pty=0 -o Dpkg::Options::=--force-confold "$@"; }; '
                   'install "$@" || { apt-get update && install "$@"; }', "sh", *names)
        result = self.try_run(*command)
        if result.returncode != 0:
            skip_without_mirror(result.stderr)
            pytest.fail(f"apt-get install {' '.join(names)}: exit {result.returncode}\n"
                        f"{result.stdout[-4000:]}\n{result.stderr[-4000:]}")

    def everything(self):
        """Every path but those in which apt and dpkg keep their own books."""
        books = ("var/lib/dpkg", "var/lib/apt", "var/cache", "var/log/apt", "var/log/dpkg.log",
                 "var/log/alternatives.log", "proc", "dev", "sys",
                 "run", "tmp", "var/lib/systemd/deb-systemd-helper-masked")
        found = set()
        for folder, folders, files in os.walk(self.path):
            below = os.path.relpath(folder, self.path)
            folders[:] = [f for f in folders
                          if os.path.normpath(os.path.join(below, f)) not in books]
            for name in files + folders:
                path = os.path.normpath(os.path.join(below, name))
                if path not in books:
                    found.add(path)
        return found


class Booted(Root):
    """A root whose own systemd runs as pid 1 of namespaces, in its own control group. Nothing
    of it outlives stop()."""

    BOOT = r"""
set -e
root=$0
mount --make-rprivate /
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
if [ "$(stat -fc %T /sys/fs/cgroup)" = cgroup2fs ]; then
    mount -t cgroup2 cgroup "$root/sys/fs/cgroup"
else
    mount -t tmpfs tmpfs "$root/sys/fs/cgroup"
    mkdir "$root/sys/fs/cgroup/systemd"
    mount -t cgroup -o none,name=systemd cgroup "$root/sys/fs/cgroup/systemd"
fi
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/dev/shm"
mount -t tmpfs tmpfs "$root/run"
mount -t tmpfs tmpfs "$root/tmp"
mkdir "$root/run/lock"
mount --bind /etc/resolv.conf "$root/etc/resolv.conf"
cd "$root"
pivot_root . mnt
umount -l /mnt
mount --make-rshared /
exec env -i container=test PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --system --show-status=no --unit=basic.target
"""

    def __init__(self, path):
        super().__init__(path)
        hierarchy = pathlib.Path("/sys/fs/cgroup")
        if (hierarchy / "systemd").is_dir():
            hierarchy /= "systemd"
        self.group = hierarchy / self.path.name
        try:
            self.group.mkdir()
        except OSError as e:
            pytest.skip(f"systemd cannot run as pid 1 of a namespace here: no control group of "
                        f"its own ({e})")
        self.log = open(self.path.with_suffix(".boot.log"), "w+b")
        join = f'echo $$ >"{self.group}/cgroup.procs" && exec unshare --mount --pid --ipc --uts ' \
               f'--cgroup --fork --kill-child sh -c "$1" "$0"'
        self.process = subprocess.Popen(["sh", "-c", join, str(self.path), self.BOOT],
                                        stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        self.init = None
        try:
            harness.wait_for(self.running,
                             lambda: f"systemd runs in {self.path}: {self.boot_log()}", seconds=60,
                             step=0.1)
        except AssertionError:
            self.stop()
            raise

    def boot_log(self):
        return pathlib.Path(self.log.name).read_text(errors="replace")[-2000:]

    def running(self):
        assert self.process.poll() is None, self.boot_log()
        children = pathlib.Path(
            f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        if not children or pathlib.Path(f"/proc/{children[0]}/comm").read_text() != "systemd\n":
            return False
        self.init = children[0]
        return self.try_run("systemctl", "is-system-running").stdout.strip() in ("running",
                                                                                 "degraded")

    def command(self, *command):
        return ["nsenter", "-t", self.init, "-m", "-p", "-u", "-i", "-C", "--", *map(str, command)]

    def stop(self):
        if self.init is not None:
            os.kill(int(self.init), signal.SIGKILL)  # and with it everything in its namespace
        else:
            self.process.kill()
        self.process.wait()
        self.log.close()
        pathlib.Path(self.log.name).unlink()

        def remove_groups():
            for folder in sorted(self.group.rglob("*/"), reverse=True):
                folder.rmdir()
            self.group.rmdir()
            return True
        harness.wait_for(remove_groups, f"{self.group} is empty", step=0.1)


# What each kind of root has, beside the smallest Debian.
KINDS = {
    # With systemd, and Slurm's client commands, as a controller has them.
    "plain": ("ca-certificates", "systemd", "slurm-client"),
    # With a compiler and what scriptorium-dev depends on.
    "compiler": ("ca-certificates", "g++", "cmake", "make", "libexpected-dev", "libsimdjson-dev",
                 "libssl-dev"),
}
KIND_OF_FIXTURE = {"clean_root": "plain", "root_with_scriptorium": "plain",
                   "compiler_root": "compiler"}


def root_archive(name):
    include = KINDS[name]
    need("mmdebstrap", "unshare", "tar", root=True)
    # Another list of packages is another archive.
    archive = ROOTS / f"{SUITE}-{name}-{harness.sha256(' '.join(include).encode())[:8]}.tar"
    if not archive.exists() or time.time() - archive.stat().st_mtime > MONTH_SECONDS:
        archive.parent.mkdir(parents=True, exist_ok=True)
        # Of this process: another run may use the same folder.
        unfinished = archive.with_suffix(f".{os.getpid()}.tar")
        # The lists stay: apt-get install in the root then needs no update.
        result = subprocess.run(["mmdebstrap", "--quiet", "--variant=minbase",
                                 "--skip=cleanup/apt/lists",
                                 "--dpkgopt=force-unsafe-io", "--include=" + ",".join(include),
                                 SUITE,
                                 str(unfinished)], capture_output=True, text=True,
                                stdin=subprocess.DEVNULL, timeout=1200)
        if result.returncode != 0:
            unfinished.unlink(missing_ok=True)
            skip_without_mirror(result.stderr)
            pytest.fail(f"mmdebstrap: exit {result.returncode}\n{result.stderr[-3000:]}")
        unfinished.rename(archive)
    return archive


@pytest.fixture(scope="session", autouse=True)
def root_archives(request):
    """{kind: future of its archive}, of those that a test will ask for; begun before the packages
    are built."""
    asked = {KIND_OF_FIXTURE.get(name) for item in request.session.items
             for name in item.fixturenames}
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        yield {kind: pool.submit(root_archive, kind) for kind in KINDS if kind in asked}


def in_memory():
    """A new folder, in memory where there is room: dpkg syncs every file that it unpacks."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="scr-root-", dir=harness.test_directory()))
    folder.chmod(0o755)
    return folder


def unpacked(archive):
    folder = in_memory()
    run("tar", "-x", "--numeric-owner", "--xattrs", "-f", archive, "-C", folder)
    return Root(folder)


@pytest.fixture
def clean_root(root_archives):
    root = unpacked(root_archives["plain"].result())
    yield root
    shutil.rmtree(root.path, ignore_errors=True)


@pytest.fixture
def booted_root(clean_root):
    """The same, with its systemd running."""
    root = Booted(clean_root.path)
    yield root
    root.stop()


@pytest.fixture(scope="session")
def root_with_scriptorium(root_archives, packages):
    """A clean root in which the package was installed, for copies."""
    root = unpacked(root_archives["plain"].result())
    root.install(packages, "scriptorium")
    yield root
    shutil.rmtree(root.path, ignore_errors=True)


@pytest.fixture
def booted_root_with_scriptorium(root_with_scriptorium):
    """Booted after the installation. Tests that install while systemd runs take booted_root."""
    folder = in_memory()
    run("cp", "-a", f"{root_with_scriptorium.path}/.", folder)
    root = Booted(folder)
    yield root
    root.stop()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def compiler_root(root_archives):
    root = unpacked(root_archives["compiler"].result())
    yield root
    shutil.rmtree(root.path, ignore_errors=True)
