"""The kernels of the strategies with versions against plain Python, for any batches.

Kernels: `header_version`, `record_version`, `is_above`, `version_put`, `version_get`,
`is_superseded`, `map_batches`, `classify_batches` with rules, and beneath them `read_record`,
`find_slot` and `open_slot`.
"""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from logstore.cleaner.kernels import versions as version_kernels
from logstore.cleaner.kernels.slots import siphash128
from logstore.cleaner.kernels.table import (
    COL_DISCARD,
    COL_FORM,
    COL_KEPT,
    COL_PARSED,
    COL_RECORD_COUNT,
    COL_SECTION_END,
    COL_SECTION_START,
    COL_VERDICT,
    DAMAGED,
    DISCARD_ABORTED,
    DISCARD_EXPIRING,
    MAP_FULL,
    VERDICT_RETAIN_EMPTY,
    scan_batches,
)
from logstore.cleaner.passes.rewrite import Rules
from logstore.cleaner.passes.version_map import (
    VersionEntry,
    VersionMap,
    kernel_order,
    kernel_strategy,
)
from logstore.cleaner.stats import FATE_NAMES
from logstore.cleaner.strategy import Order, Strategy
from logstore.record.batch import RecordBatch
from logstore.record.kernels import OK, read_record
from logstore.record.records import Record, encode_records
from logstore.record.varint import encode_varint
from logstore.runtime import random_source
from tests.support.oracles import cleaner_oracle, version_oracle
from tests.support.oracles.version_oracle import FOUND, MALFORMED, MISSING, By, VersionKeyMap
from tests.support.world.chunk_strategies import NOW_MS, loaded, stored_batches
from tests.support.world.kernel_calls import FORMS, array, assemble, classify, compete, lift, scan
from tests.support.world.record_strategies import INT64, damaged, timestamps

pytestmark = pytest.mark.skipif(
    not hasattr(scan_batches, "signatures"),
    reason="kernels run as plain Python, where overflow warns instead of wrapping",
)

STATUSES = {
    version_kernels.FOUND: FOUND,
    version_kernels.MISSING: MISSING,
    version_kernels.MALFORMED: MALFORMED,
}
STRATEGIES = {
    By("timestamp"): Strategy("timestamp"),
    By("long"): Strategy("header", "v"),
    By("varlong"): Strategy("header", "v", "varlong"),
    By("long", "größe"): Strategy("header", "größe"),
}

ways = st.sampled_from(list(STRATEGIES))
versions = st.one_of(st.integers(-3, 3), INT64)
header_values = st.one_of(
    st.none(),
    versions.map(lambda version: version.to_bytes(8, "big", signed=True)),
    versions.map(encode_varint),
    st.binary(max_size=12),
    st.sampled_from([b"\x80" * 9 + b"\x01", b"\xff" * 10, b"\x80\x00", b"\x00\x00"]),
)
header_names = st.sampled_from(["v", "v", "v", "größe", "w", "", "vv", "größer"])
headers = st.lists(st.tuples(header_names, header_values), max_size=4).map(tuple)


def map_with(limit: int = 90, **options: int) -> VersionMap:
    version_map = VersionMap(32 * 100, 0.9, **options)
    version_map.state.limit = limit
    return version_map


def entries(version_map: VersionMap, keys) -> dict[bytes, VersionEntry | None]:
    return {key: version_map.get(key) for key in keys}


def expected_entries(expected: VersionKeyMap) -> dict[bytes, VersionEntry]:
    return {
        key: VersionEntry(Order(*winner), expected.has_later_loser(key))
        for key, winner in expected.winners.items()
    }


# --- a record's version -----------------------------------------------------------------------


@given(headers=headers, by=ways, timestamp=timestamps, lead=st.integers(0, 3))
def test_record_version_equals_the_oracle_and_the_strategy(headers, by, timestamp, lead):
    record = Record(7, timestamp, b"key", b"value", headers)
    strategy = STRATEGIES[by]
    data = array(bytes(lead) + encode_records([record], 7, 0))
    status, fields = read_record(data, lead, len(data))
    assert status == OK
    status, version = version_kernels.record_version(
        data, fields, np.int64(timestamp), kernel_strategy(strategy)
    )
    stated = (FOUND, timestamp)
    if by.form != "timestamp":
        stated = version_oracle.stated_version(headers, by)
        result = strategy.version_in(headers)
        assert (result is not None, result or 0) == (stated[0] == FOUND, stated[1])
    assert (STATUSES[status], int(version)) == stated
    assert strategy.order_of(7, timestamp, headers) == version_oracle.order_of(record, by)


orders = st.builds(
    lambda present, version, offset: Order(present, version if present else 0, offset),
    st.booleans(),
    versions,
    st.integers(0, 5),
)


@given(one=orders, other=orders)
def test_is_above_is_the_order_of_tuples(one, other):
    result = version_kernels.is_above(kernel_order(one), kernel_order(other))
    assert bool(result) == (one > other)


# --- the map ----------------------------------------------------------------------------------


@given(
    clean=st.lists(st.tuples(st.integers(0, 30), st.booleans(), versions), max_size=40),
    dirty=st.lists(st.tuples(st.integers(0, 30), st.booleans(), versions), max_size=60),
    gap=st.sampled_from([0, 1, 2**39]),
    base=st.integers(0, 2**60),
    homes=st.integers(0, 60),
    seed=st.integers(0, 5),
)
def test_version_put_and_version_get_are_a_dict(clean, dirty, gap, base, homes, seed):
    """Dirty records in ascending offsets first; clean ones then compete for the keys known."""
    version_map = map_with(base_offset=base, max_entries=homes, rng=random_source(seed))
    first_dirty = base + len(clean) + gap
    expected: dict[bytes, tuple[Order, int]] = {}

    def compete_for(number: int, order: Order) -> None:
        winner, highest = expected.get(b"%d" % number, (order, -1))
        expected[b"%d" % number] = max(winner, order), max(highest, order.offset)

    for at, (number, present, version) in enumerate(dirty):
        order = Order(present, version if present else 0, first_dirty + at)
        version_map.put(b"%d" % number, order)
        compete_for(number, order)
        assert version_map.latest_offset == order.offset
    for at, (number, present, version) in enumerate(clean):
        order = Order(present, version if present else 0, base + at)
        lift(version_map, b"%d" % number, order)
        if b"%d" % number in expected:
            compete_for(number, order)
    assert len(version_map) == len(expected)
    assert version_map.latest_offset == (first_dirty + len(dirty) - 1 if dirty else -1)
    for number in range(31):
        known = expected.get(b"%d" % number)
        entry = None if known is None else VersionEntry(known[0], known[1] > known[0].offset)
        assert version_map.get(b"%d" % number) == entry
    version_map._check()


# --- chunks -----------------------------------------------------------------------------------


@given(
    batches=stored_batches(headers=headers),
    by=ways,
    skipped=st.integers(0, 30),
    length=st.integers(1, 60),
    limit=st.integers(2, 8),
    aborted=st.sets(st.integers(0, 3)),
)
def test_map_versions_equals_the_oracle(batches, by, skipped, length, limit, aborted):
    data, table = loaded(batches)
    for number in aborted & set(range(len(batches))):
        table[number, COL_DISCARD] = DISCARD_ABORTED
    base = batches[0].header.base_offset if batches else 0
    start = base + skipped
    version_map = map_with(limit, base_offset=base)
    version_map.latest_offset = start - 1
    expected = VersionKeyMap(by, start - 1)
    expected.build(batches, start, start + length, limit, aborted)
    status, row = compete(data, table, start, start + length, version_map, STRATEGIES[by])
    assert status == (MAP_FULL if expected.full else OK)
    assert expected.full or row == len(batches)
    state = version_map.state
    assert version_map.latest_offset == expected.latest_offset
    assert state.messages == expected.messages
    assert state.unversioned == expected.unversioned
    assert state.malformed == expected.malformed
    assert len(version_map) == len(expected.winners)
    assert entries(version_map, expected.winners) == expected_entries(expected)


@given(
    batches=stored_batches(max_batches=6, headers=headers),
    by=ways,
    first_dirty=st.integers(0, 60),
    limit=st.integers(2, 8),
    choices=st.lists(
        st.sampled_from(["", "", "", "retain", "aborted", "done"]), min_size=6, max_size=6
    ),
    keep=st.one_of(st.just(-1), st.integers(0, 60)),
    safe_ms=st.sampled_from([-1, 0, NOW_MS - 1, NOW_MS, 2**62]),
)
def test_seed_classify_and_assemble_equal_the_oracle(
    batches, by, first_dirty, limit, choices, keep, safe_ms
):
    """A whole pass over a chunk, its first part clean: map, seed, judge, write."""
    data, table = loaded(batches)
    strategy = STRATEGIES[by]
    base = batches[0].header.base_offset if batches else 0
    start, end = base + first_dirty, base + 100
    keep_offset = base + keep if keep >= 0 else -1
    retained, done = [], []
    aborted: set[int] = set()
    for row, (batch, choice) in enumerate(zip(batches, choices, strict=False)):
        retained.append(choice == "retain")
        table[row, COL_VERDICT] = VERDICT_RETAIN_EMPTY if retained[-1] else 0
        if choice == "aborted" and not batch.header.is_control:
            table[row, COL_DISCARD] = DISCARD_ABORTED
            aborted.add(row)
        done.append(choice == "done" and batch.header.is_control)
        if done[-1]:
            table[row, COL_DISCARD] = DISCARD_EXPIRING
    version_map = map_with(limit, base_offset=base)
    version_map.latest_offset = start - 1
    expected = VersionKeyMap(by, start - 1, keep_offset, safe_ms)
    expected.build(batches, start, end, limit, aborted)
    expected.seed(batches, base, start, aborted)
    compete(data, table, start, end, version_map, strategy)
    latest = version_map.latest_offset
    status, row = compete(data, table, base, start, version_map, strategy, insert=False)
    assert (status, row) == (OK, len(batches))
    assert version_map.latest_offset == latest
    assert entries(version_map, expected.winners) == expected_entries(expected)
    sentences = [
        cleaner_oracle.judge(
            batch,
            expected,
            NOW_MS,
            NOW_MS + 5000,
            retain_empty=retained[at],
            aborted=at in aborted,
            marker_done=done[at],
        )
        for at, batch in enumerate(batches)
    ]
    rules = Rules(strategy, keep_offset=keep_offset, safe_ms=safe_ms)
    status, rows, codes, starts = classify(data, table, version_map, NOW_MS, NOW_MS + 5000, rules)
    assert (status, rows) == (OK, len(batches))
    fates = [FATE_NAMES[code] for code in codes[: table[:, COL_PARSED].sum()]]
    assert fates == [fate for sentence in sentences for fate in sentence.fates]
    assert [FORMS[form] for form in table[:, COL_FORM]] == [s.form for s in sentences]
    outputs = assemble(data, table, starts)
    for output, sentence, batch in zip(outputs, sentences, batches, strict=True):
        if sentence.form == "rebuilt" and batch.header.codec_id:
            assert output == bytes(RecordBatch(sentence.output).section())
        else:
            assert output == sentence.output


@given(
    order=orders, winner=orders, lifted=st.booleans(), key=st.sampled_from([b"", b"k", b"k" * 40])
)
def test_is_beaten_if_the_key_has_a_higher_order(order, winner, lifted, key):
    version_map = map_with()
    hash_key = version_map.arrays.k0, version_map.arrays.k1
    words = [np.uint64(each) for each in siphash128(array(key), 0, len(key), *hash_key)]
    beaten = version_kernels.is_superseded(version_map.arrays, *words, kernel_order(order))
    assert tuple(beaten) == (False, False), "an unknown key beats nobody"
    version_map.put(key, winner)
    if lifted:
        version_map.put(key, Order(False, 0, 10))
        winner = max(winner, Order(False, 0, 10))
    beaten = version_kernels.is_superseded(version_map.arrays, *words, kernel_order(order))
    assert tuple(beaten) == (order < winner, lifted and winner.present)


# --- hostile bytes ----------------------------------------------------------------------------


@given(
    batches=stored_batches(headers=headers).filter(bool),
    by=ways,
    insert=st.booleans(),
    data=st.data(),
)
def test_no_version_kernel_reads_beyond_hostile_batches(batches, by, insert, data):
    """Under NUMBA_BOUNDSCHECK=1 an access outside an array raises; the arrays fit exactly."""
    raw = b"".join(batch.data for batch in batches)
    raw = data.draw(damaged(raw))
    _, table, _ = scan(raw, check_crc=False)
    rows = table[:, COL_RECORD_COUNT] <= (table[:, COL_SECTION_END] - table[:, COL_SECTION_START])
    table = table[rows]  # a chunk reader refuses the others
    version_map = map_with(base_offset=0)
    strategy = STRATEGIES[by]
    for inserts in (True, insert):
        status, _ = compete(array(raw), table, 0, 2**40, version_map, strategy, insert=inserts)
        assert status in (OK, DAMAGED, MAP_FULL)
    assert len(version_map) <= 90
    rules = Rules(strategy, keep_offset=5, safe_ms=NOW_MS)
    status, row, _, starts = classify(array(raw), table, version_map, NOW_MS, NOW_MS + 1, rules)
    if status == DAMAGED:
        table = table[:row]
    outputs = assemble(array(raw), table, starts)
    for output, kept in zip(outputs, table[:, COL_KEPT], strict=True):
        assert bool(output) == bool(kept)


@given(raw=st.binary(max_size=40), by=ways)
def test_header_version_ends_inside_whatever_it_is_given(raw, by):
    """Headers are checked before; unchecked ones are read wrong at worst, never too far."""
    strategy = kernel_strategy(STRATEGIES[By("long") if by.form == "timestamp" else by])
    status, _ = version_kernels.header_version(array(raw), 0, len(raw), strategy)
    assert status in STATUSES
