"""Readers of one partition, one of which meets damage, so that the log is opened again."""

from __future__ import annotations

import pytest

from logstore import Broker, TopicPartition, VirtualClock
from logstore.analysis.committed import CommittedData
from logstore.analysis.tombstones import live_tombstones
from logstore.analysis.view import PartitionView
from logstore.errors import CorruptionError
from logstore.types import INT64_MAX

TP = TopicPartition("t", 0)


@pytest.fixture
def broker(tmp_path):
    """A broker that reads a copied directory: a log that is due, with a tombstone."""
    with Broker(tmp_path, clock=VirtualClock(0)) as writer:
        writer.create_topic("t", configs={"cleanup.policy": "compact"})
        for number in range(9):
            writer.append("t", key=b"%d" % (number % 3), value=b"v")
        writer.append("t", key=b"0", value=None)
        writer.roll("t")
    clock = VirtualClock(0)
    with Broker(tmp_path, clock=clock, read_only=True, on_damage="pass_over") as reader:
        yield reader


def interrupted(function, view):
    """Return the function, during whose first call another reader reopens the log."""
    calls = []

    def call(*args):
        calls.append(args)
        if len(calls) == 1:
            view.survey()
        return function(*args)

    return call


def aborted(log):
    return [each.collect_aborted_txns(0, INT64_MAX) for each in log.segments]


def test_an_evaluation_is_repeated_if_another_reader_reopens_the_log(broker):
    view = PartitionView(broker, TP)
    assert view.evaluate(interrupted(aborted, view)) == view.evaluate(aborted)


def test_damage_that_another_reader_has_skipped_is_no_error(broker):
    view = PartitionView(broker, TP)
    asked = []

    def question(log):
        asked.append(log)
        if len(asked) == 1:
            view.survey()
            raise CorruptionError("the batch that the other reader has skipped")
        return log.log_end_offset

    assert view.evaluate(question) == 10


def test_an_error_of_the_question_itself_is_raised_once(broker):
    asked = []

    def question(log):
        asked.append(log)
        raise ValueError("no log has changed")

    with pytest.raises(ValueError, match="no log has changed"):
        PartitionView(broker, TP).evaluate(question)
    assert len(asked) == 1


def test_tombstones_are_counted_while_another_reader_reopens_the_log(broker, monkeypatch):
    view = PartitionView(broker, TP)
    alone = live_tombstones(view)
    module = "logstore.analysis.tombstones.CommittedData"
    monkeypatch.setattr(module, interrupted(CommittedData, view))
    assert [each.offset for each in live_tombstones(view)] == [each.offset for each in alone] == [9]


def test_an_explanation_is_repeated_if_another_reader_reopens_the_log(broker):
    view = PartitionView(broker, TP)
    (alone,) = broker.explain("t").partitions
    (found,) = broker.explain("t", progress=interrupted(lambda *_: None, view)).partitions
    assert found == alone


class Registry:
    """A registry that reopens logs `successes` times; `calls` are its arguments."""

    def __init__(self, successes):
        self.successes = successes
        self.calls = []

    def reopen(self, *arguments):
        self.calls.append(arguments)
        return len(self.calls) <= self.successes


@pytest.mark.parametrize(
    ("is_same", "successes", "calls", "is_raised"),
    ((False, 0, 0, False), (True, 1, 1, False), (True, 0, 1, True)),
)
def test_a_log_is_reopened_only_by_the_first_reader_that_fails(
    broker, monkeypatch, is_same, successes, calls, is_raised
):
    """The others find another log, and read that one."""
    view = PartitionView(broker, TP)
    before = view.log
    if not is_same:
        view.survey()
    registry = Registry(successes)
    monkeypatch.setattr(broker.manager, "log", lambda tp, log=view.log: log)
    monkeypatch.setattr(broker.manager, "registry", registry)
    error = CorruptionError("damage")
    if is_raised:
        with pytest.raises(CorruptionError) as raised:
            view.reopen(before, 3, error)
        assert raised.value is error
    else:
        view.reopen(before, 3, error)
    assert registry.calls == [(TP, 3, error)] * calls


def test_an_error_is_forgotten_if_the_log_was_reopened_meanwhile(broker, monkeypatch):
    view = PartitionView(broker, TP)
    before = view.log
    logs = iter((before, object()))
    monkeypatch.setattr(broker.manager, "registry", Registry(0))
    monkeypatch.setattr(broker.manager, "log", lambda tp: next(logs))
    view.reopen(before, 1, CorruptionError("damage"))
    assert next(logs, None) is None


def test_every_failure_is_counted(broker, monkeypatch):
    view = PartitionView(broker, TP)
    registry = Registry(2)
    monkeypatch.setattr(broker.manager, "log", lambda tp, log=view.log: log)
    monkeypatch.setattr(broker.manager, "registry", registry)
    errors = [CorruptionError("1"), CorruptionError("2"), CorruptionError("3")]

    def question(log):
        raise errors[len(registry.calls)]

    with pytest.raises(CorruptionError, match="3"):
        view.evaluate(question)
    assert registry.calls == [(TP, number, errors[number - 1]) for number in (1, 2, 3)]


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    (
        (None, None, [0, 3, 5]),
        (0, 1, [0]),
        (2, 3, [0]),
        (3, 5, [3]),
        (4, 6, [3, 5]),
        (5, 5, []),
        (5, None, [5]),
        (6, None, []),
    ),
)
def test_batches_are_those_that_overlap_a_range(tmp_path, start, end, expected):
    with Broker(tmp_path, clock=VirtualClock(0)) as broker:
        broker.create_topic("t")
        for count in (3, 2, 1):
            broker.append_many("t", [(b"k", b"v")] * count)
        view = PartitionView(broker, TP)
        found = [stored.batch.header.base_offset for stored in view.batches(start, end)]
        assert found == expected


def test_a_record_is_found_below_the_log_start_too(tmp_path):
    with Broker(tmp_path, clock=VirtualClock(0)) as broker:
        broker.create_topic("t")
        for number in range(4):
            broker.append("t", value=b"%d" % number)
        broker.delete_records({TP: 2})
        view = PartitionView(broker, TP)
        reads = []
        records = view.records
        view.records = lambda *bounds: reads.append(bounds) or records(*bounds)
        found = [view.at(offset) for offset in range(5)]
        assert [each and each[1].value for each in found] == [b"0", b"1", b"2", b"3", None]
        assert [each and each[0].header.base_offset for each in found] == [0, 1, 2, 3, None]
        assert reads == [(0, 1), (1, 2)]
