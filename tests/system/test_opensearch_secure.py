"""OpenSearch 2.19 with its security plugin: HTTPS, a role that may create documents only, client
certificates."""

import search_lab
from search_suite import Access, Delivery, LateOwners, Refusals, empty, node  # noqa: F401

KIND = "opensearch2-secure"


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
