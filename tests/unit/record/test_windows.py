"""Large batches are decoded some records at a time, with the same results."""

import random
import struct
import tracemalloc

import pytest

from logstore.errors import CorruptRecordError, InvalidRecordError
from logstore.jit import policy
from logstore.record import batch as batches
from logstore.record import codecs, columns, kernels
from logstore.record.batch import RecordBatch, RecordFacts, build_batch
from logstore.record.codecs import Codec, compress, decompress, size_bound
from logstore.record.records import Record, decode_records, decode_windows
from logstore.types import TimestampType
from tests.fuzz.mutate import repair_batches
from tests.support.world.builders import CODECS, MIB
from tests.support.world.messages import exactly
from tests.unit.record.test_codecs import lz4_frame

ROWS = 7
COUNTS = (1, 2, 6, 7, 8, 13, 14, 15, 50)


@pytest.fixture(params=("python", "kernel"))
def windows(request, monkeypatch):
    """Decode seven records at a time, in each of the two ways."""
    monkeypatch.setattr(batches, "decodes_by_kernel", lambda count: request.param == "kernel")
    monkeypatch.setattr(batches, "LISTED_RECORDS_MAX", ROWS)
    decode = columns.decode_windows
    monkeypatch.setattr(
        columns, "decode_windows", lambda *arguments: decode(*arguments, rows_max=ROWS)
    )


def records_of(count, seed=0):
    rng = random.Random(seed)
    return [
        Record(
            offset,
            1000 + rng.randrange(-500, 500),
            None if rng.random() < 0.2 else rng.randbytes(rng.randrange(40)),
            None if rng.random() < 0.2 else rng.randbytes(rng.randrange(200)),
            tuple(("h", rng.randbytes(3)) for _ in range(rng.choice((0, 0, 2)))),
        )
        for offset in range(count)
    ]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("count", COUNTS)
def test_records_and_facts_match_all_records_at_once(windows, codec, count):
    records = records_of(count)
    batch = RecordBatch(build_batch(records, codec=codec))
    assert list(batch.iter_records()) == records
    assert [tuple(row) for rows in batch.row_lists() for row in rows] == records
    assert max(map(len, batch.windows()())) == min(count, ROWS)
    assert batch.facts() == RecordFacts(
        min(each.timestamp for each in records),
        max(each.timestamp for each in records),
        True,
        any(each.key is None for each in records),
    )


@pytest.mark.parametrize("at", (0, 6, 7, 20))
def test_a_null_key_is_noticed_wherever_it_is(windows, at):
    records = [Record(n, 5, None if n == at else b"k", b"v") for n in range(21)]
    assert RecordBatch(build_batch(records)).facts() == RecordFacts(5, 5, True, True)
    others = [each._replace(key=b"") for each in records]
    assert not RecordBatch(build_batch(others)).facts().has_null_key


@pytest.mark.parametrize("at", (1, 6, 7, 8, 13, 19))
def test_offsets_with_a_gap_or_twice_are_not_dense(windows, at):
    records = [Record(n + (n >= at), 5, b"k", b"v") for n in range(20)]
    assert not RecordBatch(build_batch(records)).facts().is_dense
    assert RecordBatch(build_batch(records[:at])).facts().is_dense
    dense = build_batch([Record(n, 5, b"k", b"v") for n in range(20)])
    # Record `at` gets the delta of the one before; each record has nine bytes.
    position = 61 + 9 * at + 3
    assert dense[position] == 2 * at
    again = repair_batches(dense[:position] + bytes([2 * at - 2]) + dense[position + 1 :])
    assert not RecordBatch(again).facts().is_dense


@pytest.mark.parametrize("base", (1, 40, 2**40))
def test_facts_do_not_depend_on_the_base_offset(windows, base):
    records = [Record(base + n, 5 + n, b"k", b"v") for n in range(20)]
    assert RecordBatch(build_batch(records)).facts() == RecordFacts(5, 24, True, False)
    del records[9]
    assert RecordBatch(build_batch(records)).facts() == RecordFacts(5, 24, False, False)


def test_a_batch_that_the_log_stamped_has_one_time(windows):
    records = [Record(n, n, b"k", b"v") for n in range(20)]
    data = build_batch(records, timestamp_type=TimestampType.LOG_APPEND_TIME, append_time=77)
    assert RecordBatch(data).facts()[:2] == (77, 77)
    assert {each.timestamp for each in RecordBatch(data).iter_records()} == {77}


@pytest.mark.parametrize("at", (0, 6, 7, 8, 19))
def test_a_damaged_record_is_an_error_before_any_record_is_given(windows, at):
    data = build_batch([Record(n, 5, b"k", b"v") for n in range(20)])
    position = 61 + 9 * at
    spoilt = RecordBatch(repair_batches(data[:position] + b"\xff" + data[position + 1 :]))
    for use in (spoilt.row_lists, spoilt.facts):
        with pytest.raises(InvalidRecordError):
            use()
    with pytest.raises(InvalidRecordError):
        decode_records(spoilt.section(), 20, 0, 0)


@pytest.mark.parametrize("at", (0, 6, 7, 19))
def test_an_error_names_the_record_by_its_number_in_the_batch(at):
    data = build_batch([Record(n, 5, b"k", b"v") for n in range(20)])[61:]
    spoilt = data[: 9 * at] + b"\xff" + data[9 * at + 1 :]
    with pytest.raises(InvalidRecordError, match=f"^record {at} of 20: "):
        list(columns.decode_windows(spoilt, 0, 20, 0, 0, rows_max=ROWS))


def test_an_early_end_names_the_record_by_its_number_in_the_batch():
    section = build_batch([Record(n, 5, b"k", b"v") for n in range(20)])[61:]
    with pytest.raises(InvalidRecordError, match="premature end: 20 of 23 records"):
        list(decode_windows(section, 23, 0, 5, None, rows_max=ROWS))


@pytest.mark.parametrize("count", (19, 21, 14, 7))
def test_a_count_that_is_wrong_is_an_error_before_any_record_is_given(windows, count):
    data = build_batch([Record(n, 5, b"k", b"v") for n in range(20)])
    spoilt = RecordBatch(repair_batches(data[:57] + struct.pack(">i", count) + data[61:]))
    for use in (spoilt.row_lists, spoilt.facts):
        with pytest.raises(InvalidRecordError, match=r"premature end|[Rr]ecords remaining"):
            use()


@pytest.mark.parametrize("codec", CODECS[1:])
def test_the_limit_of_decompressed_bytes_bounds_all_windows_together(windows, codec):
    data = build_batch([Record(n, 5, b"k", bytes(100)) for n in range(20)], codec=codec)
    size = len(RecordBatch(data).section())
    assert len(list(RecordBatch(data).windows(size)())) == 3
    with pytest.raises(CorruptRecordError) as caught:
        RecordBatch(data).windows(size - 1)
    assert caught.value.check == "decompressed_size"


def tiny_records(count):
    """Return a section of records of seven bytes that say nothing, as an attacker sends them."""
    return b"\x0c\0\0\0\x01\0\0" * count


def large_batch(count, codec):
    head = build_batch([Record(0, 5, None, b"")])[:61]
    section = compress(codec, tiny_records(count))
    attributes = struct.pack(">hi", codec, count - 1)
    data = head[:21] + attributes + head[27:57] + struct.pack(">i", count) + section
    return repair_batches(data[:8] + struct.pack(">i", len(data) - 12) + data[12:])


def peak_of(call):
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        call()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


@pytest.mark.skipif(policy.MODE == policy.PYTHON, reason="nothing is compiled")
@pytest.mark.parametrize("codec", CODECS)
def test_the_memory_for_facts_does_not_grow_with_the_records(codec, monkeypatch):
    count = 300_000
    monkeypatch.setattr(kernels.decode_records.group, "is_compiled", True)
    batch = RecordBatch(large_batch(count, codec))
    batch.facts()  # later calls use the loaded facts
    room = columns.WINDOW_RECORDS * 8 * kernels.DECODED_COLUMNS
    assert peak_of(batch.facts) < 1.5 * 7 * count + 2 * room
    assert batch.facts() == RecordFacts(5, 5, False, True)


def test_the_memory_for_facts_is_small_without_a_compiler(monkeypatch):
    monkeypatch.setattr(batches, "decodes_by_kernel", lambda count: False)
    count = 20_000
    batch = RecordBatch(large_batch(count, Codec.ZSTD))
    assert peak_of(batch.facts) < 4 * MIB


@pytest.mark.parametrize("codec", CODECS[1:])
def test_decompressed_data_is_in_memory_once(codec):
    section = compress(codec, bytes(32 * MIB))
    assert peak_of(lambda: decompress(codec, section)) < 1.4 * 32 * MIB


# -- bounds without decompression --------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    "data", (b"", b"x", b"abc" * 1000, bytes(200_000), random.Random(1).randbytes(30_000))
)
def test_no_section_decompresses_to_more_than_its_bound(codec, data):
    section = compress(codec, data)
    assert size_bound(codec, section) >= len(data)


@pytest.mark.parametrize("codec", (Codec.LZ4, Codec.ZSTD))
def test_the_bound_of_a_short_section_matches_its_blocks(codec):
    """A batch of a usual size is not taken for a bomb."""
    data = b"some text that repeats itself " * 1000
    assert size_bound(codec, compress(codec, data)) <= 128 << 10
    assert size_bound(codec, compress(codec, bytes(64 * MIB))) > 2 * MIB


@pytest.mark.parametrize(
    ("codec", "ratio"),
    (
        (Codec.NONE, 1),
        (Codec.GZIP, 1032),
        (Codec.SNAPPY, 22),
        (Codec.LZ4, 255),
        (Codec.ZSTD, 32768),
    ),
)
def test_the_bound_of_a_long_section_is_its_size_times_the_largest_ratio(codec, ratio):
    for section in (bytes(16385), bytearray(16386), memoryview(bytes(16387))):
        assert size_bound(codec, section) == ratio * len(section)


def zstd_blocks(*blocks, checksum=False):
    """Return a zstd frame of (type, size, bytes) blocks; the last one ends it."""
    data = bytes.fromhex("28b52ffd") + bytes([0x04 if checksum else 0x00, 0x58])
    for number, (kind, size, payload) in enumerate(blocks, 1):
        data += (size << 3 | kind << 1 | (number == len(blocks))).to_bytes(3, "little") + payload
    return data + bytes(4 * checksum)


@pytest.mark.parametrize(
    ("data", "bound"),
    (
        (b"", 0),
        (zstd_blocks((0, 5, b"bytes")), 5),
        (zstd_blocks((1, 70_000, b"x")), 70_000),
        (zstd_blocks((2, 9, bytes(9))), 131_072),
        (zstd_blocks((1, 7, b"x"), (0, 2, b"ab"), (2, 3, b"abc")), 7 + 2 + 131_072),
        (zstd_blocks((1, 7, b"x"), checksum=True) + zstd_blocks((0, 1, b"y")), 8),
        (b"\x50\x2a\x4d\x18\x03\0\0\0abc" + zstd_blocks((0, 1, b"y")), 1),
        (zstd_blocks((0, 1, b"y")) + b"\x5f\x2a\x4d\x18\0\0\0\0", 1),
        (zstd_blocks((0, 1, b"y")) + b"\x5f\x2a\x4d\x18\1\0\0\0", 0),
        (zstd_blocks((1, 7, b"x"), checksum=True)[:-1], 0),
        (zstd_blocks((0, 5, b"byte")), 0),
    ),
)
def test_the_bound_of_zstd_is_the_sum_over_its_blocks(data, bound):
    assert size_bound(Codec.ZSTD, data) == bound


@pytest.mark.parametrize("has_checksums", (False, True))
def test_the_bound_of_lz4_counts_every_block(has_checksums):
    """The library writes no checksums of blocks by default, but clients may."""
    plain = b"x" * (64 << 10)
    blocks = lz4_frame(*[plain] * 20, flags=0x70 if has_checksums else 0x60)
    assert len(decompress(Codec.LZ4, blocks)) == 20 * len(plain)
    assert size_bound(Codec.LZ4, blocks) == 20 * len(plain)


def test_the_bound_of_a_damaged_section_is_nothing():
    assert size_bound(Codec.ZSTD, b"no zstd") == 0
    assert size_bound(Codec.LZ4, b"no lz4 frame") == 0


@pytest.mark.parametrize("codec", (Codec.LZ4, Codec.ZSTD))
def test_only_a_short_section_is_walked_for_its_bound(codec):
    longest = codecs._WALKED_BYTES
    assert size_bound(codec, bytes(longest)) == 0
    assert size_bound(codec, bytes(longest + 1)) > longest


def test_a_negative_count_is_refused_and_a_count_of_zero_is_one_empty_list():
    assert list(decode_windows(b"", 0, 0, 0, rows_max=ROWS)) == [[]]
    with pytest.raises(InvalidRecordError, match=exactly("negative record count -1")):
        list(decode_windows(b"", -1, 0, 0, rows_max=ROWS))
