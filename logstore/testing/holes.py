"""Logs with holes, in all forms that are known to make clients hang.

A client that counts records, or assumes that the last record is at the end of the log, waits for an
offset that never comes. The logs are created with ordinary producers, transactions and cleaning
passes, while the clock is advanced. No bytes are written by hand, and Kafka brokers can open the
directories.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from logstore.testing.describing import records_of
from logstore.types import TopicPartition

if TYPE_CHECKING:
    from logstore.broker import Broker
    from logstore.runtime import ShiftedClock, VirtualClock

    MovableBroker = Broker[VirtualClock] | Broker[ShiftedClock]

CONFIGS: Mapping[str, str] = MappingProxyType(
    # "delete" is only required for deleting records
    {"cleanup.policy": "compact,delete", "retention.ms": "-1"}
)
"""Configs of the topics that are created here."""

CODECS = ("gzip", "snappy", "lz4", "zstd")


class HoleyLog(NamedTuple):
    """The offsets of a log with holes, as a client sees them.

    Attributes
    ----------
    log_start_offset, log_end_offset, last_stable_offset : int
        The log start, and the exclusive ends for `read_uncommitted` and `read_committed`.
    offsets : tuple of int
        Offsets of all records between the log start and the log end.
    committed_offsets : tuple of int
        Offsets of the records returned with `read_committed`.
    """

    topic: str
    partition: int
    log_start_offset: int
    log_end_offset: int
    last_stable_offset: int
    offsets: tuple[int, ...]
    committed_offsets: tuple[int, ...]


def fill(
    broker: MovableBroker,
    shape: str,
    *,
    topic: str = "holes",
    partition: int = 0,
) -> HoleyLog:
    """Append records to a partition and clean it, so that its log has holes of a given shape.

    Parameters
    ----------
    shape : str
        A name in `SHAPES`.
    topic : str
        The topic. If it does not exist, it is created with `CONFIGS`. Existing records are cleaned
        as well, so superseded ones may be removed.

    Returns
    -------
    HoleyLog
        The resulting state of the entire partition.

    Raises
    ------
    ValueError
        The shape is unknown.

    Notes
    -----
    The clock is advanced, by several days if tombstones must expire.
    """
    if shape not in SHAPES:
        raise ValueError(f"unknown shape {shape!r} of a log with holes: {', '.join(SHAPES)}")
    if topic not in {each.name for each in broker.topics()}:
        broker.create_topic(topic, partition + 1, CONFIGS)
    _, fill_with = _SHAPES[shape]
    fill_with(_PartitionFiller(broker, topic, partition))
    return read_offsets(broker, topic, partition)


def make(
    shape: str, data_dir: str | PathLike[str], *, topic: str = "holes", seed: int = 0
) -> HoleyLog:
    """Create a data directory with a single partition of the given shape.

    The directory is shut down cleanly.

    Parameters
    ----------
    shape : str
        A name in `SHAPES`.
    data_dir : path
        Path of the directory, which is created if it does not exist.
    seed : int
        Random seed. The same seed always creates the same bytes.

    Raises
    ------
    ValueError
        The shape is unknown.
    """
    from logstore.broker import Broker
    from logstore.runtime import VirtualClock

    with Broker(data_dir, clock=VirtualClock(), seed=seed) as broker:
        return fill(broker, shape, topic=topic)


def read_offsets(broker: Broker, topic: str = "holes", partition: int = 0) -> HoleyLog:
    """Return the offsets of a partition as a client sees them."""
    log = broker.log(topic, partition)
    found, committed = (
        tuple(
            record.offset for record in records_of(broker, log.topic_partition, isolation=isolation)
        )
        for isolation in ("read_uncommitted", "read_committed")
    )
    return HoleyLog(
        topic,
        partition,
        log.log_start_offset,
        log.log_end_offset,
        log.last_stable_offset,
        found,
        committed,
    )


# --- shapes ------------------------------------------------------------------------------------


class _PartitionFiller:
    """A partition that is being filled. Its keys differ from those of existing records."""

    def __init__(self, broker: MovableBroker, topic: str, partition: int) -> None:
        self.broker = broker
        self.tp = TopicPartition(topic, partition)
        self.log = broker.log(topic, partition)
        self._prefix = b"%d-" % self.log.log_end_offset

    def key(self, number: int) -> bytes:
        return self._prefix + b"%d" % number

    def batch(self, *numbers: int, codec: str = "none", value: bytes | None = b"value") -> None:
        """Append a batch with one record per key number."""
        self.broker.append_many(
            self.tp.topic,
            [(self.key(number), value) for number in numbers],
            partition=self.tp.partition,
            compression=codec,
            batch_records=len(numbers),
        )

    def roll(self) -> None:
        self.broker.roll(*self.tp)

    def clean(self) -> None:
        """Clean the whole log, without merging segments."""
        with self._without_merging():
            self.broker.clean(*self.tp, force=True, roll=True)

    def expire(self) -> None:
        """Advance the clock beyond the delete horizons and clean again."""
        self.broker.clock.advance(ms=self.log.config.delete_retention_ms + 1)
        self.clean()

    @contextmanager
    def transactions(self) -> Iterator[Callable[..., None]]:
        """Yield a function that writes records in a transaction and ends the transaction."""
        with self.broker.producer(transactional_id=f"holes-{self._prefix.decode()}") as producer:
            producer.init_transactions()

            def transaction(*numbers: int, commit: bool) -> None:
                producer.begin_transaction()
                for number in numbers:
                    producer.send(*self._place(number))
                (producer.commit_transaction if commit else producer.abort_transaction)()

            yield transaction

    def send(self, *numbers: int) -> None:
        """Send single-record batches with a new idempotent producer."""
        with self.broker.producer() as producer:
            for number in numbers:
                producer.send(*self._place(number)).get()

    def _place(self, number: int) -> tuple[str, bytes, bytes, None, int]:
        return self.tp.topic, b"value", self.key(number), None, self.tp.partition

    @contextmanager
    def _without_merging(self) -> Iterator[None]:
        name = "segment.bytes"
        topic = self.broker.topic(self.tp.topic)
        sizes = [segment.size_bytes for segment in self.log.segments]
        self.broker.alter_configs(topic.name, {name: str(max(sizes))})
        try:
            yield
        finally:
            if name in topic.configs:
                self.broker.alter_configs(topic.name, {name: topic.configs[name]})
            else:
                self.broker.alter_configs(topic.name, {}, unset=[name])


def _trailing_hole(log: _PartitionFiller) -> None:
    log.batch(0, 1)
    log.batch(2, 3, 4, value=None)
    log.clean()
    log.expire()


def _last_offset_gone(log: _PartitionFiller) -> None:
    log.batch(0, 1, 2)
    log.batch(2, 3)
    log.clean()


def _empty_batch(log: _PartitionFiller) -> None:
    log.send(0, 1)
    log.batch(0, 1, 2)
    log.clean()


def _segment_gap(log: _PartitionFiller) -> None:
    log.batch(0, 1)
    log.batch(2, 3)
    log.roll()
    log.batch(2, 3, 4)
    log.batch(5, 6)
    log.roll()
    log.batch(3, 2, 4, 7)
    log.clean()


def _control_batches(log: _PartitionFiller) -> None:
    with log.transactions() as transaction:
        transaction(0, 1, commit=False)
        transaction(2, commit=False)
    # A producer's last data batch remains as an empty batch until the producer id expires.
    log.broker.clock.advance(ms=log.broker.broker_config.producer_id_expiration_ms + 1)
    log.log.producer_state.remove_expired(log.broker.clock.now_ms())
    log.clean()


def _delete_horizon(log: _PartitionFiller) -> None:
    log.batch(0, 1, 2, 3)
    log.batch(1, 2, 3, value=None)
    log.batch(3)
    log.clean()


def _compressed(log: _PartitionFiller) -> None:
    for first, codec in zip(range(0, 40, 10), CODECS, strict=True):
        log.batch(*range(first, first + 6), codec=codec)
    for first in range(0, 40, 10):
        log.batch(first + 1, first + 2, first + 5)
    log.clean()


def _start_in_hole(log: _PartitionFiller) -> None:
    log.batch(0, 1, 2, 3)
    log.batch(1, 2, 4)
    log.clean()
    log.broker.delete_records({log.tp: log.log.log_end_offset - 5})


def _aborted_end(log: _PartitionFiller) -> None:
    log.batch(0)
    with log.transactions() as transaction:
        transaction(1, commit=True)
        transaction(0, 2, commit=False)


def _all_records_removed(log: _PartitionFiller) -> None:
    log.batch(0, 1, 2, value=None)
    log.clean()
    log.expire()


def _empty_active_segment(log: _PartitionFiller) -> None:
    log.batch(0, 1, 2)
    # Like Kafka 3.9, this cleaner retains the header of the last batch. Kafka 4 removes it.
    log.log.writer.roll(log.log.log_end_offset + 4)
    log.log.offsets.set_high_watermark(log.log.log_end_offset)


_SHAPES: dict[str, tuple[str, Callable[[_PartitionFiller], None]]] = {
    "trailing_hole": (
        "the last records were removed, but the log end offset has not changed",
        _trailing_hole,
    ),
    "last_offset_gone": (
        "the last record of a batch was removed, but the batch was not",
        _last_offset_gone,
    ),
    "empty_batch": ("batches without records, which retain producer sequences", _empty_batch),
    "segment_gap": (
        "the end of a segment and the start of the next one were removed",
        _segment_gap,
    ),
    "control_batches": ("only transaction markers", _control_batches),
    "delete_horizon": (
        "a batch of tombstones with a delete horizon and holes",
        _delete_horizon,
    ),
    "compressed": ("batches with holes for every codec", _compressed),
    "start_in_hole": (
        "the log starts inside a batch, at the offset of a removed record",
        _start_in_hole,
    ),
    "aborted_end": (
        "the last transaction was aborted: read_committed skips the last records",
        _aborted_end,
    ),
    "bare_end": (
        "the log ends without a batch, as it may happen with Kafka 4",
        _empty_active_segment,
    ),
    "nothing_left": (
        "all records were removed, but the log end offset has not changed",
        _all_records_removed,
    ),
}

SHAPES: Mapping[str, str] = MappingProxyType({name: each[0] for name, each in _SHAPES.items()})
"""The shapes, with their descriptions."""
