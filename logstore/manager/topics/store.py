"""The stored topics: names, partitions and overrides, in `logstore-topics.json`.

The file is in the first data directory. A partition folder without a stored topic was copied from a
broker and is adopted with the default configuration. The file also contains the broker settings
that were changed at run time, because topics depend on them, and the configurations of groups.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from logstore.config.dynamic import Layer
from logstore.config.group_keys import parse_group_overrides
from logstore.errors import (
    CorruptCheckpointError,
    InvalidConfigurationError,
    InvalidTopicError,
    TopicAlreadyExistsError,
)
from logstore.names import validate_topic_name
from logstore.runtime.fs import FileSystem
from logstore.storage.checkpoint.atomic import read_bytes, write_atomically
from logstore.types import INT32_MAX, SMALL_FILE_MAX_BYTES, decode_topic_id

logger = logging.getLogger(__name__)

TOPICS_FILE = "logstore-topics.json"
_VERSION = 2
_SETTINGS_VERSION = 3
_GROUPS_VERSION = 4
_VERSIONS = (1, _VERSION, _SETTINGS_VERSION, _GROUPS_VERSION)
"""Versions that are read.

Version 1 has no ids; the next start for writing adds them. Version 3 has broker settings, version 4
configurations of groups; they are written only if there are any.
"""


@dataclass(frozen=True, slots=True)
class Topic:
    """A stored or adopted topic.

    Attributes
    ----------
    partitions : tuple of int
        Partition numbers, ascending. A copied topic may lack some numbers.
    configs : mapping of str to str
        Overrides by Kafka's config names.
    adopted : bool
        Whether the topic is only derived from folders. Such a topic has no background work.
    deleting : bool
        Whether deletion was requested. If necessary, the next start completes it.
    id : str or None
        22 characters (`logstore.manager.topics.ids`). None for an adopted topic without an id in
        its folders and, until the next start for writing, for a topic stored by an older version.
    """

    name: str
    partitions: tuple[int, ...]
    configs: Mapping[str, str] = field(default_factory=dict)
    adopted: bool = False
    deleting: bool = False
    id: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the topic as `logstore topic` prints it."""
        return {
            "name": self.name,
            "partitions": len(self.partitions),
            "configs": dict(self.configs),
            "partition_numbers": list(self.partitions),
            "adopted": self.adopted,
            "id": self.id,
        }


class TopicStore:
    """The file `logstore-topics.json`. If `is_tolerant`, a damaged file counts as empty.

    Attributes
    ----------
    changes : int
        Number of changes to topics so far.
    """

    def __init__(
        self,
        fs: FileSystem,
        log_dir: str,
        max_bytes: int = SMALL_FILE_MAX_BYTES,
        *,
        is_tolerant: bool = False,
    ) -> None:
        self._fs = fs
        self._max_bytes = max_bytes
        self.path = f"{log_dir}/{TOPICS_FILE}"
        self._settings: dict[Layer, Mapping[str, str]] = {}
        self._groups: dict[str, Mapping[str, str]] = {}
        self.changes = 0
        try:
            self._topics = self._read()
        except CorruptCheckpointError as error:
            if not is_tolerant:
                raise
            logger.warning("%s; it is treated as empty", error)
            self._topics = {}

    def __contains__(self, name: str) -> bool:
        return name in self._topics

    def get(self, name: str) -> Topic | None:
        """Return a stored topic, or None if it is not stored."""
        return self._topics.get(name)

    def all(self) -> list[Topic]:
        """Return the stored topics by name."""
        return [self._topics[name] for name in sorted(self._topics)]

    def create(
        self,
        name: str,
        partitions: Iterable[int],
        configs: Mapping[str, str],
        topic_id: str | None = None,
    ) -> Topic:
        """Store a new topic. The change is durable on return.

        Raises
        ------
        InvalidTopicError, TopicAlreadyExistsError
        """
        validate_topic_name(name)
        if name in self._topics:
            raise TopicAlreadyExistsError(f"topic '{name}' already exists")
        return self._put(Topic(name, tuple(sorted(partitions)), configs, id=topic_id))

    def set_partitions(self, name: str, partitions: Iterable[int]) -> Topic:
        """Replace the partition numbers of a stored topic. The change is durable on return."""
        return self._put(replace(self._topics[name], partitions=tuple(sorted(partitions))))

    def set_configs(self, name: str, configs: Mapping[str, str]) -> Topic:
        """Replace the overrides of a stored topic. The change is durable on return."""
        return self._put(replace(self._topics[name], configs=configs))

    def mark_deleting(self, name: str) -> Topic:
        """Mark a stored topic for deletion. The change is durable on return."""
        return self._put(replace(self._topics[name], deleting=True))

    def remove(self, name: str) -> None:
        """Forget a stored topic. The change is durable on return."""
        del self._topics[name]
        self.changes += 1
        self._write()

    def put(self, topics: Iterable[Topic]) -> None:
        """Store topics, replacing topics with the same names.

        The change is durable and atomic: a reader, or the next start after a crash, sees either all
        of the topics or none. If it fails, the previous topics remain in effect.
        """
        previous = self._topics
        changed = {topic.name: topic for topic in topics}
        for name in changed:
            validate_topic_name(name)
        self._topics = previous | changed
        self.changes += 1
        try:
            self._write()
        except OSError:
            self._topics = previous
            self.changes += 1
            raise

    def settings(self, layer: Layer) -> Mapping[str, str]:
        """Return the broker settings that were set in a layer at run time."""
        return self._settings.get(layer, {})

    def put_settings(self, layers: Mapping[Layer, Mapping[str, str]]) -> None:
        """Replace the broker settings.

        The change is durable on return. If it fails, the previous settings remain in effect.
        """
        previous, self._settings = self._settings, dict(layers)
        try:
            self._write()
        except OSError:
            self._settings = previous
            raise

    @property
    def groups(self) -> Mapping[str, Mapping[str, str]]:
        """The configurations of groups by group id. Groups without configuration are absent."""
        return self._groups

    def put_group(self, group_id: str, configs: Mapping[str, str]) -> None:
        """Replace the configurations of a group.

        The change is durable on return. If it fails, the configurations do not change.
        """
        previous = self._groups
        self._groups = {**previous, group_id: configs}
        if not configs:
            del self._groups[group_id]
        try:
            self._write()
        except OSError:
            self._groups = previous
            raise

    def _put(self, topic: Topic) -> Topic:
        self.put([topic])
        return topic

    def _read(self) -> dict[str, Topic]:
        if not self._fs.exists(self.path):
            return {}
        try:
            document = json.loads(read_bytes(self._fs, self.path, self._max_bytes))
            if document["version"] not in _VERSIONS:
                raise CorruptCheckpointError(
                    "unknown version",
                    path=self.path,
                    check="version",
                    expected=_GROUPS_VERSION,
                    found=document["version"],
                )
            self._settings = _parse_settings(document)
            self._groups = parse_groups(document.get("groups", {}))
            return {name: _parse_topic(name, stored) for name, stored in document["topics"].items()}
        except (
            ValueError,
            KeyError,
            TypeError,
            AttributeError,
            RecursionError,  # the parser raises this error for a thousand nested brackets
            InvalidTopicError,
            InvalidConfigurationError,
        ) as error:
            raise CorruptCheckpointError(
                f"not a topics file: {error}", path=self.path, check="json"
            ) from error

    def _write(self) -> None:
        settings = {layer: dict(texts) for layer, texts in self._settings.items() if texts}
        version = _SETTINGS_VERSION if settings else _VERSION
        document = {
            "version": _GROUPS_VERSION if self._groups else version,
            **({"settings": settings} if settings else {}),
            **({"groups": dict(self._groups)} if self._groups else {}),
            "topics": {
                topic.name: {
                    "partitions": list(topic.partitions),
                    "configs": dict(topic.configs),
                    **({} if topic.id is None else {"id": topic.id}),
                    **({"deleting": True} if topic.deleting else {}),
                }
                for topic in self.all()
            },
        }
        text = json.dumps(document, indent=2) + "\n"
        write_atomically(self._fs, self.path, text.encode())


def _parse_settings(document: Any) -> dict[Layer, Mapping[str, str]]:  # noqa: ANN401  # JSON
    return {
        Layer(layer): {str(key): str(text) for key, text in texts.items()}
        for layer, texts in document.get("settings", {}).items()
    }


def parse_groups(stored: Any) -> dict[str, Mapping[str, str]]:  # noqa: ANN401  # JSON
    """Return the group configurations in a file. Raises `InvalidConfigurationError`."""
    return {str(group): parse_group_overrides(configs) for group, configs in stored.items()}


def _parse_topic(name: str, stored: Any) -> Topic:  # noqa: ANN401  # any JSON value
    """Return a stored topic after validating its name and partition numbers."""
    validate_topic_name(name)
    numbers = stored["partitions"]
    if not isinstance(numbers, list) or not all(
        type(number) is int and 0 <= number <= INT32_MAX for number in numbers
    ):
        raise ValueError(f"partitions of {name!r} must be a list of numbers")
    if len(set(numbers)) != len(numbers):
        raise ValueError(f"a partition of {name!r} is listed twice")
    configs = {str(key): str(value) for key, value in stored["configs"].items()}
    deleting = stored.get("deleting", False) is True
    topic_id = stored.get("id")
    if topic_id is not None and not any(decode_topic_id(topic_id)):
        raise ValueError(f"the id of {name!r} is zero")
    return Topic(name, tuple(sorted(numbers)), configs, deleting=deleting, id=topic_id)
