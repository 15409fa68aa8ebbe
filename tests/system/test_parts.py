"""Sinks that get only some parts of an event: scripts in one place, environments in another."""

import json
import re

import pytest

from harness import config_text, sha256

SCRIPT = b"#!/bin/bash\n#SBATCH --time=1\necho a script of alice\n"
ENVIRONMENT = [b"SLURM_JOB_NAME=md", b"LAB_SITE=north", b"LAB_TOKEN=hunter2hunter2"]
KEPT = b"".join(v + b"\0" for v in ENVIRONMENT[:2])


@pytest.fixture
def sinks(work):
    def tree(name, **options):
        return {"plugin": "file", "root": str(work / name), "layout": "{job_id}.{ext}",
                "acl": "best-effort", "retry_max_ms": 500, **options}
    return {"archive": None, "scripts": tree("scripts", parts=["script", "records"]),
            "environments": tree("environments", parts=["environment"])}


@pytest.fixture
def daemon(make_daemon, sinks):
    daemon = make_daemon(sinks=sinks)
    text = daemon.config.read_text()
    daemon.config.write_text(text.replace('resolve = "none"\n',
                                          'resolve = "none"\n'
                                          'environment = { drop = ["LAB_TOKEN"] }\n'))
    return daemon


def test_each_sink_gets_its_parts_of_the_same_event(daemon, spool, work):
    spool.write(4711, SCRIPT, ENVIRONMENT)
    daemon.start()
    for sink in ("scripts", "environments"):
        daemon.wait_acknowledged(1, sink)
    found = {}
    for sink in ("scripts", "environments"):
        found[sink] = {p.suffix: p.read_bytes() for p in (work / sink).rglob("4711.*")}
    assert set(found["scripts"]) == {".sh", ".json"} and found["scripts"][".sh"] == SCRIPT
    assert set(found["environments"]) == {".env", ".json"}
    assert found["environments"][".env"] == KEPT
    events = {sink: json.loads(files[".json"]) for sink, files in found.items()}
    assert events["scripts"]["id"] == events["environments"]["id"]
    assert events["scripts"]["parts"] == ["script", "records"]
    assert events["environments"]["parts"] == ["environment"]
    assert [f["name"] for f in events["environments"]["files"]] == ["environment"]
    # Nor is there anything of the other part that could be guessed from.
    assert sha256(KEPT) not in json.dumps(events["scripts"])
    assert sha256(SCRIPT) not in json.dumps(events["environments"])

    # `show` puts the two together.
    shown = json.loads(daemon.command("show", "4711", "--json").stdout)
    assert len(shown) == 1 and len(shown[0]["stored"]) == 2
    assert {f["name"] for f in shown[0]["event"]["files"]} == {"script", "environment"}
    assert daemon.command("show", "4711", "--raw").stdout.encode() == SCRIPT
    assert daemon.command("show", "4711", "--raw", "--environment").stdout.encode() == KEPT


def test_a_sink_without_all_parts_is_not_an_archive(daemon, spool, work, sinks):
    spool.write(4711, SCRIPT, ENVIRONMENT)
    checked = daemon.command("check").stdout
    assert re.search(r"sink\.scripts.*gets only: script, records; so it cannot serve as an archive",
                     checked), checked
    daemon.start()
    daemon.wait_acknowledged(1, "scripts")
    refused = daemon.command("sinks", "fill", "environments", check=False)
    assert refused.returncode != 0
    assert "no other sink is configured that can be read" in refused.stderr
    daemon.terminate()

    # What it was given stays partial when the option is gone; later events are whole.
    del sinks["scripts"]["parts"]
    sinks["new"] = {**sinks["scripts"], "root": str(work / "new")}
    daemon.config.write_text(config_text(work, sinks=sinks))
    daemon.start()
    spool.write(4712)
    daemon.wait_acknowledged(1, "new")
    daemon.wait_status(lambda s: s["journal"]["events"] == 0, "the journal is empty")
    filled = daemon.command("sinks", "fill", "new", "--from", "scripts").stdout
    assert "1 records of the archive are left out: damaged, or without all their parts" in filled
    assert sorted(p.name for p in (work / "new").rglob("471*")) == ["4712.env", "4712.json",
                                                                    "4712.sh"]


def test_findings_are_counted_by_rule_and_once(daemon, spool):
    spool.write(4711, SCRIPT, ENVIRONMENT)
    daemon.start()
    daemon.wait_acknowledged(1, "environments")
    assert daemon.source()["redactions"]["environment"] == 1
    assert "secrets found 1 x: environment" in daemon.command("status").stdout
    # Captured before: counted no second time.
    daemon.terminate()
    daemon.start()
    daemon.wait_status(lambda s: s["sources"]["slurm"]["scans"] > 0
                       and s["sources"]["slurm"]["pending"] == 0, "the spool was scanned")
    assert daemon.source()["redactions"] == {}


def test_show_says_what_is_to_be_revoked(make_daemon, spool):
    token = b"ghp_" + b"0aB1cD2eF3gH4iJ5kL6mN7oP8qR9sT0uV1wX"
    spool.write(4711, b"#!/bin/bash\ntrue\nexport T=" + token + b"\n", [b"HF_TOKEN=hunter2"])
    daemon = make_daemon().start()
    daemon.wait_acknowledged(1)
    shown = daemon.command("show", "4711").stdout
    assert re.search(r"The job script held what looks like a .* in line 3\. It was not archived\.",
                     shown), shown
    assert "The job's variable HF_TOKEN has the name of a secret." in shown
    assert "Revoke what is secret" in shown and token.decode() not in shown
