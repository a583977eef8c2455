"""Strategies with versions in a broker: internal topics, and the predicted number of passes."""

from __future__ import annotations

import pytest

from logstore import Broker, VirtualClock
from logstore.cleaner.config import CleanerConfig
from logstore.cleaner.strategy import Strategy
from logstore.runtime import MemoryFileSystem
from tests.support.world.cleaning import offsets_in


def room_for(keys: int) -> CleanerConfig:
    """Return a cleaner config whose map takes so many keys with versions."""
    return CleanerConfig(dedupe_buffer_bytes=32 * keys, load_factor=1.0)


def new_broker(**broker_config: str) -> Broker:
    clock = VirtualClock()
    return Broker(clock=clock, fs=MemoryFileSystem(clock), seed=3, broker_config=broker_config)


def test_coordinators_topics_are_compacted_by_offset_whatever_the_brokers_are() -> None:
    """Otherwise, after the clock was set back, an older state of a transaction would survive."""
    broker = new_broker(
        **{
            "log.cleaner.compaction.strategy": "timestamp",
            "transaction.state.log.num.partitions": "1",
        }
    )
    broker.create_topic("t", configs={"cleanup.policy": "compact"})
    producer = broker.producer(transactional_id="copier")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("t", b"v", b"k")
    producer.commit_transaction()
    log = broker.log("__transaction_state")
    assert log.log_end_offset > 2, "states of one transaction"
    assert Strategy.of(log.config) == Strategy()
    assert Strategy.of(broker.log("t").config) == Strategy("timestamp")
    broker.roll("__transaction_state")
    (stats,) = broker.clean("__transaction_state", force=True).cleaned
    assert stats.strategy == "offset"
    assert offsets_in(log) == [log.log_end_offset - 1]


# --- number of passes -------------------------------------------------------------------------


def test_a_dry_run_knows_that_a_loser_is_gone_from_the_map_of_the_next_pass() -> None:
    """Otherwise it would take an entry, and the predicted number of passes would be too high."""
    broker = new_broker()
    broker.create_topic(
        "t", configs={"cleanup.policy": "compact", "compaction.strategy": "timestamp"}
    )
    broker.cleaner.config = room_for(2)
    for key, timestamp in ((b"a", 9), (b"b", 9), (b"b", 5), (b"c", 1), (b"d", 1), (b"e", 1)):
        broker.append("t", value=b"x", key=key, timestamp=timestamp)
    broker.roll("t")
    told = broker.clean("t", force=True, dry_run=True).passes_needed
    done = broker.clean("t", force=True)
    assert done.passes_needed == told
    assert [stats.end_offset for stats in done.cleaned] == [2, 4, 5, 6]


@pytest.mark.parametrize("keys", (2, 3, 4))
def test_the_bound_of_the_passes_leaves_room_for_the_record_before_the_dirty_ones(
    keys: int,
) -> None:
    """It takes an entry in each pass except the first."""
    broker = new_broker()
    broker.create_topic(
        "t", configs={"cleanup.policy": "compact", "compaction.strategy": "timestamp"}
    )
    broker.cleaner.config = room_for(keys)
    for number in range(13):
        broker.append("t", value=b"x", key=b"%d" % number)
    broker.roll("t")
    (explained,) = broker.explain("t").partitions
    done = len(broker.clean("t", force=True).cleaned)
    assert done == 1 + -(-(13 - keys) // (keys - 1))
    assert explained.passes_needed >= done
