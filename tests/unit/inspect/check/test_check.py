"""The offline verifier: healthy directories, severities, and the consequences of damage.

The kinds of damage are in `test_check_damage_*.py`.
"""

import json
import random
import struct

import pytest

from logstore import Broker, TopicPartition
from logstore.inspect.check import ERROR, INFO, WARNING, CheckCounts, Checker
from logstore.inspect.check.findings import finding
from logstore.runtime import (
    DiskFileSystem,
    MemoryFileSystem,
    OverlayFileSystem,
    ReadOnlyFileSystem,
    VirtualClock,
)
from logstore.storage.index import OffsetIndex
from logstore.storage.producers.snapshot import SnapshotEntry, encode_snapshot
from tests.support.world.builders import abort, batch, batches_of, commit, data_batch, log_name
from tests.support.world.damage import (
    CODECS,
    EPOCHS,
    ORIGINS,
    RECOVERY,
    TOPICS,
    Found,
    healthy,
    kafka,
    own,
    partition,
)
from tests.support.world.golden_dirs import CLEAN_CASES, READ_CASES, ROOT, tree
from tests.support.world.messages import exactly

GOLDEN_DIRS = [
    *(f"{case}/data" for case in READ_CASES),
    *(f"{case}/{side}/data" for case in CLEAN_CASES for side in ("before", "after")),
]

# A segment of the golden case `segments`: offsets 126 to 169, no producers, an entry of each
# index for the batch at POSITION, which holds offset 140 alone.
BASE = "golden-0/00000000000000000126"
LOG, INDEX, TIME_INDEX = f"{BASE}.log", f"{BASE}.index", f"{BASE}.timeindex"
POSITION = 625
LAST_LOG = "golden-0/00000000000000000293.log"
TXN_INDEX = "golden-0/00000000000000000015.txnindex"
SNAPSHOT = f"{BASE}.snapshot"
METADATA = "golden-0/partition.metadata"
CLEANED = "cleaner-offset-checkpoint"


def named(directory, check):
    """Return the findings of one check."""
    return [each for each in directory.found() if each.check == check]


def without_time(found):
    """Drop the findings in time indexes, which `partition` leaves empty."""
    return [each for each in found if each.check != "time_index_last"]


# -- nothing to find -------------------------------------------------------------------------------


@pytest.mark.parametrize("case", GOLDEN_DIRS)
def test_kafkas_directories_are_healthy(case):
    counts = CheckCounts()
    directory = kafka(case)
    findings = directory.check(counts=counts)
    assert {each.check for each in findings} <= {"offset_gap"}
    assert not [each for each in findings if each.severity == ERROR]
    assert counts.segments == len([n for n in tree(directory.fs) if n.endswith(".log")])
    holes = ("holes", "clean-holes", "clean-dense-index")
    assert not findings or case.startswith(holes), "only these have offsets missing unexplained"


@pytest.mark.parametrize("case", ("segments", "transactions", *(f"codec-{c}" for c in CODECS)))
def test_own_directories_are_healthy(case):
    directory = own(case)
    assert directory.found() == []
    directory.unclean()
    assert directory.found() == []


@pytest.mark.parametrize("case", ("segments", "transactions", "idempotent", "log-append-time"))
def test_kafkas_directories_are_healthy_after_an_unclean_stop_too(case):
    directory = kafka(case)
    directory.unclean()
    assert directory.found() == []


@pytest.mark.parametrize("origin", ORIGINS)
@pytest.mark.parametrize("name", ("log-start-offset", "cleaner-offset"))
def test_folder_is_healthy_without_the_checkpoints_that_it_was_copied_from(origin, name):
    """A copied folder may begin below its log start, or have been cleaned: both are possible."""
    directory = healthy("segments", origin)
    if directory.fs.exists(f"/data/{name}-checkpoint"):
        directory.remove(f"{name}-checkpoint")
    assert directory.found() == []


def test_checked_items_are_counted():
    counts = CheckCounts()
    heard = []
    counts.progress = lambda path, done: heard.append((path, done))
    directory = kafka("segments")
    directory.check(counts=counts)
    lines = (ROOT / "segments" / "batches.jsonl").read_text().splitlines()
    assert counts.batches == len(lines)
    assert counts.records == sum(json.loads(line)["count"] for line in lines)
    total = sum(len(d) for n, d in tree(directory.fs).items() if n.endswith(".log"))
    assert heard[-1][1] == counts.bytes_read == total
    assert Checker(directory.fs).log_bytes(["/data"]) == total


# -- findings --------------------------------------------------------------------------------------


def test_findings_say_what_was_expected_and_found():
    directory = kafka("segments")
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
    directory = kafka("segments")
    directory.unclean()
    directory.append(name, tail)
    assert directory.found() == [Found(check, name, position, None, WARNING)]


def test_padding_of_the_active_segments_indexes_is_as_it_should_be_while_it_is_open():
    directory = kafka("segments")
    directory.unclean()
    for suffix in ("index", "timeindex"):
        directory.append(f"golden-0/00000000000000000293.{suffix}", bytes(240))
    assert directory.found() == []
    directory.append(INDEX, bytes(80))
    assert directory.found() == [Found("index_padding", INDEX, 48)]


def test_high_watermark_beyond_the_end_is_a_warning_after_an_unclean_stop():
    directory = kafka("segments")
    directory.write("replication-offset-checkpoint", b"0\n1\ngolden 0 301\n")
    path = "replication-offset-checkpoint"
    assert directory.found() == [Found("checkpoint_beyond_end", path, 4, 301)]
    directory.unclean()
    assert directory.found() == [Found("checkpoint_beyond_end", path, 4, 301, WARNING)]


def test_missing_index_of_the_active_segment_is_information():
    """It gets one when something needs it."""
    directory = kafka("segments")
    name = LAST_LOG.replace(".log", ".index")
    directory.remove(name)
    assert directory.found() == [Found("missing_index", name, None, 293, INFO)]


# -- damage and its consequences -------------------------------------------------------------------


def test_verification_continues_after_invalid_bytes():
    """Sixty bytes of noise over a header: the batches behind it are verified all the same."""
    directory = kafka("segments")
    noise = bytes(range(100, 160))
    directory.edit(LOG, lambda data: data[:POSITION] + noise + data[POSITION + 60 :])
    directory.flip(LOG, 2000)
    counts = CheckCounts()
    found = [(each.check, each.position) for each in directory.check(counts=counts)]
    assert found == [("batch_length", POSITION), ("crc", 1885)]
    healthy = CheckCounts()
    kafka("segments").check(counts=healthy)
    assert counts.batches == healthy.batches - 1


@pytest.mark.parametrize("length", (5, 30, 10**9, -1))
def test_wrong_lengths_of_every_kind_hide_no_other_batch(length):
    directory = kafka("segments")
    directory.put(LOG, ">i", POSITION + 8, length)
    directory.flip(LOG, 2000)
    found = [(each.check, each.position) for each in directory.check()]
    assert found == [("batch_length", POSITION), ("crc", 1885)]


def test_length_that_ends_at_a_later_batch_is_seen_through():
    directory = kafka("segments")
    sizes = [len(each.data) for each in batches_of(directory.read(LOG))]
    directory.put(LOG, ">i", POSITION + 8, sizes[5] + 10 - 12)
    (found,) = directory.check()
    assert (found.check, found.expected) == ("batch_length", sizes[5] - 12)


def test_every_fault_of_a_directory_is_found_in_one_run():
    directory = kafka("segments")
    directory.flip(LOG, POSITION + 70)
    directory.append("golden-0/00000000000000000041.index", b"\0")
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
    directory = kafka(source.choice(("segments", "transactions", "clean-tombstones-2/after/data")))
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

    def gaps(severity):
        return [Found("offset_gap", log, at * size, at_, severity) for at, at_ in ((1, 5), (2, 9))]

    directory.write(CLEANED, b"0\n0\n")
    assert without_time(directory.found())[:2] == gaps(WARNING)
    # Above it a pass may have been cut short after its first groups.
    directory.write(CLEANED, b"0\n1\ngolden 0 8\n")
    assert without_time(directory.found())[:1] == gaps(INFO)[1:]
    directory.write(CLEANED, b"0\n1\ngolden 0 9\n")
    assert named(directory, "offset_gap") == []


@pytest.mark.parametrize(
    ("topic", "severity"), (("golden", INFO), ("__consumer_offsets", None), ("other", WARNING))
)
def test_gaps_of_a_folder_that_was_copied_alone(topic, severity):
    """Its policy is unknown, unless its name or a stored topic determines it."""
    directory = partition([batch(0), batch(5)], [batch(6)])
    directory.fs.make_dirs(f"/data/{topic}-1")
    for name in directory.fs.list_dir("/data/golden-0"):
        directory.write(f"{topic}-1/{name}", directory.read(f"golden-0/{name}"))
    stored = {"other": {"partitions": [1], "configs": {}}}
    directory.write(TOPICS, json.dumps({"version": 1, "topics": stored}).encode())
    found = [each.severity for each in directory.check(f"{topic}-1") if each.check == "offset_gap"]
    assert found == ([] if severity is None else [severity])


def three_segments():
    """Two closed segments and the active one, offsets missing in each and before each."""
    directory = partition(
        [batch(0), batch(5)],
        first=0,
    )
    for base in (10, 20):
        directory.write(f"golden-0/{log_name(base)}", batch(base + 2) + batch(base + 5))
        for suffix in ("index", "timeindex"):
            directory.write(f"golden-0/{base:020d}.{suffix}")
    return directory


def gaps(directory):
    """Return the offsets before which some are missing."""
    return [each.offset for each in named(directory, "offset_gap")]


EVERY_GAP = [5, 10, 12, 15, 20, 22, 25]


def test_gaps_in_a_segment_in_which_a_cleaning_ended_are_explained():
    """Aborted data go from all of it, whatever the first dirty offset is."""
    directory = three_segments()
    assert gaps(directory) == EVERY_GAP
    for first_dirty, unexplained in ((0, EVERY_GAP), (1, [12, 15, 20, 22, 25]), (11, [22, 25])):
        directory.write(CLEANED, b"0\n1\ngolden 0 %d\n" % first_dirty)
        assert gaps(directory) == unexplained, first_dirty
    directory.write(CLEANED, b"0\n1\ngolden 0 30\n")
    assert gaps(directory) == []


def test_gaps_of_a_compacted_topic_without_a_checkpoint_are_explained_but_in_the_active_segment():
    directory = three_segments()
    topics = {"golden": {"partitions": [0], "configs": {"cleanup.policy": "compact,delete"}}}
    directory.write(TOPICS, json.dumps({"version": 1, "topics": topics}).encode())
    assert gaps(directory) == [22, 25]
    directory.write(CLEANED, b"0\n1\ngolden 0 10\n")
    assert gaps(directory) == [12, 15, 20, 22, 25]


def test_gaps_are_not_reported_if_the_cleaner_checkpoint_is_unreadable():
    directory = three_segments()
    directory.write(CLEANED, b"0\n1\ngolden zero 10\n")
    assert gaps(directory) == []


def test_checkpoint_below_the_log_is_information_and_the_cleaners_not_even_that():
    directory = partition([batch(10)], first=10)
    directory.write(RECOVERY, b"0\n1\ngolden 0 3\n")
    directory.write(CLEANED, b"0\n1\ngolden 0 3\n")
    below = [Found("checkpoint_below_start", RECOVERY, 4, 3, INFO)]
    assert named(directory, "checkpoint_below_start") == below


# -- transactions ----------------------------------------------------------------------------------


def test_transactions_begun_before_the_first_segment_are_read_from_its_snapshot():
    batches = [batch(10), abort(11, 7)]
    directory = partition(batches, first=10)
    log = f"golden-0/{10:020d}"
    assert not [each for each in directory.found() if each.check.startswith("txn")]
    entry = SnapshotEntry(7, 0, 3, 8, 0, 5, -1, 8)
    directory.write(f"{log}.snapshot", encode_snapshot([entry]))
    found = [each for each in directory.check() if each.check.startswith("txn")]
    assert [each.expected for each in found] == ["producer 7 offsets 8..11 last stable 12"]
    # A cleaner removed the data, and the entry with them, before the segment was deleted.
    directory.write(CLEANED, b"0\n1\ngolden 0 12\n")
    assert not [each for each in directory.check() if each.check.startswith("txn")]


def test_batch_outside_the_open_transaction_of_its_producer():
    """Recovery refuses it; no finding where damage may hide the end of the transaction."""
    plain = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 2}
    batches = [data_batch(0, 1, 7), batch(2), batch(3, **plain), abort(4, 7), batch(5, **plain)]
    directory = partition(batches)
    log = f"golden-0/{log_name(0)}"
    position = len(batches[0]) + len(batches[1])
    assert named(directory, "txn_state") == [Found("txn_state", log, position, 3)]
    directory.flip(log, len(batches[0]) + 70)
    assert named(directory, "txn_state") == []


def test_entry_of_an_aborted_transaction_whose_data_were_cleaned_away():
    """Where offsets are missing, data may be gone; the entry is then valid with its marker."""

    def faults(before):
        directory = partition([*before, data_batch(4, 4, 7), abort(5, 7), batch(6)])
        entry = struct.pack(">hqqqq", 0, 7, 2, 5, 6)
        directory.write(f"golden-0/{0:020d}.txnindex", entry)
        return [each.check for each in directory.check() if "txn" in each.check]

    assert faults([batch(0, 3)]) == ["txn_index_entry"]
    assert faults([]) == []


@pytest.mark.parametrize(
    ("start", "removed", "severity"),
    (
        (4, (), None),  # the transaction ended below the start: the cleaning pass dropped its entry
        (4, ("log-start-offset-checkpoint",), WARNING),
        (2, (), None),  # the marker is above the start: the entry was kept
    ),
)
def test_aborted_transaction_below_the_log_start_of_a_cleaned_log(start, removed, severity):
    clock = VirtualClock(1_700_000_000_000)
    fs = MemoryFileSystem(clock)
    with Broker("/data", clock=clock, fs=fs, background=False) as broker:
        broker.create_topic("t", configs={"cleanup.policy": "compact,delete"})
        with broker.producer(transactional_id="id") as producer:
            producer.init_transactions()
            producer.begin_transaction()
            for key in (b"1", b"2"):
                producer.send("t", b"v", key=key, partition=0)
            producer.abort_transaction()
        for key in (b"3", b"4"):
            broker.append("t", key=key, value=b"v")
        broker.roll("t", 0)
        broker.append("t", key=b"5", value=b"v")
        broker.delete_records({TopicPartition("t", 0): start})
        broker.clean("t", force=True)
    for name in removed:
        fs.remove(f"/data/{name}")
    found = Checker(ReadOnlyFileSystem(fs)).data_dirs(["/data"])
    about = [(each.check, each.severity) for each in found if each.severity != INFO]
    assert about == ([] if severity is None else [("txn_index_missing", severity)])


@pytest.mark.parametrize(("first", "faults"), ((0, ["txn_index_entry"]), (2, [])))
def test_entry_whose_stable_offset_a_transaction_held_back_that_is_removed(first, faults):
    """An aborted transaction of another producer began at 1; a cleaner removed its data since."""
    batches = [batch(0)] if first else [batch(0, 3)]
    directory = partition([*batches, data_batch(4, 4, 7), abort(5, 7), abort(6, 9)])
    entry = struct.pack(">hqqqq", 0, 7, 4, 5, 1)
    directory.write(f"golden-0/{0:020d}.txnindex", entry)
    assert [each.check for each in directory.check() if "txn" in each.check] == faults


@pytest.mark.parametrize("removed", (False, True))
def test_snapshot_whose_epoch_came_with_a_marker_that_is_removed(removed):
    """A marker of a newer epoch leaves the producer without batches; a cleaner removes it."""
    fence = [] if removed else [batch(2)]
    directory = partition([data_batch(0, 0, 7), commit(1, 7), *fence], [batch(3)])
    entry = SnapshotEntry(7, 1, -1, -1, 0, 5, 0, -1)
    name = f"golden-0/{3:020d}.snapshot"
    directory.write(name, encode_snapshot([entry]))
    found = [each.check for each in directory.check() if each.path.endswith("snapshot")]
    assert found == ([] if removed else ["snapshot_state"])


# -- producers -------------------------------------------------------------------------------------

IDEMPOTENT_LOG = "golden-0/00000000000000000022.log"
LAST_SNAPSHOT = "golden-0/00000000000000000025.snapshot"


@pytest.mark.parametrize(
    ("kind", "at", "value", "position", "check", "entry"),
    (
        (">i", 53, 4, 78, "sequence_order", 56),
        (">i", 53, 1, 78, "sequence_order", 56),
        (">h", 51, 6, 0, "producer_epoch", 10),
    ),
)
def test_values_that_a_producer_refuses(kind, at, value, position, check, entry):
    """A sequence that jumps, one that falls, an epoch that falls; and the snapshot disagrees."""
    directory = kafka("idempotent")
    directory.reseal(IDEMPOTENT_LOG, position, kind, at, value)
    sent, noted = directory.found()
    assert (sent.check, sent.path, sent.position) == (check, IDEMPOTENT_LOG, position)
    assert sent.severity == WARNING
    assert noted == Found("snapshot_state", LAST_SNAPSHOT, entry, 25)


# -- leader epochs ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("epochs", "wrong"),
    (
        ((0, 0, 9, 0, 0), 2),
        ((1, 3, 9, 4, 4), 2),
        ((1, 3, 0, 3, 4), 2),
        ((1, -5, 2, 3, 4), 1),
        ((1, -1, 2, 2, -1), None),
    ),
)
def test_leader_epochs_without_a_checkpoint_are_judged_by_each_other(epochs, wrong):
    batches = [batch(at, leader_epoch=epoch) for at, epoch in enumerate(epochs)]
    directory = partition(batches)
    directory.write(EPOCHS, b"0\n0\n")
    log = f"golden-0/{log_name(0)}"
    expected = [] if wrong is None else [Found("leader_epoch", log, wrong * len(batches[0]), wrong)]
    assert named(directory, "leader_epoch") == expected
    assert len(named(directory, "epoch_missing")) == 1


# -- indexes as Kafka wrote them before ------------------------------------------------------------


def test_a_chunked_index_is_reported_once_if_it_leads_to_the_right_batch():
    batches = [batch(offset) for offset in range(6)]
    size = len(batches[0])
    directory = partition(batches)
    name = f"golden-0/{0:020d}.index"
    directory.write(name, OffsetIndex.ENTRY.pack(3, size) + OffsetIndex.ENTRY.pack(5, 4 * size))
    assert without_time(directory.found()) == [Found("index_chunked", name, 0, 3, INFO)]
    (each,) = [each for each in directory.check() if each.check == "index_chunked"]
    assert each.found == "3, and 1 more such entries"
    directory.write(name, OffsetIndex.ENTRY.pack(4, size) + OffsetIndex.ENTRY.pack(5, 4 * size))
    assert without_time(directory.found()) == [
        Found("index_entry", name, 0, 4),
        Found("index_chunked", name, 8, 5, INFO),
    ]


def test_time_index_may_name_a_record_inside_its_batch():
    directory = partition([batch(0, 2, timestamp=(5, 9, 7))])
    name = f"golden-0/{0:020d}.timeindex"
    directory.write(name, struct.pack(">qi", 9, 1))
    assert directory.found() == []  # the record's offset, as before Kafka 3.8
    directory.write(name, struct.pack(">qi", 9, 0))
    assert directory.found() == [Found("time_index_offset", name, 0, 0, WARNING)]


@pytest.mark.parametrize(
    ("fields", "is_sound"),
    (((-1, 0), True), ((0, 0), True), ((-1, 3), False), ((2, -1), False)),
)
def test_epoch_and_sequence_without_a_producer(fields, is_sound):
    """Group coordinators leave the sequence at 0, and some clients the epoch too."""
    directory = partition([batch(0)])
    for at, kind, value in ((51, ">h", fields[0]), (53, ">i", fields[1])):
        directory.reseal(f"golden-0/{log_name(0)}", 0, kind, at, value)
    found = [each for each in without_time(directory.found()) if each.check == "producer_fields"]
    log = f"golden-0/{log_name(0)}"
    assert found == ([] if is_sound else [Found("producer_fields", log, 0, 0, WARNING)])


def test_first_epoch_that_a_lost_log_start_had_moved_is_information():
    """Delete-records moved it, and a crash came before the checkpoint of the log start."""
    directory = partition([batch(0), batch(1), batch(2, leader_epoch=1)])
    directory.write(EPOCHS, b"0\n2\n0 1\n1 2\n")
    directory.write("log-start-offset-checkpoint", b"0\n0\n")
    assert named(directory, "epoch_missing") == [Found("epoch_missing", EPOCHS, 4, 0, INFO)]
    directory.write(EPOCHS, b"0\n1\n1 2\n")
    assert named(directory, "epoch_missing") == [Found("epoch_missing", EPOCHS, 4, 0, WARNING)]


def test_partition_that_awaits_its_deletion_may_be_in_checkpoints():
    directory = partition([batch(0)])
    directory.write(RECOVERY, b"0\n2\ngolden 0 1\nold 3 1\n")
    (found,) = named(directory, "checkpoint_unknown_partition")
    assert found.severity == WARNING
    directory.make_dirs(f"old-3.{'0' * 32}-delete")
    (found,) = named(directory, "checkpoint_unknown_partition")
    assert found.severity == INFO


def test_one_zero_entry_is_an_entry_and_no_padding():
    """The first batch's: offset and position, or timestamp and offset, equal the base's."""
    directory = partition([batch(0, timestamp=0)], [batch(1, timestamp=0)])
    stem = f"golden-0/{0:020d}"
    directory.write(f"{stem}.index", bytes(8))
    directory.write(f"{stem}.timeindex", bytes(12))
    assert [each for each in directory.found() if each.path.startswith(stem)] == []
    directory.write(f"{stem}.index", bytes(16))
    assert [each.check for each in directory.found() if each.path == f"{stem}.index"] == [
        "index_padding"
    ]


def test_last_offset_that_a_segment_can_hold():
    top = 2**31 - 1
    assert named(partition([batch(0), batch(top)]), "segment_bounds") == []
    assert len(named(partition([batch(0), batch(top, top + 1)]), "segment_bounds")) == 1


def test_where_a_log_starts_is_unknown_after_an_unclean_stop():
    """Delete-records may have moved it since the checkpoint, and the first epoch with it."""
    directory = partition([batch(0), batch(1), batch(2, leader_epoch=1)])
    directory.write(EPOCHS, b"0\n1\n1 2\n")
    directory.write("log-start-offset-checkpoint", b"0\n0\n")
    assert len(named(directory, "epoch_missing")) == 1
    directory.unclean()
    assert named(directory, "epoch_missing") == []


# -- several directories, and parts of one ---------------------------------------------------------


def test_partition_in_two_directories():
    directory = kafka("segments")
    directory.fs.make_dirs("/other/golden-0")
    for name in directory.fs.list_dir("/data/golden-0"):
        file = directory.fs.open(f"/other/golden-0/{name}", create=True)
        file.append([directory.read(f"golden-0/{name}")])
    findings = list(Checker(directory.fs).data_dirs(["/data", "/other"]))
    assert [(each.check, each.path, each.expected) for each in findings] == [
        ("duplicate_partition", "/other/golden-0", "/data/golden-0")
    ]


def test_partition_directory_is_judged_by_the_checkpoints_around_it():
    directory = kafka("segments")
    assert directory.found("golden-0") == []
    directory.write(RECOVERY, b"0\n2\ngolden 0 301\nother 0 3\n")
    assert directory.found("golden-0") == [Found("checkpoint_beyond_end", RECOVERY, 4, 301)]


def test_partition_directory_of_a_wrong_name():
    directory = kafka("segments")
    directory.rename("golden-0", "golden")
    assert directory.found("golden") == [Found("folder_name", "golden")]


def test_partition_directory_that_awaits_its_deletion():
    directory = kafka("segments")
    name = f"golden-0.{'0' * 32}-delete"
    directory.rename("golden-0", name)
    assert directory.found(name) == [Found("leftover_folder", name, None, None, INFO)]


@pytest.mark.parametrize(
    ("name", "damage", "expected"),
    (
        (LOG, lambda d: d.flip(LOG, POSITION + 70), ("crc", POSITION)),
        (INDEX, lambda d: d.flip(LOG, POSITION + 70), None),
        (INDEX, lambda d: d.swap(INDEX, 8), ("index_order", 8)),
        (TIME_INDEX, lambda d: d.swap(TIME_INDEX, 12), ("time_index_order", 12)),
        (RECOVERY, lambda d: d.write(RECOVERY, b"1\n"), ("checkpoint_version", 0)),
        (EPOCHS, lambda d: d.write(EPOCHS, b"0\n2\n1 5\n1 6\n"), ("epoch_order", 8)),
        (SNAPSHOT, lambda d: d.write(SNAPSHOT), ("snapshot_size", 0)),
        (METADATA, lambda d: d.write(METADATA, b"x"), ("partition_metadata", None)),
        (TOPICS, lambda d: d.write(TOPICS, b"[]"), ("topics_file", None)),
        (f"{LOG}.swap", lambda d: d.write(f"{LOG}.swap"), ("leftover_swap", None)),
    ),
)
def test_single_file(name, damage, expected):
    directory = kafka("segments")
    if directory.fs.exists(f"/data/{name}"):
        assert directory.found(name) == []
    damage(directory)
    found = [(each.check, each.path, each.position) for each in directory.found(name)]
    assert found == ([] if expected is None else [(expected[0], name, expected[1])])


def test_single_transaction_index_knows_earlier_transactions_by_the_snapshot():
    directory = kafka("transactions")
    assert directory.found(TXN_INDEX) == []
    directory.flip(TXN_INDEX, 17)
    assert directory.found(TXN_INDEX) == [Found("txn_index_entry", TXN_INDEX, 0, 15)]


def test_file_that_is_none_of_ours_cannot_be_verified():
    directory = kafka("segments")
    directory.write("golden-0/x.txt")
    with pytest.raises(
        ValueError, match=exactly("/data/golden-0/x.txt is not a log file that can be verified")
    ):
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
    fs = Oversized(kafka("segments").fs, f"/data/{LOG}")
    found = [each.check for each in Checker(fs).path(f"/data/{LOG}")]
    assert found == ["segment_size"], "the bytes after its valid batches are not read"


def test_the_end_of_an_oversized_segment_is_unknown():
    """Unread bytes may contain the batches that indexes and later segments refer to."""
    directory = kafka("segments")
    directory.flip(LOG, 100)
    fs = Oversized(directory.fs, f"/data/{LOG}")
    found = [(each.check, each.path) for each in Checker(fs).path("/data")]
    assert found == [("segment_size", f"/data/{LOG}")]


def test_a_crash_does_not_excuse_an_oversized_segment():
    directory = kafka("segments")
    directory.remove(".kafka_cleanshutdown")
    directory.write(RECOVERY, b"0\n0\n")
    fs = Oversized(directory.fs, f"/data/{LOG}")
    found = [(each.check, each.severity) for each in Checker(fs).path("/data")]
    assert ("segment_size", "error") in found


class Broken(Oversized):
    """A file system on which one file cannot be opened."""

    def open(self, path, **flags):
        if path == self._path:
            raise OSError(5, "Input/output error", path)
        return self._fs.open(path, **flags)


def test_disk_failure_is_a_finding():
    directory = kafka("segments")
    directory.flip(LAST_LOG, 100)
    findings = list(Checker(Broken(directory.fs, f"/data/{LOG}")).path("/data"))
    assert [(each.check, each.path) for each in findings] == [
        ("unreadable", f"/data/{LOG}"),
        ("crc", f"/data/{LAST_LOG}"),
    ]
    assert findings[0].found == "Input/output error"


@pytest.mark.parametrize("case", ("segments", "transactions"))
def test_no_file_that_cannot_be_opened_hides_another_fault(case):
    """Each file in turn is refused by the disk, in addition to damage in the last segment."""
    directory = own(case)
    last = f"golden-0/{log_name(directory.bases()[-1])}"
    directory.flip(last, len(directory.read(last)) - 1)
    for name in tree(directory.fs):
        checker = Checker(Broken(directory.fs, f"/data/{name}"))
        found = {(each.check, each.path) for each in checker.path("/data")}
        if name not in (".kafka_cleanshutdown", ".lock"):  # nobody reads them
            assert ("unreadable", f"/data/{name}") in found, name
        if name != last:
            assert ("crc", f"/data/{last}") in found, name


@pytest.mark.parametrize("name", (LOG, INDEX, SNAPSHOT, EPOCHS, METADATA, RECOVERY, TOPICS))
def test_folder_in_the_place_of_a_file_is_a_finding(name):
    directory = kafka("segments")
    if directory.fs.exists(f"/data/{name}"):
        directory.remove(name)
    directory.make_dirs(name)
    found = [each.check for each in directory.found() if each.path == name]
    is_in_data_dir = name in (RECOVERY, TOPICS)
    assert sorted(found) == ["folder_name", "unreadable"][not is_in_data_dir :]


def test_data_directory_that_cannot_be_listed_is_a_finding():
    class Closed(Oversized):
        def list_dir(self, path):
            if path == self._path:
                raise PermissionError(13, "Permission denied", path)
            return self._fs.list_dir(path)

    directory = kafka("segments")
    for path in ("/data", "/data/golden-0"):
        fs = Closed(directory.fs, path)
        found = [each for each in Checker(fs).path("/data") if each.path == path]
        assert [each.check for each in found] == ["unreadable"]
        assert [each.check for each in Checker(fs).data_dirs(["/data"]) if each.path == path] == [
            "unreadable"
        ]
        assert Checker(fs).log_bytes(["/data"]) == 0


def test_check_works_below_an_overlay_and_on_the_disk():
    fs = OverlayFileSystem(ReadOnlyFileSystem(DiskFileSystem()), VirtualClock())
    assert list(Checker(fs).path(str(ROOT / "segments" / "data"))) == []


def test_a_folder_that_is_moved_away_under_the_check_is_gone_and_no_defect():
    directory = kafka("segments")

    class Moved(ReadOnlyFileSystem):
        """Remove the folder just before its existence is checked."""

        def is_dir(self, path):
            return not path.endswith("golden-0") and super().is_dir(path)

        def exists(self, path):
            return not path.endswith("golden-0") and super().exists(path)

    [found] = Checker(Moved(directory.fs)).path("/data/golden-0")
    assert found == finding("gone", "/data/golden-0", found="moved or removed during the check")
    assert found.severity == ERROR

    class Unlisted(ReadOnlyFileSystem):
        """The same, between the question whether it is a folder and its listing."""

        def list_dir(self, path):
            raise FileNotFoundError(path)

    checker = Checker(Unlisted(directory.fs))
    assert list(checker.path("/data/golden-0")) == [found]
    assert checker.counts.findings == {(ERROR, "gone"): 1}
