"""Goals such as `oldest <= 30d and bytes < 1GiB`, and ranges of config values to search."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from logstore.config.units import parse_duration, parse_size, unit_of
from logstore.errors import InvalidConfigurationError
from logstore.reasons.formats import format_duration
from logstore.simulate.quantities import Quantity, quantity

VALUES = 9
"""Default number of values in a range."""

GEOMETRIC_FROM = 20
"""If the ends of a range have at least this ratio, its values are spaced geometrically."""

_TERM = re.compile(r"(?P<name>[\w.]+)\s*(?P<operator><=|>=|<|>)\s*(?P<limit>\S.*)")
_JOINED = re.compile(r"\s+and\s+|\s*,\s*")
_AXIS = re.compile(r"(?P<key>[^=]+)=(?P<values>.+)")
_RANGE = re.compile(r"(?P<low>.+?)\.\.(?P<high>[^/]+)(?:/(?P<count>\d+))?")
_UNITS = {"ms": (86_400_000, 3_600_000, 60_000, 1_000), "bytes": (1 << 30, 1 << 20, 1 << 10)}


@dataclass(frozen=True, slots=True)
class Term:
    """A bound on a quantity."""

    quantity: Quantity
    operator: str
    limit: float

    def __str__(self) -> str:
        return f"{self.quantity.name} {self.operator} {self.quantity.format(self.limit)}"

    @property
    def is_upper(self) -> bool:
        """Whether the quantity must be small."""
        return self.operator.startswith("<")

    def value(self, costs: Mapping[str, float]) -> float:
        """Return the quantity from the costs of a run."""
        return costs[self.quantity.cost]

    def worst(self, runs: Sequence[Mapping[str, float]]) -> float:
        """Return the value of several runs that is closest to the bound, or farthest beyond it."""
        values = [self.value(costs) for costs in runs]
        return max(values) if self.is_upper else min(values)

    def margin(self, value: float) -> float:
        """Return the distance to the bound. Negative if the value is beyond the bound."""
        return self.limit - value if self.is_upper else value - self.limit

    def is_met(self, value: float) -> bool:
        """Return whether a value is within the bound."""
        margin = self.margin(value)
        return margin >= 0 if self.operator.endswith("=") else margin > 0

    def excess(self, value: float) -> float:
        """Return by which fraction of the bound a value exceeds it; 0 if it does not."""
        if self.is_met(value):
            return 0.0
        return max(-self.margin(value) / (abs(self.limit) or 1.0), 1e-12)


@dataclass(frozen=True, slots=True)
class Goal:
    """Bounds that must all be met, for every seed."""

    terms: tuple[Term, ...]

    def __str__(self) -> str:
        return " and ".join(map(str, self.terms))

    def excess(self, runs: Sequence[Mapping[str, float]]) -> float:
        """Return the largest excess of several runs, or 0 if they meet the goal."""
        return max(term.excess(term.worst(runs)) for term in self.terms)


def parse_goal(texts: Sequence[str]) -> Goal:
    """Parse bounds such as `oldest <= 30d`, joined by `and`.

    Raises
    ------
    InvalidConfigurationError
        A text is not a bound, or its quantity or unit is unknown.
    """
    terms = []
    for text in (part for joined in texts for part in _JOINED.split(joined.strip())):
        found = _TERM.fullmatch(text)
        if found is None:
            raise InvalidConfigurationError(
                f"{text!r} is not a goal: use QUANTITY <= VALUE, such as 'oldest <= 30d'"
            )
        bounded = quantity(found["name"])
        terms.append(Term(bounded, found["operator"], bounded.parse(found["limit"])))
    return Goal(tuple(terms))


def parse_axis(text: str) -> tuple[str, list[str]]:
    """Parse `KEY=LOW..HIGH`, `KEY=LOW..HIGH/COUNT` or `KEY=VALUE,VALUE` to key and values.

    Raises
    ------
    InvalidConfigurationError
        The text is malformed, or the ends of the range are not ascending numbers.
    """
    found = _AXIS.fullmatch(text)
    if found is None:
        raise InvalidConfigurationError(f"{text!r} is not KEY=LOW..HIGH or KEY=VALUE,VALUE")
    key = found["key"].strip()
    span = _RANGE.fullmatch(found["values"].strip())
    if span is None:
        return key, [each.strip() for each in found["values"].split(",")]
    low, high = (number_of(key, end) for end in (span["low"], span["high"]))
    if low is None or high is None or low >= high:
        raise InvalidConfigurationError(
            f"{text!r} is not a range: {span['low']} must be a number below {span['high']}"
        )
    count = VALUES if span["count"] is None else int(span["count"])
    if count < 2:
        raise InvalidConfigurationError(f"{text!r} must have 2 values or more")
    is_whole = unit_of(key) is not None or "." not in span["low"] + span["high"].replace("..", "")
    return key, _values(low, high, count, unit_of(key), is_whole=is_whole)


def number_of(key: str, text: str) -> float | None:
    """Return a config value as a number, or None if it is not numeric."""
    parse = {"ms": parse_duration, "bytes": parse_size}.get(unit_of(key) or "", float)
    try:
        return parse(text.strip())
    except ValueError:
        return None


def _values(low: float, high: float, count: int, unit: str | None, *, is_whole: bool) -> list[str]:
    """Return values from `low` to `high`, rounded to readable numbers."""
    if low > 0 and high / low >= GEOMETRIC_FROM:
        ratio = (high / low) ** (1 / (count - 1))
        numbers = [low * ratio**step for step in range(count)]
    else:
        numbers = [low + (high - low) * step / (count - 1) for step in range(count)]
    inner = [_rounded(number, numbers[1] - low, unit, is_whole) for number in numbers[1:-1]]
    return list(dict.fromkeys(_text(each, unit) for each in (low, *inner, high)))


def _rounded(number: float, step: float, unit: str | None, is_whole: bool) -> float:
    if unit is not None:
        grain = next((size for size in _UNITS[unit] if size <= step / 4), 1)
        return round(number / grain) * grain
    return round(number) if is_whole else float(f"{number:.3g}")


def _text(number: float, unit: str | None) -> str:
    if unit == "ms":
        return format_duration(int(number))
    if unit == "bytes":
        names = zip(("GiB", "MiB", "KiB"), _UNITS["bytes"], strict=True)
        size = int(number)
        return next(
            (f"{size // each}{name}" for name, each in names if size and size % each == 0),
            str(size),
        )
    return f"{number:g}"
