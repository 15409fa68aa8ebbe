"""OpenSearch 2.19 and 3.8 and Elasticsearch 9.2, each without users: templates and searching, and
what the daemon brings there."""

from search_suite import Content, Delivery, LateOwners, empty, node, templated  # noqa: F401

# Sanitizers see what the daemon writes to the first: it writes the same to the others.
KINDS = ("opensearch2", "opensearch3", "elasticsearch9")


class TestContent(Content):
    pass


class TestDelivery(Delivery):
    pass


class TestLateOwners(LateOwners):
    pass
