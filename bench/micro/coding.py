"""Coding lines: encoding and decoding record batches, compared with Python clients."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from logstore.bench.measuring import run_interleaved, timed
from logstore.bench.micro.figures import NS, costs
from logstore.bench.micro.setting import Job, Setting
from logstore.bench.report.result import Line
from logstore.bench.rivals.clients import Client, clients
from logstore.record.columns import BytesColumn, decode_batch, encode_batch, encode_batches

BATCH_RECORDS = 130
"""Records in a batch of about 16 KiB."""
BATCHES = 400
LARGE_BATCH_RECORDS = 8190
"""Records in a batch of 1 MiB, Kafka's default of `max.message.bytes`."""
TIMESTAMP_MS = 1_700_000_000_000
RECORDS = [(b"key-%012d" % number, bytes(range(100))) for number in range(BATCH_RECORDS)]


def columns_of(
    records: Sequence[tuple[bytes, bytes]],
) -> tuple[np.ndarray, BytesColumn, BytesColumn]:
    """Return the timestamps, keys and values of records as columns."""
    keys, values = map(BytesColumn.from_list, zip(*records, strict=True))
    return np.full(len(records), TIMESTAMP_MS), keys, values


def encode_here(times: np.ndarray, keys: BytesColumn, values: BytesColumn) -> bytes:
    """Encode columns as a batch, including its CRC."""
    return encode_batch(times, keys, values)


def decode_here(data: bytes) -> int:
    """Decode a batch into columns: offsets, timestamps, extents of keys and values."""
    return len(decode_batch(data).offsets)


def _lines(setting: Setting) -> Iterator[Line]:
    columns = columns_of(RECORDS)
    batch = encode_here(*columns)
    here: dict[str, Callable[[], object]] = {
        "encode": lambda: encode_here(*columns),
        "decode": lambda: decode_here(batch),
    }
    peers = list(clients()) if setting.has_peers else []
    assert all(client.decode(batch) == BATCH_RECORDS for client in peers)
    for what, ours in here.items():
        for name in _PEERS:
            client = next((each for each in peers if each.name.startswith(f"{name} ")), None)
            yield _line(what, name, ours, client, batch, setting)


def _line(
    what: str,
    name: str,
    ours: Callable[[], object],
    client: Client | None,
    batch: bytes,
    setting: Setting,
) -> Line:
    batches = setting.share_of(BATCHES)
    contestants = {"here": timed(_repeated(ours, batches))}
    if client is not None:
        theirs = {
            "encode": lambda: client.encode(RECORDS, TIMESTAMP_MS),
            "decode": lambda: client.decode(batch),
        }[what]
        contestants["there"] = timed(_repeated(theirs, batches))
    samples = run_interleaved(contestants, repeats=setting.short_repeats, warmups=setting.warmups)
    count = batches * BATCH_RECORDS
    return Line(
        name=f"coding/{what}-{name}",
        title=f"{what} columns, one batch per call, vs. {name}",
        unit="ns/record",
        higher_is_better=False,
        here=costs(count, samples["here"], NS),
        peer=costs(count, samples["there"], NS) if client is not None else None,
        peer_name=client.name if client is not None else f"{name} is not installed or excluded",
        facts={"batch_records": BATCH_RECORDS, "batch_bytes": len(batch)},
    )


def _repeated(work: Callable[[], object], times: int) -> Callable[[], object]:
    def repeat() -> None:
        for _ in range(times):
            work()

    return repeat


def _many_at_once(setting: Setting) -> Iterator[Line]:
    """Encode the columns of many batches in one call, as `append_many` does."""
    batches = setting.share_of(BATCHES)
    count = batches * BATCH_RECORDS
    columns = columns_of(RECORDS * batches)
    bounds = range(0, count + 1, BATCH_RECORDS)
    contestants = {"here": timed(lambda: encode_batches(*columns, None, bounds))}
    peers = clients() if setting.has_peers else ()
    client = next((each for each in peers if each.name.startswith("aiokafka ")), None)
    if client is not None:
        encode = partial(client.encode, RECORDS, TIMESTAMP_MS)
        contestants["there"] = timed(_repeated(encode, batches))
    samples = run_interleaved(contestants, repeats=setting.short_repeats, warmups=setting.warmups)
    yield Line(
        name="coding/encode-many",
        title=f"encode columns, {batches} batches per call, vs. aiokafka",
        unit="ns/record",
        higher_is_better=False,
        here=costs(count, samples["here"], NS),
        peer=costs(count, samples["there"], NS) if client is not None else None,
        peer_name=client.name if client is not None else "aiokafka is not installed or left out",
        facts={"batch_records": BATCH_RECORDS, "batches": batches},
    )


def _large_batch(setting: Setting) -> Iterator[Line]:
    """Decode batches of the largest size that a topic accepts by default."""
    count = setting.share_of(LARGE_BATCH_RECORDS)
    records = RECORDS * -(-count // BATCH_RECORDS)
    batch = encode_here(*columns_of(records))
    times = BATCHES * BATCH_RECORDS // LARGE_BATCH_RECORDS
    contestants = {"here": timed(_repeated(lambda: decode_here(batch), times))}
    peers = clients() if setting.has_peers else ()
    client = next((each for each in peers if each.name.startswith("aiokafka ")), None)
    if client is not None:
        assert client.decode(batch) == len(records)
        contestants["there"] = timed(_repeated(partial(client.decode, batch), times))
    samples = run_interleaved(contestants, repeats=setting.short_repeats, warmups=setting.warmups)
    yield Line(
        name="coding/decode-large",
        title=f"decode columns, one batch of {len(records)} records per call, vs. aiokafka",
        unit="ns/record",
        higher_is_better=False,
        here=costs(times * len(records), samples["here"], NS),
        peer=costs(times * len(records), samples["there"], NS) if client is not None else None,
        peer_name=client.name if client is not None else "aiokafka is not installed or left out",
        facts={"batch_records": len(records), "batch_bytes": len(batch)},
    )


_PEERS = ("aiokafka", "kafka-python")


def jobs() -> Iterator[Job]:
    """Yield the jobs; the first one measures several lines with the same batches."""
    names = tuple(f"coding/{what}-{name}" for what in ("encode", "decode") for name in _PEERS)
    yield Job(names, True, _lines)
    yield Job(("coding/encode-many",), True, _many_at_once)
    yield Job(("coding/decode-large",), True, _large_batch)
