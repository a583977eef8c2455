"""Hypothesis strategies for stored batches, and for chunks of them as kernels read them."""

from __future__ import annotations

import hypothesis.strategies as st

from logstore.record.batch import RecordBatch, build_batch
from logstore.record.codecs import Codec
from logstore.record.crc32c import crc32c
from logstore.record.kernels import OK
from logstore.record.layout import ATTRIBUTES_POSITION, HEADER_SIZE
from logstore.record.records import Record
from logstore.types import TimestampType
from tests.support.oracles import cleaner_oracle as oracle
from tests.support.world import record_strategies
from tests.support.world.kernel_calls import scan, unfolded

NOW_MS = 10_000

keys = st.one_of(st.none(), st.sampled_from([b"", b"a", b"b", b"c", b"d" * 70]))
values = st.one_of(st.none(), st.just(b""), st.binary(max_size=3), st.integers(60, 200).map(bytes))
times = st.one_of(st.integers(-1, 200), st.integers(NOW_MS - 2, NOW_MS + 2), st.just(2**41))
horizons = st.one_of(st.none(), st.integers(NOW_MS - 1, NOW_MS + 1), st.sampled_from([0, 2**62]))


producers = st.one_of(
    st.just({}),
    st.fixed_dictionaries(
        {
            "producer_id": st.one_of(st.integers(0, 3), st.just(2**63 - 1)),
            "producer_epoch": st.sampled_from([0, 1, 255, 256, 2**15 - 1]),
            "base_sequence": st.integers(-1, 5),
        }
    ),
)


@st.composite
def stored_batches(draw, max_batches=4, headers=record_strategies.headers):
    """Batches as stored in a segment: holes in and between them, any codec, perhaps empty."""
    batches = []
    next_offset = draw(st.integers(0, 2**33))
    for _ in range(draw(st.integers(0, max_batches))):
        base = next_offset + draw(st.sampled_from([0, 0, 1, 50]))
        deltas = sorted(draw(st.sets(st.integers(0, 9), min_size=1, max_size=5)))
        records = [
            Record(base + delta, draw(times), draw(keys), draw(values), draw(headers))
            for delta in deltas
        ]
        last = records[-1].offset + draw(st.sampled_from([0, 0, 3]))
        append_time = draw(st.one_of(st.none(), times.filter(lambda t: t >= 0)))
        data = build_batch(
            records,
            codec=draw(st.sampled_from([Codec.NONE, *Codec])),
            base_offset=base,
            last_offset=last,
            timestamp_type=TimestampType(append_time is not None),
            append_time=append_time,
            delete_horizon_ms=draw(horizons),
            partition_leader_epoch=draw(st.integers(0, 3)),
            is_control=draw(st.sampled_from([False] * 9 + [True])),
            is_transactional=draw(st.booleans()),
            **draw(producers),
        )
        if draw(st.sampled_from([False] * 5 + [True])):
            data = without_epoch(data)
        if draw(st.sampled_from([False] * 9 + [True])):
            data = oracle.empty_batch(RecordBatch(data).header)
        batches.append(RecordBatch(data))
        next_offset = last + 1
    return batches


def without_epoch(data):
    """The batch without a leader epoch, which no builder creates."""
    header = RecordBatch(data).header._replace(producer_epoch=-1)
    body = data[HEADER_SIZE:]
    crc = crc32c(header.pack()[ATTRIBUTES_POSITION:] + body)
    return header._replace(crc=crc).pack() + body


def loaded(batches):
    """Data and table of a chunk of batches, sections unfolded."""
    raw = b"".join(batch.data for batch in batches)
    status, table, position = scan(raw)
    assert (status, len(table), position) == (OK, len(batches), len(raw))
    sections = [bytes(batch.section()) if batch.header.codec_id else b"" for batch in batches]
    return unfolded(raw, table, sections), table
