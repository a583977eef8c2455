"""Objects for one thread at a time."""

import threading

import pytest

from logstore.errors import IllegalStateError
from logstore.runtime.exclusive import ThreadGuard, for_one_thread


@for_one_thread("wakeup")
class Reader:
    limit = 5

    def __init__(self):
        self._guard = ThreadGuard("give each thread its own")
        self.inside = threading.Event()
        self.go_on = threading.Event()

    def __repr__(self):
        return "Reader()"

    def wait(self):
        self.inside.set()
        assert self.go_on.wait(10)

    def poll(self, *values, scale=1):
        """Return what was passed."""
        return [value * scale for value in values]

    def nested(self):
        return self.poll(1)

    def fail(self):
        raise KeyError("k")

    def wakeup(self):
        return "woken"

    def _own(self):
        return "own"

    def __iter__(self):
        return self

    def __next__(self):
        return 7


@pytest.fixture
def used():
    """Return a reader in which a thread named `first` waits."""
    reader = Reader()
    thread = threading.Thread(target=reader.wait, name="first")
    thread.start()
    assert reader.inside.wait(10)
    yield reader
    reader.go_on.set()
    thread.join()
    assert reader.poll(2) == [2], "free again"


def test_another_thread_is_refused_with_names_and_advice(used):
    for call in (used.poll, used.nested, used.fail, lambda: next(used)):
        with pytest.raises(IllegalStateError) as refused:
            call()
        assert str(refused.value) == (
            "Reader() can only be used by one thread at a time, and thread 'first' is using it now;"
            " give each thread its own"
        )


def test_exempt_and_private_methods_and_attributes_are_for_all_threads(used):
    assert (used.wakeup(), used._own(), used.limit) == ("woken", "own", 5)
    assert iter(used) is used


def test_one_thread_may_nest_and_its_errors_give_the_right_back():
    reader = Reader()
    assert reader.nested() == [1]
    assert reader.poll(1, 2, scale=3) == [3, 6]
    assert next(reader) == 7
    with pytest.raises(KeyError):
        reader.fail()
    others = []
    thread = threading.Thread(target=lambda: others.append(reader.poll(4)))
    thread.start()
    thread.join()
    assert others == [[4]]


def test_methods_keep_their_names_and_docstrings():
    assert Reader.poll.__name__ == "poll"
    assert Reader.poll.__doc__ == "Return what was passed."


def test_the_right_is_given_back_as_often_as_it_was_taken():
    guard = ThreadGuard("wait")
    guard.enter("it")
    guard.enter("it")
    guard.leave()
    refused = []

    def enter():
        try:
            guard.enter("it")
        except IllegalStateError as error:
            refused.append(str(error))
        else:
            guard.leave()

    for taken in (1, 0):
        thread = threading.Thread(target=enter)
        thread.start()
        thread.join()
        if taken:
            guard.leave()
    assert len(refused) == 1
    assert "'MainThread' is using it" in refused[0]
