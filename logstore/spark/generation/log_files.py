"""Write the files of a partition from parcels, in the virtual time of the workload.

The engine rolls segments, dates files and expires idle producers in virtual time, as a broker
would. Independent of Spark.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from logstore.config.broker_config import BrokerConfig
from logstore.runtime import DiskFileSystem, Runtime, VirtualClock, random_source
from logstore.spark.datasource.commit import WrittenPartition, close_log, create_log
from logstore.types import TopicPartition
from logstore.workload.parcels import COMMIT, DATA, ENTRY, Parcel
from logstore.workload.placement import (
    GROUP_BATCHES,
    BatchPlacer,
    PlacedBatch,
    append_batches,
    append_marker,
    fit_segment,
)
from logstore.workload.spec import Spec


@dataclass(frozen=True)
class GeneratedPartition:
    """A written partition with its counts. `markers` counts control batches."""

    written: WrittenPartition
    records: int
    batches: int
    markers: int
    bytes: int


class PartitionFiles:
    """Writes one partition of a workload.

    Parameters
    ----------
    folder : str
        Partition directory to create in the job directory.
    """

    def __init__(self, spec: Spec, partition: int, folder: str) -> None:
        self._spec = spec
        self._clock = VirtualClock(spec.time.start_ms)
        runtime = Runtime(
            self._clock,
            DiskFileSystem(self._clock),
            random_source(spec.seed * spec.partitions + partition),  # for the roll jitter
        )
        tp = TopicPartition(spec.topic, partition)
        self._log = create_log(runtime, folder, tp, spec.topic_configs)
        self._placing = BatchPlacer(spec.producers)
        self._last_ms: dict[int, int] = {}  # last timestamp of each known producer
        self._pending: list[PlacedBatch] = []
        self._check_ms = BrokerConfig().producer_id_expiration_check_interval_ms
        self._next_check_ms = spec.time.start_ms + self._check_ms
        self._records = self._batches = self._markers = 0

    def add(self, parcel: Parcel) -> None:
        """Append the entries of a parcel. Parcels must be added in order of block and part.

        Raises
        ------
        RequestError
            The engine rejected an append.
        """
        position = 0
        for kind, producer, size, at_ms in np.frombuffer(parcel.entries, ENTRY).tolist():
            if at_ms >= self._next_check_ms:
                self._expire_producers(at_ms)
            if kind == DATA:
                self._place(producer, at_ms, parcel.batches[position : position + size])
                position += size
            else:
                self._end_transaction(producer, at_ms, commit=kind == COMMIT)

    def finish(self) -> GeneratedPartition:
        """Append the pending batches and close the log cleanly."""
        self._append_pending()
        size = self._log.size_bytes
        written = close_log(self._log)
        return GeneratedPartition(written, self._records, self._batches, self._markers, size)

    def _expire_producers(self, at_ms: int) -> None:
        """Expire producers as of a broker's last periodic check before `at_ms`."""
        checked_ms = at_ms - (at_ms - self._next_check_ms) % self._check_ms
        self._next_check_ms = checked_ms + self._check_ms
        silent_since_ms = checked_ms - self._log.producer_state.producer_id_expiration_ms
        if min(self._last_ms.values(), default=checked_ms) > silent_since_ms:
            return
        self._append_pending()
        with self._log.lock:
            self._log.producer_state.remove_expired(checked_ms)
        # The log retains a producer with an open transaction, and its next batch adds it here.
        self._last_ms = {
            producer: last_ms
            for producer, last_ms in self._last_ms.items()
            if last_ms > silent_since_ms
        }

    def _place(self, producer: int, at_ms: int, batch: bytes) -> None:
        placed = self._placing.place(producer, at_ms, batch)
        if producer < self._spec.producers.with_id:
            self._last_ms[producer] = placed.max_timestamp
        self._pending.append(placed)
        self._records += placed.records
        self._batches += 1
        if len(self._pending) == GROUP_BATCHES:
            self._append_pending()

    def _append_pending(self) -> None:
        """Append placed batches, all at once if they fit into the segment.

        If they do not fit, they are appended one by one, which results in the same files.
        """
        if not self._pending:
            return
        pending, self._pending = self._pending, []
        fits = fit_segment(self._log, [batch.data for batch in pending], pending[-1].at_ms)
        for group in [pending] if fits else [[batch] for batch in pending]:
            self._clock.set_ms(group[-1].at_ms)
            append_batches(self._log, group)
        assert self._log.log_end_offset == self._placing.next_offset, (
            "all batches were complete and appended"
        )

    def _end_transaction(self, producer: int, at_ms: int, *, commit: bool) -> None:
        self._append_pending()
        self._clock.set_ms(at_ms)
        append_marker(self._log, producer, commit=commit)
        self._placing.place_marker()
        self._last_ms[producer] = at_ms
        self._markers += 1


def write_partitions(
    spec: Spec, parcels: Iterator[Parcel], task_dir: str
) -> Iterator[GeneratedPartition]:
    """Write the parcels of a task, which must be in order and grouped by partition."""
    files: PartitionFiles | None = None
    current = -1
    for parcel in parcels:
        if parcel.partition != current:
            if files is not None:
                yield files.finish()
            current = parcel.partition
            folder = f"{task_dir}/{TopicPartition(spec.topic, current)}"
            files = PartitionFiles(spec, current, folder)
        assert files is not None
        files.add(parcel)
    if files is not None:
        yield files.finish()
