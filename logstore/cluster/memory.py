"""The controller's memory: topics, partition states and cluster-wide broker settings, in a file.

`logstore-cluster.json` is replaced atomically and durably with every change, before any broker
applies it. A cluster that is opened again has the same leader epochs, in-sync replicas and
settings, whichever way it ended. Kafka keeps them in its metadata log.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from logstore.cluster.states import ClusterTopic, PartitionState
from logstore.errors import CorruptCheckpointError
from logstore.names import CLUSTER_FILE, validate_topic_name
from logstore.storage.checkpoint.atomic import read_bytes, write_atomically
from logstore.types import TopicPartition

if TYPE_CHECKING:
    from logstore.runtime import FileSystem

_VERSION = 1
_SETTINGS_VERSION = 2
"""Written once cluster-wide settings were changed; earlier releases can read version 1."""


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

    def read(self) -> tuple[list[ClusterTopic], dict[str, str] | None]:
        """Return the topics and the cluster-wide settings that were written last.

        No topics if there is no file; None if the settings were never written.

        Raises
        ------
        CorruptCheckpointError
            The file cannot be understood.
        """
        if not self._fs.exists(self.path):
            return [], None
        try:
            document = json.loads(read_bytes(self._fs, self.path))
            if document["version"] not in (_VERSION, _SETTINGS_VERSION):
                raise CorruptCheckpointError(
                    "unknown version",
                    path=self.path,
                    check="version",
                    expected=_SETTINGS_VERSION,
                    found=document["version"],
                )
            topics = [_parse(name, stored) for name, stored in document["topics"].items()]
            if document["version"] == _VERSION:
                return topics, None
            return topics, {key: str(text) for key, text in document["settings"].items()}
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise CorruptCheckpointError(
                f"no file of a cluster: {error}", path=self.path, check="json"
            ) from error

    def write(self, topics: Iterable[ClusterTopic], settings: Mapping[str, str] | None) -> None:
        """Replace the file's contents, durably."""
        document: dict[str, Any] = {"version": _VERSION}
        if settings is not None:
            document = {"version": _SETTINGS_VERSION, "settings": dict(settings)}
        document["topics"] = {topic.name: _told(topic) for topic in topics}
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
