"""Coding lines: encoding and decoding record batches, compared with Python clients."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from logstore.bench.measuring import run_interleaved, timed
from logstore.bench.micro.figures import NS, costs
from logstore.bench.micro.setting import Job, Setting
from logstore.bench.report.result import Line
from logstore.bench.rivals.clients import Client, clients
from logstore.record.columns import BytesColumn, decode_batch, encode_batch, encode_batches

BATCH_RECORDS = 130
"""Number of records in a batch of about 16 KiB."""
BATCHES = 400
LARGE_BATCH_RECORDS = 8190
"""Number of records in a batch of 1 MiB, Kafka's default `max.message.bytes`."""
TIMESTAMP_MS = 1_700_000_000_000
RECORDS = [(b"key-%012d" % number, bytes(range(100))) for number in range(BATCH_RECORDS)]


def columns_of(
    records: Sequence[tuple[bytes, bytes]],
) -> tuple[np.ndarray, BytesColumn, BytesColumn]:
    """Return the timestamps, keys and values of records as columns."""
    keys, values = map(BytesColumn.from_list, zip(*records, strict=True))
    return np.full(len(records), TIMESTAMP_MS), keys, values


def encode_with_logstore(times: np.ndarray, keys: BytesColumn, values: BytesColumn) -> bytes:
    """Encode columns as a batch, including its CRC."""
    return encode_batch(times, keys, values)


def decode_with_logstore(data: bytes) -> int:
    """Decode a batch into columns: offsets, timestamps, extents of keys and values."""
    return len(decode_batch(data).offsets)


def decode_with_client(client: Client, batch: bytes, records: int) -> None:
    """Decode a batch of `records` records with a client."""
    assert client.decode(batch) == records


def _lines(setting: Setting) -> Iterator[Line]:
    columns = columns_of(RECORDS)
    batch = encode_with_logstore(*columns)
    batches = setting.share_of(BATCHES)
    here: dict[str, Callable[[], object]] = {
        "encode": lambda: encode_with_logstore(*columns),
        "decode": lambda: decode_with_logstore(batch),
    }
    there: dict[str, Callable[[Client], object]] = {
        "encode": lambda client: client.encode(RECORDS, TIMESTAMP_MS),
        "decode": lambda client: decode_with_client(client, batch, BATCH_RECORDS),
    }
    for what, ours in here.items():
        for peer in _PEERS:
            yield _line(
                setting,
                f"{what}-{peer}",
                f"{what} columns, one batch per call",
                batches * BATCH_RECORDS,
                _repeated(ours, batches),
                partial(_repeated, there[what], batches),
                {"batch_records": BATCH_RECORDS, "batch_bytes": len(batch)},
                peer,
            )


def _many_at_once(setting: Setting) -> Iterator[Line]:
    """Encode the columns of many batches in one call, as `append_many` does."""
    batches = setting.share_of(BATCHES)
    count = batches * BATCH_RECORDS
    columns = columns_of(RECORDS * batches)
    bounds = range(0, count + 1, BATCH_RECORDS)
    yield _line(
        setting,
        "encode-many",
        f"encode columns, {batches} batches per call",
        count,
        lambda: encode_batches(*columns, None, bounds),
        partial(_repeated, lambda client: client.encode(RECORDS, TIMESTAMP_MS), batches),
        {"batch_records": BATCH_RECORDS, "batches": batches},
    )


def _large_batch(setting: Setting) -> Iterator[Line]:
    """Decode batches of the maximum size that a topic accepts by default."""
    records = RECORDS * -(-setting.share_of(LARGE_BATCH_RECORDS) // BATCH_RECORDS)
    batch = encode_with_logstore(*columns_of(records))
    times = BATCHES * BATCH_RECORDS // LARGE_BATCH_RECORDS
    yield _line(
        setting,
        "decode-large",
        f"decode columns, one batch of {len(records)} records per call",
        times * len(records),
        _repeated(lambda: decode_with_logstore(batch), times),
        partial(_repeated, lambda client: decode_with_client(client, batch, len(records)), times),
        {"batch_records": len(records), "batch_bytes": len(batch)},
    )


def _line(
    setting: Setting,
    name: str,
    title: str,
    count: int,
    ours: Callable[[], object],
    theirs: Callable[..., Callable[[], object]],
    facts: dict[str, Any],
    peer: str = "aiokafka",
) -> Line:
    """Measure work on `count` records. `theirs` returns the same work for a client."""
    peers = clients() if setting.has_peers else ()
    client = next((each for each in peers if each.name.startswith(f"{peer} ")), None)
    contestants = {"here": timed(ours)}
    if client is not None:
        contestants["there"] = timed(theirs(client))
    samples = run_interleaved(contestants, repeats=setting.short_repeats, warmups=setting.warmups)
    return Line(
        name=f"coding/{name}",
        title=f"{title}, vs. {peer}",
        unit="ns/record",
        higher_is_better=False,
        here=costs(count, samples["here"], NS),
        peer=costs(count, samples["there"], NS) if client is not None else None,
        peer_name=client.name if client is not None else f"{peer} is not installed or excluded",
        facts=facts,
    )


def _repeated(work: Callable[..., object], times: int, *arguments: object) -> Callable[[], object]:
    def repeat() -> None:
        for _ in range(times):
            work(*arguments)

    return repeat


_PEERS = ("aiokafka", "kafka-python")


def jobs() -> Iterator[Job]:
    """Yield the jobs. The first one measures several lines with the same batches."""
    names = tuple(f"coding/{what}-{name}" for what in ("encode", "decode") for name in _PEERS)
    yield Job(names, True, _lines)
    yield Job(("coding/encode-many",), True, _many_at_once)
    yield Job(("coding/decode-large",), True, _large_batch)
