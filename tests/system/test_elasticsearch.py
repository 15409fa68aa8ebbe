"""Elasticsearch 8.19 with users and HTTPS: templates and searching, what the daemon brings there,
API keys."""

import base64

import pytest

import search_lab
from search_suite import Access, Content, Delivery, LateOwners, Refusals, empty, node, templated  # noqa: F401

KINDS = ("elasticsearch8-secure",)


class TestContent(Content):
    pass


class TestDelivery(Delivery):
    pass


class TestRefusals(Refusals):
    pass


class TestLateOwners(LateOwners):
    pass


class TestLateOwnersByKey(LateOwners):
    """By a key that may index, as README.md says, and by one that may only create."""

    @pytest.fixture(autouse=True, params=["index", "create_doc"])
    def key(self, request, node):  # noqa: F811
        self.privilege = request.param
        made = node.call("POST", "/_security/api_key",
                         {"name": f"may-{self.privilege}", "role_descriptors": {"writer": {
            "cluster": [], "index": [{"names": ["scriptorium-*"],
                                      "privileges": [self.privilege, "auto_configure"]}]}}})
        self.file = search_lab.secret_file(node.work, f"api-key-{self.privilege}",
                                           f"{made['id']}:{made['api_key']}")

    def options(self, node):  # noqa: F811
        return {"ca_file": str(node.certs / "ca.pem"), "api_key_file": self.file}

    @pytest.mark.parametrize("owned", ["owned", "bare"])
    def test_a_late_owner_takes_over_the_document_however_often_each_event_comes(
            self, empty, owned):  # noqa: F811
        if self.privilege == "index":
            return super().test_a_late_owner_takes_over_the_document_however_often_each_event_comes(
                empty, owned)
        empty.put_template()
        made = self.drive(empty, ["first", owned, owned, "first"])
        assert [step["attempts"] for step in made["steps"]] == [1, 2, 1, 1]
        hits = {hit["_id"]: hit["_source"] for hit in self.hits(empty)}
        first, later = (made["events"][e]["id"] for e in ("first", "owned"))
        assert sorted(hits) == sorted([first, later])
        assert hits[first]["user"]["name"] == "mallory" \
            and base64.b64decode(hits[first]["script"]["raw"]) == self.FIRST_SCRIPT
        assert hits[later]["user"]["name"] == "alice" and hits[later]["replaces"] == first
        assert made["logged"] == ["ES_CREATE_ONLY"]

    def test_without_a_first_document_the_later_event_is_the_document(self, empty):  # noqa: F811
        if self.privilege == "index":
            super().test_without_a_first_document_the_later_event_is_the_document(empty)

    def test_check_says_which_of_the_two_it_is(self, empty, make_daemon, work):  # noqa: F811
        empty.put_template()
        daemon = make_daemon(sinks={"archive": None,
                                    "search": search_lab.sink(empty, ca_file=str(empty.certs
                                                                                 / "ca.pem"),
                                                              api_key_file=self.file)})
        (work / "spool").mkdir(mode=0o700, exist_ok=True)
        said = daemon.command("check")
        assert ("create documents but not change them"
                in said.stderr) == (self.privilege == "create_doc"), said.stdout + said.stderr


@pytest.fixture(scope="module")
def api_key(node):  # noqa: F811
    """id:key of the least right that the sink needs."""
    made = node.call("POST", "/_security/api_key",
                     {"name": "scriptorium", "role_descriptors": {"writer": {
        "cluster": [], "index": [{"names": ["scriptorium-*"],
                                  "privileges": ["create_doc", "auto_configure"]}]}}})
    return f"{made['id']}:{made['api_key']}"


class TestApiKey(Access):
    @pytest.fixture(autouse=True, params=["as id and key", "encoded"])
    def key(self, request, api_key):
        self.text = api_key if request.param == "as id and key" \
            else base64.b64encode(api_key.encode()).decode()

    def rights(self, node, work):  # noqa: F811
        return {"api_key_file": search_lab.secret_file(work, "api-key", self.text)}


def test_a_key_that_may_make_no_index_holds_the_first_event_of_a_month(empty, make_daemon, spool,
                                                                       work):  # noqa: F811
    made = empty.call("POST", "/_security/api_key",
                      {"name": "no-new-index", "role_descriptors": {"writer": {
        "cluster": [], "index": [{"names": ["scriptorium-*"], "privileges": ["create_doc"]}]}}})
    file = search_lab.secret_file(work, "api-key", f"{made['id']}:{made['api_key']}")
    empty.put_template()
    daemon = make_daemon(sinks={"archive": None,
                                "search": search_lab.sink(
                                    empty, ca_file=str(empty.certs / "ca.pem"), api_key_file=file)})
    result = daemon.command("check", check=False)
    assert result.returncode != 0 and "auto_configure" in result.stdout + result.stderr, \
            result.stdout + result.stderr
    spool.write(1)
    daemon.start()
    status = daemon.wait_status(lambda s: "403" in (s["sinks"]["search"]["last_error"] or ""),
                                "the server says no")
    assert status["sinks"]["search"]["dead"] == 0 and status["sinks"]["search"]["waiting"] == 1
    assert "security_exception" in daemon.log_text()


def test_the_key_can_neither_read_nor_overwrite_nor_delete(empty, api_key):  # noqa: F811
    """What the role of our documentation is worth."""
    empty.put_template()
    key = {"Authorization": "ApiKey " + base64.b64encode(api_key.encode()).decode()}
    index = "scriptorium-job-2026.01"
    assert empty.request("POST", f"/{index}/_create/1", {"@timestamp": "2026-01-15T12:00:00Z"},
                         key)[0] == 201
    assert empty.request("POST", f"/{index}/_create/1", {"@timestamp": "2026-01-15T12:00:00Z"},
                         key)[0] == 409
    for method, path, body in (("PUT", f"/{index}/_doc/1", {"@timestamp": "2026-01-15T12:00:00Z"}),
                               ("GET", f"/{index}/_search", None),
                               ("DELETE", f"/{index}/_doc/1", None), ("DELETE", f"/{index}", None)):
        assert empty.request(method, path, body, key)[0] == 403, (method, path)
