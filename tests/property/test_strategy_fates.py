"""Under every strategy a dry run, the fates and the cleaning pass agree.

The winners are computed by an oracle that sorts and has no map.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import hypothesis.strategies as st
import numpy as np
from hypothesis import given

from logstore import Broker, ConsumerRecord, VirtualClock
from logstore.cleaner.config import CleanerConfig
from logstore.cleaner.stats import FATE_NAMES, CleanerStats
from logstore.runtime import MemoryFileSystem
from tests.support.oracles.version_oracle import By, order_of
from tests.support.world.cleaning import offsets_in

RETENTION_MS = 1000
BY = {"timestamp": By("timestamp"), "header": By("long"), "varlong": By("varlong")}
BASE_MS = VirtualClock().now_ms()

versions = st.integers(-3, 3)
header_values = st.one_of(
    st.none(),
    versions.map(lambda version: version.to_bytes(8, "big", signed=True)),
    versions.map(lambda version: bytes([2 * version if version >= 0 else -2 * version - 1])),
    st.just(b"1234"),
)
records = st.tuples(
    st.sampled_from([b"a", b"a", b"b", b"c", b"d"]),
    st.one_of(st.none(), st.just(b"x")),
    versions.map(lambda version: BASE_MS + version),
    st.lists(st.tuples(st.sampled_from(["v", "v", "w"]), header_values), max_size=2),
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.lists(records, min_size=1, max_size=5)),
        st.tuples(st.just("append"), st.lists(records, min_size=1, max_size=5)),
        st.tuples(st.just("roll"), st.none()),
        st.tuples(st.just("wait"), st.sampled_from([1, RETENTION_MS - 1, RETENTION_MS])),
        st.tuples(st.just("age"), st.booleans()),
        st.tuples(st.just("delete"), st.integers(0, 8)),
        st.tuples(st.just("switch"), st.sampled_from(["offset", *BY])),
    ),
    min_size=1,
    max_size=16,
)


def settings_of(strategy: str) -> dict[str, str]:
    return {
        "compaction.strategy": "header" if strategy == "varlong" else strategy,
        "compaction.strategy.header": "v",
        "logstore.compaction.strategy.header.encoding": "varlong"
        if strategy == "varlong"
        else "long",
    }


def untimed(stats: CleanerStats) -> CleanerStats:
    return replace(stats, index_ms=0, clean_ms=0)


def materialised(there: list[ConsumerRecord], strategy: str) -> dict[bytes | None, bytes]:
    """The final table of a consumer that applies the topic's order."""
    by = BY.get(strategy)
    ordered = there if by is None else sorted(there, key=lambda record: order_of(record, by))
    rows = {record.key: record.value for record in ordered}
    return {key: value for key, value in rows.items() if value is not None}


def winners(
    there: list[ConsumerRecord], strategy: str, first_dirty: int, end: int
) -> dict[bytes | None, int]:
    """The offset that wins for each key that a pass over [first dirty, end) compares."""
    by = BY.get(strategy)
    below = [record for record in there if record.offset < end]
    start = first_dirty - (by is not None)
    mapped = {record.key for record in below if record.offset >= start}
    result: dict[bytes | None, ConsumerRecord] = {}
    for record in below:
        known = result.setdefault(record.key, record)
        if by is None or order_of(record, by) > order_of(known, by):
            result[record.key] = record
    return {key: record.offset for key, record in result.items() if key in mapped}


@given(
    history=steps,
    strategy=st.sampled_from(["offset", *BY]),
    codec=st.sampled_from(["none", "lz4"]),
    keys=st.sampled_from([2, 3, 1000]),
    force=st.booleans(),
    roll=st.sampled_from([True, True, False]),
)
@np.errstate(over="ignore")
def test_fates_dry_run_and_cleaning_agree(history, strategy, codec, keys, force, roll):
    clock = VirtualClock()
    with Broker(clock=clock, fs=MemoryFileSystem(clock), seed=1) as broker:
        broker.cleaner.config = CleanerConfig(dedupe_buffer_bytes=32 * keys, load_factor=1.0)
        fixed = {
            "cleanup.policy": "compact",
            "delete.retention.ms": str(RETENTION_MS),
            "min.cleanable.dirty.ratio": "0",
            "file.delete.delay.ms": "0",
            "segment.ms": str(10**12),
        }
        broker.create_topic("t", 1, fixed | settings_of(strategy))
        log = broker.log("t")
        for name, argument in history:
            if name == "append":
                broker.append_many("t", argument, compression=codec)
            elif name == "roll":
                broker.roll("t")
            elif name == "wait":
                clock.advance(ms=argument)
            elif name == "delete":
                low = min(log.log_start_offset + argument, log.high_watermark)
                log.offsets.maybe_increment_log_start_offset(low)
            elif name == "switch":
                strategy = argument
                broker.alter_configs("t", settings_of(strategy))
            else:  # gives tombstones a horizon, and lets it come
                broker.clean("t", force=argument, roll=argument)
                clock.advance(ms=RETENTION_MS)
        check_the_next_cleaning(broker, strategy, force=force, roll=roll)


def check_the_next_cleaning(broker: Broker, strategy: str, *, force: bool, roll: bool) -> None:
    log = broker.log("t")
    there = list(broker.read("t"))
    table = materialised(there, strategy)
    assert broker.table("t") == table
    before = offsets_in(log)
    fates = broker.fates("t", force=force, roll=roll)
    report = {each.offset: each for each in fates}
    assert list(report) == before, "every record once, in order"
    dry = broker.clean("t", force=force, roll=roll, dry_run=True)
    assert offsets_in(log) == before
    if not dry.cleaned:
        real = broker.clean("t", force=force, roll=roll)
        assert (real.cleaned, offsets_in(log)) == ((), before)
        return
    (stats,) = dry.cleaned
    limit = min(stats.end_offset, fates.decision.state.upper_bound_offset)
    bases = [segment.base_offset for segment in log.segments]
    below = min((base for base in bases if base >= limit), default=log.log_end_offset)
    counts = Counter(each.fate for each in report.values() if each.offset < below)
    if not counts["below_log_start"]:
        assert {name: counts[name] for name in FATE_NAMES} == stats.fates, (
            "fates of the rewritten records"
        )
    assert untimed(fates.stats) == untimed(stats)

    expected = winners(there, strategy, stats.first_dirty_offset, stats.end_offset)
    for record in there:
        each = report[record.offset]
        winner = expected.get(record.key, record.offset)
        is_last = record.offset == log.log_end_offset - 1 and strategy != "offset"
        loses = winner != record.offset and record.offset < stats.end_offset and not is_last
        assert (each.fate == "superseded") == loses, (each, winner)
        assert each.superseded_by == (winner if loses else None)

    real = broker.clean("t", force=force, roll=roll)
    assert untimed(real.cleaned[0]) == untimed(stats)
    assert real.passes_needed == {stats.topic_partition: len(real.cleaned)}
    assert real.passes_needed == dry.passes_needed
    if not any(each.fates["tombstone_expired"] for each in real.cleaned):
        assert broker.table("t") == table, "the table does not depend on earlier records"
    if len(real.cleaned) == 1:
        removed = {offset for offset, each in report.items() if each.fate in FATE_NAMES[1:]}
        seen = [
            offset for offset in before if offset not in removed and offset >= log.log_start_offset
        ]
        assert [offset for offset in offsets_in(log) if offset >= log.log_start_offset] == seen
