"""Random logs as lists of operations that Kafka and this engine can both execute.

`story(seed)` is the same for the same seed on every machine. A story has rounds: one of the two
engines appends, then both clean, in sittings. `Story` and the small choosers below define the
variations; `tests.interop.clients` defines the producers.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from logstore.record.batch import build_batch
from logstore.record.codecs import Codec
from logstore.record.records import Record
from logstore.storage.producers.state import PRODUCER_ID_EXPIRATION_MS
from tests.interop.clients import Clients

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


Operation = dict[str, Any]

STOPS = {
    "killed": (),
    "killed before a checkpoint": ("recovery-point-offset-checkpoint",),
    "killed, snapshots lost": ("recovery-point-offset-checkpoint", "*-0/*.snapshot"),
}
"""The unclean ways to leave a log, and the files that are then missing."""


@dataclass
class Sitting:
    """Both engines open the log, clean it once or several times, and close it cleanly."""

    start_ms: int
    turns: list[list[Operation]]
    """The actions of both before each pass."""

    stop: str | None = None
    """How the log was left before: one of `STOPS`, or None for a clean close."""


@dataclass
class Round:
    """Something is appended by one engine, time passes, and both clean."""

    builder: str
    """The appending engine: `kafka` or `ours`."""

    start_ms: int
    operations: list[Operation]
    sittings: list[Sitting]
    """A small map may leave the rest to the next round."""

    first_dirty_share: float | None
    """Lowers the checkpoint to this share of the log before cleaning; None leaves it."""


@dataclass
class Story:
    """One log's life."""

    seed: int
    topic: str
    config: dict[str, str]
    fill_config: dict[str, str]
    """The configuration during the first round's appends."""

    clean_config: dict[str, str]
    """The configuration while cleaning."""

    dedupe_bytes: int
    load_factor: float
    io_buffer_bytes: int
    compressed: bool
    """Whether some batches are compressed; then no sitting has several turns, since the engines may
    continue with different sizes after the first."""

    rounds: list[Round] = field(default_factory=list)

    @property
    def title(self) -> str:
        """A short description for reports."""
        return (
            f"seed {self.seed}: {'compressed, ' if self.compressed else ''}"
            f"{len(self.rounds)} rounds, {self.dedupe_bytes // 24} slots at {self.load_factor}, "
            f"{self.clean_config}"
        )


def story(seed: int, *, plain: bool = False) -> Story:
    """Generate the story of a seed.

    Parameters
    ----------
    plain : bool
        No batch is compressed, so that both engines append the same bytes, and the sittings only
        clean, so that they can be left out.
    """
    rng = random.Random(seed)
    shape = SHAPES[rng.choices((0, 1, 2, 3), (5, 5, 2, 1))[0]]
    config = _config(rng, shape)
    unkeyed = rng.random() < 0.12
    # Batches may be larger than the topic's current limit.
    shrunk = {"max.message.bytes": "100"} if rng.random() < 0.1 else {}
    report = Story(
        seed=seed,
        topic="diff",
        config=config,
        fill_config={**config, "cleanup.policy": "delete"} if unkeyed else config,
        clean_config={**config, **shrunk},
        dedupe_bytes=24 * (rng.randint(4, 60) if rng.random() < 0.5 else 50_000),
        load_factor=rng.choice((0.9, 0.9, 0.5, 1.0)),
        io_buffer_bytes=rng.choice(shape.io_buffer_bytes),
        compressed=rng.random() < 0.3 and not plain,
    )
    _Generator(rng, shape, report, unkeyed=unkeyed, plain=plain).generate()
    return report


def _config(rng: random.Random, shape: Shape) -> dict[str, str]:
    config = {
        "cleanup.policy": rng.choice(("compact", "compact", "compact,delete")),
        "segment.bytes": str(rng.randint(*shape.segment_bytes)),
        "index.interval.bytes": str(rng.choice((0, 1, 50, 300, 1000, 4096))),
        "delete.retention.ms": str(rng.choice((0, 1000, 60_000, 86_400_000))),
    }
    if config["cleanup.policy"] != "compact":
        config["retention.ms"] = str(rng.choice((-1, 60_000, 1_000_000, 200_000_000)))
        config["retention.bytes"] = str(rng.choice((-1, -1, 4 * int(config["segment.bytes"]))))
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


class _Generator:
    """Fills a story's rounds; counts offsets, so that batches may have explicit ones."""

    def __init__(
        self, rng: random.Random, shape: Shape, report: Story, *, unkeyed: bool, plain: bool
    ) -> None:
        self.rng = rng
        self.shape = shape
        self.told = report
        self.unkeyed = unkeyed
        self.plain = plain
        self.now_ms = START_MS
        self.cleaned_ms = START_MS
        self.next_offset = 0
        self.epoch = 0
        self.keys = rng.choice((3, 10, 40, 200, 2000))
        self.tombstones = rng.choice((0.0, 0.05, 0.3))
        self.headers = rng.choice((0.0, 0.0, 0.2))
        self.times = rng.choice(("rising", "near", "wild"))
        self.follows = rng.random() < 0.2
        self.segment_bytes = int(report.config["segment.bytes"])
        codecs = tuple(Codec.from_name(name) for name in CODECS) if report.compressed else ()
        self.clients = Clients(rng, (Codec.NONE, *codecs)) if rng.random() < 0.8 else None
        self.may_lack_keys = False
        self.alone = False
        """Whether only one engine appends, and so may compress."""

    def generate(self) -> None:
        for number in range(self.rng.randint(2, 4)):
            start_ms = self.now_ms
            operations = self._round(number)
            self.now_ms += self.rng.choice((0, 1, 500, 1000, 30_000, 60_000, 100_000_000))
            self.told.rounds.append(
                Round(
                    builder=self.rng.choice(("ours", "ours", "kafka")),
                    start_ms=start_ms,
                    operations=operations,
                    sittings=[self._sitting() for _ in range(self.rng.randint(1, 4))],
                    first_dirty_share=self.rng.random() if self.rng.random() < 0.1 else None,
                )
            )

    # -- operations of one engine --------------------------------------------------------

    def _round(self, number: int) -> list[Operation]:
        low, high = self.shape.batches
        count = self.rng.randint(low, high) if number == 0 else self.rng.randint(0, high // 3)
        self.may_lack_keys = self.unkeyed and number == 0
        self.alone = True
        operations = self._writes(count)
        self.may_lack_keys = False
        if self.rng.random() < 0.6:
            operations += self._ends()
        if self.rng.random() < 0.7:
            operations.append({"op": "roll"})
        if self.rng.random() < 0.5:
            operations += self._append()
        self.alone = False
        return operations

    def _writes(self, count: int) -> list[Operation]:
        operations: list[Operation] = [{"op": "leader_epoch", "epoch": self.epoch}]
        for _ in range(count):
            operations += _WRITES[self._kind()](self)
            if self.rng.random() < 0.6:
                operations.append(self._advance(self.rng.choice((1, 10, 100, 1500))))
            if self.rng.random() < 0.08:
                operations.append({"op": "roll"})
        return operations

    def _kind(self) -> str:
        if self.clients is not None and self.rng.random() < 0.65:
            return self.rng.choices(("produce", "end", "end_nothing"), (12, 5, 1))[0]
        return "replicate" if self.follows and self.rng.random() < 0.4 else "append"

    def _advance(self, ms: int) -> Operation:
        self.now_ms += ms
        return {"op": "advance", "ms": ms}

    # -- operations of both --------------------------------------------------------------

    def _sitting(self) -> Sitting:
        rng = self.rng
        start_ms = self.now_ms
        if self.plain:
            return Sitting(start_ms, [[]])
        stop = None
        if rng.random() < 0.15 and "segment.index.bytes" not in self.told.config:
            stop = rng.choice(tuple(STOPS))
            self._forget()
        turns = [self._before_pass(first=True)]
        if not self.told.compressed and rng.random() < 0.4:
            turns += [self._before_pass() for _ in range(rng.randint(1, 3))]
        if {"op": "retain"} in turns[0] and self.told.config.get("retention.ms", "-1") != "-1":
            self._forget()  # a log found empty has forgotten everybody
        return Sitting(start_ms, turns, stop)

    def _forget(self) -> None:
        if self.clients is not None:
            self.clients.forget()

    def _before_pass(self, *, first: bool = False) -> list[Operation]:
        """Add retention, deletions, an append, or elapsed time.

        Only the files at the start of a sitting have the same dates on both sides, and dates matter
        where no record has a timestamp.
        """
        rng = self.rng
        operations: list[Operation] = []
        if rng.random() < 0.12:
            share = rng.choice((rng.random() * 0.4, rng.random()))
            operations.append({"op": "delete_before", "offset": int(self.next_offset * share)})
        if first and rng.random() < (0.4 if "retention.ms" in self.told.config else 0.1):
            operations.append({"op": "retain"})
        if rng.random() < 0.08:
            operations.append(self._advance(PRODUCER_ID_EXPIRATION_MS + rng.randint(0, 1)))
        if rng.random() < 0.15:
            operations.append({"op": "expire"})
        if self.told.clean_config == self.told.config and rng.random() < (0.4 if first else 0.9):
            operations += self._writes(rng.randint(1, 4))
            if rng.random() < 0.5:
                operations += self._ends()
            operations.append({"op": "roll"})
        if rng.random() < 0.3:
            operations += self._reach_horizon()
        self.cleaned_ms = self.now_ms
        return operations

    def _reach_horizon(self) -> list[Operation]:
        """Wait until tombstones kept by the last pass expire, or nearly so."""
        horizon_ms = self.cleaned_ms + int(self.told.config["delete.retention.ms"])
        ms = horizon_ms + self.rng.choice((-1, 0, 0, 1)) - self.now_ms
        return [self._advance(ms)] if ms > 0 else []

    # -- appended data -------------------------------------------------------------------

    def _produce(self) -> list[Operation]:
        assert self.clients is not None
        records = self._records()
        self.next_offset += len(records)
        return [self._as_leader(self.clients.produce(records))]

    def _end(self) -> list[Operation]:
        assert self.clients is not None
        return self._marker(self.clients.end(self.now_ms))

    def _end_nothing(self) -> list[Operation]:
        assert self.clients is not None
        return self._marker(self.clients.end_nothing(self.now_ms))

    def _ends(self) -> list[Operation]:
        """End every open transaction."""
        operations: list[Operation] = []
        while self.clients is not None and self.clients.has_open:
            operations += self._end()
        return operations

    def _marker(self, operation: Operation | None) -> list[Operation]:
        if operation is None:
            return []
        self.next_offset += 1
        return [self._as_leader(operation)]

    def _as_leader(self, operation: Operation) -> Operation:
        return {**operation, "epoch": self.epoch}

    def _append(self) -> list[Operation]:
        records = self._records()
        self.next_offset += len(records)
        operation: Operation = {
            "op": "append",
            "records": [_wire(record) for record in records],
            "epoch": self.epoch,
        }
        if self.told.compressed and self.alone and self.rng.random() < 0.85:
            operation["codec"] = self.rng.choice(CODECS)
        return [operation]

    def _replicate(self) -> list[Operation]:
        """Append as a follower of a compacted log: with gaps inside, between and after batches."""
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
        """At least one record, and at most as many as fit into a segment."""
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


_WRITES: Mapping[str, Callable[[_Generator], list[Operation]]] = {
    "append": _Generator._append,
    "replicate": _Generator._replicate,
    "produce": _Generator._produce,
    "end": _Generator._end,
    "end_nothing": _Generator._end_nothing,
}
"""Generator of each kind of write."""


def _wire(record: Record) -> list[Any]:
    row: list[Any] = [record.timestamp, _text(record.key), _text(record.value)]
    if record.headers:
        row.append([[name, _text(value)] for name, value in record.headers])
    return row


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()
