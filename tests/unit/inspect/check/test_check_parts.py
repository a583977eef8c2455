"""Checks of indexes and leader epochs by themselves, in a segment that does not start at 0.

Each case states all findings: check, position, offset, expected and found value, severity.
"""

from __future__ import annotations

import struct

import pytest

from logstore.inspect.check.indexes import (
    IndexedSegment,
    OffsetIndexCheck,
    TimeIndexCheck,
    TxnIndexCheck,
)
from logstore.inspect.check.leader_epochs import LeaderEpochs
from logstore.record.header import BatchHeader
from logstore.record.scan import ScannedBatch
from logstore.runtime import MemoryFileSystem, VirtualClock
from logstore.types import AbortedTxn
from tests.support.world.builders import batch, batches_of

BATCHES = batches_of(
    batch(100, 101, timestamp=10)
    + batch(102, timestamp=20)
    + batch(103, 105, timestamp=(30, 25, 30))
    + batch(106, timestamp=30)
    + batch(107, timestamp=40)
)
SCANNED: list[ScannedBatch] = []
END = 0
for each in BATCHES:
    SCANNED.append(ScannedBatch(END, END + len(each.data), each.header, each))
    END += len(each.data)
P0, P1, P2, P3, P4 = (each.position for each in SCANNED)
SEGMENT = IndexedSegment(100, END, 108, may_be_padded=False)


def stored(data: bytes) -> MemoryFileSystem:
    fs = MemoryFileSystem(VirtualClock())
    fs.make_dirs("/d")
    file = fs.open("/d/f", create=True)
    file.write_at([data], 0)
    file.close()
    return fs


def shown(findings) -> list[tuple]:
    findings = list(findings)
    assert {each.path for each in findings} <= {"/d/f"}
    return [(each.check, *each[1:3], *each[4:]) for each in findings]


def check_offsets(
    rows: list[tuple[int, int]],
    segment: IndexedSegment = SEGMENT,
    *,
    tail: bytes = b"",
    unread: int | None = None,
    end_is_known: bool = True,
) -> list[tuple]:
    """Check an offset index; the batch of number `unread` cannot be read."""
    data = b"".join(struct.pack(">ii", *row) for row in rows) + tail
    check = OffsetIndexCheck(stored(data), "/d/f", segment)
    for number, scanned in enumerate(SCANNED):
        if number == unread:
            check.skip(scanned.position, scanned.end_position)
        else:
            check.batch(scanned)
    check.finish(END, 108, end_is_known=end_is_known)
    check.close()
    return shown(check.take()) + shown(check.take())


OFFSETS = {
    "sound": ([(1, P0), (2, P1), (5, P2), (7, P4)], []),
    "empty": ([], []),
    "start_of_a_batch": (
        [(3, P2)],
        [("index_chunked", 0, 103, 105, 103, "warning")],
    ),
    "position": (
        [(1, P0), (2, P1 + 1), (5, P2)],
        [("index_position", 8, 102, "the start of a batch", P1 + 1, "error")],
    ),
    "last_byte": (
        [(1, P0), (7, END - 1)],
        [("index_position", 8, 107, END, END - 1, "error")],
    ),
    "end": ([(1, P0), (7, END)], [("index_position", 8, 107, END, END, "error")]),
    "negative_position": ([(1, -1)], [("index_position", 0, 101, END, -1, "error")]),
    "last_offset_of_the_segment": (
        [(7, P4), (8, END - 1)],
        [("index_range", 8, 108, 108, 108, "error")],
    ),
    "negative_offset": ([(-1, P0)], [("index_range", 0, 99, 108, 99, "error")]),
    "below_its_batch": ([(2, P2)], [("index_entry", 0, 102, 105, 102, "error")]),
    "order": (
        [(1, P0), (5, P2), (2, P1)],
        [
            (
                "index_order",
                16,
                102,
                f"in order with offset 105 position {P2}",
                f"offset 102 position {P1}",
                "error",
            )
        ],
    ),
    "outlier": (
        [(1, P0), (7, P4), (2, P1), (5, P2)],
        [
            (
                "index_order",
                8,
                107,
                f"in order with offset 102 position {P1}",
                f"offset 107 position {P4}",
                "error",
            )
        ],
    ),
    "equal_offset": (
        [(2, P1), (2, P2)],
        [
            (
                "index_order",
                8,
                102,
                f"in order with offset 102 position {P1}",
                f"offset 102 position {P2}",
                "error",
            )
        ],
    ),
    "one_chunk": ([(2, P0), (5, P2)], [("index_chunked", 0, 102, 101, 102, "info")]),
    "two_chunks": (
        [(2, P0), (6, P2), (7, P4)],
        [("index_chunked", 0, 102, 101, "102, and 1 more such entries", "info")],
    ),
    "inside_a_batch_of_the_chunk": (
        [(3, P0), (7, P4)],
        [("index_chunked", 0, 103, 101, 103, "warning")],
    ),
    "chunk_beyond_the_next_entry": (
        [(5, P0), (6, P2)],
        [
            ("index_entry", 0, 105, 101, 105, "error"),
            ("index_chunked", 8, 106, 105, 106, "info"),
        ],
    ),
}


@pytest.mark.parametrize("name", OFFSETS)
def test_offset_index(name: str) -> None:
    rows, wanted = OFFSETS[name]
    assert check_offsets(rows) == wanted


def test_padding_and_torn_entries() -> None:
    rows = [(1, P0)]
    assert check_offsets(rows, tail=bytes(16)) == [("index_padding", 8, None, 8, 24, "error")]
    assert check_offsets(rows, SEGMENT._replace(may_be_padded=True), tail=bytes(16)) == []
    assert check_offsets(rows, tail=b"\0\0\1") == [("index_size", 8, None, 8, 11, "error")]


def test_offset_entries_around_an_unreadable_range() -> None:
    rows = [(2, P1), (5, P2), (6, P3)]
    assert check_offsets(rows, unread=2) == []
    assert check_offsets([(2, P1), (4, P2 + 1), (6, P3)], unread=2) == []
    assert check_offsets([(2, P1 + 1), (6, P3)], unread=2) == [
        ("index_position", 0, 102, "the start of a batch", P1 + 1, "error")
    ]
    rows = [(7, P4), (8, P4 + 1)]
    last = SEGMENT._replace(end_offset=None)
    assert check_offsets(rows, last) == [("index_position", 8, 108, END, P4 + 1, "error")]
    assert check_offsets(rows, last, end_is_known=False) == []


def check_times(
    rows: list[tuple[int, int]],
    segment: IndexedSegment = SEGMENT,
    *,
    unread: int | None = None,
    is_skipped: bool = False,
    end_is_known: bool = True,
    is_closed: bool = True,
) -> list[tuple]:
    """Check a time index; the batch of number `unread` is damaged."""
    data = b"".join(struct.pack(">qi", *row) for row in rows)
    check = TimeIndexCheck(stored(data), "/d/f", segment)
    for number, scanned in enumerate(SCANNED):
        if number != unread:
            check.batch(scanned)
        elif is_skipped:
            check.skip(scanned.position, scanned.end_position)
        else:
            check.batch(scanned._replace(batch=None))
    check.finish(108, end_is_known=end_is_known, is_closed=is_closed)
    check.close()
    return shown(check.take()) + shown(check.take())


def last(found: int, size: int) -> tuple:
    return ("time_index_last", size, None, 40, found, "warning")


TIMES = {
    "sound": ([(10, 1), (20, 2), (30, 5), (40, 7)], []),
    "record_with_the_timestamp": ([(30, 3), (40, 7)], []),
    "record_without_it": (
        [(30, 4), (40, 7)],
        [("time_index_offset", 0, 104, 105, 104, "warning")],
    ),
    "later_batch_with_it": (
        [(30, 6), (40, 7)],
        [("time_index_offset", 0, 106, 106, 106, "warning")],
    ),
    "other_timestamp": (
        [(19, 2), (40, 7)],
        [("time_index_entry", 0, 102, 20, 19, "error")],
    ),
    "order": (
        [(20, 2), (20, 5), (40, 7)],
        [
            (
                "time_index_order",
                12,
                105,
                "in order with timestamp 20 offset 102",
                "timestamp 20 offset 105",
                "error",
            )
        ],
    ),
    "range": (
        [(40, 7), (41, 8)],
        [("time_index_range", 12, 108, 108, 108, "error")],
    ),
    "negative": ([(10, -1), (40, 7)], [("time_index_range", 0, 99, 108, 99, "error")]),
    "last": ([(30, 5)], [last(30, 12)]),
    "empty": ([], [last(-1, 0)]),
}


@pytest.mark.parametrize("name", TIMES)
def test_time_index(name: str) -> None:
    rows, wanted = TIMES[name]
    assert check_times(rows) == wanted


def test_time_entries_where_the_batches_are_not_all_known() -> None:
    assert check_times([(30, 5)], is_closed=False) == []
    assert check_times([(30, 5)], end_is_known=False) == []
    for is_skipped in (True, False):
        assert check_times([(30, 5)], unread=4, is_skipped=is_skipped) == []
    open_end = SEGMENT._replace(end_offset=None)
    rows = [(40, 7), (41, 9)]
    assert check_times(rows, open_end) == [("time_index_range", 12, 109, 108, 109, "error")]
    assert check_times(rows, open_end, end_is_known=False) == []
    assert check_times(rows, open_end, unread=1) == []


def txn(producer_id: int, first: int, last: int, stable: int | None = None) -> AbortedTxn:
    return AbortedTxn(producer_id, first, last, last + 1 if stable is None else stable)


def check_txns(
    entries: list[AbortedTxn], aborts: list[AbortedTxn], *, version: int = 0, **arguments
) -> list[tuple]:
    """Check a transaction index, of a segment with these aborted transactions."""
    data = b"".join(struct.pack(">hqqqq", version, *each) for each in entries)
    check = TxnIndexCheck("/d/f")
    for each in aborts:
        check.abort(each.producer_id, each.last_offset)
        check.expect(each)
    defaults = {
        "missing_end": 0,
        "log_start_offset": 0,
        "missing_severity": "error",
        "is_certain": True,
        "is_complete": True,
    }
    return shown(check.finish(stored(data), SEGMENT, **(defaults | arguments)))


ONE, TWO = txn(7, 100, 102), txn(8, 101, 105, 103)
SHOWN_ONE = "producer 7 offsets 100..102 last stable 103"
SHOWN_TWO = "producer 8 offsets 101..105 last stable 103"
TXNS = {
    "sound": ([ONE, TWO], {}, []),
    "missing": ([ONE], {}, [("txn_index_missing", None, 105, SHOWN_TWO, None, "error")]),
    "missing_of_that_severity": (
        [TWO],
        {"missing_severity": "info"},
        [("txn_index_missing", None, 102, SHOWN_ONE, None, "info")],
    ),
    "missing_at_the_log_start": (
        [],
        {"log_start_offset": 105},
        [("txn_index_missing", None, 105, SHOWN_TWO, None, "error")],
    ),
    "missing_at_missing_batches": (
        [],
        {"missing_end": 101},
        [("txn_index_missing", None, 105, SHOWN_TWO, None, "error")],
    ),
    "missing_unknown": ([], {"is_complete": False}, []),
    "missing_uncertain": ([], {"is_certain": False}, []),
    "version": (
        [ONE, TWO],
        {"version": 1},
        [
            ("txn_index_version", 0, 102, 0, 1, "error"),
            ("txn_index_version", 34, 105, 0, 1, "error"),
        ],
    ),
    "order": (
        [TWO, ONE, ONE, TWO],
        {},
        [
            ("txn_index_order", 34, 102, 106, 102, "error"),
            ("txn_index_order", 68, 102, 103, 102, "error"),
        ],
    ),
    "below_the_segment": (
        [txn(7, 90, 99), ONE, TWO],
        {},
        [("txn_index_entry", 0, 99, 100, 99, "error")],
    ),
    "in_the_next_segment": (
        [ONE, TWO, txn(7, 104, 108)],
        {},
        [("txn_index_entry", 68, 108, 100, 108, "error")],
    ),
    "of_no_marker": (
        [ONE, TWO, txn(7, 104, 107)],
        {},
        [("txn_index_entry", 68, 107, None, 7, "error")],
    ),
    "of_another_producer": (
        [ONE, TWO._replace(producer_id=7)],
        {},
        [("txn_index_entry", 34, 105, 8, 7, "error")],
    ),
    "of_another_producer_but_uncertain": (
        [ONE, TWO._replace(producer_id=7)],
        {"is_certain": False},
        [],
    ),
    "first_beyond_the_last": (
        [ONE._replace(first_offset=103), TWO],
        {},
        [
            (
                "txn_index_entry",
                0,
                102,
                None,
                "producer 7 offsets 103..102 last stable 103",
                "error",
            )
        ],
    ),
    "stable_beyond_the_marker": (
        [ONE._replace(last_stable_offset=104), TWO],
        {},
        [
            (
                "txn_index_entry",
                0,
                102,
                None,
                "producer 7 offsets 100..102 last stable 104",
                "error",
            )
        ],
    ),
    "other_values": (
        [ONE, TWO._replace(first_offset=102)],
        {},
        [
            (
                "txn_index_entry",
                34,
                105,
                SHOWN_TWO,
                "producer 8 offsets 102..105 last stable 103",
                "error",
            )
        ],
    ),
    "other_values_but_incomplete": ([TWO._replace(first_offset=102)], {"is_complete": False}, []),
    "stable_held_back_by_missing_batches": (
        [ONE._replace(last_stable_offset=98), TWO],
        {"missing_end": 99},
        [],
    ),
    "stable_not_held_back_by_missing_batches": (
        [ONE._replace(last_stable_offset=99), TWO],
        {"missing_end": 99},
        [
            (
                "txn_index_entry",
                0,
                102,
                SHOWN_ONE,
                "producer 7 offsets 100..102 last stable 99",
                "error",
            )
        ],
    ),
}


@pytest.mark.parametrize("name", TXNS)
def test_transaction_index(name: str) -> None:
    entries, arguments, wanted = TXNS[name]
    assert check_txns(entries, [ONE, TWO], **arguments) == wanted


def header(first: int, last: int, epoch: int) -> BatchHeader:
    return batches_of(batch(first, last, leader_epoch=epoch))[0].header


def check_epochs(
    rows: list[tuple[int, int]],
    epochs: list[int],
    *,
    start: int = 0,
    is_start_known: bool = True,
    end_offset: int | None = None,
    is_clean: bool = True,
) -> list[tuple]:
    """Check batches of two offsets each, from offset 0 on."""
    lines = "".join(f"{epoch} {offset}\n" for epoch, offset in rows)
    check = LeaderEpochs("/d/f", start, is_start_known=is_start_known)
    findings = list(check.read(stored(f"0\n{len(rows)}\n{lines}".encode()), 1 << 20))
    headers = [header(2 * at, 2 * at + 1, epoch) for at, epoch in enumerate(epochs)]
    for at, (each, following) in enumerate(zip(headers, [*headers[1:], None], strict=True)):
        findings += check.batch(each, following, "/d/f", 100 * at)
    findings += check.finish(end_offset, is_clean=is_clean)
    assert check.start_offsets == [offset for _, offset in rows]
    return shown(findings)


@pytest.mark.parametrize(
    ("rows", "epochs", "arguments", "wanted"),
    (
        ([(0, 0), (1, 4)], [0, 0, 1], {}, []),
        ([(0, 0), (1, 4)], [0, -1, 1], {}, []),
        (
            [(0, 0), (1, 4)],
            [0, 1, 1, 0, 0, 1, 0],
            {},
            [
                ("leader_epoch", 100, 2, 0, 1, "error"),
                ("leader_epoch", 300, 6, 1, 0, "error"),
                ("leader_epoch", 600, 12, 1, 0, "error"),
            ],
        ),
        (
            [(0, 0), (1, 3)],
            [0, 0],
            {},
            [("epoch_inside_batch", 8, 3, "2 or 4", 3, "error")],
        ),
        ([(0, 1)], [0, 0], {"start": 1}, []),
        ([(0, 2)], [0, 0], {"start": 2}, []),
        (
            [(1, 2)],
            [0, 1],
            {},
            [("epoch_missing", 4, 0, 0, "none before offset 2", "warning")],
        ),
        (
            [(1, 2)],
            [1, 1],
            {},
            [("epoch_missing", 4, 0, 1, "none before offset 2", "info")],
        ),
        ([(1, 2)], [0, 1], {"is_start_known": False}, []),
        ([(1, 2)], [0, 1], {"start": 2}, []),
        ([], [3, 3], {}, [("epoch_missing", None, 0, 3, "none", "warning")]),
        (
            [],
            [3, 2, 9, 4],
            {},
            [
                ("leader_epoch", 100, 2, 3, 2, "error"),
                ("leader_epoch", 200, 4, 4, 9, "error"),
                ("epoch_missing", None, 0, 3, "none", "warning"),
            ],
        ),
        ([], [-2], {}, [("leader_epoch", 0, 0, -1, -2, "error")]),
        (
            [(1, 4)],
            [2, 1, 1],
            {},
            [
                ("leader_epoch", 0, 0, 1, 2, "error"),
                ("epoch_missing", 4, 2, 1, "none before offset 4", "info"),
            ],
        ),
        ([(0, 0), (1, 4)], [0, 0], {"end_offset": 4}, []),
        (
            [(0, 0), (1, 5)],
            [0, 0],
            {"end_offset": 4},
            [("epoch_beyond_end", 8, 5, 4, 5, "error")],
        ),
        (
            [(0, 0), (1, 5)],
            [0, 0],
            {"end_offset": 4, "is_clean": False},
            [("epoch_beyond_end", 8, 5, 4, 5, "warning")],
        ),
    ),
)
def test_leader_epochs(rows, epochs, arguments, wanted) -> None:
    assert check_epochs(rows, epochs, **arguments) == wanted
