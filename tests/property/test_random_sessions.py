"""Random requests to the cache of fetch sessions: every outcome is the stored one."""

from tests.property.random_sessions import FEW, transcribe
from tests.support.world import transcripts


def test_random_sessions():
    for seed in range(FEW):
        transcripts.check("random_sessions", seed, transcribe(seed))
