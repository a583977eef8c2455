"""A log that was closed cleanly and ends in the middle of a batch: an incomplete copy.

Only a torn batch is removed. Other unreadable bytes stay, and appended records can be read.
"""

import pytest

from logstore.errors import CorruptRecordError
from logstore.names import file_name
from logstore.runtime import Runtime
from logstore.storage.checkpoint.atomic import read_bytes
from logstore.storage.loading import tail
from logstore.storage.log import NewRecord
from logstore.storage.log.epochs import EpochEntry
from logstore.storage.log.reader import Isolation
from logstore.testing import (
    Contents,
    CrashMode,
    FaultyFileSystem,
    Names,
    SimulatedCrash,
)
from logstore.types import AppendOrigin
from tests.support.world.builders import (
    abort,
    actions_of,
    batch,
    data_batch,
    fill,
    findings_of,
    memory_world,
    offsets_in,
    old_message,
    records_of,
)
from tests.support.world.cleaning import compacted, run_pass
from tests.support.world.messages import exactly

REPLICA = AppendOrigin.REPLICATION
INDEXED = {"index_interval_bytes": 60, "segment_bytes": 1000}
"""An index entry every batch or two; `fill` makes batches of 71 bytes."""

with_and_without_index = pytest.mark.parametrize(
    "options", ({}, INDEXED), ids=("unindexed", "indexed")
)


def closed(world, records=20, **options):
    """Write a log of single records; return name, contents and positions of its active segment."""
    log = world.log(**options)
    fill(log, records)
    active = log.active_segment
    name = file_name(active.base_offset, ".log")
    positions = [at.position for at in active.batches()]
    assert len(positions) > 5
    log.close()
    return name, bytearray(world.files()[name]), positions


def check_appends(world, log, end_offset, *, restarts=(True, False), **options):
    """Append and read: in the open log, after a clean restart, and after recovery."""
    assert log.log_end_offset == end_offset
    for restart in (None, *restarts):
        if restart is not None:
            log = world.log(clean=restart, recovery_point=end_offset, **options)
            assert log.findings == ()
        info = log.writer.append_records([NewRecord(b"new", b"v", 1)])
        assert info.first_offset == end_offset
        (record,) = records_of(log, end_offset)
        assert (record.offset, record.key) == (end_offset, b"new")
        end_offset += 1
        log._check()
        log.close()


@with_and_without_index
@pytest.mark.parametrize("torn", (1, 16, 17, 18, 60, 70, -1, -5, -54), ids=lambda torn: f"{torn:+}")
def test_a_torn_end_is_cut_and_reported(world, options, torn):
    name, data, positions = closed(world, **options)
    left = data[:torn] if torn < 0 else data + batch(20)[:torn]
    kept = 19 if torn < 0 else 20
    end = positions[-1] if torn < 0 else len(data)
    world.write(name, bytes(left))
    before = world.files()
    looked = world.log(runtime=world.read_only(), **options)
    assert world.files() == before
    log = world.log(**options)
    assert looked.findings == log.findings
    (found,) = log.findings
    assert (found.action, found.path) == ("truncated_tail", world.path(name))
    assert found.detail.startswith(f"{len(left) - end} bytes cut after position {end}: ")
    assert world.files()[name] == data[:end]
    for each in (looked, log):
        assert offsets_in(each) == list(range(kept))
        assert (each.log_end_offset, each.high_watermark, each.recovery_point) == (kept,) * 3
        assert each.active_segment.max_timestamp_so_far == (1000 + kept - 1, kept - 1)
        each.active_segment._check()
    check_appends(world, log, kept, **options)
    assert offsets_in(world.log(**options)) == list(range(kept + 3))


@with_and_without_index
def test_a_damaged_batch_before_a_torn_end_is_retained(world, options):
    """A wrong CRC is left to the reader of the batch; valid batches follow it."""
    name, data, positions = closed(world, **options)
    data[positions[2] + 66] ^= 1
    world.write(name, bytes(data[:-5]))
    log = world.log(**options)
    assert actions_of(log) == ["truncated_tail"]
    assert world.files()[name] == data[: positions[-1]]
    after = log.active_segment.base_offset + 3
    assert [record.offset for record in records_of(log, after)] == list(range(after, 19))
    check_appends(world, log, 19, restarts=(True,), **options)


@with_and_without_index
@pytest.mark.parametrize("batches", (1, 2, 4))
def test_a_damaged_length_is_not_a_torn_end(world, options, batches):
    """The batches after it were acknowledged; appends go to a new segment."""
    name, data, positions = closed(world, **options)
    at = positions[-batches]
    data[at + 8 : at + 12] = (1 << 20).to_bytes(4)
    world.write(name, bytes(data))
    log = world.log(**options)
    is_passed_over = options is INDEXED and batches > 1  # by the entries after it
    assert actions_of(log) == ([] if is_passed_over else ["left_damaged_end"])
    assert world.files()[name] == data
    check_appends(world, log, 20, restarts=(True,), **options)
    assert world.files()[name].startswith(data)


@with_and_without_index
def test_a_damaged_length_before_a_torn_end(world, options):
    """Only the torn end is removed if the index points to it; otherwise everything stays."""
    name, data, positions = closed(world, **options)
    data[positions[-4] + 8 : positions[-4] + 12] = (1 << 20).to_bytes(4)
    left = bytes(data[:-5])
    world.write(name, left)
    log = world.log(**options)
    if options is INDEXED:
        assert findings_of(log) == [
            (
                "truncated_tail",
                "00000000000000000014.log",
                "67 bytes cut after position 360: the last batch is torn",
            )
        ]
        assert world.files()[name] == data[: positions[-1]]
    else:
        assert findings_of(log) == [
            (
                "left_damaged_end",
                "00000000000000000000.log",
                "283 bytes at position 1142 are not a torn batch; a new segment follows",
            )
        ]
        assert world.files()[name] == left
    check_appends(world, log, 19, restarts=(True,), **options)


def test_foreign_bytes_at_the_end_are_retained(world):
    """Foreign bytes, or an old message, cannot be a torn batch of this log."""
    name, data, _ = closed(world)
    for foreign in (b"\0" * 10 + b"\xff" * 50, old_message(1, 20)[:-5], batch(5)[:-5]):
        world.put({file_name(0, ".index"): b"", name: bytes(data) + foreign})
        log = world.log()
        assert actions_of(log) == ["left_damaged_end"]
        assert f"{len(foreign)} bytes at position {len(data)} " in log.findings[0].detail
        assert world.files()[name] == data + foreign
        assert offsets_in(log) == list(range(20))
        check_appends(world, log, 20)
        assert offsets_in(world.log()) == list(range(23))


def test_a_damaged_end_that_is_all_there_is_is_refused(world):
    """No segment can follow one without a valid batch."""
    left = {file_name(7, ".index"): b"", file_name(7, ".log"): batch(3)[:-5]}
    world.put(left)
    with pytest.raises(CorruptRecordError, match="not a torn batch") as caught:
        world.log()
    assert (caught.value.path, caught.value.position) == (world.path(file_name(7, ".log")), 0)
    assert {n: d for n, d in world.files().items() if n in left} == left


def test_a_log_of_nothing_but_a_torn_batch_is_empty_then(world):
    world.put({file_name(7, ".index"): b"", file_name(7, ".log"): batch(7)[:-5]})
    log = world.log()
    assert findings_of(log) == [
        (
            "truncated_tail",
            "00000000000000000007.log",
            "67 bytes cut after position 0: the last batch is torn",
        )
    ]
    check_appends(world, log, 7)


def test_a_batch_inside_a_torn_one_is_retained(world):
    """A record may contain a batch, which looks like an acknowledged one."""
    log = world.log()
    fill(log, 20)
    log.writer.append_records([NewRecord(b"k", batch(24, 25) + b"more", 1)])
    log.close()
    name = file_name(0, ".log")
    left = world.files()[name][:-2]
    world.write(name, left)
    log = world.log()
    assert findings_of(log) == [
        (
            "left_damaged_end",
            "00000000000000000000.log",
            "160 bytes at position 1430 are not a torn batch; a new segment follows",
        )
    ]
    assert world.files()[name] == left
    check_appends(world, log, 26)


def test_an_index_entry_inside_a_batch_cuts_nothing(world):
    """A walk from there would end inside a record, as if the batch were torn."""
    log = world.log(index_interval_bytes=60)
    fill(log, 4)
    log.writer.append_records([NewRecord(b"k", batch(4) + batch(5)[:-5], 1)])
    log.close()
    before = world.files()
    name = file_name(0, ".log")
    inside = before[name].index(batch(4))
    index = before[file_name(0, ".index")][:-8] + (4).to_bytes(4) + inside.to_bytes(4)
    world.write(file_name(0, ".index"), index)
    log = world.log()
    assert world.files()[name] == before[name]
    assert offsets_in(log) == [0, 1, 2, 3, 4]


def test_bytes_made_to_look_like_many_batches_are_given_up(world, monkeypatch):
    """The time to check each would grow with the square of their number."""
    monkeypatch.setattr(tail, "_EFFORT", 1000)
    name, data, _ = closed(world)
    long = bytearray(batch(30))
    long[8:12] = (400).to_bytes(4)
    torn = bytearray(batch(20))
    torn[8:12] = (1 << 20).to_bytes(4)
    left = bytes(data + torn + long * 9 + bytes(400))
    world.write(name, left)
    with pytest.raises(
        CorruptRecordError,
        match=exactly(
            "{path}/00000000000000000000.log at position 1652: too many byte sequences resemble"
            " a batch"
        ),
    ) as caught:
        world.log()
    assert caught.value.path == world.path(name)
    assert len(data) < caught.value.position < len(left)
    assert world.files()[name] == left


# -- other files that know the torn batch ------------------------------------------------------


def sent(sequence):
    """Build a batch of an idempotent producer."""
    return batch(0, producer_id=5, producer_epoch=0, base_sequence=sequence)


def test_producers_are_as_before_the_torn_batch(world):
    """The snapshot of the stop is ahead of the log: a retry must not count as a duplicate."""
    log = world.log()
    for sequence in range(3):
        log.writer.append_batches(sent(sequence))
    log.close()
    name = file_name(0, ".log")
    world.write(name, world.files()[name][:-5])
    log = world.log()
    assert findings_of(log) == [
        (
            "truncated_tail",
            "00000000000000000000.log",
            "67 bytes cut after position 144: the last batch is torn",
        )
    ]
    (entry,) = log.producer_state.entries()
    assert (entry.last_sequence, entry.last_data_offset) == (1, 1)
    assert log.writer.append_batches(sent(2)).first_offset == 2
    assert offsets_in(log) == [0, 1, 2]


def test_a_transaction_whose_marker_was_torn_is_open_again(world):
    log = world.log(index_interval_bytes=60)
    log.writer.append_batches(data_batch(0, 1, 5), REPLICA)
    log.writer.append_batches(abort(2, 5), REPLICA)
    log.close()
    name = file_name(0, ".log")
    world.write(name, world.files()[name][:-5])
    log = world.log(index_interval_bytes=60)
    assert findings_of(log) == [
        (
            "truncated_tail",
            "00000000000000000000.log",
            "73 bytes cut after position 83: the last batch is torn",
        )
    ]
    assert (log.log_end_offset, log.last_stable_offset) == (2, 0)
    assert log.active_segment.txn_index.is_empty
    log.writer.append_end_txn_marker(5, 0, 0, commit=True)
    committed = list(log.reader.records(0, isolation=Isolation.READ_COMMITTED))
    assert [record.offset for _, record in committed] == [0, 1]


def test_an_epoch_that_began_with_the_torn_batch_is_forgotten(world):
    log = world.log()
    log.writer.append_batches(batch(0, leader_epoch=3) + batch(1, leader_epoch=4), REPLICA)
    log.close()
    name = file_name(0, ".log")
    world.write(name, world.files()[name][:-5])
    log = world.log()
    assert log.epochs.entries == (EpochEntry(3, 0),)


@pytest.mark.parametrize("reached", (0, 20))
def test_a_log_start_in_the_torn_batch_is_obeyed_if_the_log_reached_it(world, reached):
    """Records below it were deleted and must not reappear; a foreign log start hides nothing."""
    name, data, _ = closed(world)
    world.write(name, bytes(data[:-5]))
    log = world.log(log_start_offset=20, recovery_point=reached)
    if reached:
        assert findings_of(log) == [
            (
                "truncated_tail",
                "00000000000000000000.log",
                "67 bytes cut after position 1358: the last batch is torn",
            ),
            (
                "removed_segment",
                "00000000000000000000.log",
                "the log ends at 19, below the log start 20",
            ),
            ("reset_log", "t-0", "the log ends at 19, below the log start 20"),
        ]
        assert (log.log_start_offset, log.log_end_offset) == (20, 20)
    else:
        assert findings_of(log) == [
            (
                "truncated_tail",
                "00000000000000000000.log",
                "67 bytes cut after position 1358: the last batch is torn",
            ),
            (
                "ignored_log_start",
                "t-0",
                "the log start 20 is beyond the log end 19; the log starts at 0",
            ),
        ]
        assert (log.log_start_offset, log.log_end_offset) == (0, 19)


def test_no_time_index_next_to_a_torn_end(world):
    name, data, _ = closed(world, **INDEXED)
    world.write(name, bytes(data[:-5]))
    world.fs.remove(world.path(name.replace(".log", ".timeindex")))
    log = world.log(**INDEXED)
    assert findings_of(log) == [
        (
            "truncated_tail",
            "00000000000000000014.log",
            "67 bytes cut after position 360: the last batch is torn",
        )
    ]
    assert log.active_segment.max_timestamp_so_far == (1018, 18)
    check_appends(world, log, 19, **INDEXED)


def test_a_crash_while_the_end_is_cut_changes_nothing():
    """The next start recovers: the clean-shutdown marker is removed before a log is opened."""
    world = memory_world()
    name, data, positions = closed(world, **INDEXED)
    world.write(name, bytes(data[:-5]))
    modes = [
        CrashMode(contents, names)
        for contents in (Contents.DROPPED, Contents.KEPT, Contents.ZEROED)
        for names in (Names.UNDONE, Names.KEPT)
    ]
    number, states = 0, 0
    while True:
        number += 1
        fs = FaultyFileSystem(world.clock, world.fs)
        fs.crash_at(number)
        try:
            world.log(runtime=Runtime(world.clock, fs, world.runtime.rng), **INDEXED)
        except SimulatedCrash:
            pass
        else:
            break
        for mode in modes:
            states += 1
            left = Runtime(world.clock, fs.crash(mode), world.runtime.rng)
            log = world.log(runtime=left, clean=False, recovery_point=20, **INDEXED)
            assert offsets_in(log) == list(range(19)), f"{fs.operations[-1]}, {mode}"
            log._check()
            log.active_segment._check()
            log.close()
            assert read_bytes(left.fs, world.path(name)) == data[: positions[-1]]
    assert number > 5
    assert states > 30


def test_a_segment_whose_end_is_damaged_is_not_cleaned(world):
    """Cleaning would drop the valid batches after the damage."""
    log = compacted(world)
    fill(log, 20)
    log.close()
    name = file_name(0, ".log")
    data = bytearray(world.files()[name])
    at = data.index((15).to_bytes(8))
    data[at + 8 : at + 12] = (1 << 20).to_bytes(4)
    world.write(name, bytes(data))
    log = compacted(world)
    fill(log, 2, 20)
    with pytest.raises(
        CorruptRecordError,
        match=exactly(
            "{path}/00000000000000000000.log at position 1070: the segment ends inside a batch"
        ),
    ) as caught:
        run_pass(log)
    assert (caught.value.path, caught.value.position) == (world.path(name), at)
    assert world.files()[name] == data
