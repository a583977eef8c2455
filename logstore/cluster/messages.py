"""The messages between replicas: Fetch and OffsetForLeaderEpoch, one partition each."""

from __future__ import annotations

from typing import NamedTuple

from logstore.types import NO_OFFSET


class FetchRequest(NamedTuple):
    """A follower's fetch, which also reports its progress.

    Attributes
    ----------
    replica : int
        Broker id of the follower.
    number : int
        Increasing request number, returned in the response. Only the latest one counts.
    leader_epoch : int
        Leader epoch known to the follower.
    offset : int
        Log end offset of the follower.
    log_start_offset : int
        Log start offset of the follower (KIP-107).
    heard : (int, int) or None
        The leader's last known high watermark and log start in this epoch. If they differ, the
        leader responds immediately, even without records.
    """

    replica: int
    number: int
    leader_epoch: int
    offset: int
    log_start_offset: int
    heard: tuple[int, int] | None


class FetchResponse(NamedTuple):
    """Batches from the requested offset, and the leader's offsets.

    `error` is Kafka's error name. With `OFFSET_OUT_OF_RANGE`, the follower moves to the log
    start or log end of the leader.
    """

    number: int
    leader_epoch: int
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
    """The leader's largest epoch up to the requested one, and its end offset, or -1 if none."""

    number: int
    leader_epoch: int
    error: str | None = None
    epoch: int = -1
    end_offset: int = NO_OFFSET
