"""Histories of a consumer group: one owner of each partition, and assignments converge.

The default suite runs a few hundred seeds, the long profile ten thousand.
"""

import os

import pytest

from tests.property.consumer_group_histories import History

SEEDS = 320
LONG_SEEDS = int(os.environ.get("LOGSTORE_CONSUMER_GROUP_HISTORIES", "10000"))


def live(seeds):
    for seed in seeds:
        try:
            History(seed).live()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


@pytest.mark.parametrize("part", range(8))
def test_consumer_group_histories(part):
    live(range(part, SEEDS, 8))


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("part", range(20))
def test_many_consumer_group_histories(part):
    live(range(1_000_000 + part, 1_000_000 + LONG_SEEDS, 20))


def test_the_same_seed_leaves_the_same_records():
    first, again, other = (History(seed).live() for seed in (3, 3, 4))
    assert first == again != other
