"""A clean root of this machine's Debian to install our packages in, and the packages: of this tree,
and of the commit before.

Roots come from Debian's own packages by mmdebstrap, are kept in build/rootfs as archives (delete
them to have them made anew), and unpacked for each test that asks for one.
"""

import os
import pathlib
import platform
import shutil
import signal
import subprocess
import sys
import tempfile

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))
import harness  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build"
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


@pytest.fixture(scope="session")
def packages():
    """Folder with the packages of this tree."""
    need("dpkg-buildpackage", "dh", "rpmbuild", "cmake", "ninja")
    # other tests run beside it, and they have deadlines
    run("nice", ROOT / "quickstart", "packages")
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
    # As deep as build/release is in its tree: with the same relative paths, ccache knows what has
    # not changed.
    release = source / "build" / "release"
    run("cmake", "-S", source, "-B", release, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=RelWithDebInfo",
        "-DSCRIPTORIUM_TESTS=OFF")
    run("nice", "cmake", "--build", release)
    # Nobody debugs these.
    run("nice", source / "packaging" / "build-packages", release, into, "deb",
        env={**os.environ, "SCRIPTORIUM_PACKAGE_VERSION": "0.0.1~before",
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
        # The root's lists may be older than the mirror's files.
        self.run("sh", "-c", 'install() { apt-get install -y --no-install-recommends -o '
                             'Dpkg::Use-Pty=0 "$@"; }; '
                 'install "$@" || { apt-get update && install "$@"; }', "sh", *chosen)
        shutil.rmtree(self.file("packages"))

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
        harness.wait_for(remove_groups, f"{self.group} is empty", seconds=20, step=0.1)


def root_archive(name, *include):
    need("mmdebstrap", "unshare", "tar", root=True)
    # Another list of packages is another archive.
    archive = BUILD / "rootfs" \
        / f"{SUITE}-{name}-{harness.sha256(' '.join(include).encode())[:8]}.tar"
    if not archive.exists():
        archive.parent.mkdir(parents=True, exist_ok=True)
        unfinished = archive.with_suffix(".new.tar")
        # The lists stay: apt-get install in the root then needs no update.
        result = subprocess.run(["mmdebstrap", "--quiet", "--variant=minbase",
                                 "--skip=cleanup/apt/lists", "--include=" + ",".join(include),
                                 SUITE,
                                 str(unfinished)], capture_output=True, text=True,
                                stdin=subprocess.DEVNULL, timeout=1200)
        if result.returncode != 0:
            unfinished.unlink(missing_ok=True)
            if "Could not resolve" in result.stderr or "Could not connect" in result.stderr \
        or "Cannot initiate" in result.stderr:
                pytest.skip("Debian's mirror cannot be reached: "
                            + result.stderr.strip().splitlines()[-1])
            pytest.fail(f"mmdebstrap: exit {result.returncode}\n{result.stderr[-3000:]}")
        unfinished.rename(archive)
    return archive


def unpacked(archive):
    # In memory where there is room: dpkg syncs every file that it unpacks.
    folder = tempfile.mkdtemp(prefix="scr-root-", dir=harness.test_directory())
    run("tar", "-x", "--numeric-owner", "--xattrs", "-f", archive, "-C", folder)
    os.chmod(folder, 0o755)
    return Root(folder)


@pytest.fixture
def clean_root():
    """Debian, minimal, with systemd, and Slurm's client commands, as a controller has them."""
    root = unpacked(root_archive("plain", "ca-certificates", "systemd", "slurm-client"))
    yield root
    shutil.rmtree(root.path, ignore_errors=True)


@pytest.fixture
def booted_root(clean_root):
    """The same, with its systemd running."""
    root = Booted(clean_root.path)
    yield root
    root.stop()


@pytest.fixture
def compiler_root():
    """Debian with a compiler and what scriptorium-dev depends on."""
    root = unpacked(root_archive("compiler", "ca-certificates", "g++", "cmake", "make",
                                 "libexpected-dev", "libsimdjson-dev",
                                 "libssl-dev"))
    yield root
    shutil.rmtree(root.path, ignore_errors=True)
