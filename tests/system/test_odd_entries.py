"""What a spool may hold beside well-made entries: nothing of it may end the daemon, block it or be
followed."""

import json
import os

import harness
from harness import wait_for


def test_a_fifo_for_a_script_blocks_nothing(make_daemon, archive, spool):
    daemon = make_daemon(sources={"slurm": {"incomplete_after_seconds": 1}}).start()
    spool.make_entry(5)
    os.mkfifo(spool.entry(5) / "script", 0o700)
    spool.make_entry(6)
    os.mkfifo(spool.entry(6) / "environment", 0o600)
    spool.write(16)
    wait_for(lambda: "16" in archive.scripts(), "a later job is archived")
    assert daemon.terminate() == 0
    daemon.start()  # the start scan meets the FIFOs as well
    spool.write(26)
    wait_for(lambda: "26" in archive.scripts(), "a job after the restart is archived")


def test_a_symbolic_link_in_the_spool_is_never_followed(make_daemon, work, archive, spool):
    secret = work / "secret"
    secret.write_bytes(b"top secret\0")
    outside = work / "outside"
    outside.mkdir()
    (outside / "environment").write_bytes(b"\0\0\0\0")
    (outside / "script").write_bytes(b"#!/bin/sh\ntop secret\n\0")
    spool.make_entry(5)
    spool.write_environment(5, [b"A=1"])
    os.symlink(secret, spool.entry(5) / "script")
    spool.hash_directory(6).mkdir()
    os.symlink(outside, spool.entry(6))
    daemon = make_daemon(sources={"slurm": {"incomplete_after_seconds": 1}}).start()
    spool.make_entry(7)
    spool.write_environment(7, [b"A=1"])
    os.symlink(secret, spool.entry(7) / "script")
    spool.write(17)
    wait_for(lambda: "17" in archive.scripts(), "a later job is archived")
    # 5 and 7 may come as incomplete; wait until they did or the daemon has looked again
    daemon.command("status")
    for file in archive.path.rglob("*"):
        if file.is_file():
            assert b"top secret" not in file.read_bytes(), f"{file} holds what a link pointed to"


def test_bytes_that_are_not_utf8_are_archived_as_they_are(make_daemon, archive, spool):
    make_daemon().start()
    script = b"#!/bin/bash\n# caf\xe9 \xff\xfe\x80\necho \xc3\x28\r\n"
    environment = [b"NAME=\xff\xfe", b"\x80=1", b"=starts", b"noequals", b"", b"A=1", b"A=2",
                   b"MULTI=one\ntwo=3\n"]
    spool.write(3, script, environment)
    wait_for(lambda: (archive.path / "3.json").exists(), "job 3 is archived")
    assert (archive.path / "3.sh").read_bytes() == script
    assert (archive.path / "3.env").read_bytes() == b"".join(s + b"\0" for s in environment)
    json.loads((archive.path / "3.json").read_bytes().decode("utf-8"))


def test_a_script_of_64_mb_is_archived_byte_for_byte(make_daemon, archive, spool):
    daemon = make_daemon().start()
    line = b"# " + b"x" * 61 + b"\n"
    script = b"#!/bin/sh\n" + line * (1 << 20)
    spool.write(4, script)
    spool.write(14)
    wait_for(lambda: "14" in archive.scripts(), "a small job beside it is archived", 120)
    wait_for(lambda: (archive.path / "4.json").exists(), "the large job is archived", 120)
    assert harness.sha256((archive.path / "4.sh").read_bytes()) == harness.sha256(script)
    assert archive.metadata("4")["complete"] is True
    assert daemon.running()


def test_a_file_over_max_file_bytes_is_archived_cut_and_marked(make_daemon, archive, spool):
    daemon = make_daemon(sources={"slurm": {"max_file_bytes": 1 << 20,
                                            "incomplete_after_seconds": 1}}).start()
    spool.write(4, b"#!/bin/sh\n" + b"y" * (2 << 20))
    spool.write(14)
    wait_for(lambda: archive.scripts() >= {"4", "14"}, lambda: f"archived: {archive.scripts()}")
    wait_for(lambda: (archive.path / "4.json").exists(), "metadata of 4")
    assert archive.metadata("4")["complete"] is False
    assert len((archive.path / "4.sh").read_bytes()) <= 1 << 20
    assert daemon.running()


def test_an_empty_script_and_an_empty_environment_are_whole(make_daemon, archive, spool):
    make_daemon().start()
    spool.write(5, b"", [])
    wait_for(lambda: (archive.path / "5.json").exists(), "job 5 is archived")
    assert (archive.path / "5.sh").read_bytes() == b""
    assert (archive.path / "5.env").read_bytes() == b""
    assert archive.metadata("5")["complete"] is True


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
