"""Lists that go by columns, beside the same records one by one: equal bytes, equal refusals."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore import Broker, VirtualClock
from logstore.clients import writer as writer_module
from logstore.errors import LogStoreError, NotLeaderForPartitionError
from logstore.jit import policy
from logstore.storage.log.writer import LogWriter

field = st.one_of(st.none(), st.binary(max_size=40), st.integers(0, 900).map(bytes))
pairs = st.lists(st.tuples(field, field), min_size=65, max_size=400)


def outcome(records, configs, **options):
    """Return the bytes of the log, and what was told or raised."""
    with Broker(clock=VirtualClock(), seed=0) as broker:
        broker.create_topic("t", configs=configs)
        try:
            told = broker.append_many("t", records, **options)
        except LogStoreError as error:
            told = (type(error), str(error), getattr(error, "record_errors", None))
        segments = broker.log("t").segments
        files = [
            (segment.file.read(0, segment.size_bytes), [*segment.offset_index], last_times(segment))
            for segment in segments
        ]
        return files, [segment.base_offset for segment in segments], told


def last_times(segment):
    return segment.time_index.entries, segment.time_index.last_entry, segment.max_timestamp_so_far


@given(
    records=pairs,
    odd=st.none()
    | st.tuples(
        st.integers(0, 400), st.sampled_from(((b"k", b"v", 7), (b"k", "text"), [b"k", b"v"], 3))
    ),
    configs=st.sampled_from(
        (
            {},
            {"cleanup.policy": "compact"},
            {"max.message.bytes": "700"},
            {"segment.bytes": "2000", "message.timestamp.type": "LogAppendTime"},
            {"compression.type": "lz4"},
            {"segment.bytes": "20000", "index.interval.bytes": "0"},
            {"segment.index.bytes": "60", "index.interval.bytes": "0"},
            {"segment.index.bytes": "24", "index.interval.bytes": "1"},
            {"flush.messages": "3"},
        )
    ),
    batch_records=st.none() | st.integers(1, 8) | st.integers(1, 300),
    partition=st.sampled_from((None, 0)),
)
@settings(deadline=None, max_examples=60)
def test_columns_give_what_records_give(records, odd, configs, batch_records, partition):
    if odd is not None:
        records = [*records[: odd[0]], odd[1], *records[odd[0] :]]
    options = {"batch_records": batch_records, "partition": partition}
    before, writer_module.PAIRS_AT_A_TIME = writer_module.PAIRS_AT_A_TIME, 40
    try:
        assert outcome(records, configs, **options) == outcome(iter(records), configs, **options)
    finally:
        writer_module.PAIRS_AT_A_TIME = before


@pytest.mark.parametrize(
    "configs",
    (
        {"segment.index.bytes": "24", "index.interval.bytes": "0"},
        {"segment.bytes": "1100"},
        {"max.message.bytes": "300"},
        {"flush.messages": "3"},
    ),
    ids=("full indexes", "full segments", "a batch too large", "flushes"),
)
def test_several_batches_in_one_write_are_those_written_apart(configs):
    records = [(b"%d" % row, b"v" * (300 if row == 90 else 5)) for row in range(100)]
    assert outcome(records, configs, batch_records=3) == outcome(
        iter(records), configs, batch_records=3
    )


@pytest.mark.skipif(policy.MODE == policy.PYTHON, reason="columns are for compiled kernels")
@pytest.mark.parametrize(
    ("records", "batches"),
    (
        ([(b"k", b"v")] * 1000, 2),
        (tuple([(None, b"v")] * 65), 1),
        ([(b"k", b"v")] * 64, 0),
        (((b"k", b"v") for _ in range(1000)), 0),
        ([(b"k", b"v", 1)] * 1000, 0),
    ),
    ids=("a list", "a tuple", "a few", "a generator", "with times"),
)
def test_who_goes_by_columns(records, batches, monkeypatch):
    calls = []
    append_parts = LogWriter.append_parts

    def counted(self, records, bounds, *others):
        calls.append(len(bounds) - 1)
        return append_parts(self, records, bounds, *others)

    monkeypatch.setattr(LogWriter, "append_parts", counted)
    outcome(records, {})
    assert sum(calls) == batches


def test_what_waits_already_comes_first():
    records = [(b"%d" % number, b"v") for number in range(100)]
    with Broker(clock=VirtualClock(), seed=0) as broker:
        broker.create_topic("t")
        writer = broker.batch_writer("t")
        writer.add_all(records[:1])
        writer.add_all(records[1:])
        (told,) = writer.finish()
        assert told.records == 100
        assert [record.key for record in broker.read("t")] == [key for key, _ in records]


@pytest.mark.parametrize("kind", (list, iter))
def test_a_fault_rule_meets_each_batch(kind):
    with Broker(clock=VirtualClock(), seed=0) as broker:
        broker.create_topic("t")
        broker.fail("append", nth=3, error="NOT_LEADER_OR_FOLLOWER")
        with pytest.raises(NotLeaderForPartitionError):
            broker.append_many("t", kind([(b"k", b"v")] * 100), batch_records=5)
        assert broker.log("t").log_end_offset == 10
