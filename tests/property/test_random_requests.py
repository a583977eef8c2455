"""Random requests of every API in every version: every answer is the stored one."""

import pytest

from tests.property.random_requests import FEW, transcribe
from tests.support.world import transcripts


@pytest.mark.parametrize("part", range(4))
def test_random_requests(part):
    for seed in range(part, FEW, 4):
        transcripts.check("random_requests", seed, transcribe(seed))
