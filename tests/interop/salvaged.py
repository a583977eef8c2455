"""Directories that `salvage` writes from damaged logs; Kafka's classes open them unchanged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from logstore import Broker
from logstore.analysis.salvage import salvage
from logstore.runtime import DiskFileSystem, VirtualClock
from tests.interop.directories import (
    SEGMENTS,
    WRITERS,
    Written,
    broker_at,
    fill,
    replicate_golden,
    texts,
)

Damage = Callable[[Path], None]
"""Changes a partition's folder."""


def _flip(folder: Path) -> None:
    """Flip a bit of a batch in the middle of the log."""
    log = sorted(folder.glob("*.log"))[1]
    data = bytearray(log.read_bytes())
    data[70] ^= 1
    log.write_bytes(data)


def _length_and_offset(folder: Path) -> None:
    """Fields that no CRC covers, and the end torn."""
    logs = sorted(folder.glob("*.log"))
    for log, position, byte in ((logs[0], 11, 0x7F), (logs[1], 0, 0x40), (logs[2], 16, 9)):
        data = bytearray(log.read_bytes())
        data[position] = byte
        log.write_bytes(data)
    logs[-1].write_bytes(logs[-1].read_bytes()[:-5])


def _without_anything_derived(folder: Path) -> None:
    _flip(folder)
    for path in folder.iterdir():
        if path.suffix != ".log":
            path.unlink()


def _plain(path: Path) -> Written:
    broker, log = broker_at(path, **SEGMENTS)
    with broker:
        fill(log, broker.clock, 100)
    return Written(path, texts(SEGMENTS), broker.clock.now_ms())


def _transactions(path: Path) -> Written:
    return replicate_golden(
        path, "transactions", {"segment_bytes": 900, "index_interval_bytes": 200}
    )


def _salvaged(path: Path, write: Callable[[Path], Written], damage: Damage) -> Written:
    written = write(path.with_name(f"{path.name}-damaged"))
    damage(written.partition)
    clock = VirtualClock(written.now_ms)
    with Broker(written.path, clock=clock, read_only=True, on_damage="pass_over") as broker:
        report = salvage(broker, broker.partitions(), DiskFileSystem(), str(path))
    assert report.records
    return replace(written, path=path)


for _name, _write in (("plain", _plain), ("transactions", _transactions)):
    for _damage in (_flip, _length_and_offset, _without_anything_derived):
        WRITERS[f"salvaged, {_name}, {_damage.__name__.strip('_').replace('_', ' ')}"] = (
            lambda path, write=_write, damage=_damage: _salvaged(path, write, damage)
        )
