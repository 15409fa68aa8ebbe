"""Where a spool may lie, and what may happen to the place: other file systems, other mounts, other
namespaces."""

import ctypes
import os
import pathlib
import shutil
import subprocess

import pytest

import harness
from harness import PATIENCE, Spool, Storm, wait_for

CLONE_NEWNS = 0x00020000
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 32, 4096, 16384, 1 << 18


def run(*command, check=True):
    result = subprocess.run([str(c) for c in command], capture_output=True, text=True,
                            timeout=120 * PATIENCE)
    if check and result.returncode != 0:
        pytest.skip(f"{' '.join(map(str, command))}: {result.stderr.strip() or result.returncode}")
    return result


class Mounts:
    """Mounts of one test, undone in reverse order whatever happens. A mount that is refused skips
    the test, aloud."""

    def __init__(self):
        self.points = []
        self.daemons = []

    def mount(self, *arguments, at):
        run("mount", *arguments, at)
        self.points.append(at)
        return at

    def unmount(self, at):
        run("umount", at)
        self.points.remove(at)

    def undo(self):
        for point in reversed(self.points):
            run("umount", "-l", point, check=False)


@pytest.fixture
def mounts():
    if not harness.IS_ROOT:
        pytest.skip("only root can mount a file system")
    m = Mounts()
    yield m
    m.undo()


def image(work, name, size, *mkfs):
    if not shutil.which(mkfs[0], path=os.environ.get("PATH", "") + ":/sbin:/usr/sbin"):
        pytest.skip(f"no {mkfs[0]} here; apt-get install xfsprogs e2fsprogs")
    file = work / name
    with open(file, "wb") as f:
        f.truncate(size)
    run(*mkfs, file)
    return file


def make_place(kind, work, mounts):
    """A mounted file system of this kind; where the scheduler writes, and where the daemon
    looks."""
    place = work / "place"
    place.mkdir()
    if kind == "tmpfs":
        mounts.mount("-t", "tmpfs", "tmpfs", at=place)
    elif kind == "ext4":
        mounts.mount("-o", "loop", image(work, "ext4.img", 128 << 20, "mkfs.ext4", "-q", "-F"),
                     at=place)
    elif kind == "xfs":
        mounts.mount("-o", "loop", image(work, "xfs.img", 320 << 20, "mkfs.xfs", "-q", "-f"),
                     at=place)
    elif kind == "overlay":
        # On a separate file system: an overlay on an overlay or on some network file systems is
        # refused.
        base = work / "base"
        base.mkdir()
        mounts.mount("-t", "tmpfs", "tmpfs", at=base)
        for name in ("lower", "upper", "worker"):
            (base / name).mkdir()
        mounts.mount("-t", "overlay", "overlay", "-o",
                     f"lowerdir={base}/lower,upperdir={base}/upper,workdir={base}/worker", at=place)
    elif kind == "bind":
        real = work / "real"
        (real / "spool").mkdir(parents=True)
        mounts.mount("--bind", real, at=place)
        return real / "spool", place / "spool"
    return place / "spool", place / "spool"


def check_nothing_lost(daemon, archive, manifest, also=0):
    """Everything that was written is in the archive, byte for byte, and nothing was missed."""
    daemon.wait_acknowledged(len(manifest) + also)
    archive.compare(manifest)
    source = daemon.source()
    assert sum(source["missed"].values()) == 0, source


def needs_fanotify(daemon):
    if daemon.source()["capture"] != "fanotify":
        pytest.skip(f"no fanotify here: {daemon.source()['why_not_better']}")


@pytest.mark.parametrize("kind", ["tmpfs", "ext4", "xfs", "overlay", "bind"])
def test_on_every_file_system_nothing_is_lost(make_daemon, mounts, work, archive, kind):
    writes, looks = make_place(kind, work, mounts)
    spool = Spool(writes)
    daemon = make_daemon(sources={"slurm": {"spool": looks, "rescan_seconds": 3600}}).start()
    needs_fanotify(daemon)
    jobs = harness.storm_jobs(1000)
    short = Storm(spool, work, jobs, lifetime_ms=0).finish().manifest()
    check_nothing_lost(daemon, archive, short)
    stays = Storm(spool, work, jobs, first_id=jobs + 1).finish().manifest()
    check_nothing_lost(daemon, archive, {**short, **stays})
    assert set(daemon.source()["captured_by"]) <= {"fanotify", "scan"}
    daemon.terminate()


def test_what_another_mount_shows_that_is_not_the_spool_is_not_captured(make_daemon, mounts, work,
                                                                        archive):
    """Another cluster's spool on the same file system has the same names and the same owner."""
    place = make_place("ext4", work, mounts)[0].parent
    spool, other = Spool(place / "spool"), Spool(place / "other")
    daemon = make_daemon(sources={"slurm": {"spool": spool.path, "rescan_seconds": 3600}}).start()
    needs_fanotify(daemon)
    Storm(other, work, 100, first_id=5001, lifetime_ms=0).finish()
    storm = Storm(spool, work, 100, lifetime_ms=0).finish()
    check_nothing_lost(daemon, archive, storm.manifest())
    assert daemon.source()["ignored"].get("another path", 0) >= 100
    daemon.terminate()


def own_namespace(setup):
    """For Popen: a private mount namespace with private propagation, as every hardened unit has;
    then setup()."""
    libc = ctypes.CDLL(None, use_errno=True)

    def mount(source, target, flags):
        if libc.mount(os.fsencode(source), os.fsencode(target), None, flags, None) != 0:
            raise OSError(ctypes.get_errno(), f"mount {target}")

    def become():
        if libc.unshare(CLONE_NEWNS) != 0:
            raise OSError(ctypes.get_errno(), "unshare")
        mount("none", "/", MS_REC | MS_PRIVATE)
        setup(mount)
    return become


@pytest.mark.parametrize("read_only", [False, True], ids=["private", "read-only-bind"])
def test_in_a_mount_namespace_of_its_own_the_daemon_sees_everything(make_daemon, mounts, work,
                                                                    archive, read_only):
    spool = Spool(make_place("tmpfs", work, mounts)[0])
    for digit in range(10):
        spool.hash_directory(digit).mkdir(mode=0o700)

    def setup(mount):
        if read_only:
            mount(spool.path, spool.path, MS_BIND)
            mount("none", spool.path, MS_REMOUNT | MS_BIND | MS_RDONLY)
    daemon = make_daemon(sources={"slurm": {"spool": spool.path, "rescan_seconds": 3600}})
    daemon.start(preexec_fn=own_namespace(setup))
    needs_fanotify(daemon)
    storm = Storm(spool, work, harness.storm_jobs(1000), lifetime_ms=0).finish()
    check_nothing_lost(daemon, archive, storm.manifest())
    daemon.terminate()


@pytest.mark.parametrize("way", ["auto", "inotify"])
def test_a_file_system_that_is_unmounted_and_mounted_again_is_noticed_at_once(make_daemon, mounts,
                                                                              work, archive, way):
    file = image(work, "ext4.img", 128 << 20, "mkfs.ext4", "-q", "-F")
    place = work / "place"
    place.mkdir()
    mounts.mount("-o", "loop", file, at=place)
    spool = Spool(place)
    # Neither a scan nor a second look may be what notices it.
    daemon = make_daemon(sources={"slurm": {"spool": place, "capture": way,
                                            "rescan_seconds": 86400}}).start()
    first = Storm(spool, work, 50).finish().manifest()
    check_nothing_lost(daemon, archive, first)

    mounts.unmount(place)
    daemon.wait_status(lambda s: s["sources"]["slurm"]["spool_there"] is False,
                       "it is noticed that the spool is gone")
    assert "SPOOL_GONE" in daemon.log_text()
    assert os.listdir(place) == [], "the bare place of the mount is empty"
    scans = daemon.source()["scans"]

    mounts.mount("-o", "loop", file, at=place)
    daemon.wait_status(lambda s: s["sources"]["slurm"]["spool_there"] is True,
                       "it is noticed that the spool is back")
    daemon.wait_status(lambda s: s["sources"]["slurm"]["scans"] > scans, "it is scanned")
    # Short-lived ones with fanotify: the mark must be on the new file system. With inotify those
    # that stay.
    lifetime = 0 if daemon.source()["capture"] == "fanotify" else -1
    second = Storm(spool, work, 50, first_id=51, lifetime_ms=lifetime).finish().manifest()
    check_nothing_lost(daemon, archive, {**first, **second})
    assert daemon.source()["captured"] == 100, "what stood there before was captured again"
    daemon.terminate()


def test_an_empty_mount_point_at_the_start_is_not_taken_for_the_spool(make_daemon, mounts, work,
                                                                      archive):
    file = image(work, "ext4.img", 128 << 20, "mkfs.ext4", "-q", "-F")
    place = work / "place"
    place.mkdir()
    mounts.mount("-o", "loop", file, at=place)
    spool = Spool(place)
    daemon = make_daemon(sources={"slurm": {"spool": place, "rescan_seconds": 86400}}).start()
    first = Storm(spool, work, 50).finish().manifest()
    check_nothing_lost(daemon, archive, first)
    assert daemon.terminate() == 0
    before = archive.snapshot()

    mounts.unmount(place)
    daemon.start()
    daemon.wait_status(lambda s: s["sources"]["slurm"]["spool_there"] is False, "it is missed")
    mounts.mount("-o", "loop", file, at=place)
    daemon.wait_status(lambda s: s["sources"]["slurm"]["spool_there"] is True
                       and s["sources"]["slurm"]["scans"] >= 1, "it is found")
    second = Storm(spool, work, 10, first_id=51).finish().manifest()
    check_nothing_lost(daemon, archive, {**first, **second})
    assert daemon.source()["captured"] == 10, "what the journal knew was captured again"
    after = archive.snapshot()
    assert {name: after[name] for name in before} == before
    daemon.terminate()


@pytest.mark.parametrize("way", ["auto", "scan"])
def test_a_scan_finds_what_another_host_writes_and_a_network_file_system_that_died(
        make_daemon, mounts, work, archive, way):
    """bindfs imitates a network file system: it writes beneath our mount, and no notification
    comes through it."""
    if not shutil.which("bindfs") or not os.path.exists("/dev/fuse"):
        pytest.skip("no bindfs or no /dev/fuse here; apt-get install bindfs")
    real, place = work / "real", work / "place"
    real.mkdir()
    place.mkdir()
    server = subprocess.Popen(["bindfs", "-f", real, place])
    mounts.points.append(place)
    wait_for(lambda: os.path.ismount(place), "bindfs has mounted")
    daemon = make_daemon(sources={"slurm": {"spool": place, "capture": way,
                                            "rescan_seconds": 1}}).start()
    first = Storm(Spool(real), work, 200, rate=500).finish().manifest()
    check_nothing_lost(daemon, archive, first)
    assert daemon.source()["captured_by"]["scan"] == 200
    if way == "scan":
        server.kill()  # from now on every call says ENOTCONN
        server.wait()
        daemon.wait_status(lambda s: s["sources"]["slurm"]["spool_there"] is False, "it is noticed")
        second = Storm(Spool(real), work, 20, first_id=201).finish().manifest()
        run("umount", "-l", place)
        run("bindfs", real, place)
        check_nothing_lost(daemon, archive, {**first, **second})
    assert daemon.terminate() == 0


@pytest.mark.parametrize("way", ["auto", "inotify"])
def test_a_spool_that_is_renamed_away_and_made_anew_is_followed(make_daemon, make_storm, archive,
                                                                spool, work, way):
    daemon = make_daemon(sources={"slurm": {"capture": way, "rescan_seconds": 86400}}).start()
    first = make_storm(20).finish().manifest()
    check_nothing_lost(daemon, archive, first)
    spool.path.rename(work / "spool.old")
    Spool(spool.path)
    second = make_storm(20, first_id=21).finish().manifest()
    daemon.wait_acknowledged(40)
    archive.compare({**first, **second})
    pathlib.Path(work / "spool.old" / "hash.1" / "job.991").mkdir()  # no longer the spool
    third = make_storm(20, first_id=41).finish().manifest()
    check_nothing_lost(daemon, archive, {**first, **second, **third})
