"""Columns of records: rows, arenas, and agreement with `records.py` at its edges."""

import random
import tracemalloc
from itertools import pairwise, product

import numpy as np
import pytest

from logstore.errors import InvalidRecordError
from logstore.jit import policy
from logstore.record import columns as columns_module
from logstore.record import kernels
from logstore.record.batch import RecordBatch, build_batch
from logstore.record.codecs import Codec
from logstore.record.columns import (
    BytesColumn,
    decode_batch,
    decode_section,
    encode_batch,
    encode_batches,
    encode_section,
    find_bounds,
    headers_column,
)
from logstore.record.layout import HEADER_SIZE, TIMESTAMP_TYPE_BIT
from logstore.record.records import Record, decode_records, encode_records
from logstore.types import TimestampType
from tests.support.world import golden

NO_JIT = policy.MODE == policy.PYTHON
VALUES = [b"a", None, b"", b"long" * 100, None]
RECORDS = [
    Record(5, 1000, b"k1", b"v1"),
    Record(6, 900, None, b"", (("h", b"1"), ("h", None))),
    Record(7, 2**50, b"", None),
]


def columns_of(records):
    return (
        np.array([record.timestamp for record in records], np.int64),
        BytesColumn.from_list([record.key for record in records]),
        BytesColumn.from_list([record.value for record in records]),
        headers_column([record.headers for record in records], len(records)),
    )


def test_a_bytes_column_gives_back_its_rows():
    column = BytesColumn.from_list(iter(VALUES))
    assert len(column) == 5
    assert [column[row] for row in range(5)] == VALUES
    assert column.sizes.tolist() == [1, -1, 0, 400, -1]
    assert (column.data.dtype, column.starts.dtype, column.sizes.dtype) == (
        np.uint8,
        np.int64,
        np.int32,
    )


@pytest.mark.parametrize("values", ([], [None], [b""], [None, b"", None]))
def test_a_bytes_column_may_hold_no_bytes(values):
    column = BytesColumn.from_list(values)
    assert [column[row] for row in range(len(column))] == values
    assert column.data.size == 0


def test_a_slice_shares_the_arena():
    column = BytesColumn.from_list(VALUES)
    part = column.slice(1, 4)
    assert [part[row] for row in range(3)] == VALUES[1:4]
    assert part.data is column.data


@pytest.mark.parametrize("kind", (bytes, bytearray, lambda raw: memoryview(bytearray(raw))))
def test_a_section_decodes_into_columns(kind):
    columns = decode_section(kind(encode_records(RECORDS, 5, 1000)), 3, 5, 1000)
    assert len(columns) == 3
    assert columns.to_records() == RECORDS
    assert columns.offsets.tolist() == [5, 6, 7]
    assert columns.timestamps.tolist() == [1000, 900, 2**50]
    assert [columns.keys[row] for row in range(3)] == [b"k1", None, b""]
    assert [columns.values[row] for row in range(3)] == [b"v1", b"", None]
    assert [columns.headers(row) for row in range(3)] == [r.headers for r in RECORDS]


def test_whole_records_are_extents_too():
    section = encode_records(RECORDS, 5, 1000)
    columns = decode_section(section, 3, 5, 1000)
    parts = [section[start:end] for start, end in columns.extents[:, :2].tolist()]
    assert [len(part) for part in parts] == [part[0] // 2 + 1 for part in parts]
    # The extents leave out nothing but the length prefix of the record after.
    assert b"".join(parts) == section


def test_arrays_are_contiguous_so_that_kernels_are_compiled_once():
    columns = decode_section(encode_records(RECORDS, 5, 1000), 3, 5, 1000)
    keys = columns.keys
    for array in (columns.offsets, columns.timestamps, keys.starts, keys.sizes):
        assert array.flags.c_contiguous


def test_append_time_replaces_every_timestamp():
    columns = decode_section(encode_records(RECORDS, 5, 1000), 3, 5, 1000, append_time=77)
    assert columns.timestamps.tolist() == [77] * 3
    assert {record.timestamp for record in columns.to_records()} == {77}


def test_an_empty_section_holds_no_records():
    assert decode_section(b"", 0, 0, 0).to_records() == []


def test_golden_section_decodes_and_encodes():
    columns = decode_section(golden.G1[61:], 3, 0, 1000)
    assert columns.to_records() == list(golden.G1_RECORDS)
    assert bytes(encode_section(*columns_of(golden.G1_RECORDS))) == golden.G1[61:]


@pytest.mark.parametrize(
    ("count", "message"),
    (
        (-1, "negative record count -1"),
        (2, "records remaining"),
        (4, "premature end"),
        (2**31 - 1, "premature end"),
    ),
)
def test_s003_counts_that_do_not_fit_the_bytes(count, message):
    """S-003, by kernel."""
    with pytest.raises(InvalidRecordError, match=message):
        decode_section(encode_records(RECORDS, 5, 1000), count, 5, 1000)


def test_a_wrong_count_takes_no_memory():
    section = encode_records(RECORDS, 5, 1000)
    tracemalloc.start()
    try:
        with pytest.raises(InvalidRecordError):
            decode_section(section, 2**31 - 1, 5, 1000)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_columns_encode_like_records():
    section = encode_section(*columns_of(RECORDS))
    assert bytes(section) == encode_records(RECORDS, 5, 1000)


def test_no_headers_at_all_need_no_list():
    records = [record._replace(headers=()) for record in RECORDS]
    timestamps, keys, values, _ = columns_of(records)
    expected = encode_records(records, 5, 1000)
    assert bytes(encode_section(timestamps, keys, values)) == expected
    assert bytes(encode_section(timestamps, keys, values, headers_column(None, 3))) == expected


def test_decoded_columns_encode_again_in_any_order_of_rows():
    """Rows are extents: an arena may hold them out of order, twice, or not at all."""
    columns = decode_section(encode_records(RECORDS, 5, 1000), 3, 5, 1000)
    keys, values = columns.keys, columns.values
    rows = np.array([2, 0, 0], np.int64)
    section = encode_section(
        columns.timestamps[rows],
        BytesColumn(keys.data, keys.starts[rows], keys.sizes[rows]),
        BytesColumn(values.data, values.starts[rows], values.sizes[rows]),
    )
    expected = [
        RECORDS[row]._replace(offset=number, headers=()) for number, row in enumerate([2, 0, 0])
    ]
    assert bytes(section) == encode_records(expected, 0, RECORDS[2].timestamp)


def test_extreme_timestamps_wrap():
    records = [Record(0, stamp, None, None) for stamp in (2**63 - 1, -(2**63), 0, -1)]
    for number, record in enumerate(records):
        records[number] = record._replace(offset=number)
    for first in range(len(records)):
        turned = [*records[first:], *records[:first]]
        rows = [record._replace(offset=row) for row, record in enumerate(turned)]
        base = rows[0].timestamp
        section = encode_section(*columns_of(rows))
        assert bytes(section) == encode_records(rows, 0, base)
        assert decode_section(section, 4, 0, base).to_records() == rows


def test_a_column_knows_its_bytes_if_it_is_made_of_a_list_and_is_encoded_alike_if_not():
    values = [b"", None, b"abc", b"de" * 100]
    column = BytesColumn.from_list(values)
    assert column.total_bytes == 203
    part = column.slice(0, 4)
    assert part.total_bytes is None
    times = np.zeros(4, np.int64)
    assert encode_section(times, part, part) == encode_section(times, column, column)


@pytest.mark.skipif(NO_JIT, reason="nothing is compiled")
def test_writable_and_read_only_arenas_share_one_compilation():
    encode_section(*columns_of(RECORDS))
    encode = len(kernels.encode_batches.signatures)
    timestamps, keys, values, _ = columns_of(RECORDS)
    writable = BytesColumn(keys.data.copy(), keys.starts, keys.sizes)
    section = encode_section(timestamps, writable, values)
    assert len(kernels.encode_batches.signatures) == encode
    decode_section(bytes(section), 3, 0, 1000)
    decode = len(kernels.decode_records.signatures)
    decode_section(section, 3, 0, 1000)
    assert len(kernels.decode_records.signatures) == decode


def test_batches_of_columns_match_the_plain_encoder():
    """`encode_batches`, the kernel and what calls it."""
    rows = [
        Record(7 + row, 1_000 + row % 3, None if row == 4 else b"k%d" % row, b"v" * row * 30)
        for row in range(9)
    ]
    bounds = [0, 1, 5, 9]
    times, keys, values, _ = columns_of(rows)
    data, extents = encode_batches(
        times, keys, values, None, bounds, first_offset=7, leader_epoch=3
    )
    expected = [
        build_batch(rows[first:last], partition_leader_epoch=3) for first, last in pairwise(bounds)
    ]
    assert bytes(data) == b"".join(expected)
    assert extents.tolist() == [
        [6 + last, max(record.timestamp for record in rows[first:last]), len(batch)]
        for (first, last), batch in zip(pairwise(bounds), expected, strict=True)
    ]


def test_batches_have_attributes_and_begin_anywhere_in_the_columns():
    times, keys, values, headers = columns_of(RECORDS)
    data, extents = encode_batches(
        times, keys, values, headers, [1, 3], first_offset=6, attributes=TIMESTAMP_TYPE_BIT
    )
    batch = RecordBatch(bytes(data))
    assert batch.is_valid()
    assert batch.header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert batch.records() == [each._replace(timestamp=2**50) for each in RECORDS[1:]]
    assert extents.tolist() == [[7, 2**50, len(data)]]


EDGE_SIZES = (None, 0, 1, 63, 64, 65, 127, 128, 129, 8191, 8192)
EDGE_DELTAS = (0, 63, -64, 64, 8191, -8192, 8192, 2**20 - 1, 2**20, 2**27 - 1, 2**27, -(2**40))


def test_batches_of_records_whose_numbers_are_of_every_size():
    """More records than are planned at a time; lengths and deltas that need a byte more.

    Each column ends with its arena, so that the last strings have no bytes behind them.
    """
    chance = random.Random(11)
    rows = []
    for row in range(3 * kernels.PLANNED_ROWS + 1):
        key, value = (
            None if size is None else chance.randbytes(size)
            for size in chance.choices(EDGE_SIZES, (4, 4, 9, 9, 9, 9, 9, 9, 9, 1, 1), k=2)
        )
        rows.append(Record(row, 2**41 + chance.choice(EDGE_DELTAS) * (row > 0), key, value))
    for first, last in ((0, len(rows)), (0, 1), (60, 70), (len(rows) - 1, len(rows))):
        times, keys, values, _ = columns_of(rows)
        data, extents = encode_batches(
            times, keys, values, None, (first, last), first_offset=first, leader_epoch=2
        )
        assert bytes(data) == build_batch(rows[first:last], partition_leader_epoch=2)
        alone = encode_batch(*columns_of(rows[first:last])[:3], first_offset=first, leader_epoch=2)
        assert alone == bytes(data)
        largest = max(record.timestamp for record in rows[first:last])
        assert extents.tolist() == [[last - 1, largest, len(data)]]


SMALL_ROWS = [Record(row, 50 - row, b"k%d" % row, b"v" * row) for row in range(40)]


@pytest.mark.parametrize(
    ("times", "cut"),
    (
        (np.arange(50, 10, -1), False),
        (np.arange(50, 10, -1), True),
        (np.arange(50, 10, -0.5).astype(np.int64)[::2], False),
    ),
    ids=("of lists", "slices", "with gaps"),
)
def test_a_batch_is_encoded_alike_whatever_columns_it_is_made_of(times, cut):
    _, keys, values, _ = columns_of(SMALL_ROWS)
    if cut:
        keys, values = keys.slice(0, 40), values.slice(0, 40)
    assert encode_batch(times, keys, values) == build_batch(SMALL_ROWS)


def test_a_batch_that_is_larger_than_a_desk_or_has_headers_is_encoded_as_others():
    rows = [Record(row, 7, b"k", b"v" * 9000) for row in range(9)]
    times, keys, values, _ = columns_of(rows)
    assert encode_batch(times, keys, values) == build_batch(rows)
    rows = [record._replace(offset=row) for row, record in enumerate(RECORDS)]
    batch = encode_batch(*columns_of(RECORDS), first_offset=5, attributes=TIMESTAMP_TYPE_BIT)
    assert RecordBatch(batch).is_valid()
    assert [each[2:] for each in RecordBatch(batch).records()] == [each[2:] for each in RECORDS]
    assert RecordBatch(batch).header.base_offset == 5


def test_two_batches_that_are_encoded_at_once_share_nothing(monkeypatch):
    """The second one begins and ends while the first is not copied out yet."""
    columns, others = columns_of(SMALL_ROWS)[:3], columns_of(RECORDS[:1])[:3]
    encode, found = columns_module._encode, []

    class Interrupted:
        @staticmethod
        def entry(*arguments):
            monkeypatch.setattr(columns_module, "_encode", encode)
            size = encode(*arguments)
            found.append(encode_batch(*others))
            return size

    monkeypatch.setattr(columns_module, "_encode", Interrupted)
    assert encode_batch(*columns) == build_batch(SMALL_ROWS)
    assert found == [build_batch([RECORDS[0]._replace(offset=0)])]


def outcome(decode, section, count):
    try:
        return decode(section, count, 3, 1000)
    except InvalidRecordError:
        return None


def assert_decoded_alike(section, count):
    found = outcome(decode_section, section, count)
    assert (found and found.to_records()) == outcome(decode_records, section, count), section.hex()
    assert not found or min(found.keys.sizes.min(), found.values.sizes.min()) >= -1


def test_sections_of_records_whose_numbers_are_of_every_size():
    chance = random.Random(12)
    for share_of_headers in (0, 0.1, 1):
        rows = []
        for row in range(300):
            key, value = (
                None if size is None else chance.randbytes(size)
                for size in chance.choices(EDGE_SIZES, (4, 4, 9, 9, 9, 9, 9, 9, 9, 1, 1), k=2)
            )
            headers = (("h", b"1"),) if chance.random() < share_of_headers else ()
            offset = 3 + row + 8300 * (row > 200)
            rows.append(Record(offset, 1000 + chance.choice(EDGE_DELTAS), key, value, headers))
        section = encode_records(rows, 3, 1000)
        assert decode_section(section, 300, 3, 1000).to_records() == rows


def spelled(number, size):
    """Return a varint of so many bytes, the last of which may say nothing."""
    zigzag = number << 1 ^ number >> 31
    return bytes(zigzag >> 7 * byte & 0x7F | 0x80 * (byte < size - 1) for byte in range(size))


def test_varints_may_be_longer_than_their_numbers_need():
    for sizes in product((1, 2, 3), repeat=5):
        *others, key, value = (
            spelled(number, size) for number, size in zip((-5, 0, 1, 2), sizes[1:], strict=True)
        )
        body = b"\0" + b"".join(others) + key + b"k" + value + b"vv" + b"\0"
        record = spelled(len(body), sizes[0]) + body
        assert_decoded_alike(record * 2 + encode_records(RECORDS, 3, 1000), 5)


def test_sections_with_one_byte_another_one_or_cut_are_judged_as_by_the_plain_decoder():
    """Numbers of one and two bytes, nulls; a record behind them, so that nothing ends early."""
    rows = [
        Record(3, 1000, b"key", b"v" * 70),
        Record(4 + 70, 1000 - 100, None, b"v"),
        Record(5 + 70, 1000, b"", None),
        Record(6 + 70, 1000, b"k" * 63 + b"\x08", b"abc"),  # as if it were a length
        Record(7 + 70, 1000, b"last", b"value"),
    ]
    section = encode_records(rows, 3, 1000)
    for place in range(len(section)):
        assert_decoded_alike(section[:place], 5)
        for byte in (0, 1, 2, 3, 4, 0x7F, 0x80, 0x81, 0x94, 0xFE, 0xFF):
            assert_decoded_alike(section[:place] + bytes([byte]) + section[place + 1 :], 5)


def test_a_batch_is_decoded_into_columns():
    data = build_batch(RECORDS, partition_leader_epoch=1)
    columns = decode_batch(data)
    assert columns.to_records() == RECORDS
    assert columns.section_bytes == len(data) - HEADER_SIZE
    assert columns.values.data.tobytes() == data
    emptied = data[: HEADER_SIZE - 4] + bytes(4)  # as compaction leaves one
    assert decode_batch(emptied).section_bytes == 0
    stamped = RecordBatch(data).with_timestamp(TimestampType.LOG_APPEND_TIME, 77).data
    assert decode_batch(stamped).timestamps.tolist() == [77] * 3


def test_a_batch_that_cannot_be_decoded_into_columns_reports_the_reason():
    data = build_batch(RECORDS)
    count = HEADER_SIZE - 4
    for bad, why in (
        (data[: HEADER_SIZE - 1], "batch of 60 bytes is smaller than its header"),
        (build_batch(RECORDS, codec=Codec.GZIP), "the batch is compressed"),
        (data[:count] + b"\xff" * 4 + data[HEADER_SIZE:], "negative record count -1"),
        (data[:count] + b"\0\0\xff\0" + data[HEADER_SIZE:], "65280 records cannot fit"),
        (data[:-1] + b"\1", "record 2 of 3: a header count is negative"),
    ):
        with pytest.raises(InvalidRecordError, match=why):
            decode_batch(bad)


def test_the_start_of_a_null_row_is_ignored():
    sizes = np.array([-1, 3, 0], np.int32)
    column = BytesColumn(
        np.frombuffer(b"key" + bytes(90), np.uint8), np.array([-(2**50), 0, 999]), sizes
    )
    data, _ = encode_batches(np.zeros(3, np.int64), column, column, None, (0, 3))
    records = [Record(row, 0, each, each) for row, each in enumerate((None, b"key", b""))]
    assert bytes(data) == build_batch(records)


@pytest.mark.parametrize(
    ("room", "most", "bounds"),
    (
        (100, 9, [0, 3, 5, 6]),
        (100, 2, [0, 2, 4, 5, 6]),
        (1, 9, [0, 1, 2, 3, 4, 5, 6]),
        (78, 9, [0, 3, 4, 5, 6]),
        (77, 9, [0, 2, 3, 4, 5, 6]),
        (1 << 20, 9, [0, 6]),
    ),
)
def test_batches_are_cut_by_upper_bounds_of_sizes(room, most, bounds):
    """`find_bounds`: each record may take 21 bytes in addition to key and value."""
    keys = BytesColumn.from_list([b"k" * 5, None, b"", b"k" * 9, b"k", b"k" * 200])
    values = BytesColumn.from_list([b"v" * 5, b"v" * 5, None, b"v" * 30, b"v", b""])
    assert find_bounds(keys, values, room, most) == bounds
