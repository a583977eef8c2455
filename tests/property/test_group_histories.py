"""Histories of a group against a model: no lost or doubled assignment, offsets never go back.

The default suite runs a few hundred seeds, the long profile ten thousand.
"""

import os

import pytest

from tests.property.group_histories import FEW, History, transcribe
from tests.support.world import transcripts

LONG_SEEDS = int(os.environ.get("LOGSTORE_GROUP_HISTORIES", "10000"))


@pytest.mark.parametrize("part", range(8))
def test_group_histories(part):
    for seed in range(part, FEW, 8):
        try:
            transcript = transcribe(seed)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        transcripts.check("group_histories", seed, transcript)


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("part", range(20))
def test_many_group_histories(part):
    for seed in range(1_000_000 + part, 1_000_000 + LONG_SEEDS, 20):
        try:
            History(seed).live()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


def test_the_same_seed_leaves_the_same_bytes():
    data = [History(seed).live(30) for seed in (3, 3, 4)]
    assert data[0] == data[1] != data[2]
