"""The consumers of a scenario: their positions, and the deletes that they missed."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from logstore.simulate.scenario import Consumer, Scenario
    from logstore.types import TopicPartition


class _LogEnd(NamedTuple):
    at_ms: int
    log_end_offset: int


class _Reader:
    """Position of a consumer in a partition."""

    def __init__(self) -> None:
        self.unread: deque[_LogEnd] = deque()
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
        """Move a partition's consumers to the end of its existing log."""
        for consumer in self._consumers:
            if consumer.topic == tp.topic:
                reader = self._readers.setdefault((consumer, tp), _Reader())
                reader.position = reader.end_offset = log_end_offset

    def note(self, tp: TopicPartition, now_ms: int, log_end_offset: int) -> None:
        """Record the end of a log and advance its consumers."""
        for consumer in self._consumers:
            if consumer.topic == tp.topic:
                reader = self._readers.setdefault((consumer, tp), _Reader())
                if not reader.unread or reader.unread[-1].log_end_offset != log_end_offset:
                    reader.unread.append(_LogEnd(now_ms, log_end_offset))
                reader.end_offset = log_end_offset
                self._read(consumer, reader, now_ms)

    def note_removed(self, tp: TopicPartition, now_ms: int, offsets: NDArray[np.int64]) -> None:
        """Count removed tombstones that a consumer had not read, if the key has no newer record."""
        for (consumer, partition), reader in self._readers.items():
            if partition == tp:
                self._read(consumer, reader, now_ms)
                self._missed[consumer] += int((offsets >= reader.position).sum())

    def forget(self, tp: TopicPartition) -> None:
        """Drop the positions in a deleted log. A new log with its name is read from the start."""
        for at in [at for at in self._readers if at[1] == tp]:
            del self._readers[at]

    def rows(self, now_ms: int) -> Iterator[dict[str, Any]]:
        """Yield a row for each consumer."""
        for consumer in self._consumers:
            readers = [reader for (owner, _), reader in self._readers.items() if owner is consumer]
            waiting = [reader.unread[0].at_ms for reader in readers if reader.unread]
            yield {
                "time_ms": now_ms,
                "consumer": consumer.name,
                "lag_records": sum(reader.end_offset - reader.position for reader in readers),
                "lag_ms": now_ms - min(waiting) if waiting else 0,
                "missed_tombstones": self._missed[consumer],
            }

    def _read(self, consumer: Consumer, reader: _Reader, now_ms: int) -> None:
        until_ms = consumer.read_until(now_ms - self._start_ms) + self._start_ms
        while reader.unread and reader.unread[0].at_ms <= until_ms:
            reader.position = max(reader.position, reader.unread.popleft().log_end_offset)
