"""All scenarios with crashes in all modes and failing operations.

By default about 6 operations of each scenario, few torn positions and 20 failures are tried; `-m
long` tries everything, with crashes during recovery.
"""

import pytest

from tests.crash import deletions, moves, scenarios
from tests.crash.harness import BOUNDED, FULL, OF_RECOVERIES
from tests.crash.harness import enumerate_crashes as crashes
from tests.crash.harness import enumerate_failures as failures
from tests.support.world.crashes import Profile

EVERY = [*scenarios.ALL, *deletions.ALL, *moves.ALL]
every_scenario = pytest.mark.parametrize(
    "scenario", EVERY, ids=[scenario.__name__ for scenario in EVERY]
)


@every_scenario
def test_a_crash_at_any_operation_loses_nothing_that_was_flushed(scenario, record_property):
    tally = crashes(scenario, BOUNDED)
    record_property("crashes", str(tally))
    assert tally.points >= 6
    assert tally.distinct > 15


@pytest.mark.parametrize(
    "scenario",
    (scenarios.create_topic, deletions.truncate_inside_a_batch, moves.move_once),
)
def test_a_crash_during_recovery_has_the_same_result(scenario, record_property):
    tally = crashes(scenario, Profile(stride=60, cuts=1, recoveries=True))
    record_property("crashes", str(tally))
    assert tally.recovery_points > 20


@pytest.mark.long
@pytest.mark.timeout(7200)
@every_scenario
def test_a_crash_at_every_operation_in_every_mode(scenario, record_property):
    tally = crashes(scenario, FULL)
    record_property("crashes", str(tally))
    assert tally.recovery_states > tally.points


@every_scenario
def test_an_operation_that_fails_is_reported_and_harms_nothing(scenario, record_property):
    tally = failures(scenario, points=12)
    record_property("failures", tally.failures)
    assert tally.failures == tally.points >= 8


@every_scenario
def test_a_broker_continues_after_a_failed_operation(scenario, record_property):
    tally = failures(scenario, points=8, go_on=True)
    record_property("failures", tally.failures)
    assert tally.failures == tally.points >= 8


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("go_on", (False, True))
@every_scenario
def test_each_operation_fails_once(scenario, go_on, record_property):
    tally = failures(scenario, go_on=go_on)
    record_property("failures", tally.failures)
    assert tally.failures == tally.points


def test_profiles_differ():
    assert OF_RECOVERIES.cuts < BOUNDED.cuts < FULL.cuts
