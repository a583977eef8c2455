"""The text of kafka-dump-log: scenarios of group U, and what Kafka's tool printed."""

import struct

import pytest

from logstore.inspect.dump import DumpOptions, Stream, dump_files
from logstore.record.batch import RecordBatch, build_batch
from logstore.record.header import BatchHeader
from logstore.record.records import Record
from logstore.runtime import DiskFileSystem, ReadOnlyFileSystem
from logstore.storage.index import OffsetIndex, TimeIndex
from logstore.storage.producers.snapshot import SnapshotEntry, encode_snapshot
from tests.support.interop import dump_tool
from tests.support.interop.decoded_records import FLAGS
from tests.support.world.builders import (
    World,
    abort,
    batch,
    commit,
    data_batch,
    disk_world,
    log_name,
    memory_world,
)
from tests.support.world.golden_dirs import ROOT
from tests.support.world.legacy import compressed_set, message

OPTIONS = {
    "--deep-iteration": "deep_iteration",
    "--print-data-log": "print_data_log",
    "--verify-index-only": "verify_index_only",
    "--index-sanity-check": "index_sanity_check",
    "--skip-record-metadata": "skip_record_metadata",
}


TOPIC_OF = {flag: topic for topic, flag in FLAGS.items()}


class Dumped:
    """The lines of a dump by stream."""

    def __init__(self, lines):
        lines = list(lines)
        self.output, self.reports, self.failures = (
            [line.text for line in lines if line.stream is stream]
            for stream in (Stream.OUTPUT, Stream.REPORT, Stream.FAILURE)
        )
        self.exit_code = max(line.exit_code for line in lines)
        self.streams = [line.stream for line in lines]

    def records(self):
        return [line for line in self.output if line.startswith("|")]

    def batches(self):
        return [line for line in self.output if line.startswith("baseOffset")]


@pytest.fixture
def world() -> World:
    return memory_world()


def dump(world, *names, **options):
    fs = ReadOnlyFileSystem(world.fs)
    return Dumped(dump_files(fs, [world.path(name) for name in names], DumpOptions(**options)))


def write_log(world, *batches, base_offset=0):
    world.write(log_name(base_offset), b"".join(batches))
    return log_name(base_offset)


# -- Kafka's tool ----------------------------------------------------------------------------


@pytest.mark.parametrize("case", dump_tool.cases())
def test_text_matches_kafkas_tool(case, monkeypatch):
    flags, files = dump_tool.cases()[case]
    values = {"working_dir": dump_tool.WORKING_DIR}
    for flag, value in zip(flags, [*flags, ""][1:], strict=True):
        if flag in OPTIONS:
            values[OPTIONS[flag]] = True
        elif flag in TOPIC_OF:
            values["decoder"] = TOPIC_OF[flag]
        elif flag == "--max-bytes":
            values["max_bytes"] = int(value)
    monkeypatch.chdir(ROOT)
    dumped = Dumped(dump_files(ReadOnlyFileSystem(DiskFileSystem()), files, DumpOptions(**values)))
    said = {
        ending: (dump_tool.RECORDED / f"{case}.{ending}").read_bytes().decode()
        for ending in ("out", "err")
    }
    assert "".join(f"{line}\n" for line in dumped.output) == said["out"]
    assert "".join(f"{line}\n" for line in dumped.reports) == said["err"]
    assert not dumped.failures


# -- group U -------------------------------------------------------------------------------------


def test_s236_batch_and_record_lines_have_all_fields_in_order(world):
    """S-236."""
    batches = [
        batch(0, 1, key=None, leader_epoch=3),
        batch(2, 2, timestamp=1700000000000),
        build_batch([Record(3, 5, b"k", b"v", (("a", b"1"), ("b", None)))], base_offset=3),
        data_batch(4, 5, 7, sequence=10, epoch=2),
        commit(6, 7, epoch=2, coordinator_epoch=9),
        data_batch(7, 7, 7, sequence=12, epoch=2),
        abort(8, 7, epoch=2, coordinator_epoch=9),
    ]
    dumped = dump(world, write_log(world, *batches), deep_iteration=True)
    path = world.path(log_name(0))
    assert dumped.output[:2] == [f"Dumping {path}", "Log starting offset: 0"]
    position = 0
    for line, data in zip(dumped.batches(), batches, strict=True):
        header = RecordBatch(data).header
        assert f" position: {position} CreateTime: {header.max_timestamp} " in line
        assert line.endswith(
            f" size: {len(data)} magic: 2 compresscodec: none crc: {header.crc} isvalid: true"
        )
        position += len(data)
    assert dumped.batches()[3].startswith(
        "baseOffset: 4 lastOffset: 5 count: 2 baseSequence: 10 lastSequence: 11 producerId: 7"
        " producerEpoch: 2 partitionLeaderEpoch: 0 isTransactional: true isControl: false"
        " deleteHorizonMs: OptionalLong.empty position: "
    )
    assert dumped.records() == [
        "| offset: 0 CreateTime: 1000 keySize: -1 valueSize: 2 sequence: -1 headerKeys: []",
        "| offset: 1 CreateTime: 1000 keySize: -1 valueSize: 2 sequence: -1 headerKeys: []",
        "| offset: 2 CreateTime: 1700000000000 keySize: 2 valueSize: 2 sequence: -1 headerKeys: []",
        "| offset: 3 CreateTime: 5 keySize: 1 valueSize: 1 sequence: -1 headerKeys: [a,b]",
        "| offset: 4 CreateTime: 1000 keySize: 2 valueSize: 2 sequence: 10 headerKeys: []",
        "| offset: 5 CreateTime: 1000 keySize: 2 valueSize: 2 sequence: 11 headerKeys: []",
        "| offset: 6 CreateTime: 1000 keySize: 4 valueSize: 6 sequence: -1 headerKeys: []"
        " endTxnMarker: COMMIT coordinatorEpoch: 9",
        "| offset: 7 CreateTime: 1000 keySize: 2 valueSize: 2 sequence: 12 headerKeys: []",
        "| offset: 8 CreateTime: 1000 keySize: 4 valueSize: 6 sequence: -1 headerKeys: []"
        " endTxnMarker: ABORT coordinatorEpoch: 9",
    ]
    assert not dumped.reports
    assert dumped.exit_code == 0


def test_s237_printing_data_adds_keys_and_payloads(world):
    """S-237."""
    name = write_log(
        world,
        build_batch([Record(0, 5, b"k", b"v"), Record(1, 5, None, b"v")], base_offset=0),
        build_batch([Record(2, 5, b"k", None), Record(3, 5, b"", b"")], base_offset=2),
    )
    metadata = "CreateTime: 5 keySize: {} valueSize: {} sequence: -1 headerKeys: []"
    assert dump(world, name, print_data_log=True).records() == [
        f"| offset: 0 {metadata.format(1, 1)} key: k payload: v",
        f"| offset: 1 {metadata.format(-1, 1)} payload: v",
        f"| offset: 2 {metadata.format(1, -1)} key: k",
        f"| offset: 3 {metadata.format(0, 0)} key:  payload: ",
    ]
    plain = dump(world, name)
    assert plain.output[2:] == plain.batches()
    assert len(plain.batches()) == 2


def test_s238_without_metadata_only_keys_and_payloads(world):
    """S-238; a null key takes the bar with it, as in Kafka."""
    name = write_log(
        world,
        build_batch(
            [Record(0, 5, b"k", b"v"), Record(1, 5, None, b"v"), Record(2, 5, b"k", None)],
            base_offset=0,
        ),
        data_batch(3, 3, 7),
        commit(4, 7),
    )
    dumped = dump(world, name, print_data_log=True, skip_record_metadata=True)
    lines = [line for line in dumped.output[2:] if not line.startswith("baseOffset")]
    assert lines == ["| key: k payload: v", " payload: v", "| key: k", "| key: k3 payload: v3", ""]


def test_s239_max_bytes_shows_whole_batches_only(world):
    """S-239."""
    batches = [batch(offset) for offset in range(12)]
    name = write_log(world, *batches)
    limit = sum(map(len, batches[:10])) + 1
    dumped = dump(world, name, max_bytes=limit)
    assert len(dumped.batches()) == 10
    assert dumped.output[2:] == dumped.batches()
    assert not dumped.reports


def test_s240_torn_tail_is_counted_on_the_last_line(world):
    """S-240."""
    name = write_log(world, batch(0), batch(1)[:37])
    dumped = dump(world, name)
    assert dumped.output[-1] == f"Found 37 invalid bytes at the end of {name}"
    assert len(dumped.batches()) == 1
    assert not dumped.failures


def test_s241_sound_index_of_chunks_is_reported(world):
    """S-241: an entry a chunk of several batches, keyed by the chunk's last offset."""
    batches = [batch(offset) for offset in range(6)]
    write_log(world, *batches)
    index = OffsetIndex(
        world.fs, world.path("0" * 20 + ".index"), 0, max_index_bytes=80, writable=True
    )
    index.append(3, len(batches[0]))
    index.append(5, sum(map(len, batches[:4])))
    index.close()
    dumped = dump(world, "0" * 20 + ".index")
    assert dumped.output[1:] == ["offset: 3 position: 72", "offset: 5 position: 288"]
    path = world.path("0" * 20 + ".index")
    assert dumped.reports == [
        f"Mismatches in :{path}",
        "  Index offset: 5, log offset: 4",
        "  Index offset: 3, log offset: 1",
    ]
    assert dumped.exit_code == 0


def test_s242_empty_index_and_zero_padding(world):
    """S-242."""
    batches = [batch(offset) for offset in range(3)]
    write_log(world, *batches)
    name = "0" * 20 + ".index"
    world.write(name, b"")
    dumped = dump(world, name)
    assert dumped.output == [f"Dumping {world.path(name)}", f"{world.path(name)} is empty."]
    assert dumped.exit_code == 0
    world.write(name, struct.pack(">ii", 1, len(batches[0])) + bytes(80))
    assert dump(world, name).output[1:] == [f"offset: 1 position: {len(batches[0])}"]


def test_s243_gaps_are_only_reported_with_deep_iteration(world):
    """S-243."""
    records = [Record(0, 5, b"a", b""), Record(3, 5, b"b", b"")]
    name = write_log(world, build_batch(records, base_offset=0), batch(7, 8))
    assert dump(world, name, deep_iteration=True).reports == [
        f"Non-consecutive offsets in {world.path(name)}",
        "  3 is followed by 7",
        "  0 is followed by 3",
    ]
    assert not dump(world, name).reports


# -- time indexes --------------------------------------------------------------------------------


def time_index(world, *entries):
    name = "0" * 20 + ".timeindex"
    world.write(name, b"".join(TimeIndex.ENTRY.pack(*entry) for entry in entries))
    return name


def test_time_index_faults_are_reported_by_kind(world):
    write_log(world, *(batch(offset, timestamp=100 + offset) for offset in range(4)))
    name = time_index(world, (101, 1), (99, 2), (103, 9))
    dumped = dump(world, name)
    path = world.path(name)
    assert dumped.output[1:] == [
        "timestamp: 101 offset: 1",
        "timestamp: 99 offset: 2",
        "timestamp: 103 offset: 9",
    ]
    assert dumped.reports == [
        f"Found timestamp mismatch in :{path}",
        "  Index timestamp: 99, log timestamp: 102",
        f"Found out of order timestamp in :{path}",
        "  Index timestamp: 99, Previously indexed timestamp: 101",
        "The following indexed offsets are not found in the log.",
        "Indexed offset: 9, found log offset: -1",
    ]
    assert dump(world, name, verify_index_only=True).output == [f"Dumping {path}"]
    assert dump(world, name, verify_index_only=True).reports == dumped.reports


def test_equal_timestamps_of_a_time_index_are_out_of_order(world):
    """kafka-dump-log requires each entry's timestamp to be above the one before."""
    write_log(world, batch(0, timestamp=100), batch(1, timestamp=100))
    name = time_index(world, (100, 0), (100, 1))
    assert dump(world, name).reports == [
        f"Found out of order timestamp in :{world.path(name)}",
        "  Index timestamp: 100, Previously indexed timestamp: 100",
    ]


def test_sanity_check_of_a_padded_time_index_fails(world):
    write_log(world, batch(0, timestamp=100))
    name = time_index(world, (100, 0), (0, 0))
    dumped = dump(world, name, index_sanity_check=True)
    assert "last timestamp 0 is below the first one" in dumped.failures[0]
    assert dumped.exit_code == 1
    assert dump(world, name).output[1:] == ["timestamp: 100 offset: 0"]


# -- damage ----------------------------------------------------------------------------------------


def test_damage_in_a_batch_does_not_hide_others(world):
    """Where Kafka's tool would end with a stack trace."""
    bad = bytearray(batch(1))
    bad[57:61] = (9).to_bytes(4, "big")
    name = write_log(world, batch(0), bytes(bad), batch(2))
    dumped = dump(world, name, "x.foo", deep_iteration=True)
    assert [line.rpartition(" ")[2] for line in dumped.batches()] == ["true", "false", "true"]
    assert len(dumped.records()) == 2
    path = world.path(name)
    assert dumped.failures == [f"{path} at position 72: premature end: 1 of 9 records in 11 bytes"]
    assert dumped.exit_code == 1
    assert dumped.reports == [
        f"Ignoring unknown file {world.path('x.foo')}",
        f"Non-consecutive offsets in {path}",
        "  0 is followed by 2",
    ]


def test_messages_of_old_formats_in_the_words_of_kafka_3_9(world):
    """As its tool prints them (tests/interop/test_dump_tool.py), an odd brace included."""
    rows = [(1, b"a", b"1"), (2, b"b", None)]
    first = message(0, b"k", b"v", magic=0)
    name = write_log(world, first, compressed_set(rows, timestamp=9), batch(3))
    found = dump(world, name, print_data_log=True)
    assert found.failures == []
    crc = int.from_bytes(first[12:16], "big")
    lines = [line for line in found.output if line.startswith(("offset: ", "| "))]
    assert lines[0] == (
        "offset: 0 position: 0 NoTimestampType: -1 size: 28 magic: 0 compresscodec: none"
        f" crc: {crc} isvalid: true"
    )
    assert lines[1] == (
        f"| offset: 0 NoTimestampType: -1 keySize: 1 valueSize: 1 isValid: true crc: {crc}}} key: k"
        " payload: v"
    )
    assert lines[2].startswith("offset: 2 position: 28 CreateTime: 9 ")
    assert lines[2].count("compresscodec: gzip") == 1
    assert [line.split()[2] for line in lines[3:5]] == ["1", "2"]
    assert len(found.batches()) == 1


def test_impossible_length_ends_the_file(world):
    name = write_log(world, batch(0), bytes(100))
    dumped = dump(world, name)
    assert len(dumped.batches()) == 1
    assert dumped.failures == [
        f"{world.path(name)} at position 72: batch length 0 is less than the minimum 14"
    ]


@pytest.mark.parametrize(
    ("limit", "failing"), ((5242880, (1, 2, 3)), (72, (1, 2, 3)), (71, range(4)))
)
def test_index_entries_without_a_batch_fail_one_by_one(world, limit, failing):
    log = write_log(world, *(batch(offset) for offset in range(3)))
    name = "0" * 20 + ".index"
    positions = 72, 5000, 216, -1
    rows = enumerate(positions, start=1)
    world.write(name, b"".join(struct.pack(">ii", *row) for row in rows))
    dumped = dump(world, name, max_message_size=limit)
    assert dumped.output == [
        f"Dumping {world.path(name)}",
        *(f"offset: {at} position: {position}" for at, position in enumerate(positions, start=1)),
    ]
    assert dumped.failures == [
        f"{world.path(name)}: entry {slot}: no complete batch of at most {limit} bytes at position"
        f" {positions[slot]} of {world.path(log)}"
        for slot in failing
    ]


def test_files_of_the_working_directory(tmp_path, monkeypatch):
    """Names without a folder; reports complete them."""
    world = disk_world(tmp_path)
    monkeypatch.chdir(world.directory)
    log = write_log(world, *(batch(offset, timestamp=7 + offset) for offset in range(2)))
    index, times = "0" * 20 + ".index", time_index(world, (9, 1))
    world.write(index, struct.pack(">ii", 2, 72))
    options = DumpOptions(working_dir="/here/", deep_iteration=True)
    lines = list(dump_files(world.fs, [log, index, times], options))
    assert [line.text for line in lines if not line.text.startswith(("baseOffset", "| "))] == [
        f"Dumping {log}",
        "Log starting offset: 0",
        f"Dumping {index}",
        "offset: 2 position: 72",
        f"Dumping {times}",
        "timestamp: 9 offset: 1",
        f"Mismatches in :/here/{index}",
        "  Index offset: 2, log offset: 1",
        f"Found timestamp mismatch in :/here/{times}",
        "  Index timestamp: 9, log timestamp: 8",
    ]


@pytest.mark.parametrize("suffix", (".index", ".timeindex", ".txnindex", ".snapshot", ".log"))
def test_a_missing_file_and_a_name_without_an_offset(world, suffix):
    name = "0" * 20 + suffix
    missing = dump(world, name)
    assert missing.failures == [f"[Errno 2] No such file or directory: '{world.path(name)}'"]
    assert missing.exit_code == 3
    write_log(world, batch(0))
    assert suffix == ".log" or dump(world, name).failures == missing.failures
    name = f"first{suffix}"
    world.write(name, b"")
    dumped = dump(world, name)
    if suffix == ".snapshot":
        assert dumped.reports == [
            "Snapshot failed schema validation: 0 bytes are too few for a snapshot"
        ]
    else:
        assert dumped.failures == [f"{world.path(name)}: the name does not start with an offset"]
    assert dumped.exit_code == 1


def test_missing_log_next_to_an_index(world):
    for name in ("0" * 20 + ".index", "0" * 20 + ".timeindex"):
        world.write(name, bytes(12))
        dumped = dump(world, name)
        path = world.path(log_name(0))
        assert dumped.failures == [f"[Errno 2] No such file or directory: '{path}'"]
        assert dumped.exit_code == 3


# -- snapshots -------------------------------------------------------------------------------------


def test_snapshot_lines(world):
    entries = [
        SnapshotEntry(5, 1, 2, 7, 5, 9, 3, -1),
        SnapshotEntry(6, 1, -1, -1, 0, 9, -1, 4),
    ]
    name = "9".zfill(20) + ".snapshot"
    world.write(name, encode_snapshot(entries))
    assert dump(world, name).output[1:] == [
        "producerId: 5 producerEpoch: 1 coordinatorEpoch: 3 currentTxnFirstOffset:"
        " OptionalLong.empty lastTimestamp: 9 firstSequence: 2147483645 lastSequence: 2"
        " lastOffset: 7 offsetDelta: 5 timestamp: 9",
        "producerId: 6 producerEpoch: 1 coordinatorEpoch: -1 currentTxnFirstOffset:"
        " OptionalLong[4] lastTimestamp: 9 ",
    ]


@pytest.mark.parametrize(
    ("position", "complaint"),
    (
        (1, "Snapshot contained an unknown file version 17"),
        (
            20,
            "Snapshot is corrupt (CRC is no longer valid). Stored crc: 2778736918."
            " Computed crc: 2539588037",
        ),
    ),
)
def test_damaged_snapshot_is_complained_of_in_kafkas_words(world, position, complaint):
    data = bytearray(encode_snapshot([SnapshotEntry(5, 1, 2, 7, 5, 9, 3, -1)]))
    data[position] ^= 1 << 4
    name = "9".zfill(20) + ".snapshot"
    world.write(name, bytes(data))
    dumped = dump(world, name)
    assert dumped.reports == [complaint]
    assert dumped.exit_code == 1


# -- odd records -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("type_id", "shown"),
    ((2, "LEADER_CHANGE(2)"), (99, "UNKNOWN(99)"), (-1, "UNKNOWN(-1)")),
)
def test_other_control_records(world, type_id, shown):
    record = Record(0, 5, struct.pack(">hh", 0, type_id), bytes(8))
    name = write_log(world, build_batch([record], base_offset=0, is_control=True))
    assert dump(world, name, deep_iteration=True).records()[0].endswith(f" controlType: {shown}")


def test_bytes_that_are_not_utf8_are_replaced_as_java_does(world):
    """An encoded surrogate becomes one replacement character, where Python makes three."""
    record = Record(0, 5, b"\xed\xa0\x80a\xff", b"\xc3", (("h\udcff", None),))
    name = write_log(world, build_batch([record], base_offset=0))
    line = dump(world, name, print_data_log=True).records()[0]
    assert line.endswith("headerKeys: [h\ufffd] key: \ufffda\ufffd payload: \ufffd")


def test_paths_are_shown_as_javas_file_shows_them(world):
    path = world.path(write_log(world)).replace("/t-0/", "//t-0/")
    lines = list(dump_files(world.fs, [path]))
    assert lines[0].text == f"Dumping {world.path(log_name(0))}"


def test_files_are_only_read(world):
    """Everything above ran on a file system that refuses changes; this one looks at times too."""
    name = write_log(world, batch(0), batch(1)[:30])
    world.write("0" * 20 + ".index", b"")
    before = world.files(), world.fs.stat(world.path(name))
    world.clock.advance(days=1)
    dump(world, name, "0" * 20 + ".index", deep_iteration=True)
    assert (world.files(), world.fs.stat(world.path(name))) == before
    assert BatchHeader.unpack_from(world.files()[name]).magic == 2
