"""A second implementation of the cleaner: plain Python on ints, bytes and dicts.

Twins of the kernels, and of a whole pass over a log with producers and transactions. Written from
docs/spec/cleaner.md §5 and §8 and the SipHash paper; it imports nothing from `cleaner`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from logstore.record.batch import RecordBatch, seal_batch
from logstore.record.codecs import DEFAULT_LIMIT, Codec
from logstore.record.header import BatchHeader
from logstore.record.records import Record, decode_records, encode_records
from logstore.record.varint import decode_varint
from logstore.types import NO_TIMESTAMP, AbortedTxn, TimestampType

MASK = 2**64 - 1


def empty_batch(source: BatchHeader) -> bytes:
    """Return the 61 bytes that remain when a batch keeps its header only (storage-format §1).

    Offsets, leader epoch, producer fields, timestamp type and transaction bits are kept; codec
    and horizon are cleared, baseTimestamp is -1, maxTimestamp stays the source's.
    """
    return seal_batch(
        b"",
        base_offset=source.base_offset,
        last_offset_delta=source.last_offset_delta,
        record_count=0,
        base_timestamp=NO_TIMESTAMP,
        max_timestamp=source.max_timestamp,
        timestamp_type=source.timestamp_type,
        partition_leader_epoch=source.partition_leader_epoch,
        producer_id=source.producer_id,
        producer_epoch=source.producer_epoch,
        base_sequence=source.base_sequence,
        is_transactional=source.is_transactional,
        is_control=source.is_control,
    )


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


class KeyMap(NamedTuple):
    """A built map: its keys, the offset it covers up to, and whether it was full."""

    offsets: dict[bytes, int]
    latest_offset: int
    messages: int
    full: bool

    def fate(self, record: Record, horizon: int | None, now_ms: int) -> str:
        """Return the fate of a data record that the map speaks for (cleaner §8.3)."""
        if record.key is None:
            return "null_key"
        if self.offsets.get(record.key, -1) > record.offset:
            return "superseded"
        if record.value is None and horizon is not None and now_ms >= horizon:
            return "tombstone_expired"
        return "retained"


class Judging(Protocol):
    """Determines the fates of the records that it covers."""

    @property
    def latest_offset(self) -> int:
        """The last offset that it covers."""
        ...

    def fate(self, record: Record, horizon: int | None, now_ms: int) -> str:
        """Return the fate of a data record."""
        ...


def map_batches(
    batches: Sequence[RecordBatch],
    first_dirty: int,
    limit: int,
    latest: int,
    aborted: Collection[int] = (),
    known: Mapping[bytes, int] | None = None,
) -> KeyMap:
    """Map the records of batches by key, in order (cleaner §5).

    `aborted` has the numbers of the batches of aborted transactions, counted from 0; `known` is the
    map so far.
    """
    offsets = dict(known or {})
    messages = 0
    for number, batch in enumerate(batches):
        if batch.header.is_control:
            messages += 1
        elif number in aborted:
            messages += batch.header.record_count
        else:
            for record in batch.records():
                if record.key is not None and record.offset >= first_dirty:
                    if len(offsets) >= limit:
                        return KeyMap(offsets, latest, messages, full=True)
                    offsets[record.key] = latest = record.offset
                messages += 1
        if batch.header.last_offset >= first_dirty:
            latest = batch.header.last_offset
    return KeyMap(offsets, latest, messages, full=False)


class BatchVerdict(NamedTuple):
    """The result for one batch: a fate for each parsed record, and its remaining bytes."""

    fates: list[str]
    form: str
    output: bytes


def judge(
    batch: RecordBatch,
    mapping: Judging,
    now_ms: int,
    new_horizon_ms: int,
    *,
    retain_empty: bool = False,
    aborted: bool = False,
    marker_done: bool = False,
) -> BatchVerdict:
    """Decide about one batch (cleaner §8.2 to §8.4).

    `aborted` marks data of an aborted transaction, `marker_done` a control batch whose
    transaction's data has been removed.
    """
    header = batch.header
    horizon = header.delete_horizon_ms
    expired = horizon is not None and now_ms >= horizon
    # A batch that is discarded whole is not parsed.
    records = [] if aborted or (marker_done and expired) else batch.records()
    fates = [
        "retained"
        if header.is_control or record.offset > mapping.latest_offset
        else mapping.fate(record, horizon, now_ms)
        for record in records
    ]
    kept = [r for r, fate in zip(records, fates, strict=True) if fate == "retained"]
    if not kept:
        if retain_empty:
            return BatchVerdict(fates, "empty", empty_batch(header))
        return BatchVerdict(fates, "dropped", b"")
    tombstones = any(record.value is None for record in kept)
    needs_horizon = horizon is None and (tombstones or marker_done)
    if len(kept) == header.record_count and not needs_horizon:
        return BatchVerdict(fates, "verbatim", batch.data)
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
    return BatchVerdict(fates, "rebuilt", output)


# --- transactions -----------------------------------------------------------------------------


def control_type(batch: RecordBatch) -> str:
    """Return a batch's type: `data`, or of a control batch `abort`, `commit`, `other`, `empty`."""
    if not batch.header.is_control:
        return "data"
    if batch.header.record_count == 0:
        return "empty"
    section = batch.section()
    size, start = decode_varint(
        section, 0, len(section)
    )  # of the first record; nobody looks at others
    (record,) = decode_records(section[: start + size], 1, 0, 0)
    key = record.key or b""
    return {0: "abort", 1: "commit"}.get(int.from_bytes(key[2:4], "big"), "other")


def is_transactional_data(header: BatchHeader) -> bool:
    """Return whether a batch is data of a transaction, rather than a marker or other data."""
    return header.is_transactional and not header.is_control


def aborted_by(header: BatchHeader, transactions: Sequence[AbortedTxn]) -> AbortedTxn | None:
    """Return the aborted transaction that a batch of data belongs to, if any."""
    for each in transactions if is_transactional_data(header) else ():
        is_own = each.producer_id == header.producer_id
        if is_own and each.first_offset <= header.last_offset < each.last_offset:
            return each
    return None


class BatchState(NamedTuple):
    """The transactional state of a batch, and the transaction that its marker keeps."""

    aborted: bool = False
    done: bool = False
    kept: AbortedTxn | None = None


def mark(batches: Sequence[RecordBatch], transactions: Sequence[AbortedTxn]) -> list[BatchState]:
    """Return, for each batch, whether its transaction was aborted or its marker is needed.

    A marker is needed as long as data of its transaction precedes it: for an abort, the data that
    the index names; for a commit, data since the producer's last commit that was not aborted.
    """
    marked = []
    for number, batch in enumerate(batches):
        header, kind = batch.header, control_type(batch)
        before = [
            each for each in batches[:number] if each.header.producer_id == header.producer_id
        ]
        if kind == "abort":
            ended = [
                each
                for each in transactions
                if (each.producer_id, each.last_offset) == (header.producer_id, header.base_offset)
            ]
            seen = [aborted_by(each.header, ended) for each in before]
            kept = next((each for each in seen if each is not None), None)
            marked.append(BatchState(done=kept is None, kept=kept))
        elif kind == "commit":
            kinds = [control_type(each) for each in before]
            since = len(kinds) - kinds[::-1].index("commit") if "commit" in kinds else 0
            data = [each.header for each in before[since:] if is_transactional_data(each.header)]
            marked.append(BatchState(done=all(aborted_by(each, transactions) for each in data)))
        else:
            is_aborted = aborted_by(header, transactions) is not None
            marked.append(BatchState(aborted=is_aborted, done=kind == "empty"))
    return marked


def is_last_of_producer(header: BatchHeader, producers: Mapping[int, tuple[int, int]]) -> bool:
    """Return whether a producer's state depends on a batch (cleaner §8.2, first verdict).

    `producers` has the epoch and the last data offset, -1 for none, of each that is known.
    """
    if header.producer_id not in producers:
        return False
    epoch, last_data_offset = producers[header.producer_id]
    if last_data_offset >= 0:
        return header.last_offset == last_data_offset
    return header.is_control and header.producer_epoch == epoch


# --- a pass -----------------------------------------------------------------------------------


class Source(NamedTuple):
    """A segment: its base, the next one's, its batches and its transaction index."""

    base_offset: int
    end_offset: int
    batches: list[RecordBatch]
    transactions: list[AbortedTxn]


class Outcome(NamedTuple):
    """The result of a pass.

    `batches` and `transactions` are the whole log's afterwards; `fates` counts the records of the
    rewritten segments.
    """

    end_offset: int
    mapped: KeyMap
    batches: list[bytes]
    transactions: list[AbortedTxn]
    fates: Counter[str]


def _transactions(sources: Sequence[Source], log_start_offset: int) -> list[AbortedTxn]:
    """Return the relevant aborted transactions, without those that ended below the log start."""
    result = [each for source in sources for each in source.transactions]
    return [each for each in result if each.last_offset >= log_start_offset]


def build_map(
    sources: Sequence[Source],
    first_dirty: int,
    upper_bound: int,
    limit: int,
    log_start_offset: int = 0,
) -> KeyMap:
    """Map [first dirty, upper bound), segment by segment; gaps between them are jumped.

    `messages` counts from the first dirty batch on.
    """
    transactions = _transactions(sources, log_start_offset)
    done = KeyMap({}, first_dirty - 1, 0, full=False)
    for source in sources:
        if source.end_offset <= first_dirty or source.base_offset >= upper_bound:
            continue
        batches = [each for each in source.batches if each.header.last_offset >= first_dirty]
        aborted = {n for n, each in enumerate(batches) if aborted_by(each.header, transactions)}
        result = map_batches(batches, first_dirty, limit, done.latest_offset, aborted, done.offsets)
        done = result._replace(messages=done.messages + result.messages)
        if done.full:
            return done
        done = done._replace(latest_offset=min(source.end_offset, upper_bound) - 1)
    return done


def clean(
    sources: Sequence[Source],
    producers: Mapping[int, tuple[int, int]],
    *,
    first_dirty: int,
    upper_bound: int,
    limit: int,
    now_ms: int,
    retention_ms: int,
    log_start_offset: int = 0,
) -> Outcome:
    """Run a whole pass over a log's segments, without concurrent appends."""
    mapped = build_map(sources, first_dirty, upper_bound, limit, log_start_offset)
    below = min(mapped.latest_offset + 1, upper_bound)
    transactions = _transactions(sources, log_start_offset)
    rewritten = [
        each for source in sources if source.base_offset < below for each in source.batches
    ]
    outputs: list[bytes] = []
    kept: list[AbortedTxn] = []
    fates: Counter[str] = Counter()
    for batch, marked in zip(rewritten, mark(rewritten, transactions), strict=True):
        header = batch.header
        sentence = judge(
            batch,
            mapped,
            now_ms,
            now_ms + retention_ms,
            retain_empty=is_last_of_producer(header, producers)
            or header.last_offset == upper_bound - 1,
            aborted=marked.aborted,
            marker_done=marked.done,
        )
        fates.update(sentence.fates)
        unread = "control_expired" if header.is_control else "aborted"
        fates[unread] += header.record_count - len(sentence.fates)
        if sentence.output:
            outputs.append(sentence.output)
        if marked.kept is not None:
            kept.append(marked.kept)
    for source in sources:
        if source.base_offset >= below:
            outputs += [batch.data for batch in source.batches]
            kept += source.transactions
    return Outcome(mapped.latest_offset + 1, mapped, outputs, kept, fates)


def are_equal(result: RecordBatch, output: bytes) -> bool:
    """Return whether a batch equals the oracle's, regardless of the codec's output."""
    return result.data == output or (result.header.codec_id != 0 and are_alike(result, output))


def are_alike(result: RecordBatch, output: bytes, limit: int = DEFAULT_LIMIT) -> bool:
    """Return whether two batches have equal contents, perhaps in different sizes.

    A codec may be better than another, and a batch encoded at length stays so. `limit` is the
    maximum decompressed size of a section.
    """
    other = RecordBatch(output)
    plain = {"crc": 0, "batch_length": 0}
    return result.data == output or (
        result.header._replace(**plain) == other.header._replace(**plain)
        and result.records(limit) == other.records(limit)
    )
