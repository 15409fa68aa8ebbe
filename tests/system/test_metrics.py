"""What a monitoring sees: metrics that agree with the status and with what was written, the
textfile, the health check, and that the alert rules and the dashboard ask only for metrics that
exist."""

import http.client
import json
import pathlib
import re
import shutil
import socket
import subprocess

import pytest

import harness

PACKAGING = pathlib.Path(__file__).resolve().parents[2] / "packaging" / "monitoring"


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=60)
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.connect(self.path)


def scrape(connection):
    connection.request("GET", "/metrics")
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


def total(found, name):
    """A counter's sum over all of its labels."""
    return sum(value for (family, _), value in found.items() if family == name)


def figures(status):
    """What a scrape must lie between, of two answers of the status: counters that only grow."""
    source, sink = status["sources"]["slurm"], status["sinks"]["archive"]
    return {"scriptorium_source_captured_total": source["captured"],
            "scriptorium_source_captured_by_way_total": sum(source["captured_by"].values()),
            "scriptorium_source_missed_total": sum(source["missed"].values()),
            "scriptorium_source_scans_total": source["scans"],
            "scriptorium_source_duplicates_total": source["duplicates"],
            "scriptorium_source_close_to_durable_seconds_count":
                source["close_to_durable_seconds"]["count"],
            "scriptorium_sink_acknowledged_total": sink["acknowledged"],
            "scriptorium_sink_attempts_total": sink["attempts"],
            "scriptorium_sink_retries_total": sum(sink["retries"].values()),
            "scriptorium_sink_captured_to_acknowledged_seconds_count":
                sink["captured_to_acknowledged_seconds"]["count"]}


def test_a_scrape_during_a_storm_agrees_with_the_status_and_with_the_manifest(make_daemon,
                                                                              make_storm, archive,
                                                                              work):
    jobs = harness.storm_jobs(1500)
    daemon = make_daemon().start()
    socket_path = work / "state" / "metrics.sock"
    last = {}

    def compare():
        before = figures(daemon.status())
        kind, text = scrape(UnixConnection(socket_path))
        after = figures(daemon.status())
        assert kind.startswith("text/plain; version=0.0.4")
        found = samples(text)
        for name in before:
            value = total(found, name)
            assert before[name] <= value <= after[name], \
        f"{name}: {value} is not between {before[name]} and {after[name]}"
            assert value >= last.get(name, 0), f"{name} went back"
            last[name] = value
        assert last["scriptorium_sink_acknowledged_total"] \
        <= last["scriptorium_sink_attempts_total"]
        assert max(last["scriptorium_source_captured_total"],
                   last["scriptorium_sink_acknowledged_total"]) <= jobs
    half = jobs // 2
    manifest = {}
    for first, count in ((1, half), (half + 1, jobs - half)):
        storm = make_storm(count, first_id=first, rate=500)
        while storm.running():
            compare()
        manifest |= storm.finish().manifest()
        daemon.wait_acknowledged(1)
        compare()
        # One at least falls into the middle, however slow the machine is.
        assert 0 < last["scriptorium_sink_acknowledged_total"] <= len(manifest)
    daemon.wait_acknowledged(jobs)

    # At rest the three agree to the job.
    archive.compare(manifest)
    status = daemon.status()
    found = samples(scrape(UnixConnection(socket_path))[1])
    assert {name: total(found, name) for name in figures(status)} == figures(status)
    assert total(found, "scriptorium_source_captured_total") == len(manifest) == jobs
    assert total(found, "scriptorium_source_captured_by_way_total") == jobs
    assert total(found, "scriptorium_sink_acknowledged_total") \
        == status["sinks"]["archive"]["acknowledged_total"] == jobs
    assert total(found, "scriptorium_source_missed_total") == 0
    assert found["scriptorium_sink_waiting_events",
                 'sink="archive"'] == found["scriptorium_sink_dead_letters", 'sink="archive"'] == 0
    assert found["scriptorium_journal_limit_bytes", ""] == status["journal"]["limit_bytes"]
    # Every event was counted once in each histogram, and the buckets add up.
    assert found["scriptorium_sink_captured_to_acknowledged_seconds_count",
                 'sink="archive"'] == jobs
    buckets = [value for (name, _), value in found.items()
               if name == "scriptorium_sink_captured_to_acknowledged_seconds_bucket"]
    assert buckets == sorted(buckets) and buckets[-1] == jobs


def test_on_loopback_and_as_a_file(make_daemon, spool, work):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    textfile = work / "scriptorium.prom"
    daemon = make_daemon(metrics_listen=f"127.0.0.1:{port}", metrics_textfile=str(textfile)).start()
    kind, text = scrape(http.client.HTTPConnection("127.0.0.1", port, timeout=60))
    # Written before the first scrape is answered, and like it only when everything runs: so nothing
    # is in one and not in the other. Only what is ignored may come at any time, by what other
    # programs write on this file system.
    def rows(figures):
        return {row for row in samples(figures) if row[0] != "scriptorium_source_ignored_total"}
    assert rows(textfile.read_text()) == rows(text)
    daemon.terminate()
    assert not textfile.exists(), "old figures are worse than none"


def test_other_addresses_are_refused_with_file_and_line(make_daemon, spool):
    daemon = make_daemon(metrics_listen="0.0.0.0:9417")
    result = daemon.command("check", check=False)
    assert result.returncode == harness.EX_CONFIG
    assert re.search(r"scriptorium\.toml:\d+: metrics_listen: .*127\.0\.0\.1:PORT",
                     result.stdout + result.stderr)


def test_the_health_check_follows_what_happens(make_daemon, spool, work):
    daemon = make_daemon()
    down = daemon.command("status", "--check", check=False)
    assert (down.returncode, down.stdout.count("\n")) == (2, 1), down.stdout
    assert down.stdout.startswith("SCRIPTORIUM CRITICAL - ")
    daemon.start()
    spool.write(1)
    daemon.wait_acknowledged(1)
    well = daemon.command("status", "--check")
    assert re.fullmatch(
        r"SCRIPTORIUM OK - 1 captured, 0 waiting \| captured=1c missed=0c waiting=0 dead=0 "
        r"journal=\d+%;80;100\n",
                        well.stdout), well.stdout
    # The archive goes: with a limit of no patience at all the next event that waits is critical.
    root = work / "archive"
    root.rename(work / "away")
    root.write_text("not a folder")
    spool.write(2)
    daemon.wait_status(lambda s: s["sinks"]["archive"]["waiting"] == 1
                       and s["sinks"]["archive"]["last_error"], "the sink is stuck")
    behind = daemon.command("status", "--check", "--warning", "0", "--critical", "0", check=False)
    assert behind.returncode == 2 and "archive: behind by" in behind.stdout, behind.stdout
    root.unlink()
    (work / "away").rename(root)
    daemon.wait_acknowledged(2)


def test_rules_and_dashboard_ask_only_for_metrics_that_exist(make_daemon, spool, work):
    daemon = make_daemon().start()
    spool.write(1)
    daemon.wait_acknowledged(1)
    text = scrape(UnixConnection(work / "state" / "metrics.sock"))[1]
    there = set(re.findall(r"^# TYPE (\S+)", text, re.M))
    there |= {f"{family}_bucket" for family in there}
    json.loads((PACKAGING / "scriptorium-dashboard.json").read_text())
    for name in ("scriptorium-alerts.yml", "scriptorium-dashboard.json"):
        asked = set(re.findall(r"\bscriptorium_[a-z_]+", (PACKAGING / name).read_text()))
        assert len(asked) > 5
        assert asked <= there, f"{name}: no such metric: {sorted(asked - there)}"


# ---- as Prometheus itself sees it ----------------------------------------------------------------
@pytest.fixture
def promtool():
    found = shutil.which("promtool")
    if not found:
        pytest.skip("promtool is not installed: apt-get install prometheus (it need not run)")

    def run(*arguments, **kwargs):
        return subprocess.run([found, *map(str, arguments)], capture_output=True, text=True,
                              timeout=60, **kwargs)
    return run


def test_promtool_finds_nothing_wrong_with_the_metrics(promtool, make_daemon, make_storm, work):
    daemon = make_daemon().start()
    make_storm(20).finish()
    daemon.wait_acknowledged(20)
    result = promtool("check", "metrics",
                      input=scrape(UnixConnection(work / "state" / "metrics.sock"))[1])
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_promtool_takes_the_alert_rules(promtool):
    result = promtool("check", "rules", PACKAGING / "scriptorium-alerts.yml")
    assert result.returncode == 0 and re.search(r"\b\d+ rules found",
                                                result.stdout), result.stdout + result.stderr


# alert -> (series, values that must raise it, values that must not), one value a minute for two
# hours unless it says otherwise
ALERTS = {
    "ScriptoriumDown": ('up{job="scriptorium", instance="ctl1"}', "0x120", "1x120"),
    "ScriptoriumJobsMissed": ('scriptorium_source_missed_total{source="slurm", reason="vanished"}',
                              "0x60 1+1x60", "7x120"),
    "ScriptoriumGaps": ('scriptorium_source_gap_jobs{source="slurm", state="confirmed"}', "2x120",
                        "0x120"),
    "ScriptoriumOwnersUnverified": (
        'scriptorium_source_owners_unverified_last_hour{source="slurm"}', "11x120", "10x120"),
    "ScriptoriumSpoolGone": ('scriptorium_source_spool_there{source="slurm"}', "0x120", "1x120"),
    "ScriptoriumSinkBehind": ('scriptorium_sink_oldest_waiting_seconds{sink="archive"}',
                              "1000x120", "800x120"),
    "ScriptoriumDeadLetters": ('scriptorium_sink_dead_letters{sink="archive"}', "3x100 4x20",
                               "3x60 2x60"),
    "ScriptoriumJournalFilling": ("scriptorium_journal_size_bytes", "900x120", "700x120"),
    "ScriptoriumNoEventForADay": ('scriptorium_source_captured_total{source="slurm"}', "5x1600",
                                  "5+1x1600"),
}


def test_each_alert_fires_for_its_cause_and_for_nothing_else(promtool, work):
    rules = PACKAGING / "scriptorium-alerts.yml"
    assert set(re.findall(r"alert: (\w+)", rules.read_text())) == set(ALERTS)
    groups = []
    for alert, (series, bad, good) in ALERTS.items():
        for values, fires in ((bad, True), (good, False)):
            inputs = [{"series": series, "values": values}]
            if alert != "ScriptoriumDown":
                inputs.append({"series": 'up{job="scriptorium", instance="ctl1"}',
                               "values": "1x1600"})
            inputs.append({"series": "scriptorium_build_info", "values": "1x1600"})
            if alert == "ScriptoriumJournalFilling":
                inputs.append({"series": "scriptorium_journal_limit_bytes", "values": "1000x120"})
            if alert == "ScriptoriumOwnersUnverified":
                inputs.append(
                    {"series": 'scriptorium_source_owners_decided_last_hour{source="slurm"}',
                     "values": "100x120"})
            at = "26h" if "1600" in values else "110m"
            # promql_expr_test, as an alert's whole text would have to be repeated here.
            groups.append({"interval": "1m", "input_series": inputs, "promql_expr_test": [
                {"expr": f'count(ALERTS{{alertname="{alert}", alertstate="firing"}})',
                 "eval_time": at,
                 "exp_samples": [{"labels": "{}", "value": 1}] if fires else []}]})
    # JSON is YAML
    (work / "test.yml").write_text(json.dumps({"rule_files": [str(rules)], "tests": groups}))
    result = promtool("test", "rules", work / "test.yml")
    assert result.returncode == 0, result.stdout + result.stderr
