"""Check a broker against Kafka's documentation: compaction, transactions, deletion.

A client performs each check from outside. The outcome is `yes` or the deviation. The client waits a
limited time for background work (cleaning).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

WITHIN_S = 60
PAST_MS = 30 * 86_400_000

CREATE_TOPICS, DELETE_RECORDS, ADD_PARTITIONS_TO_TXN = 19, 21, 24

YES = "yes"

CHECKS: Mapping[str, str] = {
    "duplicates": "compaction keeps the last record of each key",
    "holes": "retained records keep their offsets, and a fetch at a gap continues after it",
    "log_start": "compaction does not change the log start offset",
    "tombstone_kept": "a tombstone is kept for delete.retention.ms",
    "horizon": "this period starts at its first cleaning pass, however old the tombstone is",
    "tombstone_gone": "after this period, the tombstone is removed",
    "read_committed": "read_committed does not return aborted records",
    "stable_offset": "read_committed does not return records after the first open transaction",
    "delete_records": "DeleteRecords advances the log start offset, where reading starts",
}
"""Title of each check in the table."""


class ReceivedRecord(NamedTuple):
    """A record as a client sees it."""

    offset: int
    key: str
    value: str | None


def check_conformance(bootstrap: str, apis: set[int], *, patience_s: float) -> dict[str, str]:
    """Return the outcome of each check against a broker.

    Parameters
    ----------
    apis : set of int
        Keys of the APIs that it serves. Checks that need another API are skipped.
    patience_s : float
        Maximum time to wait for a cleaning pass.
    """
    broker = _Client(bootstrap, patience_s)
    outcomes: dict[str, str] = {}
    for group in _GROUPS:
        if group.api not in apis:
            outcomes |= dict.fromkeys(group.names, f"no: {group.without}")
            continue
        try:
            outcomes |= dict(group.check(broker))
        except KafkaException as error:
            reason = error.args[0].name()
            outcomes |= {name: f"no: {reason}" for name in group.names if name not in outcomes}
    return {name: outcomes[name] for name in CHECKS}


def _outcome(is_met: bool, deviation: object) -> str:
    return YES if is_met else f"no: {deviation}"


# -- compaction --------------------------------------------------------------------------------


def _compaction(broker: _Client) -> Iterator[tuple[str, str]]:
    broker.create("compacted", {"delete.retention.ms": str(PAST_MS)})
    broker.write("compacted", "a", "old")  # offset 0
    broker.write("compacted", "gone", "old")
    broker.write("compacted", "a", "new")
    broker.write("compacted", "gone", None)
    past_ms = int(time.time() * 1000) - 2 * PAST_MS
    broker.write("compacted", "long gone", None, past_ms)
    broker.write("compacted", "b", "new")  # offset 5
    # When this record is removed, the pass has covered all earlier records.
    broker.write("compacted", "c", "old")
    broker.write("compacted", "c", "new")

    def is_clean(records: list[ReceivedRecord]) -> bool:
        return not any(each.value == "old" for each in records)

    records = broker.wait_for("compacted", is_clean)
    by_key = {each.key: each for each in records}
    yield "duplicates", _outcome(is_clean(records), f"not after {broker.patience_s:.0f} s")
    if not is_clean(records):
        for name in ("holes", "log_start", "tombstone_kept", "horizon"):
            yield name, "no: not cleaned"
        return
    offsets = [(each.offset, each.key) for each in records if each.value == "new"]
    yield "holes", _outcome(offsets == [(2, "a"), (5, "b"), (7, "c")], offsets)
    low = broker.offset("compacted", OffsetSpec.earliest())
    yield "log_start", _outcome(low == 0, f"it is {low}")
    yield "tombstone_kept", _outcome("gone" in by_key, "removed at once")
    yield "horizon", _outcome("long gone" in by_key, "from the record timestamp")


def _expiry(broker: _Client) -> Iterator[tuple[str, str]]:
    broker.create("expiring", {"delete.retention.ms": "100"})
    broker.write("expiring", "gone", "x")
    broker.write("expiring", "gone", None)

    def is_gone(records: list[ReceivedRecord]) -> bool:
        return all(each.key != "gone" for each in records)

    records = broker.wait_for("expiring", is_gone)
    yield "tombstone_gone", _outcome(is_gone(records), f"not after {broker.patience_s:.0f} s")


# -- transactions and deletion -----------------------------------------------------------------


def _transactions(broker: _Client) -> Iterator[tuple[str, str]]:
    broker.touch("booked")
    producer = broker.producer(**{"transactional.id": "booking"})
    producer.init_transactions(WITHIN_S)
    for value, is_committed in (("kept", True), ("aborted", False)):
        producer.begin_transaction()
        producer.produce("booked", value, "k", 0)
        producer.flush(WITHIN_S)
        if is_committed:
            producer.commit_transaction(WITHIN_S)
        else:
            producer.abort_transaction(WITHIN_S)
    producer.begin_transaction()
    producer.produce("booked", "open", "k", 0)
    producer.flush(WITHIN_S)
    broker.write("booked", "k", "behind it")
    before = [each.value for each in broker.read("booked", "read_committed")]
    producer.commit_transaction(WITHIN_S)
    after = [each.value for each in broker.read("booked", "read_committed")]
    is_committed = "kept" in before and "aborted" not in before + after
    yield "read_committed", _outcome(is_committed, f"{', '.join(map(str, before))}")
    is_stable = before == [each for each in after if each not in ("open", "behind it")]
    is_stable = is_stable and after[-2:] == ["open", "behind it"]
    yield "stable_offset", _outcome(is_stable, f"{', '.join(map(str, before))}")


def _deletion(broker: _Client) -> Iterator[tuple[str, str]]:
    broker.touch("old")
    for number in range(10):
        broker.write("old", "k", str(number))
    admin = broker.admin
    (deleted,) = admin.delete_records([TopicPartition("old", 0, 6)]).values()
    low = deleted.result(WITHIN_S).low_watermark
    seen = (low, broker.offset("old", OffsetSpec.earliest()), broker.read("old")[0].offset)
    yield "delete_records", _outcome(seen == (6, 6, 6), seen)


class _Group(NamedTuple):
    """Checks that run together if the broker serves an API. Otherwise the outcome is `without`."""

    names: tuple[str, ...]
    api: int
    without: str
    check: Callable[[_Client], Iterator[tuple[str, str]]]


_COMPACTION = ("duplicates", "holes", "log_start", "tombstone_kept", "horizon")
_GROUPS = (
    _Group(_COMPACTION, CREATE_TOPICS, "topics have no configuration", _compaction),
    _Group(("tombstone_gone",), CREATE_TOPICS, "topics have no configuration", _expiry),
    _Group(
        ("read_committed", "stable_offset"),
        ADD_PARTITIONS_TO_TXN,
        "no transactions",
        _transactions,
    ),
    _Group(("delete_records",), DELETE_RECORDS, "API not served", _deletion),
)


# -- the client --------------------------------------------------------------------------------


class _Client:
    """The confluent-kafka client that runs the checks."""

    def __init__(self, bootstrap: str, patience_s: float) -> None:
        self._server = {"bootstrap.servers": bootstrap, "log_level": 0}
        self.patience_s = patience_s
        self.admin = AdminClient(self._server)
        self._plain = self.producer(**{"linger.ms": 0})

    def producer(self, **configs: object) -> Producer:
        return Producer({**self._server, **configs})

    def create(self, topic: str, configs: Mapping[str, str]) -> None:
        """Create a compacted topic whose segment is rolled at the next append."""
        all_configs = {
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "0.01",
            "segment.ms": "50",
            **configs,
        }
        futures = self.admin.create_topics([NewTopic(topic, 1, 1, config=all_configs)])
        futures[topic].result(WITHIN_S)

    def touch(self, topic: str) -> None:
        """Create a topic with a metadata request, and wait until it exists."""
        deadline = time.monotonic() + WITHIN_S
        while not self.admin.list_topics(topic, WITHIN_S).topics[topic].partitions:
            if time.monotonic() > deadline:
                raise TimeoutError(topic)
            time.sleep(0.05)

    def write(
        self, topic: str, key: str, value: str | None, timestamp_ms: int | None = None
    ) -> None:
        """Write a batch of one record."""
        failures: list[KafkaError] = []

        def note(error: KafkaError | None, message: object) -> None:
            if error is not None:
                failures.append(error)

        when = {} if timestamp_ms is None else {"timestamp": timestamp_ms}
        self._plain.produce(topic, value, key, 0, on_delivery=note, **when)
        self._plain.flush(WITHIN_S)
        if failures:
            raise KafkaException(failures[0])

    def wait_for(
        self, topic: str, is_met: Callable[[list[ReceivedRecord]], bool]
    ) -> list[ReceivedRecord]:
        """Write filler records, which roll segments, until a condition is met or time is up.

        Returns the records of the topic.
        """
        deadline = time.monotonic() + self.patience_s
        for number in range(1_000_000):
            records = self.read(topic)
            if is_met(records) or time.monotonic() > deadline:
                return records
            time.sleep(0.06)  # longer than segment.ms
            self.write(topic, f"filler {number % 7}", "filler")
        raise AssertionError

    def read(self, topic: str, isolation: str = "read_uncommitted") -> list[ReceivedRecord]:
        """Return all readable records."""
        consumer = Consumer(
            {
                **self._server,
                "group.id": "bench",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": isolation,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 10,
            }
        )
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        records: list[ReceivedRecord] = []
        deadline = time.monotonic() + WITHIN_S
        try:
            while time.monotonic() < deadline:
                message = consumer.poll(1.0)
                if message is None:
                    continue
                error = message.error()
                if error is None:
                    value = message.value()
                    text = None if value is None else value.decode()
                    records.append(ReceivedRecord(message.offset(), message.key().decode(), text))
                elif error.code() == KafkaError._PARTITION_EOF:
                    return records
                else:
                    raise KafkaException(error)
        finally:
            consumer.close()
        raise TimeoutError(topic)

    def offset(self, topic: str, spec: OffsetSpec) -> int:
        """Return an offset from ListOffsets."""
        specs = {TopicPartition(topic, 0): spec}
        isolation = IsolationLevel.READ_UNCOMMITTED
        (future,) = self.admin.list_offsets(specs, isolation_level=isolation).values()
        offset: int = future.result(WITHIN_S).offset
        return offset
