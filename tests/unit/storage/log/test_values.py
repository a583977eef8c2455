"""Small results and bounds of the storage: whole values."""

import random

import pytest

from logstore.config.log_config import LogConfig
from logstore.record.batch import RecordBatch, build_batch
from logstore.record.columns import decode_windows
from logstore.record.records import Record
from logstore.storage.loading.loader import open_log
from logstore.storage.loading.request import LoadRequest
from logstore.storage.log.drafts import AppendInfo
from logstore.storage.producers.entry import BatchMetadata
from logstore.storage.segment.values import (
    BatchExtent,
    RollReason,
    SegmentRead,
    draw_roll_jitter,
)
from logstore.types import TimestampType, TopicPartition
from tests.support.world.builders import batch


def headers(*stamped):
    """Return headers of batches at offsets 3, 8, 9; a stamped one has LogAppendTime."""
    offsets, found = ((3, 4), (8,), (9, 12)), []
    for each, by_log in zip(offsets, stamped, strict=False):
        records = [Record(offset, 50 - offset, b"k", b"v" * offset) for offset in each]
        kind = TimestampType.LOG_APPEND_TIME if by_log else TimestampType.CREATE_TIME
        time = {"append_time": 10 + each[0]} if by_log else {}
        found.append(RecordBatch(build_batch(records, timestamp_type=kind, **time)).header)
    return found


@pytest.mark.parametrize(
    ("stamped", "expected"),
    (
        ((False,), (3, 4, 47, -1, 2)),
        ((True,), (3, 4, 13, 13, 2)),
        ((False, False, False), (3, 12, 47, -1, 5)),
        ((True, True, True), (3, 12, 19, 19, 5)),
        ((True, False), (3, 8, 42, -1, 3)),
        ((False, True), (3, 8, 47, -1, 3)),
    ),
)
def test_the_result_of_an_append_sums_its_batches(stamped, expected):
    found = headers(*stamped)
    size = sum(header.size_bytes for header in found)
    assert AppendInfo.of(found, RollReason.TIME) == (*expected, size, RollReason.TIME, False)


def test_the_result_of_a_duplicate_matches_the_first_append():
    info = AppendInfo.of_duplicate(BatchMetadata(9, 24, 4, 777))
    assert (info.first_offset, info.last_offset) == (20, 24)
    assert (info.max_timestamp, info.log_append_time) == (777, 777)
    assert (info.roll_reason, info.is_duplicate) == (None, True)


def test_the_extent_of_a_batch_and_an_incomplete_read():
    data = batch(5, 9, timestamp=1234)
    assert BatchExtent.of(RecordBatch(data).header) == (9, 1234, len(data))
    assert SegmentRead(b"12", 0, 3).first_entry_incomplete
    assert not SegmentRead(b"123", 0, 3).first_entry_incomplete


@pytest.mark.parametrize(("jitter_ms", "bound"), ((1, 1), (50, 50), (100, 70)))
def test_jitter_is_below_both_settings(jitter_ms, bound):
    config = LogConfig(segment_jitter_ms=jitter_ms, segment_ms=70)
    drawn = {draw_roll_jitter(config, random.Random(seed)) for seed in range(2000)}
    assert (min(drawn), max(drawn)) == (0, bound - 1)


def test_no_jitter_draws_nothing():
    rng = random.Random(4)
    assert draw_roll_jitter(LogConfig(segment_jitter_ms=0, segment_ms=70), rng) == 0
    assert rng.random() == random.Random(4).random()


@pytest.mark.parametrize(
    ("count", "rows_max", "sizes"),
    ((0, 3, [0]), (1, 1, [1]), (3, 1, [1, 1, 1]), (6, 3, [3, 3]), (7, 3, [3, 3, 1])),
)
def test_windows_of_columns_are_as_large_as_allowed(count, rows_max, sizes):
    records = [Record(n, n, b"k", b"v%d" % n) for n in range(max(count, 1))]
    data = build_batch(records)
    start = 61 if count else len(data)
    windows = list(decode_windows(data, start, count, 0, 0, rows_max=rows_max))
    assert [len(window) for window in windows] == sizes
    offsets = [int(offset) for window in windows for offset in window.offsets]
    assert offsets == list(range(count))


@pytest.mark.parametrize("is_enough", (True, False))
def test_a_snapshot_larger_than_a_small_file_is_not_read(world, is_enough, caplog):
    log = world.log()
    now_ms = world.clock.now_ms()
    written = batch(0, timestamp=now_ms, producer_id=7, producer_epoch=0, base_sequence=0)
    log.writer.append_batches(written)
    log.close()
    [(name, data)] = world.files(".snapshot").items()
    request = LoadRequest(
        directory=world.directory,
        topic_partition=TopicPartition("t", 0),
        config=LogConfig(segment_index_bytes=4000),
        clean=True,
        small_file_max_bytes=len(data) - (not is_enough),
    )
    log = open_log(world.runtime, request)
    assert log.producer_state.entry(7) is not None
    refused = [message for message in caplog.messages if name in message]
    assert bool(refused) is not is_enough
