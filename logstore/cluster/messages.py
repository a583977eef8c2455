"""The messages between replicas: Fetch and OffsetForLeaderEpoch, one partition each."""

from __future__ import annotations

from typing import NamedTuple

from logstore.types import NO_OFFSET


class FetchRequest(NamedTuple):
    """A follower asks for what comes next, and tells by it how far it has come.

    Attributes
    ----------
    replica : int
        The follower.
    number : int
        Larger than those before; comes back with the answer. What was not asked last is dropped.
    leader_epoch : int
        The leader's, as the follower knows it.
    offset : int
        Its log end.
    log_start_offset : int
        Its log start (KIP-107).
    heard : (int, int) or None
        The leader's high watermark and log start as it last said them in this epoch: others are
        told at once, even without records.
    """

    replica: int
    number: int
    leader_epoch: int
    offset: int
    log_start_offset: int
    heard: tuple[int, int] | None


class FetchResponse(NamedTuple):
    """Batches from the asked offset on, and the leader's offsets.

    `error` is Kafka's name; with `OFFSET_OUT_OF_RANGE` the offsets are the leader's log start and
    log end, by which the follower moves.
    """

    number: int
    leader_epoch: int
    error: str | None = None
    data: bytes = b""
    high_watermark: int = NO_OFFSET
    log_start_offset: int = NO_OFFSET
    log_end_offset: int = NO_OFFSET


class EpochRequest(NamedTuple):
    """A follower asks where an epoch of its log ends in the leader's (KIP-101, KIP-279)."""

    replica: int
    number: int
    leader_epoch: int
    epoch: int


class EpochResponse(NamedTuple):
    """The largest epoch of the leader's log up to the one asked for, and its end; -1 if none."""

    number: int
    leader_epoch: int
    error: str | None = None
    epoch: int = -1
    end_offset: int = NO_OFFSET
