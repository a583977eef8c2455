"""docs/CONFIG.md matches the table."""

from logstore.config.broker_keys import BROKER_KEYS
from logstore.config.keys import LATER_RELEASES
from logstore.config.topic_keys import TOPIC_KEYS
from tools import config_docs


def test_the_page_is_current():
    assert config_docs.TARGET.read_text(encoding="utf-8") == config_docs.text(), "run: make docs"


def test_every_key_has_its_place():
    """Topic keys and broker-only keys a section, broker keys behind topic keys a row."""
    lines = config_docs.text().splitlines()
    behind = {synonym.key for row in TOPIC_KEYS.values() for synonym in row.synonyms}
    for key in TOPIC_KEYS:
        assert lines.count(f"### `{key}`") == 1
    for key in BROKER_KEYS:
        sections = lines.count(f"### `{key}`")
        rows = sum(line.startswith(f"| `{key}` | `") for line in lines)
        assert sections + rows > 0
        assert rows == (key in behind), key
    for change in LATER_RELEASES:
        assert any(line.startswith(f"| `{change.key}`") for line in lines)


def test_meanings_say_more_than_the_key():
    """A unit or an effect, in a sentence; `describe` shows them too, so they are short."""
    for row in (*TOPIC_KEYS.values(), *BROKER_KEYS.values()):
        assert 40 < len(row.doc) <= 160, row.key
        if row.key.endswith(".ms") and "Accepted without effect" not in row.doc:
            assert " ms" in row.doc, row.key
        if row.key.endswith("bytes"):
            assert "ytes" in row.doc, row.key
