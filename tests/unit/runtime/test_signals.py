"""Signals: many listeners, none of which is lost by another, nor replaces one."""

import pytest

from logstore.runtime import Signal


def test_listeners_are_called_in_order_of_subscription():
    signal, told = Signal("a test"), []
    signal.emit(0)
    for name in "abc":
        signal.subscribe(lambda number, name=name: told.append((name, number)))
    signal.emit(1)
    assert told == [("a", 1), ("b", 1), ("c", 1)]


def test_an_unsubscribed_listener_is_not_called_but_others_are():
    signal, first, second = Signal("a test"), [], []
    leave = signal.subscribe(first.append)
    signal.subscribe(second.append)
    leave()
    leave()
    signal.emit(1)
    assert (first, second) == ([], [1])


def test_a_listener_that_subscribes_twice_leaves_once():
    signal, told = Signal("a test"), []
    leave = signal.subscribe(told.append)
    signal.subscribe(told.append)
    signal.emit(1)
    leave()
    signal.emit(2)
    assert told == [1, 1, 2]


def test_listeners_may_subscribe_and_unsubscribe_during_a_call():
    signal, told = Signal("a test"), []

    def once():
        leave()
        told.append("once")
        signal.subscribe(lambda: told.append("new"))

    leave = signal.subscribe(once)
    signal.subscribe(lambda: told.append("always"))
    signal.emit()
    signal.emit()
    assert told == ["once", "always", "always", "new"]


def test_a_listeners_own_error_is_logged_and_keeps_from_nothing(caplog):
    signal, told = Signal("a test"), []
    signal.subscribe(lambda: 1 / 0)
    signal.subscribe(lambda: told.append(1))
    signal.emit()
    assert told == [1]
    (record,) = caplog.records
    assert record.message == "a listener of a test failed"
    assert record.exc_info[0] is ZeroDivisionError


@pytest.mark.parametrize("kind", (AssertionError, KeyboardInterrupt))
def test_other_exceptions_of_a_listener_are_raised_after_all_calls(kind, caplog):
    signal, told = Signal("a test"), []

    def fail(text):
        raise kind(text)

    signal.subscribe(lambda: fail("the first"))
    signal.subscribe(lambda: fail("the second"))
    signal.subscribe(lambda: told.append(1))
    with pytest.raises(kind, match="the first"):
        signal.emit()
    assert (told, caplog.records) == ([1], [])
