"""Kafka's classes and this engine read the same directories with equal results."""

import json
from functools import cache

import pytest

from tests.interop import (  # add their shapes to WRITERS
    holes,  # noqa: F401
    leftovers,  # noqa: F401
    replicas,  # noqa: F401
    salvaged,  # noqa: F401
    workloads,  # noqa: F401
)
from tests.interop.agreeing import agree
from tests.interop.directories import GOLDEN, WRITERS, Written

pytestmark = pytest.mark.interop

CASES = tuple(sorted(path.parent.name for path in GOLDEN.glob("*/manifest.json")))


# -- written by Kafka ----------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES)
def test_golden_directories_look_the_same_to_both(case, judge, scratch, row):
    manifest = json.loads((GOLDEN / case / "manifest.json").read_text())
    now_ms = manifest.get("closed_at_ms") or manifest["cleaning_time_ms"]
    places = ("data",) if manifest["kind"] == "read" else ("before/data", "after/data")
    row("golden directories, closed and as after a crash", judge, 2 * len(places))
    for place in places:
        written = Written(GOLDEN / case / place, manifest["config"], now_ms, "golden")
        assert agree(judge, written, scratch) == []
        assert agree(judge, written, scratch, clean=False) == []


# -- written by this engine ----------------------------------------------------------------------


@pytest.fixture(scope="session")
def written(tmp_path_factory):
    """Return a function that writes a shape, once for all releases."""
    root = tmp_path_factory.mktemp("ours")

    @cache
    def write(shape: str) -> Written:
        return WRITERS[shape](root / str(len(list(root.iterdir()))))

    return write


@pytest.mark.parametrize("shape", WRITERS)
def test_kafka_reads_this_engines_directories(shape, judge, written, scratch, row):
    row(_row_of(shape), judge)
    assert agree(judge, written(shape), scratch) == []


def _row_of(shape: str) -> str:
    return next(row for start, row in ROWS if shape.startswith(start))


ROWS = (
    ("codec", "our directories: every codec, 0 B to 1 MiB, headers, nulls"),
    ("recompressed", "our directories: every codec, 0 B to 1 MiB, headers, nulls"),
    ("LogAppendTime", "our directories: LogAppendTime"),
    ("replica of", "our directories: replicas of a cluster"),
    ("replicated", "our directories: replicated batches, producers, transactions"),
    ("unclean", "our directories: unclean stop, torn tails, damage, missing files"),
    ("leftover", "our directories: leftovers of swaps, splits and deletions"),
    ("load with offset overflow", "our directories: segments with offset overflow, split"),
    ("load", "our directories: indexes and segments missing, foreign, damaged, overlapping"),
    ("cleaned", "our directories: after our cleaning"),
    ("salvaged", "our directories: salvaged after damage"),
    ("holes", "our directories: logs with holes, as tests get them"),
    ("workload", "our directories: generated workloads, each preset"),
    ("random", "our directories: random logs, cleaned between appends"),
    ("", "our directories: segments, indexes, reopened logs"),
)


@pytest.mark.parametrize(
    "shape", [name for name in WRITERS if not name.startswith(("unclean", "cleaned, then"))]
)
def test_recovery_of_a_whole_log_has_the_same_result(shape, judge, written, scratch, row):
    row("our directories: unclean stop, torn tails, damage, missing files", judge)
    assert agree(judge, written(shape), scratch, clean=False) == []
