"""Patterns of translated prose, and the limits that `make lint` enforces."""

import pytest

from tools import prose


def test_packages_above_their_limits_and_limits_of_no_package_are_named(monkeypatch):
    few = prose.Hit("docs", "page.md", 3, "deed", "A deed was done.")
    monkeypatch.setattr(prose, "found", lambda: ({"a": [few], "b": [few], "c": [few]}, words))
    monkeypatch.setattr(prose, "limits", lambda: {"b": 1, "gone": 4})
    words = {"a": 999, "b": 10, "c": 1000}
    assert prose.excess() == [
        "gone: no such package; remove its limit",
        "a: 1 hits, limit 0; the last 20:",
        "  page.md:3: deed: A deed was done.",
    ]


@pytest.mark.parametrize(
    ("text", "name"),
    (
        ("It returns what is read.", "what for a noun"),
        ("The one who asks gets it.", "who for a noun"),
        ("The clock was told.", "tell"),
        ("An entry stands there.", "stand, lie"),
        ("As that of a broker.", "that of"),
        ("It is no file.", "is no"),
        ("Of a key the latest survives.", "fronted Of"),
        ("It runs beside the work.", "beside"),
        ("Here nothing is read.", "nothing is"),
        ("The record goes with its segment.", "go, stay"),
        ("A file that holds batches.", "hold for contain"),
        ("The latest record is kept.", "is kept"),
        ("A batch of the log of a topic.", "chain of of"),
        ("It is the offset of the end.", "the offset of the end"),
        ("A cleaning explains the gap.", "a cleaning"),
        ("It is Kafka's own cleaner.", "'s own"),
        ("Return an offset; -1 for an empty log.", "clause without a verb"),
        ("Most records of a batch.", "most for maximum"),
        ("Return room for so many keys.", "so many"),
        ("It returns that which follows.", "that which"),
        ("The file resides there.", "reside, inform"),
        ("A deed was done.", "deed"),
        ("Every door is shut.", "door"),
    ),
)
def test_patterns_find_translated_sentences(text, name):
    passage = prose.Passage("docs", "page.md", 1, text)
    assert [hit.name for hit in prose.hits(passage)] == [name]


def test_comments_and_strings_are_read_from_every_language():
    assert list(prose.python('"""One."""\nx = "a b c d"  # two\n')) == [
        (1, "One."),
        (2, "a b c d"),
        (2, "two"),
    ]
    script = 'a = "b"; // one\n/* two */ c = `x ${d} y z`;'
    assert [text.strip() for _, text in prose.scanned(script, prose.JAVASCRIPT)] == [
        "one",
        "two",
        "x  …  y z",
    ]
    settings = 'a = "one two three four" # five\n'
    assert [text.strip() for _, text in prose.scanned(settings, prose.TOML)] == [
        "one two three four",
        "five",
    ]
