"""Kafka's cleaner and this one on identical copies of a log, compared to the byte after each pass.

A difference beyond cleaner §15 raises `Difference`, which names the seed, the round, the sitting
and the pass. Run by hand:

    python -m tests.interop.differential 0 500          # seeds, end exclusive
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from logstore.cleaner.config import CleanerConfig
from logstore.cleaner.stats import CleanerStats
from logstore.record.header import BatchHeader
from logstore.storage.checkpoint.offsets import CLEANER_OFFSETS
from logstore.storage.checkpoint.shutdown import CLEAN_SHUTDOWN
from logstore.storage.producers.snapshot import decode_snapshot
from logstore.types import INT64_MAX
from tests.interop.comparing import (
    SEGMENT_FILES,
    Difference,
    Tally,
    compare_directories,
    compare_stats,
)
from tests.interop.dry_run import MISLED, DryRun
from tests.interop.seeds import main
from tests.interop.stories import START_MS, STOPS, Operation, Round, Sitting, Story, story
from tests.support.interop import engine
from tests.support.interop.judge import Judge, JudgeError
from tests.support.interop.view import complaints, differences, view_of

FULL_INDEX = re.compile(r"Attempt to append to a full (time )?index")
"""A failure of Kafka with a tiny `segment.index.bytes`: since 3.9.1 it appends an entry for each
batch of a chunk, but checks for room only before the chunk. Its cleaner then marks the partition
uncleanable. This one omits the entries."""

DATE_S = START_MS // 1000 - 1000
"""Modification time of the first segment's files; each later segment is a second newer."""


class Place(NamedTuple):
    """The position of a comparison in a story."""

    story: Story
    round: int
    sitting: int

    def __str__(self) -> str:
        return f"seed {self.story.seed}, round {self.round}, sitting {self.sitting}"


def run_story(report: Story, judge: Judge, scratch: Path) -> Tally:
    """Live through a story; raise at the first difference.

    The directories of the failing sitting stay in `scratch`: `before`, `kafka`, `ours`.
    """
    return _Life(report, judge, scratch).live()


class _Life:
    """One story, lived by Kafka and by this engine."""

    def __init__(self, report: Story, judge: Judge, scratch: Path) -> None:
        self.told = report
        self.judge = judge
        self.before, self.kafka, self.ours, self.view = (
            scratch / name for name in ("before", "kafka", "ours", "view")
        )
        self.tally = Tally(stories=1)
        self.cleaner = CleanerConfig(
            dedupe_buffer_bytes=report.dedupe_bytes,
            load_factor=report.load_factor,
            io_buffer_bytes=report.io_buffer_bytes,
        )
        self.emptied: dict[int, int] = {}
        """Epochs of the producers whose last batch has only its header left."""

    def live(self) -> Tally:
        """Live round by round."""
        started = time.perf_counter()
        for number, each in enumerate(self.told.rounds):
            config = self.told.fill_config if number == 0 else self.told.config
            self._append(config, each)
            if each.first_dirty_share is not None:
                self._lower_checkpoint(each.first_dirty_share)
            if not self._sit(number, each.sittings):
                break
        self.tally.seconds = time.perf_counter() - started
        return self.tally

    def _sit(self, number: int, sittings: Sequence[Sitting]) -> bool:
        """Live through the sittings of a round; False if Kafka's log is of no use any more."""
        idle = False
        for slot, sitting in enumerate(sittings):
            if idle and sitting.turns == [[]] and sitting.stop is None:
                continue
            place = Place(self.told, number, slot)
            self._prepare(sitting)
            try:
                theirs = self._ask(sitting)["passes"]
            except JudgeError as error:
                if not FULL_INDEX.search(error.trace):
                    raise
                self._clean(place, sitting)
                self._judge(place, sitting)
                self.tally.kafka_failed += 1
                return False
            passes, dry_run = self._clean(place, sitting)
            try:
                self._compare(place, sitting, theirs, passes)
            except Difference:
                reason = self._parting(dry_run)
                if reason is None:
                    raise
                self._judge(place, sitting)
                self.tally.parted[reason] += 1
                return False
            shutil.rmtree(self.before)
            self.kafka.rename(self.before)
            self._look_for_emptied()
            idle = all(each.stats is None for each in passes)
        return True

    # -- before a sitting ----------------------------------------------------------------

    def _append(self, config: dict[str, str], each: Round) -> None:
        """Carry out a round's operations with the engine it names."""
        self._note(each.operations)
        if each.builder == "kafka":
            kept = self.before.with_name("kept")
            if self.before.exists():
                shutil.copytree(self.before, kept)
            try:
                self.judge.ask(
                    "write", self.before, self.told.topic, config=config, now=each.start_ms,
                    operations=each.operations,
                )  # fmt: skip
            except JudgeError as error:
                if not FULL_INDEX.search(error.trace):
                    raise
                shutil.rmtree(self.before)
                if kept.exists():
                    kept.rename(self.before)
            else:
                shutil.rmtree(kept, ignore_errors=True)
                return
        engine.write(self.before, self.told.topic, config, each.start_ms, each.operations)

    def _lower_checkpoint(self, share: float) -> None:
        path = self.before / CLEANER_OFFSETS
        if path.exists():
            *head, line = path.read_text().splitlines()
            offset = int(int(line.split()[-1]) * share)
            path.write_text("\n".join([*head, f"{self.told.topic} 0 {offset}"]) + "\n")
            self.tally.kinds["checkpoint lowered"] += 1

    def _prepare(self, sitting: Sitting) -> None:
        """Leave the log as the sitting requires, and make a copy for each engine."""
        if sitting.stop is not None:
            self.tally.kinds[sitting.stop] += 1
            for pattern in (CLEAN_SHUTDOWN, *STOPS[sitting.stop]):
                for path in self.before.glob(pattern):
                    path.unlink()
        self._date()
        for copy in (self.kafka, self.ours):
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(self.before, copy)

    def _date(self) -> None:
        """Give every segment a distinct past time, which cleaning must keep."""
        folder = self.before / f"{self.told.topic}-0"
        for slot, base in enumerate(_bases(folder)):
            for suffix in SEGMENT_FILES:
                path = folder / f"{base:020}{suffix}"
                if path.exists():
                    os.utime(path, (DATE_S + slot, DATE_S + slot))

    # -- a sitting -----------------------------------------------------------------------

    def _ask(self, sitting: Sitting) -> dict[str, Any]:
        report = self.told
        return self.judge.ask(
            "clean", self.kafka, report.topic, config=report.clean_config, now=sitting.start_ms,
            dedupe_bytes=report.dedupe_bytes, load_factor=report.load_factor,
            io_buffer=report.io_buffer_bytes, max_io_buffer=report.io_buffer_bytes,
            turns=sitting.turns,
        )  # fmt: skip

    def _clean(self, place: Place, sitting: Sitting) -> tuple[list[engine.Cleaned], DryRun]:
        """Clean with this engine, each pass after a dry run."""
        report = self.told
        for operations in sitting.turns:
            self._note(operations)
        dry_run = DryRun(self.ours, self.cleaner)
        passes = engine.clean_in_turns(
            self.ours, report.topic, report.clean_config, sitting.start_ms, self.cleaner,
            sitting.turns, dry_run,
        )  # fmt: skip
        done = [each.stats for each in passes if each.stats is not None]
        for number, stats in enumerate(done):
            self.tally.kinds += dry_run.check(f"{place}, pass {number}", number, stats)
        self.tally.dry_runs += len(done)
        self.tally.kinds["pass without a restart"] += max(0, len(done) - 1)
        folder = self.ours / f"{report.topic}-0"
        self.tally.kinds["emptied end of a round"] += dry_run.ends_emptied(folder)
        return passes, dry_run

    def _compare(
        self,
        place: Place,
        sitting: Sitting,
        theirs: Sequence[dict[str, Any]],
        passes: Sequence[engine.Cleaned],
    ) -> None:
        """Compare a sitting, every pass of it, and the final files."""
        report = self.told
        config, topic = report.clean_config, report.topic
        for number, (kafka, ours) in enumerate(zip(theirs, passes, strict=True)):
            self._compare_decision(f"{place}, turn {number}", kafka, ours)
        bases = _bases(self.before / f"{topic}-0")
        writes = any(each["op"] == "roll" for turn in sitting.turns for each in turn)
        end_offset = max((each.stats.end_offset for each in passes if each.stats), default=-1)
        compared = compare_directories(
            str(place), config, self.kafka, self.ours, topic, end_offset,
            dated_below=bases[-1] if writes else INT64_MAX,
        )  # fmt: skip
        for number, (kafka, ours) in enumerate(zip(theirs, passes, strict=True)):
            if ours.stats is not None:
                self._compare_pass(f"{place}, turn {number}", kafka, ours.stats, compared)
        compared.kinds[config["cleanup.policy"]] += end_offset >= 0
        if any(each["op"] == "expire" for turn in sitting.turns for each in turn):
            known = [_known(folder / f"{topic}-0") for folder in (self.before, self.ours)]
            compared.kinds["producer expired"] += len(known[0] - known[1])
        compared.kinds["segments deleted"] += _bases(self.ours / f"{topic}-0")[0] > bases[0]
        self.tally.add(compared)

    def _compare_decision(self, place: str, theirs: dict[str, Any], ours: engine.Cleaned) -> None:
        state = ours.state
        measured = {
            "first_dirty_offset": state.first_dirty_offset,
            "uncleanable_offset": state.first_uncleanable_offset,
            "upper_bound_offset": state.upper_bound_offset,
            "clean_bytes": state.clean_bytes,
            "cleanable_bytes": state.cleanable_bytes,
        }
        wrong = {n: (theirs[n], value) for n, value in measured.items() if theirs[n] != value}
        if wrong:
            raise Difference(f"{place}: decisions (Kafka, ours) {wrong}\n{self.told.title}")
        if (ours.stats is None) != (theirs["stats"] is None):
            raise Difference(f"{place}: only one found something to clean\n{self.told.title}")

    def _compare_pass(
        self, place: str, theirs: dict[str, Any], stats: CleanerStats, compared: Tally
    ) -> None:
        ignored = set()
        if compared.recompressed:
            ignored.add("bytesWritten")
        if stats.end_offset < theirs["upper_bound_offset"]:
            ignored.add("mapBytesRead")  # of whole chunks, before the one in which the map filled
        compare_stats(place, theirs, stats, ignored)
        compared.passes += 1
        compared.records_read += stats.messages_read
        compared.records_kept += stats.messages_written
        compared.fates.update(stats.fates)
        compared.kafka_ms += theirs["ms"]

    def _parting(self, dry_run: DryRun) -> str | None:
        """Name the listed difference that a sitting may lead to, or None."""
        if dry_run.misled_kafka:
            return MISLED
        is_4 = self.judge.kafka_version.startswith("4.")
        if is_4 and dry_run.ends_emptied(self.ours / f"{self.told.topic}-0"):
            return "Kafka 4 drops an emptied batch at the end of a round"
        return None

    def _judge(self, place: Place, sitting: Sitting) -> None:
        """Where Kafka's result differs, this one must leave a log that both engines read alike."""
        report = self.told
        now_ms = sitting.start_ms + sum(
            each.get("ms", 0) for operations in sitting.turns for each in operations
        )
        theirs = self.judge.ask("judge", self.ours, report.topic, config=report.config, now=now_ms)
        ours = view_of(self.ours, self.view, report.topic, report.config, now_ms)
        result = differences(theirs, ours) + complaints(theirs["dump"], ours)
        if result:
            raise Difference(f"{place}, after our cleaning alone: {result}\n{report.title}")

    # -- coverage ------------------------------------------------------------------------

    def _note(self, operations: Sequence[Operation]) -> None:
        for operation in operations:
            self.tally.kinds[operation.get("what", operation["op"])] += 1
            if any(len(row) > 3 for row in operation.get("records", ())):
                self.tally.kinds["record headers"] += 1
            producer_id = operation.get("producer_id")
            if producer_id in self.emptied:
                same = self.emptied.pop(producer_id) == operation["producer_epoch"]
                if same and operation["origin"] == "client":
                    self.tally.kinds["wrote on after its last batch was emptied"] += 1

    def _look_for_emptied(self) -> None:
        """Find the producers that no later batch in the log is of than one without records."""
        newest: dict[int, BatchHeader] = {}
        folder = self.before / f"{self.told.topic}-0"
        for base in _bases(folder):
            data = (folder / f"{base:020}.log").read_bytes()
            position = 0
            while position < len(data):
                header = BatchHeader.unpack_from(data, position)
                position += header.size_bytes
                if header.producer_id >= 0 and not header.is_control:
                    newest[header.producer_id] = header
        self.emptied = {
            header.producer_id: header.producer_epoch
            for header in newest.values()
            if not header.record_count
        }
        self.tally.kinds["emptied last batch"] += len(self.emptied)


def _known(folder: Path) -> set[int]:
    """Return the ids of the producers in the newest snapshot."""
    newest = max(folder.glob("*.snapshot"), default=None)
    if newest is None:
        return set()
    return {entry.producer_id for entry in decode_snapshot(newest.read_bytes())}


def _bases(folder: Path) -> list[int]:
    return sorted(int(path.stem) for path in folder.glob("*.log"))


# -- by hand -------------------------------------------------------------------------------------


def run_seed(seed: int, judge: Judge, scratch: Path) -> Tally:
    """Run the story of a seed."""
    return run_story(story(seed), judge, scratch)


if __name__ == "__main__":
    main(run_seed, Tally())
