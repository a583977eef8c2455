"""Histories of reassignments, reads from followers and fetch sessions, compared with Kafka 4.3.1.

Three brokers of each, in racks; 5 histories for each run and 300 in the long profile.
"""

from __future__ import annotations

import os

import pytest

from tests.interop.conftest import unavailable
from tests.interop.follower_histories import run_rounds
from tests.support.interop.judge import Unavailable

pytestmark = pytest.mark.interop

HISTORIES = 20
"""Histories of a round in the long profile."""

ROUNDS = int(os.environ.get("LOGSTORE_FOLLOWERS", "15"))
"""Rounds in the long profile."""

COVERED = {
    "AlterPartitionReassignments": {
        "NONE",
        "INVALID_REPLICA_ASSIGNMENT",
        "INVALID_REPLICATION_FACTOR",
        "NO_REASSIGNMENT_IN_PROGRESS",
        "UNKNOWN_TOPIC_OR_PARTITION",
    },
    "DeleteRecords": {"NONE", "OFFSET_OUT_OF_RANGE", "REQUEST_TIMED_OUT"},
    "ElectLeaders": {"NONE", "ELECTION_NOT_NEEDED", "PREFERRED_LEADER_NOT_AVAILABLE"},
    "Fetch": {
        "NONE",
        "FENCED_LEADER_EPOCH",
        "FETCH_SESSION_ID_NOT_FOUND",
        "INVALID_FETCH_SESSION_EPOCH",
        "NOT_LEADER_OR_FOLLOWER",
        "OFFSET_OUT_OF_RANGE",
        "UNKNOWN_LEADER_EPOCH",
    },
    "ListOffsets": {
        "NONE",
        "LEADER_NOT_AVAILABLE",
        "NOT_LEADER_OR_FOLLOWER",
        "OFFSET_NOT_AVAILABLE",
    },
}
"""Errors that the long profile must reach, for each API."""

SITUATIONS = (
    "a move that waits",
    "a partition without a leader",
    "appends above the high watermark",
    "cancel: accepted",
    "elections with a frozen follower",
    "log starts that differ",
    "read from a follower",
    "sent to a follower",
)
"""Situations that the long profile must reach."""


@pytest.fixture
def run(scratch, say):
    """Return a function that runs rounds and returns the tally, without a difference."""

    def run(rounds, histories, seed):
        try:
            tally = run_rounds(scratch, rounds, histories, seed)
        except Unavailable as error:
            unavailable(error)
        say(f"moves, followers and sessions on three brokers of Kafka 4.3.1 and of ours: {tally}")
        assert not tally.differences, "\n\n".join(tally.differences)
        return tally

    return run


def test_moves_and_followers_are_answered_as_on_kafka(run):
    tally = run(rounds=1, histories=5, seed=7)
    assert tally.events["read from a follower"] > 0


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_three_hundred_histories_of_moves_and_followers(run, say):
    tally = run(ROUNDS, HISTORIES, seed=3)
    for line in tally.coverage():
        say(line)
    assert all(tally.events[name] > 0 for name in SITUATIONS)
    for api, errors in COVERED.items():
        assert errors <= {name for each, _, name in tally.answers if each == api}, api
