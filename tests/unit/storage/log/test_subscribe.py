"""Subscribers of a log: the events, the state of the log during them, and dropped subscribers."""

import pytest

from logstore.errors import IllegalStateError, UnknownTopicOrPartitionError
from tests.support.world.builders import batch, fill


def offsets(log):
    return log.log_start_offset, log.high_watermark, log.log_end_offset


@pytest.mark.parametrize(
    ("change", "found"),
    (
        (lambda log: fill(log, 2, 10), (0, 12, 12)),
        (lambda log: log.writer.append_batches(batch(0)), (0, 11, 11)),
        (lambda log: log.delete_records(4), (4, 10, 10)),
        (lambda log: log.offsets.set_high_watermark(7), (0, 7, 10)),
        (lambda log: log.truncate_to(6), (0, 6, 6)),
        (lambda log: log.truncate_fully_and_start_at(40, 30), (30, 40, 40)),
    ),
)
def test_a_subscriber_finds_the_log_as_it_has_become(world, change, found):
    log = world.log()
    fill(log, 10)
    seen = []
    log.subscribe(lambda: seen.append(offsets(log)))
    change(log)
    assert seen[-1] == found == offsets(log)


def test_a_roll_and_a_flush_are_reported_too(world):
    log = world.log()
    fill(log, 10)
    seen = []
    log.subscribe(lambda: seen.append((log.active_segment.base_offset, log.recovery_point)))
    log.writer.roll()
    assert seen[-1] == (10, 10)
    fill(log, 1, 10)
    seen.clear()
    log.flush()
    assert seen == [(10, 11)]


def test_all_subscribers_are_called_until_they_unsubscribe(world):
    log = world.log()
    first, second = [], []
    leave = log.subscribe(lambda: first.append(log.log_end_offset))
    log.subscribe(lambda: second.append(log.log_end_offset))
    fill(log, 1)
    leave()
    fill(log, 1, 1)
    log.close()
    assert (set(first), set(second) >= {1, 2}) == ({1}, True)


def test_a_subscriber_that_fails_undoes_no_append(world, caplog):
    log = world.log()
    told = []
    log.subscribe(lambda: 1 / 0)
    log.subscribe(lambda: told.append(log.log_end_offset))
    info = log.writer.append_batches(batch(0))
    assert (info.first_offset, log.log_end_offset, told) == (0, 1, [1])
    assert "a listener of a change of" in caplog.records[0].message


@pytest.mark.parametrize(
    ("end", "error"),
    (
        (lambda log: log.close(), IllegalStateError),
        (lambda log: log.abandon(), UnknownTopicOrPartitionError),
    ),
)
def test_waiters_on_a_log_poll_for_its_end(world, end, error):
    log = world.log()
    met = []

    def look():
        try:
            log.high_watermark  # noqa: B018  # as a waiting fetch does
        except (IllegalStateError, UnknownTopicOrPartitionError) as failure:
            met.append(type(failure))

    log.subscribe(look)
    end(log)
    assert met == [error]
    with pytest.raises(error):
        log.subscribe(look)


def test_a_log_notifies_its_subscribers_once_when_it_goes_offline(world):
    log = world.log()
    told = []
    log.subscribe(lambda: told.append(log.is_offline))
    log.go_offline("the disk failed")
    log.go_offline("again")
    assert told == [True]
