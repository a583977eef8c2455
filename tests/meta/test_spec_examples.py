"""The worked examples in docs/spec/ are correct: their bytes decode to the values they claim."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from logstore.cleaner.strategy import Strategy
from logstore.inspect.dump import DumpOptions, dump_files
from logstore.record.batch import RecordBatch, build_batch
from logstore.record.header import BatchHeader
from logstore.record.records import Record
from logstore.record.varint import decode_varlong
from logstore.storage.log import Log
from tests.support.world import golden
from tests.support.world.builders import World, memory_world
from tests.support.world.cleaning import (
    compacted,
    contents,
    files_of,
    offsets_in,
    put_each,
    run_pass,
)
from tests.unit.cleaner.test_worked_examples import e1_log

SPEC = Path(__file__).resolve().parents[2] / "docs" / "spec"
STORAGE = (SPEC / "storage-format.md").read_text(encoding="utf-8")
CLEANER = (SPEC / "cleaner.md").read_text(encoding="utf-8")
T = golden.E_TIMESTAMP


def block(page: str, name: str) -> list[str]:
    """Return the lines of a page's fenced block."""
    (text,) = re.findall(rf"^```{name}\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    return text.splitlines()


def files(lines: list[str]) -> dict[str, list[str]]:
    """Return the indented lines below each name of a block."""
    result: dict[str, list[str]] = {}
    for line in lines:
        if line.startswith(" "):
            next(reversed(result.values())).append(line.strip())
        else:
            result[line] = []
    return result


def hex_files(page: str, name: str) -> dict[str, bytes]:
    return {file: bytes.fromhex(" ".join(text)) for file, text in files(block(page, name)).items()}


# --- storage-format, record batch ------------------------------------------------------------


class Line:
    """A line of the annotated batch: position, bytes, field name, value."""

    def __init__(self, text: str) -> None:
        position, data, self.name, self.value = re.split(r" {2,}", text.strip(), maxsplit=3)
        self.position, self.data = int(position), bytes.fromhex(data)


BATCH = [Line(line) for line in block(STORAGE, "hex") if line.strip()]


def test_annotated_batch_is_kafkas_vector() -> None:
    assert b"".join(line.data for line in BATCH) == golden.G1
    ends = [line.position + len(line.data) for line in BATCH]
    assert [line.position for line in BATCH] == [0, *ends[:-1]]


def test_each_header_field_has_the_value_that_the_page_names() -> None:
    header = BatchHeader.unpack_from(golden.G1)
    names = [re.sub(r"(?<!^)([A-Z])", r"_\1", line.name).lower() for line in BATCH[:13]]
    assert names == list(BatchHeader._fields)
    assert [int(line.value, 0) for line in BATCH[:13]] == list(header)


def test_each_record_field_has_the_value_that_the_page_names() -> None:
    for line in BATCH[13:]:
        value = ast.literal_eval(line.value)
        if isinstance(value, str):
            assert line.data == value.encode(), line.name
        elif line.name == "recordAttributes":
            assert line.data == bytes([value])
        else:
            assert decode_varlong(line.data, 0, len(line.data)) == (value, len(line.data)), (
                line.name
            )
    by_name: dict[str, list[str]] = {}
    for line in BATCH[13:]:
        by_name.setdefault(line.name, []).append(line.value)
    records = RecordBatch(golden.G1).records()
    assert by_name["timestampDelta"] == [str(record.timestamp - 1000) for record in records]
    assert by_name["offsetDelta"] == [str(record.offset) for record in records]
    assert by_name["headerCount"] == [str(len(record.headers)) for record in records]


# --- storage-format, partition directory -----------------------------------------------------


@pytest.fixture(scope="module")
def partition() -> World:
    """The directory that the page's steps write."""
    world = memory_world()
    log = world.log(index_interval_bytes=100)
    headers = (("h", (7).to_bytes(8, "big")), ("n", None))
    records = [
        Record(0, T, b"k1", b"v1"),
        Record(1, T + 5, b"k2", None),
        Record(2, T - 10, b"k3", b"v3", headers),
    ]
    world.clock.set_ms(T)
    log.writer.append_batches(build_batch(records))
    world.clock.set_ms(T + 100)
    producer = {"producer_id": 4000, "producer_epoch": 7, "base_sequence": 0}
    log.writer.append_batches(
        build_batch([Record(0, T + 100, b"a", b"b")], **producer, is_transactional=True)
    )
    world.clock.set_ms(T + 200)
    log.writer.append_end_txn_marker(4000, 7, 9, commit=False)
    log.close()
    return world


def test_partition_directory_is_written_by_the_steps_of_the_page(partition: World) -> None:
    assert hex_files(STORAGE, "files") == partition.files()


def test_dump_of_the_partition_directory_is_the_text_of_the_page(partition: World) -> None:
    shown = {}
    for name in files(block(STORAGE, "dump")):
        options = DumpOptions(deep_iteration=True)
        lines = list(dump_files(partition.fs, [partition.path(name)], options))
        shown[name] = [line.text for line in lines[2 if name.endswith(".log") else 1 :]]
    assert shown == files(block(STORAGE, "dump"))


def test_vectors_match_the_tests() -> None:
    rows = re.findall(r"^\| ([GF]\d\w?) \| .* \| `(\w+)` \|$", STORAGE, re.MULTILINE)
    known = golden.BATCHES | {name: getattr(golden, name) for name, _ in rows if name[0] == "F"}
    assert {name: bytes.fromhex(data) for name, data in rows} | {"G1": golden.G1} == known


# --- cleaner ---------------------------------------------------------------------------------


def test_two_passes_write_the_tombstone_example() -> None:
    world, log = e1_log()
    for name, now_ms in (("e1-input", None), ("e1-pass-1", T + 10), ("e1-pass-2", T + 1010)):
        if now_ms is not None:
            world.clock.set_ms(now_ms)
            run_pass(log)
        names = (".log", ".index", ".timeindex")
        written = dict(zip(names, files_of(log, log.segments.first), strict=True))
        assert hex_files(CLEANER, name) == written


def test_passes_leave_the_offsets_of_the_versions_example() -> None:
    """Run the steps of the table in cleaner §13.9 and compare the offsets after each one."""
    section = CLEANER.partition("### 13.9 Example")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.*) \| ([\d, ]+) \| ([\d, ]+|the same)[:]? ?.* \|$", section, re.M)
    assert len(rows) == 4
    config = {"compaction_strategy": "header", "compaction_strategy_header": "v"}
    world = memory_world()
    log = compacted(world, delete_retention_ms=1000, **config)
    assert Strategy.of(log.config).name == "header"
    end_offset = 0
    for step, before, after in rows:
        if step.startswith("after the horizon"):
            world.clock.advance(ms=1000)
        for action in step.split("; "):
            append(log, action)
        assert offsets_in(log) == numbers(before)
        end_offset = run_pass(log, end_offset).end_offset
        assert offsets_in(log) == (numbers(before) if after == "the same" else numbers(after)), step
    assert contents(log)[-2][1:] == (b"a", b"x")


def numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def append(log: Log, action: str) -> None:
    """Append the records that an action names, or roll."""
    if action == "roll":
        log.writer.roll()
    for offset, key, version, rest in re.findall(r"(\d+) `(\w)(?: v(\d))?`([^,]*)", action):
        headers = (("v", int(version).to_bytes(8, "big")),) if version else ()
        put_each(log, (key.encode(), None if "tombstone" in rest else b"x", None, headers))
        assert log.log_end_offset == int(offset) + 1
