"""Three real brokers, of which two die under load; and a leader that is lost for good."""

import subprocess
import uuid

import pytest

import harness
import kafka_lab
from kafka_lab import kafka_sink, make_kafka_daemon  # noqa: F401  (a fixture)


@pytest.fixture(scope="module")
def cluster(request):
    directory = kafka_lab.brokers_directory(request)
    yield from kafka_lab.running(directory, kafka_lab.Cluster(directory, "4.1"))


def impatient_producer(cluster, topic):
    """What the broker says to one that asks once and takes the answer."""
    result = subprocess.run(["kcat", "-P", "-b", cluster.bootstrap, "-t", topic, "-X", "acks=all",
                             "-X", "retries=0",
                             "-X", "message.timeout.ms=10000"], input="never stored\n",
                            capture_output=True, text=True, timeout=60)
    return result.stderr


def test_two_of_three_brokers_lost_hold_events_until_they_are_back_and_a_lost_leader_does_not(
    make_kafka_daemon, cluster, make_storm):
    # Leader on the broker that stays: its requests wait. Leader on one that dies: the next one says
    # NOT_ENOUGH_REPLICAS.
    topics = {"stays": cluster.create(f"stays-{uuid.uuid4().hex[:8]}", replicas="1,2,3"),
              "dies": cluster.create(f"dies-{uuid.uuid4().hex[:8]}", replicas="2,3,1")}
    lonely = cluster.create(f"lonely-{uuid.uuid4().hex[:8]}", replicas="2")
    daemon = make_kafka_daemon({name: kafka_sink(cluster, topic, stalled_after_seconds=3,
                                                 librdkafka={"reconnect.backoff.max.ms": 1000})
                                for name, topic in topics.items()}, archive=False,
                               sources=kafka_lab.OWN_EVENTS_ONLY).start()
    jobs = harness.storm_jobs(4000)
    first = make_storm(jobs, rate=500)
    daemon.wait_status(lambda s: all(s["sinks"][n]["acknowledged"] >= jobs // 10 for n in topics),
                       "both sinks deliver")
    cluster.kill_nodes(2, 3)
    first.finish()
    for name in topics:
        daemon.wait_log(rf"KAFKA_STALLED.*\b{name}\b", seconds=60)
    # Without a dead broker in the in-sync set there is one replica of the two that it takes;
    # nothing is appended.
    harness.wait_for(lambda: cluster.admin("leader", topics["dies"]) == "1",
                     "the broker that stays leads", seconds=60)
    assert "Not enough in-sync replicas" in impatient_producer(cluster, topics["dies"])
    share = kafka_lab.assert_quiet(daemon, "two of three brokers are dead", seconds=5)
    print(f"two of three brokers dead: {share:.2%} of a core")
    status = daemon.status()["sinks"]
    for name in topics:
        assert status[name]["dead"] == 0 and status[name]["waiting"] > 0, (name, status[name])
    # Of the one topic that is nowhere else, `check` says so.
    checked = make_kafka_daemon({"kafka": kafka_sink(cluster, lonely)},
                                archive=False).command("check", check=False)
    assert checked.returncode == harness.EX_UNAVAILABLE, checked.stdout
    assert f"topic {lonely}: partition 0 has no leader" in checked.stdout + checked.stderr
    cluster.start_nodes(2, 3)
    manifest = first.manifest()
    for name, topic in topics.items():
        daemon.wait_acknowledged(len(manifest), name, seconds=180)
        kafka_lab.compare(cluster.read(topic), manifest)

    # One broker is lost for good: another becomes leader, and delivery continues.
    leader = {name: int(cluster.admin("leader", topic)) for name, topic in topics.items()}
    victim = leader["dies"] if leader["dies"] != 1 else 2
    second = make_storm(jobs // 2, first_id=jobs + 1, rate=500)
    daemon.wait_status(lambda s: all(s["sinks"][n]["acknowledged"] >= jobs + jobs // 20
                                     for n in topics), "both sinks deliver again")
    cluster.kill_nodes(victim)
    second.finish()
    manifest.update(second.manifest())
    for name, topic in topics.items():
        daemon.wait_acknowledged(len(manifest), name, seconds=180)
        assert int(cluster.admin("leader", topic)) != victim
        kafka_lab.compare(cluster.read(topic), manifest)
