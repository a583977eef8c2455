"""The assignors of the broker, which compute target assignments: `uniform` and `range` (KIP-848).

Both return the same assignments as Kafka's. Among equally good assignments, the choice depends on
the iteration order of Java's hash maps, which is reproduced. The result depends only on the group.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from logstore.coordinator.groups.consumer_member import NO_TARGET, Target
from logstore.coordinator.groups.java_maps import (
    id_order_key,
    java_hash_order,
    java_id_order,
    java_number_order,
)

_ROUNDS_MAX = 16
"""Maximum number of rounds over all topics when balancing members with different subscriptions."""


class AssignedMember(NamedTuple):
    """A member as seen by an assignor.

    Attributes
    ----------
    topic_ids : collection of str
        Ids of the subscribed topics that exist.
    target : mapping of str to frozenset of int
        The previous target assignment by topic id.
    """

    topic_ids: Collection[str]
    instance_id: str | None = None
    target: Target = NO_TARGET


class AssignedGroup(NamedTuple):
    """A group as seen by an assignor.

    Attributes
    ----------
    members : mapping of str to AssignedMember
        The members by id.
    partitions : mapping of str to sequence of int
        The partition numbers of each subscribed topic by topic id, in ascending order.
    is_homogeneous : bool
        Whether all members have the same subscription.
    is_assigned : callable
        Returns whether a partition, given by topic id and number, is in a previous target
        assignment.
    """

    members: Mapping[str, AssignedMember]
    partitions: Mapping[str, Sequence[int]]
    is_homogeneous: bool
    is_assigned: Callable[[str, int], bool]


Targets = dict[str, Target]
ServerAssign = Callable[[AssignedGroup], Targets]


# -- range -----------------------------------------------------------------------------------------


def assign_range(group: AssignedGroup) -> Targets:
    """Assign a range of each topic's partitions to each subscriber, static members first."""
    members = group.members

    def rank(member_id: str) -> tuple[bool, str]:
        instance_id = members[member_id].instance_id
        return instance_id is None, member_id if instance_id is None else instance_id

    order = sorted(members, key=rank)
    shares: dict[str, dict[str, frozenset[int]]] = {member_id: {} for member_id in order}
    subscribers: dict[str, list[str]] = {}
    for member_id in order:
        for topic_id in members[member_id].topic_ids:
            subscribers.setdefault(topic_id, []).append(member_id)
    for topic_id, of_topic in subscribers.items():
        numbers = group.partitions[topic_id]
        size, rest = divmod(len(numbers), len(of_topic))
        start = 0
        for slot, member_id in enumerate(of_topic):
            end = start + size + (slot < rest)
            if start < end:
                shares[member_id][topic_id] = frozenset(numbers[start:end])
            start = end
    return dict(shares)


# -- uniform ---------------------------------------------------------------------------------------


def assign_uniform(group: AssignedGroup) -> Targets:
    """Balance the number of partitions per member, moving as few partitions as possible."""
    if not any(each.topic_ids for each in group.members.values()):
        return {}
    return _assign_same(group) if group.is_homogeneous else _Balancer(group).assign()


class _MemberPartitions:
    """The partitions of a member, copied on the first change."""

    def __init__(self, target: Target) -> None:
        self._before = target
        self._now: dict[str, set[int]] | None = None

    def _changed(self) -> dict[str, set[int]]:
        if self._now is None:
            self._now = {topic_id: set(numbers) for topic_id, numbers in self._before.items()}
        return self._now

    def add(self, topic_id: str, number: int) -> None:
        share = self._changed()
        # Java's computeIfAbsent inserts a key before the others in its bucket
        if topic_id not in share:
            self._now = share = {topic_id: set(), **share}
        share[topic_id].add(number)

    def remove(self, topic_id: str, number: int) -> None:
        numbers = self._changed()[topic_id]
        numbers.remove(number)
        if not numbers:
            del self._changed()[topic_id]

    def remove_topic(self, topic_id: str) -> None:
        del self._changed()[topic_id]

    def target(self) -> Target:
        if self._now is None:
            return self._before
        return {topic_id: frozenset(numbers) for topic_id, numbers in self._now.items()}


def _assign_same(group: AssignedGroup) -> Targets:
    """Assign partitions to members that all have the same subscription.

    Members keep their partitions up to their quota. The remaining partitions are assigned to
    members below their quota.
    """
    member_ids = java_hash_order(group.members)
    topic_ids = java_id_order(group.members[member_ids[0]].topic_ids, is_copy=True)
    subscribed = set(topic_ids)
    partitions = group.partitions
    free = [
        (topic_id, number)
        for topic_id in topic_ids
        for number in partitions[topic_id]
        if not group.is_assigned(topic_id, number)
    ]
    quota, extras = divmod(sum(len(partitions[each]) for each in topic_ids), len(member_ids))
    shares: dict[str, _MemberPartitions] = {}
    unfilled: list[tuple[str, int]] = []
    for position, member_id in enumerate(member_ids):
        target = group.members[member_id].target
        share = shares[member_id] = _MemberPartitions(target)
        takes_extra = extras > 0
        room = quota + takes_extra
        for topic_id in java_id_order(target):
            numbers = target[topic_id]
            if topic_id not in subscribed:
                share.remove_topic(topic_id)
            elif len(numbers) <= room:
                room -= len(numbers)
            else:
                for number in java_number_order(sorted(numbers))[room:]:
                    share.remove(topic_id, number)
                    free.append((topic_id, number))
                room = 0
        if room > 0 and takes_extra and len(member_ids) - position > extras:
            # Leave the extra partition to a later member, which may already have it.
            room -= 1
            takes_extra = False
        if room > 0:
            unfilled.append((member_id, room))
        extras -= takes_extra
    left = iter(free)
    for member_id, room in unfilled:
        for _, (topic_id, number) in zip(range(room), left, strict=False):
            shares[member_id].add(topic_id, number)
    return {member_id: share.target() for member_id, share in shares.items()}


class _Balancer:
    """Assigns partitions to members that have different subscriptions.

    Members keep the partitions of topics to which they are subscribed. An unassigned partition is
    assigned to the subscriber with the fewest partitions. Then partitions are moved, topic by
    topic, from the subscribers with the most partitions to those with the fewest.
    """

    def __init__(self, group: AssignedGroup) -> None:
        self._group = group
        self._member_ids = java_hash_order(group.members)
        self._subscribers: dict[str, list[int]] = {}
        for index, member_id in enumerate(self._member_ids):
            for topic_id in group.members[member_id].topic_ids:
                self._subscribers.setdefault(topic_id, []).append(index)
        self._shares: list[_MemberPartitions] = []
        self._sizes: list[int] = []
        self._owners: dict[str, dict[int, int]] = {
            topic_id: dict.fromkeys(group.partitions[topic_id], -1)
            for topic_id in self._subscribers
        }

    def assign(self) -> Targets:
        """Return the assignment."""
        for index, member_id in enumerate(self._member_ids):
            self._keep(index, member_id)
        free = {
            topic_id: [number for number, owner in owners.items() if owner < 0]
            for topic_id, owners in self._owners.items()
        }
        for topic_id in sorted((each for each in free if free[each]), key=self._rank):
            # Each assignment only increases a size, so the order of the queue remains valid.
            queue = _LeastLoaded(self._sizes, self._in_order(topic_id))
            for number in free[topic_id]:
                self._move(topic_id, number, queue.next())
        shared = [each for each, indices in self._subscribers.items() if len(indices) > 1]
        if shared:
            self._balance(sorted(shared, key=self._rank))
        shares = zip(self._member_ids, self._shares, strict=True)
        return {member_id: share.target() for member_id, share in shares}

    def _rank(self, topic_id: str) -> tuple[float, int, tuple[int, int]]:
        """Return the sort key of a topic, by descending number of partitions per subscriber."""
        subscribers = len(self._subscribers[topic_id])
        count = len(self._group.partitions[topic_id])
        return -count / subscribers, subscribers, id_order_key(topic_id)

    def _in_order(self, topic_id: str) -> list[int]:
        """Return the subscribers of a topic, fewest partitions first."""
        return sorted(self._subscribers[topic_id], key=lambda index: (self._sizes[index], index))

    def _keep(self, index: int, member_id: str) -> None:
        member = self._group.members[member_id]
        share = _MemberPartitions(member.target)
        size = 0
        for topic_id, numbers in member.target.items():
            if topic_id not in member.topic_ids:
                share.remove_topic(topic_id)
                continue
            size += len(numbers)
            for number in numbers:
                self._owners[topic_id][number] = index
        self._shares.append(share)
        self._sizes.append(size)

    def _move(self, topic_id: str, number: int, index: int) -> None:
        owners = self._owners[topic_id]
        before = owners[number]
        if before >= 0:
            self._shares[before].remove(topic_id, number)
            self._sizes[before] -= 1
        self._shares[index].add(topic_id, number)
        self._sizes[index] += 1
        owners[number] = index

    def _balance(self, topic_ids: list[str]) -> None:
        """Balance all topics until no partition moves, for at most 16 rounds."""
        last_changed = -1
        for _ in range(_ROUNDS_MAX):
            for position, topic_id in enumerate(topic_ids):
                if position == last_changed:
                    return
                if self._balance_topic(topic_id) or last_changed < 0:
                    last_changed = position

    def _balance_topic(self, topic_id: str) -> bool:
        """Move partitions of a topic. Return whether any partition was moved."""
        order = self._in_order(topic_id)
        if self._sizes[order[-1]] - self._sizes[order[0]] <= 1:
            return False
        owned: dict[int, list[int]] = {}
        for number, owner in self._owners[topic_id].items():
            owned.setdefault(owner, []).append(number)
        poorest = _LeastLoaded(self._sizes, order)
        richest = _MostLoaded(self._sizes, order)
        has_moved = False
        while poorest.level + 1 < richest.level:
            giver = richest.next(owned)
            if giver is None:
                break
            number = owned[giver].pop()
            taker = poorest.next()
            if richest.level - poorest.level <= 1:
                break
            self._move(topic_id, number, taker)
            has_moved = True
        return has_moved


class _LeastLoaded:
    """Returns the member with the fewest partitions, which gets the next partition.

    Parameters
    ----------
    sizes : list of int
        The number of partitions of each member, which the caller updates.
    order : list of int
        The members, fewest partitions first.

    Attributes
    ----------
    level : int
        The number of partitions of each member in the current pass.
    """

    def __init__(self, sizes: list[int], order: list[int]) -> None:
        self._sizes = sizes
        self._order = list(order)
        self.level = sizes[order[0]] - 1
        self._end = 0
        self._next = 0

    def next(self) -> int:
        """Return the next member."""
        if self._next >= self._end:
            self.level += 1
            while self._end < len(self._order) and self._sizes[self._order[self._end]] == (
                self.level
            ):
                self._end += 1
            self._next = 0
        self._next += 1
        return self._order[self._next - 1]


class _MostLoaded:
    """Returns the member with the most partitions, which gives up a partition.

    As in Kafka, a member without a partition of the topic is swapped with the last member of the
    pass and excluded, which changes the order of later passes.
    """

    def __init__(self, sizes: list[int], order: list[int]) -> None:
        self._sizes = sizes
        self._order = list(order)
        self.level = sizes[order[-1]] + 1
        self._start = self._end = len(order)
        self._next = len(order) - 1

    def next(self, owned: Mapping[int, list[int]]) -> int | None:
        """Return the next member that can give up a partition, or None if there is none."""
        while True:
            if self._next < self._start:
                self._begin_pass()
            if self._next < 0:
                return None
            index = self._order[self._next]
            self._next -= 1
            if owned.get(index):
                return index
            self._exclude(self._next + 1)

    def _begin_pass(self) -> None:
        if self._end <= self._start and self._start > 0:
            self.level = self._sizes[self._order[self._start - 1]]
        else:
            self.level -= 1
        while self._start > 0 and self._sizes[self._order[self._start - 1]] == self.level:
            self._start -= 1
        self._next = self._end - 1

    def _exclude(self, position: int) -> None:
        last = self._end - 1
        self._order[position], self._order[last] = self._order[last], self._order[position]
        self._end = last


SERVER_ASSIGNORS: Mapping[str, ServerAssign] = {"uniform": assign_uniform, "range": assign_range}
"""The assignors by name. The first is the default."""
