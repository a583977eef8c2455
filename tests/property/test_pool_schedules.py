"""The pool's deterministic twin: stories in the order of seeds, all invariants after each step."""

import os
from collections import Counter

import pytest

from logstore import fetch
from tests.property.pool_story import PoolStory

FEW = 60
SCHEDULES = int(os.environ.get("LOGSTORE_SCHEDULES", "10000"))
SEED = os.environ.get("LOGSTORE_SCHEDULE_SEED")


@pytest.fixture(autouse=True)
def small_fetches(monkeypatch):
    """Let readers see cleaners at work: they take a few batches at a time."""
    monkeypatch.setattr(fetch, "FETCH_BYTES", 250)


def run_schedule(seed: int) -> Counter[str]:
    """Run one story; a failure names the seed that repeats it."""
    try:
        return PoolStory(seed).run()
    except BaseException as error:
        error.add_note(f"to repeat it: LOGSTORE_SCHEDULE_SEED={seed}")
        raise


def test_a_few_schedules():
    tally: Counter[str] = Counter()
    for seed in range(FEW) if SEED is None else [int(SEED)]:
        tally += run_schedule(seed)
