"""`logstore dump` against Kafka's tool: every golden file, and damaged ones."""

import struct

import pytest

from logstore.inspect.dump import DumpOptions, Stream, dump_files
from logstore.record.crc32c import crc32c
from logstore.runtime import DiskFileSystem, ReadOnlyFileSystem
from tests.support.interop.dump_tool import WORKING_DIR, cases, kafka_dump
from tests.support.interop.judge import REQUIRED, Unavailable
from tests.support.world.builders import batch
from tests.support.world.golden_dirs import ROOT
from tests.support.world.legacy import LOG_APPEND_TIME, compressed_set, message

pytestmark = pytest.mark.interop

SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
FLAGS = {
    "--deep-iteration": {"deep_iteration": True},
    "--print-data-log": {"print_data_log": True},
    "--skip-record-metadata": {"skip_record_metadata": True},
    "--verify-index-only": {"verify_index_only": True},
    "--index-sanity-check": {"index_sanity_check": True},
    "--max-bytes=500": {"max_bytes": 500},
    "--max-message-size=2000": {"max_message_size": 2000},
}


def both(flags, files, directory):
    """Return the output of Kafka's tool, and this engine's lines with their streams."""
    try:
        output = kafka_dump(flags, files, directory)
    except Unavailable as error:
        if REQUIRED:
            pytest.fail(f"LOGSTORE_INTEROP_REQUIRED=1, but: {error}")
        pytest.skip(str(error))
    options = {"working_dir": WORKING_DIR}
    for flag in flags:
        options |= FLAGS[flag]
    lines = list(dump_files(ReadOnlyFileSystem(DiskFileSystem()), files, DumpOptions(**options)))
    return output, lines


def text(lines, stream):
    return "".join(f"{line.text}\n" for line in lines if line.stream is stream)


@pytest.mark.parametrize(
    "flags",
    (
        (),
        ("--deep-iteration",),
        ("--print-data-log",),
        ("--print-data-log", "--skip-record-metadata"),
        ("--verify-index-only",),
        ("--index-sanity-check",),
        ("--deep-iteration", "--max-bytes=500"),
    ),
    ids=" ".join,
)
def test_all_golden_files(flags, monkeypatch):
    monkeypatch.chdir(ROOT)
    files = sorted(
        str(path.relative_to(ROOT)) for path in ROOT.rglob("golden-0/*") if path.suffix in SUFFIXES
    )
    output, lines = both(flags, files, ROOT)
    assert text(lines, Stream.OUTPUT) == output.output
    assert not text(lines, Stream.FAILURE)
    # With several files the tool's reports have the order of a hash table.
    ours = sorted(text(lines, Stream.REPORT).splitlines())
    assert ours == sorted(output.reports.splitlines())


@pytest.mark.parametrize("flags", ((), ("--deep-iteration",), ("--print-data-log",)), ids=" ".join)
def test_messages_of_old_formats(flags, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [(2, b"a", b"1"), (3, b"b", None)]
    later = [(8, b"a", b"1"), (10, b"b", b"2")]
    data = (
        message(0, b"k", b"v", magic=0)
        + message(1, None, b"w", magic=0)
        + compressed_set(rows, magic=0)
        + message(4, b"k", None, timestamp=5)
        + message(5, b"k", b"v", timestamp=7, attributes=LOG_APPEND_TIME)
        + compressed_set([(6, b"a", b"1"), (7, b"b", b"2")], timestamp=9)
        + compressed_set(later, timestamp=11, appended=True)
        + batch(11, 13)
    )
    (tmp_path / "golden-0").mkdir()
    name = f"golden-0/{0:020}.log"
    (tmp_path / name).write_bytes(data)
    output, lines = both(flags, [name], tmp_path)
    assert text(lines, Stream.OUTPUT) == output.output
    assert not text(lines, Stream.FAILURE)


def test_recorded_text_equals_the_tools_output():
    for name, (flags, files) in cases().items():
        try:
            output = kafka_dump(flags, files)
        except Unavailable as error:
            pytest.skip(str(error))
        assert output.output.encode() == (ROOT / "dump" / f"{name}.out").read_bytes()
        assert output.reports.encode() == (ROOT / "dump" / f"{name}.err").read_bytes()


def added(kind, at, amount):
    """Return a change of the number of `kind` at some bytes of a file."""

    def change(data):
        for position in at:
            (value,) = struct.unpack_from(kind, data, position)
            struct.pack_into(kind, data, position, value + amount)

    return change


def extended(tail):
    return lambda data: data.extend(tail)


def swapped(size):
    def change(data):
        data[: 2 * size] = data[size : 2 * size] + data[:size]

    return change


def flipped(position):
    def change(data):
        data[position] ^= 1

    return change


def snapshot_with(position, value):
    def change(data):
        struct.pack_into(">q", data, position, value)
        struct.pack_into(">I", data, 2, crc32c(bytes(data[6:])))

    return change


@pytest.mark.parametrize(
    ("suffix", "change"),
    (
        (".index", added(">i", (0, 8), 1)),
        (".index", extended(bytes(80))),
        (".index", extended(b"\0\0\1")),
        (".timeindex", added(">q", (0, 12), 1)),
        (".timeindex", added(">i", (8, 20), 1)),
        (".timeindex", swapped(12)),
        (".timeindex", extended(bytes(120))),
        (".log", extended(bytes(range(37)))),
        (".log", extended(bytes(12))),
        (".log", flipped(30)),
        (".snapshot", flipped(1)),
        (".snapshot", flipped(20)),
        (".snapshot", snapshot_with(24, -1)),
        (".snapshot", snapshot_with(48, 7)),
    ),
)
def test_damaged_files(suffix, change, tmp_path, monkeypatch):
    base = "00000000000000000015"
    for each in SUFFIXES:
        source = ROOT / "transactions" / "data" / "golden-0" / f"{base}{each}"
        (tmp_path / source.name).write_bytes(source.read_bytes())
    path = tmp_path / f"{base}{suffix}"
    data = bytearray(path.read_bytes())
    change(data)
    path.write_bytes(bytes(data))
    monkeypatch.chdir(tmp_path)
    output, lines = both(("--print-data-log",), [path.name], tmp_path)
    assert text(lines, Stream.OUTPUT) == output.output
    assert text(lines, Stream.REPORT) == output.reports
    assert not text(lines, Stream.FAILURE)
