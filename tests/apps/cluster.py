"""A cluster that ends and restarts its brokers on command: `python -m tests.apps.cluster DIR PORT`.

It prints the bootstrap address, reads lines `kill N`, `stop N` and `restart N`, and prints `done`
after each. A restart is done once every replica of every partition is in sync.
"""

from __future__ import annotations

import sys
import threading

from logstore import Cluster
from tests.apps.brokers import CLUSTER_SETTINGS, CLUSTER_SIZE


def main(data_dir: str, port: str) -> None:
    """Serve until standard input ends."""
    with (
        Cluster(
            CLUSTER_SIZE, data_dir=data_dir, broker_config=CLUSTER_SETTINGS, background=True
        ) as cluster,
        cluster.listen(port=int(port), auto_create=False) as listeners,
    ):
        say(listeners.bootstrap)
        for line in sys.stdin:
            action, number = line.split()
            if action == "kill":
                cluster.kill(int(number))
            elif action == "stop":
                cluster.stop(int(number))
            else:
                cluster.restart(int(number))
                await_all_in_sync(cluster)
            say("done")


def say(line: str) -> None:
    """Print a line for the test that reads it."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def await_all_in_sync(cluster: Cluster) -> None:
    """Wait until no partition of the cluster lacks a replica."""
    pause = threading.Event()
    while any(
        len(partition.isr) < len(partition.replicas)
        for topic in cluster.topics()
        for partition in topic.partitions
    ):
        pause.wait(0.05)


if __name__ == "__main__":
    main(*sys.argv[1:])
