"""A cleaned log with transactional producers, and the records they wrote.

`TransactionModel` drives both and compares: each pass with the oracle, batch by batch, and after
each step the visible records, the markers and index entries, and the producer state, with the
invariants of any cleaning pass.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from logstore.cleaner.config import CleanerConfig
from logstore.cleaner.passes.clean import Pass, clean_pass
from logstore.cleaner.strategy import Strategy
from logstore.record.batch import RecordBatch
from logstore.record.codecs import Codec
from logstore.runtime import Runtime
from logstore.storage.log import Log
from tests.support.oracles import cleaner_oracle as oracle
from tests.support.oracles.oracle import Item, latest_values
from tests.support.world.builders import World, memory_world
from tests.support.world.cleaning import (
    Producer,
    batches_in,
    committed,
    compacted,
    drive,
    map_of,
    put,
    run_pass,
    txn_entries,
)

RETENTION_MS = 1000
DAY_MS = 86_400_000
PRODUCERS = (1, 2, 3)
CODECS = (Codec.NONE, Codec.NONE, Codec.NONE, Codec.ZSTD, Codec.GZIP)


@dataclass
class Client:
    """The actions of a producer.

    Attributes
    ----------
    pending : list of Item
        Records of its open transaction.
    batches : list of (int, int)
        Of its open transaction, first and last offsets.
    last_sequence : int or None
        Of the last data batch in its present epoch.
    is_known : bool
        Whether the log knows it.
    """

    producer: Producer
    pending: list[Item] = field(default_factory=list)
    batches: list[tuple[int, int]] = field(default_factory=list)
    last_sequence: int | None = None
    is_known: bool = False

    @property
    def is_open(self) -> bool:
        return bool(self.batches)

    def forget(self) -> None:
        """The log has forgotten the producer, which starts again."""
        self.producer.sequence = 0
        self.last_sequence, self.is_known = None, False


@dataclass
class Ended:
    """A finished transaction: its batches, and the offset of its marker."""

    producer_id: int
    batches: list[tuple[int, int]]
    marker: int
    is_commit: bool


class TransactionModel:
    """A log of three producers and one writer without an id.

    Attributes
    ----------
    decided : list of Item
        Records committed, or written outside a transaction.
    ended : list of Ended
        Transactions that had data.
    first_dirty : int
        Where the next pass begins to map.
    """

    def __init__(self, seed: int, segment_bytes: int) -> None:
        self.world = memory_world(seed)
        self.settings = {
            "cleanup_policy": ("compact", "delete"),
            "delete_retention_ms": RETENTION_MS,
            "retention_ms": -1,
            "segment_bytes": segment_bytes,
        }
        self.log = compacted(self.world, **self.settings)
        self.clients = {each: Client(Producer(self.log, each)) for each in PRODUCERS}
        self.decided: list[Item] = []
        self.ended: list[Ended] = []
        self.first_dirty = 0

    # -- writing -------------------------------------------------------------------------

    def act(self, name: str, fields: dict) -> None:
        """Take one step: `send`, `end` or `write_plainly`."""
        getattr(self, name)(**fields)

    def live(self, rng: random.Random) -> None:
        """Write, wait and clean for a while."""
        for _ in range(4):
            for _ in range(rng.randint(2, 12)):
                self.act(*drawn_action(rng))
                if rng.random() < 0.2:
                    self.roll()
            self.wait(rng.choice([1, RETENTION_MS - 1, RETENTION_MS]))
            slots = rng.choice([2, 4, 8, 1000, 1000, 1000])
            if rng.random() < 0.3:
                self.clean_beside_writers(rng, slots)
            else:
                self.clean(slots)
            if rng.random() < 0.25:
                self.delete_records(rng)
            self.check()

    def write_plainly(self, batch: list, codec: Codec) -> None:
        start = self.log.log_end_offset
        put(self.log, *batch, codec=codec)
        self.decided += [Item(start + at, *pair) for at, pair in enumerate(batch)]

    def send(self, number: int, batch: list, codec: Codec, plain: bool) -> None:
        """Send a batch, `plain` if outside a transaction where none is open."""
        client = self.clients[number]
        transactional = client.is_open or not plain
        start = self.log.log_end_offset
        result = client.producer.send(*batch, transactional=transactional, codec=codec)
        assert (result.first_offset, result.last_offset) == (start, start + len(batch) - 1)
        items = [Item(start + at, *pair) for at, pair in enumerate(batch)]
        if transactional:
            client.pending += items
            client.batches.append((start, start + len(batch) - 1))
        else:
            self.decided += items
        client.last_sequence = client.producer.sequence - 1
        client.is_known = True

    def end(self, number: int, is_commit: bool, fence: bool, even_without_data: bool) -> None:
        """End a transaction; with `fence` under a new epoch."""
        client = self.clients[number]
        producer = client.producer
        if not client.is_open and not even_without_data:
            return
        if fence:
            producer.epoch += 1
            producer.sequence = 0
            client.last_sequence = None
        marker = producer.commit() if is_commit else producer.abort()
        client.is_known = True
        if client.is_open:
            self.ended.append(Ended(number, client.batches, marker.first_offset, is_commit))
        if is_commit:
            self.decided += client.pending
        client.pending, client.batches = [], []

    def roll(self) -> None:
        if self.log.active_segment.size_bytes:
            self.log.writer.roll()

    def wait(self, ms: int) -> None:
        self.world.clock.advance(ms=ms)

    def forget_idle_producers(self) -> None:
        """Advance the clock by a day; a producer with an open transaction is kept."""
        self.wait(DAY_MS)
        self.log.producer_state.remove_expired(self.world.clock.now_ms())
        for number, client in self.clients.items():
            if self.log.producer_state.entry(number) is None:
                client.forget()

    def delete_records(self, rng: random.Random) -> None:
        """Delete part of the stable records, often up to a marker, where the rules change."""
        start, stable = self.log.log_start_offset, self.log.last_stable_offset
        markers = [each.marker for each in self.ended if start < each.marker <= stable]
        before = start + int((stable - start) * rng.random())
        self.log.delete_records(rng.choice(markers) if markers and rng.random() < 0.5 else before)
        self.first_dirty = max(self.first_dirty, self.log.log_start_offset)
        self.log.delete_expired_files()

    # -- cleaning ------------------------------------------------------------------------

    def upper_bound(self) -> int:
        """Base of the segment with the last stable offset, at most of the active segment."""
        stable = self.log.last_stable_offset
        return max(s.base_offset for s in self.log.segments if s.base_offset <= stable)

    def clean(self, slots: int) -> None:
        """Run a pass; it equals the oracle's, and leaves no aborted record below its end."""
        config = config_of(slots)
        upper_bound = self.upper_bound()
        outcome = oracle.clean(
            sources_of(self.log),
            dict(self.log.producer_state.active_producers()),
            first_dirty=self.first_dirty,
            upper_bound=upper_bound,
            limit=config.max_keys_of(Strategy()),
            now_ms=self.world.clock.now_ms(),
            retention_ms=RETENTION_MS,
            log_start_offset=self.log.log_start_offset,
        )
        stats = run_pass(self.log, self.first_dirty, upper_bound, config)
        assert stats.end_offset == outcome.end_offset
        assert stats.map_entries == len(outcome.mapped.offsets)
        assert dict(stats.fates) == {name: outcome.fates[name] for name in stats.fates}
        result = batches_in(self.log)
        ends = [RecordBatch(each).header.last_offset for each in outcome.batches]
        assert [each.header.last_offset for each in result] == ends
        assert all(map(oracle.are_equal, result, outcome.batches))
        assert txn_entries(self.log) == outcome.transactions
        self.first_dirty = outcome.end_offset
        below = min(outcome.end_offset, upper_bound)
        aborted = [pair for each in self.ended if not each.is_commit for pair in each.batches]
        for item in physical(self.log):
            if self.log.log_start_offset <= item.offset < below:
                assert not any(first <= item.offset <= last for first, last in aborted)

    def clean_beside_writers(self, rng: random.Random, slots: int) -> None:
        """Run a pass while producers write, end their transactions, and segments roll."""
        cleaning = clean_pass(
            self.log, config_of(slots), self.first_dirty, self.upper_bound(), pass_number=1
        )

        def steps() -> Pass:
            try:
                while True:
                    yield next(cleaning)
                    self.act(*drawn_action(rng))
                    if rng.random() < 0.2:
                        self.roll()
                    self.check()
            except StopIteration as done:
                return done.value

        self.first_dirty = drive(steps()).end_offset
        self.log.delete_expired_files()

    # -- restarts ------------------------------------------------------------------------

    def restart(self, *, clean: bool) -> None:
        """Close the log and open it again; without the marker of a clean stop it is recovered."""
        before, entries = raw(self.log), txn_entries(self.log)
        self.log.close()
        self._reopen(clean=clean)
        assert raw(self.log) == before
        if clean:
            assert txn_entries(self.log) == entries

    def crash(self, slots: int, steps: int) -> None:
        """Stop between two steps of a pass, forget everything in memory, and open again."""
        before = committed(self.log)
        cleaning = clean_pass(self.log, config_of(slots), self.first_dirty, self.upper_bound())
        for _ in range(steps):
            if next(cleaning, None) is None:
                break
        self.world = forked(self.world)
        cleaning.close()
        self._reopen(clean=False)
        assert not [n for n in self.world.files() if n.endswith((".cleaned", ".swap"))]
        # Visible records may have been removed, but none added.
        assert set(committed(self.log)) <= set(before)

    def _reopen(self, *, clean: bool) -> None:
        start = self.log.log_start_offset
        self.log = self._opened(self.world, clean=clean)
        assert self.log.log_start_offset == start
        for number, client in self.clients.items():
            client.producer.log = self.log
            self._meet_again(number, client)

    def _opened(self, world: World, *, clean: bool) -> Log:
        start = self.log.log_start_offset
        return compacted(world, clean=clean, log_start_offset=start, **self.settings)

    def _meet_again(self, number: int, client: Client) -> None:
        """Compare a producer's state after a restart with the model, and adopt it.

        The log may know a forgotten producer again. It may have forgotten one that was idle for a
        day, or one whose epoch was only in a marker that compaction emptied or that was deleted.
        """
        producer, entry = client.producer, self.log.producer_state.entry(number)
        own = [
            batch.header
            for batch in batches_in(self.log)
            if batch.header.producer_id == number
            and batch.header.last_offset >= self.log.log_start_offset
        ]
        present = [each for each in own if each.producer_epoch == producer.epoch]
        has_marker = any(each.is_control and each.record_count for each in present)
        has_data = client.last_sequence is not None and any(
            not each.is_control and each.last_sequence == client.last_sequence for each in present
        )
        if entry is None:
            newest_ms = max((header.max_timestamp for header in own), default=0)
            is_idle = self.world.clock.now_ms() - newest_ms >= DAY_MS
            assert not client.is_open
            assert is_idle or not client.is_known or not (has_data or has_marker)
            client.forget()
            return
        if client.is_known and (has_data or has_marker):
            assert entry.producer_epoch == producer.epoch
        if client.is_known and has_data:
            assert entry.last_sequence == client.last_sequence
        assert has_data or client.last_sequence is None or self.log.log_start_offset > 0
        assert (entry.current_txn_first_offset is not None) == client.is_open
        producer.epoch = entry.producer_epoch
        producer.sequence = entry.last_sequence + 1
        client.last_sequence = entry.last_sequence if entry.last_sequence >= 0 else None
        client.is_known = True

    # -- invariants ----------------------------------------------------------------------

    def check(self) -> None:
        """Assert the invariants after each step."""
        self._check_readers_of_committed_data()
        self._check_readers_of_everything()
        self._check_markers()
        self._check_producers()

    def _check_readers_of_committed_data(self) -> None:
        result = [Item(*each) for each in committed(self.log)]
        stable = self.log.last_stable_offset
        start = self.log.log_start_offset
        visible = sorted(item for item in self.decided if start <= item.offset < stable)
        assert set(result) <= set(visible)
        assert latest_values(result) == latest_values(visible)
        last = {item.key: item for item in visible}
        missing = [item for item in last.values() if item not in result]
        assert all(item.value is None for item in missing), "only tombstones go"
        middle = (start + stable) // 2
        from_middle = [Item(*each) for each in committed(self.log, middle)]
        assert from_middle == [item for item in result if item.offset >= middle]

    def _check_readers_of_everything(self) -> None:
        start = self.log.log_start_offset
        result = [Item(r.offset, r.key, r.value) for _, r in self.log.reader.records(start)]
        assert result == [item for item in physical(self.log) if item.offset >= start]
        pending = [item for client in self.clients.values() for item in client.pending]
        assert set(pending) <= set(result)

    def _check_markers(self) -> None:
        """Data precedes its marker, and is aborted by the index; entries have markers."""
        batches = batches_in(self.log)
        markers = {
            batch.header.base_offset: oracle.control_type(batch)
            for batch in batches
            if batch.header.is_control
        }
        held = {
            batch.header.last_offset
            for batch in batches
            if batch.header.is_transactional and not batch.header.is_control
        }
        entries = {(producer_id, last) for producer_id, _, last, _ in txn_entries(self.log)}
        for each in self.ended:
            # Transactions that ended below the log start do not count; a marker may be removed
            # before its data.
            if each.marker >= self.log.log_start_offset and any(
                last in held for _, last in each.batches
            ):
                assert markers.get(each.marker) == ("commit" if each.is_commit else "abort")
                assert each.is_commit or (each.producer_id, each.marker) in entries
        assert all(markers.get(last) == "abort" for _, last in entries)

    def _check_producers(self) -> None:
        first = [client.batches[0][0] for client in self.clients.values() if client.is_open]
        assert self.log.last_stable_offset == min(first, default=self.log.log_end_offset)
        for number, client in self.clients.items():
            entry = self.log.producer_state.entry(number)
            assert client.is_known == (entry is not None)
            if client.last_sequence is not None:
                assert entry.last_sequence == client.last_sequence

    def check_recovery(self) -> None:
        """Assert that recovering a copy changes no batch, and nothing visible to readers."""
        log = self._opened(forked(self.world), clean=False)
        assert raw(log) == raw(self.log)
        assert committed(log) == committed(self.log)
        assert log.last_stable_offset == self.log.last_stable_offset
        # Recovery does not restore an entry whose data has all been removed, since no batch has it.
        entries = {(each[0], each[2]) for each in txn_entries(log)}
        assert entries <= {(each[0], each[2]) for each in txn_entries(self.log)}


def drawn_action(rng: random.Random) -> tuple[str, dict]:
    """Draw a step and its arguments, four of five of them a producer's."""
    batch = [
        (b"%c" % rng.choice(b"abcde"), rng.choice([None, b"v", rng.randbytes(3)]))
        for _ in range(rng.randint(1, 3))
    ]
    number, codec = rng.choice(PRODUCERS), rng.choice(CODECS)
    name = rng.choice(["send", "send", "end", "end", "write_plainly"])
    if name == "send":
        plain = rng.random() < 0.2
        return name, {"number": number, "batch": batch, "codec": codec, "plain": plain}
    if name == "end":
        return name, {
            "number": number,
            "is_commit": rng.random() < 0.4,
            "fence": rng.random() < 0.2,
            "even_without_data": rng.random() < 0.1,
        }
    return name, {"batch": batch, "codec": codec}


def config_of(slots: int) -> CleanerConfig:
    """A cleaner with a map of this size that reads a few batches at a time."""
    return map_of(slots, 0.8, io_buffer_bytes=150)


def forked(world: World) -> World:
    """A copy of a world's files, as after a crash that the disk survived."""
    fs = world.fs.fork()
    return World(Runtime(world.clock, fs, random.Random(1)), world.directory, world.clock)


def sources_of(log: Log) -> list[oracle.Source]:
    """The log's segments, as input of the oracle."""
    view = log.segments.view
    ends = [segment.base_offset for segment in view[1:]] + [log.log_end_offset]
    return [
        oracle.Source(
            segment.base_offset,
            end,
            [segment.read_batch(at) for at in segment.batches()],
            segment.txn_index.entries(),
        )
        for segment, end in zip(view, ends, strict=True)
    ]


def physical(log: Log) -> list[Item]:
    """Data records, of transactions of any fate."""
    return [
        Item(record.offset, record.key, record.value)
        for batch in batches_in(log)
        if not batch.header.is_control
        for record in batch.records()
    ]


def raw(log: Log) -> list[bytes]:
    """The bytes of each batch."""
    return [each.data for each in batches_in(log)]
