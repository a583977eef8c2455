"""Lists that go by columns, beside the same records one by one: equal bytes, equal refusals."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore import Broker, VirtualClock
from logstore.broker import writer as writer_module
from logstore.errors import LogStoreError
from logstore.log.writer import LogWriter

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
        files = [segment.file.read(0, segment.size_bytes) for segment in segments]
        return files, [segment.base_offset for segment in segments], told


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
        )
    ),
    batch_records=st.none() | st.integers(1, 300),
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
    ("records", "sections"),
    (
        ([(b"k", b"v")] * 1000, 2),
        (tuple([(None, b"v")] * 65), 1),
        ([(b"k", b"v")] * 64, 0),
        (((b"k", b"v") for _ in range(1000)), 0),
        ([(b"k", b"v", 1)] * 1000, 0),
    ),
    ids=("a list", "a tuple", "a few", "a generator", "with times"),
)
def test_who_goes_by_columns(records, sections, monkeypatch):
    calls = []
    append_section = LogWriter.append_section
    monkeypatch.setattr(
        LogWriter,
        "append_section",
        lambda self, *args: (calls.append(args), append_section(self, *args))[1],
    )
    outcome(records, {})
    assert len(calls) == sections


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
