"""Directories that Kafka wrote: read to the last field, and left as they were.

`records.jsonl`, `batches.jsonl`, `committed.jsonl` and the manifest say what Kafka itself read
from each (tests/data/README.md).
"""

import pytest

from logstore.names import LOCK_FILE, SNAPSHOT_SUFFIX, parse_segment_file
from logstore.record.control import end_txn_marker_of
from logstore.runtime import DiskFileSystem, VirtualClock
from logstore.storage.log.reader import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    Isolation,
)
from tests.support.world.golden_dirs import (
    CLEAN_CASES,
    READ_CASES,
    ROOT,
    TP,
    batch_lines,
    broker_config_of,
    copy_to_memory,
    lines,
    manifest,
    open_read_only,
    open_writable,
    record_line,
    tree,
)

CLEAN_SIDES = tuple(f"{case}/{side}" for case in CLEAN_CASES for side in ("before", "after"))


def clock_of(case):
    """Return a clock at the time of Kafka's writes, so that no producer expired."""
    facts = manifest(case.partition("/")[0])
    return VirtualClock(facts["cleaning_time_ms" if "/" in case else "closed_at_ms"])


def check_log(log, case):
    """Compare everything that a reader can see with Kafka's results."""
    facts = manifest(case)
    assert log.log_start_offset == facts["log_start_offset"]
    assert log.log_end_offset == log.high_watermark == facts["log_end_offset"]
    assert log.last_stable_offset == facts["last_stable_offset"]
    assert [[s.base_offset, s.size_bytes] for s in log.segments] == facts["segments"]
    assert [line for s in log.segments for line in batch_lines(s)] == lines(case, "batches.jsonl")

    expected = lines(case, "records.jsonl")
    data = [line for line in expected if not line["is_control"]]
    start = log.log_start_offset
    assert [record_line(record, batch) for batch, record in log.reader.records(start)] == data
    everything = [
        record_line(record, batch)
        for batch in log.reader.batches(start)
        for record in batch.records()
        if record.offset >= start
    ]
    assert everything == expected
    committed = [line["offset"] for line in lines(case, "committed.jsonl")]
    read = log.reader.records(start, isolation=Isolation.READ_COMMITTED)
    assert [record.offset for _, record in read] == committed
    check_starts(log, [line["offset"] for line in data])
    check_times(log, data)
    log._check()
    for segment in log.segments:
        segment._check()


def check_starts(log, offsets):
    """Check reads from any offset, stored or not: they start at or after it."""
    span = range(log.log_start_offset, log.log_end_offset + 1)
    for start in span:
        first = next((record.offset for _, record in log.reader.records(start)), None)
        assert first == next((offset for offset in offsets if offset >= start), None)


def check_times(log, data):
    """Check lookups of each stored time and of the special ones."""
    assert log.reader.offset_for_timestamp(EARLIEST_TIMESTAMP).offset == log.log_start_offset
    assert log.reader.offset_for_timestamp(LATEST_TIMESTAMP).offset == log.log_end_offset
    largest = log.reader.offset_for_timestamp(MAX_TIMESTAMP)
    times = [line["timestamp"] for line in data]
    assert largest.timestamp >= max(times)
    for target in {*times[:40], *times[-40:]} - {-1}:
        found = log.reader.offset_for_timestamp(target)
        first = next(line["offset"] for line in data if line["timestamp"] >= target)
        assert found is None or found.offset <= first
        if log.log_start_offset == 0:
            assert found is not None


@pytest.mark.parametrize("case", READ_CASES)
def test_reading_returns_the_same_records_as_kafka(case):
    """Without a write: the file system below refuses every one."""
    manager, log = open_read_only(ROOT / case / "data", clock_of(case))
    assert log.findings == ()
    check_log(log, case)
    manager.close()


@pytest.mark.parametrize("case", READ_CASES)
def test_a_copy_opened_for_writing_reads_the_same_before_and_after_a_restart(case):
    clock = clock_of(case)
    fs = copy_to_memory(ROOT / case / "data", clock)
    for _ in range(2):
        manager = open_writable(fs, clock)
        log = manager.log(TP)
        assert log.findings == ()
        check_log(log, case)
        manager.close()


@pytest.mark.parametrize("case", READ_CASES)
def test_an_unclean_start_recovers_everything(case):
    """Without the marker and with recovery points of 0 every batch is verified; none is lost.

    The indexes rebuilt are Kafka's to the byte.
    """
    clock = clock_of(case)
    fs = copy_to_memory(ROOT / case / "data", clock)
    kinds = (".index", ".timeindex", ".txnindex", ".log")
    before = {name: data for name, data in tree(fs).items() if name.endswith(kinds)}
    fs.remove("/data/.kafka_cleanshutdown")
    fs.remove("/data/recovery-point-offset-checkpoint")
    manager = open_writable(fs, clock, broker_config=broker_config_of(case))
    log = manager.log(TP)
    assert log.findings == ()
    check_log(log, case)
    manager.close()
    assert {name: data for name, data in tree(fs).items() if name.endswith(kinds)} == before


def removable_snapshots(names, log_start, log_end):
    """Return the snapshots that loading deletes, as Kafka does (storage-format §9.3).

    These are at or below the log start, or belong to no segment, except for the newest.
    """
    parsed = [(name, parse_segment_file(name.rpartition("/")[2])) for name in names]
    bases = {parts.base_offset for _, parts in parsed if parts and parts.kind == ".log"}
    return {
        name
        for name, parts in parsed
        if parts
        and parts.kind == SNAPSHOT_SUFFIX
        and (
            not log_start < parts.base_offset <= log_end
            or (parts.base_offset not in bases and parts.base_offset != log_end)
        )
    }


@pytest.mark.parametrize("case", (*READ_CASES, *CLEAN_SIDES))
@pytest.mark.parametrize("place", ("memory", "disk"))
def test_opening_and_closing_changes_no_byte(case, place, tmp_path):
    """Checkpoints and the marker are rewritten with the same bytes.

    Only producer snapshots may be removed that Kafka's next start removes as well; the
    lock file stays, as Kafka's does.
    """
    clock = clock_of(case)
    fs, root = copy_to_memory(ROOT / case / "data", clock), "/data"
    if place == "disk":
        for path, data in tree(fs).items():
            target = tmp_path / path
            target.parent.mkdir(exist_ok=True)
            target.write_bytes(data)
        fs, root = DiskFileSystem(clock), str(tmp_path)
    before = tree(fs, root)
    for _ in range(2):
        manager = open_writable(fs, clock, root)
        log = manager.log(TP)
        assert log.findings == ()
        log._check()
        start, end = log.log_start_offset, log.log_end_offset
        manager.close()
        gone = removable_snapshots(before, start, end)
        kept = {path: data for path, data in before.items() if path not in gone}
        assert tree(fs, root) == kept | {LOCK_FILE: b""}


@pytest.mark.parametrize("case", CLEAN_SIDES)
def test_both_sides_of_a_cleaning_open_without_findings(case):
    facts = manifest(case.partition("/")[0])
    side = facts[case.partition("/")[2]]
    manager, log = open_read_only(ROOT / case / "data", clock_of(case))
    assert log.findings == ()
    assert log.log_start_offset == side["log_start_offset"]
    assert log.log_end_offset == side["log_end_offset"]
    assert [[s.base_offset, s.size_bytes] for s in log.segments] == side["segments"]
    for segment in log.segments:
        segment._check()
    offsets = [record.offset for _, record in log.reader.records(log.log_start_offset)]
    assert offsets == sorted(set(offsets))
    manager.close()


def test_the_transaction_indexes_agree_with_the_markers():
    """The golden `.txnindex` files are compared with the aborts in the log."""
    manager, log = open_read_only(ROOT / "transactions" / "data", clock_of("transactions"))
    aborts = []
    open_from = {}
    for batch in log.reader.batches(0):
        header = batch.header
        if header.is_control:
            first = open_from.pop(header.producer_id, None)
            if first is not None and end_txn_marker_of(batch).is_abort:
                aborts.append((header.producer_id, first, header.base_offset))
        elif header.is_transactional:
            open_from.setdefault(header.producer_id, header.base_offset)
    entries = [entry for segment in log.segments for entry in segment.txn_index.entries()]
    assert [tuple(entry)[:3] for entry in entries] == aborts
    assert list(open_from.values()) == [log.last_stable_offset]
    assert len(aborts) > 2
    manager.close()


def test_there_are_golden_directories():
    assert len(READ_CASES) >= 10
    assert len(CLEAN_CASES) >= 28
