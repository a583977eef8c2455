"""Random logs, told as lists of operations that Kafka and this engine can both carry out.

`story(seed)` gives the same story for the same seed on every machine. What a story varies is in
`Story` and in the small choosers below; kinds of operation that are still to come (transactions,
idempotent producers) are one more entry in `_OPERATIONS`.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from logstore.record.batch import build_batch
from logstore.record.records import Record

START_MS = 1_700_000_000_000
CODECS = ("gzip", "snappy", "lz4", "zstd")
RECORD_OVERHEAD = 30
"""No record is larger than its key, value and headers by more than this."""


@dataclass(frozen=True)
class Shape:
    """Sizes that belong together, so that every log has several segments and batches."""

    segment_bytes: tuple[int, int]
    value_bytes: tuple[int, int]
    large_value_bytes: int
    batch_records: int
    batches: tuple[int, int]
    io_buffer_bytes: tuple[int, ...]


SHAPES = (
    Shape((300, 1500), (0, 40), 60, 6, (10, 60), (512, 4096, 262_144)),
    Shape((1500, 10_000), (0, 200), 900, 20, (15, 60), (1024, 8192, 262_144)),
    Shape((30_000, 200_000), (10, 1200), 24_000, 60, (15, 45), (4096, 65_536, 262_144)),
    # More records in a batch than are encoded one by one, and segments longer than a chunk.
    Shape((150_000, 600_000), (20, 120), 3000, 400, (10, 25), (16_384, 262_144)),
)


@dataclass
class Round:
    """Something is appended, time passes, and the cleaner runs."""

    builder: str
    """Who appends: `kafka` or `ours`."""

    start_ms: int
    operations: list[dict[str, Any]]
    clean_ms: int
    passes: int
    """The most that are run now; a small map may leave the rest to the next round."""

    first_dirty_share: float | None
    """Lowers the checkpoint to this share of the log before cleaning; None leaves it."""


@dataclass
class Story:
    """One log's life."""

    seed: int
    topic: str
    config: dict[str, str]
    fill_config: dict[str, str]
    """In force during the first round's appends."""

    clean_config: dict[str, str]
    """In force while cleaning."""

    dedupe_bytes: int
    load_factor: float
    io_buffer_bytes: int
    compressed: bool
    rounds: list[Round] = field(default_factory=list)

    @property
    def title(self) -> str:
        """What is special about it, for reports."""
        return (
            f"seed {self.seed}: {'compressed, ' if self.compressed else ''}"
            f"{len(self.rounds)} rounds, {self.dedupe_bytes // 24} slots at {self.load_factor}, "
            f"{self.clean_config}"
        )


def story(seed: int) -> Story:
    """Tell the story of a seed."""
    rng = random.Random(seed)
    shape = SHAPES[rng.choices((0, 1, 2, 3), (5, 5, 2, 1))[0]]
    config = _config(rng, shape)
    unkeyed = rng.random() < 0.12
    # Batches may be larger than what the topic would take by now.
    shrunk = {"max.message.bytes": "100"} if rng.random() < 0.15 else {}
    told = Story(
        seed=seed,
        topic="diff",
        config=config,
        fill_config={**config, "cleanup.policy": "delete"} if unkeyed else config,
        clean_config={**config, **shrunk},
        dedupe_bytes=24 * (rng.randint(4, 60) if rng.random() < 0.5 else 50_000),
        load_factor=rng.choice((0.9, 0.9, 0.5, 1.0)),
        io_buffer_bytes=rng.choice(shape.io_buffer_bytes),
        compressed=rng.random() < 0.3,
    )
    _Teller(rng, shape, told, unkeyed=unkeyed).tell()
    return told


def _config(rng: random.Random, shape: Shape) -> dict[str, str]:
    config = {
        "cleanup.policy": "compact",
        "segment.bytes": str(rng.randint(*shape.segment_bytes)),
        "index.interval.bytes": str(rng.choice((0, 1, 50, 300, 1000, 4096))),
        "delete.retention.ms": str(rng.choice((0, 1000, 60_000, 86_400_000))),
    }
    if rng.random() < 0.2:
        config["message.timestamp.type"] = "LogAppendTime"
    if rng.random() < 0.25:
        config["min.compaction.lag.ms"] = str(rng.randint(1, 20_000))
    if rng.random() < 0.2:
        config["segment.ms"] = str(rng.randint(500, 10_000))
    if rng.random() < 0.1:
        config["max.compaction.lag.ms"] = str(rng.randint(30_000, 60_000))
    if rng.random() < 0.1:
        config["preallocate"] = "true"
    if rng.random() < 0.2:
        config["segment.index.bytes"] = str(rng.randint(24, 240))
    return config


class _Teller:
    """Fills a story's rounds; keeps count of offsets, so that batches may carry their own."""

    def __init__(self, rng: random.Random, shape: Shape, told: Story, *, unkeyed: bool) -> None:
        self.rng = rng
        self.shape = shape
        self.told = told
        self.unkeyed = unkeyed
        self.now_ms = START_MS
        self.next_offset = 0
        self.epoch = 0
        self.keys = rng.choice((3, 10, 40, 200, 2000))
        self.tombstones = rng.choice((0.0, 0.05, 0.3))
        self.headers = rng.choice((0.0, 0.0, 0.2))
        self.times = rng.choice(("rising", "near", "wild"))
        self.follows = rng.random() < 0.2
        self.segment_bytes = int(told.config["segment.bytes"])

    def tell(self) -> None:
        for number in range(self.rng.randint(2, 4)):
            start_ms = self.now_ms
            operations = self._operations(number)
            self.now_ms += self.rng.choice((0, 1, 500, 1000, 30_000, 60_000, 100_000_000))
            self.told.rounds.append(
                Round(
                    builder=self.rng.choice(("ours", "ours", "kafka")),
                    start_ms=start_ms,
                    operations=operations,
                    clean_ms=self.now_ms,
                    passes=self.rng.randint(1, 4),
                    first_dirty_share=self.rng.random() if self.rng.random() < 0.1 else None,
                )
            )

    def _operations(self, number: int) -> list[dict[str, Any]]:
        low, high = self.shape.batches
        count = self.rng.randint(low, high) if number == 0 else self.rng.randint(0, high // 3)
        self.may_lack_keys = self.unkeyed and number == 0
        operations: list[dict[str, Any]] = [{"op": "leader_epoch", "epoch": self.epoch}]
        for _ in range(count):
            operations += _OPERATIONS[self._kind()](self)
            if self.rng.random() < 0.6:
                ms = self.rng.choice((1, 10, 100, 1500))
                operations.append({"op": "advance", "ms": ms})
                self.now_ms += ms
            if self.rng.random() < 0.08:
                operations.append({"op": "roll"})
        if self.rng.random() < 0.7:
            operations.append({"op": "roll"})
        if self.rng.random() < 0.5:
            operations += self._append()
        return operations

    def _kind(self) -> str:
        return "replicate" if self.follows and self.rng.random() < 0.4 else "append"

    def _append(self) -> list[dict[str, Any]]:
        records = self._records()
        self.next_offset += len(records)
        operation = {"op": "append", "records": [_wire(record) for record in records]}
        if self.told.compressed and self.rng.random() < 0.85:
            operation["codec"] = self.rng.choice(CODECS)
        return [operation]

    def _replicate(self) -> list[dict[str, Any]]:
        """What a follower of a compacted log gets: gaps inside, between and after batches."""
        batches = []
        if self.rng.random() < 0.2:
            self.epoch += self.rng.randint(1, 3)
        room = self.segment_bytes
        for _ in range(self.rng.randint(1, 3)):
            records = self._records(room // 4)
            base = self.next_offset + self.rng.choice((0, 0, 1, 7))
            offset = base - 1
            placed = []
            for record in records:
                offset += self.rng.choice((1, 1, 1, 2, 5))
                placed.append(record._replace(offset=offset))
            last = offset + self.rng.choice((0, 0, 3))
            batch = build_batch(
                placed, base_offset=base, last_offset=last, partition_leader_epoch=self.epoch
            )
            room -= len(batch)
            if room < 0 and batches:
                break
            batches.append(batch)
            self.next_offset = last + 1
        return [
            {"op": "leader_epoch", "epoch": self.epoch},
            {"op": "replicate", "batches": base64.b64encode(b"".join(batches)).decode()},
        ]

    def _records(self, room: int | None = None) -> list[Record]:
        """At least one record, and no more than fit a segment."""
        left = (self.segment_bytes if room is None else room) - 61
        records: list[Record] = []
        for _ in range(self.rng.randint(1, self.shape.batch_records)):
            record = self._record()
            size = RECORD_OVERHEAD + len(record.key or b"") + len(record.value or b"")
            size += sum(RECORD_OVERHEAD + len(value or b"") for _, value in record.headers)
            if size > left:
                if records:
                    break
                record = Record(0, record.timestamp, b"k", b"")
                size = RECORD_OVERHEAD
            records.append(record)
            left -= size
        return records

    def _record(self) -> Record:
        rng = self.rng
        value: bytes | None = None
        if rng.random() >= self.tombstones:
            large = rng.random() < 0.03
            size = self.shape.large_value_bytes if large else rng.randint(*self.shape.value_bytes)
            value = rng.randbytes(8) * (size // 8) + rng.randbytes(size % 8)
        headers: tuple[tuple[str, bytes | None], ...] = ()
        if rng.random() < self.headers:
            headers = tuple(
                (rng.choice(("trace", "", "größe")), rng.choice((None, b"", rng.randbytes(5))))
                for _ in range(rng.randint(1, 3))
            )
        return Record(0, self._timestamp(), self._key(), value, headers)

    def _key(self) -> bytes | None:
        rng = self.rng
        if self.may_lack_keys and rng.random() < 0.3:
            return None
        number = int(self.keys * rng.random() ** 2)
        if number % 37 == 1:
            return b""
        if number % 37 == 2:
            return bytes((0xFF, 0, number & 0xFF)) * 20
        return b"key-%d" % number

    def _timestamp(self) -> int:
        rng = self.rng
        if self.times == "rising":
            return self.now_ms
        if self.times == "near":
            return self.now_ms + rng.randint(-2000, 2000)
        return rng.choice((self.now_ms, self.now_ms - rng.randint(0, 10**9), self.now_ms, 0, -1))


_OPERATIONS: Mapping[str, Callable[[_Teller], list[dict[str, Any]]]] = {
    "append": _Teller._append,
    "replicate": _Teller._replicate,
}
"""How each kind of operation is made. The judge's `write` also knows producers and markers."""


def _wire(record: Record) -> list[Any]:
    row: list[Any] = [record.timestamp, _text(record.key), _text(record.value)]
    if record.headers:
        row.append([[name, _text(value)] for name, value in record.headers])
    return row


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()
