"""When the tasks of housekeeping have work next, in exact milliseconds."""

import pytest

from logstore.errors import IllegalStateError
from logstore.manager.housekeeping import Housekeeping
from logstore.runtime import MemoryFileSystem, VirtualClock
from logstore.types import AppendOrigin, TopicPartition
from tests.support.world.builders import batch
from tests.support.world.data_home import Home, fill

START_MS = 1_700_000_000_000


class Place:
    """A manager whose tasks run only when called."""

    def __init__(self, **properties):
        self.clock = VirtualClock(START_MS)
        self.manager = Home(MemoryFileSystem(self.clock), "/data", self.clock).open(**properties)
        self.tasks = Housekeeping(self.manager)

    def topic(self, name, **configs):
        configs = {key.replace("_", "."): str(value) for key, value in configs.items()}
        self.manager.topics.create(name, 1, configs)
        return self.manager.log(TopicPartition(name, 0))


@pytest.fixture
def place():
    place = Place(producer_id_expiration_ms="5000")
    yield place
    place.manager.close()


def test_a_flush_is_due_flush_ms_after_the_last_one(place):
    tasks = place.tasks
    assert tasks._flush_idle_ms() is None
    slow, fast = place.topic("a", flush_ms=900), place.topic("b", flush_ms=700)
    assert tasks._flush_idle_ms() is None, "empty logs"
    fill(slow, 1)
    assert tasks._flush_idle_ms() == 900
    fill(fast, 1)
    assert tasks._flush_idle_ms() == 700
    place.clock.advance(ms=699)
    tasks.flush()
    assert (tasks._flush_idle_ms(), fast.recovery_point, slow.recovery_point) == (1, 0, 0)
    place.clock.advance(ms=1)
    assert tasks._flush_idle_ms() == 200, "the one that is due is not waited for"
    tasks.flush()
    assert (fast.recovery_point, slow.recovery_point) == (1, 0)
    assert (fast.last_flush_ms, slow.last_flush_ms) == (START_MS + 700, START_MS)
    place.clock.advance(ms=200)
    tasks.flush()
    assert (slow.recovery_point, tasks._flush_idle_ms()) == (1, None)


def test_an_offline_log_is_not_flushed(place, caplog):
    log, other = place.topic("a", flush_ms=100), place.topic("b", flush_ms=150)
    fill(log, 1)
    fill(other, 1)
    log.is_offline = True
    assert place.tasks._flush_idle_ms() == 150
    place.clock.advance(ms=150)
    place.tasks.flush()
    assert (log.recovery_point, other.recovery_point, caplog.messages) == (0, 1, [])
    log.is_offline = False


def test_a_flush_that_fails_is_logged_and_the_next_log_is_flushed(place, caplog, monkeypatch):
    log, other = place.topic("a", flush_ms=0), place.topic("b", flush_ms=0)
    fill(log, 1)
    fill(other, 1)
    monkeypatch.setattr(type(log), "flush", _failing(log, type(log).flush))
    place.tasks.flush()
    assert (log.recovery_point, other.recovery_point) == (0, 1)
    assert caplog.messages == ["a-0: flush failed: on purpose"]


def _failing(broken, flush):
    def failing(self, *args, **kwargs):
        if self is broken:
            raise IllegalStateError("on purpose")
        flush(self, *args, **kwargs)

    return failing


def test_retention_is_due_when_the_first_segment_of_a_deleted_topic_expires(place):
    tasks = place.tasks
    assert tasks._retention_idle_ms() is None
    later = place.topic("a", retention_ms=9000)
    sooner = place.topic("b", retention_ms=4000)
    compacted = place.topic("c", retention_ms=1, cleanup_policy="compact,delete")
    for log in (later, sooner, compacted):
        fill(log, 1)
    assert tasks._retained_logs() == [later, sooner]
    assert tasks._retention_idle_ms() == min(
        each.next_expiry_ms() - START_MS for each in (later, sooner)
    )
    tasks._must_retry = True
    assert tasks._retention_idle_ms() == 0
    tasks.retain()
    assert tasks._must_retry is False
    sooner.is_offline = True
    assert tasks._retained_logs() == [later]
    sooner.is_offline = False


def test_an_expiry_is_due_when_the_first_producer_was_idle_long_enough(place):
    tasks = place.tasks
    first, second = place.topic("a"), place.topic("b")
    assert tasks._expiration_idle_ms() is None
    for log, timestamp in ((first, START_MS), (second, START_MS - 2000)):
        written = batch(0, timestamp=timestamp, producer_id=7, producer_epoch=0, base_sequence=0)
        log.writer.append_batches(written, AppendOrigin.REPLICATION)
    left = tasks._expiration_idle_ms()
    place.clock.advance(ms=left - 1)
    tasks.expire_producers()
    assert second.producer_state.entry(7) is not None
    assert tasks._expiration_idle_ms() == 1
    place.clock.advance(ms=1)
    tasks.expire_producers()
    assert second.producer_state.entry(7) is None
    assert first.producer_state.entry(7) is not None
    assert tasks._expiration_idle_ms() == 2000


def test_high_watermarks_are_written_only_after_a_change(place, monkeypatch):
    tasks, written = place.tasks, []
    monkeypatch.setattr(place.manager, "checkpoint_high_watermarks", lambda: written.append(1))
    tasks.checkpoint_high_watermarks()
    assert written == []
    tasks._on_log_changed()
    tasks.checkpoint_high_watermarks()
    tasks.checkpoint_high_watermarks()
    assert written == [1]
