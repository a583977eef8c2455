"""Names and paths, resolved: the partitions or the file that TOPIC_OR_PATH stands for.

Every command that reads takes its target through here, so that all understand the same names.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple, Self

import click

from logstore.cli.options import Settings, checked_partition, unknown_topic

if TYPE_CHECKING:
    from logstore.broker import Broker
    from logstore.broker.view import PartitionView
    from logstore.inspect.files import BatchSource
    from logstore.runtime import FileSystem
    from logstore.types import TopicPartition


class Target(NamedTuple):
    """The target: partitions of an open broker, or one file. Closes what it has open.

    `is_one` tells that a single partition was asked for, `is_topic` that a topic was.
    """

    broker: Broker | None
    partitions: tuple[TopicPartition, ...] = ()
    is_one: bool = False
    is_topic: bool = False
    file: BatchSource | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.broker is not None:
            self.broker.close()
        if self.file is not None:
            self.file.file.close()

    def opened(self) -> Broker:
        """Return the broker that holds the partitions.

        Raises
        ------
        click.UsageError
            The target is a file.
        """
        if self.broker is None:
            raise click.UsageError("a topic or a directory is needed, not a file")
        return self.broker

    def override(self, configs: Mapping[str, str]) -> None:
        """Lay configurations over those of the topics that are looked at."""
        if configs:
            if self.broker is None:
                raise click.UsageError("--config needs a topic or a directory, not a file")
            for topic in {tp.topic for tp in self.partitions}:
                self.broker.override_configs(topic, configs)

    def views(self) -> Iterator[PartitionView]:
        """Yield the partitions, to be read batch by batch."""
        from logstore.broker.view import PartitionView

        assert self.broker is not None
        for tp in self.partitions:
            yield PartitionView(self.broker, tp)

    def sources(self) -> Iterator[tuple[BatchSource, int]]:
        """Yield the `.log` files, and the first offset that readers may see in each."""
        from logstore.inspect.files import source_of_segment, sources_of

        if self.file is not None:
            yield self.file, 0
        for view in self.views() if self.broker is not None else ():
            log = view.log
            for source in sources_of(view.topic_partition, log.segments):
                bounds = log.surveyed.get(source.path)
                if bounds is None:
                    yield source, log.log_start_offset
                    continue
                as_it_lies = source_of_segment(view.files, bounds.path, source)
                yield as_it_lies, max(log.log_start_offset, bounds.first_offset)
                as_it_lies.file.close()


def open_target(
    settings: Settings,
    target: str | None,
    partition: int | None = None,
    *,
    as_recovered: bool = False,
) -> Target:
    """Open what TOPIC_OR_PATH stands for, only to be read.

    A topic of the data directory wins over a path; with a slash it is a path. Without either all
    partitions of the data directory are meant.

    Parameters
    ----------
    as_recovered : bool
        Show what a broker's recovery would leave; by default every valid batch.
    """
    settings = settings._replace(as_recovered=as_recovered)
    if target is not None and ("/" in target or target in (".", "..")):
        return _open_path(settings, target, partition)
    fs = _files()
    if target is not None and fs.exists(target) and not _has_data_dir(settings):
        return _open_path(settings, target, partition)
    broker = settings.open_broker(read_only=True)
    if target is None:
        if partition is not None:
            raise click.UsageError("--partition needs a topic")
        return Target(broker, tuple(broker.partitions()))
    names = [topic.name for topic in broker.topics()]
    if target in names:
        checked_partition(broker, target, partition)
        found = tuple(broker.partitions(target, partition))
        return Target(broker, found, is_one=partition is not None, is_topic=partition is None)
    named = _named_partition(broker, target)
    if named is not None:
        return Target(broker, (named,), is_one=True)
    broker.close()
    if fs.exists(target):
        return _open_path(settings, target, partition)
    from logstore.errors import UnknownTopicOrPartitionError

    raise UnknownTopicOrPartitionError(unknown_topic(target, names) + " (nor is it a path)")


def _has_data_dir(settings: Settings) -> bool:
    directories = settings.directories(settings.broker_config())
    fs = _files()
    return all(fs.is_dir(directory) for directory in directories)


def _named_partition(broker: Broker, name: str) -> TopicPartition | None:
    from logstore.names import parse_partition_dir

    parsed = parse_partition_dir(name)
    return parsed if parsed is not None and parsed in broker.partitions() else None


def _files() -> FileSystem:
    from logstore.runtime import DiskFileSystem, ReadOnlyFileSystem

    return ReadOnlyFileSystem(DiskFileSystem())


def _open_path(settings: Settings, target: str, partition: int | None) -> Target:
    from logstore.config.limits import ReadLimits
    from logstore.inspect.files import source_of_file
    from logstore.names import LOG_SUFFIX, is_raft_snapshot, parse_partition_dir

    if partition is not None:
        raise click.UsageError("--partition needs a topic, not a path")
    fs = _files()
    path = os.path.abspath(target)  # noqa: PTH100  # resolve() would lose a link's name
    if not fs.exists(path):
        raise click.UsageError(f"there is no file or directory {target}")
    parent, _, name = path.rpartition("/")
    if not fs.is_dir(path):
        if LOG_SUFFIX not in name and not is_raft_snapshot(name):
            raise click.UsageError(f"{target} is no .log file, nor a snapshot of a Raft log")
        limits = ReadLimits.of(settings.broker_config())
        return Target(None, file=source_of_file(fs, path, limits.batch_bytes))
    named = parse_partition_dir(name)
    has_partitions = any(
        parse_partition_dir(child) is not None and fs.is_dir(f"{path}/{child}")
        for child in fs.list_dir(path)
    )
    if named is not None and (_has_segments(fs, path) or not has_partitions):
        broker = settings.open_broker(read_only=True, directories=[parent or "/"])
        return Target(broker, (named,), is_one=True)
    if not has_partitions:
        raise click.UsageError(
            f"{target} is neither a partition directory (TOPIC-NUMBER) nor holds any"
        )
    broker = settings.open_broker(read_only=True, directories=[path])
    return Target(broker, tuple(broker.partitions()))


def _has_segments(fs: FileSystem, path: str) -> bool:
    return any(".log" in name for name in fs.list_dir(path))
