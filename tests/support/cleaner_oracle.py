"""Plain-Python twins of the cleaner's kernels, on ints, bytes and dicts.

Written from cleaner-semantics §5 and §8 and the SipHash paper; nothing here comes from `cleaner`.
"""

from __future__ import annotations

from typing import NamedTuple

from logstore.record.batch import RecordBatch, empty_batch, seal_batch
from logstore.record.codecs import Codec
from logstore.record.records import Record, encode_records
from logstore.types import TimestampType

MASK = 2**64 - 1


def siphash128(data: bytes, k0: int, k1: int, c_rounds: int, d_rounds: int) -> tuple[int, int]:
    """SipHash-c-d with 128 bits of output, as two words."""
    v = [
        k0 ^ 0x736F6D6570736575,
        k1 ^ 0x646F72616E646F6D ^ 0xEE,
        k0 ^ 0x6C7967656E657261,
        k1 ^ 0x7465646279746573,
    ]

    def rotated(word: int, bits: int) -> int:
        return ((word << bits) | (word >> (64 - bits))) & MASK

    def rounds(count: int) -> None:
        for _ in range(count):
            v[0] = (v[0] + v[1]) & MASK
            v[2] = (v[2] + v[3]) & MASK
            v[1] = rotated(v[1], 13) ^ v[0]
            v[3] = rotated(v[3], 16) ^ v[2]
            v[0] = rotated(v[0], 32)
            v[2] = (v[2] + v[1]) & MASK
            v[0] = (v[0] + v[3]) & MASK
            v[1] = rotated(v[1], 17) ^ v[2]
            v[3] = rotated(v[3], 21) ^ v[0]
            v[2] = rotated(v[2], 32)

    whole = len(data) - len(data) % 8
    words = [int.from_bytes(data[at : at + 8], "little") for at in range(0, whole, 8)]
    words.append(int.from_bytes(data[whole:], "little") | (len(data) & 0xFF) << 56)
    for word in words:
        v[3] ^= word
        rounds(c_rounds)
        v[0] ^= word
    v[2] ^= 0xEE
    rounds(d_rounds)
    low = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xDD
    rounds(d_rounds)
    return low, v[0] ^ v[1] ^ v[2] ^ v[3]


class Mapping(NamedTuple):
    """A map after a build: what is mapped, how far it speaks, and whether it was full."""

    offsets: dict[bytes, int]
    latest_offset: int
    messages: int
    full: bool


def map_batches(batches: list[RecordBatch], first_dirty: int, limit: int, latest: int) -> Mapping:
    """Map the records of batches by key, in order, as §5 tells."""
    offsets: dict[bytes, int] = {}
    messages = 0
    for batch in batches:
        if batch.header.is_control:
            messages += batch.header.record_count
        else:
            for record in batch.records():
                if record.key is not None and record.offset >= first_dirty:
                    if len(offsets) >= limit:
                        return Mapping(offsets, latest, messages, full=True)
                    offsets[record.key] = latest = record.offset
                messages += 1
        if batch.header.last_offset >= first_dirty:
            latest = batch.header.last_offset
    return Mapping(offsets, latest, messages, full=False)


class Sentence(NamedTuple):
    """What becomes of one batch: a fate for each parsed record, and the bytes it leaves."""

    fates: list[str]
    form: str
    output: bytes


def judge(
    batch: RecordBatch,
    mapping: Mapping,
    now_ms: int,
    new_horizon_ms: int,
    *,
    retain_empty: bool = False,
    aborted: bool = False,
    marker_done: bool = False,
) -> Sentence:
    """Decide about one batch as §8.2 to §8.4 tell.

    `aborted` marks data of an aborted transaction, `marker_done` a control batch whose
    transaction's data is gone.
    """
    header = batch.header
    horizon = header.delete_horizon_ms
    expired = horizon is not None and now_ms >= horizon
    records = batch.records()
    if aborted or (marker_done and expired):
        fates = []
        kept: list[Record] = []
    else:
        fates = [_fate(record, header.is_control, mapping, expired) for record in records]
        kept = [r for r, fate in zip(records, fates, strict=True) if fate == "retained"]
    if not kept:
        if retain_empty:
            return Sentence(fates, "empty", empty_batch(header))
        return Sentence(fates, "dropped", b"")
    tombstones = not header.is_control and any(record.value is None for record in kept)
    needs_horizon = horizon is None and (tombstones or marker_done)
    if len(kept) == header.record_count and not needs_horizon:
        return Sentence(fates, "verbatim", batch.data)
    if needs_horizon:
        horizon = new_horizon_ms
    append_time = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    base_timestamp = kept[0].timestamp if horizon is None else horizon
    output = seal_batch(
        encode_records(kept, header.base_offset, base_timestamp),
        codec=Codec(header.codec_id),
        base_offset=header.base_offset,
        last_offset_delta=header.last_offset_delta,
        record_count=len(kept),
        base_timestamp=base_timestamp,
        max_timestamp=(
            header.max_timestamp if append_time else max(-1, *(r.timestamp for r in kept))
        ),
        timestamp_type=header.timestamp_type,
        partition_leader_epoch=header.partition_leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        is_transactional=header.is_transactional,
        is_control=header.is_control,
        has_delete_horizon=horizon is not None,
    )
    return Sentence(fates, "rebuilt", output)


def _fate(record: Record, is_control: bool, mapping: Mapping, expired: bool) -> str:
    if is_control or record.offset > mapping.latest_offset:
        return "retained"
    if record.key is None:
        return "null_key"
    if mapping.offsets.get(record.key, -1) > record.offset:
        return "superseded"
    if record.value is None and expired:
        return "tombstone_expired"
    return "retained"
