"""Workers that skip idle rounds have the same results as workers that run every round."""

from __future__ import annotations

import random

import pytest

from logstore import Broker, TopicPartition, VirtualClock
from logstore.cleaner.pool.pool import CleanerPool

MINUTE_MS = 60_000
TOPICS = ("a", "b")


def settings(rng: random.Random) -> dict[str, str]:
    policy = rng.choice(("compact", "compact", "compact,delete", "delete"))
    return {
        "cleanup.policy": policy,
        "min.cleanable.dirty.ratio": rng.choice(("0", "0.3", "0.5", "0.99")),
        "min.compaction.lag.ms": str(rng.choice((0, 0, 3 * MINUTE_MS))),
        "max.compaction.lag.ms": str(rng.choice((2**63 - 1, 4 * MINUTE_MS, 20 * MINUTE_MS))),
        "delete.retention.ms": str(rng.choice((0, MINUTE_MS))),
        "retention.ms": str(rng.choice((-1, 2 * MINUTE_MS, 15 * MINUTE_MS))),
        "segment.bytes": rng.choice(("500", "100000")),
        "file.delete.delay.ms": "0",
    }


class Story:
    """A broker in virtual time; the same seed takes the same actions on each."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        # Several workers with rounds at the same time would see each other's results.
        self.broker = Broker(clock=VirtualClock(), seed=seed, background=True)
        for name in TOPICS:
            self.broker.create_topic(name, 1, settings(self.rng))

    def act(self) -> None:
        """Act on one of the logs, or do nothing."""
        rng, broker = self.rng, self.broker
        name = rng.choice(TOPICS)
        kind = rng.randrange(10)
        if kind < 4:
            for _ in range(rng.randint(1, 8)):
                value = None if rng.random() < 0.3 else b"v"
                late = rng.choice((0, 0, 5 * MINUTE_MS))
                timestamp = broker.clock.now_ms() - late
                broker.append(
                    name, value=value, key=b"k%d" % rng.randint(0, 4), timestamp=timestamp
                )
        elif kind == 4:
            broker.roll(name)
        elif kind == 5:
            configs = settings(rng)
            key = rng.choice(sorted(configs))
            if "lag" not in key:
                broker.alter_configs(name, {key: configs[key]})
        elif kind == 6:
            log = broker.log(name)
            offset = rng.randint(log.log_start_offset, log.log_end_offset)
            broker.delete_records({TopicPartition(name, 0): offset})
        elif kind == 7:
            log = broker.log(name)
            offset = rng.randint(log.log_start_offset, log.log_end_offset)
            broker.manager.truncate_to(TopicPartition(name, 0), offset)
        elif kind == 8:
            broker.clean(name, force=rng.random() < 0.5)

    def advance(self) -> None:
        """Advance the clock, often to the very end of a back-off."""
        rng = self.rng
        self.broker.clock.advance(
            ms=rng.choice((1, 999, 15_000, 15_000, 60_000, 5 * MINUTE_MS, rng.randint(1, 10**6)))
        )

    def seen(self) -> list[object]:
        """Return the contents of the logs."""
        state: list[object] = []
        for name in TOPICS:
            log = self.broker.log(name)
            state.append((log.log_start_offset, [each.offset for each in self.broker.read(name)]))
            state.append([segment.base_offset for segment in log.segments])
            state.append(self.broker.cleaner.checkpoints.of(TopicPartition(name, 0)))
        metrics = self.broker.metrics()
        return [*state, metrics.max_dirty_percent, metrics.time_since_last_run_ms]


@pytest.mark.parametrize("seed", range(20))
def test_sleeping_through_rounds_changes_nothing(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    histories = []
    for sleeps in (True, False):
        with monkeypatch.context() as patch:
            if not sleeps:
                patch.setattr(CleanerPool, "_sleep_through", lambda self, thread, ms: ms)
            story = Story(seed)
            history = []
            for _ in range(40):
                story.act()
                story.advance()
                history.append(story.seen())
            histories.append(history)
    for step, (sleeping, polling) in enumerate(zip(*histories, strict=True)):
        assert sleeping == polling, f"step {step}"
