"""Appending: three entry points to the same bytes, and refusals that change nothing."""

from itertools import pairwise

import numpy as np
import pytest

from logstore.config.log_config import LogConfig
from logstore.errors import (
    IllegalStateError,
    InvalidRecordError,
    InvalidTimestampError,
    KafkaStorageError,
    MessageSizeTooLargeError,
    RequestError,
)
from logstore.record.batch import RecordBatch, build_batch, seal_batch
from logstore.record.codecs import Codec
from logstore.record.columns import BytesColumn, headers_column
from logstore.record.header import BatchHeader
from logstore.record.records import Record, encode_records
from logstore.runtime import Runtime
from logstore.runtime.clock import VIRTUAL_EPOCH_MS
from logstore.storage.log import NewRecord
from logstore.storage.log.drafts import AppendInfo, ProducerFields, RecordArrays, RecordLists
from logstore.storage.log.epochs import EpochEntry
from logstore.types import AppendOrigin, TimestampType
from tests.support.world.builders import (
    CODECS,
    LOG_APPEND_TIME,
    abort,
    batch,
    batches_of,
    commit,
    data_batch,
    log_name,
    memory_world,
    offsets_in,
    records_of,
)
from tests.support.world.edited_batches import with_offset_and_epoch
from tests.support.world.faulty import FaultyFileSystem
from tests.support.world.golden_dirs import READ_CASES, ROOT, lines, manifest
from tests.support.world.messages import exactly

REPLICA = AppendOrigin.REPLICATION
COORDINATOR = AppendOrigin.COORDINATOR
NOW = VIRTUAL_EPOCH_MS
HEADERS = (("h", b"1"), ("h", None), ("", b""), ("ключ", b"\xff"))


def new_records(count):
    """Records of every shape: null and empty fields, headers, times up and down."""
    return [
        NewRecord(
            (b"key-%d" % row, b"", b"k")[row % 3],
            (b"value %d" % row * (row % 5), None, b"")[row % 3],
            1_000_000 + (row * 7919) % 1000,
            HEADERS[: row % 5],
        )
        for row in range(count)
    ]


def through_records(log, records, codec):
    return log.writer.append_records(records, codec)


def through_columns(log, records, codec):
    arrays = RecordArrays(
        BytesColumn.from_list([r.key for r in records]),
        BytesColumn.from_list([r.value for r in records]),
        np.array([r.timestamp for r in records], np.int64),
        headers_column([r.headers for r in records], len(records)),
    )
    return log.writer.append_records(arrays, codec)


def through_batches(log, records, codec):
    data = build_batch(
        [Record(row, r.timestamp, r.key, r.value, r.headers) for row, r in enumerate(records)],
        codec=codec,
    )
    return log.writer.append_batches(data)


DOORS = (through_records, through_columns, through_batches)


# -- the three entry points ------------------------------------------------------------------


@pytest.mark.parametrize("timestamp_type", tuple(TimestampType))
@pytest.mark.parametrize("codec", CODECS)
def test_every_door_writes_the_same_bytes(codec, timestamp_type):
    """From one record to several hundred, and the results that a log returns."""
    written = []
    for door in DOORS:
        world = memory_world()
        log = world.log(message_timestamp_type=timestamp_type, index_interval_bytes=100)
        infos = [door(log, new_records(count), codec) for count in (1, 2, 64, 65, 300)]
        assert [(i.first_offset, i.last_offset, i.records) for i in infos] == [
            (0, 0, 1),
            (1, 2, 2),
            (3, 66, 64),
            (67, 131, 65),
            (132, 431, 300),
        ]
        stored = records_of(log)
        log.close()
        written.append((world.files(), infos, stored))
    assert written[0] == written[1] == written[2]
    expected = [record for count in (1, 2, 64, 65, 300) for record in new_records(count)]
    now_ms = memory_world().clock.now_ms()
    stamped = timestamp_type is LOG_APPEND_TIME
    assert stored == [
        Record(offset, now_ms if stamped else r.timestamp, r.key, r.value, r.headers)
        for offset, r in enumerate(expected)
    ]
    assert [batch.codec for batch in batches_of(written[0][0][log_name(0)])] == [codec] * 5


@pytest.mark.parametrize(
    ("config", "appends", "error"),
    (
        ({}, 1, None),
        ({"index_interval_bytes": 1}, 1, None),
        ({"index_interval_bytes": 1, "segment_index_bytes": 16}, 4, None),
        ({"segment_bytes": 700}, 4, None),
        ({"compression_type": "gzip"}, 4, None),
        ({"message_timestamp_type": LOG_APPEND_TIME}, 4, None),
        ({"cleanup_policy": ("compact",)}, 3, InvalidRecordError),
        ({"max_message_bytes": 300}, 2, MessageSizeTooLargeError),
        ({"logstore_batch_max_records": 3}, 3, MessageSizeTooLargeError),
    ),
)
def test_parts_are_appended_at_once_or_one_by_one_to_the_same_bytes(config, appends, error):
    keys = BytesColumn.from_list([None if row == 9 else b"k%d" % row for row in range(12)])
    values = BytesColumn.from_list([b"v" * (300 if row == 6 else row) for row in range(12)])
    bounds = (1, 2, 5, 8, 12)

    def parts(log):
        yield from log.writer.append_parts(RecordArrays(keys, values), bounds)

    def requests(log):
        yield from log.writer.append_parts(
            RecordArrays(keys, values), bounds, request=lambda append: append()
        )

    def batches(log):
        for first, last in pairwise(bounds):
            part = RecordArrays(keys.slice(first, last), values.slice(first, last))
            yield log.writer.append_records(part)

    written = []
    for append in (parts, requests, batches):
        world = memory_world()
        log = world.log(**config)
        log.writer.append_batches(batch(0, 2, timestamp=NOW))
        world.clock.advance(ms=5)
        infos, refusal = [], None
        try:
            infos.extend(append(log))  # keeps those before an error
        except RequestError as refused:
            refusal = type(refused), str(refused), getattr(refused, "record_errors", None)
        assert (refusal and refusal[0]) == error
        assert len(infos) == (appends if append is parts else 4 if error is None else appends)
        assert [info.first_offset for info in infos] == [3, 4, 7, 10][: len(infos)]
        assert infos[-1].last_offset == log.log_end_offset - 1
        whole = AppendInfo(
            *(3, log.log_end_offset - 1, NOW + 5, infos[0].log_append_time),
            *(sum(info.records for info in infos), sum(info.size_bytes for info in infos), None),
        )
        assert append is not parts or len(infos) > 1 or infos == [whole]
        written.append((world.files(), log.log_end_offset, refusal, whole))
        log._check()
        log.close()
    assert written[0] == written[1] == written[2]


# -- batches of producers --------------------------------------------------------------------


def as_client(log, records, stamp):
    data = build_batch(
        [Record(row, r.timestamp, r.key, r.value, r.headers) for row, r in enumerate(records)],
        **stamp._asdict(),
    )
    return log.writer.append_batches(data)


def as_stamped(log, records, stamp):
    return log.writer.append_records(RecordLists.of(records), producer_fields=stamp)


@pytest.mark.parametrize("is_transactional", (False, True))
@pytest.mark.parametrize("compression", ("producer", "gzip"))
@pytest.mark.parametrize("timestamp_type", tuple(TimestampType))
def test_a_producer_of_this_process_writes_the_same_as_a_client(
    timestamp_type, compression, is_transactional
):
    written = []
    for door in (as_client, as_stamped):
        world = memory_world()
        log = world.log(message_timestamp_type=timestamp_type, compression_type=compression)
        infos = []
        sequence = 0
        for count in (1, 2, 64, 65, 300):
            stamp = ProducerFields(7, 1, sequence, is_transactional)
            infos += [door(log, new_records(count), stamp), door(log, new_records(count), stamp)]
            sequence += count
        assert [info.is_duplicate for info in infos] == [False, True] * 5
        log._check()
        written.append((world.files(), infos, log.last_stable_offset))
        log.close()
    assert written[0] == written[1]
    assert written[0][2] == (0 if is_transactional else 432)


REFUSED = {
    "too large": ([NewRecord(b"k", b"v" * 999, NOW)], 0),
    "too large before it is compressed, and of a wrong time": (
        [NewRecord(b"k", b"v" * 999, 5)],
        0,
    ),
    "a wrong time and no key": ([NewRecord(b"k", b"v", 5), NewRecord(None, b"v", NOW)], 0),
    "no key": ([NewRecord(b"k", b"v", NOW), NewRecord(None, b"v", 5)], 0),
    "no key among many": ([NewRecord(None, b"v", NOW)] + [NewRecord(b"k", None, NOW)] * 70, 0),
    "out of order": ([NewRecord(b"k", b"v", NOW)], 7),
}


@pytest.mark.parametrize("compression", ("producer", "gzip"))
@pytest.mark.parametrize("name", REFUSED)
def test_a_producer_of_this_process_is_refused_as_a_client_is(name, compression):
    records, sequence = REFUSED[name]
    refusals = []
    for door in (as_client, as_stamped):
        world = memory_world()
        log = world.log(
            cleanup_policy=("compact",),
            compression_type=compression,
            max_message_bytes=1000,
            message_timestamp_before_max_ms=1000,
        )
        door(log, [NewRecord(b"k", b"v", NOW)], ProducerFields(7, 1, 0, is_transactional=False))
        before = (world.files(), log.log_end_offset)
        with pytest.raises(RequestError) as refusal:
            door(log, records, ProducerFields(7, 1, sequence or 1, is_transactional=False))
        assert before == (world.files(), log.log_end_offset)
        error = refusal.value
        refusals.append((type(error), str(error), getattr(error, "record_errors", None)))
    assert refusals[0] == refusals[1]


def test_the_result_of_an_append(world):
    log = world.log()
    info = log.writer.append_records([NewRecord(b"a", b"1", 5), NewRecord(b"b", b"2", 9)])
    stored = world.files()[log_name(0)]
    assert (info.first_offset, info.last_offset, info.records) == (0, 1, 2)
    assert (info.max_timestamp, info.log_append_time, info.roll_reason) == (9, -1, None)
    assert info.size_bytes == len(stored)
    assert (log.log_end_offset, log.high_watermark, log.last_stable_offset) == (2, 2, 2)


def test_the_clock_dates_records_without_a_time(world):
    log = world.log()
    log.writer.append_records([NewRecord(b"a", b"1"), NewRecord(b"b", b"2", 9)])
    log.writer.append_records(
        RecordArrays(BytesColumn.from_list([b"a"]), BytesColumn.from_list([b"1"]))
    )
    now_ms = world.clock.now_ms()
    assert [record.timestamp for record in records_of(log)] == [now_ms, 9, now_ms]


def test_appending_nothing_changes_nothing(world):
    """S-066: not even a due roll."""
    log = world.log(segment_ms=1000)
    log.writer.append_records([NewRecord(b"a", b"1", -1)])
    world.clock.advance(ms=5000)
    before = world.files()
    empty = BytesColumn.from_list([])
    for info in (
        log.writer.append_records([]),
        log.writer.append_records(RecordArrays(empty, empty)),
        log.writer.append_batches(b""),
    ):
        assert (info.first_offset, info.last_offset, info.records) == (-1, -1, 0)
    assert log.writer.append_batches(batch(0)[:-1]).records == 0, "a torn batch alone is nothing"
    assert world.files() == before
    assert (len(log.segments), log.log_end_offset) == (1, 1)
    log.writer.append_records([NewRecord(b"b", b"2", -1)])
    assert len(log.segments) == 2, "it was due"


def test_a_torn_batch_behind_a_whole_one_is_dropped(world):
    log = world.log()
    log.writer.append_batches(batch(0, 2) + batch(0)[:10])
    assert world.files()[log_name(0)] == batch(0, 2)
    assert log.log_end_offset == 3


def test_a_leader_stamps_offset_and_epoch_outside_the_crc(world):
    log = world.log()
    log.writer.append_batches(batch(0, 2, leader_epoch=-1), leader_epoch=4)
    log.writer.append_batches(batch(0, 2, leader_epoch=99))
    expected = batch(0, 2, leader_epoch=4) + with_offset_and_epoch(batch(0, 2), 3, 4)
    assert world.files()[log_name(0)] == expected
    assert log.leader_epoch == 4
    assert log.epochs.entries == (EpochEntry(4, 0),)
    with pytest.raises(ValueError, match=exactly("a leader epoch cannot be negative: -1")):
        log.writer.append_batches(batch(0), leader_epoch=-1)
    log.writer.append_batches(batch(0), leader_epoch=0)
    (*_, last) = batches_of(world.files()[log_name(0)])
    assert last.header.partition_leader_epoch == 0, "the given epoch, not the newest"


# -- times -----------------------------------------------------------------------------------


def test_log_append_time_is_stamped_in_the_header_alone(world):
    """Bit 3 and maxTimestamp change, and the CRC with them; deltas stay."""
    log = world.log(message_timestamp_type=LOG_APPEND_TIME)
    data = batch(0, 2, timestamp=(5, 1, 9))
    info = log.writer.append_batches(data)
    now_ms = world.clock.now_ms()
    assert (info.max_timestamp, info.log_append_time) == (now_ms, now_ms)
    stored = RecordBatch(world.files()[log_name(0)])
    assert stored.header.timestamp_type is LOG_APPEND_TIME
    assert (stored.header.base_timestamp, stored.header.max_timestamp) == (5, now_ms)
    assert stored.data[61:] == data[61:]
    stored.ensure_valid()


def test_a_marker_is_stamped_and_never_recompressed(world):
    """S-059."""
    log = world.log(message_timestamp_type=LOG_APPEND_TIME, compression_type="gzip")
    log.writer.append_batches(data_batch(0, 0, 5), COORDINATOR)
    log.writer.append_batches(commit(0, 5, timestamp=7), COORDINATOR)
    data, marker = batches_of(world.files()[log_name(0)])
    assert (data.codec, marker.codec) == (Codec.GZIP, Codec.NONE)
    assert marker.header.max_timestamp == world.clock.now_ms()
    assert marker.header.timestamp_type is LOG_APPEND_TIME
    assert log.last_stable_offset == 2


def test_a_producers_own_append_time_is_cleared_or_refused(world):
    """On a CreateTime topic the bit is cleared; a batch whose records have no time is refused."""
    log = world.log()
    log.writer.append_batches(batch(0, timestamp_type=LOG_APPEND_TIME, append_time=77))
    stored = RecordBatch(world.files()[log_name(0)])
    assert stored.header.timestamp_type is TimestampType.CREATE_TIME
    assert stored.header.max_timestamp == 77
    with pytest.raises(
        InvalidTimestampError, match=exactly("a producer's batch cannot carry LogAppendTime")
    ):
        log.writer.append_batches(batch(0, timestamp_type=LOG_APPEND_TIME, append_time=-1))
    other = memory_world().log(message_timestamp_type=LOG_APPEND_TIME)
    with pytest.raises(
        InvalidTimestampError, match=exactly("a producer's batch cannot carry LogAppendTime")
    ):
        other.writer.append_batches(batch(0, timestamp_type=LOG_APPEND_TIME, append_time=77))


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("count", (2, 70))
def test_times_at_the_bounds_pass_and_beyond_are_named(world, door, count):
    """S-060."""
    log = world.log(message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=1000)
    now_ms = world.clock.now_ms()

    def send(timestamp):
        records = [NewRecord(b"k", b"v", now_ms)] * (count - 1)
        return door(log, [*records, NewRecord(b"k", b"v", timestamp)], Codec.NONE)

    for timestamp in (now_ms - 1000, now_ms + 1000, -1):
        send(timestamp)
    for timestamp in (now_ms - 1001, now_ms + 1001, 0):
        with pytest.raises(InvalidTimestampError) as caught:
            send(timestamp)
        assert [row for row, _ in caught.value.record_errors] == [count - 1]
    assert log.log_end_offset == 3 * count


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("others", (0, 1500))
def test_all_wrong_records_of_a_batch_are_named_up_to_a_limit(door, others):
    """A record that breaks two rules is reported for its missing key."""
    log = memory_world().log(
        cleanup_policy=("compact",),
        message_timestamp_before_max_ms=1000,
        message_timestamp_after_max_ms=2000,
    )
    rows = [(b"k", NOW), (None, NOW), (b"k", 5), (b"k", NOW + 2001), (None, 7), (b"k", -1)]
    rows += [(b"k", 8)] * others
    records = [NewRecord(key, b"v", timestamp) for key, timestamp in rows]
    no_key = "Compacted topic cannot accept message without key"
    bounds = f"is outside [{NOW - 1000}, {NOW + 2000}]"
    errors = [
        (1, no_key),
        (2, f"Timestamp 5 {bounds}"),
        (3, f"Timestamp {NOW + 2001} {bounds}"),
        (4, no_key),
        *((row, f"Timestamp 8 {bounds}") for row in range(6, 6 + others)),
    ]
    with pytest.raises(InvalidTimestampError) as caught:
        door(log, records, Codec.LZ4)
    assert str(caught.value) == f"record 2 and {3 + others} more: Timestamp 5 {bounds}"
    assert [*caught.value.record_errors] == errors[:1000]
    log.set_config(LogConfig(cleanup_policy=("compact",)))
    records += [NewRecord(None, b"v", NOW)] * others
    keyless = [1, 4, *range(len(rows), len(records))]
    with pytest.raises(InvalidRecordError) as caught:
        door(log, records, Codec.LZ4)
    assert str(caught.value) == f"{no_key} (record 1 of the batch and {1 + others} more)"
    assert [*caught.value.record_errors] == [(row, no_key) for row in keyless[:1000]]
    assert log.log_end_offset == 0


def test_the_deprecated_difference_bounds_times_unless_the_new_keys_do(world):
    """S-061."""
    log = world.log(message_timestamp_difference_max_ms=500)
    now_ms = world.clock.now_ms()
    with pytest.raises(InvalidTimestampError):
        log.writer.append_records([NewRecord(b"k", b"v", now_ms - 501)])
    log.close()
    log = memory_world().log(
        message_timestamp_difference_max_ms=500, message_timestamp_before_max_ms=2000
    )
    log.writer.append_records([NewRecord(b"k", b"v", now_ms - 501)])
    with pytest.raises(InvalidTimestampError):
        log.writer.append_records([NewRecord(b"k", b"v", now_ms + 501)])


# -- compression -----------------------------------------------------------------------------


@pytest.mark.parametrize("compression", ("uncompressed", "gzip", "snappy", "lz4", "zstd"))
@pytest.mark.parametrize("source", CODECS)
@pytest.mark.parametrize("door", DOORS)
def test_the_topics_compression_overrules_the_producers(compression, source, door):
    target = Codec.NONE if compression == "uncompressed" else Codec.from_name(compression)
    world = memory_world()
    log = world.log(compression_type=compression)
    records = new_records(100)
    door(log, records, source)
    stored = RecordBatch(world.files()[log_name(0)])
    assert stored.codec is target
    stored.ensure_valid()
    assert [tuple(r)[2:] for r in records_of(log)] == [(r.key, r.value, r.headers) for r in records]


@pytest.mark.parametrize("codec", CODECS[1:])
def test_a_producers_compressed_bytes_are_kept(world, codec):
    log = world.log()
    data = batch(0, 9, codec=codec)
    log.writer.append_batches(data)
    log.writer.append_batches(data)
    first, second = batches_of(world.files()[log_name(0)])
    assert first.data[61:] == second.data[61:] == data[61:]
    assert second.header.base_offset == 10


def test_compressed_records_with_other_offsets_are_made_dense(world):
    """Uncompressed ones are stored unchanged; Kafka does not check them either."""
    records = [Record(0, 5, b"a", b"1"), Record(3, 6, b"b", b"2"), Record(5, 7, b"c", b"3")]
    section = encode_records(records, 0, 5)
    fields = {"last_offset_delta": 2, "record_count": 3, "base_timestamp": 5, "max_timestamp": 7}
    log = world.log()
    log.writer.append_batches(seal_batch(section, codec=Codec.GZIP, **fields))
    stored = RecordBatch(world.files()[log_name(0)])
    assert stored.codec is Codec.GZIP
    assert [r.offset for r in stored.records()] == [0, 1, 2]
    assert [r.value for r in stored.records()] == [b"1", b"2", b"3"]
    plain = seal_batch(section, **fields)
    log.writer.append_batches(plain)
    kept = batches_of(world.files()[log_name(0)])[-1]
    assert kept.data == with_offset_and_epoch(plain, 3, 0), "not looked at"
    fields["last_offset_delta"] = 5  # not allowed for clients
    log.writer.append_batches(seal_batch(section, codec=Codec.GZIP, **fields), COORDINATOR)
    assert offsets_in(log)[-3:] == [6, 7, 8]
    assert log.log_end_offset == 9


# -- producers -------------------------------------------------------------------------------


def test_one_append_may_end_a_transaction_and_continue(world):
    """Transactions opened and closed by batches of the same append count."""
    log = world.log()
    plain = batch(3, producer_id=1, producer_epoch=0, base_sequence=2)
    log.writer.append_batches(data_batch(0, 1, 1) + abort(2, 1) + plain, REPLICA)
    assert log.last_stable_offset == 4
    assert [e[:3] for e in log.active_segment.txn_index.entries()] == [(1, 0, 2)]
    assert log.producer_state.last_data_offset(1) == 3


def test_transactions_move_the_last_stable_offset(world):
    log = world.log()
    log.writer.append_batches(data_batch(0, 1, 1), COORDINATOR)
    assert log.last_stable_offset == 0
    log.writer.append_records([NewRecord(b"k", b"v")])
    log.writer.append_batches(commit(0, 1), COORDINATOR)
    assert (log.last_stable_offset, log.log_end_offset) == (4, 4)


# -- durability ------------------------------------------------------------------------------


def test_flush_messages_moves_the_recovery_point(world):
    log = world.log(flush_messages=2)
    points = []
    for _ in range(5):
        log.writer.append_records([NewRecord(b"k", b"v")])
        points.append(log.recovery_point)
    assert points == [0, 2, 2, 4, 4]
    other = memory_world().log()
    other.writer.append_records([NewRecord(b"k", b"v")])
    assert other.recovery_point == 0
    other.flush()
    assert other.recovery_point == 1
    other.flush(0)
    assert other.recovery_point == 1, "a recovery point never goes back by a flush"


def faulty_log(world, **config):
    fs = FaultyFileSystem(world.fs)
    return fs, world.log(runtime=Runtime(world.clock, fs, world.runtime.rng), **config)


@pytest.mark.parametrize("door", DOORS)
def test_a_failed_write_takes_the_log_offline_s067(world, door):
    """Nothing is appended, all further use is refused, and a restart serves the old records."""
    fs, log = faulty_log(world)
    log.writer.append_records([NewRecord(b"a", b"1", 5)])
    before = world.files(".log")
    fs.rule = lambda operation, path: operation == "write" and path.endswith(".log")
    with pytest.raises(KafkaStorageError, match="cannot append"):
        door(log, new_records(3), Codec.NONE)
    fs.rule = lambda *_: False
    assert world.files(".log") == before
    assert (log.log_end_offset, log.high_watermark) == (1, 1)
    assert log.is_offline
    with pytest.raises(
        KafkaStorageError,
        match=exactly(
            "t-0 is offline: cannot append: [Errno 5] injected failure of write: "
            "'{path}/00000000000000000000.log'"
        ),
    ):
        door(log, new_records(3), Codec.NONE)
    with pytest.raises(
        KafkaStorageError,
        match=exactly(
            "t-0 is offline: cannot append: [Errno 5] injected failure of write: "
            "'{path}/00000000000000000000.log'"
        ),
    ):
        log.reader.read(0, 100)
    log.close()
    assert [r.key for r in records_of(world.log(clean=False))] == [b"a"]


def test_a_failure_behind_the_write_takes_the_log_offline(world):
    """The record is in the log, but derived state could not be stored: recovery does it."""
    fs, log = faulty_log(world)
    log.writer.append_batches(data_batch(0, 1, 1), REPLICA)
    fs.rule = lambda operation, path: operation == "open" and path.endswith(".txnindex")
    with pytest.raises(KafkaStorageError):
        log.writer.append_batches(abort(2, 1), REPLICA)
    fs.rule = lambda *_: False
    assert log.is_offline
    with pytest.raises(
        KafkaStorageError,
        match=exactly(
            "t-0 is offline: cannot append: [Errno 5] injected failure of open: "
            "'{path}/00000000000000000000.txnindex'"
        ),
    ):
        log.writer.append_records([NewRecord(b"a", b"1")])
    with pytest.raises(
        KafkaStorageError,
        match=exactly(
            "t-0 is offline: cannot append: [Errno 5] injected failure of open: "
            "'{path}/00000000000000000000.txnindex'"
        ),
    ):
        log.reader.read(0, 100)
    log.close()
    reopened = world.log(clean=False)
    assert [e[:3] for e in reopened.active_segment.txn_index.entries()] == [(1, 0, 2)]
    assert reopened.last_stable_offset == 3


def test_a_failed_sync_takes_the_log_offline(world):
    """The state of the disk after a failed fsync is unknown."""
    fs, log = faulty_log(world)
    log.writer.append_records([NewRecord(b"a", b"1")])
    fs.rule = lambda operation, _: operation == "sync"
    with pytest.raises(KafkaStorageError):
        log.flush()
    fs.rule = lambda *_: False
    assert (log.is_offline, log.recovery_point) == (True, 0)


@pytest.mark.parametrize("door", DOORS)
def test_an_append_that_cannot_read_the_leader_epoch_is_a_disk_error(world, door):
    """Without an epoch file, the last batch determines the epoch."""
    log = world.log()
    log.writer.append_records([NewRecord(b"a", b"1", 5)])
    log.close()
    world.fs.remove(world.path("leader-epoch-checkpoint"))
    fs, log = faulty_log(world)
    fs.rule = lambda operation, path: operation == "read" and path.endswith(".log")
    with pytest.raises(
        KafkaStorageError,
        match=exactly(
            "t-0: cannot read the leader epoch: [Errno 5] injected failure of read: "
            "'{path}/00000000000000000000.log'"
        ),
    ):
        door(log, new_records(3), Codec.NONE)
    fs.rule = lambda *_: False
    door(log, new_records(3), Codec.NONE)
    assert (log.log_end_offset, log.is_offline) == (4, False)


def test_a_closed_log_takes_nothing(world):
    log = world.log()
    log.close()
    log.close()
    for door in DOORS:
        with pytest.raises(IllegalStateError, match="closed"):
            door(log, new_records(1), Codec.NONE)
    with pytest.raises(IllegalStateError, match="closed"):
        log.writer.roll()
    with pytest.raises(IllegalStateError, match="closed"):
        log.flush()


# -- Kafka's logs, replicated ------------------------------------------------------------


@pytest.mark.parametrize("case", READ_CASES)
def test_replicating_kafkas_batches_gives_kafkas_files(world, case):
    """Batch by batch into an empty log: the same segments, indexes, epochs and snapshots.

    Kafka rolled by `segment.bytes` where a case sets it, by command elsewhere; `holes` also by
    appends of several batches, whose boundaries are not in the files.
    """
    facts = manifest(case)
    config = {
        key.replace(".", "_"): int(value)
        for key, value in facts["config"].items()
        if value.isdigit()
    }
    config.setdefault("max_message_bytes", 4 << 20)
    world.clock.set_ms(facts["closed_at_ms"])
    golden = ROOT / case / "data" / "golden-0"
    log = world.log(segment_index_bytes=10 << 20, **config)
    by_command = case == "holes" or "segment_bytes" not in config
    for line in lines(case, "batches.jsonl"):
        if by_command and line["segment"] > log.active_segment.base_offset:
            log.writer.roll(line["segment"])
        path = golden / log_name(line["segment"])
        start = line["position"]
        log.writer.append_batches(path.read_bytes()[start : start + line["size"]], REPLICA)
    log.close()
    expected = {path.name: path.read_bytes() for path in golden.iterdir()}
    written = world.files()
    if facts["log_start_offset"]:
        # The epochs of a log whose start was moved begin there, and so do its snapshots.
        for files in (expected, written):
            files.pop("leader-epoch-checkpoint")
            for name in [n for n in files if n.endswith(".snapshot")]:
                files.pop(name)
    expected.pop("partition.metadata", None)
    assert written == expected


@pytest.mark.parametrize(
    ("append", "parsed"),
    (
        (lambda log: log.writer.append_records(new_records(3)), 0),
        (lambda log: log.writer.append_records(new_records(99)), 0),
        (lambda log: through_columns(log, new_records(3), Codec.NONE), 0),
        (lambda log: log.writer.append_end_txn_marker(7, 0, 0, commit=True), 0),
        (lambda log: log.writer.append_batches(batch(0, timestamp=NOW)), 1),
    ),
)
def test_a_header_that_was_packed_is_not_parsed_again(append, parsed, monkeypatch):
    log = memory_world().log(message_timestamp_type=LOG_APPEND_TIME)
    append(log)  # run one-time work
    unpack = BatchHeader.unpack_from
    count = 0

    def counted(*arguments):
        nonlocal count
        count += 1
        return unpack(*arguments)

    monkeypatch.setattr(BatchHeader, "unpack_from", counted)
    monkeypatch.setattr("logstore.storage.log.writer.VERIFY", False)
    append(log)
    assert count == parsed
