"""Actions of the demo, without output: write, let time pass, clean, inspect."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from logstore import jit
from logstore.analysis.summary import PartitionSummary, inspect_partition
from logstore.broker import Broker
from logstore.cli.demo.accounts import Accounts, Chapter
from logstore.runtime import SystemClock
from logstore.storage.log.drafts import RecordArrays
from logstore.types import DAY_MS, TopicPartition

if TYPE_CHECKING:
    from logstore.cleaner.passes.clean import PassProgress
    from logstore.cleaner.stats import CleanerStats

TOPIC = "user-accounts"
MAX_LAG_DAYS = 7

BATCH_RECORDS = 224
"""Records per batch, about 32 KiB."""

SEGMENT_BYTES_A_RECORD = 8 * (1 << 20) / 1_000_000
"""Gives 8 MiB segments for a million records, and the same number of segments otherwise."""

Progress = Callable[[str, int, int | None], None]
"""Called with the name of a task, the bytes done, and the total."""


def _ignore_progress(task: str, done: int, total: int | None) -> None:
    pass


def _report(progress: Progress, step: PassProgress) -> None:
    task = "reading keys" if step.phase == "map" else "compacting"
    progress(task, step.bytes_done, step.bytes_total)


class StoryClock(SystemClock):
    """A clock with virtual wall-clock time, and real monotonic time for measuring passes."""

    follows_system = False

    def __init__(self, wall_ms: int) -> None:
        self._wall_ms = wall_ms

    def now_ms(self) -> int:
        """Return the virtual time in Unix milliseconds."""
        return self._wall_ms

    def move_to(self, wall_ms: int) -> None:
        """Advance to a time. Never moves backwards."""
        self._wall_ms = max(self._wall_ms, wall_ms)


class Written(NamedTuple):
    """The size of a chapter, and the time taken to write it."""

    records: int
    size_bytes: int
    batches: int
    seconds: float

    def __add__(self, other: object) -> Written:
        """Add each field."""
        assert isinstance(other, Written)
        return Written(*(a + b for a, b in zip(self, other, strict=True)))  # type: ignore[arg-type]


class CleanerRun(NamedTuple):
    """A daily run of the cleaner: why it cleaned or did not, and the pass if there was one."""

    day: int
    why: str
    stats: CleanerStats | None


@dataclass(slots=True)
class Story:
    """A topic of user accounts, its broker and its virtual clock."""

    accounts: Accounts
    clock: StoryClock
    broker: Broker

    @classmethod
    def begin(cls, directory: Path | None, accounts: Accounts, seed: int) -> Story:
        """Create the topic, in memory unless a directory is given."""
        clock = StoryClock(accounts.start_ms)
        broker = Broker(directory, clock=clock, seed=seed)
        broker.create_topic(TOPIC, 1, topic_config(accounts.records))
        return cls(accounts, clock, broker)

    @property
    def day(self) -> float:
        """Days since the start."""
        return (self.clock.now_ms() - self.accounts.start_ms) / DAY_MS

    def inspect(self) -> PartitionSummary:
        """Inspect the partition."""
        return inspect_partition(self.broker, TopicPartition(TOPIC, 0))

    def write(self, chapter: Chapter, progress: Progress = _ignore_progress) -> Written:
        """Append the records of a chapter, each batch at the time of its last record."""
        log = self.broker.log(TOPIC)
        size = batches = 0
        seconds = 0.0
        timestamps = self.accounts.timestamps
        for start in range(chapter.start, chapter.stop, BATCH_RECORDS):
            stop = min(start + BATCH_RECORDS, chapter.stop)
            keys, values = self.accounts.columns(start, stop)
            self.clock.move_to(int(timestamps[stop - 1]))
            before = time.perf_counter()
            records = RecordArrays(keys, values, timestamps[start:stop])
            info = log.writer.append_records(records)
            seconds += time.perf_counter() - before
            size += info.size_bytes
            batches += 1
            progress("writing", size, size * chapter.records // (stop - chapter.start))
        self.sleep_until(chapter.last_day)
        return Written(chapter.records, size, batches, seconds)

    def clean_when_due(self, progress: Progress = _ignore_progress) -> list[CleanerRun]:
        """Run the cleaner once a day until it cleans the topic. Return all runs.

        Raises
        ------
        RuntimeError
            The topic was not cleaned within `max.compaction.lag.ms`.
        """
        runs: list[CleanerRun] = []
        while len(runs) <= MAX_LAG_DAYS + 1:
            day = round(self.day)
            why = self._why_due()
            report = self.broker.clean(TOPIC, progress=lambda _, step: _report(progress, step))
            if report.cleaned:
                runs.append(CleanerRun(day, why, report.cleaned[0]))
                self._remove_old_files()
                return runs
            (passed_over,) = report.not_cleaned
            nothing = passed_over.reason == "active_segment"
            why = "only the active segment is dirty" if nothing else passed_over.text
            runs.append(CleanerRun(day, why, None))
            self.sleep_until(day + 1)
        raise RuntimeError(f"the topic was not cleaned by day {self.day:.0f}: {runs[-1].why}")

    def _why_due(self) -> str:
        """Return why the cleaner will now clean the topic."""
        log = self.broker.log(TOPIC)
        decision = self.broker.cleaner.chooser.decision_of(log)
        state = decision.state
        if not decision.will_clean:
            age = self.clock.now_ms() - log.active_segment.first_batch_timestamp()
            return f"the active segment, {_age(age)} old, was rolled and became dirty"
        ratio = f"the dirty ratio is {state.cleanable_ratio:.2f}"
        if state.max_compaction_delay_ms:
            age = state.max_compaction_delay_ms + MAX_LAG_DAYS * DAY_MS
            return f"{ratio}, but the oldest dirty record is {_age(age)} old"
        return ratio

    def _remove_old_files(self) -> None:
        """Delete replaced files, as a broker does after `file.delete.delay.ms`."""
        log = self.broker.log(TOPIC)
        self.clock.move_to(self.clock.now_ms() + log.config.file_delete_delay_ms)
        # The delay uses monotonic time, which is real time here.
        log.delete_expired_files(force=True)

    def sleep_until(self, day: float) -> None:
        """Advance to a day of the story."""
        self.clock.move_to(self.accounts.start_ms + round(day * DAY_MS))

    def close(self) -> None:
        """Close the broker cleanly."""
        self.broker.close()


def _age(duration_ms: int) -> str:
    days, rest_ms = divmod(duration_ms, DAY_MS)
    return f"{days} d {rest_ms * 24 // DAY_MS} h"


def topic_config(records: int) -> dict[str, str]:
    """Return the topic configs that differ from Kafka's defaults."""
    return {
        "cleanup.policy": "compact",
        "max.compaction.lag.ms": str(MAX_LAG_DAYS * DAY_MS),
        "min.cleanable.dirty.ratio": "0.5",
        "delete.retention.ms": str(DAY_MS),
        "segment.bytes": str(round(records * SEGMENT_BYTES_A_RECORD)),
    }


def compile_kernels() -> float:
    """Compile the kernels by running a small story in memory. Return the seconds taken."""
    before = time.perf_counter()
    jit.compile_always()
    accounts = Accounts(10_000, 0, DAY_MS)
    story = Story.begin(None, accounts, 0)
    for chapter in (accounts.history, accounts.closing, accounts.after_closing):
        story.write(chapter)
    story.clean_when_due()
    for _ in story.broker.read(TOPIC):
        pass
    story.close()
    return time.perf_counter() - before
