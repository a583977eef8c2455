"""One log that both engines keep open, driven by the same operations.

`KafkaLive` speaks to the judge, `OurLive` to this engine; both answer an operation with what it
returned, how it was refused, and the state of the log after it, in the same words.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from logstore.config.overrides import effective_config
from logstore.errors import LogStoreError
from logstore.runtime import DiskFileSystem, Runtime, VirtualClock
from logstore.storage.loading.loader import open_log
from logstore.storage.loading.request import LoadRequest
from logstore.storage.log import Log
from logstore.storage.producers.state import PRODUCER_ID_EXPIRATION_MS
from logstore.types import AppendOrigin, TopicPartition
from tests.support.interop.judge import Judge
from tests.support.interop.view import producers_of

TOPIC = "live"

Operation = Mapping[str, Any]
State = dict[str, Any]

KAFKA_NAMES = {
    "OffsetOutOfRangeError": "OffsetOutOfRangeException",
    "RecordListTooLargeError": "RecordBatchTooLargeException",
    "MessageSizeTooLargeError": "RecordTooLargeException",
    "InvalidTxnStateError": "InvalidTxnStateException",
    "InvalidRecordError": "InvalidRecordException",
    "InvalidTimestampError": "InvalidTimestampException",
    "InvalidProducerEpochError": "InvalidProducerEpochException",
    "OutOfOrderSequenceNumberError": "OutOfOrderSequenceException",
    "TransactionCoordinatorFencedError": "TransactionCoordinatorFencedException",
    "ValueError": "IllegalArgumentException",
}
"""Kafka's exceptions by the names of ours."""


class Left(NamedTuple):
    """How a directory was left, by its checkpoints."""

    clean: bool = True
    recovery_point: int = 0
    log_start: int = 0
    producer_id_expiration_ms: int = PRODUCER_ID_EXPIRATION_MS
    """The broker's setting at the next start."""


class KafkaLive:
    """Kafka's UnifiedLog in the judge's process."""

    def __init__(self, judge: Judge, data_dir: Path) -> None:
        self.judge = judge
        self.data_dir = data_dir
        self.unbounded: State = {}
        """The last answer as it came."""

    def open(self, config: Mapping[str, str], now_ms: int, left: Left) -> State:
        return self._ask("open", config=dict(config), now=now_ms, **left._asdict())

    def apply(self, operation: Operation) -> State:
        return self._ask("apply", operation=operation)

    def close(self, *, abandon: bool) -> None:
        self._ask("close", abandon=abandon)

    def _ask(self, command: str, **arguments: Any) -> State:
        self.unbounded = self.judge.ask(command, self.data_dir, TOPIC, **arguments)
        return bounded(self.judge, dict(self.unbounded))


def bounded(judge: Judge, state: State) -> State:
    """Raise the last stable offset to the log start, which Kafka 4.4.0 lets it fall behind.

    It takes the base of the batch that holds the log start if a transaction is open there.
    """
    if judge.kafka_version.startswith("4."):
        floor = state["log_start_offset"]
        state["last_stable_offset"] = max(state["last_stable_offset"], floor)
    return state


class OurLive:
    """This engine's log."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self._log: Log | None = None
        self._clock = VirtualClock()

    def open(self, config: Mapping[str, str], now_ms: int, left: Left) -> State:
        self._clock = VirtualClock(now_ms)
        folder = self.data_dir / f"{TOPIC}-0"
        folder.mkdir(parents=True, exist_ok=True)
        self._log = open_log(
            Runtime(self._clock, DiskFileSystem(self._clock), random.Random(0)),
            LoadRequest(
                directory=str(folder),
                topic_partition=TopicPartition(TOPIC, 0),
                config=effective_config(config),
                clean=left.clean,
                recovery_point=left.recovery_point,
                log_start_offset=left.log_start,
                producer_id_expiration_ms=left.producer_id_expiration_ms,
            ),
        )
        return self._state()

    def apply(self, operation: Operation) -> State:
        result = refused = error_name = message = None
        try:
            result = self._run(operation)
        except (LogStoreError, ValueError) as error:
            name = "ValueError" if type(error) is ValueError else type(error).__name__
            refused, message = KAFKA_NAMES.get(name, name), str(error)
            error_name = getattr(error, "kafka_error", LogStoreError.kafka_error)
        self._log.delete_expired_files()
        return self._state() | {
            "result": result, "refused": refused, "error": error_name, "message": message,
        }  # fmt: skip

    def _run(self, operation: Operation) -> Any:
        log = self._log
        match operation["op"]:
            case "append":
                return self._append(operation, AppendOrigin.CLIENT)
            case "end_transaction":
                return self._append(operation, AppendOrigin.COORDINATOR)
            case "expire":
                with log.lock:
                    log.producer_state.remove_expired(self._clock.now_ms())
            case "replicate":
                log.writer.append_batches(_batches(operation), AppendOrigin.REPLICATION)
            case "roll":
                log.writer.roll()
            case "flush":
                log.flush()
            case "advance":
                self._clock.advance(ms=operation["ms"])
            case "configure":
                log.set_config(effective_config(operation["config"]))
            case "retain":
                return len(log.delete_old_segments().removed)
            case "increment_log_start":
                return log.offsets.maybe_increment_log_start_offset(operation["offset"])
            case "delete_records":
                return log.delete_records(operation["offset"])
            case "truncate_to":
                return log.truncate_to(operation["offset"])
            case "truncate_fully":
                log.truncate_fully_and_start_at(operation["offset"], operation.get("log_start"))
            case other:
                raise AssertionError(f"unknown operation {other}")
        return None

    def _append(self, operation: Operation, origin: AppendOrigin) -> list[int]:
        info = self._log.writer.append_batches(_batches(operation), origin, operation["epoch"])
        return [info.first_offset, info.last_offset, info.log_append_time]

    def _state(self) -> State:
        log = self._log
        return {
            "log_start_offset": log.log_start_offset,
            "log_end_offset": log.log_end_offset,
            "high_watermark": log.high_watermark,
            "last_stable_offset": log.last_stable_offset,
            "recovery_point": log.recovery_point,
            "segments": [[segment.base_offset, segment.size_bytes] for segment in log.segments],
            "epochs": [list(entry) for entry in log.epochs.entries],
            "producers": producers_of(log),
            "producers_end_offset": log.producer_state.map_end_offset,
        }

    def active_bytes(self) -> dict[str, int]:
        """Return the bytes written to the active segment's `.log` and sparse indexes, by name.

        While a segment is active its files are longer than that.
        """
        active = self._log.active_segment
        written = {
            Path(index.path).name: index.size_bytes if index.exists_on_disk else 0
            for index in (active.offset_index, active.time_index)
        }
        return written | {Path(active.log_path).name: active.size_bytes}

    def close(self, *, abandon: bool) -> None:
        self._log.close()
        self._log = None


Live = KafkaLive | OurLive
"""An engine with one log open."""


def _batches(operation: Operation) -> bytes:
    return base64.b64decode(operation["batches"])
