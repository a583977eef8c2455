"""Random batches, damaged ones too, and their contents, which are stored.

gzip is only read: the bytes that zlib writes depend on its version.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from random import Random
from typing import Any

import numpy as np

from logstore.errors import LogStoreError
from logstore.record import codecs, columns, control, json_text, legacy, varint, walk
from logstore.record.batch import RecordBatch, build_batch, seal_batch
from logstore.record.choice import SMALL_BATCH_RECORDS
from logstore.record.codecs import GZIP_HEADER, Codec
from logstore.record.columns import BytesColumn, RecordColumns
from logstore.record.crc32c import crc32c
from logstore.record.header import BatchHeader
from logstore.record.records import Record, decode_windows, encode_records
from logstore.record.scan import SegmentScan
from logstore.record.search import find_batch
from logstore.record.splice import SplicedFile
from logstore.record.survey import Damage, SegmentBounds, SpliceBuilder, survey
from logstore.runtime import MemoryFileSystem, VirtualClock
from logstore.types import INT32_MAX, TimestampType
from tests.support.world.builders import abort, commit
from tests.support.world.legacy import message
from tests.support.world.transcripts import Transcript

FEW = 18
STEPS = 12
NOW_MS = 1_700_000_000_000
LEVELLED = (Codec.LZ4, Codec.ZSTD)
PATH = "/00000000000000000000.log"


def _records_in(window: list[Record] | RecordColumns) -> list[Record]:
    return window if isinstance(window, list) else window.to_records()


BATCH_READERS: tuple[Callable[[RecordBatch, int], object], ...] = (
    lambda batch, _: (batch.codec, batch.is_valid, batch.computed_crc()),
    lambda batch, _: batch.ensure_valid(),
    RecordBatch.section,
    RecordBatch.records,
    RecordBatch.iter_records,
    RecordBatch.row_lists,
    RecordBatch.facts,
    lambda batch, limit: [*map(_records_in, batch.windows(limit)())],
    RecordBatch.columns,
    lambda batch, _: control.end_txn_marker_of(batch),
)


def transcribe(seed: int) -> Transcript:
    """Return random batches and the results of reading them."""
    return _Batches(seed).run()


def _stored_gzip(data: bytes) -> bytes:
    """Return a gzip member with one block that is not compressed."""
    size = len(data).to_bytes(2, "little")
    block = b"\x01" + size + bytes(each ^ 0xFF for each in size) + data
    rest = zlib.crc32(data).to_bytes(4, "little") + len(data).to_bytes(4, "little")
    return GZIP_HEADER + block + rest


def _shown(value: object) -> object:
    if isinstance(value, RecordBatch):
        return value.data
    if isinstance(value, RecordColumns):
        rows = value.to_records()
        headers = [value.headers(row) for row in range(len(value))]
        return value.offsets.tolist(), value.section_bytes, value.has_null_key, rows, headers
    if isinstance(value, Iterator):
        value = list(value)
    if type(value) in (list, tuple):
        return [_shown(each) for each in value]  # type: ignore[attr-defined]
    return value


class _Batches:
    """Random records in batches, in files and in sections."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.transcript = Transcript()
        self.fs = MemoryFileSystem(VirtualClock())
        self.number = 0
        self.is_large = False
        """Whether a batch may be decoded by a kernel, whose errors have other texts."""

    def run(self) -> Transcript:
        for _ in range(STEPS):
            data = self.batch(self.rng.choice((0, 5, 1 << 33)))
            self.transcript.note(data)
            self.read(data)
            for _ in range(3):
                self.read(self.damaged(data))
            self.read_columns()
            self.read_file()
            self.decompress()
            self.decode_small()
        return self.transcript

    def attempt(self, call: Callable[..., object], *arguments: Any, **options: Any) -> None:
        try:
            self.transcript.note(_shown(call(*arguments, **options)))
        except (LogStoreError, ValueError, TypeError) as error:
            self.transcript.note(type(error).__name__)
            if not self.is_large:
                self.transcript.note(str(error), sorted(vars(error).items()))

    # -- draws -------------------------------------------------------------------------------

    def bytes(self) -> bytes | None:
        rng = self.rng
        return rng.choice((None, b"", b"k", b"text", "ü€".encode(), rng.randbytes(9), b"v" * 130))

    def headers(self) -> tuple[tuple[str, bytes | None], ...]:
        count = self.rng.choice((0, 0, 0, 1, 2))
        return tuple((self.rng.choice(("h", "", "ü")), self.bytes()) for _ in range(count))

    def time(self) -> int:
        rng = self.rng
        return NOW_MS + rng.choice((0, 0, 1, -1, 1000, rng.randint(-(10**6), 10**6)))

    def records(self, base_offset: int) -> list[Record]:
        rng = self.rng
        step = rng.choice((1, 1, 1, 3))
        return [
            Record(base_offset + row * step, self.time(), self.bytes(), self.bytes(), headers)
            for row in range(rng.choice((1, 1, 2, 3, 8, 70)))
            for headers in [self.headers()]
        ]

    def batch(self, base_offset: int) -> bytes:
        """Build a batch with any codec, producer, times and gaps."""
        rng = self.rng
        if rng.random() < 0.15:
            return rng.choice((abort, commit))(base_offset, 7, epoch=1, coordinator_epoch=2)
        records = self.records(base_offset)
        fields: dict[str, Any] = {}
        if rng.random() < 0.4:
            fields |= {
                "producer_id": 5,
                "producer_epoch": 1,
                "is_transactional": rng.random() < 0.5,
            }
            fields["base_sequence"] = rng.choice((0, 9, INT32_MAX - 1))
        if rng.random() < 0.2:
            fields |= {"timestamp_type": TimestampType.LOG_APPEND_TIME, "append_time": NOW_MS + 7}
        elif rng.random() < 0.2:
            fields["delete_horizon_ms"] = NOW_MS + rng.choice((0, 1, 10**6))
        if rng.random() < 0.2:
            fields["last_offset"] = records[-1].offset + rng.choice((0, 1, 5))
        codec = rng.choice((Codec.NONE, *Codec))
        if codec is not Codec.GZIP:
            level = rng.choice((None, 1, 9)) if codec in LEVELLED else None
            return build_batch(records, codec=codec, level=level, **fields)
        section = encode_records(records, base_offset, records[0].timestamp)
        header = BatchHeader.unpack_from(build_batch(records, base_offset=base_offset, **fields))
        _, _, epoch, _, _, attributes, *covered = header
        packed = RecordBatch.pack(
            _stored_gzip(section), base_offset, epoch, attributes | Codec.GZIP, *covered
        )
        return packed.data

    def damaged(self, data: bytes) -> bytes:
        """Change a few bytes, some with a checksum that fits."""
        rng = self.rng
        changed = bytearray(data)
        match rng.randrange(6):
            case 0:
                del changed[rng.randrange(len(changed)) :]
            case 1:
                changed += rng.randbytes(rng.choice((1, 5, 70)))
            case 2:
                place = rng.randrange(len(changed))
                changed[place:place] = rng.randbytes(rng.choice((1, 2, 8)))
            case _:
                for _ in range(rng.choice((1, 1, 2))):
                    place = rng.randrange(len(changed))
                    changed[place] = rng.choice(
                        (0, 1, 0x7F, 0xFF, changed[place] ^ 1 << rng.randrange(8))
                    )
        if len(changed) > 61 and rng.random() < 0.7:
            changed[17:21] = crc32c(bytes(changed[21:])).to_bytes(4, "big")
        return bytes(changed)

    # -- batches -----------------------------------------------------------------------------

    def read(self, data: bytes) -> None:
        rng = self.rng
        limit = rng.choice((1 << 20, 1 << 20, 100, len(data)))
        batch = RecordBatch(data, rng.choice((None, PATH)), rng.choice((None, 3)))
        header = batch.header
        self.transcript.note(
            *(header, header.size_bytes, header.last_offset, header.possible_record_count),
            *(header.delete_horizon_ms, header.last_sequence, header.has_producer_id, limit),
        )
        self.is_large = header.record_count > SMALL_BATCH_RECORDS
        for reader in BATCH_READERS:
            self.attempt(reader, batch, limit)
        self.is_large = False
        kind = rng.choice(list(TimestampType))
        self.attempt(batch.with_place, rng.choice((0, 77)), 3)
        self.attempt(batch.with_timestamp, kind, rng.choice((NOW_MS, header.max_timestamp)))
        self.attempt(walk.walk_buffer, data, rng.choice((None, PATH)), rng.choice((0, 9)))

    def read_columns(self) -> None:
        """Encode the same records by columns."""
        rng = self.rng
        records = self.records(0)
        times = np.array([record.timestamp for record in records], np.int64)
        keys, values = (
            BytesColumn.from_list([record[field] for record in records]) for field in (2, 3)
        )
        headers = columns.headers_column(
            rng.choice((None, [record.headers for record in records])), len(records)
        )
        middle = rng.randint(0, len(records))
        bounds = sorted({0, middle, len(records)})
        options = {"first_offset": rng.choice((0, 1000)), "leader_epoch": rng.choice((0, 4))}
        data, extents = columns.encode_batches(times, keys, values, headers, bounds, **options)
        self.transcript.note(data, extents.tolist())
        self.attempt(columns.encode_batch, times, keys, values, headers, **options)
        self.attempt(columns.find_bounds, keys, values, rng.choice((50, 500)), rng.choice((1, 9)))
        batch = RecordBatch(bytes(data[: int(extents[0, 2])]))
        found = batch.columns()
        start = rng.randint(0, len(records))
        self.attempt(found.between, start, rng.choice((None, start + 2)))
        self.attempt(columns.join_columns, [found, found])
        sections = (bytes(batch.section()), self.damaged(bytes(batch.section())))
        for section in sections:
            arguments = (len(found), 0, NOW_MS, rng.choice((None, NOW_MS + 5)))
            rows_max = rng.choice((1, 3, 100))
            self.attempt(columns.decode_windows, section, 0, *arguments, rows_max=rows_max)
            self.attempt(decode_windows, section, *arguments, rows_max=rows_max)
        self.attempt(found.row_lists)
        self.transcript.note(
            keys.null_rows(), keys.slice(0, middle).null_rows(), found.encoded_headers[0]
        )
        sealed = seal_batch(
            *(batch.section(),),
            codec=rng.choice((Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)),
            last_offset_delta=len(found) - 1,
            record_count=len(found),
            base_timestamp=int(times[0]),
            max_timestamp=int(times.max()),
            timestamp_type=TimestampType.CREATE_TIME,
        )
        self.transcript.note(sealed)

    # -- files -------------------------------------------------------------------------------

    def read_file(self) -> None:
        """Write batches and old messages to a file, damage it, and look for them."""
        rng = self.rng
        offset, data = rng.choice((0, 0, 5)), b""
        for _ in range(rng.choice((1, 2, 4))):
            if rng.random() < 0.2:
                part = self.old_message(offset)
                offset += 1
            else:
                part = self.batch(offset)
                offset = RecordBatch(part).header.next_offset + rng.choice((0, 0, 2, -1))
            data += self.damaged(part) if rng.random() < 0.25 else part
        if rng.random() < 0.3:
            data += rng.choice((bytes(30), data[: rng.randrange(len(data))]))
        self.number += 1
        path = f"/{self.number}.log"
        file = self.fs.open(path, write=True, create=True)
        file.append([data])
        self.transcript.note(path, data)
        end = rng.choice((None, rng.randint(0, len(data))))
        self.attempt(walk.walk_buffer, data, PATH)
        self.attempt(walk.walk_headers, file, PATH, 0, len(data) if end is None else end)
        self.attempt(walk.batch_totals, file, PATH, end)
        self.attempt(walk.refuse_old_format, file, PATH)
        base = rng.choice((0, 0, 4))
        self.attempt(SegmentScan(file, PATH, base, 10_000, end).run)
        self.attempt(SegmentScan(file, PATH, base, 10_000).pairs)
        start = rng.randint(0, len(data))
        self.attempt(find_batch, file, start, len(data), base, effort=rng.choice((None, 200)))
        bounds = SegmentBounds(PATH, base, base + rng.choice((0, 0, 3)), rng.choice((None, offset)))
        self.attempt(lambda: list(survey(file, bounds, 10_000, end)))
        builder = SpliceBuilder(PATH, 10_000)
        with suppress(LogStoreError):
            for each in survey(file, bounds, 10_000):
                if not isinstance(each, Damage):
                    builder.add(each)
            splice = builder.finish(file.size())
            if splice is not None:
                shown = SplicedFile(file, splice)
                self.attempt(shown.read, 0, shown.size())
                self.attempt(shown.read, rng.randint(0, shown.size()), 40)
        file.close()

    def old_message(self, offset: int) -> bytes:
        rng = self.rng
        magic = rng.choice((0, 1))
        value = self.bytes()
        attributes = rng.choice((0, 0, 0, 8))
        if rng.random() < 0.3:
            value = _stored_gzip(message(0, self.bytes(), self.bytes(), magic=magic))
            attributes |= Codec.GZIP
        data = message(offset, self.bytes(), value, magic=magic, attributes=attributes)
        self.transcript.note(data, legacy.is_sound(data))
        for each in (data, self.damaged(data)):
            self.attempt(lambda each=each: legacy.parse_message(each).entries(1000))
            self.attempt(lambda each=each: legacy.parse_message(each).batch(1000))
        return data

    # -- sections and small values -------------------------------------------------------------

    def decompress(self) -> None:
        rng = self.rng
        data = rng.choice((b"", b"x" * 200, rng.randbytes(100), b"ab" * 40_000, b"hello" * 5))
        for codec in Codec:
            level = rng.choice((None, 1, 9)) if codec in LEVELLED else None
            is_gzip = codec is Codec.GZIP
            packed = _stored_gzip(data[:60_000]) if is_gzip else codecs.compress(codec, data, level)
            self.transcript.note(codec, zlib.crc32(packed), len(packed))
            for each in (packed, self.damaged(packed or b"x"), packed + packed):
                limit = rng.choice((1 << 20, 1 << 20, len(data), len(data) - 1, 50))
                self.attempt(codecs.size_bound, codec, each)
                old = rng.random() < 0.2
                self.attempt(codecs.decompress, codec, each, limit=max(limit, 0), old_lz4=old)

    def decode_small(self) -> None:
        rng = self.rng
        data = rng.randbytes(rng.choice((0, 3, 4, 6, 12)))
        if rng.random() < 0.7:
            data = bytes([0, rng.choice((0, 1)), 0, rng.choice((0, 1, 2, 9))]) + data
        self.attempt(control.decode_control_key, rng.choice((None, data, data)))
        self.attempt(control.decode_end_txn_marker, data, rng.choice((None, data, bytes(6))))
        value = rng.choice((0, -1, 63, -64, 64, 1 << 31, -(1 << 63), rng.getrandbits(62)))
        self.attempt(varint.encode_varint, value)
        self.attempt(varint.decode_varlong, varint.encode_varint(value) + data, 0, 11)
        self.attempt(varint.decode_varint, data, 0, len(data))
        record = Record(1, NOW_MS, self.bytes(), self.bytes(), self.headers())
        self.attempt(
            json_text.record_json, rng.choice((None, "t")), rng.choice((None, 1)), 0, record, x=1
        )
        self.attempt(json_text.bytes_item, "key", record.key)
