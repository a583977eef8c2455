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
