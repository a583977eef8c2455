"""Random clusters: transactions are whole, and groups keep their offsets, under any faults."""

import os
from collections import Counter

import pytest

from tests.property.cluster_simulation import run_and_shrink
from tests.property.coordinator_simulation import CORE_SITUATIONS, FEW, SITUATIONS, Simulation
from tests.support.world import transcripts

SEEDS = int(os.environ.get("LOGSTORE_CLUSTERS", "10000"))
FIRST = int(os.environ.get("LOGSTORE_CLUSTERS_FROM", "0"))


def run_seeds(first: int, count: int, situations: tuple[str, ...]) -> None:
    tally: Counter[str] = Counter()
    for seed in range(first, first + count):
        done = run_and_shrink(seed, Simulation)
        tally += done.tally
        if seed < FEW:
            transcripts.check("coordinator_simulation", seed, done.transcript)
    print(dict(sorted(tally.items())))  # noqa: T201  # shown with -s
    assert [each for each in situations if not tally[each]] == []


def test_a_few_clusters():
    run_seeds(0, FEW, CORE_SITUATIONS)


@pytest.mark.long
def test_many_clusters():
    """Run `LOGSTORE_CLUSTERS` seeds from `LOGSTORE_CLUSTERS_FROM` on; `-s` prints the totals."""
    run_seeds(FIRST, SEEDS, SITUATIONS)
