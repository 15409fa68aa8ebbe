"""What a spool may hold beside well-made entries: nothing of it may end the daemon, block it or be
followed."""

import json
import os

import harness
from harness import wait_for


def test_what_is_no_file_blocks_nothing_no_link_is_followed_and_what_is_too_large_is_cut(
        make_daemon, work, archive, spool):
    secret = work / "secret"
    secret.write_bytes(b"top secret\0")
    outside = work / "outside"
    outside.mkdir()
    (outside / "environment").write_bytes(b"\0\0\0\0")
    (outside / "script").write_bytes(b"#!/bin/sh\ntop secret\n\0")

    def link(job):
        spool.make_entry(job)
        spool.write_environment(job, [b"A=1"])
        os.symlink(secret, spool.entry(job) / "script")
    link(5)
    spool.hash_directory(6).mkdir()
    os.symlink(outside, spool.entry(6))
    daemon = make_daemon(sources={"slurm": {"max_file_bytes": 1 << 20,
                                            "incomplete_after_seconds": 1}}).start()
    link(7)
    spool.make_entry(8)
    os.mkfifo(spool.entry(8) / "script", 0o700)
    spool.make_entry(9)
    os.mkfifo(spool.entry(9) / "environment", 0o600)
    spool.write(4, b"#!/bin/sh\n" + b"y" * (2 << 20))
    spool.write(14)
    wait_for(lambda: archive.scripts() >= {"4", "14"}, lambda: f"archived: {archive.scripts()}")
    assert archive.metadata("4")["complete"] is False
    assert len((archive.path / "4.sh").read_bytes()) <= 1 << 20
    assert daemon.terminate() == 0
    daemon.start()  # the start scan meets all of that as well
    spool.write(24)
    wait_for(lambda: "24" in archive.scripts(), "a job after the restart is archived")
    # 5 and 7 may come as incomplete; wait until they did or the daemon has looked again
    daemon.command("status")
    for file in archive.path.rglob("*"):
        if file.is_file():
            assert b"top secret" not in file.read_bytes(), f"{file} holds what a link pointed to"


def test_whatever_bytes_a_job_has_are_archived_as_they_are(make_daemon, archive, spool):
    """Not UTF-8, none at all, 64 MB."""
    make_daemon().start()
    script = b"#!/bin/bash\n# caf\xe9 \xff\xfe\x80\necho \xc3\x28\r\n"
    environment = [b"NAME=\xff\xfe", b"\x80=1", b"=starts", b"noequals", b"", b"A=1", b"A=2",
                   b"MULTI=one\ntwo=3\n"]
    large = b"#!/bin/sh\n" + (b"# " + b"x" * 61 + b"\n") * (1 << 20)
    written = {job: spool.write(job, *contents) for job, contents in
               {4: (large,), 14: (), 3: (script, environment), 5: (b"", [])}.items()}
    for job, (script, environment) in written.items():
        wait_for((archive.path / f"{job}.json").exists, f"job {job} is archived", 120)
        assert harness.sha256((archive.path / f"{job}.sh").read_bytes()) == harness.sha256(script)
        assert (archive.path / f"{job}.env").read_bytes() == environment
        json.loads((archive.path / f"{job}.json").read_bytes().decode("utf-8"))
        assert archive.metadata(job)["complete"] is True


def test_dropped_variables_reach_neither_archive_nor_journal(make_daemon, work, archive, spool):
    text = harness.config_text(work)
    text = text.replace("[source.slurm]",
                        '[source.slurm]\nenvironment = { keep = ["SLURM_*", "OMP_*"], drop = '
                        '["*SECRET*"] }')
    daemon = make_daemon()
    daemon.config.write_text(text)
    daemon.start()
    spool.write(6, environment=[b"SLURM_JOB_NAME=x", b"AWS_KEY=do-not-keep-1",
                                b"OMP_NUM_THREADS=8", b"SLURM_SECRET=do-not-keep-2"])
    wait_for(lambda: (archive.path / "6.json").exists(), "job 6 is archived")
    assert (archive.path / "6.env").read_bytes() == b"SLURM_JOB_NAME=x\0OMP_NUM_THREADS=8\0"
    daemon.terminate()
    for file in list(archive.path.rglob("*")) + list(daemon.state_dir.rglob("*")) \
        + [daemon.log_file]:
        if file.is_file():
            assert b"do-not-keep" not in file.read_bytes(), f"{file} holds a dropped value"


def test_nothing_in_the_archive_is_readable_by_others(make_daemon, archive, spool):
    old = os.umask(0)
    try:
        daemon = make_daemon(sinks={"archive": {"layout": "{user}/{year}/{job_id}.{ext}"}}).start()
    finally:
        os.umask(old)
    spool.write(7)
    daemon.wait_acknowledged(1)
    for path in [archive.path, *archive.path.rglob("*")]:
        assert harness.is_mode_private(path), f"{path} has mode {oct(path.lstat().st_mode)}"
    assert harness.is_mode_private(daemon.state_dir)


def test_the_spool_is_only_read(make_daemon, make_storm, spool, archive):
    storm = make_storm(200).finish()
    before = {str(p): (p.lstat().st_mtime_ns, p.lstat().st_ctime_ns, p.lstat().st_size)
              for p in spool.path.rglob("*")}
    daemon = make_daemon().start()
    daemon.wait_acknowledged(200)
    daemon.terminate()
    after = {str(p): (p.lstat().st_mtime_ns, p.lstat().st_ctime_ns, p.lstat().st_size)
             for p in spool.path.rglob("*")}
    assert after == before
    archive.compare(storm.manifest())
