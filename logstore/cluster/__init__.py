"""An in-process cluster of brokers that replicate their logs, with a controller and a network.

| module | contents |
|---|---|
| `cluster` | `Cluster`: combines the parts; topics, faults, and a client |
| `controller`, `states` | leaders, leader epochs, in-sync replicas; one object that never fails |
| `memory` | the file that stores the controller's state |
| `network` | the links between brokers, which can be cut, delayed and restored |
| `replicas` | the replicas of one broker; applies the controller's states, receives messages |
| `broker_process` | what leaders and followers use of their broker: identity, messages, tasks |
| `leadership` | a partition that the broker leads: follower progress, watermarks, ISR |
| `replica_fetcher` | a partition that the broker follows: truncation by leader epochs, fetching |
| `messages` | Fetch and OffsetForLeaderEpoch requests for one partition |
| `requests` | requests awaiting replication: acks=all, delete-records |
| `wire`, `coordination` | a listener for each broker; the coordinators of groups and transactions |

A broker in a cluster is an ordinary `Broker` with a `host`. Its logs start at their checkpointed
high watermarks and reject writes (`LogWriter.refuse`) until a `Leadership` begins.

A log's lock is acquired before the controller's lock. Code that holds a log's lock may send
messages and schedule tasks, but must not call another broker.
"""

from logstore.cluster.cluster import Cluster
from logstore.cluster.controller import Controller
from logstore.cluster.network import Network
from logstore.cluster.states import NO_LEADER, ClusterTopic, PartitionState

__all__ = ["NO_LEADER", "Cluster", "ClusterTopic", "Controller", "Network", "PartitionState"]
