"""Consumers of a scenario: how far each has read, and which deletes it never saw."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from logstore.simulate.scenario import Consumer, Scenario
    from logstore.types import TopicPartition


class _Mark(NamedTuple):
    at_ms: int
    log_end_offset: int


class _Reader:
    """A consumer in one partition."""

    def __init__(self) -> None:
        self.ahead: deque[_Mark] = deque()
        self.position = 0
        self.end_offset = 0


class Readers:
    """All consumers of a scenario."""

    def __init__(self, scenario: Scenario) -> None:
        self._start_ms = scenario.start_ms
        self._consumers = scenario.consumers
        self._readers: dict[tuple[Consumer, TopicPartition], _Reader] = {}
        self._missed = dict.fromkeys(scenario.consumers, 0)

    def begin(self, tp: TopicPartition, log_end_offset: int) -> None:
        """Let whoever reads a partition have read what lies in it at the start."""
        for consumer in self._consumers:
            if consumer.topic == tp.topic:
                reader = self._readers.setdefault((consumer, tp), _Reader())
                reader.position = reader.end_offset = log_end_offset

    def note(self, tp: TopicPartition, now_ms: int, log_end_offset: int) -> None:
        """Take note of a log's end as it is now."""
        for consumer in self._consumers:
            if consumer.topic == tp.topic:
                reader = self._readers.setdefault((consumer, tp), _Reader())
                if not reader.ahead or reader.ahead[-1].log_end_offset != log_end_offset:
                    reader.ahead.append(_Mark(now_ms, log_end_offset))
                reader.end_offset = log_end_offset
                self._read(consumer, reader, now_ms)

    def note_gone(self, tp: TopicPartition, now_ms: int, offsets: NDArray[np.int64]) -> None:
        """Take note of deletes that were cleaned away while nothing had come after them."""
        for (consumer, partition), reader in self._readers.items():
            if partition == tp:
                self._read(consumer, reader, now_ms)
                self._missed[consumer] += int((offsets >= reader.position).sum())

    def forget(self, tp: TopicPartition) -> None:
        """Take note that a log is deleted: another of its name is read from its start."""
        for at in [at for at in self._readers if at[1] == tp]:
            del self._readers[at]

    def rows(self, now_ms: int) -> Iterator[dict[str, Any]]:
        """Yield a row for each consumer."""
        for consumer in self._consumers:
            readers = [reader for (who, _), reader in self._readers.items() if who is consumer]
            waiting = [reader.ahead[0].at_ms for reader in readers if reader.ahead]
            yield {
                "time_ms": now_ms,
                "consumer": consumer.name,
                "lag_records": sum(reader.end_offset - reader.position for reader in readers),
                "lag_ms": now_ms - min(waiting) if waiting else 0,
                "missed_tombstones": self._missed[consumer],
            }

    def _read(self, consumer: Consumer, reader: _Reader, now_ms: int) -> None:
        until_ms = consumer.read_until(now_ms - self._start_ms) + self._start_ms
        while reader.ahead and reader.ahead[0].at_ms <= until_ms:
            reader.position = max(reader.position, reader.ahead.popleft().log_end_offset)
