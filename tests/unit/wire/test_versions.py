"""The table of versions matches the messages, the handlers and the page."""

from logstore.messages.apis import apis_by_name
from logstore.wire.registry import handlers
from logstore.wire.versions import MINIMUM, SERVED
from tools import wire_docs


def test_versions_are_those_that_the_messages_have():
    for name, (first, last, advertised_from) in (*SERVED.items(), *MINIMUM.items()):
        api = apis_by_name()[name]
        assert set(range(first, last + 1)) <= api.versions - api.unstable, name
        assert advertised_from is None or advertised_from < first


def test_the_fewest_are_among_those_served():
    for name, (first, last, _) in MINIMUM.items():
        assert SERVED[name].first <= first <= last <= SERVED[name].last


def test_each_handler_has_its_versions():
    assert handlers().keys() <= SERVED.keys()


def test_the_page_shows_the_versions():
    old = wire_docs.TARGET.read_text(encoding="utf-8")
    assert wire_docs.page(old) == old, "run: make docs"
