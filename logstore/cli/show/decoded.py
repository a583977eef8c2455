"""Decoded records of internal topics, for commands that list records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from logstore.cli.show.output import display_bytes, display_text
from logstore.inspect import records

if TYPE_CHECKING:
    from logstore.inspect.records import KeyAndValue

raw_option = click.option(
    "--raw", is_flag=True, help="Do not decode records of Kafka's internal topics."
)


def decoded_member(topic: str | None, record: KeyAndValue, *, raw: bool) -> dict[str, Any]:
    """Return a dict with the `decoded` field of a JSON record, or an empty one."""
    return {} if raw else records.decoded_member(topic, record)


def displayed(topic: str | None, record: KeyAndValue, *, raw: bool) -> tuple[str, str]:
    """Return the key and value for a table, decoded if possible."""
    found = decoded_member(topic, record, raw=raw).get("decoded", {"error": ""})
    if "error" in found:
        return display_bytes(record.key), display_bytes(record.value)
    from logstore.inspect.decoders import java_json

    key, value = found["key"], found["value"]
    return (
        display_bytes(record.key) if key is None else display_text(java_json(key)),
        display_bytes(record.value) if value is None else display_text(java_json(value)),
    )


def displayed_key(topic: str, key: bytes | None, *, raw: bool = False) -> str:
    """Return a key for a table. Keys of internal topics are decoded."""
    found = {} if raw else records.decoded_key_member(topic, key)
    if not found:
        return display_bytes(key)
    from logstore.inspect.decoders import java_json

    return display_text(java_json(found["decoded"]["key"]))
