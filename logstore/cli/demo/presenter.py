"""Output of the demo. Each chapter runs a step of the story and reports the outcome."""

from __future__ import annotations

import shlex
import shutil
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from logstore.analysis.summary import PartitionSummary, inspect_partition
from logstore.broker import Broker
from logstore.cli.demo.accounts import Accounts
from logstore.cli.demo.kafka import KafkaCase
from logstore.cli.demo.story import MAX_LAG_DAYS, TOPIC, CleanerRun, Story, Written, compile_kernels
from logstore.cli.demo.verify import (
    expected_offsets,
    occurrences,
    offsets_left,
    search_files,
    verify_records,
)
from logstore.cli.demo.view import Narrator
from logstore.cli.show.output import format_count, plural
from logstore.cli.show.progress import ProgressBar
from logstore.cli.show.tables import can_print
from logstore.reasons.formats import format_size, format_time
from logstore.types import TopicPartition

ACCOUNTS, KAFKA, KAFKA_BEFORE = DIRECTORIES = ("accounts", "kafka", "kafka-before")

MIB = 1 << 20


class Presenter:
    """Runs and prints the story, and collects numbers.

    Parameters
    ----------
    out : Path
        Directory for the data directories.
    records, seed, start_ms : int
        See `Accounts`.
    quiet : bool
        Whether to collect numbers without printing.

    Attributes
    ----------
    problems : list of str
        Failed checks.
    """

    def __init__(self, out: Path, records: int, seed: int, start_ms: int, *, quiet: bool) -> None:
        self.out = out
        self.seed = seed
        self.quiet = quiet
        self.narrator = Narrator(quiet=quiet)
        self.problems: list[str] = []
        self._started = time.perf_counter()
        self._accounts = Accounts(records, seed, start_ms)
        self._holder = self._accounts.name(self._accounts.erased)
        self._written = Written(0, 0, 0, 0.0)
        self._passes: list[CleanerRun] = []
        self._found: list[dict[str, int]] = []
        self._scale_bytes = 1
        self._numbers: dict[str, Any] = {}

    def present(self) -> dict[str, Any]:
        """Run and print all chapters, and return the summary for `--format json`."""
        self._introduce()
        with closing(Story.begin(self.out / ACCOUNTS, self._accounts, self.seed)) as story:
            self._write(story)
            self._clean_first(story)
            self._close_accounts(story)
            self._wait_for_max_lag(story)
            self._wait_for_horizon(story)
        self._compare()
        self._clean_kafkas()
        self._verify()
        self._explore()
        return self._summary()

    # -- chapters ------------------------------------------------------------------------

    def _introduce(self) -> None:
        say = self.narrator
        say.title("KIP-354: data that must be deleted by a deadline")
        say.text(
            f"The topic {TOPIC} stores the state of each user's account. The key is the user ID; "
            "the value has the name, e-mail address and phone number. The topic is compacted: only "
            "the latest record of each key is kept. A tombstone (null value) deletes its key."
        )
        say.rows(
            ("configuration", "value", "meaning"),
            (
                ("cleanup.policy", "compact", "keep the latest record of each key"),
                ("min.cleanable.dirty.ratio", "0.5", "clean if over half of the log is dirty,"),
                ("max.compaction.lag.ms", f"{MAX_LAG_DAYS}d", "or if a record is dirty this long"),
                ("delete.retention.ms", "1d", "keep tombstones at least this long"),
            ),
        )
        with say.waiting("Compiling the kernels, once on this machine ..."):
            seconds = compile_kernels()
        self._numbers["kernels_s"] = round(seconds, 3)
        if seconds > 3:
            say.text(f"Compiled the kernels in {seconds:.1f} s. Later runs use the cached code.")
        else:
            say.text(f"Loaded the compiled kernels in {seconds:.1f} s.")

    def _write(self, story: Story) -> None:
        say = self.narrator
        chapter = self._accounts.history
        say.step(
            f"Write {format_count(chapter.records)} updates of "
            f"{format_count(self._accounts.count_users(slice(chapter.stop)))} accounts, "
            f"over {chapter.last_day:g} days"
        )
        with self._progress() as bar:
            written = story.write(chapter, bar.update)
        self._written = written
        records_per_s = round(written.records / written.seconds)
        mib_per_s = written.size_bytes / MIB / written.seconds
        self._numbers["write"] = {
            "records": written.records,
            "bytes": written.size_bytes,
            "batches": written.batches,
            "seconds": round(written.seconds, 3),
            "records_per_s": records_per_s,
            "mib_per_s": round(mib_per_s, 1),
        }
        say.text(
            f"{format_size(written.size_bytes)} in {plural(written.batches, 'batch', 'batches')}, "
            f"written in {written.seconds:.2f} s: {format_count(records_per_s)} records/s, "
            f"{mib_per_s:.0f} MiB/s."
        )
        summary = story.inspect()
        self._scale_bytes = max(segment.size_bytes for segment in summary.segments)
        say.draw_segments(summary, self._scale_bytes)
        say.text(
            f"Some users are updated more often than others, such as {self._holder}. Occurrences "
            "of this user's e-mail address and key in the files:"
        )
        self._search()

    def _clean_first(self, story: Story) -> None:
        say = self.narrator
        say.step("Clean")
        say.text(
            "The log has never been cleaned, so all closed segments are dirty: cleaning is due."
        )
        before = story.inspect().section_bytes()
        self._clean(story)
        say.sizes(("before", before), ("after", story.inspect().section_bytes()))
        self._search()

    def _close_accounts(self, story: Story) -> None:
        say = self.narrator
        accounts = self._accounts
        chapters = (accounts.closing, accounts.after_closing)
        say.step(f"{plural(len(accounts.closed), 'account')} are closed")
        for chapter in chapters:
            self._written += story.write(chapter)
        say.text(
            f"{format_count(sum(chapter.records for chapter in chapters))} more records are "
            f"appended. {format_count(len(accounts.closed))} of them are tombstones: these users, "
            f"including {self._holder}, closed their accounts and want their data erased. But the "
            "old values stay on disk until compaction runs."
        )
        say.draw_segments(story.inspect(), self._scale_bytes)
        self._search()

    def _wait_for_max_lag(self, story: Story) -> None:
        say = self.narrator
        say.step("Time passes: max.compaction.lag.ms")
        say.text(
            "Without further writes, the dirty ratio stays too low. Before KIP-354, the old values "
            "would have stayed on disk indefinitely. The cleaner runs once a day."
        )
        run = self._clean(story)
        assert run.stats is not None
        say.text(
            "The values of closed accounts are removed. The tombstones are kept for "
            "delete.retention.ms, so that consumers can read them: their batches have a delete "
            f"horizon, day {run.day + 1}. The replaced files are deleted after "
            "file.delete.delay.ms (1 minute)."
        )
        self._search()
        expected = expected_offsets(self._accounts, run.stats.end_offset, with_tombstones=True)
        expected = expected[expected < self._accounts.latest.start]
        left = offsets_left(story.broker, TOPIC)
        tombstones = int(self._accounts.tombstones[left].sum())
        self._judge(
            f"{plural(len(left), 'record')} remain at the expected offsets: the latest of each "
            f"key, including {plural(tombstones, 'tombstone')}",
            None
            if np.array_equal(left, expected)
            else f"day {run.day}: the offsets of the {plural(len(left), 'remaining record')} are "
            f"not the {format_count(len(expected))} expected ones",
        )

    def _wait_for_horizon(self, story: Story) -> None:
        say = self.narrator
        say.step("Time passes: delete.retention.ms")
        say.text(
            "The active segment is never cleaned, but it is rolled when its first record is older "
            "than max.compaction.lag.ms. The next pass is after the delete horizon, so it also "
            "removes the tombstones."
        )
        story.sleep_until(self._passes[-1].day + 1)
        self._clean(story)
        self._search()
        chapter = self._accounts.latest
        self._written += story.write(chapter)
        say.text(f"More writes: {format_count(chapter.records)} updates by day {story.day:g}.")

    def _compare(self) -> None:
        say = self.narrator
        say.step("Before and after")
        with Broker(self.out / ACCOUNTS, read_only=True) as broker:
            after = inspect_partition(broker, TopicPartition(TOPIC, 0))
            left = self._accounts.count_users(offsets_left(broker, TOPIC))
        say.draw_segments(after, self._scale_bytes)
        say.sizes(
            ("written", {"dirty": self._written.size_bytes}), ("remaining", after.section_bytes())
        )
        keys = self._accounts.count_users(slice(None))
        pairs = (
            ("records", self._written.records, after.records, format_count),
            ("data", self._written.size_bytes, after.size_bytes, format_size),
            ("keys", keys, left, format_count),
        )
        say.rows(
            ("", "written", "remaining", "removed"),
            [
                (name, show(before), show(now), f"{100 * (before - now) / before:.1f} %")
                for name, before, now, show in pairs
            ],
            right=("written", "remaining", "removed"),
        )
        say.rows(
            ("pass", "day", "read", "superseded", "expired", "retained", "segments", "MiB/s"),
            [_pass_row(number, run) for number, run in enumerate(self._passes, 1)],
            right=("pass", "day", "read", "superseded", "expired", "retained", "MiB/s"),
        )
        names = ("records", "bytes", "keys")
        before, now = zip(*(pair[1:3] for pair in pairs), strict=True)
        self._numbers["before"] = dict(zip(names, before, strict=True))
        self._numbers["after"] = {
            **dict(zip(names, now, strict=True)),
            "segments": len(after.segments),
        }
        self._numbers["saved_ratio"] = round(1 - after.size_bytes / self._written.size_bytes, 4)

    def _clean_kafkas(self) -> None:
        say = self.narrator
        case = KafkaCase.load()
        say.step(f"A directory written by Apache Kafka {case.version}")
        say.text(
            "Kafka's cleaner has cleaned a copy of it. This run cleans it at the same clock time, "
            f"{format_time(case.cleaning_time_ms)}."
        )
        case.place(self.out / KAFKA_BEFORE)
        case.place(self.out / KAFKA)
        before = _inspect(self.out / KAFKA, case.topic)
        scale = max(segment.size_bytes for segment in before.segments)
        say.draw_segments(before, scale)
        stats = case.clean(self.out / KAFKA)
        say.draw_segments(_inspect(self.out / KAFKA, case.topic), scale)
        problem = case.problem(self.out / KAFKA, stats)
        segments, files = case.cleaned
        self._numbers["kafka"] = {
            "version": case.version,
            "identical": problem is None,
            "segments": segments,
            "files": files,
        }
        self._judge(
            f"identical to Kafka's output: {plural(segments, 'segment')}, "
            f"{plural(files, 'file')}, byte for byte",
            problem and f"differs from Kafka's output: {problem}",
        )

    def _verify(self) -> None:
        say = self.narrator
        accounts = self._accounts
        say.step("Verify")
        say.text(
            "The directory is reopened. The expected content is computed independently of the "
            "cleaner, from a dict with the last record written for each key."
        )
        expected = expected_offsets(accounts, accounts.latest.start, with_tombstones=False)
        keys = accounts.count_users(expected)
        with (
            Broker(self.out / ACCOUNTS, read_only=True) as broker,
            say.waiting("Reading every record back ..."),
        ):
            checked, problem = verify_records(broker, TOPIC, accounts, expected)
        self._numbers["verified_records"] = checked
        self._judge(
            f"{plural(checked, 'record')} of {plural(keys, 'key')} read back: "
            "offset, timestamp, key and value are correct; no record is missing or unexpected",
            problem and f"reading back failed after {plural(checked, 'record')}: {problem}",
        )
        with say.waiting("Searching the files ..."):
            traces = search_files(self.out / ACCOUNTS, accounts)
        closed = plural(len(accounts.closed), "closed account")
        problem = None
        if traces.closed:
            problem = f"{traces.closed} of {closed} are still found, for example in {traces.where}"
        elif traces.accounts != keys:
            problem = (
                f"the files have {format_count(traces.accounts)} accounts, expected"
                f" {format_count(keys)}"
            )
        self._judge(
            f"{plural(traces.files, 'file')} searched, {format_size(traces.size_bytes)}: the "
            f"keys and e-mail addresses of the {closed} are gone, and those of all "
            f"{format_count(traces.accounts)} others are present",
            problem,
        )
        names = ("files", "bytes", "accounts", "closed_accounts")
        self._numbers["search"] = dict(zip(names, traces[:4], strict=True))

    def _explore(self) -> None:
        say = self.narrator
        if self.problems:
            say.step(f"Failed: {plural(len(self.problems), 'check')}")
        else:
            say.step(f"Done in {time.perf_counter() - self._started:.0f} s. Explore the result:")
        erased = self._accounts.key(self._accounts.erased).decode()
        case = KafkaCase.load()
        accounts, kafka, before = (
            f"--data-dir {shlex.quote(str(self.out / name))}" for name in DIRECTORIES
        )
        configs = " ".join(
            f"--config {key}={value}"
            for key, value in case.config.items()
            if key != "delete.retention.ms"
        )
        ours, theirs = f"{TOPIC} {accounts}", f"{case.topic} {before}"
        by_kafka = f"--force --now {case.cleaning_time_ms} {configs}"
        commands = {
            "show the segments": f"inspect {ours}",
            "read the first records": f"read {ours} --max-records 3",
            f"find no records of {self._holder}": f"read {ours} --key {erased}",
            "show why cleaning is not due": f"clean {ours}",
            "clean anyway, including the active segment": f"clean {ours} --force --roll",
            "show the directory written by Kafka": f"inspect {theirs}",
            "clean it like Kafka": f"clean {theirs} {by_kafka}",
            "show it after the demo's cleaning": f"inspect {case.topic} {kafka}",
        }
        say.commands([(meaning, f"{_program()} {line}") for meaning, line in commands.items()])

    # -- steps ---------------------------------------------------------------------------

    def _progress(self) -> ProgressBar:
        bar = ProgressBar()
        bar.visible = bar.visible and not self.quiet
        return bar

    def _clean(self, story: Story) -> CleanerRun:
        """Run the cleaner until it cleans, and print its decisions and the result."""
        say = self.narrator
        with self._progress() as bar:
            runs = story.clean_when_due(bar.update)
        last = runs[-1]
        self._passes.append(last)
        lines = [(f"day {last.day}", f"cleaned: {last.why}")]
        if waited := runs[:-1]:
            days = " to ".join(dict.fromkeys(str(run.day) for run in (waited[0], waited[-1])))
            lines.insert(0, (f"day {days}", f"not cleaned: {waited[-1].why}"))
        say.pairs(lines)
        stats = last.stats
        assert stats is not None
        fates = stats.fates
        expired = fates["tombstone_expired"]
        say.text(
            f"{plural(stats.messages_read, 'record')} read: "
            f"{format_count(fates['superseded'])} superseded by a later record of the same key, "
            + (f"{plural(expired, 'tombstone')} past the delete horizon, " if expired else "")
            + f"{format_count(fates['retained'])} retained. "
            f"{plural(stats.segments_before, 'segment')} became {stats.segments_after}, "
            f"{format_size(stats.bytes_read)} became {format_size(stats.bytes_written)}."
        )
        return last

    def _search(self) -> None:
        """Count occurrences of the erased user's e-mail address and key in the files."""
        accounts = self._accounts
        needles = {"email": accounts.email, "key": accounts.key}
        texts = {name: text(accounts.erased) for name, text in needles.items()}
        found = {name: occurrences(self.out / ACCOUNTS, text) for name, text in texts.items()}
        self._found.append(found)
        self.narrator.text(
            "On disk: "
            + ", ".join(f"{texts[name].decode()} {plural(n, 'time')}" for name, n in found.items()),
            style="yellow" if any(found.values()) else "green",
        )

    def _judge(self, praise: str, problem: str | None) -> None:
        if problem is None:
            self.narrator.passed(praise)
        else:
            self.problems.append(problem)
            self.narrator.failed(problem)

    def _summary(self) -> dict[str, Any]:
        accounts = self._accounts
        return {
            "ok": not self.problems,
            "problems": self.problems,
            "seconds": round(time.perf_counter() - self._started, 3),
            "seed": self.seed,
            "records": accounts.records,
            "closed_accounts": len(accounts.closed),
            **self._numbers,
            "passes": [
                {"day": run.day, "why": run.why, **run.stats.to_json()}
                for run in self._passes
                if run.stats is not None
            ],
            "erased": {
                "key": accounts.key(accounts.erased).decode(),
                "email": accounts.email(accounts.erased).decode(),
                "found": self._found,
            },
            "data_dirs": {name: str(self.out / name) for name in DIRECTORIES},
        }


def _pass_row(number: int, run: CleanerRun) -> tuple[str, ...]:
    stats = run.stats
    assert stats is not None
    fates = stats.fates
    seconds = max(stats.index_ms + stats.clean_ms, 1) / 1000
    return (
        str(number),
        str(run.day),
        format_count(stats.messages_read),
        format_count(fates["superseded"]),
        format_count(fates["tombstone_expired"]),
        format_count(fates["retained"]),
        f"{stats.segments_before} → {stats.segments_after}"
        if can_print("→")
        else f"{stats.segments_before} to {stats.segments_after}",
        f"{stats.bytes_read / MIB / seconds:.0f}",
    )


def _inspect(directory: Path, topic: str) -> PartitionSummary:
    with Broker(directory, read_only=True) as broker:
        return inspect_partition(broker, TopicPartition(topic, 0))


def _program() -> str:
    """Return the command that runs this program again."""
    called = Path(sys.argv[0])
    found = shutil.which(called.name)
    if called.name != "logstore" or (found and Path(found).resolve() == called.resolve()):
        return "logstore"
    return shlex.quote(str(called))
