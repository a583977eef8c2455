"""`logstore.faults.rules`: the calls that a rule applies to, and its effects."""

from __future__ import annotations

import errno
import pickle
import threading
from datetime import timedelta

import pytest

from logstore.errors import (
    KAFKA_CODES,
    CorruptRecordError,
    InvalidConfigurationError,
    LogStoreError,
    NotLeaderForPartitionError,
    OffsetOutOfRangeError,
    RequestError,
    RequestTimedOutError,
)
from logstore.faults.rules import (
    DISK_KINDS,
    KAFKA_ERRORS,
    REQUEST_KINDS,
    Call,
    FaultRule,
    Faults,
    is_injected,
    kafka_exception,
)
from logstore.runtime import VirtualClock
from logstore.types import TopicPartition

USERS, ORDERS = TopicPartition("users", 0), TopicPartition("orders", 1)
KINDS = (*REQUEST_KINDS, *DISK_KINDS)
LEADER = "NOT_LEADER_OR_FOLLOWER"


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def faults(clock: VirtualClock) -> Faults:
    return Faults(KINDS, clock)


def outcome(faults: Faults, call: Call) -> str:
    """Return the error that a call meets, or `done`."""
    try:
        return faults.call_with_rules(call, lambda: "done")
    except LogStoreError as error:
        return error.kafka_error
    except OSError as error:
        return errno.errorcode[error.errno]


def outcomes(faults: Faults, count: int, call: Call) -> list[bool]:
    """Return of each call whether it failed."""
    return [outcome(faults, call) != "done" for _ in range(count)]


@pytest.mark.parametrize(
    ("which", "failed"),
    (
        ({}, [1, 1, 1, 1]),
        ({"nth": 2}, [0, 1, 0, 0]),
        ({"times": 2}, [1, 1, 0, 0]),
        ({"nth": 2, "times": 2}, [0, 1, 1, 0]),
    ),
)
def test_nth_and_times_choose_calls(faults: Faults, which: dict, failed: list[int]) -> None:
    rule = faults.add("append", error=LEADER, **which)
    assert outcomes(faults, 4, Call("append", (USERS,))) == list(map(bool, failed))
    assert (rule.calls, rule.hits) == (4, sum(failed))
    assert rule.is_spent == bool(which)


def test_only_calls_of_its_kind_topic_and_predicate_are_counted(faults: Faults) -> None:
    rule = faults.add(
        "append", error=LEADER, topic="users", nth=2, when=lambda call: call.client_id == "a"
    )
    mine = Call("append", (ORDERS, USERS), client_id="a")
    others = [
        mine._replace(kind="fetch"),
        mine._replace(partitions=(ORDERS,)),
        mine._replace(client_id="b"),
        mine._replace(partitions=()),
    ]
    for call in (*others, mine, *others):
        assert outcome(faults, call) == "done"
    assert (rule.calls, rule.hits) == (1, 0)
    assert outcome(faults, mine) == LEADER


def test_a_topic_and_a_number_are_of_one_partition(faults: Faults) -> None:
    faults.add("append", error=LEADER, topic="users", partition=1)
    assert outcome(faults, Call("append", (USERS, ORDERS))) == "done"
    assert outcome(faults, Call("append", (TopicPartition("users", 1),))) == LEADER
    faults.clear()
    faults.add("append", error=LEADER, topic=ORDERS)
    assert outcome(faults, Call("append", (TopicPartition("orders", 0),))) == "done"
    assert outcome(faults, Call("append", (ORDERS,))) == LEADER


def test_an_error_replaces_the_call_or_its_response(faults: Faults) -> None:
    done: list[int] = []
    call = Call("append", (USERS,))
    with faults.add("append", error="REQUEST_TIMED_OUT"), pytest.raises(RequestTimedOutError):
        faults.call_with_rules(call, lambda: done.append(1))
    assert done == []
    rule = faults.add("append", error="REQUEST_TIMED_OUT", after=True)
    with pytest.raises(
        RequestTimedOutError, match="users-0 was completed, and its response dropped,"
    ) as info:
        faults.call_with_rules(call, lambda: done.append(2))
    assert done == [2]
    assert is_injected(info.value)
    rule.remove()
    rule.remove()
    faults.call_with_rules(call, lambda: done.append(3))
    assert done == [2, 3]


def test_a_delay_passes_on_the_clock_before_or_after(faults: Faults, clock: VirtualClock) -> None:
    start_ms = clock.now_ms()
    seen: list[int] = []
    faults.add("append", delay=timedelta(seconds=2), times=1)
    faults.add("append", delay=500, after=True)
    faults.call_with_rules(Call("append"), lambda: seen.append(clock.now_ms() - start_ms))
    assert seen == [2000]
    assert clock.now_ms() - start_ms == 2500
    assert [rule.hits for rule in faults] == [1, 1]


def test_rules_are_asked_in_their_order_up_to_the_first_error(faults: Faults) -> None:
    first = faults.add("append", error=LEADER, nth=1)
    second = faults.add("append", error="REQUEST_TIMED_OUT")
    call = Call("append")
    assert [outcome(faults, call), outcome(faults, call)] == [LEADER, "REQUEST_TIMED_OUT"]
    assert (first.calls, second.calls) == (2, 1)


def test_a_rule_does_not_apply_to_the_calls_of_its_own_predicate(faults: Faults) -> None:
    call = Call("append", (USERS,))
    inside: list[str] = []

    def when(call: Call) -> bool:
        inside.append(outcome(faults, call))
        return True

    rule = faults.add("append", error=LEADER, when=when)
    for _ in range(2):
        assert outcome(faults, call) == LEADER
    assert (inside, rule.calls, rule.hits) == (["done"] * 2, 2, 2)


def test_a_rule_applies_to_other_threads_while_its_predicate_runs(faults: Faults) -> None:
    """The predicate is called without the lock, which counting takes."""
    seen: list[str] = []
    other = Call("append", client_id="other")

    def when(call: Call) -> bool:
        if call is not other:
            thread = threading.Thread(
                target=lambda: seen.append(outcome(faults, other)), daemon=True
            )
            thread.start()
            thread.join(10)
        return True

    faults.add("append", error=LEADER, when=when)
    assert outcome(faults, Call("append")) == LEADER
    assert seen == [LEADER]


def test_calls_are_counted_with_the_lock(faults: Faults, monkeypatch: pytest.MonkeyPatch) -> None:
    could_count: list[bool] = []
    count = FaultRule.count

    def count_and_probe(rule: FaultRule) -> bool:
        def probe() -> None:
            could_count.append(faults._lock.acquire(blocking=False))

        thread = threading.Thread(target=probe)
        thread.start()
        thread.join()
        return count(rule)

    monkeypatch.setattr(FaultRule, "count", count_and_probe)
    faults.add("append", error=LEADER)
    assert outcome(faults, Call("append")) == LEADER
    assert could_count == [False]


def test_a_rule_behind_one_that_does_not_apply_applies(faults: Faults) -> None:
    faults.add("fetch", error=LEADER)
    faults.add("append", error=LEADER, nth=2)
    faults.add("append", error="REQUEST_TIMED_OUT")
    assert outcome(faults, Call("append")) == "REQUEST_TIMED_OUT"


def test_rules_are_listed_and_removed(faults: Faults) -> None:
    assert not faults
    assert repr(faults) == "[]"
    with faults.add("append", error=LEADER, topic="users", nth=2) as rule:
        assert list(faults) == [faults[0]] == [rule]
        assert rule in faults
        outcome(faults, Call("append", (USERS,)))
        assert repr(faults) == (
            "[<fail('append', topic='users', nth=2, error='NOT_LEADER_OR_FOLLOWER'): 0 of 1 calls>]"
        )
    assert not faults
    late = faults.add("append", delay=5, partition=1, times=3, after=True, when=is_late)
    assert repr(late) == (
        "<fail('append', partition=1, when=is_late, times=3, delay=5, after=True): 0 of 0 calls>"
    )
    faults.clear()
    assert len(faults) == 0


def is_late(_: Call) -> bool:
    return False


# --- errors ------------------------------------------------------------------------------------


class KafkaPythonsError(RuntimeError):
    """A class of `kafka.errors`, which call the number of an error so."""

    errno = 6


@pytest.mark.parametrize("error", (LEADER, NotLeaderForPartitionError, KafkaPythonsError))
def test_an_error_is_kafkas_by_name_or_by_class(faults: Faults, error: object) -> None:
    assert faults.add("append", error=error).error == LEADER
    with pytest.raises(NotLeaderForPartitionError) as info:
        faults.call_with_rules(Call("append", (USERS,)), lambda: None)
    assert info.value.code == 6


def test_every_error_of_kafkas_can_be_had() -> None:
    for name in sorted(KAFKA_ERRORS):
        error = kafka_exception(name, "so it is")
        for each in (error, pickle.loads(pickle.dumps(error))):
            assert (each.kafka_error, each.code) == (name, KAFKA_CODES[name])
            assert str(each) == "so it is"
            assert is_injected(each)


def test_errors_have_the_most_specific_class() -> None:
    assert type(kafka_exception("REQUEST_TIMED_OUT", "")) is RequestTimedOutError
    assert type(kafka_exception("CORRUPT_MESSAGE", "")) is CorruptRecordError
    assert type(kafka_exception("STALE_MEMBER_EPOCH", "")) is RequestError
    assert RequestError("").kafka_error == "INVALID_REQUEST"
    error = kafka_exception("OFFSET_OUT_OF_RANGE", "")
    assert isinstance(error, OffsetOutOfRangeError)
    assert error.offset == -1


@pytest.mark.parametrize("error", ("ENOSPC", errno.ENOSPC))
def test_a_disk_fails_with_an_errno(faults: Faults, error: str | int) -> None:
    rule = faults.add("fsync", error=error, nth=1)
    assert rule.error == "ENOSPC"
    with pytest.raises(OSError, match="No space left") as info:
        faults.call_with_rules(Call("fsync", path="/data/a"), lambda: None)
    assert (info.value.errno, info.value.filename) == (errno.ENOSPC, "/data/a")
    assert faults.add("fsync", nth=1).error == "EIO"
    assert faults.add("fsync", delay=3).error is None


def test_a_request_whose_disk_fails_is_what_the_disk_does_for_it(faults: Faults) -> None:
    rule = faults.add("append", error="ENOSPC", topic="users", nth=1)
    assert rule.kind == "write"
    assert outcome(faults, Call("append", (USERS,))) == "done"
    assert outcome(faults, Call("write", (USERS,), path="/users-0/0.index")) == "done"
    assert outcome(faults, Call("write", (ORDERS,), path="/orders-1/0.log")) == "done"
    assert outcome(faults, Call("write", (USERS,), path="/users-0/0.log")) == "ENOSPC"


@pytest.mark.parametrize(
    ("arguments", "message"),
    (
        ({"kind": "apend", "error": LEADER}, "nearest is 'append'"),
        ({"kind": "append", "error": "NOT_LEADER_OF_FOLLOWER"}, f"nearest is '{LEADER}'"),
        ({"kind": "append", "error": "NONE"}, "is not a Kafka error"),
        ({"kind": "append", "error": ValueError}, "the name or class of a Kafka error"),
        ({"kind": "append"}, "requires an error"),
        ({"kind": "join", "error": "ENOSPC"}, "cannot fail with the disk error ENOSPC"),
        ({"kind": "fsync", "error": "ENOSPACE"}, "is not a disk error; the nearest is 'ENOSPC'"),
        ({"kind": "fsync", "error": True}, "an errno, not True"),
        ({"kind": "fetch", "error": LEADER, "after": True}, "it changes nothing"),
        ({"kind": "fsync", "after": True}, "or is a file operation"),
        ({"kind": "append", "error": LEADER, "nth": 0}, "nth must be a positive int"),
        ({"kind": "append", "error": LEADER, "times": 1.5}, "times must be a positive int"),
        ({"kind": "append", "delay": -1}, "a delay must be"),
        ({"kind": "append", "delay": float("inf")}, "a delay must be"),
        ({"kind": "append", "delay": timedelta(0)}, "a delay must be"),
        ({"kind": "append", "error": LEADER, "when": "users"}, "must be a function"),
    ),
)
def test_invalid_rules_are_rejected(faults: Faults, arguments: dict, message: str) -> None:
    with pytest.raises(InvalidConfigurationError, match=message):
        faults.add(**arguments)
    assert not faults
