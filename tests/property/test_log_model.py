"""A log against a list of records, step by step: append, roll, read, restart, crash.

The model is a list of `(offset, timestamp, key, value, headers)` written from what the doors are
told, and the log's end. A crash drops the log without closing it, so indexes stay full of zeros
and preallocated bytes stay behind the data; a torn crash also leaves half a batch or noise at
the end of the active segment, which recovery must cut.
"""

import logging
import random
import tempfile
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from logstore.errors import (
    CorruptRecordError,
    InvalidRecordError,
    MessageSizeTooLargeError,
    OffsetOutOfRangeError,
    RecordListTooLargeError,
)
from logstore.fetch import MAX_TIMESTAMP, Isolation
from logstore.log import NewRecord
from logstore.record.batch import build_batch
from logstore.record.columns import BytesColumn, headers_column
from logstore.record.records import Record
from logstore.types import AppendOrigin, TimestampType
from tests.support.builders import (
    CODECS,
    abort,
    batch,
    commit,
    data_batch,
    disk_world,
    log_name,
    memory_world,
)

texts = st.one_of(st.none(), st.binary(max_size=12), st.just(b"x" * 200))
headers = st.lists(
    st.tuples(st.text(max_size=3), st.one_of(st.none(), st.binary(max_size=4))), max_size=2
).map(tuple)
timestamps = st.one_of(st.just(-1), st.integers(0, 50), st.integers(0, 2**62))
new_records = st.lists(
    st.builds(NewRecord, texts, texts, timestamps, headers), min_size=1, max_size=5
)
long_runs = st.builds(
    lambda record, count: [record] * count,
    st.builds(NewRecord, texts, texts, timestamps, headers),
    st.integers(60, 90),
)
batches_of_records = st.one_of(new_records, new_records, long_runs)
codecs = st.sampled_from(CODECS)

CONFIGS = (
    {"segment_bytes": 400, "index_interval_bytes": 0, "max_message_bytes": 400},
    {"segment_bytes": 3000, "index_interval_bytes": 100, "preallocate": True},
    {"segment_bytes": 1 << 20, "index_interval_bytes": 300, "flush_messages": 3},
    {"segment_bytes": 2000, "segment_index_bytes": 60, "index_interval_bytes": 0},
    {"segment_bytes": 5000, "message_timestamp_type": TimestampType.LOG_APPEND_TIME},
    {"segment_bytes": 5000, "compression_type": "lz4", "index_interval_bytes": 1},
)


class LogMachine(RuleBasedStateMachine):
    """One log in memory and the list of what must be in it."""

    def make_world(self):
        return memory_world()

    def __init__(self):
        super().__init__()
        # Hundreds of expected findings would bury a failure's steps.
        self.set_log_level(logging.ERROR)

    def set_log_level(self, level):
        for name in ("logstore.loader", "logstore.epochs"):
            logging.getLogger(name).setLevel(level)

    def teardown(self):
        self.set_log_level(logging.NOTSET)

    @initialize(config=st.sampled_from(CONFIGS))
    def start(self, config):
        self.world = self.make_world()
        self.config = config
        self.stamps = "message_timestamp_type" in config
        self.limit = config.get("max_message_bytes", 1_048_588)
        self.log = self.world.log(**config)
        self.model = []
        self.end_offset = 0
        self.aborted = set()
        self.pids = 0

    # -- appends -------------------------------------------------------------------------

    def expect(self, records):
        now_ms = self.world.clock.now_ms()
        for record in records:
            timestamp = now_ms if self.stamps else record.timestamp
            self.model.append(
                Record(self.end_offset, timestamp, record.key, record.value, record.headers)
            )
            self.end_offset += 1

    def send(self, door, records):
        """Append through a door; what is too large for the topic changes nothing."""
        try:
            info = door()
        except (MessageSizeTooLargeError, RecordListTooLargeError):
            assert self.log.log_end_offset == self.end_offset
            return
        assert info.first_offset == self.end_offset
        assert info.records == len(records)
        self.expect(records)
        assert info.last_offset == self.end_offset - 1

    @rule(records=batches_of_records, codec=codecs)
    def append_records(self, records, codec):
        self.send(lambda: self.log.append_records(records, codec), records)

    @rule(records=batches_of_records, codec=codecs)
    def append_columns(self, records, codec):
        self.send(
            lambda: self.log.append_columns(
                BytesColumn.from_list([r.key for r in records]),
                BytesColumn.from_list([r.value for r in records]),
                np.array([r.timestamp for r in records], np.int64),
                headers_column([r.headers for r in records], len(records)),
                codec,
            ),
            records,
        )

    @rule(records=batches_of_records, codec=codecs)
    def append_a_ready_batch(self, records, codec):
        numbered = [
            Record(row, r.timestamp, r.key, r.value, r.headers) for row, r in enumerate(records)
        ]
        data = build_batch(numbered, codec=codec)
        self.send(lambda: self.log.append_batches(data), records)

    @rule(gap=st.integers(0, 3), spans=st.lists(st.integers(1, 3), min_size=1, max_size=4))
    def follow(self, gap, spans):
        """A replica's append: several batches, gaps before and between them."""
        first = self.end_offset
        parts = []
        stored = []
        for span in spans:
            first += gap
            parts.append(batch(first, first + span - 1, timestamp=7, leader_epoch=9))
            stored += [
                Record(offset, 7, b"k%d" % offset, b"v%d" % offset)
                for offset in range(first, first + span)
            ]
            first += span
        data = b"".join(parts)
        if len(data) > self.config["segment_bytes"]:
            return
        self.log.append_batches(data, AppendOrigin.REPLICATION)
        self.model += stored
        self.end_offset = first

    @rule(span=st.integers(1, 2), ends=st.booleans())
    def transaction(self, span, ends):
        """A transaction with a record between its data and its end."""
        self.pids += 1
        pid = self.pids
        first = self.end_offset
        last = first + span - 1
        now_ms = self.world.clock.now_ms()
        marker = commit if ends else abort
        for data in (
            data_batch(first, last, pid, timestamp=now_ms),
            batch(last + 1, timestamp=now_ms),
            marker(last + 2, pid, timestamp=now_ms),
        ):
            self.log.append_batches(data, AppendOrigin.REPLICATION)
        for offset in range(first, last + 2):
            self.model.append(Record(offset, now_ms, b"k%d" % offset, b"v%d" % offset))
        if not ends:
            self.aborted.update(range(first, last + 1))
        self.end_offset = last + 3

    @rule()
    def refused(self):
        """A damaged batch changes nothing."""
        data = bytearray(batch(0))
        data[-1] ^= 1
        with pytest.raises(CorruptRecordError, match="bad CRC"):
            self.log.append_batches(bytes(data))
        with pytest.raises(InvalidRecordError):
            self.log.append_batches(batch(5))

    @rule()
    def roll(self):
        segment = self.log.roll()
        assert segment is self.log.active_segment
        assert segment.base_offset == self.end_offset
        assert segment.size_bytes == 0

    @rule(hours=st.integers(1, 400))
    def wait(self, hours):
        self.world.clock.advance(hours=hours)

    @rule()
    def flush(self):
        self.log.flush()
        assert self.log.recovery_point == self.end_offset

    # -- restarts ------------------------------------------------------------------------

    @rule()
    def restart(self):
        """Twice, as opening and closing alone must change nothing but stray snapshots."""
        self.log.close()
        kinds = (".log", ".index", ".timeindex", ".txnindex", "leader-epoch-checkpoint")
        before = self.world.files(*kinds)
        self.log = self.world.log(**self.config)
        assert self.log.findings == ()
        self.log.close()
        assert self.world.files(*kinds) == before
        self.log = self.world.log(**self.config)
        self.read_everything()

    @rule()
    def crash(self):
        point = self.log.recovery_point
        self.log = self.world.log(clean=False, recovery_point=point, **self.config)
        assert self.log.recovery_point == min(point, self.end_offset)
        self.read_everything()

    @rule(seed=st.integers(0, 1000), kind=st.sampled_from(("noise", "zeros", "torn")))
    def crash_with_a_torn_tail(self, seed, kind):
        """Bytes of a write that did not finish, behind everything that was appended.

        Two bytes at least are missing: the last one of a batch is a zero, as are the bytes of a
        preallocated file, which would make it whole.
        """
        segment = self.log.active_segment
        point = self.log.recovery_point
        rng = random.Random(seed)
        tail = batch(self.end_offset, self.end_offset + rng.randrange(3))
        tail = {
            "noise": rng.randbytes(rng.randrange(1, 200)),
            "zeros": bytes(rng.randrange(1, 200)),
            "torn": tail[: rng.randrange(1, len(tail) - 1)],
        }[kind]
        path = self.world.path(log_name(segment.base_offset))
        file = self.world.fs.open(path, write=True)
        file.write_at([tail], segment.size_bytes)
        file.close()
        self.log = self.world.log(clean=False, recovery_point=point, **self.config)
        assert [f.action for f in self.log.findings if f.action == "truncated_tail"]
        self.read_everything()

    # -- questions -----------------------------------------------------------------------

    @rule(data=st.data())
    def read(self, data):
        start = data.draw(st.integers(0, self.end_offset))
        end = data.draw(st.one_of(st.none(), st.integers(0, self.end_offset + 2)))
        expected = [
            record
            for record in self.model
            if record.offset >= start and (end is None or record.offset < end)
        ]
        assert [record for _, record in self.log.records(start, end)] == expected
        committed = self.log.records(start, end, isolation=Isolation.READ_COMMITTED)
        assert [record.offset for _, record in committed] == [
            record.offset for record in expected if record.offset not in self.aborted
        ]
        for outside in (-1, self.end_offset + 1):
            with pytest.raises(OffsetOutOfRangeError):
                self.log.read(outside, 100)

    @rule(data=st.data())
    def fetch(self, data):
        """Raw bytes of any size: whole batches but for the last, which may be torn."""
        start = data.draw(st.integers(0, self.end_offset))
        size = data.draw(st.integers(0, 600))
        found = self.log.read(start, size)
        assert len(found.data) <= size
        whole = self.log.read(start, size, min_one_message=True)
        assert whole.data.startswith(found.data)
        assert not whole.first_entry_incomplete

    @rule(data=st.data())
    def look_up_a_time(self, data):
        """The answer is the first record at or after the time, where no segment hides it."""
        if any(s.max_timestamp_so_far.timestamp < 0 for s in self.log.segments):
            return  # without a single time the segment goes by its file's
        offsets = {segment.base_offset for segment in self.log.segments}
        target = data.draw(
            st.one_of(st.integers(0, 60), st.sampled_from([r.timestamp for r in self.model] or [0]))
        )
        found = self.log.offset_for_timestamp(max(target, 0))
        records = [record for record in self.model if record.timestamp >= max(target, 0)]
        # A marker's time counts for its segment; without one the search must be exact.
        if not self.pids:
            expected = (records[0].timestamp, records[0].offset) if records else None
            assert (None if found is None else found[:2]) == expected, offsets
            largest = self.log.offset_for_timestamp(MAX_TIMESTAMP)
            top = max((record.timestamp for record in self.model), default=-1)
            assert (-1 if largest is None else largest.timestamp) == top

    # -- always --------------------------------------------------------------------------

    @invariant()
    def holds(self):
        log = self.log
        assert (log.log_start_offset, log.log_end_offset) == (0, self.end_offset)
        assert log.high_watermark == log.last_stable_offset == self.end_offset
        log._check()
        log.producer_state._check()
        log.epochs._check()
        for segment in log.segments:
            segment._check()
            segment.offset_index._check()
            segment.time_index._check()
            segment.txn_index._check()

    @invariant()
    def ends_as_the_model(self):
        start = max(0, self.end_offset - 3)
        expected = [record for record in self.model if record.offset >= start]
        assert [record for _, record in self.log.records(start)] == expected

    def read_everything(self):
        assert [record for _, record in self.log.records(0)] == self.model


class DiskLogMachine(LogMachine):
    """The same on the disk."""

    def make_world(self):
        self.directory = tempfile.TemporaryDirectory()
        return disk_world(Path(self.directory.name))

    def teardown(self):
        super().teardown()
        if hasattr(self, "directory"):
            self.directory.cleanup()


TestLogInMemory = LogMachine.TestCase
TestLogOnDisk = DiskLogMachine.TestCase
# A history is worth many plain examples; the disk adds little but time.
TestLogInMemory.settings = settings(max_examples=settings().max_examples * 6 // 10)
TestLogOnDisk.settings = settings(max_examples=settings().max_examples // 4)
