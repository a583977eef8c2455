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
from logstore.simulate.scenario import Scenario, from_mapping

FOLDER = Path(__file__).resolve().parents[1] / "tests" / "unit" / "simulate" / "goals"
SAMPLES = 40
COSTS = (
    "bytes_peak",
    "bytes_mean",
    "write_amplification",
    "oldest_dirty_max_ms",
    "tombstone_age_max_ms",
    "missed_tombstones",
)


def variant(scenario: Scenario, settings: Mapping[str, str], seed: int) -> Scenario:
    """Return a scenario with other settings and another seed."""
    for name, value in settings.items():
        scenario = scenario.with_config(name, value)
    return scenario.with_seed(seed)


def costs_of(tree: Mapping[str, Any], settings: Mapping[str, str], seed: int) -> dict[str, float]:
    """Run one combination of settings with one seed."""
    found = run(variant(from_mapping(tree), settings, seed), samples=SAMPLES).costs()
    return {name: found[name] for name in COSTS}


def main(names: list[str]) -> None:
    """Write the costs of each file's sweep."""
    for path in sorted(FOLDER.glob("*.toml")):
        if names and path.stem not in names:
            continue
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
        axes = tables["search"]
        with path.with_suffix(".csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow((*axes, "seed", *COSTS))
            for values in itertools.product(*axes.values()):
                settings = dict(zip(axes, values, strict=True))
                for seed in range(1, tables["seeds"] + 1):
                    costs = costs_of(tables["scenario"], settings, seed)
                    writer.writerow((*values, seed, *(f"{cost:.12g}" for cost in costs.values())))
                file.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
