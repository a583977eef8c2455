"""Current leaders in responses to clients with outdated metadata (KIP-951).

The client can send its next request to the current leader without requesting metadata first.
Source: KafkaApis of Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from logstore.errors import KAFKA_CODES
from logstore.types import TopicPartition
from logstore.wire.nodes import NO_LEADER

if TYPE_CHECKING:
    from logstore.messages.types import FetchResponse, ProduceResponse
    from logstore.wire.session import Session

_OUTDATED = (KAFKA_CODES["NOT_LEADER_OR_FOLLOWER"], KAFKA_CODES["FENCED_LEADER_EPOCH"])


def name_leaders(
    response: ProduceResponse | FetchResponse,
    partitions: Iterable[tuple[TopicPartition, Any]],
    session: Session,
) -> None:
    """Add the leaders of refused partitions, and the addresses of running leaders.

    Parameters
    ----------
    partitions : iterable of (TopicPartition, structure)
        All partitions of the response. Only partitions with NOT_LEADER_OR_FOLLOWER or
        FENCED_LEADER_EPOCH are changed.
    """
    refused = [(tp, found) for tp, found in partitions if found.error_code in _OUTDATED]
    if not refused:
        return
    nodes = session.service.nodes
    addresses = nodes.addresses(session.address)
    structures: Any = type(response)
    endpoints: dict[int, Any] = {}
    for tp, found in refused:
        view = nodes.partition(tp)
        found.current_leader = structures.LeaderIdAndEpoch(
            leader_id=view.leader, leader_epoch=view.leader_epoch
        )
        if view.leader != NO_LEADER and view.leader in addresses:
            host, port = addresses[view.leader]
            endpoints[view.leader] = structures.NodeEndpoint(
                node_id=view.leader, host=host, port=port, rack=nodes.rack(view.leader)
            )
    response.node_endpoints = [endpoints[number] for number in sorted(endpoints)]
