"""Configuration keys: types, ranges, synonyms, origins and releases, and parsing of values.

The keys are listed in `topic_keys` and `broker_keys`.
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Iterable, Mapping
from datetime import timedelta
from enum import IntEnum
from typing import NamedTuple

from logstore.errors import InvalidConfigurationError
from logstore.types import HOUR_MS, INT32_MAX, INT64_MAX, TimestampType

# -- origins: the layers that can set a key, as `topic describe` names them ----------------------

ORIGIN_TOPIC = "topic"
ORIGIN_GROUP = "group"
ORIGIN_DYNAMIC_BROKER = "dynamic broker"
ORIGIN_DYNAMIC_DEFAULT = "dynamic default"
ORIGIN_BROKER = "broker"
ORIGIN_DEFAULT = "default"

KAFKA_ORIGINS = {
    ORIGIN_TOPIC: "DYNAMIC_TOPIC_CONFIG",
    ORIGIN_GROUP: "DYNAMIC_GROUP_CONFIG",
    ORIGIN_DYNAMIC_BROKER: "DYNAMIC_BROKER_CONFIG",
    ORIGIN_DYNAMIC_DEFAULT: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    ORIGIN_BROKER: "STATIC_BROKER_CONFIG",
    ORIGIN_DEFAULT: "DEFAULT_CONFIG",
}
"""Kafka's name of each origin (ConfigEntry.ConfigSource)."""


# -- keys and their values -----------------------------------------------------------------------

Value = bool | int | float | str | tuple[str, ...] | TimestampType
"""A parsed value. Its type is determined by the `Kind` of the key."""

Ranges = tuple[tuple[float | None, float | None], ...]
"""The allowed numbers as closed intervals.

None means unbounded. An empty tuple allows all numbers.
"""


class Kind(enum.Enum):
    """The type of a value, named as in Kafka."""

    BOOLEAN = "boolean"
    INT = "int"
    LONG = "long"
    DOUBLE = "double"
    STRING = "string"
    LIST = "list"


class Synonym(NamedTuple):
    """A broker key that sets the default of a topic key. Its value is multiplied by `factor`.

    `ranges` replaces the topic key's ranges. It is only checked if no other synonym takes
    precedence.
    """

    key: str
    factor: int = 1
    kind: Kind | None = None
    ranges: Ranges | None = None


class Form(NamedTuple):
    """The format of a value: a regular expression, and a description for users."""

    pattern: str
    words: str


class ConfigKey(NamedTuple):
    """A configuration key.

    Attributes
    ----------
    default : Value
        The parsed default value.
    ranges : Ranges
        The allowed range of a number, in addition to the 32 or 64 bits of its kind.
    values : tuple of str
        The allowed strings or list elements. Empty if all are allowed.
    synonyms : tuple of Synonym
        The broker keys that correspond to a topic key, in order of precedence.
    blank_is_default : bool
        Whether an empty string means the default.
    form : Form, optional
        The required format of the value as text (`to_text`).
    ignores_case : bool
        Whether the values are case-insensitive.
    """

    key: str
    kind: Kind
    default: Value
    doc: str
    ranges: Ranges = ()
    values: tuple[str, ...] = ()
    synonyms: tuple[Synonym, ...] = ()
    blank_is_default: bool = False
    form: Form | None = None
    ignores_case: bool = False

    @property
    def attribute(self) -> str:
        """The name of the key as a Python attribute, with underscores instead of dots."""
        return self.key.replace(".", "_")

    @property
    def range_text(self) -> str:
        """A description of the allowed values, for users."""
        if self.form is not None:
            return self.form.words
        if self.kind is Kind.BOOLEAN:
            return "true or false"
        if self.values:
            return f"{'a list of' if self.kind is Kind.LIST else 'one of'} {', '.join(self.values)}"
        if self.kind in (Kind.STRING, Kind.LIST):
            return "any text"
        number = {Kind.INT: "a 32-bit integer", Kind.LONG: "a 64-bit integer"}
        parts = [number.get(self.kind, "a number")]
        bounds = " or ".join(map(_range_text, self.ranges))
        return " ".join([*parts, bounds]) if bounds else parts[0]

    def parse(self, text: str, *, key: str | None = None) -> Value:
        """Parse a value as Kafka does. Surrounding whitespace is ignored.

        Parameters
        ----------
        text : str
        key : str, optional
            The name under which the value was set, for error messages.

        Raises
        ------
        InvalidConfigurationError
            The value is not allowed. The message contains the key, the value and the allowed range.
        """
        text = text.strip()
        value = self._convert(text)
        if value is None or not self._allows(value):
            raise InvalidConfigurationError(
                f"{key or self.key} = {text!r} is not allowed: it must be {self.range_text}",
                key=key or self.key,
            )
        return value

    def check(self, value: object) -> None:
        """Raise `InvalidConfigurationError` unless `value` is a valid parsed value of this key."""
        if value is self.default:
            return  # fast path, because nearly all values are defaults
        if not self._has_type(value) or not self._allows(value):
            raise InvalidConfigurationError(
                f"{self.key} = {value!r} is not allowed: it must be {self.range_text}", key=self.key
            )

    def _convert(self, text: str) -> Value | None:
        match self.kind:
            case Kind.BOOLEAN:
                return {"true": True, "false": False}.get(text.lower())
            case Kind.INT | Kind.LONG:
                return _parse_integer(text)
            case Kind.DOUBLE:
                return _parse_double(text)
            case Kind.LIST:
                parts = [part.strip() for part in text.split(",")] if text else []
                return tuple(dict.fromkeys(parts))
            case Kind.STRING:
                if self.ignores_case:
                    return text.lower()
                if isinstance(self.default, TimestampType):
                    return {kind.kafka_name: kind for kind in TimestampType}.get(text)
                return str(self.default) if self.blank_is_default and not text else text

    def _has_type(self, value: object) -> bool:
        expected = {Kind.DOUBLE: (int, float), Kind.LIST: (tuple,)}.get(
            self.kind, (type(self.default),)
        )
        return isinstance(value, expected) and (
            self.kind is Kind.BOOLEAN or not isinstance(value, bool)
        )

    def _allows(self, value: object) -> bool:
        if self.form is not None and not re.fullmatch(self.form.pattern, to_text(value)):
            return False
        if isinstance(value, tuple):
            return not self.values or set(value) <= set(self.values)
        if isinstance(value, bool | TimestampType):
            return True
        if isinstance(value, int | float):
            largest = {Kind.INT: INT32_MAX, Kind.LONG: INT64_MAX}.get(self.kind, math.inf)
            return -largest - 1 <= value <= largest and (
                not self.ranges or any(_is_within(value, *bounds) for bounds in self.ranges)
            )
        return not self.values or value in self.values


def render(value: Value) -> str:
    """Return a parsed value as text for a configuration file. This is the inverse of `parse`."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    if isinstance(value, TimestampType):
        return value.kafka_name
    return str(value)


def to_text(value: object) -> str:
    """Convert a number, boolean, sequence, string or timedelta to text.

    A timedelta is converted to milliseconds.
    """
    if isinstance(value, timedelta):
        value = value / timedelta(milliseconds=1)
    if isinstance(value, float) and value.is_integer() and abs(value) < INT64_MAX:
        return str(int(value))
    if isinstance(value, list | tuple | set | frozenset):
        parts = sorted(value) if isinstance(value, set | frozenset) else value
        return ",".join(map(str, parts))
    if isinstance(value, bool | TimestampType):
        return render(value)
    return str(value)


def _parse_integer(text: str) -> int | None:
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 19):
        return None
    return int(text)


def _parse_double(text: str) -> float | None:
    if not text.isascii() or "_" in text:
        return None
    try:
        value = float(text)
    except ValueError:
        return None
    return None if math.isnan(value) else value


def _is_within(value: float, low: float | None, high: float | None) -> bool:
    return (low is None or low <= value) and (high is None or value <= high)


def _range_text(bounds: tuple[float | None, float | None]) -> str:
    low, high = bounds
    if low == high:
        return f"of {low}"
    if high is None:
        return f"of at least {low}"
    return f"of at most {high}" if low is None else f"from {low} to {high}"


def to_texts(values: Mapping[str, object]) -> dict[str, str]:
    """Convert values to text, and remove whitespace around keys."""
    return {key.strip(): to_text(value) for key, value in values.items()}


# -- changes in later releases of Kafka ----------------------------------------------------------


class ReleaseChange(NamedTuple):
    """A change to a key in a later release of Kafka. None means unchanged.

    Attributes
    ----------
    since : str
        The release, such as `4.0`.
    removed : bool
        Whether the release removed the key.
    """

    key: str
    since: str
    default: Value | None = None
    ranges: Ranges | None = None
    removed: bool = False


LATER_RELEASES = (
    ReleaseChange("node.id", "4.0", ranges=((0, None),)),
    ReleaseChange("segment.bytes", "4.0", ranges=((1 << 20, None),)),
    ReleaseChange("message.timestamp.after.max.ms", "4.0", default=HOUR_MS),
    ReleaseChange("message.timestamp.difference.max.ms", "4.0", removed=True),
    ReleaseChange("num.recovery.threads.per.data.dir", "4.0", default=2),
)
"""Changes up to Kafka 4.4. A change of a topic key also applies to its broker synonyms."""


# -- operations of IncrementalAlterConfigs (KIP-339) ---------------------------------------------


class Operation(IntEnum):
    """An operation on a config key, with its number in the protocol.

    DELETE resets the key to its default. APPEND and SUBTRACT add or remove list elements.
    """

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


def apply_operations(
    operations: Iterable[tuple[str, Operation, object]],
    keys: Mapping[str, ConfigKey],
    now: Mapping[str, str],
) -> tuple[dict[str, object], list[str]]:
    """Return the values to set and the keys to unset.

    Parameters
    ----------
    operations : iterable
        Tuples of key, operation and value.
    keys : mapping
        All known keys.
    now : mapping
        The effective values as text, which APPEND and SUBTRACT modify. Defaults may be omitted.

    Raises
    ------
    InvalidConfigurationError
        APPEND or SUBTRACT is used for a key that is not a list.
    """
    values: dict[str, object] = {}
    unset = []
    for key, operation, value in operations:
        if operation is Operation.SET:
            values[key] = value
        elif operation is Operation.DELETE:
            unset.append(key)
        else:
            if key not in keys or keys[key].kind is not Kind.LIST:
                raise InvalidConfigurationError(
                    f"Can't {operation.name} to key {key} because its type is not LIST."
                )
            effective = now.get(key, render(keys[key].default))
            before = [each for each in effective.split(",") if each]
            operand = [each for each in str(value).split(",") if each]
            if operation is Operation.APPEND:
                after = [*before, *(each for each in operand if each not in before)]
            else:
                after = [each for each in before if each not in operand]
            values[key] = ",".join(after)
    return values, unset
