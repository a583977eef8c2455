"""This engine's side of the comparison with Kafka: fill a log, clean it, by the judge's words."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from logstore import Broker, VirtualClock
from logstore.cleaner.config import CleanerConfig
from logstore.cleaner.passes.clean import clean_pass
from logstore.cleaner.selection import CleanableState, cleanable_state
from logstore.cleaner.stats import CleanerStats
from logstore.manager.topics import TopicStore
from logstore.record.batch import build_batch
from logstore.record.codecs import Codec
from logstore.record.records import Record
from logstore.runtime import DiskFileSystem
from logstore.storage.checkpoint.offsets import CLEANER_OFFSETS, OffsetCheckpoint
from logstore.storage.log import Log, NewRecord
from logstore.types import AppendOrigin, TopicPartition

Operation = Mapping[str, Any]


def open_broker(
    data_dir: Path,
    topic: str,
    config: Mapping[str, str],
    now_ms: int,
    broker_config: Mapping[str, str] | None = None,
    *,
    read_only: bool = False,
) -> Broker:
    """Open a data directory with `config` in force for its topic from the first moment.

    With `read_only` the topic must have been opened before, and keeps its configuration.
    """
    clock = VirtualClock(now_ms)
    if read_only:
        return Broker(data_dir, clock=clock, broker_config=broker_config, read_only=True)
    data_dir.mkdir(parents=True, exist_ok=True)
    store = TopicStore(DiskFileSystem(clock), str(data_dir))
    Path(store.path).unlink(missing_ok=True)
    TopicStore(DiskFileSystem(clock), str(data_dir)).create(topic, [0], config)
    return Broker(data_dir, clock=clock, broker_config=broker_config)


def write(
    data_dir: Path,
    topic: str,
    config: Mapping[str, str],
    now_ms: int,
    operations: Sequence[Operation],
) -> int:
    """Fill partition 0 as the judge's command `write` does; return the clock at the end."""
    with open_broker(data_dir, topic, config, now_ms) as broker:
        log = broker.log(topic)
        for operation in operations:
            _apply(log, broker.clock, operation)
        return broker.clock.now_ms()


def _apply(log: Log, clock: VirtualClock, operation: Operation) -> None:
    match operation["op"]:
        case "append":
            _append(log, operation)
        case "replicate":
            log.writer.append_batches(
                base64.b64decode(operation["batches"]), AppendOrigin.REPLICATION
            )
        case "leader_epoch":
            # A leader here takes its epoch from the newest batch, which follows in the story.
            assert log.leader_epoch <= operation["epoch"]
        case "lead":
            data = base64.b64decode(operation["batches"])
            log.writer.append_batches(data, AppendOrigin(operation["origin"]), operation["epoch"])
        case "roll":
            log.writer.roll()
        case "delete_before":
            log.offsets.maybe_increment_log_start_offset(operation["offset"])
        case "retain":
            log.delete_old_segments()
        case "expire":
            with log.lock:
                log.producer_state.remove_expired(clock.now_ms())
        case "advance":
            clock.advance(ms=operation["ms"])
        case other:
            raise ValueError(f"unknown operation {other}")


def _append(log: Log, operation: Operation) -> None:
    records = [_record(row) for row in operation["records"]]
    codec = Codec.from_name(operation.get("codec", "none"))
    epoch = operation.get("epoch", log.leader_epoch)
    if epoch == log.leader_epoch:
        log.writer.append_records(records, codec)
        return
    # A log that retention emptied has forgotten its epoch; its leader has not.
    placed = [
        Record(offset, each.timestamp, each.key, each.value, each.headers)
        for offset, each in enumerate(records)
    ]
    log.writer.append_batches(build_batch(placed, codec=codec), leader_epoch=epoch)


def _record(row: Sequence[Any]) -> NewRecord:
    timestamp, key, value, *headers = row
    named = tuple((name, _bytes(data)) for name, data in headers[0]) if headers else ()
    return NewRecord(_bytes(key), _bytes(value), timestamp, named)


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def clean_once(
    data_dir: Path,
    topic: str,
    config: Mapping[str, str],
    now_ms: int,
    cleaner: CleanerConfig,
) -> Cleaned:
    """Select and run one pass; write its checkpoint."""
    return clean_in_turns(data_dir, topic, config, now_ms, cleaner, [[]])[0]


class Cleaned(NamedTuple):
    """What selection measured, and the pass; None when there was nothing to clean."""

    state: CleanableState
    stats: CleanerStats | None


def clean_in_turns(
    data_dir: Path,
    topic: str,
    config: Mapping[str, str],
    now_ms: int,
    cleaner: CleanerConfig,
    turns: Sequence[Sequence[Operation]],
    before_pass: Callable[[Log, CleanableState], None] | None = None,
) -> list[Cleaned]:
    """Do as the judge's command `clean` with `turns`: a pass after each list of operations.

    Parameters
    ----------
    before_pass : callable, optional
        Called when something is about to be cleaned.
    """
    done: list[Cleaned] = []
    with open_broker(data_dir, topic, config, now_ms) as broker:
        log = broker.log(topic)
        checkpoint = OffsetCheckpoint(broker.runtime.fs, f"{data_dir}/{CLEANER_OFFSETS}")
        for operations in turns:
            for operation in operations:
                _apply(log, broker.clock, operation)
            stored = checkpoint.read().get(TopicPartition(topic, 0))
            state = cleanable_state(log, stored, broker.clock.now_ms())
            if not state.cleanable_bytes:
                done.append(Cleaned(state, None))
                continue
            if before_pass is not None:
                before_pass(log, state)
            stats = run_pass(log, cleaner, state)
            checkpoint.write({TopicPartition(topic, 0): stats.end_offset})
            done.append(Cleaned(state, stats))
    return done


def run_pass(
    log: Log, cleaner: CleanerConfig, state: CleanableState, *, dry_run: bool = False
) -> CleanerStats:
    """Run a pass to its end."""
    steps = clean_pass(
        log, cleaner, state.first_dirty_offset, state.upper_bound_offset, dry_run=dry_run
    )
    while True:
        try:
            next(steps)
        except StopIteration as done:
            stats: CleanerStats = done.value
            return stats


def kafka_stats(stats: CleanerStats) -> dict[str, int]:
    """Return the counters that Kafka counts too, by Kafka's names."""
    return {
        "mapBytesRead": stats.map_bytes_read,
        "mapMessagesRead": stats.map_messages_read,
        "bytesRead": stats.bytes_read,
        "messagesRead": stats.messages_read,
        "bytesWritten": stats.bytes_written,
        "messagesWritten": stats.messages_written,
        "invalidMessagesRead": stats.invalid_messages_read,
    }
