"""Rules of consumer groups in random states: every decision is the stored one."""

from tests.property.random_rules import FEW, transcribe
from tests.support.world import transcripts


def test_random_rules():
    for seed in range(FEW):
        transcripts.check("random_rules", seed, transcribe(seed))
