"""Brokers and daemons that die, hang and come back under load: nothing missing at the consumer, and
nothing twice but after a SIGKILL of the daemon."""

import json
import random
import signal
import time
import uuid

import pytest

import harness
import kafka_lab
from kafka_lab import kafka_sink, make_kafka_daemon  # noqa: F401  (a fixture)

SEED = 20261121
OUTAGE_SECONDS = 60


def pytest_generate_tests(metafunc):
    """On a broker of each version; a minute without one is the same for all of them."""
    if "broker" in metafunc.fixturenames:
        once = metafunc.function.__name__.startswith("test_a_broker_away_for_a_minute")
        metafunc.parametrize("broker", list(kafka_lab.VERSIONS)[:1 if once else None],
                             indirect=True, scope="module")


@pytest.fixture(scope="module")
def broker(request):
    directory = kafka_lab.brokers_directory(request)
    yield from kafka_lab.running(directory, kafka_lab.Broker(directory, request.param))


@pytest.fixture
def topic(broker):
    """A new topic; and whatever a test did to the broker, the next one finds it alive."""
    broker.thaw()
    if not all(harness._alive(pid) for pid in broker.pids()):
        broker.start()
    return broker.create(f"faults-{uuid.uuid4().hex[:8]}", partitions=2)


@pytest.fixture
def daemon(make_kafka_daemon, broker, topic):
    daemon = make_kafka_daemon({"kafka": kafka_sink(broker, topic,
                                                    librdkafka={
                                                        "reconnect.backoff.max.ms": 1000})},
                               archive=False,
                               sources=kafka_lab.OWN_EVENTS_ONLY, shutdown_seconds=5)
    yield daemon.start()
    broker.thaw()


def finish(daemon, broker, topic, *storms, duplicates=0):
    """Until all is acknowledged; then what a consumer has. Returns how many messages were there
    twice."""
    manifest = {}
    for storm in storms:
        manifest.update(storm.finish().manifest())
    daemon.wait_acknowledged(len(manifest), "kafka")
    status = daemon.sink("kafka")
    assert status["dead"] == 0 and status["acknowledged_total"] == len(manifest), status
    return kafka_lab.compare(broker.read(topic), manifest, duplicates)


def acknowledged(daemon, count):
    daemon.wait_status(lambda s: s["sinks"]["kafka"]["acknowledged"] >= count,
                       f"{count} are acknowledged")


def test_a_broker_killed_and_started_again_under_load_costs_nothing(daemon, broker, topic,
                                                                    make_storm):
    jobs = harness.storm_jobs(6000)
    storm = make_storm(jobs, rate=600)
    for part in (1, 2):
        acknowledged(daemon, jobs * part // 4)
        broker.kill()
        broker.start()
    finish(daemon, broker, topic, storm)


def test_a_hung_broker_costs_no_processor_and_loses_nothing(daemon, broker, topic, make_storm):
    jobs = harness.storm_jobs(1000)
    storm = make_storm(jobs, rate=500)
    acknowledged(daemon, 50)
    broker.freeze()
    storm.finish()
    # Capture is finished before the clock starts, so that only delivery is measured.
    status = daemon.wait_status(lambda s: s["sources"]["slurm"]["captured"] == jobs,
                                "all are captured")
    assert status["sinks"]["kafka"]["waiting"] > 0, status
    kafka_lab.assert_quiet(daemon, "the broker hangs", seconds=10)
    broker.thaw()
    finish(daemon, broker, topic, storm)


def test_sigterm_with_messages_in_flight_leaves_none_out_and_none_twice(daemon, broker, topic,
                                                                        make_storm):
    jobs = harness.storm_jobs(4000) // 4
    storms = []
    # each life has its own storm, so that something is under way at its end however slow we
    # are
    for part in range(4):
        storms.append(make_storm(jobs, first_id=1 + part * jobs, rate=800))
        acknowledged(daemon, jobs // 5)
        assert daemon.terminate() == 0
        daemon.start()
    finish(daemon, broker, topic, *storms)


@pytest.mark.parametrize("broker_is", ["away", "hung"])
def test_sigterm_while_nothing_answers_ends_in_time_and_keeps_everything(daemon, broker, topic,
                                                                         make_storm, broker_is):
    storm = make_storm(harness.storm_jobs(1000), rate=500)
    acknowledged(daemon, 50)
    (broker.kill if broker_is == "away" else broker.freeze)()
    storm.finish()
    daemon.wait_status(lambda s: s["sinks"]["kafka"]["waiting"] > 50, "events wait")
    assert daemon.terminate() == 0
    (broker.start if broker_is == "away" else broker.thaw)()
    daemon.start()
    # What a broker stored and could not answer for any more comes again after the restart: a hung
    # one stores what lies in its socket once it wakes up, and a killed one may have died between
    # the two.
    twice = finish(daemon, broker, topic, storm, duplicates=500)
    print(f"SIGTERM, broker {broker_is}: {twice} messages twice")


def test_sigkill_with_messages_in_flight_loses_none_and_at_most_what_was_in_flight_comes_twice(
    daemon, broker, topic, make_storm):
    chance = random.Random(SEED)
    jobs = harness.storm_jobs(5000)
    storm = make_storm(jobs, rate=800)
    kills = 4
    for kill in range(kills):
        target = jobs * (kill + 1) // (kills + 2) + chance.randrange(100)
        harness.wait_for(lambda t=target: broker.count(topic) >= t, f"{target} messages",
                         step=0.005)
        daemon.process.send_signal(signal.SIGKILL)
        daemon.process.wait()
        daemon.start()
    # One batch of at most batch_max_events was under way at each.
    twice = finish(daemon, broker, topic, storm, duplicates=500 * kills)
    print(f"{kills} SIGKILLs: {twice} messages twice of {jobs}")


def test_a_broker_away_for_a_minute_delays_its_own_sink_only_and_loses_nothing(make_kafka_daemon,
                                                                               broker, topic,
                                                                               make_storm,
                                                                               archive):
    """In the middle of 10,000 jobs: the file tree does not notice, and Kafka has all of them
    after."""
    jobs = harness.storm_jobs(10_000)
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
