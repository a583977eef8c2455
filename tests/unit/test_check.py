"""The offline verifier: every check finds its fault by name, file and position, and only it."""

import itertools
import json
import random
import struct
from typing import NamedTuple

import pytest

from logstore.check import CHECKS, ERROR, INFO, WARNING, CheckCounts, Checker
from logstore.check.findings import LIMIT
from logstore.checkpoint import CLEAN_SHUTDOWN, read_bytes
from logstore.index import OffsetIndex
from logstore.producer_snapshot import SnapshotEntry, encode_snapshot
from logstore.record.batch import RecordBatch
from logstore.record.crc32c import crc32c
from logstore.runtime import (
    DiskFileSystem,
    MemoryFileSystem,
    OverlayFileSystem,
    ReadOnlyFileSystem,
    VirtualClock,
)
from tests.support.builders import abort, batch, batches_of, data_batch, log_name, old_message
from tests.support.golden_dirs import CLEAN_CASES, READ_CASES, ROOT, copy_to_memory, tree

GOLDEN_DIRS = [
    *(f"{case}/data" for case in READ_CASES),
    *(f"{case}/{side}/data" for case in CLEAN_CASES for side in ("before", "after")),
]

# The segment that most faults are put into: offsets 126 to 169, no producers, an entry of each
# index for the batch at POSITION, which holds offset 140 alone.
BASE = "golden-0/00000000000000000126"
LOG, INDEX, TIME_INDEX = f"{BASE}.log", f"{BASE}.index", f"{BASE}.timeindex"
POSITION = 625
LAST_LOG = "golden-0/00000000000000000293.log"
EPOCHS = "golden-0/leader-epoch-checkpoint"
RECOVERY = "recovery-point-offset-checkpoint"
TXN_INDEX = "golden-0/00000000000000000015.txnindex"
SNAPSHOT = "golden-0/00000000000000000030.snapshot"


class Found(NamedTuple):
    """What a test expects of a finding."""

    check: str
    path: str
    position: int | None = None
    severity: str = ERROR


class Directory:
    """A data directory in memory to put faults into."""

    def __init__(self, fs):
        self.fs = fs

    def read(self, name):
        return read_bytes(self.fs, f"/data/{name}")

    def write(self, name, data=b""):
        file = self.fs.open(f"/data/{name}", create=True)
        file.truncate(0)
        file.append([bytes(data)])
        file.close()

    def edit(self, name, change):
        data = bytearray(self.read(name))
        changed = change(data)
        self.write(name, data if changed is None else changed)

    def put(self, name, kind, position, value):
        self.edit(name, lambda data: struct.pack_into(kind, data, position, value))

    def add(self, name, kind, position, amount):
        (value,) = struct.unpack_from(kind, self.read(name), position)
        self.put(name, kind, position, value + amount)

    def flip(self, name, position, bit=0):
        def change(data):
            data[position] ^= 1 << bit

        self.edit(name, change)

    def reseal(self, name, position, kind, at, value):
        """Change a field of the batch at a position, and make its CRC right again."""

        def change(data):
            struct.pack_into(kind, data, position + at, value)
            size = int.from_bytes(data[position + 8 : position + 12], "big") + 12
            crc = crc32c(bytes(data[position + 21 : position + size]))
            struct.pack_into(">I", data, position + 17, crc)

        self.edit(name, change)

    def remove(self, name):
        self.fs.remove(f"/data/{name}")

    def rename(self, name, target):
        self.fs.rename(f"/data/{name}", f"/data/{target}")

    def unclean(self):
        self.remove(CLEAN_SHUTDOWN)

    def check(self, path="", counts=None):
        checker = Checker(ReadOnlyFileSystem(self.fs), counts)
        return list(checker.path(f"/data/{path}".rstrip("/")))

    def found(self, path=""):
        return [
            Found(each.check, each.path.removeprefix("/data/"), each.position, each.severity)
            for each in self.check(path)
        ]


def golden(case):
    path = case if "/" in case else f"{case}/data"
    return Directory(copy_to_memory(ROOT / path, VirtualClock()))


def partition(*segments, first=0):
    """Make a data directory of one partition from lists of batches, without indexes."""
    directory = Directory(MemoryFileSystem(VirtualClock()))
    directory.fs.make_dirs("/data/golden-0")
    base = first
    for batches in segments:
        data = b"".join(batches)
        directory.write(f"golden-0/{log_name(base)}", data)
        for suffix in ("index", "timeindex"):
            directory.write(f"golden-0/{base:020d}.{suffix}")
        base = batches_of(data)[-1].header.next_offset if data else base
    directory.write(EPOCHS, b"0\n1\n0 0\n")
    directory.write(CLEAN_SHUTDOWN, b"{}")
    return directory


def without_time(found):
    """Drop what is said of time indexes, which `partition` leaves empty."""
    return [each for each in found if each.check != "time_index_last"]


# -- nothing to find -------------------------------------------------------------------------------


@pytest.mark.parametrize("case", GOLDEN_DIRS)
def test_kafkas_directories_are_healthy(case):
    counts = CheckCounts()
    directory = golden(case)
    findings = directory.check(counts=counts)
    assert {each.check for each in findings} <= {"offset_gap"}
    assert not [each for each in findings if each.severity == ERROR]
    assert counts.segments == len([n for n in tree(directory.fs) if n.endswith(".log")])
    holes = ("holes", "clean-holes", "clean-dense-index")
    assert not findings or case.startswith(holes), "only these have offsets missing unexplained"


@pytest.mark.parametrize("case", ("segments", "transactions", "idempotent", "log-append-time"))
def test_healthy_after_an_unclean_stop_too(case):
    directory = golden(case)
    directory.unclean()
    assert directory.found() == []


def test_what_was_looked_at_is_counted():
    counts = CheckCounts()
    heard = []
    counts.progress = lambda path, done: heard.append((path, done))
    directory = golden("segments")
    directory.check(counts=counts)
    lines = (ROOT / "segments" / "batches.jsonl").read_text().splitlines()
    assert counts.batches == len(lines)
    assert counts.records == sum(json.loads(line)["count"] for line in lines)
    total = sum(len(d) for n, d in tree(directory.fs).items() if n.endswith(".log"))
    assert heard[-1][1] == counts.bytes_read == total
    assert Checker(directory.fs).log_bytes(["/data"]) == total


# -- faults ----------------------------------------------------------------------------------------

HEADER_FIELDS = {
    "baseOffset": (0, 8),
    "batchLength": (8, 4),
    "partitionLeaderEpoch": (12, 4),
    "magic": (16, 1),
    "crc": (17, 4),
    "attributes": (21, 2),
    "lastOffsetDelta": (23, 4),
    "baseTimestamp": (27, 8),
    "maxTimestamp": (35, 8),
    "producerId": (43, 8),
    "producerEpoch": (51, 2),
    "baseSequence": (53, 4),
    "recordCount": (57, 4),
    "record": (61, 1),
}
OUTSIDE_THE_CRC = {
    "batchLength": "batch_length",
    "partitionLeaderEpoch": "leader_epoch",
    "magic": "magic",
}


@pytest.mark.parametrize("field", HEADER_FIELDS)
@pytest.mark.parametrize("end", ("first", "last"))
def test_a_flipped_bit_in_a_field_is_one_finding(field, end):
    start, size = HEADER_FIELDS[field]
    byte, bit = (start, 6) if end == "first" else (start + size - 1, 0)
    directory = golden("segments")
    directory.flip(LOG, POSITION + byte, bit)
    check = OUTSIDE_THE_CRC.get(field, "crc")
    if field == "baseOffset":
        check = "segment_bounds" if end == "first" else "offset_order"
    assert directory.found() == [Found(check, LOG, POSITION)]


@pytest.mark.parametrize("field", [each for each in HEADER_FIELDS if each != "baseOffset"])
def test_a_flipped_bit_in_the_last_batch_is_one_finding(field):
    directory = golden("segments")
    position = 133
    directory.flip(LAST_LOG, position + HEADER_FIELDS[field][0], 6)
    check = OUTSIDE_THE_CRC.get(field, "crc")
    assert directory.found() == [Found(check, LAST_LOG, position)]


def test_a_flipped_bit_in_a_compressed_section_is_one_finding():
    directory = golden("codec-zstd")
    log = "golden-0/00000000000000000000.log"
    directory.flip(log, 61 + 20)
    assert directory.found() == [Found("crc", log, 0)]


def test_leader_epoch_below_minus_one_is_found_without_epochs_to_compare():
    directory = golden("segments")
    directory.write(EPOCHS, b"0\n0\n")
    directory.flip(LOG, POSITION + 12, 7)
    assert Found("leader_epoch", LOG, POSITION) in directory.found()


def swap(size, first=0):
    def change(data):
        one, two = data[first : first + size], data[first + size : first + 2 * size]
        data[first : first + 2 * size] = two + one

    return change


def appended(tail):
    return lambda data: data + tail


def topics_file(partitions, **configs):
    topics = {"golden": {"partitions": partitions, "configs": configs}}
    return json.dumps({"version": 1, "topics": topics}).encode()


def edited(name, change):
    return lambda directory: directory.edit(name, change)


def written(name, data=b""):
    return lambda directory: directory.write(name, data)


def resealed(kind, at, value, name=LOG, position=POSITION):
    return lambda directory: directory.reseal(name, position, kind, at, value)


def resealed_snapshot(kind, at, value):
    def damage(directory):
        directory.put(SNAPSHOT, kind, at, value)
        directory.edit(
            SNAPSHOT, lambda data: struct.pack_into(">I", data, 2, crc32c(bytes(data[6:])))
        )

    return damage


def many_wrong_entries(directory):
    """As many entries that do not rise as are told, and seven more."""
    directory.edit(INDEX, lambda data: data + data[-8:] * (LIMIT + 7))


def old_format(directory):
    directory.write(LAST_LOG, old_message(magic=1, offset=293))


def negative_horizon(directory):
    log = "golden-0/00000000000000000000.log"
    directory.put(log, ">h", 21, 0x48)
    directory.reseal(log, 0, ">q", 27, -5)


def no_partition_number(directory):
    directory.fs.make_dirs("/data/other")


def illegal_topic(directory):
    directory.fs.make_dirs("/data/ot her-0")


def deleted_folder(directory):
    directory.fs.make_dirs(f"/data/golden-1.{'0' * 32}-delete")


def missing_partition_folder(directory):
    directory.write("logstore-topics.json", topics_file([0, 1]))


def swapped_batches(directory):
    """Offset 140 and offsets 141 to 142 change places."""

    def change(data):
        one, two = (batches_of(bytes(data))[number].data for number in (5, 6))
        data[POSITION : POSITION + len(one) + len(two)] = two + one

    directory.edit(LOG, change)


def removed_segment(directory):
    for suffix in ("log", "index", "timeindex", "snapshot"):
        directory.remove(f"{BASE}.{suffix}")


def other_topic_id(directory):
    """Partition 1 is a copy of partition 0 under another id."""
    directory.fs.make_dirs("/data/golden-1")
    for name in directory.fs.list_dir("/data/golden-0"):
        directory.write(f"golden-1/{name}", directory.read(f"golden-0/{name}"))
    text = b"version: 0\ntopic_id: BBBBBBBBAAAAAAAABBBBBA"
    directory.write("golden-1/partition.metadata", text)


SEGMENT_FAULTS = {
    # batches
    "length": (edited(LOG, lambda data: None), ()),
    "count": (resealed(">i", 57, 9), [Found("record_count", LOG, POSITION)]),
    "negative count": (resealed(">i", 57, -1), [Found("record_count", LOG, POSITION)]),
    "record size": (resealed(">B", 61, 6), [Found("record_structure", LOG, POSITION)]),
    "negative delta": (resealed(">i", 23, -1), [Found("offset_delta", LOG, POSITION)]),
    "record offset": (resealed(">B", 64, 2), [Found("offset_delta", LOG, POSITION)]),
    "maxTimestamp": (
        resealed(">q", 35, 5),
        [Found("max_timestamp", LOG, POSITION), Found("time_index_entry", TIME_INDEX, 12)],
    ),
    "unknown codec": (resealed(">h", 21, 6), [Found("codec", LOG, POSITION)]),
    "no gzip": (resealed(">h", 21, 1), [Found("codec", LOG, POSITION)]),
    "transaction without producer": (
        resealed(">h", 21, 0x10),
        [Found("producer_fields", LOG, POSITION)],
    ),
    "producer without epoch": (resealed(">q", 43, 7), [Found("producer_fields", LOG, POSITION)]),
    "old format": (old_format, [Found("unsupported_format", LAST_LOG, 0)]),
    # segments
    "torn tail": (edited(LAST_LOG, appended(b"\1" * 37)), [Found("torn_tail", LAST_LOG, 289)]),
    "short torn tail": (edited(LAST_LOG, appended(b"\1" * 9)), [Found("torn_tail", LAST_LOG, 289)]),
    "cut": (edited(LAST_LOG, lambda data: data[:-5]), [Found("torn_tail", LAST_LOG, 133)]),
    "torn closed segment": (edited(LOG, appended(b"\1" * 37)), [Found("torn_tail", LOG, 2037)]),
    "zero tail": (edited(LAST_LOG, appended(bytes(500))), [Found("zero_tail", LAST_LOG, 289)]),
    "swapped batches": (
        swapped_batches,
        [Found("offset_order", LOG, POSITION), Found("offset_gap", LOG, 814, WARNING)],
    ),
    "batch in the next segment": (
        lambda directory: directory.put(LOG, ">q", POSITION, 171),
        [Found("segment_overlap", LOG, POSITION)],
    ),
    "batch below the base": (
        lambda directory: directory.put(LOG, ">q", POSITION, 3),
        [Found("segment_bounds", LOG, POSITION)],
    ),
    "removed segment": (
        removed_segment,
        [Found("offset_gap", "golden-0/00000000000000000170.log", 0, WARNING)],
    ),
    "missing log": (
        lambda directory: directory.remove(LOG),
        [
            Found("missing_log", LOG),
            Found("offset_gap", "golden-0/00000000000000000170.log", 0, WARNING),
        ],
    ),
    "short name": (written("golden-0/41.index"), [Found("file_name", "golden-0/41.index")]),
    "two of one base": (
        written("golden-0/41.log"),
        [Found("file_name", "golden-0/41.log"), Found("duplicate_base", "golden-0/41.log")],
    ),
    # offset index
    "no index": (
        lambda directory: directory.remove(INDEX),
        [Found("missing_index", INDEX, None, WARNING)],
    ),
    "no time index": (
        lambda directory: directory.remove(TIME_INDEX),
        [Found("missing_index", TIME_INDEX, None, WARNING)],
    ),
    "no index yet": (
        lambda directory: directory.remove("golden-0/00000000000000000293.index"),
        [Found("missing_index", "golden-0/00000000000000000293.index", None, INFO)],
    ),
    "orphan": (
        written("golden-0/00000000000000000999.index", bytes(80)),
        [Found("orphan_index", "golden-0/00000000000000000999.index", None, WARNING)],
    ),
    "index unsorted": (edited(INDEX, swap(8)), [Found("index_order", INDEX, 8)]),
    "index of odd size": (edited(INDEX, appended(b"\1\2\3")), [Found("index_size", INDEX, 48)]),
    "index offset too high": (
        lambda directory: directory.put(INDEX, ">i", 8, 10**6),
        [Found("index_range", INDEX, 8)],
    ),
    "index offset negative": (
        lambda directory: directory.put(INDEX, ">i", 8, -3),
        [Found("index_range", INDEX, 8)],
    ),
    "index into a batch": (
        lambda directory: directory.add(INDEX, ">i", 12, 1),
        [Found("index_position", INDEX, 8)],
    ),
    "index beyond the file": (
        lambda directory: directory.put(INDEX, ">i", 12, 10**6),
        [Found("index_position", INDEX, 8)],
    ),
    "index to an earlier batch": (
        lambda directory: directory.put(INDEX, ">i", 12, 0),
        [Found("index_order", INDEX, 8)],
    ),
    "index to a later batch": (
        lambda directory: directory.put(INDEX, ">i", 12, 1567),
        [Found("index_order", INDEX, 8)],
    ),
    "index to the next batch": (
        lambda directory: directory.put(INDEX, ">i", 12, 709),
        [Found("index_entry", INDEX, 8)],
    ),
    "index offset too low": (
        lambda directory: directory.add(INDEX, ">i", 8, -1),
        [Found("index_entry", INDEX, 8)],
    ),
    "index of a chunk": (
        lambda directory: directory.add(INDEX, ">i", 8, 2),
        [Found("index_chunked", INDEX, 8, WARNING)],
    ),
    "index padded": (edited(INDEX, appended(bytes(80))), [Found("index_padding", INDEX, 48)]),
    "index beyond counting": (
        many_wrong_entries,
        [
            *(Found("index_order", INDEX, 48 + 8 * number) for number in range(LIMIT)),
            Found("suppressed", INDEX, None, INFO),
        ],
    ),
    # time index
    "time index unsorted": (
        edited(TIME_INDEX, swap(12)),
        [Found("time_index_order", TIME_INDEX, 12)],
    ),
    "time index of odd size": (
        edited(TIME_INDEX, appended(b"\1\2\3")),
        [Found("time_index_size", TIME_INDEX, 72)],
    ),
    "time index wrong": (
        lambda directory: directory.add(TIME_INDEX, ">q", 12, 1),
        [Found("time_index_entry", TIME_INDEX, 12)],
    ),
    "time index far too late": (
        lambda directory: directory.flip(TIME_INDEX, 12),
        [Found("time_index_order", TIME_INDEX, 12)],
    ),
    "time index of the next batch": (
        lambda directory: directory.add(TIME_INDEX, ">i", 20, 1),
        [Found("time_index_entry", TIME_INDEX, 12)],
    ),
    "time index beyond": (
        lambda directory: directory.put(TIME_INDEX, ">i", 20, 9999),
        [Found("time_index_range", TIME_INDEX, 12)],
    ),
    "time index padded": (
        edited(TIME_INDEX, appended(bytes(120))),
        [Found("time_index_padding", TIME_INDEX, 72)],
    ),
    "time index cut": (
        edited(TIME_INDEX, lambda data: data[:-12]),
        [Found("time_index_last", TIME_INDEX, 60, WARNING)],
    ),
    # small files
    "epochs fall": (
        written(EPOCHS, b"0\n3\n0 45\n5 123\n2 223\n"),
        [Found("epoch_order", EPOCHS, 15)],
    ),
    "epoch beyond the end": (
        written(EPOCHS, b"0\n4\n0 45\n2 123\n5 223\n6 301\n"),
        [Found("epoch_beyond_end", EPOCHS, 21)],
    ),
    "epoch of another batch": (
        written(EPOCHS, b"0\n3\n0 45\n2 124\n5 223\n"),
        [Found("leader_epoch", "golden-0/00000000000000000083.log", 1887)],
    ),
    "no epochs": (written(EPOCHS, b"0\n0\n"), [Found("epoch_missing", EPOCHS, None, WARNING)]),
    "epochs unreadable": (
        written(EPOCHS, b"0\n1\none 45\n"),
        [Found("checkpoint_entry", EPOCHS, 4)],
    ),
    "checkpoint version": (
        written(RECOVERY, b"1\n1\ngolden 0 300\n"),
        [Found("checkpoint_version", RECOVERY, 0)],
    ),
    "checkpoint count": (
        written(RECOVERY, b"0\n2\ngolden 0 300\n"),
        [Found("checkpoint_count", RECOVERY, 2)],
    ),
    "checkpoint line": (
        written(RECOVERY, b"0\n1\ngolden 0\n"),
        [Found("checkpoint_entry", RECOVERY, 4)],
    ),
    "negative offset": (
        written(RECOVERY, b"0\n1\ngolden 0 -1\n"),
        [Found("checkpoint_entry", RECOVERY, 4)],
    ),
    "unknown partition": (
        written(RECOVERY, b"0\n2\ngolden 0 300\nother 3 5\n"),
        [Found("checkpoint_unknown_partition", RECOVERY, 17, WARNING)],
    ),
    "partition twice": (
        written(RECOVERY, b"0\n2\ngolden 0 300\ngolden 0 299\n"),
        [Found("checkpoint_duplicate", RECOVERY, 17, WARNING)],
    ),
    "recovery point beyond the end": (
        written(RECOVERY, b"0\n1\ngolden 0 301\n"),
        [Found("checkpoint_beyond_end", RECOVERY, 4)],
    ),
    "topic id": (
        written("golden-0/partition.metadata", b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA"),
        [Found("partition_metadata", "golden-0/partition.metadata")],
    ),
    "other topic id": (other_topic_id, [Found("topic_id", "golden-1/partition.metadata")]),
    "topics file": (
        written("logstore-topics.json", b"{"),
        [Found("topics_file", "logstore-topics.json")],
    ),
    "topics file with an unknown key": (
        written("logstore-topics.json", topics_file([0], foo="bar")),
        [Found("topics_file", "logstore-topics.json")],
    ),
    "stored partition without a folder": (
        missing_partition_folder,
        [Found("topics_partition", "logstore-topics.json", None, WARNING)],
    ),
    "folder without a stored partition": (
        written("logstore-topics.json", topics_file([])),
        [Found("topics_partition", "golden-0", None, WARNING)],
    ),
    # names
    "folder": (no_partition_number, [Found("folder_name", "other")]),
    "folder of no topic": (illegal_topic, [Found("folder_name", "ot her-0")]),
    "deleted folder": (
        deleted_folder,
        [Found("leftover_folder", f"golden-1.{'0' * 32}-delete", None, INFO)],
    ),
    "cleaned": (
        written(f"{BASE}.log.cleaned"),
        [Found("leftover_cleaned", f"{BASE}.log.cleaned", None, WARNING)],
    ),
    "swap": (
        written(f"{BASE}.log.swap"),
        [Found("leftover_swap", f"{BASE}.log.swap", None, WARNING)],
    ),
    "deleted": (
        written(f"{BASE}.log.deleted"),
        [Found("leftover_deleted", f"{BASE}.log.deleted", None, INFO)],
    ),
    "tmp": (written(f"{EPOCHS}.tmp"), [Found("leftover_tmp", f"{EPOCHS}.tmp", None, WARNING)]),
    "tmp beside": (
        written(f"{RECOVERY}.tmp"),
        [Found("leftover_tmp", f"{RECOVERY}.tmp", None, WARNING)],
    ),
    "foreign": (written("golden-0/x.txt"), [Found("foreign_file", "golden-0/x.txt", None, INFO)]),
    "foreign suffix": (
        written(f"{BASE}.log.bak"),
        [Found("foreign_file", f"{BASE}.log.bak", None, INFO)],
    ),
    "foreign beside": (written("x.txt"), [Found("foreign_file", "x.txt", None, INFO)]),
}

SNAPSHOT_STATE = [Found("snapshot_state", SNAPSHOT, 10)]

TRANSACTION_FAULTS = {
    "index of odd size": (
        edited(TXN_INDEX, appended(b"123")),
        [Found("txn_index_size", TXN_INDEX, 68)],
    ),
    "version": (
        lambda directory: directory.flip(TXN_INDEX, 1),
        [Found("txn_index_version", TXN_INDEX, 0)],
    ),
    "unsorted": (edited(TXN_INDEX, swap(34)), [Found("txn_index_order", TXN_INDEX, 34)]),
    "producer": (
        lambda directory: directory.flip(TXN_INDEX, 9),
        [Found("txn_index_entry", TXN_INDEX, 0)],
    ),
    "first offset": (
        lambda directory: directory.flip(TXN_INDEX, 17),
        [Found("txn_index_entry", TXN_INDEX, 0)],
    ),
    "last stable offset": (
        lambda directory: directory.flip(TXN_INDEX, 33),
        [Found("txn_index_entry", TXN_INDEX, 0)],
    ),
    "last offset": (
        lambda directory: directory.flip(TXN_INDEX, 25),
        [Found("txn_index_entry", TXN_INDEX, 0), Found("txn_index_missing", TXN_INDEX)],
    ),
    "outside the segment": (
        lambda directory: directory.put(TXN_INDEX, ">q", 34 + 18, 99),
        [Found("txn_index_entry", TXN_INDEX, 34), Found("txn_index_missing", TXN_INDEX)],
    ),
    "entry lost": (
        edited(TXN_INDEX, lambda data: data[34:]),
        [Found("txn_index_missing", TXN_INDEX)],
    ),
    "index lost": (
        lambda directory: directory.remove(TXN_INDEX),
        [Found("txn_index_missing", TXN_INDEX)] * 2,
    ),
    "marker with a sequence": (
        resealed(">i", 53, 5, "golden-0/00000000000000000000.log", 240),
        [Found("control_batch", "golden-0/00000000000000000000.log", 240)],
    ),
    "marker of no kind": (
        resealed(">B", 66, 0x80, "golden-0/00000000000000000000.log", 240),
        [
            Found("control_batch", "golden-0/00000000000000000000.log", 240),
        ],
    ),
    "snapshot crc": (
        lambda directory: directory.flip(SNAPSHOT, 30),
        [Found("snapshot_crc", SNAPSHOT, 2)],
    ),
    "snapshot version": (
        lambda directory: directory.flip(SNAPSHOT, 1),
        [Found("snapshot_version", SNAPSHOT, 0)],
    ),
    "snapshot cut": (
        edited(SNAPSHOT, lambda data: data[:4]),
        [Found("snapshot_size", SNAPSHOT, 0)],
    ),
    "snapshot count": (resealed_snapshot(">i", 6, 9), [Found("snapshot_size", SNAPSHOT, 6)]),
    "snapshot from the future": (
        resealed_snapshot(">q", 24, 33),
        [Found("snapshot_entry", SNAPSHOT, 10)],
    ),
    "snapshot with another sequence": (resealed_snapshot(">i", 20, 99), SNAPSHOT_STATE),
    "snapshot with another epoch": (resealed_snapshot(">h", 18, 9), SNAPSHOT_STATE),
    "snapshot with a transaction": (resealed_snapshot(">q", 48, 20), SNAPSHOT_STATE),
    "snapshot that is older": (resealed_snapshot(">q", 24, 9), SNAPSHOT_STATE),
    "snapshot beyond the end": (
        written("golden-0/00000000000000000099.snapshot", encode_snapshot([])),
        [Found("snapshot_offset", "golden-0/00000000000000000099.snapshot", None, WARNING)],
    ),
}

IDEMPOTENT_LOG = "golden-0/00000000000000000022.log"
LAST_SNAPSHOT = "golden-0/00000000000000000025.snapshot"

OTHER_FAULTS = {
    "horizon": (
        "log-append-time",
        negative_horizon,
        [Found("delete_horizon", "golden-0/00000000000000000000.log", 0)],
    ),
    "sequence jumps": (
        "idempotent",
        resealed(">i", 53, 4, IDEMPOTENT_LOG, 78),
        [
            Found("sequence_order", IDEMPOTENT_LOG, 78, WARNING),
            Found("snapshot_state", LAST_SNAPSHOT, 56),
        ],
    ),
    "sequence falls": (
        "idempotent",
        resealed(">i", 53, 1, IDEMPOTENT_LOG, 78),
        [
            Found("sequence_order", IDEMPOTENT_LOG, 78, WARNING),
            Found("snapshot_state", LAST_SNAPSHOT, 56),
        ],
    ),
    "epoch falls": (
        "idempotent",
        resealed(">h", 51, 6, IDEMPOTENT_LOG, 0),
        [
            Found("producer_epoch", IDEMPOTENT_LOG, 0, WARNING),
            Found("snapshot_state", LAST_SNAPSHOT, 10),
        ],
    ),
}


def run_fault(directory, damage, expected):
    damage(directory)
    assert directory.found() == list(expected)


@pytest.mark.parametrize("fault", SEGMENT_FAULTS)
def test_fault_of_a_segment_or_small_file_is_found(fault):
    run_fault(golden("segments"), *SEGMENT_FAULTS[fault])


@pytest.mark.parametrize("fault", TRANSACTION_FAULTS)
def test_fault_of_a_transaction_or_snapshot_is_found(fault):
    run_fault(golden("transactions"), *TRANSACTION_FAULTS[fault])


@pytest.mark.parametrize("fault", OTHER_FAULTS)
def test_other_fault_is_found(fault):
    case, damage, expected = OTHER_FAULTS[fault]
    run_fault(golden(case), damage, expected)


def test_findings_say_what_was_expected_and_found():
    directory = golden("segments")
    directory.put(LOG, ">i", POSITION + 8, 73)
    directory.put(RECOVERY, ">c", 12, b"9")
    (length,) = [each for each in directory.check() if each.check == "batch_length"]
    assert length == (f"/data/{LOG}", 625, 140, "batch_length", 72, 73, ERROR)


# -- an unclean stop -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "tail", "check", "position"),
    ((LAST_LOG, b"\1" * 37, "torn_tail", 289), (LAST_LOG, bytes(500), "zero_tail", 289)),
)
def test_tail_of_the_active_segment_is_a_warning_after_an_unclean_stop(name, tail, check, position):
    directory = golden("segments")
    directory.unclean()
    directory.edit(name, appended(tail))
    assert directory.found() == [Found(check, name, position, WARNING)]


def test_padding_of_the_active_segments_indexes_is_as_it_should_be_while_it_is_open():
    directory = golden("segments")
    directory.unclean()
    for suffix in ("index", "timeindex"):
        directory.edit(f"golden-0/00000000000000000293.{suffix}", appended(bytes(240)))
    assert directory.found() == []
    directory.edit(INDEX, appended(bytes(80)))
    assert directory.found() == [Found("index_padding", INDEX, 48)]


def test_high_watermark_beyond_the_end_is_a_warning_after_an_unclean_stop():
    directory = golden("segments")
    directory.write("replication-offset-checkpoint", b"0\n1\ngolden 0 301\n")
    path = "replication-offset-checkpoint"
    assert directory.found() == [Found("checkpoint_beyond_end", path, 4)]
    directory.unclean()
    assert directory.found() == [Found("checkpoint_beyond_end", path, 4, WARNING)]


# -- damage and what follows it --------------------------------------------------------------------


def test_verification_goes_on_behind_bytes_that_are_no_batch():
    """Sixty bytes of noise over a header: the batches behind it are verified all the same."""
    directory = golden("segments")
    noise = bytes(range(100, 160))
    directory.edit(LOG, lambda data: data[:POSITION] + noise + data[POSITION + 60 :])
    directory.flip(LOG, 2000)
    counts = CheckCounts()
    found = [(each.check, each.position) for each in directory.check(counts=counts)]
    assert found == [("batch_length", POSITION), ("crc", 1885)]
    healthy = CheckCounts()
    golden("segments").check(counts=healthy)
    assert counts.batches == healthy.batches - 1


@pytest.mark.parametrize("length", (5, 30, 10**9, -1))
def test_wrong_lengths_of_every_kind_hide_no_other_batch(length):
    directory = golden("segments")
    directory.put(LOG, ">i", POSITION + 8, length)
    directory.flip(LOG, 2000)
    found = [(each.check, each.position) for each in directory.check()]
    assert found == [("batch_length", POSITION), ("crc", 1885)]


def test_length_that_ends_at_a_later_batch_is_seen_through():
    directory = golden("segments")
    sizes = [len(each.data) for each in batches_of(directory.read(LOG))]
    directory.put(LOG, ">i", POSITION + 8, sizes[5] + 10 - 12)
    (found,) = directory.check()
    assert (found.check, found.expected) == ("batch_length", sizes[5] - 12)


def test_every_fault_of_a_directory_is_found_in_one_run():
    directory = golden("segments")
    directory.flip(LOG, POSITION + 70)
    directory.edit("golden-0/00000000000000000041.index", appended(b"\0"))
    directory.write("golden-0/x.txt")
    directory.write(RECOVERY, b"7\n")
    assert {each.check for each in directory.found()} == {
        "crc",
        "index_size",
        "foreign_file",
        "checkpoint_version",
    }


@pytest.mark.parametrize("seed", range(40))
def test_no_damage_whatever_ends_the_verification(seed):
    """Bytes flipped, cut out, put in and cut off, in any file: findings, never an exception."""
    source = random.Random(seed)
    directory = golden(source.choice(("segments", "transactions", "clean-tombstones-2/after/data")))
    names = [name for name, data in tree(directory.fs).items() if data]
    for name in source.sample(names, 3):
        data = bytearray(directory.read(name))
        at = source.randrange(len(data))
        size = source.randrange(1, 60)
        change = source.randrange(5)
        if change == 0:
            data[at] ^= 1 << source.randrange(8)
        elif change == 1:
            del data[at : at + size]
        elif change == 2:
            data[at:at] = source.randbytes(size)
        elif change == 3:
            del data[at:]
        else:
            data += bytes(size)
        directory.write(name, data)
    assert directory.found()


# -- gaps ------------------------------------------------------------------------------------------


def test_gaps_below_the_first_dirty_offset_are_explained():
    directory = partition([batch(0), batch(5), batch(9)])
    log = f"golden-0/{log_name(0)}"
    size = len(batch(0))
    gaps = [Found("offset_gap", log, at * size, WARNING) for at in (1, 2)]
    assert without_time(directory.found())[:2] == gaps
    directory.write("cleaner-offset-checkpoint", b"0\n1\ngolden 0 8\n")
    assert without_time(directory.found())[:1] == gaps[1:]
    directory.write("cleaner-offset-checkpoint", b"0\n1\ngolden 0 9\n")
    assert not [each for each in directory.found() if each.check == "offset_gap"]


def test_gaps_of_a_compacted_topic_are_explained():
    directory = partition([batch(0), batch(5)])
    assert [each for each in directory.found() if each.check == "offset_gap"]
    stored = topics_file([0], **{"cleanup.policy": "compact,delete"})
    directory.write("logstore-topics.json", stored)
    assert not [each for each in directory.found() if each.check == "offset_gap"]


def test_cleaner_checkpoint_below_the_log_is_information():
    directory = partition([batch(10)], first=10)
    directory.write("cleaner-offset-checkpoint", b"0\n1\ngolden 0 3\n")
    path = "cleaner-offset-checkpoint"
    assert Found("checkpoint_below_start", path, 4, INFO) in directory.found()


# -- transactions ----------------------------------------------------------------------------------


def test_transactions_begun_before_the_first_segment_come_from_its_snapshot():
    batches = [batch(10), abort(11, 7)]
    directory = partition(batches, first=10)
    log = f"golden-0/{10:020d}"
    assert not [each for each in directory.found() if each.check.startswith("txn")]
    entry = SnapshotEntry(7, 0, 3, 8, 0, 5, -1, 8)
    directory.write(f"{log}.snapshot", encode_snapshot([entry]))
    found = [each for each in directory.check() if each.check.startswith("txn")]
    assert [each.expected for each in found] == ["producer 7 offsets 8..11 last stable 12"]


def test_entry_of_an_aborted_transaction_whose_data_were_cleaned_away():
    """Below the first dirty offset data may be gone; the entry then stands by its marker."""
    directory = partition([data_batch(4, 4, 7), abort(5, 7), batch(6)])
    entry = struct.pack(">hqqqq", 0, 7, 2, 5, 6)
    directory.write(f"golden-0/{0:020d}.txnindex", entry)
    assert [each.check for each in directory.check() if "txn" in each.check] == ["txn_index_entry"]
    directory.write("cleaner-offset-checkpoint", b"0\n1\ngolden 0 6\n")
    assert not [each for each in directory.check() if "txn" in each.check]


# -- indexes as Kafka wrote them before ------------------------------------------------------------


def test_chunked_index_is_a_warning_only_while_it_leads_to_the_right_batch():
    batches = [batch(offset) for offset in range(6)]
    size = len(batches[0])
    directory = partition(batches)
    name = f"golden-0/{0:020d}.index"
    directory.write(name, OffsetIndex.ENTRY.pack(3, size) + OffsetIndex.ENTRY.pack(5, 4 * size))
    chunked = [Found("index_chunked", name, at, WARNING) for at in (0, 8)]
    assert without_time(directory.found()) == chunked
    directory.write(name, OffsetIndex.ENTRY.pack(4, size) + OffsetIndex.ENTRY.pack(5, 4 * size))
    assert without_time(directory.found()) == [Found("index_entry", name, 0), chunked[1]]


def test_time_index_may_name_a_record_inside_its_batch():
    directory = partition([batch(0, 2, timestamp=(5, 9, 7))])
    name = f"golden-0/{0:020d}.timeindex"
    directory.write(name, struct.pack(">qi", 9, 1))
    assert directory.found() == [Found("time_index_offset", name, 0, WARNING)]


# -- several directories, and parts of one ---------------------------------------------------------


def test_partition_in_two_directories():
    directory = golden("segments")
    directory.fs.make_dirs("/other/golden-0")
    for name in directory.fs.list_dir("/data/golden-0"):
        file = directory.fs.open(f"/other/golden-0/{name}", create=True)
        file.append([directory.read(f"golden-0/{name}")])
    findings = list(Checker(directory.fs).data_dirs(["/data", "/other"]))
    assert [(each.check, each.path, each.expected) for each in findings] == [
        ("duplicate_partition", "/other/golden-0", "/data/golden-0")
    ]


def test_partition_directory_is_judged_by_the_checkpoints_around_it():
    directory = golden("segments")
    assert directory.found("golden-0") == []
    directory.write(RECOVERY, b"0\n2\ngolden 0 301\nother 0 3\n")
    assert directory.found("golden-0") == [Found("checkpoint_beyond_end", RECOVERY, 4)]


def test_partition_directory_of_a_wrong_name():
    directory = golden("segments")
    directory.rename("golden-0", "golden")
    assert directory.found("golden") == [Found("folder_name", "golden")]


@pytest.mark.parametrize(
    ("name", "damage", "expected"),
    (
        (LOG, lambda d: d.flip(LOG, POSITION + 70), [Found("crc", LOG, POSITION)]),
        (INDEX, lambda d: d.flip(LOG, POSITION + 70), []),
        (INDEX, edited(INDEX, swap(8)), [Found("index_order", INDEX, 8)]),
        (TIME_INDEX, edited(TIME_INDEX, swap(12)), [Found("time_index_order", TIME_INDEX, 12)]),
        (RECOVERY, written(RECOVERY, b"1\n"), [Found("checkpoint_version", RECOVERY, 0)]),
        (EPOCHS, written(EPOCHS, b"0\n2\n1 5\n1 6\n"), [Found("epoch_order", EPOCHS, 8)]),
        (f"{BASE}.snapshot", written(f"{BASE}.snapshot"), None),
        ("golden-0/partition.metadata", written("golden-0/partition.metadata", b"x"), None),
        ("logstore-topics.json", written("logstore-topics.json", b"[]"), None),
        (f"{BASE}.log.swap", written(f"{BASE}.log.swap"), None),
    ),
)
def test_single_file(name, damage, expected):
    directory = golden("segments")
    if directory.fs.exists(f"/data/{name}"):
        assert directory.found(name) == []
    damage(directory)
    found = directory.found(name)
    if expected is None:
        assert [each.path for each in found] == [name]
    else:
        assert found == expected


def test_single_transaction_index_knows_earlier_transactions_by_the_snapshot():
    directory = golden("transactions")
    assert directory.found(TXN_INDEX) == []
    directory.flip(TXN_INDEX, 17)
    assert directory.found(TXN_INDEX) == [Found("txn_index_entry", TXN_INDEX, 0)]


def test_file_that_is_none_of_ours_cannot_be_verified():
    directory = golden("segments")
    directory.write("golden-0/x.txt")
    with pytest.raises(ValueError, match="is no file of a log"):
        directory.check("golden-0/x.txt")


# -- what only a file system can do ----------------------------------------------------------------


class Oversized:
    """A file system on which one file seems to have more bytes than positions can say."""

    def __init__(self, fs, path):
        self._fs, self._path = fs, path

    def __getattr__(self, name):
        return getattr(self._fs, name)

    def open(self, path, **flags):
        file = self._fs.open(path, **flags)
        return OversizedFile(file) if path == self._path else file


class OversizedFile:
    def __init__(self, file):
        self.read, self.close = file.read, file.close

    def size(self):
        return 1 << 31


def test_segment_larger_than_positions_can_say():
    fs = Oversized(golden("segments").fs, f"/data/{LOG}")
    found = [each.check for each in Checker(fs).path(f"/data/{LOG}")]
    assert found == ["segment_size", "zero_tail"]


class Broken(Oversized):
    """A file system on which one file cannot be opened."""

    def open(self, path, **flags):
        if path == self._path:
            raise OSError(5, "Input/output error", path)
        return self._fs.open(path, **flags)


def test_disk_failure_is_a_finding():
    directory = golden("segments")
    directory.flip(LAST_LOG, 100)
    findings = list(Checker(Broken(directory.fs, f"/data/{LOG}")).path("/data"))
    assert [(each.check, each.path) for each in findings] == [
        ("unreadable", f"/data/{LOG}"),
        ("crc", f"/data/{LAST_LOG}"),
    ]
    assert findings[0].found == "Input/output error"


# -- the table of names ----------------------------------------------------------------------------


def test_every_check_is_in_a_test_and_in_the_docs():
    faults = [*SEGMENT_FAULTS.values(), *TRANSACTION_FAULTS.values()]
    expected = {
        found.check
        for found in itertools.chain(
            *(each[1] for each in faults), *(each[2] for each in OTHER_FAULTS.values())
        )
    }
    with open(__file__, encoding="utf-8") as file:  # noqa: PTH123  # this file itself
        text = file.read()
    named = expected | {name for name in CHECKS if f'"{name}"' in text}
    assert set(CHECKS) - named == set()
    docs = (ROOT.parents[2] / "docs" / "CHECKS.md").read_text(encoding="utf-8")
    assert [name for name in CHECKS if f"`{name}`" not in docs] == []


def test_check_works_below_an_overlay_and_on_the_disk():
    fs = OverlayFileSystem(ReadOnlyFileSystem(DiskFileSystem()), VirtualClock())
    assert list(Checker(fs).path(str(ROOT / "segments" / "data"))) == []
    assert RecordBatch(batch(0)).is_valid()
