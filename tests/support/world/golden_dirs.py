"""The golden directories written by Kafka (tests/data/README.md): names, contents, copies."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

from logstore.config.broker_config import BrokerConfig
from logstore.inspect.batches import describe_batch
from logstore.manager.manager import LogManager
from logstore.record.batch import RecordBatch
from logstore.record.records import Record
from logstore.runtime import (
    DiskFileSystem,
    FileSystem,
    MemoryFileSystem,
    OverlayFileSystem,
    ReadOnlyFileSystem,
    Runtime,
    VirtualClock,
)
from logstore.storage.checkpoint.atomic import read_bytes
from logstore.storage.log import Log
from logstore.storage.segment import LogSegment
from logstore.types import TopicPartition

ROOT = Path(__file__).resolve().parents[2] / "data" / "kafka-3.9"
TP = TopicPartition("golden", 0)

READ_CASES = tuple(sorted(path.parent.name for path in ROOT.glob("*/data")))
CLEAN_CASES = tuple(sorted(path.parent.name for path in ROOT.glob("clean-*/before")))


def manifest(case: str) -> dict[str, Any]:
    """Return a case's manifest."""
    return json.loads((ROOT / case / "manifest.json").read_text())


def lines(case: str, name: str) -> list[Any]:
    """Return the items of one of a case's `.jsonl` files."""
    return [json.loads(line) for line in (ROOT / case / name).read_text().splitlines()]


def encoded(data: bytes | None) -> object:
    """Return bytes as the `.jsonl` files show them."""
    if data is None:
        return None
    if len(data) > 4096:
        return {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
    return base64.b64encode(data).decode()


def record_line(record: Record, batch: Any) -> dict[str, object]:
    """Return a record as `records.jsonl` shows it."""
    return {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "timestamp_type": int(batch.header.timestamp_type),
        "key": encoded(record.key),
        "value": encoded(record.value),
        "headers": [[name, encoded(value)] for name, value in record.headers],
        "batch_base_offset": batch.header.base_offset,
        "is_control": batch.header.is_control,
    }


def batch_lines(segment: LogSegment) -> list[dict[str, object]]:
    """Return a segment's batches as `batches.jsonl` shows them."""
    return [batch_line(segment, segment.read_batch(at)) for at in segment.batches()]


def batch_line(segment: LogSegment, batch: RecordBatch) -> dict[str, object]:
    """Return a batch as `batches.jsonl` shows it: as `inspect` does, but for two fields."""
    return {
        "segment": segment.base_offset,
        **describe_batch(batch, batch.position),
        "timestampType": int(batch.header.timestamp_type),
        "compresscodec": batch.codec.name.lower(),
    }


def copy_to_memory(data_dir: Path, clock: VirtualClock) -> MemoryFileSystem:
    """Return the files of a data directory, below `/data`, in memory."""
    fs = MemoryFileSystem(clock)
    fs.make_dirs("/data")
    for path in sorted(data_dir.rglob("*")):
        target = f"/data/{path.relative_to(data_dir)}"
        if path.is_dir():
            fs.make_dirs(target)
        else:
            file = fs.open(target, create=True)
            file.append([path.read_bytes()])
            file.close()
    return fs


def open_read_only(data_dir: Path, clock: VirtualClock) -> tuple[LogManager, Log]:
    """Open a data directory in place without changing it."""
    fs = OverlayFileSystem(ReadOnlyFileSystem(DiskFileSystem()), clock)
    manager = LogManager(Runtime(clock, fs), [str(data_dir)], BrokerConfig(), read_only=True)
    return manager, manager.log(TP)


def open_writable(
    fs: FileSystem,
    clock: VirtualClock,
    path: str = "/data",
    broker_config: BrokerConfig | None = None,
) -> LogManager:
    """Open a copy of a data directory for writing."""
    return LogManager(Runtime(clock, fs), [path], broker_config or BrokerConfig())


def broker_config_of(case: str) -> BrokerConfig:
    """Return a case's topic settings as the broker's defaults, where that is possible."""
    keys = {"index.interval.bytes": "log.index.interval.bytes"}
    settings = manifest(case)["config"]
    return BrokerConfig.from_properties(
        {broker: settings[key] for key, broker in keys.items() if key in settings}
    )


def tree(fs: FileSystem, path: str = "/data") -> dict[str, bytes]:
    """Return the contents of all files below a directory by their paths below it."""
    result = {}
    for name in fs.list_dir(path):
        if fs.is_dir(f"{path}/{name}"):
            below = tree(fs, f"{path}/{name}")
            result.update({f"{name}/{inner}": data for inner, data in below.items()})
        else:
            result[name] = read_bytes(fs, f"{path}/{name}")
    return result
