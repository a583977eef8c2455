"""Assignors: the named strategies that assign partitions to the members of a group.

An assignor maps the subscriptions and the partition counts to an assignment for each member. Only
the group leader runs it. Clients that connect over the network and members in this process can
therefore be in the same group if they have an assignor in common. `range` and `roundrobin` create
the same assignments as Kafka. The sticky assignors balance as evenly as Kafka's and move as few
partitions, but may choose a different assignment among several that are equally good.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import NamedTuple

from logstore.coordinator.groups.consumer_protocol import Subscription, by_topic
from logstore.errors import InvalidRecordError
from logstore.types import TopicPartition

Shares = dict[str, list[TopicPartition]]
Assign = Callable[[Mapping[str, int], Mapping[str, Subscription]], Shares]

_INT = struct.Struct(">i")


class Assignor(NamedTuple):
    """A named assignment strategy.

    Attributes
    ----------
    assign : callable
        Takes the partition counts by topic and the subscriptions by member id. Returns the assigned
        partitions by member id.
    is_cooperative : bool
        Whether members keep their partitions while they rejoin, and revoke only the partitions that
        move to another member (KIP-429).
    """

    name: str
    assign: Assign
    is_cooperative: bool = False


def assign_range(
    partition_counts: Mapping[str, int], members: Mapping[str, Subscription]
) -> Shares:
    """Assign a range of each topic's partitions to each member.

    If a topic's partitions do not divide evenly, the first members get one extra partition each.
    """
    shares: Shares = {member_id: [] for member_id in members}
    for topic, count in sorted(partition_counts.items()):
        subscribers = sorted(
            each for each, subscription in members.items() if topic in subscription.topics
        )
        if subscribers:
            size, rest = divmod(count, len(subscribers))
            start = 0
            for slot, member_id in enumerate(subscribers):
                end = start + size + (slot < rest)
                shares[member_id] += [TopicPartition(topic, each) for each in range(start, end)]
                start = end
    return shares


def assign_round_robin(
    partition_counts: Mapping[str, int], members: Mapping[str, Subscription]
) -> Shares:
    """Assign all partitions round-robin to the members that are subscribed to their topics."""
    shares: Shares = {member_id: [] for member_id in members}
    order = sorted(members)
    slot = 0
    for tp in _all_partitions(partition_counts):
        if any(tp.topic in subscription.topics for subscription in members.values()):
            while tp.topic not in members[order[slot % len(order)]].topics:
                slot += 1
            shares[order[slot % len(order)]].append(tp)
            slot += 1
    return shares


def assign_sticky(
    partition_counts: Mapping[str, int], members: Mapping[str, Subscription]
) -> Shares:
    """Balance the number of partitions per member, moving as few partitions as possible."""
    everything = _all_partitions(partition_counts)
    subscribed = [
        tp
        for tp in everything
        if any(tp.topic in subscription.topics for subscription in members.values())
    ]
    owners = _owners(set(subscribed), members)
    shares: Shares = {member_id: [] for member_id in sorted(members)}
    for tp in subscribed:
        if tp in owners:
            shares[owners[tp]].append(tp)
    for tp in subscribed:
        if tp not in owners:
            shares[_poorest(shares, members, tp)].append(tp)
    while (move := _next_move(shares, members)) is not None:
        tp, giver, taker = move
        shares[giver].remove(tp)
        shares[taker].append(tp)
    return {member_id: sorted(share) for member_id, share in shares.items()}


def assign_cooperatively(
    partition_counts: Mapping[str, int], members: Mapping[str, Subscription]
) -> Shares:
    """Assign like `assign_sticky`, but withhold partitions that another member still owns.

    The owner revokes such a partition when it gets its new assignment, and rejoins. The next
    rebalance assigns the partition (KIP-429).
    """
    shares = assign_sticky(partition_counts, members)
    owners = {
        tp: member_id
        for member_id, subscription in members.items()
        for tp in subscription.owned_partitions
    }
    return {
        member_id: [tp for tp in share if owners.get(tp, member_id) == member_id]
        for member_id, share in shares.items()
    }


def _all_partitions(partition_counts: Mapping[str, int]) -> list[TopicPartition]:
    return [
        TopicPartition(topic, number)
        for topic, count in sorted(partition_counts.items())
        for number in range(count)
    ]


def _owners(
    partitions: set[TopicPartition], members: Mapping[str, Subscription]
) -> dict[TopicPartition, str]:
    """Return the last owner of each partition.

    If several members claim a partition, the latest generation wins.
    """
    claims: dict[TopicPartition, tuple[int, str]] = {}
    for member_id, subscription in sorted(members.items()):
        owned, generation = owned_before(subscription)
        for tp in owned:
            if tp in partitions and tp.topic in subscription.topics:
                claims[tp] = max(claims.get(tp, (generation, member_id)), (generation, member_id))
    return {tp: member_id for tp, (_, member_id) in claims.items()}


def _poorest(shares: Shares, members: Mapping[str, Subscription], tp: TopicPartition) -> str:
    subscribers = [each for each in shares if tp.topic in members[each].topics]
    return min(subscribers, key=lambda member_id: (len(shares[member_id]), member_id))


def _next_move(
    shares: Shares, members: Mapping[str, Subscription]
) -> tuple[TopicPartition, str, str] | None:
    """Return a partition to move to balance the group, with its current owner and its new owner."""
    for giver in sorted(shares, key=lambda each: (-len(shares[each]), each)):
        for tp in reversed(shares[giver]):
            taker = _poorest(shares, members, tp)
            if len(shares[giver]) - len(shares[taker]) > 1:
                return tp, giver, taker
    return None


# -- user data of the sticky assignor --------------------------------------------------------------


def sticky_user_data(partitions: tuple[TopicPartition, ...], generation_id: int) -> bytes:
    """Encode the sticky assignor's user data: the member's last assignment and its generation."""
    numbers_by_topic = by_topic(partitions)
    parts = [_INT.pack(len(numbers_by_topic))]
    for topic, numbers in numbers_by_topic.items():
        name = topic.encode()
        parts.append(struct.pack(f">h{len(name)}s", len(name), name))
        parts.append(struct.pack(f">i{len(numbers)}i", len(numbers), *numbers))
    return b"".join([*parts, _INT.pack(generation_id)])


def owned_before(subscription: Subscription) -> tuple[tuple[TopicPartition, ...], int]:
    """Return a member's last assignment and its generation, or -1 if the generation is unknown.

    Older clients send the assignment in the user data. User data of other assignors is ignored.
    """
    if subscription.owned_partitions or not subscription.user_data:
        return subscription.owned_partitions, subscription.generation_id
    try:
        return _read_user_data(subscription.user_data)
    except (InvalidRecordError, struct.error, UnicodeDecodeError):
        return (), -1


def _read_user_data(data: bytes) -> tuple[tuple[TopicPartition, ...], int]:
    owned: list[TopicPartition] = []
    position = _INT.size
    for _ in range(min(_INT.unpack_from(data)[0], len(data))):
        (size,) = struct.unpack_from(">h", data, position)
        topic = data[position + 2 : position + 2 + size].decode()
        position += 2 + size
        (count,) = _INT.unpack_from(data, position)
        if not 0 <= count <= len(data):
            raise InvalidRecordError(f"{count} partitions cannot fit in {len(data)} bytes")
        numbers = struct.unpack_from(f">{count}i", data, position + _INT.size)
        owned += [TopicPartition(topic, number) for number in numbers]
        position += _INT.size * (1 + count)
    has_generation = len(data) >= position + _INT.size
    return tuple(owned), _INT.unpack_from(data, position)[0] if has_generation else -1


ASSIGNORS = {
    assignor.name: assignor
    for assignor in (
        Assignor("range", assign_range),
        Assignor("roundrobin", assign_round_robin),
        Assignor("sticky", assign_sticky),
        Assignor("cooperative-sticky", assign_cooperatively, is_cooperative=True),
    )
}
"""The assignors by name."""
