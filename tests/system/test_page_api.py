"""What programs get below api/v1/ through the shipped Apache: each answer is as its OpenAPI
description says, and nobody gets more than on the page."""

import json
import re
import urllib.parse

import jsonschema
import pytest

import page_lab
from page_lab import Apache, fetch, running
from test_page_proxies import FINDS
from test_serve import ALICE, BOB, GONE, SUPPORT, jobs_of

API = "api/v1/"


@pytest.fixture(scope="module")
def site():
    with page_lab.running_site() as site:
        site.add_jobs(ALICE, {501: b"#!/bin/bash\necho \xff\0 mdrun\n"}, [b"A=1", b"B=2"])
        yield site


@pytest.fixture(scope="module")
def base(site):
    with running(Apache(site.work, "apache-basic.conf", site.page_socket)) as proxy:
        yield proxy.base


@pytest.fixture(scope="module")
def description(base):
    answer = fetch(base, API + "openapi.json", ALICE)
    assert answer.headers.get_content_type() == "application/json"
    return json.loads(answer.body)


@pytest.fixture(scope="module")
def get(base, description):
    """Asks as a user, and holds the answer against the description of that path and status."""
    def ask(path, user=ALICE, status=200):
        answer = fetch(base, API + path, user)
        assert answer.status == status, answer.text
        [operation] = [operation["get"] for template, operation in description["paths"].items()
                       if re.fullmatch(re.sub("{.*?}", "[^/]+", template)[1:],
                                       path.partition("?")[0])]
        names = {name for name, _ in urllib.parse.parse_qsl(path.partition("?")[2])}
        assert names <= {one["name"] for one in operation["parameters"] if one["in"] == "query"}
        [(kind, content)] = operation["responses"][str(status)]["content"].items()
        assert answer.headers.get_content_type() == kind
        if kind != "application/json":
            return answer.body
        value = json.loads(answer.body)
        jsonschema.Draft202012Validator({**content["schema"],
                                         "components": description["components"]}).validate(value)
        return value
    return ask


def ids(answer):
    return sorted(hit["job"]["id"] for hit in answer["hits"])


def test_the_description_is_one(description):
    assert description["openapi"].startswith("3.1.")
    operations = [path["get"] for path in description["paths"].values()]
    # Each has a test below.
    assert {one["operationId"] for one in operations} == {"searchJobs", "getJob", "getScript",
                                                          "getReport"}
    for operation in operations:
        for response in operation["responses"].values():
            for content in response["content"].values():
                jsonschema.Draft202012Validator.check_schema(content.get("schema", {}))
    for schema in description["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize("user", FINDS)
def test_each_gets_the_jobs_of_the_page(get, user):
    wanted = sorted([*FINDS[user], *([] if user == BOB else ["501"])])
    assert ids(get("jobs?limit=1000", user)) == wanted
    for job in wanted:
        [record] = get(f"job/lab/{job}", user)["jobs"]
        assert record["job"]["id"] == record["event"]["job"]["id"] == job


def test_a_search_continues_and_has_its_lines(get):
    found, after = [], ""
    while True:
        page = get(f"jobs?q=mdrun&limit=2{after}")
        found += page["hits"]
        assert all(hit["lines"] for hit in page["hits"])
        if "next" not in page:
            break
        after = "&after=" + urllib.parse.quote(page["next"])
    assert sorted(hit["job"]["id"] for hit in found) == sorted([*jobs_of(ALICE), "501"])


def test_a_job_is_named_by_its_time_and_its_script_is_the_bytes(get):
    job = get("job/lab/501")["jobs"][0]
    at = urllib.parse.quote(job["job"]["submitted_at"])
    assert get(f"job/lab/501?at={at}")["jobs"][0]["event"]["id"] == job["event"]["id"]
    assert get(f"job/lab/501/script?at={at}") == b"#!/bin/bash\necho \xff\0 mdrun\n"
    assert job["event"]["environment"]["B"] == "2"
    get("job/lab/501?at=2001-01-01T00:00:00Z", status=404)


def test_what_is_not_ones_own_is_as_what_never_was(get):
    for path in ("job/lab/{}", "job/lab/{}/script"):
        denied, absent = (get(path.format(job), BOB, 404) for job in (501, GONE))
        assert denied == {"error": absent["error"].replace(str(GONE), "501")}
    assert ids(get("jobs?q=job:501", BOB)) == []


def test_a_wrong_question_gets_a_sentence(get):
    assert "did you mean" in get("jobs?q=usr:alice", status=400)["error"]
    assert "1 to 1000" in get("jobs?limit=0", status=400)["error"]


def test_a_report_is_as_described(get):
    report = get("reports?by=user&since=2000-01-01", SUPPORT)
    assert report["total"]["jobs"] == sum(row["jobs"] for row in report["rows"]) > 1
    assert [row["user"] for row in get("reports?by=user&since=2000-01-01")["rows"]] != []
    assert "allowed: user, account" in get("reports?by=usr", status=400)["error"]
