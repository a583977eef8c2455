"""A workload's topic generated in this process, without Spark, and its expected contents."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from logstore.manager.topics import Topic
from logstore.runtime import Runtime
from logstore.spark.datasource.commit import WriteJob
from logstore.spark.generation.log_files import GeneratedPartition, write_partitions
from logstore.storage.checkpoint.topic_id import PARTITION_METADATA
from logstore.workload.blocks import MALFORMED_VERSION, NO_VERSION, Block, build_block
from logstore.workload.parcels import PARCEL_BYTES, Parcel, build_parcels
from logstore.workload.spec import Spec, from_mapping

SEGMENT_FILES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")


def preset(name: str, **overrides: Any) -> Spec:
    """Return a preset; `overrides` are as at the top level of the file."""
    return from_mapping({"preset": name, **overrides})


def blocks_of(spec: Spec, numbers: range | None = None) -> Iterator[Block]:
    """Yield blocks in order; all of them without `numbers`."""
    for number in range(spec.blocks) if numbers is None else numbers:
        yield build_block(spec, number)


def all_parcels(spec: Spec, parcel_bytes: int = PARCEL_BYTES) -> list[Parcel]:
    """Return the parcels of all blocks as the writing tasks receive them."""
    made = (each for n in range(spec.blocks) for each in build_parcels(spec, n, parcel_bytes))
    return sorted(made, key=lambda each: (each.partition, each.block, each.part))


def make_topic(
    spec: Spec, path: Path, parcel_bytes: int = PARCEL_BYTES
) -> list[GeneratedPartition]:
    """Write a workload's topic into a data directory."""
    job = WriteJob.begin(str(path), [spec.topic], overwrite=False)
    made = list(write_partitions(spec, iter(all_parcels(spec, parcel_bytes)), job.task_dir()))
    topic = Topic(spec.topic, tuple(range(spec.partitions)), spec.topic_configs)
    written = [each.written for each in made]
    job.commit(Runtime(), [topic], written, producer_ids=spec.producers.with_id)
    return made


def tree(path: Path) -> dict[str, tuple[bytes, int]]:
    """Return the contents of all partitions' files, and the times of segment files in ns.

    Without the topic's id, which the commit generates: a topic that is created again has another.
    """
    return {
        str(file.relative_to(path)): (
            file.read_bytes(),
            file.stat().st_mtime_ns if file.suffix in SEGMENT_FILES else 0,
        )
        for folder in sorted(path.iterdir())
        if folder.is_dir()
        for file in sorted(folder.iterdir())
        if file.name != PARTITION_METADATA
    }


def digest(path: Path) -> str:
    """Hash the partitions' files: names, contents, and times of segment files."""
    hashed = hashlib.sha256()
    for name, (data, mtime_ns) in tree(path).items():
        hashed.update(f"{name}\n{len(data)}\n{mtime_ns}\n".encode() + data)
    return hashed.hexdigest()


class Batch(NamedTuple):
    """An expected batch of a workload's partition, or a marker (no records)."""

    producer: int
    transactional: bool
    control: bool
    appended: int
    records: tuple[tuple, ...]


def wanted(spec: Spec) -> dict[int, list[Batch]]:
    """Return the expected contents of each partition, directly from the blocks' columns."""
    found: dict[int, list[Batch]] = {number: [] for number in range(spec.partitions)}
    for block in blocks_of(spec):
        ordered = [*_data(spec, block), *_markers(block)]
        for _, _, partition, batch in sorted(ordered, key=lambda each: each[:2]):
            found[partition].append(batch)
    return found


def _data(spec: Spec, block: Block) -> Iterator[tuple[int, int, int, Batch]]:
    versions = block.version_values()
    for number in np.unique(block.batch):
        rows = np.flatnonzero(block.batch == number)
        first, last = rows[0], rows[-1]
        records = tuple(_record(spec, block, versions, row) for row in rows)
        batch = Batch(
            int(block.producer[first]),
            bool(block.transaction[first] >= 0),
            False,
            int(block.appended[first]),
            records,
        )
        yield int(block.sequence[last]), 0, int(block.partition[first]), batch


def _markers(block: Block) -> Iterator[tuple[int, int, int, Batch]]:
    for after, partition, producer, _, commit, at_ms in zip(*block.markers, strict=True):
        # The control record: version 0, type 1 for COMMIT and 0 for ABORT; coordinator epoch 0.
        record = (b"\0\0\0" + bytes([int(commit)]), bytes(6), int(at_ms), ())
        yield int(after), 1, int(partition), Batch(int(producer), True, True, int(at_ms), (record,))


def _record(spec: Spec, block: Block, versions, row: int) -> tuple:
    value = None if block.tombstone[row] else block.value[row]
    headers = ()
    if block.version_form[row] != NO_VERSION:
        stated = int(block.version[row]).to_bytes(8, "big", signed=True)
        short = block.version_form[row] == MALFORMED_VERSION
        headers = ((spec.versions.header, stated[3:] if short else stated),)
        assert versions[row] == headers[0][1]
    return block.key[row].tobytes(), value, int(block.timestamp[row]), headers
