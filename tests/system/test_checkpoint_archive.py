"""The saved programs of jobs whose owner is known, through a query service that gives each user
the own jobs alone."""

import json
import os
import pwd
import shutil
import subprocess
import time

import checkpoint_lab
import harness
import pytest
from checkpoint_lab import wait_lines
from harness import wait_for
from test_search_reference import FakeSlurm

MISSING = checkpoint_lab.what_is_missing()
pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)

SERVICE = pwd.getpwnam("backup")


class Site:
    """A node with the checkpoint service, and an archive of it and of the jobs' scripts."""

    def __init__(self, work, make_daemon):
        self.work = work
        self.node = checkpoint_lab.Node(work, checkpoint_lab.fake_criu(work)).start()
        self.spool = harness.Spool(work / "spool")
        self.queue = FakeSlurm(work).queue
        self.socket = work / "run" / "query.sock"
        self.socket.parent.mkdir()
        shutil.chown(self.socket.parent, SERVICE.pw_uid)
        self.user_records = work / "user-records"
        self.user_records.mkdir()
        self.user_records.chmod(0o3733)
        self.daemon = make_daemon(
            sources={"slurm": {"resolve": "slurmctld", "squeue": str(work / "squeue")},
                     "checkpoint": {"folder": str(self.node.records),
                                    "user_folder": str(self.user_records)}},
            sinks={"catalog": {"root": str(work / "catalog"), "kinds": ["job.*"],
                               "reader_group": SERVICE.pw_name}})
        self.daemon.start(extra_groups=[SERVICE.pw_gid])
        with open(self.daemon.config, "a", encoding="ascii") as config:
            config.write(f'\n[serve]\nsocket = "{self.socket}"\n')
        self.daemon.config.chmod(0o644)
        self.process = None
        self.events = 0

    def serve(self):
        with open(self.work / "serve.log", "wb") as log:
            self.process = subprocess.Popen(
                [harness.SCRIPTORIUM, "serve", "--config", self.daemon.config],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                preexec_fn=harness.become_user(SERVICE))
        wait_for(lambda: "SERVE_STARTED" in (self.work / "serve.log").read_text(), "it answers")

    def saved_job(self, user, directory):
        """A job whose program was saved, and which the archive has."""
        job = self.node.job(user, directory)
        with open(self.queue, "a", encoding="ascii") as queue:
            queue.write(f"{job.id}|{job.id}|N/A|{user.pw_uid}|{user.pw_gid}|{int(time.time())}|"
                        f"N/A|N/A|0|PD|1|bio@normal@cpu@/tmp@md_{job.id}@\n")
        self.spool.write(job.id, b"#!/bin/bash\n# waits for checkpoint_ok\n")
        wait_lines(directory)
        job.signal()
        assert job.wait() == 99, self.node.log()
        self.wait_events(2)
        return job

    def wait_events(self, more):
        self.events += more
        self.daemon.wait_acknowledged(self.events, "catalog")

    def ask(self, user, *command, cwd):
        return self.daemon.command(*command, check=False, cwd=cwd, user=user.pw_uid,
                                   group=user.pw_gid, extra_groups=[])

    def cleanup(self):
        if self.process:
            self.process.terminate()
            self.process.wait(60)
        self.node.cleanup()


@pytest.fixture
def site(work, make_daemon):
    site = Site(work, make_daemon)
    yield site
    site.cleanup()


def test_list_finds_the_images_that_the_archive_has_a_record_of(site):
    alice, mallory = site.node.alice, site.node.mallory
    first = site.node.directory(alice, "first")
    removed = site.node.directory(alice, "removed")
    others = site.node.directory(mallory, "others")
    jobs = [site.saved_job(*each) for each in ((alice, first), (alice, removed),
                                               (mallory, others))]
    # Any user can claim that a job of alice's has made an image somewhere.
    forged = {"format": 1, "scheduler": "slurm", "job": str(jobs[0].id),
              "checkpoint": {"action": "made", "image_path": f"{others}/checkpoint"}}
    subprocess.run(["tee", site.user_records / "forged"], check=True,
                   input=json.dumps(forged).encode() + b"\n", stdout=subprocess.DEVNULL,
                   preexec_fn=harness.become_user(mallory))
    site.wait_events(1)
    shutil.rmtree(removed / "checkpoint")

    # Without the service nothing is known, as alice may not read the catalog.
    assert "no image in" in site.ask(alice, "checkpoint", "list", cwd=site.work).stdout
    site.serve()
    found = site.ask(alice, "checkpoint", "list", "--json", cwd="/")
    assert found.returncode == 0 and found.stderr == "", found
    listed = json.loads(found.stdout)
    assert [image["path"] for image in listed["images"]] == [f"{first}/checkpoint"]
    assert [(image["path"], image["job"], image["node"]) for image in listed["gone"]] == [
        (f"{removed}/checkpoint", str(jobs[1].id), os.uname().nodename)]
    text = site.ask(alice, "checkpoint", "list", cwd="/").stdout
    assert f"{first}/checkpoint" in text
    assert ("1 image of which the archive has a record: removed, or not on this node; the newest "
            f"is {removed}/checkpoint, of job {jobs[1].id} on {os.uname().nodename}\n") in text
    # Each is there once, also where the working directory has it; a directory that is named is
    # not all that there is.
    beside = json.loads(site.ask(alice, "checkpoint", "list", "--json", cwd=first).stdout)
    assert [image["path"] for image in beside["images"]] == [f"{first}/checkpoint"]
    named = json.loads(site.ask(alice, "checkpoint", "list", "--json", removed, cwd="/").stdout)
    assert named == {"images": []}
    shutil.rmtree(first / "checkpoint")
    assert "no image in this directory, the folders in it, or where the archive has a record" in \
        site.ask(alice, "checkpoint", "list", cwd="/").stdout

    # Alice's job does not show it either; its record names who wrote it.
    shown = site.ask(alice, "show", str(jobs[0].id), cwd="/").stdout
    assert "saved on" in shown and "unverified" not in shown, shown
    [job] = json.loads(site.ask(alice, "show", "--json", str(jobs[0].id), cwd="/").stdout)
    steps = [event["user"] for event in job["later"] if event["kind"] == "job.checkpoint"]
    assert sorted((user["name"], user["verified"]) for user in steps) == sorted(
        [(alice.pw_name, True), (mallory.pw_name, False)])
    # And mallory sees nothing of that job.
    refused = site.ask(mallory, "show", str(jobs[0].id), cwd="/")
    assert refused.returncode != 0 and refused.stdout == ""
