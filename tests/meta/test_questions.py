"""Twenty questions of new readers: two links from the README lead to the page of the answer."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools import site

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"

ANSWERS = {
    # authors of tests
    "How do I write a test without a broker process and without sleeping?": (
        "START.md#first-test",
        "The pytest fixture `logstore_broker` is a broker in memory with a virtual clock.",
    ),
    "How does a service in Go get a broker for a test?": (
        "WIRE.md#tests-in-other-languages",
        "$ logstore serve --memory --listen 127.0.0.1:0 --topic users:3:cleanup.policy=compact",
    ),
    "How does a client in a container connect?": (
        "WIRE.md#tests-in-other-languages",
        "Start the broker with `--listen 0.0.0.0:9092`",
    ),
    "How do I make the third commit fail?": (
        "RECIPES.md#fail-the-third-commit-or-delay-every-fetch",
        "broker.fail(",
    ),
    "How do I test that a service that crashes in a transaction works exactly once?": (
        "TESTING-WITH-IT.md#exactly-once",
        "The test makes it fail at each of its records in turn.",
    ),
    # operators
    "Why is this partition not compacted?": (
        "questions/why-is-it-not-compacted.md",
        "$ logstore explain ",
    ),
    "When is this tombstone removed?": (
        "questions/when-does-this-tombstone-go.md",
        "The first pass after the horizon removes it.",
    ),
    "Is the data of a deleted user still on disk?": (
        "questions/is-this-persons-data-gone.md",
        "$ logstore erasure users ",
    ),
    "Which keys take the space?": (
        "questions/why-does-it-grow.md",
        "$ logstore stats ./kafka-logs/clicks-0 --top 3",
    ),
    "How do I save the intact records of a damaged partition?": (
        "questions/rescue-a-partition.md",
        "$ logstore salvage ",
    ),
    "May I read the log directory of a running broker?": (
        "START.md#first-look-at-a-directory",
        "The broker may be running: read commands take no lock",
    ),
    "How do I query a log with DuckDB?": (
        "questions/get-the-data-out.md",
        "DuckDB reads the file in one line.",
    ),
    # users who choose settings
    "Which default and unit does min.compaction.lag.ms have?": (
        "CONFIG.md#mincompactionlagms",
        "Minimum age in ms, by its largest timestamp, at which a segment may be compacted.",
    ),
    "Which setting cleans every record within some days, with the fewest bytes written?": (
        "questions/which-setting-keeps-my-promise.md",
        "--goal 'oldest.p99 <= 12d' --minimize written",
    ),
    # users who measure
    "How fast is it, compared with Kafka's cleaner on the same machine?": (
        "PERFORMANCE.md#the-newest-result",
        "| `clean/1KiB-2` |",
    ),
    "How do I repeat the measurement?": ("PERFORMANCE.md#measuring", "$ make bench "),
    # users of Spark
    "How do I read a log directory with Spark?": (
        "WORKLOADS.md#the-data-source",
        'spark.read.format("logstore")',
    ),
    "How do I generate ten million records and verify their cleaning?": (
        "WORKLOADS.md",
        "`make workload` runs it with ten million records",
    ),
    # everybody
    "Where does it deliberately differ from Kafka?": (
        "COMPATIBILITY.md#deliberate-differences-from-kafka",
        "| Subject | Kafka | Here |",
    ),
    "Which acknowledged records are there after SIGKILL, and after a loss of power?": (
        "RELIABILITY.md#promises",
        "every acknowledged record is there",
    ),
}


def linked(page: Path) -> set[Path]:
    """Return the pages that a page of the site links to."""
    text = site.for_the_site(page.read_text(encoding="utf-8"), page)
    inline = re.findall(r"\]\(([^)\s]+)\)", re.sub(r"^```.*?^```$", "", text, flags=re.S | re.M))
    targets = [*inline, *re.findall(r"^\[\w+\]: (\S+)$", text, re.MULTILINE)]
    paths = {(page.parent / target.partition("#")[0]).resolve() for target in targets}
    return paths & set(site.pages())


def section(page: Path, anchor: str) -> str:
    """Return a section of a page with its subsections, or the whole page, on one line."""
    text = page.read_text(encoding="utf-8")
    if anchor:
        parts = re.split(r"^(#+) (.*)$", text, flags=re.MULTILINE)
        found = [
            (index, parts[index])
            for index in range(1, len(parts), 3)
            if re.sub(r"[^\w\- ]", "", parts[index + 1]).lower().replace(" ", "-") == anchor
        ]
        ((start, level),) = found
        ends = [i for i in range(start + 3, len(parts), 3) if len(parts[i]) <= len(level)]
        text = " ".join(parts[start : ends[0] if ends else len(parts)])
    return " ".join(re.sub(r"\\\n", " ", text).split())


def test_there_are_twenty_questions():
    assert len(ANSWERS) == 20


@pytest.mark.parametrize("question", ANSWERS)
def test_answer_is_two_links_from_the_first_page(question):
    target, sentence = ANSWERS[question]
    name, _, anchor = target.partition("#")
    first = linked(ROOT / "README.md")
    assert DOCS / name in first.union(*map(linked, first))
    assert sentence.strip() in section(DOCS / name, anchor)
