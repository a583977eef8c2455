"""Random histories of idempotent and transactional producers that write to a leader's log.

The clients and the coordinator of a `ProducersHistorian` know the log's state of them: most of
their requests are in order, and the rest is deliberately wrong in one way each. Histories run as in
`tests.interop.living`. Run by hand:

    python -m tests.interop.producing 0 500             # seeds, end exclusive
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from logstore.record.batch import RecordBatch, build_batch
from logstore.record.codecs import Codec
from logstore.record.control import ControlType, EndTxnMarker, build_end_txn_batch
from logstore.record.records import Record
from logstore.record.walk import walk_buffer
from logstore.storage.producers.state import PRODUCER_ID_EXPIRATION_MS
from logstore.types import INT32_MAX
from tests.interop.histories import INT64_MAX, Historian, Kind, Operation, deletes
from tests.interop.living import History, Tally, encoded
from tests.interop.seeds import main
from tests.support.interop.judge import Judge
from tests.support.interop.live import Left, State

RESENDABLE = 7
"""Batches a client may send again: more than the five that a log remembers."""

NEW_COORDINATOR = 0.3
"""Probability that a marker comes from a newly elected coordinator."""

Entry = dict[str, Any]
"""The log's state of a producer."""


@dataclass
class ProducersHistorian(Historian):
    """Generates the history of several producers.

    Every append has a leader epoch that the log knows, except plain ones that are never refused,
    and no segment fills up: a refused append rolls Kafka's log and moves its leader epoch, but not
    this engine's (see `test_differences.py`).
    """

    folded: bool = field(init=False)
    """Whether the topic may recompress, so that batches can be compared only decompressed."""

    near_wrap: bool = field(init=False)
    expiration_ms: int = field(init=False)
    sent: dict[int, deque[bytes]] = field(default_factory=dict)
    epochs_sent: dict[int, list[int]] = field(default_factory=dict)
    """Epochs of each producer, in the order of their first use."""

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.folded = self.rng.random() < 0.25
        self.near_wrap = self.rng.random() < 0.25
        self.expiration_ms = self._expiration()
        self.with_producers = True
        self.config = self._config()

    def _config(self) -> dict[str, str]:
        rng = self.rng
        codecs = ("gzip", "snappy", "lz4", "zstd") if self.folded else ()
        config = {
            "cleanup.policy": rng.choice(("delete", "delete", "compact")),
            "segment.bytes": "100000",
            "segment.index.bytes": "10000",
            "segment.ms": str(INT64_MAX),
            # With 0 every batch has an entry, at any position.
            "index.interval.bytes": "0" if self.folded else str(rng.choice((0, 1, 300, 4096))),
            "retention.ms": str(rng.choice((-1, 30_000, 1_000_000))),
            "retention.bytes": "-1" if self.folded else str(rng.choice((-1, -1, 3000))),
            "file.delete.delay.ms": str(rng.choice((0, 1000, 60_000))),
            "compression.type": rng.choice(("producer", "producer", "uncompressed", *codecs)),
            "message.timestamp.before.max.ms": str(rng.choice((INT64_MAX, INT64_MAX, 5000))),
            "message.timestamp.after.max.ms": str(rng.choice((INT64_MAX, 3_600_000))),
        }
        if not self.folded and rng.random() < 0.3:
            # The size of a recompressed batch depends on the codec; a plain one always fits.
            config["max.message.bytes"] = str(rng.choice((300, 400, 600)))
        if rng.random() < 0.2:
            config["message.timestamp.type"] = "LogAppendTime"
        if rng.random() < 0.2:
            config["flush.messages"] = str(rng.choice((1, 5, 20)))
        return config

    def _expiration(self) -> int:
        return self.rng.choice((PRODUCER_ID_EXPIRATION_MS, 5000, 60_000))

    # -- operations ----------------------------------------------------------------------

    def begin(self) -> Left:
        return Left(producer_id_expiration_ms=self.expiration_ms)

    def kinds(self) -> Sequence[Kind]:
        return KINDS

    def next(self, state: State) -> Operation:
        if not state["epochs"]:
            return {"op": "append", "what": "plain", **self._plain(state)}
        report = super().next(state)
        if "batches" not in report:
            return report
        return {
            **report,
            "op": "end_transaction" if _is_end(report) else "append",
            "what": report["op"],
        }

    def _plain(self, state: State) -> Operation:
        """Append without a producer: never refused, and so free to bring a new leader epoch."""
        epoch = state["epochs"][-1][0] if state["epochs"] else self.epoch
        if self.rng.random() < 0.2:
            epoch += self.rng.randint(1, 3)
        self.epoch = max(self.epoch, epoch)
        records = [Record(0, self.now_ms, b"plain", b"v" * self.rng.randrange(50), ())]
        return self._as_leader(build_batch(records), self.epoch)

    def _in_order(self, state: State) -> Operation:
        producer_id, entry = self._any(state)
        return self._send(state, producer_id, entry)

    def _again(self, state: State) -> Operation:
        """Send one of the last seven batches of a producer again."""
        if not self.sent:
            return self._in_order(state)
        producer_id = self.rng.choice(sorted(self.sent))
        batch = self.rng.choice(self.sent[producer_id])
        return self._as_leader(batch, state["epochs"][-1][0])

    def _out_of_order(self, state: State) -> Operation:
        producer_id, entry = self._any(state)
        step = self.rng.choice((1, 2, 100, -1, -2, -9))
        sequence = max(0, min(INT32_MAX, self._sequence(entry) + step))
        return self._send(state, producer_id, entry, sequence=sequence)

    def _next_epoch(self, state: State) -> Operation:
        producer_id, entry = self._any(state)
        epoch = self._new_epoch(producer_id, entry)
        sequence = self.rng.choice((0, 0, 0, self._sequence(entry)))
        return self._send(state, producer_id, entry, epoch=epoch, sequence=sequence)

    def _former_epoch(self, state: State) -> Operation:
        """Let a forgotten producer return, often with an epoch that it had left."""
        known = _known(state)
        forgotten = [each for each in self.epochs_sent if each not in known]
        if not forgotten:
            return self._next_epoch(state)
        producer_id = self.rng.choice(forgotten)
        epoch = self.rng.choice(self.epochs_sent[producer_id])
        if self.rng.random() < 0.3:
            return self._marker(state, producer_id, None, epoch=epoch)
        return self._send(state, producer_id, None, epoch=epoch)

    def _older_epoch(self, state: State) -> Operation:
        producer_id, entry = self._any(state)
        known = self._known_epoch(producer_id, entry)
        epoch = max(0, known - 1) if entry else known
        return self._send(state, producer_id, entry, epoch=epoch)

    def _other_kind(self, state: State) -> Operation:
        """Append outside the open transaction, or in one where the others are idempotent."""
        producer_id, entry = self._in_transaction(state) or self._any(state)
        transactional = not (_is_open(entry) or _is_transactional(producer_id))
        return self._send(state, producer_id, entry, transactional=transactional)

    def _no_client_s(self, state: State) -> Operation:
        """Send a batch that no client may: a marker, or a producer's records without a sequence."""
        producer_id, entry = self._any(state)
        if self.rng.random() < 0.5:
            epoch = self._known_epoch(producer_id, entry)
            kind = self.rng.choice((ControlType.COMMIT, ControlType.ABORT))
            marker = build_end_txn_batch(
                producer_id, epoch, EndTxnMarker(kind, 0), self.now_ms
            ).data
            return self._as_leader(marker, state["epochs"][-1][0])
        return self._send(state, producer_id, entry, sequence=-1, remember=False)

    def _end(self, state: State) -> Operation:
        producer_id, entry = self._in_transaction(state) or self._any(state)
        return self._marker(state, producer_id, entry)

    def _end_nothing(self, state: State) -> Operation:
        """End the transaction of a producer that has none here, perhaps of one unknown."""
        producer_id, entry = self._any(state)
        return self._marker(state, producer_id, entry)

    def _end_as_former_coordinator(self, state: State) -> Operation:
        producer_id, entry = self._in_transaction(state) or self._any(state)
        known = entry["coordinator_epoch"] if entry else 0
        return self._marker(state, producer_id, entry, coordinator_epoch=max(0, known - 1))

    def _end_of_other_epoch(self, state: State) -> Operation:
        producer_id, entry = self._in_transaction(state) or self._any(state)
        if entry is None or self.rng.random() < 0.5:
            epoch = self._new_epoch(producer_id, entry)
        else:
            epoch = max(0, entry["epoch"] - 1)
        return self._marker(state, producer_id, entry, epoch=epoch)

    def _start_offset(self, state: State) -> Operation:
        offset = self._inside(state)
        return super()._start_offset(state) if offset is None else {"offset": offset}

    def _truncate_to(self, state: State) -> Operation:
        offset = self._inside(state)
        return super()._truncate_to(state) if offset is None else {"offset": offset}

    def stop(self, state: State) -> Left:
        left = super().stop(state)
        if self.rng.random() < 0.3:
            self.expiration_ms = self._expiration()
        return left._replace(producer_id_expiration_ms=self.expiration_ms)

    # -- choices of producers and values -------------------------------------------------

    def _any(self, state: State) -> tuple[int, Entry | None]:
        """Choose a producer, known or not."""
        producer_id = self.rng.choice((*range(5), self.rng.choice((7000, 7001, 2**40 + 1))))
        return producer_id, _known(state).get(producer_id)

    def _in_transaction(self, state: State) -> tuple[int, Entry] | None:
        open_now = [entry for entry in state["producers"] if _is_open(entry)]
        if not open_now:
            return None
        entry = self.rng.choice(open_now)
        return entry["producer_id"], entry

    def _inside(self, state: State) -> int | None:
        """Sometimes choose an offset after the first record of a producer or transaction."""
        firsts = [
            first
            for entry in state["producers"]
            for first in (
                entry["transaction_first_offset"],
                *(b[1] - b[2] for b in entry["batches"]),
            )
            if first is not None and state["log_start_offset"] <= first < state["log_end_offset"]
        ]
        if not firsts or self.rng.random() < 0.5:
            return None
        return self.rng.choice(firsts) + self.rng.choice((0, 1, 1))

    def _sequence(self, entry: Entry | None) -> int:
        """Return the next sequence; for an unknown producer, any."""
        if entry is None:
            if self.near_wrap:
                return INT32_MAX - self.rng.randrange(12)
            return self.rng.choice((0, 0, self.rng.randrange(1000)))
        last: int = entry["batches"][-1][0] if entry["batches"] else -1
        return 0 if last == INT32_MAX else last + 1

    def _known_epoch(self, producer_id: int, entry: Entry | None) -> int:
        """Return the epoch a producer is in, or was in before the log forgot it."""
        epoch: int = entry["epoch"] if entry else (self.epochs_sent.get(producer_id) or [0])[-1]
        return max(0, epoch)  # none is known of a producer whose marker compaction emptied

    def _new_epoch(self, producer_id: int, entry: Entry | None) -> int:
        """Return an epoch never used; a lower one, too, where the log forgot the producer."""
        used = self.epochs_sent.get(producer_id, [])
        lowest = entry["epoch"] + 1 if entry else 0
        free = [epoch for epoch in range(lowest, max(used, default=0) + 3) if epoch not in used]
        return self.rng.choice(free[:2])

    def _use(self, producer_id: int, epoch: int) -> None:
        used = self.epochs_sent.setdefault(producer_id, [])
        if epoch not in used:
            used.append(epoch)

    def _send(
        self,
        state: State,
        producer_id: int,
        entry: Entry | None,
        *,
        epoch: int | None = None,
        sequence: int | None = None,
        transactional: bool | None = None,
        remember: bool = True,
    ) -> Operation:
        rng = self.rng
        if epoch is None:
            epoch = self._known_epoch(producer_id, entry)
        if transactional is None:
            transactional = _is_open(entry) or _is_transactional(producer_id)
        self._use(producer_id, epoch)
        count = rng.choice((1, 1, 2, 4, 9))
        batch = build_batch(
            [self._record(slot) for slot in range(count)],
            codec=rng.choice((*Codec, Codec.NONE, Codec.NONE)),
            producer_id=producer_id, producer_epoch=epoch,
            base_sequence=self._sequence(entry) if sequence is None else sequence,
            is_transactional=transactional,
        )  # fmt: skip
        if remember:
            self.sent.setdefault(producer_id, deque(maxlen=RESENDABLE)).append(batch)
        self.batch_ends.append(state["log_end_offset"] + count - 1)
        return self._as_leader(batch, state["epochs"][-1][0])

    def _marker(
        self,
        state: State,
        producer_id: int,
        entry: Entry | None,
        *,
        epoch: int | None = None,
        coordinator_epoch: int | None = None,
    ) -> Operation:
        if epoch is None:
            epoch = self._known_epoch(producer_id, entry)
        self._use(producer_id, epoch)
        if coordinator_epoch is None:
            coordinator_epoch = max(0, entry["coordinator_epoch"]) if entry else 0
            coordinator_epoch += self.rng.random() < NEW_COORDINATOR
        kind = self.rng.choice((ControlType.COMMIT, ControlType.ABORT))
        batch = build_end_txn_batch(
            producer_id, epoch, EndTxnMarker(kind, coordinator_epoch), self.now_ms
        ).data
        return self._as_leader(batch, state["epochs"][-1][0])

    @staticmethod
    def _as_leader(batch: bytes, epoch: int) -> Operation:
        return {"batches": encoded(batch), "epoch": epoch}

    def _record(self, offset: int) -> Record:
        record = super()._record(offset)
        return record._replace(key=None) if self.rng.random() < 0.01 else record

    def _timestamp(self) -> int:
        rng = self.rng
        return rng.choice(
            (self.now_ms,) * 12
            + (self.now_ms - rng.randint(0, 9000), self.now_ms + rng.randint(0, 3000), -1)
            + ((self.now_ms + 4_000_000,) if rng.random() < 0.1 else ())
        )


def _known(state: State) -> dict[int, Entry]:
    return {entry["producer_id"]: entry for entry in state["producers"]}


def _is_open(entry: Entry | None) -> bool:
    return entry is not None and entry["transaction_first_offset"] is not None


def _is_transactional(producer_id: int) -> bool:
    return producer_id % 2 == 1


def _is_end(operation: Operation) -> bool:
    return str(operation["op"]).startswith("end")


_P = ProducersHistorian

KINDS = (
    Kind("in order", 40, _P._in_order),
    Kind("again", 12, _P._again),
    Kind("out of order", 5, _P._out_of_order),
    Kind("next epoch", 5, _P._next_epoch),
    Kind("former epoch", 5, _P._former_epoch),
    Kind("older epoch", 3, _P._older_epoch),
    Kind("other kind", 3, _P._other_kind),
    Kind("no client's", 2, _P._no_client_s),
    Kind("plain", 5, _P._plain),
    Kind("end", 18, _P._end),
    Kind("end nothing", 3, _P._end_nothing),
    Kind("end as former coordinator", 3, _P._end_as_former_coordinator),
    Kind("end of other epoch", 3, _P._end_of_other_epoch),
    Kind("expire", 5, _P._nothing),
    Kind("roll", 6, _P._nothing),
    Kind("flush", 2, _P._nothing),
    Kind("advance", 7, _P._advance),
    Kind("retain", 4, _P._nothing),
    Kind("increment_log_start", 2, _P._start_offset),
    Kind("delete_records", 2, _P._delete_records, deletes),
    Kind("truncate_to", 4, _P._truncate_to),
    Kind("truncate_fully", 1, _P._truncate_fully),
    Kind("configure", 2, _P._configure),
)

NAMES = frozenset(kind.name for kind in KINDS)
"""All kinds of operations."""

ERRORS = frozenset(
    {
        "OUT_OF_ORDER_SEQUENCE_NUMBER", "INVALID_PRODUCER_EPOCH", "INVALID_TXN_STATE",
        "TRANSACTION_COORDINATOR_FENCED", "INVALID_RECORD", "INVALID_TIMESTAMP",
        "MESSAGE_TOO_LARGE",
    }
)  # fmt: skip
"""Errors of refused appends."""

DAMAGES = ("no snapshot", "newest snapshot missing", "a snapshot missing", "damaged snapshot")


class ProducersHistory(History):
    """One seed's producers, lived with by two engines."""

    def __init__(self, seed: int, judge: Judge, scratch: Path) -> None:
        historian = ProducersHistorian(seed)
        super().__init__(seed, judge, scratch, historian)
        self.folded = historian.folded

    def _damage(self, state: State, left: Left) -> None:
        """Remove snapshots or damage the newest, at most one of these."""
        if self.rng.random() < 0.4:
            return
        name = self.rng.choice(DAMAGES)
        offsets = sorted(path.name for path in self._folder(self.ours).glob("*.snapshot"))
        chosen = {
            "no snapshot": offsets,
            "a snapshot missing": self.rng.sample(offsets, min(1, len(offsets))),
        }.get(name, offsets[-1:])
        self.told.append(f"damage: {name} {chosen}")
        self.tally.damages[name] += 1
        for live in (self.kafka, self.ours):
            for each in chosen:
                path = self._folder(live) / each
                if name == "damaged snapshot":
                    path.write_bytes(path.read_bytes()[:-1] + b"\xee")
                else:
                    path.unlink()

    def _bounded(self, state: State) -> State:
        if not self.folded:
            return state
        return state | {"segments": [[base, size > 0] for base, size in state["segments"]]}

    def _content(self, name: str, data: bytes) -> object:
        """Return the part that must be equal: decompressed batches, and offsets with entries."""
        if self.folded and name.endswith(".log"):
            return [_unfolded(batch) for batch in walk_buffer(data)]
        if self.folded and name.endswith(".index"):
            return [data[at : at + 4] for at in range(0, len(data), 8)]
        return data


def _unfolded(batch: RecordBatch) -> tuple[object, ...]:
    batch.ensure_valid()
    return batch.header._replace(batch_length=0, crc=0), batch.records()


def live(seed: int, judge: Judge, scratch: Path) -> Tally:
    """Live one history of producers."""
    return ProducersHistory(seed, judge, scratch).live()


if __name__ == "__main__":
    main(live, Tally())
