"""The topics of a broker and their configuration: stored topics, and folders of adopted topics."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from logstore.config.log_config import LogConfig
from logstore.config.overrides import Overrides, effective_config, parse_overrides
from logstore.errors import InvalidConfigurationError, UnknownTopicOrPartitionError
from logstore.manager.topics.ids import read_topic_id
from logstore.manager.topics.store import Topic, TopicStore
from logstore.names import configs_by_name
from logstore.types import TopicPartition

if TYPE_CHECKING:
    from logstore.config.broker_config import BrokerConfig
    from logstore.manager.topics.partitions import PartitionMap

logger = logging.getLogger(__name__)


class TopicCatalog:
    """The topics of a broker.

    Parameters
    ----------
    store : TopicStore
        The stored topics.
    found : PartitionMap[Any]
        Partitions that have a folder, kept up to date by the owner. A topic that is not stored is
        adopted with these partitions.
    broker_config : BrokerConfig
        Defaults for topics.
    is_tolerant : bool
        Include partitions whose folder exists but that the stored topic lacks, and replace invalid
        overrides with the defaults.
    """

    def __init__(
        self,
        store: TopicStore,
        found: PartitionMap[Any],
        broker_config: BrokerConfig,
        *,
        is_tolerant: bool = False,
    ) -> None:
        self._is_tolerant = is_tolerant
        self.store = store
        self._found = found
        self.broker_config = broker_config
        self._overrides: dict[str, Overrides] = {}
        self._folder_ids: dict[str, str | None] = {}
        # Topics by name, with the `changes` value as of which they are valid. Cached because they
        # are requested once per partition.
        self._topics: dict[str, tuple[int, Topic]] = {}
        # The last effective config of each topic. Cached because it is requested once per
        # partition.
        self._effective: dict[str, tuple[Mapping[str, str], BrokerConfig, LogConfig]] = {}

    @property
    def changes(self) -> int:
        """Number of changes so far. While it is unchanged, `topics` returns the same topics."""
        return self.store.changes + self._found.changes

    def topics(self) -> list[Topic]:
        """Return stored and adopted topics by name, except topics that are being deleted."""
        names = {*self._found.topics(), *(topic.name for topic in self.store.all())}
        return [self.topic(name) for name in sorted(names) if not self.is_being_deleted(name)]

    def topic(self, name: str) -> Topic:
        """Return a stored or adopted topic.

        Raises
        ------
        UnknownTopicOrPartitionError
        """
        stored = self.store.get(name)
        if stored is not None and not (self._is_tolerant or stored.deleting):
            return stored
        changes = self.changes
        known = self._topics.get(name)
        if known is None or known[0] != changes:
            known = self._topics[name] = changes, self._with_folders(name, stored)
        return known[1]

    def _with_folders(self, name: str, stored: Topic | None) -> Topic:
        """Return a topic that depends on its partitions' folders; see `topic`."""
        if stored is not None and not stored.deleting:
            there = self._found.numbers(name)
            return replace(stored, partitions=tuple(sorted(there | set(stored.partitions))))
        numbers = tuple(sorted(self._found.numbers(name)))
        if not numbers or stored is not None:
            raise UnknownTopicOrPartitionError(f"unknown topic '{name}'")
        known = configs_by_name(name)
        configs = {} if known is None else known.configs
        return Topic(name, numbers, configs, adopted=True, id=self.folder_id(name))

    def folder_id(self, name: str) -> str | None:
        """Return the first topic id in a topic's folders. The folders are only read once."""
        if name not in self._folder_ids:
            self._folder_ids[name] = next(iter(self.folder_ids(name)), None)
        return self._folder_ids[name]

    def folder_ids(self, name: str) -> Iterator[str]:
        """Yield the topic id stored in each partition directory of a topic, by partition."""
        for tp in self._found.of(name):
            directory = self._found[tp]
            if directory.is_online:
                found = read_topic_id(directory.runtime.fs, directory.partition_path(tp))
                if found is not None:
                    yield found

    def is_being_deleted(self, name: str) -> bool:
        """Return whether the deletion of a topic was requested but is not complete."""
        stored = self.store.get(name)
        return stored is not None and stored.deleting

    def partitions(
        self, topic: str | None = None, partition: int | None = None
    ) -> list[TopicPartition]:
        """Return the partitions of one topic or of all topics, in order.

        Raises
        ------
        UnknownTopicOrPartitionError
        """
        if topic is None:
            return [TopicPartition(t.name, n) for t in self.topics() for n in t.partitions]
        numbers = self.topic(topic).partitions
        if partition is not None:
            if partition not in numbers:
                raise UnknownTopicOrPartitionError(f"topic '{topic}' has no partition {partition}")
            numbers = (partition,)
        return [TopicPartition(topic, number) for number in numbers]

    def override(self, topic: str, configs: Mapping[str, object]) -> None:
        """Override a topic's configs, in memory only.

        Raises
        ------
        InvalidConfigurationError, UnknownTopicOrPartitionError
            Nothing was changed.
        """
        stored, (laid, _) = self.topic(topic).configs, parse_overrides(configs)
        effective_config(parse_overrides(stored)[0] | laid, self.broker_config)
        self._overrides[topic] = laid

    def check_defaults(self, broker_config: BrokerConfig) -> None:
        """Check new defaults against the topics' overrides.

        Raises
        ------
        InvalidConfigurationError
            The defaults contradict the overrides of a topic.
        """
        for topic in self.topics():
            try:
                effective_config(self.overrides(topic.name), broker_config)
            except InvalidConfigurationError as error:
                raise InvalidConfigurationError(f"topic '{topic.name}': {error}") from error

    def forget_override(self, topic: str) -> None:
        """Undo `override` for a topic."""
        self._overrides.pop(topic, None)
        self._folder_ids.pop(topic, None)
        self._effective.pop(topic, None)

    def temporary_overrides(self, topic: str) -> Mapping[str, str]:
        """Return the configs that `override` set for a topic."""
        return self._overrides.get(topic, {})

    def overrides(self, topic: str) -> Mapping[str, str]:
        """Return the topic's configs, updated with the configs of `override`."""
        stored, laid = self.topic(topic).configs, self._overrides.get(topic)
        return stored if laid is None else parse_overrides(stored)[0] | laid

    def config(self, topic: str) -> LogConfig:
        """Return a topic's effective configuration."""
        overrides, broker_config = self.overrides(topic), self.broker_config
        known = self._effective.get(topic)
        if known is not None and known[:2] == (overrides, broker_config):
            return known[2]
        try:
            config = effective_config(overrides, broker_config)
        except InvalidConfigurationError as error:
            if not self._is_tolerant:
                raise
            logger.warning("topic '%s': %s; the defaults are used", topic, error)
            config = effective_config({}, broker_config)
        self._effective[topic] = overrides, broker_config, config
        return config
