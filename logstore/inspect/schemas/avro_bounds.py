"""Limits for decoding Avro. fastavro would crash if data were nested too deeply.

The nesting of a recursive type depends only on the data, and an array whose values occupy no bytes,
such as null, can have any number of items. Decoding a decimal takes quadratic time. With all other
schemas, the size of the data is a sufficient limit. Source: Avro 1.11 specification, binary
encoding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from logstore.errors import InvalidRecordError
from logstore.record.varint import decode_varint, decode_varlong

DEPTH_MAX = 100
"""Maximum nesting depth of values, as in Protobuf's libraries."""

ITEMS_MAX = 100_000
"""Maximum number of array items and map entries in a value."""

DECIMAL_BYTES_MAX = 1024
"""Maximum size of a decimal."""

SCHEMA_DEPTH_MAX = 200
"""Maximum nesting depth of JSON in a schema."""

_EXPANDED_MAX = 200_000
"""Maximum number of types in a schema, counting a named type at each use."""

_FREE_VALUES_MAX = 64
"""Maximum number of values without bytes in a value, beyond four per byte."""

_SIZES = {"null": 0, "boolean": 1, "float": 4, "double": 8}
_LENGTH_PREFIXED = ("bytes", "string")

Schema = Any
"""A schema as fastavro parses it: a name, a list (union) or a mapping."""


def check_schema(schema: Schema, named: Mapping[str, Schema]) -> None:
    """Refuse a schema whose values are large without any data, as records of records of nulls.

    Raises
    ------
    ValueError
        The message gives the reason.
    RecursionError
    """
    _SchemaMeasurer(named).measure(schema)


class _Measure(NamedTuple):
    """The number of types in a schema, and of values and bytes in its smallest value."""

    types: int
    values: int
    size_bytes: int


class _SchemaMeasurer:
    """Measures schemas. Each named type is measured once."""

    def __init__(self, named: Mapping[str, Schema]) -> None:
        self._named = named
        self._known: dict[int, _Measure] = {}

    def measure(self, schema: Schema) -> _Measure:
        schema = _kind(schema, self._named)
        if isinstance(schema, str):
            return _Measure(1, 1, 0 if schema == "null" else _SIZES.get(schema, 1))
        known = self._known.get(id(schema))
        if known is None:
            # A recursive type can only end in a union or an array, which occupy a byte.
            self._known[id(schema)] = _Measure(1, 1, 1)
            known = self._known[id(schema)] = self._of(schema)
            if (
                known.types > _EXPANDED_MAX
                or known.values > _FREE_VALUES_MAX + 4 * known.size_bytes
            ):
                raise ValueError("its values consist of too many values")
        return known

    def _of(self, schema: Schema) -> _Measure:
        if isinstance(schema, list):
            return _Measure(1 + sum(self.measure(each).types for each in schema), 1, 1)
        match schema["type"]:
            case "record" | "error":
                fields = [self.measure(each["type"]) for each in schema["fields"]]
                return _Measure(
                    1 + sum(each.types for each in fields),
                    1 + sum(each.values for each in fields),
                    sum(each.size_bytes for each in fields),
                )
            case "array" | "map" as kind:
                inside = self.measure(schema["items" if kind == "array" else "values"])
                return _Measure(1 + inside.types, 1, 1)
            case "fixed":
                return _Measure(1, 1, schema["size"])
            case kind:
                return _Measure(1, 1, 0 if kind == "null" else 1)


def bounds_check(schema: Schema, named: Mapping[str, Schema]) -> Callable[[bytes], None] | None:
    """Return a function that checks a payload, or None if the payload size bounds every value.

    The function raises `InvalidRecordError`. It may accept damaged payloads, because the decoder
    rejects them.
    """
    if _is_unbounded(schema, named, ()):
        free_bytes = 0
    elif _has_decimal(schema, named):
        free_bytes = DECIMAL_BYTES_MAX
    else:
        return None

    def check(payload: bytes) -> None:
        if len(payload) > free_bytes:
            _Walk(payload, named).skip(schema, 0, 0)

    return check


def _kind(schema: Schema, named: Mapping[str, Schema]) -> Schema:
    """Return a schema with type names resolved and wrappers of primitive types removed."""
    while True:
        if isinstance(schema, str) and schema in named:
            schema = named[schema]
        elif isinstance(schema, Mapping) and isinstance(schema["type"], Mapping | list):
            schema = schema["type"]
        else:
            return schema


def _is_unbounded(schema: Schema, named: Mapping[str, Schema], above: tuple[int, ...]) -> bool:
    """Return whether a schema is recursive or has arrays of values that occupy no bytes."""
    schema = _kind(schema, named)
    if isinstance(schema, str):
        return False
    if id(schema) in above:
        return True
    above = (*above, id(schema))
    if isinstance(schema, list):
        return any(_is_unbounded(each, named, above) for each in schema)
    match schema["type"]:
        case "record" | "error":
            return any(_is_unbounded(each["type"], named, above) for each in schema["fields"])
        case "array":
            items = schema["items"]
            return _is_unbounded(items, named, above) or _is_empty(items, named)
        case "map":
            return _is_unbounded(schema["values"], named, above)
        case _:
            return False


def _has_decimal(schema: Schema, named: Mapping[str, Schema]) -> bool:
    """Return whether a bounded schema has decimals of arbitrary length."""
    schema = _kind(schema, named)
    if isinstance(schema, str):
        return False
    if isinstance(schema, list):
        return any(_has_decimal(each, named) for each in schema)
    match schema["type"]:
        case "record" | "error":
            return any(_has_decimal(each["type"], named) for each in schema["fields"])
        case "array" | "map" as kind:
            return _has_decimal(schema["items" if kind == "array" else "values"], named)
        case kind:
            return _is_decimal(schema, kind)


def _is_decimal(schema: Schema, kind: str) -> bool:
    return (
        kind == "bytes" and not isinstance(schema, str) and schema.get("logicalType") == "decimal"
    )


def _is_empty(schema: Schema, named: Mapping[str, Schema]) -> bool:
    """Return whether the values of a bounded schema occupy no bytes."""
    schema = _kind(schema, named)
    if isinstance(schema, list):
        return False  # it starts with the branch index
    kind = schema if isinstance(schema, str) else schema["type"]
    if kind in ("record", "error"):
        return all(_is_empty(each["type"], named) for each in schema["fields"])
    return bool(kind == "null" or (kind == "fixed" and schema["size"] == 0))


class _Walk:
    """Walks over a payload without decoding it."""

    def __init__(self, payload: bytes, named: Mapping[str, Schema]) -> None:
        self._payload = payload
        self._end = len(payload)
        self._named = named
        self._items = 0

    def skip(self, schema: Schema, position: int, depth: int) -> int:
        """Return the position after a value."""
        if depth > DEPTH_MAX:
            raise InvalidRecordError(f"Avro data is nested more than {DEPTH_MAX} levels deep")
        schema = _kind(schema, self._named)
        data, end = self._payload, self._end
        if isinstance(schema, list):
            index, position = decode_varint(data, position, end)
            if not 0 <= index < len(schema):
                raise InvalidRecordError(f"invalid index {index} of an Avro union")
            return self.skip(schema[index], position, depth)
        kind = schema if isinstance(schema, str) else schema["type"]
        if kind in ("record", "error"):
            for field in schema["fields"]:
                position = self.skip(field["type"], position, depth + 1)
            return position
        if kind in ("array", "map"):
            return self._skip_blocks(schema, kind, position, depth)
        if kind in _LENGTH_PREFIXED:
            size, position = decode_varlong(data, position, end)
            if size > DECIMAL_BYTES_MAX and _is_decimal(schema, kind):
                raise InvalidRecordError(f"Avro decimal of {size} bytes")
            return self._moved(position, size)
        if kind == "fixed":
            return self._moved(position, schema["size"])
        if kind in _SIZES:
            return self._moved(position, _SIZES[kind])
        return decode_varlong(data, position, end)[1]  # int, long, enum

    def _skip_blocks(self, schema: Mapping[str, Any], kind: str, position: int, depth: int) -> int:
        while True:
            count, position = decode_varlong(self._payload, position, self._end)
            if count == 0:
                return position
            if count < 0:
                _, position = decode_varlong(self._payload, position, self._end)  # block size
            self._items += abs(count)
            if self._items > ITEMS_MAX:
                raise InvalidRecordError(f"Avro data has more than {ITEMS_MAX} items")
            for _ in range(abs(count)):
                if kind == "map":
                    position = self.skip("string", position, depth)
                inside = schema["items" if kind == "array" else "values"]
                position = self.skip(inside, position, depth + 1)

    def _moved(self, position: int, size: int) -> int:
        if not 0 <= size <= self._end - position:
            raise InvalidRecordError(f"Avro data ends before byte {position + size}")
        return position + size
