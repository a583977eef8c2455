"""Lines about coding: record batches from columns and back, beside clients in Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from logstore.bench.measuring import in_turn, timed
from logstore.bench.micro.figures import NS, costs
from logstore.bench.micro.setting import Job, Setting
from logstore.bench.report.result import Line
from logstore.bench.rivals.clients import Client, clients
from logstore.record.batch import RecordBatch, sealed_batch
from logstore.record.columns import BytesColumn, decode_section, encode_section, headers_column
from logstore.record.layout import HEADER_SIZE

BATCH_RECORDS = 130
"""Records of a batch of about 16 KiB."""
BATCHES = 400
TIMESTAMP_MS = 1_700_000_000_000
RECORDS = [(b"key-%012d" % number, bytes(range(100))) for number in range(BATCH_RECORDS)]


def encode_here(keys: BytesColumn, values: BytesColumn, times: np.ndarray) -> bytes:
    """Encode columns as a batch, CRC included."""
    headers = headers_column(None, len(times))
    return sealed_batch(
        encode_section(times, keys, values, headers, TIMESTAMP_MS),
        last_offset_delta=len(times) - 1,
        record_count=len(times),
        base_timestamp=TIMESTAMP_MS,
        max_timestamp=TIMESTAMP_MS,
    ).data


def decode_here(data: bytes) -> int:
    """Decode a batch into columns: offsets, timestamps, extents of keys and values."""
    header = RecordBatch(data).header
    section = memoryview(data)[HEADER_SIZE:]
    count = header.record_count
    return len(decode_section(section, count, header.base_offset, header.base_timestamp).offsets)


def _lines(setting: Setting) -> Iterator[Line]:
    keys = BytesColumn.from_list([key for key, _ in RECORDS])
    values = BytesColumn.from_list([value for _, value in RECORDS])
    times = np.full(BATCH_RECORDS, TIMESTAMP_MS)
    batch = encode_here(keys, values, times)
    here: dict[str, Callable[[], object]] = {
        "encode": lambda: encode_here(keys, values, times),
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

    def repeated(work: Callable[[], object]) -> Callable[[], object]:
        def repeat() -> None:
            for _ in range(batches):
                work()

        return repeat

    contestants = {"here": timed(repeated(ours))}
    if client is not None:
        theirs = {
            "encode": lambda: client.encode(RECORDS, TIMESTAMP_MS),
            "decode": lambda: client.decode(batch),
        }[what]
        contestants["there"] = timed(repeated(theirs))
    samples = in_turn(contestants, repeats=setting.short_repeats, warmups=setting.warmups)
    count = batches * BATCH_RECORDS
    return Line(
        name=f"coding/{what}-{name}",
        title=f"{what} batches by columns, beside {name}",
        unit="ns/record",
        higher_is_better=False,
        here=costs(count, samples["here"], NS),
        peer=costs(count, samples["there"], NS) if client is not None else None,
        peer_name=client.name if client is not None else f"{name} is not installed or left out",
        facts={"batch_records": BATCH_RECORDS, "batch_bytes": len(batch)},
    )


_PEERS = ("aiokafka", "kafka-python")


def jobs() -> Iterator[Job]:
    """Yield one job, whose lines share their batches."""
    names = tuple(f"coding/{what}-{name}" for what in ("encode", "decode") for name in _PEERS)
    yield Job(names, True, _lines)
