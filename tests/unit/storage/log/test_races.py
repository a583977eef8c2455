"""Concurrent readers while a thread appends, rolls, retains, truncates and removes files."""

import random
import sys
import threading

import pytest

from logstore.config.log_config import LogConfig
from logstore.errors import IllegalStateError, KafkaStorageError, OffsetOutOfRangeError
from logstore.runtime import MemoryFileSystem, Runtime
from logstore.storage.log import NewRecord
from logstore.storage.log import reader as fetch
from logstore.storage.log.reader import MAX_TIMESTAMP, Isolation
from logstore.storage.segment import LogSegment
from logstore.types import AppendOrigin
from tests.support.world.builders import (
    World,
    abort,
    append,
    batch,
    batches_of,
    data_batch,
    fill,
    records_of,
)
from tests.support.world.faulty import FaultyFileSystem
from tests.support.world.messages import exactly

STEPS = {"memory": 600, "disk": 100}
"""A step on the disk waits for it several times."""


class Reader(threading.Thread):
    """A thread that reads repeatedly and keeps its first error."""

    def __init__(self, log, seed):
        super().__init__(daemon=True)
        self.log = log
        self.rng = random.Random(seed)
        self.stopping = threading.Event()
        self.error = None
        self.records = 0
        self.refusals = 0

    def run(self):
        try:
            while not self.stopping.is_set():
                try:
                    self.rng.choice((self.walk, self.peek, self.by_time))()
                except OffsetOutOfRangeError:
                    self.refusals += 1
        except BaseException as error:
            self.error = error

    def start_offset(self):
        return self.rng.randint(self.log.log_start_offset, self.log.log_end_offset)

    def walk(self):
        """Read records; without compaction they have no holes."""
        isolation = self.rng.choice(list(Isolation))
        expected = start = self.start_offset()
        for _, record in self.log.reader.records(start, isolation=isolation):
            assert record.offset == expected, f"{record.offset} after {expected - 1}, from {start}"
            assert record.value.startswith(b"%d " % expected)
            expected += 1
            self.records += 1

    def peek(self):
        start = self.start_offset()
        found = self.log.reader.read(start, 1, min_one_message=True)
        if found.data:
            base = int.from_bytes(found.data[:8], "big")
            delta = int.from_bytes(found.data[23:27], "big")
            assert base <= start <= base + delta

    def by_time(self):
        end = self.log.log_end_offset
        found = self.log.reader.offset_for_timestamp(self.rng.randint(0, end + 1) * 10)
        if found is not None:
            assert found.timestamp == found.offset * 10
        found = self.log.reader.offset_for_timestamp(MAX_TIMESTAMP)
        if found is not None:
            assert found.timestamp == found.offset * 10


class Writer:
    """Random changes of the log; `value` contains the offset and the number of its writes."""

    def __init__(self, world: World, log, seed):
        self.world = world
        self.log = log
        self.rng = random.Random(seed)
        self.written = 0
        self.starts = []

    def step(self):
        actions = (self.append,) * 6 + (self.roll, self.retain, self.truncate, self.expire)
        self.rng.choice(actions)()

    def append(self):
        first = self.log.log_end_offset
        self.starts.append(first)
        self.written += 1
        self.log.writer.append_records(
            [
                NewRecord(b"k", b"%d %d" % (offset, self.written) + b"x" * self.rng.randint(0, 60),
                          offset * 10)
                for offset in range(first, first + self.rng.randint(1, 4))
            ]
        )  # fmt: skip

    def roll(self):
        self.log.writer.roll()

    def retain(self):
        if self.rng.random() < 0.2:
            self.log.delete_records(-1)
        elif self.rng.random() < 0.5:
            start, end = self.log.log_start_offset, self.log.log_end_offset
            self.log.delete_records((start + end) // 2)
        self.log.delete_old_segments()

    def truncate(self):
        """Truncate at the start of a batch; at any other offset there would be a hole."""
        kept = [each for each in self.starts if each >= self.log.log_start_offset]
        if kept:
            offset = self.rng.choice(kept[-5:])
            self.log.truncate_to(offset)
            self.starts = [each for each in self.starts if each < offset]
        if self.rng.random() < 0.1:
            self.log.truncate_fully_and_start_at(self.log.log_end_offset)

    def expire(self):
        self.world.clock.advance(ms=600)
        self.log.delete_expired_files()


def test_readers_see_only_correct_records_or_out_of_range(world):
    kind = "memory" if isinstance(world.fs, MemoryFileSystem) else "disk"
    config = {
        "segment_bytes": 700,
        "index_interval_bytes": 100,
        "retention_bytes": 4000,
        "retention_ms": -1,
        "file_delete_delay_ms": 1000,
        "segment_index_bytes": 1000,
    }
    log = world.log(**config)
    writer = Writer(world, log, seed=1)
    for _ in range(40):
        writer.append()
    log.close()
    # Reopened, so that files are opened lazily, also by readers.
    writer.log = log = world.log(**config)
    readers = [Reader(log, seed) for seed in range(2)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for reader in readers:
            reader.start()
        for _ in range(STEPS[kind]):
            writer.step()
            if any(reader.error for reader in readers):
                break
    finally:
        for reader in readers:
            reader.stopping.set()
        for reader in readers:
            reader.join()
        sys.setswitchinterval(interval)
    for reader in readers:
        if reader.error is not None:
            raise reader.error
        assert reader.records > 0
    log._check()
    log.close()


@pytest.mark.parametrize("kind", ("index", "timeindex"))
def test_a_late_reader_brings_no_index_of_a_removed_segment_back(world, kind):
    """The index was never opened; a reader that still has the segment queries it."""
    log = world.log(file_delete_delay_ms=0)
    for offset in range(3):
        log.writer.append_records([NewRecord(b"k", b"%d" % offset, 1000)])
        log.writer.roll()
    log.close()
    log = world.log(file_delete_delay_ms=0)
    held = log.segments.first
    assert held.file.size() > 0
    log.delete_records(1)
    log.delete_expired_files()
    before = world.files()
    if kind == "index":
        assert held.read(0, 1000).data
    else:
        assert held.max_timestamp_so_far.timestamp == -1
        assert held.time_index.lookup(5000).timestamp == -1
    assert world.files() == before


def test_a_reader_in_an_empty_segment_survives_its_recreation(world):
    """A roll at the base of the active segment creates new files; the old object still works."""
    log = world.log()
    held = log.active_segment
    assert held.read(0, 100) is None
    assert log.writer.roll() is not held
    assert held.read(0, 100) is None
    assert held.offset_index.lookup(0).position == 0
    log.writer.append_records([NewRecord(b"k", b"v", 1000)])
    assert held.read(0, 100) is None
    log.close()
    assert len(world.log().segments) == 1


class Peeping:
    """Calls `look` during an append, between the write and its publication."""

    def __init__(self, log, look):
        self.seen = []
        publish = log.publish_end

        def publish_end(offset):
            self.seen.append(look())
            publish(offset)

        log.publish_end = publish_end


@pytest.mark.parametrize("isolation", tuple(Isolation))
def test_bytes_are_not_read_before_the_log_end_has_moved(world, isolation):
    log = world.log()
    log.writer.append_batches(batch(0), AppendOrigin.REPLICATION)
    peeping = Peeping(
        log, lambda: [r.offset for _, r in log.reader.records(0, isolation=isolation)]
    )
    log.writer.append_batches(data_batch(1, 1, 7), AppendOrigin.REPLICATION)
    assert peeping.seen == [[0]]


@pytest.mark.parametrize("count", (1, 2))
def test_a_writer_that_waited_during_the_close_writes_nothing(world, count):
    log = world.log()
    log.writer.append_records([NewRecord(b"k", b"v", 1000)] * count)

    class Waited:
        def __enter__(self):
            log.lock = lock
            log.close()

        def __exit__(self, *_):
            pass

    writer, lock = log.writer, log.lock
    log.lock = Waited()
    with pytest.raises(IllegalStateError):
        writer.append_records([NewRecord(b"k", b"w", 1000)] * count)
    assert [record.value for record in records_of(world.log())] == [b"v"] * count


def test_the_last_stable_offset_is_published_whole(world):
    """Readers hold no lock: they must not read producers while an append changes them."""
    log = world.log()
    log.writer.append_batches(data_batch(0, 1, 7), AppendOrigin.REPLICATION)
    state = log.producer_state
    update = state.update_from_batch
    seen = []

    def update_from_batch(*arguments):
        completed = update(*arguments)
        seen.append(log.last_stable_offset)
        return completed

    state.update_from_batch = update_from_batch
    log.writer.append_batches(abort(2, 7), AppendOrigin.REPLICATION)
    assert seen == [0], "the abort is not in the transaction index yet"
    assert log.last_stable_offset == 3


def test_an_iterator_continues_after_a_truncation(world):
    """It returns the rest of its chunk, then the new records, each offset once."""
    log = world.log()
    for offset in (0, 2, 4):
        log.writer.append_batches(batch(offset, offset + 1, value=b"old"), AppendOrigin.REPLICATION)
    records = log.reader.records(0)
    assert next(records)[1].offset == 0
    log.truncate_to(2)
    log.writer.append_batches(batch(2, 9, value=b"new"), AppendOrigin.REPLICATION)
    found = [(record.offset, record.value) for _, record in records]
    assert found == [(o, b"old") for o in range(1, 6)] + [(o, b"new") for o in range(6, 10)]
    records = log.reader.records(0)
    next(records)
    log.truncate_to(2)
    log.writer.append_batches(batch(2, 3), AppendOrigin.REPLICATION)
    with pytest.raises(OffsetOutOfRangeError):
        list(records)


@pytest.mark.parametrize("look", ("file", "last_modified_ms"))
def test_a_file_is_opened_and_dated_under_the_name_it_has(world, look):
    """A reader during a rename waits, and finds the file under the new name."""
    append(world.segment(0), batch(0))
    fs = FaultyFileSystem(world.fs)
    runtime = Runtime(world.clock, fs, random.Random(0))
    segment = LogSegment(runtime, world.directory, 0, LogConfig())
    found = []
    reader = threading.Thread(target=lambda: found.append(getattr(segment, look)), daemon=True)

    def let_a_reader_in(operation, path):
        if operation == "rename" and path.endswith(".log"):
            reader.start()
            reader.join(0.05)
        return False

    fs.rule = let_a_reader_in
    segment.change_suffix(".deleted")
    reader.join(60)
    assert len(found) == 1


def test_a_read_that_a_truncation_overtakes_is_made_again(world):
    """Its bytes may be a mixture of old and new records."""
    log = world.log()
    log.writer.append_batches(batch(0, value=b"old"), AppendOrigin.REPLICATION)
    find = log.reader._find

    def find_and_truncate(*arguments):
        found = find(*arguments)
        if log.generation == 0:
            log.truncate_to(0)
            log.writer.append_batches(batch(0, value=b"new"), AppendOrigin.REPLICATION)
        return found

    log.reader._find = find_and_truncate
    (found,) = batches_of(log.reader.read(0, 1000).data)
    assert [record.value for record in found.records()] == [b"new"]


def test_the_record_of_the_largest_timestamp_is_to_be_found_at_any_time(world):
    """A reader checks after each step of an append's publication."""
    log = world.log()
    log.writer.append_batches(batch(0, timestamp=5), AppendOrigin.REPLICATION)
    seen = []

    class Watched(LogSegment):
        def __setattr__(self, name, value):
            super().__setattr__(name, value)
            if name in ("size_bytes", "_max_timestamp"):
                seen.append(log.reader.offset_for_timestamp(MAX_TIMESTAMP))

    log.active_segment.__class__ = Watched
    log.writer.append_batches(batch(1, timestamp=7), AppendOrigin.REPLICATION)
    assert [found[:2] for found in seen] == [(5, 0), (7, 1)]


def test_readers_wait_for_a_truncation_that_is_in_progress(world):
    """During a truncation bytes and offsets are inconsistent."""
    log = world.log()
    for offset in range(3):
        log.writer.append_batches(batch(offset), AppendOrigin.REPLICATION)
    started, cut = threading.Event(), log.cut_segments
    found = []

    def read():
        started.wait(60)
        found.extend(record.offset for _, record in log.reader.records(0))

    def cut_segments(offset):
        started.set()
        thread.join(0.05)
        assert thread.is_alive()
        return cut(offset)

    log.cut_segments = cut_segments
    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    log.truncate_to(1)
    thread.join(60)
    assert found == [0]


# -- a log that changes at every attempt -------------------------------------------------------


def test_a_lasting_failure_in_a_log_that_always_changes_is_raised(world):
    """A defect or a disk failure must not be retried forever."""
    log = world.log()
    looks = []

    def look():
        looks.append(len(looks))
        fill(log, 1)
        log.writer.roll()
        raise IndexError("a defect")

    with pytest.raises(IndexError, match="a defect"):
        log.reader.steady(look)
    assert len(looks) == fetch.ATTEMPTS_MAX

    def fail():
        fill(log, 1)
        log.writer.roll()
        raise OSError(5, "no disk")

    with pytest.raises(KafkaStorageError, match=exactly("t-0: cannot read: [Errno 5] no disk")):
        log.reader.steady(fail)


@pytest.mark.parametrize("how", ("truncated", "replaced"))
def test_a_log_that_others_change_all_the_time_is_read_in_the_end(world, how):
    """The last attempt holds the lock, so that writers wait."""
    log = world.log()
    fill(log, 5)
    waiting = []

    def change():
        if how == "replaced":
            log.writer.roll()
            fill(log, 1)
        else:
            fill(log, 1)
            log.truncate_to(5)

    def look():
        thread = threading.Thread(target=change)
        thread.start()
        thread.join(60 if len(looks) < fetch.ATTEMPTS_MAX - 1 else 0.1)
        looks.append(thread.is_alive())
        if thread.is_alive():
            waiting.append(thread)
            return "found"
        if how == "replaced":
            raise FileNotFoundError("it went")
        return "of bytes that were cut"

    looks = []
    assert log.reader.steady(look) == "found"
    assert looks == [False] * (fetch.ATTEMPTS_MAX - 1) + [True]
    waiting[0].join(60)
    assert log.log_end_offset == (5 if how == "truncated" else 5 + fetch.ATTEMPTS_MAX)


@pytest.mark.parametrize("how", ("failed", "answered"))
def test_a_log_that_is_closed_before_the_last_attempt_raises_an_error(world, how):
    log = world.log()
    looks = []

    def look():
        looks.append(1)
        fill(log, 1)
        log.truncate_to(0)
        if len(looks) == fetch.ATTEMPTS_MAX - 1:
            log.close()
        if how == "failed":
            raise OSError(5, "closed")
        return "of bytes that were cut"

    with pytest.raises(IllegalStateError, match="closed"):
        log.reader.steady(look)
    assert len(looks) == fetch.ATTEMPTS_MAX - 1
