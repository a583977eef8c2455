"""Transactions on three brokers of Kafka and three of ours, one of which is killed.

Clients use both versions of transactions. Each history is interrupted by the kill of its
transaction coordinator, its group coordinator or the leader of its data; most also have fences and
timeouts.
"""

from __future__ import annotations

import os

import pytest

from tests.interop.conftest import unavailable
from tests.interop.failovers import ROLES, Tally, run_rounds
from tests.support.interop.judge import Unavailable

pytestmark = pytest.mark.interop

HISTORIES = 20
"""Histories of a round in the long profile."""

ROUNDS = int(os.environ.get("LOGSTORE_FAILOVERS", "12"))
"""Kills in the long profile."""

VERSIONS = {
    "InitProducerId": range(6),
    "AddPartitionsToTxn": range(4),
    "AddOffsetsToTxn": range(4),
    "TxnOffsetCommit": range(6),
    "EndTxn": range(6),
    "Produce": range(3, 13),
    "FindCoordinator": range(5),
}
"""Versions that clients use on both sides."""


@pytest.fixture
def run(scratch, say):
    """Return a function that runs rounds and returns the tally, without a difference."""

    def run(rounds: int, histories: int, seed: int) -> Tally:
        try:
            tally = run_rounds(scratch, rounds, histories, seed)
        except Unavailable as error:
            unavailable(error)
        assert not tally.differences, "\n\n".join(tally.differences)
        assert tally.histories * 10 >= 9 * rounds * histories, "the others ended before the kill"
        assert tally.slow * 20 <= tally.histories
        assert tally.in_flight.total() > 0
        for version in (0, 2):
            assert tally.events[f"transactions of version {version}"] > tally.histories
        say(f"three brokers of Kafka 4.3.1 and of ours: {tally}")
        return tally

    return run


def test_histories_with_a_kill_end_as_on_kafka(run):
    tally = run(rounds=2, histories=10, seed=3)
    assert min(tally.hits["fence"], tally.hits["timeout"]) > 0


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_many_histories_with_kills_end_as_on_kafka(run, say):
    tally = run(ROUNDS, HISTORIES, seed=1)
    for line in tally.coverage():
        say(line)
    assert set(tally.kills) == set(ROLES)
    assert min(tally.hits["fence"], tally.hits["timeout"]) * 4 > tally.histories
    for api, versions in VERSIONS.items():
        assert tally.versions_of(api) == set(versions)
    assert tally.used.total() * 5 < tally.histories
