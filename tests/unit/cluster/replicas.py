"""Questions about the replicas of one partition."""

from logstore import Cluster, TopicPartition

TP = TopicPartition("users", 0)


def create(cluster: Cluster, **configs: object) -> None:
    """Create the topic, with three replicas; keys with `_` for dots."""
    named = {key.replace("_", "."): str(value) for key, value in configs.items()}
    cluster.create_topic(
        TP.topic, replication_factor=3, configs={"cleanup.policy": "delete", **named}
    )


def settle(cluster: Cluster) -> None:
    """Let all messages that are due arrive."""
    cluster.clock.advance(ms=1)


def values(cluster: Cluster, broker: int) -> list[bytes | None]:
    """Return the records that a consumer reads from a broker."""
    return [record.value for record in cluster.brokers[broker].read(TP)]


def ends(cluster: Cluster) -> dict[int, int]:
    """Return the log ends of the brokers that run."""
    return {number: broker.log(TP).log_end_offset for number, broker in cluster.brokers.items()}


def starts(cluster: Cluster) -> dict[int, int]:
    """Return the log starts of the brokers that run."""
    return {number: broker.log(TP).log_start_offset for number, broker in cluster.brokers.items()}


def log_files(cluster: Cluster, broker: int) -> dict[str, bytes]:
    """Return the `.log` files of a replica."""
    process = cluster.brokers[broker]
    fs, folder = process.runtime.fs, process.log(TP).directory
    found = {}
    for name in fs.list_dir(folder):
        if name.endswith(".log"):
            file = fs.open(f"{folder}/{name}")
            found[name] = file.read(0, file.size())
            file.close()
    return found


def assert_alike(cluster: Cluster) -> None:
    """All replicas have the same bytes, files and epochs."""
    first = log_files(cluster, 0)
    assert any(first.values())
    for broker in cluster.brokers:
        assert log_files(cluster, broker) == first
    # A leader's epoch reaches the others with its first record.
    logs = [broker.log(TP) for broker in cluster.brokers.values()]
    epochs = [[e for e in log.epochs.entries if e[1] < log.log_end_offset] for log in logs]
    assert epochs == [epochs[0]] * len(logs)
