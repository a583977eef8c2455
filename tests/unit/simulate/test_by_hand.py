"""Claims of a simulation, held against a broker that is driven by hand in virtual time.

The hand appends the same messages at the same times and looks at the files, the checkpoint and the
records every five minutes, without the simulation.
"""

from pathlib import Path

import numpy as np
import pytest

from logstore import Broker
from logstore.runtime import VirtualClock
from logstore.simulate import run
from logstore.simulate.goals import parse_goal
from logstore.simulate.quantities import quantity
from logstore.simulate.scenario import from_mapping
from logstore.simulate.search import search
from logstore.types import HOUR_MS, MINUTE_MS

DAYS = 6
STEP_MS = 5 * MINUTE_MS
AWAY_MS = (50 * HOUR_MS, 120 * HOUR_MS)
CONFIGS = {
    "cleanup.policy": "compact",
    "segment.ms": "12h",
    "min.cleanable.dirty.ratio": "0.9",
    "max.compaction.lag.ms": "1d",
    "delete.retention.ms": "6h",
    "file.delete.delay.ms": "10m",
}
BROKER = {"log.cleaner.backoff.ms": "1m"}
MESSAGES = [
    {"at": f"{hour}h", "key": str(hour % 7), "delete": True}
    if hour % 5 == 2 and hour < 70
    else {"at": f"{hour}h", "key": str(hour % 7) if hour < 70 else "late", "value": "x" * hour}
    for hour in range(1, 24 * DAYS, 2)
]
SCENARIO = {
    "days": DAYS,
    "broker": BROKER,
    "topics": [{"name": "t", "configs": CONFIGS, "messages": MESSAGES}],
    "consumers": [{"name": "c", "topic": "t", "away_from": "50h", "away": "70h"}],
}


class Hand:
    """A broker with the scenario's topic, and observations of its files and records."""

    def __init__(self, folder: Path, configs, step_ms=STEP_MS) -> None:
        self.folder = folder / "t-0"
        self.checkpoint_file = folder / "cleaner-offset-checkpoint"
        clock = VirtualClock()
        self.start_ms = clock.now_ms()
        self.passes, self.sizes, self.ages, self.headroom = [], [], [], [0]
        self.seen, self.missed = set(), set()
        self.first_dirty = 0
        self.tombstones = {}
        with Broker(folder, clock=clock, broker_config={"log.cleaner.backoff.ms": "60000"},
                    background=True) as self.broker:  # fmt: skip
            self.broker.create_topic("t", configs=configs)
            todo = list(MESSAGES)
            for now_ms in range(0, DAYS * 24 * HOUR_MS, step_ms):
                clock.set_ms(self.start_ms + now_ms)
                while todo and int(todo[0]["at"][:-1]) * HOUR_MS == now_ms:
                    self.look(now_ms)  # a pass ends before an append at the same time
                    message = todo.pop(0)
                    value = None if "delete" in message else message["value"].encode()
                    self.broker.append("t", key=message["key"].encode(), value=value)
                self.look(now_ms)

    def look(self, now_ms):
        """Read the files, the checkpoint and the records."""
        names = [path for path in self.folder.iterdir() if ".log" in path.name]
        logs = sum(path.stat().st_size for path in names if path.suffix == ".log")
        waiting = sum(
            path.stat().st_size for path in self.folder.iterdir() if path.suffix == ".deleted"
        )
        self.sizes.append(logs + waiting)
        if self.checkpoint_file.exists():
            *_, offset = self.checkpoint_file.read_text().split()
            if int(offset) > self.first_dirty:
                self.passes.append(now_ms)
                self.headroom.append(logs + waiting - self.logs)
                self.first_dirty = int(offset)
        self.logs = logs
        records = list(self.broker.read("t", 0, offset=0))
        dirty = [each.timestamp for each in records if each.offset >= self.first_dirty]
        self.ages.append(self.start_ms + now_ms - min(dirty) if dirty else 0)
        self.read(now_ms, records)

    def read(self, now_ms, records):
        """Read as the consumer does, and count the deletes that it can no longer read."""
        keys = {each.key: each.offset for each in records}
        last = {offset for offset, key in self.tombstones.items() if keys.get(key, 0) <= offset}
        there = {each.offset for each in records if each.value is None}
        if not AWAY_MS[0] <= now_ms < AWAY_MS[1]:
            self.seen |= {each.offset for each in records}
        self.missed |= last - there - self.seen
        self.tombstones |= {each.offset: each.key for each in records if each.value is None}


@pytest.fixture(scope="module")
def hand(tmp_path_factory):
    return Hand(tmp_path_factory.mktemp("hand"), CONFIGS)


@pytest.fixture(scope="module")
def outcome():
    return run(from_mapping(SCENARIO), samples=100)


def test_claim_1_the_passes_end_when_those_of_the_broker_end(hand, outcome):
    ends = outcome.passes["time_ms"] - outcome.scenario.start_ms
    looks = -(-ends // STEP_MS) * STEP_MS
    assert len(ends) == outcome.costs()["passes"] > 4
    assert looks.tolist() == hand.passes


def test_claim_2_the_disk_has_the_peak_and_the_head_room_of_the_files(hand, outcome):
    costs = outcome.costs()
    assert costs["bytes_peak"] == max(hand.sizes)
    assert costs["headroom_bytes"] == max(hand.headroom) > 0
    assert from_mapping(SCENARIO).with_replicas(3).topics[0].replicas == 3
    tripled = run(from_mapping({**SCENARIO, "replicas": 3}), samples=5).costs()
    assert tripled["disk_bytes"] == 3 * max(hand.sizes)


def test_claim_3_the_ages_over_time_are_those_of_the_records(hand, outcome):
    costs = outcome.costs()
    assert max(hand.ages) <= costs["oldest_dirty_max_ms"] <= max(hand.ages) + STEP_MS
    for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
        seen = np.quantile(hand.ages, share)
        assert costs[f"oldest_dirty_{name}_ms"] == pytest.approx(seen, abs=2 * STEP_MS)


def test_claim_4_the_consumer_misses_the_deletes_that_it_cannot_read_any_more(hand, outcome):
    assert outcome.costs()["missed_tombstones"] == len(hand.missed) > 0


@pytest.mark.slow
def test_claim_5_the_search_separates_settings_that_keep_a_promise_from_those_that_break_it(
    tmp_path,
):
    goal, axis = parse_goal(["oldest <= 21h"]), "max.compaction.lag.ms"
    values = ["12h", "16h", "20h", "22h", "26h", "30h"]
    found = search(from_mapping(SCENARIO), {axis: values}, goal, quantity("written"), seeds=2)
    assert found.is_met
    verdicts = {each.settings[axis]: found.describe(each) for each in found.candidates}
    assert verdicts["20h"] in ("meets", "best")
    assert verdicts["22h"] == "misses"
    kept, broken = (
        max(Hand(tmp_path / value, {**CONFIGS, axis: value}, 20 * MINUTE_MS).ages)
        for value in ("20h", "22h")
    )
    assert kept <= 21 * HOUR_MS < broken
