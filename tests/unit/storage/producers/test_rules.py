"""The rules for the next batch of a producer: every result, with its whole message."""

from types import SimpleNamespace

import pytest

from logstore.errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    LogStoreError,
    OutOfOrderSequenceNumberError,
    TransactionCoordinatorFencedError,
)
from logstore.storage.producers.entry import BatchMetadata, ProducerEntry
from logstore.storage.producers.rules import (
    check_bumped_epoch,
    check_data,
    check_epoch,
    check_marker,
    find_duplicate,
)
from logstore.storage.producers.snapshot import SnapshotEntry
from logstore.types import INT16_MAX, INT32_MAX, AppendOrigin, TopicPartition

T0 = TopicPartition("t", 0)
CLIENT, COORDINATOR = AppendOrigin.CLIENT, AppendOrigin.COORDINATOR
REPLICATION = AppendOrigin.REPLICATION


def header(epoch=5, first=7, last=None, *, is_transactional=False, producer_id=9):
    return SimpleNamespace(
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=first,
        last_sequence=first if last is None else last,
        is_transactional=is_transactional,
    )


def entry(epoch=5, *, last=6, txn=None, coordinator_epoch=3):
    """Return a producer whose last two batches have the sequences up to `last`."""
    known = ProducerEntry(9, epoch, coordinator_epoch, 0, txn)
    if last is not None:
        known.batches.extend((BatchMetadata(last - 2, 100, 1, 0), BatchMetadata(last, 102, 1, 0)))
    return known


def outcome(call):
    try:
        return call()
    except LogStoreError as error:
        return type(error), str(error)


OLD = (
    InvalidProducerEpochError,
    "t-0: epoch 4 of producer 9 is older than the known 5",
)
OPEN = (
    InvalidTxnStateError,
    "t-0: producer 9 writes outside a transaction while its transaction from offset 50 is open",
)


def gap(sequence, last=6):
    return (
        OutOfOrderSequenceNumberError,
        f"t-0: sequence {sequence} of producer 9 in epoch 5 does not follow {last}",
    )


def late_start(sequence):
    return (
        OutOfOrderSequenceNumberError,
        f"t-0: the new epoch 6 of producer 9 begins with sequence {sequence}, not 0",
    )


FIRST, SECOND = BatchMetadata(4, 100, 1, 0), BatchMetadata(6, 102, 1, 0)


@pytest.mark.parametrize(
    ("known", "batch", "client", "coordinator", "replication"),
    (
        (None, header(first=3), None, None, None),
        (entry(), header(first=7), None, None, None),
        (entry(), header(first=8), gap(8), None, None),
        (entry(), header(first=6, last=7), gap(6), None, None),
        (entry(), header(first=3, last=4), FIRST, None, None),
        (entry(), header(first=5, last=6), SECOND, None, None),
        (entry(), header(first=5, last=7), gap(5), None, None),
        (entry(), header(first=4, last=6), gap(4), None, None),
        (entry(last=INT32_MAX), header(first=0), None, None, None),
        (entry(last=INT32_MAX - 1), header(first=0), gap(0, INT32_MAX - 1), None, None),
        (entry(last=None), header(first=0), None, None, None),
        (entry(last=None), header(first=1), gap(1, -1), None, None),
        (entry(epoch=-1, last=None), header(first=3), None, None, None),
        (entry(), header(epoch=6, first=0), None, None, None),
        (entry(), header(epoch=6, first=1), late_start(1), None, None),
        (entry(), header(epoch=6, first=5, last=6), late_start(5), None, None),
        (entry(), header(epoch=4, first=7), OLD, OLD, None),
        (entry(), header(epoch=4, first=5, last=6), OLD, OLD, None),
        (entry(txn=50), header(first=7), OPEN, OPEN, OPEN),
        (entry(txn=50), header(first=8), gap(8), OPEN, OPEN),
        (entry(txn=50), header(first=7, is_transactional=True), None, None, None),
        (entry(txn=50), header(first=5, last=6), SECOND, OPEN, OPEN),
        (entry(txn=0), header(first=7), (OPEN[0], OPEN[1].replace("50", "0")), *(
            ((OPEN[0], OPEN[1].replace("50", "0")),) * 2
        )),
    ),
)  # fmt: skip
def test_data(known, batch, client, coordinator, replication):
    found = [
        outcome(lambda origin=origin: check_data(T0, known, batch, origin))
        for origin in (CLIENT, COORDINATOR, REPLICATION)
    ]
    assert found == [client, coordinator, replication]


FENCED = (
    TransactionCoordinatorFencedError,
    "t-0: coordinator epoch 2 of a marker of producer 9 is older than the known 3",
)


@pytest.mark.parametrize(
    ("known", "epoch", "coordinator_epoch", "expected"),
    (
        (None, 0, 0, None),
        (entry(), 5, 3, None),
        (entry(), 6, 4, None),
        (entry(), 5, 2, FENCED),
        (entry(), 6, 2, FENCED),
        (entry(), 4, 2, OLD),
    ),
)
@pytest.mark.parametrize("origin", (CLIENT, COORDINATOR, REPLICATION))
def test_markers(known, epoch, coordinator_epoch, expected, origin):
    marker = SimpleNamespace(coordinator_epoch=coordinator_epoch)
    found = outcome(lambda: check_marker(T0, known, header(epoch), marker, origin))
    assert found == (None if origin is REPLICATION else expected)


LATE = (
    InvalidProducerEpochError,
    "t-0: epoch 5 of a marker of producer 9 is that of the open transaction, which ends with a"
    " later epoch",
)


@pytest.mark.parametrize(
    ("known", "epoch", "expected"),
    (
        (None, 5, None),
        (entry(), 5, None),
        (entry(txn=50), 5, LATE),
        (entry(txn=0), 5, LATE),
        (entry(txn=50), 6, None),
        (entry(txn=50), 4, None),
        (entry(INT16_MAX, txn=50), INT16_MAX, None),
        (
            entry(INT16_MAX - 1, txn=50),
            INT16_MAX - 1,
            (LATE[0], LATE[1].replace("epoch 5", f"epoch {INT16_MAX - 1}")),
        ),
    ),
)
def test_epochs_of_markers_of_version_2(known, epoch, expected):
    assert outcome(lambda: check_bumped_epoch(T0, known, header(epoch))) == expected


@pytest.mark.parametrize(("epoch", "expected"), ((4, OLD), (5, None), (6, None)))
def test_epochs(epoch, expected):
    assert outcome(lambda: check_epoch(T0, entry(), epoch)) == expected


def test_duplicates_are_of_the_same_epoch_and_sequences():
    known = entry()
    found = [
        find_duplicate(known, header(*each))
        for each in ((5, 3, 4), (5, 5, 6), (5, 3, 6), (5, 3, 3), (4, 3, 4), (6, 3, 4))
    ]
    assert found == [FIRST, SECOND, None, None, None, None]


# -- the state of a producer -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("last", "delta", "first"),
    ((-1, 0, -1), (-1, 3, -1), (0, 0, 0), (4, 4, 0), (3, 4, INT32_MAX), (0, 4, INT32_MAX - 3)),
)
def test_sequences_of_a_batch_start_again_at_zero(last, delta, first):
    batch = BatchMetadata(last, 50, delta, 0)
    assert (batch.first_sequence, batch.first_offset) == (first, 50 - delta)


@pytest.mark.parametrize(
    ("known", "epoch", "sequence", "expected"),
    (
        (entry(), 5, 7, True),
        (entry(), 5, 6, False),
        (entry(), 5, 8, False),
        (entry(), 4, 7, False),
        (entry(), 6, 7, False),
        (entry(txn=0), 5, 7, False),
        (entry(last=None), 5, 0, False),
        (entry(last=INT32_MAX), 5, 0, False),
    ),
)
def test_the_next_batch_of_one_record(known, epoch, sequence, expected):
    assert known.is_followed_by(epoch, sequence) is expected


def test_a_sequence_that_a_remembered_batch_has_is_not_simply_the_next_one():
    known = entry(last=None)
    known.batches.extend((BatchMetadata(8, 100, 1, 0), BatchMetadata(7, 102, 0, 0)))
    assert known.is_followed_by(5, 8) is False
    known.batches.popleft()
    assert known.is_followed_by(5, 8) is True


def test_a_batch_of_one_record_is_added():
    known = entry()
    known.add_batch(7, 103, 44)
    assert known.batches[-1] == BatchMetadata(7, 103, 0, 44)
    assert (known.last_timestamp, known.last_sequence, known.last_data_offset) == (44, 7, 103)
    for number in range(8, 12):
        known.add_batch(number, number + 96, 44)
    assert [each.last_sequence for each in known.batches] == [7, 8, 9, 10, 11]


@pytest.mark.parametrize("txn", (None, 0, 50))
@pytest.mark.parametrize("last", (None, 6))
def test_a_snapshot_keeps_the_last_batch(last, txn):
    known = entry(last=last, txn=txn)
    known.last_timestamp = 44 if last is None else 0
    stored = known.to_snapshot()
    assert stored == SnapshotEntry(
        producer_id=9,
        producer_epoch=5,
        last_sequence=-1 if last is None else 6,
        last_offset=-1 if last is None else 102,
        offset_delta=0 if last is None else 1,
        timestamp=known.last_timestamp,
        coordinator_epoch=3,
        current_txn_first_offset=-1 if txn is None else txn,
    )
    loaded = ProducerEntry.from_snapshot(stored)
    while len(known.batches) > 1:
        known.batches.popleft()
    assert loaded == known


def test_another_epoch_has_no_batches_yet():
    known = entry()
    known.enter_epoch(5)
    assert len(known.batches) == 2
    known.enter_epoch(6)
    assert (known.producer_epoch, len(known.batches), known.last_sequence) == (6, 0, -1)
    assert (known.is_in_transaction(6), entry(txn=0).is_in_transaction(5)) == (False, True)
    assert entry(txn=0).is_in_transaction(6) is False
