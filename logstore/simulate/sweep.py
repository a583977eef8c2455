"""Sweeps: a scenario under every combination of some settings, and which of them are worth it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from logstore.errors import InvalidConfigurationError
from logstore.simulate.engine import run
from logstore.simulate.processes import in_processes
from logstore.simulate.recording import Recording, record
from logstore.simulate.scenario import Scenario, from_mapping

VARIANTS_MAX = 1_000

JUDGED_BY = {
    "bytes_peak": "space, at most",
    "bytes_mean": "space, on average",
    "write_amplification": "write amplification",
    "oldest_dirty_max_ms": "oldest record that no cleaning has seen",
    "tombstone_age_max_ms": "oldest tombstone",
}
"""Costs by which variants are compared; less is better of each."""


@dataclass(frozen=True, slots=True)
class Variant:
    """A combination of settings and what it costs; see `Run.costs`."""

    settings: Mapping[str, str]
    costs: Mapping[str, float]

    def beats(self, other: Variant) -> bool:
        """Tell whether it is nowhere worse, and somewhere better."""
        pairs = [(self.costs[name], other.costs[name]) for name in JUDGED_BY]
        return all(mine <= its for mine, its in pairs) and any(mine < its for mine, its in pairs)


@dataclass(frozen=True, slots=True)
class Sweep:
    """All variants, in the order of their settings."""

    variants: Sequence[Variant]

    def front(self) -> list[Variant]:
        """Return the variants that no other one beats (the Pareto front)."""
        return [
            each for each in self.variants if not any(other.beats(each) for other in self.variants)
        ]


def combinations(axes: Mapping[str, Sequence[str]]) -> list[dict[str, str]]:
    """Return every combination of the values, the last axis first to change.

    Raises
    ------
    InvalidConfigurationError
        An axis has no value, or there are more than `VARIANTS_MAX`.
    """
    for name, values in axes.items():
        if not values:
            raise InvalidConfigurationError(f"a sweep over {name} needs values")
    found = [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]
    if len(found) > VARIANTS_MAX:
        raise InvalidConfigurationError(
            f"a sweep of {len(found)} combinations: at most {VARIANTS_MAX} are run at once"
        )
    return found


def sweep(
    scenario: Scenario,
    axes: Mapping[str, Sequence[str]],
    *,
    workers: int = 1,
    samples: int = 200,
    progress: Callable[[int, int], object] | None = None,
    recording: Recording | None = None,
) -> Sweep:
    """Run a scenario under every combination of some configurations.

    Parameters
    ----------
    axes : mapping of str to sequence of str
        Values of topic or broker configurations, by Kafka's keys.
    workers : int
        Processes at work at a time.
    samples : int
        As `run`.
    progress : callable, optional
        Told how many of how many are done.
    recording : Recording, optional
        Of the directory that the scenario is from, if it was read already.

    Raises
    ------
    InvalidConfigurationError
        A key or a value is wrong; nothing was run.
    """
    settings = combinations(axes)
    plans = [_with(scenario, each) for each in settings]
    if scenario.origin and recording is None:
        recording = record(scenario.origin, scenario.continued_topics)
    jobs = [(plan.tree, samples, recording) for plan in plans]
    costs: list[dict[str, float]] = [{} for _ in jobs]
    if progress is not None:
        progress(0, len(jobs))
    for done, (number, found) in enumerate(in_processes(_costs, jobs, workers), start=1):
        costs[number] = found
        if progress is not None:
            progress(done, len(jobs))
    return Sweep([Variant(*each) for each in zip(settings, costs, strict=True)])


def _with(scenario: Scenario, settings: Mapping[str, str]) -> Scenario:
    for name, value in settings.items():
        scenario = scenario.with_config(name, value)
    return scenario


def _costs(job: tuple[Mapping[str, Any], int, Recording | None]) -> dict[str, float]:
    tree, samples, recording = job
    return run(from_mapping(tree), samples=samples, recording=recording).costs()
