"""The file with the controller's state: topics, partition states, settings and group configs.

The file `logstore-cluster.json` is replaced atomically and durably on each change, before any
broker applies the change, so leader epochs, in-sync replicas and settings survive a crash. Kafka
stores them in its metadata log.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from logstore.cluster.states import ClusterTopic, PartitionState
from logstore.errors import CorruptCheckpointError, InvalidConfigurationError
from logstore.manager.topics.store import parse_groups
from logstore.names import CLUSTER_FILE, INTERNAL_COMPACTED_TOPICS, validate_topic_name
from logstore.storage.checkpoint.atomic import read_bytes, write_atomically
from logstore.types import TopicPartition

if TYPE_CHECKING:
    from logstore.runtime import FileSystem

_VERSION = 1
_SETTINGS_VERSION = 2
"""The first version with cluster-wide settings. It is only written if settings are stored."""

_COORDINATORS_VERSION = 3
"""The first version with internal topics, whose contents older programs would ignore.

It may contain settings.
"""

_GROUPS_VERSION = 4
"""The first version with group configs. It is only written if groups have configs.

It may contain all of the above.
"""

_MOVES_VERSION = 5
"""The first version with reassignments. It is only written while reassignments are in progress.

It may contain all of the above.
"""

_VERSIONS = (
    _VERSION,
    _SETTINGS_VERSION,
    _COORDINATORS_VERSION,
    _GROUPS_VERSION,
    _MOVES_VERSION,
)


class ClusterState(NamedTuple):
    """The stored state of a controller.

    Attributes
    ----------
    settings : mapping of str to str, or None
        The cluster-wide settings, or None if they were never stored.
    groups : mapping of str to mapping
        The group configs by group id.
    """

    topics: list[ClusterTopic]
    settings: Mapping[str, str] | None
    groups: Mapping[str, Mapping[str, str]]


class ClusterMemory:
    """Reads and writes the controller's file.

    Parameters
    ----------
    fs : FileSystem
    directory : str
        The directory of the file, which is created if it does not exist.
    """

    def __init__(self, fs: FileSystem, directory: str) -> None:
        self._fs = fs
        self.path = f"{directory}/{CLUSTER_FILE}"
        fs.make_dirs(directory)

    def read(self) -> ClusterState:
        """Return the stored state, which is empty if the file does not exist.

        Raises
        ------
        CorruptCheckpointError
            The file is damaged.
        """
        if not self._fs.exists(self.path):
            return ClusterState([], None, {})
        try:
            document = json.loads(read_bytes(self._fs, self.path))
            if document["version"] not in _VERSIONS:
                raise CorruptCheckpointError(
                    "unknown version",
                    path=self.path,
                    check="version",
                    expected=_MOVES_VERSION,
                    found=document["version"],
                )
            topics = [_parse(name, stored) for name, stored in document["topics"].items()]
            groups = parse_groups(document.get("groups", {}))
            if document["version"] != _SETTINGS_VERSION and "settings" not in document:
                return ClusterState(topics, None, groups)
            settings = {key: str(text) for key, text in document["settings"].items()}
            return ClusterState(topics, settings, groups)
        except (
            ValueError,
            KeyError,
            TypeError,
            AttributeError,
            RecursionError,
            InvalidConfigurationError,
        ) as error:
            raise CorruptCheckpointError(
                f"malformed controller state: {error}", path=self.path, check="json"
            ) from error

    def write(
        self,
        topics: Collection[ClusterTopic],
        settings: Mapping[str, str] | None,
        groups: Mapping[str, Mapping[str, str]],
    ) -> None:
        """Replace the file durably."""
        stored = {topic.name: _json_of(topic) for topic in topics}
        document: dict[str, Any] = {"version": _VERSION}
        if settings is not None:
            document = {"version": _SETTINGS_VERSION, "settings": dict(settings)}
        if not stored.keys().isdisjoint(INTERNAL_COMPACTED_TOPICS):
            document["version"] = _COORDINATORS_VERSION
        if groups:
            document |= {"version": _GROUPS_VERSION, "groups": groups}
        if any(state.is_moving for topic in topics for state in topic.partitions):
            document["version"] = _MOVES_VERSION
        document["topics"] = stored
        write_atomically(self._fs, self.path, (json.dumps(document, indent=1) + "\n").encode())


def _json_of(topic: ClusterTopic) -> dict[str, Any]:
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
                **_moves_of(state),
            }
            for state in topic.partitions
        ],
    }


def _moves_of(state: PartitionState) -> dict[str, Any]:
    if not state.is_moving:
        return {}
    return {"adding": state.adding, "removing": state.removing}


def _parse(name: str, stored: Any) -> ClusterTopic:  # noqa: ANN401  # whatever the JSON held
    validate_topic_name(name)
    states = []
    for number, each in enumerate(stored["partitions"]):
        replicas, isr = _ids(each["replicas"]), _ids(each["isr"])
        if not isr or not set(isr) <= set(replicas):
            raise ValueError(f"partition {number} of {name!r} has replicas {replicas}, ISR {isr}")
        moves = [_ids(each.get(key, ())) for key in ("adding", "removing")]
        if not {*moves[0], *moves[1]} <= set(replicas):
            raise ValueError(f"partition {number} of {name!r} has replicas {replicas}, not {moves}")
        numbers = [each[key] for key in ("leader", "leader_epoch", "partition_epoch")]
        if not all(type(number) is int and number >= -1 for number in numbers):
            raise ValueError(f"partition {number} of {name!r} has leader and epochs {numbers}")
        tp = TopicPartition(name, number)
        states.append(PartitionState(tp, replicas, numbers[0], numbers[1], isr, numbers[2], *moves))
    factor, configs = stored["replication_factor"], stored["configs"]
    texts = {str(key): str(value) for key, value in configs.items()}
    return ClusterTopic(name, str(stored["id"]), int(factor), texts, tuple(states))


def _ids(given: Any) -> tuple[int, ...]:  # noqa: ANN401  # see _parse
    if not all(type(each) is int and each >= 0 for each in given) or len(set(given)) < len(given):
        raise ValueError(f"invalid broker ids: {given}")
    return tuple(given)
