"""Keys and values by their formats; frames and schemas of Confluent's serializers."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from decimal import Decimal

import fastavro
import pytest
from google import protobuf
from hypothesis import given
from hypothesis import strategies as st

from logstore.errors import InvalidConfigurationError, InvalidRecordError
from logstore.inspect.schemas import kinds
from logstore.inspect.schemas.decoding import DataFormat, Decoder
from logstore.inspect.schemas.framing import message_indexes, unframe
from logstore.inspect.schemas.kinds import AvroSchema, JsonSchema, ProtobufSchema
from logstore.inspect.schemas.values import plain
from logstore.record.varint import encode_varint
from tests.support.world.messages import exactly

# The last words of protobuf's error, from version 6 on.
CORRUPT = "" if protobuf.__version__.startswith("5.") else ": Wire format was corrupt"

ADDRESS = {"type": "record", "name": "Address", "fields": [{"name": "city", "type": "string"}]}
USER = {
    "type": "record",
    "name": "User",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "raw", "type": "bytes"},
        {"name": "born", "type": {"type": "int", "logicalType": "date"}},
        {
            "name": "owed",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        },
        {"name": "home", "type": ["null", "Address"]},
        {"name": "score", "type": "double"},
    ],
}
PROTO = """syntax = "proto3";
import "base.proto";
import "google/protobuf/timestamp.proto";
package shop;
message First { string name = 1; }
message Order {
  int64 id = 1;
  base.Money price = 2;
  message Line { string article = 1; repeated int32 counts = 2; }
  message Empty { message Deep { bool yes = 1; } }
  google.protobuf.Timestamp at = 3;
}
"""
BASE = 'syntax = "proto3"; package base; message Money { double amount = 1; }'


def framed(schema_id: int, payload: bytes) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + payload


def avro(schema: object, value: object) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, schema, value)
    return stream.getvalue()


@pytest.fixture(scope="module")
def descriptors(tmp_path_factory) -> bytes:
    folder = tmp_path_factory.mktemp("proto")
    (folder / "shop.proto").write_text(PROTO)
    (folder / "base.proto").write_text(BASE)
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{folder}", "--include_imports"]
    output = folder / "shop.desc"
    subprocess.run([*command, f"--descriptor_set_out={output}", "shop.proto"], check=True)
    return output.read_bytes()


# -- frames --------------------------------------------------------------------------------


def test_frame_is_a_zero_and_the_number_of_the_schema():
    assert unframe(framed(258, b"abc")) == (258, b"abc")
    assert unframe(framed(2**32 - 1, b"")) == (2**32 - 1, b"")


@pytest.mark.parametrize(
    ("data", "message"),
    (
        (b"", ("too short (0 B) for Confluent's wire format, which needs a schema id")),
        (b"\0\0\0\0", ("too short (4 B) for Confluent's wire format, which needs a schema id")),
        (b"\1\0\0\0\1abc", ("starts with byte 1, not with the 0 of Confluent's wire format")),
        (b'{"a": 1}', ("starts with byte 123, not with the 0 of Confluent's wire format")),
    ),
)
def test_data_without_a_frame_is_rejected(data, message):
    with pytest.raises(InvalidRecordError, match=exactly(message)):
        unframe(data)


@given(st.lists(st.integers(0, 300), min_size=1, max_size=8), st.binary(max_size=8))
def test_message_indexes_are_a_count_and_zigzag_varints(indexes, rest):
    written = encode_varint(len(indexes)) + b"".join(map(encode_varint, indexes)) + rest
    assert message_indexes(written) == (tuple(indexes), rest)


def test_a_single_zero_means_the_first_message():
    assert message_indexes(b"\0rest") == ((0,), b"rest")


@pytest.mark.parametrize("payload", (b"", b"\x04\x02", b"\x01", b"\xff" * 6, encode_varint(65)))
def test_broken_message_indexes_are_refused(payload):
    with pytest.raises(InvalidRecordError):
        message_indexes(payload)


# -- schemas -------------------------------------------------------------------------------


def test_avro_with_a_named_type_of_another_file_and_logical_types():
    schema = AvroSchema([json.dumps(ADDRESS), json.dumps(USER)])
    parsed = fastavro.parse_schema(USER, {"Address": fastavro.parse_schema(ADDRESS)})
    value = {
        "id": 2**53 + 1,
        "raw": b"\xff",
        "born": 10,
        "owed": Decimal("12.34"),
        "home": {"city": "Ulm"},
        "score": float("nan"),
    }
    assert schema.decode(avro(parsed, value)) == {
        "id": 2**53 + 1,
        "raw": {"base64": "/w=="},
        "born": "1970-01-11",
        "owed": "12.34",
        "home": {"city": "Ulm"},
        "score": "NaN",
    }


def test_avro_that_is_cut_off_or_continues_is_refused():
    schema = AvroSchema([json.dumps(ADDRESS)])
    written = avro(ADDRESS, {"city": "Ulm"})
    for wrong in (written[:-1], written + b"\0", b"\x80" * 20):
        with pytest.raises(InvalidRecordError, match="Avro schema"):
            schema.decode(wrong)


NODE = {
    "type": "record",
    "name": "Node",
    "fields": [
        {"name": "name", "type": "string"},
        {"name": "next", "type": ["null", "Node"]},
        {"name": "more", "type": {"type": "map", "values": {"type": "array", "items": "Node"}}},
    ],
}


@pytest.mark.parametrize(
    "wrap",
    (
        lambda decimal: decimal,
        lambda decimal: ["null", decimal],
        lambda decimal: {"type": "array", "items": {"type": "map", "values": decimal}},
    ),
)
def test_the_length_of_an_avro_decimal_is_bounded(wrap):
    """Python takes minutes for a decimal of a megabyte."""
    kind = wrap({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2})
    spec = {"type": "record", "name": "R", "fields": [{"name": "d", "type": kind}]}
    schema = AvroSchema([json.dumps(spec)])
    raw = {**spec, "fields": [{"name": "d", "type": wrap("bytes")}]}

    def decode(size):
        data = b"\x7f" * size
        value = [{"x": data}] if "array" in str(kind) else data
        return schema.decode(avro(raw, {"d": value}))

    decode(1024)
    with pytest.raises(InvalidRecordError, match="Avro decimal of 1025 bytes"):
        decode(1025)


def test_avro_of_a_recursive_type_is_decoded_up_to_a_depth():
    """fastavro crashes the process with data that nests too deeply."""
    schema = AvroSchema([json.dumps(NODE)])
    leaf = {"name": "b", "next": None, "more": {}}
    tree = {"name": "a", "next": leaf, "more": {"x": [leaf, leaf], "y": []}}
    assert schema.decode(avro(fastavro.parse_schema(NODE), tree)) == tree
    with pytest.raises(InvalidRecordError, match="more than 100 levels deep"):
        schema.decode(b"\x02a\x02" * 1_000_000)
    with pytest.raises(InvalidRecordError, match="invalid index 5"):
        schema.decode(b"\x02a\x0a")
    for cut in range(1, 12):
        with pytest.raises(InvalidRecordError):
            schema.decode(avro(fastavro.parse_schema(NODE), tree)[:-cut])


@pytest.mark.parametrize("items", ("null", {"type": "record", "name": "No", "fields": []}))
def test_avro_items_without_bytes_are_limited(items):
    """A count of some bytes could take all memory otherwise."""
    schema = AvroSchema([json.dumps({"type": "array", "items": items})])
    empty = None if items == "null" else {}
    assert schema.decode(b"\x06\0") == [empty] * 3
    assert schema.decode(b"\x05\0\0") == [empty] * 3  # a block with its size
    with pytest.raises(InvalidRecordError, match="more than 100000 items"):
        schema.decode(b"\x80\x80\x80\x80\x80\x40" + b"\0")


def test_protobuf_finds_the_message_by_its_indexes(descriptors):
    schema = ProtobufSchema(descriptors)
    order = b"\x08\x07" + b"\x12\x09\x09" + b"\0\0\0\0\0\0\xf8\x3f" + b"\x1a\x02\x08\x05"
    assert schema.decode(b"\x02\x02" + order) == {
        "id": "7",
        "price": {"amount": 1.5},
        "at": "1970-01-01T00:00:05Z",
    }
    assert schema.decode(b"\0\x0a\x03ann") == {"name": "ann"}
    assert schema.decode(b"\x04\x02\x00\x0a\x01x\x12\x02\x01\x02") == {
        "article": "x",
        "counts": [1, 2],
    }
    assert schema.decode(b"\x06\x02\x02\x00\x08\x01") == {"yes": True}


@pytest.mark.parametrize(
    ("payload", "message"),
    (
        (b"\x02\x06", "its Protobuf schema has no message at 3"),
        (b"\x04\x00\x00", "its Protobuf schema has no message at 0.0"),
        (b"\x02\x01", "its Protobuf schema has no message at -1"),
        (
            b"\0\x0a\x09a",
            (
                "does not match its Protobuf schema: Error parsing message with type "
                f"'shop.First'{CORRUPT}"
            ),
        ),
    ),
)
def test_protobuf_that_does_not_fit_is_refused(descriptors, payload, message):
    with pytest.raises(InvalidRecordError, match=exactly(message)):
        ProtobufSchema(descriptors).decode(payload)


DRAFT = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
SETS = {"type": "array", "uniqueItems": True}


@pytest.mark.parametrize(
    "schemas",
    (
        [SETS],
        [DRAFT | SETS],
        [DRAFT | {"$id": "http://example.test/set"} | SETS, DRAFT | {"$ref": "/set"}],
    ),
)
def test_unique_items_are_checked_in_linear_time(monkeypatch, schemas):
    """The library would take hours for a megabyte of objects."""
    monkeypatch.setattr("jsonschema._keywords.uniq", None)
    schemas[-1]["$id"] = schemas[-1].get("$id", "http://example.test/")
    schema = JsonSchema([json.dumps(each) for each in schemas])
    unique = [{"a": [number]} for number in range(2000)]
    unique += [1, True, 0, False, None, "1", "", "null", 1.5, [], {}, [1], [True], [[]], {"a": 1}]
    assert schema.decode(json.dumps(unique).encode()) == unique
    assert JsonSchema(['{"uniqueItems": false}']).decode(b"[1, 1]") == [1, 1]
    assert schema.decode(b"[0, 0.5]") == [0, 0.5]
    for twice in (b"[1, 1.0]", b"[0, -0.0]", b'[{"a": 1, "b": [2]}, {"b": [2.0], "a": 1}]'):
        with pytest.raises(InvalidRecordError, match=r"\$: the items are not unique"):
            schema.decode(twice)


def test_json_schema_holds_values_against_it_and_fetches_nothing():
    positive = {"$id": "http://example.test/positive", "type": "integer", "minimum": 1}
    user = {"type": "object", "properties": {"age": {"$ref": positive["$id"]}}}
    schema = JsonSchema([json.dumps(positive), json.dumps(user)])
    assert schema.decode(b'{"age": 3}') == {"age": 3}
    with pytest.raises(InvalidRecordError, match=r"\$\.age: 0 is less than the minimum"):
        schema.decode(b'{"age": 0}')
    with pytest.raises(
        InvalidRecordError,
        match=exactly(
            "not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"
        ),
    ):
        schema.decode(b"{")
    with pytest.raises(
        InvalidRecordError,
        match=exactly("its JSON Schema is unusable: Unresolvable: http://example.test/positive"),
    ):
        JsonSchema([json.dumps(user)]).decode(b'{"age": 3}')


@pytest.mark.parametrize(
    ("make", "wrong", "message"),
    (
        (
            AvroSchema,
            ["{"],
            (
                "not an Avro schema: Expecting property name enclosed in double quotes: "
                "line 1 column 2 (char 1)"
            ),
        ),
        (
            AvroSchema,
            ['{"type": "record"}'],
            (
                'not an Avro schema: "name" is a required field missing from the schema: '
                "{'type': 'record'}"
            ),
        ),
        (AvroSchema, ['"Unknown"'], "not an Avro schema: Unknown"),
        (
            JsonSchema,
            ["{"],
            (
                "not a JSON Schema: Expecting property name enclosed in double quotes: "
                "line 1 column 2 (char 1)"
            ),
        ),
        (
            JsonSchema,
            ['{"type": 3}'],
            ("not a JSON Schema: 3 is not valid under any of the given schemas"),
        ),
        (
            ProtobufSchema,
            b"\xff\xff",
            (
                "not a Protobuf descriptor set: Error parsing message with type "
                f"'google.protobuf.FileDescriptorSet'{CORRUPT}"
            ),
        ),
        (ProtobufSchema, b"", "not a Protobuf descriptor set: list index out of range"),
    ),
)
def test_invalid_schemas_are_refused(make, wrong, message):
    with pytest.raises(InvalidConfigurationError, match=exactly(message)):
        make(wrong)


@pytest.mark.parametrize("name", ("fastavro", "google.protobuf.descriptor_pb2", "jsonschema"))
def test_a_missing_library_is_named_with_its_remedy(monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, None)
    package = "protobuf" if "." in name else name
    with pytest.raises(
        InvalidConfigurationError, match=rf"needs {package}: .*kafka-logstore\[schemas\]"
    ):
        kinds.library(name, "a schema")


# -- records -------------------------------------------------------------------------------


def test_json_that_could_not_be_encoded_again_is_refused():
    schema = JsonSchema(["{}"])
    assert schema.decode(b"[" * 500 + b"]" * 500)
    assert schema.decode(b"[1e9, %s]" % b",".join([b"{}"] * 1000))[0] == 1e9
    for deep in (b"[" * 501 + b"]" * 501, b'{"a":' * 501 + b"1" + b"}" * 501):
        with pytest.raises(InvalidRecordError, match="more than 500 levels deep"):
            schema.decode(deep)
    for large in (b"1e999", b'{"a": [-1e400]}'):
        with pytest.raises(InvalidRecordError, match="is too large"):
            schema.decode(large)


def test_a_decoder_takes_each_by_its_format():
    schema = AvroSchema([json.dumps(ADDRESS)])
    decoder = Decoder(DataFormat.TEXT, DataFormat.CONFLUENT, {7: schema})
    value = framed(7, avro(ADDRESS, {"city": "Ulm"}))
    assert decoder.decode(b"k", value) == {"key": "k", "value": {"city": "Ulm"}}
    assert decoder.decode(None, None) == {"key": None, "value": None}


def test_an_undecodable_record_shows_its_error_and_does_not_hide_others():
    decoder = Decoder(DataFormat.JSON, DataFormat.CONFLUENT)
    found = decoder.decode(b"[1]", framed(9, b""))
    assert found["key"] == [1]
    assert found["error"] == "value: schema 9 is unknown (add --schema 9=FILE)"
    both = decoder.decode(b"[NaN]", b"x")["error"]
    assert "key: not JSON" in both
    assert "; value: too short (1 B)" in both
    assert Decoder(DataFormat.TEXT, DataFormat.BYTES).decode(b"\xff", b"\xff") == {
        "key": None,
        "value": None,
        "error": "key: not UTF-8: invalid start byte",
    }


@given(st.binary(max_size=60))
def test_no_bytes_make_it_fail(data):
    schemas = {0: AvroSchema([json.dumps(USER | {"name": "U"}).replace('"Address"', '"long"')])}
    decoder = Decoder(DataFormat.JSON, DataFormat.CONFLUENT, schemas)
    found = decoder.decode(data, framed(0, data))
    json.dumps(found, allow_nan=False)


def test_plain_values_are_what_json_has():
    assert plain({"a": (1, float("inf"), -float("inf"), b"x")}) == {
        "a": [1, "Infinity", "-Infinity", {"base64": "eA=="}]
    }


@pytest.mark.parametrize(("draft", "is_positional"), ((None, True), ("2020-12", False)))
def test_a_json_schema_without_a_draft_is_of_draft_7(draft, is_positional):
    """In it, a list of `items` is for the items in order; later drafts refuse the list."""
    spec = {"items": [{"type": "string"}]}
    if draft is not None:
        spec["$schema"] = f"https://json-schema.org/draft/{draft}/schema"
    if not is_positional:
        with pytest.raises(InvalidConfigurationError, match=r"^not a JSON Schema: "):
            JsonSchema([json.dumps(spec)])
        return
    schema = JsonSchema([json.dumps(spec)])
    assert schema.decode(b'["a", 1]') == ["a", 1]
    with pytest.raises(InvalidRecordError):
        schema.decode(b"[1]")
