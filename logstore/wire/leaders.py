"""Present leaders in responses to clients with outdated metadata (KIP-951).

The client can send its next request to that broker without requesting metadata first.
Source: KafkaApis of Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol, TypeVar

from logstore.errors import KAFKA_CODES
from logstore.types import TopicPartition
from logstore.wire.nodes import NO_LEADER

if TYPE_CHECKING:
    from collections.abc import Callable

    from logstore.wire.session import Session

NOT_LEADER = KAFKA_CODES["NOT_LEADER_OR_FOLLOWER"]
FENCED = KAFKA_CODES["FENCED_LEADER_EPOCH"]

E_co = TypeVar("E_co", covariant=True)
L_co = TypeVar("L_co", covariant=True)
E = TypeVar("E")
L = TypeVar("L")


class _Endpoint(Protocol[E_co]):
    def __call__(self, *, node_id: int, host: str, port: int, rack: str | None) -> E_co: ...


class _Leader(Protocol[L_co]):
    def __call__(self, *, leader_id: int, leader_epoch: int) -> L_co: ...


def name_leaders(
    refused: Iterable[tuple[TopicPartition, Callable[[L], object]]],
    leader: _Leader[L],
    endpoint: _Endpoint[E],
    session: Session,
) -> list[E]:
    """Set the leaders of partitions, and return the addresses of those that are running.

    Parameters
    ----------
    refused : iterable of (TopicPartition, callable)
        The callable stores the leader in the response of the partition.
    leader, endpoint : type
        Structures of the response.
    """
    nodes = session.service.nodes
    addresses = nodes.addresses(session.address)
    endpoints: dict[int, E] = {}
    for tp, store in refused:
        view = nodes.partition(tp)
        store(leader(leader_id=view.leader, leader_epoch=view.leader_epoch))
        if view.leader != NO_LEADER and view.leader in addresses:
            host, port = addresses[view.leader]
            endpoints[view.leader] = endpoint(
                node_id=view.leader, host=host, port=port, rack=nodes.rack(view.leader)
            )
    return [endpoints[number] for number in sorted(endpoints)]
