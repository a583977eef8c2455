"""Administration of topics: creation, alteration, deletion, ids."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING

from logstore.config.dynamic import Layer, own_layer, reconfigure, with_layer
from logstore.config.group_keys import alter_group_overrides, check_new_group
from logstore.config.overrides import alter_overrides, effective_config
from logstore.errors import (
    InvalidTopicError,
    KafkaStorageError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from logstore.manager.topics.ids import random_topic_id
from logstore.manager.topics.store import Topic
from logstore.names import validate_topic_name
from logstore.runtime import one_at_a_time

if TYPE_CHECKING:
    from logstore.config.broker_config import BrokerConfig
    from logstore.config.log_config import LogConfig
    from logstore.manager.registry import LogRegistry
    from logstore.manager.services import LogServices
    from logstore.manager.topics.catalog import TopicCatalog
    from logstore.types import TopicPartition


class TopicAdmin:
    """Makes changes to a broker's topics, one at a time.

    Parameters
    ----------
    registry : LogRegistry
        The logs and the directories. The topics are stored in the first directory.
    catalog : TopicCatalog
    services : LogServices
        Receives configuration changes.
    lock : context manager
        The registry's lock.
    """

    def __init__(
        self,
        registry: LogRegistry,
        catalog: TopicCatalog,
        services: LogServices,
        lock: AbstractContextManager[object],
    ) -> None:
        self._registry = registry
        self._catalog = catalog
        self._store = catalog.store
        self._services = services
        self._lock = lock

    @one_at_a_time
    def create(
        self,
        name: str,
        partitions: int,
        configs: Mapping[str, object],
        *,
        hosted: Iterable[int] | None = None,
        topic_id: str | None = None,
    ) -> Topic:
        """Store a topic and create its logs. Folders of copied partitions are adopted unchanged.

        Parameters
        ----------
        hosted : iterable of int, optional
            The partitions on this broker, if other brokers have the rest. [default: all]
        topic_id : str, optional
            The topic's id on other brokers. [default: the id in its folders, or a new one]

        Raises
        ------
        InvalidTopicError, TopicAlreadyExistsError, InvalidConfigurationError
        InconsistentTopicIdError
            Nothing was created. `InconsistentTopicIdError` means that copied folders have different
            topic ids.
        """
        validate_topic_name(name)
        if name in self._store:
            raise TopicAlreadyExistsError(f"topic '{name}' already exists")
        if partitions < 1:
            raise InvalidTopicError(f"a topic needs at least 1 partition, not {partitions}")
        overrides, _ = alter_overrides({}, configs, (), self._catalog.broker_config)
        copied = self._registry.partitions_of(name)
        for tp in copied:
            directory = self._registry.directory_of(tp)
            found = self._registry.checked_topic_id(tp, topic_id, directory)
            topic_id = found or topic_id
        here = range(partitions) if hosted is None else hosted
        numbers = sorted({tp.partition for tp in copied}.union(here))
        with self._storing():
            topic_id = topic_id or self._new_id()
            topic = self._store.create(name, numbers, overrides, topic_id)
        self._config_changed(name)
        self._registry.create_logs(name, numbers)
        return topic

    @one_at_a_time
    def create_partitions(
        self, name: str, total: int, *, hosted: Iterable[int] | None = None
    ) -> Topic:
        """Add partitions to a stored topic, up to `total`.

        `hosted` lists the partitions on this broker, if other brokers have the rest.

        Raises
        ------
        UnknownTopicOrPartitionError
            The topic is not stored.
        """
        stored = self._store.get(name)
        if stored is None or stored.deleting:
            raise UnknownTopicOrPartitionError(f"unknown topic '{name}'")
        here = range(total) if hosted is None else hosted
        numbers = sorted({*stored.partitions, *here})
        with self._storing():
            topic = self._store.set_partitions(name, numbers)
        self._registry.create_logs(name, numbers)
        return topic

    @one_at_a_time
    def alter(
        self, name: str, set_configs: Mapping[str, object], unset: Iterable[str] = ()
    ) -> tuple[Topic, tuple[str, ...]]:
        """Change a topic's configuration. The change is stored and takes effect immediately.

        An adopted topic becomes a stored topic.

        Returns
        -------
        Topic, tuple of str
            The stored topic, and messages about old names that were translated.

        Raises
        ------
        UnknownTopicOrPartitionError, InvalidConfigurationError
            Nothing was changed.
        IllegalStateError
            This thread is changing or cleaning a partition of the topic. Nothing was changed.
        """
        topic, before = self._catalog.topic(name), self._catalog.config(name)
        self._registry.check_not_inside(name)
        broker_config = self._catalog.broker_config
        configs, notes = alter_overrides(topic.configs, set_configs, unset, broker_config)
        with self._storing():
            if topic.adopted:
                topic_id = self._id_of_folders(topic)
                topic = self._store.create(name, topic.partitions, configs, topic_id)
            else:
                topic = self._store.set_configs(name, configs)
        self._config_changed(name, before)
        return topic, notes

    @one_at_a_time
    def override(self, topic: str, configs: Mapping[str, object]) -> None:
        """Override a topic's configs until the manager is closed."""
        before = self._catalog.config(topic)
        self._catalog.override(topic, configs)
        self._config_changed(topic, before)

    @one_at_a_time
    def reconfigure(
        self, changes: Mapping[str, object], layer: Layer = Layer.BROKER
    ) -> tuple[str, ...]:
        """Change broker settings at run time; see `logstore.config.dynamic.reconfigure`.

        The settings are stored and take precedence over the properties file at the next start. The
        change is refused if the new defaults contradict a topic's configuration.
        """
        config, notes = self.check_reconfigured(changes, layer)
        self._apply(config)
        return notes

    @one_at_a_time
    def alter_group(
        self, group_id: str, configs: Mapping[str, object], unset: Iterable[str] = ()
    ) -> None:
        """Change a group's configuration durably. The group need not exist.

        Raises
        ------
        InvalidConfigurationError
            See `logstore.config.group_keys`. Nothing was changed.
        """
        groups, broker = self._store.groups, self._catalog.broker_config
        check_new_group(group_id, groups)
        own = groups.get(group_id, {})
        changed = alter_group_overrides(own, configs, unset, broker)
        if changed != own:
            with self._storing():
                self._store.put_group(group_id, changed)

    @one_at_a_time
    def replace_settings(self, texts: Mapping[str, str], layer: Layer) -> None:
        """Replace a layer of broker settings that were validated when they were set."""
        broker_config = self._catalog.broker_config
        if dict(own_layer(broker_config, layer)) == dict(texts):
            return
        config = with_layer(broker_config, texts, layer)
        self._catalog.check_defaults(config)
        self._apply(config)

    def _apply(self, config: BrokerConfig) -> None:
        """Store the dynamic settings of a broker and apply them."""
        catalog = self._catalog
        for log in self._registry.open_logs():
            log.check_not_inside()
        before = {topic.name: catalog.config(topic.name) for topic in catalog.topics()}
        with self._storing():
            self._store.put_settings({each: own_layer(config, each) for each in Layer})
        catalog.broker_config = config
        for name, old in before.items():
            self._config_changed(name, old)
        self._services.events.reconfigured.emit(config)

    def check_reconfigured(
        self, changes: Mapping[str, object], layer: Layer = Layer.BROKER
    ) -> tuple[BrokerConfig, tuple[str, ...]]:
        """Return the result of `reconfigure` without applying it. Raises the same errors."""
        config, notes = reconfigure(self._catalog.broker_config, changes, layer)
        self._catalog.check_defaults(config)
        return config, notes

    def _config_changed(self, topic: str, before: LogConfig | None = None) -> None:
        config = self._catalog.config(topic)
        if before is not None and before.winner_keys != config.winner_keys:
            # A superseded record at the log end may have been retained, so clean it again.
            partitions = self._registry.partitions_of(topic)
            for directory in {self._registry.directory_of(tp) for tp in partitions}:
                with directory.guard("cannot write the cleaner checkpoint"):
                    directory.redirty_last_cleaned(topic)
        for log in self._registry.open_logs_of(topic):
            log.set_config(config)
        self._services.events.config_changed.emit(topic)

    def delete(self, name: str) -> None:
        """Delete a topic. Its files are removed after `file.delete.delay.ms`.

        Raises
        ------
        UnknownTopicOrPartitionError
        KafkaStorageError
            The disk failed, or some partitions are in an offline directory. The next start deletes
            the remaining partitions.
        IllegalStateError
            This thread is changing or cleaning a partition of the topic. Nothing was changed.
        """
        try:
            self._mark_and_delete(name)
        finally:
            self._services.events.topic_deleted.emit()

    @one_at_a_time
    def _mark_and_delete(self, name: str) -> None:
        topic = self._catalog.topic(name)
        self._registry.check_not_inside(name)
        delay_ms = self._catalog.config(name).file_delete_delay_ms
        if not topic.adopted:  # after a crash, the next start continues
            with self._storing():
                self._store.mark_deleting(name)
        self._delete(name, delay_ms)

    def _delete(self, name: str, delay_ms: int) -> None:
        self._registry.remove_partitions(name, delay_ms)
        self._catalog.forget_override(name)
        offline = [
            directory.path for directory in self._registry.directories if not directory.is_online
        ]
        if offline:
            raise KafkaStorageError(
                f"topic '{name}' may have partitions in {', '.join(offline)}, which is offline;"
                " all others were deleted"
            )
        if name in self._store:
            with self._storing():
                self._store.remove(name)
        self._registry.schedule_folder_deletion(delay_ms)

    def remove_partition(self, topic_partition: TopicPartition) -> None:
        """Delete one partition of a topic whose other partitions are on other brokers.

        Raises
        ------
        UnknownTopicOrPartitionError, KafkaStorageError
        """
        is_last = True
        try:
            is_last = self._remove_partition(*topic_partition)
        finally:
            if is_last:
                self._services.events.topic_deleted.emit()

    @one_at_a_time
    def _remove_partition(self, name: str, number: int) -> bool:
        """Delete a partition. Return whether it was the topic's last partition on this broker."""
        topic = self._catalog.topic(name)
        left = [each for each in topic.partitions if each != number]
        if not left:
            self._mark_and_delete(name)
            return True
        delay_ms = self._catalog.config(name).file_delete_delay_ms
        with self._storing():
            self._store.set_partitions(name, left)
        self._registry.remove_partitions(name, delay_ms, number=number)
        self._registry.schedule_folder_deletion(delay_ms)
        return False

    # -- start ---------------------------------------------------------------------------

    def finish_deletions(self) -> None:
        """Finish deletions that a crash interrupted, unless a directory is offline."""
        if any(not directory.is_online for directory in self._registry.directories):
            return
        for topic in self._store.all():
            if topic.deleting:
                config = effective_config(topic.configs, self._catalog.broker_config)
                self._delete(topic.name, config.file_delete_delay_ms)

    def assign_missing_ids(self) -> None:
        """Assign ids to the topics that an older version stored without ids.

        Skipped while a directory is offline, because its folders may contain the id.
        """
        without = [topic for topic in self._store.all() if topic.id is None]
        if without and all(directory.is_online for directory in self._registry.directories):
            with self._storing():
                self._store.put(replace(topic, id=self._id_of_folders(topic)) for topic in without)

    def _id_of_folders(self, topic: Topic) -> str:
        """Return the topic id in the folders of a topic that has none, or a new id."""
        return self._catalog.folder_id(topic.name) or self._new_id()

    def _new_id(self) -> str:
        return random_topic_id(self._registry.runtime.rng)

    def _storing(self) -> AbstractContextManager[None]:
        """Guard a change of the stored topics, which are in the first directory."""
        first = self._registry.directories[0]
        first.check_online()
        return first.guard("cannot store the topics")
