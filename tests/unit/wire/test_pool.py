"""The pool of requests: connections that may read while requests use all its memory."""

import random

import pytest

from logstore.wire import pool as pools
from logstore.wire.pool import RequestPool

MIB = 1 << 20


class FakeReader:
    """A connection that receives requests as far as the pool lets it."""

    def __init__(self, pool, readers, began_at=0.0):
        self.pool = pool
        self.readers = readers
        self.reads = True
        self.size = self.received = 0
        self.complete = []
        self.held_since = began_at
        readers.append(self)
        pool.join(self)

    @property
    def missing_bytes(self):
        return self.size - self.received

    @property
    def held_bytes(self):
        return self.received + sum(self.complete)

    def pause_reading(self):
        self.reads = False

    def resume_reading(self):
        self.reads = True

    def abort(self):
        held, self.received, self.size = self.held_bytes, 0, 0
        self.complete.clear()
        self.readers.remove(self)
        self.pool.end(self)
        self.pool.give_back(held)

    def receive(self, count, size=None):
        """Receive bytes of a request that is under way, or of a new one of a size."""
        assert self.reads
        self.pool.take(count)
        if size is not None:
            self.size, self.received = size, 0
        self.received += count
        if self.received == self.size:
            self.complete.append(self.size)
            self.size = self.received = 0
            self.pool.end(self)
        elif size is not None:
            self.pool.begin(self)

    def answer(self):
        self.pool.give_back(self.complete.pop(0))


def pool_of(limit, largest, count):
    readers = []
    pool = RequestPool(limit, largest, readers)
    return pool, [FakeReader(pool, readers) for _ in range(count)]


def test_new_requests_are_read_only_below_the_limit():
    pool, (first, second, third) = pool_of(1000, 500, 3)
    for _ in range(3):  # filled, drained, and filled again
        first.receive(600, size=600)
        assert (pool.used_bytes, second.reads, third.reads) == (600, True, True)
        second.receive(400, size=400)
        assert (first.reads, second.reads, third.reads) == (False, False, False)
        first.answer()
        assert (first.reads, second.reads, third.reads) == (True, True, True)
        second.answer()
        assert pool.used_bytes == 0


def test_a_request_that_has_begun_is_received_to_its_end():
    _, (first, second, third) = pool_of(1000, 800, 3)
    first.receive(500, size=800)
    second.receive(500, size=500)
    assert (first.reads, second.reads, third.reads) == (True, False, False)
    first.receive(300)
    assert (first.reads, third.reads) == (False, False)
    second.answer()
    first.answer()
    assert (first.reads, second.reads, third.reads) == (True, True, True)


def test_of_many_requests_that_have_begun_only_those_continue_for_which_there_is_room():
    largest = 4 * MIB
    pool, readers = pool_of(8 * MIB, largest, 8)
    for reader in readers:
        reader.receive(MIB, size=largest)
    # The oldest lacks 3 MiB, and so do all others: there is room for one.
    assert [each.reads for each in readers] == [True, *[False] * 7]
    readers[0].receive(3 * MIB)
    # It is complete, but not answered: its memory is not free yet.
    assert [each.reads for each in readers] == [False] * 8
    readers[0].answer()
    assert pool.used_bytes < 8 * MIB
    assert all(each.reads for each in readers)


def test_a_connection_that_is_opened_while_the_pool_is_full_waits():
    pool, (first,) = pool_of(1000, 1000, 1)
    first.receive(1000, size=1000)
    late = FakeReader(pool, pool._readers)
    assert not late.reads
    first.answer()
    assert late.reads


@pytest.mark.parametrize("limit", (0, -1))
def test_without_a_limit_everybody_reads(limit):
    pool, (first, second) = pool_of(limit, 1000, 2)
    first.receive(10**9, size=10**9)
    assert (pool.is_full, second.reads) == (False, True)


def test_only_while_the_pool_is_full_requests_that_take_too_long_are_closed():
    pool, readers = pool_of(1000, 1000, 4)
    for number, reader in enumerate(readers):
        reader.held_since = float(number)
    old, newer, newest, _ = readers
    old.receive(400, size=900)
    newer.receive(300, size=900)
    pool.close_stalled(before=5.0)
    assert len(pool._readers) == 4
    newest.receive(300, size=900)
    assert pool.is_full
    pool.close_stalled(before=0.0)
    assert len(pool._readers) == 4
    # The oldest one frees the needed memory; the others may continue.
    pool.close_stalled(before=5.0)
    assert [each in pool._readers for each in readers] == [False, True, True, True]
    assert (pool.is_full, pool.used_bytes) == (False, 600)


def test_while_the_pool_is_full_no_request_holds_much_of_it_for_longer_than_that_either():
    pool, readers = pool_of(400_000, 200_000, 4)
    waits, small, newer, half = readers
    waits.receive(200_000, size=200_000)
    small.receive(1000, size=1000)
    newer.receive(200_000, size=200_000)
    for number, reader in enumerate(readers):
        reader.held_since = float(number)
    assert pool.is_full
    pool.close_stalled(before=2.0)
    assert [each in pool._readers for each in readers] == [False, True, True, True]
    assert (pool.is_full, pool.used_bytes) == (False, 201_000)
    half.receive(199_000, size=200_000)
    half.held_since = newer.held_since = 5.0
    pool.close_stalled(before=2.0)
    assert small in pool._readers


@pytest.mark.parametrize("seed", range(5))
def test_the_memory_exceeds_the_limit_by_no_more_than_the_largest_request(seed, monkeypatch):
    rng = random.Random(seed)
    limit, largest, chunk = 100_000, 30_000, 1000
    monkeypatch.setattr(pools, "_CHUNK_BYTES", chunk)
    pool, readers = pool_of(limit, largest, 12)
    answered, most = 0, 0
    for _ in range(5000):
        reader = rng.choice(readers)
        if rng.random() < 0.01 and reader.complete:
            reader.answer()
            answered += 1
        elif reader.reads and reader.missing_bytes:
            reader.receive(rng.randint(1, min(chunk, reader.missing_bytes)))
        elif reader.reads:
            size = rng.randint(2, largest)
            reader.receive(rng.randint(1, min(chunk, size)), size=size)
        most = max(most, pool.used_bytes)
        held = sum(each.received + sum(each.complete) for each in readers)
        assert pool.used_bytes == held
        # No connection waits forever: some request can be answered, or received completely.
        assert any(each.complete or each.reads for each in readers)
    assert answered > 10
    assert limit + chunk < most <= limit + largest + chunk


def test_a_full_pool_is_reported_once_between_two_looks_for_stalled_requests(caplog):
    pool, (first, second) = pool_of(1000, 1000, 2)
    for number in range(4):
        first.receive(500, size=500)
        second.receive(1000, size=1000)
        first.answer()
        second.answer()
        if number == 1:
            pool.close_stalled(before=0.0)
    assert [each.getMessage() for each in caplog.records] == [
        "requests use 1500 bytes (queued.max.request.bytes = 1000): no new requests are read until"
        " responses have been sent"
    ] * 2


@pytest.mark.parametrize(("size", "reads"), ((1000, True), (1001, False)))
def test_a_request_that_just_fits_above_the_limit_is_received(size, reads, monkeypatch):
    monkeypatch.setattr(pools, "_CHUNK_BYTES", 0)
    pool, (first, second, third) = pool_of(1000, 1000, 3)
    first.receive(1, size=1000)
    second.receive(999, size=size)
    assert pool.is_full
    assert (first.reads, second.reads, third.reads) == (True, reads, False)


@pytest.mark.parametrize(("size", "stays"), ((65_536, True), (65_537, False)))
def test_a_request_of_64_kib_may_wait_in_a_full_pool(size, stays):
    pool, (waits, newer) = pool_of(100_000, 100_000, 2)
    waits.receive(size, size=size)
    newer.receive(100_000, size=100_000)
    newer.held_since = 9.0
    for _ in range(2):
        pool.close_stalled(before=1.0)
        assert (waits in pool._readers, newer in pool._readers) == (stays, True)


@pytest.mark.parametrize(("given_back", "reads"), ((0, False), (1, True)))
def test_reading_resumes_below_the_limit(given_back, reads):
    pool, (first, second) = pool_of(1000, 1000, 2)
    first.receive(1000, size=1000)
    first.held_since = second.held_since = 5.0
    pool.take(100)
    pool.give_back(100 + given_back)
    assert (pool.is_full, first.reads, second.reads) == (not reads, reads, reads)


def test_the_oldest_stalled_request_is_closed_first_whatever_its_size():
    pool, (first, second, third) = pool_of(300_000, 200_000, 3)
    for reader, size, began in ((first, 70_000, 2.0), (second, 90_000, 1.0), (third, 140_000, 3.0)):
        reader.receive(size, size=size)
        reader.held_since = began
    pool.close_stalled(before=1.0)
    assert pool._readers == [first, second, third], "not before that time"
    pool.close_stalled(before=9.0)
    assert (pool._readers, pool.is_full) == ([first, third], False)
