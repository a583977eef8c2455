"""Requests of all kinds to a listener: every answer is the stored one."""

import pytest

from tests.property.conversations import FEW, transcribe
from tests.support.world import transcripts


@pytest.mark.parametrize("part", range(4))
def test_conversations(part):
    for seed in range(part, FEW, 4):
        transcripts.check("conversations", seed, transcribe(seed))
