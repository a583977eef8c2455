"""Random configurations: every value, description, note and error is the stored one."""

from tests.property.random_configs import FEW, transcribe
from tests.support.world import transcripts


def test_random_configs():
    for seed in range(FEW):
        transcripts.check("random_configs", seed, transcribe(seed))
