"""Calls of the cleaner's kernels for tests: bytes in, lists out."""

from __future__ import annotations

import numpy as np

from logstore.cleaner.kernels import ranges
from logstore.cleaner.kernels.assemble import assemble_batches, write_kept_records
from logstore.cleaner.kernels.classify import TALLIES, ClassifyOutput, classify_batches
from logstore.cleaner.kernels.hashing import Keys
from logstore.cleaner.kernels.mapping import Build, KeyBlock, map_batches
from logstore.cleaner.kernels.table import (
    COL_ATTRIBUTES,
    COL_FORM,
    COL_LAST_OFFSET,
    COL_OUT_MAX_TIMESTAMP,
    COL_OUT_SIZE,
    COL_RECORD_COUNT,
    COL_SECTION_END,
    COL_SECTION_START,
    COMPRESSED,
    FORM_DROPPED,
    TABLE_COLUMNS,
    Scan,
    scan_batches,
)
from logstore.cleaner.kernels.versions import version_put
from logstore.cleaner.passes.offset_map import KeyMap, OffsetMap
from logstore.cleaner.passes.rewrite import Rules
from logstore.cleaner.passes.version_map import VersionMap, kernel_order, kernel_strategy
from logstore.cleaner.strategy import Order, Strategy
from logstore.record.layout import CODEC_MASK, HEADER_SIZE
from logstore.types import INT64_MAX

FORMS = ("dropped", "verbatim", "rebuilt", "empty")


def array(data: bytes) -> np.ndarray:
    """A writable array of exactly these bytes."""
    return np.frombuffer(bytearray(data), np.uint8)


def scan(data: bytes, *, check_crc: bool = True, rows: int = 200):
    """Status, table of the whole batches, and the position after them."""
    table = np.empty((rows, TABLE_COLUMNS), np.int64)
    result = Scan(*scan_batches(array(data), len(data), check_crc, 0, INT64_MAX, table))
    return result.status, table[: result.rows], result.position


def scan_survivors(data: np.ndarray, key_map: KeyMap, rules: Rules, kept_last_offset: int = -1):
    """The result of the scan, and the table of the batches that may stay."""
    table = np.empty((200, TABLE_COLUMNS), np.int64)
    by = rules.for_kernels(0, 0, by_winners=True)
    result = Scan(
        *ranges.scan_survivors(
            data, len(data), 0, INT64_MAX, kept_last_offset, table, key_map.arrays, by
        )
    )
    return result, table[: result.rows]


def unfolded(data: bytes, table: np.ndarray, sections: list[bytes]) -> np.ndarray:
    """Append decompressed sections to the bytes, and point the table's rows to them."""
    parts = bytearray(data)
    for row, section in zip(table, sections, strict=True):
        if row[COL_ATTRIBUTES] & CODEC_MASK:
            row[COL_SECTION_START] = len(parts)
            parts += section
            row[COL_SECTION_END] = len(parts)
    return np.frombuffer(parts, np.uint8)


def build(data: np.ndarray, table: np.ndarray, first_dirty: int, offset_map: OffsetMap):
    """Run `map_batches` by offset over all rows."""
    by = kernel_strategy(Strategy())
    whole = Build(by, first_dirty, INT64_MAX, insert=True)
    return map_batches(data, table, offset_map.arrays, whole, KeyBlock.empty())


def compete(
    data: np.ndarray,
    table: np.ndarray,
    start: int,
    end: int,
    version_map: VersionMap,
    strategy: Strategy,
    *,
    insert: bool = True,
):
    """Run `map_batches` by version over all rows."""
    part = Build(kernel_strategy(strategy), start, end, insert=insert)
    return map_batches(data, table, version_map.arrays, part, KeyBlock.empty())


def room(count: int) -> ClassifyOutput:
    """Space for the verdicts on so many records, with sentinels for unwritten entries."""
    return ClassifyOutput(
        np.full(count, 255, np.uint8),
        np.full(count, -1, np.int64),
        Keys.room_for(max(count, 1)),
        np.zeros(TALLIES, np.int64),
    )


def classify(
    data: np.ndarray,
    table: np.ndarray,
    offset_map: KeyMap,
    now_ms: int,
    new_horizon_ms: int,
    rules: Rules | None = None,
    *,
    by_winners: bool = False,
    tally: np.ndarray | None = None,
):
    """Run `classify_batches`; status, row, codes and starts of kept records."""
    judging = room(int(table[:, COL_RECORD_COUNT].sum()))
    if tally is not None:
        judging = judging._replace(tally=tally)
    rules = (rules or Rules()).for_kernels(now_ms, new_horizon_ms, by_winners=by_winners)
    status, row = classify_batches(data, table, offset_map.arrays, rules, judging)
    return status, row, judging.codes, judging.kept_starts


def assemble(data: np.ndarray, table: np.ndarray, kept_starts: np.ndarray) -> list[bytes]:
    """The output of each row; for a compressed batch to be rebuilt, its plain section instead."""
    out = np.full(int(table[:, COL_OUT_SIZE].sum()), 0xAA, np.uint8)
    extents = np.full((len(table), 3), -1, np.int64)
    row = position = filled = 0
    outputs: dict[int, bytes] = {}
    while row < len(table):
        first, start = row, position
        status, row, position, filled = assemble_batches(
            data, table, row, kept_starts, out, position, extents, filled
        )
        at = start
        for done in range(first, row):
            size = int(table[done, COL_OUT_SIZE])
            outputs[done] = out[at : at + size].tobytes()
            at += size
        assert at == position
        if status == COMPRESSED:
            section = np.empty(int(table[row, COL_OUT_SIZE]), np.uint8)
            end = write_kept_records(data, table[row], kept_starts, section, 0)
            outputs[row] = section[:end].tobytes()
            assert end <= len(section) - HEADER_SIZE
            row += 1
    written = table[table[:, COL_FORM] != FORM_DROPPED]
    columns = [COL_LAST_OFFSET, COL_OUT_MAX_TIMESTAMP]
    assert extents[:filled, :2].tolist() == written[:, columns].tolist()
    if not (table[:, COL_ATTRIBUTES] & CODEC_MASK).any():
        assert extents[:filled, 2].tolist() == [len(each) for each in outputs.values() if each]
    return [outputs[each] for each in range(len(table))]


def lift(version_map: VersionMap, key: bytes, order: Order) -> None:
    """Let a record of the clean section compete if its key is known, as the seed pass does."""
    version_put(version_map.arrays, array(key), 0, len(key), kernel_order(order), False)
