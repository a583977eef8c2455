"""Outcomes of transactions, from the states in the transaction log."""

import pytest

from logstore.coordinator.transactions.pending_offsets import History, Outcome
from logstore.coordinator.transactions.state import TransactionMetadata, TransactionState
from logstore.types import TopicPartition

MINE, OTHER = TopicPartition("__consumer_offsets", 0), TopicPartition("__consumer_offsets", 1)
COMMITTED, ABORTED, OPEN = Outcome.COMMITTED, Outcome.ABORTED, Outcome.OPEN
PREPARE = {True: TransactionState.PREPARE_COMMIT, False: TransactionState.PREPARE_ABORT}
COMPLETE = {True: TransactionState.COMPLETE_COMMIT, False: TransactionState.COMPLETE_ABORT}


def state(kind, start_ms, update_ms, partitions=(MINE,), producer_id=7):
    return TransactionMetadata(
        transactional_id="x",
        producer_id=producer_id,
        producer_epoch=0,
        timeout_ms=60_000,
        state=kind,
        partitions=frozenset(partitions),
        start_ms=start_ms,
        last_update_ms=update_ms,
    )


def ended(start_ms, end_ms, *, commit):
    """Return the states of a complete transaction."""
    return [
        state(TransactionState.ONGOING, start_ms, start_ms),
        state(PREPARE[commit], start_ms, end_ms),
        state(COMPLETE[commit], start_ms, end_ms + 1, ()),
    ]


def test_all_batches_of_an_unknown_producer_are_open():
    history = History([state(PREPARE[True], 10, 20, producer_id=8)])
    assert history.outcome_of(7, MINE, 15, -1) is OPEN
    assert history.newest(7) is None
    assert history.prepared(7, MINE) is None


@pytest.mark.parametrize(
    ("timestamp_ms", "outcome"),
    ((10, COMMITTED), (20, COMMITTED), (30, ABORTED), (40, ABORTED), (50, COMMITTED)),
)
def test_a_batch_belongs_to_the_transaction_of_its_time_both_ends_included(timestamp_ms, outcome):
    states = [
        *ended(10, 20, commit=True),
        *ended(30, 40, commit=False),
        *ended(50, 60, commit=True),
    ]
    assert History(states).outcome_of(7, MINE, timestamp_ms, -1) is outcome


@pytest.mark.parametrize("timestamp_ms", (9, 21, 61))
def test_a_batch_of_no_known_transaction_is_aborted(timestamp_ms):
    states = [*ended(10, 20, commit=True), *ended(50, 60, commit=True)]
    assert History(states).outcome_of(7, MINE, timestamp_ms, -1) is ABORTED


def test_the_newest_of_two_transactions_at_one_time_counts():
    states = [*ended(10, 20, commit=True), *ended(20, 30, commit=False)]
    assert History(states).outcome_of(7, MINE, 20, -1) is ABORTED


@pytest.mark.parametrize(("marked_ms", "outcome"), ((19, COMMITTED), (20, ABORTED), (21, ABORTED)))
def test_a_marker_ends_the_transactions_decided_before_it(marked_ms, outcome):
    assert History(ended(10, 20, commit=True)).outcome_of(7, MINE, 15, marked_ms) is outcome


def test_the_completion_counts_if_the_decision_was_removed():
    states = [state(COMPLETE[True], 10, 20, ())]
    assert History(states).outcome_of(7, MINE, 15, -1) is COMMITTED


def test_the_end_of_another_transaction_counts_after_one_whose_decision_is_known():
    states = [*ended(10, 20, commit=False), state(COMPLETE[True], 30, 40, ())]
    history = History(states)
    assert history.outcome_of(7, MINE, 35, -1) is COMMITTED
    assert history.outcome_of(7, MINE, 15, -1) is ABORTED


def test_completion_does_not_extend_the_time_of_a_decision():
    states = [state(PREPARE[True], 10, 20), state(COMPLETE[True], 10, 90, ())]
    assert History(states).outcome_of(7, MINE, 21, -1) is ABORTED


@pytest.mark.parametrize(
    ("partitions", "timestamp_ms", "outcome"),
    (
        ((MINE,), 30, OPEN),
        ((MINE,), 35, OPEN),
        ((MINE,), 29, OPEN),  # not in another transaction; the clock may have been set back
        ((MINE,), 15, COMMITTED),
        ((OTHER,), 35, ABORTED),
        ((OTHER,), 15, COMMITTED),
    ),
)
def test_a_batch_is_open_if_its_partition_is_part_of_the_open_transaction(
    partitions, timestamp_ms, outcome
):
    states = [
        *ended(10, 20, commit=True),
        state(TransactionState.ONGOING, 30, 30, partitions),
    ]
    assert History(states).outcome_of(7, MINE, timestamp_ms, -1) is outcome


@pytest.mark.parametrize("commit", (True, False))
def test_a_decision_whose_marker_is_due_holds_for_partitions_of_the_transaction_alone(commit):
    history = History([state(PREPARE[commit], 10, 20)])
    outcome = COMMITTED if commit else ABORTED
    assert history.prepared(7, MINE) is outcome
    assert history.prepared(7, OTHER) is None
    assert history.outcome_of(7, MINE, 25, -1) is outcome
    assert history.outcome_of(7, OTHER, 25, -1) is ABORTED


@pytest.mark.parametrize(
    "kind", (TransactionState.ONGOING, COMPLETE[True], COMPLETE[False], TransactionState.EMPTY)
)
def test_only_prepared_transactions_have_a_due_marker(kind):
    assert History([state(kind, 10, 20)]).prepared(7, MINE) is None


def test_a_later_state_replaces_the_newest_one():
    history = History(ended(10, 20, commit=True))
    history.add(state(TransactionState.ONGOING, 30, 31))
    assert history.newest(7).start_ms == 30
    assert history.outcome_of(7, MINE, 30, -1) is OPEN
    history.add(state(PREPARE[False], 30, 40))
    assert history.outcome_of(7, MINE, 30, -1) is ABORTED


def test_a_complete_transaction_is_known_although_the_clock_went_back():
    """The record of its decision was removed by the cleaner."""
    states = [*ended(30, 40, commit=False), state(COMPLETE[True], 10, 20, ())]
    history = History(states)
    assert [history.outcome_of(7, MINE, each, -1) for each in (15, 35)] == [COMMITTED, ABORTED]
    again = History([*ended(30, 40, commit=False), state(COMPLETE[True], 30, 50, ())])
    assert [again.outcome_of(7, MINE, each, -1) for each in (35, 45)] == [ABORTED, ABORTED]
