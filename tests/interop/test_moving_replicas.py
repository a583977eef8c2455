"""Reassignments under the load of four clients, with kills, full disks and the cleaner.

confluent-kafka, kafka-python and franz-go write with acks=all, confluent-kafka also in
transactions. Nothing acknowledged is lost, and each new replica has the leader's files.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest

from tests.interop.conftest import unavailable
from tests.interop.moving import run
from tests.support.interop.judge import Unavailable

pytestmark = pytest.mark.interop

RUNS = int(os.environ.get("LOGSTORE_MOVES", "20"))
"""Runs of all cases in the long profile."""


def moved(home, seed, **options):
    try:
        return run(home, seed, **options)
    except Unavailable as error:
        unavailable(error)


def test_replicas_move_under_load(scratch, say):
    counts = moved(scratch, 1)
    say(f"replicas that moved under load: {dict(counts)}")
    assert counts["equal replicas"] == 15
    assert min(counts["cancelled"], counts["cleanings"], counts["transactions"]) > 0
    assert counts["partitions that moved during the event"] > 10


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_replicas_move_under_load_again_and_again(scratch, say):
    total = Counter()
    for seed in range(100, 100 + RUNS):
        total += moved(scratch / f"{seed}", seed)
    say(f"{RUNS} runs of moves under load: {dict(total)}")
