"""Random clusters: transactions are whole, and groups keep their offsets, under any faults."""

import os
from collections import Counter

import pytest

from tests.property.cluster_simulation import run_and_shrink
from tests.property.coordinator_simulation import KINDS, Simulation

FEW = 40
SEEDS = int(os.environ.get("LOGSTORE_CLUSTERS", "10000"))
FIRST = int(os.environ.get("LOGSTORE_CLUSTERS_FROM", "0"))

SITUATIONS = (
    *KINDS,
    "aborted",
    "committed",
    "end repeated",
    "epochs bumped",
    "fenced",
    "fenced by another",
    "lost power",
    "moved a coordinator",
    "offset committed",
    "offset fetched",
    "offsets sent",
    "passes",
    "seen whole",
    "struck inside a call",
    "synced: None",
    "timed out",
    "unknown",
)
"""Situations that a run must reach."""


def run_seeds(first: int, count: int) -> None:
    tally: Counter[str] = Counter()
    for seed in range(first, first + count):
        tally += run_and_shrink(seed, Simulation)
    assert [each for each in SITUATIONS if not tally[each]] == []


def test_a_few_clusters():
    run_seeds(0, FEW)


@pytest.mark.long
def test_many_clusters():
    """Run `LOGSTORE_CLUSTERS` seeds from `LOGSTORE_CLUSTERS_FROM` on."""
    run_seeds(FIRST, SEEDS)
