"""Fates of `cleaner/passes/fate.py` match the cleaner's results, for any log.

Kernel: `list_records`.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from logstore import Broker, VirtualClock
from logstore.cleaner.kernels.classify import FATES as FATE_CODES
from logstore.cleaner.kernels.classify import NULL_KEY, SUPERSEDED
from logstore.cleaner.kernels.facts import FACT_COLUMNS, list_records
from logstore.cleaner.kernels.table import COL_CONTROL, COL_PARSED
from logstore.cleaner.passes.fate import FATES, list_fates
from logstore.cleaner.passes.offset_map import OffsetMap
from logstore.cleaner.passes.version_map import VersionMap
from logstore.cleaner.selection import CleanableState, cleanable_state
from logstore.cleaner.stats import FATE_NAMES, CleanerStats
from logstore.cleaner.strategy import Order
from logstore.record.kernels import OK
from logstore.runtime import MemoryFileSystem
from tests.support.oracles.transaction_model import (
    RETENTION_MS,
    TransactionModel,
    config_of,
    drawn_action,
    physical,
)
from tests.support.world.chunk_strategies import loaded, stored_batches
from tests.support.world.cleaning import offsets_in, run_pass

GONE = frozenset(FATE_NAMES) - {"retained"}

# --- the kernel -------------------------------------------------------------------------------


@given(
    batches=stored_batches(),
    codes=st.lists(st.integers(0, FATE_CODES - 1), min_size=20, max_size=20),
    parsed=st.lists(st.booleans(), min_size=4, max_size=4),
    unread=st.lists(st.sampled_from([0, 3, 4, 6, 7, 8]), min_size=4, max_size=4),
    mapped=st.sets(st.sampled_from([b"", b"a", b"b", b"c"])),
    has_versions=st.booleans(),
)
@pytest.mark.skipif(
    not hasattr(list_records, "signatures"),
    reason="kernels run as plain Python, where overflow warns instead of wrapping",
)
def test_kernel_list_records_equals_a_read_of_the_batches(
    batches, codes, parsed, unread, mapped, has_versions
):
    data, table = loaded(batches)
    offset_map = VersionMap(32 * 100) if has_versions else OffsetMap(24 * 100)
    winners = {key: 1000 + number for number, key in enumerate(sorted(mapped))}
    for key, offset in winners.items():
        if isinstance(offset_map, VersionMap):
            offset_map.put(key, Order(True, -5, offset))
        else:
            offset_map.put(key, offset)
    table[:, COL_CONTROL] = np.arange(len(batches))
    table[:, COL_PARSED] = 0
    expected = []
    used = []
    for row, batch in enumerate(batches):
        if parsed[row]:
            table[row, COL_PARSED] = batch.header.record_count
        for record in batch.records():
            fate, by = unread[row], -1
            if parsed[row]:
                fate = codes[len(used)]
                if fate == SUPERSEDED and record.key is None:
                    fate = NULL_KEY  # only keys are superseded
                used.append(fate)
            if fate == SUPERSEDED:
                by = winners.get(record.key, -1)
            expected.append((record.offset, fate, by, record.key, row))
    facts = np.empty((len(expected), FACT_COLUMNS), np.int64)
    result = list_records(
        data,
        table,
        np.array(used, np.uint8),
        np.array(unread, np.uint8),
        offset_map.arrays,
        facts,
    )
    assert result == (OK, len(batches))
    reported = []
    for offset, fate, by, start, size, control in facts.tolist():
        key = data[start : start + size].tobytes() if size >= 0 else None
        reported.append((offset, fate, by, key, control))
    assert reported == expected


# --- logs of producers, cleaned by passes of any size -----------------------------------------


def listed(
    model: TransactionModel, slots: int
) -> tuple[list[tuple[int, str, int]], CleanerStats, CleanableState]:
    """(offset, fate, superseded by) of all records, and the pass that reported them."""
    log = model.log
    state = cleanable_state(log, None, 0)._replace(
        first_dirty_offset=model.first_dirty,
        upper_bound_offset=model.upper_bound(),
    )
    result: list[tuple[int, str, int]] = []
    chunks = list_fates(log, config_of(slots), state)
    while True:
        try:
            chunk = next(chunks)
        except StopIteration as done:
            return result, done.value, state
        columns = (chunk.offsets, chunk.fates, chunk.superseded_by)
        for offset, fate, by in zip(*(column.tolist() for column in columns), strict=True):
            result.append((offset, FATES[fate], by))


def end_of_pass(model: TransactionModel, stats: CleanerStats, upper_bound: int) -> int:
    """End offset of the segments that a pass rewrites, exclusive."""
    limit = min(stats.end_offset, upper_bound)
    bases = [segment.base_offset for segment in model.log.segments]
    return min((base for base in bases if base >= limit), default=model.log.log_end_offset)


@settings(max_examples=max(1, settings().max_examples // 5))
@given(seed=st.integers(0, 2**32 - 1), segment_bytes=st.sampled_from([400, 900, 100_000]))
@np.errstate(over="ignore")  # as compiled code does, where kernels run as Python
def test_fates_of_a_pass_match_the_forecast(seed: int, segment_bytes: int) -> None:
    rng = random.Random(seed)
    model = TransactionModel(0, segment_bytes)
    model.live(rng)
    for slots in (4, 1000):
        for _ in range(rng.randint(2, 12)):
            model.act(*drawn_action(rng))
        model.roll()
        check_the_next_pass(model, slots)
        model.wait(RETENTION_MS)


def check_the_next_pass(model: TransactionModel, slots: int) -> None:
    log = model.log
    result, reported, state = listed(model, slots)
    upper_bound = state.upper_bound_offset
    below = end_of_pass(model, reported, upper_bound)
    before = offsets_in(log)
    keys = {item.offset: item.key for item in physical(log)}
    start = log.log_start_offset
    stats = run_pass(log, model.first_dirty, upper_bound, config_of(slots))
    model.first_dirty = stats.end_offset

    assert [offset for offset, _, _ in result] == before, "every record once, in order"
    assert replace(reported, index_ms=0, clean_ms=0) == replace(stats, index_ms=0, clean_ms=0)
    counts = Counter(fate for offset, fate, _ in result if start <= offset < below)
    deleted = sum(offset < min(start, below) for offset in before)
    assert counts["below_log_start"] == 0
    assert counts.total() + deleted == sum(stats.fates.values())
    if not deleted:
        assert {name: counts[name] for name in FATE_NAMES} == stats.fates
    visible = [(offset, fate) for offset, fate, _ in result if offset >= start]
    left = [offset for offset in offsets_in(log) if offset >= start]
    assert left == [offset for offset, fate in visible if fate not in GONE]

    aborted = {offset for offset, fate, _ in result if fate == "aborted"}
    latest = {
        key: offset
        for offset, key in keys.items()
        if offset < stats.end_offset and offset not in aborted
    }
    for offset, fate, by in result:
        if fate == "superseded":
            assert by == latest[keys[offset]] > offset
        else:
            assert by == -1
        if offset >= below and offset >= start:
            is_active = offset >= log.active_segment.base_offset
            beyond = "not_yet_cleanable" if offset >= upper_bound else "retained"
            assert fate == ("active" if is_active else beyond)


# --- brokers: the listing against the dry run and the command ---------------------------------

HOUR_MS = 3_600_000
pairs = st.tuples(
    st.sampled_from([None, b"", b"a", b"b", b"c", b"d"]),
    st.one_of(st.none(), st.binary(max_size=3)),
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.lists(pairs, min_size=1, max_size=5)),
        st.tuples(st.just("roll"), st.none()),
        st.tuples(st.just("wait"), st.sampled_from([1, HOUR_MS - 1, HOUR_MS, 3 * HOUR_MS])),
        st.tuples(st.just("clean"), st.booleans()),
    ),
    min_size=1,
    max_size=20,
)
lags = st.sampled_from(["0", str(HOUR_MS)])


@given(
    history=steps,
    codec=st.sampled_from(["none", "none", "gzip", "lz4"]),
    min_lag=lags,
    has_max_lag=st.booleans(),
    strategy=st.sampled_from(["offset", "offset", "timestamp", "header"]),
    force=st.booleans(),
    roll=st.booleans(),
)
@np.errstate(over="ignore")
def test_the_fates_add_up_to_those_of_the_dry_run(
    history, codec, min_lag, has_max_lag, strategy, force, roll
):
    clock = VirtualClock()
    with Broker(clock=clock, fs=MemoryFileSystem(clock), seed=1) as broker:
        configs = {
            "cleanup.policy": "delete",  # lets records without a key pass
            "min.compaction.lag.ms": min_lag,
            "delete.retention.ms": str(HOUR_MS),
            "min.cleanable.dirty.ratio": "0.01",
            "file.delete.delay.ms": "0",
            "segment.ms": str(10**12),
            "compaction.strategy": strategy,
            "compaction.strategy.header": "v",
        }
        if has_max_lag:
            configs["max.compaction.lag.ms"] = str(2 * HOUR_MS)
        broker.create_topic("t", 1, configs)
        compact = {"cleanup.policy": "compact"}
        for name, argument in history:
            if name == "append":
                broker.alter_configs("t", {"cleanup.policy": "delete"})
                broker.append_many("t", argument, partition=0, compression=codec)
            elif name == "roll":
                broker.roll("t")
            elif name == "wait":
                clock.advance(ms=argument)
            else:
                broker.alter_configs("t", compact)
                broker.clean("t", force=argument)
        broker.alter_configs("t", compact)
        result = broker.fates("t", force=force, roll=roll)
        records = {each.offset: each for each in result}
        counts = Counter(each.fate for each in records.values())
        for each in records.values():
            assert (each.superseded_by is not None) == (each.fate == "superseded")
            if each.superseded_by is not None:
                winner = records[each.superseded_by]
                assert winner.key == each.key
                assert winner.fate != "superseded"
                assert strategy != "offset" or winner.offset > each.offset
        assert counts.total() == len(offsets_in(broker.log("t")))
        report = broker.clean("t", dry_run=True, force=force, roll=roll)
        assert report.cleaned == () or result.decision.will_clean
        for stats in report.cleaned:
            assert {name: counts[name] for name in FATE_NAMES} == stats.fates
            assert replace(result.stats, index_ms=0, clean_ms=0) == replace(
                stats, index_ms=0, clean_ms=0
            )
