"""This engine's view of a log directory in the format of Kafka's judge, and the differences.

`view_of` opens a copy of the directory as `Broker` does, describes its contents with the judge's
names and shapes, and closes it cleanly. `differences` compares the two field by field.
"""

from __future__ import annotations

import base64
import hashlib
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from logstore.record.batch import RecordBatch
from logstore.record.records import Record
from logstore.storage.checkpoint.offsets import (
    CLEANER_OFFSETS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    REPLICATION_OFFSETS,
)
from logstore.storage.checkpoint.shutdown import CLEAN_SHUTDOWN
from logstore.storage.checkpoint.topic_id import PARTITION_METADATA
from logstore.storage.log import Log
from logstore.storage.log.reader import Isolation
from logstore.storage.producers.snapshot import ENTRY_SIZE
from logstore.storage.producers.snapshot import HEADER_SIZE as SNAPSHOT_HEADER_SIZE
from logstore.storage.segment import LogSegment
from tests.support.interop.engine import open_broker
from tests.support.world.golden_dirs import batch_line

CHECKPOINTS = (RECOVERY_POINTS, LOG_START_OFFSETS, REPLICATION_OFFSETS, CLEANER_OFFSETS)

INLINE_BYTES = 4096
"""Longer byte values are given by their digest."""


def view_of(
    data_dir: Path,
    scratch: Path,
    topic: str,
    config: Mapping[str, str],
    now_ms: int,
    *,
    clean: bool | None = None,
    records: bool = True,
) -> dict[str, Any]:
    """Open a copy of `data_dir` in `scratch` and describe it as the judge does.

    Parameters
    ----------
    clean : bool, optional
        Overrules how the directory says it was left.
    """
    copy = scratch / "ours"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(data_dir, copy)
    marker = copy / CLEAN_SHUTDOWN
    if clean is not None:
        marker.unlink(missing_ok=True)
        if clean:
            marker.write_text('{"version":0,"brokerEpoch":-1}')
    folder = copy / f"{topic}-0"
    view: dict[str, Any] = {"was_clean": marker.exists()}
    given = _listing(folder)
    with open_broker(copy, topic, config, now_ms) as broker:
        log = broker.log(topic)
        loaded = _listing(folder)
        view |= describe(log, records=records)
        view |= {"gaps": gaps_of(log), "emptied": _emptied(log)}
    closed = [[name, size, _digest(folder / name)] for name, size in _listing(folder)]
    view["files"] = {"given": given, "loaded": loaded, "closed": closed}
    view["checkpoints"] = {name: _checkpoint(copy / name, topic) for name in CHECKPOINTS}
    return view


def _digest(path: Path) -> str:
    data = path.read_bytes()
    if path.suffix == ".snapshot":
        data = sorted_snapshot(data)
    return hashlib.sha256(data).hexdigest()


def sorted_snapshot(data: bytes) -> bytes:
    """Return a producer snapshot without its CRC, its entries sorted.

    In the file they have the order of a hash table, which means nothing.
    """
    head, body = data[:SNAPSHOT_HEADER_SIZE], data[SNAPSHOT_HEADER_SIZE:]
    entries = (body[at : at + ENTRY_SIZE] for at in range(0, len(body), ENTRY_SIZE))
    return b"".join((head[:2], head[6:], *sorted(entries)))


def describe(log: Log, *, records: bool = True) -> dict[str, Any]:
    """Describe an open log."""
    return {
        "log_start_offset": log.log_start_offset,
        "log_end_offset": log.log_end_offset,
        "high_watermark": log.high_watermark,
        "last_stable_offset": log.last_stable_offset,
        "recovery_point": log.recovery_point,
        "epochs": [list(entry) for entry in log.epochs.entries],
        "producers": producers_of(log),
        "aborted": _aborted(log),
        "segments": [_segment(segment) for segment in log.segments],
        "batches": [
            batch_line(segment, segment.read_batch(at))
            for segment in log.segments
            for at in segment.batches()
        ],
        "records": list(_records(log)) if records else None,
        "committed": [
            {"offset": record.offset}
            for _, record in log.reader.records(
                log.log_start_offset, isolation=Isolation.READ_COMMITTED
            )
        ]
        if records
        else None,
    }


def producers_of(log: Log) -> list[dict[str, Any]]:
    """Return a log's producer state by producer id."""
    return [
        {
            "producer_id": producer.producer_id,
            "epoch": producer.producer_epoch,
            "coordinator_epoch": producer.coordinator_epoch,
            "last_timestamp": producer.last_timestamp,
            "transaction_first_offset": producer.current_txn_first_offset,
            "batches": [list(batch) for batch in producer.batches],
        }
        for producer in sorted(log.producer_state.entries(), key=lambda each: each.producer_id)
    ]


def _segment(segment: LogSegment) -> dict[str, Any]:
    segment.txn_index.sanity_check()
    return {
        "base_offset": segment.base_offset,
        "size": segment.size_bytes,
        "largest_timestamp": segment.largest_timestamp,
        "next_offset": segment.read_next_offset(),
        "offset_index": [list(entry) for entry in segment.offset_index],
        "time_index": [list(entry) for entry in segment.time_index],
        "txn_index": [
            [txn.producer_id, txn.first_offset, txn.last_offset, txn.last_stable_offset]
            for txn in segment.txn_index.entries()
        ],
        "sanity": [],
    }


def _aborted(log: Log) -> list[list[int]]:
    result = []
    for segment in log.segments.from_offset(log.log_start_offset):
        transactions, complete = segment.collect_aborted_txns(
            log.log_start_offset, log.log_end_offset
        )
        result += [[each.producer_id, each.first_offset] for each in transactions]
        if complete:
            break
    return result


def _records(log: Log) -> Iterable[dict[str, Any]]:
    """Every record from the log start to the log end, including markers, through the reader."""
    for batch in log.reader.batches(log.log_start_offset, isolation=Isolation.LOG_END):
        for record in batch.records():
            if record.offset >= log.log_start_offset:
                yield _record(batch, record)


def _record(batch: RecordBatch, record: Record) -> dict[str, Any]:
    return {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "timestamp_type": int(batch.header.timestamp_type),
        "key": _bytes(record.key),
        "value": _bytes(record.value),
        "headers": [[name, _bytes(value)] for name, value in record.headers],
        "batch_base_offset": batch.header.base_offset,
        "is_control": batch.header.is_control,
    }


def _bytes(data: bytes | None) -> str | dict[str, Any] | None:
    if data is None:
        return None
    if len(data) <= INLINE_BYTES:
        return base64.b64encode(data).decode()
    return {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}


def _listing(folder: Path) -> list[list[Any]]:
    return [[path.name, path.stat().st_size] for path in sorted(folder.iterdir())]


def _comparable(files: Mapping[str, Any]) -> dict[str, Any]:
    """Omit irrelevant parts: an empty epoch file, an id that only one side has.

    Kafka's classes receive no topic ids; this engine gives each stored topic one.
    """
    return {
        when: [
            file
            for file in listing
            if file[0] != PARTITION_METADATA and file[:2] != ["leader-epoch-checkpoint", 0]
        ]
        for when, listing in files.items()
    }


def _checkpoint(path: Path, topic: str) -> int:
    if path.exists():
        for line in path.read_text().splitlines()[2:]:
            name, partition, offset = line.split()
            if (name, partition) == (topic, "0"):
                return int(offset)
    return -1


# -- comparing -----------------------------------------------------------------------------------


_ONE_SIDED = ("kafka_version", "dump", "dump_closed", "gaps", "emptied")


def differences(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> list[str]:
    """Return one line for each differing field, with the first difference."""
    result = []
    for name in theirs.keys() | ours.keys():
        if name in _ONE_SIDED:
            continue
        left, right = theirs.get(name), ours.get(name)
        if name == "segments":
            left, right = _without_file_times(left), _without_file_times(right)
        if name == "files":
            left, right = _comparable(left), _comparable(right)
        place = _first_difference(left, right, name)
        if place is not None:
            result.append(place)
    return sorted(result)


def _without_file_times(segments: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Leave out how old an empty segment is: its file may be new, and then the dates differ."""
    return [each if each["size"] else {**each, "largest_timestamp": None} for each in segments]


def _first_difference(theirs: Any, ours: Any, place: str) -> str | None:
    if theirs == ours:
        return None
    if isinstance(theirs, Mapping) and isinstance(ours, Mapping):
        for name in sorted(theirs.keys() | ours.keys()):
            if theirs.get(name) != ours.get(name):
                return _first_difference(theirs.get(name), ours.get(name), f"{place}.{name}")
    if isinstance(theirs, list) and isinstance(ours, list):
        for slot, (left, right) in enumerate(zip(theirs, ours, strict=False)):
            if left != right:
                return _first_difference(left, right, f"{place}[{slot}]")
        longer, who = (theirs, "Kafka") if len(theirs) > len(ours) else (ours, "this engine")
        shorter = min(len(theirs), len(ours))
        return f"{place}: only {who} has [{shorter}] {longer[shorter]!r:.300}"
    return f"{place}: Kafka {theirs!r:.300}, this engine {ours!r:.300}"


# -- the dump tool -------------------------------------------------------------------------------

_GAPS = "Non-consecutive offsets in "
_TIMES = "Found timestamp mismatch in :"
_OTHER_TIME = re.compile(r"  Index timestamp: (-?\d+), log timestamp: (-?\d+)")


def complaints(dump: Mapping[str, Any], ours: Mapping[str, Any]) -> list[str]:
    """Return the dump tool's complaints, except those expected of a cleaned log.

    Two complaints are about healthy logs: offsets missing between records, of which it must name
    exactly those of `ours` (Kafka 4 also counts from -1 to a segment's first), and the time of a
    batch with only its header left, which the tool searches among the records.
    """
    result: list[str] = []
    gaps: dict[str, set[tuple[int, int]]] = {}
    lines = iter(dump["complaints"])
    name = about = None
    for line in lines:
        if line.startswith((_GAPS, _TIMES)):
            about, path = (_GAPS, line[len(_GAPS) :]) if line.startswith(_GAPS) else (
                _TIMES, line[len(_TIMES) :]
            )  # fmt: skip
            name = Path(path).stem
        elif about is _GAPS and " is followed by " in line:
            before, after = map(int, line.split(" is followed by "))
            if before != -1:
                gaps.setdefault(name, set()).add((before, after))
        elif about is _TIMES and (times := _OTHER_TIME.fullmatch(line)):
            indexed, stored = map(int, times.groups())
            if stored != -1 or indexed not in ours["emptied"].get(name, ()):
                result.append(f"{name}: {line.strip()}")
        else:
            about = None
            result.append(line)
    if gaps != ours["gaps"]:
        result.append(f"offsets missing: the tool says {gaps}, this engine {ours['gaps']}")
    if dump["indexes_passed"] != dump["indexes"]:
        result.append(f"{dump['indexes_passed']} of {dump['indexes']} indexes passed their check")
    return result


def gaps_of(log: Log) -> dict[str, set[tuple[int, int]]]:
    """Return the offsets missing between the records of each segment, as (before, after)."""
    gaps: dict[str, set[tuple[int, int]]] = {}
    for segment in log.segments:
        before = None
        for at in segment.batches():
            for record in segment.read_batch(at).records():
                if before is not None and record.offset != before + 1:
                    gaps.setdefault(Path(segment.log_path).stem, set()).add((before, record.offset))
                before = record.offset
    return gaps


def _emptied(log: Log) -> dict[str, set[int]]:
    """Return the times of batches without records, by segment."""
    times: dict[str, set[int]] = {}
    for segment in log.segments:
        for at in segment.batches():
            if at.header.record_count == 0:
                times.setdefault(Path(segment.log_path).stem, set()).add(at.header.max_timestamp)
    return times
