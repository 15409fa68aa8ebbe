"""What consumers of a real Kafka broker get, how the sink signs in, and what it says when it
cannot."""

import base64
import collections
import datetime
import json
import random
import re
import shutil
import signal
import subprocess

import pytest

import harness
import kafka_lab
from kafka_lab import broker, kafka_sink, make_kafka_daemon, mtls, new_topic, sasl, \
        tls  # noqa: F401  (fixtures)

FIXTURES = harness.ROOT / "tests/fixtures/slurm"


@pytest.fixture(scope="module")
def other_certificates(tmp_path_factory):
    """Of a CA that the broker knows nothing of."""
    return kafka_lab.make_certificates(tmp_path_factory.mktemp("other-pki"))


@pytest.fixture
def recorded(spool):
    """Every entry that a real Slurm wrote: job id -> (script, environment) as an archive must hold
    them."""
    jobs = {}
    for entry in sorted(FIXTURES.glob("*/hash.*/job.*")):
        target = spool.path / entry.parent.name / entry.name
        target.parent.mkdir(exist_ok=True)
        shutil.copytree(entry, target)
        jobs[entry.name[len("job."):]] = ((entry / "script").read_bytes()[:-1],
                                          (entry / "environment").read_bytes()[4:])
    assert len(jobs) >= 36
    return jobs


def variables(environment):
    """As a JSON object holds them: of equal names the last one; what is not UTF-8 becomes U+FFFD. A
    name may begin with "="."""
    strings = [text.decode("utf-8", "replace") for text in environment.split(b"\0")[:-1]]
    return {text[:1] + text[1:].partition("=")[0]: text[1:].partition("=")[2] for text in strings}


# ---- content -------------------------------------------------------------------------------------
def test_every_recorded_job_arrives_whole_in_each_format(make_kafka_daemon, broker, new_topic,
                                                         recorded):
    topics = {name: new_topic(name, partitions=3) for name in ("event", "sarchive", "binary",
                                                               "structured")}
    sinks = {"event": kafka_sink(broker, topics["event"]),
             "sarchive": kafka_sink(broker, topics["sarchive"], format="sarchive"),
             "binary": kafka_sink(broker, topics["binary"], format="cloudevents"),
             "structured": kafka_sink(broker, topics["structured"], format="cloudevents",
                                      cloudevents_mode="structured")}
    daemon = make_kafka_daemon(sinks, archive=False)
    daemon.command("run", "--once", seconds=120)
    messages = {name: broker.read(name_of) for name, name_of in topics.items()}
    for name, got in messages.items():
        assert sorted(m.key for m in got) == sorted(f"lab/{job}"
                                                    for job in recorded), f"keys of {name}"
        for m in got:
            assert m.partition == kafka_lab.murmur2_partition(m.key, 3), \
        f"{name}: {m.key} is where Java would not look for it"

    event_schema = kafka_lab.validator("event-1.schema.json")
    events = {}
    for m in messages["event"]:
        event = m.json()
        kafka_lab.assert_valid(event_schema, event, m.key)
        events[event["job"]["id"]] = event
        script, environment = recorded[event["job"]["id"]]
        assert kafka_lab.script_bytes(event) == script, m.key
        assert event["script"]["sha256"] == harness.sha256(script), m.key
        assert event.get("environment", {}) == variables(environment), m.key
        assert m.headers["content-type"] == "application/json"
        assert m.headers["schema"] == "scriptorium.event/1"
        assert m.headers["event-id"] == event["id"]
        assert m.timestamp_ms == epoch_ms(event["time"]), "a message's time is its event's"
    assert len(events) == len(recorded)

    sarchive_schema = kafka_lab.validator("sarchive-1.schema.json")
    for m in messages["sarchive"]:
        kafka_lab.assert_valid(sarchive_schema, m.json(), m.key)
        pairs = json.loads(m.value, object_pairs_hook=lambda p: p)
        assert [name for name, _ in pairs] == ["id", "timestamp", "cluster", "script",
                                               "environment"], "the order of serde's struct"
        document = m.json()
        script, environment = recorded[document["id"]]
        assert document["script"] == script.decode("utf-8", "replace"), m.key
        assert (document["environment"] or {}) == variables(environment), m.key
        assert document["cluster"] == "lab"

    structured_schema = kafka_lab.validator("cloudevents-event-1.schema.json")
    for m in messages["binary"]:
        assert m.headers["content-type"] == "application/json"
        assert m.json() == events[m.json()["job"]["id"]], \
        "binary mode: the value is the event itself"
        check_cloudevents_headers(m, m.json())
    for m in messages["structured"]:
        envelope = m.json()
        kafka_lab.assert_valid(structured_schema, envelope, m.key)
        assert m.headers["content-type"].startswith("application/cloudevents+json")
        assert envelope["data"] == events[envelope["subject"]]
        assert (envelope["id"], envelope["time"]) == (envelope["data"]["id"],
                                                      envelope["data"]["time"])

    # Kafka's own client, which shares no code with the sink, reads the same bytes at the same
    # places.
    seen = java_consumer(broker, topics["event"])
    assert seen == {m.key: (m.partition, m.partition, harness.sha256(m.value.encode()), m.headers)
                    for m in messages["event"]}


def check_cloudevents_headers(message, event):
    headers = message.headers
    assert headers["ce_specversion"] == "1.0"
    assert headers["ce_id"] == event["id"]
    assert headers["ce_type"] == "scriptorium.job.script.v1"
    assert headers["ce_source"] == f"/cluster/lab/slurm/{event['host']['name']}"
    assert headers["ce_subject"] == event["job"]["id"]
    assert headers["ce_time"] == event["time"]
    assert headers["ce_partitionkey"] == message.key


def epoch_ms(text):
    moment = datetime.datetime.strptime(text[:23].rstrip("Z").ljust(23, "0") if "." in text
                                        else text[:19] + ".000", "%Y-%m-%dT%H:%M:%S.%f")
    return int(moment.replace(tzinfo=datetime.timezone.utc).timestamp() * 1000 + 0.5)


def java_consumer(broker, topic):
    """{key: (partition, partition that Java would choose, sha256 of the value, headers)}"""
    result = subprocess.run(["java", "-XX:TieredStopAtLevel=1", "-cp", f"{broker.libraries}/*",
                             str(kafka_lab.SERVERS / "kafka" / "Consume.java"), broker.bootstrap,
                             topic],
                            capture_output=True, text=True, timeout=300)
    if "HexFormat" in result.stderr or "javac" in result.stderr:
        pytest.skip("needs a JDK of 17 or more (openjdk-17-jdk-headless) for Java's own client")
    assert result.returncode == 0, result.stderr[-2000:]
    seen = {}
    for line in result.stdout.splitlines():
        partition, chosen, _, key, digest, *headers = line.split(" ")
        seen[key] = (int(partition), int(chosen), digest, dict(h.split("=", 1) for h in headers))
    return seen


def test_what_happens_to_one_job_stays_in_its_order(make_kafka_daemon, broker, new_topic, spool):
    name = new_topic(partitions=3)
    daemon = make_kafka_daemon({"kafka": kafka_sink(broker, name, workers=1)},
                               archive=False).start()
    rounds, jobs = 4, 6
    for turn in range(rounds):
        for job in range(1, jobs + 1):
            spool.write(job, script=b"#!/bin/sh\necho %d in round %d\n" % (job, turn))
        daemon.wait_acknowledged((turn + 1) * jobs, "kafka")
        for job in range(1, jobs + 1):
            spool.remove(job)
        # The id is used again, as after a wrap: another event of the same key.
        daemon.wait_status(lambda s, t=turn: s["sources"]["slurm"]["captured"] == (t + 1) * jobs,
                           "captured")
    by_key = collections.defaultdict(list)
    for m in broker.read(name):
        by_key[m.key].append((m.partition, m.offset,
                              kafka_lab.script_bytes(m.json()).decode().split()[-1]))
    assert len(by_key) == jobs
    for key, places in by_key.items():
        assert len({partition for partition, _, _ in places}) == 1, \
        f"{key} is in several partitions"
        assert [turn for _, _, turn
                in sorted(places, key=lambda p: p[1])] == [str(t) for t in range(rounds)], key


# ---- signing in ----------------------------------------------------------------------------------
def scram_works(broker):
    """Kafka 4 refuses the SCRAM of a librdkafka that repeats its nonce."""
    return broker.version.startswith("3") or kafka_lab.librdkafka_version() >= (2, 6, 1)


def test_each_way_to_sign_in_delivers(make_kafka_daemon, broker, new_topic, certificates, spool,
                                      work):
    ways = {"plain": lambda t: sasl(work, certificates, broker, t),
            "mtls": lambda t: mtls(certificates, broker, t)}
    if scram_works(broker):
        ways["scram256"] = lambda t: sasl(work, certificates, broker, t, "SCRAM-SHA-256")
        ways["scram512"] = lambda t: sasl(work, certificates, broker, t, "SCRAM-SHA-512")
    topics = {name: new_topic(name) for name in ways}
    for name, name_of in topics.items():
        broker.allow("User:CN=scriptorium" if name == "mtls" else "User:scriptorium", name_of)
    manifest = {}
    for job in range(1, 21):
        script, environment = spool.write(job)
        manifest[str(job)] = (harness.sha256(script), harness.sha256(environment))
    daemon = make_kafka_daemon({name: way(topics[name]) for name, way in ways.items()},
                               archive=False)
    daemon.command("check", seconds=120)
    daemon.command("run", "--once", seconds=120)
    for name, name_of in topics.items():
        kafka_lab.compare(broker.read(name_of), manifest)


def test_a_corrected_password_is_read_again_at_reload(make_kafka_daemon, broker, new_topic,
                                                      certificates, spool, work):
    name = new_topic()
    broker.allow("User:scriptorium", name)
    options = sasl(work, certificates, broker, name, password="not-the-password")
    daemon = make_kafka_daemon({"kafka": options}, archive=False).start()
    spool.write(1)
    daemon.wait_status(lambda s: re.search("password|sign in|authenticat",
                                           json.dumps(s["sinks"]["kafka"]), re.I),
                       "status says why")
    kafka_lab.secret_file(work, options["sasl_password_file"].rsplit("/", 1)[1], "plain-secret")
    daemon.process.send_signal(signal.SIGHUP)
    daemon.wait_acknowledged(1, "kafka")
    everything = daemon.log_text() + json.dumps(daemon.status())
    assert "not-the-password" not in everything and "plain-secret" not in everything


# What an administrator reads, by cause. Each must say its own cause, and none what is not true.
ERRORS = {
    "wrong-password": r"login refused.*sasl_username and the password",
    "scram-password": r"login refused.*password",
    "mechanism": r"does not offer sasl_mechanism OAUTHBEARER.*SCRAM",
    "unknown-ca": r"not signed by an authority",
    "name-mismatch": r"another host name",
    "no-certificate": r"wants a client certificate; set tls_certificate_file",
    "foreign-certificate": r"does not take the client certificate",
    "tls-to-plaintext": r"does not speak TLS",
    "sasl-to-plaintext": r"asks for no login",
    "plaintext-to-tls": r"speaks TLS",
    "refused": r"nothing listens there",
    "unknown-host": r"host name is not known",
}


def error_sinks(broker, topic, certificates, other, work):
    port = kafka_lab.free_ports(1)
    return {
        "wrong-password": sasl(work, certificates, broker, topic, password="not-the-password"),
        "scram-password": sasl(work, certificates, broker, topic, "SCRAM-SHA-512",
                               password="not-the-password"),
        "mechanism": kafka_sink(broker, topic, brokers=broker.sasl, **tls(certificates),
                                sasl_mechanism="OAUTHBEARER",
                                sasl_token_file=kafka_lab.secret_file(work, "token",
                                                                      kafka_lab.unsecured_token(
                                                                          "scriptorium"))),
        "unknown-ca": mtls(certificates, broker, topic, tls_ca_file=str(other / "ca.pem")),
        "name-mismatch": mtls(certificates, broker, topic, brokers=f"127.1:{broker.port + 3}"),
        "no-certificate": kafka_sink(broker, topic, brokers=broker.mtls, **tls(certificates)),
        "foreign-certificate": mtls(certificates, broker, topic, client=other),
        "tls-to-plaintext": kafka_sink(broker, topic, **tls(certificates)),
        "sasl-to-plaintext": {**sasl(work, certificates, broker, topic, brokers=broker.bootstrap),
                              "tls_ca_file": None,
                              "security_protocol": "sasl_plaintext"},
        "plaintext-to-tls": kafka_sink(broker, topic, brokers=broker.mtls),
        "refused": kafka_sink(broker, topic, brokers=f"127.0.0.1:{port}"),
        "unknown-host": kafka_sink(broker, topic, brokers="no-such-host.invalid:9092"),
    }


def test_every_connection_error_is_said_in_its_own_words_by_check_status_and_log(make_kafka_daemon,
                                                                                 broker, new_topic,
                                                                                 certificates,
                                                                                other_certificates,
                                                                                 spool, work):
    name = new_topic()
    sinks = error_sinks(broker, name, certificates, other_certificates, work)
    if not scram_works(broker):
        del sinks["scram-password"]  # has its own test
    daemon = make_kafka_daemon(sinks, archive=False)
    result = daemon.command("check", check=False, seconds=300)
    assert result.returncode == harness.EX_UNAVAILABLE, result.stdout + result.stderr
    said = result.stdout + result.stderr
    for sink in sinks:
        lines = [line for line in said.splitlines() if re.search(rf"\b{sink}\b", line)]
        assert any(re.search(ERRORS[sink], line)
                   for line in lines), f"check says nothing right of {sink}:\n{said}"

    spool.write(1)
    daemon.start()
    for sink in sinks:
        daemon.wait_status(lambda s, k=sink: re.search(ERRORS[k], json.dumps(s["sinks"][k])),
                           f"status says why {sink} is down")
        daemon.wait_log(rf"(?m)^.*\b{sink}\b.*$")
    log = daemon.log_text()
    for sink in sinks:
        lines = [line for line in log.splitlines() if re.search(rf"\b{sink}\b", line)]
        assert any(re.search(ERRORS[sink], line)
                   for line in lines), f"the log says nothing right of {sink}:\n" + "\n".join(lines)
    status = daemon.status()
    everything = said + log + json.dumps(status)
    assert "not-the-password" not in everything and "plain-secret" not in everything
    for sink in sinks:
        assert status["sinks"][sink]["dead"] == 0 and status["sinks"][sink]["waiting"] == 1, \
        (sink, status["sinks"][sink])


def test_scram_that_kafka_4_refuses_does_not_read_as_a_wrong_password(make_kafka_daemon, broker,
                                                                      new_topic, certificates,
                                                                      spool, work):
    if scram_works(broker):
        pytest.skip("SCRAM works here: Kafka 3.9, or librdkafka 2.6.1 and newer")
    daemon = make_kafka_daemon({"kafka": sasl(work, certificates, broker, new_topic(),
                                              "SCRAM-SHA-256")}, archive=False)
    result = daemon.command("check", check=False, seconds=120)
    said = result.stdout + result.stderr
    spool.write(1)
    daemon.start()
    daemon.wait_status(lambda s: "2.6.1" in json.dumps(s["sinks"]["kafka"]),
                       "status names the librdkafka that can")
    daemon.wait_log("2\\.6\\.1")
    for words in (said, daemon.log_text()):
        assert re.search(r"SCRAM", words) and "2.6.1" in words and re.search(r"Kafka 4",
                                                                             words), words


# ---- too large -----------------------------------------------------------------------------------
def noise(count):
    """Text that no codec makes much smaller."""
    return base64.b64encode(random.Random(count).randbytes(count * 3 // 4))


@pytest.mark.parametrize("policy", ["truncate", "dead_letter"])
def test_what_the_broker_finds_too_large_follows_the_policy_and_harms_no_other(make_kafka_daemon,
                                                                               broker, new_topic,
                                                                               spool, policy):
    name = new_topic(max_message_bytes=65536)
    daemon = make_kafka_daemon({"kafka": kafka_sink(broker, name, oversize=policy)})
    manifest = {}
    large = b"#!/bin/sh\n# " + noise(200_000) + b"\n"
    for job in range(1, 41):
        script, environment = spool.write(job, script=large if job == 20 else b"#!/bin/sh\n# "
                                          + noise(4000) + b"\n%d\n" % job)
        manifest[str(job)] = (harness.sha256(script), harness.sha256(environment))
    daemon.start()
    small = {job: shas for job, shas in manifest.items() if job != "20"}
    if policy == "dead_letter":
        daemon.wait_status(lambda s: s["sinks"]["kafka"]["dead"] == 1
                           and s["sinks"]["kafka"]["waiting"] == 0,
                           "one dead letter, the rest done")
        kafka_lab.compare(broker.read(name), small)
        listed = daemon.command("deadletters", "list").stdout
        assert re.search(r"(?i)too large", listed), listed
    else:
        daemon.wait_acknowledged(40, "kafka")
        messages = broker.read(name)
        kafka_lab.compare([m for m in messages if m.json()["job"]["id"] != "20"], small)
        cut = [m.json() for m in messages if m.json()["job"]["id"] == "20"]
        assert len(cut) == 1
        kafka_lab.assert_valid(kafka_lab.validator("event-1.schema.json"), cut[0],
                               "the truncated event")
        script = cut[0]["script"]
        assert script["truncated"] is True
        assert script["size"] == len(large) and script["sha256"] == manifest["20"][0], \
        "size and sha256 are the original's"
        text = script["text"].encode()
        assert large.startswith(text) and 20_000 < len(text) < 65536, len(text)
        assert daemon.sink("kafka")["dead"] == 0
    # The archive, which has no such limit, holds all of it.
    daemon.wait_acknowledged(40)
    assert (daemon.directory / "archive" / "20.sh").read_bytes() == large


def test_four_megabytes_of_ordinary_text_pass_a_broker_with_its_default_limit(make_kafka_daemon,
                                                                              broker, new_topic,
                                                                              spool):
    name = new_topic()
    script = b"#!/bin/bash\n" + b"".join(
        b"srun --ntasks=1 ./simulate --step %d --input data/%06d.in\n" % (i, i)
        for i in range(80_000))
    script = script[:4 << 20]
    spool.write(1, script=script)
    make_kafka_daemon({"kafka": kafka_sink(broker, name)}, archive=False).command("run", "--once")
    [message] = broker.read(name)
    assert kafka_lab.script_bytes(message.json()) == script
    assert "truncated" not in message.json()["script"]
