"""OpenSearch 2.19 with its security plugin: HTTPS, a role that may create documents only, client
certificates."""

import json
import re

import pytest

import harness
import search_lab
from search_suite import Access, Delivery, LateOwners, Refusals, empty, node  # noqa: F401

KINDS = ("opensearch2-secure",)
SETTINGS = ['plugins.security.restapi.roles_enabled: ["all_access"]']  # to make users and roles
PASSWORD = "three-horses-and-A-trumpet-7"


class TestDelivery(Delivery):
    pass


class TestRefusals(Refusals):
    pass


class TestPassword(Access):
    def rights(self, node, work):  # noqa: F811
        return {"user": "writer", "password_file": search_lab.secret_file(work, "writer-password",
                                                                          "writer-secret")}

    def test_the_writer_can_neither_read_nor_overwrite_nor_delete(self, empty):  # noqa: F811
        """What the role of our documentation is worth."""
        empty.put_template()
        assert empty.bulk("scriptorium-job-2026.01",
                          [("1", {"@timestamp": "2026-01-15T12:00:00Z"})])[0]["status"] == 201
        for method, path in (("GET", "/scriptorium-job-2026.01/_search"),
                             ("DELETE", "/scriptorium-job-2026.01/_doc/1"),
                             ("DELETE", "/scriptorium-job-2026.01"),
                             ("PUT", "/_index_template/scriptorium-job")):
            body = {"index_patterns": ["scriptorium-x-*"]} if method == "PUT" else None
            assert empty.request(method, path, body,
                                 user="writer:writer-secret")[0] == 403, (method, path)


class TestLateOwners(LateOwners):
    """With the role of our documentation."""

    def options(self, node):  # noqa: F811
        return {"ca_file": str(node.certs / "ca.pem"), "user": "writer",
                "password_file": search_lab.secret_file(node.work, "writer-password",
                                                        "writer-secret")}


class TestClientCertificate(Access):
    def rights(self, node, work):  # noqa: F811
        return {"certificate_file": str(node.certs / "client.pem"),
                "key_file": str(node.certs / "client.key")}


def documented_roles():
    """The roles of docs/secure.md, by name."""
    text = (harness.ROOT / "docs" / "secure.md").read_text()
    blocks = re.findall(r"<!-- role: opensearch (\w+) -->\n```json\n(.*?)\n```", text, re.DOTALL)
    return {name: json.loads(role) for name, role in blocks}


class TestReaders:
    """What the readers' roles of our documentation are worth."""

    @pytest.fixture
    def readers(self, empty):  # noqa: F811
        """Each role with one user of that name; `own_jobs` is alice's."""
        security = "/_plugins/_security/api"
        users = {"own_jobs": ["alice"], "support": ["support", "auditor"],
                 "environments": ["auditor"]}
        roles = documented_roles()
        assert set(roles) == set(users)
        for role, names in users.items():
            empty.call("PUT", f"{security}/roles/{role}", roles[role])
            for name in names:
                empty.call("PUT", f"{security}/internalusers/{name}", {"password": PASSWORD})
            empty.call("PUT", f"{security}/rolesmapping/{role}", {"users": names})

    def test_each_role_shows_what_it_says(self, empty, readers):  # noqa: F811
        def job(user, verified=True):
            return {"@timestamp": "2026-01-15T12:00:00Z",
                    "user": {"name": user, "verified": verified}}
        empty.put_template()
        for index in ("scriptorium-job-2026.01", "scriptorium-environments-2026.01"):
            made = empty.bulk(index, [("hers", job("alice")), ("his", job("bob")),
                                      ("claimed", job("alice", verified=False))])
            assert [item["status"] for item in made] == [201] * 3

        def seen(user, index):
            status, answer = empty.request("POST", f"/{index}/_search", {},
                                           user=f"{user}:{PASSWORD}")
            if status == 403:
                return None
            assert status == 200, answer
            return sorted(hit["_id"] for hit in answer["hits"]["hits"])
        everything = ["claimed", "hers", "his"]
        assert seen("alice", "scriptorium-job-2026.01") == ["hers"]
        assert seen("alice", "scriptorium-environments-2026.01") is None
        assert seen("support", "scriptorium-job-2026.01") == everything
        assert seen("support", "scriptorium-environments-2026.01") is None
        assert seen("auditor", "scriptorium-job-2026.01") == everything
        assert seen("auditor", "scriptorium-environments-2026.01") == everything
