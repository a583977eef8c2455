"""Profiles: arrivals in each part of a period, repeated in the next week."""

import numpy as np
import pytest

from logstore.errors import InvalidConfigurationError
from logstore.types import DAY_MS
from logstore.workload.blocks import build_block
from logstore.workload.profiles import even_days, profile_curve
from logstore.workload.spec import Time, parse
from tests.support.world.messages import exactly

WORK_DAYS = (4.0, 4.0, 4.0, 4.0, 4.0, 0.0, 1.0)


def test_a_profile_is_laid_out_once_over_the_time():
    moments, reached = profile_curve(Time(days=2.0, profile=(1.0, 3.0)))
    assert moments.tolist() == [0, DAY_MS, 2 * DAY_MS]
    assert reached.tolist() == [0, 0.5, 2.0]


def test_a_profile_that_begins_again_knows_its_monday():
    time = Time(start="2024-01-05T12:00:00Z", days=4.0, profile=WORK_DAYS, profile_days=7.0)
    moments, reached = profile_curve(time)  # from noon of a Friday to noon of a Tuesday
    assert (moments / DAY_MS).tolist() == [0, 0.5, 1.5, 2.5, 3.5, 4]
    assert reached == pytest.approx([0, 2 / 3, 2 / 3, 1, 7 / 3, 3])
    assert even_days(time) == pytest.approx(3)
    assert even_days(Time(days=5.0)) == 5


def test_records_arrive_according_to_the_profile():
    spec = parse(
        "records = 21_000\nkeys.count = 10\n"
        'time = { start = "2024-01-03T00:00:00Z", days = 7, profile_days = 7, profile = '
        f"{list(WORK_DAYS)} }}"
    )
    block = build_block(spec, 0)
    since = np.sort(block.timestamp) - spec.time.start_ms
    counts = np.bincount(since // DAY_MS, minlength=7)
    assert counts == pytest.approx([4000, 4000, 4000, 0, 1000, 4000, 4000], abs=2)


@pytest.mark.parametrize(
    ("time", "told"),
    (
        ("profile_days = 7", "time.profile_days 7 needs time.profile"),
        (
            "days = 36_500, profile = [1, 2], profile_days = 0.01",
            "time.profile has 7300000 parts in 36500 days, above 1000000",
        ),
    ),
)
def test_profiles_that_cannot_be_are_refused(time, told):
    with pytest.raises(InvalidConfigurationError, match=exactly(told)):
        parse(f"time = {{ {time} }}")


def test_a_time_that_ends_before_the_profile_brings_anything_is_even():
    spec = parse(
        "records = 100\nkeys.count = 10\n"
        'time = { start = "2024-01-06T00:00:00Z", days = 1, profile_days = 7, profile = '
        f"{list(WORK_DAYS)} }}"
    )
    since = np.sort(build_block(spec, 0).timestamp) - spec.time.start_ms
    assert since[50] == DAY_MS // 2
