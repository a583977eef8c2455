"""In-memory cleaning lines: the kernels of a cleaning pass, without files."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import google_crc32c
import numpy as np

from logstore import jit
from logstore.bench.measuring import Sample, Stopwatch, run_interleaved, timed
from logstore.bench.micro.clean_lines import VALUES, shape_of, warm_kafka
from logstore.bench.micro.cleaning import MAP_BYTES, Difference
from logstore.bench.micro.figures import speeds
from logstore.bench.micro.logs import CLEANED_AT_MS, MIB, make_log
from logstore.bench.micro.setting import Job, Setting
from logstore.bench.report.result import Figures, Line
from logstore.cleaner.kernels.assemble import assemble_batches
from logstore.cleaner.kernels.classify import TALLIES, ClassifyOutput, classify_batches
from logstore.cleaner.kernels.hashing import Keys
from logstore.cleaner.kernels.mapping import Build, KeyBlock, map_batches
from logstore.cleaner.kernels.table import TABLE_COLUMNS, Scan, scan_batches
from logstore.cleaner.passes.offset_map import OffsetMap
from logstore.cleaner.passes.rewrite import Rules
from logstore.cleaner.passes.version_map import kernel_strategy
from logstore.cleaner.strategy import Strategy
from logstore.record.kernels import OK
from logstore.record.layout import HEADER_SIZE
from logstore.storage.segment.kernels import EXTENT_COLUMNS
from logstore.types import INT64_MAX

CHUNK_BYTES = MIB
SHARED = ("100B-10", "1KiB-10")
"""Logs for which rewriting is compared with copying."""


class Parts(NamedTuple):
    """The result of cleaning in memory: times of both phases, and the retained batches."""

    mapping: Sample
    rewriting: Sample
    kept: np.ndarray


class MemoryCleaning:
    """Cleans segments in memory with the kernels, by chunks. Mapping verifies CRCs.

    Parameters
    ----------
    segments : list of (n,) uint8
        Complete batches, uncompressed and without transactions.
    records : int
        Lower bound for the number of records.
    """

    def __init__(self, segments: list[np.ndarray], records: int) -> None:
        self._segments = segments
        self._records = records
        rows = CHUNK_BYTES // HEADER_SIZE + 1
        self._table = np.empty((rows, TABLE_COLUMNS), np.int64)
        self._extents = np.empty((rows, EXTENT_COLUMNS), np.int64)
        self._out = np.empty(sum(map(len, segments)) + 2 * CHUNK_BYTES, np.uint8)

    def run(self) -> Parts:
        """Map all records, then write the latest record of each key."""
        with Stopwatch() as mapping:
            key_map = OffsetMap(MAP_BYTES, max_entries=self._records, winners_end=self._records)
            build = Build(kernel_strategy(Strategy()), 0, INT64_MAX, insert=True)
            take = jit.Bound(map_batches, key_map.arrays, build, KeyBlock.empty())
            for data, table in self._chunks(verify=True):
                status, _ = take(data, table)
                assert status == OK
        judging = ClassifyOutput(
            np.empty(CHUNK_BYTES, np.uint8),
            np.empty(CHUNK_BYTES, np.int64),
            Keys.room_for(CHUNK_BYTES // HEADER_SIZE),
            np.zeros(TALLIES, np.int64),
        )
        rules = Rules().for_kernels(CLEANED_AT_MS, INT64_MAX, by_winners=True)
        judge = jit.Bound(classify_batches, key_map.arrays, rules, judging)
        end = 0
        with Stopwatch() as rewriting:
            for data, table in self._chunks(verify=False):
                status, _ = judge(data, table)
                assert status == OK
                _, _, end, _ = assemble_batches(
                    data, table, 0, judging.kept_starts, self._out, end, self._extents, 0
                )
        return Parts(mapping.sample, rewriting.sample, self._out[:end])

    def _chunks(self, *, verify: bool) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for segment in self._segments:
            position = 0
            while position < len(segment):
                data = segment[position : position + CHUNK_BYTES]
                scan = Scan(*scan_batches(data, len(data), verify, 0, INT64_MAX, self._table))
                assert scan.status == OK
                assert scan.rows
                yield data, self._table[: scan.rows]
                position += scan.position


def _lines(
    setting: Setting, *, name: str, value_bytes: int, survivors: float, one: bool
) -> Iterator[Line]:
    home = setting.scratch / "in-memory"
    shape = shape_of(value_bytes, survivors, total_bytes=setting.total_bytes)
    if one:
        shape = replace(shape, batch_records=1)
    setting.report(f"kernels/{name}: generating a log of {shape.total_bytes / MIB:.0f} MiB")
    make_log(shape, home)
    paths = sorted(home.rglob("*.log"))[:-1]  # without the active segment
    segments = [np.fromfile(path, np.uint8) for path in paths]
    size = sum(map(len, segments))
    cleaning = MemoryCleaning(segments, 2 * shape.records)
    kafka = warm_kafka(setting)
    rewriting: list[Sample] = []
    kept: list[np.ndarray] = []
    answers: list[dict] = []

    def here() -> Sample:
        parts = cleaning.run()
        rewriting.append(parts.rewriting)
        kept[:] = [parts.kept]
        return Sample(*(sum(each) for each in zip(parts.mapping, parts.rewriting, strict=True)))

    def there() -> Sample:
        answer = kafka.filter(paths, CLEANED_AT_MS, MAP_BYTES)
        answers.append(answer)
        return Sample((answer["map_ns"] + answer["filter_ns"]) / 1e9, 0.0)

    def copy() -> None:
        for segment in segments:
            np.copyto(target[: len(segment)], segment)

    target = np.zeros(max(map(len, segments)), np.uint8)
    contestants = {"here": here, "copy": timed(copy)}
    if kafka is not None:
        contestants["there"] = there
    samples = run_interleaved(contestants, repeats=setting.repeats, warmups=setting.warmups)
    shutil.rmtree(home)
    written = kept[0].tobytes()
    if answers and answers[-1]["checksum"] != google_crc32c.value(written):
        raise Difference(f"kernels/{name}: the retained bytes differ from Kafka's")
    facts = {"log_bytes": size, "written_bytes": len(written)}
    yield Line(
        name=f"kernels/{name}",
        title=f"{_title(name)}: map and filter, vs. Kafka's map and `filterTo`",
        unit="MB/s",
        higher_is_better=True,
        here=speeds(size, samples["here"]),
        peer=Figures(speeds(size, samples["there"]).judged) if answers else None,
        peer_name=setting.kafka_name,
        facts=facts,
    )
    if name in SHARED:
        yield Line(
            name=f"share/{name}",
            title=f"{_title(name)}: rewrite, vs. a copy of the whole log",
            unit="MB/s",
            higher_is_better=True,
            here=speeds(size, rewriting[setting.warmups :]),
            peer=speeds(size, samples["copy"]),
            peer_name="memcpy",
            facts=facts,
        )


def _title(name: str) -> str:
    value, survivors, *one = name.split("-")
    batches = "one-record batches" if one else "batches of 16 KiB"
    return f"{value} values, {survivors} % survive, {batches}"


def jobs() -> Iterator[Job]:
    """Yield the shapes with goals. One of each value size is in the quick set."""
    for value, survivors, one in (
        *(("100B", 10, False), ("100B", 90, False), ("1KiB", 10, False), ("1KiB", 90, False)),
        ("100B", 10, True),
    ):
        name = f"{value}-{survivors}" + ("-one" if one else "")
        names = (f"kernels/{name}", *((f"share/{name}",) if name in SHARED else ()))
        measure = partial(
            _lines, name=name, value_bytes=VALUES[value], survivors=survivors / 100, one=one
        )
        yield Job(names, name in SHARED, measure)
