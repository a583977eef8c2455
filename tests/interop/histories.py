"""Random histories of one log, generated one operation at a time.

A `Historian` reads the log's state before it chooses the next operation, so that truncations hit
segment bases and the middles of batches, and replicated batches follow the log end. The same seed
yields the same history for two engines with the same behavior.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from logstore.record.batch import RecordBatch, build_batch
from logstore.record.codecs import Codec
from logstore.record.control import (
    ControlType,
    EndTxnMarker,
    encode_control_key,
    encode_end_txn_value,
)
from logstore.record.records import Record
from tests.interop.stories import START_MS
from tests.support.interop.live import Left, State

INT64_MAX = 2**63 - 1
LONG_MS = 10**9
"""Longer than any `file.delete.delay.ms` used here."""

Operation = dict[str, Any]


class Pending(NamedTuple):
    """A transaction whose marker has not been written."""

    producer_id: int
    epoch: int


@dataclass
class Historian:
    """Generates the history of a seed."""

    seed: int
    rng: random.Random = field(init=False)
    config: dict[str, str] = field(init=False)
    now_ms: int = START_MS
    epoch: int = 0
    with_producers: bool = field(init=False)
    pending: list[Pending] = field(default_factory=list)
    producers: int = 0
    batch_ends: list[int] = field(default_factory=list)
    """Last offsets of recently appended batches, some of them removed."""

    earlier: list[tuple[int, int]] = field(default_factory=list)
    """Recovery points and log starts since the last stop, as in periodic checkpoints."""

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.config = self._config()
        self.with_producers = self.rng.random() < 0.3

    # -- config --------------------------------------------------------------------------

    def _config(self) -> dict[str, str]:
        rng = self.rng
        config = {
            "cleanup.policy": rng.choice(("delete", "delete", "delete,compact", "compact")),
            "segment.bytes": str(rng.choice((300, 700, 1500, 4000))),
            "index.interval.bytes": str(rng.choice((0, 1, 50, 300, 4096))),
            "segment.index.bytes": str(rng.choice((60, 120, 400, 1000))),
            "retention.ms": str(rng.choice((-1, 0, 1000, 30_000, 30_000, 1_000_000))),
            "retention.bytes": str(rng.choice((-1, -1, 0, 600, 3000))),
            "file.delete.delay.ms": str(rng.choice((0, 1000, 60_000))),
            "segment.ms": str(rng.choice((1000, 60_000, INT64_MAX))),
            "message.timestamp.before.max.ms": str(INT64_MAX),
            "message.timestamp.after.max.ms": str(INT64_MAX),
        }
        if rng.random() < 0.15:
            config["message.timestamp.type"] = "LogAppendTime"
        if rng.random() < 0.15:
            config["preallocate"] = "true"
        if rng.random() < 0.2:
            config["flush.messages"] = str(rng.choice((1, 5, 20)))
        return config

    # -- operations ----------------------------------------------------------------------

    def begin(self) -> Left:
        """Return the settings of the first start."""
        return Left()

    def kinds(self) -> Sequence[Kind]:
        """Return the possible kinds of operations."""
        return OPERATIONS

    def next(self, state: State) -> Operation:
        """Name the next operation on a log in this state."""
        self.earlier.append((state["recovery_point"], _log_start_checkpoint(state)))
        kinds = [kind for kind in self.kinds() if kind.possible(self)]
        kind = self.rng.choices(kinds, [each.weight for each in kinds])[0]
        return {"op": kind.name, **kind.generate(self, state)}

    def _append(self, state: State) -> Operation:
        """Append a batch as a producer sends it, from offset 0."""
        records = [self._record(slot) for slot in range(self.rng.choice((1, 1, 2, 4, 9)))]
        codec = self.rng.choice((*Codec, Codec.NONE, Codec.NONE, Codec.NONE))
        batch = build_batch(records, codec=codec)
        while len(batch) > int(self.config["segment.bytes"]):
            records.pop()
            batch = build_batch(records, codec=codec)
        self.batch_ends.append(state["log_end_offset"] + len(records) - 1)
        return self._wire(batch)

    def _replicate(self, state: State) -> Operation:
        """Append batches as a follower fetches them: with gaps and other leaders' epochs."""
        offset = state["log_end_offset"] + self.rng.choice((0, 0, 0, 1, 9))
        batches = []
        for _ in range(self.rng.randint(1, 3)):
            batch, end = self._replicated_batch(offset)
            batches.append(batch)
            self.batch_ends.append(end - 1)
            if RecordBatch(batch).header.is_control:
                # Kafka's transaction index also counts transactions that begin after a marker in
                # the same append; its recovery does not.
                break
            offset = end + self.rng.choice((0, 0, 2))
        room = int(self.config["segment.bytes"])
        while len(batches) > 1 and sum(map(len, batches)) > room:
            batches.pop()
        return self._wire(b"".join(batches))

    def _replicated_batch(self, offset: int) -> tuple[bytes, int]:
        rng = self.rng
        self._maybe_new_leader()
        producer: dict[str, Any] = {}
        if self.with_producers and rng.random() < 0.7:
            if self.pending and rng.random() < 0.5:
                return self._marker(offset)
            producer = self._producer()
        last = offset - 1
        records = []
        for _ in range(rng.choice((1, 2, 5))):
            last += rng.choice((1, 1, 1, 3))
            records.append(self._record(last))
            if len(records) * 150 > int(self.config["segment.bytes"]) - 150:
                break
        last += rng.choice((0, 0, 0, 2))
        batch = build_batch(
            records, base_offset=offset, last_offset=last, partition_leader_epoch=self.epoch,
            **producer,
        )  # fmt: skip
        return batch, last + 1

    def _producer(self) -> dict[str, Any]:
        """Return the fields of an idempotent producer, or of one with a new transaction."""
        sequence = self.rng.randrange(1000)
        if self.rng.random() < 0.5:
            return {
                "producer_id": self.rng.randrange(3), "producer_epoch": 0,
                "base_sequence": sequence,
            }  # fmt: skip
        self.producers += 1
        producer = Pending(1000 + self.producers, self.rng.randrange(5))
        self.pending.append(producer)
        return {
            "producer_id": producer.producer_id, "producer_epoch": producer.epoch,
            "base_sequence": sequence, "is_transactional": True,
        }  # fmt: skip

    def _marker(self, offset: int) -> tuple[bytes, int]:
        producer = self.pending.pop(self.rng.randrange(len(self.pending)))
        kind = self.rng.choice((ControlType.ABORT, ControlType.COMMIT))
        value = encode_end_txn_value(EndTxnMarker(kind, 0))
        batch = build_batch(
            [Record(offset, self.now_ms, encode_control_key(kind), value)],
            partition_leader_epoch=self.epoch, producer_id=producer.producer_id,
            producer_epoch=producer.epoch, is_transactional=True, is_control=True,
        )  # fmt: skip
        return batch, offset + 1

    def _wire(self, batches: bytes) -> Operation:
        self._maybe_new_leader()
        return {"batches": base64.b64encode(batches).decode(), "epoch": self.epoch}

    def _maybe_new_leader(self) -> None:
        if self.rng.random() < 0.08:
            self.epoch += self.rng.randint(1, 3)

    def _record(self, offset: int) -> Record:
        rng = self.rng
        value = None if rng.random() < 0.1 else rng.randbytes(8) * rng.randint(0, 12)
        headers = (("größe", rng.randbytes(2)),) if rng.random() < 0.1 else ()
        return Record(offset, self._timestamp(), b"k%d" % rng.randrange(20), value, headers)

    def _timestamp(self) -> int:
        rng = self.rng
        return rng.choice(
            (
                self.now_ms, self.now_ms, self.now_ms, self.now_ms - rng.randint(0, 3000),
                self.now_ms + rng.randint(0, 3000), self.now_ms + 50_000, 0, -1,
            )
        )  # fmt: skip

    def _advance(self, state: State) -> Operation:
        ms = self.rng.choice((1, 200, 1500, 20_000, 70_000, 2_000_000))
        self.now_ms += ms
        return {"ms": ms}

    def _configure(self, state: State) -> Operation:
        former, self.config = self.config, self._config()
        if self.rng.random() < 0.5:
            kept = self.rng.sample(sorted(former), len(former) * 2 // 3)
            self.config |= {key: former[key] for key in kept}
        return {"config": self.config}

    def _start_offset(self, state: State) -> Operation:
        start, end = state["log_start_offset"], state["log_end_offset"]
        bases = [base for base, _ in state["segments"]]
        return {
            "offset": self.rng.choice(
                (
                    self.rng.randint(start, end), self.rng.randint(start, end),
                    self.rng.choice(bases), start, end, end + 1, max(0, start - 1),
                )
            )
        }  # fmt: skip

    def _delete_records(self, state: State) -> Operation:
        return {"offset": -1} if self.rng.random() < 0.15 else self._start_offset(state)

    def _truncate_to(self, state: State) -> Operation:
        rng = self.rng
        start, end = state["log_start_offset"], state["log_end_offset"]
        first = state["segments"][0][0]
        return {
            "offset": rng.choice(
                (
                    rng.randint(max(start, end - 12), end), rng.randint(start, end),
                    rng.choice(state["segments"])[0], rng.choice(self.batch_ends or [0]),
                    end, end + 2, max(0, start - rng.randint(1, 5)), max(0, first - 1), -1,
                )
            )
        }  # fmt: skip

    def _truncate_fully(self, state: State) -> Operation:
        offset = self.rng.choice((0, state["log_start_offset"], state["log_end_offset"]))
        offset += self.rng.choice((0, 0, 3, 100))
        if self.rng.random() < 0.3:
            return {"offset": offset, "log_start": self.rng.randint(0, offset)}
        return {"offset": offset}

    def _nothing(self, state: State) -> Operation:
        return {}

    # -- stops ---------------------------------------------------------------------------

    def stop(self, state: State) -> Left:
        """Return how the log stops, and the checkpoints at the next start."""
        rng = self.rng
        kept = (state["recovery_point"], _log_start_checkpoint(state))
        earlier = rng.choice([*self.earlier, kept])
        self.earlier.clear()
        if rng.random() < 0.35:
            return Left(True, *kept)
        recovery_point = rng.choice((kept[0], kept[0], earlier[0], 0))
        log_start = rng.choice((kept[1], kept[1], kept[1], earlier[1], 0))
        return Left(False, recovery_point, log_start)

    def reopen(self) -> None:
        """Advance the clock while the log is closed; the config may change."""
        self.now_ms += self.rng.choice((0, 0, 5000, 100_000))
        if self.rng.random() < 0.3:
            self._configure({})


def _log_start_checkpoint(state: State) -> int:
    """Return the checkpointed log start: only a start inside the first segment is in it."""
    start: int = state["log_start_offset"]
    return start if start > state["segments"][0][0] else 0


class Kind(NamedTuple):
    """A kind of operation: its frequency, its generator, and its precondition."""

    name: str
    weight: int
    generate: Callable[[Any, State], Mapping[str, Any]]
    possible: Callable[[Any], bool] = lambda _: True


def deletes(historian: Historian) -> bool:
    return "delete" in historian.config["cleanup.policy"]


OPERATIONS = (
    Kind("append", 40, Historian._append),
    Kind("replicate", 14, Historian._replicate),
    Kind("roll", 5, Historian._nothing),
    Kind("flush", 3, Historian._nothing),
    Kind("advance", 10, Historian._advance),
    Kind("retain", 9, Historian._nothing),
    Kind("increment_log_start", 3, Historian._start_offset),
    # Kafka's broker refuses it for a log that is only compacted, before the log hears of it.
    Kind("delete_records", 4, Historian._delete_records, deletes),
    Kind("truncate_to", 6, Historian._truncate_to),
    Kind("truncate_fully", 1, Historian._truncate_fully),
    Kind("configure", 3, Historian._configure),
)

NAMES = frozenset(kind.name for kind in OPERATIONS)
"""All kinds of operations."""
