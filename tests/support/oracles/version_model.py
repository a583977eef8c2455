"""A log cleaned by a strategy with versions, and all records ever appended to it.

The oracle has no maps, segments or passes: the record of the highest order of each key must be in
the log, unless it is a tombstone that was correctly removed after its batch's delete horizon. Then
all records appended before that horizon are forgotten with it, and must not reappear.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import NamedTuple

from logstore.cleaner.config import CleanerConfig
from logstore.cleaner.passes.clean import clean_pass
from logstore.config.log_config import LogConfig
from logstore.storage.log import NewRecord
from tests.support.world.builders import memory_world
from tests.support.world.cleaning import Producer, batches_in, drive

KEYS = (b"a", b"b", b"c", b"d")
HEADER = "v"
RETENTION_MS = 50
LATENESS_MS = 30
STRATEGIES = ("header", "timestamp", "offset")


class Arrival(NamedTuple):
    """An appended record; `version` is None if its headers have none."""

    offset: int
    key: bytes
    value: bytes | None
    timestamp: int
    version: int | None
    appended_ms: int


class Draft(NamedTuple):
    """A record to append."""

    key: bytes
    value: bytes | None
    timestamp: int
    version: int | None
    headers: tuple[tuple[str, bytes | None], ...]


@dataclass
class Client:
    """A transactional producer, and the records of its open transaction."""

    producer: Producer
    pending: list[Arrival] = field(default_factory=list)
    is_open: bool = False


class VersionModel:
    """One log, its appends and its cleanings.

    Parameters
    ----------
    seed : int
    strategy : str
        In force at first.
    switches : bool
        Whether the strategy changes on the way.
    lateness_ms : int
        How much older than its append a record's version may be.

    Attributes
    ----------
    decided : list of Arrival
        Records committed, or written outside a transaction.
    candidates : dict
        The possible survivors, by key.
    removed_tombstones, resurrections, switched, crashes : int
        How often these came up.
    """

    def __init__(
        self, seed: int, strategy: str, *, switches: bool = False, lateness_ms: int = LATENESS_MS
    ) -> None:
        self.rng = random.Random(seed)
        self.world = memory_world(seed)
        self.strategy = strategy
        self.switches = switches
        self.lateness_ms = lateness_ms
        self.segment_bytes = self.rng.choice((200, 400, 1000))
        self.log = self.world.log(**self._settings())
        self.clients = [Client(Producer(self.log, number)) for number in (1, 2)]
        self.busy = KEYS
        self.first_dirty = 0
        self.decided: list[Arrival] = []
        self.candidates: dict[bytes, list[Arrival]] = {key: [] for key in KEYS}
        self.removed_tombstones = self.resurrections = self.switched = self.crashes = 0

    def _settings(self) -> dict[str, object]:
        return {
            "cleanup_policy": ("compact",),
            "file_delete_delay_ms": 0,
            "delete_retention_ms": RETENTION_MS,
            "segment_bytes": self.segment_bytes,
            "segment_index_bytes": 4000,
            "compaction_strategy": self.strategy,
            "compaction_strategy_header": HEADER,
        }

    # -- the oracle ----------------------------------------------------------------------

    def order(self, arrival: Arrival) -> tuple[bool, int, int]:
        """Return the order of an arrival among the arrivals of its key."""
        if self.strategy == "offset":
            return False, 0, arrival.offset
        version = arrival.timestamp if self.strategy == "timestamp" else arrival.version
        return version is not None, version or 0, arrival.offset

    def physical(self) -> set[int]:
        """Return the offsets of all data records that are there."""
        return {record.offset for _, record in self.log.reader.records(self.log.log_start_offset)}

    def horizons(self) -> dict[int, int]:
        """Return the delete horizon of each record that has one, by offset."""
        result = {}
        for batch in batches_in(self.log):
            horizon = batch.header.delete_horizon_ms
            if horizon is not None and not batch.header.is_control:
                result |= {record.offset: horizon for record in batch.records()}
        return result

    def check(self, horizons: dict[int, int], now_ms: int) -> None:
        """Compare the log with the oracle.

        Parameters
        ----------
        horizons : dict
            As they were before the last step.
        now_ms : int
            When it was taken.
        """
        there = self.physical()
        for key, candidates in self.candidates.items():
            while candidates:
                winner = max(candidates, key=self.order)
                if winner.offset in there:
                    break
                assert winner.value is None, f"{winner} is lost"
                horizon = horizons.get(winner.offset)
                assert horizon is not None, f"{winner} went in the pass that first saw it"
                assert horizon <= now_ms, f"{winner} went before its horizon"
                self.removed_tombstones += 1
                back = [c for c in candidates if c.offset in there and c.appended_ms < horizon]
                assert not back, f"{back} came back after {winner}"
                candidates[:] = [c for c in candidates if c.offset in there]
                self.resurrections += bool(candidates)
            rows = [each for each in self.decided if each.key == key and each.offset in there]
            best = max(rows, key=self.order, default=None)
            expected = max(candidates, key=self.order, default=None)
            assert best == expected, f"{best} is seen where {expected} is the winner"

    def check_one_a_key(self, end_offset: int, log_end_offset: int) -> None:
        """Check invariant (I): below a pass's end each key has one record, except the log's
        last."""
        there = self.physical()
        seen: set[bytes] = set()
        for each in self.decided:
            if each.offset in there and each.offset < min(end_offset, log_end_offset - 1):
                assert each.key not in seen, f"{each} is next to another record of its key"
                seen.add(each.key)

    # -- appending -----------------------------------------------------------------------

    def draft(self) -> Draft:
        """Draw a record: few keys, late versions, tombstones, headers of all kinds."""
        rng = self.rng
        now_ms = self.world.clock.now_ms()
        late = rng.randint(0, self.lateness_ms) if rng.random() < 0.5 else 0
        version: int | None = now_ms - late
        state = version
        assert state is not None
        good = (HEADER, state.to_bytes(8, "big", signed=True))
        headers: tuple[tuple[str, bytes | None], ...] = (good,)
        kind = rng.random()
        if kind < 0.05:
            headers, version = (("other", good[1]),), None
        elif kind < 0.08:
            headers, version = (good, (HEADER, b"1234")), None
        elif kind < 0.10:
            headers, version = (good, (HEADER, None)), None
        elif kind < 0.15:
            headers = ((HEADER, (2**62).to_bytes(8, "big")), good)
        value = None if rng.random() < 0.3 else b"%d" % rng.randint(0, 10**6)
        return Draft(rng.choice(self.busy), value, now_ms - late, version, headers)

    def append(self) -> None:
        """Append a batch outside a transaction."""
        drafts = [self.draft() for _ in range(self.rng.randint(1, 3))]
        info = self.log.writer.append_records(
            [NewRecord(d.key, d.value, d.timestamp, d.headers) for d in drafts]
        )
        for arrival in self._arrivals(info.first_offset, drafts):
            self._decide(arrival)

    def send(self) -> None:
        """Append a batch inside a transaction; producers write values only, without versions."""
        client = self.rng.choice(self.clients)
        client.is_open = True
        now_ms = self.world.clock.now_ms()
        drafts = [
            Draft(self.rng.choice(KEYS), b"%d" % self.rng.randint(0, 10**6), now_ms, None, ())
            for _ in range(self.rng.randint(1, 2))
        ]
        info = client.producer.send(*((d.key, d.value) for d in drafts))
        client.pending += self._arrivals(info.first_offset, drafts)

    def end(self) -> None:
        """Commit or abort an open transaction."""
        client = self.rng.choice(self.clients)
        if not client.is_open:
            return
        if self.rng.random() < 0.5:
            client.producer.commit()
            for arrival in client.pending:
                self._decide(arrival)
        else:
            client.producer.abort()
        client.pending, client.is_open = [], False

    def _arrivals(self, first_offset: int, drafts: list[Draft]) -> list[Arrival]:
        now_ms = self.world.clock.now_ms()
        return [
            Arrival(first_offset + at, d.key, d.value, d.timestamp, d.version, now_ms)
            for at, d in enumerate(drafts)
        ]

    def _decide(self, arrival: Arrival) -> None:
        self.decided.append(arrival)
        self.candidates[arrival.key].append(arrival)

    # -- cleaning, and actions in between ------------------------------------------------

    def roll(self) -> None:
        """Close the active segment."""
        self.log.writer.roll()

    def upper_bound(self) -> int:
        """Base of the segment with the last stable offset, at most of the active segment."""
        stable = self.log.last_stable_offset
        return max(s.base_offset for s in self.log.segments if s.base_offset <= stable)

    def clean(self) -> None:
        """Run a pass, with a map that is often too small, to its end or not quite."""
        upper_bound = self.upper_bound()
        forced = self.first_dirty >= upper_bound
        if self.log.segments.first.base_offset >= upper_bound or (
            forced and self.rng.random() < 0.7
        ):
            return
        config = CleanerConfig(
            dedupe_buffer_bytes=32 * self.rng.choice((2, 2, 3, 100)),
            load_factor=1.0,
            io_buffer_bytes=self.rng.choice((100, 4096)),
        )
        log_end_offset = self.log.log_end_offset
        steps = clean_pass(self.log, config, self.first_dirty, upper_bound)
        if self.rng.random() < 0.25:
            self.crashes += 1
            for _ in range(self.rng.randint(0, 12)):
                if next(steps, None) is None:
                    break
            steps.close()
            self.reopen(clean=False)
            return
        stats = drive(steps)
        assert stats.end_offset > self.first_dirty or forced
        self.first_dirty = stats.end_offset
        self.log.delete_expired_files()
        self.check_one_a_key(stats.end_offset, log_end_offset)

    def switch(self) -> None:
        """Change the topic's strategy: existing records compete again (cleaner §13.8)."""
        self.strategy = self.rng.choice([each for each in STRATEGIES if each != self.strategy])
        self.log.set_config(LogConfig(**self._settings()))
        self.first_dirty = max(self.first_dirty - 1, self.log.log_start_offset)
        self.switched += 1
        there = self.physical()
        for key in KEYS:
            self.candidates[key] = [
                each for each in self.decided if each.key == key and each.offset in there
            ]

    def reopen(self, *, clean: bool) -> None:
        """Close the log and open it again, perhaps to be recovered."""
        self.log.close()
        self.log = self.world.log(clean=clean, **self._settings())
        for client in self.clients:
            client.producer.log = self.log

    def live(self, steps: int = 60) -> None:
        """Do all of it, holding the log against the oracle after each step."""
        actions = [self.append] * 5 + [self.clean] * 5 + [self.roll] * 2 + [self.send, self.end]
        for _ in range(steps):
            horizons, now_ms = self.horizons(), self.world.clock.now_ms()
            if self.rng.random() < 0.2:  # the others are left alone for a while
                self.busy = tuple(self.rng.sample(KEYS, self.rng.choice((1, 1, 2, 4))))
            if self.switches and self.rng.random() < 0.03:
                self.switch()
            self.rng.choice(actions)()
            self.check(horizons, now_ms)
            self.world.clock.advance(ms=self.rng.choice((0, 1, 2, 5, 20, 60)))
