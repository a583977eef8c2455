"""Prose is plain English: counts of known patterns and private words may only fall."""

import pytest

from tools import prose


def test_no_package_has_more_hits_than_its_limit():
    """One test, because it reads all files, which takes seconds."""
    matches, _ = prose.found()
    limits = prose.limits()
    assert [name for name in limits if name not in matches] == []
    shown = []
    for name, hits in sorted(matches.items()):
        if len(hits) > limits.get(name, 0) and prose.rate(name) > prose.AIM:
            shown.append(f"{name}: {len(hits)} hits, limit {limits.get(name, 0)}; the last 20:")
            shown += [f"  {hit.file}:{hit.line}: {hit.name}: {hit.text}" for hit in hits[-20:]]
    if shown:
        advice = "Rewrite until they are fewer (python -m tools.prose PACKAGE lists all):"
        pytest.fail("\n".join([advice, *shown]))


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
