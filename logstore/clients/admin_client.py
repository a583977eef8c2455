"""An admin client with kafka-python's API, in the broker's process.

Methods, arguments and response fields are the same as in kafka-python 3's `KafkaAdminClient`. An
error in a result is Kafka's error name, or None on success, where kafka-python returns an error
class, a class name or `'OK'`. Arguments may be instances of kafka-python's classes or of the
classes below.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from logstore.clients import partition_requests as admin
from logstore.clients.client_config import check_names
from logstore.clients.results import OffsetAndTimestamp
from logstore.config.dynamic import Layer, is_reconfigurable, reconfigure
from logstore.config.inert_keys import STORED_BROKER_KEYS, STORED_TOPIC_KEYS
from logstore.config.keys import KAFKA_ORIGINS, ConfigKey, Operation, apply_operations
from logstore.config.overrides import (
    LayeredValue,
    alter_overrides,
    describe,
    describe_broker,
    describe_cluster_wide,
)
from logstore.coordinator.groups.consumer_protocol import (
    CONSUMER_PROTOCOL_TYPE,
    Assignment,
    Subscription,
    decode_assignment,
    decode_subscription,
)
from logstore.coordinator.groups.offsets import OffsetAndMetadata, to_offsets
from logstore.coordinator.groups.requests import (
    ConsumerGroupDescription,
    GroupDescription,
    LeavingMember,
)
from logstore.errors import (
    KAFKA_CODES,
    IllegalStateError,
    InvalidConfigurationError,
    InvalidPartitionsError,
    InvalidReplicationFactorError,
    LogStoreError,
    RequestError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
    error_class,
)
from logstore.names import INTERNAL_COMPACTED_TOPICS, validate_topic_name
from logstore.storage.log.reader import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    Isolation,
)
from logstore.types import (
    NO_OFFSET,
    NO_TIMESTAMP,
    TopicPartition,
)

if TYPE_CHECKING:
    from os import PathLike

    from logstore.coordinator.groups.coordinator import GroupCoordinator
    from logstore.manager.manager import LogManager
    from logstore.manager.topics.store import Topic

MODIFIED = ("DYNAMIC_TOPIC_CONFIG", "DYNAMIC_BROKER_CONFIG", "DYNAMIC_DEFAULT_BROKER_CONFIG")


class OffsetSpec(enum.IntEnum):
    """Special offsets of a partition. Other (non-negative) numbers are timestamps."""

    LATEST = LATEST_TIMESTAMP
    EARLIEST = EARLIEST_TIMESTAMP
    MAX_TIMESTAMP = MAX_TIMESTAMP
    EARLIEST_LOCAL = EARLIEST_LOCAL_TIMESTAMP
    LATEST_TIERED = LATEST_TIERED_TIMESTAMP


class NewTopic(NamedTuple):
    """A topic to create. -1 means the broker's default."""

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    replica_assignments: Mapping[int, list[int]] | None = None
    topic_configs: Mapping[str, str] | None = None


class ConfigResource(NamedTuple):
    """A configurable resource: a topic, a broker (by id), or all brokers ('').

    Attributes
    ----------
    resource_type : str
        `topic` or `broker`.
    configs : mapping or list of str, optional
        The config keys to describe, or a mapping of config keys to new values.
    """

    resource_type: str
    name: str
    configs: Any = None


class MemberToRemove(NamedTuple):
    """A member to remove from its group. Static members are identified by their instance id."""

    member_id: str | None = None
    group_instance_id: str | None = None
    reason: str | None = None


class AdminClient:
    """A client that manages topics, configs, consumer groups and records.

    Use `Broker.admin()` to create an admin client.

    Parameters
    ----------
    manager : LogManager
    coordinator : GroupCoordinator
    configs : mapping
        Configs of kafka-python, which have no effect without connections.

    Raises
    ------
    InvalidConfigurationError
        kafka-python has no config with this name.
    """

    def __init__(
        self, manager: LogManager, coordinator: GroupCoordinator, configs: Mapping[str, Any]
    ) -> None:
        check_names("admin", configs, ("client_id",))
        self._manager = manager
        self._coordinator = coordinator
        self._closed = False
        manager.lifetime.add(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"AdminClient({', '.join(each.path for each in self._manager.directories)})"

    def close(self) -> None:
        """Close the client. The broker remains open."""
        self._closed = True

    # -- topics --------------------------------------------------------------------------------

    def list_topics(self) -> list[str]:
        """Return the names of all topics, including internal topics."""
        return [topic.name for topic in self._topics()]

    def describe_topics(self, topics: Iterable[str] | None = None) -> list[dict[str, Any]]:
        """Describe the given topics, or all topics. The `error_code` of an unknown topic is 3."""
        if topics is None:
            return [self._describe_topic(topic) for topic in self._topics()]
        known = {topic.name: topic for topic in self._topics()}
        return [
            self._describe_topic(known[name]) if name in known else _unknown_topic(name)
            for name in topics
        ]

    def create_topics(
        self,
        new_topics: object,
        timeout_ms: float | None = None,
        validate_only: bool = False,
        raise_errors: bool = True,
        wait_for_metadata: bool = False,
    ) -> dict[str, Any]:
        """Create topics from names, `NewTopic` objects, or a mapping of names to options.

        The options are `num_partitions`, `replication_factor`, `assignments` and `configs`.

        Raises
        ------
        TopicAlreadyExistsError, InvalidTopicError, InvalidPartitionsError,
        InvalidReplicationFactorError, InvalidConfigurationError
            A topic could not be created, and `raise_errors` is True. Other topics are created.
        """
        self._check_writable("create topics")
        wanted = _new_topics(new_topics)

        def create(new: NewTopic) -> dict[str, Any]:
            count = self._partition_count(new)
            if validate_only:
                self._check_new(new)
                created: Topic | None = None
            else:
                created = self._manager.topics.create(new.name, count, new.topic_configs or {})
            return {
                "topic_id": None if created is None else created.id,
                "num_partitions": count,
                "replication_factor": 1,
            }

        results = _each(wanted, create, raise_errors=raise_errors)
        return {"topics": [{"name": new.name, **fields} for new, fields in results]}

    def delete_topics(
        self, topics: Iterable[str], timeout_ms: float | None = None, raise_errors: bool = True
    ) -> dict[str, Any]:
        """Delete topics by name.

        Raises
        ------
        UnknownTopicOrPartitionError
            A topic does not exist, and `raise_errors` is True.
        """
        self._check_writable("delete topics")

        def delete(name: str) -> dict[str, Any]:
            topic_id = self._manager.catalog.topic(name).id
            self._manager.topics.delete(name)
            return {"topic_id": topic_id}

        results = _each(_names(topics), delete, raise_errors=raise_errors)
        return {"topics": [{"name": name, **fields} for name, fields in results]}

    def create_partitions(
        self,
        topic_partitions: Mapping[str, Any],
        timeout_ms: float | None = None,
        validate_only: bool = False,
        raise_errors: bool = True,
    ) -> dict[str, Any]:
        """Increase topics' numbers of partitions to the given totals.

        Raises
        ------
        UnknownTopicOrPartitionError, InvalidPartitionsError
            A number could not be increased, and `raise_errors` is True.
        """
        self._check_writable("create partitions")

        def create(name: str) -> dict[str, Any]:
            wanted = topic_partitions[name]
            if isinstance(wanted, Mapping):
                wanted = wanted["count"]
            total = getattr(wanted, "total_count", wanted)
            now = len(self._manager.catalog.topic(name).partitions)
            if type(total) is not int or total <= now:
                raise InvalidPartitionsError(
                    f"topic '{name}' has {now} partitions; the new total must be higher, not"
                    f" {total!r}"
                )
            if not validate_only:
                self._manager.topics.create_partitions(name, total)
            return {}

        results = _each(list(topic_partitions), create, raise_errors=raise_errors)
        return {"results": [{"name": name, **fields} for name, fields in results]}

    # -- configurations ------------------------------------------------------------------------

    def describe_configs(
        self,
        config_resources: Iterable[Any],
        include_synonyms: bool = False,
        config_filter: str = "modified",
    ) -> dict[str, dict[str, dict[str, dict[str, Any]]]]:
        """Return configs by resource type (`topic` or `broker`), resource name and key.

        Parameters
        ----------
        config_filter : str
            Which configs to return: `modified`, `all`, `default`, `static`, or `dynamic` (configs
            that can be altered).

        Raises
        ------
        UnknownTopicOrPartitionError
        """
        self._check_open()
        configs: dict[str, dict[str, dict[str, dict[str, Any]]]] = {}
        for resource in config_resources:
            kind, name = _resource(resource)
            rows = self._configs_of(kind, name)
            keys = resource.configs
            configs.setdefault(kind, {})[name] = {
                key: row if include_synonyms else {**row, "synonyms": []}
                for key, row in rows.items()
                if (keys is None or key in keys) and _is_wanted(row, str(config_filter))
            }
        return configs

    def alter_configs(
        self,
        config_resources: Iterable[Any],
        validate_only: bool = False,
        raise_on_unknown: bool = True,
        incremental: bool | None = None,
    ) -> dict[str, dict[str, str | None]]:
        """Alter configs. A value is either `value` or `(operation, value)`.

        The operation is SET, DELETE, APPEND or SUBTRACT. Return the error name of each resource, or
        None on success. `Broker.alter_configs` raises the error with its message instead.
        """
        self._check_writable("alter configs")
        errors: dict[str, dict[str, str | None]] = {}
        for resource in config_resources:
            kind, name = _resource(resource)
            by_name = errors.setdefault(kind, {})
            try:
                self._alter(kind, name, resource.configs, validate_only=validate_only)
                by_name[name] = None
            except LogStoreError as error:
                by_name[name] = error.kafka_error
        return errors

    def reset_configs(
        self,
        config_resources: Iterable[Any],
        validate_only: bool = False,
        raise_on_unknown: bool = True,
        incremental: bool | None = None,
    ) -> dict[str, dict[str, str | None]]:
        """Reset configs to their defaults. A resource without config names is reset completely."""
        self._check_writable("reset configs")
        resources = []
        for resource in config_resources:
            kind, name = _resource(resource)
            keys = resource.configs or self._modified(kind, name)
            configs = dict.fromkeys(keys, (Operation.DELETE, None))
            resources.append(ConfigResource(kind, name, configs))
        return self.alter_configs(resources, validate_only=validate_only)

    # -- groups --------------------------------------------------------------------------------

    def list_groups(
        self,
        broker_ids: Iterable[int] | None = None,
        states_filter: Iterable[str] | None = None,
        types_filter: Iterable[str] | None = None,
    ) -> list[dict[str, Any]]:
        """List groups with their `group_id`, `protocol_type`, `group_state` and `group_type`."""
        self._check_open()
        states, types = (_filter(each) for each in (states_filter, types_filter))
        return [
            {
                "group_id": each.group_id,
                "protocol_type": each.protocol_type,
                "group_state": each.state,
                "group_type": each.group_type,
            }
            for each in sorted(
                listing
                for coordinator in self._coordinator.all_coordinators()
                for listing in coordinator.list_groups(states, types)
            )
        ]

    def describe_groups(
        self,
        group_ids: Iterable[str],
        group_coordinator_id: int | None = None,
        include_authorized_operations: bool = False,
    ) -> dict[str, dict[str, Any]]:
        """Describe groups, with the subscription and assignment of each member.

        For groups of the consumer protocol (KIP-848), the result also contains group epochs and
        member epochs.
        """
        self._check_open()
        return {group_id: self._describe_group(group_id) for group_id in _names(group_ids)}

    def _describe_group(self, group_id: str) -> dict[str, Any]:
        coordinator = self._coordinator.of(group_id)
        found = coordinator.describe_consumer_group(group_id)
        if found.error is None:
            return _describe_consumer_group(found)
        return _describe_group(coordinator.describe(group_id))

    def delete_groups(
        self, group_ids: Iterable[str], group_coordinator_id: int | None = None
    ) -> dict[str, str | None]:
        """Delete empty groups. Return the error name of each group, or None on success."""
        self._check_writable("delete groups")
        errors: dict[str, str | None] = {}
        for each in _names(group_ids):
            errors |= self._coordinator.of(each).delete([each])
        return errors

    def remove_group_members(
        self, group_id: str, members: Iterable[Any], group_coordinator_id: int | None = None
    ) -> dict[str, str | None]:
        """Remove members from a group.

        Return the error name of each member, or None on success, by member id or, if it was not
        given, by instance id.
        """
        self._check_writable("remove group members")
        leaving = [LeavingMember(each.member_id or "", each.group_instance_id) for each in members]
        result = self._coordinator.of(group_id).leave(group_id, leaving, waits=True)
        if result.error is not None:
            raise RequestError(f"members of group '{group_id}': {result.error}")
        return {
            each.member_id or each.group_instance_id or "": each.error for each in result.members
        }

    def list_group_offsets(
        self, group_specs: object
    ) -> dict[str, dict[TopicPartition, OffsetAndMetadata]]:
        """Return the committed offsets of one or more groups.

        A mapping of group ids to partitions restricts the result to these partitions. The offset of
        a partition without a committed offset is -1.
        """
        self._check_open()
        specs: Mapping[str, Any]
        if isinstance(group_specs, Mapping):
            specs = group_specs
        else:
            names = [group_specs] if isinstance(group_specs, str) else group_specs
            specs = dict.fromkeys(_names(names))
        offsets = {}
        for group_id, partitions in specs.items():
            selected = None if partitions is None else [TopicPartition(*tp) for tp in partitions]
            offsets[group_id] = {
                tp: each.committed or OffsetAndMetadata(NO_OFFSET)
                for tp, each in self._coordinator.of(group_id).fetch(group_id, selected).items()
            }
        return offsets

    def alter_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group_coordinator_id: int | None = None,
    ) -> dict[TopicPartition, str | None]:
        """Commit offsets for an empty group.

        Return the error name of each partition, or None on success.
        """
        self._check_writable("alter group offsets")
        return self._coordinator.of(group_id, creates=True).commit(group_id, to_offsets(offsets))

    def reset_group_offsets(
        self,
        group_id: str,
        offset_specs: Mapping[TopicPartition, int],
        group_coordinator_id: int | None = None,
    ) -> dict[TopicPartition, dict[str, Any]]:
        """Reset the committed offset of each partition to an `OffsetSpec` or a given offset.

        An offset that is out of range is replaced with the start or the end of the log. Return the
        `error` name, or None on success, and the committed `offset` of each partition.
        """
        self._check_writable("reset group offsets")
        stored = self._coordinator.of(group_id).committed(group_id)
        wanted = {}
        for each, spec in offset_specs.items():
            tp = TopicPartition(*each)
            log = self._manager.log(tp)
            offset = int(spec)
            if type(spec) is not int:
                listed = log.reader.offset_for_timestamp(offset)
                offset = NO_OFFSET if listed is None else listed.offset
            if not 0 <= offset <= log.high_watermark:
                offset = log.high_watermark
            before = stored.get(tp, OffsetAndMetadata(0))
            wanted[tp] = before._replace(offset=max(offset, log.log_start_offset))
        errors = self._coordinator.of(group_id, creates=True).commit(group_id, wanted)
        return {tp: {"error": errors[tp], "offset": wanted[tp].offset} for tp in wanted}

    def delete_group_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition],
        group_coordinator_id: int | None = None,
    ) -> dict[TopicPartition, str | None]:
        """Delete committed offsets, except for topics to which a member is subscribed.

        Return the error name of each partition, or None on success.

        Raises
        ------
        GroupIdNotFoundError, NonEmptyGroupError
        """
        self._check_writable("delete group offsets")
        deleted = self._coordinator.of(group_id).delete_offsets(
            group_id, [TopicPartition(*tp) for tp in partitions]
        )
        if deleted.error is not None:
            text = f"offsets of group '{group_id}' cannot be deleted: {deleted.error}"
            raise error_class(deleted.error)(text)
        return dict(deleted.partitions)

    # -- records, partitions, the broker -------------------------------------------------------

    def delete_records(
        self,
        records_to_delete: Mapping[TopicPartition, int],
        timeout_ms: float | None = None,
        partition_leader_id: int | None = None,
    ) -> dict[TopicPartition, dict[str, Any]]:
        """Delete records before the given offset in each partition (KIP-107).

        An offset of -1 deletes all records.

        Raises
        ------
        OffsetOutOfRangeError, PolicyViolationError, UnknownTopicOrPartitionError
            The first error. The records of all other partitions are deleted.
        """
        self._check_writable("delete records")
        wanted = {TopicPartition(*tp): offset for tp, offset in records_to_delete.items()}

        def delete(tp: TopicPartition) -> dict[str, Any]:
            low_watermark = self._manager.delete_records(tp, wanted[tp])
            return {"partition_index": tp.partition, "low_watermark": low_watermark}

        results = _each(list(wanted), delete, raise_errors=True)
        return {tp: {**fields, "error_code": 0} for tp, fields in results}

    def list_partition_offsets(
        self,
        topic_partition_specs: Mapping[TopicPartition, int],
        isolation_level: object = "read_uncommitted",
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Look up the offset for an `OffsetSpec` or a Unix timestamp (ms) in each partition.

        The offset is -1 if no such record exists.
        """
        self._check_open()
        level = str(getattr(isolation_level, "name", isolation_level)).lower()
        isolation = Isolation(level)
        offsets = {}
        for each, spec in topic_partition_specs.items():
            tp = TopicPartition(*each)
            reader = self._manager.log(tp).reader
            listed = reader.offset_for_timestamp(int(spec))
            if listed is None:
                offsets[tp] = OffsetAndTimestamp(NO_OFFSET, NO_TIMESTAMP, -1)
                continue
            offset = listed.offset
            if int(spec) == LATEST_TIMESTAMP:
                offset = reader.upper_offset(isolation)
            offsets[tp] = OffsetAndTimestamp(offset, listed.timestamp, listed.leader_epoch)
        return offsets

    def describe_cluster(self) -> dict[str, Any]:
        """Describe the cluster: this broker is its only node and its controller."""
        self._check_open()
        node_id, cluster_id = self._manager.identity
        broker = {
            "broker_id": node_id,
            "host": "localhost",
            "port": -1,
            "rack": None,
            "is_fenced": False,
        }
        return {"cluster_id": cluster_id, "controller_id": node_id, "brokers": [broker]}

    def describe_log_dirs(
        self, topic_partitions: object = None, brokers: Iterable[int] | None = None
    ) -> list[dict[str, Any]]:
        """Describe the log directories and the sizes of their partitions in bytes.

        Parameters
        ----------
        topic_partitions : mapping or list, optional
            Partition numbers by topic, or a list of topics. The default is all partitions.
        """
        self._check_open()
        wanted = self._wanted(topic_partitions)
        log_dirs = []
        for directory in self._manager.directories:
            topics: dict[str, list[dict[str, Any]]] = {}
            for tp in sorted(wanted & set(directory.partitions)):
                size = self._manager.log(tp).size_bytes
                topics.setdefault(tp.topic, []).append(
                    {
                        "partition_index": tp.partition,
                        "partition_size": size,
                        "offset_lag": 0,
                        "is_future_key": False,
                    }
                )
            log_dirs.append(
                {
                    "error_code": 0,
                    "log_dir": directory.path,
                    "topics": [
                        {"name": name, "partitions": partitions}
                        for name, partitions in topics.items()
                    ],
                    "total_bytes": -1,
                    "usable_bytes": -1,
                }
            )
        return [{"broker": self._manager.identity.node_id, "log_dirs": log_dirs}]

    def alter_replica_log_dirs(
        self, replica_assignments: Mapping[Any, str | PathLike[str]]
    ) -> dict[Any, str | None]:
        """Move replicas, given as (topic, partition, broker id), to other log directories.

        Return the error name of each replica, or None on success.
        """
        self._check_writable("alter replica log dirs")
        by_partition = {TopicPartition(*each[:2]): each for each in replica_assignments}
        results = admin.alter_replica_log_dirs(
            self._manager, {tp: replica_assignments[each] for tp, each in by_partition.items()}
        )
        return {by_partition[tp]: result.error for tp, result in results.items()}

    # -- inside --------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._closed:
            raise IllegalStateError("the admin client is closed")

    def _check_writable(self, what: str) -> None:
        self._check_open()
        if self._manager.read_only:
            raise InvalidConfigurationError(f"cannot {what}: the broker was opened read-only")

    def _topics(self) -> list[Topic]:
        self._check_open()
        return self._manager.catalog.topics()

    def _describe_topic(self, topic: Topic) -> dict[str, Any]:
        node_id = self._manager.identity.node_id
        return {
            "error_code": 0,
            "name": topic.name,
            "topic_id": topic.id,
            "is_internal": topic.name in INTERNAL_COMPACTED_TOPICS,
            "partitions": [
                {
                    "error_code": 0,
                    "partition_index": number,
                    "leader_id": node_id,
                    "leader_epoch": self._manager.log(
                        TopicPartition(topic.name, number)
                    ).leader_epoch,
                    "replica_nodes": [node_id],
                    "isr_nodes": [node_id],
                    "offline_replicas": [],
                }
                for number in topic.partitions
            ],
        }

    def _partition_count(self, new: NewTopic) -> int:
        assignments = new.replica_assignments or {}
        node_id = self._manager.identity.node_id
        if any(list(replicas) != [node_id] for replicas in assignments.values()):
            raise InvalidReplicationFactorError(
                f"topic '{new.name}': replicas can only be assigned to broker {node_id}"
            )
        if new.replication_factor not in (-1, 1):
            raise InvalidReplicationFactorError(
                f"topic '{new.name}': {new.replication_factor} replicas requested, but there is"
                " one broker"
            )
        count = len(assignments) or new.num_partitions
        if count == -1:
            count = self._manager.broker_config.num_partitions
        if count < 1:
            raise InvalidPartitionsError(f"topic '{new.name}' cannot have {count} partitions")
        return count

    def _check_new(self, new: NewTopic) -> None:
        validate_topic_name(new.name)
        if new.name in self.list_topics():
            raise TopicAlreadyExistsError(f"topic '{new.name}' already exists")
        alter_overrides({}, new.topic_configs or {}, (), self._manager.broker_config)

    def _configs_of(self, kind: str, name: str) -> dict[str, dict[str, Any]]:
        config = self._manager.broker_config
        if kind == "topic":
            self._manager.catalog.topic(name)
            described = describe(self._manager.catalog.overrides(name), config)
            return {
                key: _config_row(STORED_TOPIC_KEYS[key], each.value, each.origin, each.layers)
                for key, each in described.items()
            }
        layer = _broker_layer(name, self._manager.identity.node_id)
        rows = describe_cluster_wide if layer is Layer.CLUSTER else describe_broker
        return {
            each.row.key: _config_row(
                each.row,
                each.value,
                each.origin,
                each.layers,
                read_only=not is_reconfigurable(each.row.key),
                is_sensitive=each.is_sensitive,
            )
            for each in rows(config)
            if each.is_sensitive or each.value is not None
        }

    def _modified(self, kind: str, name: str) -> list[str]:
        rows = self._configs_of(kind, name)
        return [key for key, row in rows.items() if row["config_source"] in MODIFIED]

    def _alter(self, kind: str, name: str, configs: object, *, validate_only: bool) -> None:
        if not isinstance(configs, Mapping):
            raise InvalidConfigurationError(f"configs must be a mapping, not {configs!r}")
        manager = self._manager
        if kind == "broker":
            layer = _broker_layer(name, self._manager.identity.node_id)
            now = {
                each.row.key: each.value or "" for each in describe_broker(manager.broker_config)
            }
            values, unset = apply_operations(_operations(configs), STORED_BROKER_KEYS, now)
            changes = {**values, **dict.fromkeys(unset)}
            if validate_only:
                reconfigure(manager.broker_config, changes, layer)
            else:
                manager.topics.reconfigure(changes, layer)
            return
        topic = manager.catalog.topic(name)
        now = {key: row["value"] for key, row in self._configs_of(kind, name).items()}
        values, unset = apply_operations(_operations(configs), STORED_TOPIC_KEYS, now)
        if validate_only:
            alter_overrides(topic.configs, values, unset, manager.broker_config)
        else:
            manager.topics.alter(name, values, unset)

    def _wanted(self, given: object) -> set[TopicPartition]:
        if isinstance(given, Mapping):
            return {
                TopicPartition(name, each) for name, numbers in given.items() for each in numbers
            }
        everything = self._manager.catalog.partitions()
        if given is None:
            return set(everything)
        names = set(_names(given))
        return {tp for tp in everything if tp.topic in names}


def _each(
    items: Collection[Any], do: Callable[[Any], dict[str, Any]], *, raise_errors: bool
) -> list[tuple[Any, dict[str, Any]]]:
    """Apply a function to each item, and collect the results and errors."""
    results = []
    first: LogStoreError | None = None
    for item in items:
        try:
            fields = {**do(item), "error_code": 0, "error_message": None}
        except LogStoreError as error:
            first = first or error
            fields = {"error_code": error.code, "error_message": str(error)}
        results.append((item, fields))
    if first is not None and raise_errors:
        raise first
    return results


def _new_topics(given: object) -> list[NewTopic]:
    if isinstance(given, Mapping):
        option_names = {"num_partitions", "replication_factor", "assignments", "configs"}
        for name, fields in given.items():
            check_names(f"topic '{name}'", fields, option_names)
        return [
            NewTopic(
                name,
                fields.get("num_partitions", -1),
                fields.get("replication_factor", -1),
                fields.get("assignments"),
                fields.get("configs"),
            )
            for name, fields in given.items()
        ]
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise TypeError(f"new_topics must be a list or a mapping, not {given!r}")
    return [
        NewTopic(each)
        if isinstance(each, str)
        else NewTopic(*(getattr(each, field) for field in NewTopic._fields))
        for each in given
    ]


def _names(given: object) -> list[str]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise TypeError(f"expected a list of names, not {given!r}")
    return list(given)


def _unknown_topic(name: str) -> dict[str, Any]:
    code = KAFKA_CODES[UnknownTopicOrPartitionError.kafka_error]
    return {
        "error_code": code,
        "name": name,
        "topic_id": None,
        "is_internal": False,
        "partitions": [],
    }


def _resource(given: Any) -> tuple[str, str]:  # noqa: ANN401  # kafka-python's class, or this one
    kind = given.resource_type
    kind = str(getattr(kind, "name", kind)).lower()
    if kind not in ("topic", "broker"):
        raise InvalidConfigurationError(f"resource_type must be topic or broker, not {kind!r}")
    return kind, str(given.name)


def _broker_layer(name: str, node_id: int) -> Layer:
    """Return the config layer of a broker. An empty name means all brokers."""
    if name not in ("", str(node_id)):
        raise InvalidConfigurationError(f"unknown broker {name!r}; use '' for all brokers")
    return Layer.BROKER if name else Layer.CLUSTER


def _config_row(
    key: ConfigKey,
    value: str | None,
    origin: str,
    layers: Iterable[LayeredValue],
    *,
    read_only: bool = False,
    is_sensitive: bool = False,
) -> dict[str, Any]:
    return {
        "value": value,
        "read_only": read_only,
        "is_sensitive": is_sensitive,
        "config_source": KAFKA_ORIGINS[origin],
        "config_type": "UNKNOWN" if is_sensitive else key.kind.name,
        "documentation": key.doc,
        "synonyms": [
            {"name": each.key, "value": each.value, "source": KAFKA_ORIGINS[each.origin]}
            for each in layers
        ],
    }


def _is_wanted(row: Mapping[str, Any], config_filter: str) -> bool:
    source = row["config_source"]
    wanted = {
        "all": True,
        "dynamic": not row["read_only"],
        "modified": source in MODIFIED,
        "default": source not in MODIFIED,
        "static": source == "STATIC_BROKER_CONFIG",
    }
    name = config_filter.rpartition(".")[2].lower()
    if name not in wanted:
        raise InvalidConfigurationError(
            f"config_filter must be one of {', '.join(wanted)}, not {name}"
        )
    return bool(wanted[name])


def _operations(configs: Mapping[str, Any]) -> Iterator[tuple[str, Operation, Any]]:
    """Yield the key, operation and value of configs, given as values or (operation, value)."""
    for key, given in configs.items():
        name, value = given if isinstance(given, tuple) else (Operation.SET, given)
        try:
            operation = Operation[name.upper()] if isinstance(name, str) else Operation(name)
        except (KeyError, ValueError) as error:
            raise InvalidConfigurationError(
                f"{key}: operation must be one of {', '.join(Operation.__members__)}, not {given!r}"
            ) from error
        yield key, operation, value


def _filter(given: Iterable[Any] | None) -> list[str]:
    return [str(getattr(each, "value", each)) for each in given or ()]


def _describe_consumer_group(group: ConsumerGroupDescription) -> dict[str, Any]:
    return {
        "group_id": group.group_id,
        "group_state": group.state,
        "protocol_type": CONSUMER_PROTOCOL_TYPE,
        "protocol_data": group.assignor,
        "group_epoch": group.group_epoch,
        "assignment_epoch": group.assignment_epoch,
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "member_epoch": member.member_epoch,
                "member_metadata": Subscription(member.topics),
                "member_assignment": Assignment(
                    tuple(
                        TopicPartition(topic, number)
                        for topic, numbers in member.assignment.items()
                        for number in numbers
                    )
                ),
            }
            for member in group.members
        ],
        "error": None,
    }


def _describe_group(group: GroupDescription) -> dict[str, Any]:
    is_consumers = group.protocol_type == CONSUMER_PROTOCOL_TYPE
    members = []
    for member in group.members:
        metadata: object = member.metadata
        assignment: object = member.assignment
        if is_consumers and member.metadata:
            metadata = decode_subscription(member.metadata)
            assignment = decode_assignment(member.assignment)
        members.append(
            {
                "member_id": member.member_id,
                "group_instance_id": member.group_instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "member_metadata": metadata,
                "member_assignment": assignment,
            }
        )
    return {
        "group_id": group.group_id,
        "group_state": group.state,
        "protocol_type": group.protocol_type,
        "protocol_data": group.protocol,
        "members": members,
        "error": group.error,
    }
