"""Elasticsearch 9: templates and searching, and what the daemon brings there."""

from search_suite import Content, Delivery, LateOwners, empty, node, templated  # noqa: F401

KIND = "elasticsearch9"
SANITIZED_TOO = False


class TestContent(Content):
    pass


class TestDelivery(Delivery):
    pass


class TestLateOwners(LateOwners):
    pass
