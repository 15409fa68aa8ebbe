"""Every event that the daemon makes of a recorded spool entry is one of the published schema."""

import base64
import json
import shutil

import pytest

import harness

jsonschema = pytest.importorskip("jsonschema",
                                 reason="python3-jsonschema is not installed: no event was held "
                                        "against the schema")

SCHEMA = json.loads((harness.ROOT / "docs/schema/event-1.schema.json").read_text())
FIXTURES = harness.ROOT / "tests/fixtures/slurm"


@pytest.fixture(scope="module")
def validator():
    kind = jsonschema.validators.validator_for(SCHEMA)
    kind.check_schema(SCHEMA)
    return kind(SCHEMA)


@pytest.fixture
def recorded(spool):
    """A spool with every recorded entry, and two that are broken."""
    count = 0
    for entry in sorted(FIXTURES.glob("*/hash.*/job.*")):
        target = spool.path / entry.parent.name / entry.name
        target.parent.mkdir(exist_ok=True)
        shutil.copytree(entry, target)
        count += 1
    assert count >= 36
    spool.make_entry(9001)
    spool.write_script(9001, b"#!/bin/sh\n")  # no environment
    spool.make_entry(9002)
    # one string too many
    (spool.entry(9002) / "environment").write_bytes(b"\x01\x00\x00\x00A=1\x00B=2\x00")
    spool.write_script(9002, b"#!/bin/sh\n")
    return count + 2


def test_events_of_all_recorded_entries_are_of_the_schema(make_daemon, recorded, spool, validator):
    daemon = make_daemon(sources={"slurm": {"incomplete_after_seconds": 1}},
                         sinks={"archive": None, "lines": {"plugin": "stdout"}})
    events = []

    def all_there():
        result = daemon.command("run", "--once", seconds=60, check=False)
        events.extend(json.loads(line) for line in result.stdout.splitlines())
        return len(events) >= recorded
    # The entry that never gets an environment is taken once it is old enough.
    harness.wait_for(all_there, lambda: f"{len(events)} of {recorded} events", 60, 0.3)
    assert len({event["id"] for event in events}) == recorded
    for event in events:
        errors = [f"{'/'.join(map(str, e.path))}: {e.message[:200]}"
                  for e in validator.iter_errors(event)]
        assert not errors, (event["job"]["id"], errors)
    by_id = {event["job"]["id"]: event for event in events}
    assert by_id["9001"]["complete"] is False
    assert by_id["9002"]["environment_format"] == "raw"
    script = (spool.entry(50) / "script").read_bytes()[:-1]
    assert by_id["50"]["script"]["encoding"] == "base64" \
        and base64.b64decode(by_id["50"]["script"]["text"]) == script
    assert by_id["53"]["environment"]["MULTILINE"] == "line 1\nFAKE=injected\nUSER=root\n"
    assert "lossy" in by_id["72"]


def test_the_schema_can_say_no(validator):
    assert not validator.is_valid({"schema": "scriptorium.event/1"})
