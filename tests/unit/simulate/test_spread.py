"""Several seeds: percentiles over runs that differ only in their random numbers."""

import numpy as np
import pytest

from logstore.simulate import parse, run
from logstore.simulate.outcome import bytes_of
from logstore.simulate.spread import (
    ALL_BYTES,
    POINTS,
    Curve,
    SeedRun,
    Spread,
    percentiles,
    run_seeds,
    seeds_of,
    spread_of,
)
from logstore.simulate.sweep import sweep

SCENARIO = """
days = 3
[[topics]]
name = "users"
records = 300
keys.count = 40
deletes.share = 0.1
values.bytes = 100
time.arrival = "poisson"
batches = { min_records = 2, max_records = 8 }
configs = { "cleanup.policy" = "compact", "segment.bytes" = "16KiB" }
[[topics]]
name = "quiet"
messages = [{ at = "1h", key = "a", value = "1" }]
"""
SEEDS = 20


@pytest.fixture(scope="module")
def spread():
    return run_seeds(parse(SCENARIO), SEEDS, samples=10)[1]


def test_each_seed_is_the_run_that_it_is_alone(spread):
    assert spread.seeds == seeds_of(parse(SCENARIO), SEEDS) == list(range(1, 41, 2))
    alone = run(parse(SCENARIO).with_seed(7), samples=10)
    assert spread.runs[3].seed == 7
    assert spread.runs[3].costs == alone.costs()
    series = alone.over_time("users")
    assert spread.runs[3].curves["users", ALL_BYTES].most == bytes_of(series).max()


def test_costs_and_curves_have_percentiles_over_twenty_seeds(spread):
    costs = spread.costs()
    for name in ("bytes_peak", "oldest_dirty_max_ms", "write_amplification"):
        values = [each.costs[name] for each in spread.runs]
        assert costs[name]["p50"] == pytest.approx(np.median(values))
        assert costs[name]["min"] < costs[name]["p5"] < costs[name]["p50"]
        assert costs[name]["p50"] < costs[name]["p95"] < costs[name]["max"]
    for topic in (None, "users", "quiet"):
        low, middle, high = spread.curve(ALL_BYTES, topic)
        assert len(low) == len(spread.time_ms)
        assert (low <= middle).all()
        assert (middle <= high).all()
    assert spread.most("live_records").p95 >= spread.last("live_records").p5


@pytest.mark.slow
def test_processes_give_the_same_spread(spread):
    one, other = (run_seeds(parse(SCENARIO), 3, samples=10, workers=n)[1] for n in (1, 2))
    assert one.costs() == other.costs()
    assert one.runs[:3] != spread.runs[:2]


def test_the_percentiles_of_one_value_are_this_value():
    assert percentiles([4.0]) == (4.0, 4.0, 4.0)


def test_a_sweep_compares_medians():
    axes = {"min.cleanable.dirty.ratio": ["0.1", "0.9"]}
    swept = sweep(parse(SCENARIO), axes, samples=5, seeds=4)
    alone = sweep(parse(SCENARIO), axes, samples=5)
    for each, single in zip(swept.variants, alone.variants, strict=True):
        assert each.costs == single.costs
        assert each.median_cost("bytes_peak") == each.spread["bytes_peak"]["p50"]
        assert not single.spread


def test_times_of_a_curve_are_the_middles_of_equal_parts(spread):
    times = run(parse(SCENARIO), samples=10).over_time()["time_ms"]
    start, length = int(times[0]), int(times[-1] - times[0])
    assert len(spread.time_ms) == POINTS
    expected = [start + (2 * part + 1) * length / (2 * POINTS) for part in range(POINTS)]
    assert list(spread.time_ms) == [int(each) for each in expected]


def test_percentiles_are_taken_across_seeds():
    """Of 21 values from 0 to 20, one in twenty is below 1 and above 19."""
    assert percentiles([float(each) for each in range(20, -1, -1)]) == (1.0, 10.0, 19.0)
    columns = [np.array([each, 10.0 * each]) for each in range(21)]
    assert [list(each) for each in percentiles(columns)] == [[1, 10], [10, 100], [19, 190]]
    costs = [{"a": float(each), "b": -each} for each in range(21)]
    assert spread_of(costs) == {
        "a": {"p5": 1.0, "p50": 10.0, "p95": 19.0, "min": 0.0, "max": 20.0},
        "b": {"p5": -19.0, "p50": -10.0, "p95": -1.0, "min": -20, "max": 0},
    }


def test_last_and_most_are_those_of_each_seed():
    curves = [
        {("t", "n"): Curve(np.array([1.0]), last=float(number), most=10.0 * number)}
        for number in range(21)
    ]
    spread = Spread(np.array([0]), [SeedRun(n, {}, each) for n, each in enumerate(curves)])
    assert spread.last("n", "t") == (1.0, 10.0, 19.0)
    assert spread.most("n", "t") == (10.0, 100.0, 190.0)
    assert spread.seeds == list(range(21))


def test_finished_runs_are_reported_with_the_number_of_all():
    told = []
    run_seeds(parse(SCENARIO), 3, samples=5, finished=lambda *each: told.append(each))
    assert told == [(1, 3), (2, 3), (3, 3)]
