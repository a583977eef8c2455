"""Statistics equal the counts of a plain walk over the records, in one or many reads."""

from __future__ import annotations

from collections import Counter

from hypothesis import example, given, settings
from hypothesis import strategies as st

from logstore import Broker, TopicPartition, VirtualClock
from logstore.analysis.stats import partition_stats
from logstore.analysis.summary import count_keys
from tests.property.test_explain import COMPACT, configs, replayed, steps

TP = TopicPartition("t", 0)
ABORTED = [("append", 1, False), ("transaction", 1, False), ("end", 1, False), ("append", 2, False)]


@settings(max_examples=50)
@given(steps, configs, st.sampled_from([1, 2, 1000]))
@example(ABORTED, COMPACT, 1000)
def test_statistics_match_a_plain_walk(history, config, keys_max):
    broker = replayed(history, config)
    log = broker.log("t")
    result = partition_stats(broker, TP, top=3, keys_max=keys_max)
    committed = list(broker.read("t", isolation="read_committed"))
    seen = list(broker.read("t"))
    stored = [
        each for batch in log.reader.batches(log.log_start_offset) for each in batch.records()
    ]
    winners = {each.key: each for each in committed}
    live = [each for each in winners.values() if each.value is not None]
    assert result.live_records == result.live_keys == len(live)
    assert broker.table("t") == {each.key: each.value for each in live}
    assert count_keys(log) == (len(live), sum(each.value is None for each in committed))
    assert result.dead["tombstone"] == len(winners) - len(live)
    assert result.dead["superseded"] == len(committed) - len(winners)
    [explained] = broker.explain("t").partitions
    if explained.tombstones is not None:
        assert explained.tombstones.records == result.dead["tombstone"]
    uncommitted = result.dead["aborted"] + result.dead["open_transaction"] + result.dead["unstable"]
    assert uncommitted == len(seen) - len(committed)
    visible = [each for each in stored if each.offset >= log.log_start_offset]
    assert result.dead["control"] == len(visible) - len(seen)
    assert result.live_records + result.dead_records == result.records
    assert sum(segment.records for segment in result.segments) == result.records
    assert sum(segment.bytes for segment in result.segments) == result.bytes == log.size_bytes
    assert result.tombstones == sum(each.value is None for each in committed)
    counts = Counter(each.key for each in seen)
    assert result.distinct_keys == len(counts)
    assert [key.records for key in result.top_keys] == sorted(counts.values(), reverse=True)[:3]
    assert all(counts[key.key] == key.records for key in result.top_keys)
    assert result.value_sizes.total == sum(len(each.value or b"") for each in seen)
    assert result.value_sizes.count == sum(each.value is not None for each in seen)
    by_base = {segment.base_offset: segment.live_records for segment in result.segments}
    expected = Counter(log.segments.floor(each.offset).base_offset for each in live)
    assert {base: count for base, count in by_base.items() if count} == expected


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9), st.booleans()), max_size=30),
    st.sampled_from([1, 1000]),
)
def test_a_strategy_with_versions_decides_liveness(records, keys_max):
    broker = Broker(clock=VirtualClock())
    broker.create_topic("t", configs={"compaction.strategy": "timestamp"})
    winners = {}
    for offset, (key, timestamp, has_value) in enumerate(records):
        value = b"v" if has_value else None
        broker.append("t", key=b"%d" % key, value=value, timestamp=timestamp)
        rank = (timestamp, offset, has_value)
        winners[key] = max(winners.get(key, rank), rank)
    result = partition_stats(broker, TP, keys_max=keys_max)
    assert result.live_keys == sum(has_value for _, _, has_value in winners.values())
    assert result.dead["superseded"] == len(records) - len(winners)
