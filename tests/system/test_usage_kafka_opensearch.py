"""The same figures of a job in the file tree, in Kafka and in OpenSearch: of a node's control
groups and of accounting."""

import json
import time

import pytest

import kafka_lab
import search_lab
from harness import wait_for
from kafka_lab import kafka_sink
from test_usage_report import hold_against_schema, sampling, usage_events, wait_job
from usage_lab import measure

ON_DISK = True
INDEX = "scriptorium-usage-*"


@pytest.fixture(scope="module")
def broker(request):
    kafka_lab.needs_broker()
    directory = kafka_lab.brokers_directory(request)
    yield from kafka_lab.running(directory, kafka_lab.Broker(directory))


@pytest.fixture(scope="module")
def node(request):
    if not search_lab.PLUGIN.exists():
        pytest.skip("the Elasticsearch sink is not built (SCRIPTORIUM_ELASTICSEARCH=OFF)")
    server = search_lab.Server("opensearch2")
    request.addfinalizer(server.remove)
    return server.start()


def sinks(broker, node, topic):
    everything = {"kinds": ["usage.*"]}
    return {"archive": {**everything, "layout": "user-month"},
            "kafka": {**kafka_sink(broker, topic), **everything},
            "search": {**search_lab.sink(node), **everything}}


def settled(daemon, count):
    daemon.wait_status(lambda s: all(sink["acknowledged_total"] >= count and sink["waiting"] == 0
                                     for sink in s["sinks"].values()),
                       f"every sink has {count} events", 120)


def comparable(event):
    """Without what a sink adds."""
    return {key: event[key] for key in ("id", "kind", "time", "cluster", "job", "user", "usage",
                                        "complete", "capture")}


def assert_the_same_everywhere(archive, broker, node, topic, job):
    """Of this job: another Slurm on this machine may have some, too. Returns {kind: [event]} of the
    archive, after each was found unchanged in the other two."""
    files = {}
    for file in archive.path.rglob("*.json"):
        event = json.loads(file.read_bytes())
        hold_against_schema(event)
        if event["job"]["id"] == job:
            files[event["id"]] = comparable(event)
    messages = {}
    for message in broker.read(topic):
        event = message.json()
        assert message.key == f"lab/{event['job']['id']}", "all of a job is in one partition"
        hold_against_schema(event)
        if event["job"]["id"] == job:
            messages[event["id"]] = comparable(event)
    assert messages == files
    node.refresh(INDEX)
    hits = node.call("POST", f"/{INDEX}/_search",
                     {"size": 1000, "query": {"term": {"job.id": job}}})["hits"]["hits"]
    documents = {hit["_id"]: comparable(hit["_source"]) for hit in hits}
    assert documents == files
    # Stored is one thing; found by its figures another.
    for event in files.values():
        if "efficiency_ratio" in event["usage"].get("cpu", {}):
            terms = {"kind": event["kind"], "job.id": event["job"]["id"],
                     "usage.cpu.efficiency_ratio": event["usage"]["cpu"]["efficiency_ratio"]}
            query = {"bool": {"filter": [{"term": {name: value}} for name, value in terms.items()]}}
            assert node.search(INDEX, query) == [event["id"]]
    kinds = {}
    for event in files.values():
        kinds.setdefault(event["kind"], []).append(event)
    return kinds


def test_a_nodes_figures_are_the_same_in_every_sink(lab, broker, node, make_daemon, archive, work):
    node.wipe()
    topic = broker.create("usage-node")
    daemon = make_daemon(sources=sampling(lab, samples=True),
                         sinks=sinks(broker, node, topic))
    daemon.command("setup", "search")
    daemon.start().prefer()

    def sampled(job):
        wait_for(lambda: len(usage_events(archive, "usage.sample").get(job.id, [])) >= 3,
                 "three samples are in the file tree")
    job, _ = measure(lab, work, lambda job: wait_job(archive, job), "-c2", "--mem=600", "-t", "10",
                     "-J", "half", cpu=6, mib=100, held=sampled)
    # Samples, the node and the job are captured: they are in the file tree last.
    settled(daemon, daemon.status()["sources"]["usage"]["captured"])
    kinds = assert_the_same_everywhere(archive, broker, node, topic, job.id)
    assert set(kinds) == {"usage.sample", "usage.node", "usage.job"}
    assert len(kinds["usage.sample"]) >= 3
    assert kinds["usage.job"][0]["id"] in node.search(INDEX,
                                                      {"term": {"usage.findings.id": "cpu_low"}})
    daemon.terminate()


SACCT = r"""#!/bin/bash
while [ $# -gt 0 ]; do
  case $1 in --delimiter=*) G=${1#*=} ;; --starttime) S=$2 ;; --endtime) E=$2 ;; esac
  shift
done
[[ "@END@" < "$S" || "@END@" > "$E" ]] && exit 0
printf '%s\n' "${ROWS//X/$G}"
"""


def test_accountings_figures_are_the_same_in_every_sink(broker, node, make_daemon, archive, work):
    node.wipe()
    topic = broker.create("usage-accounting")
    begin, end = (time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(time.time() - s))
                  for s in (7200, 3600))
    fields = ["4711", "4711", "0", "0", "root", "root", "chem", "batch", "normal", begin, begin,
              end, "3600", "00:00:00", "120", "COMPLETED",
              "0:0", "2", "8", "billing=8,cpu=8,mem=8G,node=2", "02:00:00", "01:50:00", "00:10:00",
              "", "", "", "n[1-2]", "/home", "md|\n\"x\""]
    step = ["4711.0", "4711.0"] + [""] * 7 + [begin, begin, end, "3600", "00:00:00", "",
                                              "COMPLETED", "0:0", "2", "8", "cpu=8,mem=8G,node=2",
                                              "02:00:00", "01:50:00", "00:10:00", "1G",
                                              "cpu=02:00:00,mem=1500M", "2", "n[1-2]", "", "run"]
    rows = "".join(field + "X" for field in fields) + "\n" + "".join(field + "X" for field in step)
    sacct = work / "sacct"
    sacct.write_text(SACCT.replace("@END@", end).replace("#!/bin/bash\n",
                                                         f"#!/bin/bash\nROWS=$(cat "
                                                         f"'{work}/rows')\n"))
    (work / "rows").write_text(rows)
    sacct.chmod(0o755)
    sources = {"slurm": None, "usage": {"accounting": "sacct", "sacct": str(sacct),
                                        "resolve": "none"}}
    daemon = make_daemon(sources=sources, sinks=sinks(broker, node, topic))
    daemon.command("setup", "search")
    daemon.command("run", "--once")
    kinds = assert_the_same_everywhere(archive, broker, node, topic, "4711")
    assert [e["job"]["id"] for e in kinds["usage.job"]] == ["4711"] and set(kinds) == {"usage.job"}
    usage = kinds["usage.job"][0]["usage"]
    assert usage["cpu"]["efficiency_ratio"] == 0.25 and usage["memory"]["peak_bytes"] == 1500 << 20
    assert kinds["usage.job"][0]["job"]["name"] == 'md|\n"x"'
    # A second daemon that knows nothing of the first tells the same event: no sink has it twice but
    # Kafka, which has no ids.
    other = make_daemon(sources=sources, sinks=sinks(broker, node, topic), directory=work,
                        state_dir=str(work / "other"))
    other.command("run", "--once")
    assert_the_same_everywhere(archive, broker, node, topic, "4711")
    assert broker.count(topic) == 2
