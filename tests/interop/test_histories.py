"""Random histories of a leader's log: Kafka's log equals this one after each step, to the byte.

The kinds of histories: retention, delete-records, truncation, config changes and stops, and
idempotent and transactional producers. 30 of each kind for each run and 500 in the long profile;
the README in this directory lists allowed differences.
"""

import os
from collections import defaultdict

import pytest

from tests.interop import living, producing
from tests.interop.damages import NAMES as DAMAGES
from tests.interop.histories import NAMES as OPERATIONS
from tests.interop.living import Tally
from tests.interop.seeds import run_seeds

pytestmark = pytest.mark.interop

SEEDS = range(30)
KAFKA_4_SEEDS = range(100, 110)
LONG_SEEDS = range(int(os.environ.get("LOGSTORE_HISTORIES", "500")))

KINDS = {"histories": living.live, "producers": producing.live}
ROWS = {
    "histories": "random histories: retention, delete-records, truncation, stops; each step to the"
    " byte",
    "producers": "random histories: idempotent and transactional producers; each step to the byte",
}
each_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(scope="module")
def total(say):
    """The sum over the histories of each kind."""
    tallies = defaultdict(Tally)
    yield tallies
    for kind, tally in tallies.items():
        say(f"{kind}: {tally}")


@each_kind
@pytest.mark.parametrize("seed", SEEDS)
def test_both_live_the_same(seed, kind, kafka3, scratch, row, total):
    row(ROWS[kind], kafka3)
    total[kind].add(KINDS[kind](seed, kafka3, scratch))


@each_kind
@pytest.mark.parametrize("seed", KAFKA_4_SEEDS)
def test_kafka_4_lives_the_same(seed, kind, kafka4, scratch, row, total):
    row(ROWS[kind], kafka4)
    total[kind].add(KINDS[kind](seed, kafka4, scratch))


@each_kind
def test_the_histories_leave_nothing_out(kind, total):
    """Every kind of operation, refusal and damage is covered, and Kafka agreed to the end."""
    tally = total[kind]
    if tally.histories < len(SEEDS) + len(KAFKA_4_SEEDS):
        pytest.skip("only some of the histories were lived")
    assert tally.parted.total() * 10 < tally.histories
    if kind == "histories":
        assert set(tally.operations) == OPERATIONS
        assert set(tally.damages) == DAMAGES
        assert tally.segments_gone > 100
        assert tally.refused > 10
        assert tally.no_room * 10 < tally.histories
    else:
        assert set(tally.operations) == producing.NAMES
        assert set(tally.damages) == set(producing.DAMAGES)
        assert set(tally.errors) >= producing.ERRORS
        assert tally.duplicates > 30
        assert tally.segments_gone > 10
        assert tally.no_room == 0


@each_kind
@pytest.mark.long
@pytest.mark.timeout(3600)
def test_many_histories(kind, kafka3, scratch, row, total):
    row(f"{ROWS[kind]}, long profile", kafka3, len(LONG_SEEDS))
    tally = Tally()
    failed = run_seeds(LONG_SEEDS, kafka3, scratch, KINDS[kind], tally)
    total[kind].add(tally)
    assert not failed, "\n\n".join(failed)
    assert tally.parted.total() * 50 < tally.histories
