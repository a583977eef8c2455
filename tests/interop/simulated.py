"""A simulation against Kafka: the same appends at the same times in Kafka's classes.

The events of a simulated partition are recorded: each append with its bytes, each pass and each
removal with its time. Kafka's log and cleaner replay the same days; after each day the segments of
both must be equal to the byte. Kafka must not delete one retention round before each removal, and
its cleaner manager must consider each pass due.
"""

from __future__ import annotations

import base64
import hashlib
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from logstore.simulate import engine, feed
from logstore.simulate.scenario import Scenario, from_mapping
from logstore.storage.log.log import Log
from tests.support.interop.judge import Judge

BACKOFF_MS = 15_000
RETAIN: dict[str, Any] = {"op": "retain"}


@dataclass
class Day:
    """One day: the actions before each pass, the actions after the last, and the final state."""

    start_ms: int
    turns: list[list[dict[str, Any]]] = field(default_factory=list)
    rest: list[dict[str, Any]] = field(default_factory=list)
    segments: list[tuple[int, str]] = field(default_factory=list)


class Diary:
    """Days of the first partition of a scenario's only topic."""

    def __init__(self, topic: str, start_ms: int) -> None:
        self.topic = topic
        self.days = [Day(start_ms)]
        self._at_ms = start_ms
        self.passes = self.removals = self.appends = 0

    def note(self, at_ms: int, operation: dict[str, Any] | None) -> None:
        """Write down an operation, or a pass (None)."""
        day = self.days[-1]
        if operation == RETAIN and at_ms - BACKOFF_MS > self._at_ms:
            self._advance(at_ms - BACKOFF_MS)
            day.rest.append(RETAIN)  # which must be too early
        self._advance(at_ms)
        if operation is not None:
            day.rest.append(operation)
            return
        day.turns.append(day.rest)
        day.rest = []
        self.passes += 1

    def end_day(self, at_ms: int, segments: list[tuple[int, str]]) -> None:
        """Write down how a day ends."""
        self._advance(at_ms)
        self.days[-1].segments = segments
        self.days.append(Day(at_ms))

    def _advance(self, at_ms: int) -> None:
        if at_ms > self._at_ms:
            self.days[-1].rest.append({"op": "advance", "ms": at_ms - self._at_ms})
            self._at_ms = at_ms


class _Watched(engine._Simulation):
    def __init__(self, diary: Diary, scenario: Scenario, days: int) -> None:
        self.diary = diary
        super().__init__(scenario, None, days, progress=None, recording=None)

    def _note_pass(self, stats: Any) -> None:
        super()._note_pass(stats)
        self.diary.note(self.clock.now_ms(), None)

    def _sample_all(self, event: str) -> None:
        super()._sample_all(event)
        if event != engine.START:
            log = self.broker.log(self.watched_partitions[0].tp)
            self.diary.end_day(self.clock.now_ms(), _segments_of(log, self.broker.runtime.fs))


def _segments_of(log: Log, fs: Any) -> list[tuple[int, str]]:
    found = []
    for segment in log.segments.view:
        file = fs.open(segment.log_path)
        data = file.read(0, segment.size_bytes)
        file.close()
        found.append((segment.base_offset, hashlib.sha256(data).hexdigest()))
    return found


@contextmanager
def _written_down(diary: Diary):
    """Note every append and every removal that happens inside."""
    append_batches, append_marker = feed.append_batches, feed.append_marker
    delete_old = Log.delete_old_segments

    def stored(log: Log, start: int) -> dict[str, Any]:
        data = b"".join(batch.data for batch in log.reader.batches(start))
        diary.appends += 1
        return {"op": "replicate", "batches": base64.b64encode(data).decode()}

    def placed(log: Log, batches: Any) -> None:
        start = log.log_end_offset
        append_batches(log, batches)
        diary.note(log.runtime.clock.now_ms(), stored(log, start))

    def marked(log: Log, producer: int, *, commit: bool) -> None:
        start = log.log_end_offset
        append_marker(log, producer, commit=commit)
        diary.note(log.runtime.clock.now_ms(), stored(log, start))

    def deleted(log: Log, **arguments: Any) -> Any:
        decision = delete_old(log, **arguments)
        if decision.removed and log.topic_partition.topic == diary.topic:
            diary.note(log.runtime.clock.now_ms(), RETAIN)
            diary.removals += 1
        return decision

    feed.append_batches, feed.append_marker = placed, marked
    Log.delete_old_segments = deleted  # type: ignore[method-assign]
    try:
        yield
    finally:
        feed.append_batches, feed.append_marker = append_batches, append_marker
        Log.delete_old_segments = delete_old  # type: ignore[method-assign]


def live(tree: dict[str, Any]) -> tuple[Diary, Scenario]:
    """Simulate a scenario of one partition, by Kafka's exact rules, and write down its days."""
    tree = {**tree, "broker": {**tree.get("broker", {}), "logstore.kafka.exact": "true"}}
    scenario = from_mapping(tree)
    diary = Diary(scenario.topics[0].name, scenario.start_ms)
    with _written_down(diary):
        _Watched(diary, scenario, round(scenario.days)).run()
    return diary, scenario


def follow(diary: Diary, scenario: Scenario, judge: Judge, scratch: Path) -> int:
    """Replay the days with Kafka; return the number of compared days.

    Raises
    ------
    AssertionError
        The segments differ after a day, or Kafka would not have cleaned where a pass was made.
    """
    topic = scenario.topics[0]
    config = {name: value for name, value in topic.configs.items() if "logstore" not in name}
    ratio = float(config.get("min.cleanable.dirty.ratio", "0.5"))
    folder = scratch / f"{topic.name}-0"
    days = 0
    for number, day in enumerate(diary.days):
        if not day.segments:
            continue
        now_ms = day.start_ms
        if day.turns:
            told = judge.ask(
                "clean", scratch, topic.name, config=config, now=now_ms, turns=day.turns,
                dedupe_bytes=128 << 20,
            )  # fmt: skip
            for told_pass in told["passes"]:
                _assert_due(told_pass, ratio, config, number)
            now_ms += sum(each.get("ms", 0) for turn in day.turns for each in turn)
        judge.ask("write", scratch, topic.name, config=config, now=now_ms, operations=day.rest)
        theirs = [
            (int(path.stem), hashlib.sha256(path.read_bytes()).hexdigest())
            for path in sorted(folder.glob("*.log"))
        ]
        assert theirs == day.segments, f"day {number + 1} of {topic.name}"
        days += 1
    return days


def _assert_due(told: dict[str, Any], ratio: float, config: dict[str, str], day: int) -> None:
    assert told["stats"] is not None, f"day {day + 1}: Kafka found nothing to clean"
    if "max.compaction.lag.ms" not in config:
        total = told["clean_bytes"] + told["cleanable_bytes"]
        assert told["cleanable_bytes"] > ratio * total, f"day {day + 1}: {told}"
