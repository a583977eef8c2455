"""Several brokers in one process that replicate their logs, with a controller and a network.

| module | what it is |
|---|---|
| `cluster` | `Cluster`: puts the parts together; topics, faults, and a client that knows all |
| `controller`, `states` | leaders, leader epochs, in-sync replicas; one object, never failing |
| `store` | what the controller knows, in a file |
| `network` | the links between brokers: cut, slowed, healed |
| `replicas` | one broker's replicas: takes the controller's states, and messages of others |
| `station` | what leaders and followers need of the world: identity, messages, tasks |
| `leadership` | a partition that is led here: followers' progress, high and low watermark, ISR |
| `following` | a partition that follows: truncation by leader epochs, fetching |
| `messages` | Fetch and OffsetForLeaderEpoch, one partition each |
| `requests` | requests that wait for replicas: acks=all, delete-records |
| `wire`, `coordination` | a listener for each broker; the coordinators of groups and transactions |

A broker of a cluster is an ordinary `Broker` with `replicated=True`: its logs open at their stored
high watermark, and refuse to be written (`LogWriter.refuse`) until a `Leadership` takes them.

Locks: a log's, then the controller's, which is a leaf. Whoever has a log's lock sends messages and
schedules tasks, and calls nobody at another broker.
"""

from logstore.cluster.cluster import Cluster
from logstore.cluster.controller import Controller
from logstore.cluster.network import Network
from logstore.cluster.states import NO_LEADER, ClusterTopic, PartitionState

__all__ = ["NO_LEADER", "Cluster", "ClusterTopic", "Controller", "Network", "PartitionState"]
