"""Changes of a log: one at a time, and recovery from those that were interrupted."""

import errno
import threading
from contextlib import suppress
from functools import partial

import pytest

from logstore.config.log_config import LogConfig
from logstore.errors import CorruptRecordError, IllegalStateError, KafkaStorageError
from logstore.names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    file_name,
)
from logstore.storage.log import NewRecord
from logstore.storage.segment import LogSegment
from logstore.types import AppendOrigin
from tests.support.world.builders import append, batch, offsets_in
from tests.support.world.crafted import FAR, segment_files
from tests.support.world.messages import exactly


class Interrupt(BaseException):
    """Raised in the middle of a change, as by a signal handler."""


@pytest.fixture
def log(world):
    log = world.log()
    for offset in range(3):
        log.writer.append_batches(batch(offset), AppendOrigin.REPLICATION)
    return log


@pytest.fixture
def reloads(log, monkeypatch):
    """Return a list with the number of recoveries of the log so far."""
    found = []
    reload = log.reload

    def counted():
        found.append(log.is_changing)
        reload()

    monkeypatch.setattr(log, "reload", counted)
    return found


def interrupt(log, *, begins=True):
    """Interrupt a change of the log."""

    def action():
        if begins:
            log.begin()
        raise Interrupt

    with pytest.raises(Interrupt):
        log.change(action)


def leave_unfinished(log, monkeypatch):
    """Interrupt a change of the log, and its recovery."""

    def interrupted():
        raise Interrupt

    with monkeypatch.context() as patch:
        patch.setattr(log, "reload", interrupted)
        interrupt(log)


@pytest.mark.parametrize(("begins", "count"), ((False, 0), (True, 1)))
def test_a_change_is_recovered_once_it_has_begun(log, reloads, begins, count):
    interrupt(log, begins=begins)
    assert reloads == [True] * count
    interrupt(log, begins=begins)
    assert reloads == [True] * 2 * count
    assert offsets_in(log) == [0, 1, 2]
    assert not log.is_changing


def test_a_refused_question_inside_a_change_leaves_the_lock_free(log):
    def action():
        with pytest.raises(IllegalStateError):
            log.check_not_inside()

    log.change(action)
    taken = []
    thread = threading.Thread(target=lambda: taken.append(log.lock.acquire(timeout=5)))
    thread.start()
    thread.join()
    assert taken == [True]


def test_recovered_state_is_durable(log):
    """Otherwise a crash could restore truncated records next to later appends."""
    assert log.recovery_point < 3
    interrupt(log)
    assert log.recovery_point == log.log_end_offset == 3


def test_recovery_leaves_the_high_watermark_of_a_replica_where_it_was(log):
    log.offsets.freeze_high_watermark()
    log.offsets.set_high_watermark(1)
    interrupt(log)
    assert (log.offsets.high_watermark, log.log_end_offset) == (1, 3)


def test_a_change_that_succeeds_is_not_recovered(log, reloads):
    assert log.change(lambda: log.begin() or "done") == "done"
    assert log.change(lambda: "again") == "again"
    assert reloads == []


USES = {
    "change": lambda log: log.change(lambda: None),
    "append": lambda log: log.writer.append_record(NewRecord(b"k", b"v")),
    "batch": lambda log: log.writer.append_batches(batch(0)),
    "replica": lambda log: log.writer.append_batches(batch(3), AppendOrigin.REPLICATION),
    "retention": lambda log: log.delete_old_segments(),
    "check": lambda log: log.check_open(),
    "flush": lambda log: log.flush(),
}


@pytest.mark.parametrize("name", USES)
def test_the_next_use_recovers_a_change_whose_recovery_was_interrupted(
    log, reloads, monkeypatch, name
):
    leave_unfinished(log, monkeypatch)
    assert reloads == []
    USES[name](log)
    USES[name](log) if name != "replica" else None
    assert reloads == [True]


def test_closing_recovers_a_change_whose_recovery_was_interrupted(log, reloads, monkeypatch):
    leave_unfinished(log, monkeypatch)
    log.close()
    assert reloads == [True]


@pytest.mark.parametrize("name", [name for name in USES if name not in ("check", "flush")])
def test_a_change_inside_another_one_is_refused(log, name):
    with pytest.raises(IllegalStateError, match="cannot be changed by a signal handler"):
        log.change(lambda: USES[name](log))
    assert log.log_end_offset == 3
    USES[name](log)


def test_a_refused_change_inside_leaves_the_outer_one_intact(log, reloads):
    def outer():
        log.begin()
        with suppress(IllegalStateError):
            log.change(lambda: None)
        assert log.is_changing
        return "done"

    assert log.change(outer) == "done"
    assert reloads == []


@pytest.mark.parametrize(
    "error",
    (
        KafkaStorageError("the disk failed"),
        CorruptRecordError("damaged"),
        OSError(errno.EIO, "I/O error"),
        OSError("without a number"),
        TimeoutError(errno.ETIMEDOUT, "of a network disk"),
    ),
    ids=lambda error: f"{type(error).__name__}-{error}",
)
def test_a_log_that_cannot_be_recovered_goes_offline(log, monkeypatch, error):
    def fail():
        raise error

    reasons = []
    log.went_offline.subscribe(reasons.append)
    monkeypatch.setattr(log, "reload", fail)
    interrupt(log)
    assert reasons == [f"cannot recover from an interrupt: {error}"]
    with pytest.raises(KafkaStorageError, match="is offline: cannot recover from an interrupt"):
        log.writer.append_record(NewRecord(b"k", b"v"))
    assert not log.is_unfinished


@pytest.mark.parametrize(
    "error", (IllegalStateError("refused"), TimeoutError("of a handler")), ids=repr
)
def test_an_error_of_a_handler_during_recovery_is_raised_and_recovery_is_repeated(
    log, reloads, monkeypatch, error
):
    def fail():
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(log, "reload", fail)
        with pytest.raises(type(error)):
            log.change(lambda: log.begin() or 1 / 0)
    assert not log.is_offline
    assert log.is_unfinished
    assert not log.is_changing
    log.writer.append_record(NewRecord(b"k", b"v"))
    assert reloads == [True]
    assert log.log_end_offset == 4


def test_a_log_without_a_way_to_reload_continues_as_it_is(log, monkeypatch):
    monkeypatch.setattr(log, "reload", None)
    interrupt(log)
    assert not log.is_unfinished
    log.writer.append_record(NewRecord(b"k", b"v"))
    assert offsets_in(log) == [0, 1, 2, 3]


def test_a_log_whose_directory_has_another_owner_is_not_recovered(log, reloads, monkeypatch):
    def refuse():
        raise KafkaStorageError("the lock was lost")

    monkeypatch.setattr(log, "check_owner", refuse)
    interrupt(log)
    assert reloads == []
    with pytest.raises(
        KafkaStorageError,
        match=exactly("t-0 is offline: cannot recover from an interrupt: the lock was lost"),
    ):
        log.check_open()


@pytest.mark.parametrize("offset", (0, 3, 9), ids=("below", "next", "beyond"))
def test_an_offline_log_fails_every_append_of_a_follower(log, offset):
    log.go_offline("by a test")
    with pytest.raises(KafkaStorageError, match=exactly("t-0 is offline: by a test")):
        log.writer.append_batches(batch(offset), AppendOrigin.REPLICATION)


@pytest.mark.parametrize("name", [name for name in USES if name != "change"])
def test_an_offline_log_refuses_every_use(log, name):
    log.go_offline("by a test")
    with pytest.raises(KafkaStorageError, match=exactly("t-0 is offline: by a test")):
        USES[name](log)


def test_an_offline_log_is_not_recovered(log, reloads):
    def action():
        log.begin()
        log.go_offline("by a test")
        raise Interrupt

    with pytest.raises(Interrupt):
        log.change(action)
    assert reloads == []
    assert not log.is_unfinished


def test_a_closed_log_is_not_recovered(log, reloads):
    def interrupted():
        raise Interrupt

    log.closed.subscribe(interrupted)
    with pytest.raises(Interrupt):
        log.close()
    assert reloads == []
    assert log.close() is None


# -- at rest -------------------------------------------------------------------------------------


def test_a_log_at_rest_refuses_changes_of_the_same_thread(log, reloads):
    with log.at_rest():
        with pytest.raises(IllegalStateError):
            log.writer.append_record(NewRecord(b"k", b"v"))
        with pytest.raises(IllegalStateError), log.at_rest():
            pytest.fail("it is at rest already")
    log.writer.append_record(NewRecord(b"k", b"v"))
    assert log.log_end_offset == 4
    assert reloads == []


@pytest.mark.parametrize("error", (None, Interrupt()), ids=("returns", "interrupted"))
def test_the_active_segment_can_grow_after_a_rest(log, error):
    size = log.active_segment.offset_index.max_entries
    with suppress(Interrupt), log.at_rest():
        assert log.active_segment.offset_index.max_entries < size
        if error is not None:
            raise error
    assert log.active_segment.offset_index.max_entries == size
    assert not log.is_changing


def test_an_interrupt_on_the_way_to_rest_is_recovered(log, reloads, monkeypatch):
    def interrupted():
        raise Interrupt

    with monkeypatch.context() as patch:
        patch.setattr(log, "prepare_shutdown", interrupted)
        with pytest.raises(Interrupt), log.at_rest():
            pytest.fail("it is not at rest")
    assert reloads == [True]
    log.writer.append_record(NewRecord(b"k", b"v"))
    assert offsets_in(log) == [0, 1, 2, 3]


# -- where a change begins -----------------------------------------------------------------------


def several_segments(world):
    log = world.log(segment_bytes=200, retention_bytes=0, file_delete_delay_ms=1000)
    for offset in range(6):
        log.writer.append_batches(batch(offset, value=b"v" * 60), AppendOrigin.REPLICATION)
    assert len(log.segments) > 3
    return log


@pytest.mark.parametrize("call", (1, 2, 3))
def test_an_interrupted_removal_of_segments_is_completed_by_recovery(world, monkeypatch, call):
    log = several_segments(world)
    bases = [segment.base_offset for segment in log.segments]
    change_suffix, calls = type(log.segments.first).change_suffix, []

    def interrupted(self, suffix):
        calls.append(suffix)
        if len(calls) == call:
            raise Interrupt
        change_suffix(self, suffix)

    with monkeypatch.context() as patch:
        patch.setattr(type(log.segments.first), "change_suffix", interrupted)
        with pytest.raises(Interrupt):
            log.change(log.remove_segments, log.segments.view[:3])
    assert calls == [DELETED_SUFFIX] * call
    assert [segment.base_offset for segment in log.segments] == bases[call - 1 :]
    assert offsets_in(log)[-1] == 5


@pytest.mark.parametrize("call", (1, 2))
def test_an_interrupted_swap_of_segments_is_recovered(world, monkeypatch, call):
    log = several_segments(world)
    old = log.segments.first
    new = LogSegment(
        world.runtime, world.directory, 0, LogConfig(), suffix=CLEANED_SUFFIX, create=True
    )
    append(new, batch(0, value=b"new"))
    new.on_become_inactive()
    new.flush()
    change_suffix, calls = LogSegment.change_suffix, []

    def interrupted(self, suffix):
        calls.append(suffix)
        if len(calls) > call:
            raise Interrupt
        change_suffix(self, suffix)

    with monkeypatch.context() as patch:
        patch.setattr(LogSegment, "change_suffix", interrupted)
        with pytest.raises(Interrupt):
            log.replace_segments([new], [old])
    assert not world.files(CLEANED_SUFFIX, SWAP_SUFFIX)
    assert offsets_in(log) == list(range(6))
    assert next(iter(log.reader.records(0)))[1].value == b"new"


def overflowing(world):
    """Open a log whose only segment has to be split, with a producer snapshot at its base."""
    world.put(segment_files(1, batch(3)))
    log = world.log(file_delete_delay_ms=1000)
    files = segment_files(1, batch(3), batch(4), batch(FAR + 5, FAR + 6))
    world.put(files)
    log.segments.add(LogSegment(world.runtime, world.directory, 1, log.config))
    old = log.segments.first
    log.producer_state._snapshots.write(1, (), sync=True)
    log.publish_end(FAR + 7)
    return log, old, files


def test_a_split_replaces_the_segment_and_removes_its_files_after_the_delay(world, monkeypatch):
    log, old, files = overflowing(world)
    checks, declared = [], []
    monkeypatch.setattr(log, "_check", lambda: checks.append(log.is_changing))
    monkeypatch.setattr(log, "begin", lambda: declared.append(world.files(DELETED_SUFFIX)))
    new = log.split_segment(old)
    assert [segment.base_offset for segment in new] == [3, FAR + 5]
    assert log.segments.view == tuple(new)
    assert (checks, declared) == ([True], [{}])
    assert [at.header.last_offset for segment in new for at in segment.batches()] == [
        *(3, 4, FAR + 6)
    ]
    left = {name + DELETED_SUFFIX for name in (*files, file_name(1, SNAPSHOT_SUFFIX))}
    assert world.files(DELETED_SUFFIX).keys() == left
    world.clock.advance(ms=999)
    assert log.delete_expired_files() == 0
    world.clock.advance(ms=1)
    assert log.delete_expired_files() == 2
    assert world.files(DELETED_SUFFIX) == {}


def test_an_interrupted_split_is_recovered(world, monkeypatch):
    log, old, _ = overflowing(world)
    reload, reloads = log.reload, []
    monkeypatch.setattr(log, "reload", lambda: reloads.append(True) or reload())
    change_suffix = LogSegment.change_suffix

    def interrupted(self, suffix):
        if suffix == DELETED_SUFFIX:
            raise Interrupt
        change_suffix(self, suffix)

    with monkeypatch.context() as patch:
        patch.setattr(LogSegment, "change_suffix", interrupted)
        with pytest.raises(Interrupt):
            log.split_segment(old)
    assert reloads == [True]
    assert [segment.base_offset for segment in log.segments] == [3, FAR + 5]
    assert offsets_in(log) == [3, 4, FAR + 5, FAR + 6]


@pytest.mark.parametrize("refuses", ("offline", "owner"))
@pytest.mark.parametrize("action", ("split", "replace"))
def test_segments_of_a_log_that_must_not_change_are_kept(world, monkeypatch, action, refuses):
    log, old, files = overflowing(world)
    reason = "is offline: by a test" if refuses == "offline" else "the lock was lost"
    if refuses == "offline":
        log.go_offline("by a test")
    else:
        monkeypatch.setattr(log, "check_owner", partial(_raise, KafkaStorageError(reason)))
    with pytest.raises(KafkaStorageError, match=reason):
        log.split_segment(old) if action == "split" else log.replace_segments([], [old])
    assert log.segments.view == (old,)
    assert world.files().items() >= files.items()


@pytest.mark.parametrize("action", ("split", "replace", "close"))
def test_a_disk_failure_in_a_change_of_files_takes_the_log_offline(world, monkeypatch, action):
    log, old, _ = overflowing(world)
    failure = OSError(errno.EIO, "I/O error")
    name = {"split": "swap_split", "replace": "swap_segments", "close": "prepare_shutdown"}[action]
    monkeypatch.setattr(log, name, lambda *_, **__: _raise(failure))
    reasons = []
    log.went_offline.subscribe(reasons.append)
    call, what = {
        "split": (lambda: log.split_segment(old), "cannot split a segment"),
        "replace": (lambda: log.replace_segments([], [old]), "cannot replace segments"),
        "close": (log.close, "cannot close"),
    }[action]
    with pytest.raises(KafkaStorageError):
        call()
    assert (log.is_offline, reasons) == (True, [f"{what}: {failure}"])
    assert log.close() is None


@pytest.mark.parametrize(
    ("name", "call"),
    (
        ("add_segment", lambda log: log.writer.roll()),
        ("delete_stale_files", lambda log: log.writer.roll()),
        ("_end_at", lambda log: log.truncate_to(2)),
        ("remove_segments", lambda log: log.truncate_to(2)),
        ("remove_segments", lambda log: log.truncate_fully_and_start_at(9)),
        ("_end_at", lambda log: log.truncate_fully_and_start_at(9)),
        ("prepare_shutdown", lambda log: log.close()),
        ("_schedule_deletion", lambda log: log.remove_segments(log.segments.view[:1])),
    ),
)
def test_each_change_of_files_is_recovered_if_it_is_interrupted(world, monkeypatch, name, call):
    log = several_segments(world)
    reload, reloads = log.reload, []
    monkeypatch.setattr(log, "reload", lambda: reloads.append(log.is_changing) or reload())
    with monkeypatch.context() as patch:
        patch.setattr(log, name, lambda *_: _raise(Interrupt()))
        with pytest.raises(Interrupt):
            log.change(call, log) if name == "_schedule_deletion" else call(log)
    assert reloads == [True]
    assert (log.is_unfinished, log.is_changing, log.is_offline) == (False, False, False)
    log._check()


CHANGES = {
    "truncate": (lambda log: log.truncate_to(1), "cut_segments", "cannot truncate"),
    "restart": (
        lambda log: log.truncate_fully_and_start_at(9),
        "restart_at",
        "cannot truncate",
    ),
    "roll": (lambda log: log.writer.roll(), "add_segment", "cannot roll"),
    "log start": (
        lambda log: log.offsets.maybe_increment_log_start_offset(1),
        "begin",
        "cannot move the log start",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_whose_folder_has_another_owner_is_refused(log, monkeypatch, name):
    def refuse():
        raise KafkaStorageError("the lock was lost")

    monkeypatch.setattr(log, "check_owner", refuse)
    with pytest.raises(KafkaStorageError, match=r"^the lock was lost$"):
        CHANGES[name][0](log)
    assert (log.log_start_offset, log.log_end_offset, len(log.segments)) == (0, 3, 1)
    assert offsets_in(log) == [0, 1, 2]
    assert not log.is_offline


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_that_the_disk_fails_takes_the_log_offline(log, monkeypatch, name):
    call, step, what = CHANGES[name]
    failure = OSError(errno.EIO, "I/O error")
    monkeypatch.setattr(log, step, lambda *_, **__: _raise(failure))
    reasons = []
    log.went_offline.subscribe(reasons.append)
    with pytest.raises(KafkaStorageError) as caught:
        call(log)
    assert reasons == [f"{what}: {failure}"]
    assert str(caught.value) == f"{log.topic_partition}: {what}: {failure}"
    assert caught.value.__cause__ is failure


@pytest.mark.parametrize("count", (1, 2))
def test_an_append_that_is_interrupted_is_recovered(log, reloads, monkeypatch, count):
    append_rows = LogSegment.append

    def interrupted(self, *arguments):
        append_rows(self, *arguments)
        raise Interrupt

    with monkeypatch.context() as patch:
        patch.setattr(LogSegment, "append", interrupted)
        patch.setattr(LogSegment, "append_next", interrupted, raising=False)
        patch.setattr(log.writer, "_store_next", lambda *_: False)
        with pytest.raises(Interrupt):
            log.writer.append_records([NewRecord(b"k", b"v")] * count)
    assert reloads == [True]
    assert (log.log_end_offset, log.is_unfinished, log.is_changing) == (3 + count, False, False)
    assert offsets_in(log) == list(range(3 + count))


def test_a_recovery_makes_names_durable_before_it_reads_them(log, monkeypatch):
    steps = []
    fs = type(log.runtime.fs)
    sync_dir, list_dir = fs.sync_dir, fs.list_dir
    monkeypatch.setattr(
        fs, "sync_dir", lambda self, path: steps.append("sync") or sync_dir(self, path)
    )
    monkeypatch.setattr(
        fs, "list_dir", lambda self, path: steps.append("list") or list_dir(self, path)
    )
    log.reload()
    assert steps[0] == "sync"


def test_a_log_is_alone_until_its_high_watermark_stays(log):
    assert log.offsets.is_alone
    log.offsets.freeze_high_watermark()
    assert not log.offsets.is_alone
    log.writer.append_batches(batch(3), AppendOrigin.REPLICATION)
    assert (log.high_watermark, log.log_end_offset) == (3, 4)


def test_a_new_log_has_nothing_to_recover(world, monkeypatch):
    log = world.log()
    monkeypatch.setattr(log, "reload", lambda: _raise(AssertionError("recovered")))
    assert (log.is_unfinished, log.is_changing, log.is_offline) == (False, False, False)
    log.writer.append_batches(batch(0))
    assert not log.is_unfinished


def _raise(error):
    raise error


# -- readers and settings ------------------------------------------------------------------------


def test_readers_are_refused_during_a_truncation_of_the_same_thread(log):
    def truncate():
        with log.truncation():
            log.settled_generation()

    with pytest.raises(
        IllegalStateError,
        match=exactly(
            "t-0 cannot be read by a signal handler or a listener while the same thread "
            "truncates it"
        ),
    ):
        log.change(truncate)
    assert log.settled_generation() == log.generation


def test_a_truncation_that_an_interrupt_left_open_does_not_block_readers(log, monkeypatch):
    monkeypatch.setattr(log, "_truncating", True)
    assert log.settled_generation() == log.generation
    assert offsets_in(log) == [0, 1, 2]


def test_new_settings_reach_every_segment(world):
    log = several_segments(world)
    config = LogConfig(segment_bytes=300, segment_ms=5)
    log.set_config(config)
    assert log.config == config
    assert [segment.config for segment in log.segments] == [config] * len(log.segments)
