"""The commands and the program of docs/consume.md, run as they stand there against a real
broker."""

import json
import re
import subprocess
import sys

import pytest

import harness
from kafka_lab import kafka_sink, make_kafka_daemon  # noqa: F401  (a fixture)

PAGE = harness.ROOT / "docs" / "consume.md"
TOPIC = "hpc.job-scripts.v1"


def examples():
    """{name: code} of every block that the page says is run."""
    found = re.findall(r"<!-- run: (\w+) -->\n```\w+\n(.*?)^```", PAGE.read_text(), re.M | re.S)
    assert len(found) == len({name for name, _ in found}) and len(found) == PAGE.read_text().count(
        "<!-- run"), "odd marks"
    return dict(found)


@pytest.fixture
def broker(secured_brokers):
    return secured_brokers["4.1"]


def run(name, broker):
    text = examples()[name]
    assert "kafka1.example.org:9092" in text, f"{name} names no broker"
    result = subprocess.run(["bash", "-euo", "pipefail", "-c",
                             text.replace("kafka1.example.org:9092", broker.bootstrap)],
                            capture_output=True, timeout=120)
    assert result.returncode == 0, f"{name}: {result.stderr.decode()}"
    return result.stdout


def late_owner_of_4711(broker):
    """The event that replaces the one of job 4711 comes after it, without its texts, with key and
    headers as the sink's."""
    kcat = ["kcat", "-q", "-b", broker.bootstrap, "-t", TOPIC]
    sent = subprocess.run([*kcat, "-C", "-e", "-o", "beginning"], capture_output=True, check=True,
                          timeout=120).stdout
    first, = [e for e in map(json.loads, sent.splitlines()) if e["job"]["id"] == "4711"]
    later = {**first, "id": "0" * 64, "replaces": first["id"],
             "user": {"name": "alice", "id": "1001", "verified": True},
             "script": {k: v for k, v in first["script"].items() if k not in ("text", "encoding")}}
    later.pop("environment")
    subprocess.run([*kcat, "-P", "-X", "topic.partitioner=murmur2_random", "-k", "lab/4711", "-H",
                    "content-type=application/json", "-H", "schema=scriptorium.event/1",
                    "-H", f"event-id={later['id']}"], input=json.dumps(later).encode(), check=True,
                   timeout=120)


def test_every_example_of_the_page_does_what_it_says(make_kafka_daemon, broker, spool, work):
    for command in ("kcat", "jq"):
        if subprocess.run(["sh", "-c", f"command -v {command}"],
                          capture_output=True).returncode != 0:
            pytest.skip(f"no {command}")
    broker.create(TOPIC, partitions=3)
    broker.create("sarchive")
    scripts = {str(job): b"#!/bin/bash\nmodule load GROMACS/2023.1\n%ssrun gmx %d # \xc3\xa4\n"
               % (b"module load Python\n" * (job % 2), job)
               for job in range(4705, 4715)}
    for job, script in scripts.items():
        spool.write(int(job), script=script, environment=[b"FLAGS=a=b", b"HOME=/home/a"])
    daemon = make_kafka_daemon({"kafka": kafka_sink(broker, TOPIC),
                                "sarchive": kafka_sink(broker, "sarchive", format="sarchive",
                                                       key="")}, archive=False)
    daemon.command("run", "--once")

    lines = run("list", broker).decode().splitlines()
    assert sorted(line.split()[0] for line in lines) == sorted(f"lab/{job}" for job in scripts)
    assert run("one", broker) == scripts["4711"]
    assert [line.split() for line in run("modules", broker).decode().splitlines()] \
        == [["10", "GROMACS/2023.1"], ["5", "Python"]]
    late_owner_of_4711(broker)
    assert run("one", broker) == scripts["4711"], "the event without a text hides none"
    assert [line.split() for line in run("modules", broker).decode().splitlines()] \
        == [["10", "GROMACS/2023.1"], ["5", "Python"]]
    key, headers = run("headers", broker).decode().splitlines()
    assert key.removeprefix("lab/") in scripts
    names = dict(h.split("=", 1) for h in headers.split(","))
    assert (names["content-type"], names["schema"]) == ("application/json", "scriptorium.event/1") \
        and len(names["event-id"]) == 64
    import base64
    assert run("sarchive", broker).decode().splitlines() \
        == sorted(f"{j} {base64.b64encode(s).decode()}" for j, s in scripts.items())
    assert set(examples()) == {"list", "one", "modules", "headers", "sarchive",
                               "program"}, "an example that no test runs"


def test_the_program_of_the_page_keeps_each_script_once_however_often_it_dies(make_kafka_daemon,
                                                                              broker, make_storm,
                                                                              work):
    python = next((p for p in ("/usr/bin/python3", sys.executable)
                   if subprocess.run([p, "-c", "import confluent_kafka"],
                                     capture_output=True).returncode == 0), None)
    if python is None:
        pytest.skip("no confluent_kafka; apt-get install python3-confluent-kafka")
    topic = broker.create("program", partitions=2)
    program, folder = work / "keep-scripts.py", work / "kept"
    program.write_text(examples()["program"])
    folder.mkdir()
    daemon = make_kafka_daemon({"kafka": kafka_sink(broker, topic)}, archive=False).start()
    storm = make_storm(harness.storm_jobs(500)).finish()
    wanted = sorted(script for script, _ in storm.manifest().values())

    def kept():
        return [file for file in folder.iterdir() if file.suffix == ".sh"]
    for enough in (len(wanted) // 4, len(wanted)):
        with subprocess.Popen([python, str(program), broker.bootstrap, topic, str(folder)],
                              stderr=subprocess.PIPE) as consumer:
            try:
                harness.wait_for(lambda n=enough: consumer.poll() is not None or len(kept()) >= n,
                                 f"{enough} scripts are kept", 90)
                assert consumer.poll() is None, consumer.stderr.read().decode()
            finally:
                consumer.kill()
    daemon.wait_acknowledged(len(wanted), "kafka")
    assert sorted(harness.sha256(file.read_bytes()) for file in kept()) == wanted
