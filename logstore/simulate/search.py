"""Search for the settings that meet a goal at the least cost.

The settings form a grid. A sweep would run every combination with several seeds. The search has
three steps instead:

1. *Refinement*, with only the first seed: run a coarse grid of about three values per setting. Then
   halve the step around the best combinations, and around combinations that would be better but
   miss the goal, because the best combination is often close to the bound. Repeat until the
   neighbours of the best combinations are known.
2. *Racing*: repeatedly double the seeds of the best combination, until it has been run with all of
   them or a different one is best. Missing the goal with one seed eliminates a combination, so
   seeds with which others missed it are tried first. Combinations are compared with the same seeds,
   which produce the same arrivals.
3. *Holding*: run the winner with seeds that the search did not use. If it misses the goal with any
   of them, it is eliminated and the search continues.

A combination that is neither near the best ones nor on the coarse grid is never run. The result is
the same as with a sweep if costs change gradually between adjacent values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np

from logstore.errors import InvalidConfigurationError
from logstore.simulate.engine import run
from logstore.simulate.goals import Goal, Term, number_of
from logstore.simulate.processes import Workers
from logstore.simulate.quantities import Quantity
from logstore.simulate.recording import Recording, record
from logstore.simulate.scenario import Scenario, from_mapping
from logstore.simulate.spread import seeds_of, spread_of

SEEDS = 5
"""Number of seeds of the search."""

HELD_OUT_SEEDS = 20
"""Number of unused seeds with which the best combination must meet the goal."""

HELD_OUT_TRIES = 10
"""Number of combinations to try with unused seeds."""

_HELD_AT_ONCE = 5

COMBINATIONS_MAX = 1_000_000

CLOSE = 0.01
"""Relative difference in cost within which combinations are run with more seeds."""

_CENTERS = 2
"""Number of combinations of each kind whose neighbours are run."""

Costs = Mapping[str, float]
Place = tuple[int, ...]
"""Index of each setting's value."""

Evaluate = Callable[[Sequence[tuple[Mapping[str, str], int]]], Sequence[Costs]]
"""Runs combinations, each with a seed, and returns their costs in order."""


@dataclass(slots=True)
class Candidate:
    """A combination of settings and its runs.

    Attributes
    ----------
    runs : dict
        Costs by seed of the search.
    held_seeds : list of int
        Held-out seeds with which the combination was tried, if any.
    held : list of mapping
        Costs with each held-out seed.
    """

    settings: Mapping[str, str]
    runs: dict[int, Costs] = field(default_factory=dict)
    held_seeds: list[int] = field(default_factory=list)
    held: list[Costs] = field(default_factory=list)

    def spread(self) -> dict[str, dict[str, float]]:
        """Return percentiles, minimum and maximum of each cost over the seeds of the search."""
        return spread_of([*self.runs.values()])


@dataclass(frozen=True, slots=True)
class Margin:
    """The worst value of a bounded quantity, and its distance to the bound."""

    term: Term
    worst: float

    @property
    def margin(self) -> float:
        """Distance to the bound. Negative if the value is beyond the bound."""
        return self.term.margin(self.worst)

    def describe(self) -> str:
        """Return `2d 3h (10%) within`, or `beyond`."""
        where = "within" if self.term.is_met(self.worst) else "beyond"
        share = f" ({abs(self.margin) / abs(self.term.limit):.0%})" if self.term.limit else ""
        return f"{self.term.quantity.format(abs(self.margin))}{share} {where}"


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a search.

    Attributes
    ----------
    best : Candidate
        The best combination that meets the goal or, if none does, the nearest miss.
    is_met : bool
        Whether the best combination meets the goal with every seed, including held-out ones.
    candidates : list of Candidate
        All combinations that were run, in grid order.
    front : list of Candidate
        Pareto front of the minimized and bounded quantities, with the first seed.
    runs, held_runs : int
        Number of runs in the search, and with held-out seeds.
    sweep_runs : int
        Number of runs that a sweep over the same settings and seeds would need.
    """

    goal: Goal
    minimize: Quantity
    seeds: Sequence[int]
    best: Candidate
    is_met: bool
    candidates: list[Candidate]
    front: list[Candidate]
    runs: int
    held_runs: int
    sweep_runs: int

    def margins(self) -> list[Margin]:
        """Return the margin of each bound over all seeds of the best combination."""
        runs = [*self.best.runs.values(), *self.best.held]
        return [Margin(term, term.worst(runs)) for term in self.goal.terms]

    def held_count(self) -> int:
        """Return the number of held-out seeds with which the best combination meets the goal."""
        return sum(not self.goal.excess([costs]) for costs in self.best.held)

    def verdict(self) -> str:
        """Return a sentence on whether the goal is met."""
        held = self.best.held
        count = f"{self.held_count()} of {len(held)} other seeds"
        if self.is_met:
            return f"This setting meets the goal, also with {count}."
        if held:
            return f"The goal is not met. This setting comes closest, and meets it with {count}."
        return "No combination that was run meets the goal. This setting comes closest."

    def effort(self) -> str:
        """Return a sentence on the number of runs."""
        held = f", and {self.held_runs:,} with other seeds" if self.held_runs else ""
        return f"{self.runs:,} runs{held}; a sweep would take {self.sweep_runs:,}."

    def describe(self, candidate: Candidate) -> str:
        """Return whether a candidate is the best, meets the goal, or misses it."""
        if candidate is self.best:
            return "best" if self.is_met else "nearest miss"
        runs = [*candidate.runs.values(), *candidate.held]
        return "misses" if self.goal.excess(runs) else "meets"

    def nearest_of_front(self, count: int) -> list[Candidate]:
        """Return the candidates of the front that are closest to the best one."""
        cost = self.minimize.cost
        first = self.seeds[0]
        best = self.best.runs[first][cost]
        below = sum(each.runs[first][cost] < best for each in self.front)
        start = max(0, min(below - count // 2, len(self.front) - count))
        return self.front[start : start + count]


class Search:
    """A search over a grid; see the module docstring.

    Parameters
    ----------
    axes : mapping of str to sequence of str
        Values of each setting. Numbers are in ascending order.
    seeds : sequence of int
        Seeds of the search.
    other_seeds : iterator of int
        Held-out seeds.
    """

    def __init__(
        self,
        axes: Mapping[str, Sequence[str]],
        goal: Goal,
        minimize: Quantity,
        seeds: Sequence[int],
        other_seeds: Iterator[int],
        evaluate: Evaluate,
    ) -> None:
        self._axes = axes
        self._goal, self._minimize = goal, minimize
        self._seeds, self._other_seeds = seeds, other_seeds
        self._evaluate = evaluate
        self._sizes = [len(values) for values in axes.values()]
        self.sweep_runs = int(np.prod(self._sizes, dtype=object)) * len(seeds)
        if not axes or not all(self._sizes):
            raise InvalidConfigurationError("a search needs settings with values")
        if self.sweep_runs > COMBINATIONS_MAX * len(seeds):
            raise InvalidConfigurationError(
                f"the settings have more than {COMBINATIONS_MAX:,} combinations"
            )
        self._candidates: dict[Place, Candidate] = {}
        self._failed: list[Place] = []
        self._reference: Place | None = None
        self._runs = self._held_runs = 0

    def find(self) -> Found:
        """Return the best combination or, if none meets the goal, the nearest miss."""
        self._refine()
        while (place := self._race()) is not None:
            if self._holds(self._candidates[place]):
                return self._found(place, is_met=True)
            self._failed.append(place)
            if len(self._failed) == HELD_OUT_TRIES:
                break
        if self._failed:
            nearest = min(self._failed, key=lambda at: self._goal.excess(self._candidates[at].held))
            return self._found(nearest, is_met=False)
        return self._found(self._nearest_miss(), is_met=False)

    def _holds(self, candidate: Candidate) -> bool:
        """Return whether a candidate meets the goal with held-out seeds. Stops at a miss."""
        while len(candidate.held) < HELD_OUT_SEEDS:
            seeds = [next(self._other_seeds) for _ in range(_HELD_AT_ONCE)]
            candidate.held_seeds += seeds
            candidate.held += self._evaluate([(candidate.settings, seed) for seed in seeds])
            self._held_runs += len(seeds)
            if self._goal.excess(candidate.held):
                return False
        return True

    # -- places --------------------------------------------------------------------------

    def _settings(self, place: Place) -> dict[str, str]:
        return {
            name: values[number]
            for (name, values), number in zip(self._axes.items(), place, strict=True)
        }

    def _first_steps(self) -> list[int]:
        """Return the step of the coarse grid for each setting."""
        steps = []
        for name, values in self._axes.items():
            is_ordered = all(number_of(name, value) is not None for value in values)
            steps.append(1 << max(0, (len(values) - 1).bit_length() - 2) if is_ordered else 1)
        return steps

    def _neighbours(self, place: Place, steps: Sequence[int]) -> Iterator[Place]:
        """Yield the places that differ by one step, in at most two settings if there are many."""
        changes_max = len(place) if len(place) <= 3 else 2
        for signs in product((-1, 0, 1), repeat=len(place)):
            if 0 < sum(map(abs, signs)) <= changes_max:
                yield tuple(
                    min(max(0, at + sign * step), size - 1)
                    for at, sign, step, size in zip(place, signs, steps, self._sizes, strict=True)
                )

    # -- runs ----------------------------------------------------------------------------

    def _run(self, places: Iterable[Place], seeds: int = 1) -> None:
        """Run places until each has been run with this number of seeds."""
        jobs, owners = [], []
        order = self._seeds if seeds == 1 else sorted(self._seeds, key=self._slack)
        for place in sorted(set(places)):
            candidate = self._candidates.setdefault(place, Candidate(self._settings(place)))
            new = [seed for seed in order if seed not in candidate.runs]
            for seed in new[: max(0, seeds - len(candidate.runs))]:
                jobs.append((candidate.settings, seed))
                owners.append(candidate)
        for (_, seed), candidate, costs in zip(jobs, owners, self._evaluate(jobs), strict=True):
            candidate.runs[seed] = costs
        self._runs += len(jobs)

    def _slack(self, seed: int) -> float:
        """Return the negative of the largest excess with a seed among raced places."""
        raced = [each.runs for each in self._candidates.values() if len(each.runs) > 1]
        return -max((self._goal.excess([runs[seed]]) for runs in raced if seed in runs), default=0)

    def _excess(self, place: Place) -> float:
        return self._goal.excess([*self._candidates[place].runs.values()])

    def _values(self, place: Place) -> dict[int, float]:
        """Return the minimized quantity by seed."""
        runs = self._candidates[place].runs
        return {seed: costs[self._minimize.cost] for seed, costs in runs.items()}

    def _estimate(self, place: Place) -> float:
        """Estimate the median of the minimized quantity over all seeds.

        A place with fewer seeds is compared with the reference place for the same seeds.
        """
        values = self._values(place)
        if len(values) == len(self._seeds) or self._reference is None:
            return float(np.median([*values.values()]))
        known = self._values(self._reference)
        differences = [value - known[seed] for seed, value in values.items()]
        return float(np.median([*known.values()]) + np.mean(differences))

    # -- refinement ----------------------------------------------------------------------

    def _refine(self) -> None:
        """Run a coarse grid, then finer grids around the best places, with the first seed."""
        steps = self._first_steps()
        lines = [
            sorted({*range(0, size, step), size - 1})
            for size, step in zip(self._sizes, steps, strict=True)
        ]
        self._run(product(*lines))
        while True:
            is_finest = max(steps) == 1
            steps = [max(1, step // 2) for step in steps]
            before = len(self._candidates)
            self._run(near for at in self._centers() for near in self._neighbours(at, steps))
            if is_finest and len(self._candidates) == before:
                return

    def _centers(self) -> list[Place]:
        """Return the best places, and the nearest misses among places that would be better."""
        places = [*self._candidates]
        misses = sorted((self._excess(at), self._estimate(at), at) for at in places)
        meeting = [at for excess, _, at in misses if not excess][:_CENTERS]
        least = self._estimate(meeting[0]) if meeting else np.inf
        better = [at for excess, cost, at in misses if excess and cost < least]
        return meeting + better[:_CENTERS]

    # -- racing --------------------------------------------------------------------------

    def _race(self) -> Place | None:
        """Return the best place that meets the goal with all seeds, or None if there is none."""
        count = len(self._seeds)
        while True:
            meeting = [
                at for at in self._candidates if at not in self._failed and not self._excess(at)
            ]
            if not meeting:
                return None
            best = min(meeting, key=lambda at: (self._estimate(at), at))
            if len(self._values(best)) == count:
                if self._reference not in meeting:
                    self._reference = best
                contender = self._contender(best, meeting)
                if contender is None:
                    before = len(self._candidates)
                    self._run(self._neighbours(best, [1] * len(best)))
                    if len(self._candidates) == before:
                        return best
                    continue
                best = contender
            self._run([best], 2 * len(self._values(best)))

    def _contender(self, best: Place, meeting: Sequence[Place]) -> Place | None:
        """Return a place with fewer seeds that might be better than the best one."""
        least = self._estimate(best)
        for at in sorted(meeting, key=lambda at: (self._estimate(at), at)):
            runs = self._candidates[at].runs
            if self._estimate(at) > least + CLOSE * abs(least):
                return None
            is_same = runs.items() <= self._candidates[best].runs.items()
            if len(runs) < len(self._seeds) and not is_same:
                return at
        return None

    def _nearest_miss(self) -> Place:
        """Return the place with the smallest excess over all seeds."""
        while True:
            nearest = min(self._candidates, key=lambda at: (self._excess(at), at))
            if len(self._values(nearest)) == len(self._seeds):
                return nearest
            self._run([nearest], len(self._seeds))

    # -- result --------------------------------------------------------------------------

    def _found(self, place: Place, *, is_met: bool) -> Found:
        candidates = [self._candidates[at] for at in sorted(self._candidates)]
        return Found(
            self._goal,
            self._minimize,
            self._seeds,
            self._candidates[place],
            is_met,
            candidates,
            self._front(candidates),
            self._runs,
            self._held_runs,
            self.sweep_runs,
        )

    def _front(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Return the Pareto front by ascending cost. Equal candidates are represented once."""
        rows = {
            (
                candidate.runs[self._seeds[0]][self._minimize.cost],
                *(
                    -term.margin(term.value(candidate.runs[self._seeds[0]]))
                    for term in self._goal.terms
                ),
            ): candidate
            for candidate in reversed(candidates)
        }
        found: list[tuple[float, ...]] = []
        for row in sorted(rows):
            if not any(all(a <= b for a, b in zip(other, row, strict=True)) for other in found):
                found.append(row)
        return [rows[row] for row in found]


def search(
    scenario: Scenario,
    axes: Mapping[str, Sequence[str]],
    goal: Goal,
    minimize: Quantity,
    *,
    seeds: int = SEEDS,
    workers: int | None = 1,
    samples: int = 200,
    progress: Callable[[int], object] | None = None,
    recording: Recording | None = None,
) -> Found:
    """Search for the settings with which a scenario meets a goal at the least cost.

    Parameters
    ----------
    axes : mapping of str to sequence of str
        Values of topic or broker configs, by key.
    seeds : int
        Number of seeds with which the goal must be met.
    workers : int, optional
        Number of processes. [default: as many as worthwhile]
    progress : callable, optional
        Called with the number of completed runs.
    samples, recording
        See `run`.

    Raises
    ------
    InvalidConfigurationError
        A key or value is invalid. Nothing was run.
    """
    for name, values in axes.items():
        for value in values:
            scenario.with_config(name, value)
    if scenario.origins and recording is None:
        recording = record(scenario.origins, scenario.continued_topics)
    tries = HELD_OUT_TRIES * HELD_OUT_SEEDS
    all_seeds = seeds_of(scenario, seeds + tries)
    done = 0
    with Workers(workers, recording) as processes:

        def evaluate(jobs: Sequence[tuple[Mapping[str, str], int]]) -> list[Costs]:
            nonlocal done
            plans = [(with_settings(scenario, each).with_seed(seed), each) for each, seed in jobs]
            costs: list[Costs] = [{} for _ in jobs]
            tasks = [(plan.tree, samples) for plan, _ in plans]
            for number, result in processes.run(run_costs, tasks):
                costs[number] = result
                done += 1
                if progress is not None:
                    progress(done)
            return costs

        others = iter(all_seeds[seeds:])
        return Search(axes, goal, minimize, all_seeds[:seeds], others, evaluate).find()


def with_settings(scenario: Scenario, settings: Mapping[str, str]) -> Scenario:
    """Return a copy of a scenario with different settings."""
    for name, value in settings.items():
        scenario = scenario.with_config(name, value)
    return scenario


def run_costs(job: tuple[Mapping[str, Any], int], recording: Recording | None) -> dict[str, float]:
    """Run a scenario, given as tables and a number of samples, and return the costs."""
    tree, samples = job
    return run(from_mapping(tree), samples=samples, recording=recording).costs()
