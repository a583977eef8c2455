"""Columns of any log, range and isolation level equal the records of `records`."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from logstore.record.batch import build_batch
from logstore.record.codecs import Codec
from logstore.record.records import Record
from logstore.storage.log.reader import Isolation
from logstore.types import AppendOrigin, TimestampType
from tests.support.world.builders import abort, commit, memory_world

REPLICA = AppendOrigin.REPLICATION

texts = st.one_of(st.none(), st.binary(max_size=8))
headers = st.lists(
    st.tuples(st.text(max_size=3), st.one_of(st.none(), st.binary(max_size=4))), max_size=2
).map(tuple)
fields = st.tuples(st.integers(0, 2**40), texts, texts, headers)
rows = st.one_of(
    st.lists(fields, min_size=1, max_size=6),
    st.builds(lambda row, count: [row] * count, fields, st.integers(60, 80)),
)
steps = st.one_of(
    st.tuples(st.just("batch"), rows, st.sampled_from(list(Codec)), st.integers(0, 3)),
    st.tuples(st.just("batch"), rows, st.sampled_from(list(Codec)), st.integers(0, 3)),
    st.tuples(st.just("transaction"), rows, st.sampled_from([abort, commit, None])),
    st.tuples(st.just("roll")),
)


def filled(taken):
    """Make a log: batches with gaps inside and before them, transactions, rolls."""
    log = memory_world().log(index_interval_bytes=100)
    for name, *details in taken:
        first = log.log_end_offset
        if name == "roll":
            log.writer.roll()
        elif name == "batch":
            fields, codec, gap = details
            records = [Record(first + gap * (1 + at), *row) for at, row in enumerate(fields)]
            if gap == 0:
                records = [Record(first + at, *row) for at, row in enumerate(fields)]
            times = TimestampType(gap % 2)
            data = build_batch(records, codec=codec, timestamp_type=times, partition_leader_epoch=0)
            log.writer.append_batches(data, REPLICA)
        else:
            fields, end = details
            records = [Record(first + at, *row) for at, row in enumerate(fields)]
            pid = first + 1
            data = build_batch(
                records,
                producer_id=pid,
                producer_epoch=0,
                base_sequence=0,
                is_transactional=True,
                partition_leader_epoch=0,
            )
            log.writer.append_batches(data, REPLICA)
            if end is not None:
                log.writer.append_batches(end(log.log_end_offset, pid), REPLICA)
    return log


@given(taken=st.lists(steps, max_size=8), data=st.data())
def test_columns_are_the_records(taken, data):
    log = filled(taken)
    start = data.draw(st.integers(0, log.log_end_offset))
    end = data.draw(st.one_of(st.none(), st.integers(0, log.log_end_offset + 2)))
    for isolation in Isolation:
        expected = [
            (each.header.base_offset, record)
            for each, record in log.reader.records(start, end, isolation=isolation)
        ]
        result = []
        for each, columns in log.reader.columns(start, end, isolation=isolation):
            assert len(columns)
            assert columns.keys.sizes.tolist() == [
                -1 if record.key is None else len(record.key) for record in columns.to_records()
            ]
            result += [(each.header.base_offset, record) for record in columns.to_records()]
        assert result == expected
