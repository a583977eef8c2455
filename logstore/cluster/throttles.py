"""Throttled replication: a broker's quota for out-of-sync replicas.

`leader.replication.throttled.rate` and `follower.replication.throttled.rate` limit the bytes per
second. They apply to the replicas that a topic lists in `leader.replication.throttled.replicas` and
`follower.replication.throttled.replicas`. A transfer may exceed the limit; the next transfer then
waits until the average is within the limit again. Kafka averages over samples of one second.

Source: Kafka's ReplicationQuotaManager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from logstore.config.dynamic import Layer, own_layer
from logstore.errors import UnknownTopicOrPartitionError

if TYPE_CHECKING:
    from collections.abc import Callable

    from logstore.cluster.controller import Controller
    from logstore.config.broker_config import BrokerConfig
    from logstore.types import TopicPartition


class ReplicationQuota:
    """A broker's quota as a leader or as a follower.

    Parameters
    ----------
    side : "leader" or "follower"
    controller : Controller
        Contains the topic configs.
    config : callable
        Returns the broker's current settings.
    monotonic_ms : callable
    """

    def __init__(
        self,
        side: Literal["leader", "follower"],
        controller: Controller,
        config: Callable[[], BrokerConfig],
        monotonic_ms: Callable[[], int],
    ) -> None:
        self._replicas_key = f"{side}.replication.throttled.replicas"
        self._rate_key = f"{side}.replication.throttled.rate"
        self._controller = controller
        self._config = config
        self._monotonic_ms = monotonic_ms
        self._free_ms = 0.0

    def applies_to(self, topic_partition: TopicPartition, replica: int) -> bool:
        """Return whether the topic's config lists a replica as throttled."""
        try:
            configs = self._controller.topic(topic_partition.topic).configs
        except UnknownTopicOrPartitionError:
            return False
        listed = configs.get(self._replicas_key)
        if listed is None:
            return False
        wanted = {"*", f"{topic_partition.partition}:{replica}"}
        return any(each.strip() in wanted for each in listed.split(","))

    @property
    def _rate(self) -> int | None:
        config = self._config()
        for layer in (Layer.BROKER, Layer.CLUSTER):
            text = own_layer(config, layer).get(self._rate_key)
            if text is not None:
                return max(1, int(text))
        return None

    def delay_ms(self) -> int:
        """Return the milliseconds until the next transfer is allowed, or 0 if it is allowed now."""
        if self._rate is None:
            return 0
        return max(0, round(self._free_ms - self._monotonic_ms()))

    def spend(self, size: int) -> None:
        """Count the bytes of a transfer against the quota."""
        rate = self._rate
        if rate is not None:
            self._free_ms = max(self._free_ms, self._monotonic_ms()) + size * 1000 / rate
