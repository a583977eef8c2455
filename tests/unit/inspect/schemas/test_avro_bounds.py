"""Limits for decoding Avro, called directly: which schemas are checked, and both sides of each."""

import pytest

from logstore.errors import InvalidRecordError
from logstore.inspect.schemas.avro_bounds import (
    DECIMAL_BYTES_MAX,
    DEPTH_MAX,
    ITEMS_MAX,
    bounds_check,
    check_schema,
)
from logstore.record.varint import encode_varint
from tests.support.world.messages import exactly

DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 4}
EMPTY = {"type": "fixed", "name": "Empty", "size": 0}
NULLS = {"type": "array", "items": "null"}


def record(*kinds, name="R"):
    fields = [{"name": f"f{at}", "type": kind} for at, kind in enumerate(kinds)]
    return {"type": "record", "name": name, "fields": fields}


def check_of(schema, **named):
    return bounds_check(schema, named)


def refusal(schema, payload, **named):
    """Return the error of a payload, or None."""
    check = bounds_check(schema, named)
    assert check is not None
    try:
        check(payload)
    except InvalidRecordError as error:
        return str(error)
    return None


@pytest.mark.parametrize(
    ("schema", "is_checked"),
    (
        ("string", False),
        ({"type": "string"}, False),
        (record("int", "null"), False),
        ({"type": "array", "items": "int"}, False),
        ({"type": "map", "values": "null"}, False),  # its keys have bytes
        ({"type": "array", "items": ["null"]}, False),
        (NULLS, True),
        ({"type": "array", "items": EMPTY}, True),
        ({"type": "array", "items": {**EMPTY, "size": 1}}, False),
        ({"type": "array", "items": record()}, True),
        ({"type": "array", "items": record("null", EMPTY)}, True),
        ({"type": "array", "items": record("null", "int")}, False),
        ({"type": "map", "values": NULLS}, True),
        (record("int", {"type": {"type": "array", "items": NULLS}}), True),
        (["int", record("int", NULLS)], True),
        ({"type": "error", "name": "E", "fields": [{"name": "f", "type": NULLS}]}, True),
        (DECIMAL, True),
        ({"type": "bytes", "logicalType": "other"}, False),
        ({**DECIMAL, "type": "fixed", "name": "F", "size": 4}, False),
        (record("int", DECIMAL), True),
        (["null", DECIMAL], True),
        (record("int", {"type": DECIMAL}), True),
        ({"type": "array", "items": DECIMAL}, True),
        ({"type": "map", "values": DECIMAL}, True),
    ),
)
def test_values_that_their_size_does_not_bound_are_checked(schema, is_checked):
    assert (check_of(schema) is not None) == is_checked


def test_a_named_type_is_recursive_only_inside_itself():
    leaf = record("int", name="Leaf")
    assert check_of(record("Leaf", "Leaf"), Leaf=leaf) is None
    node = record("int", ["null", "Node"], name="Node")
    assert check_of(node, Node=node) is not None
    assert check_of(record("int", {"type": "array", "items": "Node"}), Node=node) is not None


def test_a_decimal_has_a_kilobyte_at_most():
    prefix = encode_varint(DECIMAL_BYTES_MAX)
    assert refusal(DECIMAL, prefix + bytes(DECIMAL_BYTES_MAX)) is None
    size = DECIMAL_BYTES_MAX + 1
    assert refusal(DECIMAL, encode_varint(size) + bytes(size)) == "Avro decimal of 1025 bytes"
    # Short payloads cannot have one, and are left to the decoder; other bytes may be longer.
    assert refusal(DECIMAL, encode_varint(size) + bytes(DECIMAL_BYTES_MAX - 2)) is None
    both = record("bytes", DECIMAL)
    assert refusal(both, encode_varint(size) + bytes(size) + encode_varint(2) + b"ab") is None
    assert refusal(both, encode_varint(size) + bytes(size) + encode_varint(size)) == (
        "Avro decimal of 1025 bytes"
    )


def test_records_and_items_nest_to_a_depth():
    node = record(["null", "Node"], name="Node")

    def nested(levels):
        return encode_varint(1) * (levels - 1) + encode_varint(0)

    message = f"Avro data is nested more than {DEPTH_MAX} levels deep"
    # Each record is one level, and its field another.
    assert refusal(node, nested(DEPTH_MAX), Node=node) is None
    assert refusal(node, nested(DEPTH_MAX + 1), Node=node) == message
    tree = {"type": "array", "items": "Tree"}
    for kind, key in (("array", b""), ("map", encode_varint(0))):
        tree = {"type": kind, "items": "Tree", "values": "Tree"}
        inner = encode_varint(0)
        for levels in range(1, DEPTH_MAX + 2):
            inner = encode_varint(1) + key + inner + encode_varint(0)
            found = refusal({**tree, "items": tree, "values": tree}, inner, Tree=tree)
            assert found == (message if levels > DEPTH_MAX else None)


def test_items_are_counted_over_all_blocks_and_arrays():
    def blocks(*counts):
        parts = [
            encode_varint(count) + (encode_varint(0) if count < 0 else b"") for count in counts
        ]
        return b"".join(parts) + encode_varint(0)

    message = f"Avro data has more than {ITEMS_MAX} items"
    assert refusal(NULLS, blocks(ITEMS_MAX - 5, -3, 2)) is None
    assert refusal(NULLS, blocks(ITEMS_MAX - 5, -3, 3)) == message
    pair = record(NULLS, NULLS)
    assert refusal(pair, blocks(ITEMS_MAX - 1) + blocks(1)) is None
    assert refusal(pair, blocks(ITEMS_MAX - 1) + blocks(2)) == message


@pytest.mark.parametrize(
    ("kind", "size"),
    (
        ("boolean", 1),
        ("float", 4),
        ("double", 8),
        ("null", 0),
        ({"type": "fixed", "name": "F", "size": 5}, 5),
        ("bytes", 3),
        ("string", 3),
        ("int", 1),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, 1),
        ({"type": "map", "values": "int"}, 1),
    ),
)
def test_values_end_where_the_next_one_begins(kind, size):
    """A decimal that is too long after a value is found only if the value's size is known."""
    length = {"bytes": 3, "string": 3}.get(kind if isinstance(kind, str) else "")
    data = b"" if size == 0 else bytes(size) if length is None else encode_varint(3) + bytes(3)
    schema = record(kind, DECIMAL, NULLS)
    refused = refusal(schema, data + encode_varint(2000))
    assert refused == "Avro decimal of 2000 bytes"


@pytest.mark.parametrize(
    ("schema", "payload", "message"),
    (
        (record("double", NULLS), bytes(7), "Avro data ends before byte 8"),
        (record("bytes", NULLS), encode_varint(4) + b"abc", "Avro data ends before byte 5"),
        (record("bytes", NULLS), encode_varint(-1), "Avro data ends before byte 0"),
        (["null", NULLS], encode_varint(2), "invalid index 2 of an Avro union"),
        (["null", NULLS], encode_varint(-1), "invalid index -1 of an Avro union"),
    ),
)
def test_damaged_payloads_are_refused(schema, payload, message):
    assert refusal(schema, payload) == message


def test_a_schema_whose_values_are_large_without_data_is_refused():
    def nulls(count):
        return record(*["null"] * count)

    refused = exactly("its values consist of too many values")
    check_schema(nulls(63), {})
    with pytest.raises(ValueError, match=refused):
        check_schema(nulls(64), {})
    check_schema(record("double", *["null"] * 94), {})
    with pytest.raises(ValueError, match=refused):
        check_schema(record("double", *["null"] * 95), {})
    check_schema(record(*["null"] * 66, {"type": "fixed", "name": "F", "size": 1}), {})
    with pytest.raises(ValueError, match=refused):
        check_schema(record(*["null"] * 67, {"type": "fixed", "name": "F", "size": 1}), {})
    with pytest.raises(ValueError, match=refused):
        check_schema({"type": "array", "items": nulls(64)}, {})
    with pytest.raises(ValueError, match=refused):
        check_schema({"type": "map", "values": ["null", nulls(64)]}, {})
    check_schema(["null"] * 70, {})
    node = record("int", ["null", "Node"], name="Node")
    check_schema(node, {"Node": node})


@pytest.mark.parametrize("leaf", ("int", DECIMAL, {**EMPTY, "size": 1}))
def test_a_schema_that_is_too_large_with_its_names_written_out_is_refused(leaf):
    named = {"T0": record(*[leaf] * 10, name="T0")}
    for number in range(1, 5):
        named[f"T{number}"] = record(*[f"T{number - 1}"] * 10, name=f"T{number}")
    check_schema(named["T4"], named)  # 111,111 types and fields
    with pytest.raises(ValueError, match=exactly("its values consist of too many values")):
        check_schema(record("T4", "T4"), named)
