"""Copy the state of a data directory as the start of a simulation.

In memory, `.log` files of closed segments are not copied but read from disk. A large directory thus
only requires memory for its indexes and active segments.
"""

from __future__ import annotations

import os
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING

from logstore.analysis.copies import copy_into, unfinished
from logstore.broker.setup import MEMORY_DIR
from logstore.manager.topics.store import Topic as StoredTopic
from logstore.manager.topics.store import TopicStore
from logstore.runtime import (
    DiskFileSystem,
    MemoryFileSystem,
    OverlayFileSystem,
    ReadOnlyFileSystem,
)
from logstore.simulate.recording import open_origin, select_partitions

if TYPE_CHECKING:
    from logstore.runtime import FileSystem, VirtualClock
    from logstore.simulate.recording import TopicRecording
    from logstore.simulate.scenario import Scenario
    from logstore.workload.spec import Spec


def copy_start_state(
    scenario: Scenario, clock: VirtualClock, data_dir: str | PathLike[str] | None
) -> tuple[FileSystem, str]:
    """Copy the continued topics of a scenario: segments, indexes, checkpoints and configs.

    Parameters
    ----------
    data_dir : path, optional
        Target directory, missing or empty. [default: in memory]

    Returns
    -------
    FileSystem, str
        The target file system and the data directory in it.

    Raises
    ------
    InvalidConfigurationError, UnknownTopicOrPartitionError
        See `recording.open_origin` and `recording.select_partitions`. Also raised if the target is
        not empty.
    KafkaStorageError
        A file cannot be read or written, or changed during the copy.
    """
    fs: FileSystem
    if data_dir is None:
        overlay = OverlayFileSystem(MemoryFileSystem(clock), clock)
        fs, target, link = overlay, MEMORY_DIR, _DiskLink(overlay)
    else:
        fs, target, link = DiskFileSystem(clock), os.path.abspath(data_dir), None  # noqa: PTH100
    continued = [topic for topic in scenario.topics if topic.continued]
    ids: dict[str, str | None] = {}
    with open_origin(scenario.origins, clock) as source, unfinished(fs, target):
        by_topic = select_partitions(source, [topic.name for topic in continued])
        partitions = [tp for some in by_topic.values() for tp in some]
        for broker, some in source.brokers_of(partitions).items():
            copy_into(broker.manager, some, fs, target, link=link)
            for name in {tp.topic for tp in some}:
                ids.setdefault(name, broker.manager.catalog.topic(name).id)
    # Adopted topics (without an entry in the store) get no background retention or cleaning.
    TopicStore(fs, target).put(
        StoredTopic(
            topic.name,
            tuple(sorted(tp.partition for tp in by_topic[topic.name])),
            topic.configs,
            id=ids[topic.name],
        )
        for topic in continued
    )
    return fs, target


class _DiskLink:
    """Maps names in an overlay to files on disk."""

    def __init__(self, overlay: OverlayFileSystem) -> None:
        self._overlay = overlay
        self._disk = ReadOnlyFileSystem(DiskFileSystem())

    def __call__(self, path: str, name: str) -> bool:
        self._overlay.show(name, lambda: self._disk.open(path))
        self._overlay.set_mtime(name, self._disk.stat(path).mtime_ms)
        return True


def spec_for(spec: Spec, recording: TopicRecording) -> Spec:
    """Adapt a workload to the partitions and key sizes of a recording."""
    spec = replace(spec, partitions=1 + max(recording.partitions))
    sizes = recording.keys.sizes
    longest = int(sizes.max()) if len(sizes) else 0
    more = longest - len(spec.keys.prefix.encode()) - spec.keys.digits
    if more <= 0 or "max.message.bytes" in spec.configs:
        return spec
    room = spec.largest_batch_bytes + more * spec.batches.max_records
    return replace(spec, configs={**spec.configs, "max.message.bytes": str(room)})
