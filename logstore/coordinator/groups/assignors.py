"""Assignors: the strategies, known to clients by name, that share out partitions in a group.

An assignor is a function from the members' subscriptions and the partition counts of their topics
to the share of each member. Only the leader runs it, so a wire client may lead members of this
process, or be led by one, if they agree on a name. Range and round robin give the shares that
Kafka's give; the sticky ones are as balanced and move as little, but break ties in their own way.
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
    """An assignor.

    Attributes
    ----------
    assign : callable
        Partition counts by topic and subscriptions by member id, to shares by member id.
    is_cooperative : bool
        Members keep what they have while they join, and give up only what they lose (KIP-429).
    """

    name: str
    assign: Assign
    is_cooperative: bool = False


def assign_range(
    partition_counts: Mapping[str, int], members: Mapping[str, Subscription]
) -> Shares:
    """Assign each member a range of each topic's partitions; the first members get one more."""
    shares: Shares = {member_id: [] for member_id in members}
    for topic, count in sorted(partition_counts.items()):
        wanting = sorted(each for each, wants in members.items() if topic in wants.topics)
        if wanting:
            size, rest = divmod(count, len(wanting))
            start = 0
            for slot, member_id in enumerate(wanting):
                end = start + size + (slot < rest)
                shares[member_id] += [TopicPartition(topic, each) for each in range(start, end)]
                start = end
    return shares


def assign_round_robin(
    partition_counts: Mapping[str, int], members: Mapping[str, Subscription]
) -> Shares:
    """Assign all partitions in turn to the members that subscribe to their topics."""
    shares: Shares = {member_id: [] for member_id in members}
    order = sorted(members)
    slot = 0
    for tp in _all_partitions(partition_counts):
        if any(tp.topic in wants.topics for wants in members.values()):
            while tp.topic not in members[order[slot % len(order)]].topics:
                slot += 1
            shares[order[slot % len(order)]].append(tp)
            slot += 1
    return shares


def assign_sticky(
    partition_counts: Mapping[str, int], members: Mapping[str, Subscription]
) -> Shares:
    """Keep members' partitions as far as the shares stay even, and move the rest."""
    everything = _all_partitions(partition_counts)
    wanted = [
        tp for tp in everything if any(tp.topic in wants.topics for wants in members.values())
    ]
    owners = _owners(set(wanted), members)
    shares: Shares = {member_id: [] for member_id in sorted(members)}
    for tp in wanted:
        if tp in owners:
            shares[owners[tp]].append(tp)
    for tp in wanted:
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
    """Assign as `assign_sticky`, but withhold a partition that another member still owns.

    Its owner revokes it on receiving the new share and rejoins, and that rebalance assigns it
    (KIP-429).
    """
    shares = assign_sticky(partition_counts, members)
    held = {tp: member_id for member_id, wants in members.items() for tp in wants.owned_partitions}
    return {
        member_id: [tp for tp in share if held.get(tp, member_id) == member_id]
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
    """Return the last owner of each partition; of two claims, that of the later generation."""
    found: dict[TopicPartition, tuple[int, str]] = {}
    for member_id, wants in sorted(members.items()):
        owned, generation = owned_before(wants)
        for tp in owned:
            if tp in partitions and tp.topic in wants.topics:
                found[tp] = max(found.get(tp, (generation, member_id)), (generation, member_id))
    return {tp: member_id for tp, (_, member_id) in found.items()}


def _poorest(shares: Shares, members: Mapping[str, Subscription], tp: TopicPartition) -> str:
    wanting = [each for each in shares if tp.topic in members[each].topics]
    return min(wanting, key=lambda member_id: (len(shares[member_id]), member_id))


def _next_move(
    shares: Shares, members: Mapping[str, Subscription]
) -> tuple[TopicPartition, str, str] | None:
    """Return a partition whose move evens out two shares, its owner and its new owner."""
    for giver in sorted(shares, key=lambda each: (-len(shares[each]), each)):
        for tp in reversed(shares[giver]):
            taker = _poorest(shares, members, tp)
            if len(shares[giver]) - len(shares[taker]) > 1:
                return tp, giver, taker
    return None


# -- what a sticky member tells of its last share --------------------------------------------------


def sticky_user_data(partitions: tuple[TopicPartition, ...], generation_id: int) -> bytes:
    """Return the user data of a sticky assignor's member: its last share and the generation."""
    numbers = by_topic(partitions)
    parts = [_INT.pack(len(numbers))]
    for topic, found in numbers.items():
        name = topic.encode()
        parts.append(struct.pack(f">h{len(name)}s", len(name), name))
        parts.append(struct.pack(f">i{len(found)}i", len(found), *found))
    return b"".join([*parts, _INT.pack(generation_id)])


def owned_before(wants: Subscription) -> tuple[tuple[TopicPartition, ...], int]:
    """Return the last share of a member and its generation, -1 if unknown.

    Read from the subscription itself, else from its user data, in which other assignors may have
    put something else.
    """
    if wants.owned_partitions or not wants.user_data:
        return wants.owned_partitions, wants.generation_id
    try:
        return _read_user_data(wants.user_data)
    except (InvalidRecordError, struct.error, UnicodeDecodeError):
        return (), -1


def _read_user_data(data: bytes) -> tuple[tuple[TopicPartition, ...], int]:
    found: list[TopicPartition] = []
    position = _INT.size
    for _ in range(min(_INT.unpack_from(data)[0], len(data))):
        (size,) = struct.unpack_from(">h", data, position)
        topic = data[position + 2 : position + 2 + size].decode()
        position += 2 + size
        (count,) = _INT.unpack_from(data, position)
        if not 0 <= count <= len(data):
            raise InvalidRecordError(f"{count} partitions do not fit {len(data)} bytes")
        numbers = struct.unpack_from(f">{count}i", data, position + _INT.size)
        found += [TopicPartition(topic, number) for number in numbers]
        position += _INT.size * (1 + count)
    has_generation = len(data) >= position + _INT.size
    return tuple(found), _INT.unpack_from(data, position)[0] if has_generation else -1


ASSIGNORS = {
    assignor.name: assignor
    for assignor in (
        Assignor("range", assign_range),
        Assignor("roundrobin", assign_round_robin),
        Assignor("sticky", assign_sticky),
        Assignor("cooperative-sticky", assign_cooperatively, is_cooperative=True),
    )
}
"""Assignors by the name that members agree on."""
