"""Configuration APIs: DescribeConfigs, AlterConfigs and IncrementalAlterConfigs.

Source: ConfigHelper, ConfigAdminManager and ConfigurationControlManager of Kafka 3.9 and 4.3.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import IntEnum
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from logstore.config.dynamic import Layer, is_reconfigurable, own_layer, reconfigure
from logstore.config.group_keys import (
    GROUP_KEYS,
    alter_group_overrides,
    check_new_group,
    describe_group,
)
from logstore.config.inert_keys import (
    STORED_BROKER_KEYS,
    STORED_TOPIC_KEYS,
    is_unknown_broker_key,
)
from logstore.config.keys import (
    ORIGIN_BROKER,
    ORIGIN_DEFAULT,
    ORIGIN_DYNAMIC_BROKER,
    ORIGIN_DYNAMIC_DEFAULT,
    ORIGIN_GROUP,
    ORIGIN_TOPIC,
    ConfigKey,
    Kind,
    Operation,
    apply_operations,
)
from logstore.config.overrides import (
    BrokerSetting,
    LayeredValue,
    alter_overrides,
    describe,
    describe_broker,
    describe_cluster_wide,
)
from logstore.errors import LogStoreError, UnknownTopicOrPartitionError
from logstore.messages.types import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from logstore.wire.refusal import Refusal, code_of, message_of
from logstore.wire.registry import handles

if TYPE_CHECKING:
    from logstore.manager.topics.store import Topic
    from logstore.wire.session import Session


class ResourceType(IntEnum):
    """The configurable resource types, as in Kafka's ConfigResource.Type."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    GROUP = 32


SOURCES = {
    ORIGIN_TOPIC: 1,
    ORIGIN_DYNAMIC_BROKER: 2,
    ORIGIN_DYNAMIC_DEFAULT: 3,
    ORIGIN_BROKER: 4,
    ORIGIN_DEFAULT: 5,
    ORIGIN_GROUP: 8,
}
"""The codes of config sources in the protocol (DescribeConfigsResponse.ConfigSource)."""

_TYPES = {
    Kind.BOOLEAN: 1,
    Kind.STRING: 2,
    Kind.INT: 3,
    Kind.LONG: 5,
    Kind.DOUBLE: 6,
    Kind.LIST: 7,
}
"""The codes of config types in the protocol (DescribeConfigsResponse.ConfigType)."""

_UNKNOWN_TYPE = 0

Row = DescribeConfigsResponse.DescribeConfigsResourceResult
Synonym = DescribeConfigsResponse.DescribeConfigsSynonym


@handles("DescribeConfigs")
def describe_configs(request: DescribeConfigsRequest, session: Session) -> DescribeConfigsResponse:
    """Return the values and sources of configs."""
    results = []
    distinct = {
        (each.resource_type, each.resource_name, tuple(each.configuration_keys or ())): each
        for each in request.resources
    }
    for resource in session.each(list(distinct.values())):
        result = DescribeConfigsResponse.DescribeConfigsResult(
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            error_message="",
        )
        try:
            wanted = set(resource.configuration_keys or ())
            for row in _rows(resource.resource_type, resource.resource_name, session):
                if wanted and row.name not in wanted:
                    continue
                if not request.include_synonyms:
                    row.synonyms = []
                if not request.include_documentation:
                    row.documentation = None
                result.configs.append(row)
        except LogStoreError as error:
            result.error_code, result.error_message = code_of(error), message_of(error) or ""
        results.append(result)
    return DescribeConfigsResponse(results=results)


def _rows(kind: int, name: str, session: Session) -> Iterator[Row]:
    if kind == ResourceType.TOPIC:
        if not session.allows("describe_configs", "topic", name):
            raise Refusal("TOPIC_AUTHORIZATION_FAILED", "Topic authorization failed.")
        try:
            topic = session.service.nodes.topic(name)
        except UnknownTopicOrPartitionError as error:
            raise Refusal("UNKNOWN_TOPIC_OR_PARTITION") from error
        return _topic_rows(topic, session)
    if kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        if not session.allows("describe_configs", "cluster"):
            raise Refusal("CLUSTER_AUTHORIZATION_FAILED", "Cluster authorization failed.")
        is_default = _check_broker(kind, name, session)
        config = session.service.manager.broker_config
        if kind == ResourceType.BROKER_LOGGER:
            return iter(())  # Kafka's loggers do not exist here
        if is_default:
            return map(_broker_row, describe_cluster_wide(config))
        return chain(_listener_rows(session), map(_broker_row, describe_broker(config)))
    if kind == ResourceType.GROUP:
        if not session.allows("describe_configs", "group", name):
            raise Refusal("GROUP_AUTHORIZATION_FAILED", "Group authorization failed.")
        if not name:
            raise Refusal("INVALID_REQUEST", "Group name must not be empty")
        return _group_rows(name, session)
    raise Refusal("INVALID_REQUEST", f"Unsupported resource type: {kind}")


def _check_broker(kind: int, name: str, session: Session) -> bool:
    """Return whether a request is for cluster-wide defaults. Refuse requests for other brokers."""
    if name == "" and kind == ResourceType.BROKER:
        return True
    node_id = session.service.node_id
    if name != str(node_id):
        raise Refusal(
            "INVALID_REQUEST",
            f"Unexpected broker id, expected {node_id} or empty string, but received {name}",
        )
    return False


def _topic_rows(topic: Topic, session: Session) -> Iterator[Row]:
    manager = session.service.manager
    config = manager.broker_config
    for key, found in describe(session.service.nodes.overrides(topic.name), config).items():
        yield _row(STORED_TOPIC_KEYS[key], found.value, found.origin, found.layers)


def _group_rows(group_id: str, session: Session) -> Iterator[Row]:
    own = session.service.nodes.group_configs(group_id)
    for key, found in describe_group(own, session.service.manager.broker_config).items():
        yield _row(GROUP_KEYS[key], found.value, found.origin, found.layers)


def _listener_rows(session: Session) -> Iterator[Row]:
    """Yield the address of this listener under Kafka's config name."""
    protocol = "SSL" if session.is_encrypted else "PLAINTEXT"
    if session.service.authenticates:
        protocol = f"SASL_{protocol}"
    host, port = session.address
    yield Row(
        name="advertised.listeners",
        value=f"{protocol}://{host}:{port}",
        read_only=True,
        config_source=SOURCES[ORIGIN_BROKER],
        synonyms=[],
        config_type=_TYPES[Kind.LIST],
        documentation="The address that clients use to connect to this listener.",
    )


def _broker_row(setting: BrokerSetting) -> Row:
    fixed = not is_reconfigurable(setting.row.key)
    row = _row(setting.row, setting.value, setting.origin, setting.layers, read_only=fixed)
    if setting.is_sensitive:
        row.is_sensitive, row.config_type = True, _UNKNOWN_TYPE
    return row


def _row(
    key: ConfigKey,
    value: str | None,
    origin: str,
    layers: Iterable[LayeredValue],
    *,
    read_only: bool = False,
) -> Row:
    return Row(
        name=key.key,
        value=value,
        read_only=read_only,
        config_source=SOURCES[origin],
        synonyms=[
            Synonym(name=each.key, value=each.value, source=SOURCES[each.origin]) for each in layers
        ],
        config_type=_TYPES[key.kind],
        documentation=key.doc,
    )


# -- changes -------------------------------------------------------------------------------------

_Operations = Callable[[Mapping[str, str]], Iterator[tuple[str, Operation, object]]]
"""Yields the key, operation and value of each change, given the resource's current overrides."""


@handles("AlterConfigs")
def alter_configs(request: AlterConfigsRequest, session: Session) -> AlterConfigsResponse:
    """Replace all overrides of a resource. Keys that are not in the request return to defaults."""

    def operations(
        resource: AlterConfigsRequest.AlterConfigsResource, own: Mapping[str, str]
    ) -> Iterator[tuple[str, Operation, object]]:
        given = {each.name: each.value for each in resource.configs}
        for key, value in given.items():
            if value is None:
                raise Refusal("INVALID_REQUEST", f"Null value not supported for : {key}")
            yield key, Operation.SET, value
        for key in own:
            if key not in given:
                yield key, Operation.DELETE, None

    return AlterConfigsResponse(
        responses=_altered(request, session, operations, AlterConfigsResponse)
    )


@handles("IncrementalAlterConfigs")
def incremental_alter_configs(
    request: IncrementalAlterConfigsRequest, session: Session
) -> IncrementalAlterConfigsResponse:
    """Change individual configs (KIP-339)."""

    def operations(
        resource: IncrementalAlterConfigsRequest.AlterConfigsResource, own: Mapping[str, str]
    ) -> Iterator[tuple[str, Operation, object]]:
        counts = Counter(each.name for each in resource.configs)
        twice = sorted(name for name, count in counts.items() if count > 1)
        if twice:
            raise Refusal(
                "INVALID_REQUEST", f"Error due to duplicate config keys : {','.join(twice)}"
            )
        for each in resource.configs:
            try:
                operation = Operation(each.config_operation)
            except ValueError as error:
                text = f"Unknown operation type {each.config_operation}"
                raise Refusal("INVALID_REQUEST", text) from error
            if each.value is None and operation is not Operation.DELETE:
                raise Refusal("INVALID_REQUEST", f"Null value not supported for : {each.name}")
            yield each.name, operation, each.value

    return IncrementalAlterConfigsResponse(
        responses=_altered(request, session, operations, IncrementalAlterConfigsResponse)
    )


def _altered(
    request: AlterConfigsRequest | IncrementalAlterConfigsRequest,
    session: Session,
    operations: Callable[[Any, Mapping[str, str]], Iterator[tuple[str, Operation, object]]],
    response: type[AlterConfigsResponse] | type[IncrementalAlterConfigsResponse],
) -> list[Any]:
    """Change resources one at a time. An error only affects its own resource."""
    counts = Counter((each.resource_type, each.resource_name) for each in request.resources)
    alter: Mapping[int, Callable[..., None]] = {
        ResourceType.TOPIC: _alter_topic,
        ResourceType.BROKER: _alter_broker,
        ResourceType.GROUP: _alter_group,
    }
    results = []
    for resource in request.resources:
        kind, name = resource.resource_type, resource.resource_name
        result = response.AlterConfigsResourceResponse(
            resource_type=kind, resource_name=name, error_message=None
        )
        try:
            if counts[kind, name] > 1:
                raise Refusal("INVALID_REQUEST", "Each resource must appear at most once.")
            if kind not in alter:
                raise Refusal("INVALID_REQUEST", f"Unexpected resource type {kind}.")
            changes = partial(operations, resource)
            alter[kind](name, changes, session, validate_only=request.validate_only)
        except LogStoreError as error:
            result.error_code, result.error_message = code_of(error), message_of(error)
        results.append(result)
    return results


def _alter_topic(
    name: str, operations: _Operations, session: Session, *, validate_only: bool
) -> None:
    if not session.allows("alter_configs", "topic", name):
        raise Refusal("TOPIC_AUTHORIZATION_FAILED", "Topic authorization failed.")
    manager = session.service.manager
    own: Mapping[str, str] = {}
    missing = None
    try:
        own = session.service.nodes.topic(name).configs
    except UnknownTopicOrPartitionError:
        text = f"The topic '{name}' does not exist."
        missing = Refusal("UNKNOWN_TOPIC_OR_PARTITION", text)
    now = {key: row.value for key, row in describe(own, manager.broker_config).items()}
    values, unset = apply_operations(operations(own), STORED_TOPIC_KEYS, now)
    # As in Kafka, removing an unset key always succeeds, even if the key is unknown.
    unset = [key for key in unset if key in own]
    if validate_only or missing is not None:
        # As in Kafka, an invalid value is reported even if the topic does not exist.
        alter_overrides(own, values, unset, manager.broker_config)
        if missing is not None:
            raise missing
    else:
        session.service.nodes.alter_topic(name, values, unset)


def _alter_broker(
    name: str, operations: _Operations, session: Session, *, validate_only: bool
) -> None:
    if not session.allows("alter_configs", "cluster"):
        raise Refusal("CLUSTER_AUTHORIZATION_FAILED", "Cluster authorization failed.")
    is_default = _check_broker(ResourceType.BROKER, name, session)
    layer = Layer.CLUSTER if is_default else Layer.BROKER
    config = session.service.manager.broker_config
    now = {each.row.key: each.value or "" for each in describe_broker(config)}
    own = own_layer(config, layer)
    values, unset = apply_operations(operations(own), STORED_BROKER_KEYS, now)
    unset = [key for key in unset if key in own or not is_unknown_broker_key(key)]
    changes = {**values, **dict.fromkeys(unset)}
    if validate_only:
        reconfigure(config, changes, layer)
    else:
        session.service.nodes.reconfigure(changes, layer)


def _alter_group(
    group_id: str, operations: _Operations, session: Session, *, validate_only: bool
) -> None:
    if not session.allows("alter_configs", "group", group_id):
        raise Refusal("GROUP_AUTHORIZATION_FAILED", "Group authorization failed.")
    if not group_id:
        raise Refusal("INVALID_REQUEST", "Default group resources are not allowed.")
    nodes, config = session.service.nodes, session.service.manager.broker_config
    own = nodes.group_configs(group_id)
    values, unset = apply_operations(operations(own), GROUP_KEYS, own)
    if validate_only:
        check_new_group(group_id, ())
        alter_group_overrides(own, values, unset, config)
    else:
        nodes.alter_group(group_id, values, unset)
