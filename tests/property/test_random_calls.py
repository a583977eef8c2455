"""Random calls of clusters, brokers and clients: every result and error is the stored one."""

import pytest

from tests.property.random_calls import FEW, transcribe
from tests.support.world import transcripts


@pytest.mark.parametrize("part", range(4))
def test_random_calls(part):
    for seed in range(part, FEW, 4):
        transcripts.check("random_calls", seed, transcribe(seed))
