"""Consumers of one group in one thread: no record is missed, no partition has two readers."""

import pytest

from tests.property.consumer_histories import FEW, Story, transcribe
from tests.support.world import transcripts


@pytest.mark.parametrize("part", range(4))
def test_consumers_of_a_group_miss_nothing(part):
    for seed in range(part, FEW, 4):
        try:
            transcript = transcribe(seed)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        transcripts.check("consumer_histories", seed, transcript)


@pytest.mark.parametrize("seed", (1, 3))
def test_the_same_seed_writes_the_same_bytes(seed, tmp_path):
    assert Story(seed).live() == Story(seed).live() == Story(seed, tmp_path).live()
