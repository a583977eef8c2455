"""The doors through which a log and its model are appended to, and what they begin with."""

import logging
from collections import Counter
from dataclasses import replace
from typing import ClassVar

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from logstore.config.log_config import LogConfig
from logstore.errors import (
    CorruptRecordError,
    InvalidRecordError,
    MessageSizeTooLargeError,
    RecordListTooLargeError,
)
from logstore.record.batch import build_batch
from logstore.record.columns import BytesColumn, headers_column
from logstore.record.records import Record
from logstore.runtime import Runtime
from logstore.runtime.clock import VIRTUAL_EPOCH_MS
from logstore.storage.log import NewRecord
from logstore.storage.log.drafts import RecordArrays
from logstore.testing import FaultyFileSystem
from logstore.types import AppendOrigin, TimestampType
from tests.property.log_model import Batch, LogModel
from tests.support.world.builders import (
    CODECS,
    abort,
    batch,
    commit,
    data_batch,
    log_name,
    memory_world,
)

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS

texts = st.one_of(st.none(), st.binary(max_size=12), st.just(b"x" * 200))
keys = st.one_of(st.binary(max_size=12), texts)
headers = st.lists(
    st.tuples(st.text(max_size=3), st.one_of(st.none(), st.binary(max_size=4))), max_size=2
).map(tuple)
around_the_start = st.integers(-400, 400).map(lambda hours: VIRTUAL_EPOCH_MS + hours * HOUR_MS)
rare_times = st.sampled_from((-1, 0, 50, 1 << 62))
timestamps = st.one_of(st.none(), st.none(), around_the_start, around_the_start, rare_times)
new_record = st.builds(NewRecord, keys, texts, timestamps, headers)
few_records = st.lists(new_record, min_size=1, max_size=5)
long_runs = st.builds(lambda record, count: [record] * count, new_record, st.integers(60, 90))
batches_of_records = st.one_of(few_records, few_records, few_records, long_runs)
codecs = st.sampled_from(CODECS)

CONFIGS = (
    {"segment_bytes": 400, "index_interval_bytes": 0, "max_message_bytes": 400},
    {"segment_bytes": 600, "index_interval_bytes": 100, "retention_bytes": 500},
    {"segment_bytes": 3000, "index_interval_bytes": 100, "preallocate": True},
    {"segment_bytes": 1 << 20, "index_interval_bytes": 300, "flush_messages": 3},
    {"segment_bytes": 2000, "segment_index_bytes": 60, "index_interval_bytes": 0},
    {"segment_bytes": 5000, "message_timestamp_type": TimestampType.LOG_APPEND_TIME},
    {"segment_bytes": 5000, "compression_type": "lz4", "index_interval_bytes": 1},
)
ALTERATIONS = {
    "cleanup_policy": st.sampled_from((("delete",), ("compact",), ("compact", "delete"))),
    "retention_ms": st.sampled_from((-1, 0, HOUR_MS, 7 * DAY_MS)),
    "retention_bytes": st.sampled_from((-1, 0, 200, 500, 2000)),
    "segment_bytes": st.sampled_from((200, 400, 1000, 5000)),
    "segment_ms": st.sampled_from((1, HOUR_MS, 7 * DAY_MS)),
    "max_compaction_lag_ms": st.sampled_from((HOUR_MS, (1 << 63) - 1)),
    "index_interval_bytes": st.sampled_from((0, 100, 4096)),
    "flush_messages": st.sampled_from((1, 4, (1 << 63) - 1)),
    "file_delete_delay_ms": st.sampled_from((0, 60_000, DAY_MS)),
    "message_timestamp_type": st.sampled_from(tuple(TimestampType)),
}
alterations = st.fixed_dictionaries({}, optional=ALTERATIONS)


def size_at_most(records):
    """Return more bytes than a batch of these records takes with any codec."""
    return 200 + sum(
        40
        + len(record.key or b"")
        + len(record.value or b"")
        + sum(20 + len(name.encode()) + len(value or b"") for name, value in record.headers)
        for record in records
    )


class AppendingMachine(RuleBasedStateMachine):
    """One log in memory and its model, as far as appending goes.

    Attributes
    ----------
    tally : Counter
        Histories, steps, and how often what matters came about, in all machines of this process.
    """

    tally: ClassVar[Counter] = Counter()

    def make_world(self):
        world = memory_world()
        fs = FaultyFileSystem(world.clock, world.fs)
        return replace(world, runtime=Runtime(world.clock, fs, world.runtime.rng))

    def __init__(self):
        super().__init__()
        # Hundreds of expected findings would bury a failure's steps.
        self.set_log_level(logging.ERROR)

    def set_log_level(self, level):
        logging.getLogger("logstore").setLevel(level)

    def teardown(self):
        self.set_log_level(logging.NOTSET)

    @initialize(config=st.sampled_from(CONFIGS), more=alterations)
    def start(self, config, more):
        self.tally["histories"] += 1
        self.world = self.make_world()
        self.config = {"segment_index_bytes": 4000, **config, **more}
        self.log = self.world.log(**self.config)
        self.model = LogModel(LogConfig(**self.config), self.now)
        self.producers = 0
        # Producers of whose open transaction a start, seeing only a part, may know less.
        self.half_known = set()

    # -- facts ---------------------------------------------------------------------------

    @property
    def now(self):
        return self.world.clock.now_ms()

    @property
    def uptime_ms(self):
        return self.world.clock.monotonic_ns() // 1_000_000

    def mtime_of(self, base_offset):
        return self.world.fs.stat(self.world.path(log_name(base_offset))).mtime_ms

    def some_offset(self, data, most=3):
        """Draw an offset: at or beside a border, or any up to a little beyond the end."""
        near = st.sampled_from(list(self.model.interesting_offsets()))
        return data.draw(st.one_of(near, near, st.integers(0, self.model.end + most)))

    # -- appends -------------------------------------------------------------------------

    def expect(self, records, info, epoch):
        """Let the model take a leader's batch."""
        stamp = self.model.config.message_timestamp_type is TimestampType.LOG_APPEND_TIME
        first = self.model.end
        stored = []
        for offset, record in enumerate(records, first):
            given = self.now if record.timestamp is None else record.timestamp
            timestamp = self.now if stamp else given
            stored.append(Record(offset, timestamp, record.key, record.value, record.headers))
        assert (info.first_offset, info.last_offset) == (first, first + len(records) - 1)
        assert info.records == len(records)
        entry = Batch(tuple(stored), info.last_offset, info.size_bytes, epoch)
        assert info.max_timestamp == entry.max_timestamp
        self.take([entry], info)

    def send(self, door, records, epoch=None):
        """Append through a door; what the topic does not take changes nothing."""
        try:
            info = door()
        except (InvalidRecordError, MessageSizeTooLargeError, RecordListTooLargeError) as error:
            self.check_refusal(error, records)
        else:
            assert not self.wants_keys(records)
            self.expect(records, info, self.model.epoch if epoch is None else epoch)

    def wants_keys(self, records):
        is_compacted = "compact" in self.model.config.cleanup_policy
        return is_compacted and any(record.key is None for record in records)

    def check_refusal(self, error, records):
        if isinstance(error, InvalidRecordError):
            assert self.wants_keys(records), error
        else:
            limit = min(self.model.config.max_message_bytes, self.model.config.segment_bytes)
            assert size_at_most(records) > limit, error

    @rule(records=batches_of_records, codec=codecs)
    def append_records(self, records, codec):
        self.send(lambda: self.log.writer.append_records(records, codec), records)

    @rule(records=few_records)
    def append_some(self, records):
        self.append_a_few(records)

    def append_a_few(self, records):
        self.send(lambda: self.log.writer.append_records(records), records)

    @rule(data=st.data(), batches=st.integers(2, 9), hours=st.sampled_from((0, 0, 2, 100)))
    def append_many(self, data, batches, hours):
        """Small batches, between which time may pass: what fills segments."""
        record = NewRecord(b"k", data.draw(texts), data.draw(timestamps))
        for count in range(batches):
            self.append_a_few([record] * (count % 3 + 1))
            self.world.clock.advance(hours=hours)

    @rule(records=batches_of_records, codec=codecs)
    def append_columns(self, records, codec):
        times = [self.now if r.timestamp is None else r.timestamp for r in records]
        self.send(
            lambda: self.log.writer.append_records(
                RecordArrays(
                    BytesColumn.from_list([r.key for r in records]),
                    BytesColumn.from_list([r.value for r in records]),
                    np.array(times, np.int64),
                    headers_column([r.headers for r in records], len(records)),
                ),
                codec,
            ),
            records,
        )

    @rule(records=batches_of_records, codec=codecs, elections=st.integers(0, 2))
    def append_a_ready_batch(self, records, codec, elections):
        timed = [r if r.timestamp is not None else r._replace(timestamp=self.now) for r in records]
        data = build_batch(
            [Record(row, r.timestamp, r.key, r.value, r.headers) for row, r in enumerate(timed)],
            codec=codec,
        )
        epoch = self.model.epoch + elections
        self.send(lambda: self.log.writer.append_batches(data, leader_epoch=epoch), timed, epoch)

    def replicate(self, parts):
        """Append batches as a follower: `(bytes, Batch without its size)` each."""
        data = b"".join(part for part, _ in parts)
        if len(data) > self.model.config.segment_bytes:
            with pytest.raises(RecordListTooLargeError):
                self.log.writer.append_batches(data, AppendOrigin.REPLICATION)
            return False
        info = self.log.writer.append_batches(data, AppendOrigin.REPLICATION)
        self.take([replace(entry, size_bytes=len(part)) for part, entry in parts], info)
        return True

    def take(self, entries, info):
        """Let the model append what the log did."""
        reason = None if info.roll_reason is None else info.roll_reason.value
        self.tally[f"rolled for {reason}"] += reason is not None
        self.model.append(entries, reason, self.now)

    def plain_part(self, first, last, epoch, **fields):
        """Return a follower's batch, whose keys and values tell their offsets."""
        data = batch(first, last, timestamp=self.now, leader_epoch=epoch, **fields)
        return data, Batch(self.numbered(first, last), last, 0, epoch)

    def numbered(self, first, last):
        return tuple(
            Record(offset, self.now, b"k%d" % offset, b"v%d" % offset)
            for offset in range(first, last + 1)
        )

    @rule(
        gap=st.integers(0, 3),
        spans=st.lists(st.integers(1, 3), min_size=1, max_size=4),
        elections=st.integers(0, 2),
        codec=codecs,
    )
    def follow(self, gap, spans, elections, codec):
        """A replica's append: several batches, gaps before and between them."""
        first = self.model.end
        epoch = self.model.epoch + elections
        parts = []
        for span in spans:
            first += gap
            parts.append(self.plain_part(first, first + span - 1, epoch, codec=codec))
            first += span
        self.replicate(parts)

    @rule(span=st.integers(1, 2), end=st.sampled_from(("commit", "abort", "")), data=st.data())
    def transaction(self, span, end, data):
        """Transactional data, a record of somebody else, and perhaps the end.

        Its producer is a new one, or had transactions before, the last of which may be open.
        """
        pid = data.draw(st.integers(1, self.producers + 1), "producer")
        self.producers = max(self.producers, pid)
        first, epoch = self.model.end, self.model.epoch
        last = first + span - 1
        made = data_batch(first, last, pid, timestamp=self.now, leader_epoch=epoch)
        own = Batch(self.numbered(first, last), last, 0, epoch, pid)
        if self.replicate([(made, own)]) and self.replicate(
            [self.plain_part(last + 1, last + 1, epoch)]
        ):
            self.end_transaction(pid, end)

    @precondition(lambda self: self.model.open_transactions())
    @rule(data=st.data(), end=st.sampled_from(("commit", "abort")))
    def end_an_open_transaction(self, data, end):
        pid = data.draw(st.sampled_from(sorted(self.model.open_transactions())))
        self.end_transaction(pid, end)

    def end_transaction(self, pid, end):
        if end:
            offset, epoch = self.model.end, self.model.epoch
            made = (commit if end == "commit" else abort)(
                offset, pid, timestamp=self.now, leader_epoch=epoch
            )
            record = Record(offset, self.now, None, None)
            self.replicate([(made, Batch((record,), offset, 0, epoch, pid, end))])

    @rule()
    def refused(self):
        """A damaged batch, or one that is not a client's to number, changes nothing."""
        data = bytearray(batch(0))
        data[-1] ^= 1
        with pytest.raises(CorruptRecordError, match="bad CRC"):
            self.log.writer.append_batches(bytes(data))
        with pytest.raises(InvalidRecordError):
            self.log.writer.append_batches(batch(5))
