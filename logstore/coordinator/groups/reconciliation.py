"""The steps of a member from its current assignment to its target assignment (KIP-848).

First, the member revokes partitions while it remains in its old epoch. When it reports that it no
longer owns them, it advances to the target epoch. It gets each new partition as soon as no other
member owns the partition.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from logstore.coordinator.groups.consumer_member import (
    NO_PARTITIONS,
    ConsumerMember,
    MemberState,
    OwnedPartitions,
)

if TYPE_CHECKING:
    from logstore.coordinator.groups.consumer_member import Target

Reported = Mapping[str, Collection[int]]
"""The partitions that a member reports as owned, by topic id."""


class MustRejoinError(Exception):
    """The member's state is from a newer version of Kafka. It must rejoin without partitions."""


def reconcile(
    member: ConsumerMember,
    target: Target,
    target_epoch: int,
    *,
    subscribed_ids: Collection[str],
    is_free: Callable[[str, int], bool],
    reported: Reported | None,
    is_resubscribed: bool = False,
) -> ConsumerMember:
    """Return the member after its next step, or the same member if it must wait.

    Parameters
    ----------
    target : Target
        The target assignment of the member for `target_epoch`.
    subscribed_ids : collection of str
        The ids of the topics to which the member is subscribed.
    is_free : callable
        Returns whether no member owns a partition, given by topic id and number.
    reported : mapping, optional
        The partitions that the member reports as owned, or None if it does not report them.
    is_resubscribed : bool
        Whether the member has changed its subscription in this request.

    Raises
    ------
    MustRejoinError
    """
    if member.state is MemberState.UNKNOWN:
        if reported is None or reported:
            raise MustRejoinError
    elif member.is_reconciled_to(target_epoch) or (
        member.state is MemberState.UNREVOKED_PARTITIONS and _owns(reported, member.revoking)
    ):
        return _drop_unsubscribed(member, subscribed_ids, reported) if is_resubscribed else member
    kept: dict[str, Mapping[int, int]] = {}
    revoked: dict[str, Mapping[int, int]] = {}
    added: dict[str, list[int]] = {}
    is_waiting = False
    for topic_id in {**target, **member.assigned}:
        has = member.assigned.get(topic_id, {})
        wants = target.get(topic_id, frozenset()) if topic_id in subscribed_ids else frozenset()
        stays = {number: epoch for number, epoch in has.items() if number in wants}
        goes = {number: epoch for number, epoch in has.items() if number not in wants}
        if stays:
            kept[topic_id] = stays
        if goes:
            revoked[topic_id] = goes
        for number in wants:
            if number not in stays:
                if number in member.revoking.get(topic_id, {}) or is_free(topic_id, number):
                    added.setdefault(topic_id, []).append(number)
                else:
                    is_waiting = True
    if revoked and _owns(reported, revoked):
        return member.advance(member.member_epoch)._replace(
            state=MemberState.UNREVOKED_PARTITIONS, assigned=kept, revoking=revoked
        )
    for topic_id, numbers in added.items():
        kept[topic_id] = {**kept.get(topic_id, {}), **dict.fromkeys(numbers, target_epoch)}
    return member.advance(target_epoch)._replace(
        state=MemberState.UNRELEASED_PARTITIONS if is_waiting else MemberState.STABLE,
        assigned=kept,
        revoking=NO_PARTITIONS,
    )


def _drop_unsubscribed(
    member: ConsumerMember, subscribed_ids: Collection[str], reported: Reported | None
) -> ConsumerMember:
    """Remove topics to which the member is no longer subscribed, without a new epoch."""
    lost = {
        each: numbers for each, numbers in member.assigned.items() if each not in subscribed_ids
    }
    if not lost:
        return member
    kept = {each: numbers for each, numbers in member.assigned.items() if each in subscribed_ids}
    revoking = dict(member.revoking)
    for topic_id, numbers in lost.items():
        revoking[topic_id] = {**revoking.get(topic_id, {}), **numbers}
    member = member.advance(member.member_epoch)._replace(assigned=kept)
    if _owns(reported, revoking):
        member = member._replace(state=MemberState.UNREVOKED_PARTITIONS, revoking=revoking)
    return member


def _owns(reported: Reported | None, partitions: OwnedPartitions) -> bool:
    """Return whether a member may still own any of these partitions."""
    if reported is None:
        return True
    return any(
        number in partitions[topic_id]
        for topic_id, numbers in reported.items()
        if topic_id in partitions
        for number in numbers
    )
