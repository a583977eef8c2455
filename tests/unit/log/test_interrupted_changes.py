"""A change of a log that is interrupted: when the log is read again, and with what outcome."""

import errno

import pytest

from logstore.errors import CorruptRecordError, IllegalStateError, KafkaStorageError
from tests.support.world.builders import fill, offsets_in


@pytest.fixture
def log(world):
    log = world.log()
    fill(log, 3)
    return log


def count_reloads(local, *errors):
    """Return a list that grows with each reload; the first ones raise the errors."""
    calls, reload, left = [], local.reload, list(errors)

    def counted():
        calls.append(local.is_changing)
        if left:
            raise left.pop(0)
        reload()

    local.reload = counted
    return calls


def interrupt(local, *, after_begin=True):
    if after_begin:
        local.begin()
    raise KeyboardInterrupt


def test_an_interrupt_after_the_begin_of_a_change_reads_the_log_again(log):
    calls = count_reloads(log.local)
    with pytest.raises(KeyboardInterrupt):
        log.local.change(interrupt, log.local)
    assert calls == [True], "a listener must not change the log meanwhile"
    assert not log.local.is_unfinished
    assert not log.local.is_changing
    fill(log, 1, 3)
    assert offsets_in(log) == [0, 1, 2, 3]
    assert calls == [True]


def test_an_interrupt_before_the_begin_of_a_change_costs_nothing(log):
    calls = count_reloads(log.local)
    with pytest.raises(KeyboardInterrupt):
        log.local.change(interrupt, log.local, after_begin=False)
    assert calls == []
    assert not log.local.is_changing


@pytest.mark.parametrize(
    "error", (KeyboardInterrupt(), TimeoutError("5 s are over"), IllegalStateError("listener"))
)
def test_an_interrupted_recovery_is_repeated_by_the_next_change(log, error):
    calls = count_reloads(log.local, error)
    with pytest.raises(type(error)):
        log.local.change(interrupt, log.local)
    assert log.local.is_unfinished
    assert not log.local.is_changing
    assert not log.local.is_offline
    assert log.local.change(lambda: offsets_in(log)) == [0, 1, 2]
    assert calls == [True, True]
    assert not log.local.is_unfinished


@pytest.mark.parametrize(
    "error", (CorruptRecordError("torn"), OSError(errno.EIO, "no disk"), OSError("odd"))
)
def test_a_recovery_that_fails_takes_the_log_offline(log, error):
    calls = count_reloads(log.local, error)
    with pytest.raises(KeyboardInterrupt):
        log.local.change(interrupt, log.local)
    assert log.local.is_offline
    assert not log.local.is_unfinished
    assert not log.local.is_changing
    with pytest.raises(KafkaStorageError, match="cannot recover from an interrupt"):
        log.delete_old_segments()
    assert calls == [True]


def test_a_log_that_went_offline_is_not_recovered(log):
    local = log.local
    calls = count_reloads(local)

    def fail():
        local.begin()
        local.go_offline("no disk")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        local.change(fail)
    assert calls == []
    assert not local.is_unfinished


def test_a_change_inside_a_change_is_refused_and_the_outer_one_goes_on(log):
    local = log.local

    def outer():
        for inner in (lambda: local.change(list), local.check_not_inside):
            with pytest.raises(IllegalStateError, match="retry after that call has returned"):
                inner()
        assert local.is_changing
        return "done"

    local.check_not_inside()
    assert local.change(outer) == "done"
    local.check_not_inside()
    assert not local.is_changing


def test_a_log_at_rest_has_trimmed_indexes_and_full_ones_afterwards(world, log):
    index = f"{0:020d}.index"
    before = len(world.files()[index])
    with log.local.at_rest():
        assert len(world.files()[index]) < before
        assert log.local.is_changing
        assert not log.local.is_unfinished
    assert len(world.files()[index]) == before
    assert not log.local.is_changing


def test_an_interrupt_on_the_way_to_rest_reads_the_log_again(log, monkeypatch):
    calls = count_reloads(log.local)
    with monkeypatch.context() as patch:
        patch.setattr(log.local, "come_to_rest", lambda: interrupt(log.local))
        with pytest.raises(KeyboardInterrupt), log.local.at_rest():
            raise AssertionError("the log is not at rest")
    assert calls == [True]
    assert not log.local.is_unfinished
    assert not log.local.is_changing


def test_a_log_at_rest_may_be_closed_inside(world, log):
    with log.local.at_rest():
        log.local.lifetime.end()
        trimmed = world.files()
    assert world.files() == trimmed


def test_a_recovered_log_lowers_its_offsets_to_its_end(log):
    log.offsets.stay()
    log.offsets.high_watermark = 10
    log.offsets.recover(7)
    assert (log.log_start_offset, log.high_watermark) == (3, 3)
