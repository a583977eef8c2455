"""Run the full sweeps that tests/unit/simulate compares the search for a goal with.

A file in tests/unit/simulate/goals has a scenario, a goal, a quantity to minimize, the values of
each setting and a number of seeds. This program runs every combination with every seed, about 2,000
runs, and writes their costs next to it: `PYTHONPATH=. python tools/goal_sweeps.py [NAME…]`.
"""

from __future__ import annotations

import csv
import itertools
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from logstore.simulate import run
from logstore.simulate.goals import parse_goal
from logstore.simulate.quantities import quantity
from logstore.simulate.scenario import from_mapping
from logstore.simulate.search import with_settings

FOLDER = Path(__file__).resolve().parents[1] / "tests" / "unit" / "simulate" / "goals"
SAMPLES = 40


def costs_in(tables: Mapping[str, Any]) -> list[str]:
    """Return the costs that a file's goal bounds or minimizes."""
    bounded = [term.quantity.cost for term in parse_goal([tables["goal"]]).terms]
    return [*bounded, quantity(tables["minimize"]).cost]


def costs_of(tables: Mapping[str, Any], settings: Mapping[str, str], seed: int) -> dict[str, float]:
    """Run one combination of a file's settings with one seed."""
    scenario = with_settings(from_mapping(tables["scenario"]), settings).with_seed(seed)
    found = run(scenario, samples=SAMPLES).costs()
    return {name: found[name] for name in costs_in(tables)}


def main(names: list[str]) -> None:
    """Write the costs of each file's sweep."""
    for path in sorted(FOLDER.glob("*.toml")):
        if names and path.stem not in names:
            continue
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
        axes = tables["search"]
        with path.with_suffix(".csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow((*axes, "seed", *costs_in(tables)))
            for values in itertools.product(*axes.values()):
                settings = dict(zip(axes, values, strict=True))
                for seed in range(1, tables["seeds"] + 1):
                    costs = costs_of(tables, settings, seed)
                    writer.writerow((*values, seed, *(f"{cost:.12g}" for cost in costs.values())))
                file.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
