"""A benchmark's result: lines with all their samples, and the JSON file that keeps them.

The file is version 1 of its own format; whatever plots or compares results reads nothing else.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from logstore.bench.report.goals import GOALS, Goal

SCHEMA_VERSION = 1

MISSED, REACHED, STRETCH, UNJUDGED = "missed", "reached", "stretch", "unjudged"
"""Verdict on a line's goal; without a goal, or without the peer it needs, it is unjudged."""


@dataclass(frozen=True)
class Figures:
    """Samples of one contestant in one line, in the line's unit.

    Attributes
    ----------
    judged : list of float
        CPU figures, where the line has them.
    wall : list of float
        The same by the clock on the wall; may be empty.
    """

    judged: list[float]
    wall: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        """The middle one, which stands for all."""
        return statistics.median(self.judged)

    @property
    def spread(self) -> float:
        """Distance of the extremes, as a share of the median."""
        return (max(self.judged) - min(self.judged)) / self.median if self.median else 0.0


@dataclass(frozen=True)
class Line:
    """One thing that was measured.

    Attributes
    ----------
    name : str
        `group/what`; goals are looked up by it.
    title : str
        For people.
    unit : str
        Of the figures, as `MB/s` or `ns/record`.
    higher_is_better : bool
        Of a speed, not of a cost.
    here : Figures
        This engine's.
    peer : Figures, optional
        The peer's, in the same run.
    peer_name : str
        Who that is, or why there is none.
    facts : dict
        What else a reader should know: sizes, shares, whether the outputs were the same.
    """

    name: str
    title: str
    unit: str
    higher_is_better: bool
    here: Figures
    peer: Figures | None = None
    peer_name: str = ""
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def group(self) -> str:
        """The part of the name before the slash."""
        return self.name.partition("/")[0]

    @property
    def ratio(self) -> float | None:
        """Ratio of the medians to the peer's: above 1 is better than the peer."""
        if self.peer is None or not self.here.median or not self.peer.median:
            return None
        ratio = self.here.median / self.peer.median
        return ratio if self.higher_is_better else 1 / ratio

    @property
    def wall_ratio(self) -> float | None:
        """The same by the clock on the wall."""
        if self.peer is None or not self.peer.wall or not self.here.wall:
            return None
        ratio = statistics.median(self.here.wall) / statistics.median(self.peer.wall)
        return ratio if self.higher_is_better else 1 / ratio

    @property
    def goal(self) -> Goal | None:
        """Goal of the line; None if it has none."""
        return GOALS.get(self.name)

    @property
    def verdict(self) -> str:
        """MISSED, REACHED, STRETCH or UNJUDGED."""
        if self.goal is None:
            return UNJUDGED
        value = self.ratio if self.goal.is_ratio else self.here.median
        if value is None:
            return UNJUDGED
        # As it is shown: the file's five digits must not be judged otherwise than the samples.
        value = float(f"{value:.4g}")
        rising = self.goal.is_ratio or self.higher_is_better
        if _reaches(value, self.goal.stretch, rising=rising):
            return STRETCH
        return REACHED if _reaches(value, self.goal.least, rising=rising) else MISSED

    def as_json(self) -> dict[str, Any]:
        """Return the line as the file has it: what was measured, and what follows from it."""
        goal = self.goal
        return {
            "name": self.name,
            "title": self.title,
            "unit": self.unit,
            "higher_is_better": self.higher_is_better,
            "here": _figures_json(self.here),
            "peer": None if self.peer is None else _figures_json(self.peer),
            "peer_name": self.peer_name,
            "ratio": _rounded(self.ratio),
            "wall_ratio": _rounded(self.wall_ratio),
            "goal": None if goal is None else asdict(goal),
            "verdict": self.verdict,
            "facts": self.facts,
        }

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> Line:
        """Return a line of a file; what follows from the samples is worked out anew."""
        return cls(
            name=stored["name"],
            title=stored["title"],
            unit=stored["unit"],
            higher_is_better=stored["higher_is_better"],
            here=_figures(stored["here"]),
            peer=None if stored["peer"] is None else _figures(stored["peer"]),
            peer_name=stored["peer_name"],
            facts=stored["facts"],
        )


def _reaches(value: float, wanted: float | None, *, rising: bool) -> bool:
    if wanted is None:
        return False
    return value >= wanted if rising else value <= wanted


def _figures_json(figures: Figures) -> dict[str, Any]:
    return {
        "median": _rounded(figures.median),
        "spread": _rounded(figures.spread),
        "judged": [_rounded(each) for each in figures.judged],
        "wall": [_rounded(each) for each in figures.wall],
    }


def _figures(stored: dict[str, Any]) -> Figures:
    return Figures(stored["judged"], stored["wall"])


def _rounded(value: float | None) -> float | None:
    """Keep five digits: more would be noise."""
    return None if value is None else float(f"{value:.5g}")


@dataclass(frozen=True, kw_only=True)
class Run:
    """When and where a benchmark ran, and how its file is written.

    Attributes
    ----------
    machine, versions : dict
        The machine, and the versions of what ran.
    load : list of float
        Load averages over a minute before and after: a result on a busy machine says so.
    """

    made_at: str
    seconds: float
    machine: dict[str, Any]
    versions: dict[str, str]
    load: list[float]

    def as_json(self) -> dict[str, Any]:
        """Return the file's object."""
        return {"schema": SCHEMA_VERSION, **asdict(self)}

    def write(self, path: Path) -> None:
        """Write the file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(self.as_json(), indent=1, ensure_ascii=False)
        path.write_text(f"{text}\n", encoding="utf-8")


def read_fields(path: Path) -> dict[str, Any]:
    """Read the object of a file that `Run.write` wrote, without its version.

    Raises
    ------
    ValueError
        It is of another version, or no JSON.
    """
    stored: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if (schema := stored.pop("schema", None)) != SCHEMA_VERSION:
        raise ValueError(f"a result of schema {schema}, not {SCHEMA_VERSION}")
    return stored


@dataclass(frozen=True, kw_only=True)
class Result(Run):
    """A run of the harness's lines.

    Attributes
    ----------
    kind : str
        Which set of lines: `quick`, `full`, or `part` where some were left out.
    """

    kind: str
    lines: Sequence[Line]

    def as_json(self) -> dict[str, Any]:
        """Return the file's object."""
        return {
            "schema": SCHEMA_VERSION,
            "made_at": self.made_at,
            "kind": self.kind,
            "seconds": self.seconds,
            "machine": self.machine,
            "versions": self.versions,
            "load": self.load,
            "lines": [line.as_json() for line in self.lines],
        }


def read_result(path: Path) -> Result:
    """Read a file that `Result.write` wrote; the errors of `read_fields`."""
    stored = read_fields(path)
    lines = [Line.from_json(line) for line in stored.pop("lines")]
    return Result(**stored, lines=lines)
