"""Record batches: golden vectors to the byte, validity, in-place edits, building."""

import random
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

from logstore.errors import CorruptRecordError, InvalidRecordError
from logstore.record.batch import (
    RecordBatch,
    build_batch,
    pack_batch,
    pack_record,
    seal_batch,
)
from logstore.record.choice import SMALL_BATCH_RECORDS
from logstore.record.codecs import Codec
from logstore.record.control import ControlType, EndTxnMarker, end_txn_marker_of
from logstore.record.header import BatchHeader
from logstore.record.records import Record, encode_headers, encode_record, encode_records
from logstore.types import TimestampType
from tests.support.oracles.cleaner_oracle import empty_batch
from tests.support.world import golden
from tests.support.world.edited_batches import with_max_timestamp, with_offset_and_epoch
from tests.support.world.messages import exactly

ROOT = Path(__file__).resolve().parents[3]
G3_PRODUCER = {
    "partition_leader_epoch": 3,
    "producer_id": 4000,
    "producer_epoch": 7,
    "base_sequence": 11,
}
LARGE = 5 * SMALL_BATCH_RECORDS


def many(count, base=0):
    return [
        Record(base + n, 1000 + n % 7, b"k%d" % n, None if n % 5 == 0 else b"v" * (n % 9))
        for n in range(count)
    ]


def resealed(data, **changes):
    """The batch with header fields changed and the CRC made right again."""
    header = BatchHeader.unpack_from(data)._replace(**changes)
    batch = RecordBatch(header.pack() + data[61:])
    return header._replace(crc=batch.computed_crc()).pack() + data[61:]


# --- golden vectors ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", golden.BATCHES)
def test_golden_batches_are_valid(name):
    batch = RecordBatch(golden.BATCHES[name])
    assert batch.is_valid()
    batch.ensure_valid()
    assert batch.computed_crc() == batch.header.crc


def test_s001_decodes_g1():
    """S-001: three records; a null key, a null value and headers; max timestamp of the second."""
    batch = RecordBatch(golden.G1)
    assert batch.records() == list(golden.G1_RECORDS)
    records = batch.records()
    assert [record.offset for record in records] == [0, 1, 2]
    assert [record.timestamp for record in records] == [1000, 1005, 990]
    assert [record.key for record in records] == [b"k1", b"k2", None]
    assert [record.value for record in records] == [b"v1", None, b"v3"]
    assert records[2].headers == (("h", (7).to_bytes(8, "big")), ("n", None))
    assert batch.header.max_timestamp == 1005
    assert batch.codec is Codec.NONE


@pytest.mark.parametrize(
    ("name", "codec"),
    (
        ("G2g", Codec.GZIP),
        ("G2s", Codec.SNAPPY),
        ("G2l", Codec.LZ4),
        ("G2z", Codec.ZSTD),
    ),
)
def test_golden_compressed_batches(name, codec):
    batch = RecordBatch(golden.BATCHES[name])
    assert batch.codec is codec
    assert batch.records() == list(golden.G2_RECORDS)
    ours = RecordBatch(build_batch(golden.G2_RECORDS, codec=codec))
    ours.ensure_valid()
    assert ours.records() == list(golden.G2_RECORDS)
    assert ours.header._replace(crc=0, batch_length=0) == batch.header._replace(
        crc=0, batch_length=0
    )


def test_builds_g1_g3_g4_g8_to_the_byte():
    assert build_batch(golden.G1_RECORDS) == golden.G1
    assert build_batch(golden.G3_RECORDS, **G3_PRODUCER) == golden.G3
    assert build_batch(golden.G3_RECORDS, **G3_PRODUCER, is_transactional=True) == golden.G4
    assert build_batch(golden.G8_RECORDS, base_offset=0, delete_horizon_ms=5100) == golden.G8


def test_s009_markers_build_and_decode():
    """S-009: G5 and G6 are 78 bytes, transactional control batches of pid 4000 epoch 7."""
    for data, kind in ((golden.G5, ControlType.COMMIT), (golden.G6, ControlType.ABORT)):
        batch = RecordBatch(data)
        assert len(data) == 78
        assert batch.header.is_control
        assert batch.header.is_transactional
        assert (batch.header.producer_id, batch.header.producer_epoch) == (4000, 7)
        assert batch.header.base_sequence == -1
        assert end_txn_marker_of(batch) == EndTxnMarker(kind, 9)
        producer = {**G3_PRODUCER, "base_sequence": -1}
        again = build_batch(batch.records(), **producer, is_transactional=True, is_control=True)
        assert again == data


def test_s014_delete_horizon_batch():
    """S-014: G8."""
    batch = RecordBatch(golden.G8)
    header = batch.header
    assert header.attributes == 0x40
    assert header.delete_horizon_ms == 5100
    assert (header.base_offset, header.last_offset_delta, header.max_timestamp) == (0, 1, 1005)
    assert batch.records() == [Record(1, 1005, b"k2", None)]


def test_golden_cleaned_segments_are_rebuilt_to_the_byte():
    """Batches of E1 and E2, each built again from its records and header."""
    for segment in (golden.E1_INPUT, golden.E1_PASS_1, golden.E1_PASS_2, golden.E2_PASS_1):
        data = segment.log
        while data:
            header = BatchHeader.unpack_from(data)
            raw, data = data[: header.size_bytes], data[header.size_bytes :]
            if header.record_count == 0:
                assert empty_batch(header) == raw
                continue
            again = build_batch(
                RecordBatch(raw).records(),
                base_offset=header.base_offset,
                last_offset=header.last_offset,
                delete_horizon_ms=header.delete_horizon_ms,
                partition_leader_epoch=header.partition_leader_epoch,
                producer_id=header.producer_id,
                producer_epoch=header.producer_epoch,
                base_sequence=header.base_sequence,
                is_transactional=header.is_transactional,
                is_control=header.is_control,
            )
            assert again == raw


# --- validity ---------------------------------------------------------------------------------


def test_s002_offset_and_epoch_are_outside_the_crc():
    """S-002: base offset and leader epoch may change, any bit from attributes on may not."""
    data = golden.G3
    rng = random.Random(2)
    for _ in range(20):
        moved = rng.randbytes(8) + data[8:12] + rng.randbytes(4) + data[16:]
        RecordBatch(moved).ensure_valid()
    moved = with_offset_and_epoch(data, 2**40, 9)
    header = RecordBatch(moved).header
    assert (header.base_offset, header.partition_leader_epoch) == (2**40, 9)
    assert (moved[8:12], moved[16:]) == (data[8:12], data[16:])
    for bit in range(21 * 8, len(data) * 8):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        batch = RecordBatch(bytes(flipped), "a.log", 55)
        assert not batch.is_valid()
        with pytest.raises(CorruptRecordError) as caught:
            batch.ensure_valid()
        error = caught.value
        assert f"stored crc = {0xB9B267A3}" in str(error)
        assert f"computed crc = {batch.computed_crc()}" in str(error)
        assert (error.path, error.position, error.check) == ("a.log", 55, "crc")
        assert (error.expected, error.found) == (0xB9B267A3, batch.computed_crc())


@pytest.mark.parametrize(
    ("size", "message"),
    (
        (17, ("a.log at position 5: batch of 17 bytes is smaller than its header")),
        (26, ("a.log at position 5: batch of 26 bytes is smaller than its header")),
        (60, ("a.log at position 5: batch of 60 bytes is smaller than its header")),
    ),
)
def test_s012_a_batch_smaller_than_its_header_is_corrupt(size, message):
    """S-012: a walk yields batches that validation and decoding refuse."""
    batch = RecordBatch(golden.G3[:size], "a.log", 5)
    assert not batch.is_valid()
    for use in (batch.ensure_valid, batch.records):
        with pytest.raises(CorruptRecordError, match=exactly(message)) as caught:
            use()
        assert (caught.value.check, caught.value.found) == ("batch_size", size)


@pytest.mark.parametrize("count", (3, LARGE))
@pytest.mark.parametrize("codec", (Codec.NONE, Codec.LZ4))
def test_s003_record_counts_that_lie(count, codec):
    """S-003: by one too few, one too many, or negative; small and large batches alike."""
    data = build_batch(many(count), codec=codec)
    for counted, message in (
        (count - 1, "records remaining"),
        (count + 1, "premature end"),
        (2**31 - 1, "premature end"),
        (-1, "negative record count -1"),
        (-(2**31), "negative record count"),
    ):
        lying = RecordBatch(resealed(data, record_count=counted))
        lying.ensure_valid()
        with pytest.raises(InvalidRecordError, match=message):
            lying.records()


def test_a_count_of_zero_over_records_is_refused():
    with pytest.raises(
        InvalidRecordError, match=exactly("records remaining: 43 bytes after 0 records")
    ):
        RecordBatch(resealed(golden.G1, record_count=0)).records()


def test_damage_inside_a_compressed_section_is_corruption():
    data = bytearray(golden.G2_ZSTD)
    data[61] ^= 0xFF
    with pytest.raises(
        CorruptRecordError,
        match=exactly(
            "zstd frame header at byte 0 is damaged: cannot get frame parameters: "
            "Unknown frame descriptor"
        ),
    ):
        RecordBatch(bytes(data)).records()


def test_sections_unfold_only_so_far():
    batch = RecordBatch(build_batch([Record(0, 0, None, bytes(100_000))], codec=Codec.GZIP))
    assert len(batch.section(limit=100_100)) > 100_000
    with pytest.raises(CorruptRecordError):
        batch.section(limit=1000)


@pytest.mark.parametrize("append_time", (None, 99))
@pytest.mark.parametrize("codec", (Codec.NONE, Codec.ZSTD))
def test_columns_hold_what_records_do(codec, append_time):
    kind = TimestampType.CREATE_TIME if append_time is None else TimestampType.LOG_APPEND_TIME
    data = build_batch(many(20), codec=codec, timestamp_type=kind, append_time=append_time)
    batch = RecordBatch(data)
    assert batch.columns().to_records() == batch.records()
    assert RecordBatch(golden.G7).columns().to_records() == []
    with pytest.raises(
        CorruptRecordError, match=exactly("batch of 60 bytes is smaller than its header")
    ):
        RecordBatch(data[:60]).columns()


@pytest.mark.parametrize("is_control", (False, True))
def test_a_producer_without_an_epoch_is_refused(is_control):
    """As Kafka's MemoryRecordsBuilder does."""
    with pytest.raises(ValueError, match="a batch of producer 1 has no epoch: -1"):
        build_batch(many(1), producer_id=1, base_sequence=0, is_control=is_control)


# --- in-place edits ---------------------------------------------------------------------------


def test_s006_stamping_changes_bytes_only_if_something_differs():
    """S-006: equal type and value leave the bytes; another type gives vector G9."""
    created = build_batch(golden.G9_RECORDS, partition_leader_epoch=0)
    assert with_max_timestamp(created, TimestampType.CREATE_TIME, 5) == created
    stamped = with_max_timestamp(created, TimestampType.LOG_APPEND_TIME, 1700000000000)
    assert stamped == golden.G9
    assert with_max_timestamp(stamped, TimestampType.LOG_APPEND_TIME, 1700000000000) == stamped
    before, after = RecordBatch(created).header, RecordBatch(stamped).header
    assert (before.attributes, after.attributes) == (0, 0x08)
    assert before.base_timestamp == after.base_timestamp == 5
    assert before.crc != after.crc
    assert RecordBatch(stamped).records() == [Record(0, 1700000000000, b"a", b"1")]
    later = with_max_timestamp(stamped, TimestampType.LOG_APPEND_TIME, 1700000000001)
    RecordBatch(later).ensure_valid()
    assert RecordBatch(later).header.max_timestamp == 1700000000001
    back = with_max_timestamp(stamped, TimestampType.CREATE_TIME, 5)
    assert back == created


def test_stamping_keeps_the_other_attribute_bits():
    data = build_batch(
        many(3),
        codec=Codec.LZ4,
        producer_id=1,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    stamped = RecordBatch(with_max_timestamp(data, TimestampType.LOG_APPEND_TIME, 77))
    stamped.ensure_valid()
    assert stamped.header.attributes == 3 | 0x08 | 0x10
    assert {record.timestamp for record in stamped.records()} == {77}


def test_stamping_clears_the_bits_without_a_meaning():
    """Kafka 3.9.2 makes `00 08` of the attributes `05 80` of vector G9."""
    header = RecordBatch(golden.G9).header._replace(attributes=0x0580)
    data = header.pack() + golden.G9[61:]
    stamped = RecordBatch(with_max_timestamp(data, TimestampType.LOG_APPEND_TIME, 77))
    stamped.ensure_valid()
    assert stamped.data[21:23] == b"\x00\x08"
    same = with_max_timestamp(data, TimestampType.CREATE_TIME, header.max_timestamp)
    assert same == data, "a correct batch is not changed"


@pytest.mark.parametrize("count", (3, LARGE))
def test_append_time_is_every_records_timestamp(count):
    data = build_batch(many(count), timestamp_type=TimestampType.LOG_APPEND_TIME, append_time=99)
    header = RecordBatch(data).header
    assert (header.base_timestamp, header.max_timestamp) == (1000, 99)
    assert [record.timestamp for record in RecordBatch(data).records()] == [99] * count


def test_s007_empty_batch():
    """S-007: G7; last sequence 13, nothing to iterate, base timestamp -1, codec none."""
    source = BatchHeader.unpack_from(
        build_batch(
            [Record(offset, 1700000000000, b"k", b"v") for offset in range(3, 7)],
            codec=Codec.GZIP,
            delete_horizon_ms=5,
            partition_leader_epoch=293,
            producer_id=23,
            producer_epoch=5,
            base_sequence=10,
        )
    )
    data = empty_batch(source)
    assert data == golden.G7
    batch = RecordBatch(data)
    assert len(data) == 61
    assert batch.header.last_sequence == 13
    assert batch.header.record_count == 0
    assert batch.records() == []
    assert batch.header.base_timestamp == -1
    assert batch.header.delete_horizon_ms is None
    assert batch.codec is Codec.NONE


def test_an_empty_batch_retains_its_timestamp_type_and_attributes():
    source = BatchHeader.unpack_from(golden.G5)
    kept = RecordBatch(empty_batch(source._replace(attributes=0x38)))
    assert kept.header.attributes == 0x38
    assert kept.records() == []


# --- building ---------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", (Codec.NONE, Codec.ZSTD))
def test_a_batch_that_was_made_knows_the_header_of_its_bytes(codec):
    made = RecordBatch(
        build_batch([Record(3, 5, b"k", b"v"), Record(7, 9, None, b"")], codec=codec)
    )
    for each in (
        made,
        made.with_place(2**40, 9),
        made.with_timestamp(TimestampType.LOG_APPEND_TIME, 77),
    ):
        assert each.header == BatchHeader.unpack_from(each.data)
        each.ensure_valid()


def test_s008_base_timestamps_below_minus_one_are_refused():
    """S-008: -2 is an argument error, -1 is accepted."""
    with pytest.raises(ValueError, match=exactly("invalid message timestamp -2")):
        build_batch([Record(0, -2, b"k", b"v")])
    with pytest.raises(ValueError, match=exactly("invalid message timestamp -2")):
        seal_batch(b"", last_offset_delta=0, record_count=0, base_timestamp=-2, max_timestamp=-1)
    data = build_batch([Record(0, -1, b"k", b"v")])
    assert RecordBatch(data).header.base_timestamp == -1
    assert RecordBatch(data).records() == [Record(0, -1, b"k", b"v")]


@pytest.mark.parametrize("count", (1, SMALL_BATCH_RECORDS, SMALL_BATCH_RECORDS + 1, LARGE))
@pytest.mark.parametrize("codec", Codec)
def test_batches_of_any_size_and_codec_survive(count, codec):
    records = many(count, base=10**12)
    batch = RecordBatch(build_batch(records, codec=codec))
    batch.ensure_valid()
    assert batch.records() == records
    assert (batch.header.base_offset, batch.header.last_offset) == (10**12, 10**12 + count - 1)


def test_offsets_may_have_gaps_and_a_wider_span():
    records = [Record(5, 1, b"a", None), Record(9, 0, b"b", None)]
    batch = RecordBatch(build_batch(records, base_offset=3, last_offset=20))
    assert batch.records() == records
    assert (batch.header.base_offset, batch.header.last_offset) == (3, 20)
    assert batch.header.max_timestamp == 1


@pytest.mark.parametrize(
    ("offsets", "span", "message"),
    (
        ((), {}, "a batch needs at least one record"),
        ((5, 5), {}, "the offsets of records in a batch must increase"),
        ((5, 4), {}, "records of offsets 5 to 4 do not fit a batch of 5 to 4"),
        ((5, 7, 6, 8), {}, "the offsets of records in a batch must increase"),
        ((5,), {"base_offset": 6}, "records of offsets 5 to 5 do not fit a batch of 6 to 5"),
        ((5,), {"last_offset": 4}, "records of offsets 5 to 5 do not fit a batch of 5 to 4"),
        (
            (0, 2**31),
            {},
            ("records of offsets 0 to 2147483648 do not fit a batch of 0 to 2147483648"),
        ),
        (
            (2**31,),
            {"base_offset": 0},
            ("records of offsets 2147483648 to 2147483648 do not fit a batch of 0 to 2147483648"),
        ),
        (
            (0,),
            {"last_offset": 2**31},
            ("records of offsets 0 to 0 do not fit a batch of 0 to 2147483648"),
        ),
    ),
)
def test_offsets_that_cannot_be_stored_are_refused(offsets, span, message):
    records = [Record(offset, 0, b"k", b"v") for offset in offsets]
    with pytest.raises(InvalidRecordError, match=exactly(message)):
        build_batch(records, **span)


def test_the_widest_span_is_accepted():
    records = [Record(7, 0, b"a", b""), Record(7 + 2**31 - 1, 0, b"b", b"")]
    assert RecordBatch(build_batch(records)).records() == records


def test_seal_batch_takes_any_section():
    section = encode_records(golden.G2_RECORDS, 0, 1000)
    data = seal_batch(
        memoryview(section),
        codec=Codec.SNAPPY,
        last_offset_delta=1,
        record_count=2,
        base_timestamp=1000,
        max_timestamp=1005,
    )
    assert RecordBatch(data).records() == list(golden.G2_RECORDS)


SIZES = (None, 0, 1, 63, 64, 1023, 1024, 8191, 8192, 70_000)


@pytest.mark.parametrize("headers", ((), (("h", b"1"), ("h", None))))
def test_a_record_is_packed_in_one_step_as_in_two(headers):
    """Keys and values around each length of their sizes, and none."""
    for row, (key_size, value_size) in enumerate([*product(SIZES, SIZES)]):
        key, value = (None if size is None else bytes(size) for size in (key_size, value_size))
        encoded = encode_headers(headers)
        attributes, timestamp, largest = (0, row, row) if row % 2 else (8, -1, 1 << 40)
        section = encode_record(0, 0, key, value, encoded)
        assert pack_record(
            key, value, encoded, 1 << 33, row, attributes, timestamp, largest
        ) == pack_batch(section, 1 << 33, row, attributes, 0, timestamp, largest, -1, -1, -1, 1)


def test_a_batch_describes_itself():
    assert repr(RecordBatch(golden.G1)) == "RecordBatch(offsets 0..2, 3 records, 104 bytes)"


# --- start-up ---------------------------------------------------------------------------------


def test_importing_batches_pulls_in_no_array_or_codec_library():
    """Below the compilation threshold, numba's second of start-up must not be spent."""
    code = (
        "import sys, logstore.record.batch, logstore.record.walk, logstore.runtime\n"
        "heavy = {'numpy', 'numba', 'llvmlite', 'lz4', 'zstandard', 'cramjam', 'xxhash'}\n"
        "print(sorted(heavy & {name.partition('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
