"""Readable cases of the cleaner's kernels; the property tests generate the others."""

from __future__ import annotations

import numpy as np
import pytest

from logstore.cleaner.kernels import table as table_kernels
from logstore.cleaner.kernels.assemble import assemble_batches, write_header, write_kept_records
from logstore.cleaner.kernels.classify import RETAINED
from logstore.cleaner.kernels.offsets import map_get, map_put
from logstore.cleaner.kernels.slots import MAX_OFFSET_SPAN, siphash128
from logstore.cleaner.kernels.table import (
    COL_ATTRIBUTES,
    COL_BASE_OFFSET,
    COL_BASE_TIMESTAMP,
    COL_CONTROL,
    COL_DISCARD,
    COL_FORM,
    COL_KEPT,
    COL_LAST_OFFSET,
    COL_MAX_TIMESTAMP,
    COL_OUT_BASE_TIMESTAMP,
    COL_OUT_MAX_TIMESTAMP,
    COL_POSITION,
    COL_PRODUCER_EPOCH,
    COL_PRODUCER_ID,
    COL_RECORD_COUNT,
    COL_SECTION_END,
    COL_SECTION_START,
    COL_SIZE,
    COL_VERDICT,
    COMPRESSED,
    DAMAGED,
    DISCARD_ABORTED,
    DISCARD_NONE,
    DISCARD_NONE_MAPPED,
    FORM_EMPTY,
    FORM_REBUILT,
    MAP_FULL,
    MISPLACED,
    TABLE_COLUMNS,
    VERDICT_RETAIN_EMPTY,
    Scan,
    keep_last_batches,
    list_transactional,
    read_control_types,
    scan_batches,
)
from logstore.cleaner.passes.offset_map import OffsetMap
from logstore.record.batch import RecordBatch, build_batch, seal_batch
from logstore.record.kernels import OK
from logstore.record.layout import (
    CONTROL_BIT,
    TRANSACTIONAL_BIT,
)
from logstore.record.records import Record, encode_records
from logstore.types import INT64_MAX, TimestampType
from tests.support.oracles import cleaner_oracle as oracle
from tests.support.world.kernel_calls import FORMS, array, assemble, build, classify, scan

KEY = bytes(range(16))
K0 = int.from_bytes(KEY[:8], "little")
K1 = int.from_bytes(KEY[8:], "little")

# Hashes of the message 00 01 02 … with key 00 … 0f, by length. The 2-4 column is the reference
# implementation's, the 1-3 column was made with OpenSSL's SIPHASH (c-rounds 1, d-rounds 3).
SIPHASH_VECTORS = {
    0: ("a3817f04ba25a8e66df67214c7550293", "e77ebcb22788a5befd62db6add303001"),
    1: ("da87c1d86b99af44347659119b22fc45", "fc6f370460d3eda85e0573cc2b2ff063"),
    7: ("a1f1ebbed8dbc153c0b84aa61ff08239", "1084b923f2aae0c3a62f2ec80848ab77"),
    8: ("3b62a9ba6258f5610f83e264f31497b4", "aa12fee1d5e3dab4724f16ab35f9c799"),
    15: ("5493e99933b0a8117e08ec0f97cfc3d9", "c17e5505b2bd526c2921cdec1e7e0109"),
    63: ("5150d1772f50834a503e069a973fbd7c", "4c5800e34efe426f079f6b0aa75260ad"),
}


def digest(words: tuple) -> str:
    return b"".join(int(word).to_bytes(8, "little") for word in words).hex()


@pytest.mark.parametrize("size", SIPHASH_VECTORS)
def test_the_oracle_of_siphash_agrees_with_the_vectors(size: int) -> None:
    message = bytes(range(size))
    official, fast = SIPHASH_VECTORS[size]
    assert digest(oracle.siphash128(message, K0, K1, 2, 4)) == official
    assert digest(oracle.siphash128(message, K0, K1, 1, 3)) == fast


@pytest.mark.parametrize("size", SIPHASH_VECTORS)
def test_siphash128_agrees_with_the_vectors(size: int) -> None:
    data = array(b"??" + bytes(range(size)) + b"??")
    words = siphash128(data, 2, size, np.uint64(K0), np.uint64(K1))
    assert digest(words) == SIPHASH_VECTORS[size][1]


# --- scan_batches -----------------------------------------------------------------------------


def records(*items: tuple, base: int = 0, timestamp: int = 1000) -> list[Record]:
    return [Record(base + at, timestamp + at, *item) for at, item in enumerate(items)]


ONE = build_batch(records((b"a", b"1"), (b"b", b"2")), base_offset=0, last_offset=4)
TWO = build_batch(records((b"a", b"3"), base=7), partition_leader_epoch=3)


def test_scan_batches_fills_a_row_a_batch() -> None:
    status, table, position = scan(ONE + TWO)
    assert (status, len(table), position) == (OK, 2, len(ONE + TWO))
    row = table[1]
    assert row[COL_POSITION] == len(ONE)
    assert row[COL_SIZE] == len(TWO)
    assert (row[COL_BASE_OFFSET], row[COL_LAST_OFFSET]) == (7, 7)
    assert table[0, COL_LAST_OFFSET] == 4
    assert row[COL_PRODUCER_ID] == -1
    assert row[COL_RECORD_COUNT] == 1
    assert row[COL_BASE_TIMESTAMP] == row[COL_MAX_TIMESTAMP] == 1000
    assert row[COL_SECTION_START] == len(ONE) + 61
    assert row[COL_SECTION_END] == len(ONE + TWO)


def test_scan_batches_stops_before_a_torn_batch_and_when_the_table_is_full() -> None:
    for cut in range(1, len(TWO)):
        status, table, position = scan((ONE + TWO)[:-cut])
        assert (status, len(table), position) == (OK, 1, len(ONE))
    status, table, position = scan(ONE + TWO + ONE, rows=2)
    assert (status, len(table), position) == (OK, 2, len(ONE + TWO))


def changed(batch: bytes, **fields: int) -> bytes:
    """Return the batch with header fields replaced and a correct CRC."""
    header = RecordBatch(batch).header._replace(**fields)
    whole = header.pack() + batch[61:]
    return header._replace(crc=RecordBatch(whole).computed_crc()).pack() + batch[61:]


@pytest.mark.parametrize(
    "damaged",
    (
        changed(TWO, batch_length=13),
        changed(TWO, batch_length=48),
        changed(TWO, magic=1),
        changed(TWO, magic=3),
        changed(TWO, record_count=-1),
        changed(TWO, last_offset_delta=-1),
        changed(TWO, base_offset=-8),
        changed(TWO, base_offset=2**63 - 1, last_offset_delta=1),
        TWO[:-1] + bytes([TWO[-1] ^ 1]),
    ),
    ids=("length", "header", "old", "magic", "count", "delta", "base", "overflow", "crc"),
)
def test_scan_batches_reports_the_damaged_batch(damaged: bytes) -> None:
    status, table, position = scan(ONE + damaged + ONE)
    assert (status, len(table), position) == (DAMAGED, 1, len(ONE))


def test_scan_batches_takes_a_batch_that_ends_at_the_largest_offset() -> None:
    """As the plain walk does; only larger offsets cannot be represented."""
    batch = changed(TWO, base_offset=2**63 - 2, last_offset_delta=1)
    status, table, _ = scan(batch)
    assert (status, len(table)) == (OK, 1)
    assert int(table[0, COL_LAST_OFFSET]) == 2**63 - 1
    assert RecordBatch(batch).header.last_offset == 2**63 - 1


def test_scan_batches_takes_nothing_behind_the_largest_offset() -> None:
    """No offset can follow it."""
    last = changed(TWO, base_offset=2**63 - 1)
    status, table, position = scan(last + ONE)
    assert (status, len(table), position) == (MISPLACED, 1, len(last))


def test_scan_batches_sums_up_attributes_of_batches() -> None:
    """The totals determine the size of buffers and the checks that can be skipped."""
    ours = build_batch(
        records((b"c", b"4"), base=8), producer_id=5, producer_epoch=0, is_transactional=True
    )
    unfit = changed(build_batch(records((b"d", b"5"), base=9)), record_count=900)
    data = array(ONE + TWO + ours + unfit)
    table = np.empty((9, TABLE_COLUMNS), np.int64)
    found = Scan(*scan_batches(data, len(data), True, 0, INT64_MAX, table))
    assert found == Scan(
        status=OK,
        rows=4,
        position=len(data),
        attributes=TRANSACTIONAL_BIT,
        producers=1,
        records=2 + 1 + 1 + 900,
        largest=900,
        unfit=3,
        passed_over=0,
    )


def test_scan_batches_may_leave_crcs_unchecked() -> None:
    damaged = TWO[:-1] + bytes([TWO[-1] ^ 1])
    assert scan(damaged, check_crc=False)[0] == OK


# --- list_transactional -----------------------------------------------------------------------


def table_of(rows: int, **columns: list[int]) -> np.ndarray:
    """Return a table with values in some columns only."""
    table = np.full((rows, TABLE_COLUMNS), -9)
    table[:, COL_DISCARD] = DISCARD_NONE
    for name, values in columns.items():
        table[:, getattr(table_kernels, name)] = values
    return table


T, C = TRANSACTIONAL_BIT, CONTROL_BIT
RUNS = table_of(
    11,
    COL_ATTRIBUTES=[0, T, T | 7, T, 0, T, T, T | C, T, C, C],
    COL_LAST_OFFSET=[1, 2, 5, 6, 7, 9, 10, 11, 12, 13, 14],
    COL_PRODUCER_ID=[3, 3, 3, 4, -1, 4, 4, 4, 4, 4, 4],
    COL_CONTROL=[-1, -1, -1, -1, -1, -1, -1, 1, -1, 2, 2],
)


@pytest.mark.parametrize(
    ("mapped", "marked"), ((False, []), (True, [2, 3, 5, 8])), ids=("untold", "told")
)
def test_list_transactional_lists_runs_of_a_producer_and_control_batches(
    mapped: bool, marked: list[int]
) -> None:
    table, found = RUNS.copy(), np.full((11, 6), -7, np.int64)
    discarded_before = np.array([0, 2, 4, 7, 10, 11, 20], np.int64)
    count = list_transactional(table, mapped, discarded_before, found)
    assert found[:count].tolist() == [
        [1, 3, 2, 5, 3, -1],
        [3, 4, 6, 6, 4, -1],
        [5, 7, 9, 10, 4, -1],
        [7, 8, 11, 11, 4, 1],
        [8, 9, 12, 12, 4, -1],
        [9, 10, 13, 13, 4, 2],
        [10, 11, 14, 14, 4, 2],
    ]
    assert (found[count:] == -7).all()
    expected = RUNS.copy()
    expected[marked, COL_DISCARD] = DISCARD_NONE_MAPPED
    assert (table == expected).all()


# --- keep_last_batches ------------------------------------------------------------------------


def test_keep_last_batches_finds_each_offset_that_is_the_end_of_its_producers_batch() -> None:
    ends, producers = [3, 5, 7, 7, 9], [1, 2, 3, 4, 5]
    table = table_of(5, COL_LAST_OFFSET=ends, COL_PRODUCER_ID=producers)
    table[3:, COL_LAST_OFFSET] = (8, 9)
    expected = table.copy()
    wanted = ((2, 1), (3, 2), (3, 1), (4, 2), (7, 4), (7, 3), (9, 5), (9, 6), (10, 5))
    offsets, ids = np.array(wanted, np.int64).T.copy()
    keep_last_batches(table, offsets, ids)
    expected[[0, 2, 4], COL_VERDICT] = VERDICT_RETAIN_EMPTY
    assert (table == expected).all()
    keep_last_batches(table[:0], offsets, ids)


# --- read_control_types -----------------------------------------------------------------------


def control(key: bytes | None, offset: int = 0, value: bytes | None = bytes(6)) -> bytes:
    return build_batch(
        [Record(offset, 1000, key, value)], producer_id=5, producer_epoch=-2, is_control=True
    )


def test_read_control_types_of_every_kind() -> None:
    empty = oracle.empty_batch(RecordBatch(control(bytes(4), 14)).header)
    keys = ("00000000", "00000001", "00000003", "7fff0001", "00000100", "0000ffff", "0000000001")
    data = ONE + b"".join(control(bytes.fromhex(key), 7 + at) for at, key in enumerate(keys))
    _, table, _ = scan(data + empty)
    assert read_control_types(array(data + empty), table) == (OK, 9)
    assert table[:, COL_CONTROL].tolist() == [-1, 0, 1, 2, 1, 2, 2, 0, 3]
    assert table[1:, COL_PRODUCER_EPOCH].tolist() == [-2] * 8


@pytest.mark.parametrize("key", (None, b"", b"\0\0\0", b"\x80\0\0\1"))
def test_read_control_types_names_the_batch_whose_key_is_none(key: bytes | None) -> None:
    data = ONE + control(bytes(4), 7) + control(key, 8)
    _, table, _ = scan(data)
    assert read_control_types(array(data), table) == (DAMAGED, 2)
    assert read_control_types(array(data), table[:2]) == (OK, 2)


# --- map_batches ------------------------------------------------------------------------------


def offset_map(capacity: int = 1000, **settings: object) -> OffsetMap:
    return OffsetMap(24 * capacity, 0.9, **settings)


def test_map_batches_puts_keyed_records_from_the_first_dirty_offset_on() -> None:
    data = ONE + build_batch(records((b"a", b"x"), (None, b"y"), (b"", None), base=5))
    _, table, _ = scan(data)
    a_map = offset_map()
    assert build(array(data), table, 1, a_map) == (OK, 2)
    assert len(a_map) == 3
    assert [a_map.get(key) for key in (b"a", b"b", b"", b"c")] == [5, 1, 7, -1]
    assert a_map.latest_offset == 7
    assert a_map.state.messages == 5


def test_map_batches_moves_on_over_control_and_discarded_batches() -> None:
    control = seal_batch(b"", last_offset_delta=0, record_count=1, base_timestamp=0,
                         max_timestamp=0, base_offset=5, is_control=True)  # fmt: skip
    data = ONE + control + TWO
    _, table, _ = scan(data)
    table[2, COL_DISCARD] = DISCARD_ABORTED
    a_map = offset_map()
    assert build(array(data), table, 0, a_map) == (OK, 3)
    assert a_map.get(b"a") == 0
    assert a_map.latest_offset == 7
    assert a_map.state.messages == 4


def test_map_batches_counts_a_control_batch_once_even_an_empty_one() -> None:
    empty = oracle.empty_batch(RecordBatch(control(bytes(4), 7)).header)
    _, table, _ = scan(ONE + empty)
    a_map = offset_map()
    assert build(array(ONE + empty), table, 0, a_map) == (OK, 2)
    assert a_map.state.messages == 3
    assert a_map.latest_offset == 7


def test_map_batches_stops_at_the_first_keyed_record_once_full() -> None:
    data = build_batch(records((b"a", b"1"), (b"b", b"2"), (None, b"3"), (b"a", b"4")))
    _, table, _ = scan(data)
    a_map = offset_map(4)
    a_map.state.limit = 2
    assert build(array(data), table, 0, a_map) == (MAP_FULL, 0)
    assert a_map.latest_offset == 1
    assert a_map.get(b"a") == 0


def test_map_batches_ends_where_an_offset_is_too_far_from_the_base() -> None:
    far = MAX_OFFSET_SPAN + 1
    data = ONE + build_batch(records((b"far", b"1"), base=far))
    _, table, _ = scan(data)
    a_map = offset_map()
    assert build(array(data), table, 0, a_map) == (MAP_FULL, 1)
    assert a_map.latest_offset == 4
    a_map = offset_map(base_offset=1)
    assert build(array(data), table, 1, a_map) == (OK, 2)
    assert a_map.get(b"far") == far


@pytest.mark.parametrize(
    "section",
    ("", "0e", "0e00", "0e000000027a", "0200", "3200000002610230", "10000000026102310003"),
)
def test_sections_that_do_not_hold_their_records_are_damaged(section: str) -> None:
    data = ONE + seal_batch(
        bytes.fromhex(section), base_offset=5, last_offset_delta=0, record_count=1,
        base_timestamp=0, max_timestamp=0,
    )  # fmt: skip
    _, table, _ = scan(data)
    assert build(array(data), table, 0, offset_map()) == (DAMAGED, 1)
    assert classify(array(data), table, offset_map(), 0, 0)[:2] == (DAMAGED, 1)


def test_a_record_beyond_its_batchs_last_offset_is_damage() -> None:
    data = changed(build_batch(records((b"a", b"1"), (b"b", b"2"))), last_offset_delta=0)
    _, table, _ = scan(data)
    assert build(array(data), table, 0, offset_map()) == (DAMAGED, 0)
    assert classify(array(data), table, offset_map(), 0, 0)[:2] == (DAMAGED, 0)


# --- map_get, map_put -------------------------------------------------------------------------


def test_map_put_and_map_get_by_position() -> None:
    a_map = offset_map()
    data = array(b"..key..")
    arguments = (a_map.arrays, data, 2, 3)
    assert map_get(*arguments) == -1
    assert map_put(*arguments, 41)
    assert map_put(*arguments, 42)
    assert map_get(*arguments) == 42
    assert len(a_map) == 1
    a_map._check()


def test_map_put_refuses_offsets_outside_its_span() -> None:
    a_map = offset_map(base_offset=10)
    for offset in (9, 10 + MAX_OFFSET_SPAN + 1):
        arguments = (a_map.arrays, array(b"k"), 0, 1, offset)
        assert not map_put(*arguments)
    assert len(a_map) == 0
    assert a_map.latest_offset == -1
    a_map.put(b"k", 10 + MAX_OFFSET_SPAN)
    assert a_map.get(b"k") == 10 + MAX_OFFSET_SPAN


def test_keys_that_share_a_home_slot_or_half_a_hash_stay_apart() -> None:
    """All keys have the same home slot; order of hashes and tags must distinguish them."""
    a_map = OffsetMap(24 * 2000, 0.9, max_entries=0)
    keys = [b"%d" % number for number in range(1500)]
    for offset, key in enumerate(keys):
        a_map.put(key, offset)
        if offset % 100 == 0:
            a_map._check()
    assert [a_map.get(key) for key in keys] == list(range(len(keys)))
    assert a_map.get(b"absent") == -1
    a_map._check()


# --- classify_batches, assemble_batches -------------------------------------------------------


def test_each_form_of_a_batch() -> None:
    data = b"".join(
        [
            build_batch(records((b"a", b"1"), (b"b", b"1"))),  # a superseded: rebuilt
            build_batch(records((b"c", b"1"), base=2)),  # kept: verbatim
            build_batch(records((b"a", b"2"), base=3)),  # superseded: dropped
            build_batch(records((b"a", b"3"), base=4)),  # superseded, to be kept empty
            build_batch(records((b"a", b"4"), (b"d", None), base=5)),  # a new horizon: rebuilt
        ]
    )
    _, table, _ = scan(data)
    a_map = offset_map()
    build(array(data), table, 0, a_map)
    table[3, COL_VERDICT] = VERDICT_RETAIN_EMPTY
    status, row, codes, starts = classify(array(data), table, a_map, 5000, 9000)
    assert (status, row) == (OK, 5)
    assert codes.tolist() == [1, 0, 0, 1, 1, 0, 0]
    forms = [FORMS[form] for form in table[:, COL_FORM]]
    assert forms == ["rebuilt", "verbatim", "dropped", "empty", "rebuilt"]
    assert table[:, COL_KEPT].tolist() == [1, 1, 0, 0, 2]
    outputs = assemble(array(data), table, starts)
    batches = [RecordBatch(output) if output else None for output in outputs]
    assert [each is None or each.is_valid() for each in batches] == [True] * 5
    assert [r.key for r in batches[0].records()] == [b"b"]
    assert outputs[2] == b""
    assert batches[3].header.record_count == 0
    assert batches[3].header.base_timestamp == -1
    assert batches[4].header.delete_horizon_ms == 9000
    assert [r.timestamp for r in batches[4].records()] == [1000, 1001]


def test_a_control_record_without_a_value_gets_a_horizon_and_is_never_dropped() -> None:
    """Kafka counts tombstones among the kept records of any batch."""
    data = control(bytes.fromhex("00000003"), value=None)
    _, table, _ = scan(data)
    _, _, codes, starts = classify(array(data), table, offset_map(), 5000, 9000)
    (stamped,) = assemble(array(data), table, starts)
    assert RecordBatch(stamped).header.delete_horizon_ms == 9000
    _, table, _ = scan(stamped)
    _, _, codes, starts = classify(array(stamped), table, offset_map(), 9000, 9999)
    assert codes.tolist() == [RETAINED]
    assert assemble(array(stamped), table, starts) == [stamped]


def test_write_kept_records_keeps_offsets_and_moves_timestamps() -> None:
    data = build_batch(records((b"a", b"1"), (b"b", b"2"), (b"a", b"3", (("h", None),))))
    _, table, _ = scan(data)
    a_map = offset_map()
    build(array(data), table, 0, a_map)
    _, _, _, starts = classify(array(data), table, a_map, 0, 0)
    out = np.zeros(200, np.uint8)
    end = write_kept_records(array(data), table[0], starts, out, 3)
    kept = RecordBatch(data).records()[1:]
    assert table[0, COL_OUT_BASE_TIMESTAMP] == 1001
    assert out[3:end].tobytes() == encode_records(kept, 0, 1001)


def test_write_header_of_an_emptied_batch_clears_codec_and_horizon() -> None:
    source = build_batch(
        records((b"a", None), base=9),
        delete_horizon_ms=77,
        partition_leader_epoch=5,
        timestamp_type=TimestampType.LOG_APPEND_TIME,
        append_time=1234,
    )
    _, table, _ = scan(source)
    table[0, COL_FORM] = FORM_EMPTY
    table[0, COL_OUT_MAX_TIMESTAMP] = table[0, COL_MAX_TIMESTAMP]
    out = np.zeros(70, np.uint8)
    assert write_header(array(source), table[0], out, 4, 65) == 65
    batch = RecordBatch(out[4:65].tobytes())
    assert batch.is_valid()
    assert batch.header.attributes == 0x08
    assert batch.header.max_timestamp == 1234
    assert batch.header.partition_leader_epoch == 5
    assert batch.header.last_offset == 9


def test_assemble_batches_hands_a_compressed_batch_back() -> None:
    """See the property tests for the caller's part."""
    data = ONE + TWO
    _, table, _ = scan(data)
    table[:, COL_FORM] = FORM_REBUILT
    table[0, COL_ATTRIBUTES] = 1
    out = np.zeros(200, np.uint8)
    starts = np.zeros(9, np.int64)
    extents = np.zeros((2, 3), np.int64)
    found = assemble_batches(array(data), table, 0, starts, out, 5, extents, 0)
    assert found == (COMPRESSED, 0, 5, 1)
