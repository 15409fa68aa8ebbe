"""What a monitoring sees: metrics that agree with the status and with what was written, the textfile, the health check, and
that the alert rules and the dashboard ask only for metrics that exist."""

import http.client
import json
import pathlib
import re
import socket

import pytest

import harness

PACKAGING = pathlib.Path(__file__).resolve().parents[2] / "packaging" / "monitoring"


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=30)
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.connect(self.path)


def scrape(connection, accept=None):
    connection.request("GET", "/metrics", headers={"Accept": accept} if accept else {})
    answer = connection.getresponse()
    assert answer.status == 200
    return answer.getheader("Content-Type"), answer.read().decode()


def samples(text):
    """{(name, labels as text): value}"""
    found = {}
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        name, labels, value = re.fullmatch(r"([a-z_]+)(?:\{(.*)\})? (\S+)", line).groups()
        assert (name, labels) not in found, f"twice: {line}"
        found[name, labels or ""] = float(value)
    return found


def test_a_scrape_agrees_with_the_status_and_with_what_was_written(make_daemon, make_storm, work):
    daemon = make_daemon().start()
    connection = UnixConnection(work / "state" / "metrics.sock")
    storm = make_storm(500, rate=500, lifetime_ms=20)
    seen = []
    while storm.running():
        kind, text = scrape(UnixConnection(work / "state" / "metrics.sock"))
        assert kind.startswith("text/plain; version=0.0.4")
        seen.append(samples(text)["scriptorium_sink_acknowledged_total", 'sink="archive"'])
    storm.finish()
    assert seen == sorted(seen), "a counter went back"
    daemon.wait_acknowledged(500)

    status = daemon.status()
    found = samples(scrape(connection)[1])
    assert found["scriptorium_source_captured_total", 'source="slurm"'] == len(storm.manifest()) == 500
    assert found["scriptorium_sink_acknowledged_total", 'sink="archive"'] == status["sinks"]["archive"]["acknowledged"] == 500
    assert found["scriptorium_sink_waiting_events", 'sink="archive"'] == 0
    assert found["scriptorium_journal_limit_bytes", ""] == status["journal"]["limit_bytes"]
    assert sum(value for (name, _), value in found.items() if name == "scriptorium_source_missed_total") == sum(
        status["sources"]["slurm"]["missed"].values())
    # Every event was counted once in each histogram, and the buckets add up.
    assert found["scriptorium_sink_captured_to_acknowledged_seconds_count", 'sink="archive"'] == 500
    buckets = [value for (name, _), value in found.items() if name == "scriptorium_sink_captured_to_acknowledged_seconds_bucket"]
    assert buckets == sorted(buckets) and buckets[-1] == 500


def test_openmetrics_for_who_asks(make_daemon, spool, work):
    make_daemon().start()
    kind, text = scrape(UnixConnection(work / "state" / "metrics.sock"), "application/openmetrics-text; version=1.0.0")
    assert kind.startswith("application/openmetrics-text; version=1.0.0")
    assert text.endswith("\n# EOF\n")


def test_on_loopback_and_as_a_file(make_daemon, spool, work):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    textfile = work / "scriptorium.prom"
    daemon = make_daemon(metrics_listen=f"127.0.0.1:{port}", metrics_textfile=str(textfile)).start()
    kind, text = scrape(http.client.HTTPConnection("127.0.0.1", port, timeout=30))
    harness.wait_for(textfile.exists, "the textfile")
    assert set(samples(textfile.read_text())) == set(samples(text))
    daemon.terminate()
    assert not textfile.exists(), "old figures are worse than none"


def test_other_addresses_are_refused_with_file_and_line(make_daemon, spool):
    daemon = make_daemon(metrics_listen="0.0.0.0:9417")
    result = daemon.command("check", check=False)
    assert result.returncode == harness.EX_CONFIG
    assert re.search(r"scriptorium\.toml:\d+: metrics_listen: .*127\.0\.0\.1:PORT", result.stdout + result.stderr)


def test_the_health_check_follows_what_happens(make_daemon, spool, work):
    daemon = make_daemon()
    down = daemon.command("status", "--check", check=False)
    assert (down.returncode, down.stdout.count("\n")) == (2, 1), down.stdout
    assert down.stdout.startswith("SCRIPTORIUM CRITICAL - ")
    daemon.start()
    spool.write(1)
    daemon.wait_acknowledged(1)
    well = daemon.command("status", "--check")
    assert re.fullmatch(r"SCRIPTORIUM OK - 1 captured, 0 waiting \| captured=1c missed=0c waiting=0 dead=0 journal=\d+%;80;100\n",
                        well.stdout), well.stdout
    # The archive goes: with a limit of no patience at all the next event that waits is critical.
    root = work / "archive"
    root.rename(work / "away")
    root.write_text("not a folder")
    spool.write(2)
    daemon.wait_status(lambda s: s["sinks"]["archive"]["waiting"] == 1 and s["sinks"]["archive"]["last_error"], "the sink is stuck")
    behind = daemon.command("status", "--check", "--warning", "0", "--critical", "0", check=False)
    assert behind.returncode == 2 and "archive: behind by" in behind.stdout, behind.stdout
    root.unlink()
    (work / "away").rename(root)
    daemon.wait_acknowledged(2)


@pytest.mark.parametrize("name", ["scriptorium-alerts.yml", "scriptorium-dashboard.json"])
def test_rules_and_dashboard_ask_only_for_metrics_that_exist(make_daemon, spool, work, name):
    daemon = make_daemon().start()
    spool.write(1)
    daemon.wait_acknowledged(1)
    text = scrape(UnixConnection(work / "state" / "metrics.sock"))[1]
    there = set(re.findall(r"^# TYPE (\S+)", text, re.M))
    there |= {f"{family}_bucket" for family in there}
    content = (PACKAGING / name).read_text()
    if name.endswith(".json"):
        json.loads(content)
    asked = set(re.findall(r"\bscriptorium_[a-z_]+", content))
    assert len(asked) > 5
    assert asked <= there, f"no such metric: {sorted(asked - there)}"
