"""Random histories of fetch sessions on two brokers, whose responses must be equal."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from logstore.errors import KAFKA_CODES
from logstore.messages.schema import ZERO_UUID
from tests.support.interop.caller import Caller
from tests.support.world.builders import batch

PARTITIONS = 3
STEPS = 24
PATIENCE_S = 60

NAMES = {code: name for name, code in KAFKA_CODES.items()}

TRANSIENT = {
    KAFKA_CODES[name]
    for name in ("UNKNOWN_TOPIC_OR_PARTITION", "LEADER_NOT_AVAILABLE", "NOT_LEADER_OR_FOLLOWER")
}


class _Side:
    """One of the two brokers, with its ids of topics and its session."""

    def __init__(self, bootstrap: str) -> None:
        self.caller = Caller(bootstrap)
        self.ids: dict[str, str] = {}
        self.session_id = 0

    def create(self, topic: str) -> None:
        """Create a topic, and wait until its partitions have leaders."""
        asked = {"name": topic, "num_partitions": PARTITIONS, "replication_factor": 1}
        fields = {"topics": [asked | {"assignments": [], "configs": []}], "timeout_ms": 30_000}
        _until(lambda: self.caller.call("CreateTopics", 7, fields).topics[0].error_code == 0)

        def is_led() -> bool:
            found = self.described(topic)
            return len(found.partitions) == PARTITIONS and not any(
                each.error_code for each in found.partitions
            )

        _until(is_led)
        self.ids[topic] = self.described(topic).topic_id
        # The broker itself may learn of its leadership after the metadata.
        wanted = [{"partition_index": number, "timestamp": -1} for number in range(PARTITIONS)]
        fields = {"replica_id": -1, "topics": [{"name": topic, "partitions": wanted}]}

        def serves() -> bool:
            listed = self.caller.call("ListOffsets", 5, fields).topics[0].partitions
            return not any(each.error_code for each in listed)

        _until(serves)

    def described(self, topic: str) -> Any:
        """Return the metadata of a topic."""
        fields = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
        return self.caller.call("Metadata", 12, fields).topics[0]

    def delete(self, topic: str) -> None:
        """Delete a topic, and wait until it does not exist."""
        fields = {"topics": [{"name": topic, "topic_id": ZERO_UUID}], "timeout_ms": 30_000}
        self.caller.call("DeleteTopics", 6, fields)
        _until(lambda: self.described(topic).error_code != 0)

    def append(self, topic: str, number: int, data: bytes) -> None:
        """Append a batch."""
        partition = {"index": number, "records": data}
        topics = [{"name": topic, "partition_data": [partition]}]
        fields = {"acks": -1, "timeout_ms": 30_000, "topic_data": topics}

        def is_done() -> bool:
            answer = self.caller.call("Produce", 9, fields)
            code = answer.responses[0].partition_responses[0].error_code
            assert code in {0, *TRANSIENT}, NAMES[code]
            return code == 0

        _until(is_done)

    def delete_records(self, topic: str, number: int, offset: int) -> None:
        """Raise the log start."""
        partitions = [{"partition_index": number, "offset": offset}]
        topics = [{"name": topic, "partitions": partitions}]
        answer = self.caller.call("DeleteRecords", 2, {"topics": topics, "timeout_ms": 30_000})
        assert answer.topics[0].partitions[0].error_code == 0

    def fetch(self, version: int, fields: Mapping[str, Any], session_id: int | None) -> Any:
        """Return the error of a response, whether it has a session, and its partitions.

        Parameters
        ----------
        session_id : int or None
            None means the current session.
        """
        names = {topic_id: name for name, topic_id in self.ids.items()}
        known = self.session_id if session_id is None else session_id
        answer = self.caller.call("Fetch", version, {**fields, "session_id": known})
        if not answer.error_code:
            self.session_id = answer.session_id
        return (
            NAMES[answer.error_code],
            bool(answer.session_id),
            sorted(
                (
                    topic.topic if version < 13 else names.get(topic.topic_id, "another"),
                    each.partition_index,
                    NAMES[each.error_code],
                    each.high_watermark,
                    each.last_stable_offset,
                    each.log_start_offset,
                    bytes(each.records or b""),
                )
                for topic in answer.responses
                for each in topic.partitions
            ),
        )


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "the broker does not settle"
        time.sleep(0.01)


class History:
    """One random history of sessions of one client.

    Parameters
    ----------
    bootstraps : sequence of str
        Of the two brokers.
    seed : int
    """

    def __init__(self, bootstraps: tuple[str, str], seed: int) -> None:
        self._sides = [_Side(bootstrap) for bootstrap in bootstraps]
        self._rng = random.Random(seed)
        self._topics = [f"h{seed}-{number}" for number in range(2)]
        self._absent: set[str] = set()
        self._ends: Counter[tuple[str, int]] = Counter()
        self._version = 12
        self._epoch = 0
        self.steps: list[str] = []
        self.counts: Counter[str] = Counter()
        self.versions: Counter[int] = Counter()

    def run(self) -> None:
        """Run the history; raises `AssertionError` at a difference."""
        try:
            for topic in self._topics:
                self._both("create", topic)
            for _ in range(STEPS):
                self._step()
            for topic in set(self._topics) - self._absent:
                self._both("delete", topic)
        finally:
            for side in self._sides:
                side.caller.close()

    def _both(self, method: str, *arguments: Any) -> None:
        self.steps.append(f"{method} {arguments[:2]}")
        self.counts[method] += 1
        for side in self._sides:
            getattr(side, method)(*arguments)

    def _step(self) -> None:
        rng = self._rng
        topic, number = rng.choice(self._topics), rng.randrange(PARTITIONS)
        chance = rng.random()
        if chance < 0.30 and topic not in self._absent:
            count = rng.randint(1, 5)
            now_ms = int(time.time() * 1000)
            self._both("append", topic, number, batch(0, count - 1, timestamp=now_ms))
            self._ends[topic, number] += count
        elif chance < 0.36 and topic not in self._absent and self._ends[topic, number]:
            self._both("delete_records", topic, number, rng.randint(0, self._ends[topic, number]))
        elif chance < 0.39 and topic not in self._absent:
            self._both("delete", topic)
            self._absent.add(topic)
        elif chance < 0.45 and topic in self._absent:
            self._both("create", topic)
            self._absent.discard(topic)
            for each in range(PARTITIONS):
                del self._ends[topic, each]
        else:
            self._fetch()

    def _fetch(self) -> None:
        rng = self._rng
        epoch, session_id = self._epoch, None
        chance = rng.random()
        if chance < 0.04:
            epoch += 1
        elif chance < 0.07:
            session_id = 7
        elif chance < 0.12:
            epoch = rng.choice((0, -1))
        version = self._version
        if epoch in (0, -1):
            version = self._version = rng.choice((*range(7, 13), *range(13, 18)))
        elif rng.random() < 0.03:
            version = rng.choice((12, 13))
        options = {
            "max_wait_ms": 0,
            "min_bytes": 1,
            "max_bytes": rng.choice((1, 150, 1 << 20)),
            "isolation_level": 0,
            "session_epoch": epoch,
        }
        asked = self._some(0.9 if epoch in (0, -1) else 0.2)
        gone = [] if epoch in (0, -1) else self._some(0.08)
        limit = rng.choice((1, 100, 1 << 20))
        self.steps.append(f"fetch {version} {options} {asked} {gone}")
        answers = [
            side.fetch(version, options | _names(side, version, asked, gone, limit), session_id)
            for side in self._sides
        ]
        self.counts["fetch"] += 1
        self.versions[version] += 1
        kafka, ours = answers
        self.counts[kafka[0]] += 1
        self.counts.update(error for _, _, error, *_ in kafka[2])
        assert ours == kafka, "\n".join([*self.steps, f"Kafka: {kafka}", f"ours: {ours}"])
        if kafka[0] == "NONE":
            self._epoch = epoch + 1 if kafka[1] else 0

    def _some(self, share: float) -> list[tuple[str, int, int]]:
        """Return topics, partitions and offsets to fetch."""
        rng = self._rng
        return [
            (topic, number, max(0, self._ends[topic, number] - rng.choice((0, 0, 0, 1, 3, -1))))
            for topic in self._topics
            for number in range(PARTITIONS + 1)
            if rng.random() < share
        ]


def _names(
    side: _Side,
    version: int,
    asked: list[tuple[str, int, int]],
    gone: list[tuple[str, int, int]],
    limit: int,
) -> dict[str, Any]:
    def named(topic: str) -> dict[str, str]:
        return {"topic": topic} if version < 13 else {"topic_id": side.ids[topic]}

    return {
        "topics": [
            named(topic)
            | {
                "partitions": [
                    {"partition": number, "fetch_offset": offset, "partition_max_bytes": limit}
                ]
            }
            for topic, number, offset in asked
        ],
        "forgotten_topics_data": [
            named(topic) | {"partitions": [number]} for topic, number, _ in gone
        ],
    }
