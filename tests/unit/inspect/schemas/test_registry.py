"""Schemas in the log of a Schema Registry: `_schemas`, which may be damaged or hostile."""

from __future__ import annotations

import io
import json
import shutil

import fastavro
import pytest

from logstore import Broker, VirtualClock
from logstore.errors import InvalidConfigurationError, InvalidRecordError
from logstore.inspect.schemas import registry
from logstore.inspect.schemas.kinds import AvroSchema
from logstore.inspect.schemas.registry import read_registry, registry_folder

MONEY = {"type": "record", "name": "Money", "fields": [{"name": "amount", "type": "long"}]}
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "article", "type": "string"}, {"name": "price", "type": "Money"}],
}
BASE = 'syntax = "proto3"; package base; message Money { double amount = 1; }'
PROTO = """syntax = "proto3"; import "base.proto"; import "google/protobuf/timestamp.proto";
message Order { string article = 1; base.Money price = 2; google.protobuf.Timestamp at = 3; }"""


def entry(subject, schema_id, schema, *, version=1, kind=None, references=()):
    key = {"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1}
    value = {"subject": subject, "version": version, "id": schema_id, "schema": schema}
    if kind is not None:
        value["schemaType"] = kind
    if references:
        value["references"] = [
            {"name": name, "subject": other, "version": 1} for name, other in references
        ]
    return json.dumps(key).encode(), json.dumps(value).encode()


NOOP = (b'{"keytype":"NOOP","magic":0}', None)
CONFIG = (b'{"keytype":"CONFIG","subject":null,"magic":0}', b'{"compatibilityLevel":"FULL"}')


@pytest.fixture
def made(tmp_path):
    """Return a function that writes records to a registry's log and reads its schemas."""

    def made(*records):
        with Broker(tmp_path / "logs", clock=VirtualClock()) as broker:
            if not broker.topics():
                broker.create_topic("_schemas", configs={"cleanup.policy": "compact"})
            for key, value in records:
                broker.append("_schemas", key=key, value=value)
        return read_registry(registry_folder(tmp_path / "logs"))

    return made


def packed(*values):
    stream = io.BytesIO()
    named = {}
    for schema in (MONEY, ORDER):
        parsed = fastavro.parse_schema(schema, named)
    fastavro.schemaless_writer(stream, parsed, *values)
    return stream.getvalue()


def test_each_kind_of_schema_decodes_with_its_references(made):
    schemas = made(
        NOOP,
        CONFIG,
        entry("money", 1, json.dumps(MONEY)),
        entry("orders-value", 2, json.dumps(ORDER), references=[("Money", "money")]),
        entry("base.proto", 3, BASE, kind="PROTOBUF"),
        entry("p-value", 4, PROTO, kind="PROTOBUF", references=[("base.proto", "base.proto")]),
        entry("j-value", 5, '{"type": "object"}', kind="JSON"),
    )
    assert sorted(schemas) == [1, 2, 3, 4, 5]
    order = {"article": "tea", "price": {"amount": 3}}
    assert schemas[2].decode(packed(order)) == order
    assert schemas[4].decode(b"\0\x0a\x03tea") == {"article": "tea"}
    assert schemas[5].decode(b'{"a": 1}') == {"a": 1}


def test_a_deleted_schema_decodes_old_values_and_the_last_text_of_an_id_wins(made):
    key, value = entry("money", 1, json.dumps(MONEY))
    text = '{"type": "record", "name": "M", "fields": []}'
    schemas = made((key, value), (key, None), entry("m", 2, "nonsense"), entry("m", 2, text))
    assert schemas[1].decode(b"\x02") == {"amount": 1}
    assert schemas[2].decode(b"") == {}


def test_folders(made, tmp_path):
    made(entry("money", 1, '"long"'))
    folder = tmp_path / "logs" / "_schemas-0"
    assert registry_folder(folder) == folder
    shutil.copytree(folder, tmp_path / "renamed")
    assert read_registry(registry_folder(tmp_path / "renamed"))[1].decode(b"\x02") == 1
    assert registry_folder(tmp_path) is None
    assert registry_folder(tmp_path / "nowhere") is None


@pytest.mark.parametrize(
    "record",
    (
        (b"", b""),
        (b"\xff", b"\xff"),
        (b"[" * 9000, b"{}"),
        (b"null", b"null"),
        (b'{"keytype":"SCHEMA"}', b"[]"),
        (b'{"keytype":"SCHEMA","subject":[],"version":{}}', b'{"id": 1, "schema": "x"}'),
        (b'{"keytype":"SCHEMA","subject":"a","version":1}', b'{"id": true, "schema": "x"}'),
        (b'{"keytype":"SCHEMA","subject":"a","version":1}', b'{"id": 99999999999, "schema": "x"}'),
        (b'{"keytype":"SCHEMA","subject":"a","version":1}', b'{"id": 7, "schema": 7}'),
    ),
)
def test_entries_that_no_registry_writes_are_passed_over(made, record):
    assert list(made(record, entry("money", 1, '"long"'))) == [1]


def test_damaged_batches_are_passed_over(made, tmp_path):
    made(entry("a", 1, '"long"'), entry("b", 2, '"long"'), entry("c", 3, '"long"'))
    path = next((tmp_path / "logs" / "_schemas-0").glob("*.log"))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    assert list(read_registry(path.parent)) == [1, 3]


def nested(depth):
    text = '"null"'
    for number in range(depth):
        text = f'{{"type":"record","name":"R{number}","fields":[{{"name":"f","type":{text}}}]}}'
    return text


def bomb(leaf, levels=40):
    """Records of ten fields of the record below: 10^40 values of a few hundred bytes."""
    types = [{"type": "record", "name": "R0", "fields": [{"name": "f", "type": leaf}]}]
    for level in range(1, levels):
        fields = [{"name": f"f{number}", "type": f"R{level - 1}"} for number in range(10)]
        types.append({"type": "record", "name": f"R{level}", "fields": fields})
    return json.dumps(types)


@pytest.mark.parametrize(
    ("text", "kind", "reason"),
    (
        ("nonsense", None, "not an Avro schema"),
        (nested(100), None, "nested"),
        (nested(3000), None, "not an Avro schema"),
        ("[" * 100_000, None, "not an Avro schema"),
        (bomb("null"), None, "too many values"),
        (bomb("int"), None, "too many values"),
        ('syntax = "proto3"; import "../../etc/passwd";', "PROTOBUF", "passwd"),
        ("message {", "PROTOBUF", "Expected message name"),
        ("x", "XML", "unknown kind 'XML'"),
    ),
)
def test_a_hostile_schema_fails_for_its_own_records_only(made, text, kind, reason):
    schemas = made(entry("bad", 1, text, kind=kind), entry("good", 2, '"long"'))
    for _ in range(2):
        with pytest.raises(InvalidRecordError, match="schema 1 is unusable") as refused:
            schemas[1].decode(b"\0\0")
        assert reason in str(refused.value)
    assert schemas[2].decode(b"\x02") == 1


@pytest.mark.parametrize("name", ("../up.proto", "/etc/x.proto", "a/../../b.proto", "a\nb", ""))
def test_names_of_references_stay_in_their_folder(made, name):
    schemas = made(
        entry("base", 1, BASE, kind="PROTOBUF"),
        entry("p", 2, PROTO, kind="PROTOBUF", references=[(name, "base")]),
    )
    with pytest.raises(InvalidRecordError, match="invalid name of a reference"):
        schemas[2].decode(b"\0")


def test_references_that_refer_to_each_other_or_to_nothing_end(made):
    schemas = made(
        entry("a", 1, json.dumps(MONEY), references=[("B", "b")]),
        entry("b", 2, '"long"', references=[("A", "a")]),
        entry("c", 3, '"long"', references=[("X", "x")]),
    )
    assert schemas[1].decode(b"\x02") == {"amount": 1}
    with pytest.raises(InvalidRecordError, match="x, version 1, which is not in the log"):
        schemas[3].decode(b"\x02")


def test_the_log_is_read_up_to_a_limit(made, monkeypatch):
    monkeypatch.setattr(registry, "SCHEMA_BYTES_MAX", 100)
    schemas = made(entry("a", 1, " " * 101 + '"long"'), entry("b", 2, '"long"'))
    with pytest.raises(InvalidRecordError, match="larger than 100 bytes"):
        schemas[1].decode(b"\x02")
    monkeypatch.setattr(registry, "TOTAL_BYTES_MAX", 5)
    with pytest.raises(InvalidConfigurationError, match="more than 5 bytes of schemas"):
        made()


@pytest.mark.parametrize(
    "references", (7, "money", {"name": "m"}, [7, None, {"name": 1, "subject": "m", "version": 1}])
)
def test_references_of_another_form_are_ignored(made, references):
    key, value = entry("money", 1, '"long"')
    changed = json.dumps(json.loads(value) | {"references": references}).encode()
    schema = made((key, changed))[1]
    assert schema.decode(b"\x0e") == 7


def test_bytes_of_a_fixed_count_against_its_empty_values():
    """A record with 200 nulls has too many values without bytes, unless it has bytes as well."""
    nulls = [{"name": f"n{number}", "type": "null"} for number in range(200)]

    def record(size):
        fixed = {"type": {"type": "fixed", "name": "F", "size": size}, "name": "f"}
        return json.dumps({"type": "record", "name": "R", "fields": [fixed, *nulls]})

    assert set(AvroSchema([record(40)]).decode(bytes(40))) == {"f", *(n["name"] for n in nulls)}
    with pytest.raises(InvalidConfigurationError, match="too many values"):
        AvroSchema([record(4)]).decode(bytes(4))


def test_a_large_but_honest_schema_is_accepted():
    fields = [{"name": f"f{number}", "type": ["null", "string"]} for number in range(2000)]
    inner = {"type": "record", "name": "Inner", "fields": fields}
    outer = {
        "type": "record",
        "name": "Outer",
        "fields": [{"name": "first", "type": inner}]
        + [{"name": f"i{number}", "type": "Inner"} for number in range(10)],
    }
    schema = AvroSchema([json.dumps(outer)])
    assert len(schema.decode(b"\0" * 22_000)) == 11
