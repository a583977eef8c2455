"""The controller's memory: its topics and partition states, in a file beside the brokers'.

`logstore-cluster.json`, replaced at once and durably with every change, before any broker is told:
a cluster that is opened on its folder again has the leader epochs and in-sync replicas that it had,
whichever way it ended. Kafka keeps them in the log of its metadata.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from logstore.checkpoint.atomic import read_bytes, write_atomically
from logstore.cluster.states import ClusterTopic, PartitionState
from logstore.errors import CorruptCheckpointError
from logstore.names import CLUSTER_FILE, validate_topic_name
from logstore.types import TopicPartition

if TYPE_CHECKING:
    from logstore.runtime import FileSystem

_VERSION = 1


class ClusterMemory:
    """The file in one folder.

    Parameters
    ----------
    fs : FileSystem
    directory : str
        Created when missing.
    """

    def __init__(self, fs: FileSystem, directory: str) -> None:
        self._fs = fs
        self.path = f"{directory}/{CLUSTER_FILE}"
        fs.make_dirs(directory)

    def read(self) -> list[ClusterTopic]:
        """Return the topics that were written last; none if nothing was.

        Raises
        ------
        CorruptCheckpointError
            The file cannot be understood.
        """
        if not self._fs.exists(self.path):
            return []
        try:
            document = json.loads(read_bytes(self._fs, self.path))
            if document["version"] != _VERSION:
                raise CorruptCheckpointError(
                    "unknown version",
                    path=self.path,
                    check="version",
                    expected=_VERSION,
                    found=document["version"],
                )
            return [_parse(name, stored) for name, stored in document["topics"].items()]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise CorruptCheckpointError(
                f"no file of a cluster: {error}", path=self.path, check="json"
            ) from error

    def write(self, topics: Iterable[ClusterTopic]) -> None:
        """Replace what was written, durably."""
        document = {"version": _VERSION, "topics": {topic.name: _told(topic) for topic in topics}}
        write_atomically(self._fs, self.path, (json.dumps(document, indent=1) + "\n").encode())


def _told(topic: ClusterTopic) -> dict[str, Any]:
    return {
        "id": topic.id,
        "replication_factor": topic.replication_factor,
        "configs": dict(topic.configs),
        "partitions": [
            {
                "replicas": state.replicas,
                "leader": state.leader,
                "leader_epoch": state.leader_epoch,
                "isr": state.isr,
                "partition_epoch": state.partition_epoch,
            }
            for state in topic.partitions
        ],
    }


def _parse(name: str, stored: Any) -> ClusterTopic:  # noqa: ANN401  # whatever the JSON held
    validate_topic_name(name)
    states = []
    for number, each in enumerate(stored["partitions"]):
        replicas, isr = _ids(each["replicas"]), _ids(each["isr"])
        if not isr or not set(isr) <= set(replicas):
            raise ValueError(f"partition {number} of {name!r} has replicas {replicas}, ISR {isr}")
        numbers = [each[key] for key in ("leader", "leader_epoch", "partition_epoch")]
        if not all(type(number) is int and number >= -1 for number in numbers):
            raise ValueError(f"partition {number} of {name!r} has leader and epochs {numbers}")
        tp = TopicPartition(name, number)
        states.append(PartitionState(tp, replicas, numbers[0], numbers[1], isr, numbers[2]))
    factor, configs = stored["replication_factor"], stored["configs"]
    texts = {str(key): str(value) for key, value in configs.items()}
    return ClusterTopic(name, str(stored["id"]), int(factor), texts, tuple(states))


def _ids(given: Any) -> tuple[int, ...]:  # noqa: ANN401  # see _parse
    if not all(type(each) is int and each >= 0 for each in given) or len(set(given)) < len(given):
        raise ValueError(f"these are no brokers: {given}")
    return tuple(given)
