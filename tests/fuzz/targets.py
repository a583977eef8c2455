"""Fuzz targets over bytes: batches, sections, codecs, walks, kernels, indexes and small files.

Each takes bytes and returns an outcome (`tests.fuzz.contract`). Wrong records are caught by
comparing: two decoders with the oracle, walks with each other, kernels with plain Python, and
decoded values with their round trip. Targets that open a log are in `log_targets`.
"""

from __future__ import annotations

import gzip
import zlib
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING

from logstore.cleaner.kernels.slots import MAX_OFFSET_SPAN
from logstore.cleaner.kernels.table import (
    COL_BASE_OFFSET,
    COL_LAST_OFFSET,
    COL_POSITION,
    COL_RECORD_COUNT,
    COL_SECTION_END,
    COL_SECTION_START,
    DAMAGED,
    MISPLACED,
)
from logstore.cleaner.passes.offset_map import KeyMap, OffsetMap
from logstore.cleaner.passes.rewrite import Rules
from logstore.cleaner.passes.version_map import VersionMap
from logstore.cleaner.strategy import Strategy
from logstore.config.broker_config import BrokerConfig, parse_properties
from logstore.config.overrides import effective_config
from logstore.errors import (
    CorruptCheckpointError,
    CorruptIndexError,
    CorruptRecordError,
    CorruptSnapshotError,
    InvalidConfigurationError,
    InvalidRecordError,
    UnsupportedFormatError,
)
from logstore.manager.topics import TopicStore
from logstore.names import validate_topic_name
from logstore.record.batch import RecordBatch
from logstore.record.codecs import Codec, compress, decompress
from logstore.record.columns import decode_section
from logstore.record.control import end_txn_marker_of
from logstore.record.kernels import OK as KERNEL_OK
from logstore.record.records import Record, decode_records, encode_records
from logstore.record.walk import walk_buffer, walk_headers
from logstore.storage.checkpoint.offsets import OffsetCheckpoint
from logstore.storage.checkpoint.topic_id import read_partition_metadata, write_partition_metadata
from logstore.storage.index import OffsetIndex, TimeIndex, TransactionIndex
from logstore.storage.log.epochs import LeaderEpochCache
from logstore.storage.producers.snapshot import decode_snapshot, encode_snapshot
from logstore.types import INT64_MAX, OffsetPosition
from tests.fuzz import oracle, seeds
from tests.fuzz.contract import LIMIT, OK, OUTCOMES, Target, outcome_of
from tests.support.oracles import cleaner_oracle
from tests.support.oracles.version_oracle import By, VersionKeyMap
from tests.support.world.builders import memory_world
from tests.support.world.kernel_calls import assemble, build, classify, compete, scan, unfolded

if TYPE_CHECKING:
    import numpy as np

PATH = "/data/t-0/00000000000000000000.log"


# --- sections and batches -----------------------------------------------------------------------


def section(data: bytes) -> str:
    """An uncompressed section through both decoders, against the oracle."""
    if len(data) < seeds.SECTION.size:
        data = data.ljust(seeds.SECTION.size, b"\0")
    count, base_offset, base_timestamp, flag = seeds.SECTION.unpack_from(data)
    append_time = base_timestamp if flag & 1 else None
    return _decode(data[seeds.SECTION.size :], count, base_offset, base_timestamp, append_time)


def _decode(
    plain: bytes, count: int, base_offset: int, base_timestamp: int, append_time: int | None
) -> str:
    arguments = (count, base_offset, base_timestamp, append_time)
    expected: list[Record] | None = None
    with suppress(oracle.BadRecordError):
        expected = oracle.decode(plain, *arguments)
    found: list[list[Record] | None] = []
    for decoder in (decode_records, lambda *args: decode_section(*args).to_records()):
        try:
            found.append(decoder(plain, *arguments))
        except InvalidRecordError:
            found.append(None)
    assert found[0] == expected, f"plain decoder: {found[0]} instead of {expected}"
    assert found[1] == expected, f"kernel: {found[1]} instead of {expected}"
    if expected is None:
        return OUTCOMES[InvalidRecordError]
    assert len(expected) == count
    _encode_again(expected, base_offset, base_timestamp, append_time)
    return OK


def _encode_again(
    records: list[Record], base_offset: int, base_timestamp: int, append_time: int | None
) -> None:
    if not 0 <= base_offset <= oracle.INT64_MAX - oracle.INT32_MAX:
        return  # offsets that ran over the end of 64 bits cannot be encoded from that base
    plain = encode_records(records, base_offset, base_timestamp)
    again = decode_section(plain, len(records), base_offset, base_timestamp, append_time)
    assert again.to_records() == records, "encoded and decoded again, the records differ"


def batch(data: bytes) -> str:
    """One batch: validity, codec, records by either decoder, control record."""
    taken = RecordBatch(data, PATH, 0)
    sound = oracle.one_batch(data).is_sound
    assert taken.is_valid() == sound
    try:
        taken.ensure_valid()
    except CorruptRecordError as error:
        assert not sound
        return outcome_of(error, CorruptRecordError, path=PATH)
    assert sound
    header = taken.header
    try:
        plain = bytes(taken.section(LIMIT))
    except CorruptRecordError as error:
        _agree_on_damage(taken)
        return outcome_of(error, CorruptRecordError, path=PATH)
    assert len(plain) <= max(LIMIT, len(data))
    time = header.max_timestamp if header.attributes & 8 else None
    arguments = (header.record_count, header.base_offset, header.base_timestamp, time)
    outcome = _decode(plain, *arguments)
    if outcome != OK:
        _agree_on_damage(taken)
        return outcome
    expected = oracle.decode(plain, *arguments)
    assert taken.records(LIMIT) == expected
    assert taken.columns(LIMIT).to_records() == expected
    _marker(taken)
    return OK


def _agree_on_damage(taken: RecordBatch) -> None:
    for decode in (taken.records, taken.columns):
        try:
            decode(LIMIT)
        except (CorruptRecordError, InvalidRecordError) as error:
            outcome_of(error, CorruptRecordError, InvalidRecordError, path=PATH)
        else:
            raise AssertionError("damage was decoded")
    _marker(taken)


def _marker(taken: RecordBatch) -> None:
    try:
        end_txn_marker_of(taken)
    except (CorruptRecordError, InvalidRecordError) as error:
        outcome_of(error, CorruptRecordError, InvalidRecordError, path=PATH)


def stream(data: bytes) -> str:
    """A compressed stream behind a byte that names its codec."""
    codec = Codec(1 + (data[0] - 1) % 4 if data else 1)
    body = data[1:]
    try:
        plain = decompress(codec, body, limit=LIMIT)
    except CorruptRecordError as error:
        if codec is Codec.GZIP:
            _gzip_agrees(body, None)
        return outcome_of(error, CorruptRecordError)
    assert len(plain) <= LIMIT
    assert decompress(codec, compress(codec, plain), limit=LIMIT) == plain
    if codec is Codec.GZIP:
        _gzip_agrees(body, bytes(plain))
    if plain:
        try:
            decompress(codec, body, limit=len(plain) - 1)
        except CorruptRecordError as error:
            check = error.check
        else:
            check = None
        assert check == "decompressed_size", "the limit does not hold"
    return OK


def _gzip_agrees(body: bytes, plain: bytes | None) -> None:
    """Compare with Python's own reader.

    That one passes reserved flags and a wrong CRC of the header, refuses garbage behind a member,
    and skips zeros there, where Java's reader, and so ours, ends.
    """
    if len(body) > 1000:
        return
    try:
        theirs = gzip.decompress(body)
    except (OSError, EOFError, ValueError, zlib.error):
        return
    if plain is not None:
        padded = b"\0\x1f\x8b" in body and theirs.startswith(plain)
        assert theirs == plain or padded, "gzip decoders differ"
    elif len(body) > 3 and body[3] in (0, 4, 8, 12, 16) and body.count(b"\x1f\x8b") == 1:
        assert len(theirs) > LIMIT, "gzip data refused that another reader takes"


# --- walks and kernels --------------------------------------------------------------------------


def walk(data: bytes) -> str:
    """The batches of a buffer and of a file, found by every walk there is."""
    outcome = ""
    for is_file in (False, True):
        expected = oracle.walk(data, is_file=is_file)
        sizes = [(each.position, len(each.data)) for each in expected.batches]
        met: list[tuple[int, int]] = []
        outcome = _walked(_step_buffer(data, met, is_file=is_file), met, expected, sizes)
        if is_file:
            met = []
            assert _walked(_step_file(data, met), met, expected, sizes) == outcome
    _scan(data)
    return outcome


def _step_buffer(data: bytes, met: list[tuple[int, int]], *, is_file: bool):
    position = 0
    for each in walk_buffer(data, PATH if is_file else None):
        assert each.data == data[position : position + len(each.data)]
        met.append((position, len(each.data)))
        position += len(each.data)
        yield


def _step_file(data: bytes, met: list[tuple[int, int]]):
    world = memory_world()
    world.write("x.log", data)
    file = world.fs.open(world.path("x.log"))
    for at in walk_headers(file, PATH):
        header = RecordBatch(data[at.position : at.position + at.header.size_bytes]).header
        assert at.header == header
        met.append((at.position, at.header.size_bytes))
        yield


def _walked(steps, met, expected: oracle.Walk, sizes) -> str:
    try:
        for _ in steps:
            assert len(met) <= len(sizes)
    except (CorruptRecordError, UnsupportedFormatError) as error:
        ending = "corrupt" if isinstance(error, CorruptRecordError) else "unsupported"
        position = error.position
        outcome = outcome_of(error, CorruptRecordError, UnsupportedFormatError)
    else:
        ending, position, outcome = "end", expected.position, OK
    assert (met, ending, position) == (sizes, expected.ending, expected.position)
    return outcome


def _scan(data: bytes) -> None:
    """`scan_batches` finds the strictly sound ones in a buffer, as long as their offsets rise."""
    walked = oracle.walk(data, is_file=False)
    for check_crc in (True, False):
        wanted = []
        stopped = DAMAGED
        for each in walked.batches:
            sized = len(each.data) >= 61 and each.base_offset >= 0 and each.delta >= 0
            fits = each.last_offset <= oracle.INT64_MAX and each.record_count >= 0
            if not (sized and fits and (each.is_sound or not check_crc)):
                break
            if wanted and each.base_offset <= wanted[-1].last_offset:
                stopped = MISPLACED
                break
            wanted.append(each)
        status, table, position = scan(data, check_crc=check_crc, rows=len(data) // 61 + 1)
        columns = (COL_POSITION, COL_BASE_OFFSET, COL_LAST_OFFSET)
        assert [tuple(row) for row in table[:, columns].tolist()] == [
            (each.position, each.base_offset, each.last_offset) for each in wanted
        ]
        end = sum(len(each.data) for each in wanted)
        assert position == end
        whole = len(wanted) == len(walked.batches)
        if not whole or (walked.ending == "corrupt" and len(data) - end >= 17):
            assert status == stopped
        elif walked.ending == "end" and (len(data) - end < 17 or data[end + 16] == 2):
            size = int.from_bytes(data[end + 8 : end + 12], "big") + 12
            assert status == (DAMAGED if len(data) - end >= 17 and size < 61 else KERNEL_OK)


def clean_kernels(data: bytes) -> str:
    """Map, classify and assemble the sound batches of a buffer, against the cleaner's oracles."""
    _, table, end = scan(data, rows=len(data) // 61 + 1)
    taken = list(walk_buffer(data[:end]))
    sections = []
    for row, each in enumerate(taken):
        try:
            sections.append(bytes(each.section(LIMIT)))
        except CorruptRecordError:
            table, taken = table[:row], taken[:row]
            break
    extended = unfolded(data[:end], table, sections[: len(table)])
    counts = table[:, COL_RECORD_COUNT]
    sizes = table[:, COL_SECTION_END] - table[:, COL_SECTION_START]
    if (counts * 7 > sizes).any():
        return OUTCOMES[CorruptRecordError]  # refused before the kernels see it
    base = int(table[0, COL_BASE_OFFSET]) if len(table) else 0
    offset_map = OffsetMap(24 * 4000, base_offset=base, rng=None)
    offsets = [each.header.base_offset for each in taken]
    ends = [each.header.last_offset for each in taken]
    rising = all(base <= a <= b for a, b in zip(offsets, ends, strict=True)) and all(
        a < b for a, b in zip(ends, offsets[1:], strict=False)
    )
    if not rising or any(b - base > MAX_OFFSET_SPAN for b in ends):
        return "out_of_order"  # the reader of chunks refuses such a chunk
    decodable = [_is_decodable(each) for each in taken]
    bad = decodable.index(False) if False in decodable else len(taken)
    end = min(base + MAX_OFFSET_SPAN, INT64_MAX)
    status, row = build(extended, table, base, offset_map)
    if bad == len(taken) or not taken[bad].header.is_control:  # those the map passes over unread
        damaged = (DAMAGED, bad) if bad < len(taken) else (KERNEL_OK, bad)
        assert (status, row) == damaged, f"{status} at {row}, not {bad}"
    if bad < len(taken):
        status, row, _, _ = classify(extended, table, offset_map, 1500, 2500)
        assert (status, row) == (DAMAGED, bad)
        for strategy in STRATEGIES.values():
            version_map = VersionMap(32 * 4000, base_offset=base)
            compete(extended, table, base, end, version_map, strategy)
            found = classify(extended, table, version_map, 1500, 2500, Rules(strategy))[:2]
            assert found == (DAMAGED, bad)
        return OUTCOMES[CorruptRecordError]
    mapping = cleaner_oracle.map_batches(taken, base, offset_map.limit, base - 1)
    assert status == KERNEL_OK
    assert len(offset_map) == len(mapping.offsets)
    assert offset_map.latest_offset == max(mapping.latest_offset, base - 1)
    outcome = _judge(extended, table, taken, offset_map, mapping, Rules())
    if not all(a.offset < b.offset for each in taken for a, b in pairwise(each.records(LIMIT))):
        return outcome  # the later loser is then undefined
    for by, strategy in STRATEGIES.items():
        version_map = VersionMap(32 * 4000, base_offset=base)
        versions = VersionKeyMap(by, base - 1, keep_offset=ends[-1] if ends else -1, safe_ms=1400)
        versions.build(taken, base, end, version_map.limit)
        compete(extended, table, base, end, version_map, strategy)
        assert version_map.latest_offset == versions.latest_offset
        assert {
            key: (entry.order, entry.later_loser)
            for key in versions.winners
            if (entry := version_map.get(key)) is not None
        } == {key: (each, versions.has_later_loser(key)) for key, each in versions.winners.items()}
        rules = Rules(strategy, keep_offset=versions.keep_offset, safe_ms=versions.safe_ms)
        outcome = _judge(extended, table, taken, version_map, versions, rules)
    return outcome


STRATEGIES = {
    By("timestamp"): Strategy("timestamp"),
    By("long", "h"): Strategy("header", "h"),
    By("varlong", "h"): Strategy("header", "h", "varlong"),
}


def _judge(
    extended: np.ndarray,
    table: np.ndarray,
    taken: list[RecordBatch],
    key_map: KeyMap,
    mapping: cleaner_oracle.Judging,
    rules: Rules,
) -> str:
    """Classify and assemble all batches of a table; every byte equals the oracle's."""
    status, row, _, starts = classify(extended, table, key_map, 1500, 2500, rules)
    assert (status, row) == (KERNEL_OK, len(taken))
    outputs = assemble(extended, table, starts)
    for index, (each, output) in enumerate(zip(taken, outputs, strict=True)):
        try:
            sentence = cleaner_oracle.judge(each, mapping, 1500, 2500)
        except ValueError:
            return "odd_timestamp"  # a base timestamp that Kafka's builder refuses to write
        if each.header.codec_id and sentence.form == "rebuilt":
            wanted = bytes(RecordBatch(sentence.output).section(LIMIT))
        else:
            wanted = sentence.output
        assert output == wanted or _is_same(each, output, sentence), f"row {index}"
    return OK


def _is_same(source: RecordBatch, output: bytes, sentence: cleaner_oracle.BatchVerdict) -> bool:
    """Return whether two rebuilt batches differ only in the encoding of a number.

    An overlong number (no producer writes one) is copied, but the oracle re-encodes it.
    """
    assert sentence.form == "rebuilt"
    wanted = RecordBatch(sentence.output)
    if source.header.codec_id:
        header = wanted.header
        bases = (
            header.record_count,
            header.base_offset,
            header.base_timestamp,
            wanted._append_time,
        )
        return decode_records(output, *bases) == wanted.records(LIMIT)
    found = RecordBatch(output)
    found.ensure_valid()
    same = found.header._replace(crc=0, batch_length=0)
    return same == wanted.header._replace(crc=0, batch_length=0) and (
        found.records(LIMIT) == wanted.records(LIMIT)
    )


def _is_decodable(taken: RecordBatch) -> bool:
    """Whether the records decode, within the bounds of the header."""
    header = taken.header
    try:
        records = taken.records(LIMIT)
    except (InvalidRecordError, CorruptRecordError):
        return False
    return all(record.offset <= header.last_offset for record in records)


# --- indexes ------------------------------------------------------------------------------------


def index(data: bytes) -> str:
    """One of the three indexes: sanity check, lookups against plain bisection, changes."""
    kind = (data[0] if data else 0) % 3
    world = memory_world()
    path = world.path("00000000000000000050.index")
    world.write("00000000000000000050.index", data[1:])
    base = 50
    if kind == 2:
        return _txn_index(TransactionIndex(world.fs, path, base), data[1:])
    cls = (OffsetIndex, TimeIndex)[kind]
    found = cls(world.fs, path, base, max_index_bytes=4000, writable=True)
    entries = list(found)
    assert len(entries) == found.entries == (len(data) - 1 if data else 0) // cls.ENTRY.size
    outcome = OK
    try:
        found.sanity_check()
    except CorruptIndexError as error:
        outcome = outcome_of(error, CorruptIndexError, path=path)
    keys = [entry[0] for entry in entries]
    rises = all(a < b for a, b in pairwise(keys))
    for key in {key + step for key in keys[:20] + keys[-3:] for step in (-1, 0, 1)} | {0, 2**70}:
        answer = found.lookup(key)
        below = [entry for entry in entries if entry[0] <= key]
        if rises:
            nothing = OffsetPosition(base, 0) if kind == 0 else (-1, base)
            assert tuple(answer) == tuple(below[-1] if below else nothing), key
        else:
            assert answer in entries or not below or answer[1] in (0, base)
    if isinstance(found, OffsetIndex):
        found.fetch_upper_bound_offset(OffsetPosition(base, 0), 100)
    before = found.entries
    found.truncate_to(base + 10)
    assert found.entries <= before
    found.resize(2000)
    found.close()
    return outcome


def _txn_index(found: TransactionIndex, data: bytes) -> str:
    outcomes = set()
    for use in (
        found.entries,
        found.sanity_check,
        lambda: found.collect_aborted_txns(0, 2**63),
        lambda: found.collect_aborted_txns(55, 60),
        lambda: found.collect_aborted_txns(60, 55),
    ):
        try:
            use()
        except CorruptIndexError as error:
            outcomes.add(outcome_of(error, CorruptIndexError, path=found.path))
    found.truncate_to(55)
    found.close()
    return outcomes.pop() if outcomes else OK


# --- small files --------------------------------------------------------------------------------


def snapshot(data: bytes) -> str:
    """A producer snapshot."""
    try:
        entries = decode_snapshot(data, PATH)
    except CorruptSnapshotError as error:
        if len(data) < 10:
            return OUTCOMES[CorruptSnapshotError]
        return outcome_of(error, CorruptSnapshotError, path=PATH)
    assert len(data) == 10 + 46 * len(entries)
    assert encode_snapshot(entries) == data
    return OK


def offset_checkpoint(data: bytes) -> str:
    """An offset checkpoint; its entries survive a round trip."""
    world = memory_world()
    world.write("c", data)
    file = OffsetCheckpoint(world.fs, world.path("c"))
    try:
        offsets = file.read()
    except CorruptCheckpointError as error:
        return outcome_of(error, CorruptCheckpointError, path=file.path)
    assert len(offsets) <= len(data) // 6
    file.write(offsets)
    assert file.read() == offsets
    return OK


def epoch_checkpoint(data: bytes) -> str:
    """A leader-epoch checkpoint."""
    world = memory_world()
    world.write("leader-epoch-checkpoint", data)
    try:
        cache = LeaderEpochCache(world.fs, world.directory)
    except CorruptCheckpointError as error:
        return outcome_of(error, CorruptCheckpointError, path=world.path("leader-epoch-checkpoint"))
    cache._check()
    entries = cache.entries
    starts = [entry.start_offset for entry in entries] + [2**63 - 1]
    for entry, end in zip(entries, starts[1:], strict=True):
        assert cache.end_offset_for(entry.epoch, 2**63 - 1) == (entry.epoch, end)
    cache.assign(2**31 - 1, 2**63 - 1)
    assert LeaderEpochCache(world.fs, world.directory).entries == cache.entries
    return OK


def metadata(data: bytes) -> str:
    """partition.metadata."""
    world = memory_world()
    world.write("partition.metadata", data)
    try:
        topic_id = read_partition_metadata(world.fs, world.directory)
    except CorruptCheckpointError as error:
        return outcome_of(error, CorruptCheckpointError, path=world.path("partition.metadata"))
    assert topic_id is not None
    assert len(topic_id) == 16
    write_partition_metadata(world.fs, world.directory, topic_id)
    assert read_partition_metadata(world.fs, world.directory) == topic_id
    return OK


def topics(data: bytes) -> str:
    """logstore-topics.json: names that are safe as folders, partitions that are numbers."""
    world = memory_world()
    world.write("logstore-topics.json", data)
    try:
        store = TopicStore(world.fs, world.directory)
    except CorruptCheckpointError as error:
        return outcome_of(error, CorruptCheckpointError, path=world.path("logstore-topics.json"))
    for topic in store.all():
        validate_topic_name(topic.name)
        assert all(type(number) is int for number in topic.partitions)
        assert all(0 <= number < 2**31 for number in topic.partitions)
        assert list(topic.partitions) == sorted(set(topic.partitions))
        assert all(type(text) is str for pair in topic.configs.items() for text in pair)
    before = store.all()
    store.create("fresh-topic.of-the-fuzzer", [0], {})
    again = TopicStore(world.fs, world.directory).all()
    assert [topic for topic in again if topic.name != "fresh-topic.of-the-fuzzer"] == before
    return OK


def properties(data: bytes) -> str:
    """server.properties, down to the effective configuration of a topic."""
    try:
        broker = BrokerConfig.from_properties(parse_properties(data, "p"))
        effective_config({}, broker)
    except InvalidConfigurationError as error:
        return outcome_of(error, InvalidConfigurationError)
    return OK


TARGETS = {
    "section": Target(section, "section", seeds.sections, 12),
    "batch": Target(batch, "batches", seeds.batches, 14),
    "stream": Target(stream, "stream", seeds.streams, 12),
    "walk": Target(walk, "batches", seeds.logs, 8),
    "clean_kernels": Target(clean_kernels, "batches", seeds.logs, 6),
    "index": Target(index, "entries", seeds.indexes, 10),
    "snapshot": Target(snapshot, "snapshot", seeds.snapshots, 6),
    "offset_checkpoint": Target(offset_checkpoint, "text", seeds.offset_checkpoints, 6),
    "epoch_checkpoint": Target(epoch_checkpoint, "text", seeds.epoch_checkpoints, 5),
    "metadata": Target(metadata, "text", seeds.metadata_files, 4),
    "topics": Target(topics, "text", seeds.topics_files, 6),
    "properties": Target(properties, "text", seeds.properties_files, 1),
}
