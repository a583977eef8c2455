"""What a broker serves, held against what Kafka documents: compaction, transactions, deletion.

Each truth is looked at from outside, by a client, and is `yes`, or what was seen instead. Where
something has to come about by itself (cleaning), the client waits for it for a while.
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

TRUTHS: Mapping[str, str] = {
    "duplicates": "compaction leaves the last record of each key",
    "holes": "what is left keeps its offsets, and a fetch from a hole goes on behind it",
    "log_start": "compaction does not move the log start",
    "tombstone_kept": "a tombstone stays for delete.retention.ms",
    "horizon": "that counts from its first cleaning on, however old it is",
    "tombstone_gone": "when that is over it goes",
    "read_committed": "aborted records are not read with read_committed",
    "stable_offset": "with read_committed nothing above the first open transaction is read",
    "delete_records": "DeleteRecords moves the log start, and reading begins there",
}
"""Every truth with its name in the table."""


class Found(NamedTuple):
    """A record as a client sees it."""

    offset: int
    key: str
    value: str | None


def truths(bootstrap: str, apis: set[int], *, patience_s: float) -> dict[str, str]:
    """Return what there is to say of each truth about a broker.

    Parameters
    ----------
    apis : set of int
        Keys of those that it serves: what needs another one is not tried.
    patience_s : float
        How long a cleaning may take to come.
    """
    broker = _Client(bootstrap, patience_s)
    found: dict[str, str] = {}
    for part in _PARTS:
        if part.api not in apis:
            found |= dict.fromkeys(part.names, f"no: {part.without}")
            continue
        try:
            found |= dict(part.look(broker))
        except KafkaException as error:
            said = error.args[0].name()
            found |= {name: f"no: {said}" for name in part.names if name not in found}
    return {name: found[name] for name in TRUTHS}


def _judged(is_so: bool, otherwise: object) -> str:
    return YES if is_so else f"no: {otherwise}"


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
    # Once this one is gone, the pass has been over everything before it.
    broker.write("compacted", "c", "old")
    broker.write("compacted", "c", "new")

    def is_clean(records: list[Found]) -> bool:
        return not any(each.value == "old" for each in records)

    records = broker.cleaned("compacted", is_clean)
    there = {each.key: each for each in records}
    yield "duplicates", _judged(is_clean(records), f"not after {broker.patience_s:.0f} s")
    if not is_clean(records):
        for name in ("holes", "log_start", "tombstone_kept", "horizon"):
            yield name, "no: nothing is cleaned"
        return
    offsets = [(each.offset, each.key) for each in records if each.value == "new"]
    yield "holes", _judged(offsets == [(2, "a"), (5, "b"), (7, "c")], offsets)
    low = broker.offset("compacted", OffsetSpec.earliest())
    yield "log_start", _judged(low == 0, f"it is {low}")
    yield "tombstone_kept", _judged("gone" in there, "it goes at once")
    yield "horizon", _judged("long gone" in there, "from the time of the record on")


def _expiry(broker: _Client) -> Iterator[tuple[str, str]]:
    broker.create("expiring", {"delete.retention.ms": "100"})
    broker.write("expiring", "gone", "x")
    broker.write("expiring", "gone", None)

    def is_gone(records: list[Found]) -> bool:
        return all(each.key != "gone" for each in records)

    records = broker.cleaned("expiring", is_gone)
    yield "tombstone_gone", _judged(is_gone(records), f"not after {broker.patience_s:.0f} s")


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
    yield "read_committed", _judged(is_committed, f"{', '.join(map(str, before))}")
    is_stable = before == [each for each in after if each not in ("open", "behind it")]
    is_stable = is_stable and after[-2:] == ["open", "behind it"]
    yield "stable_offset", _judged(is_stable, f"{', '.join(map(str, before))}")


def _deletion(broker: _Client) -> Iterator[tuple[str, str]]:
    broker.touch("old")
    for number in range(10):
        broker.write("old", "k", str(number))
    admin = broker.admin
    (deleted,) = admin.delete_records([TopicPartition("old", 0, 6)]).values()
    low = deleted.result(WITHIN_S).low_watermark
    seen = (low, broker.offset("old", OffsetSpec.earliest()), broker.read("old")[0].offset)
    yield "delete_records", _judged(seen == (6, 6, 6), seen)


class _Part(NamedTuple):
    """Truths that are looked at together, if there is an API; else what is said of them."""

    names: tuple[str, ...]
    api: int
    without: str
    look: Callable[[_Client], Iterator[tuple[str, str]]]


_COMPACTION = ("duplicates", "holes", "log_start", "tombstone_kept", "horizon")
_PARTS = (
    _Part(_COMPACTION, CREATE_TOPICS, "topics have no configuration", _compaction),
    _Part(("tombstone_gone",), CREATE_TOPICS, "topics have no configuration", _expiry),
    _Part(
        ("read_committed", "stable_offset"),
        ADD_PARTITIONS_TO_TXN,
        "no transactions",
        _transactions,
    ),
    _Part(("delete_records",), DELETE_RECORDS, "it is not served", _deletion),
)


# -- the client --------------------------------------------------------------------------------


class _Client:
    """What the truths need of confluent-kafka."""

    def __init__(self, bootstrap: str, patience_s: float) -> None:
        self._server = {"bootstrap.servers": bootstrap, "log_level": 0}
        self.patience_s = patience_s
        self.admin = AdminClient(self._server)
        self._plain = self.producer(**{"linger.ms": 0})

    def producer(self, **configs: object) -> Producer:
        return Producer({**self._server, **configs})

    def create(self, topic: str, configs: Mapping[str, str]) -> None:
        """Create a compacted topic whose segments are rolled whenever something comes."""
        all_configs = {
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "0.01",
            "segment.ms": "50",
            **configs,
        }
        made = self.admin.create_topics([NewTopic(topic, 1, 1, config=all_configs)])
        made[topic].result(WITHIN_S)

    def touch(self, topic: str) -> None:
        """Have a topic made by asking for it, and wait until it is there."""
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

    def cleaned(self, topic: str, is_so: Callable[[list[Found]], bool]) -> list[Found]:
        """Write other keys, so that segments are rolled, until it is so; return what is there."""
        deadline = time.monotonic() + self.patience_s
        for number in range(1_000_000):
            records = self.read(topic)
            if is_so(records) or time.monotonic() > deadline:
                return records
            time.sleep(0.06)  # segment.ms is over
            self.write(topic, f"filler {number % 7}", "filler")
        raise AssertionError

    def read(self, topic: str, isolation: str = "read_uncommitted") -> list[Found]:
        """Return all records from offset 0 on that can be read."""
        consumer = Consumer(
            {
                **self._server,
                "group.id": "nobody",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": isolation,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 10,
            }
        )
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        found: list[Found] = []
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
                    found.append(Found(message.offset(), message.key().decode(), text))
                elif error.code() == KafkaError._PARTITION_EOF:
                    return found
                else:
                    raise KafkaException(error)
        finally:
            consumer.close()
        raise TimeoutError(topic)

    def offset(self, topic: str, spec: OffsetSpec) -> int:
        """Return an offset that the broker tells."""
        isolation = IsolationLevel.READ_UNCOMMITTED
        asked = self.admin.list_offsets({TopicPartition(topic, 0): spec}, isolation_level=isolation)
        (future,) = asked.values()
        offset: int = future.result(WITHIN_S).offset
        return offset
