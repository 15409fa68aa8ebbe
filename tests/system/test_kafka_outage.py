"""A broker that is away for a minute in the middle of 10,000 jobs: the file tree does not notice,
and Kafka has all of them after."""

import json
import time
import uuid

import pytest

import harness
import kafka_lab
from kafka_lab import kafka_sink, make_kafka_daemon  # noqa: F401  (a fixture)

OUTAGE_SECONDS = 60


@pytest.fixture(scope="module")
def broker(request):
    directory = kafka_lab.brokers_directory(request)
    yield from kafka_lab.running(directory, kafka_lab.Broker(directory, "3.9"))


def test_a_broker_away_for_a_minute_delays_its_own_sink_only_and_loses_nothing(make_kafka_daemon,
                                                                               broker, make_storm,
                                                                               archive):
    jobs = harness.storm_jobs(10_000)
    topic = broker.create(f"outage-{uuid.uuid4().hex[:8]}")
    daemon = make_kafka_daemon({"kafka": kafka_sink(broker, topic, retry_max_ms=60_000)},
                               sources=kafka_lab.OWN_EVENTS_ONLY).start()
    storm = make_storm(jobs, rate=1000)
    daemon.wait_status(lambda s: s["sinks"]["kafka"]["acknowledged"] >= jobs // 4,
                       "a quarter is in Kafka")
    broker.kill()
    down = time.monotonic()
    storm.finish()
    manifest = storm.manifest()
    daemon.wait_acknowledged(jobs, "archive", seconds=300)  # while there is no broker
    complete = time.monotonic() - down
    archive.compare(manifest)
    status = daemon.status()["sinks"]
    assert status["kafka"]["waiting"] > 0 and status["kafka"]["dead"] == 0, status["kafka"]
    assert status["archive"]["waiting"] == 0
    daemon.wait_status(lambda s: "nothing listens there" in json.dumps(s["sinks"]["kafka"]),
                       "status says that no broker is there")
    quiet = kafka_lab.assert_quiet(daemon, "the broker is away", seconds=10)
    harness.wait_for(lambda: time.monotonic() - down >= OUTAGE_SECONDS, "the minute is over",
                     OUTAGE_SECONDS + 60, step=0.5)
    broker.start()
    back = time.monotonic()
    daemon.wait_acknowledged(jobs, "kafka", seconds=180)
    print(f"file tree complete {complete:.1f} s after the broker died; Kafka complete "
          f"{time.monotonic() - back:.1f} s after it was back; "
          f"{quiet:.2%} of a core meanwhile")
    kafka_lab.compare(broker.read(topic), manifest)
