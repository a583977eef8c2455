"""Random calls of the coordinators: every result, error and record is the stored one."""

import pytest

from tests.property.random_coordination import FEW, transcribe
from tests.support.world import transcripts


@pytest.mark.parametrize("part", range(4))
def test_random_coordination(part):
    for seed in range(part, FEW, 4):
        transcripts.check("random_coordination", seed, transcribe(seed))
