"""Wrong indexes of a log that was closed cleanly: they are not trusted."""

import logging
import struct
import threading
from itertools import islice

import pytest

from logstore.names import file_name
from logstore.storage.log import NewRecord
from logstore.storage.log.reader import Isolation
from logstore.types import INT64_MAX, OffsetPosition
from tests.support.world.builders import batch, fill, findings_of, log_name, offsets_in

SMALL = {"segment_bytes": 900, "index_interval_bytes": 60}
COMMITTED = Isolation.READ_COMMITTED
RECORDS = 60


def written(world, config=SMALL):
    """Write a log of several segments, with an entry for nearly every batch; return its files."""
    log = world.log(**config)
    fill(log, RECORDS)
    log.close()
    files = world.files()
    assert len([name for name in files if name.endswith(".index")]) > 3
    return files


def changed(files, kind, change):
    return {n: change(data) if n.endswith(kind) else data for n, data in files.items()}


def entries_of(data):
    return [struct.unpack_from(">ii", data, at) for at in range(0, len(data), 8)]


def each_entry(change):
    """Return a function that changes every entry of an index."""
    return lambda data: b"".join(struct.pack(">ii", *change(*e)) for e in entries_of(data))


LIES = {
    "a byte too far": each_entry(lambda offset, position: (offset, position + 1)),
    "a batch too far": each_entry(lambda offset, position: (offset, position + 70)),
    "far beyond the file": each_entry(lambda offset, position: (offset, 10**9)),
    "negative": each_entry(lambda offset, position: (offset, -position)),
    "inside a batch": each_entry(lambda offset, position: (offset, position - 30)),
    "offsets too low": each_entry(lambda offset, position: (max(offset - 5, 0), position)),
    "reversed": lambda data: b"".join(struct.pack(">ii", *e) for e in entries_of(data)[::-1]),
    "noise": lambda data: bytes(range(1, 250))[: len(data)],
    "only the last one wrong": lambda data: data[:-8] + struct.pack(">ii", 10**6, 77),
    "only the first one wrong": lambda data: struct.pack(">ii", 0, 77) + data[8:],
}


def read_everywhere(log, end=RECORDS):
    assert log.log_end_offset == end
    assert offsets_in(log) == list(range(end))
    for offset in range(end):
        assert next(record.offset for _, record in log.reader.records(offset)) == offset
        assert log.reader.offset_for_timestamp(0).offset == 0


@pytest.mark.parametrize("lie", LIES)
def test_every_read_is_right_and_the_index_is_rebuilt(world, caplog, lie):
    files = written(world)
    lying = changed(files, ".index", LIES[lie])
    assert lying != files
    world.put(lying)
    log = world.log(**SMALL)
    read_everywhere(log)
    fill(log, 3, RECORDS)
    read_everywhere(log, RECORDS + 3)
    log.writer.roll()
    log.close()
    # Reversed, each entry is still correct: results are right, but take a longer walk.
    told = any(".index" in record.getMessage() for record in caplog.records)
    assert told == (lie != "reversed")
    caplog.clear()
    log = world.log(**SMALL)
    read_everywhere(log, RECORDS + 3)
    log.close()
    assert caplog.records == []


@pytest.mark.parametrize("index_interval_bytes", (60, 72))
def test_a_rebuilt_index_is_written_when_the_log_is_closed(world, index_interval_bytes):
    """It has the same entries, also if each batch from offset 10 on is as long as the interval."""
    config = SMALL | {"index_interval_bytes": index_interval_bytes}
    files = written(world, config)
    world.put(changed(files, ".index", LIES["a byte too far"]))
    log = world.log(**config)
    read_everywhere(log)
    log.close()
    after = world.files()
    for name in [name for name in files if name.endswith(".index")]:
        assert after[name] == files[name]


def test_a_truncation_writes_the_rebuilt_index_and_reads_by_it(world):
    log = world.log(segment_index_bytes=4000, index_interval_bytes=0)
    fill(log, RECORDS)
    log.close()
    files = world.files()
    world.put(changed(files, ".index", LIES["a byte too far"]))
    segment = world.segment(0, create=False, segment_index_bytes=4000, index_interval_bytes=0)
    segment.translate_offset(RECORDS - 1)
    rebuilt = segment._rebuilt_index
    assert rebuilt is not None
    expected = [entry for entry in rebuilt if entry.offset < 5]
    segment.truncate_to(5)
    assert segment._index is segment.offset_index
    assert list(segment.offset_index) == expected
    assert segment.read_next_offset() == 5
    segment.close()


def test_a_wrong_index_is_reported_once_per_segment(world, caplog):
    files = written(world)
    world.put(changed(files, ".index", LIES["a byte too far"]))
    log = world.log(**SMALL)
    # Only the end of the active segment must be known.
    assert findings_of(log) == [
        (
            "rebuilt_index",
            "00000000000000000048.log",
            "00000000000000000048.index: its last entry does not point to a batch",
        )
    ]
    for _ in range(3):
        read_everywhere(log)
    told = [
        r.getMessage().split(":")[0]
        for r in caplog.records
        if "rebuilding the index" in r.getMessage()
    ]
    assert len(told) == len(set(told)) > 0
    assert all(r.levelno == logging.WARNING for r in caplog.records)


def test_readers_that_meet_a_wrong_entry_at_once_build_one_index(world, caplog):
    files = written(world)
    world.put(changed(files, ".index", LIES["a byte too far"]))
    segment = world.log(**SMALL).segments.first
    walk = segment.batches
    found, others = [], []

    def look():
        found.append(segment.translate_offset(9).position)

    def batches(*bounds):
        if not others:  # another reader arrives while the first one rebuilds
            others.append(threading.Thread(target=look, daemon=True))
            others[0].start()
            others[0].join(0.05)
            assert others[0].is_alive()
        return walk(*bounds)

    segment.batches = batches
    caplog.clear()
    look()
    others[0].join(60)
    assert len(found) == 2
    assert len(set(found)) == 1
    assert len([r for r in caplog.records if "rebuilding the index" in r.getMessage()]) == 1


def test_batches_after_a_damaged_batch_are_still_found(world):
    """The walk that rebuilds an index ends at damage; correct entries after it are kept."""
    log = world.log(index_interval_bytes=0)
    fill(log, 20)
    log.writer.roll()
    log.close()
    files = world.files()
    index = entries_of(files[file_name(0, ".index")])
    position = dict(index)[10]
    data = bytearray(files[log_name(0)])
    data[position + 16] = 77  # an unknown magic
    stored = b"".join(struct.pack(">ii", o, p + 1 if o == 3 else p) for o, p in index)
    world.put(files | {log_name(0): bytes(data), file_name(0, ".index"): stored})
    log = world.log(index_interval_bytes=0)
    assert [r.offset for _, r in islice(log.reader.records(3), 7)] == list(range(3, 10))
    assert [r.offset for _, r in log.reader.records(11)] == list(range(11, 20))


def test_a_chunk_under_its_last_offset_is_sound(world, caplog):
    """As in Kafka up to 3.9.0: the position of the chunk's first batch."""
    log = world.log()
    fill(log, 20)
    log.writer.roll()
    fill(log, 1, 20)
    log.close()
    files = world.files()
    starts = [at.position for at in world.log().segments.first.batches()]
    index = struct.pack(">iiii", 9, starts[5], 15, starts[11])
    world.put(files | {file_name(0, ".index"): index})
    log = world.log()
    assert log.segments.first.translate_offset(9).position == starts[9]
    assert offsets_in(log) == list(range(21))
    log.close()
    assert world.files()[file_name(0, ".index")] == index
    assert caplog.records == []


def test_entries_that_this_object_wrote_cost_no_look(world):
    log = world.log(index_interval_bytes=0)
    fill(log, 5)
    segment = log.active_segment
    assert segment.offset_index.loaded_entries == 0
    log.close()
    log = world.log(index_interval_bytes=0)
    assert log.active_segment.offset_index.loaded_entries == 4


def test_the_invariant_of_an_index_entry(world):
    log = world.log(index_interval_bytes=0)
    fill(log, 3)
    segment = log.active_segment
    starts = [at.position for at in segment.batches()]
    assert segment.holds(OffsetPosition(1, starts[1]))
    assert segment.holds(OffsetPosition(INT64_MAX, starts[2]))
    assert not segment.holds(OffsetPosition(0, starts[1]))
    for position in (-1, starts[1] + 1, segment.size_bytes - 1, segment.size_bytes, 10**9):
        assert not segment.holds(OffsetPosition(5, position))
    torn = segment.size_bytes - 1
    segment.size_bytes = torn  # as a reader may see it during a truncation
    assert not segment.holds(OffsetPosition(2, starts[2]))


# -- aborted transactions ------------------------------------------------------------------------


def with_transactions(world):
    """Write records without a producer, and an aborted transaction in every second segment."""
    log = world.log(**SMALL)
    for round_ in range(6):
        log.writer.append_batches(
            batch(
                0,
                value=b"ABORTED",
                timestamp=world.clock.now_ms(),
                producer_id=7,
                producer_epoch=0,
                base_sequence=round_,
                is_transactional=True,
            )
        )
        log.writer.append_end_txn_marker(7, 0, 0, commit=False)
        fill(log, 10, log.log_end_offset)
    log.close()
    return world.files()


TXN_LIES = {
    "three bytes cut off": lambda data: data[:-3],
    "emptied": lambda data: b"",
    "of an unknown version": lambda data: b"\0\1" + data[2:],
    "of another producer": lambda data: data[:-32] + struct.pack(">q", 8) + data[-24:],
    "its end elsewhere": lambda data: (
        data[:-16] + struct.pack(">q", struct.unpack(">q", data[-16:-8])[0] + 1) + data[-8:]
    ),
    "zeros": lambda data: bytes(len(data)),
}


def reason_for(lie, base, last):
    """Return why the transaction index of a segment is rebuilt, given its last offset."""
    path = file_name(base, ".txnindex")
    if lie in ("emptied", "of another producer", "its end elsewhere"):
        producer, end = (8, base + 1) if lie == "of another producer" else (7, base + 2)
        text = (
            f"an aborted transaction of producer {producer} ends at {end}, but there is no marker"
            " at this offset"
        )
        return f"{path}: " + (
            "empty, but the segment has an aborted transaction" if lie == "emptied" else text
        )
    if lie == "zeros":
        which, last = ("last", last) if base else ("first", -1)
        text = f"{which} offset 0 of an aborted transaction is not within {base} and {last}"
    elif lie == "of an unknown version":
        text = "aborted transaction of version 1, newest known is 0"
    else:
        text = "length 31 is not a multiple of the entry size 34"
    return f"{path} at position 0: {text}"


@pytest.mark.parametrize("lie", TXN_LIES)
def test_a_wrong_transaction_index_is_rebuilt(world, lie):
    files = with_transactions(world)
    lying = changed(files, ".txnindex", TXN_LIES[lie])
    world.put(lying)
    log = world.log(**SMALL)
    bases = sorted(int(name[:20]) for name in files if name.endswith(".txnindex"))
    last = dict(zip(bases, [*(base - 1 for base in bases[1:]), INT64_MAX - 1], strict=True))
    assert findings_of(log) == [
        ("rebuilt_index", log_name(base), reason_for(lie, base, last[base])) for base in bases
    ]
    seen = [record.value for _, record in log.reader.records(0, isolation=COMMITTED)]
    assert len(seen) == 60
    assert b"ABORTED" not in seen
    log.close()
    after = world.files()
    assert {n: after[n] for n in files if n.endswith("txnindex")} == {
        n: data for n, data in files.items() if n.endswith("txnindex")
    }
    log = world.log(**SMALL)
    assert log.findings == ()


def test_an_empty_transaction_index_without_an_aborted_transaction_is_sound(world):
    """A truncation leaves one; committed transactions and those without data have no entry."""
    log = world.log()
    log.writer.append_batches(
        batch(0, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    )
    log.writer.append_end_txn_marker(7, 0, 0, commit=True)
    log.writer.append_end_txn_marker(7, 0, 0, commit=False)
    log.writer.append_records([NewRecord(b"k", b"v")])
    log.close()
    for base in [int(n[:20]) for n in world.files() if n.endswith(".log")]:
        world.write(file_name(base, ".txnindex"), b"")
    assert world.log().findings == ()
