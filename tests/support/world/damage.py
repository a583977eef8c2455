"""Healthy data directories, written by Kafka and by this engine, and functions to damage them.

Both have the same shape, so that each damage is defined once: topic `golden`, one partition, below
`/data` in memory. A `Site` is a location in such a directory for most kinds of damage.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from logstore import Broker
from logstore.inspect.check import ERROR, CheckCounts, Checker, CheckFinding
from logstore.record.batch import RecordBatch
from logstore.record.codecs import Codec
from logstore.record.crc32c import crc32c
from logstore.record.header import BatchHeader
from logstore.runtime import MemoryFileSystem, ReadOnlyFileSystem, VirtualClock
from logstore.storage.checkpoint.atomic import read_bytes
from logstore.storage.checkpoint.shutdown import CLEAN_SHUTDOWN
from logstore.storage.index import OffsetIndex, TimeIndex
from logstore.storage.log import NewRecord
from logstore.types import AppendOrigin
from tests.support.world.builders import abort, batch, batches_of, commit, data_batch, log_name
from tests.support.world.golden_dirs import ROOT, copy_to_memory, tree

KAFKA, OWN = "kafka", "own"
ORIGINS = (KAFKA, OWN)

VALUES = Path(__file__).parents[2] / "unit" / "inspect" / "check" / "damage-values.json"
"""The values that the findings of each damage compare."""
CODECS = tuple(codec.name.lower() for codec in Codec if codec is not Codec.NONE)

EPOCHS = "golden-0/leader-epoch-checkpoint"
RECOVERY = "recovery-point-offset-checkpoint"
TOPICS = "logstore-topics.json"
CHECKPOINTS = (
    RECOVERY,
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
    "cleaner-offset-checkpoint",
)


class Found(NamedTuple):
    """The expected values of a finding."""

    check: str
    path: str
    position: int | None = None
    offset: int | None = None
    severity: str = ERROR


class Directory:
    """A data directory in memory, and changes to it that bypass the engine.

    Names are relative to the directory, kinds are `struct` codes.
    """

    def __init__(self, fs: MemoryFileSystem) -> None:
        self.fs = fs

    @classmethod
    def of(cls, files: dict[str, bytes]) -> Directory:
        """Make a directory of files."""
        directory = cls(MemoryFileSystem(VirtualClock()))
        directory.fs.make_dirs("/data/golden-0")
        for name, data in files.items():
            directory.write(name, data)
        return directory

    def read(self, name: str) -> bytes:
        return read_bytes(self.fs, f"/data/{name}")

    def write(self, name: str, data: bytes = b"") -> None:
        file = self.fs.open(f"/data/{name}", create=True)
        file.truncate(0)
        file.append([bytes(data)])
        file.close()

    def make_dirs(self, name: str) -> None:
        self.fs.make_dirs(f"/data/{name}")

    def edit(self, name: str, change: Callable[[bytearray], bytes | None]) -> None:
        data = bytearray(self.read(name))
        changed = change(data)
        self.write(name, data if changed is None else changed)

    def append(self, name: str, tail: bytes) -> None:
        self.write(name, self.read(name) + tail)

    def cut(self, name: str, size: int) -> None:
        """Keep the first `size` bytes; a negative size counts from the end."""
        self.write(name, self.read(name)[:size])

    def put(self, name: str, kind: str, position: int, value: object) -> None:
        self.edit(name, lambda data: struct.pack_into(kind, data, position, value))

    def add(self, name: str, kind: str, position: int, amount: int) -> None:
        (value,) = struct.unpack_from(kind, self.read(name), position)
        self.put(name, kind, position, value + amount)

    def flip(self, name: str, position: int, bit: int = 0) -> None:
        def change(data: bytearray) -> None:
            data[position] ^= 1 << bit

        self.edit(name, change)

    @contextmanager
    def flipped(self, name: str, position: int, bit: int) -> Iterator[None]:
        """Flip a bit, and in the end back again."""
        self.flip(name, position, bit)
        yield
        self.flip(name, position, bit)

    def swap(self, name: str, size: int, first: int = 0) -> None:
        """Swap two adjacent ranges of `size` bytes."""

        def change(data: bytearray) -> None:
            one, two = data[first : first + size], data[first + size : first + 2 * size]
            data[first : first + 2 * size] = two + one

        self.edit(name, change)

    def reseal(self, name: str, position: int, kind: str, at: int, value: object) -> None:
        """Change a field of the batch at a position, and make its CRC right again."""

        def change(data: bytearray) -> None:
            struct.pack_into(kind, data, position + at, value)
            size = int.from_bytes(data[position + 8 : position + 12], "big") + 12
            crc = crc32c(bytes(data[position + 21 : position + size]))
            struct.pack_into(">I", data, position + 17, crc)

        self.edit(name, change)

    def reseal_snapshot(self, name: str, kind: str, at: int, value: object) -> None:
        """Change a field of a producer snapshot, and make its CRC right again."""
        self.put(name, kind, at, value)
        self.put(name, ">I", 2, crc32c(self.read(name)[6:]))

    def remove(self, name: str) -> None:
        self.fs.remove(f"/data/{name}")

    def rename(self, name: str, target: str) -> None:
        self.fs.rename(f"/data/{name}", f"/data/{target}")

    def unclean(self) -> None:
        self.remove(CLEAN_SHUTDOWN)

    def check(self, path: str = "", counts: CheckCounts | None = None) -> list[CheckFinding]:
        checker = Checker(ReadOnlyFileSystem(self.fs), counts)
        return list(checker.path(f"/data/{path}".rstrip("/")))

    def found(self, path: str = "") -> list[Found]:
        self.findings = self.check(path)
        return [
            Found(
                each.check,
                each.path.removeprefix("/data/"),
                each.position,
                each.offset,
                each.severity,
            )
            for each in self.findings
        ]

    def values(self) -> list[str]:
        """Return the expected and the found value of each finding that compares values."""
        return [
            f"{each.check}: {each.expected!r} ≠ {each.found!r}"
            for each in self.findings
            if (each.expected, each.found) != (None, None)
        ]

    def bases(self) -> list[int]:
        """The base offsets of the segments."""
        names = self.fs.list_dir("/data/golden-0")
        return [int(name[:20]) for name in names if name.endswith(".log")]


def partition(*segments: list[bytes], first: int = 0) -> Directory:
    """Make a data directory of one partition from lists of batches, its indexes empty."""
    directory = Directory.of({EPOCHS: b"0\n1\n0 0\n", CLEAN_SHUTDOWN: b"{}"})
    base = first
    for batches in segments:
        data = b"".join(batches)
        directory.write(f"golden-0/{log_name(base)}", data)
        for suffix in ("index", "timeindex"):
            directory.write(f"golden-0/{base:020d}.{suffix}")
        base = batches_of(data)[-1].header.next_offset if data else base
    return directory


# -- healthy directories ---------------------------------------------------------------------------


def kafka(case: str) -> Directory:
    """Copy a golden directory of Kafka's: `segments`, or `clean-small/after/data`."""
    path = case if "/" in case else f"{case}/data"
    directory = Directory(copy_to_memory(ROOT / path, VirtualClock()))
    # A broker has one in every data directory; these files were written by classes without a
    # broker.
    if not directory.fs.exists("/data/cleaner-offset-checkpoint"):
        directory.write("cleaner-offset-checkpoint", b"0\n0\n")
    return directory


def own(case: str) -> Directory:
    """Make a directory of this engine's that is of the same shape as Kafka's of that name."""
    return Directory.of(_own_files(case))


@cache
def _own_files(case: str) -> dict[str, bytes]:
    clock = VirtualClock(1_700_000_000_000)
    fs = MemoryFileSystem(clock)
    configs = {"segment.bytes": "2000", "index.interval.bytes": "250"}
    if case == "transactions":
        configs = {"segment.bytes": "900", "index.interval.bytes": "150"}
    elif case.startswith("codec-"):
        configs = {"index.interval.bytes": "250", "compression.type": "producer"}
    with Broker("/data", clock=clock, fs=fs, seed=1) as broker:
        broker.create_topic("golden", 1, configs)
        log = broker.log("golden")
        if case == "segments":
            for data in _plain_batches():
                log.writer.append_batches(data, AppendOrigin.REPLICATION)
            log.delete_records(45)
        elif case == "transactions":
            for data in _transactions():
                log.writer.append_batches(data, AppendOrigin.REPLICATION)
        else:
            codec = Codec.from_name(case.removeprefix("codec-"))
            for number in range(12):
                records = [_record(row) for row in range(number * 10, number * 10 + 9)]
                log.writer.append_records(records, codec)
    return tree(fs)


def _record(row: int) -> NewRecord:
    return NewRecord(b"k%d" % (row % 7), b"value %d " % row * 9, 2_000 + row)


def _plain_batches() -> Iterator[bytes]:
    """Batches of 4, 1, 2 and 3 records; epochs 0, 2 and 5."""
    offset = 0
    for number in range(130):
        span = (4, 1, 2, 3)[number % 4]
        epoch = 0 if number < 50 else 2 if number < 90 else 5
        time = 1_700_000_000_000 + 1000 * number
        yield batch(offset, offset + span - 1, timestamp=time, leader_epoch=epoch)
        offset += span


def _transactions() -> Iterator[bytes]:
    """Two producers with overlapping transactions that alternately commit and abort."""
    offset = 0
    for number in range(11):
        time = 1_700_000_000_000 + 1000 * number
        ends = (abort, commit) if number % 3 else (commit, abort)
        parts = (
            lambda at, n=number, t=time: data_batch(at, at + 1, 1, sequence=2 * n, timestamp=t),
            lambda at, n=number, t=time: data_batch(
                at, at + 1, 2, sequence=2 * n, epoch=5, timestamp=t + 1
            ),
            lambda at, t=time: batch(at, timestamp=t + 2),
            lambda at, t=time, end=ends[0]: end(at, 1, timestamp=t + 3),
            lambda at, t=time: batch(at, timestamp=t + 4),
            lambda at, t=time, end=ends[1]: end(at, 2, epoch=5, timestamp=t + 5),
        )
        for part in parts:
            data = part(offset)
            yield data
            offset = batches_of(data)[0].header.next_offset


# -- places ----------------------------------------------------------------------------------------


class Site(Directory):
    """A directory and a segment in its middle, from the batch of an index entry on.

    Attributes
    ----------
    log, index, time_index, txn_index, snapshot : str
        The segment's files; the snapshot is the one at its base.
    batches : list of RecordBatch
    number : int
        Which of them is the target: the one that slot 1 of the offset index names.
    position, offset : int
        Where the target begins.
    """

    def __init__(self, fs: MemoryFileSystem) -> None:
        super().__init__(fs)
        bases = self.bases()
        place = len(bases) // 2 - (len(bases) > 4)
        self.base, self.next_base = bases[place], bases[place + 1]
        self.last_base = bases[-1]
        stem = f"golden-0/{self.base:020d}"
        self.log, self.index, self.time_index = (
            f"{stem}.{each}" for each in ("log", "index", "timeindex")
        )
        self.txn_index, self.snapshot = f"{stem}.txnindex", f"{stem}.snapshot"
        self.next_log = f"golden-0/{self.next_base:020d}.log"
        self.last_log = f"golden-0/{self.last_base:020d}.log"
        self.batches = batches_of(self.read(self.log))
        _, self.position = self.entry(1)
        self.number = [self.position_of(n) for n in range(len(self.batches))].index(self.position)
        self.offset = self.batches[self.number].header.base_offset
        assert 0 < self.number < len(self.batches) - 2, "the target has neighbours"

    def position_of(self, number: int) -> int:
        """The position of a batch in the segment."""
        return sum(len(each.data) for each in self.batches[:number])

    def entry(self, slot: int) -> tuple[int, int]:
        """Offset and position of an entry of the offset index."""
        data = self.read(self.index)
        offset, position = OffsetIndex.ENTRY.unpack_from(data, slot * 8)
        return self.base + offset, position

    def time_entry(self, slot: int) -> tuple[int, int]:
        """Timestamp and offset of an entry of the time index."""
        data = self.read(self.time_index)
        timestamp, offset = TimeIndex.ENTRY.unpack_from(data, slot * 12)
        return timestamp, self.base + offset

    def after(self, number: int) -> RecordBatch:
        """The batch so many positions after the target."""
        return self.batches[self.number + number]

    @property
    def last_batches(self) -> list[RecordBatch]:
        """The batches of the last segment."""
        return batches_of(self.read(self.last_log))

    def all_batches(self) -> Iterator[BatchHeader]:
        """The headers of all batches."""
        for base in self.bases():
            for each in batches_of(self.read(f"golden-0/{log_name(base)}")):
                yield each.header

    def batch_at(self, log: str, offset: int) -> tuple[int, RecordBatch]:
        """Position and batch of an offset in a segment."""
        position = 0
        for each in batches_of(self.read(log)):
            if each.header.last_offset >= offset:
                return position, each
            position += len(each.data)
        raise AssertionError(offset)

    @property
    def end_offset(self) -> int:
        """The log's end."""
        return self.last_batches[-1].header.next_offset

    def put_here(self, name: str, kind: str, at: int, value: object) -> None:
        """Change a field of the target batch."""
        self.put(name, kind, self.position + at, value)

    def add_here(self, name: str, kind: str, at: int, amount: int) -> None:
        """Add to a field of the target batch."""
        self.add(name, kind, self.position + at, amount)

    def reseal_here(self, name: str, kind: str, at: int, value: object) -> None:
        """Change a field of the target batch, and make its CRC right again."""
        self.reseal(name, self.position, kind, at, value)

    def at_target(self, check: str) -> list[Found]:
        """Return a finding at the target batch."""
        return [Found(check, self.log, self.position, self.offset)]


def healthy(case: str, origin: str) -> Directory:
    """Return a new healthy directory, Kafka's or this engine's."""
    return kafka(case) if origin == KAFKA else own(case)


def site(case: str, origin: str) -> Site:
    """Return a place in a fresh healthy directory of several segments."""
    return Site(healthy(case, origin).fs)


class Damage(NamedTuple):
    """A row of the table: a damage in the issue's words, and the findings of `check`."""

    issue: str
    case: str
    inflict: Callable[[Site], list[Found]]


class DamageTable(dict[str, Damage]):
    """Damages by name; the decorator `row` adds one."""

    def row(
        self, issue: str, case: str = "segments"
    ) -> Callable[[Callable[[Site], list[Found]]], Callable[[Site], list[Found]]]:
        """Add a function that damages a site and returns all expected findings, in order."""

        def add(inflict: Callable[[Site], list[Found]]) -> Callable[[Site], list[Found]]:
            name = inflict.__name__
            assert name not in self
            self[name] = Damage(issue, case, inflict)
            return inflict

        return add

    def add(
        self,
        file: str,
        expected: Callable[..., list[Found] | Found],
        rows: dict[str, tuple[tuple[str, tuple[object, ...], object], ...]],
        *,
        case: str = "segments",
    ) -> None:
        """Add damages of one change.

        Parameters
        ----------
        file : str
            The site's attribute with the name of the file.
        expected : callable
            Returns the findings of a site.
        rows : dict
            By the issue's words: name, change (a method and its arguments after the file's name),
            and the argument of `expected`, or a tuple of several.
        """
        for issue, (name, *row) in [(key, each) for key in rows for each in rows[key]]:
            assert name not in self

            def inflict(place: Site, row: Any = row) -> list[Found]:
                change, arguments = row
                getattr(place, change[0])(getattr(place, file), *change[1:])
                several = arguments if isinstance(arguments, tuple) else (arguments,)
                found = expected(place, *several)
                return found if isinstance(found, list) else [found]

            self[name] = Damage(issue, case, inflict)

    def check_values(self, name: str, origin: str, place: Site) -> None:
        """Compare the values in a site's findings with the stored ones.

        To accept a change, delete the file, run the tests, and review its new contents.
        """
        stored = json.loads(VALUES.read_text(encoding="utf-8")) if VALUES.exists() else {}
        key, values = f"{name} {origin}", place.values()
        if stored.get(key, []) != values:
            missing = key not in stored and values
            if missing:
                text = json.dumps(
                    stored | {key: values}, indent=0, ensure_ascii=False, sort_keys=True
                )
                VALUES.write_text(f"{text}\n", encoding="utf-8")
            assert not missing, f"{key} was missing in {VALUES}: review the new file"
            assert values == stored[key]

    def seed(self, name: str, origin: str) -> tuple[Site, list[Found]]:
        """Return a directory with one damage, and all expected findings."""
        damage = self[name]
        place = site(damage.case, origin)
        return place, damage.inflict(place)
