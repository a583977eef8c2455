"""Seeded damage to producer snapshots, epochs and checkpoints: found by name and place, alone.

Every row runs on a directory of Kafka's and on one of this engine's.
"""

import pytest

from logstore import Broker, VirtualClock
from logstore.inspect.check import INFO, WARNING
from logstore.runtime import MemoryFileSystem
from logstore.storage.producers.snapshot import encode_snapshot
from tests.support.world.damage import CHECKPOINTS, EPOCHS, ORIGINS, DamageTable, Directory, Found

TABLE = DamageTable()
row = TABLE.row


# -- producer snapshots ----------------------------------------------------------------------------


def snapshot_at(place, check, position):
    return [Found(check, place.snapshot, position, place.base)]


@row("bad snapshot size", "transactions")
def snapshot_cut_in_an_entry(place):
    """The CRC covers all of the file: it goes first."""
    place.cut(place.snapshot, -1)
    return snapshot_at(place, "snapshot_crc", 2)


@row("bad snapshot CRC", "transactions")
def snapshot_from_the_future(place):
    place.reseal_snapshot(place.snapshot, ">q", 24, place.base + 3)
    return snapshot_at(place, "snapshot_entry", 10)


@row("bad snapshot CRC", "transactions")
def snapshot_with_a_producer_twice(place):
    place.reseal_snapshot(place.snapshot, ">q", 56, place.read(place.snapshot)[17])
    return snapshot_at(place, "snapshot_entry", 56)


@row("bad snapshot CRC", "transactions")
def snapshot_without_producers(place):
    place.reseal_snapshot(place.snapshot, ">q", 10, -7)
    place.reseal_snapshot(place.snapshot, ">q", 56, -7)
    return [*snapshot_at(place, "snapshot_entry", 10), *snapshot_at(place, "snapshot_entry", 56)]


@row("bad snapshot size", "transactions")
def snapshot_beyond_the_end(place):
    name = f"golden-0/{999:020d}.snapshot"
    place.write(name, encode_snapshot([]))
    return [Found("snapshot_offset", name, None, 999)]


# -- leader epochs ---------------------------------------------------------------------------------


def epoch_rows(place):
    """The entries of the epoch checkpoint, as text."""
    return place.read(EPOCHS).decode().splitlines()[2:]


def write_epochs(place, *rows, count=None):
    count = len(rows) if count is None else count
    place.write(EPOCHS, "\n".join(("0", str(count), *rows, "")).encode())


def epoch_position(place, slot):
    """Where the line of an entry begins."""
    return sum(len(line) + 1 for line in place.read(EPOCHS).decode().splitlines()[: 2 + slot])


@row("epoch file out of order")
def epochs_fall(place):
    first, _, last = epoch_rows(place)
    start = last.split()[1]
    write_epochs(place, first, f"5 {int(start) - 100}", f"2 {start}")
    return [Found("epoch_order", EPOCHS, epoch_position(place, 2), int(start))]


@row("epoch file out of order")
def epoch_starts_fall(place):
    first, second, last = epoch_rows(place)
    write_epochs(place, first, second, last, "6 60")
    return [Found("epoch_order", EPOCHS, epoch_position(place, 3), 60)]


@row("epoch file beyond the end")
def epoch_beyond_the_end(place):
    beyond = place.end_offset + 1
    write_epochs(place, *epoch_rows(place), f"6 {beyond}")
    return [Found("epoch_beyond_end", EPOCHS, epoch_position(place, 3), beyond)]


@row("epoch file out of order")
def epoch_begins_inside_a_batch(place):
    """The second entry begins one offset late: inside the batch that brought the epoch."""
    first, second, last = epoch_rows(place)
    epoch, start = map(int, second.split())
    write_epochs(place, first, f"{epoch} {start + 1}", last)
    base = max(each for each in place.bases() if each <= start)
    log = f"golden-0/{base:020d}.log"
    position, batch = place.batch_at(log, start)
    assert batch.header.next_offset > start + 1
    return [
        Found("epoch_inside_batch", EPOCHS, epoch_position(place, 1), start + 1),
        Found("leader_epoch", log, position, start),
    ]


@row("epoch file out of order")
def epoch_of_no_batch(place):
    """Every batch from there on has another one; only the first is reported."""
    first, second, last = epoch_rows(place)
    start = int(last.split()[1])
    write_epochs(place, first, second, f"4 {start}")
    base = max(each for each in place.bases() if each <= start)
    log = f"golden-0/{base:020d}.log"
    position, _ = place.batch_at(log, start)
    return [Found("leader_epoch", log, position, start)]


@row("epoch file out of order")
def epochs_lost(place):
    write_epochs(place)
    start = next(each for each in place.all_batches() if each.last_offset >= 45)
    return [Found("epoch_missing", EPOCHS, None, start.base_offset, WARNING)]


@row("epoch file out of order")
def first_epoch_lost(place):
    """The log start is inside the part whose epoch nobody knows now."""
    _, *rest = epoch_rows(place)
    write_epochs(place, *rest)
    start = next(each for each in place.all_batches() if each.last_offset >= 45)
    at = epoch_position(place, 0)
    return [Found("epoch_missing", EPOCHS, at, start.base_offset, WARNING)]


@row("epoch file out of order")
def epochs_unreadable(place):
    write_epochs(place, "one 45")
    return [Found("checkpoint_entry", EPOCHS, 4)]


# -- checkpoints -----------------------------------------------------------------------------------


def checkpoint_rows(function):
    """Add a row for each of the four offset checkpoints."""
    for name in CHECKPOINTS:

        def inflict(place, name=name):
            return function(place, name)

        inflict.__name__ = f"{function.__name__}_{name.partition('-')[0]}"
        row(function.__doc__)(inflict)


@checkpoint_rows
def version_of(place, name):
    """checkpoint of wrong version"""
    place.write(name, b"1\n1\ngolden 0 100\n")
    return [Found("checkpoint_version", name, 0)]


@checkpoint_rows
def count_too_high_in(place, name):
    """checkpoint of wrong count"""
    place.write(name, b"0\n2\ngolden 0 100\n")
    return [Found("checkpoint_count", name, 2)]


@checkpoint_rows
def count_too_low_in(place, name):
    """checkpoint of wrong count"""
    place.write(name, b"0\n0\ngolden 0 100\n")
    return [Found("checkpoint_count", name, 2)]


@checkpoint_rows
def partition_unknown_in(place, name):
    """checkpoint of unknown partition"""
    place.write(name, b"0\n2\ngolden 0 100\nother 3 5\n")
    # The cleaner's is rewritten only when a cleaning pass ends, however long ago the topic went.
    severity = INFO if name.startswith("cleaner") else WARNING
    return [Found("checkpoint_unknown_partition", name, 17, 5, severity)]


@checkpoint_rows
def offset_beyond_the_end_in(place, name):
    """checkpoint beyond the end"""
    beyond = place.end_offset + 1
    place.write(name, b"0\n1\ngolden 0 %d\n" % beyond)
    return [Found("checkpoint_beyond_end", name, 4, beyond)]


@checkpoint_rows
def line_cut_in(place, name):
    """checkpoint of wrong count"""
    place.write(name, b"0\n1\ngolden 0\n")
    return [Found("checkpoint_entry", name, 4)]


@checkpoint_rows
def offset_negative_in(place, name):
    """checkpoint of wrong count"""
    place.write(name, b"0\n1\ngolden 0 -1\n")
    return [Found("checkpoint_entry", name, 4)]


@checkpoint_rows
def partition_twice_in(place, name):
    """checkpoint of wrong count"""
    place.write(name, b"0\n2\ngolden 0 100\ngolden 0 99\n")
    return [Found("checkpoint_duplicate", name, 17, None, WARNING)]


# -- one field -------------------------------------------------------------------------------------

TABLE.add(
    "snapshot",
    snapshot_at,
    {
        "bad snapshot CRC": (
            ("snapshot_flipped", ("flip", 30), ("snapshot_crc", 2)),
            ("snapshot_crc_flipped", ("flip", 2), ("snapshot_crc", 2)),
            (
                "snapshot_with_another_sequence",
                ("reseal_snapshot", ">i", 20, 99),
                ("snapshot_state", 10),
            ),
            (
                "snapshot_with_another_epoch",
                ("reseal_snapshot", ">h", 18, 9),
                ("snapshot_state", 10),
            ),
            (
                "snapshot_with_another_transaction",
                ("reseal_snapshot", ">q", 48, 20),
                ("snapshot_state", 10),
            ),
            ("snapshot_that_is_older", ("reseal_snapshot", ">q", 24, 9), ("snapshot_state", 10)),
        ),
        "bad snapshot version": (
            ("snapshot_of_another_version", ("put", ">h", 0, 2), ("snapshot_version", 0)),
        ),
        "bad snapshot size": (
            ("snapshot_cut_in_its_header", ("cut", 4), ("snapshot_size", 0)),
            ("snapshot_of_another_count", ("reseal_snapshot", ">i", 6, 9), ("snapshot_size", 6)),
        ),
    },
    case="transactions",
)


@pytest.mark.parametrize("name", TABLE)
@pytest.mark.parametrize("origin", ORIGINS)
def test_damage_is_found_and_nothing_else(name, origin):
    place, expected = TABLE.seed(name, origin)
    assert expected
    assert place.found() == expected
    TABLE.check_values(name, origin, place)


def test_a_damaged_first_snapshot_leaves_the_history_incomplete():
    """A transaction that began before the first segment is not contradicted by later snapshots."""
    clock = VirtualClock()
    fs = MemoryFileSystem(clock)
    with Broker("/data", fs=fs, clock=clock) as broker:
        broker.create_topic("golden")
        producer = broker.producer(transactional_id="t", linger_ms=0)
        producer.init_transactions()
        producer.begin_transaction()
        for value in (b"0", b"1", b"2"):
            producer.send("golden", value).get()
            broker.roll("golden")
        producer.abort_transaction()
    place = Directory(fs)
    for name in fs.list_dir("/data/golden-0"):
        if name.startswith(f"{0:020d}"):
            place.remove(f"golden-0/{name}")
    place.write("log-start-offset-checkpoint", b"0\n1\ngolden 0 1\n")
    assert place.found() == []
    first = f"golden-0/{1:020d}.snapshot"
    place.flip(first, 30)
    assert place.found() == [Found("snapshot_crc", first, 2, 1)]
