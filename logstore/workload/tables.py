"""Tables of a TOML file as frozen dataclasses: each key has a default, a range and a meaning."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import date
from typing import Any, TypeVar

from logstore.config.suggest import and_nearest
from logstore.config.units import parse_duration
from logstore.errors import InvalidConfigurationError

T = TypeVar("T")

_WORDS = {
    int: "an integer",
    float: "a number",
    bool: "true or false",
    str: "a text",
    tuple: "a list of numbers",
}


@dataclass(frozen=True, slots=True)
class Allowed:
    """Which values a key may have: a range (both ends included), a choice, or anything."""

    doc: str
    low: float | None = None
    high: float | None = None
    choice: tuple[str, ...] = ()
    is_span: bool = False
    """A span of time, as `parse_duration` takes it; below 0 where `low` is None."""

    def problem(self, value: float | str | tuple[float, ...]) -> str | None:
        """Return what is wrong with a value of the right type, or None."""
        if isinstance(value, tuple):
            return next((text for each in value if (text := self.problem(each))), None)
        if self.choice and value not in self.choice:
            return f"is none of {', '.join(self.choice)}{and_nearest(str(value), self.choice)}"
        if isinstance(value, float) and not math.isfinite(value):
            return "is not a finite number"
        if isinstance(value, str):
            return self._span_problem(value) if self.is_span else None
        if self.low is not None and value < self.low:
            return f"is below {self.low}"
        if self.high is not None and value > self.high:
            return f"is above {self.high}"
        return None

    def _span_problem(self, text: str) -> str | None:
        is_back = self.low is None and text[:1] == "-"
        try:
            span_ms = parse_duration(text[is_back:])
        except ValueError as error:
            return str(error).partition(" ")[2]
        return "is below 0" if span_ms < 0 else None


def setting(
    default: float | str | tuple[float, ...],
    doc: str,
    low: float | None = None,
    high: float | None = None,
    choice: tuple[str, ...] = (),
) -> Any:  # noqa: ANN401  # as dataclasses.field: whatever the field is annotated with
    """Return the field of a key; its type is that of the default."""
    return field(default=default, metadata={"allowed": Allowed(doc, low, high, choice)})


def read_toml(text: str, what: str) -> dict[str, Any]:
    """Return the tree of tables of a TOML text.

    Parameters
    ----------
    what : str
        What it is called in the message.

    Raises
    ------
    InvalidConfigurationError
        It is no TOML.
    """
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidConfigurationError(f"the {what} is no TOML: {error}") from error


def span(default: str, doc: str, *, is_signed: bool = False) -> Any:  # noqa: ANN401  # as setting
    """Return the field of a key whose value is a span of time: `90m`, `10d`, `1d12h`."""
    low = None if is_signed else 0
    return field(default=default, metadata={"allowed": Allowed(doc, low, is_span=True)})


def read_table(
    kind: type[T],
    table: object,
    prefix: str,
    *,
    also: Sequence[str] = (),
    ready: Sequence[str] = (),
) -> T:
    """Return a table's dataclass of checked values.

    Parameters
    ----------
    kind : type
        A dataclass whose fields were made by `setting`, but for those that are `ready`.
    prefix : str
        What the names of its keys begin with in messages.
    also : sequence of str
        Names that a message may suggest, too.
    ready : sequence of str
        Keys whose values are taken as they are.

    Raises
    ------
    InvalidConfigurationError
        No table, an unknown key (with the nearest name), or a value that is not allowed.
    """
    if not isinstance(table, Mapping):
        raise InvalidConfigurationError(f"{prefix.rstrip('.')} is a table, not {table!r}")
    # A field that would be a word of Python has an underscore behind it.
    known = {row.name.rstrip("_"): row for row in fields(kind)}  # type: ignore[arg-type]
    values = {}
    for name, value in table.items():
        if name not in known:
            suggested = and_nearest(name, [*known, *also])
            raise InvalidConfigurationError(f"unknown key {prefix}{name}{suggested}")
        row = known[name]
        values[row.name] = (
            value
            if name in ready
            else _checked(prefix + name, value, type(row.default), row.metadata["allowed"])
        )
    return kind(**values)


def _checked(
    name: str, value: object, kind: type, allowed: Allowed
) -> float | str | tuple[float, ...]:
    if kind is float and type(value) is int:
        value = float(value)
    if kind is str and isinstance(value, date):
        value = value.isoformat()  # TOML knows times without quotes
    if kind is tuple and isinstance(value, list) and {*map(type, value)} <= {int, float}:
        value = tuple(map(float, value))
    if type(value) is not kind:
        raise InvalidConfigurationError(f"{name} is {_WORDS[kind]}, not {value!r}")
    assert isinstance(value, int | float | str | tuple)
    problem = allowed.problem(value)
    if problem is not None:
        raise InvalidConfigurationError(f"{name} {value!r} {problem}")
    return value


def dotted(table: object, name: str = "configs") -> dict[str, object]:
    """Return a table of configurations, told apart by their dots whether quoted or not."""
    if not isinstance(table, Mapping):
        raise InvalidConfigurationError(f"{name} is a table, not {table!r}")
    found: dict[str, object] = {}
    for word, value in table.items():
        if isinstance(value, Mapping):  # segment.bytes without quotes is a table to TOML
            found |= {f"{word}.{below}": each for below, each in dotted(value, name).items()}
        else:
            found[word] = value
    return found


def laid_over(base: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tree of tables with another's values in it where that has some."""
    merged = dict(base)
    for name, value in values.items():
        below = merged.get(name)
        merged[name] = (
            {**below, **value} if isinstance(below, dict) and isinstance(value, dict) else value
        )
    return merged
