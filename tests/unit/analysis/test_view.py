"""Readers of one partition, one of which meets damage, so that the log is opened again."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from logstore import Broker, TopicPartition, VirtualClock
from logstore.analysis.committed import CommittedData
from logstore.analysis.stats import partition_stats
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


class Reopened:
    """A broker whose log fails; `works` says for each failure whether the log is opened again."""

    def __init__(self, *works: bool) -> None:
        self.works = [*works]
        self.calls: list[tuple[object, int, Exception]] = []
        self.manager = self
        self.registry = self
        self.log_now = object()

    def log(self, topic_partition: TopicPartition) -> object:
        assert topic_partition == "t-0"
        return self.log_now

    def reopen(self, topic_partition: object, failures: int, error: Exception) -> bool:
        self.calls.append((topic_partition, failures, error))
        return self.works.pop(0)


class Scripted(PartitionView):
    """A view of which each attempt reads some batches and fails with an error, if there is one."""

    def __init__(self, broker: Reopened, *attempts: tuple[list[int], Exception | None]) -> None:
        super().__init__(broker, "t-0")
        self.attempts = [*attempts]
        self.asked: list[tuple[int | None, int | None]] = []

    def _walk(self, decode, start_offset, end_offset):
        self.asked.append((start_offset, end_offset))
        offsets, error = self.attempts.pop(0)
        for offset in offsets:
            header = SimpleNamespace(next_offset=offset)
            yield SimpleNamespace(batch=SimpleNamespace(header=header)), ()
        if error is not None:
            raise error


ERROR, OTHER = OSError("gone"), OSError("gone again")


def test_batches_go_on_behind_the_last_one_and_count_failures_anew():
    broker = Reopened(True, True, True)
    view = Scripted(broker, ([3, 5], ERROR), ([], OTHER), ([8], ERROR), ([9], None))
    assert [each.batch.header.next_offset for each in view.batches(2, 40)] == [3, 5, 8, 9]
    assert view.asked == [(2, 40), (5, 40), (5, 40), (8, 40)]
    assert broker.calls == [("t-0", 1, ERROR), ("t-0", 2, OTHER), ("t-0", 1, ERROR)]


def test_batches_end_with_the_error_if_the_log_cannot_be_opened_again():
    broker = Reopened(False)
    view = Scripted(broker, ([3], ERROR))
    found = view.batches()
    assert next(found).batch.header.next_offset == 3
    with pytest.raises(OSError, match="gone") as raised:
        next(found)
    assert raised.value is ERROR
    assert view.asked == [(None, None)]


def test_a_question_is_asked_again_as_long_as_the_log_is_another_one():
    broker = Reopened(True, True, False)
    view = PartitionView(broker, "t-0")
    asked = []

    def question(log: object) -> str:
        asked.append(log)
        match len(asked):
            case 1 | 2:
                raise ERROR
            case 3:  # another reader has opened the log again: not a failure of this one
                broker.log_now = object()
                raise OTHER
            case 4:
                broker.log_now = object()
                raise ValueError("closed file")
            case 5:
                return "answer"
        raise AssertionError

    assert view.evaluate(question) == "answer"
    assert broker.calls == [("t-0", 1, ERROR), ("t-0", 2, ERROR)]
    assert len({*map(id, asked)}) == 3


@pytest.mark.parametrize("error", (ValueError("wrong"), ERROR))
def test_an_error_of_the_same_log_is_raised(error):
    broker = Reopened(False)

    def question(log: object) -> None:
        raise error

    with pytest.raises(type(error)) as raised:
        PartitionView(broker, "t-0").evaluate(question)
    assert raised.value is error
    assert len(broker.calls) == (error is ERROR)


@pytest.mark.parametrize(
    ("segment", "number", "wrong", "expected"), ((0, 1, 300, 1), (0, 2, 6, 2), (1, 1, 300, 301))
)
def test_a_wrong_base_offset_hides_no_later_batches(tmp_path, segment, number, wrong, expected):
    """The CRC does not cover the offset, which may be above the end of the log."""
    with Broker(tmp_path, clock=VirtualClock(0)) as writer:
        writer.create_topic("t")
        for at in range(6):
            writer.append("t", value=b"v" * 5000)  # each has an index entry
            if at == 2:
                writer.roll("t")
    path = tmp_path / "t-0" / f"{3 * segment:020d}.log"
    data = bytearray(path.read_bytes())
    size = len(data) // 3
    data[number * size : number * size + 8] = wrong.to_bytes(8, "big")
    path.write_bytes(data)
    with Broker(tmp_path, clock=VirtualClock(0), read_only=True, on_damage="pass_over") as reader:
        assert partition_stats(reader, TP).records == 6
        view = PartitionView(reader, TP)
        offsets = [each.batch.header.base_offset for each in view.batches()]
        assert offsets == [*range(6)]  # inferred from the batches around
        [damage] = view.damages
        assert (damage.path, damage.position, damage.size_bytes) == (
            str(path),
            number * size,
            size,
        )
    with (
        Broker(tmp_path, clock=VirtualClock(0), read_only=True, on_damage="refuse") as reader,
        pytest.raises(CorruptionError, match=f"where offsets from {expected} on are expected"),
    ):
        list(PartitionView(reader, TP).batches())
