"""Run a scenario with every combination of config values and compare the costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

from logstore.errors import InvalidConfigurationError
from logstore.simulate.processes import Workers
from logstore.simulate.recording import Recording, record
from logstore.simulate.scenario import Scenario
from logstore.simulate.search import run_costs, with_settings
from logstore.simulate.spread import seeds_of, spread_of

VARIANTS_MAX = 1_000

COMPARED_COSTS = {
    "bytes_peak": "peak size",
    "bytes_mean": "mean size",
    "write_amplification": "write amplification",
    "oldest_dirty_max_ms": "oldest uncleaned record",
    "tombstone_age_max_ms": "oldest tombstone",
}
"""Costs by which variants are compared. Lower is better."""


@dataclass(frozen=True, slots=True)
class Variant:
    """A combination of settings and its costs; see `Run.costs`.

    Attributes
    ----------
    settings : mapping of str to str
    costs : mapping of str to float
        Costs with the scenario's seed.
    spread : mapping
        Percentiles of each cost over all seeds (`spread_of`). Empty if there is only one seed.
    """

    settings: Mapping[str, str]
    costs: Mapping[str, float]
    spread: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def median_cost(self, name: str) -> float:
        """Return a cost for comparison: the median over the seeds."""
        return self.spread[name]["p50"] if self.spread else self.costs[name]

    def dominates(self, other: Variant) -> bool:
        """Return whether no cost is above the other variant's and at least one is below."""
        pairs = [(self.median_cost(name), other.median_cost(name)) for name in COMPARED_COSTS]
        return all(mine <= its for mine, its in pairs) and any(mine < its for mine, its in pairs)


@dataclass(frozen=True, slots=True)
class Sweep:
    """All variants of a scenario, ordered by their settings."""

    variants: Sequence[Variant]

    def front(self) -> list[Variant]:
        """Return the Pareto front: the variants that no other variant dominates."""
        return [
            each
            for each in self.variants
            if not any(other.dominates(each) for other in self.variants)
        ]


def combinations(axes: Mapping[str, Sequence[str]]) -> list[dict[str, str]]:
    """Return all combinations of values. The last axis varies fastest.

    Raises
    ------
    InvalidConfigurationError
        An axis is empty, or there are more than `VARIANTS_MAX` combinations.
    """
    for name, values in axes.items():
        if not values:
            raise InvalidConfigurationError(f"the sweep over {name} needs values")
    settings = [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]
    if len(settings) > VARIANTS_MAX:
        raise InvalidConfigurationError(
            f"the sweep has {len(settings)} combinations; the limit is {VARIANTS_MAX}"
        )
    return settings


def sweep(
    scenario: Scenario,
    axes: Mapping[str, Sequence[str]],
    *,
    workers: int | None = 1,
    samples: int = 200,
    seeds: int = 1,
    progress: Callable[[int, int], object] | None = None,
    recording: Recording | None = None,
) -> Sweep:
    """Run a scenario with every combination of config values.

    Parameters
    ----------
    axes : mapping of str to sequence of str
        Values of topic or broker configs, by key.
    workers : int, optional
        Number of processes. [default: as many as worthwhile]
    samples : int
        See `run`.
    seeds : int
        Number of seeds per variant.
    progress : callable, optional
        Called with the number of completed runs and the total.
    recording : Recording, optional
        Recording of the continued directory, if already read.

    Raises
    ------
    InvalidConfigurationError
        A key or value is invalid. Nothing was run.
    """
    settings = combinations(axes)
    numbers = seeds_of(scenario, seeds)
    plans = [with_settings(scenario, each) for each in settings]
    if scenario.origins and recording is None:
        recording = record(scenario.origins, scenario.continued_topics)
    jobs = [(plan.with_seed(seed).tree, samples) for plan in plans for seed in numbers]
    costs: list[dict[str, float]] = [{} for _ in jobs]
    if progress is not None:
        progress(0, len(jobs))
    with Workers(workers, recording) as processes:
        for done, (number, result) in enumerate(processes.run(run_costs, jobs), start=1):
            costs[number] = result
            if progress is not None:
                progress(done, len(jobs))
    variants = []
    for number, each in enumerate(settings):
        own = costs[number * seeds : (number + 1) * seeds]
        variants.append(Variant(each, own[0], spread_of(own) if seeds > 1 else {}))
    return Sweep(variants)
