"""`scriptorium setup` makes the topic on a real broker, once, and says in what one that is there
differs."""

import subprocess
import uuid

import kafka_lab
from harness import EX_CONFIG
from kafka_lab import broker, kafka_sink, make_kafka_daemon, sasl  # noqa: F401  (fixtures)


def topics(broker):
    listed = subprocess.run(["kcat", "-L", "-b", broker.bootstrap, "-X", "log_level=0"],
                            capture_output=True, text=True, timeout=60)
    return listed.stdout


def test_setup_makes_the_topic_once_and_the_sink_delivers_to_it(make_kafka_daemon, broker, spool):
    name = f"made-{uuid.uuid4().hex[:8]}"
    spool.write(1)
    daemon = make_kafka_daemon({"kafka": kafka_sink(broker, name, topic_partitions=4)},
                               archive=False)
    printed = daemon.command("setup", "kafka", "--print").stdout
    assert f"--create --topic {name} --partitions 4 --config max.message.bytes=8388608 --config " \
           f"compression.type=producer --config cleanup.policy=delete" in printed
    assert f'"{name}"' not in topics(broker), "--print makes nothing"

    assert f"topic {name}: made with 4 partitions, 1 replica" in daemon.command("setup",
                                                                                "kafka").stdout
    assert broker.partitions(name) == 4
    again = daemon.command("setup", "kafka").stdout
    assert again == f"topic {name}: is there already with 4 partitions, 1 replica, and " \
                    f"set as wanted\n"
    daemon.command("run", "--once", seconds=120)
    assert [m.key for m in broker.read(name)] == ["lab/1"]


def test_setup_says_in_what_a_topic_differs_and_changes_nothing(make_kafka_daemon, broker, spool):
    name = broker.create(f"other-{uuid.uuid4().hex[:8]}", partitions=1, compression_type="gzip")
    daemon = make_kafka_daemon({"kafka": kafka_sink(broker, name)}, archive=False)
    said = daemon.command("setup", "kafka").stdout
    assert f"topic {name}: is there already with 1 partition, 1 replica; nothing was changed\n" \
        in said
    assert "  compression.type is gzip, wanted producer\n" in said
    assert "wanted 8388608\n" in said
    assert f"--entity-name {name} --add-config " \
           f"max.message.bytes=8388608,compression.type=producer" in said
    assert daemon.command("setup", "kafka").stdout == said


def test_a_compacted_topic_is_reported_and_costs_no_event(make_kafka_daemon, broker, spool):
    name = broker.create(f"compacted-{uuid.uuid4().hex[:8]}", cleanup_policy="compact")
    spool.write(1)
    daemon = make_kafka_daemon({"kafka": kafka_sink(broker, name, key="")}, archive=False)
    checked = daemon.command("check", check=False)
    assert checked.returncode != 0, checked.stdout
    assert "it takes no message without a key" in checked.stdout + checked.stderr
    assert "  cleanup.policy is compact, wanted delete\n" in daemon.command("setup",
                                                                            "kafka").stdout
    daemon.start().wait_log("KAFKA_REFUSED")
    status = daemon.status()["sinks"]["kafka"]
    assert status["waiting"] == 1 and status["dead"] == 0, status
    assert "a compacted topic takes none like this" in str(status)


def test_a_topic_for_tiny_messages_is_reported_and_costs_no_event(make_kafka_daemon, broker, spool):
    name = broker.create(f"tiny-{uuid.uuid4().hex[:8]}", max_message_bytes=300)
    spool.write(1)
    daemon = make_kafka_daemon({"kafka": kafka_sink(broker, name)}, archive=False)
    checked = daemon.command("check", check=False)
    assert checked.returncode != 0, checked.stdout
    assert "max.message.bytes is 300" in checked.stdout + checked.stderr
    daemon.start().wait_log("KAFKA_REFUSED.*raise its max.message.bytes")
    status = daemon.status()["sinks"]["kafka"]
    assert status["waiting"] == 1 and status["dead"] == 0, status
    broker.admin("set", name, "max.message.bytes=8388608")
    daemon.wait_acknowledged(1, "kafka")
    assert len(broker.read(name)) == 1


def test_a_topic_that_deletes_at_once_is_reported(make_kafka_daemon, broker, spool):
    name = broker.create(f"gone-{uuid.uuid4().hex[:8]}", retention_ms=1000)
    daemon = make_kafka_daemon({"kafka": kafka_sink(broker, name)}, archive=False)
    checked = daemon.command("check", check=False)
    assert checked.returncode != 0, checked.stdout
    assert "retention.ms is 1000" in checked.stdout + checked.stderr


def test_setup_without_the_right_says_so_and_how_an_administrator_does_it(make_kafka_daemon,
                                                                          broker, spool, work,
                                                                          certificates):
    name = f"denied-{uuid.uuid4().hex[:8]}"
    daemon = make_kafka_daemon({"kafka": sasl(work, certificates, broker, name)}, archive=False)
    result = daemon.command("setup", "kafka", check=False)
    assert result.returncode == EX_CONFIG, result.stdout + result.stderr
    assert "give the user CREATE on it" in result.stderr and "kafka-topics.sh" in result.stderr


def test_setup_of_a_broker_that_is_not_there_says_so(make_kafka_daemon, spool):
    daemon = make_kafka_daemon({"kafka": {"plugin": "kafka",
                                          "brokers": f"127.0.0.1:{kafka_lab.free_ports(1)}",
                                          "topic": "t"}},
                               archive=False)
    result = daemon.command("setup", "kafka", check=False)
    assert result.returncode != 0 and "127.0.0.1" in result.stderr
