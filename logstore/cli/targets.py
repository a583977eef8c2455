"""Resolve TOPIC_OR_PATH to partitions or a file, for all commands that read."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Self

import click

from logstore.cli.options import Settings, checked_partition, unknown_topic
from logstore.names import parse_partition_dir
from logstore.types import TopicPartition

if TYPE_CHECKING:
    from logstore.analysis.view import PartitionView
    from logstore.broker import Broker
    from logstore.inspect.files import BatchSource
    from logstore.manager.directories.directory import OpenedFolder
    from logstore.runtime import FileSystem


@dataclass
class Target:
    """A resolved target: partitions of an open broker, or a file. Closing it closes both.

    Attributes
    ----------
    broker : Broker or None
        The broker. None for a file until `opened` is called.
    is_one, is_topic, is_folder : bool
        Whether the target is a single partition, a topic, or a partition directory.
    """

    broker: Broker | None
    partitions: tuple[TopicPartition, ...] = ()
    is_one: bool = False
    is_topic: bool = False
    is_folder: bool = False
    file: BatchSource | None = None
    open_file: Callable[[], Broker] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.broker is not None:
            self.broker.close()
        if self.file is not None:
            self.file.file.close()

    def opened(self) -> Broker:
        """Return the broker of the partitions. A file is opened as a log with a single segment."""
        if self.broker is None:
            assert self.open_file is not None
            self.broker = self.open_file()
            self.partitions = tuple(self.broker.partitions())
        return self.broker

    @property
    def chosen(self) -> tuple[str | None, int | None]:
        """Topic and partition of the target. None means all."""
        if self.is_one:
            return self.partitions[0]
        return (self.partitions[0].topic if self.is_topic else None), None

    def override(self, configs: Mapping[str, str]) -> None:
        """Override the configs of the topics."""
        if configs:
            if self.file is not None:
                raise click.UsageError("--config needs a topic or a directory, not a file")
            broker = self.opened()
            for topic in {tp.topic for tp in self.partitions}:
                broker.override_configs(topic, configs)

    def views(self) -> Iterator[PartitionView]:
        """Yield a view of each partition."""
        from logstore.analysis.view import PartitionView

        broker = self.opened()
        for tp in self.partitions:
            yield PartitionView(broker, tp)

    def sources(self) -> Iterator[tuple[BatchSource, int]]:
        """Yield the `.log` files, each with the first offset visible to consumers."""
        if self.file is not None:
            yield self.file, 0
            return
        for view in self.views():
            yield from view.sources(view.log.segments)


def open_target(
    settings: Settings,
    target: str | None,
    partition: int | None = None,
    *,
    as_recovered: bool = False,
    metadata_log: bool = False,
    dry_run: bool = False,
) -> Target:
    """Open TOPIC_OR_PATH for reading.

    A topic takes precedence over a path, unless the target contains a slash. Without a target, all
    partitions of the data directory are opened.

    Parameters
    ----------
    as_recovered : bool
        Show only data that would survive recovery. [default: all valid batches]
    metadata_log : bool
        Include the log of a KRaft node, `__cluster_metadata-0`.
    dry_run : bool
        Show partitions as a writing command would see them.
    """
    settings = settings._replace(as_recovered=as_recovered)
    opening = _Opening(metadata_log=metadata_log, dry_run=dry_run)
    if target is not None and _is_path(target):
        return _open_path(settings, target, partition, opening)
    fs = _files()
    if target is not None and fs.exists(target) and not _has_data_dir(settings):
        return _open_path(settings, target, partition, opening)
    broker = opening.open(settings)
    if target is None:
        if partition is not None:
            raise click.UsageError("--partition needs a topic")
        return Target(broker, tuple(broker.partitions()))
    names = [topic.name for topic in broker.topics()]
    if target in names:
        checked_partition(broker, target, partition)
        partitions = tuple(broker.partitions(target, partition))
        return Target(broker, partitions, is_one=partition is not None, is_topic=partition is None)
    named = _named_partition(broker, target)
    if named is not None:
        return Target(broker, (named,), is_one=True)
    broker.close()
    if fs.exists(target):
        return _open_path(settings, target, partition, opening)
    from logstore.errors import UnknownTopicOrPartitionError

    raise UnknownTopicOrPartitionError(unknown_topic(target, names) + " (and no such path)")


def _has_data_dir(settings: Settings) -> bool:
    directories = settings.directories(settings.broker_config())
    fs = _files()
    return all(fs.is_dir(directory) for directory in directories)


def _named_partition(broker: Broker, name: str) -> TopicPartition | None:
    parsed = parse_partition_dir(name)
    return parsed if parsed is not None and parsed in broker.partitions() else None


def _files() -> FileSystem:
    from logstore.runtime import DiskFileSystem, ReadOnlyFileSystem

    return ReadOnlyFileSystem(DiskFileSystem())


def refuse_path(target: str | None, remedy: str) -> None:
    """Raise a usage error if a command that writes was given a path.

    Parameters
    ----------
    remedy : str
        Options with which the command accepts a path.
    """
    if target is not None and _is_path(target):
        raise click.UsageError(
            f"{target} is a path, but this command changes topics of the data directory"
            f" (--data-dir); a path is accepted with {remedy}"
        )


def _is_path(target: str) -> bool:
    return "/" in target or target in (".", "..")


class _Opening(NamedTuple):
    """How to open the broker of a target."""

    metadata_log: bool
    dry_run: bool

    def open(
        self,
        settings: Settings,
        directories: Sequence[str] | None = None,
        shown: OpenedFolder | None = None,
    ) -> Broker:
        return settings.open_broker(
            read_only=not self.dry_run,
            dry_run=self.dry_run,
            directories=directories,
            shown=shown,
            metadata_log=self.metadata_log,
        )


def _open_path(settings: Settings, target: str, partition: int | None, opening: _Opening) -> Target:
    """Open a data directory, a partition directory with any name, or a file."""
    from logstore.analysis.locations import locate
    from logstore.errors import InvalidConfigurationError

    if partition is not None:
        raise click.UsageError("--partition needs a topic, not a path")
    fs = _files()
    path = os.path.abspath(target)  # noqa: PTH100  # resolve() would follow links
    missing = click.UsageError(f"{target}: no such file or directory")
    if not fs.is_dir(path):
        # In this order, a directory that is moved away in the meantime is not mistaken for a file.
        if not fs.exists(path):
            raise missing
        return _file_target(settings, fs, target, path, opening)
    try:
        place = locate(fs, path, target)
    except FileNotFoundError:  # moved away in the meantime
        raise missing from None
    except InvalidConfigurationError as error:
        raise click.UsageError(str(error)) from error
    directories, shown = place
    broker = opening.open(settings, directories, shown)
    if shown is not None:
        return Target(broker, (shown.topic_partition,), is_one=True, is_folder=True)
    return Target(broker, tuple(broker.partitions()))


def _file_target(
    settings: Settings, fs: FileSystem, target: str, path: str, opening: _Opening
) -> Target:
    from logstore.analysis.locations import partition_of_folder
    from logstore.config.overrides import ReadLimits
    from logstore.inspect.files import source_of_file
    from logstore.manager.directories.directory import OpenedFolder
    from logstore.names import LOG_SUFFIX, is_raft_snapshot

    folder, _, name = path.rpartition("/")
    if LOG_SUFFIX not in name and not is_raft_snapshot(name):
        raise click.UsageError(f"{target} is neither a .log file nor a Raft snapshot")
    limits = ReadLimits.of(settings.broker_config())

    def open_file() -> Broker:
        parent, _, folder_name = folder.rpartition("/")
        shown = OpenedFolder(partition_of_folder(folder_name or "log"), folder_name, name)
        return opening.open(settings, [parent or "/"], shown)

    source = source_of_file(fs, path, limits.batch_bytes)
    return Target(None, is_one=True, file=source, open_file=open_file)
