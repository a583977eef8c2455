"""Truncation: the behaviour scenarios of group J, and comparisons with shorter logs."""

import random

import hypothesis.strategies as st
import pytest
from hypothesis import given

from logstore.config.log_config import LogConfig
from logstore.errors import CorruptRecordError, KafkaStorageError, OffsetOutOfRangeError
from logstore.names import LEADER_EPOCHS
from logstore.runtime import Runtime
from logstore.storage.checkpoint.atomic import read_bytes
from logstore.storage.log import NewRecord
from logstore.storage.log.reader import LATEST_TIMESTAMP, MAX_TIMESTAMP, Isolation
from logstore.types import AppendOrigin
from tests.support.world.builders import (
    abort,
    bases_of,
    batch,
    batches_of,
    commit,
    data_batch,
    fill,
    log_name,
    memory_world,
    offsets_in,
    offsets_of,
)
from tests.support.world.crashes import crashes_of
from tests.support.world.faulty import FaultyFileSystem
from tests.support.world.messages import exactly


def replicate(log, *batches):
    for data in batches:
        log.writer.append_batches(data, AppendOrigin.REPLICATION)


def in_segments(log, count=20, each=5):
    """Append one-record batches, a given number per segment."""
    for start in range(log.log_end_offset, count, each):
        if log.active_segment.size_bytes:
            log.writer.roll()
        fill(log, min(each, count - start), start)
    return log


# -- scenarios -------------------------------------------------------------------------------


def test_s098_truncation_to_an_offset(world):
    """S-098: at or beyond the end nothing changes; otherwise the rest can be written again."""
    log = world.log()
    fill(log, 10)
    size, before = log.size_bytes, world.files(".log")
    for offset in (10, 11):
        assert log.truncate_to(offset) is False
        assert (log.log_end_offset, log.generation, world.files(".log")) == (10, 0, before)
    assert log.truncate_to(5) is True
    assert (log.log_end_offset, offsets_in(log)) == (5, list(range(5)))
    assert 0 < log.size_bytes < size
    assert log.truncate_to(0) is True
    assert (log.log_end_offset, log.size_bytes) == (0, 0)
    fill(log, 10)
    assert log.size_bytes == size
    assert world.files(".log") == before
    with pytest.raises(ValueError, match=exactly("cannot truncate t-0 to a negative offset -1")):
        log.truncate_to(-1)
    assert log.generation == 2


def test_s099_a_batch_is_truncated_as_a_whole(world):
    """S-099: it leaves a hole below the new end, at which the next append starts."""
    log = world.log()
    replicate(log, batch(0, 3), batch(4, 7))
    log.truncate_to(6)
    assert (log.log_end_offset, offsets_in(log)) == (6, [0, 1, 2, 3])
    assert log.reader.read(4, 1000).data == log.reader.read(5, 1000).data == b""
    assert log.writer.append_records([NewRecord(b"k", b"v")]).first_offset == 6
    assert offsets_of(log.reader.read(4, 1000).data) == [6]
    for clean in (True, False):
        log.close()
        log = world.log(clean=clean)
        assert (log.log_end_offset, offsets_in(log)) == (7, [0, 1, 2, 3, 6])


def test_s100_producer_snapshots(world):
    """S-100: with snapshots at 2 and 3, going back to 2, 1 and 0."""
    log = world.log()
    for offset in range(4):
        fields = {"producer_id": 1, "producer_epoch": 0, "base_sequence": offset}
        replicate(log, batch(offset, timestamp=world.clock.now_ms(), **fields))
        if offset in (1, 2):
            log.producer_state.take_snapshot()
    state = log.producer_state
    assert state.snapshot_offsets == [2, 3]
    log.truncate_to(2)
    assert (state.latest_snapshot_offset, state.map_end_offset) == (2, 2)
    assert state.entry(1).last_sequence == 1
    log.truncate_to(1)
    assert (state.latest_snapshot_offset, state.map_end_offset) == (1, 1)
    assert state.entry(1).last_sequence == 0
    log.truncate_to(0)
    assert (state.latest_snapshot_offset, state.map_end_offset) == (None, 0)
    assert state.is_empty
    assert not world.files(".snapshot")


def test_s101_leader_epochs(world):
    """S-101: 0@0, 1@10, 2@16, end 20, two segments: back to 20, 11, 10, 0 leaves 3, 2, 1, 0."""
    log = world.log()
    for offset in range(20):
        if offset == 12:
            log.writer.roll()
        epoch = (offset >= 10) + (offset >= 16)
        replicate(log, batch(offset, leader_epoch=epoch))
    for offset, left in ((20, 3), (11, 2), (10, 1), (0, 0)):
        log.truncate_to(offset)
        assert len(log.epochs.entries) == left
        stored = read_bytes(world.fs, world.path(LEADER_EPOCHS)).decode()
        assert stored.splitlines()[1] == str(left), "and so does the file"


@pytest.mark.parametrize("offset", (29, 30))
def test_s102_an_epoch_without_records_is_removed(world, offset):
    """S-102: a leader that appended nothing leaves no epoch behind."""
    log = world.log()
    for each in range(29):
        replicate(log, batch(each, leader_epoch=19 if each >= 27 else 3))
    log.epochs.assign(20, 29)
    assert log.truncate_to(offset) is False
    assert log.epochs.entries == ((3, 0), (19, 27))
    assert log.log_end_offset == 29


def test_s103_the_high_watermark_and_the_log_start_follow(world):
    """S-103: the watermark is lowered; the log start only if it is above the new end."""
    log = world.log()
    fill(log, 10)
    log.offsets.set_high_watermark(8)
    log.truncate_to(5)
    assert (log.high_watermark, log.log_start_offset, log.log_end_offset) == (5, 0, 5)
    log.offsets.set_high_watermark(2)
    log.truncate_to(4)
    assert (log.high_watermark, log.log_end_offset) == (2, 4)
    world.put({})
    log = in_segments(world.log())
    log.delete_records(12)
    assert bases_of(log) == [10, 15]
    log.truncate_to(11)
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (11, 11, 11)
    log.truncate_to(7)
    assert (bases_of(log), log.log_start_offset, log.log_end_offset) == ([7], 7, 7)


def test_s104_open_transactions(world):
    """S-104: one that began above the new end is forgotten, one below it remains open."""
    log = world.log()
    fill(log, 3)
    replicate(log, data_batch(3, 3, 7), data_batch(4, 5, 7, sequence=1))
    assert log.last_stable_offset == 3
    log.truncate_to(4)
    assert log.producer_state.first_unstable_offset(4) == log.last_stable_offset == 3
    log.truncate_to(2)
    assert log.producer_state.first_unstable_offset(2) is None
    assert log.last_stable_offset == 2


@pytest.mark.parametrize("clean", (True, False))
def test_s108_a_lost_truncation_of_the_epochs_is_repeated(world, clean):
    """S-108: the old file reappears; loading truncates it at the checkpointed log start."""
    log = world.log()
    for offset in range(12):
        replicate(log, batch(offset, leader_epoch=(offset >= 5) + (offset >= 10)))
    before = read_bytes(world.fs, world.path(LEADER_EPOCHS))
    log.delete_records(7)
    assert log.epochs.entries == ((1, 7), (2, 10))
    log.close()
    world.write(LEADER_EPOCHS, before)
    log = world.log(clean=clean, log_start_offset=7)
    assert log.epochs.entries == ((1, 7), (2, 10))
    assert read_bytes(world.fs, world.path(LEADER_EPOCHS)) == b"0\n2\n1 7\n2 10\n"


def test_s108_a_crash_at_any_point():
    """S-108, on a disk that loses writes: the log start was stored, the epochs were not yet."""

    def prepare(world):
        log = world.log()
        for offset in range(12):
            replicate(log, batch(offset, leader_epoch=(offset >= 5) + (offset >= 10)))
        log.close()

    states = 0
    for what, world in crashes_of(
        prepare, lambda log: log.offsets.maybe_increment_log_start_offset(7)
    ):
        log = world.log(clean=False, recovery_point=12, log_start_offset=7)
        assert log.epochs.entries == ((1, 7), (2, 10)), what
        states += 1
    assert states > 10


# -- comparisons with a shorter log ----------------------------------------------------------

PRODUCERS = (1, 2, 3)


class Historian:
    """A random history: data, transactions, markers, gaps, epochs, rolls."""

    def __init__(self, seed):
        rng = random.Random(seed)
        self.batches = []
        self.rolls = set()
        offset, epoch, sequences, is_open = 0, 0, dict.fromkeys(PRODUCERS, 0), set()
        for _ in range(rng.randint(3, 25)):
            if rng.random() < 0.2:
                self.rolls.add(offset)
            if rng.random() < 0.1:
                offset += rng.randint(1, 4)
            epoch += rng.random() < 0.15
            pid = rng.choice(PRODUCERS)
            common = {"leader_epoch": epoch, "timestamp": rng.choice((-1, 5, 50, 500, offset))}
            last = offset + rng.randint(0, 3)
            kind = rng.random()
            if kind < 0.4:
                data = batch(offset, last, **common)
            elif kind < 0.8 or pid not in is_open:
                data = data_batch(offset, last, pid, sequence=sequences[pid], **common)
                sequences[pid] += last - offset + 1
                is_open.add(pid)
            else:
                last = offset
                data = rng.choice((abort, commit))(offset, pid, **common)
                is_open.discard(pid)
            self.batches.append((offset, last, data))
            offset = last + 1
        self.end = offset

    def write(self, log, end):
        """Write all batches below `end`."""
        for first, last, data in self.batches:
            if first <= end and first in self.rolls and log.active_segment.size_bytes:
                log.writer.roll(first)
            if last >= end:
                return log
            replicate(log, data)
        return log


def everything_in(log):
    """Return everything that a reader, a producer or a leader can see of a log."""
    start = log.log_start_offset
    producers = {
        entry.producer_id: (
            entry.producer_epoch,
            entry.last_sequence,
            entry.last_data_offset,
            entry.last_timestamp,
            entry.coordinator_epoch,
            entry.current_txn_first_offset,
        )
        for entry in log.producer_state.entries()
    }
    return {
        "bounds": (start, log.last_stable_offset, log.high_watermark, log.log_end_offset),
        "records": [record for _, record in log.reader.records(start)],
        "committed": [
            record for _, record in log.reader.records(start, isolation=Isolation.READ_COMMITTED)
        ],
        "batches": [each.data for each in log.reader.batches(start)],
        "epochs": log.epochs.entries,
        "producers": producers,
        "times": [
            log.reader.offset_for_timestamp(time)
            for time in (LATEST_TIMESTAMP, MAX_TIMESTAMP, 0, 5, 6, 40, 50, 51, 499, 500, 501)
        ],
    }


@given(
    st.integers(0, 2**32),
    st.floats(0, 1),
    st.sampled_from((0, 0, 100)),
    st.booleans(),
    st.booleans(),
)
def test_a_truncated_log_is_one_that_never_had_the_rest(
    seed, where, interval, was_reopened, is_clean
):
    history = Historian(seed)
    config = {"index_interval_bytes": interval}
    offset = round(where * history.end)
    world, other = memory_world(), memory_world()
    for each in (world, other):
        each.clock.set_ms(1000)
    log = history.write(world.log(**config), history.end)
    if was_reopened:
        log.close()
        log = world.log(**config)
    truncated = log.truncate_to(offset)
    assert truncated is (offset < history.end)
    assert log.log_end_offset == log.high_watermark == offset
    assert log.recovery_point <= offset
    assert log.generation == truncated
    reference = history.write(other.log(**config), offset)
    for first, last, data in history.batches:
        if first < offset <= last:  # the epoch of a removed batch stays
            reference.epochs.assign(batches_of(data)[0].header.partition_leader_epoch, first)
    # Open transactions continue, and a hole at the end is now inside the log.
    for each in (log, reference):
        for first, last in ((offset, offset), (offset + 1, offset + 2)):
            replicate(each, batch(first, last, leader_epoch=99, timestamp=7))
    expected = everything_in(reference)
    assert everything_in(log) == expected
    recovery_point = log.recovery_point
    log.close()
    log = world.log(clean=is_clean, recovery_point=recovery_point, **config)
    assert everything_in(log) == expected
    assert not log.findings
    log._check()


# -- positions -------------------------------------------------------------------------------


def test_segments_above_go_and_the_cut_one_is_active(world):
    log = in_segments(world.log(file_delete_delay_ms=1000))
    log.truncate_to(12)
    assert bases_of(log) == [0, 5, 10]
    assert list(world.files(".log")) == [log_name(base) for base in (0, 5, 10)]
    assert list(world.files(".log.deleted")) == [log_name(15) + ".deleted"]
    assert not world.files(f"{15:020d}.snapshot")
    log.truncate_to(10)
    assert bases_of(log) == [0, 5, 10], "the segment that begins there stays, empty"
    assert log.active_segment.size_bytes == 0
    fill(log, 8, 10)
    world.clock.advance(ms=1000)
    assert log.delete_expired_files() == 2, "a segment and a snapshot"
    assert not world.files(".deleted")
    assert offsets_in(log) == list(range(18))


def test_snapshots_of_removed_segments_go_with_them_others_at_once(world):
    log = in_segments(world.log(file_delete_delay_ms=1000))
    log.producer_state.take_snapshot()
    log.truncate_to(12)
    names = [f"{offset:020d}.snapshot" for offset in (5, 10, 12)]
    assert list(world.files(".snapshot")) == names
    assert list(world.files(".snapshot.deleted")) == [f"{15:020d}.snapshot.deleted"]
    log.truncate_fully_and_start_at(30)
    assert not world.files(".snapshot")
    assert list(world.files(".snapshot.deleted")) == [f"{15:020d}.snapshot.deleted"]
    log.truncate_fully_and_start_at(30, log_start_offset=20)
    assert list(world.files(".snapshot")) == [f"{30:020d}.snapshot"], "as in Kafka"


def test_a_fresh_start_at_the_same_offset_uses_the_settings_of_now(world):
    log = world.log(preallocate=True, segment_bytes=5000, index_interval_bytes=0)
    fill(log, 4)
    assert log.active_segment.offset_index.max_entries == 500
    log.set_config(LogConfig(segment_index_bytes=80, preallocate=True, segment_bytes=3000))
    log.truncate_fully_and_start_at(0)
    assert world.fs.stat(world.path(log_name(0))).size == 3000
    fill(log, 4)
    active = log.active_segment
    assert (active.offset_index.entries, active.offset_index.max_entries) == (0, 10)
    log.close()
    assert offsets_in(world.log()) == list(range(4))


def test_the_indexes_of_the_new_active_segment_have_room_again(world):
    log = in_segments(world.log(index_interval_bytes=0))
    sizes = {world.fs.stat(world.path(f"{5:020d}{kind}")).size for kind in (".index", ".timeindex")}
    assert max(sizes) < 100
    log.truncate_to(8)
    active = log.active_segment
    assert (active.offset_index.max_entries, active.time_index.max_entries) == (500, 333)
    assert [entry.offset for entry in active.offset_index] == [6, 7]


def test_a_gap_that_compaction_left_may_hold_the_new_end(world):
    log = world.log()
    replicate(log, batch(0), batch(10), batch(20))
    log.truncate_to(15)
    assert (log.log_end_offset, offsets_in(log)) == (15, [0, 10])
    assert log.writer.append_records([NewRecord(b"k", b"v")]).first_offset == 15
    log.close()
    assert offsets_in(world.log()) == [0, 10, 15]


def test_the_largest_timestamp_matches_the_data_even_after_a_restart(world):
    """The last entry of the time index is removed; earlier data have a later timestamp."""
    log = world.log()
    for offset, timestamp in enumerate((100, 900, 200, 1000)):
        replicate(log, batch(offset, timestamp=timestamp))
    log.close()
    log = world.log()
    log.truncate_to(3)
    assert log.active_segment.largest_timestamp == 900
    assert log.reader.offset_for_timestamp(150).offset == 1
    assert log.reader.offset_for_timestamp(MAX_TIMESTAMP)[:2] == (900, 1)
    log.close()
    assert world.log().reader.offset_for_timestamp(MAX_TIMESTAMP)[:2] == (900, 1)


def test_a_fresh_start_at_any_offset(world):
    """Before, inside, at and after the old log; no old record reappears."""
    for offset in (0, 3, 5, 7, 10, 12, 20, 100):
        world.put({})
        log = in_segments(world.log())
        log.delete_records(5)
        log.epochs.assign(3, 20)
        generation = log.generation
        log.truncate_fully_and_start_at(offset)
        assert log.generation == generation + 1
        assert (bases_of(log), log.size_bytes) == ([offset], 0)
        assert (log.log_start_offset, log.log_end_offset) == (offset, offset)
        assert log.high_watermark == log.last_stable_offset == offset
        assert log.recovery_point <= offset
        assert (log.epochs.entries, log.producer_state.is_empty) == ((), True)
        assert not world.files(".snapshot")
        assert log.writer.append_records([NewRecord(b"k", b"v")]).first_offset == offset
        log.close()
        for clean in (True, False):
            log = world.log(clean=clean)
            assert (log.log_start_offset, offsets_in(log)) == (offset, [offset])
            assert list(world.files(".log")) == [log_name(offset)]
            log.close()


def test_a_fresh_start_above_its_log_start(world):
    """As in a replica that has yet to fetch the records between."""
    log = in_segments(world.log())
    log.truncate_fully_and_start_at(50, log_start_offset=30)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (30, 50, 50)
    log.writer.append_records([NewRecord(b"k", b"v")])
    log.writer.roll()
    log.writer.append_records([NewRecord(b"k", b"v")])
    assert offsets_in(log) == [50, 51]
    assert (
        log.reader.read(40, 1, min_one_message=True).data
        == log.reader.read(50, 1, min_one_message=True).data
    )
    assert log.delete_records(51) == 51
    assert bases_of(log) == [51]
    for start, end in ((-1, None), (5, 6), (5, -1)):
        with pytest.raises(ValueError, match="cannot start"):
            log.truncate_fully_and_start_at(start, end)


def test_readers_below_the_new_start_are_out_of_range(world):
    log = in_segments(world.log())
    log.truncate_fully_and_start_at(30)
    with pytest.raises(OffsetOutOfRangeError, match=r"\[30, 30\]"):
        log.reader.read(10, 100)


# -- damage and failures ---------------------------------------------------------------------


def damage(world, base, position):
    """Overwrite the length of a batch."""
    data = bytearray(world.files()[log_name(base)])
    data[position + 8 : position + 12] = b"\0\0\0\1"
    world.write(log_name(base), bytes(data))


def test_a_segment_that_cannot_be_walked_is_not_cut(world):
    """Nothing changes, not even segments above it."""
    in_segments(world.log()).close()
    damage(world, 5, 0)
    log = world.log()
    before = world.files(".log")
    with pytest.raises(CorruptRecordError):
        log.truncate_to(8)
    assert (log.log_end_offset, bases_of(log)) == (20, [0, 5, 10, 15])
    assert world.files(".log") == before
    assert not log.is_offline
    assert log.truncate_to(5), "at its base it need not be walked"
    assert offsets_in(log) == list(range(5))


def test_a_producer_state_that_cannot_be_rebuilt_takes_the_log_offline(world):
    """Otherwise later batches would be checked against an incomplete state."""
    in_segments(world.log()).close()
    for name in world.files(".snapshot"):
        world.fs.remove(world.path(name))
    log = world.log()
    for name in world.files(".snapshot"):
        world.fs.remove(world.path(name))
    log.producer_state._snapshots.reload()
    producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    log.writer.append_batches(batch(20, **producer), AppendOrigin.REPLICATION)
    damage(world, 0, 0)
    with pytest.raises(CorruptRecordError):
        log.truncate_to(8)
    assert log.is_offline
    with pytest.raises(
        KafkaStorageError,
        match=exactly(
            "t-0 is offline: cannot rebuild the producer state: "
            "{path}/00000000000000000000.log at position 0: batch length 1 is less than "
            "the minimum 14"
        ),
    ):
        log.writer.append_records([NewRecord(b"k", b"v")])


START = 5
"""Where the log begins, so that one that starts at 0 again is found out."""

CHANGES = {
    "to an offset": (lambda log: log.truncate_to(12), 12),
    "to a segment's base": (lambda log: log.truncate_to(10), 10),
    "to the log start": (lambda log: log.truncate_to(5), 5),
    "below the log start": (lambda log: log.truncate_to(3), 3),
    "fully, to an offset above": (lambda log: log.truncate_fully_and_start_at(50), 50),
    "fully, to an offset inside": (lambda log: log.truncate_fully_and_start_at(12), 12),
    "fully, to the same base": (lambda log: log.truncate_fully_and_start_at(5), 5),
}


def prepare(world, each=5):
    """Write segments with leader epochs, a producer and an open transaction."""
    log = world.log(retention_ms=-1)
    replicate(log, *(batch(offset) for offset in range(START)))
    log.writer.roll()
    log.delete_records(START)
    for offset in range(START, 20):
        if log.active_segment.size_bytes and offset % each == 0:
            log.writer.roll()
        replicate(log, data_batch(offset, offset, 7, sequence=offset, leader_epoch=offset // 4))
    log.close()


@pytest.mark.parametrize("each", (5, 100))
@pytest.mark.parametrize("name", CHANGES)
def test_a_crash_leaves_a_log_that_ends_between_the_old_end_and_the_new(name, each):
    """In any order of durable names and bytes; a completed truncation is durable."""
    change, end = CHANGES[name]
    is_kept = name.startswith("to")
    states = 0
    for what, world in crashes_of(lambda world: prepare(world, each), change):
        log = world.log(clean=False, recovery_point=20)
        found = offsets_in(log)
        states += 1
        if what == "done":
            assert found == list(range(START, end if is_kept else START)), what
            assert log.log_end_offset == end, what
        else:
            assert found == list(range(START, START + len(found))), what
            assert log.log_end_offset in (START + len(found), end), what
            assert not is_kept or log.log_end_offset >= end, what
        state = log.producer_state.entry(7)
        assert (state and state.last_data_offset) == (found[-1] if found else None), what
        assert all(entry.start_offset <= log.log_end_offset for entry in log.epochs.entries), what
        log._check()
    assert states > 20


@pytest.mark.parametrize("name", CHANGES)
def test_any_failure_leaves_a_log_that_reopens(name):
    """Each operation fails once: the log is offline, and a restart opens a sound log."""
    change, end = CHANGES[name]
    number = 0
    while True:
        world = memory_world()
        prepare(world)
        fs = FaultyFileSystem(world.fs)
        log = world.log(runtime=Runtime(world.clock, fs, random.Random(0)))
        countdown = iter(range(number, -1, -1))
        fs.rule = lambda *_, steps=countdown: next(steps, None) == 0
        try:
            change(log)
        except KafkaStorageError:
            assert log.is_offline
            with pytest.raises(KafkaStorageError, match="offline"):
                log.truncate_to(1)
        else:
            break
        finally:
            fs.rule = lambda *_: False
        log.close()
        reopened = world.log(clean=False)
        found = offsets_in(reopened)
        assert found == list(range(START, START + len(found)))
        change(reopened)
        assert reopened.log_end_offset == end
        reopened._check()
        number += 1
    assert number > 10
