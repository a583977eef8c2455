"""Batches of very many records: limited before decoding, validated outside the lock."""

import random
import threading
import tracemalloc

import numpy as np
import pytest

from logstore import Broker, VirtualClock
from logstore.errors import (
    InvalidRecordError,
    InvalidTimestampError,
    MessageSizeTooLargeError,
)
from logstore.inspect.check.directory import Checker
from logstore.jit import policy
from logstore.record import batch as batches
from logstore.record import columns, kernels
from logstore.record.batch import RecordBatch, build_batch
from logstore.record.codecs import Codec, compress
from logstore.record.columns import BytesColumn
from logstore.record.layout import HEADER_SIZE
from logstore.record.records import Record
from logstore.runtime import DiskFileSystem
from logstore.storage.log import NewRecord, validate
from logstore.storage.log.drafts import RecordArrays, RecordLists
from logstore.storage.log.validate import RECORD_ERRORS_MAX
from logstore.types import INT64_MAX, AppendOrigin, TimestampType
from tests.support.world.builders import CODECS, MIB, batch, memory_world, records_of
from tests.unit.record.test_windows import large_batch

BOUND = 100
NAMED = rf"a batch of {BOUND + 1} records exceeds logstore\.batch\.max\.records {BOUND}"


@pytest.fixture
def world():
    return memory_world()


@pytest.fixture
def log(world):
    return world.log(logstore_batch_max_records=BOUND)


# -- compression -------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("by_kernel", (True, False))
@pytest.mark.parametrize(
    ("name", "codec", "levels"),
    (("gzip", Codec.GZIP, (1, 9)), ("lz4", Codec.LZ4, (1, 17)), ("zstd", Codec.ZSTD, (1, 22))),
)
def test_a_batch_of_a_client_is_compressed_at_the_level_of_the_topic(
    name, codec, levels, by_kernel, monkeypatch
):
    monkeypatch.setattr(validate, "encodes_by_kernel", lambda _: by_kernel)
    rng = random.Random(0)
    words = [rng.randbytes(5) for _ in range(50)]
    values = [b"".join(rng.choices(words, k=20)) for _ in range(50)]
    data = build_batch([Record(n, 5, b"k", value) for n, value in enumerate(values)])
    section = RecordBatch(data).section()
    for level in levels:
        world = memory_world()
        log = world.log(compression_type=name, **{f"compression_{name}_level": level})
        log.writer.append_batches(data)
        (stored,) = log.reader.batches(0)
        assert stored.header.codec_id == codec
        assert stored.data[HEADER_SIZE:] == compress(codec, bytes(section), level)


# -- the bound ---------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
def test_a_client_s_batch_of_too_many_records_is_refused_before_it_is_decompressed(
    world, log, codec, monkeypatch
):
    before = world.files()
    monkeypatch.setattr(batches, "decompress", lambda *_, **__: pytest.fail("decompressed"))
    monkeypatch.setattr(RecordBatch, "facts", lambda *_: pytest.fail("decoded"))
    for _ in range(2):
        with pytest.raises(MessageSizeTooLargeError, match=NAMED):
            log.writer.append_batches(batch(0, BOUND, codec=codec))
        assert log.log_end_offset == 0
    assert world.files() == before


@pytest.mark.parametrize("codec", CODECS)
def test_a_client_s_batch_at_the_bound_is_appended(log, codec):
    for _ in range(2):
        log.writer.append_batches(batch(0, BOUND - 1, codec=codec))
    assert log.log_end_offset == 2 * BOUND


def new_records(count):
    return [NewRecord(b"k", b"v")] * count


def arrays(count):
    column = BytesColumn.from_list([b"k"] * count)
    return RecordArrays(column, column)


APPENDS = {
    "records": lambda writer, count: writer.append_records(new_records(count)),
    "compressed": lambda writer, count: writer.append_records(new_records(count), Codec.ZSTD),
    "lists": lambda writer, count: writer.append_records(RecordLists.of(new_records(count))),
    "columns": lambda writer, count: writer.append_records(arrays(count)),
    "parts": lambda writer, count: list(writer.append_parts(arrays(count), (0, count))),
    "parts, one by one": lambda writer, count: list(
        writer.append_parts(arrays(count), (0, count), request=lambda append: append())
    ),
    "batches": lambda writer, count: writer.append_batches(batch(0, count - 1)),
}


@pytest.mark.parametrize("name", APPENDS)
def test_every_way_into_a_log_has_the_bound(log, name):
    with pytest.raises(MessageSizeTooLargeError, match=NAMED):
        APPENDS[name](log.writer, BOUND + 1)
    assert log.log_end_offset == 0
    APPENDS[name](log.writer, BOUND)
    assert log.log_end_offset == BOUND


def test_several_batches_are_written_one_by_one_if_one_has_too_many_records(log):
    with pytest.raises(MessageSizeTooLargeError, match=NAMED):
        list(log.writer.append_parts(arrays(BOUND + 2), (0, 1, BOUND + 2)))
    assert log.log_end_offset == 1
    (info,) = log.writer.append_parts(arrays(BOUND + 2), (0, 2, BOUND + 2))
    assert info.records == BOUND + 2


def test_a_follower_accepts_the_batches_of_its_leader(log):
    data = batch(0, BOUND, leader_epoch=3)
    log.writer.append_batches(data, AppendOrigin.REPLICATION)
    assert log.log_end_offset == BOUND + 1


@pytest.mark.parametrize("on_disk", (False, True), ids=("memory", "disk"))
def test_a_batch_above_the_bound_that_is_in_a_log_is_read_checked_and_cleaned(tmp_path, on_disk):
    """From another broker, or from before the setting was changed."""
    settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
    with Broker(tmp_path if on_disk else None, clock=VirtualClock()) as broker:
        broker.create_topic("t", configs=settings)
        records = [Record(n, 1000, b"k%d" % (n % 50), b"v%d" % n) for n in range(BOUND * 2)]
        broker.append_batches("t", build_batch(records, codec=Codec.ZSTD))
        broker.alter_configs("t", {"logstore.batch.max.records": str(BOUND)})
        with pytest.raises(MessageSizeTooLargeError):
            broker.append_batches("t", build_batch(records, codec=Codec.ZSTD))
        assert [each.offset for each in broker.read("t")] == list(range(BOUND * 2))
        with broker.consumer("t", auto_offset_reset="earliest") as consumer:
            assert sum(map(len, consumer.poll(max_records=1000).values())) == BOUND * 2
        broker.append("t", key=b"x", value=b"y")
        broker.clean("t", force=True, roll=True)
        assert len(list(broker.read("t"))) == 51
    if on_disk:
        assert not list(Checker(DiskFileSystem(VirtualClock())).path(str(tmp_path)))


def test_the_bound_of_a_broker_holds_for_its_topics_and_may_change():
    with Broker(broker_config={"logstore.batch.max.records": 3}) as broker:
        broker.create_topic("t")
        with pytest.raises(MessageSizeTooLargeError, match=r"max\.records 3"):
            broker.append_batches("t", batch(0, 3))
        broker.alter_broker_configs({"logstore.batch.max.records": 4})
        broker.append_batches("t", batch(0, 3))


# -- validation --------------------------------------------------------------------------------


def test_others_append_while_a_batch_is_judged(log, monkeypatch):
    facts = RecordBatch.facts

    def append_and_judge(self, limit):
        other = threading.Thread(target=log.writer.append_record, args=(NewRecord(b"k", b"v"),))
        other.start()
        other.join(20)
        assert not other.is_alive(), "the log's lock is held"
        return facts(self, limit)

    monkeypatch.setattr(RecordBatch, "facts", append_and_judge)
    info = log.writer.append_batches(batch(0, 5, codec=Codec.GZIP))
    assert (info.first_offset, info.last_offset) == (1, 6)


def test_a_batch_is_judged_again_if_the_rules_change_meanwhile(log, monkeypatch):
    facts, judged = RecordBatch.facts, []

    def change_and_judge(self, limit):
        judged.append(1)
        if len(judged) == 1:
            log.set_config(memory_world().log(cleanup_policy=("compact",)).config)
        return facts(self, limit)

    monkeypatch.setattr(RecordBatch, "facts", change_and_judge)
    with pytest.raises(InvalidRecordError, match="without key"):
        log.writer.append_batches(batch(0, 5, key=None))
    assert (len(judged), log.log_end_offset) == (2, 0)


@pytest.fixture(params=("python", "kernel"))
def way(request, monkeypatch):
    """Validate and rebuild batches in each of the two ways."""
    by_kernel = request.param == "kernel"
    monkeypatch.setattr(batches, "decodes_by_kernel", lambda count: by_kernel)
    monkeypatch.setattr(validate, "encodes_by_kernel", lambda count: by_kernel)
    monkeypatch.setattr(batches, "LISTED_RECORDS_MAX", 7)
    return request.param


def any_records(count, rng):
    return [
        Record(
            3 * offset,
            1000 + rng.randrange(-50, 50),
            None if rng.random() < 0.2 else rng.randbytes(rng.randrange(30)),
            None if rng.random() < 0.2 else rng.randbytes(rng.randrange(90)),
            tuple(("h", rng.choice((None, b"x"))) for _ in range(rng.choice((0, 0, 3)))),
        )
        for offset in range(count)
    ]


@pytest.mark.parametrize("stored", (None, "gzip", "lz4", "uncompressed"))
@pytest.mark.parametrize("codec", CODECS[1:])
def test_offsets_with_gaps_are_made_dense_and_nothing_else_is_changed(way, codec, stored):
    records = any_records(30, random.Random(codec))
    dense = [each._replace(offset=row) for row, each in enumerate(records)]
    sent = build_batch(records, codec=codec)
    # The header spans as many offsets as there are records, as required of clients.
    sent = batches.pack_batch(
        sent[61:], 0, 0, codec, 29, records[0].timestamp, max(r.timestamp for r in records),
        5, 1, 7, 30,
    )  # fmt: skip
    log = memory_world().log(**({} if stored is None else {"compression_type": stored}))
    log.writer.append_batches(sent)
    assert records_of(log) == dense
    (found,) = (batch for batch, _ in log.reader.fetched(0))
    header = found.header
    wanted = codec if stored is None else {"uncompressed": "none"}.get(stored, stored)
    assert found.codec is (wanted if stored is None else Codec.from_name(wanted))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 1, 7)
    assert (header.base_timestamp, header.max_timestamp) == (
        records[0].timestamp,
        max(each.timestamp for each in records),
    )
    assert bytes(found.section()) == bytes(
        RecordBatch(build_batch(dense, codec=Codec.NONE)).section()
    )


def test_a_rebuilt_batch_of_a_topic_with_append_time_has_it(way):
    world = memory_world()
    log = world.log(compression_type="gzip", message_timestamp_type=TimestampType.LOG_APPEND_TIME)
    log.writer.append_batches(batch(0, 20, timestamp=list(range(21))))
    assert {each.timestamp for each in records_of(log)} == {world.clock.now_ms()}


def test_errors_name_the_first_records_and_count_all_of_them(way):
    world = memory_world()
    now_ms = world.clock.now_ms()
    log = world.log(cleanup_policy=("compact",), message_timestamp_after_max_ms=10)
    keyless = build_batch([Record(n, now_ms, None, b"") for n in range(RECORD_ERRORS_MAX + 5)])
    with pytest.raises(
        InvalidRecordError, match=f"record 0 of the batch and {RECORD_ERRORS_MAX + 4} more"
    ) as caught:
        log.writer.append_batches(keyless)
    assert [row for row, _ in caught.value.record_errors] == list(range(RECORD_ERRORS_MAX))
    late = [
        Record(n, now_ms + (50 if n in (3, 9) else 0), None if n == 1 else b"k", b"")
        for n in range(12)
    ]
    with pytest.raises(InvalidTimestampError, match="record 3 and 2 more: Timestamp") as caught:
        log.writer.append_batches(build_batch(late))
    assert [row for row, _ in caught.value.record_errors] == [1, 3, 9]
    assert log.log_end_offset == 0


@pytest.mark.skipif(policy.MODE == policy.PYTHON, reason="nothing is compiled")
@pytest.mark.parametrize("codec", CODECS)
def test_a_record_takes_some_tens_of_bytes_while_its_batch_is_appended(codec, monkeypatch):
    """All its offsets are equal, so the batch is rebuilt."""
    monkeypatch.setattr(kernels.decode_records.group, "is_compiled", True)
    monkeypatch.setattr(kernels.encode_batches.group, "is_compiled", True)
    count = 200_000
    data = large_batch(count, codec)
    log = memory_world().log(max_message_bytes=8 * MIB)
    log.writer.append_batches(data)  # load one-time data
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        log.writer.append_batches(data)
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert peak < 200 * count
    assert log.log_end_offset == 2 * count
    if codec is not Codec.NONE:  # uncompressed batches are stored unchanged, as in Kafka
        offsets = np.concatenate([each.offsets for _, each in log.reader.columns(0)])
        assert np.array_equal(offsets, np.arange(2 * count))
    assert count > columns.WINDOW_RECORDS


# -- the end of the offsets ------------------------------------------------------------------


@pytest.mark.parametrize(("count", "is_appended"), ((1, True), (2, True), (3, False), (4, False)))
def test_several_batches_at_once_end_below_the_largest_offset(world, count, is_appended):
    log = world.log()
    log.truncate_fully_and_start_at(INT64_MAX - 2)
    appending = log.writer.append_parts(arrays(count), (0, count))
    if is_appended:
        assert [info.records for info in appending] == [count]
    else:
        with pytest.raises(InvalidRecordError):
            next(appending)
    assert log.log_end_offset == INT64_MAX - 2 + (count if is_appended else 0)
