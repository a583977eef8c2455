"""The pool's deterministic twin: stories in seed order, all invariants after each step."""

import logging
import os
import sys
from collections import Counter

import pytest

from logstore.storage.log import reader as fetch
from tests.property.pool_story import PoolStory

FEW = 25
SCHEDULES = int(os.environ.get("LOGSTORE_SCHEDULES", "10000"))
SEED = os.environ.get("LOGSTORE_SCHEDULE_SEED")

SITUATIONS = (
    "aborted passes",
    "passes",
    "readers that came to the end undisturbed",
    "restarts",
    "truncations of closed segments",
)
"""Situations that a run must reach."""


@pytest.fixture(autouse=True)
def small_fetches(monkeypatch):
    """Make readers fetch a few batches at a time, so that they see cleanings in progress."""
    monkeypatch.setattr(fetch, "FETCH_BYTES", 250)


@pytest.fixture(autouse=True)
def no_warnings():
    """Keep no warning: pytest would keep the logs with it that it is about."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


def run_schedules(count: int) -> Counter[str]:
    """Run the stories of the first seeds, or of `LOGSTORE_SCHEDULE_SEED` alone."""
    tally: Counter[str] = Counter()
    for seed in range(count) if SEED is None else [int(SEED)]:
        try:
            tally += PoolStory(seed).run()
        except BaseException as error:
            error.add_note(f"to repeat it: LOGSTORE_SCHEDULE_SEED={seed}")
            raise
    if SEED is None:
        assert [each for each in SITUATIONS if not tally[each]] == []
    return tally


def test_a_few_schedules():
    run_schedules(FEW)


def test_a_seed_repeats_the_same_run():
    assert PoolStory(7).run() == PoolStory(7).run()


@pytest.mark.long
@pytest.mark.timeout(0)
def test_ten_thousand_schedules(capsys):
    """`LOGSTORE_SCHEDULES` of them; about a tenth of a second each."""
    tally = run_schedules(SCHEDULES)
    with capsys.disabled():
        sys.stdout.write(f"\n{dict(sorted(tally.items()))}; ")
