"""A cluster of brokers in one process that replicate their logs, with a controller and a network.

| module | contents |
|---|---|
| `cluster` | `Cluster`: combines the parts; topics, faults, and a client |
| `controller`, `states` | leaders, leader epochs, in-sync replicas; one object that never fails |
| `memory` | the controller's state in a file |
| `network` | the links between brokers, which can be cut, delayed and restored |
| `replicas` | the replicas of one broker; applies the controller's states, receives messages |
| `station` | the interface of leaders and followers to their broker: identity, messages, tasks |
| `leadership` | a partition that the broker leads: progress of followers, watermarks, ISR |
| `following` | a partition that the broker follows: truncation by leader epochs, fetching |
| `messages` | Fetch and OffsetForLeaderEpoch requests for one partition |
| `requests` | requests that wait for replicas: acks=all, delete-records |
| `wire`, `coordination` | a listener for each broker; the coordinators of groups and transactions |

A broker in a cluster is an ordinary `Broker` with a `host`. Its logs are opened at their stored
high watermark. They reject writes (`LogWriter.refuse`) until a `Leadership` begins.

The lock of a log is acquired before the lock of the controller. Code that holds the lock of a log
may send messages and schedule tasks, but must not call another broker.
"""

from logstore.cluster.cluster import Cluster
from logstore.cluster.controller import Controller
from logstore.cluster.network import Network
from logstore.cluster.states import NO_LEADER, ClusterTopic, PartitionState

__all__ = ["NO_LEADER", "Cluster", "ClusterTopic", "Controller", "Network", "PartitionState"]
