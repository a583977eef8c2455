"""The engine of a partition under other settings: over its open log, and over a copy."""

from __future__ import annotations

from contextlib import closing

from logstore import Broker, TopicPartition, VirtualClock
from logstore.analysis.trial import Trial
from logstore.config.overrides import effective_config

USERS = TopicPartition("users", 0)
HOUR_MS = 3_600_000


def filled() -> Broker[VirtualClock]:
    """Return a broker with one closed segment of ten records with two keys."""
    broker = Broker(clock=VirtualClock())
    broker.create_topic("users", 1, {"cleanup.policy": "delete", "retention.ms": "-1"})
    for number in range(10):
        broker.append("users", key=b"k%d" % (number % 2), value=b"v")
    broker.roll("users")
    return broker


def test_of_log_decides_under_other_settings_and_shares_the_log() -> None:
    with filled() as broker:
        log = broker.log("users")
        config = effective_config({"cleanup.policy": "compact"}, broker.broker_config)
        trial = Trial.of_log(broker.cleaner, log, config, broker.broker_config)
        assert trial.decision().will_clean
        assert trial.is_due
        assert not Trial(log, broker.cleaner).is_due
        assert trial.log.segments is log.segments
        broker.append("users", key=b"k", value=b"v")
        assert trial.log.log_end_offset == log.log_end_offset == 11


def test_of_copy_changes_nothing_but_the_copy() -> None:
    with filled() as broker:
        clock = VirtualClock(broker.clock.now_ms())
        directories = [directory.path for directory in broker.manager.directories]
        trial = Trial.of_copy(
            broker.runtime.fs,
            directories,
            broker.broker_config,
            USERS,
            {"cleanup.policy": "delete", "retention.ms": str(HOUR_MS)},
            clock,
        )
        with closing(trial):
            due_ms = trial.next_due_ms()
            assert due_ms is not None
            assert trial.retention().removed == ()
            clock.advance(ms=due_ms - clock.now_ms())
            assert trial.next_due_ms() is None
            assert [each.base_offset for each in trial.retention().removed] == [0]
            trial.log.delete_old_segments()
            assert len(trial.log.segments) == 1
        assert len(broker.log("users").segments) == 2
        assert broker.clock.now_ms() < due_ms
