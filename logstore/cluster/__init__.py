"""Several brokers in one process that replicate their logs, with a controller and a network.

| module | contents |
|---|---|
| `cluster` | `Cluster`: combines the parts; topics, faults, and a client |
| `controller`, `states` | leaders, leader epochs, in-sync replicas. One object that never fails |
| `memory` | the controller's state in a file |
| `network` | the links between brokers: partitioned, slowed, healed |
| `replicas` | the replicas of one broker: applies the controller's states, receives messages |
| `station` | the interface of leaders and followers to their broker: identity, messages, tasks |
| `leadership` | a partition led by the broker: followers' progress, watermarks, ISR |
| `following` | a partition that follows: truncation by leader epochs, fetching |
| `messages` | Fetch and OffsetForLeaderEpoch, one partition each |
| `requests` | requests that wait for replicas: acks=all, delete-records |
| `wire`, `coordination` | a listener for each broker; the coordinators of groups and transactions |

A broker of a cluster is an ordinary `Broker` with a `host`: its logs open at their stored high
watermark and refuse writes (`LogWriter.refuse`) until a `Leadership` takes over.

Lock order: a log's lock, then the controller's. Code that holds a log's lock may send messages and
schedule tasks, but must not call another broker.
"""

from logstore.cluster.cluster import Cluster
from logstore.cluster.controller import Controller
from logstore.cluster.network import Network
from logstore.cluster.states import NO_LEADER, ClusterTopic, PartitionState

__all__ = ["NO_LEADER", "Cluster", "ClusterTopic", "Controller", "Network", "PartitionState"]
