"""Several seeds: percentiles over runs that differ only in their random numbers."""

import numpy as np
import pytest

from logstore.simulate import parse, run
from logstore.simulate.outcome import bytes_of
from logstore.simulate.report import page
from logstore.simulate.spread import ALL_BYTES, percentiles, run_seeds, seeds_of
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
        assert each.judged("bytes_peak") == each.spread["bytes_peak"]["p50"]
        assert not single.spread


def test_the_report_has_a_band_for_each_curve(spread):
    outcome = run(parse(SCENARIO), samples=10)
    text = page(outcome, spread=spread)
    assert "over 20 seeds at most" in text
    assert "live, p50 of the seeds" in text
    assert text.count('"fill":"tonexty"') > 10
