"""Short ways to fill a broker, read it, and put files under it."""

from __future__ import annotations

from logstore import Broker, TopicPartition
from logstore.runtime.fs import FileSystem


def fill(
    broker: Broker, name: str = "users", partition: int = 0, *, count: int = 20, keys: int = 5
) -> None:
    """Append records one a batch, then roll."""
    for number in range(count):
        key, value = b"k%d" % (number % keys), b"v%d" % number
        broker.append(name, value=value, key=key, partition=partition)
    broker.roll(name, partition)


def values(
    broker: Broker, topic: str | TopicPartition = "users", *arguments: object, **options: object
) -> list[bytes | None]:
    """Return the values that a reader of a topic gets."""
    return [record.value for record in broker.read(topic, *arguments, **options)]


def cleaner_checkpoint(broker: Broker) -> dict[TopicPartition, int]:
    """Return what the cleaner's checkpoint of the first directory holds."""
    return broker.manager.directories[0].checkpoint("cleaner-offset-checkpoint").read()


def write_file(fs: FileSystem, path: str, data: bytes | str) -> None:
    """Write a whole file, also in the place of another."""
    file = fs.open(path, create=True)
    file.truncate(0)
    file.append([data.encode() if isinstance(data, str) else data])
    file.sync()
    file.close()
