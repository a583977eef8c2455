"""The joint steps of a log and its model, and the comparison after each of them.

A crash in memory follows `logstore.faults.crash`: contents and names that were not synced may be
dropped, kept, torn or scattered. On disk no data is lost: the log is abandoned as it is, with
preallocated indexes and perhaps a torn batch at the end.
"""

import random
import tempfile
from dataclasses import replace
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis.stateful import invariant, precondition, rule

from logstore.config.log_config import LogConfig
from logstore.errors import OffsetOutOfRangeError, PolicyViolationError
from logstore.runtime import Runtime
from logstore.storage.log.reader import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    Isolation,
)
from logstore.testing import Contents, CrashMode, FaultyFileSystem, Names
from tests.property.log_appends import (
    ALTERATIONS,
    DAY_MS,
    AppendingMachine,
    alterations,
    around_the_start,
)
from tests.support.world.builders import batch, disk_world, log_name

crash_modes = st.builds(
    CrashMode,
    st.sampled_from(Contents),
    st.sampled_from(Names),
    st.integers(0, 2000),
    st.integers(0, 8),
    st.integers(0, 1000),
)


SITUATIONS = (
    "rolled for segment.bytes",
    "rolled for segment.ms",
    "rolled for offset index full",
    "rolled for time index full",
    "expired by log_start_offset",
    "expired by retention.bytes",
    "expired by retention.ms",
    "expired as a whole",
    "truncated across segments",
    "truncated inside a batch",
    "lost something in a crash",
    "restarted at the log start",
)
"""Situations that a long run must reach; the rest of `LogMachine.tally` are numbers."""

several_batches = precondition(lambda self: len(self.model.batches) >= 3)
"""Before steps that take away: else most logs would be empty most of the time."""


class LogMachine(AppendingMachine):
    """All steps, on a log in memory."""

    # -- time and durability -------------------------------------------------------------

    @rule()
    def roll(self):
        segment = self.log.writer.roll()
        assert segment is self.log.active_segment
        self.model.roll(self.now)

    @rule(hours=st.integers(1, 400))
    def wait(self, hours):
        self.world.clock.advance(hours=hours)

    @rule(data=st.data(), everything=st.booleans())
    def flush(self, data, everything):
        up_to = None if everything else min(self.some_offset(data), self.model.end)
        self.log.flush(up_to)
        self.model.flush(up_to)

    @rule()
    def write_checkpoint(self):
        self.model.write_checkpoint()

    @rule(data=st.data())
    def lower_the_high_watermark(self, data):
        """Lower the high watermark, as a replica's leader may; the next append raises it again."""
        offset = self.some_offset(data)
        self.log.offsets.set_high_watermark(offset)
        model = self.model
        model.high_watermark = min(max(offset, model.start), model.end)

    def perhaps_lower_the_high_watermark(self, data):
        """Lower it with a probability of 1/4: otherwise an append would almost always be next."""
        if data.draw(st.integers(0, 3)) == 3:
            self.lower_the_high_watermark(data)

    @rule(change=alterations, unset=st.sets(st.sampled_from(sorted(ALTERATIONS)), max_size=2))
    def alter(self, change, unset):
        kept = {name: value for name, value in self.config.items() if name not in unset}
        self.config = kept | change
        self.model.config = LogConfig(**self.config)
        self.log.set_config(self.model.config)

    # -- retention and delete-records ----------------------------------------------------

    @several_batches
    @rule(data=st.data(), hours=st.sampled_from((0, 0, 1, 170)))
    def retain(self, data, hours):
        self.perhaps_lower_the_high_watermark(data)
        self.world.clock.advance(hours=hours)
        expired = self.model.expired(self.now, self.mtime_of)
        rolls = len(expired) == len(self.model.segments)
        planned = self.log.retention_decision()
        decision = self.log.delete_old_segments()
        assert decision == planned
        assert [(v.base_offset, v.rule.value) for v in decision.removed] == expired
        assert decision.rolls == rolls
        self.tally.update(f"expired by {rule}" for _, rule in expired)
        self.tally["expired as a whole"] += rolls
        self.model.remove_oldest(len(expired), self.now, self.uptime_ms)
        assert decision.log_start_offset == self.model.start

    @several_batches
    @rule(data=st.data())
    def delete_records(self, data):
        model = self.model
        offset = data.draw(st.one_of(st.integers(-2, -1), st.just(self.some_offset(data))))
        target = model.high_watermark if offset == -1 else offset
        if "delete" not in model.config.cleanup_policy:
            with pytest.raises(PolicyViolationError):
                self.log.delete_records(offset)
        elif not 0 <= target <= model.high_watermark:
            with pytest.raises(OffsetOutOfRangeError) as caught:
                self.log.delete_records(offset)
            self.check_bounds(caught.value)
        else:
            low_watermark = self.log.delete_records(offset)
            model.raise_start(target)
            removed = model.expired(self.now, self.mtime_of, start_only=True)
            model.remove_oldest(len(removed), self.now, self.uptime_ms)
            assert low_watermark == model.start >= target

    @several_batches
    @rule(data=st.data())
    def raise_the_log_start(self, data):
        offset = self.some_offset(data)
        if offset > self.model.high_watermark:
            with pytest.raises(OffsetOutOfRangeError) as caught:
                self.log.offsets.maybe_increment_log_start_offset(offset)
            self.check_bounds(caught.value)
        else:
            raised = self.log.offsets.maybe_increment_log_start_offset(offset)
            assert raised == self.model.raise_start(offset)

    def check_bounds(self, error):
        model = self.model
        assert (error.log_start_offset, error.log_end_offset) == (model.start, model.end)

    @rule(force=st.booleans(), minutes=st.sampled_from((0, 2, 2000)))
    def delete_expired_files(self, force, minutes):
        self.world.clock.advance(minutes=minutes)
        far = self.uptime_ms + 2 * DAY_MS
        assert self.log.delete_expired_files(force=force) >= self.model.delete_files(
            far if force else self.uptime_ms
        )

    # -- truncation ----------------------------------------------------------------------

    @several_batches
    @rule(data=st.data(), known=st.booleans())
    def truncate(self, data, known):
        """Truncate; unless the machine stops at once, the owner then writes its checkpoints."""
        self.perhaps_lower_the_high_watermark(data)
        offset = self.some_offset(data)
        bases, batches = self.model.bases, self.model.batches
        done = self.log.truncate_to(offset)
        assert done == self.model.truncate(offset, self.now, self.uptime_ms)
        self.tally["truncated across segments"] += self.model.bases < bases
        self.tally["truncated inside a batch"] += any(
            b.base_offset < offset <= b.last_offset for b in batches
        )
        self.note_lost_markers(batches)
        self.after_truncation(done, known=known)

    @several_batches
    @rule(data=st.data(), below=st.integers(0, 3), known=st.booleans())
    def truncate_fully(self, data, below, known):
        offset = self.some_offset(data, most=20)
        start = max(0, offset - below)
        self.log.truncate_fully_and_start_at(offset, start)
        self.model.truncate_fully(offset, start, self.now, self.uptime_ms)
        self.after_truncation(True, known=known)

    def after_truncation(self, done, *, known):
        self.note_what_a_replay_may_not_know()
        if known:
            self.model.write_checkpoint()
        elif done:
            self.compare_with_the_model()
            self.crash(CrashMode())

    # -- restarts ------------------------------------------------------------------------

    @rule()
    def restart(self):
        """Restart twice: opening and closing may change nothing but stray snapshots."""
        kinds = (".log", ".index", ".timeindex", ".txnindex", "leader-epoch-checkpoint")
        self.close()
        self.open(clean=True)
        is_settled = not any(finding.action == "reset_log" for finding in self.log.findings)
        before = self.world.files(*kinds)
        self.close()
        if is_settled:
            assert self.log.findings == ()
        after = self.world.files(*kinds)
        self.open(clean=True)
        assert self.log.findings == ()
        self.close()
        assert self.world.files(*kinds) == after, before.keys()
        self.open(clean=True)
        self.read_everything()

    def close(self):
        self.log.close()
        self.model.name_log_start(self.now)
        self.model.flush()
        self.model.write_checkpoint()

    def open(self, *, clean):
        start, flushed = self.model.checkpoint
        self.log = self.world.log(
            clean=clean, recovery_point=flushed, log_start_offset=start, **self.config
        )
        if not clean:
            self.find_what_is_left()
        # A later crash can bring back an older snapshot, which knows these.
        self.half_known |= self.model.hidden_transactions.keys()
        self.model.reopen(self.now, self.log.epochs.entries, clean=clean)
        self.note_what_a_replay_may_not_know()

    def note_what_a_replay_may_not_know(self):
        transactions = self.model.open_transactions()
        self.half_known |= {p for p, first in transactions.items() if first < self.model.start}

    def note_lost_markers(self, before):
        """Note transactions that a snapshot may know, although their records were deleted."""
        remaining = {batch.base_offset for batch in self.model.batches}
        reopened = {b.producer_id for b in before if b.marker and b.base_offset not in remaining}
        self.half_known |= reopened - self.model.open_transactions().keys()

    def find_what_is_left(self):
        result = [
            (segment.base_offset, [(at.header.base_offset, at.header.last_offset) for at in walk])
            for segment in self.log.segments
            for walk in [segment.batches()]
        ]
        before = self.model.batches
        if any(finding.action == "reset_log" for finding in self.log.findings):
            self.tally["restarted at the log start"] += 1
            self.model.lose_all_below_the_start(result)
        else:
            self.model.lose(result)
        self.tally["lost something in a crash"] += len(self.model.batches) < len(before)
        self.note_lost_markers(before)

    @rule(mode=crash_modes)
    def crash(self, mode):
        """Crash; data that was not synced is left as `mode` says."""
        self.stop(mode)
        self.open(clean=False)
        self.read_everything()

    def stop(self, mode):
        image = self.world.fs.crash(mode)
        fs = FaultyFileSystem(self.world.clock, image)
        runtime = Runtime(self.world.clock, fs, self.world.runtime.rng)
        self.world = replace(self.world, runtime=runtime)

    @rule(seed=st.integers(0, 1000), kind=st.sampled_from(("noise", "zeros", "torn")))
    def crash_with_a_torn_tail(self, seed, kind):
        """Crash with the bytes of an unfinished write at the end of the log.

        Two bytes at least are missing: the last one of a batch is a zero, as are the bytes of a
        preallocated file, which would make it whole.
        """
        segment = self.log.active_segment
        rng = random.Random(seed)
        tail = batch(self.model.end, self.model.end + rng.randrange(3))
        tail = {
            "noise": rng.randbytes(rng.randrange(1, 200)),
            "zeros": bytes(rng.randrange(1, 200)),
            "torn": tail[: rng.randrange(1, len(tail) - 1)],
        }[kind]
        path = self.world.path(log_name(segment.base_offset))
        file = self.world.fs.open(path, write=True)
        file.write_at([tail], segment.size_bytes)
        file.close()
        self.model.durable = self.model.end
        self.stop(CrashMode(Contents.KEPT, Names.KEPT))
        self.open(clean=False)
        assert [f.action for f in self.log.findings if f.action == "truncated_tail"]
        self.read_everything()

    # -- questions -----------------------------------------------------------------------

    @rule(data=st.data())
    def read(self, data):
        model = self.model
        start = data.draw(st.integers(model.start, model.end))
        end = data.draw(st.one_of(st.none(), st.integers(0, model.end + 2)))

        def asked(records):
            return [r for r in records if r.offset >= start and (end is None or r.offset < end)]

        expected = asked(model.readable(model.high_watermark))
        assert [record for _, record in self.log.reader.records(start, end)] == expected
        expected = asked(model.readable(self.log.last_stable_offset, committed=True))
        committed = self.log.reader.records(start, end, isolation=Isolation.READ_COMMITTED)
        assert [record for _, record in committed] == expected
        for outside in (model.start - 1, model.end + 1):
            with pytest.raises(OffsetOutOfRangeError) as caught:
                self.log.reader.read(outside, 100)
            self.check_bounds(caught.value)

    @rule(data=st.data())
    def fetch(self, data):
        """Raw bytes of any size: whole batches but for the last, which may be torn."""
        start = data.draw(st.integers(self.model.start, self.model.end))
        size = data.draw(st.integers(0, 600))
        result = self.log.reader.read(start, size)
        assert len(result.data) <= size
        whole = self.log.reader.read(start, size, min_one_message=True)
        assert whole.data.startswith(result.data)
        assert not whole.first_entry_incomplete

    @rule(data=st.data())
    def look_up_a_time(self, data):
        stored = [r.timestamp for b in self.model.batches for r in b.records if r.timestamp >= 0]
        times = [st.sampled_from([*stored, self.now]), around_the_start, st.integers(0, 60)]
        target = max(0, data.draw(st.one_of(times)) + data.draw(st.integers(-1, 1)))
        assert self.log.reader.offset_for_timestamp(target) == self.model.first_at_or_after(
            target, self.mtime_of
        )

    # -- always --------------------------------------------------------------------------

    @invariant()
    def agrees(self):
        self.tally["steps"] += 1
        self.compare_with_the_model()

    def compare_with_the_model(self):
        log, model = self.log, self.model
        model.check()
        assert (log.log_start_offset, log.log_end_offset) == (model.start, model.end)
        assert log.high_watermark == model.high_watermark
        assert log.recovery_point == model.flushed
        assert log.generation == model.generation
        assert [segment.base_offset for segment in log.segments] == model.bases
        assert [s.size_bytes for s in log.segments] == [s.size_bytes for s in model.segments]
        assert list(log.epochs.entries) == model.epochs.entries
        assert log.reader.offset_for_timestamp(EARLIEST_TIMESTAMP).offset == model.start
        assert log.reader.offset_for_timestamp(LATEST_TIMESTAMP).offset == model.end
        assert log.reader.offset_for_timestamp(MAX_TIMESTAMP) == model.largest_time()
        model.check_files(self.world.fs.list_dir(self.world.directory))
        self.check_last_stable_offset()

    def check_last_stable_offset(self):
        model = self.model
        first = {p: max(model.start, o) for p, o in model.open_transactions().items()}
        most = min([model.high_watermark, *(first[p] for p in first.keys() - self.half_known)])
        least = min([most, *first.values()])
        if model.high_watermark < model.end or self.half_known:
            # A replay may adopt transactions whose markers are above it.
            least = model.start
        assert least <= self.log.last_stable_offset <= most

    @invariant()
    def holds(self):
        log = self.log
        log._check()
        log.producer_state._check()
        log.epochs._check()
        for segment in log.segments:
            segment._check()
            segment.offset_index._check()
            segment.time_index._check()
            segment.txn_index._check()

    @invariant()
    def ends_as_the_model(self):
        model = self.model
        start = max(model.start, model.end - 3)
        expected = [r for r in model.readable(model.high_watermark) if r.offset >= start]
        assert [record for _, record in self.log.reader.records(start)] == expected

    def read_everything(self):
        model = self.model
        result = list(self.log.reader.records(model.start))
        assert [record for _, record in result] == model.readable(model.high_watermark)
        epochs = {r.offset: b.epoch for b in model.batches for r in b.records}
        assert all(b.header.partition_leader_epoch == epochs[r.offset] for b, r in result)


class DiskLogMachine(LogMachine):
    """The same steps on disk."""

    def make_world(self):
        self.directory = tempfile.TemporaryDirectory()
        return disk_world(Path(self.directory.name))

    def stop(self, mode):
        self.model.durable = self.model.end

    def teardown(self):
        super().teardown()
        if hasattr(self, "directory"):
            self.directory.cleanup()
