"""What must hold on every server that the Elasticsearch sink writes to. A test file names its
servers (KINDS, of search_lab.KINDS) and subclasses `Content`, which asks the server with our
templates, and `Delivery`, which runs the daemon. Each server is started once."""

import base64
import json
import os
import re
import shutil
import signal
import subprocess
import time

import pytest

import harness
import search_lab
from search_lab import FIXTURES, both_forms, kql, nested

INDEX = "scriptorium-job-2026.11"
PHRASES = json.loads((FIXTURES / "phrases.json").read_text(encoding="utf-8"))
DOCS = json.loads((FIXTURES / "kql-docs.json").read_text(encoding="utf-8"))
QUESTIONS = json.loads((FIXTURES / "questions.json").read_text(encoding="utf-8"))
PAGE = harness.ROOT / "docs" / "search-in-kibana.md"
SECTION = re.compile(r"^### (\d+)\. ([^\n]+)\n.*?^```kql\n(.*?)\n```", re.M | re.S)


def questions():
    """{number: (question, KQL)} as docs/search-in-kibana.md says them."""
    return {int(n): (title, text.strip()) for n, title, text
            in SECTION.findall(PAGE.read_text(encoding="utf-8"))}


@pytest.fixture(scope="module")
def node(request):
    """Each server that the module names, for all of its tests."""
    if not search_lab.PLUGIN.exists():
        pytest.skip("the Elasticsearch sink is not built (SCRIPTORIUM_ELASTICSEARCH=OFF)")
    if harness.SANITIZED and request.param != request.module.KINDS[0]:
        pytest.skip("sanitizers look at the daemon, which writes to this version as to the others")
    server = search_lab.Server(request.param,
                               settings=getattr(request.module, "SETTINGS", ()))
    request.addfinalizer(server.remove)
    return server.start()


@pytest.fixture
def templated(node):
    if node.request("GET", "/_index_template/scriptorium-job")[0] != 200:
        node.put_template()
    return node


@pytest.fixture
def empty(node):
    """The server without any index or template of ours."""
    node.wipe()
    return node


@pytest.mark.skipif(harness.SANITIZED,
                    reason="no daemon is in these, so there is nothing for a sanitizer")
class Content:
    """The templates, the analyzer and the query language, without the daemon."""

    def test_every_phrase_finds_what_it_should_and_nothing_else(self, templated):
        index = "scriptorium-job-2026.01"
        results = templated.bulk(index, [(i, {"@timestamp": "2026-01-15T12:00:00Z",
                                              "script": {"text": text}})
                                    for i, text in PHRASES["texts"].items()])
        assert all(r["status"] == 201 for r in results), results
        assert len(PHRASES["phrases"]) >= 73
        wrong = []
        for p in PHRASES["phrases"]:
            found = templated.hits(index, {"match_phrase": {"script.text": p["phrase"]}})
            if found != p["hits"]:
                wrong.append((p["phrase"], found, p["hits"]))
        assert not wrong, f"{len(wrong)} of {len(PHRASES['phrases'])}: (phrase, found, " \
                          f"expected): {wrong}"

    def test_every_kql_vector_finds_its_documents_with_highlighting(self, templated):
        index = "scriptorium-job-2026.02"
        documents = [(id_, nested(flat)) for id_, flat in DOCS.items()]
        assert all(r["status"] == 201 for r in templated.bulk(index, documents))
        wrong, tried = [], 0
        for text, query, expected in search_lab.vectors(templated.flavor):
            tried += 1
            found = templated.hits(index, query)
            if found != expected:
                wrong.append((text, found, expected))
        assert tried >= 34
        assert not wrong, f"{len(wrong)} of {tried}: (KQL, found, expected): {wrong}"

    def test_the_ten_questions_of_a_support_desk_find_what_they_must_and_nothing_else(self,
                                                                                      templated):
        index = "scriptorium-job-2026.03"
        documents = QUESTIONS["documents"]
        results = templated.bulk(index, [(name, {"@timestamp": "2026-03-15T12:00:00Z", **d})
                                         for name, d in documents.items()])
        assert all(r["status"] == 201 for r in results), results
        page = questions()
        assert sorted(page) == list(range(1, 11)), \
            "docs/search-in-kibana.md has ten numbered questions"
        for number, (title, text) in page.items():
            expected = QUESTIONS["questions"][str(number)]
            assert expected["must"] and expected["must_not"], title
            for query in both_forms(text):
                found = templated.hits(index, query)
                missing = set(expected["must"]) - set(found)
                assert not missing, \
            f"question {number}, {title}: {text}: not found: {missing}\n{json.dumps(query)}"
                too_many = set(found) & set(expected["must_not"])
                assert not too_many, \
            f"question {number}, {title}: {text}: found as well: {too_many}\n{json.dumps(query)}"
                unsaid = set(found) - set(expected["must"])
                assert not unsaid, \
            f"question {number}, {title}: {text}: found, and the test does not say so: {unsaid}"

    def test_hostile_scripts_are_indexed_and_leave_the_node_alive(self, templated):
        index = "scriptorium-job-2026.04"
        scripts = list(search_lab.hostile_scripts(1 << 20))
        for name, text in scripts:
            begin = time.monotonic()
            result = templated.bulk(index, [(name, {"@timestamp": "2026-04-15T12:00:00Z",
                                                    "script": {"text": text}})], refresh=False)
            assert result[0]["status"] == 201, (name, json.dumps(result)[:600])
            assert time.monotonic() - begin < 60, f"{name}: a script of 1 MiB holds up the node"
        assert templated.process.poll() is None
        templated.refresh(index)
        assert templated.search(index, {"match_all": {}}, size=0) == []
        assert templated.count(index) == len(scripts)
        # The same bytes as a query: what somebody pastes into the query bar.
        for _, text in scripts:
            templated.search(index, {"match": {"script.text": text[:512]}}, size=1)

    def test_discover_shows_the_largest_scripts_with_highlighting(self, templated):
        index = "scriptorium-job-2026.05"
        cap = 256 << 10  # what the sink keeps of a script
        line = "srun --mem=4G ./solver /scratch/user/input_%06d.dat # caf\u00e9\n"
        text = "#!/bin/bash\nmodule load GROMACS/2023.1\n" + "".join(line % i for i
                                                                     in range(cap // len(line) + 1))
        text = text.encode()[:cap].decode(errors="ignore")
        environment = {f"VARIABLE_{i}": "x" * 8000 for i in range(20)} | {"OMP_NUM_THREADS": "8"}
        for begin in range(0, 12, 6):
            results = templated.bulk(index, [(f"big-{i}", {"@timestamp": "2026-05-15T12:00:00Z",
                                                           "job": {"id": str(i)},
                                                      "script": {"text": text},
                                                           "environment": environment})
                                        for i in range(begin, begin + 6)], refresh=True)
            assert all(r["status"] == 201 for r in results), json.dumps(results)[:600]
        for bar in ("script.text: gromacs", 'script.text: "--mem=4G"',
                    "environment.OMP_NUM_THREADS: 8", "jobid: 7"):
            for query in both_forms(bar):
                answer = templated.discover(index, query)
                assert answer["hits"]["total"]["value"] == (1 if bar.startswith("jobid")
                                                            else 12), bar
        highlighted = templated.discover(index, kql(
            'script.text: "module load GROMACS"'))["hits"]["hits"][0]["highlight"]["script.text"]
        assert "GROMACS@/kibana-highlighted-field@" in "".join(highlighted)

    def test_odd_environments_are_stored_and_found(self, templated):
        index = "scriptorium-job-2026.06"
        environment = {"BASH_FUNC_module%%": "() {  eval `modulecmd bash $*`\n}", "a.b.c": "dots",
                       "with blank": "yes", "A=B": "equals",
                       "LONG": "y" * 8000, "UTF": "caf\u00e9 \U0001f600", "EMPTY": "",
                       "PATH": "/usr/bin:/bin"}
        result = templated.bulk(index, [("odd", {"@timestamp": "2026-06-15T12:00:00Z",
                                                 "environment": environment}),
                                   ("other", {"@timestamp": "2026-06-15T12:00:00Z",
                                              "environment": {"PATH": "/opt"}})])
        assert [r["status"] for r in result] == [201, 201], json.dumps(result)[:600]
        assert templated.hits(index, {"exists": {"field": "environment.UTF"}}) == ["odd"]
        assert templated.hits(index, kql("environment.PATH: /usr*")) == ["odd"]
        assert templated.hits(index, kql("environment.PATH: *")) == ["odd", "other"]

    def test_a_document_with_a_wrong_type_is_kept_but_one_without_a_time_is_not(self, templated):
        index = "scriptorium-job-2026.07"
        good = {"@timestamp": "2026-07-15T12:00:00Z"}
        result = templated.bulk(index, [("odd-number", {**good, "script": {"size": "many"}}),
                                   ("bad-time", {"@timestamp": "yesterday"}), ("good", good)])
        assert result[0]["status"] == 201 and result[2]["status"] == 201, result
        # which stores it all the same, so the sink must never send one
        if templated.kind != "opensearch2":
            assert result[1]["status"] == 400, result[1]

    def test_strange_members_never_grow_the_mapping(self, templated):
        index = "scriptorium-job-2026.08"
        strange = {f"field_{i}": {"deep": i} for i in range(2000)}
        document = {"@timestamp": "2026-08-15T12:00:00Z", "custom": strange,
                    "job": {"id": "1", **strange}, "labels": {"site": "north"}}
        result = templated.bulk(index, [("strange", document)])
        assert result[0]["status"] == 201, json.dumps(result)[:600]
        mapping = templated.call("GET", f"/{index}/_mapping")[index]["mappings"]["properties"]
        assert "custom" not in mapping and "field_1" not in mapping["job"]["properties"]
        assert templated.hits(index, {"term": {"labels.site": "north"}}) == ["strange"]

    def test_the_usage_template_takes_samples_and_summaries_into_one_index(self, templated):
        templated.put_template("usage")
        index = "scriptorium-usage-2026.11"
        common = {"@timestamp": "2026-11-15T12:00:00Z", "cluster": "lab",
                  "job": {"id": "7", "state": "COMPLETED", "exit_code": "0:0"}}
        cpu = {"time_seconds": 5231.421, "allocated": 16}
        spread = {"avg_ratio": 0.3, "min_ratio": 0, "max_ratio": 1, "p50_ratio": 0.2}
        result = templated.bulk(index, [
            ("sample", {**common, "kind": "usage.sample",
                        "usage": {"cpu": {**cpu, "utilization_ratio": 0.91},
                        "gpus": [{"id": "GPU-1", "utilization_ratio": 0.98,
                                  "power_watts": 312.4}]}}),
            ("node", {**common, "kind": "usage.node",
                      "usage": {"cpu": {**cpu, "efficiency_ratio": 0.3, "utilization": spread},
                      "gpus": [{"id": "GPU-1", "utilization": {"avg_ratio": 0.1, "max_ratio": 0.2},
                                "zero_ratio": 0.5}]}}),
            ("job", {**common, "kind": "usage.job", "usage": {
                "cpu": {"efficiency_ratio": 0.3},
                "programs": [{"name": "python3", "script": "train.py",
                              "container": "pytorch", "path": "/opt/python/bin/python3.11",
                              "build_id": "09bb3386d11de6711d788e488b61cf7c22c9f2da",
                              "cpu_seconds": 4.5,
                              "cpu_ratio": 0.9, "processes": 1, "threads": 4,
                              "busy_threads": 3}],
                "programs_unseen": {"cpu_seconds": 0.5, "cpu_ratio": 0.1},
                "steps": [{"name": "0", "started_at": "2026-11-15T12:00:01.5Z",
                           "ended_at": "2026-11-15T12:00:04Z", "elapsed_seconds": 2.5,
                           "cpu": {"time_seconds": 4.5, "allocated": 8, "efficiency_ratio": 0.225},
                           "memory": {"peak_working_set_bytes": 450887680, "oom_kills": 1},
                           "gpu": {"count": 2, "utilization_ratio": 0.25},
                           "last_read": "removal"}],
                "steps_other": {"steps": 70, "cpu_seconds": 0.25},
                "nodes": [{"host": {"name": "n1"}, "cpu": {"utilization": spread}}],
                "findings": [{"id": "cpu_low", "severity": "warning", "value": 0.3,
                              "threshold": 0.65, "suggest": {"cpus": 5},
                              "text": "5 of 16 cores would have done"}],
                "suggest": {"memory_bytes": 541065216, "directives": ["#SBATCH --mem=520M"]}}})])
        assert [r["status"] for r in result] == [201] * 3, json.dumps(result)[:900]
        assert templated.hits(index, kql("usage.findings.id: cpu_low")) == ["job"]
        assert templated.hits(index, kql("usage.cpu.efficiency_ratio < 0.5")) == ["job", "node"]
        assert templated.hits(index, kql("usage.cpu.utilization_ratio > 0.9")) == ["sample"]
        assert templated.hits(index, kql("usage.cpu.utilization.max_ratio >= 1")) == ["node"]
        assert templated.hits(index, kql("usage.nodes.host.name: n1")) == ["job"]
        assert templated.hits(index, kql("usage.programs.script: train.py")) == ["job"]
        assert templated.hits(index, kql("usage.programs.container: pytorch")) == ["job"]
        assert templated.hits(index, kql("usage.programs.path: /opt/python*")) == ["job"]
        assert templated.hits(index, kql("usage.programs.build_id: 09bb*")) == ["job"]
        assert templated.hits(index, kql("usage.programs_unseen.cpu_ratio < 0.2")) == ["job"]
        assert templated.hits(index, kql('usage.steps.name: "0"')) == ["job"]
        assert templated.hits(index, kql("usage.steps.cpu.efficiency_ratio < 0.3")) == ["job"]
        assert templated.hits(index, kql("usage.steps.memory.oom_kills >= 1")) == ["job"]
        assert templated.hits(index, kql("usage.steps.gpu.utilization_ratio < 0.3")) == ["job"]
        assert templated.hits(index, kql("usage.programs.busy_threads < 4")) == ["job"]
        assert templated.hits(index, kql("usage.steps_other.steps > 50")) == ["job"]
        assert templated.hits(index, kql('usage.findings.text.words: "16 cores"')) == ["job"]
        assert templated.hits(index, kql("usage.suggest.memory_bytes > 500000000")) == ["job"]

    def test_a_data_stream_takes_our_documents(self, templated):
        for family in ("job", "usage"):
            templated.put_template(family, stream=True)
        stream = "scriptorium-stream-job"
        document = {"@timestamp": "2026-11-15T12:00:00Z", "job": {"id": "7"},
                    "script": {"text": "module load GROMACS/2023.1"}}
        assert templated.bulk(stream, [("1", document)])[0]["status"] == 201
        assert templated.bulk(stream, [("1", document)])[0]["status"] == 409
        assert templated.hits(stream, kql('script.text: "gromacs/2023.1"')) == ["1"]
        # The caveat of the page: across a rollover the same id is stored a second time.
        templated.call("POST", f"/{stream}/_rollover")
        assert templated.bulk(stream, [("1", document)])[0]["status"] == 201
        assert templated.hits(stream, kql("jobid: 7")) == ["1", "1"]

    def test_the_aliases_answer_to_the_names_of_others(self, templated):
        index = "scriptorium-job-2026.09"
        event = {"@timestamp": "2026-09-15T12:00:00Z", "id": "f" * 64,
                 "captured_at": "2026-09-15T12:00:01Z", "scheduler": "slurm",
                 "job": {"id": "4711", "work_dir": "/home/alice/md.run", "name": "prod-run_7"},
                 "problems": ["environment: count 9, 4 strings"]}
        assert templated.bulk(index, [("e", event)])[0]["status"] == 201
        for bar in ("jobid: 4711", "event.id: " + "f" * 64, "event.provider: slurm",
                    'event.created > "2026-09-15T12:00:00Z"',
                    'job.work_dir.words: "alice/md.run"', "job.name.words: prod", "problems: *",
                    "job.name: prod*"):
            for query in both_forms(bar):
                assert templated.hits(index, query) == ["e"], bar


def search_sink(node, **options):
    """[sink.search] and nothing else, with the administrator's rights where the server asks for
    any."""
    if node.secure:
        options = {"user": node.user.split(":")[0], "ca_file": str(node.certs / "ca.pem"),
                   "password_file": search_lab.secret_file(node.work, "password",
                                                           node.user.split(":")[1]), **options}
    return {"archive": None, "search": search_lab.sink(node, **options)}


class Delivery:
    """The daemon, from a spool to the index."""

    def test_setup_installs_what_a_document_needs_and_can_be_repeated(self, empty, make_daemon,
                                                                      spool):
        daemon = make_daemon(sinks=search_sink(empty))
        printed = daemon.command("setup", "search", "--print").stdout
        assert "_index_template/scriptorium-job" in printed and "shell_parts" in printed
        assert empty.request("GET", "/_index_template/scriptorium-job")[0] == 404, \
            "--print has changed the server"
        for _ in range(2):
            said = daemon.command("setup", "search")
            assert "scriptorium-job" in said.stdout
        made = empty.call(
            "GET", "/_index_template/scriptorium-job")["index_templates"][0]["index_template"]
        assert made["index_patterns"] == ["scriptorium-job-*"]
        flavor = {"opensearch": "flat_object", "elasticsearch": "flattened"}[empty.flavor]
        assert made["template"]["mappings"]["properties"]["environment"]["type"] == flavor, \
            "the form for this product"
        assert daemon.command("check").returncode == 0
        assert empty.indices() == [], "check leaves nothing behind"

    def test_jobs_of_a_spool_are_found_as_they_were_submitted(self, empty, make_daemon, spool):
        daemon = make_daemon(sinks=search_sink(empty))
        daemon.command("setup", "search")
        script = b"#!/bin/bash\n#SBATCH --ntasks=64\nmodule load GROMACS/2023.1\n" \
                 b"source activate torch\nsrun -n 64 ./foo_bar-baz /scratch/user/x.py\n"
        spool.write(101, script, [b"OMP_NUM_THREADS=8", b"A=b=c", b"LINES=one\ntwo", b"EMPTY=",
                                  b"BIG=" + b"z" * 60000,
                                  b"LATIN=caf\xe9", b"SLURM_JOB_NAME=md run"])
        spool.write(102, b"#!/bin/sh\necho caf\xe9 latin1text\n")
        spool.write(103, b"#!/bin/bash\n# firstword\n" + b"echo padding line\n" * 60000
                    + b"echo lastword\n")
        spool.write(104, b"#!/bin/bash\necho old job of spring\n")
        os.utime(spool.entry(104) / "script", (1774000000, 1774000000))  # 2026-03-20
        daemon.start()
        daemon.wait_acknowledged(4, "search")
        empty.refresh()
        now = time.strftime("%Y.%m", time.gmtime())
        assert empty.indices() == ["scriptorium-job-2026.03", f"scriptorium-job-{now}"]

        def only(bar, index="scriptorium-job-*"):
            found = [empty.document(index, query) for query in both_forms(bar)]
            assert all(found), f"{bar}: not found"
            assert len({f["id"] for f in found}) == 1
            return found[0]
        first = only('script.text: "module load gromacs/2023.1"')
        assert first["job"]["id"] == "101" and first["kind"] == "job.script" and first["cluster"] \
            == "lab"
        assert first["@timestamp"] == first["time"]
        assert first["script"]["text"] == script.decode() and first["script"]["sha256"] \
            == harness.sha256(script)
        assert first["script"]["modules"] == ["GROMACS/2023.1"]
        assert first["script"]["software"] == [{"kind": "conda", "name": "torch"}]
        assert first["environment"]["A"] == "b=c" and first["environment"]["LINES"] == "one\ntwo"
        assert len(first["environment"]["BIG"]) == 8000 and first["environment_truncated"] is True
        hit = empty.call("POST", "/scriptorium-job-*/_search",
                         {"query": {"term": {"job.id": "101"}}})["hits"]["hits"][0]
        assert hit["_id"] == first["id"], "the document's id is the event's"
        for bar in ('"foo_bar-baz"', 'script.text: "-n 64" and environment.OMP_NUM_THREADS: 8',
                    "environment.EMPTY: *",
                    'script.directives.words: "--ntasks 64"', "jobid: 101",
                    "script.software.kind: conda and script.software.name.words: torch",
                    'script.interpreter: "/bin/bash" and script.modules: GROM*'):
            assert only(bar)["job"]["id"] == "101", bar
        latin = only('script.text: "latin1text"')
        assert latin["job"]["id"] == "102" and "\ufffd" in latin["script"]["text"]
        assert base64.b64decode(latin["script"]["raw"]) == b"#!/bin/sh\necho caf\xe9 latin1text\n"
        long = only("script.text: firstword")
        assert long["script"]["truncated"] is True and long["script"]["size"] > 1 << 20
        assert len(long["script"]["text"].encode()) <= 256 << 10
        assert empty.search("scriptorium-job-*", kql("script.text: lastword")) == []
        assert only('script.text: "old job of spring"',
                    "scriptorium-job-2026.03")["job"]["id"] == "104"
        assert daemon.sink("search")["dead"] == 0

    def test_what_was_delivered_before_is_delivered_again_without_a_trace(self, empty, make_daemon,
                                                                          make_storm, work):
        daemon = make_daemon(sinks=search_sink(empty))
        daemon.command("setup", "search")
        jobs = harness.storm_jobs(500)
        storm = make_storm(jobs, variables=10).finish()
        daemon.start().wait_acknowledged(jobs, "search")
        daemon.kill()
        empty.refresh()
        before = empty.call("POST", "/scriptorium-job-*/_search?version=true", {"size": 1})
        shutil.rmtree(work / "state")  # the journal is lost, the spool is not
        daemon.start().wait_acknowledged(jobs, "search")
        rows = empty.values("job.id", "script.sha256")
        assert sorted(rows) == sorted((job, script) for job, (script, _)
                                      in storm.manifest().items()), "each job once, as before"
        hit = before["hits"]["hits"][0]
        assert empty.call("GET", f"/{hit['_index']}/_doc/{hit['_id']}")["_version"] == 1
        sink = daemon.sink("search")
        assert sink["plugin_status"]["duplicates"] == jobs and sink["plugin_status"]["created"] == 0
        assert sink["dead"] == 0


class LateOwners:
    """An event goes out before its owner is known, and again when he is: the sink itself, without
    the daemon."""

    FIRST_SCRIPT = b"#!/bin/bash\nmodule load GROMACS/2023.1\n# caf\xe9\nsrun gmx\n"

    def options(self, node):
        if not node.secure:
            return {}
        user, password = node.user.split(":")
        return {"user": user, "password_file": search_lab.secret_file(node.work, "password",
                                                                      password),
                "ca_file": str(node.certs / "ca.pem")}

    def drive(self, node, steps, job="4711", **options):
        options = {"hosts": node.url, **self.options(node), **options}
        result = subprocess.run([str(harness.BUILD / "tests" / "elasticsearch_late_owner_driver"),
                                 job, ",".join(steps)]
                                + [f"{k}={v}" for k, v in options.items()], capture_output=True,
                                text=True)
        assert result.returncode == 0, result.stderr
        made = json.loads(result.stdout)
        assert all(step["acknowledged"] for step in made["steps"]), made["steps"]
        return made

    def hits(self, node, index="scriptorium-job-*"):
        node.refresh(index)
        return node.call("POST", f"/{index}/_search?version=true",
                         {"query": {"term": {"job.id": "4711"}}})["hits"]["hits"]

    def is_whole(self, document, made):
        """The document is the owner's, with the script and the environment of the first one."""
        first, owned = made["events"]["first"], made["events"]["owned"]
        assert first["user"]["name"] == "mallory" and first["user"]["unverified_reason"]
        assert (document["id"], document["replaces"]) == (owned["id"], first["id"])
        assert {k: v for k, v in document["user"].items() if v is not None} == owned["user"]
        assert base64.b64decode(document["script"]["raw"]) == self.FIRST_SCRIPT == base64.b64decode(
            first["script"]["text"])
        assert "GROMACS/2023.1" in document["script"]["text"] and document["script"]["sha256"] \
            == first["script"]["sha256"]
        assert document["environment"] == first["environment"]
        assert document["job"] == owned["job"] and document["@timestamp"] == first["time"]

    @pytest.mark.parametrize("owned", ["owned", "bare"])
    def test_a_late_owner_takes_over_the_document_however_often_each_event_comes(self, empty,
                                                                                 owned):
        empty.put_template()
        made = self.drive(empty, ["first", owned, owned, "first"])
        assert [step["attempts"] for step in made["steps"]] == [1] * 4
        hit, = self.hits(empty)
        assert hit["_id"] == made["events"]["first"]["id"]
        self.is_whole(hit["_source"], made)
        assert (made["status"]["created"], made["status"]["replaced"],
                made["status"]["duplicates"]) == (1, 2, 1)
        assert made["logged"] == []
        found = lambda bar: empty.search("scriptorium-job-*", kql(bar))  # noqa: E731
        assert found("user.name: alice and user.verified: true and script.text: gromacs") \
            == [hit["_id"]]
        assert found("replaces: " + made["events"]["first"]["id"]) == [hit["_id"]]
        assert found(
            "user.name: mallory or user.unverified_reason: * or user.group.name: wheel or "
            "user.verified: false") == []
        # Once more by a sink that knows nothing of all that.
        self.drive(empty, ["first", owned])
        hit, = self.hits(empty)
        self.is_whole(hit["_source"], made)

    def test_without_a_first_document_the_later_event_is_the_document(self, empty):
        empty.put_template()
        made = self.drive(empty, ["owned", "first"])
        hit, = self.hits(empty)
        assert hit["_id"] == made["events"]["first"]["id"]
        self.is_whole(hit["_source"], made)
        empty.wipe()
        empty.put_template()
        made = self.drive(empty, ["bare", "bare"])
        hit, = self.hits(empty)
        assert hit["_id"] == made["events"]["first"]["id"] and hit["_source"]["kind"] \
            == "job.script"
        assert {k: v for k, v in hit["_source"]["user"].items()
                if v is not None} == made["events"]["owned"]["user"]
        assert "text" not in hit["_source"]["script"] and "environment" not in hit["_source"]

    @pytest.mark.parametrize("option", ["data_stream", "only the name of one"])
    def test_a_data_stream_has_both_documents_and_a_search_takes_the_later(self, empty, option):
        empty.put_template(stream=True)
        stream = "scriptorium-stream-job"
        options = {"data_stream": "true"}
        if option != "data_stream":
            options = {"index": stream, "require_template": "false"}
        made = self.drive(empty, ["first", "owned", "owned", "first"], **options)
        hits = {hit["_id"]: hit["_source"] for hit in self.hits(empty, stream)}
        assert sorted(hits) == sorted(made["events"][e]["id"] for e in ("first", "owned"))
        self.is_whole(hits[made["events"]["owned"]["id"]], made)
        assert empty.search(stream, kql("jobid: 4711 and user.verified: true")) \
            == [made["events"]["owned"]["id"]]
        assert made["logged"] == ([] if option == "data_stream" else ["ES_CREATE_ONLY"])
        # What docs/search-in-kibana.md says of what is left over.
        # whose first document has the only text
        self.drive(empty, ["first", "bare"], job="4712", **options)
        empty.refresh(stream)
        question = re.search(r"^POST /scriptorium-stream-job/_search\n(.*?)\n$",
                             PAGE.read_text(encoding="utf-8"), re.M | re.S).group(1)
        replaced = empty.call("POST", f"/{stream}/_search", question)
        ids = [bucket["key"] for bucket in replaced["aggregations"]["first"]["buckets"]]
        assert ids == [made["events"]["first"]["id"]]


def set_up_as_administrator(node, make_daemon, work):
    """The templates, by somebody who may."""
    (work / "setup").mkdir()
    (work / "spool").mkdir(mode=0o700, exist_ok=True)
    make_daemon(sinks=search_sink(node), directory=work / "setup").command("setup", "search")


class Access:
    """The least rights, on a server that looks at them. `rights(node, work)` of a subclass gives
    the options of a sink that may create documents below scriptorium-* and nothing else."""

    def rights(self, node, work):
        raise NotImplementedError

    def restricted(self, node, make_daemon, work, **options):
        rights = self.rights(node, work)
        sink = {"archive": None,
                "search": search_lab.sink(node, ca_file=str(node.certs / "ca.pem"),
                                          **{**rights, **options})}
        return make_daemon(sinks=sink)

    def test_the_right_to_create_documents_is_enough(self, empty, make_daemon, make_storm, work):
        set_up_as_administrator(empty, make_daemon, work)
        daemon = self.restricted(empty, make_daemon, work)
        storm = make_storm(30, variables=5).finish()
        assert daemon.command("check").returncode == 0
        daemon.start().wait_acknowledged(30, "search")
        rows = empty.values("job.id", "script.sha256")
        assert sorted(rows) == sorted((job, script) for job, (script, _)
                                      in storm.manifest().items())
        assert daemon.command("setup", "search",
                              check=False).returncode != 0, "it may not touch templates"

    def test_an_index_out_of_reach_holds_the_events(self, empty, make_daemon, make_storm, work):
        set_up_as_administrator(empty, make_daemon, work)
        daemon = self.restricted(empty, make_daemon, work,
                                 index="elsewhere-{family}-{year}.{month}")
        if empty.flavor == "elasticsearch":  # OpenSearch has no question whose answer would tell it
            result = daemon.command("check", check=False)
            assert result.returncode != 0 and "elsewhere-job" in result.stdout + result.stderr, \
            result.stdout + result.stderr
        make_storm(5, variables=5).finish()
        daemon.start()
        status = daemon.wait_status(lambda s: "403" in (s["sinks"]["search"]["last_error"] or ""),
                                    "the server says no")
        assert status["sinks"]["search"]["dead"] == 0 and status["sinks"]["search"]["waiting"] == 5
        daemon.wait_log("ES_REFUSED")


class Refusals:
    """What a server with HTTPS and users refuses to every client."""

    def test_wrong_credentials_hold_the_events_until_the_file_is_right(self, empty, make_daemon,
                                                                       make_storm, work):
        set_up_as_administrator(empty, make_daemon, work)
        user, password = empty.user.split(":")
        file = search_lab.secret_file(work, "changing-password", "not-the-password")
        sink = {"archive": None,
                "search": search_lab.sink(empty, ca_file=str(empty.certs / "ca.pem"), user=user,
                                          password_file=file)}
        daemon = make_daemon(sinks=sink)
        make_storm(5, variables=5).finish()
        result = daemon.command("check", check=False)
        assert result.returncode != 0 and "401" in result.stdout + result.stderr
        daemon.start()
        status = daemon.wait_status(lambda s: "401" in (s["sinks"]["search"]["last_error"] or ""),
                                    "the server refuses the password")
        assert status["sinks"]["search"]["dead"] == 0
        search_lab.secret_file(work, "changing-password", password)
        daemon.process.send_signal(signal.SIGHUP)
        daemon.wait_acknowledged(5, "search")
        assert "not-the-password" not in daemon.log_text()
        for secret in (password, "not-the-password"):
            assert base64.b64encode(f"{user}:{secret}".encode()).decode() not in daemon.log_text()

    def test_a_server_of_an_unknown_authority_gets_nothing(self, empty, make_daemon, make_storm,
                                                           work):
        others = search_lab.certificates(work / "others")
        daemon = make_daemon(sinks=search_sink(empty, ca_file=str(others / "ca.pem")))
        make_storm(5, variables=5).finish()
        result = daemon.command("check", check=False)
        assert result.returncode != 0 and "certificate" in (result.stdout + result.stderr).lower()
        daemon.start()
        daemon.wait_log("ES_TLS")
        assert daemon.sink("search")["dead"] == 0 and daemon.sink("search")["waiting"] == 5
        assert empty.count() == 0

    def test_plain_http_to_a_server_that_wants_https_is_said(self, empty, make_daemon, make_storm,
                                                             work):
        daemon = make_daemon(sinks=search_sink(empty, hosts=[empty.url.replace("https", "http")]))
        make_storm(5, variables=5).finish()
        result = daemon.command("check", check=False)
        assert result.returncode != 0 and "https" in (result.stdout + result.stderr).lower(), \
            result.stdout + result.stderr
        daemon.start()
        daemon.wait_log("https?://")
        status = daemon.wait_status(lambda s: s["sinks"]["search"]["last_error"],
                                    "an attempt has failed")
        assert status["sinks"]["search"]["dead"] == 0 and status["sinks"]["search"]["waiting"] == 5
