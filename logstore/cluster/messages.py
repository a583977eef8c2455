"""The messages between replicas: Fetch and OffsetForLeaderEpoch requests for one partition."""

from __future__ import annotations

from typing import NamedTuple

from logstore.types import NO_OFFSET


class FetchRequest(NamedTuple):
    """The fetch request of a follower, which also reports its progress.

    Attributes
    ----------
    replica : int
        Broker id of the follower.
    number : int
        The number of the request and its response. Only the latest request counts.
    leader_epoch : int
        The leader epoch known to the follower.
    offset : int
        The log end offset of the follower.
    log_start_offset : int
        The log start offset of the follower (KIP-107).
    heard : (int, int) or None
        The leader's high watermark and log start offset as last received in this epoch, or None if
        none were received. If they are outdated, the leader responds immediately, even without
        records.
    """

    replica: int
    number: int
    leader_epoch: int
    offset: int
    log_start_offset: int
    heard: tuple[int, int] | None


class FetchResponse(NamedTuple):
    """Batches from the requested offset, and the leader's offsets.

    `error` is Kafka's error name, or None on success. After `OFFSET_OUT_OF_RANGE`, the follower
    moves to the leader's log start offset or log end offset.
    """

    number: int
    error: str | None = None
    data: bytes = b""
    high_watermark: int = NO_OFFSET
    log_start_offset: int = NO_OFFSET
    log_end_offset: int = NO_OFFSET


class EpochRequest(NamedTuple):
    """A follower's request for the end offset of an epoch (KIP-101, KIP-279)."""

    replica: int
    number: int
    leader_epoch: int
    epoch: int


class EpochResponse(NamedTuple):
    """The leader's largest epoch up to the requested epoch, and its end offset.

    Both are -1 if there is none.
    """

    number: int
    error: str | None = None
    epoch: int = -1
    end_offset: int = NO_OFFSET
