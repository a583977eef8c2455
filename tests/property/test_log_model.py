"""A log against a list of records, step by step: see `log_machine` and `log_model`."""

import os
import random
import sys
import time
from collections import Counter

import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.property.log_machine import SITUATIONS, DiskLogMachine, LogMachine

TestLogInMemory = LogMachine.TestCase
TestLogOnDisk = DiskLogMachine.TestCase
# A history equals many plain examples; the disk variant adds little but time.
TestLogInMemory.settings = settings()
TestLogOnDisk.settings = settings(max_examples=settings().max_examples // 10)

MINUTES = float(os.environ.get("LOGSTORE_MACHINE_MINUTES", "30"))
SEED = os.environ.get("LOGSTORE_MACHINE_SEED")

LONG_HISTORIES = settings(
    max_examples=40,
    stateful_step_count=80,
    derandomize=False,
    database=None,
    deadline=None,
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)


def run_histories(machine, number):
    """Run one round of histories; a failure names the seed that repeats it."""
    seeded = seed(number)(type(machine.__name__, (machine,), {}))
    try:
        run_state_machine_as_test(seeded, settings=LONG_HISTORIES)
    except Exception as error:
        error.add_note(f"to repeat it: LOGSTORE_MACHINE_SEED={number}, {machine.__name__}")
        raise


@pytest.mark.long
@pytest.mark.timeout(0)
def test_machines_that_run_for_half_an_hour(record_property, capsys):
    """`LOGSTORE_MACHINE_MINUTES` of wall time, or one round of `LOGSTORE_MACHINE_SEED`."""
    LogMachine.tally.clear()
    rounds = Counter()
    end = time.monotonic() + 60 * MINUTES
    while not rounds or (SEED is None and time.monotonic() < end):
        number = random.SystemRandom().getrandbits(64) if SEED is None else int(SEED)
        for machine in (LogMachine,) if rounds.total() % 4 else (LogMachine, DiskLogMachine):
            run_histories(machine, number)
            rounds[machine.__name__] += 1
    tally = LogMachine.tally
    record_property("tally", dict(tally))
    with capsys.disabled():
        sys.stdout.write(f"\n{tally['histories']} histories, {tally['steps']} steps; ")
        sys.stdout.write(", ".join(f"{name}: {tally[name]}" for name in SITUATIONS) + "\n")
    if SEED is None:
        assert all(tally[name] for name in SITUATIONS), "the run was too short, or misses a rule"
