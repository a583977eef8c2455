"""The same history on Kafka's UnifiedLog and on this engine, compared after every step.

Both start with an empty directory and execute the same operations. After each operation the two
states and all files must be equal. At a stop, clean or not, both directories are damaged in the
same way, and half of the time they are exchanged: each engine then continues with the other's
files. Run by hand:

    python -m tests.interop.living 0 500                # seeds, end exclusive
"""

from __future__ import annotations

import base64
import os
import random
import re
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from logstore.errors import CorruptRecordError
from tests.interop import damages, partings
from tests.interop.differential import FULL_INDEX
from tests.interop.histories import LONG_MS, Historian
from tests.interop.partings import Parted, Step
from tests.interop.seeds import main
from tests.support.interop.judge import Judge, JudgeError
from tests.support.interop.live import (
    TOPIC,
    KafkaLive,
    Left,
    Live,
    Operation,
    OurLive,
    State,
    bounded,
)
from tests.support.interop.sums import Sums
from tests.support.interop.view import complaints, differences, sorted_snapshot, view_of

EPOCHS = "leader-epoch-checkpoint"
DAMAGED_SNAPSHOT = ("Snapshot failed schema validation", "Snapshot is corrupt")
"""Neither engine reads a snapshot that it does not need."""

NO_ROOM = re.compile(rf"{FULL_INDEX.pattern}|AbstractIndex.(lambda\$)?resize")
"""Failures of Kafka with a tiny `segment.index.bytes`: it cannot append several batches, recover,
or open a log whose active segment has more entries than allowed. This engine continues without the
entries, or with a longer file."""

KINDS = (".log", ".index", ".timeindex", ".txnindex")

NOTHING_OPEN: Mapping[str, int] = {}


class Difference(AssertionError):
    """The two logs differ."""


@dataclass
class Tally(Sums):
    """Numbers of executed operations and covered cases."""

    histories: int = 0
    operations: Counter[str] = field(default_factory=Counter)
    refused: int = 0
    clean_stops: int = 0
    unclean_stops: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    duplicates: int = 0
    """Batches that were answered and not written."""

    damages: Counter[str] = field(default_factory=Counter)
    segments_gone: int = 0
    no_room: int = 0
    """Histories that ended when Kafka found no room in a small index."""

    parted: Counter[str] = field(default_factory=Counter)
    """Histories that ended at an entry of the closed list, by entry."""

    seconds: float = 0.0

    def __str__(self) -> str:
        return (
            f"{self.histories} histories, {self.operations.total()} operations "
            f"({dict(self.operations)}), {self.refused} refused "
            f"({dict(self.errors)}), {self.duplicates} duplicates, {self.clean_stops} clean and "
            f"{self.unclean_stops} unclean stops, {self.damages.total()} damages "
            f"({dict(self.damages)}), {self.segments_gone} segments gone, "
            f"{self.no_room} ended by Kafka's small indexes, {self.parted.total()} parted "
            f"({dict(self.parted)}), {self.seconds:.1f} s"
        )


class History:
    """One seed's history, lived by two engines."""

    folded = False
    """Whether the engines may have compressed the same records differently."""

    def __init__(
        self, seed: int, judge: Judge, scratch: Path, historian: Historian | None = None
    ) -> None:
        self.historian = historian or Historian(seed)
        self.judge = judge
        self.scratch = scratch
        self.kafka = KafkaLive(judge, scratch / "a")
        self.ours = OurLive(scratch / "b")
        self.rng = random.Random(seed + 1_000_000)
        self.tally = Tally(histories=1)
        self.told: list[str] = []
        self.late: set[str] = set()
        """Names of files that Kafka deletes later than this engine."""

        self.step: Step | None = None
        self.loaded: set[int] = set()
        """Bases of the segments that are unchanged since the last start."""

        self.cut: set[int] = set()
        """Bases of unchanged segments that were truncated since."""

    def live(self) -> Tally:
        """Live through it.

        Raises
        ------
        Difference
            With the seed and the last steps; the directories stay in the scratch directory.
        """
        started = time.perf_counter()
        left = self.historian.begin()
        try:
            for phase in range(self.rng.randint(2, 4)):
                state = self._open(left)
                for _ in range(self.rng.randint(5, 25)):
                    state = self._step(self.historian.next(state), state)
                self.told.append(f"-- stop {phase}")
                left = self._stop(state)
            self._end(self._open(left))
        except Parted as parted:
            self.tally.parted[str(parted)] += 1
        except (Difference, JudgeError) as error:
            if NO_ROOM.search(str(error)):
                self.tally.no_room = 1
                return self.tally
            report = "\n  ".join(self.told[-12:])
            raise Difference(f"seed {self.historian.seed}, after\n  {report}\n{error}") from error
        self.tally.seconds = time.perf_counter() - started
        return self.tally

    # -- steps ---------------------------------------------------------------------------

    def _open(self, left: Left) -> State:
        self.told.append(f"open {left} {self.historian.config}")
        self.step = Step({"op": "open"})
        report = (self.historian.config, self.historian.now_ms, left)
        theirs, ours = self._both(lambda: self.kafka.open(*report), lambda: self.ours.open(*report))
        self.loaded, self.cut = {base for base, _ in ours["segments"]}, set()
        # Kafka keeps files that loading drops for another file.delete.delay.ms.
        self._forgive_late()
        return self._compare(theirs, ours)

    @staticmethod
    def _both(theirs: Callable[[], Any], ours: Callable[[], Any]) -> tuple[Any, Any]:
        """Load a log with both; both must refuse a contradictory one."""
        try:
            result = theirs()
        except JudgeError as error:
            if partings.CONTRADICTION not in str(error):
                raise
            try:
                ours()
            except CorruptRecordError as refusal:
                if refusal.check == "transaction_state":
                    raise Parted(partings.REFUSED) from None
            raise
        return result, ours()

    def _step(self, operation: Operation, before: State) -> State:
        self.told.append(f"{_short(operation)}  on {_short(before)}")
        self._date_alike()
        self._forgive_missing_indexes(before["segments"][-1][0])
        self.step = Step(operation, before)
        theirs, ours = (live.apply(operation) for live in (self.kafka, self.ours))
        if operation["op"] == "truncate_to":
            self.cut |= {base for base, _ in ours["segments"][-1:] if base in self.loaded}
        self.loaded &= {base for base, _ in ours["segments"]}
        made_anew = _made_anew(operation, before)
        if made_anew is not None:
            self.late |= {f"{made_anew:020}{kind}.deleted" for kind in KINDS}
        state = self._compare(theirs, ours)
        self.tally.operations[operation.get("what", operation["op"])] += 1
        self.tally.refused += state["refused"] is not None
        if state["error"] is not None:
            self.tally.errors[state["error"]] += 1
        elif operation["op"] == "append":
            self.tally.duplicates += state["log_end_offset"] == before["log_end_offset"]
        removed = {base for base, _ in before["segments"]} - {base for base, _ in state["segments"]}
        self.tally.segments_gone += len(removed)
        return state

    def _stop(self, state: State) -> Left:
        """Stop both in the same way, damage both, and perhaps exchange their directories."""
        left = self.historian.stop(state)
        unfinished = {} if left.clean else self.ours.active_bytes()
        for live in (self.kafka, self.ours):
            _close(live, clean=left.clean)
        self.step = None
        if left.clean:
            self._forgive_late()  # a clean close deletes files that are due later
        self._compare_files(unfinished)
        self._lose_unused(unfinished)
        for name in self.late:
            (self._folder(self.kafka) / name).unlink(missing_ok=True)
        self.late.clear()
        if left.clean:
            self.tally.clean_stops += 1
        else:
            self.tally.unclean_stops += 1
        self._damage(state, left)
        if self.rng.random() < 0.5:
            self.told.append("the directories change hands")
            self.kafka.data_dir, self.ours.data_dir = self.ours.data_dir, self.kafka.data_dir
        self._date_alike()
        self.historian.reopen()
        return left

    def _damage(self, state: State, left: Left) -> None:
        historian = self.historian
        scene = damages.Scene(
            self.rng, self._folder(self.ours), state, left, historian.now_ms, historian.epoch
        )
        for name, damage in damages.choose(scene):
            self.told.append(f"damage: {name}")
            self.tally.damages[name] += 1
            for live in (self.kafka, self.ours):
                damage(self._folder(live))

    def _end(self, state: State) -> None:
        """Wait until all deleted files are removed; close; let the judge read both directories."""
        state = self._step({"op": "advance", "ms": LONG_MS}, state)
        self.historian.now_ms += LONG_MS
        for live in (self.kafka, self.ours):
            if list(self._folder(live).glob("*.deleted")):
                raise Difference(f"{type(live).__name__} has files whose deletion is due")
        for live in (self.kafka, self.ours):
            live.close(abandon=False)
        self._compare_files()
        self._date_alike()
        for live in (self.kafka, self.ours):
            _write_checkpoints(live.data_dir, state)
            result = self._judge(live.data_dir)
            if result:
                raise Difference(f"what {type(live).__name__} left is read differently: {result}")

    def _judge(self, data_dir: Path) -> list[str]:
        """Open a copy with both, as after a clean and after an unclean stop; read everything."""
        result = []
        now_ms, config = self.historian.now_ms, self.historian.config
        for clean in (True, False):
            theirs, ours = self._both(
                partial(
                    self.judge.ask, "judge", data_dir, TOPIC, config=config, now=now_ms,
                    clean=clean, dump_closed=True,
                ),
                partial(view_of, data_dir, self.scratch, TOPIC, config, now_ms, clean=clean),
            )  # fmt: skip
            theirs = bounded(self.judge, theirs)
            result += differences(theirs, ours) + complaints(theirs["dump_closed"], ours)
        if self.tally.damages["damaged snapshot"]:
            result = [line for line in result if not line.startswith(DAMAGED_SNAPSHOT)]
        return result

    # -- comparing -----------------------------------------------------------------------

    def _compare(self, theirs: State, ours: State) -> State:
        folder = self._folder(self.ours)
        if partings.stable_above_a_gap(theirs, ours, folder):
            theirs = theirs | {"last_stable_offset": ours["last_stable_offset"]}
        left, right = self._bounded(theirs), self._bounded(ours)
        wrong = {
            name: (left[name], right[name])
            for name in left
            if left[name] != right[name] and name != "message"
        }
        if wrong:
            if self.step and (entry := partings.of_states(self.step, left, right, folder)):
                raise Parted(entry)
            raise Difference(f"states (Kafka, ours): {wrong}, {theirs.get('message')}")
        self._compare_files(self.ours.active_bytes())
        return ours

    def _bounded(self, state: State) -> State:
        """Return the part of a state that must be equal."""
        return state

    def _content(self, name: str, data: bytes) -> object:
        """Return the part of a file's content that must be equal."""
        return data

    def _compare_files(self, unfinished: Mapping[str, int] = NOTHING_OPEN) -> None:
        """Compare names, sizes and contents.

        Parameters
        ----------
        unfinished : Mapping
            The active segment's files, which may be longer than the bytes written to them, and the
            bytes written. Its indexes appear with the first use; Kafka keeps truncated entries in
            them, and allocates a new `.log` where this engine empties the old one.
        """
        left, right = (dict(_files(self._folder(live))) for live in (self.kafka, self.ours))
        for name in sorted(left.keys() | right.keys()):
            if unfinished.get(name) == 0 and not (name in left and name in right):
                continue
            if name in self.late:
                continue
            if name not in left or name not in right:
                who = "Kafka" if name in left else "this engine"
                if entry := partings.of_names(self.step, f"only {who} has {name}"):
                    raise Parted(entry)
                raise Difference(f"only {who} has {name}")
            exact = self.folded and name.endswith(".log")
            if (
                name in unfinished
                and not exact
                and (len(left[name]) == len(right[name]) or name.endswith(".log"))
            ):
                left[name], right[name] = (
                    data[: unfinished[name]] for data in (left[name], right[name])
                )
            if left[name] == right[name]:
                continue
            if self._content(name, left[name]) != self._content(name, right[name]):
                self._part_by_time(name, right[name])
                raise Difference(
                    f"{name}: Kafka has {len(left[name])} bytes, this engine {len(right[name])}; "
                    f"the first difference is at {_first_difference(left[name], right[name])}"
                )

    def _part_by_time(self, name: str, ours: bytes) -> None:
        base = int(name[:20]) if name[20:] == ".timeindex" else None
        if base in self.cut and (
            entry := partings.of_time_index(ours, self._folder(self.ours), base)
        ):
            raise Parted(entry)

    def _lose_unused(self, unfinished: Mapping[str, int]) -> None:
        """Remove an empty index in a crash if only one engine created it.

        A refused append makes Kafka check whether the index is full. The segment of a missing index
        is recovered, with snapshots on the way.
        """
        left, right = (self._folder(live) for live in (self.kafka, self.ours))
        for name in unfinished:
            if (left / name).exists() != (right / name).exists():
                for folder in (left, right):
                    (folder / name).unlink(missing_ok=True)

    def _forgive_late(self) -> None:
        left, right = (
            {path.name for path in self._folder(live).glob("*.deleted")}
            for live in (self.kafka, self.ours)
        )
        self.late |= left - right

    def _forgive_missing_indexes(self, active_base: int) -> None:
        """Expect no deleted file where there was none: an index appears with its first use."""
        for kind in (".index", ".timeindex"):
            name = f"{active_base:020}{kind}"
            if not all((self._folder(live) / name).exists() for live in (self.kafka, self.ours)):
                self.late.add(f"{name}.deleted")

    def _date_alike(self) -> None:
        """Give Kafka's files the dates of ours: they count where no record has a time."""
        folder = self._folder(self.kafka)
        for path in self._folder(self.ours).glob("*.log"):
            if (folder / path.name).exists():
                stat = path.stat()
                os.utime(folder / path.name, ns=(stat.st_atime_ns, stat.st_mtime_ns))

    @staticmethod
    def _folder(live: Live) -> Path:
        return live.data_dir / f"{TOPIC}-0"


def _made_anew(operation: Operation, before: State) -> int | None:
    """Return the base of a segment that is replaced by one with the same base, if any.

    Kafka names the old one `.deleted`, in the place of one of that name from before; this engine
    removes an empty segment at once, and empties another.
    """
    bases = [base for base, _ in before["segments"]]
    if operation["op"] == "roll" and before["segments"][-1][1] == 0:
        return int(bases[-1])
    if operation["op"] == "truncate_fully" and operation["offset"] == bases[0]:
        return int(bases[0])
    return None


def _close(live: Live, *, clean: bool) -> None:
    """Close cleanly, or replace the directory by a copy of the open files."""
    if clean:
        live.close(abandon=False)
        return
    killed = live.data_dir.with_suffix(".killed")
    shutil.copytree(live.data_dir, killed)
    live.close(abandon=True)
    shutil.rmtree(live.data_dir)
    killed.rename(live.data_dir)


def _files(folder: Path) -> Iterator[tuple[str, bytes]]:
    for path in folder.iterdir():
        data = path.read_bytes()
        if path.name == EPOCHS and data in (b"", b"0\n0\n"):
            continue  # says as much as no file
        if path.suffix == ".txnindex" and not data:
            continue
        if path.name.endswith(".deleted"):
            data = b""  # trimmed, emptied or whole: nobody reads it again
        yield path.name, sorted_snapshot(data) if ".snapshot" in path.name else data


def _first_difference(left: bytes, right: bytes) -> str:
    at = next(
        (slot for slot, pair in enumerate(zip(left, right, strict=False)) if pair[0] != pair[1]),
        min(len(left), len(right)),
    )
    return f"{at}: {left[at : at + 32].hex()} and {right[at : at + 32].hex()}"


def _write_checkpoints(data_dir: Path, state: State) -> None:
    first = state["segments"][0][0]
    start = state["log_start_offset"]
    starts = f"1\n{TOPIC} 0 {start}\n" if start > first else "0\n"
    (data_dir / "log-start-offset-checkpoint").write_text(f"0\n{starts}")
    (data_dir / "recovery-point-offset-checkpoint").write_text(
        f"0\n1\n{TOPIC} 0 {state['log_end_offset']}\n"
    )
    (data_dir / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":-1}')


def encoded(batches: bytes) -> str:
    """Return batches as an operation carries them."""
    return base64.b64encode(batches).decode()


def _short(report: Mapping[str, Any]) -> str:
    """Return an operation or a state on one line."""
    shown = {key: value for key, value in report.items() if key != "producers"}
    if "batches" in shown:
        shown["batches"] = f"{len(shown['batches']) * 3 // 4} bytes"
    return str(shown)


# -- by hand -------------------------------------------------------------------------------------


def live(seed: int, judge: Judge, scratch: Path) -> Tally:
    """Live one history."""
    return History(seed, judge, scratch).live()


if __name__ == "__main__":
    main(live, Tally())
