"""Starting: the state of a data directory laid out for a simulation, which changes only the copy.

In memory the `.log` files of closed segments are not copied but shown through from the disk, so
that a large directory takes no more room than what it has of indexes and of active segments.
"""

from __future__ import annotations

import os
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING

from logstore.analysis.copies import copy_partitions
from logstore.broker.setup import MEMORY_DIR
from logstore.manager.topics.store import Topic as StoredTopic
from logstore.manager.topics.store import TopicStore
from logstore.runtime import (
    DiskFileSystem,
    MemoryFileSystem,
    OverlayFileSystem,
    ReadOnlyFileSystem,
)
from logstore.simulate.recording import chosen, opened

if TYPE_CHECKING:
    from logstore.runtime import FileSystem, VirtualClock
    from logstore.simulate.recording import TopicRecording
    from logstore.simulate.scenario import Scenario
    from logstore.workload.spec import Spec


def laid_out(
    scenario: Scenario, clock: VirtualClock, data_dir: str | PathLike[str] | None
) -> tuple[FileSystem, str]:
    """Lay out the topics that go on of a scenario: segments, indexes, checkpoints, configurations.

    Parameters
    ----------
    data_dir : path, optional
        Where, a directory that is missing or empty; in memory by default.

    Returns
    -------
    FileSystem, str
        The files, and the data directory among them.

    Raises
    ------
    InvalidConfigurationError, UnknownTopicOrPartitionError
        See `recording.opened` and `recording.chosen`; or the directory is not empty.
    KafkaStorageError
        A file could not be read or written, or changed meanwhile.
    """
    fs: FileSystem
    if data_dir is None:
        overlay = OverlayFileSystem(MemoryFileSystem(clock), clock)
        fs, target, link = overlay, MEMORY_DIR, _Shown(overlay)
    else:
        fs, target, link = DiskFileSystem(clock), os.path.abspath(data_dir), None  # noqa: PTH100
    continued = [topic for topic in scenario.topics if topic.continued]
    with opened(scenario.origin, clock) as source:
        found = chosen(source, [topic.name for topic in continued])
        partitions = [tp for some in found.values() for tp in some]
        manager = source.broker.manager
        copy_partitions(manager, partitions, fs, target, link=link)
        ids = {name: manager.catalog.topic(name).id for name in found}
    # An adopted topic would be left alone by everything in the background.
    TopicStore(fs, target).put(
        StoredTopic(
            topic.name,
            tuple(sorted(tp.partition for tp in found[topic.name])),
            topic.configs,
            id=ids[topic.name],
        )
        for topic in continued
    )
    return fs, target


class _Shown:
    """Shows files of the disk under other names in an overlay."""

    def __init__(self, overlay: OverlayFileSystem) -> None:
        self._overlay = overlay
        self._disk = ReadOnlyFileSystem(DiskFileSystem())

    def __call__(self, path: str, name: str) -> bool:
        self._overlay.show(name, lambda: self._disk.open(path))
        self._overlay.set_mtime(name, self._disk.stat(path).mtime_ms)
        return True


def spec_for(spec: Spec, recording: TopicRecording) -> Spec:
    """Return a workload as it comes to the partitions that are there, with keys that long."""
    spec = replace(spec, partitions=1 + max(recording.partitions))
    sizes = recording.keys.sizes
    longest = int(sizes.max()) if len(sizes) else 0
    more = longest - len(spec.keys.prefix.encode()) - spec.keys.digits
    if more <= 0 or "max.message.bytes" in spec.configs:
        return spec
    room = spec.largest_batch_bytes + more * spec.batches.max_records
    return replace(spec, configs={**spec.configs, "max.message.bytes": str(room)})
