"""Histories of a consumer group: one owner of each partition, and assignments converge.

The default suite runs a few hundred seeds, the long profile ten thousand.
"""

import os

import pytest

from tests.property.consumer_group_histories import FEW, History, transcribe
from tests.support.world import transcripts

LONG_SEEDS = int(os.environ.get("LOGSTORE_CONSUMER_GROUP_HISTORIES", "10000"))


def live(seeds):
    for seed in seeds:
        try:
            History(seed).live()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


@pytest.mark.parametrize("part", range(8))
def test_consumer_group_histories(part):
    for seed in range(part, FEW, 8):
        try:
            transcript = transcribe(seed)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        transcripts.check("consumer_group_histories", seed, transcript)


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("part", range(20))
def test_many_consumer_group_histories(part):
    live(range(1_000_000 + part, 1_000_000 + LONG_SEEDS, 20))


def test_the_same_seed_leaves_the_same_records():
    first, again, other = (History(seed).live() for seed in (3, 3, 4))
    assert first == again != other
