"""The bits of a map and lookups select the same winners, for any batches.

Kernels: `has_bit`, `note_winner`, `note_loser`, `is_winner`, `count_winners`,
`is_decided_by_winners`, `pick_winners`, `hash_group`, `with_record`, `is_unread`, `is_expired`,
`put_block`, `put_offset`, `get_offset`, `put_order`, `get_order`, `home_slot`, `hash_keys`,
`sip_round`, `sip_words`, `borrowed_block`, `borrowed_keys`, `borrowed_strategy`, `borrowed_rules`,
`winners_decide`, `has_winner`, `put_offsets`, `put_orders`, `note_winners`, `is_unfit`,
`scan_survivors`, `read_header`, `fill_row`, `with_row`, `scanned`.
"""

import random

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from logstore.cleaner.kernels import classify as judging
from logstore.cleaner.kernels.classify import GROUP_RECORDS, RETAINED, SUPERSEDED, TALLIES
from logstore.cleaner.kernels.hashing import Keys, hash_keys
from logstore.cleaner.kernels.slots import siphash128
from logstore.cleaner.kernels.table import (
    COL_BASE_OFFSET,
    COL_CONTROL,
    COL_DISCARD,
    COL_FORM,
    COL_KEPT,
    COL_LAST_OFFSET,
    COL_OUT_MAX_TIMESTAMP,
    COL_OUT_SIZE,
    COL_PARSED,
    COL_RECORD_COUNT,
    COL_SECTION_END,
    COL_SECTION_START,
    COL_VERDICT,
    DAMAGED,
    DISCARD_ABORTED,
    DISCARD_NONE,
    DISCARD_NONE_MAPPED,
    FORM_DROPPED,
    VERDICT_RETAIN_EMPTY,
)
from logstore.cleaner.kernels.winners import count_winners, is_winner
from logstore.cleaner.passes.offset_map import KeyMap, OffsetMap
from logstore.cleaner.passes.rewrite import Rules
from logstore.cleaner.passes.version_map import VersionMap
from logstore.cleaner.strategy import Strategy
from logstore.record.batch import RecordBatch, build_batch, seal_batch
from logstore.record.codecs import Codec
from logstore.record.kernels import OK
from logstore.record.layout import RECORD_COUNT_POSITION
from logstore.record.records import Record, encode_records
from logstore.record.varint import encode_varint
from tests.support.world.chunk_strategies import NOW_MS, loaded
from tests.support.world.kernel_calls import (
    array,
    assemble,
    build,
    classify,
    compete,
    scan,
    scan_survivors,
)

BY = {
    "offset": Strategy(),
    "timestamp": Strategy("timestamp"),
    "header": Strategy("header", "v"),
    "varlong": Strategy("header", "v", "varlong"),
}

ODDITIES = [
    *("keyless", "tombstone", "control", "transactional", "horizon"),
    *("unordered", "repeated", "sparse"),
]
rarely = st.sampled_from([False, False, False, True])
versions = st.one_of(st.integers(-2, 2), st.sampled_from([-(2**63), 2**63 - 1]))


@st.composite
def dirty_batches(draw, odd):
    """Batches of few keys, some of which are odd in some of the ways that are named."""
    batches = []
    offset = draw(st.sampled_from([0, 63, 64, 2**33 + 5]))
    for _ in range(draw(st.integers(1, 8))):
        is_odd = {each: draw(st.booleans()) for each in odd}
        count = draw(st.sampled_from([1, 1, 2, 5, 9]))
        gaps = [draw(st.integers(0, 2)) if is_odd.get("sparse") else 0 for _ in range(count)]
        offsets = [offset + at + sum(gaps[: at + 1]) for at in range(count)]
        if is_odd.get("unordered") or is_odd.get("repeated"):
            offsets = draw(st.lists(st.sampled_from(offsets), min_size=count, max_size=count))
        if is_odd.get("repeated"):
            offsets.sort()
        records = []
        for each in offsets:
            key = draw(st.sampled_from([b"a", b"b", b"c", b"dd" * 9, b"e" * 8]))
            value = None if is_odd.get("tombstone") and draw(st.booleans()) else b"value"
            version = draw(versions)
            header = draw(
                st.sampled_from(
                    [
                        (),
                        (("v", version.to_bytes(8, "big", signed=True)),),
                        (("v", encode_varint(version)),),
                    ]
                )
            )
            if is_odd.get("keyless") and draw(st.booleans()):
                key = None
            records.append(Record(each, draw(st.integers(0, 6)), key, value, header))
        last = max(offsets) + draw(st.sampled_from([0, 0, 0, 2, 70]))
        data = _sealed(records, offset, last, is_odd, draw)
        batches.append(RecordBatch(data))
        offset = last + 1 + draw(st.sampled_from([0, 0, 0, 1]))
    return batches


def _sealed(records, base, last, is_odd, draw):
    flags = {
        "is_control": bool(is_odd.get("control")),
        "is_transactional": bool(is_odd.get("transactional")),
    }
    horizon = NOW_MS + draw(st.integers(-1, 1)) if is_odd.get("horizon") else None
    if not (is_odd.get("unordered") or is_odd.get("repeated")):
        return build_batch(
            records, base_offset=base, last_offset=last, delete_horizon_ms=horizon, **flags
        )
    return seal_batch(
        encode_records(records, base, 0),
        base_offset=base,
        last_offset_delta=last - base,
        record_count=len(records),
        base_timestamp=0,
        max_timestamp=max(record.timestamp for record in records),
        **flags,
    )


def new_map(strategy: Strategy, base: int, winners_from: int, winners_end: int) -> KeyMap:
    kind = VersionMap if strategy.has_versions else OffsetMap
    return kind(
        32 * 1000, 0.9, base_offset=base, winners_from=winners_from, winners_end=winners_end
    )


@pytest.mark.parametrize(
    "odd",
    ([], *([each] for each in ODDITIES), ["horizon", "tombstone"], ODDITIES),
    ids="-".join,
)
@given(
    data=st.data(),
    by=st.sampled_from(["offset", "offset", *BY]),
    skipped=st.sampled_from([0, 0, 0, 3, 12]),
    limit=st.sampled_from([1000, 1000, 1000, 2, 3]),
    bits=st.sampled_from([2**20, 2**20, 2**20, 1, 7, 64]),
    aborted=st.sets(st.integers(0, 7)),
    retained=st.sets(st.integers(0, 7)),
    known=st.sets(st.integers(0, 7)),
    unlike=rarely,
    keep=st.integers(-1, 30),
)
@settings(max_examples=25)
def test_winners_equal_lookups(
    odd, data, by, skipped, limit, bits, aborted, retained, known, unlike, keep
):
    """Also for a map that fills up, ranges that begin or end inside a batch, and few bits."""
    strategy = BY[by]
    batches = data.draw(dirty_batches(odd))
    data, table = loaded(batches)
    base = batches[0].header.base_offset
    start, end = base + skipped, batches[-1].header.last_offset + 1
    for number, batch in enumerate(batches):
        if number in aborted and batch.header.is_transactional and not batch.header.is_control:
            table[number, COL_DISCARD] = DISCARD_ABORTED
    a_map = new_map(strategy, base, start, min(end, start + bits))
    a_map.state.limit = limit
    a_map.latest_offset = start - 1
    if strategy.has_versions:
        status, _ = compete(data, table, start, end, a_map, strategy)
        if status == OK:
            compete(data, table, base, start, a_map, strategy, insert=False)
    else:
        build(data, table, start, a_map)
    if unlike:  # the rewrite may have learnt of other transactions than the map's builder
        table[:, COL_DISCARD] = DISCARD_NONE
    for number, batch in enumerate(batches):
        is_data = batch.header.is_transactional and not batch.header.is_control
        if is_data and number not in aborted and number in known:
            table[number, COL_DISCARD] = DISCARD_NONE_MAPPED
    for number in retained & set(range(len(batches))):
        table[number, COL_VERDICT] = VERDICT_RETAIN_EMPTY
    rules = Rules(strategy, keep_offset=base + keep, safe_ms=NOW_MS)
    results = []
    for by_winners in (False, True):
        judged = table.copy()
        tally = np.zeros(TALLIES, np.int64)
        status, row, _, starts = classify(
            data, judged, a_map, NOW_MS, NOW_MS + 5, rules, by_winners=by_winners, tally=tally
        )
        assert (status, row) == (OK, len(batches))
        outputs = assemble(data, judged, starts)
        columns = [COL_FORM, COL_KEPT, COL_PARSED, COL_OUT_SIZE]
        max_timestamps = [
            int(each[COL_OUT_MAX_TIMESTAMP]) for each in judged if each[COL_FORM] != FORM_DROPPED
        ]
        results.append((outputs, judged[:, columns].tolist(), max_timestamps, tally.tolist()))
    assert results[1] == results[0]
    a_map._check()


def test_two_records_of_one_offset_are_looked_up():
    """They share one bit, which is cleared once either of them is superseded."""
    twins = seal_batch(
        encode_records([Record(0, 0, b"a", b"1"), Record(0, 0, b"b", b"2")], 0, 0),
        base_offset=0,
        last_offset_delta=0,
        record_count=2,
        base_timestamp=0,
        max_timestamp=0,
    )
    later = build_batch([Record(1, 0, b"a", b"3")], base_offset=1)
    data, table = loaded([RecordBatch(twins), RecordBatch(later)])
    a_map = new_map(Strategy(), 0, 0, 2)
    build(data, table, 0, a_map)
    status, *_ = classify(data, table, a_map, NOW_MS, NOW_MS + 5, Rules(), by_winners=True)
    assert status == OK
    assert table[:, COL_KEPT].tolist() == [1, 1], "b stays, though a is beaten"


SCANNED = slice(0, COL_CONTROL + 1)


@pytest.mark.parametrize("odd", ([], *([each] for each in ODDITIES), ODDITIES), ids="-".join)
@given(
    data=st.data(),
    skipped=st.sampled_from([0, 0, 3]),
    bits=st.sampled_from([2**20, 2**20, 7, 64]),
    kept=st.integers(0, 7),
    keep=st.integers(-1, 9),
)
@settings(max_examples=20)
def test_records_omitted_by_a_survivors_scan_are_superseded(odd, data, skipped, bits, kept, keep):
    """By lookups; of plain batches all superseded records are left out."""
    batches = data.draw(dirty_batches(odd))
    raw, table = loaded(batches)
    base, end = batches[0].header.base_offset, batches[-1].header.last_offset + 1
    a_map = new_map(Strategy(), base, base + skipped, min(end, base + skipped + bits))
    a_map.latest_offset = base + skipped - 1
    build(raw, table, base + skipped, a_map)
    kept_last_offset = batches[kept % len(batches)].header.last_offset
    rules = Rules(keep_offset=base + keep)
    sums, result = scan_survivors(raw, a_map, rules, kept_last_offset)
    assert (sums.status, sums.position) == (OK, len(raw))
    _, every, _ = scan(raw.tobytes())
    has_row = np.isin(every[:, COL_BASE_OFFSET], result[:, COL_BASE_OFFSET])
    assert result[:, SCANNED].tolist() == every[has_row][:, SCANNED].tolist()
    status, _, codes, _ = classify(raw, every, a_map, NOW_MS, NOW_MS + 5, rules)
    assert status == OK
    ends = every[:, COL_RECORD_COUNT].cumsum()
    fates = np.split(codes, ends[:-1])
    removed = [fates[row] for row in np.flatnonzero(~has_row)]
    assert all((each == SUPERSEDED).all() for each in removed)
    assert sums.passed_over == sum(map(len, removed))
    last_offsets = every[:, COL_LAST_OFFSET]
    assert has_row[0]
    assert has_row[last_offsets == kept_last_offset].all()
    if not odd and not skipped and bits > end - base:
        is_dropped = np.array([(each == SUPERSEDED).all() for each in fates])
        is_dropped[0] = False
        assert (is_dropped & (last_offsets != kept_last_offset) == ~has_row).all()


@pytest.mark.parametrize("first", ("compressed", "control", "unfit", "producer"))
def test_every_batch_after_a_possible_chunk_end_has_a_row(first: str) -> None:
    """Otherwise records behind the end would be counted twice; of a producer only its own have
    one."""
    goes = [plain(b"a", base=2 + at) for at in range(3)]
    batches = [plain(b"b"), *goes, plain(b"a", base=5)]
    middle = batches[2]
    if first == "compressed":
        middle = RecordBatch(build_batch([*middle.records()], codec=Codec.ZSTD))
    elif first == "control":
        middle = RecordBatch(build_batch([*middle.records()], is_control=True))
    elif first == "producer":
        middle = RecordBatch(
            build_batch([*middle.records()], producer_id=7, producer_epoch=0, base_sequence=0)
        )
    data, table = loaded(batches)
    a_map = new_map(Strategy(), 0, 0, 1000)
    build(data, table, 0, a_map)
    batches[2] = middle
    raw = bytearray(b"".join(each.data for each in batches))
    if first == "unfit":
        position = len(batches[0].data) + len(batches[1].data)
        count_at = position + RECORD_COUNT_POSITION
        raw[count_at : count_at + 4] = (1000).to_bytes(4, "big")
    sums, result = scan_survivors(array(bytes(raw)), a_map, Rules())
    assert sums.status == OK
    # The batch before it is removed, and of a producer's batches the next.
    expected = [0, 3, 5] if first == "producer" else [0, 3, 4, 5]
    assert result[:, COL_BASE_OFFSET].tolist() == expected
    assert sums.passed_over == 5 - len(expected)


@given(bits=st.lists(st.booleans(), min_size=1, max_size=300), data=st.data())
def test_count_winners_counts_the_bits_of_a_range(bits, data):
    words = np.packbits(bits + [False] * (-len(bits) % 64), bitorder="little").view(np.uint64)
    first = data.draw(st.integers(0, len(bits) - 1))
    end = data.draw(st.integers(first + 1, len(bits)))
    assert count_winners(words, np.int64(first), np.int64(end)) == sum(bits[first:end])
    assert [bool(is_winner(words, np.int64(bit))) for bit in range(len(bits))] == bits


# --- many keys at once ------------------------------------------------------------------------


@settings(max_examples=30)
@given(
    sizes=st.one_of(
        st.tuples(st.integers(0, 40), st.integers(1, 300)).map(lambda drawn: [drawn[0]] * drawn[1]),
        st.lists(st.integers(0, 20), min_size=1, max_size=40),
        st.lists(st.integers(7, 9), min_size=250, max_size=260),
        st.lists(st.sampled_from((0, 1, 8, 127, 128, 129)), min_size=1, max_size=9),
        st.lists(st.sampled_from((0, 3, 7, 8, 9, 60, 64, 128)), min_size=1, max_size=40),
    ),
    behind=st.sampled_from((0, 7, 8, 200)),
    seed=st.integers(0, 2**64 - 1),
)
def test_hash_keys_is_siphash_of_each(sizes, behind, seed):
    """Side by side, sorted or not, in blocks or less; one by one if long or at the bytes' end."""
    rng = random.Random(seed)
    data = array(rng.randbytes(3 + sum(sizes) + behind))
    a_map = OffsetMap(24 * 100, rng=rng)
    keys = Keys.room_for(len(sizes) + 1)
    keys.lows[-1] = keys.highs[-1] = 7
    keys.sizes[:-1] = sizes
    keys.starts[:-1] = 3 + np.cumsum(sizes) - sizes
    hash_keys(data, keys, len(sizes), a_map.arrays)
    k0, k1 = a_map.arrays.k0, a_map.arrays.k1
    for start, size, low, high in zip(*(each[:-1].tolist() for each in keys[:4]), strict=True):
        result = siphash128(data, start, size, k0, k1)
        assert (low, high) == tuple(map(int, result))
    assert keys.lows[-1] == keys.highs[-1] == 7


# --- reads ------------------------------------------------------------------------------------


def plain(*keys: bytes, base: int = 0, value: bytes | None = b"v") -> RecordBatch:
    records = [Record(base + at, 1000 + at, key, value) for at, key in enumerate(keys)]
    return RecordBatch(build_batch(records))


def judged_by_winners(*batches: RecordBatch):
    data, table = loaded(batches)
    a_map = new_map(Strategy(), 0, 0, 1000)
    assert build(data, table, 0, a_map)[0] == OK
    # A lookup finds no key, and reading the record reports damage.
    a_map.slots.fill(0)
    return data, table, a_map


def test_batches_that_winners_decide_all_of_are_not_read() -> None:
    data, table, a_map = judged_by_winners(
        plain(b"a", b"b"), plain(b"a", b"b", base=2), plain(b"c", b"d", base=4)
    )
    data[table[0, COL_SECTION_START] :][:20] = 0xFF
    data[table[2, COL_SECTION_START] :][:20] = 0xFF
    status, _, codes, _ = classify(data, table, a_map, 0, 0, by_winners=True)
    assert status == OK
    assert set(codes.tolist()) == {255}, "nothing was looked up"
    forms = [FORM_DROPPED, judging.FORM_VERBATIM, judging.FORM_VERBATIM]
    assert table[:, COL_FORM].tolist() == forms


@pytest.mark.parametrize(("base", "looked_up"), ((55, False), (56, True), (63, True), (64, True)))
def test_a_batch_that_ends_after_the_last_bit_is_looked_up(base: int, looked_up: bool) -> None:
    data, table = loaded([plain(*(b"%d" % number for number in range(9)), base=base)])
    a_map = new_map(Strategy(), 0, 0, 64)
    build(data, table, 0, a_map)
    status, _, codes, _ = classify(data, table, a_map, 0, 0, by_winners=True)
    assert (status, table[0, COL_KEPT]) == (OK, 9)
    assert codes.tolist() == [RETAINED if looked_up else 255] * 9


@pytest.mark.parametrize(("start", "looked_up"), ((10, False), (11, True), (18, True)))
def test_a_batch_that_begins_before_the_first_bit_is_looked_up(start: int, looked_up: bool) -> None:
    data, table = loaded([plain(*(b"%d" % number for number in range(9)), base=10)])
    a_map = new_map(Strategy(), 0, start, 100)
    build(data, table, start, a_map)
    status, _, codes, _ = classify(data, table, a_map, 0, 0, by_winners=True)
    assert (status, table[0, COL_KEPT]) == (OK, 9)
    assert codes.tolist() == [RETAINED if looked_up else 255] * 9


def test_of_a_batch_that_winners_decide_parts_of_only_those_are_taken_apart() -> None:
    data, table, a_map = judged_by_winners(plain(b"a", b"b", b"c"), plain(b"a", b"c", base=3))
    first = int(table[0, COL_SECTION_START])
    data[first + 2 : first + 4] = 0xFF  # a's varints: not even its offset is asked for
    status, _, _, starts = classify(data, table, a_map, 0, 0, by_winners=True)
    assert status == OK
    assert table[:, COL_KEPT].tolist() == [1, 2]
    outputs = assemble(data, table, starts)
    assert [record.key for record in RecordBatch(outputs[0]).records()] == [b"b"]


@pytest.mark.parametrize("at", (0, 1, 2))
def test_damage_between_mapping_and_rewriting_is_noticed(at: int) -> None:
    """A length that points outside the batch or past its end, in a partly kept batch."""
    data, table, a_map = judged_by_winners(plain(b"a", b"b", b"c"), plain(b"a", b"c", base=3))
    first = int(table[0, COL_SECTION_START])
    record_size = (int(table[0, COL_SECTION_END]) - first) // 3
    for length in (0x7E, 0x01, 0x00, 0x02):
        hurt = data.copy()
        hurt[first + at * record_size] = length
        status = classify(hurt, table.copy(), a_map, 0, 0, by_winners=True)[:2]
        assert status == (DAMAGED, 0), length


def test_hashes_of_a_batch_larger_than_a_group_have_room() -> None:
    keys = [b"%d" % number for number in range(3 * GROUP_RECORDS)]
    batches = [plain(b"0"), plain(*keys, base=1), plain(*keys[:5], base=1000)]
    data, table = loaded(batches)
    a_map = new_map(Strategy(), 0, 0, 0)
    build(data, table, 0, a_map)
    status, _, _, _ = classify(data, table, a_map, 0, 0)
    assert status == OK
    assert table[:, COL_KEPT].tolist() == [0, len(keys) - 5, 5]
