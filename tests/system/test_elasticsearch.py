"""Elasticsearch 8.19 with users and HTTPS: templates and searching, what the daemon brings there, API keys."""

import base64

import pytest

import search_lab
from search_suite import Access, Content, Delivery, Refusals, empty, node, templated  # noqa: F401

KIND = "elasticsearch8-secure"


class TestContent(Content):
    pass


class TestDelivery(Delivery):
    pass


class TestRefusals(Refusals):
    pass


@pytest.fixture(scope="module")
def api_key(node):  # noqa: F811
    """id:key of the least right that the sink needs."""
    made = node.call("POST", "/_security/api_key", {"name": "scriptorium", "role_descriptors": {"writer": {
        "cluster": [], "index": [{"names": ["scriptorium-*"], "privileges": ["create_doc", "auto_configure"]}]}}})
    return f"{made['id']}:{made['api_key']}"


class TestApiKey(Access):
    @pytest.fixture(autouse=True, params=["as id and key", "encoded"])
    def key(self, request, api_key):
        self.text = api_key if request.param == "as id and key" else base64.b64encode(api_key.encode()).decode()

    def rights(self, node, work):  # noqa: F811
        return {"api_key_file": search_lab.secret_file(work, "api-key", self.text)}


def test_a_key_that_may_make_no_index_holds_the_first_event_of_a_month(empty, make_daemon, spool, work):  # noqa: F811
    made = empty.call("POST", "/_security/api_key", {"name": "no-new-index", "role_descriptors": {"writer": {
        "cluster": [], "index": [{"names": ["scriptorium-*"], "privileges": ["create_doc"]}]}}})
    file = search_lab.secret_file(work, "api-key", f"{made['id']}:{made['api_key']}")
    empty.put_template()
    daemon = make_daemon(sinks={"archive": None, "search": search_lab.sink(empty, ca_file=str(empty.certs / "ca.pem"), api_key_file=file)})
    result = daemon.command("check", check=False)
    assert result.returncode != 0 and "auto_configure" in result.stdout + result.stderr, result.stdout + result.stderr
    spool.write(1)
    daemon.start()
    status = daemon.wait_status(lambda s: "403" in (s["sinks"]["search"]["last_error"] or ""), "the server says no")
    assert status["sinks"]["search"]["dead"] == 0 and status["sinks"]["search"]["waiting"] == 1
    assert "security_exception" in daemon.log_text()


def test_the_key_can_neither_read_nor_overwrite_nor_delete(empty, api_key):  # noqa: F811
    """What the role of our documentation is worth."""
    empty.put_template()
    key = {"Authorization": "ApiKey " + base64.b64encode(api_key.encode()).decode()}
    index = "scriptorium-job-2026.01"
    assert empty.request("POST", f"/{index}/_create/1", {"@timestamp": "2026-01-15T12:00:00Z"}, key)[0] == 201
    assert empty.request("POST", f"/{index}/_create/1", {"@timestamp": "2026-01-15T12:00:00Z"}, key)[0] == 409
    for method, path, body in (("PUT", f"/{index}/_doc/1", {"@timestamp": "2026-01-15T12:00:00Z"}), ("GET", f"/{index}/_search", None),
                               ("DELETE", f"/{index}/_doc/1", None), ("DELETE", f"/{index}", None)):
        assert empty.request(method, path, body, key)[0] == 403, (method, path)
