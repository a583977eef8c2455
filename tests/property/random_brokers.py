"""Random lives of brokers, whose results, errors, log messages, metrics and files are stored.

The clock is virtual. The files are on disk, or in memory, where a crash can lose or tear unsynced
data. Between two lives of a broker, some files are damaged.
"""

from __future__ import annotations

import itertools
import logging
import re
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from logstore import Broker, LogStoreError, TopicPartition
from logstore.broker.prometheus import prometheus_text
from logstore.cleaner.passes import skipping
from logstore.config.dynamic import Layer
from logstore.faults.crash import Contents, CrashMode, Names
from logstore.faults.faultfs import FaultyFileSystem, SimulatedCrash
from logstore.faults.rules import FILE_KINDS, FaultRule
from logstore.manager.directories.directory import OpenedFolder
from logstore.record.batch import RecordBatch, build_batch
from logstore.record.codecs import Codec
from logstore.record.columns import BytesColumn, RecordColumns, headers_column
from logstore.record.crc32c import crc32c
from logstore.record.records import NewRecord, Record
from logstore.record.walk import walk_buffer
from logstore.runtime import DiskFileSystem, FileKind
from logstore.storage.checkpoint.atomic import read_bytes
from logstore.storage.index import entry_file
from logstore.storage.loading import views
from logstore.storage.log import Log, reader, recovery
from logstore.storage.log.drafts import ProducerFields, RecordArrays
from logstore.storage.log.reader import Isolation
from logstore.storage.segment import segment
from logstore.testing import assertions
from logstore.testing.describing import described
from logstore.types import INT32_MAX, AppendOrigin, TimestampType
from tests.property.random_calls import BAD, Calls
from tests.support.world.builders import abort, batch, commit, data_batch, old_message
from tests.support.world.transcripts import Transcript, drawn, recording_messages, text_of

FEW = 48
STEPS = 36
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
HEADER = "v"
KEYS = (*(b"k%d" % number for number in range(5)), b"a longer key", b"")
NAMES = ("t", "u", "v")


class _Interrupt(BaseException):
    """A signal handler ends a call."""


ERRORS = (*BAD, OSError, AssertionError, SimulatedCrash, _Interrupt)

TOPIC_CONFIGS: dict[str, tuple[object, ...]] = {
    "cleanup.policy": ("delete", "compact", "compact", "compact", "compact,delete", ""),
    "segment.bytes": (250, 400, 1000, 1000, 3000),
    "segment.ms": (1000, 60_000, HOUR_MS),
    "segment.jitter.ms": (0, 500, HOUR_MS),
    "segment.index.bytes": (20, 36, 100, 4000),
    "index.interval.bytes": (0, 0, 100, 4096),
    "flush.messages": (1, 3),
    "flush.ms": (0, 1000),
    "retention.bytes": (0, 300, 1500),
    "retention.ms": (-1, 1000, HOUR_MS, DAY_MS),
    "max.message.bytes": (100, 250, 1_000_000),
    "delete.retention.ms": (0, 1000, HOUR_MS),
    "min.compaction.lag.ms": (0, 1000, HOUR_MS),
    "max.compaction.lag.ms": (1000, HOUR_MS, 2 * DAY_MS),
    "file.delete.delay.ms": (0, 1000, 60_000),
    "min.cleanable.dirty.ratio": (0, 0, 0.2, 0.5, 1),
    "compression.type": ("producer", "uncompressed", "snappy", "lz4", "zstd"),
    "compression.lz4.level": (1, 12),
    "compression.zstd.level": (-5, 9),
    "preallocate": (False, True),
    "message.timestamp.type": ("CreateTime", "LogAppendTime"),
    "message.timestamp.before.max.ms": (1000, DAY_MS),
    "message.timestamp.after.max.ms": (0, DAY_MS),
    "message.timestamp.difference.max.ms": (HOUR_MS,),
    "compaction.strategy": ("offset", "timestamp", "header", "header"),
    "compaction.strategy.header": (HEADER, HEADER, ""),
    "logstore.compaction.strategy.header.encoding": ("long", "varlong"),
    "logstore.decompression.max.bytes": (300, 1 << 20),
    "logstore.batch.max.records": (2, 1000),
    "min.insync.replicas": (2,),
    "no.such.config": (1,),
}
BROKER_CONFIGS: dict[str, tuple[object, ...]] = {
    "log.cleaner.threads": (1, 2, 3),
    "log.cleaner.enable": (True, False),
    "log.cleaner.backoff.ms": (10, 1000),
    "log.cleaner.dedupe.buffer.size": (4 << 20, 8 << 20),
    "log.cleaner.io.buffer.size": (600, 5000),
    "log.cleaner.io.buffer.load.factor": (0.9, 0.000_05, 0.000_2),
    "log.cleaner.io.max.bytes.per.second": (500, 1_000_000),
    "log.cleaner.delete.retention.ms": (0, HOUR_MS),
    "log.cleaner.min.cleanable.ratio": (0, 0.3),
    "log.cleanup.policy": ("compact", "delete"),
    "log.retention.ms": (-1, HOUR_MS),
    "log.retention.check.interval.ms": (1000, 60_000),
    "log.retention.bytes": (500,),
    "log.segment.bytes": (700,),
    "log.roll.ms": (HOUR_MS,),
    "log.flush.scheduler.interval.ms": (1000,),
    "log.flush.interval.ms": (2000,),
    "log.flush.offset.checkpoint.interval.ms": (1000, 60_000),
    "log.flush.start.offset.checkpoint.interval.ms": (1000, 60_000),
    "replica.high.watermark.checkpoint.interval.ms": (5000,),
    "log.initial.task.delay.ms": (0, 30_000),
    "log.index.interval.bytes": (0, 50),
    "log.message.timestamp.type": ("LogAppendTime",),
    "message.max.bytes": (300,),
    "compression.type": ("zstd",),
    "num.recovery.threads.per.data.dir": (1, 2),
    "producer.id.expiration.ms": (1000, HOUR_MS),
    "producer.id.expiration.check.interval.ms": (1000,),
    "logstore.small.file.max.bytes": (150, 10_000),
    "num.partitions": (2,),
    "node.id": (0, 7),
    "background.threads": (5,),
    "no.such.config": (1,),
}
SMALL: dict[str, object] = {
    "log.cleaner.dedupe.buffer.size": 4 << 20,
    "log.cleaner.io.buffer.size": 2000,
    "log.index.size.max.bytes": 4000,
    "log.segment.bytes": 2000,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
}
"""Without them, most time would be spent on empty buffers and indexes."""

SUFFIXES = (
    *(".log", ".log", ".log", ".index", ".timeindex", ".txnindex", ".snapshot", "point"),
    *("-start-offset-checkpoint", "point-offset-checkpoint", ".metadata", ".json", ""),
)
STRAYS = {
    "meta.properties": "#\n\nversion=1\nnode.id=3\ncluster.id=c\n",
    "logstore-moves.json": (
        '{"version": 1,\n"moves": {\n"t-0": {"target": "/two",\n"folder": "t-0.a-future",\n'
        '"undone": false\n}}}'
    ),
    "log-start-offset-checkpoint": "0\n2\nt 0 9\nu 0 90\n",
    "recovery-point-offset-checkpoint": "0\n2\nt 0 9\nu 0 90\n",
    "replication-offset-checkpoint": "0\n2\nt 0 9\nu 0 90\n",
    "cleaner-offset-checkpoint": "0\n2\nt 0 9\nu 0 90\n",
    ".kafka_cleanshutdown": "",
}
FOLDERS = ("t-7", "x-0", "lost+found", "u-0.x", "t-0.a-future", "t-0/00000000000000000000.index")
LIMITS = (
    (entry_file, "FENCE_ENTRIES", 2),
    (entry_file, "PAGE_ENTRIES", 3),
    (entry_file, "CHUNK_ENTRIES", 2),
    (reader, "FETCH_BYTES", 200),
    (recovery, "_CHUNK_BYTES", 150),
    (segment, "COPY_BYTES", 200),
    (skipping, "LEAST_GAP_BYTES", 60),
    (views, "HELD_FILES_MAX", 2),
)
"""Values for every third seed. With the usual ones, these small files are read in one piece."""

CODECS = (Codec.NONE, Codec.NONE, Codec.NONE, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)
"""gzip is left out, because its output depends on the version of zlib."""


def transcribe(seed: int) -> Transcript:
    """Return the life of a broker."""
    root = tempfile.mkdtemp() if seed % 8 == 7 else ""
    try:
        return _Life(seed, root).run()
    finally:
        if root:
            shutil.rmtree(root)


def _shown(value: Any) -> Any:
    """Return a value whose text has everything that callers can see."""
    if isinstance(value, RecordBatch):
        return value.data
    if isinstance(value, RecordColumns):
        return value.to_records()
    if isinstance(value, Log | FaultRule):
        return repr(value)
    if isinstance(value, tuple | list):
        shown = [_shown(each) for each in value]
        return shown if type(value) in (tuple, list) else f"{type(value).__name__}{text_of(shown)}"
    if callable(getattr(value, "to_json", None)):
        return value.to_json()
    return [_shown(each) for each in value] if isinstance(value, Iterator) else value


def metrics_text(broker: Broker) -> str:
    """Return all gauges; exponents are written alike by all versions of prometheus_client."""
    return re.sub(r"e\+0(?=\d\d$)", "e+", prometheus_text(broker), flags=re.MULTILINE)


class _Life(Calls):
    """A broker, its files, and what its clients remember."""

    broker: Any = None
    viewer: Any = None

    def __init__(self, seed: int, root: str) -> None:
        super().__init__(seed)
        self.root = root
        rng = self.rng
        self.fs: Any = DiskFileSystem(self.clock) if root else FaultyFileSystem(self.clock)
        self.dirs = [f"{root}/{name}" for name in ("one", "two")[: rng.choice((1, 2))]]
        self.background = rng.random() < 0.5
        self.config = self.broker_config()
        self.sent: dict[TopicPartition, bytes] = {}
        self.iterators: list[Iterator[Any]] = []

    def run(self) -> Transcript:
        def note(record: logging.LogRecord) -> None:
            self.note(record.levelname, record.name, record.getMessage())

        with recording_messages("logstore", logging.DEBUG, note):
            try:
                with pytest.MonkeyPatch.context() as patch:
                    for module, name, value in LIMITS if self.seed % 3 == 1 else ():
                        patch.setattr(module, name, value)
                    self.live()
            finally:
                for each in (self.viewer, self.broker):
                    if each is not None:
                        self.attempt(each.close)
        return self.transcript

    def live(self) -> None:
        if not self.open():
            self.config = SMALL
            self.open()
        for name in NAMES[: self.rng.randint(1, 3)]:
            self.create(name)
            self.append()
        actions = (
            *[self.append] * 8,
            *[self.read] * 4,
            *[self.maintain] * 4,
            *[self.clean] * 4,
            *[self.administer] * 3,
            *[self.examine] * 2,
            *[self.fail, self.interrupt, self.intrude, self.restart, self.restart],
            *[self.crash_inside, self.view, self.spoil],
            *[self.move] * (len(self.dirs) > 1),
        )
        for number in range(STEPS):
            self.rng.choice(actions)()
            self.advance()
            self.note_logs()
            if number % 4 == 3:
                self.note_files()
        self.attempt(self.broker.close)
        self.note_files()

    # -- notes -------------------------------------------------------------------------------

    def note(self, *values: object) -> None:
        """Add a line that does not depend on the location of a temporary directory."""
        line = " ".join(map(text_of, values))
        self.transcript.lines.append(line.replace(self.root, "") if self.root else line)

    def attempt(self, call: Callable[..., object], *arguments: Any, **options: Any) -> Any:
        shown = {key: value for key, value in options.items() if not callable(value)}
        self.note(self.clock.now_ms(), call.__name__, arguments, shown)
        try:
            result = call(*arguments, **options)
            if isinstance(result, Iterator):
                result = list(result)
            self.note(_shown(result))
        except ERRORS as error:
            self.note_error(error)
            return None
        return result

    def note_error(self, error: BaseException) -> None:
        if isinstance(error, AssertionError):
            self.note("a broken invariant")  # pytest changes the texts of assertions
            return
        attributes = sorted(vars(error).items())
        self.note(type(error).__name__, str(error), attributes, type(error.__cause__).__name__)

    def note_logs(self) -> None:
        """Note the state of each open log."""
        broker = self.broker
        if broker.manager.lifetime.is_over:
            return
        for log in broker.manager.registry.open_logs():
            self.note(
                log,
                log.log_start_offset,
                log.high_watermark,
                log.last_stable_offset,
                log.recovery_point,
                log.is_offline,
                log.epochs.entries,
                [(e.producer_id, str(e)) for e in log.producer_state.entries()],
                log.producer_state.active_producers(),
                log.producer_state.snapshot_offsets,
            )
            for each in log.segments:
                self.note(each.base_offset, each.size_bytes)
        self.note([(d.path, d.is_online, d.offline_reason) for d in broker.manager.directories])
        self.attempt(broker.metrics)

    def note_files(self) -> None:
        """Note the name, the size, the time and a hash of each file."""
        for path in self.paths():
            data, stat = read_bytes(self.fs, path), self.fs.stat(path)
            self.note(path, len(data), stat.mtime_ms, f"{zlib.crc32(data):08x}")

    def paths(self) -> list[str]:
        """Return all files of the data directories."""
        found, folders = [], [each for each in self.dirs if self.fs.exists(each)]
        while folders:
            folder = folders.pop()
            for name, kind in sorted(self.fs.kinds(folder).items()):
                path = f"{folder}/{name}"
                if kind is FileKind.DIRECTORY:
                    folders.append(path)
                elif name != ".lock":
                    found.append(path)
        return sorted(found)

    # -- draws -------------------------------------------------------------------------------

    def broker_config(self) -> dict[str, object]:
        config = SMALL | drawn(self.rng, BROKER_CONFIGS, 0.12)
        if self.background and self.rng.random() < 0.4:  # passes take some time
            config |= {"log.cleaner.io.max.bytes.per.second": 400, "log.cleaner.backoff.ms": 50}
        return config

    def topic(self) -> str:
        return self.rng.choice((*"tttuuvw", "no", "a/b") if self.rng.random() < 0.1 else "tttuuv")

    def tp(self) -> TopicPartition:
        tps = self.existing()
        if tps and self.rng.random() < 0.95:
            return self.rng.choice(tps)
        return TopicPartition(self.topic(), self.rng.choice((0, 1, 9, -1)))

    def existing(self) -> list[TopicPartition]:
        return [tp for tp in self.broker.partitions() if not tp.topic.startswith("_")]

    def log(self) -> Any:
        """Draw a log, or return None if it cannot be opened."""
        return self.attempt(self.broker.log, self.tp())

    def offset(self, log: Log) -> int:
        """Draw an offset, mostly inside of the log."""
        rng, start, end = self.rng, log.log_start_offset, log.log_end_offset
        return rng.choice(
            (
                rng.randint(start, end),
                rng.randint(start, end),
                rng.randint(start, end),
                start,
                end,
                log.high_watermark,
                start + rng.choice((-1, 1)),
                end + rng.choice((-1, 1, 5)),
            )
        )

    def time(self) -> int:
        now = self.clock.now_ms()
        back = self.rng.choice((0, 0, 1, 500, 1000, 2000, HOUR_MS, DAY_MS, -500, -HOUR_MS))
        return self.rng.choice((now - back, now - back, now - back, -1))

    def value(self) -> bytes | None:
        rng = self.rng
        return rng.choice(
            (b"v%d" % rng.randrange(1000), b"v", None, None, b"", rng.randbytes(150), b"w" * 300)
        )

    def headers(self) -> tuple[tuple[str, bytes | None], ...]:
        rng = self.rng
        version = rng.randrange(-3, 9)
        return rng.choice(
            (
                (),
                (),
                ((HEADER, version.to_bytes(8, "big", signed=True)),),
                ((HEADER, version.to_bytes(8, "big", signed=True)), ("other", None)),
                ((HEADER, bytes([version % 128])),),
                ((HEADER, None),),
            )
        )

    def key(self) -> bytes | None:
        return self.rng.choice((*KEYS, *KEYS, None))

    # -- appends -----------------------------------------------------------------------------

    def append(self) -> None:
        for _ in range(self.rng.choice((1, 2, 4, 6))):
            self.append_once()

    def append_once(self) -> None:
        rng, attempt, broker, tp = self.rng, self.attempt, self.broker, self.tp()
        codec = rng.choice(CODECS)
        if rng.random() < 0.25:
            options = {
                "key": self.key(),
                "value": self.value(),
                "partition": rng.choice((None, tp.partition)),
                "timestamp": rng.choice((None, self.time())),
                "headers": self.headers(),
                "compression": codec.name.lower(),
            }
            attempt(broker.append, tp.topic, **options)
            return
        if rng.random() < 0.25:
            records = [self.record_like() for _ in range(rng.choice((1, 2, 5, 30)))]
            if rng.random() < 0.15:
                records = [(rng.choice(KEYS), b"v") for _ in range(70)]  # encoded by a kernel
            attempt(
                broker.append_many,
                tp.topic,
                records,
                partition=rng.choice((None, tp.partition)),
                compression=codec.name.lower(),
                batch_records=rng.choice((None, 1, 3)),
            )
            return
        if (log := attempt(broker.log, tp)) is None:
            return
        epoch = attempt(lambda: log.leader_epoch) or 0
        match rng.randrange(12):
            case 0 | 1 | 2 | 3 | 4:
                data = self.batch(log)
                leader_epoch = rng.choice((None, None, None, epoch, epoch + 1, -1))
                origin = rng.choice((AppendOrigin.CLIENT, *AppendOrigin, AppendOrigin.CLIENT))
                attempt(log.writer.append_batches, data, origin, leader_epoch)
            case 5:
                attempt(broker.append_batches, tp.topic, self.batch(log), partition=tp.partition)
            case 6 | 7:
                self.replicate(log, epoch)
            case 8 | 9:
                for producer_id in log.producer_state.open_producers() or (1, 2):
                    own_epoch, _ = self.next_batch(log, producer_id)
                    attempt(
                        log.writer.append_end_txn_marker,
                        producer_id,
                        own_epoch + rng.choice((0, 0, 0, 1, -1)),
                        rng.choice((0, 0, 1)),
                        commit=rng.random() < 0.5,
                        transaction_version=rng.choice((0, 1, 2)),
                    )
            case _:
                self.append_stamped(log, codec)

    def record_like(self) -> Any:
        key, value, timestamp, headers = self.key(), self.value(), self.time(), self.headers()
        return self.rng.choice(
            (
                (key, value),
                (key, value),
                (key, value, timestamp),
                (key, value, None, headers),
                {"key": key, "value": value, "timestamp": timestamp, "headers": headers},
                NewRecord(key, value, timestamp, headers),
            )
        )

    def append_stamped(self, log: Log, codec: Codec) -> None:
        """Append like a producer in this process."""
        rng, now = self.rng, self.clock.now_ms()
        records = [
            NewRecord(self.key(), self.value(), now, self.headers())
            for _ in range(rng.choice((1, 1, 3)))
        ]
        stamp = rng.choice((None, self.stamp(log, len(records))))
        codec = codec if stamp is None else Codec.NONE
        if stamp is None and rng.random() < 0.4:
            self.append_arrays(log, codec)
            return
        if len(records) == 1:
            if stamp is not None:
                stamp = stamp._replace(is_transactional=False)
            self.attempt(log.writer.append_next, records[0], stamp)
        self.attempt(log.writer.append_records, records, codec, stamp)

    def append_arrays(self, log: Log, codec: Codec) -> None:
        """Append columns, as one batch or as several."""
        rng = self.rng
        count = rng.choice((1, 2, 5, 20))
        keys, values = (
            BytesColumn.from_list([rng.choice((b"k", b"longer", b"x", None)) for _ in range(count)])
            for _ in range(2)
        )
        self.attempt(lambda: RecordArrays(keys, values.slice(0, count - 1)))
        writer = log.writer
        if rng.random() < 0.5:
            times = np.array([max(self.time(), 0) for _ in range(count)], np.int64)
            headers = headers_column([self.headers() for _ in range(count)], count)
            arrays = RecordArrays(keys, values, *rng.choice(((), (times,), (times, headers))))
            self.attempt(lambda: writer.append_records(arrays, codec))
        else:
            arrays = RecordArrays(keys, values)
            bounds = sorted({0, rng.randint(0, count), rng.randint(0, count), count})
            self.attempt(lambda: list(writer.append_parts(arrays, bounds, codec)))

    def next_batch(self, log: Log, producer_id: int) -> tuple[int, int]:
        """Return the epoch and the next sequence of a producer."""
        entry = log.producer_state.entry(producer_id)
        if entry is None:
            return 0, 0
        return max(entry.producer_epoch, 0), (entry.last_sequence + 1) % (INT32_MAX + 1)

    def stamp(self, log: Log, count: int) -> ProducerFields:
        """Draw the producer of a batch. Most batches follow the last one of their producer."""
        rng = self.rng
        producer_id = rng.choice((1, 2, 3))
        epoch, sequence = self.next_batch(log, producer_id)
        match rng.randrange(16):
            case 0:
                sequence = min(sequence + rng.choice((1, 5)), INT32_MAX)
            case 1:
                sequence = max(sequence - count, 0)
            case 2:
                epoch, sequence = epoch + 1, rng.choice((0, 0, 2))
            case 3:
                epoch = max(epoch - 1, 0)
            case 4:
                sequence = INT32_MAX - rng.choice((0, 1, 2))
        is_transactional = log.producer_state.has_open_transaction(producer_id)
        return ProducerFields(producer_id, epoch, sequence, is_transactional or rng.random() < 0.4)

    def batch(self, log: Log, base_offset: int = 0, **fields: Any) -> bytes:
        """Build a batch. Some are damaged, repeated or refused for another reason."""
        rng, tp = self.rng, log.topic_partition
        if tp in self.sent and rng.random() < 0.1:
            return self.sent[tp]
        if rng.random() < 0.08:
            build = rng.choice((commit, abort))
            return build(base_offset, rng.choice((1, 2, 3)), epoch=rng.choice((0, 1)))
        count = rng.choice((1, 1, 2, 3, 10))
        step = 3 if fields and rng.random() < 0.4 else 1
        offsets = [base_offset + number * step for number in range(count)]
        records = [
            Record(offset, self.time(), self.key(), self.value(), self.headers())
            for offset in offsets
        ]
        if rng.random() < 0.6:
            stamp = self.stamp(log, count)
            fields |= {
                "producer_id": stamp.producer_id,
                "producer_epoch": stamp.producer_epoch,
                "base_sequence": stamp.base_sequence,
                "is_transactional": stamp.is_transactional,
            }
        if rng.random() < 0.1:
            fields |= {
                "timestamp_type": TimestampType.LOG_APPEND_TIME,
                "append_time": self.clock.now_ms(),
            }
        if records[0].timestamp < 0:
            records = [record._replace(timestamp=-1) for record in records]
        data = build_batch(records, codec=rng.choice(CODECS), **fields)
        self.sent[tp] = data
        return self.spoiled(data) if rng.random() < 0.15 else data

    def spoiled(self, data: bytes) -> bytes:
        """Damage a batch."""
        rng = self.rng
        place = rng.randrange(len(data))
        match rng.randrange(8):
            case 0:
                return data[:place]
            case 1:
                return data + data
            case 2:
                return old_message(rng.choice((0, 1)))
            case 3:
                return data + data[:place]
            case 4 | 5:  # with a valid checksum
                place = rng.choice((*range(21, 57), *range(60, len(data))))  # few records
                changed = bytearray(data)
                changed[place] ^= 1 << rng.randrange(6)
                changed[17:21] = crc32c(bytes(changed[21:])).to_bytes(4, "big")
                return bytes(changed)
            case _:
                return data[:place] + bytes([data[place] ^ 0xFF]) + data[place + 1 :]

    def replicate(self, log: Log, epoch: int) -> None:
        """Append batches as a follower does: with their offsets and leader epochs."""
        rng, data = self.rng, b""
        offset = log.log_end_offset + rng.choice((0, 0, 0, 0, 3, -1, 1 << 31))
        for _ in range(rng.choice((1, 2, 3))):
            epoch = min(epoch + rng.choice((0, 0, 0, 1)), INT32_MAX)
            part = self.batch(log, max(offset, 0), partition_leader_epoch=epoch)
            data += part
            try:
                offset = RecordBatch(part).header.next_offset
            except LogStoreError:
                break
            offset += rng.choice((0, 0, 0, 2, 1 << 30))
        self.attempt(log.writer.append_batches, data, AppendOrigin.REPLICATION)

    # -- reads -------------------------------------------------------------------------------

    def read(self) -> None:
        for _ in range(self.rng.choice((1, 3, 5))):
            self.read_from(self.broker)
        for iterator in self.iterators:
            self.attempt(lambda iterator=iterator: list(itertools.islice(iterator, 2)))
        if len(self.iterators) > 3:
            del self.iterators[0]

    def read_from(self, broker: Any) -> None:
        rng, attempt = self.rng, self.attempt
        tps = [tp for tp in broker.partitions() if not tp.topic.startswith("_")]
        if not tps or (log := attempt(broker.log, rng.choice(tps))) is None:
            return
        tp, own = log.topic_partition, log.reader
        start = self.offset(log)
        end = rng.choice((None, None, self.offset(log)))
        isolation = {"isolation": rng.choice(list(Isolation))}
        match rng.randrange(14):
            case 0 | 1:
                size, whole = rng.choice((0, 1, 61, 100, 400, 10_000)), rng.random() < 0.5
                attempt(own.read, start, size, min_one_message=whole, **isolation)
            case 2:
                attempt(own.batches, start, end, **isolation)
            case 3:
                attempt(own.records, start, end, **isolation)
            case 4:
                attempt(own.columns, start, end, **isolation)
            case 5:
                attempt(own.fetched, start, end, **isolation)
            case 6 | 7 | 8:
                for target in (self.time(), self.time(), rng.choice((-1, -2, -3, -3, -4, -5, -6))):
                    attempt(own.offset_for_timestamp, target)
                attempt(own.first_offset_at, self.time())
                attempt(broker.offsets_for_times, {tp: self.time()})
            case 9:
                attempt(broker.table, tp.topic)
            case 10:
                read = rng.choice((own.records, own.fetched, own.columns))
                self.iterators.append(read(start, **isolation))
            case _:
                attempt(
                    broker.read,
                    *tp,
                    offset=rng.choice((None, "earliest", "latest", start)),
                    until=rng.choice((None, "latest", end)),
                    max_records=rng.choice((None, 2)),
                    isolation=rng.choice(("read_uncommitted", "read_committed")),
                    key=rng.choice((None, None, *KEYS)),
                )

    # -- logs --------------------------------------------------------------------------------

    def maintain(self) -> None:  # noqa: C901, PLR0912  # one case for each call
        rng, attempt, broker = self.rng, self.attempt, self.broker
        if (log := self.log()) is None:
            return
        tp, manager, offset = log.topic_partition, broker.manager, self.offset(log)
        match rng.randrange(24):
            case 0 | 1:
                attempt(broker.roll, *tp)
            case 2:
                attempt(log.flush, rng.choice((None, offset)))
            case 3 | 4:
                attempt(broker.delete_records, {tp: rng.choice((offset, offset, -1, "latest"))})
            case 5 | 6:
                attempt(manager.truncate_to, tp, offset)
            case 7:
                start = max(offset - rng.choice((0, 0, 1)), 0)
                attempt(manager.truncate_fully_and_start_at, tp, offset, rng.choice((None, start)))
            case 8:
                attempt(manager.raise_log_start, tp, offset)
            case 9:
                attempt(log.offsets.set_high_watermark, offset)
            case 10:
                attempt(log.offsets.maybe_increment_log_start_offset, offset)
            case 11 | 12:
                attempt(broker.retain, *rng.choice(((), tp)), dry_run=rng.random() < 0.3)
                attempt(log.next_expiry_ms)
            case 13:
                attempt(log.retention_decision, first_dirty_offset=offset)
            case 14:
                attempt(manager.delete_expired_files)
            case 15:
                attempt(manager.checkpoint_recovery_points)
                attempt(manager.checkpoint_log_starts)
                attempt(manager.checkpoint_high_watermarks)
            case 16:
                for epoch in range((attempt(lambda: log.leader_epoch) or 0) + 2):
                    attempt(log.epochs.end_offset_for, epoch, log.log_end_offset)
            case 17:
                attempt(log.producer_state.remove_expired, self.clock.now_ms())
                attempt(log.producer_state.next_expiry_ms, self.clock.now_ms())
            case 18:
                attempt(log.truncate_to, offset)
            case 19 if len(self.dirs) > 1:
                target = rng.choice((*self.dirs, "/three"))
                attempt(broker.alter_replica_log_dirs, {tp: target})
            case 20:
                attempt(log.delete_expired_files, force=rng.random() < 0.5)
            case 21:
                log.offsets.freeze_high_watermark()
            case 22:
                number = len(self.transcript.lines)
                log.subscribe(lambda: self.note("changed", number))
            case _:
                gap = rng.choice((None, None, log.log_end_offset + 3))
                rolled = attempt(log.writer.roll, gap)
                self.note(rolled and rolled.base_offset)

    # -- the cleaner -------------------------------------------------------------------------

    def clean(self) -> None:
        rng, attempt, broker, tp = self.rng, self.attempt, self.broker, self.tp()
        cleaner = broker.cleaner
        forced = {"force": rng.random() < 0.6, "roll": rng.random() < 0.6}
        where = rng.choice(((), tp, tp, (tp.topic,)))
        match rng.randrange(12):
            case 0 | 1 | 2 | 3:
                attempt(broker.clean, *where, **forced)
            case 4:
                attempt(broker.clean, *where, threads=rng.choice((1, 2, 9)), **forced)
            case 5:
                attempt(broker.clean, *where, dry_run=True, **forced)
            case 6:
                self.clean_watched(tp, forced)
            case 7:
                attempt(rng.choice((cleaner.pause, cleaner.try_pause)), tp)
                attempt(broker.clean, *where, **forced)
                self.note(cleaner.states.of(tp))
                attempt(cleaner.resume, tp)
            case 8:
                attempt(cleaner.retry, tp)
                attempt(cleaner.uncleanable)
                attempt(cleaner.uncleanable_totals)
            case 9:
                attempt(cleaner.retain)
            case 10:
                attempt(cleaner.chooser.next_due_ms)
                attempt(cleaner.checkpoints.of, tp)
            case _:
                attempt(broker.fates, *tp, **forced)
                attempt(lambda: list(broker.fates(*tp, **forced)))

    def clean_watched(self, tp: TopicPartition, forced: dict[str, bool]) -> None:
        """Clean, and do something at a chunk: write, ask, pause or stop."""
        rng, at = self.rng, self.rng.randrange(3)
        seen = 0

        def progress(*step: object) -> None:
            nonlocal seen
            self.note("progress", *step)
            if seen == at:
                match rng.randrange(6):
                    case 0:
                        raise ValueError("enough")
                    case 1:
                        self.attempt(self.broker.close)
                    case 2:
                        self.attempt(self.broker.delete_records, {tp: -1})
                    case 3:
                        self.attempt(self.broker.manager.truncate_to, tp, 1)
                    case _:
                        self.append_once()
            seen += 1

        self.attempt(self.broker.clean, *tp, progress=progress, **forced)

    # -- administration ----------------------------------------------------------------------

    def create(self, name: str) -> None:
        configs = drawn(self.rng, TOPIC_CONFIGS, 0.3)
        if self.rng.random() < 0.9:
            configs.pop("no.such.config", None)
        self.attempt(self.broker.create_topic, name, self.rng.choice((1, 1, 2)), configs)

    def administer(self) -> None:
        rng, attempt, broker = self.rng, self.attempt, self.broker
        names = [topic.name for topic in broker.topics()] or ["no"]
        name = rng.choice(names) if rng.random() < 0.9 else self.topic()
        match rng.randrange(14):
            case 0 | 1 | 2 | 3:
                configs = drawn(self.rng, TOPIC_CONFIGS, 0.1)
                unset = [key for key in TOPIC_CONFIGS if rng.random() < 0.05]
                attempt(broker.alter_configs, name, configs, unset=unset)
            case 4 | 5 | 6:
                unset = dict.fromkeys(key for key in BROKER_CONFIGS if rng.random() < 0.05)
                configs = drawn(self.rng, BROKER_CONFIGS, 0.06) | unset
                attempt(broker.alter_broker_configs, configs, cluster_wide=rng.random() < 0.3)
            case 7:
                attempt(broker.override_configs, name, drawn(self.rng, TOPIC_CONFIGS, 0.05))
                attempt(broker.describe_configs, name)
            case 8:
                attempt(broker.create_partitions, name, rng.choice((0, 1, 2, 3)))
            case 9 if len(names) > 1:
                attempt(broker.delete_topic, name)
            case 10:
                topics = broker.manager.topics
                settings = {"log.cleaner.threads": rng.choice(("1", "2", "x"))}
                configs = {"consumer.session.timeout.ms": rng.choice((50_000, 1))}
                attempt(topics.replace_settings, settings, rng.choice(list(Layer)))
                attempt(topics.alter_group, "g", configs, ["consumer.heartbeat.interval.ms"])
            case 11 if rng.random() < 0.3:
                attempt(broker.manager.topics.remove_partition, self.tp())
            case _:
                self.create(rng.choice((*NAMES, "w", "a/b")))
        attempt(broker.topics)

    def examine(self) -> None:
        rng, attempt, broker, tp = self.rng, self.attempt, self.broker, self.tp()
        match rng.randrange(13):
            case 0 | 1:
                options = {"quick": rng.random() < 0.3, "exact": rng.random() < 0.3}
                attempt(broker.explain, *rng.choice(((), tp)), **options)
            case 2:
                attempt(broker.stats, *tp, top=2)
            case 3:
                attempt(broker.erasure, tp.topic, rng.choice(KEYS))
            case 4:
                attempt(broker.preview, tp.topic, set=drawn(self.rng, TOPIC_CONFIGS, 0.1))
            case 5:
                attempt(broker.preview, set=drawn(self.rng, BROKER_CONFIGS, 0.05))
            case 6:
                attempt(described, broker)
                attempt(broker.describe_broker_configs)
            case 7:
                self.attempt_assertion(assertions.assert_compacted, broker, tp.topic)
                key = rng.choice(KEYS)
                self.attempt_assertion(assertions.assert_tombstone_gone, broker, tp.topic, key)
            case 8:
                attempt(metrics_text, broker)
                attempt(lambda: broker.manager.identity)
            case 9:
                if (copy := attempt(broker.fork)) is not None:
                    self.note_found(copy)
                    attempt(copy.close)
            case 11:
                attempt(Broker, self.dirs, fs=self.fs, clock=self.clock, seed=1)
            case 10:
                attempt(broker.run_until, self.clock.now_ms() + 500)
                offsets = {tp: rng.choice((None, 1))}
                self.attempt_assertion(assertions.assert_committed, broker, "g", offsets)
            case _:
                attempt(assertions.history, broker, tp.topic, rng.choice(KEYS))
                attempt(assertions.records_by_key, broker, *tp)

    def attempt_assertion(self, check: Callable[..., None], *arguments: Any) -> None:
        try:
            check(*arguments)
        except AssertionError as error:
            self.note(check.__name__, arguments, str(error))
        except ERRORS as error:
            self.note_error(error)

    # -- faults and restarts -----------------------------------------------------------------

    def advance(self) -> None:
        rng = self.rng
        ms = rng.choice((0, 0, 1, 10, 100, 1000, 1000, 20_000, 60_000, HOUR_MS))
        ms = ms if rng.random() < 0.97 else 3 * DAY_MS
        try:
            self.clock.advance(ms=ms)
        except ERRORS as error:
            self.note_error(error)

    def fail(self) -> None:
        """Let the disk or the requests fail for a while."""
        rng, attempt, broker = self.rng, self.attempt, self.broker
        nth, times = rng.choice((None, 1, 2, 4, 9)), rng.choice((None, 1, 1, 2))
        error = rng.choice(("EIO", "EIO", "ENOSPC", "EROFS"))
        if isinstance(self.fs, FaultyFileSystem) and rng.random() < 0.6:
            kind = rng.choice(("change", "change", *(each.name for each in FILE_KINDS)))
            suffix = rng.choice(("", "", ".log", "index", "checkpoint", ".snapshot", ".cleaned"))
            options = {"suffix": suffix, "written": rng.choice((0, 0, 5)), "error": error}
            attempt(self.fs.fail, kind, nth=nth, times=times, **options)
        elif rng.random() < 0.7:
            kind = rng.choice(("write", "read", "fsync", "rename", "swap"))
            attempt(broker.fail, kind, error=error, nth=nth, times=times)
        else:
            kind, after = rng.choice(("append", "fetch")), rng.random() < 0.3
            error = rng.choice(("REQUEST_TIMED_OUT", "EIO", "NOT_LEADER_OR_FOLLOWER", "no"))
            attempt(broker.fail, kind, error=error, nth=nth, times=times, after=after)
        rng.choice((self.do_something, self.do_something, self.read))()
        if rng.random() < 0.3:
            attempt(broker.close)
        self.note(_shown(list(broker.faults)))
        broker.faults.clear()
        if isinstance(self.fs, FaultyFileSystem):
            self.note(_shown(list(self.fs.faults)))
            self.fs.faults.clear()
        is_over = broker.manager.lifetime.is_over
        if is_over or not all(each.is_online for each in broker.manager.directories):
            self.restart()

    def do_something(self) -> None:
        """Take actions that change files."""
        actions = (self.append, self.maintain, self.maintain, self.clean, self.administer)
        for _ in range(self.rng.choice((1, 2, 4))):
            self.rng.choice(actions)()
            self.advance()

    def interrupt(self) -> None:
        """End a call before one of its file operations, as a signal handler may."""
        left = self.rng.choice((1, 2, 3, 5, 8, 13))

        def strike(_: object) -> bool:
            nonlocal left
            left -= 1
            if left == 0:
                raise _Interrupt
            return False

        kind = self.rng.choice(("write", "write", "fsync", "rename", "read", "swap"))
        self.note("interrupt", kind, left)
        with self.broker.fail(kind, error="EIO", when=strike):
            self.do_something()

    def intrude(self) -> None:
        """Change a log while another one, or the same one, is read or cleaned."""
        left, is_inside = self.rng.choice((1, 2, 3, 5, 8)), False

        def strike(call: Any) -> bool:
            nonlocal left, is_inside
            left -= call.path.endswith(".log") and not is_inside  # the lock of an index is held
            if left == 0 and not is_inside:
                left = -1
                is_inside = True
                self.rng.choice((self.maintain, self.maintain, self.append, self.clean))()
                is_inside = False
            return False

        self.note("intrude", left)
        with self.broker.fail("read", error="EIO", when=strike):
            self.rng.choice((self.read, self.read, self.clean, self.do_something))()

    def move(self) -> None:
        """Move partitions; the disk may fail, or the machine crash."""
        rng, how = self.rng, self.rng.randrange(4)
        self.note("move", how)
        if how == 0 and isinstance(self.fs, FaultyFileSystem):
            self.fs.crash_at(self.fs.operation_count + rng.randint(1, 40))
        elif how == 1:
            kind, error = rng.choice(("write", "fsync", "rename")), rng.choice(("ENOSPC", "EIO"))
            self.broker.fail(kind, error=error, nth=rng.randint(1, 12))
        for _ in range(rng.choice((1, 2))):
            self.attempt(self.broker.alter_replica_log_dirs, {self.tp(): rng.choice(self.dirs)})
            self.append_once()
        self.broker.faults.clear()
        if how == 0:
            self.restart(crashes=True)

    def spoil(self) -> None:
        """Damage a file of the running broker."""
        paths = [path for path in self.paths() if path.endswith(".log")]
        if self.root or not paths:
            return
        path = self.rng.choice(paths)
        file = self.fs.open(path, write=True)
        size = file.size()
        if size:
            place = self.rng.randrange(size)
            file.write_at([bytes([file.read(place, 1)[0] ^ 1 << self.rng.randrange(8)])], place)
            self.note("spoil", path, place)
        file.close()
        if self.rng.random() < 0.1:
            self.fs.remove(f"{self.dirs[0]}/.lock")
        actions = (self.clean, self.clean, self.read, self.examine, self.do_something)
        for action in self.rng.sample(actions, 4):
            action()
        self.restart()

    def crash_inside(self) -> None:
        """Let the machine crash during an operation on a file."""
        if isinstance(self.fs, FaultyFileSystem):
            self.fs.crash_at(self.fs.operation_count + self.rng.choice((1, 2, 3, 5, 8, 13, 21, 34)))
            self.do_something()
        self.restart(crashes=True)

    def restart(self, *, crashes: bool = False) -> None:
        """Close the broker, kill it or let its machine crash. Then open it, perhaps damaged."""
        rng, attempt, broker = self.rng, self.attempt, self.broker
        self.close_viewer()
        match 5 if crashes else rng.randrange(6):
            case 0 | 1:
                attempt(broker.close)
            case 2:
                attempt(broker._kill)
            case 3:
                if (recovered := attempt(broker.crash)) is not None:
                    self.broker = broker = recovered
                    self.fs = broker._disk.base
                    self.append()
                    attempt(broker._kill)
            case _:
                attempt(broker._kill)
                if isinstance(self.fs, FaultyFileSystem):
                    self.lose_power()
        if not broker.manager.lifetime.is_over:
            attempt(broker._kill)
        if not self.root:
            self.fs = FaultyFileSystem(self.clock, getattr(self.fs, "base", self.fs))
        self.clock.advance(ms=rng.choice((0, 1000, DAY_MS)))
        self.note_files()
        image = None
        if not self.root and rng.random() < 0.5:
            image = self.fs.base.fork(self.clock)
            for _ in range(3):
                self.fs = FaultyFileSystem(self.clock, image)
                for _ in range(rng.choice((1, 1, 2, 3))):
                    self.damage()
                self.fs = FaultyFileSystem(self.clock, self.fs.base)  # the damage is durable
                self.look(on_damage="pass_over")
                if self.open(on_damage=rng.choice(("recover", "refuse"))):
                    self.note_files()
                    attempt(self.broker._kill)
        if rng.random() < 0.3:
            self.config = self.broker_config()
        if not self.root and rng.random() < 0.1:
            kind = rng.choice(("open", "list", "write", "read", "fsync", "create", "remove"))
            self.fs.fail(kind, nth=rng.choice((1, 2, 5, 9)), suffix=rng.choice(("", ".log")))
            if self.open():
                attempt(self.broker.close)
            self.fs.faults.clear()
        if self.open(on_damage=rng.choice(("recover", "refuse"))) or self.open():
            return
        self.config = SMALL
        if self.open():
            return
        assert image is not None
        self.fs = FaultyFileSystem(self.clock, image)
        assert self.open()

    def lose_power(self) -> None:
        rng = self.rng
        mode = CrashMode(
            rng.choice(list(Contents)),
            rng.choice(list(Names)),
            rng.randint(0, self.fs.pending_units),
            rng.randint(0, self.fs.pending_names),
            rng.randrange(1000),
        )
        self.note("crash", mode)
        self.fs = self.fs.crash(mode)

    def open(self, **options: Any) -> bool:
        """Open the broker, and note the state of its files."""
        self.note("open", self.config, options)
        try:
            self.broker = Broker(
                self.dirs,
                fs=self.fs,
                clock=self.clock,
                seed=self.rng.randrange(100),
                broker_config=self.config,
                background=self.background,
                disk_faults=True,
                on_load=lambda *loaded: self.note("loaded", *map(_shown, loaded)),
                **options,
            )
        except ERRORS as error:
            self.note_error(error)
            return False
        self.note_found(self.broker)
        return True

    def note_found(self, broker: Any) -> None:
        self.note(broker, broker.broker_config.given)
        self.attempt(broker.topics)
        self.attempt(lambda: broker.manager.identity)
        for tp in broker.partitions():
            log = self.attempt(broker.log, tp)
            if log is not None:
                self.note(log.findings, log.damages, log.torn, log.surveyed)

    def damage(self) -> None:
        """Change a file, or a name."""
        rng = self.rng
        paths = self.paths()
        if not paths:
            return
        if rng.random() < 0.2:
            self.make_stray()
        suffix = rng.choice(SUFFIXES)
        matching = [each for each in paths if each.endswith(suffix) and self.fs.stat(each).size]
        path = rng.choice(matching or paths)
        file = self.fs.open(path, write=True)
        size = file.size()
        is_text = not path.endswith((".log", "index", ".snapshot"))
        kind = rng.randrange(14)
        self.note("damage", path, size, kind)
        match kind:
            case _ if is_text and kind > 4:
                self.edit(file)
            case 0 | 1 if size:
                place = rng.randrange(size)
                file.write_at([bytes([file.read(place, 1)[0] ^ 1 << rng.randrange(8)])], place)
            case 2 | 3 if size:
                file.truncate(rng.randrange(size))
            case 4:
                file.append([rng.choice((rng.randbytes(30), bytes(40), file.read(0, size)))])
            case 5:
                self.fs.remove(path)
            case 6:
                suffix = rng.choice((".swap", ".cleaned", ".deleted", ".tmp", ".x"))
                self.fs.rename(path, path + suffix)
            case 7:
                folder, _, name = path.rpartition("/")
                number = rng.choice((1, 5, 10_000))
                other = f"{folder}/{number:020d}.{name.rpartition('.')[2]}"
                self.copy(path, rng.choice((other, path + ".swap", path + ".cleaned")))
            case 8 | 9:
                self.swap(path)
            case 10:
                folder, _, name = path.rpartition("/")
                rng.choice((self.copy, self.fs.rename))(path, f"{folder}/{name.lstrip('0')}")
            case _ if path.endswith(".log"):
                self.append_unchecked(file, path)
            case _:
                file.truncate(0)
        file.close()

    def edit(self, file: Any) -> None:
        """Change a number, a character or a line of a text file."""
        rng = self.rng
        lines = file.read(0, file.size()).decode(errors="replace").split("\n")
        row = rng.choice((rng.randrange(len(lines)), *range(2, len(lines) - 1)))
        line = lines[row]
        match rng.randrange(6):
            case 0:
                del lines[row]
            case 1:
                lines.insert(row, line)
            case 2:
                place = rng.randrange(len(line) + 1)
                lines[row] = line[:place] + rng.choice("01x-{ ") + line[place + 1 :]
            case _:
                head, _, number = line.rpartition(" ")
                other = int(number) + rng.choice((1, 30)) if number.isdigit() else 7
                changed = rng.choice((0, 1, 3, 1000, -1, other, other, other, "x", "9" * 21))
                lines[row] = f"{head} {changed}".lstrip()
        file.truncate(0)
        file.append(["\n".join(lines).encode()])

    def make_stray(self) -> None:
        """Create a folder, or a file that a broker reads if it exists."""
        rng, parent = self.rng, self.rng.choice(self.dirs)
        with suppress(OSError):
            if rng.random() < 0.4:
                self.fs.make_dirs(f"{parent}/{rng.choice(FOLDERS)}")
                return
            name = rng.choice(("meta.properties", "logstore-moves.json", *STRAYS))
            if rng.random() < 0.2:
                parent += "/t-7"
                self.fs.make_dirs(parent)
            file = self.fs.open(f"{parent}/{name}", write=True, create=True)
            file.truncate(0)
            file.append([STRAYS[name].encode()])
            if rng.random() < 0.5:
                self.edit(file)
            file.close()

    def swap(self, path: str) -> None:
        """Copy a segment as if its swap had been interrupted, and perhaps damage the copy."""
        stem = path.rpartition(".")[0]
        for each in [each for each in self.paths() if each.startswith(stem + ".")]:
            self.copy(each, each + ".swap")
        if self.rng.random() < 0.5 and self.fs.exists(f"{stem}.log.swap"):
            file = self.fs.open(f"{stem}.log.swap", write=True)
            if file.size():
                file.truncate(self.rng.randrange(file.size()))
            file.close()

    def append_unchecked(self, file: Any, path: str) -> None:
        """Append valid batches, some with offsets that do not fit."""
        rng = self.rng
        offset = int(path.rpartition("/")[2][:20]) if path[-24:-4].isdigit() else 0
        with suppress(LogStoreError):
            for each in walk_buffer(file.read(0, file.size())):
                offset = each.header.next_offset
        for _ in range(rng.choice((1, 2))):
            offset = max(offset + rng.choice((0, 0, 1, -2, 1 << 30, 1 << 31)), 0)
            producer_id = rng.choice((1, 2))
            build = rng.choice((batch, batch, data_batch, commit, abort))
            if build is data_batch:
                file.append([data_batch(offset, offset + 1, producer_id)])
            else:
                rest = () if build is batch else (producer_id,)
                file.append([build(offset, *rest)])
            offset += 2

    def copy(self, path: str, target: str) -> None:
        data = read_bytes(self.fs, path)
        file = self.fs.open(target, write=True, create=True)
        file.truncate(0)
        file.append([data])
        file.close()

    # -- readers next to the broker ------------------------------------------------------------

    def look(self, **options: Any) -> Any:
        """Open the files for reading, and read everything."""
        self.note("look", options)
        try:
            viewer = Broker(
                self.dirs,
                fs=self.fs,
                clock=self.clock,
                seed=self.seed,
                broker_config=SMALL,
                read_only=True,
                **options,
            )
        except ERRORS as error:
            self.note_error(error)
            return None
        self.note_found(viewer)
        for tp in viewer.partitions():
            self.attempt(viewer.read, *tp)
        self.attempt(viewer.explain)
        if not options or self.rng.random() < 0.5:
            return viewer
        viewer.close()
        return None

    def view(self) -> None:
        """Read with a broker that was opened for reading while the other one changes the files."""
        if self.viewer is None:
            shown = {}
            tps = self.existing()
            if tps and self.rng.random() < 0.3:
                tp = self.rng.choice(tps)
                file = self.rng.choice((None, f"{0:020d}.log"))
                shown["shown"] = OpenedFolder(TopicPartition("shown", 0), str(tp), file)
            self.viewer = self.look(**shown)
            return
        for _ in range(3):
            self.read_from(self.viewer)
        if self.rng.random() < 0.2:
            for tp in self.viewer.partitions()[:2]:
                self.attempt(self.viewer.manager.registry.survey, tp)
        if self.rng.random() < 0.3:
            self.close_viewer()

    def close_viewer(self) -> None:
        if self.viewer is not None:
            self.attempt(self.viewer.close)
            self.viewer = None
