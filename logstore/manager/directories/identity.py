"""The identity of a broker: its node id and cluster id, from its settings and directories.

Kafka writes `meta.properties` into each data directory when it is formatted, and a broker refuses
another broker's directory. This engine reads the file but never writes it: a directory without it
belongs to the configured broker. Source: `org.apache.kafka.metadata.properties.MetaProperties`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from logstore.config.broker_config import parse_properties
from logstore.errors import CorruptCheckpointError, InvalidConfigurationError
from logstore.names import META_PROPERTIES
from logstore.storage.checkpoint.atomic import read_bytes
from logstore.types import BROKER_ID, CLUSTER_ID, INT32_MAX

if TYPE_CHECKING:
    from logstore.config.broker_config import BrokerConfig
    from logstore.runtime import FileSystem

_UNSET = -1
_ID_KEYS = {"0": "broker.id", "1": "node.id"}
"""The key of the node id, by version of the file."""


class BrokerIdentity(NamedTuple):
    """A broker's node id and the id of its cluster."""

    node_id: int
    cluster_id: str


class _Stored(NamedTuple):
    """The identity stored in a directory. Missing values are None."""

    log_dir: str
    node_id: int | None
    cluster_id: str | None


def read_identity(
    fs: FileSystem, log_dirs: Iterable[str], broker_config: BrokerConfig
) -> BrokerIdentity:
    """Return the identity of a broker. The default is node 0 of cluster "logstore".

    Raises
    ------
    InvalidConfigurationError
        The directories or settings contradict each other.
    CorruptCheckpointError
        A `meta.properties` cannot be parsed.
    """
    node_id = _configured(broker_config)
    known: list[_Stored] = []
    for log_dir in log_dirs:
        stored = _read(fs, log_dir, broker_config.logstore_small_file_max_bytes)
        if stored is None:
            continue
        path = f"{log_dir}/{META_PROPERTIES}"
        if node_id is not None and stored.node_id not in (None, node_id[1]):
            raise InvalidConfigurationError(
                f"{path} belongs to node {stored.node_id}, but {node_id[0]} is {node_id[1]}: the"
                " directory belongs to a different broker"
            )
        for other in known:
            for what, one, two in (
                ("node", stored.node_id, other.node_id),
                ("cluster", stored.cluster_id, other.cluster_id),
            ):
                if one != two and None not in (one, two):
                    raise InvalidConfigurationError(
                        f"{path} belongs to {what} {one}, but {other.log_dir} belongs to {what}"
                        f" {two}"
                    )
        known.append(stored)
    numbers = [stored.node_id for stored in known if stored.node_id is not None]
    clusters = [stored.cluster_id for stored in known if stored.cluster_id is not None]
    if node_id is not None:
        numbers.insert(0, node_id[1])
    return BrokerIdentity(next(iter(numbers), BROKER_ID), next(iter(clusters), CLUSTER_ID))


def _configured(broker_config: BrokerConfig) -> tuple[str, int] | None:
    """Return the configured key and node id of the broker, or None if not configured."""
    given = {
        key: number
        for key, number in (
            ("node.id", broker_config.node_id),
            ("broker.id", broker_config.broker_id),
        )
        if number > _UNSET
    }
    if len(set(given.values())) > 1:
        raise InvalidConfigurationError(
            f"node.id is {given['node.id']}, and broker.id is {given['broker.id']}"
        )
    return next(iter(given.items()), None)


def _read(fs: FileSystem, log_dir: str, max_bytes: int) -> _Stored | None:
    path = f"{log_dir}/{META_PROPERTIES}"
    try:
        data = read_bytes(fs, path, max_bytes)
    except FileNotFoundError:
        return None
    try:
        values = parse_properties(data, path)
    except InvalidConfigurationError as error:
        raise CorruptCheckpointError(str(error), path=path, check="properties") from error
    version = values.get("version")
    if version not in _ID_KEYS:
        raise CorruptCheckpointError(
            "unknown version", path=path, check="version", expected="0 or 1", found=version
        )
    node_id = _number(path, _ID_KEYS[version], values)
    cluster_id = values.get("cluster.id")
    if version != "0":  # version 0 may lack both
        for key, value in (("node.id", node_id), ("cluster.id", cluster_id)):
            if value is None:
                raise CorruptCheckpointError(f"{key} is missing", path=path, check=key)
    return _Stored(log_dir, node_id, cluster_id)


def _number(path: str, key: str, values: Mapping[str, str]) -> int | None:
    text = values.get(key)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and int(text) <= INT32_MAX):
        raise CorruptCheckpointError(f"{key} must be a number", path=path, check=key, found=text)
    return int(text)
