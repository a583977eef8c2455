"""Python clients that encode and decode record batches, imported on demand."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from typing import Any, NamedTuple

MAGIC = 2

Records = Sequence[tuple[bytes, bytes]]
"""Keys and values."""


class Client(NamedTuple):
    """The batch coding of a client.

    Attributes
    ----------
    name : str
        Name with version.
    encode : callable
        Encodes consecutive records as a batch, with the same timestamp in ms.
    decode : callable
        Reads offset, timestamp, key and value of each record in a batch. Returns the number of
        records.
    """

    name: str
    encode: Callable[[Records, int], bytes]
    decode: Callable[[bytes], int]


def clients() -> Iterator[Client]:
    """Yield the installed clients (the `bench` extra)."""
    for package, load in (("aiokafka", _aiokafka), ("kafka-python", _kafka_python)):
        try:
            builder, batch = load()
        except ImportError:
            continue
        yield _client(f"{package} {version(package)}", builder, batch)


def _aiokafka() -> tuple[Any, Any]:
    from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

    return DefaultRecordBatchBuilder, DefaultRecordBatch


def _kafka_python() -> tuple[Any, Any]:
    with warnings.catch_warnings():
        # It loads schemas with a function that has been deprecated since Python 3.11.
        warnings.simplefilter("ignore", DeprecationWarning)
        return _kafka_python_coders()


def _kafka_python_coders() -> tuple[Any, Any]:
    from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

    return DefaultRecordBatchBuilder, DefaultRecordBatch


def _client(name: str, builder: Any, batch: Any) -> Client:
    def encode(records: Records, timestamp: int) -> bytes:
        draft = builder(
            magic=MAGIC,
            compression_type=0,
            is_transactional=False,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            batch_size=1 << 30,
        )
        append = draft.append
        for offset, (key, value) in enumerate(records):
            append(offset, timestamp, key, value, [])
        return bytes(draft.build())

    def decode(data: bytes) -> int:
        count = 0
        for record in batch(data):
            _ = record.offset, record.timestamp, record.key, record.value
            count += 1
        return count

    return Client(name, encode, decode)
