"""The cleaner's kernels against plain Python, for any batches that Hypothesis generates.

Kernels: `siphash128`, `map_put`, `map_get`, `scan_batches`,
`read_control_types`, `map_batches`, `classify_batches`, `assemble_batches`, `write_kept_records`
and `write_header`; beneath them `read_row_record`, `record_timestamp`, `record_fate`,
`classify_records`, `choose_form`, `borrowed_map` and `absolute_offset`.
"""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from logstore.cleaner.kernels.slots import siphash128
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
    COL_PARSED,
    COL_PRODUCER_EPOCH,
    COL_PRODUCER_ID,
    COL_RECORD_COUNT,
    COL_SECTION_END,
    COL_SECTION_START,
    COL_SIZE,
    COL_VERDICT,
    CONTROL_ABORT,
    CONTROL_COMMIT,
    CONTROL_EMPTY,
    CONTROL_NONE,
    CONTROL_OTHER,
    DAMAGED,
    DISCARD_ABORTED,
    DISCARD_EXPIRING,
    DISCARD_NONE,
    MAP_FULL,
    VERDICT_DELETE_EMPTY,
    VERDICT_RETAIN_EMPTY,
    read_control_types,
    scan_batches,
)
from logstore.cleaner.passes.offset_map import OffsetMap
from logstore.cleaner.stats import FATE_NAMES
from logstore.record.batch import RecordBatch, build_batch
from logstore.record.codecs import Codec
from logstore.record.kernels import OK
from logstore.record.records import Record
from logstore.runtime import random_source
from tests.support.oracles import cleaner_oracle as oracle
from tests.support.world.chunk_strategies import (
    NOW_MS,
    keys,
    loaded,
    stored_batches,
    values,
)
from tests.support.world.kernel_calls import FORMS, array, assemble, build, classify, scan
from tests.support.world.record_strategies import damaged

pytestmark = pytest.mark.skipif(
    not hasattr(scan_batches, "signatures"),
    reason="kernels run as plain Python, where overflow warns instead of wrapping",
)


# --- hash, map --------------------------------------------------------------------------------


@given(
    data=st.binary(max_size=60),
    lead=st.integers(0, 9),
    k0=st.integers(0, 2**64 - 1),
    k1=st.integers(0, 2**64 - 1),
)
def test_siphash128(data, lead, k0, k1):
    result = siphash128(array(bytes(lead) + data), lead, len(data), np.uint64(k0), np.uint64(k1))
    assert tuple(map(int, result)) == oracle.siphash128(data, k0, k1, 1, 3)


@given(
    puts=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 2**40 - 2)), max_size=120),
    base=st.integers(0, 2**60),
    homes=st.integers(0, 60),
    seed=st.integers(0, 5),
)
def test_map_put_and_map_get_are_a_dict(puts, base, homes, seed):
    """Also with far fewer home slots than keys, so that runs of neighbours grow and shift."""
    a_map = OffsetMap(24 * 100, 0.9, base_offset=base, max_entries=homes, rng=random_source(seed))
    expected = {}
    for number, relative in puts:
        a_map.put(b"%d" % number, base + relative)
        expected[b"%d" % number] = base + relative
        assert a_map.latest_offset == base + relative
    assert len(a_map) == len(expected)
    for number in range(61):
        assert a_map.get(b"%d" % number) == expected.get(b"%d" % number, -1)
    a_map._check()


# --- batches ----------------------------------------------------------------------------------


@given(batches=stored_batches(), cut=st.integers(0, 400))
def test_scan_batches_returns_complete_batches_and_their_headers(batches, cut):
    raw = b"".join(batch.data for batch in batches)
    raw = raw[: max(0, len(raw) - cut)]
    status, table, position = scan(raw)
    assert status == OK
    whole, end = [], 0
    for batch in batches:
        if end + len(batch.data) > len(raw):
            break
        whole.append(batch.header)
        end += len(batch.data)
    assert position == end
    columns = {
        COL_SIZE: [header.size_bytes for header in whole],
        COL_BASE_OFFSET: [header.base_offset for header in whole],
        COL_LAST_OFFSET: [header.last_offset for header in whole],
        COL_ATTRIBUTES: [header.attributes for header in whole],
        COL_BASE_TIMESTAMP: [header.base_timestamp for header in whole],
        COL_MAX_TIMESTAMP: [header.max_timestamp for header in whole],
        COL_PRODUCER_ID: [header.producer_id for header in whole],
        COL_PRODUCER_EPOCH: [header.producer_epoch for header in whole],
        COL_RECORD_COUNT: [header.record_count for header in whole],
        COL_VERDICT: [VERDICT_DELETE_EMPTY] * len(whole),
        COL_DISCARD: [DISCARD_NONE] * len(whole),
        COL_CONTROL: [CONTROL_NONE] * len(whole),
    }
    for column, expected in columns.items():
        assert table[:, column].tolist() == expected


CONTROL_TYPES = {
    "data": CONTROL_NONE,
    "abort": CONTROL_ABORT,
    "commit": CONTROL_COMMIT,
    "other": CONTROL_OTHER,
    "empty": CONTROL_EMPTY,
}
sound_keys = st.builds(
    lambda version, kind, rest: version.to_bytes(2, "big") + kind.to_bytes(2, "big") + rest,
    st.sampled_from([0, 0, 1, 0x7FFF]),
    st.sampled_from([0, 0, 1, 1, 2, 6, 255, 256, 257, 0x7FFF, 0x8000, 0xFFFF]),
    st.binary(max_size=3),
)
bad_keys = st.sampled_from([None, b"", b"\0\0\0", b"\x80\0\0\0", b"\xff\xff\0\1"])


@given(
    keys=st.lists(st.one_of(sound_keys, sound_keys, sound_keys, bad_keys), min_size=1, max_size=4),
    kinds=st.lists(st.sampled_from(["control", "control", "data", "empty"]), min_size=4),
    codec=st.sampled_from([Codec.NONE, Codec.NONE, Codec.ZSTD]),
    value=values,
)
def test_read_control_types_equals_the_oracle(keys, kinds, codec, value):
    batches, is_bad = [], []
    for offset, (key, kind) in enumerate(zip(keys, kinds, strict=False)):
        records = [Record(offset, 5, key, value)]
        data = build_batch(
            records,
            codec=codec,
            is_control=kind != "data",
            producer_id=1,
            producer_epoch=0,
            base_sequence=0,
        )
        batch = RecordBatch(data)
        if kind == "empty":
            batch = RecordBatch(oracle.empty_batch(batch.header))
        batches.append(batch)
        is_bad.append(kind == "control" and (key is None or len(key) < 4 or key[0] >= 0x80))
    data, table = loaded(batches)
    status, row = read_control_types(data, table)
    first_bad = is_bad.index(True) if any(is_bad) else len(batches)
    assert (status, row) == (DAMAGED if any(is_bad) else OK, first_bad)
    expected = [CONTROL_TYPES[oracle.control_type(batch)] for batch in batches[:first_bad]]
    assert table[:first_bad, COL_CONTROL].tolist() == expected


@given(
    batches=stored_batches(),
    skipped=st.integers(0, 30),
    limit=st.integers(1, 8),
    aborted=st.sets(st.integers(0, 3)),
)
def test_map_batches_equals_the_oracle(batches, skipped, limit, aborted):
    data, table = loaded(batches)
    for number in aborted & set(range(len(batches))):
        table[number, COL_DISCARD] = DISCARD_ABORTED
    first_dirty = batches[0].header.base_offset + skipped if batches else skipped
    a_map = OffsetMap(24 * 100, 0.9, base_offset=first_dirty)
    a_map.state.limit = limit
    a_map.latest_offset = first_dirty - 1
    expected = oracle.map_batches(batches, first_dirty, limit, first_dirty - 1, aborted)
    status, row = build(data, table, first_dirty, a_map)
    assert status == (MAP_FULL if expected.full else OK)
    assert expected.full or row == len(batches)
    assert a_map.latest_offset == expected.latest_offset
    assert a_map.state.messages == expected.messages
    assert {key: a_map.get(key) for key in expected.offsets} == expected.offsets
    assert len(a_map) == len(expected.offsets)


@given(
    batches=stored_batches(),
    later=st.dictionaries(keys.filter(lambda key: key is not None), st.integers(0, 40)),
    latest=st.integers(-1, 60),
    choices=st.lists(
        st.sampled_from(["", "", "", "retain", "aborted", "done"]), min_size=4, max_size=4
    ),
    retention=st.sampled_from([0, 5000, 2**61]),
)
def test_classify_and_assemble_batches_equal_the_oracle(batches, later, latest, choices, retention):
    data, table = loaded(batches)
    base = batches[0].header.base_offset if batches else 0
    a_map = OffsetMap(24 * 100, 0.9, base_offset=base)
    for key, relative in later.items():
        a_map.put(key, base + relative)
    a_map.latest_offset = base + latest
    mapping = oracle.KeyMap(
        {key: base + relative for key, relative in later.items()}, base + latest, 0, full=False
    )
    new_horizon = NOW_MS + retention
    sentences = []
    for row, (batch, choice) in enumerate(zip(batches, choices, strict=False)):
        control = batch.header.is_control
        retain, aborted = choice == "retain", choice == "aborted" and not control
        done = choice == "done" and control
        table[row, COL_VERDICT] = VERDICT_RETAIN_EMPTY if retain else 0
        table[row, COL_DISCARD] = DISCARD_ABORTED if aborted else DISCARD_EXPIRING if done else 0
        sentences.append(
            oracle.judge(
                batch,
                mapping,
                NOW_MS,
                new_horizon,
                retain_empty=retain,
                aborted=aborted,
                marker_done=done,
            )
        )
    status, rows, codes, starts = classify(data, table, a_map, NOW_MS, new_horizon)
    assert (status, rows) == (OK, len(batches))
    fates = [FATE_NAMES[code] for code in codes[: table[:, COL_PARSED].sum()]]
    assert fates == [fate for sentence in sentences for fate in sentence.fates]
    forms = [FORMS[form] for form in table[:, COL_FORM]]
    assert forms == [sentence.form for sentence in sentences]
    assert table[:, COL_KEPT].tolist() == [
        RecordBatch(each.output).header.record_count if each.output else 0 for each in sentences
    ]
    outputs = assemble(data, table, starts)
    for output, sentence, batch in zip(outputs, sentences, batches, strict=True):
        if sentence.form == "rebuilt" and batch.header.codec_id:
            assert output == bytes(RecordBatch(sentence.output).section())
        else:
            assert output == sentence.output


@given(batches=stored_batches().filter(bool), data=st.data())
def test_no_kernel_reads_or_writes_beyond_hostile_batches(batches, data):
    """Under NUMBA_BOUNDSCHECK=1 an access outside an array raises; the arrays fit exactly."""
    raw = b"".join(batch.data for batch in batches)
    raw = data.draw(damaged(raw))
    _, table, position = scan(raw, check_crc=False)
    assert position <= len(raw)
    rows = table[:, COL_RECORD_COUNT] <= (table[:, COL_SECTION_END] - table[:, COL_SECTION_START])
    table = table[rows]  # a chunk reader refuses the others
    status, row = read_control_types(array(raw), table)
    assert status in (OK, DAMAGED)
    a_map = OffsetMap(24 * 100, 0.9, base_offset=0)
    status, row = build(array(raw), table, 0, a_map)
    assert status in (OK, DAMAGED, MAP_FULL)
    assert len(a_map) <= 90
    status, row, _, starts = classify(array(raw), table, a_map, NOW_MS, NOW_MS + 1)
    if status == DAMAGED:
        table = table[:row]
    outputs = assemble(array(raw), table, starts)
    for output, kept in zip(outputs, table[:, COL_KEPT], strict=True):
        assert bool(output) == bool(kept)
