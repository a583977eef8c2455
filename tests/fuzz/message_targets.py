"""Fuzz targets over Kafka's messages: decoders of every version, and records of its own topics."""

from __future__ import annotations

import random
import zlib
from functools import cache

from logstore.errors import MessageError
from logstore.inspect.decoders import DECODERS, java_json
from logstore.inspect.internal_topics import decode_internal_record
from logstore.messages import decode, encode_bytes, schema, to_json, types
from logstore.messages.schema import definitions
from logstore.record.records import Record
from tests.fuzz.contract import OK, OUTCOMES, Target, check
from tests.support.interop.decoded_records import FLAGS, pairs
from tests.support.world.random_messages import random_message

SEED_EVERY = 7
"""The messages that inputs start from; mutations of the first line reach the others."""


@cache
def kinds() -> list[tuple[str, int]]:
    """Return name and version of everything there is."""
    return [(name, version) for name in definitions() for version in sorted(schema(name).versions)]


def message(data: bytes) -> str:
    """Bytes after a line with a name and a version: a decoded message survives a round trip."""
    line, _, payload = data.partition(b"\n")
    known = {b"%s %d" % (name.encode(), version): (name, version) for name, version in kinds()}
    name, version = known.get(line) or kinds()[zlib.crc32(line) % len(kinds())]
    kind = getattr(types, name)
    try:
        found = decode(kind, version, payload)
    except MessageError as error:
        check((error.name, error.version) == (name, version), f"{error!r} names another message")
        check(error.position is not None, f"{error!r} does not say where")
        check(0 <= error.position <= len(payload), f"{error!r} is at {error.position}")
        return OUTCOMES[MessageError]
    written = encode_bytes(found, version)
    again = decode(kind, version, written)
    check(encode_bytes(again, version) == written, f"{found!r} is read otherwise")
    check(len(written) <= len(payload), f"{found!r} grew from {len(payload)} bytes")
    check(java_json(to_json(found, version)) == java_json(to_json(again, version)), "two tellings")
    return OK


@cache
def messages() -> list[bytes]:
    """Sound messages, each behind its line."""
    found = []
    for number, (name, version) in enumerate(kinds()):
        if number % SEED_EVERY == 0:
            rng = random.Random(f"{name} {version}")
            data = encode_bytes(random_message(rng, name, version, elements_max=2), version)
            found.append(b"%s %d\n%s" % (name.encode(), version, data))
    return found


def internal_topic(data: bytes) -> str:
    """A record of an internal topic: described, or described as malformed; never an error."""
    topic = list(DECODERS)[(data or b"\0")[0] % len(DECODERS)]
    size = int.from_bytes(data[1:3])
    key, value = data[3 : 3 + size], data[3 + size :]
    texts = DECODERS[topic](Record(7, 0, key, value))
    told = decode_internal_record(topic, key, value)
    check(told is not None, f"{topic} has no description")
    check(texts != (None, None), f"{topic} has no text")
    check({"key", "value"} <= told.keys(), f"{told} lacks a part")
    return "invalid_record" if "error" in told else OK


@cache
def internal_records() -> list[bytes]:
    """Sound records, each behind its topic and the size of its key."""
    found = []
    for topic in FLAGS:
        for key, value in list(pairs(topic, random.Random(topic)))[::4]:
            head = bytes([list(DECODERS).index(topic)]) + len(key or b"").to_bytes(2)
            found.append(head + (key or b"") + (value or b""))
    return found


TARGETS = {
    "message": Target(message, "message", messages, 20),
    "internal_topic": Target(internal_topic, "message", internal_records, 6),
}
