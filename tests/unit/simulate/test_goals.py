"""Goals and ranges: valid texts, their meaning, and refused texts."""

import numpy as np
import pytest

from logstore.errors import InvalidConfigurationError
from logstore.simulate import parse, run
from logstore.simulate.goals import parse_axis, parse_goal
from logstore.simulate.outcome import age_quantiles
from logstore.simulate.quantities import QUANTITIES, quantity
from logstore.types import DAY_MS
from tests.support.world.messages import exactly


def test_a_goal_has_bounds_with_units():
    goal = parse_goal(["oldest <= 30d and bytes < 1GiB", "live >= 80%, missed<=0"])
    assert [(term.quantity.cost, term.operator, term.limit) for term in goal.terms] == [
        ("oldest_dirty_max_ms", "<=", 30 * DAY_MS),
        ("bytes_peak", "<", 1 << 30),
        ("live_share", ">=", 0.8),
        ("missed_tombstones", "<=", 0),
    ]
    assert str(goal) == "oldest <= 30d and bytes < 1.0 GiB and live >= 80% and missed <= 0"


@pytest.mark.parametrize(
    "texts",
    (
        ["oldest<=30d and bytes<1GiB", "live>=80%,missed<=0"],
        ["  oldest   <=  30d   and   bytes   <   1GiB  ", " live >=80% , missed<= 0 "],
        ["oldest <= 30d,bytes < 1GiB,live >= 80% and missed <= 0"],
    ),
)
def test_blanks_around_the_parts_of_a_goal_do_not_matter(texts):
    goal = "oldest <= 30d and bytes < 1.0 GiB and live >= 80% and missed <= 0"
    assert str(parse_goal(texts)) == goal


def test_a_goal_counts_the_worst_run():
    goal = parse_goal(["bytes <= 100", "live > 0.5"])
    good = {"bytes_peak": 100, "live_share": 0.6}
    assert goal.excess([good]) == 0
    assert goal.excess([good, {**good, "bytes_peak": 150}]) == pytest.approx(0.5)
    assert goal.excess([{**good, "live_share": 0.5}, good]) > 0
    assert [term.margin(term.worst([good])) for term in goal.terms] == [0, pytest.approx(0.1)]


def test_a_bound_is_met_within_it_and_missed_by_a_share_of_it():
    terms = parse_goal(["bytes <= 100", "bytes < 100", "live >= 0.5", "live > 0.5", "missed < 0"])
    upper, below, lower, above, nothing = terms.terms
    for term, met, missed, excess in (
        (upper, 100, 150, 0.5),
        (below, 99, 100, 1e-12),
        (lower, 0.5, 0.25, 0.5),
        (above, 0.6, 0.5, 1e-12),
        (nothing, -1, 3, 3.0),
    ):
        assert (term.is_met(met), term.excess(met)) == (True, 0.0)
        assert (term.is_met(missed), term.excess(missed)) == (False, excess)
    runs = [{"bytes_peak": peak, "live_share": live} for peak, live in ((3, 0.9), (7, 0.2), (5, 1))]
    assert [term.worst(runs) for term in (upper, lower)] == [7, 0.2]
    assert [term.margin(7) for term in (upper, lower)] == [93, 6.5]


@pytest.mark.parametrize(
    ("text", "message"),
    (
        ("oldest", "'oldest' is not a goal: use QUANTITY <= VALUE, such as 'oldest <= 30d'"),
        ("oldst <= 3d", "unknown quantity 'oldst'; the nearest is 'oldest'"),
        (
            "oldest <= 3 days",
            ("oldest: '3 days' is not a duration: use milliseconds, or 7d, 12h, 5m, 30s, 250ms"),
        ),
        ("bytes <= much", "bytes: 'much' is not a size: use bytes, or 512KiB, 10MiB, 1GiB"),
    ),
)
def test_other_texts_are_not_goals(text, message):
    with pytest.raises(InvalidConfigurationError, match=exactly(message)):
        parse_goal([text])


@pytest.mark.parametrize(
    ("text", "values"),
    (
        ("min.cleanable.dirty.ratio=0.1..0.9/3", ["0.1", "0.5", "0.9"]),
        ("min.cleanable.dirty.ratio=0.1..0.9", [f"0.{n}" for n in range(1, 10)]),
        ("segment.ms=1d..9d/5", ["1d", "3d", "5d", "7d", "9d"]),
        ("segment.ms=6h..1d/4", ["6h", "12h", "18h", "1d"]),
        ("segment.ms=630m..1110m/3", ["630m", "14h", "1110m"]),
        ("segment.bytes=1MiB..64MiB/4", ["1MiB", "4MiB", "16MiB", "64MiB"]),
        ("log.cleaner.threads=1..4/4", ["1", "2", "3", "4"]),
        ("cleanup.policy=compact,delete", ["compact", "delete"]),
        ("cleanup.policy = compact , delete ", ["compact", "delete"]),
        (" min.cleanable.dirty.ratio = 0.1 .. 0.9/3 ", ["0.1", "0.5", "0.9"]),
        ("segment.bytes=1MiB..19MiB/3", ["1MiB", "10MiB", "19MiB"]),
        ("segment.bytes=1MiB..20MiB/3", ["1MiB", "4579KiB", "20MiB"]),
        ("segment.bytes=0..1KiB/3", ["0", "512", "1KiB"]),
        ("segment.bytes=1..1026/2", ["1", "1026"]),
        ("segment.ms=0..1d/3", ["0ms", "12h", "1d"]),
        ("log.cleaner.threads=1..2/4", ["1", "2"]),
        ("min.cleanable.dirty.ratio=0.001..1/4", ["0.001", "0.01", "0.1", "1"]),
        ("min.cleanable.dirty.ratio=0..1/4", ["0", "1"]),
        ("min.cleanable.dirty.ratio=0.0..1/4", ["0", "0.333", "0.667", "1"]),
        ("min.cleanable.dirty.ratio=0.5..1/2", ["0.5", "1"]),
    ),
)
def test_a_range_has_values_that_people_write(text, values):
    key, found = parse_axis(text)
    assert (key, found) == (text.partition("=")[0].strip(), values)


@pytest.mark.parametrize(
    ("text", "message"),
    (
        ("segment.ms", "'segment.ms' is not KEY=LOW..HIGH or KEY=VALUE,VALUE"),
        ("segment.ms=9d..1d", "'segment.ms=9d..1d' is not a range: 9d must be a number below 1d"),
        ("segment.ms=1..x", "'segment.ms=1..x' is not a range: 1 must be a number below x"),
        ("segment.ms=1d..9d/1", "'segment.ms=1d..9d/1' must have 2 values or more"),
        ("segment.ms=1d..9d/0", "'segment.ms=1d..9d/0' must have 2 values or more"),
        ("segment.ms=1d..1d", "'segment.ms=1d..1d' is not a range: 1d must be a number below 1d"),
        ("segment.ms=x..1d", "'segment.ms=x..1d' is not a range: x must be a number below 1d"),
    ),
)
def test_other_texts_are_not_ranges(text, message):
    with pytest.raises(InvalidConfigurationError, match=exactly(message)):
        parse_axis(text)


SCENARIO = """
days = 2
replicas = 3
[broker]
log.cleaner.io.max.bytes.per.second = "1MiB"
log.cleaner.backoff.ms = "30s"
[[topics]]
name = "t"
records = 400
keys.count = 20
deletes.share = 0.1
values.bytes = "1KiB"
batches = { min_records = 2, max_records = 5 }
time.burst_every_ms = "2h"
configs = { "cleanup.policy" = "compact", "segment.bytes" = "32KiB" }
[[topics]]
name = "single"
records = 0
replicas = 1
"""


def test_settings_have_units_and_topics_have_replicas():
    scenario = parse(SCENARIO)
    assert dict(scenario.broker) == {
        "log.cleaner.io.max.bytes.per.second": "1048576",
        "log.cleaner.backoff.ms": "30000",
    }
    workload = scenario.topics[0].workload
    assert (workload.values.bytes, workload.time.burst_every_ms) == (1024, 7_200_000)
    assert [topic.replicas for topic in scenario.topics] == [3, 1]
    assert {topic.replicas for topic in scenario.with_replicas(2).topics} == {2}
    wrong = SCENARIO.replace("30s", "30x")
    with pytest.raises(
        InvalidConfigurationError,
        match=exactly(
            "log.cleaner.backoff.ms: '30x' is not a duration: use milliseconds, or 7d, 12h, 5m, "
            "30s, 250ms"
        ),
    ):
        parse(wrong)
    with pytest.raises(
        InvalidConfigurationError,
        match=exactly("values.bytes: '1KB' is not a size: use bytes, or 512KiB, 10MiB, 1GiB"),
    ):
        parse(SCENARIO.replace("1KiB", "1KB"))


def test_every_cost_is_a_quantity_with_a_name_and_a_text():
    costs = run(parse(SCENARIO), samples=10).costs()
    assert {*costs} == {*QUANTITIES}
    for name, value in costs.items():
        assert quantity(QUANTITIES[name].name) == quantity(name)
        assert QUANTITIES[name].format(value)
    assert costs["disk_bytes"] == 3 * costs["bytes_peak"]


def test_peaks_and_ages_do_not_depend_on_the_number_of_samples():
    few, many = (run(parse(SCENARIO), samples=count).costs() for count in (3, 300))
    same = ("bytes_peak", "headroom_bytes", "oldest_dirty_max_ms", "disk_bytes")
    assert [few[name] for name in same] == [many[name] for name in same]
    assert few["oldest_dirty_p95_ms"] == pytest.approx(many["oldest_dirty_p95_ms"], rel=0.05)


def test_quantiles_of_an_age_are_those_of_its_values_at_all_times():
    times = np.array([0, 100, 130, 500, 501, 900])
    ages = np.array([0, 100, 20, 390, 0, 399])
    moments = np.arange(0, 900, 0.25)
    following = np.searchsorted(times, moments, side="right")
    values = np.maximum(0, ages[following] - (times[following] - moments))
    shares = [0.05, 0.5, 0.95, 0.99]
    assert age_quantiles(times, ages, shares) == pytest.approx(
        np.quantile(values, shares).tolist(), abs=1
    )
    assert age_quantiles(times[:1], ages[1:2], shares) == [100] * 4
    assert age_quantiles(times, 0 * ages, shares) == [0] * 4
