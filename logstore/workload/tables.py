"""TOML tables as frozen dataclasses. Each key has a default, a range and a description."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import date
from typing import Any, TypeVar

from logstore.config.suggest import and_nearest
from logstore.config.units import parse_duration, parse_size
from logstore.errors import InvalidConfigurationError

T = TypeVar("T")

_WORDS = {
    int: "an integer",
    float: "a number",
    bool: "true or false",
    str: "a string",
    tuple: "a list of numbers",
}


@dataclass(frozen=True, slots=True)
class Allowed:
    """The allowed values of a key: an inclusive range, a choice, or any value."""

    doc: str
    low: float | None = None
    high: float | None = None
    choice: tuple[str, ...] = ()
    is_span: bool = False
    """Whether it is a duration (`parse_duration`). It may be negative if `low` is None."""

    def problem(self, value: float | str | tuple[float, ...]) -> str | None:
        """Return the problem with a value of the right type, or None if it is valid."""
        if isinstance(value, tuple):
            return next((text for each in value if (text := self.problem(each))), None)
        if self.choice and value not in self.choice:
            return f"is not one of {', '.join(self.choice)}{and_nearest(str(value), self.choice)}"
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
) -> Any:  # noqa: ANN401  # like dataclasses.field
    """Return a dataclass field for a key. The default determines the type of the key."""
    return field(default=default, metadata={"allowed": Allowed(doc, low, high, choice)})


def read_toml(text: str, what: str) -> dict[str, Any]:
    """Parse TOML.

    Parameters
    ----------
    what : str
        Kind of file, for error messages.

    Raises
    ------
    InvalidConfigurationError
        The text is not valid TOML.
    """
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidConfigurationError(f"the {what} is not TOML: {error}") from error


def span(default: str, doc: str, *, is_signed: bool = False) -> Any:  # noqa: ANN401  # as setting
    """Return a dataclass field for a duration: `90m`, `10d`, `1d12h`."""
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
    """Validate a table and return it as a dataclass.

    Parameters
    ----------
    kind : type
        A dataclass whose fields are created with `setting`, except for those in `ready`.
    prefix : str
        Prefix of keys in messages.
    also : sequence of str
        Additional names that messages may suggest.
    ready : sequence of str
        Keys whose values are not validated.

    Raises
    ------
    InvalidConfigurationError
        The value is not a table, a key is unknown (the message suggests the closest name), or a
        value is not allowed.
    """
    if not isinstance(table, Mapping):
        raise InvalidConfigurationError(f"{prefix.rstrip('.')} must be a table, not {table!r}")
    # Fields whose name is a Python keyword have a trailing underscore.
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
    if kind is int and isinstance(value, str):
        value = _with_unit(name, value)
    if kind is str and isinstance(value, date):
        value = value.isoformat()  # an unquoted TOML time
    if kind is tuple and isinstance(value, list) and {*map(type, value)} <= {int, float}:
        value = tuple(map(float, value))
    if type(value) is not kind:
        raise InvalidConfigurationError(f"{name} must be {_WORDS[kind]}, not {value!r}")
    assert isinstance(value, int | float | str | tuple)
    problem = allowed.problem(value)
    if problem is not None:
        raise InvalidConfigurationError(f"{name} {value!r} {problem}")
    return value


def _with_unit(name: str, text: str) -> int | str:
    """Convert a size or duration with a unit to a number. Any other text is returned unchanged."""
    parse = parse_size if name.endswith("bytes") else parse_duration
    if not name.endswith(("bytes", "_ms")):
        return text
    try:
        return parse(text)
    except ValueError as error:
        raise InvalidConfigurationError(f"{name}: {error}") from error


def flatten_configs(table: object, name: str = "configs") -> dict[str, object]:
    """Flatten a table of dotted config keys, which may be quoted or parsed as nested tables."""
    if not isinstance(table, Mapping):
        raise InvalidConfigurationError(f"{name} must be a table, not {table!r}")
    configs: dict[str, object] = {}
    for word, value in table.items():
        if isinstance(value, Mapping):  # TOML parses unquoted segment.bytes as a table
            configs |= {
                f"{word}.{below}": each for below, each in flatten_configs(value, name).items()
            }
        else:
            configs[word] = value
    return configs


def merge_tables(base: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested tables with the values of a second table merged in."""
    merged = dict(base)
    for name, value in values.items():
        below = merged.get(name)
        merged[name] = (
            {**below, **value} if isinstance(below, dict) and isinstance(value, dict) else value
        )
    return merged
