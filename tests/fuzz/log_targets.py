"""Fuzz targets that open a log: recovery, reading, appending, damaged derived files.

The docstring of each target states its contract, which `tests.fuzz.oracle` checks: it computes the
valid prefix of a file and its records.
"""

from __future__ import annotations

from typing import NamedTuple

from logstore.errors import (
    CorruptIndexError,
    CorruptionError,
    CorruptRecordError,
    InvalidRecordError,
    RequestError,
    SegmentOverflowError,
    UnsupportedFormatError,
)
from logstore.record.batch import RecordBatch
from logstore.record.codecs import Codec, decompress
from logstore.record.control import end_txn_marker_of
from logstore.record.records import Record
from logstore.record.walk import walk_buffer
from logstore.storage.loading.loader import open_log
from logstore.storage.loading.request import LoadRequest
from logstore.storage.log import Log, NewRecord
from logstore.storage.log.reader import Isolation
from logstore.types import AppendOrigin
from tests.fuzz import oracle, seeds
from tests.fuzz.contract import CONFIG, LIMIT, OK, Target, check, outcome_of
from tests.support.world.builders import TP, World, batch, log_name, memory_world
from tests.support.world.cleaning import batches_in

LOG = log_name(0)
SETTINGS = {name: getattr(CONFIG, name) for name in CONFIG.__dataclass_fields__}


def index_name(base_offset: int) -> str:
    return f"{base_offset:020d}.index"


def open_world(world: World, *, clean: bool, **changed: object) -> Log:
    return open_log(
        world.runtime,
        LoadRequest(
            directory=world.directory,
            topic_partition=TP,
            config=type(CONFIG)(**{**SETTINGS, **changed}),
            clean=clean,
        ),
    )


def world_of(files: dict[str, bytes]) -> World:
    world = memory_world()
    for name, data in files.items():
        world.write(name, data)
    return world


# --- expected contents of a file ----------------------------------------------------------------


class Readable(NamedTuple):
    """Data records before the first damage, and whether there is damage."""

    records: list[Record]
    damaged: bool


def plain_section(taken: oracle.Batch) -> bytes:
    """The records of a batch, decompressed by the code under test (its own target compares)."""
    body = taken.data[61:]
    if taken.codec == 0 or (not body and taken.record_count == 0):
        return body
    return bytes(decompress(Codec(taken.codec), body, limit=LIMIT))


def records_in(taken: oracle.Batch) -> list[Record] | None:
    """The records of a batch, None if they cannot be read."""
    try:
        return oracle.decode(
            plain_section(taken),
            taken.record_count,
            taken.base_offset,
            taken.base_timestamp,
            taken.append_time,
        )
    except (oracle.BadRecordError, CorruptRecordError):
        return None


def readable(batches: list[oracle.Batch], base_offset: int = 0) -> Readable:
    """Read batches one by one up to the first that is damaged or out of place."""
    found: list[Record] = []
    in_place = oracle.rises(batches, base_offset, wide=True)
    for number, taken in enumerate(batches):
        records = records_in(taken) if number < in_place and taken.is_sound else None
        if records is None:
            return Readable(found, damaged=True)
        if taken.is_control:
            if records and not _is_control_key(records[0].key):
                return Readable(found, damaged=True)
        else:
            found += records
    return Readable(found, damaged=False)


def _is_control_key(key: bytes | None) -> bool:
    return key is not None and len(key) >= 4 and key[0] < 0x80


class Prefix(NamedTuple):
    """What recovery keeps: bytes, and whether it must refuse instead."""

    size: int
    refused: bool


def recoverable(data: bytes) -> Prefix:
    """Find the valid prefix of a segment with base 0 (storage-format §8.5)."""
    walked = oracle.walk(data, is_file=True)
    open_producers: set[int] = set()
    previous, span_start = -1, 0
    for taken in walked.batches:
        if not taken.is_sound:
            return Prefix(taken.position, refused=False)
        if not previous < taken.base_offset <= taken.last_offset < oracle.INT64_MAX:
            # A lower offset after a jump contradicts it.
            return Prefix(taken.position, refused=0 < span_start > taken.base_offset)
        if taken.last_offset > span_start + oracle.INT32_MAX:
            span_start = taken.base_offset
        previous = taken.last_offset
        if taken.producer_id < 0:
            continue
        if not taken.is_control:
            if taken.is_transactional:
                open_producers.add(taken.producer_id)
            elif taken.producer_id in open_producers:
                return Prefix(taken.position, refused=True)
            continue
        try:
            marker = end_txn_marker_of(RecordBatch(taken.data))
        except (CorruptRecordError, InvalidRecordError):
            return Prefix(taken.position, refused=False)
        if marker is not None:
            open_producers.discard(taken.producer_id)
    return Prefix(walked.position, refused=walked.ending == "unsupported")


# --- recovery -----------------------------------------------------------------------------------


def recovery(data: bytes) -> str:
    """Open after a crash: the sound prefix stays, all of it, perhaps in several segments.

    Otherwise the files are unchanged.
    """
    world = world_of({LOG: data})
    wanted = recoverable(data)
    try:
        log = open_world(world, clean=False)
    except (UnsupportedFormatError, SegmentOverflowError, CorruptRecordError) as error:
        if not wanted.refused:
            raise
        check(world.files()[LOG] == data, "a refused file was changed")
        if isinstance(error, SegmentOverflowError):
            return "segment_overflow"
        return outcome_of(error, UnsupportedFormatError, CorruptRecordError, path=world.path(LOG))
    assert not wanted.refused, "the log was opened, but must be refused"
    assert stored(world) == data[: wanted.size], f"not cut at {wanted.size}"
    log._check()
    log.producer_state._check()
    for segment in log.segments:
        segment._check()
    kept = oracle.walk(data[: wanted.size], is_file=True).batches
    assert log.log_end_offset == (kept[-1].last_offset + 1 if kept else 0)
    outcome = _compare_reading(log, readable(kept))
    log.close()
    files = world.files()
    again = open_world(world, clean=False)
    assert not again.findings, again.findings
    again.close()
    assert world.files() == files, "a second recovery changed something"
    return "cut" if wanted.size < len(data) and outcome == OK else outcome


def stored(world: World) -> bytes:
    """Return the bytes of all segments, one after another."""
    return b"".join(world.files(".log").values())


def _located(log: Log, error: CorruptRecordError) -> str:
    """Return the outcome of damage that is met in one of the log's segments."""
    paths = {segment.log_path for segment in log.segments}
    assert error.path in paths, f"{error.path} is none of {paths}"
    return outcome_of(error, CorruptRecordError, path=error.path)


def _compare_reading(log: Log, wanted: Readable) -> str:
    """Read a log to its end and compare; damage must be met, and be located."""
    found: list[Record] = []
    outcome = OK
    try:
        for _, record in log.reader.records(log.log_start_offset):
            found.append(record)
    except CorruptRecordError as error:
        outcome = _located(log, error)
    start = [record for record in wanted.records if record.offset >= log.log_start_offset]
    assert found == start, f"records {found} instead of {start}"
    assert (outcome != OK) == wanted.damaged, "damage was passed over"
    return outcome


# --- reading ------------------------------------------------------------------------------------


def reading(data: bytes) -> str:
    """Open as after a clean stop, read all: the records before the damage, then an error.

    A segment that must be split may be; every byte stays, except a torn batch at the end. Records
    appended afterwards can be read. A file without a complete batch that is not torn either may be
    refused.
    """
    world = world_of({LOG: data, index_name(0): b""})
    path = world.path(LOG)
    walked = oracle.walk(data, is_file=True)
    is_torn = oracle.is_torn(data, walked)
    has_rest = walked.position < len(data)
    try:
        log = open_world(world, clean=True)
    except (CorruptRecordError, UnsupportedFormatError) as error:
        rises = oracle.rises(walked.batches, wide=True) == len(walked.batches)
        if walked.ending == "end" and rises and (walked.batches or is_torn or not has_rest):
            raise
        assert stored(world) == data, "a refused file was changed"
        return outcome_of(error, CorruptRecordError, UnsupportedFormatError, path=path)
    assert stored(world) == (data[: walked.position] if is_torn else data)
    outcome = _compare_reading(log, readable(walked.batches))
    for isolation in (Isolation.READ_COMMITTED, Isolation.LOG_END):
        try:
            for each, record in log.reader.records(log.log_start_offset, isolation=isolation):
                assert each.header.base_offset <= record.offset
        except CorruptRecordError as error:
            _located(log, error)
    for target in (-3, -2, -1, 0, 1001, 1700000000001, 2**62):
        _time_query(log, target, walked.batches)
    end_offset = log.log_end_offset
    try:
        log.writer.append_records([NewRecord(b"k", b"new", 1)])
    except RequestError:
        assert end_offset == oracle.INT64_MAX, "an append was refused"
    else:
        assert [record.value for _, record in log.reader.records(end_offset)] == [b"new"]
    log.close()
    return outcome


def _time_query(log: Log, target: int, batches: list[oracle.Batch]) -> None:
    try:
        answer = log.reader.offset_for_timestamp(target)
    except CorruptRecordError as error:
        _located(log, error)
        return
    if answer is None or answer.timestamp < 0 or target < 0:
        return
    known = [record for each in batches for record in records_in(each) or []]
    assert answer.timestamp >= target
    assert any((r.timestamp, r.offset) == answer[:2] for r in known), f"{answer} is not a record"


# --- appending ----------------------------------------------------------------------------------


def client_append(data: bytes) -> str:
    """Append bytes of a client: one stored batch, or a refusal and an unchanged log."""
    return _append(data, AppendOrigin.CLIENT)


def replica_append(data: bytes) -> str:
    """Append bytes of a leader: stored as they are, or refused."""
    return _append(data, AppendOrigin.REPLICATION)


def _append(data: bytes, origin: AppendOrigin) -> str:
    world = memory_world()
    log = open_world(world, clean=True, compression_type="producer")
    try:
        info = log.writer.append_batches(data, origin)
    except (RequestError, CorruptionError, UnsupportedFormatError) as error:
        check((log.log_end_offset, log.size_bytes) == (0, 0), "a refused append left something")
        log.close()
        return type(error).__name__
    assert info.size_bytes == log.size_bytes
    if origin is AppendOrigin.REPLICATION and log.size_bytes:
        stored = b"".join(each.data for each in batches_in(log))
        assert data.startswith(stored)
        assert len(walk_all(data)) == len(batches_in(log))
    end, size = log.log_end_offset, log.size_bytes
    log._check()
    log.producer_state._check()
    found, damage = _drain(log)
    log.close()
    again = open_world(world, clean=False)
    assert (again.log_end_offset, again.size_bytes) == (end, size), "recovery lost an append"
    assert _drain(again) == (found, damage)
    if origin is AppendOrigin.CLIENT:
        assert damage is None, "a client's damaged batch was stored"
    again.close()
    return OK


def walk_all(data: bytes) -> list[RecordBatch]:
    return list(walk_buffer(data))


def _drain(log: Log) -> tuple[list[Record], str | None]:
    found: list[Record] = []
    try:
        for _, record in log.reader.records(log.log_start_offset):
            found.append(record)
    except CorruptRecordError as error:
        return found, error.check
    return found, None


# --- damaged derived files ----------------------------------------------------------------------


def _sound_log() -> dict[str, bytes]:
    """A closed log of two segments with indexes, an aborted transaction and a snapshot."""
    world = memory_world()
    log = open_world(world, clean=True)
    for data in (b"".join(walk.data for walk in walk_all(seeds.logs()[1])),):
        log.writer.append_batches(data, AppendOrigin.REPLICATION)
    log.writer.roll()
    start = log.log_end_offset
    for n in range(8):
        log.writer.append_batches(batch(start + n, timestamp=2000 + n), AppendOrigin.REPLICATION)
    log.close()
    return world.files()


SOUND = _sound_log()
SOUND_BASE = max(int(name[:20]) for name in SOUND if name.endswith(".log"))
INDEXES = (".index", ".timeindex", ".txnindex")


def index_beside_log(data: bytes) -> str:
    """A damaged index next to a valid log: reads return only the log's records, in its order."""
    kind = INDEXES[(data[0] if data else 0) % 3]
    world = world_of({**SOUND, log_name(0)[:20] + kind: data[1:]})
    outcome = OK
    allowed = (CorruptRecordError, CorruptIndexError, UnsupportedFormatError)
    try:
        log = open_world(world, clean=True)
    except allowed as error:
        return outcome_of(error, *allowed)
    assert world.files(".log") == {name: d for name, d in SOUND.items() if name.endswith(".log")}
    for isolation in (Isolation.READ_UNCOMMITTED, Isolation.READ_COMMITTED):
        for start in (0, 5, SOUND_BASE + 3):
            found: list[Record] = []
            try:
                for _, record in log.reader.records(start, isolation=isolation):
                    found.append(record)
            except allowed as error:
                outcome = outcome_of(error, *allowed)
            everything = iter(SOUND_RECORDS)
            assert all(record in everything for record in found), "not the log's records"
            assert all(record.offset >= start for record in found)
    for target in (-3, 0, 1000, 2003, 2**62):
        try:
            answer = log.reader.offset_for_timestamp(target)
        except allowed as error:
            outcome = outcome_of(error, *allowed)
        else:
            assert answer is None or answer.timestamp < 0 or answer[:2] in SOUND_TIMES
    log.close()
    return outcome


def snapshot_beside_log(data: bytes) -> str:
    """A damaged producer snapshot: the log opens, reads as before, and takes appends."""
    world = world_of({**SOUND, f"{SOUND_BASE:020d}.snapshot": data})
    for name in world.files(".snapshot"):
        if int(name[:20]) > SOUND_BASE:
            world.fs.remove(world.path(name))
    try:
        log = open_world(world, clean=True)
    except CorruptRecordError as error:
        return outcome_of(error, CorruptRecordError)
    log.producer_state._check()
    assert world.files(".log") == {name: d for name, d in SOUND.items() if name.endswith(".log")}
    assert [record for _, record in log.reader.records(0)] == SOUND_RECORDS
    committed = [record for _, record in log.reader.records(0, isolation=Isolation.READ_COMMITTED)]
    everything = iter(SOUND_RECORDS)
    assert all(record in everything for record in committed)
    end = log.log_end_offset
    try:
        log.writer.append_batches(seeds_transaction(end), AppendOrigin.REPLICATION)
    except RequestError:
        check(log.log_end_offset == end, "a refused append left something")
    log.producer_state._check()
    log.close()
    open_world(world, clean=True).close()
    return OK


def seeds_transaction(start: int) -> bytes:
    """A transaction of the producers that the sound log knows, ended both ways."""
    from tests.support.world.builders import abort, commit, data_batch

    return b"".join(
        (
            data_batch(start, start + 1, 1, sequence=5),
            data_batch(start + 2, start + 2, 11),
            abort(start + 3, 1),
            commit(start + 4, 11),
            commit(start + 5, 2),
        )
    )


def _sound_records() -> list[Record]:
    log = open_world(world_of(SOUND), clean=True)
    found = [record for _, record in log.reader.records(0)]
    log.close()
    return found


SOUND_RECORDS = _sound_records()
SOUND_TIMES = {
    (record.timestamp, record.offset)
    for name, data in SOUND.items()
    if name.endswith(".log")
    for each in walk_all(data)
    for record in each.records()
}
"""Of markers too: a search by time answers with them, as Kafka's does."""


def one_or_many() -> list[bytes]:
    return [*seeds.batches(), *seeds.logs()]


TARGETS = {
    "recovery": Target(recovery, "batches", seeds.logs, 2),
    "reading": Target(reading, "batches", seeds.logs, 2),
    "client_append": Target(client_append, "batches", seeds.batches, 2),
    "replica_append": Target(replica_append, "batches", one_or_many, 2),
    "index_beside_log": Target(index_beside_log, "entries", seeds.indexes, 1),
    "snapshot_beside_log": Target(snapshot_beside_log, "snapshot", seeds.snapshots, 1),
}
