"""Random clusters: no acknowledged record is lost, and replicas agree, under any faults."""

import logging
import os
from collections import Counter

import pytest

from logstore.cluster.replica_fetcher import ReplicaFetcher
from tests.property.cluster_simulation import (
    FEW,
    command,
    failure,
    plan,
    run,
    run_and_shrink,
    shrunk,
)
from tests.support.world import transcripts

SEEDS = int(os.environ.get("LOGSTORE_CLUSTERS", "10000"))
FIRST = int(os.environ.get("LOGSTORE_CLUSTERS_FROM", "0"))

SITUATIONS = (
    "acknowledged by all",
    "append: LEADER_NOT_AVAILABLE",
    "append: NOT_ENOUGH_REPLICAS",
    "append: REQUEST_TIMED_OUT",
    "delete-records: None",
    "delete-records: REQUEST_TIMED_OUT",
    "lost power",
    "move",
    "passes",
    "restart",
    "transactions ended",
)
"""Situations that a run must reach."""


@pytest.fixture(autouse=True)
def no_warnings():
    """Keep no warning: pytest would keep the logs with it that it is about."""
    logging.disable(logging.ERROR)
    yield
    logging.disable(logging.NOTSET)


def run_seeds(first: int, count: int) -> None:
    tally: Counter[str] = Counter()
    for seed in range(first, first + count):
        done = run_and_shrink(seed)
        tally += done.tally
        if seed < FEW:
            transcripts.check("cluster_simulation", seed, done.transcript)
    assert [each for each in SITUATIONS if not tally[each]] == []


def test_a_few_clusters():
    run_seeds(0, FEW)


def test_a_seed_repeats_the_same_run():
    assert run(7).transcript.lines == run(7).transcript.lines


def test_a_failure_is_shrunk_to_the_steps_that_it_takes():
    needed = {3, 11, 12}
    assert shrunk(range(40), lambda some: needed <= set(some)) == [3, 11, 12]


def test_a_failure_names_the_command_that_reproduces_it(monkeypatch):
    """With a planted fault: followers do not truncate records that their new leader lacks."""
    monkeypatch.setattr(ReplicaFetcher, "_truncate", lambda self, offset: None)
    seed = next(seed for seed in range(40) if failure(seed, range(len(plan(seed)))))
    with pytest.raises(Exception) as raised:  # whatever was noticed first
        run_and_shrink(seed)
    (note,) = raised.value.__notes__
    steps = [int(number) for number in note.rpartition(" ")[2].split(",")]
    assert note.endswith(command(seed, steps))
    assert len(steps) < len(plan(seed)) / 2
    assert failure(seed, steps) is not None


@pytest.mark.long
def test_many_clusters():
    """Run `LOGSTORE_CLUSTERS` seeds from `LOGSTORE_CLUSTERS_FROM` on."""
    run_seeds(FIRST, SEEDS)
