"""Sound bytes to start from: golden vectors, small golden files of Kafka, batches of our own."""

from __future__ import annotations

import struct
from functools import cache
from pathlib import Path

from logstore.record.batch import RecordBatch, build_batch
from logstore.record.codecs import Codec, compress
from logstore.record.records import Record
from logstore.record.varint import encode_varint
from tests.support.world import golden
from tests.support.world.builders import abort, batch, commit, data_batch, old_message

KAFKA = Path(__file__).resolve().parents[1] / "data" / "kafka-3.9"
FILE_MAX = 6000
SECTION = struct.Struct(">iqqb")
"""Prefix of a section input: record count, base offset, base timestamp, flag."""


def _kafka_files(pattern: str, least: int = 1) -> list[bytes]:
    """Small files of the golden directories, each content once."""
    found = sorted(KAFKA.glob(pattern))
    contents = [path.read_bytes() for path in found if least <= path.stat().st_size <= FILE_MAX]
    return list(dict.fromkeys(contents))


@cache
def batches() -> list[bytes]:
    """Single batches of every kind."""
    own = [
        build_batch(_records(count), codec=codec, base_offset=0, partition_leader_epoch=1)
        for codec in Codec
        for count in (1, 5, 70)
    ]
    own += [build_batch(_versioned(0), codec=codec) for codec in (Codec.NONE, Codec.LZ4)]
    return [
        *golden.BATCHES.values(),
        *own,
        commit(3, 7),
        abort(3, 7),
        data_batch(0, 2, 7),
        old_message(0),
        old_message(1),
    ]


def _versioned(first: int) -> list[Record]:
    """Return records whose headers state versions of both encodings, or fail to."""
    values = (5, -1, 2**62, None, b"1234", b"\x80" * 10, 9, 7)
    return [
        Record(
            offset,
            1000 - offset,
            b"k%d" % (offset % 3),
            b"v" if offset % 3 else None,
            (
                ("h", b"old"),
                ("h", value.to_bytes(8, "big", signed=True) if isinstance(value, int) else value),
                *([("h", encode_varint(offset))] if offset > 5 else []),
            ),
        )
        for offset, value in enumerate(values, first)
    ]


def _records(count: int) -> list[Record]:
    headers = (("h", b"v"), ("", None), ("ä", b""))
    return [
        Record(
            3 * index,
            1000 + index * (-1) ** index,
            b"k%d" % (index % 7) if index % 5 else b"",
            None if index % 4 == 3 else b"v" * (index * 7 % 90),
            headers[: index % 4],
        )
        for index in range(count)
    ]


@cache
def logs() -> list[bytes]:
    """Whole `.log` files of a segment with base 0."""
    keyed = b"".join(
        build_batch(
            [
                Record(5 * n + i, 1000 + n, b"k%d" % ((n + i) % 6), None if n == 3 else b"v%d" % n)
                for i in range(3)
            ],
            codec=codec,
            partition_leader_epoch=n // 2,
        )
        for n, codec in enumerate((*Codec, *Codec))
    )
    transactions = b"".join(
        (
            data_batch(0, 2, 1),
            data_batch(3, 3, 2),
            batch(4, 6),
            abort(7, 1),
            data_batch(8, 9, 1, sequence=3),
            commit(10, 2),
            commit(11, 1),
        )
    )
    plain = b"".join(batch(n, n, key=b"k%d" % (n % 3)) for n in range(12))
    many = batch(0, 99) + batch(100, 199) + batch(200, 200)
    versioned = b"".join(
        build_batch(_versioned(first), codec=codec, delete_horizon_ms=horizon)
        for first, codec, horizon in (
            (0, Codec.NONE, None),
            (9, Codec.ZSTD, 1400),
            (20, Codec.NONE, 1450),
        )
    )
    own = [
        keyed,
        transactions,
        plain,
        many,
        versioned,
        plain + old_message(1, 12),
        plain + bytes(40),
    ]
    kafka = [data for data in _kafka_files("*/**/00000000000000000000.log") if len(data) < 3000]
    return own + kafka


@cache
def sections() -> list[bytes]:
    """Uncompressed records sections behind count, bases and a flag."""
    found = []
    for data in batches():
        header = RecordBatch(data).header
        if header.magic == 2 and header.codec_id == 0:
            bases = (header.record_count, header.base_offset, header.base_timestamp, 0)
            found.append(SECTION.pack(*bases) + data[61:])
    return found


@cache
def streams() -> list[bytes]:
    """Compressed streams behind a byte that names the codec."""
    found: list[bytes] = []
    plains = (b"", b"\1\2\3", b"abc" * 50, bytes(range(256)) * 4, bytes(70_000))
    for codec in list(Codec)[1:]:
        found += [bytes([codec]) + compress(codec, plain) for plain in plains]
    ids = [(RecordBatch(data).header.codec_id, data) for data in batches() if data[16] == 2]
    return found + [bytes([codec_id]) + data[61:] for codec_id, data in ids if codec_id]


@cache
def indexes() -> list[bytes]:
    """Index files behind a byte that names the kind: 0 offset, 1 time, 2 transactions."""
    own = [
        b"\0" + golden.F3,
        b"\1" + golden.F4,
        b"\2" + golden.F2,
        b"\0" + b"".join(struct.pack(">ii", 3 * n, 70 * n) for n in range(200)),
        b"\1" + b"".join(struct.pack(">qi", 1000 + n, 2 * n) for n in range(200)),
        b"\2" + b"".join(struct.pack(">hqqqq", 0, 1, n, n + 3, n + 4) for n in range(20)),
        b"\0" + bytes(80),
        b"\1" + bytes(120),
    ]
    kinds = ("index", "timeindex", "txnindex")
    return own + [
        bytes([kind]) + data
        for kind, suffix in enumerate(kinds)
        for data in _kafka_files(f"*/**/*.{suffix}")[:12]
    ]


@cache
def snapshots() -> list[bytes]:
    """Producer snapshots."""
    return [golden.F1, *_kafka_files("*/**/*.snapshot")[:12]]


@cache
def offset_checkpoints() -> list[bytes]:
    """Offset checkpoints."""
    two = b"0\n2\na 0 1\nb.c-d 12 9223372036854775807\n"
    return [golden.F6, two, b"0\n0\n", b"", *_kafka_files("*/**/*-offset-checkpoint")[:6]]


@cache
def epoch_checkpoints() -> list[bytes]:
    """Leader-epoch checkpoints."""
    return [
        b"0\n3\n0 0\n1 10\n5 99\n",
        b"0\n0\n",
        *_kafka_files("*/**/leader-epoch-checkpoint")[:6],
    ]


@cache
def metadata_files() -> list[bytes]:
    """Files of the name partition.metadata."""
    return [golden.F8, *_kafka_files("*/**/partition.metadata")[:3]]


@cache
def topics_files() -> list[bytes]:
    """Files of the name logstore-topics.json."""
    return [
        b'{\n  "version": 1,\n  "topics": {\n    "orders": {\n      "partitions": [\n        0,\n'
        b'        1\n      ],\n      "configs": {\n        "cleanup.policy": "compact"\n      }\n'
        b"    }\n  }\n}\n",
        b'{"version": 1, "topics": {}}',
        b'{"version": 2, "topics": {"t": {"partitions": [0], "configs": {},'
        b' "id": "AAAAAAAAAAEAAAAAAAAAAg"}}}',
        b'{"version": 1, "topics": {"a.b_c-d": {"partitions": [7], "configs": {}},'
        b' "z": {"partitions": [0], "configs": {"retention.ms": "1"}}}}',
    ]


@cache
def properties_files() -> list[bytes]:
    """Files of the name server.properties."""
    return [
        b"# comment\nlog.dirs=/a,/b\nlog.retention.hours=168\nlog.cleaner.threads = 2\n"
        b"log.segment.bytes:1073741824\nnum.network.threads=3\nunknown.key=\\u00e9 x\\\n  y\n",
        b"log.cleanup.policy=compact,delete\nlog.cleaner.dedupe.buffer.size=134217728\n"
        b"log.message.timestamp.type=LogAppendTime\ncompression.type=zstd\n",
        b"cleaner.thread.pool.size=4\nlog.cleanup.interval.mins=10\ncleaner.buffer.size.bytes="
        b"1048577\ncleaner.max.read.throughput=1\ntopic.cleanup.policy=dedupe\n",
        b"log.roll.hours=1\nlog.roll.ms=\nlog.cleaner.min.cleanable.ratio=0.5\nlog.preallocate=TRUE",
    ]
