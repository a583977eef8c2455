"""Fuzz targets over schemas: the log of a Schema Registry, hostile schemas, and their payloads.

Size limits are lowered, so that small inputs exceed them. Depth limits are the real ones.
"""

from __future__ import annotations

import json
import struct
import tempfile
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from unittest.mock import patch

from logstore.errors import InvalidConfigurationError, InvalidRecordError
from logstore.inspect.schemas import registry
from logstore.inspect.schemas.avro_bounds import ITEMS_MAX
from logstore.inspect.schemas.decoding import DataFormat, Decoder
from logstore.inspect.schemas.files import compile_protobuf
from logstore.inspect.schemas.kinds import AvroSchema, JsonSchema, ProtobufSchema, Schema
from logstore.inspect.schemas.values import DEPTH_MAX
from logstore.record.batch import build_batch
from logstore.record.records import Record
from tests.fuzz.contract import OK, OUTCOMES, Target, check
from tests.support.world.builders import log_name

LIMITS = {"SCHEMA_BYTES_MAX": 700, "TOTAL_BYTES_MAX": 3000, "REFERENCES_MAX": 3}

PROTO = 'syntax = "proto3"; message Order { string article = 1; Order next = 2; double x = 3; }'
MONEY = {"type": "record", "name": "Money", "fields": [{"name": "amount", "type": "long"}]}
TREE = {
    "type": "record",
    "name": "Tree",
    "fields": [
        {"name": "nodes", "type": {"type": "array", "items": "Tree"}},
        {"name": "of", "type": ["null", "string", {"type": "map", "values": "Tree"}]},
    ],
}
AVRO: tuple[tuple[object, bytes], ...] = (
    ("long", b"\x02"),
    (MONEY, b"\x02"),
    (TREE, b"\x02\x00\x00\x00\x02\x06tea"),
    ({"type": "array", "items": "null"}, b"\x06\x00"),
    ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, b"\x04\x01\x02"),
    ([{"type": "enum", "name": "E", "symbols": ["A", "B"]}, "double"], b"\x00\x02"),
    ({"type": "fixed", "name": "F", "size": 4}, b"abcd"),
    ({"type": "long", "logicalType": "timestamp-millis"}, b"\x80\x02"),
)
JSON: tuple[tuple[object, bytes], ...] = (
    ({"type": "object", "properties": {"a": {"type": "integer"}}}, b'{"a": 1}'),
    ({"type": "array", "uniqueItems": True}, b"[1, 1.5, true]"),
    ({"$ref": "#/definitions/t", "definitions": {"t": {"items": {"$ref": "#"}}}}, b"[[[]]]"),
)


@cache
def folder() -> Path:
    """A folder for the log of the registry."""
    found = Path(tempfile.mkdtemp(prefix="registry-")) / "_schemas-0"
    found.mkdir()
    return found


@cache
def descriptors() -> bytes:
    """The compiled schema."""
    path = folder().parent / "schema.proto"
    path.write_text(PROTO)
    return compile_protobuf([str(path)])


def _compiled(paths: Sequence[str], *, seconds: float) -> bytes:
    """Stand in for protoc, which is another process: check its files, whatever is in them."""
    path = Path(paths[-1])
    check(path.name == "schema.proto", f"{path} is not the schema")
    for file in path.parent.rglob("*"):
        check(file.resolve().is_relative_to(path.parent.resolve()), f"{file} is elsewhere")
    check(seconds == registry.COMPILE_SECONDS, "no time limit")
    return descriptors()


def _decoded(schema: Schema, payload: bytes) -> str:
    """Decode a payload: a JSON value of bounded size and depth, or a documented error."""
    try:
        value = schema.decode(payload)
    except InvalidRecordError:
        return OUTCOMES[InvalidRecordError]
    json.dumps(value, allow_nan=False)
    depth, level, values = 0, [value], 0
    while level:
        depth, values = depth + 1, values + len(level)
        level = [inside for each in level for inside in _inside(each)]
    check(depth <= DEPTH_MAX + 2, f"a value of depth {depth}")
    check(values <= 1000 + 8 * (len(payload) + ITEMS_MAX), f"{values} values")
    return OK


def _inside(value: object) -> Iterator[object]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list):
        yield from value


PAYLOADS = (b"", b"\0", b"\0\x02", b"\x02\x06tea", b'{"a": [1]}', b"\0\x0a\x03tea", b"\x04" * 300)


def _read(log: bytes) -> str:
    """Read a log as a registry's, and decode values by all of its schemas."""
    (folder() / log_name(0)).write_bytes(log)
    with (
        patch.multiple(registry, **LIMITS),
        patch.object(registry, "compile_protobuf", _compiled),
    ):
        try:
            found = registry.read_registry(folder())
        except InvalidConfigurationError:
            return OUTCOMES[InvalidConfigurationError]
        decoder = Decoder(DataFormat.BYTES, DataFormat.CONFLUENT, found)
        for schema_id, schema in found.items():
            check(type(schema_id) is int, f"{schema_id!r} is not an id")
            outcomes = {payload: _decoded(schema, payload) for payload in PAYLOADS}
            for payload, outcome in outcomes.items():
                framed = struct.pack(">BI", 0, schema_id) + payload
                decoded = decoder.decode(None, framed)
                check(("error" in decoded) is (outcome != OK), f"schema {schema_id}: {decoded}")
    return OK


def registry_log(data: bytes) -> str:
    """The log of a registry, in any state: damaged batches are passed over."""
    return _read(data)


def registry_entries(data: bytes) -> str:
    """Lines, in turn the keys and values of a sound log of a registry."""
    lines = data.split(b"\n")
    keyed = zip(lines[::2], lines[1::2], strict=False)
    records = [Record(number, 0, key, value) for number, (key, value) in enumerate(keyed)]
    return _read(build_batch(records) if records else b"")


def schema(data: bytes) -> str:
    """A schema and a payload, behind the kind and the size of the schema.

    JSON Schemas are files of the user, so only the data is hostile.
    """
    kind, size = (data or b"\0")[0] % 3, int.from_bytes(data[1:3])
    text, payload = data[3 : 3 + size], data[3 + size :]
    found: Schema
    try:
        match kind:
            case 0:
                found = AvroSchema([text.decode(errors="replace")])
            case 1:
                found = ProtobufSchema(text)
            case _:
                found = _json_schema(size % len(JSON))
    except InvalidConfigurationError:
        return OUTCOMES[InvalidConfigurationError]
    return _decoded(found, payload)


@cache
def _json_schema(number: int) -> Schema:
    return JsonSchema([json.dumps(JSON[number][0])])


# -- sound inputs --------------------------------------------------------------------------------


@cache
def entries() -> list[bytes]:
    """Lines of registries: every kind of schema, references, deleted and unrelated entries."""

    def entry(number: int, text: str, kind: str, *references: tuple[str, str]) -> list[bytes]:
        names = {"subject": f"s{number}", "version": 1}
        value = {**names, "id": number, "schema": text, "schemaType": kind} | {
            "references": [
                {"name": name, "subject": subject, "version": 1} for name, subject in references
            ]
        }
        key = {"keytype": "SCHEMA", **names, "magic": 1}
        return [json.dumps(each).encode() for each in (key, value)]

    known = [
        entry(number, json.dumps(each), "AVRO") for number, (each, _) in enumerate(AVRO, start=1)
    ]
    order = {"type": "record", "name": "O", "fields": [{"name": "price", "type": "Money"}]}
    referring = entry(20, json.dumps(order), "AVRO", ("Money", "s2"))
    circular = [
        *entry(21, '"long"', "AVRO", ("b", "s22")),
        *entry(22, '"int"', "AVRO", ("a", "s21")),
    ]
    proto = [
        *entry(30, PROTO, "PROTOBUF"),
        *entry(31, PROTO, "PROTOBUF", ("a/b.proto", "s30"), ("c.proto", "s30")),
    ]
    others = [b'{"keytype":"NOOP","magic":0}', b"{}", *entry(40, '{"type": "object"}', "JSON")]
    stories = [*known, [*known[1], *referring], circular, proto, others, [*known[0], *known[2]]]
    return [b"\n".join(each) for each in stories]


@cache
def logs() -> list[bytes]:
    """Logs of registries, of one and of several batches."""
    found = []
    for lines in entries():
        parts = lines.split(b"\n")
        records = [
            Record(number, 0, key, value)
            for number, (key, value) in enumerate(zip(parts[::2], parts[1::2], strict=True))
        ]
        found.append(build_batch(records))
        found.append(b"".join(build_batch([each]) for each in records))
    return found


@cache
def schemas() -> list[bytes]:
    """Schemas with their payloads."""
    texts = [(0, json.dumps(each).encode(), payload) for each, payload in AVRO]
    texts += [(1, descriptors(), b"\0\x0a\x03tea\x12\x05\x0a\x03tea")]
    found = [bytes([kind]) + len(text).to_bytes(2) + text + data for kind, text, data in texts]
    return found + [
        b"\2" + size.to_bytes(2) + bytes(size) + data for size, (_, data) in enumerate(JSON)
    ]


TARGETS = {
    "registry_log": Target(registry_log, "batches", logs, 4),
    "registry_entries": Target(registry_entries, "text", entries, 6),
    "schema": Target(schema, "schema", schemas, 10),
}
