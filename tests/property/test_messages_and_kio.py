"""This codec encodes the same bytes as kio, which is generated from the same definitions."""

import datetime
import io
import random
import uuid
from dataclasses import is_dataclass
from pkgutil import resolve_name
from types import EllipsisType

import pytest
from kio.schema.index import schema_name_map
from kio.serial import entity_reader, entity_writer

from logstore.messages import decode, encode_bytes, schema, types
from logstore.messages.compiler import classes
from logstore.types import encode_topic_id
from tests.support.world.random_messages import NUMBERS, random_message

MESSAGES = 6
"""Messages of each version."""

BY_NAME: dict[str, dict[int, str]] = {}
"""Message → version → where kio has it."""
for versions in schema_name_map.values():
    for number, kinds in versions.items():
        for place in kinds.values():
            BY_NAME.setdefault(place.partition(":")[2], {})[number] = place


def limits(each):
    """Return numbers that kio's types can hold: known error codes, times of Python."""
    low, high = NUMBERS[each.element]
    if each.name.endswith("ErrorCode"):
        return -1, 100
    if each.element == "int64":
        return 0 if any(word in each.name for word in ("Timestamp", "TimeMs")) else -(2**40), 2**40
    return low, high


def plain(value):
    """Return a value of kio's in our words."""
    if isinstance(value, uuid.UUID):
        return encode_topic_id(value.bytes)
    if isinstance(value, tuple):
        return [plain(each) for each in value]
    return value


def assert_same_values(ours, theirs, version):
    """Compare fields of the same name; kio calls some otherwise, and turns times into Python's."""
    for each in ours.schema.structs[ours.struct_name]:
        if version not in each.versions:
            continue
        name = each.attribute
        mine, other = getattr(ours, name), plain(getattr(theirs, name, ...))
        match other:
            case datetime.timedelta() | datetime.datetime() | EllipsisType():
                continue
            case [first, *_] if is_dataclass(first):
                for one, another in zip(mine, other, strict=True):
                    assert_same_values(one, another, version)
            case _ if is_dataclass(other):
                empty = classes(ours.schema.name)[each.element]()
                assert_same_values(mine or empty, other, version)
            case None:
                assert mine in (None, "A" * 22), name  # the zero id
            case _:
                assert mine == other, name


@pytest.mark.parametrize("name", BY_NAME)
def test_both_write_and_read_the_same_bytes(name):
    rng = random.Random(name)
    kind = getattr(types, name)
    for version, path in BY_NAME[name].items():
        assert version in schema(name).versions
        theirs = resolve_name(path)
        read, write = entity_reader(theirs), entity_writer(theirs)
        for _ in range(MESSAGES):
            message = random_message(rng, name, version, limits=limits)
            data = encode_bytes(message, version)
            seen, _ = read(memoryview(data), 0)
            assert_same_values(message, seen, version)
            buffer = io.BytesIO()
            write(buffer, seen)
            assert buffer.getvalue() == data
            assert encode_bytes(decode(kind, version, buffer.getvalue()), version) == data


def test_kio_has_many():
    assert sum(map(len, BY_NAME.values())) > 600
