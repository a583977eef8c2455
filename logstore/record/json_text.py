"""Records as JSON text. Bytes that are not UTF-8 are written as base64, under a different name."""

from __future__ import annotations

import base64
import json
from json.encoder import encode_basestring_ascii as _quote
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from logstore.record.records import Header


class RecordFields(Protocol):
    """A record, as stored or as returned by a consumer."""

    @property
    def offset(self) -> int: ...  # noqa: D102

    @property
    def timestamp(self) -> int: ...  # noqa: D102

    @property
    def key(self) -> bytes | None: ...  # noqa: D102

    @property
    def value(self) -> bytes | None: ...  # noqa: D102

    @property
    def headers(self) -> tuple[Header, ...]: ...  # noqa: D102


def header_json(header: Header) -> list[Any]:
    """Return `[name, value]`. Values that are not UTF-8 become `{"base64": …}`."""
    name, value = header
    return [text_or_base64(name.encode("utf-8", "surrogateescape")), text_or_base64(value)]


def record_json(
    topic: str | None,
    partition: int | None,
    timestamp_type: int,
    record: RecordFields,
    **extra: object,
) -> str:
    """Return a record as a single-line JSON object, with the members in `extra` at the end.

    The result equals `json.dumps` of the object, in a third of the time.
    """
    headers = (
        json.dumps([header_json(header) for header in record.headers]) if record.headers else "[]"
    )
    more = "".join(f", {_quote(name)}: {json.dumps(value)}" for name, value in extra.items())
    return (
        f'{{"topic": {_quote(topic) if topic is not None else "null"}, '
        f'"partition": {partition if partition is not None else "null"}, '
        f'"offset": {record.offset}, "timestamp": {record.timestamp}, '
        f'"timestamp_type": {timestamp_type:d}, '
        f"{bytes_member('key', record.key)}, {bytes_member('value', record.value)}, "
        f'"headers": {headers}{more}}}'
    )


def bytes_member(name: str, data: bytes | None) -> str:
    """Return the JSON member `"name": "text"` or, if not UTF-8, `"name_base64": "…"`."""
    if data is None:
        return f'"{name}": null'
    try:
        return f'"{name}": {_quote(data.decode())}'
    except UnicodeDecodeError:
        return f'"{name}_base64": "{to_base64(data)}"'


def bytes_item(name: str, data: bytes | None) -> dict[str, str | None]:
    """Return the member of `bytes_member` as a dictionary."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": to_base64(data)}


def text_or_base64(data: bytes | None) -> str | dict[str, str] | None:
    """Return bytes as a JSON value: a string, or `{"base64": …}` if they are not UTF-8."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": to_base64(data)}


def to_base64(data: bytes) -> str:
    """Return bytes as base64 text."""
    return base64.b64encode(data).decode("ascii")
