"""All scenarios interrupted at their operations: the interrupted broker keeps working.

By default a few operations of each scenario are tried; `-m long` tries all, with a second interrupt
during the recovery, and with the `TimeoutError` of a signal handler.
"""

import pytest

from tests.crash import deletions, scenarios
from tests.crash.interrupts import Interrupt, TestTimeout, enumerate_interrupts

# Creating a topic is not interrupted.
EVERY = [each for each in (*scenarios.ALL, *deletions.ALL) if each is not scenarios.create_topic]
every_scenario = pytest.mark.parametrize(
    "scenario", EVERY, ids=[scenario.__name__ for scenario in EVERY]
)


@every_scenario
def test_a_broker_continues_after_an_interrupt_of_any_operation(scenario):
    assert enumerate_interrupts(scenario, points=8) >= 4


@pytest.mark.parametrize("again", (1, 4))
@pytest.mark.parametrize("kind", (Interrupt, TestTimeout))
@pytest.mark.parametrize("scenario", (scenarios.clean_twice, deletions.truncate_inside_a_batch))
def test_a_second_interrupt_during_the_recovery_is_recovered_from_as_well(scenario, kind, again):
    assert enumerate_interrupts(scenario, points=8, again=again, kind=kind) >= 4


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("kind", (Interrupt, TestTimeout))
@pytest.mark.parametrize("again", (0, 1, 3, 8))
@every_scenario
def test_every_operation_is_interrupted(scenario, again, kind):
    assert enumerate_interrupts(scenario, again=again, kind=kind) > 4
