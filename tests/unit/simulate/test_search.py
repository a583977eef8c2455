"""The search for a goal finds what a full sweep finds, in a tenth of the runs."""

import csv
import itertools
import tomllib

import numpy as np
import pytest

from logstore.simulate.goals import parse_goal
from logstore.simulate.quantities import quantity
from logstore.simulate.search import HELD_SEEDS, Search
from tools.goal_sweeps import FOLDER, costs_in, costs_of

NAMES = ("devices", "erasure", "warehouse")


class Sweep:
    """A full sweep, run before: its costs by settings and seed."""

    def __init__(self, name):
        tables = tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))
        self.tables, self.axes = tables, tables["search"]
        self.goal, self.minimize = parse_goal([tables["goal"]]), quantity(tables["minimize"])
        self.seeds = list(range(1, tables["seeds"] + 1))
        with (FOLDER / f"{name}.csv").open(encoding="utf-8") as file:
            self.costs = {
                (*(row[axis] for axis in self.axes), int(row["seed"])): {
                    cost: float(row[cost]) for cost in costs_in(tables)
                }
                for row in csv.DictReader(file)
            }
        self.asked = []

    def runs(self, settings):
        return [self.costs[*settings.values(), seed] for seed in self.seeds]

    def best(self):
        """Return the settings that meet the goal with all seeds at the least median cost."""
        combinations = [
            dict(zip(self.axes, values, strict=True))
            for values in itertools.product(*self.axes.values())
        ]
        meeting = [each for each in combinations if not self.goal.excess(self.runs(each))]
        return min(meeting, key=self.median)

    def median(self, settings):
        return float(np.median([costs[self.minimize.cost] for costs in self.runs(settings)]))

    def evaluate(self, jobs):
        """Look up what was swept; a further seed is one of the sweep's again."""
        self.asked += [(settings, seed) for settings, seed in jobs if seed in self.seeds]
        return [
            self.costs[*settings.values(), 1 + (seed - 1) % len(self.seeds)]
            for settings, seed in jobs
        ]

    def search(self):
        others = itertools.count(100)
        return Search(self.axes, self.goal, self.minimize, self.seeds, others, self.evaluate).find()


@pytest.mark.parametrize("name", NAMES)
def test_the_search_finds_the_setting_of_the_sweep_in_a_tenth_of_its_runs(name):
    swept = Sweep(name)
    found = swept.search()
    assert found.is_met
    assert found.best.settings == swept.best()
    assert found.runs == len(swept.asked)
    assert found.sweep_runs == len(swept.costs) == 81 * 8
    assert found.runs <= found.sweep_runs // 10
    assert len(found.best.held) == HELD_SEEDS == found.held_runs


@pytest.mark.parametrize("name", NAMES)
def test_the_stored_sweeps_are_of_this_engine(name):
    """The whole sweeps take minutes; `tools/goal_sweeps.py` writes them."""
    swept = Sweep(name)
    for row in (7, 333, 640):
        *values, seed = [*swept.costs][row]
        settings = dict(zip(swept.axes, values, strict=True))
        assert costs_of(swept.tables, settings, seed) == pytest.approx(
            swept.costs[*values, seed], rel=1e-9
        )
