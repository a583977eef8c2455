"""The subscriptions and assignments that the members of a consumer group exchange.

They are encoded in version 3, as by Kafka 3.9 clients. Newer versions only append fields, so their
known fields can still be decoded. Source: KIP-429, KIP-792, KIP-881 and Kafka's
`ConsumerProtocol`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import NamedTuple, TypeVar

from logstore.coordinator.records import write_record
from logstore.errors import InvalidRecordError, MessageError
from logstore.messages import Message, decode_at, version_of
from logstore.messages.types import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from logstore.types import TopicPartition

CONSUMER_PROTOCOL_TYPE = "consumer"

SUBSCRIPTION_VERSION = 3
ASSIGNMENT_VERSION = 3
VERSION_BYTES = 2
NO_GENERATION = -1

M = TypeVar("M", bound=Message)


class Subscription(NamedTuple):
    """The subscription of a member, and the partitions that it owns.

    Attributes
    ----------
    owned_partitions : tuple of TopicPartition
        The last assignment of the member (since version 1).
    generation_id : int
        The generation of the last assignment, or -1 before version 2.
    """

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned_partitions: tuple[TopicPartition, ...] = ()
    generation_id: int = NO_GENERATION
    rack_id: str | None = None


class Assignment(NamedTuple):
    """The assignment of a member."""

    partitions: tuple[TopicPartition, ...]
    user_data: bytes | None = None


def encode_subscription(subscription: Subscription) -> bytes:
    """Encode a subscription."""
    message = ConsumerProtocolSubscription(
        topics=list(subscription.topics),
        user_data=subscription.user_data,
        owned_partitions=[
            ConsumerProtocolSubscription.TopicPartition(topic=topic, partitions=numbers)
            for topic, numbers in by_topic(subscription.owned_partitions).items()
        ],
        generation_id=subscription.generation_id,
        rack_id=subscription.rack_id,
    )
    return write_record(message, SUBSCRIPTION_VERSION)


def decode_subscription(data: bytes) -> Subscription:
    """Decode a subscription.

    Raises
    ------
    InvalidRecordError
        The data is malformed.
    """
    message = _decoded(ConsumerProtocolSubscription, data, SUBSCRIPTION_VERSION)
    user_data = message.user_data
    owned = {each.topic: each.partitions for each in message.owned_partitions}
    return Subscription(
        tuple(message.topics),
        None if user_data is None else bytes(user_data),
        _partitions(owned),
        message.generation_id,
        message.rack_id,
    )


def encode_assignment(assignment: Assignment, version: int = ASSIGNMENT_VERSION) -> bytes:
    """Encode an assignment in a version up to 3. A newer version is encoded as 3."""
    message = ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolAssignment.TopicPartition(topic=topic, partitions=numbers)
            for topic, numbers in by_topic(assignment.partitions).items()
        ],
        user_data=assignment.user_data,
    )
    return write_record(message, max(0, min(version, ASSIGNMENT_VERSION)))


def decode_assignment(data: bytes) -> Assignment:
    """Decode an assignment. Empty data is an empty assignment.

    Raises
    ------
    InvalidRecordError
        The data is malformed.
    """
    if not data:
        return Assignment(())
    message = _decoded(ConsumerProtocolAssignment, data, ASSIGNMENT_VERSION)
    user_data = message.user_data
    assigned = {each.topic: each.partitions for each in message.assigned_partitions}
    return Assignment(_partitions(assigned), None if user_data is None else bytes(user_data))


def _decoded(kind: type[M], data: bytes, newest: int) -> M:
    version = version_of(data)
    if version < 0:
        raise InvalidRecordError(f"not a {kind.__name__}: {data!r}")
    try:
        return decode_at(kind, min(version, newest), data, VERSION_BYTES)[0]
    except MessageError as error:
        raise InvalidRecordError(str(error)) from error


def by_topic(partitions: Iterable[TopicPartition]) -> Mapping[str, list[int]]:
    """Return the partition numbers of each topic. Topics and numbers are sorted."""
    return {
        topic: [tp.partition for tp in group]
        for topic, group in groupby(sorted(partitions), key=lambda tp: tp.topic)
    }


def _partitions(numbers: Mapping[str, Iterable[int]]) -> tuple[TopicPartition, ...]:
    return tuple(
        TopicPartition(topic, number) for topic, of_topic in numbers.items() for number in of_topic
    )
