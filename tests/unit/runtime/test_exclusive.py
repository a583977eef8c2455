"""Objects for one thread at a time: other threads are refused until the thread has left."""

import threading

import pytest

from logstore.errors import IllegalStateError
from logstore.runtime.exclusive import ThreadGuard, for_one_thread


@for_one_thread("wake")
class Reader:
    def __init__(self):
        self._guard = ThreadGuard("call wake() from there")

    def __repr__(self):
        return "<reader>"

    def __next__(self):
        return "next"

    def read(self, action=lambda: "record"):
        return action()

    def wake(self):
        return "awake"

    def _read(self):
        return "unguarded"


def in_thread(action):
    """Return the result of an action, or its error, in a thread named `other`."""
    results = []

    def run():
        try:
            results.append(action())
        except IllegalStateError as error:
            results.append(error)

    thread = threading.Thread(target=run, name="other")
    thread.start()
    thread.join(60)
    return results[0]


def test_another_thread_is_refused_by_name_while_a_method_runs():
    reader = Reader()
    for action in (reader.read, reader.__next__):
        error = reader.read(lambda action=action: in_thread(action))
        assert isinstance(error, IllegalStateError)
        name = threading.current_thread().name
        assert str(error) == (
            f"<reader> is for one thread at a time, and thread {name!r} is using it now;"
            " call wake() from there"
        )


def test_a_method_gives_the_right_back_however_it_ends():
    reader = Reader()
    assert reader.read(reader.read) == "record", "the thread may call the object again"
    assert in_thread(reader.read) == "record"
    with pytest.raises(ZeroDivisionError):
        reader.read(lambda: 1 // 0)
    assert in_thread(lambda: next(reader)) == "next"


def test_an_inner_call_does_not_give_the_right_back():
    reader = Reader()

    def action():
        reader.read()
        return in_thread(reader.read)

    assert isinstance(reader.read(action), IllegalStateError)


def test_exempt_and_private_methods_are_open_to_every_thread():
    reader = Reader()
    assert reader.read(lambda: in_thread(reader.wake)) == "awake"
    assert reader.read(lambda: in_thread(reader._read)) == "unguarded"


def test_the_error_names_the_latest_user():
    reader = Reader()
    assert in_thread(reader.read) == "record"
    name = threading.current_thread().name
    assert f"thread {name!r} is using" in str(reader.read(lambda: in_thread(reader.read)))
