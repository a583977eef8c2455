"""The work of `logstore bench`: append, clean and read a log, or clean a copied directory."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from logstore.analysis.copies import copy_partitions
from logstore.bench.measuring import Sample, Stopwatch, no_collection
from logstore.bench.micro.cleaning import BenchClock
from logstore.bench.micro.logs import CLEANED_AT_MS, MIB, TOPIC, LogShape, pieces_of
from logstore.bench.micro.setting import Setting
from logstore.bench.report.machine import machine
from logstore.broker import Broker
from logstore.errors import InvalidConfigurationError
from logstore.jit import compile_always
from logstore.runtime import DiskFileSystem
from logstore.types import AppendOrigin

if TYPE_CHECKING:
    from logstore.analysis.copies import CopyListener
    from logstore.cleaner.command import ProgressListener
    from logstore.cleaner.stats import CleanReport
    from logstore.config.broker_config import BrokerConfig
    from logstore.runtime import Clock

Progress = Callable[[str, int, int], None]
"""Called with a task, the bytes done, and the total."""

WARM_UP_BYTES = MIB
LIMIT_BYTES = 64 * MIB


@dataclass(frozen=True)
class Step:
    """A step of the benchmark, such as append or clean.

    Attributes
    ----------
    bytes, records : int
        Amount of data processed.
    """

    name: str
    bytes: int
    records: int
    sample: Sample

    @property
    def mb_per_s(self) -> float:
        """Speed by wall time."""
        return self.bytes / 1e6 / max(self.sample.wall_s, 1e-9)

    def as_json(self) -> dict[str, Any]:
        """Return the step as a JSON object."""
        return {
            "name": self.name,
            "bytes": self.bytes,
            "records": self.records,
            "cpu_s": round(self.sample.cpu_s, 4),
            "wall_s": round(self.sample.wall_s, 4),
            "mb_per_s": round(self.mb_per_s, 1),
            "records_per_s": round(self.records / max(self.sample.wall_s, 1e-9)),
        }


@dataclass(frozen=True)
class Measurement:
    """The result of a benchmark: its steps, and all cleaning passes."""

    steps: list[Step]
    report: CleanReport

    def as_json(self) -> dict[str, Any]:
        """Return the JSON members common to both kinds of benchmarks."""
        cleaned = self.report.to_json()
        return {
            "steps": [step.as_json() for step in self.steps],
            "cleaned": cleaned["cleaned"],
            "not_cleaned": cleaned["not_cleaned"],
            "machine": machine(),
        }


# -- a generated log ---------------------------------------------------------------------------


def measure_generated(
    shape: LogShape,
    *,
    in_memory: bool,
    threads: int,
    broker_config: BrokerConfig,
    progress: Progress,
    cleaning: ProgressListener | None = None,
) -> Measurement:
    """Append, clean and read a generated log. Its files are removed at the end.

    A small log is processed first without measuring, so that kernels are compiled and loaded.
    """
    small = LogShape(100, 0.5, 20, WARM_UP_BYTES, codec=shape.codec, strategy=shape.strategy)
    compile_always()
    with _home(in_memory=in_memory) as home:
        _measure(small, home, 1, broker_config, lambda *_: None, None)
    with _home(in_memory=in_memory) as home:
        return _measure(shape, home, threads, broker_config, progress, cleaning)


@contextmanager
def _home(*, in_memory: bool) -> Iterator[Path | None]:
    if in_memory:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="logstore-bench-") as path:
        yield Path(path)


def _measure(
    shape: LogShape,
    home: Path | None,
    threads: int,
    broker_config: BrokerConfig,
    progress: Progress,
    cleaning: ProgressListener | None,
) -> Measurement:
    clock = BenchClock(CLEANED_AT_MS)
    with Broker(home, clock=clock, broker_config=broker_config) as broker:
        broker.create_topic(TOPIC, shape.partitions, shape.configs)
        appended = _append(broker, shape, progress)
        size = sum(broker.log(*tp).size_bytes for tp in broker.partitions())
        for tp in broker.partitions():
            broker.roll(*tp)
        with no_collection(), Stopwatch() as watch:
            report = broker.clean(force=True, threads=threads, progress=cleaning)
        cleaned = Step("clean", size, appended.records, watch.sample)
        return Measurement([appended, cleaned, _read(broker, progress)], report)


def _append(broker: Broker, shape: LogShape, progress: Progress) -> Step:
    done = 0
    total = shape.total_bytes * shape.partitions
    cpu_s = wall_s = 0.0
    for number in range(shape.partitions):
        log = broker.log(TOPIC, number)
        for _, data in pieces_of(shape, number):
            progress("appending", done, total)
            with no_collection(), Stopwatch() as watch:
                log.writer.append_batches(data, AppendOrigin.REPLICATION)
            cpu_s += watch.sample.cpu_s
            wall_s += watch.sample.wall_s
            done += len(data)
    progress("appending", total, total)
    return Step("append", done, shape.records * shape.partitions, Sample(cpu_s, wall_s))


def _read(broker: Broker, progress: Progress) -> Step:
    """Read the cleaned log and decode its batches into columns."""
    count = done = 0
    total = sum(broker.log(*tp).size_bytes for tp in broker.partitions())
    with no_collection(), Stopwatch() as watch:
        for tp in broker.partitions():
            for batch in broker.log(*tp).reader.batches(broker.log(*tp).log_start_offset):
                count += len(batch.columns())
                done += batch.header.size_bytes
    progress("reading", total, total)
    return Step("read", done, count, watch.sample)


# -- a user's directory --------------------------------------------------------------------------


def measure_copy(
    directory: str,
    *,
    threads: int,
    strategy: str | None,
    clock: Clock,
    broker_config: BrokerConfig,
    copying: CopyListener | None = None,
    cleaning: ProgressListener | None = None,
) -> Measurement:
    """Copy a data directory to a temporary one and clean the whole copy.

    In the copy, every topic is compacted and active segments are rolled. The original is not
    changed.

    Raises
    ------
    InvalidConfigurationError
        The directory does not exist or has no partitions, or there is not enough disk space.
    KafkaStorageError
        A file cannot be read or written.
    """
    compile_always()
    fs = DiskFileSystem(clock)
    if not fs.is_dir(directory):
        raise InvalidConfigurationError(f"data directory {directory} does not exist")
    with tempfile.TemporaryDirectory(prefix="logstore-bench-") as home:
        target = f"{home}/copy"
        with Broker(directory, clock=clock, broker_config=broker_config, read_only=True) as source:
            partitions = source.partitions()
            if not partitions:
                raise InvalidConfigurationError(
                    f"{directory} contains no partition: give the directory that contains TOPIC-0"
                )
            _check_space(directory, home)
            copy_partitions(source.manager, partitions, fs, target, progress=copying)
        with Broker(target, clock=clock, broker_config=broker_config) as broker:
            configs = {"cleanup.policy": "compact"}
            if strategy is not None:
                configs["compaction.strategy"] = strategy
            for topic in broker.topics():
                broker.override_configs(topic.name, configs)
            size = sum(broker.log(*tp).size_bytes for tp in broker.partitions())
            with no_collection(), Stopwatch() as watch:
                report = broker.clean(force=True, roll=True, threads=threads, progress=cleaning)
        records = sum(each["messages_read"] for each in report.to_json()["cleaned"])
        return Measurement([Step("clean", size, records, watch.sample)], report)


def _check_space(directory: str, home: str) -> None:
    needed = sum(path.stat().st_size for path in Path(directory).rglob("*") if path.is_file())
    free = shutil.disk_usage(home).free
    if 2 * needed > free:  # the copy, and in the worst case a cleaned copy of each segment
        raise InvalidConfigurationError(
            f"copying and cleaning {directory} needs up to {2 * needed:,} bytes, but {home} has "
            f"only {free:,} free: set TMPDIR to another directory"
        )


# -- the machine -------------------------------------------------------------------------------


def limits() -> dict[str, float]:
    """Return the speed of the machine in GB/s, for copying memory and for writing with fsync."""
    from logstore.bench.micro.limits import jobs

    with tempfile.TemporaryDirectory(prefix="logstore-bench-") as home:
        setting = Setting(Path(home), total_bytes=LIMIT_BYTES, repeats=1, warmups=1)
        names = {"limits/memcpy": "memcpy", "limits/write-fsync": "write_fsync"}
        return {
            names[job.names[0]]: round(line.here.median, 3)
            for job in jobs()
            if job.names[0] in names
            for line in job.run(setting)
        }
