"""Random calls while coordinators move and end: every result is the stored one."""

import pytest

from tests.property.random_followers import FEW, transcribe
from tests.support.world import transcripts


@pytest.mark.parametrize("part", range(2))
def test_random_followers(part):
    for seed in range(part, FEW, 2):
        transcripts.check("random_followers", seed, transcribe(seed))
