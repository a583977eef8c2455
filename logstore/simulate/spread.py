"""Run a scenario with several seeds and compute the spread of the results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any, NamedTuple

import numpy as np

from logstore.simulate.engine import Progress, run
from logstore.simulate.outcome import SWAP, Column, Run, bytes_of, evenly
from logstore.simulate.processes import Workers
from logstore.simulate.recording import Recording, record
from logstore.simulate.scenario import Scenario, from_mapping

POINTS = 384
"""Number of evenly spaced points in curves over several seeds."""

ALL_BYTES = "bytes"
"""Column of the total size."""


class Percentiles(NamedTuple):
    """The 5th, 50th and 95th percentile of a value over the seeds."""

    p5: Any
    p50: Any
    p95: Any


def percentiles(values: Iterable[Any]) -> Percentiles:
    """Return percentiles of numbers, or of the elements of arrays."""
    rows = np.asarray(list(values), np.float64)
    low, middle, high = np.quantile(rows, (0.05, 0.5, 0.95), axis=0)
    if rows.ndim == 1:
        return Percentiles(float(low), float(middle), float(high))
    return Percentiles(low, middle, high)


def spread_of(costs: Sequence[Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """Return percentiles, minimum and maximum of each cost."""
    found = {}
    for name in costs[0]:
        values = [each[name] for each in costs]
        found[name] = {**percentiles(values)._asdict(), "min": min(values), "max": max(values)}
    return found


class Curve(NamedTuple):
    """A column of a run at `POINTS` times, with its last and maximum values."""

    values: Column
    last: float
    most: float


Curves = dict[tuple[str | None, str], Curve]
"""Curves by topic (None for all topics) and column."""


class SeedRun(NamedTuple):
    """Costs and curves of a run with one seed."""

    seed: int
    costs: Mapping[str, float]
    curves: Curves


@dataclass(frozen=True, slots=True)
class Spread:
    """Runs of a scenario with several seeds.

    Attributes
    ----------
    time_ms : array
        Times of the curves.
    runs : sequence of SeedRun
    """

    time_ms: Column
    runs: Sequence[SeedRun]

    @property
    def seeds(self) -> list[int]:
        """The seeds in order."""
        return [each.seed for each in self.runs]

    def costs(self) -> dict[str, dict[str, float]]:
        """Return percentiles, minimum and maximum of each cost."""
        return spread_of([each.costs for each in self.runs])

    def curve(self, column: str, topic: str | None = None) -> Percentiles:
        """Return the percentiles of a combined column at each time."""
        return percentiles(each.curves[topic, column].values for each in self.runs)

    def last(self, column: str, topic: str | None = None) -> Percentiles:
        """Return the percentiles of the last value of a column."""
        return percentiles(each.curves[topic, column].last for each in self.runs)

    def most(self, column: str, topic: str | None = None) -> Percentiles:
        """Return the percentiles of a column's maximum over time."""
        return percentiles(each.curves[topic, column].most for each in self.runs)


def seeds_of(scenario: Scenario, count: int) -> list[int]:
    """Return seeds that share no random numbers. Each topic gets its own seed."""
    step = len(scenario.topics)
    return [scenario.seed + number * step for number in range(count)]


def summarize(outcome: Run) -> SeedRun:
    """Return the costs and curves of a run."""
    topics = [topic.name for topic in outcome.scenario.topics]
    curves: Curves = {}
    for topic in (None, *topics) if len(topics) > 1 else (None,):
        series = outcome.over_time(topic)
        for name, values in {**series, ALL_BYTES: bytes_of(series)}.items():
            if name not in ("time_ms", SWAP):
                sampled = evenly(series["time_ms"], values, POINTS)
                curves[topic, name] = Curve(sampled, float(values[-1]), float(values.max()))
    if len(topics) == 1:
        curves |= {(topics[0], name): curve for (_, name), curve in curves.items()}
    return SeedRun(outcome.scenario.seed, outcome.costs(), curves)


def run_seeds(
    scenario: Scenario,
    count: int,
    *,
    workers: int | None = 1,
    samples: int = 2_000,
    data_dir: str | PathLike[str] | None = None,
    progress: Progress | None = None,
    finished: Callable[[int, int], object] | None = None,
    recording: Recording | None = None,
) -> tuple[Run, Spread]:
    """Run a scenario with several seeds.

    Parameters
    ----------
    count : int
        Number of seeds. The first one is the scenario's seed.
    workers : int, optional
        Number of processes. [default: as many as worthwhile]
    samples, data_dir, progress, recording
        See `run`. `data_dir` and `progress` apply to the first seed.
    finished : callable, optional
        Called with the number of completed runs and the total.

    Returns
    -------
    Run, Spread
        The run with the first seed, and results for all seeds.
    """
    if scenario.origins and recording is None:
        recording = record(scenario.origins, scenario.continued_topics)
    seeds = seeds_of(scenario, count)
    outcome = run(
        scenario, data_dir=data_dir, samples=samples, progress=progress, recording=recording
    )
    runs = {0: summarize(outcome)}
    jobs = [(scenario.with_seed(seed).tree, samples) for seed in seeds[1:]]
    if finished is not None:
        finished(1, count)
    with Workers(workers, recording) as processes:
        for number, result in processes.run(_run_seed, jobs):
            runs[1 + number] = result
            if finished is not None:
                finished(len(runs), count)
    times = outcome.over_time()["time_ms"]
    middles = times[0] + (np.arange(POINTS) + 0.5) * (times[-1] - times[0]) / POINTS
    return outcome, Spread(middles.astype(np.int64), [runs[number] for number in sorted(runs)])


def _run_seed(job: tuple[Mapping[str, Any], int], recording: Recording | None) -> SeedRun:
    tree, samples = job
    return summarize(run(from_mapping(tree), samples=samples, recording=recording))
