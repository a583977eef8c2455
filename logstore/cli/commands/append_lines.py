"""Parse `append` input: jsonl and tsv."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, NoReturn

from logstore.record.records import Header
from logstore.storage.log.drafts import NewRecord
from logstore.types import INT32_MAX, INT64_MAX, NO_TIMESTAMP

_IGNORED = frozenset({"offset", "topic", "timestamp_type", "decoded"})
_KNOWN = frozenset(
    {"key", "value", "key_base64", "value_base64", "headers", "timestamp", "partition"}
)
_USUAL = frozenset({"key", "value"})
_BOM = b"\xef\xbb\xbf"
_TSV_NULL = b"\\N"


class MalformedLineError(ValueError):
    """A line that cannot be parsed as a record."""


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


# `json.loads` with arguments creates a decoder per call and skips whitespace twice.
_raw_decode = json.JSONDecoder(parse_constant=_no_constant).raw_decode


class Parser(NamedTuple):
    """Functions that parse lines without their line endings.

    `parse` returns the record and its partition, or raises `MalformedLineError`. `is_blank` returns
    whether to skip the line.
    """

    parse: Callable[[bytes], tuple[NewRecord, int | None]]
    is_blank: Callable[[bytes], bool]


def parser(input_format: str, *, json_values: bool = False) -> Parser:
    """Return the parser for `jsonl` or `tsv`."""
    if input_format == "tsv":
        return Parser(parse_tsv, lambda line: not line)
    return Parser(_JsonParser(json_values).parse, lambda line: not line.strip())


def numbered_lines(stream: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield each line and its number, starting at 1, without line ending and byte order mark."""
    for number, line in enumerate(stream, 1):
        if number == 1:
            line = line.removeprefix(_BOM)
        yield number, line.removesuffix(b"\n").removesuffix(b"\r")


def parse_tsv(line: bytes) -> tuple[NewRecord, int | None]:
    r"""Parse `key<TAB>value`. `\N` is null, and further tabs are part of the value."""
    key, tab, value = line.partition(b"\t")
    if not tab:
        raise MalformedLineError("no tab between key and value")
    return (
        NewRecord(
            None if key == _TSV_NULL else key,
            None if value == _TSV_NULL else value,
        ),
        None,
    )


class _JsonParser:
    """Parses JSON objects in the format that `read` prints."""

    def __init__(self, json_values: bool) -> None:
        self._json_values = json_values

    def parse(self, line: bytes) -> tuple[NewRecord, int | None]:
        try:
            text = line.decode().strip()
            item, end = _raw_decode(text)
        except UnicodeDecodeError as error:
            raise MalformedLineError(f"not UTF-8: {error}") from error
        except (ValueError, RecursionError) as error:
            raise MalformedLineError(f"not JSON: {error}") from error
        if end != len(text):
            raise MalformedLineError(f"not JSON: extra text at column {end + 1}")
        if type(item) is not dict:
            raise MalformedLineError(f"expected a JSON object, not {_kind(item)}")
        try:
            key = self._bytes(item["key"], "key") if "key" in item else _of_base64(item, "key")
            value = (
                self._bytes(item["value"], "value")
                if "value" in item
                else _of_base64(item, "value", required=True)
            )
        except UnicodeEncodeError as error:
            raise MalformedLineError("key or value has a lone surrogate") from error
        if len(item) > 2 or not item.keys() <= _USUAL:
            _check_names(item)
        timestamp = item.get("timestamp")
        if timestamp is not None and (
            type(timestamp) is not int or not NO_TIMESTAMP <= timestamp <= INT64_MAX
        ):
            raise MalformedLineError(f"timestamp must be Unix ms or -1, not {_shown(timestamp)}")
        partition = item.get("partition")
        if partition is not None and (
            type(partition) is not int or not 0 <= partition <= INT32_MAX
        ):
            raise MalformedLineError(f"partition must be a number, not {_shown(partition)}")
        listed = item.get("headers")
        headers = _headers(listed) if listed else _no_headers(listed)
        return NewRecord(key, value, timestamp, headers), partition

    def _bytes(self, value: object, name: str) -> bytes | None:
        if type(value) is str:
            return value.encode()
        if value is None:
            return None
        if self._json_values:
            return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
        raise MalformedLineError(
            f"{name} must be a string or null, not {_kind(value)}; --json-values stores JSON text"
        )


def _check_names(item: dict[str, Any]) -> None:
    unknown = item.keys() - _KNOWN - _IGNORED
    if unknown:
        raise MalformedLineError(f"unknown name {sorted(unknown)[0]!r}")
    for name in ("key", "value"):
        if name in item and f"{name}_base64" in item:
            raise MalformedLineError(f"both {name} and {name}_base64")


def _of_base64(item: dict[str, Any], name: str, *, required: bool = False) -> bytes | None:
    text = item.get(f"{name}_base64")
    if text is not None:
        return _decode_base64(text, f"{name}_base64")
    if required:
        raise MalformedLineError(f"{name} is missing (null is a tombstone)")
    return None


def _decode_base64(text: object, name: str) -> bytes:
    if type(text) is not str:
        raise MalformedLineError(f"{name} must be a string, not {_kind(text)}")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise MalformedLineError(f"{name} is not base64: {error}") from error


def _no_headers(listed: object) -> tuple[Header, ...]:
    if listed is not None and listed != []:
        raise MalformedLineError(f"headers must be a list, not {_kind(listed)}")
    return ()


def _headers(listed: object) -> tuple[Header, ...]:
    if type(listed) is not list:
        raise MalformedLineError(f"headers must be a list, not {_kind(listed)}")
    headers = []
    for item in listed:
        if type(item) is not list or len(item) != 2:
            raise MalformedLineError("a header must be [name, value]")
        name, value = _header_bytes(item[0], "name"), _header_bytes(item[1], "value")
        if name is None:
            raise MalformedLineError("a header's name must not be null")
        headers.append((name.decode("utf-8", "surrogateescape"), value))
    return tuple(headers)


def _header_bytes(value: object, what: str) -> bytes | None:
    if value is None:
        return None
    if type(value) is str:
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise MalformedLineError(f"a header's {what} has a lone surrogate") from error
    if type(value) is dict and value.keys() == {"base64"}:
        return _decode_base64(value["base64"], f"a header's {what}")
    raise MalformedLineError(f'a header\'s {what} must be a string or {{"base64": …}}')


def _kind(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    return {"int": "a number", "float": "a number", "str": "a string", "list": "a list"}.get(
        type(value).__name__, "an object"
    )


def _shown(value: object) -> str:
    return str(value) if isinstance(value, int | float) else _kind(value)
