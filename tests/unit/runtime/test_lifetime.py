"""Lifetimes: calls refused after the end, readable attributes, and locks of an ended lifetime."""

import gc
import sys
import threading
import weakref
from functools import cached_property

import pytest

from logstore.errors import IllegalStateError, KafkaStorageError
from logstore.runtime import Lifetime
from logstore.runtime.lifetime import lasting


class Thing:
    constant = 3

    def __init__(self, lifetime):
        self.attribute = 4
        self.closed = 0
        lifetime.add(self)

    def method(self, number):
        return number

    def steps(self):
        yield 1

    @property
    def fact(self):
        return 5

    @cached_property
    def costly(self):
        return 6

    @property
    @lasting
    def made_of(self):
        return self.attribute

    @classmethod
    def of(cls):
        return cls

    def _own(self):
        return 7

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __len__(self):
        return 8

    def close(self):
        self.closed += 1


class Slotted:
    __slots__ = ("__weakref__", "_lifetime")

    def method(self):
        return 1


def test_all_that_is_public_is_refused_and_the_rest_is_retained():
    lifetime = Lifetime("the thing")
    thing = Thing(lifetime)
    assert (thing.method(1), thing.fact, len(thing)) == (1, 5, 8)
    lifetime.end()
    for use in (
        lambda: thing.method(1),
        lambda: thing.method(),
        thing.steps,
        lambda: thing.fact,
        lambda: thing.costly,
        lambda: len(thing),
        thing.__enter__,
    ):
        with pytest.raises(IllegalStateError, match=r"^the thing is closed$"):
            use()
    assert (thing.attribute, thing.made_of, thing.constant, thing._own()) == (4, 4, 3, 7)
    thing.close()
    thing.__exit__()
    assert thing.closed == 2
    assert isinstance(thing, Thing)
    assert type(thing).__name__ == "Thing"
    assert type(thing).of().constant == 3


def test_the_first_reason_is_retained():
    lifetime = Lifetime("the thing")
    thing = Thing(lifetime)
    assert not lifetime.is_over
    lifetime.check()
    lifetime.end("went up in smoke", KafkaStorageError)
    lifetime.end()
    assert lifetime.is_over
    for use in (lifetime.check, lambda: thing.method(1)):
        with pytest.raises(KafkaStorageError, match="the thing went up in smoke"):
            use()


def test_a_late_request_is_refused_at_once():
    lifetime = Lifetime("the thing")
    lifetime.end()
    with pytest.raises(IllegalStateError):
        Thing(lifetime).method(1)


def test_slots_and_subclasses_are_refused_as_well():
    class Special(Thing):
        def more(self):
            return 1

    lifetime = Lifetime("the thing")
    slotted, special, other = Slotted(), Special(lifetime), Thing(Lifetime("another"))
    lifetime.add(slotted)
    lifetime.end()
    for use in (slotted.method, special.more, special.steps):
        with pytest.raises(IllegalStateError):
            use()
    assert other.method(2) == 2


def test_a_lifetime_keeps_no_member_alive():
    lifetime = Lifetime("the thing")
    thing = weakref.ref(Thing(lifetime))
    gc.collect()
    assert thing() is None
    lifetime.end()


def test_no_thread_acquires_a_lock_after_the_end():
    lifetime = Lifetime("the thing")
    lock = lifetime.lock(threading.RLock())
    outcome = []

    def wait():
        try:
            with lock:
                outcome.append("got it")
        except IllegalStateError as error:
            outcome.append(str(error))

    with lock:
        waiting = threading.Thread(target=wait)
        waiting.start()
        with lock:  # as re-entrant as that beneath
            lifetime.end()
    waiting.join()
    wait()
    assert outcome == ["the thing is closed"] * 2


def test_members_may_be_added_while_it_ends():
    class Plain:
        pass

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(15):
            lifetime = Lifetime("the thing")
            members = [Plain() for _ in range(500)]
            for member in members:
                lifetime.add(member)
            stopped = threading.Event()

            def come(lifetime=lifetime, members=members, stopped=stopped):
                while not stopped.is_set():
                    member = Plain()  # the list's last one may be the other thread's
                    members.append(member)
                    lifetime.add(member)

            coming = [threading.Thread(target=come) for _ in range(2)]
            for thread in coming:
                thread.start()
            try:
                lifetime.end()
            finally:
                stopped.set()
                for thread in coming:
                    thread.join()
            assert all(type(member) is not Plain for member in members)
    finally:
        sys.setswitchinterval(interval)
