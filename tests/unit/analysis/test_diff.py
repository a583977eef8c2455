"""Differences between two copies: the fate of each record, from crafted batches."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import pytest

from logstore import Broker, TopicPartition, VirtualClock
from logstore.analysis.committed import ABORTED, COMMITTED, OPEN_TRANSACTION, UNSTABLE
from logstore.analysis.diff import PartitionDiff, _CommitStates
from logstore.analysis.view import PartitionView
from logstore.record.batch import build_batch
from logstore.record.control import ControlType
from logstore.record.records import Record
from tests.support.world.builders import abort, batch, commit, data_batch
from tests.support.world.damage import partition

GOLDEN = TopicPartition("golden", 0)
SETTINGS = {"log.cleanup.policy": "compact"}
CLOCK = VirtualClock(1_800_000_000_000)


def diff(before: list[bytes], after: list[bytes], **arguments) -> tuple[PartitionDiff, list]:
    """Return the diff and its fates as offset, fate, superseding offset and kind of marker."""
    copies = []
    for batches in (before, after):
        directory = partition(batches)
        directory.unclean()  # so that opening derives the producers' state
        broker = Broker(
            "/data", fs=directory.fs, clock=CLOCK, read_only=True, broker_config=SETTINGS
        )
        copies.append((broker, PartitionView(broker, GOLDEN)))
    report = PartitionDiff(*(view for _, view in copies), **arguments)
    fates = [(each.offset, each.fate, each.superseded_by, each.control) for each in report]
    for broker, _ in copies:
        broker.close()
    return report, fates


def put(offset: int, key: bytes | None = b"a", **fields) -> bytes:
    return batch(offset, key=key, **fields)


def sent(offset: int, producer_id: int, key: bytes = b"a", **fields) -> bytes:
    return data_batch(offset, offset, producer_id, key=key, **fields)


def tombstone(offset: int, key: bytes = b"a") -> bytes:
    return build_batch([Record(offset, 1000, key, None)], partition_leader_epoch=0)


CASES = {
    "same": ([put(0), put(1)], [put(0), put(1)], {0: "retained", 1: "retained"}),
    "superseded": ([put(0), put(1)], [put(1)], {0: ("superseded", 1), 1: "retained"}),
    "superseded_by_an_appended": (
        [put(0), put(1, b"b")],
        [put(1, b"b"), put(2)],
        {0: ("superseded", 2), 1: "retained", 2: "added"},
    ),
    "lost_winner": ([put(0), put(1)], [put(0)], {0: "retained", 1: "lost"}),
    "expired": (
        [put(0), tombstone(1), put(2, b"b"), tombstone(3, b"b")],
        [tombstone(3, b"b")],
        {
            0: ("superseded", 1),
            1: "tombstone_expired",
            2: ("superseded", 3),
            3: "retained",
        },
    ),
    "a_gap_in_both": (
        [put(0), put(2, b"b"), put(5, b"c")],
        [put(2, b"b"), put(5, b"c"), put(7)],
        {0: ("superseded", 7), 2: "retained", 5: "retained", 7: "added"},
    ),
    "null_key": ([put(0, None), put(1)], [put(1)], {0: "null_key", 1: "retained"}),
    "changed": ([put(0), put(1)], [put(0, value=b"x"), put(1)], {0: "changed", 1: "retained"}),
    "foreign": (
        [put(0), put(3)],
        [put(0), put(2), put(3)],
        {0: "retained", 2: "foreign", 3: "retained"},
    ),
    "aborted_before": (
        [sent(0, 7), abort(1, 7), put(2, b"b")],
        [put(2, b"b")],
        {0: "aborted", 1: ("control_expired", "abort"), 2: "retained"},
    ),
    "committed_before": (
        [put(0), sent(1, 7), commit(2, 7), sent(3, 8), abort(4, 8)],
        [sent(1, 7), commit(2, 7), abort(4, 8)],
        {
            0: ("superseded", 1),
            1: "retained",
            2: ("retained", "commit"),
            3: "aborted",
            4: ("retained", "abort"),
        },
    ),
    "an_aborted_record_supersedes_none": (
        [put(0), sent(1, 7), abort(2, 7)],
        [abort(2, 7)],
        {0: "lost", 1: "aborted", 2: ("retained", "abort")},
    ),
    "ended_between": (
        [put(0), sent(1, 7), sent(2, 8), sent(3, 9, b"c")],
        [abort(4, 8), commit(5, 7), put(6), commit(7, 8), abort(8, 7)],
        {
            0: ("superseded", 6),
            1: ("superseded", 6),
            2: "aborted",
            3: "lost",
            4: ("added", "abort"),
            5: ("added", "commit"),
            6: "added",
            7: ("added", "commit"),
            8: ("added", "abort"),
        },
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_each_record_has_its_fate(name: str) -> None:
    before, after, wanted = CASES[name]
    report, fates = diff(before, after)
    expected = [
        (offset, *((fate,) if isinstance(fate, str) else fate)) for offset, fate in wanted.items()
    ]
    assert fates == [
        (
            offset,
            fate,
            *([*more, None] if more and isinstance(more[0], int) else [None, *(more or [None])]),
        )
        for offset, fate, *more in expected
    ]
    assert report.counts == Counter(fate for _, fate, *_ in fates)
    unexplained = {"lost", "changed", "foreign"}
    assert report.is_explained is not any(fate in unexplained for _, fate, *_ in fates)


@pytest.mark.parametrize(
    ("cleaned_until", "wanted"),
    (
        (0, ["lost", "lost", "retained"]),
        (1, ["lost", "lost", "retained"]),
        (2, [("superseded", 1), "lost", "retained"]),
        (3, [("superseded", 2), ("superseded", 2), "retained"]),
        (None, [("superseded", 2), ("superseded", 2), "retained"]),
    ),
)
def test_records_from_the_end_of_the_clean_section_on_supersede_none(
    cleaned_until: int | None, wanted: list
) -> None:
    steps: list[tuple[str, int, int]] = []
    batches = [put(0), put(1), put(2)]
    report, fates = diff(
        batches,
        batches[2:],
        cleaned_until=cleaned_until,
        progress=lambda *step: steps.append(step),
    )
    assert [fate if by is None else (fate, by) for _, fate, by, _ in fates] == wanted
    assert report.assumed == (
        ()
        if cleaned_until is not None
        else (
            "the second copy has no cleaner checkpoint: it is assumed to be cleaned up to its end"
            " 3; copy cleaner-offset-checkpoint as well to avoid this",
        )
    )
    size = len(batches[0])
    read = 3 if cleaned_until is None else min(3, cleaned_until + 1)
    assert steps == [
        *(("reading keys", at * size, 3 * size) for at in range(read)),
        *(("comparing", at * size, 3 * size) for at in range(3)),
    ]


@pytest.mark.parametrize(
    ("before", "after", "end", "state"),
    (
        (COMMITTED, ABORTED, None, COMMITTED),
        (ABORTED, COMMITTED, None, ABORTED),
        (UNSTABLE, COMMITTED, ControlType.ABORT, COMMITTED),
        (UNSTABLE, UNSTABLE, ControlType.COMMIT, UNSTABLE),
        (OPEN_TRANSACTION, ABORTED, ControlType.COMMIT, ABORTED),
        (OPEN_TRANSACTION, OPEN_TRANSACTION, ControlType.COMMIT, OPEN_TRANSACTION),
        # The second copy shows the records of a transaction whose end is no longer indexed.
        (OPEN_TRANSACTION, COMMITTED, ControlType.COMMIT, COMMITTED),
        (OPEN_TRANSACTION, COMMITTED, ControlType.ABORT, ABORTED),
        (OPEN_TRANSACTION, COMMITTED, None, OPEN_TRANSACTION),
    ),
)
def test_a_batch_has_the_state_that_its_transaction_came_to(before, after, end, state):
    states = object.__new__(_CommitStates)
    states._before = SimpleNamespace(state_of=lambda _: before)
    states._after = SimpleNamespace(state_of=lambda _: after)
    states._ends = {} if end is None else {7: end}
    assert states.state_before(SimpleNamespace(producer_id=7)) == state
    assert states.state_before(SimpleNamespace(producer_id=8)) == (
        OPEN_TRANSACTION if (before, after) == (OPEN_TRANSACTION, COMMITTED) else state
    )
