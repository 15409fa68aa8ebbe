"""What the Elasticsearch sink ships as files, and the page that explains the query bar: all that
can be known without a server."""

import json
import re
import subprocess
import sys

import pytest

import harness
import search_lab
from search_lab import FIXTURES, TEMPLATES, KqlError, both_forms, kql
from search_suite import PAGE, QUESTIONS, questions

ASSETS = TEMPLATES.parent / "assets"
SCHEMA = json.loads((harness.ROOT / "docs" / "schema" / "event-1.schema.json").read_text())


def test_the_generator_makes_exactly_the_files_that_are_there():
    result = subprocess.run([sys.executable, "-B", str(TEMPLATES / "generate.py"), "--check"],
                            capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


def mapped(properties, prefix=""):
    """{path: type} of every field of a mapping."""
    fields = {}
    for name, field in properties.items():
        if "properties" in field:
            fields.update(mapped(field["properties"], f"{prefix}{name}."))
        else:
            fields[prefix + name] = field["type"]
    return fields


def leaves(schema, prefix=""):
    """{path: JSON type} of every member that the event's schema names."""
    found = {}
    for name, member in schema.get("properties", {}).items():
        if "$ref" in member:
            found[prefix + name] = "time" if member["$ref"].endswith("time") else "string"
            continue
        while member.get("type") == "array":
            member = member["items"]
        if member.get("properties"):
            found.update(leaves(member, f"{prefix}{name}."))
        else:
            found[prefix + name] = "boolean" if isinstance(member.get("const"),
                                                           bool) else member.get("type", "string")
    return found


@pytest.mark.parametrize("flavor", ["elasticsearch", "opensearch"])
def test_every_member_of_the_event_has_a_field_of_its_type(flavor):
    fields = mapped(json.loads(
        (TEMPLATES / f"{flavor}-job.json").read_text())["template"]["mappings"]["properties"])
    allowed = {"string": {"keyword", "text"}, "time": {"date"}, "boolean": {"boolean"},
               "integer": {"long", "integer"},
               "object": {"flattened", "flat_object"}}
    members = leaves(SCHEMA)
    assert len(members) > 40
    for path, kind in members.items():
        assert path in fields, f"{path} is in the schema of the event and not in the template"
        assert fields[path] in allowed[kind], (path, kind, fields[path])


def usage_leaves(kind):
    """{path: JSON type} of every member below "usage" that the schema of a kind names."""
    documents = {file.name: json.loads(file.read_text())
                 for file in (harness.ROOT / "docs" / "schema").glob("*.json")}

    def walk(document, member, path, found):
        while "$ref" in member:
            file, _, pointer = member["$ref"].partition("#/")
            document = file or document
            member = documents[document]
            for step in pointer.split("/"):
                member = member[step]
        for part in member.get("allOf", []):
            walk(document, part, path, found)
        if member.get("type") == "array":
            walk(document, member["items"], path, found)
        elif "properties" in member:
            for name, inner in member["properties"].items():
                walk(document, inner, f"{path}.{name}", found)
        elif "allOf" not in member and "required" not in member:
            found[path] = "time" if "T[0-9]" in member.get("pattern", "") else member.get("type",
                                                                                          "string")
    found = {}
    name = f"usage-{kind}-1.schema.json"
    walk(name, documents[name]["properties"]["usage"], "usage", found)
    return found


@pytest.mark.parametrize("kind", ["sample", "node", "job"])
@pytest.mark.parametrize("flavor", ["elasticsearch", "opensearch"])
def test_every_member_of_a_usage_event_has_a_field_of_its_type(flavor, kind):
    fields = mapped(json.loads(
        (TEMPLATES / f"{flavor}-usage.json").read_text())["template"]["mappings"]["properties"])
    allowed = {"string": {"keyword", "text"}, "time": {"date"}, "integer": {"long"},
               "number": {"double"}, "boolean": {"boolean"}}
    members = usage_leaves(kind)
    assert len(members) > 25
    for path, json_type in members.items():
        # Only the names of a job's nodes are fields; the rest of a node's block is searched in its
        # own document.
        if path.startswith("usage.nodes.") and path != "usage.nodes.host.name":
            continue
        if path.startswith("usage.findings.suggest."):
            assert fields["usage.findings.suggest"] == "object"
            continue
        if path == "usage.host.name":  # a node's block within usage.job only
            continue
        assert path in fields, f"{path} is in the schema of usage.{kind} and not in the template"
        assert fields[path] in allowed[json_type], (path, json_type, fields[path])


def test_no_keyword_can_have_a_document_refused():
    def keywords(field, path):
        for name, inner in {**field.get("properties", {}), **field.get("fields", {})}.items():
            keywords(inner, f"{path}.{name}")
        if field.get("type") in ("keyword", "flattened"):
            assert 0 < field["ignore_above"] <= 8191, path  # 32,766 bytes, of up to 4 a character
    for file in TEMPLATES.glob("*.json"):
        body = json.loads(file.read_text())
        if "template" in body:
            for name, field in body["template"]["mappings"]["properties"].items():
                keywords(field, name)


def test_patterns_of_indices_streams_and_their_policies_belong_together():
    for flavor in ("elasticsearch", "opensearch"):
        for family in ("job", "usage"):
            for stream in ("", "-stream"):
                template = json.loads((TEMPLATES / f"{flavor}-{family}{stream}.json").read_text())
                policy = json.loads(
                    (TEMPLATES / f"{flavor}-{family}{stream}-policy.json").read_text())["policy"]
                pattern = f"scriptorium-stream-{family}*" if stream else f"scriptorium-{family}-*"
                assert template["index_patterns"] == [pattern]
                assert ("data_stream" in template) == bool(stream)
                assert not pattern.startswith("logs-"), "Elastic's own template takes logs-*-*"
                if flavor == "opensearch":
                    assert policy["ism_template"][0]["index_patterns"] == [pattern]
                    rollover = any("rollover" in action
                                   for action in policy["states"][0]["actions"])
                else:
                    assert template["template"]["settings"]["index"]["lifecycle"]["name"] \
                == pattern.rstrip("-*")
                    rollover = "rollover" in policy["phases"]["hot"]["actions"]
                assert rollover == bool(stream), \
                "a rollover fails on an index without a write alias"


@pytest.mark.parametrize("file", ["kibana.ndjson", "dashboards.ndjson"])
def test_saved_objects_are_whole_and_ask_for_fields_that_exist(file):
    objects = [json.loads(line)
               for line in (ASSETS / file).read_text(encoding="utf-8").splitlines()]
    ids = {(o["type"], o["id"]) for o in objects}
    assert len(ids) == len(objects)
    fields = mapped(json.loads(
        (TEMPLATES / "opensearch-job.json").read_text())["template"]["mappings"]["properties"])
    titles = {o["attributes"]["title"] for o in objects}
    assert {"scriptorium-job-*,scriptorium-stream-job*", "HPC job scripts", "Failures of capture",
            "Job scripts by interpreter"} <= titles
    for o in objects:
        references = {r["name"]: (r["type"], r["id"]) for r in o["references"]}
        assert set(references.values()) <= ids, o["id"]
        source = json.loads(o["attributes"].get("kibanaSavedObjectMeta",
                                                {}).get("searchSourceJSON", "{}"))
        if "indexRefName" in source:
            assert source["indexRefName"] in references, o["id"]
        query = source.get("query", {}).get("query")
        if query:
            both_forms(query)
            assert all(f in fields for f in re.findall(r"([a-z_.]+):", query)), query
        for column in o["attributes"].get("columns", []):
            assert column in fields, (o["id"], column)
        for aggregation in json.loads(o["attributes"].get("visState", "{}")).get("aggs", []):
            field = aggregation["params"].get("field")
            assert field is None or fields[field] in ("keyword", "date"), (o["id"], field)
        for panel in json.loads(o["attributes"].get("panelsJSON", "[]")):
            assert any(name.endswith(panel["panelRefName"]) for name in references), o["id"]
            assert panel["gridData"]["x"] + panel["gridData"]["w"] <= 48
        if file == "dashboards.ndjson":  # a fork of Kibana 7.10 knows neither
            assert "coreMigrationVersion" not in o and "typeMigrationVersion" not in o


def test_the_translator_makes_what_kibana_sends():
    """The recorded pairs are Kibana's own; each query must be one of the two that we make of its
    line."""
    seen = 0
    for text, query, _ in search_lab.vectors("elasticsearch"):
        seen += 1
        assert query in both_forms(text), \
                f"{text}\nrecorded: {json.dumps(query)}\nmade:     {json.dumps(both_forms(text))}"
    assert seen == sum(1 for _ in (FIXTURES / "kql-vectors.ndjson").open()) >= 34


def test_the_translator_refuses_what_the_query_bar_refuses():
    for text in ('script.text: "open', "a: (b or c", "a:", "script.text: 2>&1", "()", "a: b) c"):
        with pytest.raises(KqlError):
            kql(text)
    assert kql('script.text: "a \\"b\\" \\\\ c"') == kql('script.text:"a \\"b\\" \\\\ c"')
    assert kql('script.text: "--mem=4G"')["bool"]["should"] \
                == [{"match_phrase": {"script.text": "--mem=4G"}}]


def test_the_page_has_ten_questions_each_with_documents_on_both_sides():
    page = questions()
    assert sorted(page) == list(range(1, 11)) == sorted(map(int, QUESTIONS["questions"]))
    names = set(QUESTIONS["documents"])
    for number, (title, text) in page.items():
        assert title.endswith("?")
        both_forms(text)
        sides = QUESTIONS["questions"][str(number)]
        assert sides["must"] and sides["must_not"] and set(sides["must"]
                                                           + sides["must_not"]) <= names


def test_the_page_names_files_and_fields_that_exist():
    text = PAGE.read_text(encoding="utf-8")
    for file in re.findall(r"file=@(\S+)", text):
        assert (harness.ROOT / file).is_file(), file
    fields = mapped(json.loads(
        (TEMPLATES / "opensearch-job.json").read_text())["template"]["mappings"]["properties"])
    for _, query in questions().values():
        for field in re.findall(r"([a-z_@]+(?:\.[a-zA-Z_]+)*)\s*(?::|>=)",
                                re.sub(r'"[^"]*"', "", query)):
            known = field in fields or field.startswith("environment.") \
                or field.removesuffix(".words") in fields
            assert known, f"{field}: no such field"
