"""Random data directories in memory: topics with many configs, cleaned in part, some damaged."""

from __future__ import annotations

import json
import struct
from random import Random
from typing import Any, NamedTuple

from logstore import Broker, LogStoreError, OffsetAndMetadata, TopicPartition, VirtualClock
from logstore.runtime import MemoryFileSystem
from tests.support.world.builders import batches_of
from tests.support.world.crafted import CRAFTED
from tests.support.world.damage import Directory
from tests.support.world.golden_dirs import ROOT, copy_to_memory, tree
from tests.support.world.legacy import compressed_set, message
from tests.support.world.random_cleanings import DAY_MS, HEADER, fill
from tests.support.world.transcripts import drawn

TOPICS = ("users", "orders", "a.b", "events")
CONFIGS: dict[str, tuple[object, ...]] = {
    "cleanup.policy": ("compact", "compact", "compact", "delete", "compact,delete"),
    "segment.bytes": (600, 1500, 6000),
    "segment.ms": ("1h", "7d"),
    "index.interval.bytes": (50, 300),
    "delete.retention.ms": (0, "1h", "1d"),
    "min.cleanable.dirty.ratio": (0, 0.3, 0.9),
    "min.compaction.lag.ms": ("30m", "3d"),
    "max.compaction.lag.ms": ("4d", "20d"),
    "retention.ms": (-1, "1h", "2d"),
    "retention.bytes": (-1, 300, 5000),
    "compaction.strategy": ("offset", "timestamp", "header", "header"),
    "compaction.strategy.header": (HEADER, HEADER, "other"),
    "message.timestamp.type": ("CreateTime", "LogAppendTime"),
    "compression.type": ("producer", "producer", "gzip"),
    "file.delete.delay.ms": (60_000, 0),
}
BROKER_CONFIGS: dict[str, tuple[object, ...]] = {
    "log.cleaner.delete.retention.ms": (2 * DAY_MS, 1),
    "log.cleaner.threads": (1, 2),
    "log.cleaner.min.compaction.lag.ms": (0, 1000),
    "log.retention.ms": (-1, DAY_MS),
    "log.cleanup.policy": ("compact", "delete"),
}
SMALL = {
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
    "log.index.size.max.bytes": 4096,
}
SMALL_MAP = {
    "log.cleaner.dedupe.buffer.size": (1 << 20) + 24,
    "log.cleaner.io.buffer.load.factor": 6 * 24 / (1 << 20),
}
KEYS = (b"k1", b"k7", b"k12", b"", b"\xff\x00", b'{"id": 1}', "ключ".encode(), b"=1+2", b"a\tb\n")
GOLDEN = (
    *("segments", "transactions", "idempotent", "holes", "log-append-time", "codec-gzip"),
    *("clean-small/before", "clean-small/after", "clean-tombstones-1/before"),
    *("clean-transactions-2/after", "clean-open-transaction/before", "clean-unkeyed/before"),
)


class Made(NamedTuple):
    """A directory, an earlier copy of it, and the time of the last append."""

    fs: MemoryFileSystem
    before: dict[str, bytes]
    now_ms: int

    @property
    def folders(self) -> list[str]:
        """The names of the folders."""
        return [name for name in self.fs.list_dir("/data") if self.fs.is_dir(f"/data/{name}")]


def random_directory(rng: Random) -> Made:
    """Make a directory, damaged or not."""
    made = _copied_from_kafka(rng) if rng.random() < 0.15 else _History(rng).make()
    if rng.random() < 0.5:
        damage(made.fs, rng)
    return made


def _copied_from_kafka(rng: Random) -> Made:
    """Copy partition directories that Kafka wrote, and logs of its internal topics."""
    fs = MemoryFileSystem(VirtualClock())
    directory = Directory(fs)
    fs.make_dirs("/data")
    for number, case in enumerate(rng.sample(GOLDEN, rng.randint(1, 3))):
        path = case if "/" in case else f"{case}/data"
        if "/" in case:
            path = f"{path}/data"
        _put(directory, f"{rng.choice(TOPICS)}-{number}", ROOT / path / "golden-0")
    for folder in rng.sample(sorted((ROOT / "decoders").iterdir()), rng.randint(0, 3)):
        if folder.is_dir():
            _put(directory, folder.name, folder)
    if rng.random() < 0.6:
        directory.write("meta.properties", b"version=1\nnode.id=3\ncluster.id=abc\n")
    return Made(fs, tree(fs), 1_700_000_000_000 + rng.choice((0, DAY_MS, 90 * DAY_MS)))


def _put(directory: Directory, folder: str, source: Any) -> None:
    directory.make_dirs(folder)
    for name, data in tree(copy_to_memory(source, VirtualClock())).items():
        directory.write(f"{folder}/{name}", data)


class _History:
    """A broker whose topics are filled, cleaned, deleted from and altered for some days."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.clock = VirtualClock()
        self.fs = MemoryFileSystem(self.clock)
        configs = SMALL | drawn(rng, BROKER_CONFIGS, 0.3)
        if rng.random() < 0.2:
            configs |= SMALL_MAP
        self.broker = Broker(
            "/data",
            clock=self.clock,
            fs=self.fs,
            broker_config=configs,
            seed=rng.randrange(1000),
            background=rng.random() < 0.2,
        )

    def make(self) -> Made:
        rng = self.rng
        self.topics = rng.sample(TOPICS, rng.randint(1, 3))
        for topic in self.topics:
            partitions = rng.choice((1, 1, 2, 5))
            self.broker.create_topic(topic, partitions, drawn(rng, CONFIGS, 0.3))
        before: dict[str, bytes] = {}
        steps = rng.randint(4, 14)
        for step in range(steps):
            if step == steps // 2:
                before = tree(self.fs)
            try:
                self.step(rng.choice(self.topics))
            except LogStoreError:
                continue
        now_ms = self.clock.now_ms()
        if rng.random() < 0.3:  # not closed cleanly
            left = tree(self.fs)
            self.broker.close()
            return Made(_in_memory(left), before, now_ms)
        self.broker.close()
        directory = Directory(self.fs)
        if rng.random() < 0.15:
            self.add_crafted(directory)
        if rng.random() < 0.15:
            self.add_legacy(directory)
        if rng.random() < 0.2:
            for name in self.fs.list_dir("/data"):
                if not self.fs.is_dir(f"/data/{name}") and rng.random() < 0.7:
                    directory.remove(name)
        return Made(self.fs, before, now_ms)

    def step(self, topic: str) -> None:
        rng, broker = self.rng, self.broker
        partition = rng.choice(broker.partitions(topic)).partition
        match rng.randrange(14):
            case 0 | 1 | 2 | 3:
                fill(broker, topic, rng, rng.randrange(5, 50), partition)
                if rng.random() < 0.7:
                    broker.roll(topic, partition)
            case 4:
                key = rng.choice((*KEYS, None))
                headers = [] if rng.random() < 0.6 else [(HEADER, None), ("=h\x1b", b"\x00\xff")]
                value = rng.choice((None, b"", b"@v", b"x" * 3000, b'{"a": [1, 2.5]}'))
                broker.append(topic, key=key, value=value, headers=headers, partition=partition)
            case 5:
                broker.clean(topic, force=rng.random() < 0.7, roll=rng.random() < 0.5)
            case 6:
                broker.retain(topic)
            case 7:
                log = broker.log(topic, partition)
                offset = rng.randint(log.log_start_offset, log.high_watermark)
                broker.delete_records({TopicPartition(topic, partition): offset})
            case 8:
                broker.alter_configs(topic, drawn(rng, CONFIGS, 0.15))
            case 9:
                with broker.consumer(group_id=f"g{rng.randrange(2)}") as consumer:
                    tp = TopicPartition(topic, partition)
                    consumer.assign([tp])
                    consumer.commit({tp: OffsetAndMetadata(rng.randrange(9), "m")})
            case 10:
                producer = broker.producer(
                    transactional_id=f"open-{rng.randrange(2)}",
                    transaction_timeout_ms=rng.choice((1000, 600_000)),
                )
                producer.init_transactions()
                producer.begin_transaction()
                producer.send(topic, b"o", rng.choice(KEYS), partition=partition).get()
            case _:
                self.clock.advance(ms=rng.randrange(rng.choice((3_600_000, DAY_MS, 9 * DAY_MS))))

    def add_crafted(self, directory: Directory) -> None:
        """Add a folder that needs recovery."""
        folder = f"crafted-{self.rng.randrange(3)}"
        directory.make_dirs(folder)
        for name, data in CRAFTED[self.rng.choice(sorted(CRAFTED))]().files.items():
            directory.write(f"{folder}/{name}", data)

    def add_legacy(self, directory: Directory) -> None:
        """Add a log of messages of magic 0 and 1."""
        rng = self.rng
        parts = []
        offset = 0
        for _ in range(rng.randint(1, 5)):
            if rng.random() < 0.5:
                value = rng.choice((b"v", None))
                parts.append(message(offset, b"k", value, magic=rng.randrange(2)))
                offset += 1
            else:
                rows = [(offset + n, rng.choice((b"a", None)), b"v") for n in range(3)]
                parts.append(compressed_set(rows, magic=rng.randrange(2)))
                offset += 3
        directory.make_dirs("legacy-0")
        directory.write(f"legacy-0/{0:020}.log", b"".join(parts))


def _in_memory(files: dict[str, bytes]) -> MemoryFileSystem:
    fs = MemoryFileSystem(VirtualClock())
    fs.make_dirs("/data")
    directory = Directory(fs)
    for name, data in files.items():
        if "/" in name:
            directory.make_dirs(name.rpartition("/")[0])
        directory.write(name, data)
    return fs


# -- damage ----------------------------------------------------------------------------------

HEADER_FIELDS = (
    *(("q", 0), ("i", 8), ("i", 12), ("b", 16), ("I", 17), ("h", 21), ("i", 23), ("q", 27)),
    *(("q", 35), ("q", 43), ("h", 51), ("i", 53), ("i", 57)),
)
"""Types and positions of the fields in a batch header."""

VALUES = (-1, 0, 1, 2, 5, 100, 1 << 14)
STRAY = (
    *("notes.txt", "00000000000000000003.log.deleted", "00000000000000000000.log.cleaned"),
    *("00000000000000000000.index.swap", "00000000000000000009.snapshot", "7.log"),
    *("00000000000000000005.timeindex", "00000000000000000002.txnindex", "partition.metadata"),
    *("leader-epoch-checkpoint", "00000000000000000000.log.abc.deleted"),
)
FOLDERS = (
    *("x", "users--1", "users-01", "a b-0", "users-0.4f1c2e-delete", "orders-0.4f1c2e-future"),
    *("users-0-stray", "\x1b[1m-0", "remote-log-index-cache", "users-9"),
)


def damage(fs: MemoryFileSystem, rng: Random) -> None:
    """Damage some files."""
    directory = Directory(fs)
    for _ in range(rng.choice((1, 1, 2, 3, 5))):
        names = sorted(tree(fs))
        wanted = rng.choice(("", "log", "log", "log", "index", "timeindex", "txnindex", "snapshot"))
        names = [each for each in names if each.endswith(wanted)] or names
        if names:
            _damage_file(directory, rng, rng.choice(names))


def _damage_file(directory: Directory, rng: Random, name: str) -> None:
    data = directory.read(name)
    is_text = not name.endswith(("log", "index", "snapshot"))
    match rng.randrange(14):
        case 0:
            directory.remove(name)
        case 1:
            directory.cut(name, rng.randrange(len(data) + 1))
        case 2:
            directory.append(name, rng.choice((bytes(12), b"\1" * 7, data[:30], data[-24:], data)))
        case 3:
            parent = name.rpartition("/")[0]
            stray = f"{parent}/{rng.choice(STRAY)}" if parent else rng.choice(STRAY)
            content = rng.choice((b"", data, b"\1" * 9))
            directory.write(stray, content)
        case 4:
            folder = rng.choice(FOLDERS)
            directory.make_dirs(folder)
            directory.write(f"{folder}/{name.rpartition('/')[2]}", data)
        case _ if is_text:
            directory.write(name, _other_text(data.decode(errors="replace"), rng).encode())
        case 5 | 6 if data:
            directory.flip(name, rng.randrange(len(data)), rng.randrange(8))
        case _ if name.endswith("log") and data:
            _damage_batch(directory, rng, name, data)
        case _ if name.endswith("snapshot") and len(data) > 40:
            kind, at = rng.choice((("h", 0), ("i", 6), ("q", 10), ("h", 18), ("i", 20), ("q", 24)))
            directory.reseal_snapshot(name, f">{kind}", at, rng.choice(VALUES))
        case 7 if len(data) >= 24:
            size = 12 if name.endswith("timeindex") else 8
            directory.swap(name, size, rng.randrange(len(data) // size - 1) * size)
        case _ if len(data) >= 12:
            size = 12 if name.endswith("timeindex") else 8
            at = rng.randrange(len(data) // size) * size + rng.choice((0, size - 4))
            directory.put(name, ">i", at, rng.choice(VALUES))


def _damage_batch(directory: Directory, rng: Random, name: str, data: bytes) -> None:
    try:
        batches = batches_of(data)
    except LogStoreError:
        return
    starts = [0]
    for each in batches:
        starts.append(starts[-1] + len(each.data))
    at = rng.randrange(len(batches))
    start, end = starts[at], starts[at + 1]
    match rng.randrange(6):
        case 0:
            directory.write(name, data[:start] + data[end:])
        case 1:
            directory.write(name, data[:end] + data[start:end] + data[end:])
        case 2:
            directory.write(name, data[:start] + bytes(rng.choice((1, 61, 200))) + data[start:])
        case 3:
            kind, place = rng.choice(HEADER_FIELDS)
            directory.put(name, f">{kind}", start + place, rng.choice(VALUES) % (1 << 7))
        case _:
            kind, place = rng.choice(HEADER_FIELDS[5:])
            (value,) = struct.unpack_from(f">{kind}", data, start + place)
            new = rng.choice((value + 1, value - 1, 0, -1, 5))
            directory.reseal(name, start, f">{kind}", place, new)


def _other_text(text: str, rng: Random) -> str:
    """Return a text file with a line or a number changed."""
    lines = text.splitlines() or [""]
    at = rng.randrange(len(lines))
    match rng.randrange(7):
        case 0:
            del lines[at]
        case 1:
            lines.insert(at, lines[rng.randrange(len(lines))])
        case 2:
            lines[at] = rng.choice(("", "x", "-1", "users 0 nine", "0", "1 7", "\0"))
        case 3:
            return text[: rng.randrange(len(text) + 1)]
        case 4 if text.startswith("{"):
            tree = json.loads(text)
            tree[rng.choice(sorted(tree) or ["x"])] = rng.choice((None, [], {}, 1, "x"))
            return json.dumps(tree)
        case _:
            words = lines[at].split(" ")
            word = rng.randrange(len(words))
            words[word] = rng.choice(("7", "0", "-3", "99999", "x", words[word] * 2))
            lines[at] = " ".join(words)
    return "\n".join(lines) + "\n"
