"""Readers while segments are removed, replaced or truncated, or the log is closed.

An iterator returns the rest of its chunk; then it continues in the current log.
"""

import pytest

from logstore.errors import IllegalStateError, KafkaStorageError, OffsetOutOfRangeError
from logstore.storage.log import NewRecord
from logstore.storage.log.reader import Isolation
from logstore.storage.segment import LogSegment
from tests.support.world.builders import bases_of, fill, records_of
from tests.support.world.cleaning import compacted, put, run_pass
from tests.support.world.messages import exactly

COUNT = 30


def filled(world, **config):
    """Return a reopened log of several segments: no file of it is open yet."""
    settings = {"segment_bytes": 300, "index_interval_bytes": 0, **config}
    log = world.log(**settings)
    fill(log, COUNT)
    log.close()
    log = world.log(**settings)
    assert len(log.segments) > 5
    return log


def offsets(records):
    return [record.offset for _, record in records]


def row_offsets(columns):
    return [offset for _, each in columns for offset in each.offsets.tolist()]


def drain(iterator):
    """Return the rest of an iterator, and the error that ends it."""
    given = []
    try:
        given.extend(iterator)
    except OffsetOutOfRangeError as error:
        return given, error
    return given, None


# -- removal ---------------------------------------------------------------------------------


@pytest.mark.parametrize("unlinked", (False, True))
@pytest.mark.parametrize("method", ("records", "batches", "columns"))
def test_an_iterator_finishes_its_segment_and_then_reports_the_deletion(world, method, unlinked):
    log = filled(world)
    following = bases_of(log)[1]
    iterator = getattr(log.reader, method)(0)
    next(iterator)
    log.delete_records(20)
    if unlinked:
        log.delete_expired_files(force=True)
    given, error = drain(iterator)
    assert len(given) == following - 1, "a batch per record"
    assert (error.offset, error.log_start_offset, error.log_end_offset) == (following, 20, COUNT)


def test_an_iterator_continues_if_only_the_records_it_has_read_were_deleted(world):
    log = filled(world)
    following = bases_of(log)[1]
    iterator = log.reader.records(0)
    seen = offsets(next(iterator) for _ in range(following))
    log.delete_records(following)
    log.delete_expired_files(force=True)
    assert seen + offsets(iterator) == list(range(COUNT))


def test_an_iterator_with_an_end_ignores_records_beyond_it(world):
    log = filled(world)
    following = bases_of(log)[1]
    iterator = log.reader.records(0, following)
    next(iterator)
    log.delete_records(20)
    assert offsets(iterator) == list(range(1, following))


def test_retention_is_handled_like_a_deletion(world):
    log = filled(world, retention_bytes=600)
    iterator = log.reader.records(0)
    next(iterator)
    log.delete_old_segments()
    assert log.log_start_offset > bases_of(log)[0] - 1 > 0
    _, error = drain(iterator)
    assert error.log_start_offset == log.log_start_offset


def test_a_log_start_inside_the_segment_applies_from_the_next_piece(world, monkeypatch):
    """A chunk is one read; here a read returns one batch."""
    monkeypatch.setattr("logstore.storage.log.reader.FETCH_BYTES", 1)
    log = filled(world)
    iterator = log.reader.records(0)
    next(iterator)
    log.delete_records(2)
    given, error = drain(iterator)
    assert given == []
    assert (error.offset, error.log_start_offset) == (1, 2)


# -- changes during one read -----------------------------------------------------------------


def interrupted(monkeypatch, name, interrupt):
    """Call an action before the next call of a segment's method."""
    original = getattr(LogSegment, name)
    pending = [interrupt]

    def method(self, *arguments, **options):
        if pending:
            pending.pop()()
        return original(self, *arguments, **options)

    monkeypatch.setattr(LogSegment, name, method)
    return pending


@pytest.mark.parametrize("closed", (False, True))
@pytest.mark.parametrize("name", ("read", "translate_offset"))
def test_a_segment_deleted_during_a_read_is_an_error(world, monkeypatch, name, closed):
    """The read neither reports a disk error nor continues after the segment as after a hole."""
    log = filled(world)
    first = log.segments.first

    def remove():
        log.delete_records(20)
        log.delete_expired_files(force=True)
        if closed:
            first.close_handlers()

    pending = interrupted(monkeypatch, name, remove)
    with pytest.raises(OffsetOutOfRangeError) as caught:
        log.reader.read(0, 1000)
    assert not pending
    assert (caught.value.log_start_offset, caught.value.log_end_offset) == (20, COUNT)
    assert [record.offset for record in records_of(log)] == list(range(20, COUNT))


def test_a_deletion_between_the_bounds_and_the_segments_is_not_a_hole(world, monkeypatch):
    log = filled(world)
    original = log.reader._find
    monkeypatch.setattr(
        log.reader, "_find", lambda *details: (log.delete_records(20), original(*details))[1]
    )
    with pytest.raises(OffsetOutOfRangeError):
        log.reader.read(0, 1000)


@pytest.mark.parametrize("target", (1000, 1003, -3))
def test_a_look_up_by_time_begins_again_when_its_segment_went(world, monkeypatch, target):
    log = filled(world)
    segments = log.segments.view[:4]

    def remove():
        log.delete_records(20)
        log.delete_expired_files(force=True)
        for segment in segments:
            segment.close_handlers()

    pending = interrupted(monkeypatch, "batches", remove)
    found = log.reader.offset_for_timestamp(target)
    assert not pending
    assert found.offset == (COUNT - 1 if target == -3 else 20)


def test_a_failure_in_a_segment_that_stays_is_a_disk_error(world, monkeypatch):
    log = filled(world)

    def fail(*_, **__):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(LogSegment, "read", fail)
    with pytest.raises(
        KafkaStorageError, match=exactly("t-0: cannot read: [Errno 5] Input/output error")
    ):
        log.reader.read(0, 100)
    monkeypatch.undo()
    with pytest.raises(
        ValueError,
        match=exactly(
            "invalid maximum size -1 for a read of LogSegment(base_offset=0, size_bytes=284)"
        ),
    ):
        log.reader.read(0, -1)


class _LockOfAChange:
    """A log's lock during a change: the change is complete when the lock is acquired."""

    def __init__(self, log, change):
        self._lock = log.lock
        self._change = change

    def __enter__(self):
        self._change()
        return self._lock.__enter__()

    def __exit__(self, *error):
        return self._lock.__exit__(*error)


def test_a_look_that_fails_during_a_change_waits_for_its_end_and_looks_again(world):
    """The error is not enough: the view and the generation change at the end of the change."""
    log = filled(world)
    gone = []

    def change():
        if gone:
            log.generation += 1
            gone.clear()

    def look():
        if not seen:
            seen.append("too early")
            gone.append("a file")
            raise FileNotFoundError("a file that the change has renamed")
        return "found"

    seen = []
    log.lock = _LockOfAChange(log, change)
    assert log.reader.steady(look) == "found"


def test_a_concurrently_closed_log_is_reported(world):
    log = filled(world)
    iterator = log.reader.records(0)
    next(iterator)
    log.close()
    with pytest.raises(IllegalStateError, match="closed"):
        list(iterator)


def test_late_readers_of_a_removed_segment_bring_no_file_back(world):
    log = filled(world)
    first = log.segments.first
    log.delete_records(20)
    log.delete_expired_files(force=True)
    before = sorted(world.files())
    with pytest.raises((OSError, ValueError)):
        first.read(0, 100)
    with pytest.raises((OSError, ValueError)):
        first.find_offset_by_timestamp(1000, 0)
    assert sorted(world.files()) == before


# -- replacement -----------------------------------------------------------------------------


@pytest.mark.parametrize("method", ("records", "columns"))
def test_s202_an_iterator_reads_on_through_a_cleaning(world, method):
    """S-202: all old records of its segment, then the cleaned records."""
    log = compacted(world, segment_bytes=300)
    for number in range(COUNT):
        put(log, (b"k%d" % (number % 3), b"v%d" % number))
    log.writer.roll()
    following = bases_of(log)[1]
    iterator = getattr(log.reader, method)(0)
    first = next(iterator)
    run_pass(log)
    rest = list(iterator)
    seen = offsets([first, *rest]) if method == "records" else row_offsets([first, *rest])
    survivors = list(range(COUNT - 3, COUNT))
    assert [record.offset for record in records_of(log)] == survivors
    assert seen == list(range(following)) + [each for each in survivors if each >= following]


def test_a_read_restarts_in_the_segment_that_replaced_its_own(world, monkeypatch):
    log = compacted(world, segment_bytes=300)
    for number in range(COUNT):
        put(log, (b"k%d" % (number % 3), b"v%d" % number))
    log.writer.roll()
    old = log.segments.view[:-1]

    def clean():
        run_pass(log)
        for segment in old:
            segment.close_handlers()

    pending = interrupted(monkeypatch, "translate_offset", clean)
    assert [record.offset for record in records_of(log)] == list(range(COUNT - 3, COUNT))
    assert not pending


# -- truncation ------------------------------------------------------------------------------


def test_an_iterator_ends_its_piece_when_the_log_is_truncated(world):
    """The removed part of its chunk is not reported as damage; then the iteration ends."""
    log = filled(world)
    following = bases_of(log)[1]
    iterator = log.reader.records(0)
    next(iterator)
    log.truncate_to(2)
    given, error = drain(iterator)
    assert offsets(given) == list(range(1, following))
    assert (error.offset, error.log_end_offset) == (following, 2)


def test_an_iterator_reads_records_appended_after_a_truncation(world):
    log = filled(world)
    following = bases_of(log)[1]
    iterator = log.reader.records(0)
    next(iterator)
    log.truncate_to(following)
    log.writer.append_records([NewRecord(b"k", b"new", 5000)])
    rest = list(iterator)
    assert offsets(rest) == list(range(1, following + 1))
    assert rest[-1][1].value == b"new"
    assert offsets(log.reader.records(following, isolation=Isolation.LOG_END)) == [following]
