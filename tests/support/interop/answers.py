"""Answers of two brokers to the same requests, and where they differ.

What each side makes up for itself (ids of producers, members and topics, the times of its clock,
ports) is replaced by a name first, the same name for the same value; where the two are known to
part stands in `PARTINGS`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from logstore.messages import Message, to_json
from logstore.record.batch import RecordBatch
from tests.support.interop.caller import Caller

FIRST_MS = 1_760_000_000_000
"""Time stamps of records begin here, so that the same seed sends the same bytes."""

LAST_MS = FIRST_MS + 10_000_000_000
"""Later time stamps are the server's, as those of transaction markers."""


# -- two sides -----------------------------------------------------------------------------------


class Side:
    """One of the two brokers, and what it calls the things that both know."""

    def __init__(self, name: str, bootstrap: str) -> None:
        self.name = name
        self._bootstrap = bootstrap
        self._callers: dict[str, Caller] = {}
        self._names: dict[tuple[str, object], str] = {}
        self._values: dict[str, Any] = {}
        self._counts: Counter[str] = Counter()

    def caller(self, connection: str = "main") -> Caller:
        """Return a connection by its name."""
        if connection not in self._callers:
            self._callers[connection] = Caller(self._bootstrap, client_id=connection)
        return self._callers[connection]

    def forget(self, connection: str) -> None:
        """Close a connection; the next use of its name opens another."""
        if connection in self._callers:
            self._callers.pop(connection).close()

    def close(self) -> None:
        """Close all connections."""
        for connection in list(self._callers):
            self.forget(connection)

    def name_of(self, kind: str, value: object) -> str:
        """Return the name of a value, a new one where it has none."""
        key = kind, value
        if key not in self._names:
            name = f"{kind} {self._counts[kind]}"
            self._counts[kind] += 1
            self._names[key] = name
            self._values[name] = value
        return self._names[key]

    def value_of(self, name: str) -> Any:  # an id of whatever type
        """Return what this side calls a thing."""
        return self._values[name]

    def versions(self) -> dict[int, tuple[int, int]]:
        """Return API → the versions it says it serves, both inclusive."""
        answer = self.caller().call("ApiVersions", 0, {})
        return {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}


# -- what may differ -----------------------------------------------------------------------------

MADE_UP = {
    "producerId": "producer",
    "memberId": "member",
    "leader": "member",
    "topicId": "topic id",
    "clusterId": "cluster",
    "logDir": "log dir",
    "port": "port",
}
"""Fields whose values each side makes up, and the kind of thing they name."""

OWN_TIMES = {"logAppendTimeMs", "lastTimestamp", "transactionStartTimeMs"}
"""Times of the server's clock; -1 is none."""

TEXTS = {"errorMessage", "batchIndexErrorMessage"}
"""What is said to people: whether something is said is compared, not the words."""

UNORDERED = {
    "topics": ("name", "topic", "topicName"),
    "members": ("memberId",),
    "groups": ("groupId",),
    "activeProducers": ("producerId",),
    "results": ("name", "resourceName"),
    "responses": ("topic", "name"),
    "partitions": ("partitionIndex", "partition", "partitionId"),
    "partitionResponses": ("index",),
    "resultsByTopicV3AndBelow": ("name",),
    "resultsByPartition": ("partitionIndex",),
    "resources": ("name",),
}
"""Arrays in whose order Kafka says nothing (it keeps these in hash maps), and what sorts them."""

DISK_SIZES = {"totalBytes", "usableBytes"}


class Parting(NamedTuple):
    """One thing in which the two are known to part.

    Attributes
    ----------
    apis : frozenset of str
    path : str
        Pattern of the field's path.
    is_meant : callable
        Told Kafka's value and ours.
    release : str or None
        The only release that parts from ours so; None means all.
    """

    reason: str
    apis: frozenset[str]
    path: str
    is_meant: Callable[[Any, Any], bool]
    release: str | None = None


class Closed:
    """What may differ, with its reason; each entry counts how often it was needed.

    Parameters
    ----------
    release : str
        That of the Kafka that answers, as `kafka3`.
    """

    def __init__(self, release: str) -> None:
        self._partings = [each for each in PARTINGS if each.release in (None, release)]
        self.used: Counter[str] = Counter()

    def allows(self, api: str, path: str, kafka: object, ours: object) -> bool:
        """Return whether a difference is one of the list."""
        for each in self._partings:
            if api in each.apis and re.search(each.path, path) and each.is_meant(kafka, ours):
                self.used[each.reason] += 1
                return True
        return False


CONFIGS = frozenset({"CreateTopics", "DescribeConfigs"})

PARTINGS = [
    Parting(
        "topic keys that do nothing here are not listed",
        CONFIGS,
        r"\.configs\.(follower|leader)\.replication\.throttled\.replicas$"
        r"|\.configs\.(local\.retention|remote|message\.(downconversion|format))\.[a-z.]*$",
        lambda kafka, ours: ours == "absent",
    ),
    Parting(
        "topic keys that Kafka does not have",
        CONFIGS,
        r"\.configs\.(logstore|compaction\.strategy)[a-z.]*$",
        lambda kafka, ours: kafka == "absent",
    ),
    Parting(
        "Kafka's memory keeps the start of the transaction before, its log does not",
        frozenset({"DescribeTransactions"}),
        r"transactionStartTimeMs$",
        lambda kafka, ours: (kafka, ours) == ("a time", -1),
        release="kafka3",
    ),
    Parting(
        "a group without members goes with the topic of its last offset until Kafka 3.9",
        frozenset({"DescribeGroups", "DeleteGroups", "OffsetDelete"}),
        r"^(\.groups\[0\]|\.results\[0\])?\.(groupState|errorCode|topics)$",
        lambda kafka, ours: (kafka, ours) in (("Empty", "Dead"), (0, 69)) or ours == [],
        release="kafka4",
    ),
    Parting(
        "topic keys and defaults that came or went with Kafka 4",
        CONFIGS,
        r"\.configs\.(errors\.deadletterqueue\.group\.enable|max\.decompressed\.message\.bytes"
        r"|message\.timestamp\.(after\.max|difference\.max)\.ms|min\.insync\.replicas)",
        lambda kafka, ours: True,
        release="kafka4",
    ),
]
"""Where ours is known to part from Kafka; nothing else may differ."""


def told(side: Side, name: str, version: int, answer: Message) -> Any:
    """Return an answer as plain data, each side's own ids replaced by names."""
    data = to_json(answer, version)
    if name == "Fetch":
        _tell_records(side, answer, data)
    return _named(side, data)


def _tell_records(side: Side, answer: Message, data: dict[str, Any]) -> None:
    for topic, topic_data in zip(answer.responses, data["responses"], strict=True):
        for partition, told_of in zip(topic.partitions, topic_data["partitions"], strict=True):
            told_of.pop("recordsSizeInBytes", None)
            records = partition.records
            if records is not None:
                whole = b"".join(records) if isinstance(records, list) else bytes(records)
                told_of["records"] = [_batch(side, batch) for batch in _batches(whole)]


def _batches(data: bytes) -> Iterator[RecordBatch]:
    """Yield whole batches; the last one may be cut, as Kafka's are where a limit ends."""
    position = 0
    while position + 12 <= len(data):
        size = 12 + int.from_bytes(data[position + 8 : position + 12], "big")
        if position + size > len(data):
            return
        yield RecordBatch(data[position : position + size])
        position += size


def _batch(side: Side, batch: RecordBatch) -> dict[str, Any]:
    header = batch.header
    batch.ensure_valid()
    by_server = header.is_control or bool(header.attributes & 8)
    compressed = bool(header.attributes & 7)
    return {
        "base_offset": header.base_offset,
        "last_offset_delta": header.last_offset_delta,
        "attributes": header.attributes,
        "leader_epoch": header.partition_leader_epoch,
        "producerId": header.producer_id,
        "epoch": header.producer_epoch,
        "sequence": header.base_sequence,
        "size": None if compressed else len(batch.data),
        "records": [
            (
                record.offset,
                None if by_server else record.timestamp,
                record.key,
                None if header.is_control else record.value,
                record.headers,
            )
            for record in batch.records()
        ],
    }


def _named(side: Side, data: Any, key: str = "") -> Any:
    if isinstance(data, dict):
        return {name: _named(side, value, name) for name, value in data.items()}
    if key == "configs" and isinstance(data, list) and data and _has(data[0], "name"):
        return {each["name"]: _named(side, each) for each in data}
    if isinstance(data, list):
        keys = [name for name in UNORDERED.get(key, ()) if data and _has(data[0], name)]
        if keys:
            data = sorted(data, key=lambda each: (each[keys[0]] is None, each[keys[0]]))
        if key == "partitions" and data and isinstance(data[0], int):
            data = sorted(data)
        return [_named(side, value, key) for value in data]
    if key in MADE_UP and data not in (-1, "", None, "AAAAAAAAAAAAAAAAAAAAAA"):
        return side.name_of(MADE_UP[key], data)
    if (key in OWN_TIMES and data != -1) or (key == "timestamp" and data > LAST_MS):
        return "a time"
    if key in DISK_SIZES and data != -1:
        return "a size"
    if key in TEXTS:
        return "a text" if data else data
    return data


def _has(data: Any, name: str) -> bool:
    return isinstance(data, dict) and name in data


def differences(kafka: Any, ours: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield path, Kafka's value and ours of each leaf in which two answers differ."""
    if isinstance(kafka, dict) and isinstance(ours, dict):
        for key in [*kafka, *(key for key in ours if key not in kafka)]:
            yield from differences(
                kafka.get(key, "absent"), ours.get(key, "absent"), f"{path}.{key}"
            )
    elif isinstance(kafka, list) and isinstance(ours, list) and len(kafka) == len(ours):
        for number, (one, other) in enumerate(zip(kafka, ours, strict=True)):
            yield from differences(one, other, f"{path}[{number}]")
    elif kafka != ours:
        yield path, kafka, ours


def errors_in(data: Any) -> Iterator[int]:
    """Yield all error codes of an answer."""
    if data == "closed":
        yield -2
    if isinstance(data, dict):
        for key, value in data.items():
            if key.endswith("rrorCode"):
                yield value
            else:
                yield from errors_in(value)
    elif isinstance(data, list):
        for value in data:
            yield from errors_in(value)
