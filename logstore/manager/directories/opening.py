"""Open data directories with their partitions and topics."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from logstore.config.dynamic import Layer, merge_layers
from logstore.config.overrides import effective_config
from logstore.errors import InvalidConfigurationError
from logstore.manager.directories.directory import LogDirectory, partition_folders
from logstore.manager.directories.moving import recover_moves
from logstore.manager.topics.catalog import TopicCatalog
from logstore.manager.topics.partitions import PartitionMap
from logstore.manager.topics.store import TopicStore
from logstore.names import METADATA_LOG, METADATA_LOG_DIR
from logstore.storage.loading.on_damage import OnDamage
from logstore.storage.loading.views import ATTEMPTS_MAX, pause_after

if TYPE_CHECKING:
    from logstore.config.broker_config import BrokerConfig
    from logstore.manager.directories.directory import OpenedFolder
    from logstore.runtime import Runtime


logger = logging.getLogger(__name__)


class OpenDirectories(NamedTuple):
    """Open data directories, the directory of each partition, and the topics."""

    directories: list[LogDirectory]
    homes: PartitionMap[LogDirectory]
    catalog: TopicCatalog


def open_directories(
    runtime: Runtime,
    log_dirs: Sequence[str],
    broker_config: BrokerConfig,
    *,
    read_only: bool,
    on_damage: OnDamage,
    shown: OpenedFolder | None = None,
    metadata_log: bool = False,
) -> OpenDirectories:
    """Open data directories and list their partitions.

    Takes the parameters of `LogManager` and raises its errors. If an error occurs, all directories
    are closed.
    """
    max_bytes = broker_config.logstore_small_file_max_bytes
    open_directory = partial(
        LogDirectory,
        runtime,
        read_only=read_only,
        file_delete_delay_ms=effective_config({}, broker_config).file_delete_delay_ms,
        small_file_max_bytes=max_bytes,
        on_damage=on_damage,
        shown=shown,
        metadata_log=metadata_log,
    )
    directories = _open(runtime, log_dirs, open_directory)
    try:
        directories[0].check_online()
        homes: PartitionMap[LogDirectory] = PartitionMap()
        tolerant = on_damage is OnDamage.PASS_OVER
        store = TopicStore(runtime.fs, log_dirs[0], max_bytes, is_tolerant=tolerant)
        in_force = _with_stored(broker_config, store)
        catalog = TopicCatalog(store, homes, in_force, is_tolerant=tolerant)
        recover_moves(directories)
        _find_partitions(directories, homes)
    except BaseException:
        close_unused(directories)
        raise
    return OpenDirectories(directories, homes, catalog)


def close_unused(directories: Sequence[LogDirectory]) -> None:
    """Close directories after a failed start."""
    for directory in directories:
        directory.close(clean=False)


def _open(
    runtime: Runtime, log_dirs: Sequence[str], open_directory: Callable[[str], LogDirectory]
) -> list[LogDirectory]:
    """Open directories. Retry while another process moves partitions between them."""
    for attempt in range(1, ATTEMPTS_MAX + 1):
        before = [partition_folders(runtime.fs, path) for path in log_dirs]
        directories: list[LogDirectory] = []
        try:
            for path in log_dirs:
                directories.append(open_directory(path))  # noqa: PERF401  # closed after an error
        except BaseException:
            close_unused(directories)
            raise
        if all(directory.is_unchanging() for directory in directories):
            break
        if before == [partition_folders(runtime.fs, path) for path in log_dirs]:
            break
        pause_after(attempt, runtime.clock)
    return directories


def _with_stored(static: BrokerConfig, store: TopicStore) -> BrokerConfig:
    """Return the configuration updated with the settings stored by earlier runs."""
    try:
        return merge_layers(static, store.settings(Layer.CLUSTER), store.settings(Layer.BROKER))
    except InvalidConfigurationError as error:
        raise InvalidConfigurationError(
            f"{store.path}: its stored broker settings override the given settings and are"
            f" inconsistent with them: {error}"
        ) from error


def _find_partitions(
    directories: Sequence[LogDirectory], homes: PartitionMap[LogDirectory]
) -> None:
    for directory in directories:
        if METADATA_LOG in homes and METADATA_LOG in directory.partitions:
            directory.partitions.discard(METADATA_LOG)  # it belongs to another node
            logger.warning(
                "%s/%s is ignored, because %s contains this partition, too; use its path to inspect"
                " it",
                directory.path,
                METADATA_LOG_DIR,
                homes[METADATA_LOG].path,
            )
        for tp in directory.partitions:
            if tp in homes:
                raise InvalidConfigurationError(
                    f"partition {tp} exists in both {homes[tp].path} and {directory.path}"
                )
            homes[tp] = directory
