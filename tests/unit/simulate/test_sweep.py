"""Sweeps: every combination, and those that no other one beats."""

import pytest

from logstore.errors import InvalidConfigurationError
from logstore.simulate import parse
from logstore.simulate.sweep import COMPARED_COSTS, Sweep, Variant, combinations, sweep
from tests.support.world.messages import exactly

SCENARIO = """
days = 3
[[topics]]
name = "users"
records = 2_000
keys.count = 100
values.bytes = 20
configs = { "cleanup.policy" = "compact", "segment.bytes" = 20_000 }
"""


def variant(*costs):
    return Variant({}, dict(zip(COMPARED_COSTS, costs, strict=True)))


def test_every_combination_is_run_and_costs_what_it_costs_alone():
    axes = {"min.cleanable.dirty.ratio": ["0.1", "0.9"], "segment.bytes": ["20KiB", "60KiB"]}
    swept = sweep(parse(SCENARIO), axes, samples=10)
    assert [dict(each.settings) for each in swept.variants] == combinations(axes)
    passes = {tuple(each.settings.values()): each.costs["passes"] for each in swept.variants}
    assert passes["0.1", "20KiB"] > passes["0.9", "20KiB"]
    again = sweep(parse(SCENARIO), {name: values[:1] for name, values in axes.items()}, samples=10)
    assert again.variants[0].costs == swept.variants[0].costs


@pytest.mark.slow
def test_processes_give_what_one_gives():
    axes = {"min.cleanable.dirty.ratio": ["0.1", "0.9"]}
    told = []
    both = [
        sweep(
            parse(SCENARIO), axes, samples=3, workers=workers, progress=lambda *at: told.append(at)
        )
        for workers in (1, 2)
    ]
    assert both[0] == both[1]
    assert told == [(0, 2), (1, 2), (2, 2)] * 2


def test_an_invalid_value_is_reported_before_the_run():
    with pytest.raises(
        InvalidConfigurationError,
        match=exactly(
            "segment.bytes = 'many' is not allowed: it must be a 32-bit integer of at least 14"
        ),
    ):
        sweep(parse(SCENARIO), {"segment.bytes": ["20KiB", "many"]})
    with pytest.raises(
        InvalidConfigurationError, match=exactly("the sweep over segment.bytes needs values")
    ):
        sweep(parse(SCENARIO), {"segment.bytes": []})
    with pytest.raises(
        InvalidConfigurationError,
        match=exactly("the sweep has 1331 combinations; the limit is 1000"),
    ):
        combinations({name: ["1"] * 11 for name in "abc"})


def test_the_front_has_what_nothing_beats():
    cheap, quick = variant(1, 1, 9, 1, 1), variant(2, 2, 1, 1, 1)
    beaten, twin = variant(2, 2, 9, 1, 1), variant(1, 1, 9, 1, 1)
    assert Sweep([cheap, beaten, quick, twin]).front() == [cheap, quick, twin]
