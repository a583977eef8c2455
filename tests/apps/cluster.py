"""A cluster that ends and restarts its brokers on command: `python -m tests.apps.cluster DIR PORT`.

It prints the bootstrap address, reads commands from lines, and prints a line after each:

- `kill N`, `stop N`, `restart N …`: `done`. A restart is done once every replica of every partition
  is in sync.
- `trap STATE GROUP`: kills a coordinator in a state (see `traps.Traps.kill`), and prints details
  and the brokers that are down.
- `transactions`: prints the states of all transactional ids.
"""

from __future__ import annotations

import sys

from logstore import Cluster
from tests.apps.brokers import CLUSTER_SETTINGS, CLUSTER_SIZE
from tests.apps.traps import Traps, await_all_in_sync


def main(data_dir: str, port: str) -> None:
    """Serve until standard input ends."""
    with (
        Cluster(
            CLUSTER_SIZE, data_dir=data_dir, broker_config=CLUSTER_SETTINGS, background=True
        ) as cluster,
        cluster.listen(port=int(port), auto_create=False) as listeners,
    ):
        traps = Traps(cluster, int(port))
        say(listeners.bootstrap)
        for line in sys.stdin:
            action, *arguments = line.split()
            say(execute(cluster, traps, action, arguments))


def execute(cluster: Cluster, traps: Traps, action: str, arguments: list[str]) -> str:
    """Execute a command, and return the answer."""
    if action == "trap":
        brokers, details = traps.kill(*arguments)
        return " ".join([details, *map(str, brokers)])
    if action == "transactions":
        return " ".join(sorted(states_of(cluster)))
    for number in map(int, arguments):
        if action == "kill":
            cluster.kill(number)
        elif action == "stop":
            cluster.stop(number)
        else:
            cluster.restart(number)
    if action == "restart":
        await_all_in_sync(cluster)
    return "done"


def say(line: str) -> None:
    """Print a line for the test that reads it."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def states_of(cluster: Cluster) -> set[str]:
    """Return the states in which transactions are, as Kafka names them."""
    return {
        metadata.state.kafka_name
        for broker in cluster.brokers.values()
        for metadata in broker.coordinator.transactions().values()
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
