"""Clean copies of a directory with `Broker.clean` and with Kafka's cleaner."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from logstore.bench.measuring import Sample, Stopwatch, no_collection
from logstore.bench.micro.logs import CLEANED_AT_MS, TOPIC, LogShape
from logstore.bench.rivals.kafka import KafkaPeer
from logstore.broker import Broker
from logstore.record.codecs import Codec, decompress
from logstore.record.header import BatchHeader
from logstore.record.layout import HEADER_SIZE
from logstore.runtime import FixedWallClock
from logstore.types import TopicPartition

MAP_BYTES = 128 << 20
"""Kafka's default for `log.cleaner.dedupe.buffer.size`, for one thread."""

COMPARED = (".log", ".index", ".timeindex", ".txnindex")
"""Suffixes of files that must be identical on both sides."""

_BLOCK = 1 << 20


class BenchClock(FixedWallClock):
    """A clock with fixed wall time, for equal delete horizons. Files get the system time."""

    @property
    def follows_system(self) -> bool:
        """True, so that files get the system time."""
        return True


class Difference(Exception):
    """The two cleaners produced different results."""


class CleanRun(NamedTuple):
    """Result of a run of this engine's cleaner."""

    sample: Sample
    report: dict[str, Any]


def copy_log(data_dir: Path, target: Path) -> Path:
    """Copy a directory to `target`, with hard links for the `.log` files of closed segments.

    Cleaners replace these files and never modify them. The copy is synced, so that its writes are
    not part of the measurement.
    """
    shutil.rmtree(target, ignore_errors=True)
    for folder, _, names in os.walk(data_dir):
        into = target / Path(folder).relative_to(data_dir)
        into.mkdir(parents=True)
        logs = sorted(name for name in names if name.endswith(".log"))
        for name in names:
            source = Path(folder, name)
            if name in logs[:-1]:
                os.link(source, into / name)
            else:
                shutil.copy2(source, into / name)
    sync_tree(target)
    return target


def sync_tree(data_dir: Path) -> None:
    """Sync every file below a directory."""
    for path in data_dir.rglob("*"):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def clean_with_logstore(
    data_dir: Path, *, threads: int = 1, map_bytes: int = MAP_BYTES
) -> CleanRun:
    """Clean every partition with `Broker.clean`, without measuring opening and closing.

    The maps have the memory of the same number of Kafka cleaner threads.
    """
    config = {
        "log.cleaner.threads": str(threads),
        "log.cleaner.dedupe.buffer.size": str(map_bytes * threads),
        "log.cleaner.io.buffer.size": str((512 << 10) * threads),
    }
    with Broker(data_dir, clock=BenchClock(CLEANED_AT_MS), broker_config=config) as broker:
        for tp in broker.partitions():
            broker.log(*tp)  # open it before the measurement, as in a running broker
        with no_collection(), Stopwatch() as watch:
            report = broker.clean(force=True, threads=threads)
    return CleanRun(watch.sample, report.to_json())


def clean_with_kafka(
    peer: KafkaPeer, data_dir: Path, shape: LogShape
) -> tuple[Sample, list[dict[str, Any]]]:
    """Clean every partition with Kafka's cleaner, one after another."""
    answers = [
        peer.clean(data_dir, TopicPartition(TOPIC, number), shape.configs, CLEANED_AT_MS, MAP_BYTES)
        for number in range(shape.partitions)
    ]
    samples = [sample for sample, _ in answers]
    total = Sample(sum(each.cpu_s for each in samples), sum(each.wall_s for each in samples))
    return total, [answer for _, answer in answers]


# -- comparison --------------------------------------------------------------------------------


def compare(here: Path, there: Path) -> int:
    """Compare the results of two cleaners byte by byte. Return the number of compared bytes.

    Raises
    ------
    Difference
        With the file and the first differing byte.
    """
    ours, theirs = _compared(here), _compared(there)
    if ours != theirs:
        only = sorted(set(ours) ^ set(theirs))
        raise Difference(f"only one of {here} and {there} has {', '.join(only)}")
    return sum(_compare_file(here / name, there / name) for name in ours)


def compare_unpacked(here: Path, there: Path) -> int:
    """Compare the results for compressed batches. Return the number of uncompressed bytes.

    Compressed bytes may differ between libraries. Rewritten batches are equal if their headers,
    except for length and checksum, and their uncompressed records are equal.

    Raises
    ------
    Difference
        With the file and the base offset of the first differing batch.
    """
    names = [name for name in _compared(here) if name.endswith(".log")]
    if names != [name for name in _compared(there) if name.endswith(".log")]:
        raise Difference(f"{here} and {there} have different segments")
    size = 0
    for name in names:
        pairs = itertools.zip_longest(_unpacked(here / name), _unpacked(there / name))
        for left, right in pairs:
            if left != right:
                header = (left or right)[0]
                raise Difference(f"{name}: the batch at offset {header.base_offset} differs")
            size += len(left[1])
    return size


def _unpacked(path: Path) -> Iterator[tuple[BatchHeader, bytes]]:
    data = memoryview(path.read_bytes())
    position = 0
    while position < len(data):
        header = BatchHeader.unpack_from(data, position)
        end = position + header.size_bytes
        section = bytes(data[position + HEADER_SIZE : end])
        if header.codec_id and section:
            section = decompress(Codec(header.codec_id), section)
        yield header._replace(crc=0, batch_length=0), section
        position = end


def _compared(data_dir: Path) -> list[str]:
    return sorted(
        str(path.relative_to(data_dir))
        for path in data_dir.rglob("*")
        if path.suffix in COMPARED and (path.suffix != ".txnindex" or path.stat().st_size)
    )


def _compare_file(here: Path, there: Path) -> int:
    size = 0
    for left, right in itertools.zip_longest(_blocks(here), _blocks(there), fillvalue=b""):
        if left != right:
            shorter = min(len(left), len(right))
            first = next((at for at in range(shorter) if left[at] != right[at]), shorter)
            raise Difference(f"{here} and {there} differ at byte {size + first}")
        size += len(left)
    return size


def _blocks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            yield block
