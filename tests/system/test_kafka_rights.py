"""Rights that are missing or taken away, topics that are not there or deleted: events wait, one
loud line says why, and they arrive once an administrator has mended it."""

import re
import uuid

import harness
import kafka_lab
from kafka_lab import kafka_sink, make_kafka_daemon, sasl  # noqa: F401  (fixtures)


# Four sinks for each broker, in one daemon:
#   revoked   may write, then may not
#   stranger  may write nowhere, so that the broker gives its producer no id, which ends it with a
#             fatal error
#   later     its topic is not there yet
#   deleted   its topic is deleted while events come
REASONS = {"revoked": "no right to write", "stranger": "no right to write",
           "later": "topic does not exist", "deleted": "topic does not exist"}
IMPATIENT = {"topic.metadata.propagation.max.ms": 1000, "topic.metadata.refresh.interval.ms": 1000}


class Case:
    def __init__(self, what, version, broker, work, certificates):
        self.what, self.broker = what, broker
        self.sink = f"{what}-{version}"
        self.topic = f"{self.sink}-{uuid.uuid4().hex[:8]}"
        self.user = {"revoked": "scriptorium", "stranger": "stranger"}.get(what)
        if self.user:
            self.options = sasl(work, certificates, broker, self.topic, user=self.user)
        else:
            self.options = kafka_sink(broker, self.topic, librdkafka=IMPATIENT)
        if what != "later":
            broker.create(self.topic)
        if what == "revoked":
            broker.allow("User:scriptorium", self.topic)
        self.delivers_at_first = what in ("revoked", "deleted")

    def spoil(self):
        if self.what == "revoked":
            self.broker.revoke("User:scriptorium", self.topic)
        elif self.what == "deleted":
            self.broker.admin("delete", self.topic)

    def mend(self):
        if self.user:
            self.broker.allow(f"User:{self.user}", self.topic)
        else:
            self.broker.create(self.topic)


def test_missing_rights_and_topics_hold_events_loudly_and_lose_none(make_kafka_daemon,
                                                                    secured_brokers, certificates,
                                                                    make_storm, work):
    # At brokers of both versions at once: what takes long here is waiting.
    cases = [Case(what, version.replace(".", ""), broker, work, certificates)
             for version, broker in secured_brokers.items() for what in REASONS]
    daemon = make_kafka_daemon({case.sink: case.options for case in cases}, archive=False)
    checked = daemon.command("check", check=False)
    assert checked.returncode == harness.EX_UNAVAILABLE
    said = checked.stdout + checked.stderr
    for topic in (case.topic for case in cases if case.what == "stranger"):
        assert re.search(rf"topic {topic}: .*give the user WRITE", said), said
    for topic in (case.topic for case in cases if case.what == "later"):
        assert re.search(rf"topic {topic}: the topic does not exist.*--create --topic {topic}",
                         said), said

    daemon.start()
    # A stranger's producer is given up before there is a message to send: that must be said as
    # well.
    daemon.wait_status(lambda s: all(s["sinks"][c.sink]["plugin_status"]["producers_given_up"] >= 1
                                     for c in cases if c.what == "stranger"),
                       "the strangers' producers are given up")
    first = make_storm(50).finish().manifest()
    for case in cases:
        if case.delivers_at_first:
            daemon.wait_acknowledged(50, case.sink)
    for case in cases:
        case.spoil()
    second = make_storm(50, first_id=51).finish().manifest()
    for case in cases:
        daemon.wait_status(lambda s,
                           c=case: REASONS[c.what] in (s["sinks"][c.sink]["last_error"] or ""),
                           f"status says why {case.sink} waits")
    status, log = daemon.status()["sinks"], daemon.log_text()
    for case in cases:
        it = status[case.sink]
        assert it["dead"] == 0 and it["waiting"] == (50 if case.delivers_at_first
                                                     else 100), (case.sink, it)
        message = "KAFKA_NOT_AUTHORIZED" if case.user else "KAFKA_TOPIC"
        loud = [line for line in log.splitlines()
                if re.search(rf"\b{message}\b.*\bsink={case.sink}\b", line)]
        assert len(loud) == 1 and case.topic in loud[0], f"{case.sink}: {len(loud)} lines\n" \
            + "\n".join(loud)

    for case in cases:
        case.mend()
    for case in cases:
        daemon.wait_acknowledged(100, case.sink)
        # The first fifty of a deleted topic went with it.
        kafka_lab.compare(case.broker.read(case.topic), second if case.what == "deleted"
                          else {**first, **second})
        assert daemon.sink(case.sink)["dead"] == 0
