"""Columns of a log: the same records as from `records`, by batch, without an object for each."""

import numpy as np
import pytest

from logstore.errors import CorruptRecordError, OffsetOutOfRangeError
from logstore.inspect.check import Checker
from logstore.record.batch import RecordBatch, seal_batch
from logstore.record.codecs import Codec
from logstore.runtime import VirtualClock
from logstore.storage.log import NewRecord
from logstore.storage.log.drafts import RecordArrays
from logstore.storage.log.reader import Isolation
from logstore.types import AppendOrigin
from tests.support.oracles.cleaner_oracle import empty_batch
from tests.support.world.builders import abort, batch, commit, data_batch, log_name
from tests.support.world.golden_dirs import CLEAN_CASES, READ_CASES, ROOT, open_read_only

REPLICA = AppendOrigin.REPLICATION
GOLDEN_DIRS = [
    *(f"{case}/data" for case in READ_CASES),
    *(f"{case}/{side}/data" for case in CLEAN_CASES for side in ("before", "after")),
]
ISOLATIONS = (Isolation.READ_UNCOMMITTED, Isolation.READ_COMMITTED, Isolation.LOG_END)


def follow(log, *batches):
    for data in batches:
        log.writer.append_batches(data, REPLICA)


def by_batch(records):
    """Return records with the base offset of their batch, from `records`."""
    return [(each.header.base_offset, record) for each, record in records]


def from_columns(pairs):
    """Return the same from `columns`, with each record built from its columns."""
    found = []
    for each, columns in pairs:
        assert len(columns) > 0
        assert len(columns.keys) == len(columns.values) == len(columns.encoded_headers)
        for row, record in enumerate(columns.to_records()):
            assert record.offset == columns.offsets[row]
            assert record.timestamp == columns.timestamps[row]
            assert record.key == columns.keys[row]
            assert record.value == columns.values[row]
            assert record.headers == columns.headers(row)
            found.append((each.header.base_offset, record))
    return found


# -- agreement -------------------------------------------------------------------------------


@pytest.mark.parametrize("case", GOLDEN_DIRS)
def test_columns_of_kafkas_directories_are_their_records(case):
    manager, log = open_read_only(ROOT / case, VirtualClock())
    start, end = log.log_start_offset, log.log_end_offset
    bounds = ((start, None), ((start + end) // 2, None), (start + 1, end - 1))
    for isolation in ISOLATIONS:
        for first, last in bounds:
            if first > end:
                continue
            expected = by_batch(log.reader.records(first, last, isolation=isolation))
            columns = log.reader.columns(first, last, isolation=isolation)
            assert from_columns(columns) == expected
    manager.close()


@pytest.mark.parametrize("count", (1, 63, 64, 65, 200))
@pytest.mark.parametrize("codec", Codec)
def test_columns_of_any_number_of_records(world, codec, count):
    log = world.log()
    log.writer.append_records(
        [
            NewRecord(
                b"k%d" % row if row % 3 else None,
                b"v" * row if row % 4 else None,
                1000 + row,
                (("h", b"x"), ("", None))[: row % 3],
            )
            for row in range(count)
        ],
        codec,
    )
    assert from_columns(log.reader.columns(0)) == by_batch(log.reader.records(0))


def test_returned_columns_stay_valid(world):
    """Each batch has its own arena: a consumer may keep columns while it continues to read."""
    log = world.log()
    for number in range(5):
        follow(log, batch(number * 3, number * 3 + 2, codec=Codec(number)))
    kept = list(log.reader.columns(0))
    assert [columns.keys[0] for _, columns in kept] == [
        b"k%d" % (number * 3) for number in range(5)
    ]


def test_columns_can_be_appended_again(world):
    """The columns have the form that the fast path of `append` takes."""
    log = world.log()
    log.writer.append_records(
        [NewRecord(b"k%d" % row, None, 1000 - row, (("h", b"%d" % row),)) for row in range(70)]
    )
    ((_, columns),) = log.reader.columns(0)
    log.writer.append_records(
        RecordArrays(columns.keys, columns.values, columns.timestamps, columns.encoded_headers)
    )
    first, second = (each.to_records() for _, each in log.reader.columns(0))
    assert [record._replace(offset=0) for record in first] == [
        record._replace(offset=0) for record in second
    ]


# -- bounds ----------------------------------------------------------------------------------


def test_only_rows_of_the_range_are_given(world):
    log = world.log()
    follow(log, batch(0, 2), batch(3, 5), batch(6, 8))
    for start in range(9):
        for end in (*range(10), None):
            rows = [columns.offsets.tolist() for _, columns in log.reader.columns(start, end)]
            expected = [
                [at for at in span if at >= start and (end is None or at < end)]
                for span in ((0, 1, 2), (3, 4, 5), (6, 7, 8))
            ]
            assert rows == [each for each in expected if each], (start, end)


def test_offsets_outside_the_log_are_refused_with_both_bounds(world):
    log = world.log(log_start_offset=5)
    log.writer.append_records([NewRecord(b"k", b"v", 1000)] * 3)
    for offset in (4, 9):
        with pytest.raises(OffsetOutOfRangeError) as caught:
            next(log.reader.columns(offset))
        assert (caught.value.log_start_offset, caught.value.log_end_offset) == (5, 8)
    assert list(log.reader.columns(8)) == []


def test_rows_whose_offsets_do_not_rise_are_chosen_one_by_one(world):
    """A batch of a faulty producer: as in `records`, each offset is checked separately."""
    log = world.log()
    parts = [RecordBatch(batch(at)).data[61:] for at in (0, 0)]
    data = seal_batch(
        b"".join(parts),
        last_offset_delta=1,
        record_count=2,
        base_timestamp=1000,
        max_timestamp=1000,
        partition_leader_epoch=0,
    )
    follow(log, data)
    assert from_columns(log.reader.columns(0, 1)) == by_batch(log.reader.records(0, 1))
    assert len(from_columns(log.reader.columns(0, 1))) == 2
    assert list(log.reader.columns(1)) == []


# -- invisible records -----------------------------------------------------------------------


def test_markers_empty_batches_and_aborted_data_are_skipped(world):
    log = world.log()
    follow(
        log,
        *(data_batch(0, 1, 1), abort(2, 1), batch(3), data_batch(4, 5, 1, sequence=2)),
        *(commit(6, 1), empty_batch(RecordBatch(batch(7, 9)).header), batch(10)),
    )
    rows = {
        isolation: [
            offset
            for _, columns in log.reader.columns(0, isolation=isolation)
            for offset in columns.offsets.tolist()
        ]
        for isolation in ISOLATIONS
    }
    assert rows[Isolation.READ_UNCOMMITTED] == rows[Isolation.LOG_END] == [0, 1, 3, 4, 5, 10]
    assert rows[Isolation.READ_COMMITTED] == [3, 4, 5, 10]


def test_columns_stop_at_the_last_stable_offset(world):
    log = world.log()
    follow(log, batch(0, 1), data_batch(2, 3, 1), batch(4, 5))
    given = log.reader.columns(0, isolation=Isolation.READ_COMMITTED)
    assert [columns.offsets.tolist() for _, columns in given] == [[0, 1]]


# -- damage ----------------------------------------------------------------------------------


@pytest.mark.parametrize("count", (1, 100))
def test_a_section_that_unfolds_beyond_the_limit_is_damage(world, count):
    log = world.log(logstore_decompression_max_bytes=1000)
    small, large = bytes(100), bytes(2000)
    log.writer.append_records([NewRecord(b"k", small, 1000)], Codec.GZIP)
    log.writer.append_records([NewRecord(b"k", large, 1000)] * count, Codec.GZIP)
    given = log.reader.columns(0)
    assert next(given)[1].values[0] == small
    with pytest.raises(CorruptRecordError, match="1000") as caught:
        next(given)
    assert caught.value.path == world.path(log_name(0))
    assert caught.value.position > 0


@pytest.mark.parametrize("method", ("records", "columns"))
def test_damage_is_reported_at_its_position(world, method):
    """A flipped bit, and a section with a correct CRC but invalid records."""
    log = world.log()
    follow(log, batch(0), batch(1))
    broken = seal_batch(
        RecordBatch(batch(2)).data[61:],
        base_offset=2,
        last_offset_delta=1,
        record_count=2,
        base_timestamp=1000,
        max_timestamp=1000,
        partition_leader_epoch=0,
    )
    follow(log, broken)
    size = len(batch(0))
    given = getattr(log.reader, method)(0)
    assert len([next(given), next(given)]) == 2
    with pytest.raises(CorruptRecordError, match="premature end") as caught:
        next(given)
    where = (caught.value.path, caught.value.position, caught.value.check)
    assert where == (world.path(log_name(0)), 2 * size, "record_structure")
    log.close()
    data = bytearray(world.files()[log_name(0)])
    data[size + 65] ^= 1
    world.write(log_name(0), bytes(data))
    log = world.log()
    given = getattr(log.reader, method)(0)
    next(given)
    with pytest.raises(CorruptRecordError, match="bad CRC") as caught:
        next(given)
    assert caught.value.position == size
    found = Checker(world.fs).path(world.path(log_name(0)))
    assert [each.check for each in found if each.position == size] == ["crc"]


def test_columns_are_of_the_types_that_are_promised(world):
    log = world.log()
    follow(log, batch(0, 4))
    ((source, columns),) = log.reader.columns(1, 3)
    assert source.header.record_count == 5
    for each in (columns.offsets, columns.timestamps):
        assert each.dtype == np.int64
        assert each.flags.c_contiguous
    for column in (columns.keys, columns.values, columns.encoded_headers):
        assert (column.starts.dtype, column.sizes.dtype) == (np.int64, np.int32)
        assert column.starts.flags.c_contiguous
