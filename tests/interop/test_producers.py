"""Idempotent and transactional producers on a leader's log: Kafka's log equals this one.

30 histories for each run and 500 in the long profile, each step compared; the README in this
directory lists allowed differences.
"""

import os

import pytest

from tests.interop.living import Tally, run_seeds
from tests.interop.producing import DAMAGES, ERRORS, NAMES, ProducersHistory

pytestmark = pytest.mark.interop

SEEDS = range(30)
KAFKA_4_SEEDS = range(100, 110)
LONG_SEEDS = range(int(os.environ.get("LOGSTORE_HISTORIES", "500")))

ROW = "random histories: idempotent and transactional producers; each step to the byte"


@pytest.fixture(scope="module")
def total(say):
    """The sum over the module's histories."""
    tally = Tally()
    yield tally
    say(f"producers: {tally}")


@pytest.mark.parametrize("seed", SEEDS)
def test_both_live_the_same(seed, kafka3, scratch, row, total):
    row(ROW, kafka3)
    total.add(ProducersHistory(seed, kafka3, scratch).live())


@pytest.mark.parametrize("seed", KAFKA_4_SEEDS)
def test_kafka_4_lives_the_same(seed, kafka4, scratch, row, total):
    row(ROW, kafka4)
    total.add(ProducersHistory(seed, kafka4, scratch).live())


def test_the_histories_leave_nothing_out(total):
    """Every kind of operation, refusal and damage is covered, and Kafka never failed."""
    if total.histories < len(SEEDS) + len(KAFKA_4_SEEDS):
        pytest.skip("only some of the histories were lived")
    assert set(total.operations) == NAMES
    assert set(total.damages) == set(DAMAGES)
    assert set(total.errors) >= ERRORS
    assert total.duplicates > 30
    assert total.segments_gone > 10
    assert total.no_room == 0
    assert total.parted.total() * 10 < total.histories


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_many_histories(kafka3, scratch, row, total):
    row(f"{ROW}, long profile", kafka3, len(LONG_SEEDS))
    tally, failed = run_seeds(LONG_SEEDS, kafka3, scratch, ProducersHistory)
    total.add(tally)
    assert not failed, "\n\n".join(failed)
    assert tally.parted.total() * 50 < tally.histories
