"""Fuzz target of the cleaner: a segment of any bytes, below another one, is cleaned.

The contract: the result of `cleaner_oracle`, or a documented error and an unchanged log. The
transaction index and the producers match the batches.
"""

from __future__ import annotations

import struct
from contextlib import suppress

from logstore.cleaner.config import CleanerConfig
from logstore.cleaner.strategy import Strategy
from logstore.errors import (
    CorruptRecordError,
    InvalidRecordError,
    LogStoreError,
    SegmentOverflowError,
    UnsupportedFormatError,
)
from logstore.record.batch import RecordBatch
from logstore.record.varint import decode_varint
from logstore.storage.log import Log
from logstore.types import AbortedTxn
from tests.fuzz import oracle, seeds
from tests.fuzz.contract import CONFIG, LIMIT, OK, Target, outcome_of
from tests.fuzz.log_targets import LOG, index_name, open_world, plain_section, records_in, world_of
from tests.support.oracles import cleaner_oracle
from tests.support.oracles.cleaner_oracle import empty_batch
from tests.support.world.builders import abort, batch, commit, data_batch, log_name
from tests.support.world.cleaning import batches_in, run_pass, txn_entries

NEXT_BASE = 1_000_000
NEXT = batch(NEXT_BASE, NEXT_BASE + 2, key=b"next")
CLEANER = CleanerConfig(dedupe_buffer_bytes=24 * 10_000, io_buffer_bytes=300)
TXN_ENTRY = struct.Struct(">hqqqq")
MIN_RECORD_SIZE = 7


def cleaning(data: bytes) -> str:
    """Clean the segment: the oracle's result, or an error and an unchanged log."""
    batches = oracle.walk(data, is_file=False).batches
    transactions = aborted_in(batches)
    index = b"".join(TXN_ENTRY.pack(0, *each) for each in transactions)
    files = {LOG: data, index_name(0): b"", log_name(NEXT_BASE): NEXT, index_name(NEXT_BASE): b""}
    if index:
        files[f"{0:020d}.txnindex"] = index
    world = world_of(files)
    path = world.path(LOG)
    try:
        log = open_world(world, clean=True, cleanup_policy=("compact",))
    except UnsupportedFormatError as error:  # recognized by the first bytes of a file
        return outcome_of(error, UnsupportedFormatError, path=path)
    _tell_producers(log, batches)
    before = world.files(".log", ".txnindex")
    is_damaged = _is_damaged(data, batches, transactions, log.runtime.clock.now_ms())
    wanted = None if is_damaged else _wanted(log, batches, transactions)
    try:
        stats = run_pass(log, 0, NEXT_BASE, CLEANER)
    except SegmentOverflowError:
        assert any(each.last_offset > oracle.INT32_MAX for each in batches)
        outcome = "segment_overflow"
    except (CorruptRecordError, UnsupportedFormatError) as error:
        if not is_damaged:
            raise
        outcome = outcome_of(error, CorruptRecordError, UnsupportedFormatError, path=path)
    else:
        assert not is_damaged, "damage was cleaned away"
        assert stats.end_offset == NEXT_BASE
        if wanted is not None:
            assert dict(stats.fates) == {name: wanted.fates[name] for name in stats.fates}
            _compare(log, wanted)
        log.close()
        return OK
    kept = {name: d for name, d in world.files(".log", ".txnindex").items() if name in before}
    assert kept == before, "a failed pass changed the log"
    log.close()
    return outcome


# --- expected state from the batches -------------------------------------------------------------


def aborted_in(batches: list[oracle.Batch]) -> list[AbortedTxn]:
    """The aborted transactions of batches whose offsets rise, as a log would have indexed them."""
    found: list[AbortedTxn] = []
    first_offsets: dict[int, int] = {}
    for each in batches[: oracle.rises(batches, 0, NEXT_BASE)]:
        if each.producer_id < 0:
            continue
        if not each.is_control:
            if each.is_transactional:
                first_offsets.setdefault(each.producer_id, each.base_offset)
            continue
        key = _control_key(each)
        if key is None or key[:1] >= b"\x80" or key[2:4] not in (b"\0\0", b"\0\1"):
            continue
        first = first_offsets.pop(each.producer_id, None)
        if first is not None and key[2:4] == b"\0\0":
            stable = min(first_offsets.values(), default=each.base_offset + 1)
            found.append(AbortedTxn(each.producer_id, first, each.base_offset, stable))
    return found


def _control_key(taken: oracle.Batch) -> bytes | None:
    """The key of a control batch's first record; None if there is none of 4 bytes at least."""
    if taken.record_count <= 0:
        return None
    try:
        section = plain_section(taken)
        size, start = decode_varint(section, 0, len(section))
        (record,) = oracle.decode(section[: start + size], 1, 0, 0, None)
    except (oracle.BadRecordError, CorruptRecordError, InvalidRecordError):
        return None
    return record.key if record.key is not None and len(record.key) >= 4 else None


def _tell_producers(log: Log, batches: list[oracle.Batch]) -> None:
    """Let the log know the producers of the batches, as far as they make sense."""
    for each in batches[: oracle.rises(batches, 0, NEXT_BASE)]:
        with suppress(LogStoreError):
            log.producer_state.update_from_batch(RecordBatch(each.data).header)


def _is_damaged(
    data: bytes, batches: list[oracle.Batch], transactions: list[AbortedTxn], now_ms: int
) -> bool:
    """Return whether a pass must refuse the segment.

    Batches that are discarded as a whole need not decode: data of aborted transactions, and markers
    whose horizon has passed. Their CRC and the key of a marker are verified nevertheless.
    """
    whole = sum(len(each.data) for each in batches) == len(data)
    in_place = oracle.rises(batches, 0, NEXT_BASE) == len(batches)
    if not (whole and in_place and all(each.is_sound for each in batches)):
        return True
    for each in batches:
        try:
            section = plain_section(each)
        except CorruptRecordError:
            return True
        if each.record_count < 0 or each.record_count * MIN_RECORD_SIZE > len(section):
            return True
        if each.is_control and each.record_count:
            key = _control_key(each)
            if key is None or key[0] >= 0x80:
                return True
    taken = [RecordBatch(each.data) for each in batches]
    for each, marked in zip(batches, cleaner_oracle.mark(taken, transactions), strict=True):
        has_horizon = each.attributes & 0x40
        if marked.aborted or (marked.done and has_horizon and each.base_timestamp <= now_ms):
            continue
        records = records_in(each)
        if records is None or any(record.offset > each.last_offset for record in records):
            return True
    return False


# --- retained batches ---------------------------------------------------------------------------


def _wanted(
    log: Log, batches: list[oracle.Batch], transactions: list[AbortedTxn]
) -> cleaner_oracle.Outcome | None:
    taken = [RecordBatch(each.data) for each in batches]
    try:
        return cleaner_oracle.clean(
            [
                cleaner_oracle.Source(0, NEXT_BASE, taken, transactions),
                cleaner_oracle.Source(NEXT_BASE, NEXT_BASE + 3, [RecordBatch(NEXT)], []),
            ],
            dict(log.producer_state.active_producers()),
            first_dirty=0,
            upper_bound=NEXT_BASE,
            limit=CLEANER.max_keys_of(Strategy()),
            now_ms=log.runtime.clock.now_ms(),
            retention_ms=CONFIG.delete_retention_ms,
        )
    except ValueError:
        return None  # a base timestamp that Kafka's builder refuses to write


def _compare(log: Log, wanted: cleaner_oracle.Outcome) -> None:
    found = batches_in(log)
    assert len(found) == len(wanted.batches)
    for each, output in zip(found, wanted.batches, strict=True):
        each.ensure_valid()
        assert cleaner_oracle.are_alike(each, output, LIMIT), f"{each} instead of {output!r}"
    assert txn_entries(log) == wanted.transactions


# --- where inputs start -------------------------------------------------------------------------


def logs_of_producers() -> list[bytes]:
    """Transactions that an earlier cleaning rewrote, and new ones."""
    fresh = (
        batch(0, 1, producer_id=3, producer_epoch=0, base_sequence=0),
        data_batch(2, 3, 1, key=b"a"),
        data_batch(4, 4, 2, key=b"a"),
        abort(5, 1),
        data_batch(6, 7, 1, sequence=2, key=b"a", value=b""),
        commit(8, 2, epoch=1),
        commit(9, 1),
        batch(10, 11, producer_id=3, producer_epoch=0, base_sequence=2),
        abort(12, 4),
    )
    emptied = [
        empty_batch(RecordBatch(each).header) if number in (1, 2, 8) else each
        for number, each in enumerate(fresh)
    ]
    return [b"".join(fresh), b"".join(emptied), b"".join(fresh[1:4]), b"".join(emptied[::2])]


def starts() -> list[bytes]:
    return [*seeds.logs(), *logs_of_producers()]


TARGETS = {"cleaning": Target(cleaning, "batches", starts, 2)}
