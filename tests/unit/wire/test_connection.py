"""A connection whose transport and pool note each call: frames, pauses, times and memory."""

import asyncio
import struct
from types import SimpleNamespace

import pytest

from logstore.wire.connection import Connection


class Transport:
    """Notes the calls of a connection."""

    def __init__(self):
        self.calls = []
        self.written = []

    def pause_reading(self):
        self.calls.append("pause")

    def resume_reading(self):
        self.calls.append("resume")

    def abort(self):
        self.calls.append("abort")

    def close(self):
        self.calls.append("close")

    def is_closing(self):
        return not {"abort", "close"}.isdisjoint(self.calls)

    def write(self, data):
        self.written.append(bytes(data))


class Pool:
    """Notes the calls of a connection, and counts its bytes."""

    def __init__(self):
        self.calls = []
        self.used_bytes = 0

    def take(self, size_bytes):
        self.used_bytes += size_bytes

    def give_back(self, size_bytes):
        self.used_bytes -= size_bytes

    def join(self, _):
        self.calls.append("join")

    def begin(self, _):
        self.calls.append("begin")

    def end(self, _):
        self.calls.append("end")

    def news(self):
        calls, self.calls = self.calls, []
        return calls


class Rig:
    """A connection whose requests are not handled before `answer` is called."""

    def __init__(self, loop, *, is_refused=False, **session):
        limits = {"frame_bytes": 10_000, "frame_bytes_before_authentication": 500, "in_flight": 3}
        self.session = SimpleNamespace(
            service=SimpleNamespace(limits=SimpleNamespace(**limits)),
            is_authenticated=True,
            client_host="h",
            is_over=False,
            has_failed=False,
            ends=False,
            **session,
        )
        self.pool, self.transport, self.ended = Pool(), Transport(), []
        self.now = 100.0
        loop.time = lambda: self.now
        self.tasks = []
        new = None if is_refused else self.session
        self.connection = Connection(
            lambda transport, connection: new,
            lambda *_: None,
            self.ended.append,
            self.pool,
            self._start,
        )
        self.connection.connection_made(self.transport)

    def _start(self, coroutine):
        coroutine.close()
        task = SimpleNamespace(is_cancelled=False)
        task.cancel = lambda: setattr(task, "is_cancelled", True)
        self.tasks.append(task)
        return task

    def receive(self, data, now=None):
        self.now = self.now if now is None else now
        self.connection.data_received(data)

    def frames(self):
        return [bytes(each) for each in self.connection._frames]

    def state(self):
        each = self.connection
        return each.missing_bytes, each.held_bytes, each.held_since, each.active_at

    async def answer(self, held=None):
        """Handle the next request; `held` is called while it is handled."""

        async def handle(frame):
            self.handled = bytes(frame)
            if held is not None:
                held()

        self.connection._answer = handle
        await self.connection._answer_next()


@pytest.fixture
def rig():
    loop = asyncio.new_event_loop()
    real = loop.time

    def build(**options):
        async def built():
            return Rig(loop, **options)

        result = loop.run_until_complete(built())
        result.run = lambda coroutine: loop.run_until_complete(coroutine)
        return result

    yield build
    loop.time = real
    loop.close()


def frame(body):
    return struct.pack(">i", len(body)) + body


def test_a_new_connection_joins_the_pool_and_holds_nothing(rig):
    it = rig()
    assert it.pool.news() == ["join"]
    assert it.state() == (0, 0, 0.0, 100.0)
    assert (len(it.tasks), it.transport.calls) == (1, [])
    assert not it.connection.is_idle


def test_a_refused_connection_is_aborted_and_ignores_what_arrives(rig):
    it = rig(is_refused=True)
    assert (it.transport.calls, it.pool.news(), it.tasks) == (["abort"], [], [])
    it.receive(frame(b"abc"), 101.0)
    assert (it.state(), it.frames(), it.pool.used_bytes) == ((0, 0, 0.0, 100.0), [], 0)
    it.connection.connection_lost(None)
    assert it.ended == [it.connection]


def test_each_piece_of_a_request_counts_and_the_first_one_sets_its_time(rig):
    it = rig()
    whole = frame(bytes(1000))
    it.pool.news()
    # Until its length has arrived, a request counts as the largest.
    it.receive(whole[:1], 101.0)
    assert (it.state(), it.pool.news()) == ((10_000, 1, 101.0, 101.0), ["begin"])
    it.receive(whole[1:3], 101.5)
    assert (it.state(), it.pool.news()) == ((10_000, 3, 101.0, 101.5), [])
    it.receive(whole[3:4], 102.0)
    assert (it.state(), it.pool.news()) == ((1000, 4, 101.0, 102.0), [])
    it.receive(whole[4:404], 103.0)
    assert (it.state(), it.pool.news()) == ((600, 404, 101.0, 103.0), [])
    it.receive(whole[404:], 104.0)
    assert (it.state(), it.pool.news()) == ((0, 1004, 101.0, 104.0), ["end"])
    assert (it.frames(), it.pool.used_bytes) == ([bytes(1000)], 1004)
    assert it.connection._chunks == []
    # A second one in one piece neither begins nor ends.
    it.receive(whole, 105.0)
    assert (it.state(), it.pool.news()) == ((0, 2008, 101.0, 105.0), [])


def test_the_rest_of_a_piece_begins_a_request_of_its_own(rig):
    it = rig()
    it.pool.news()
    it.receive(frame(b"abc") + frame(b"defg")[:6], 101.0)
    assert (it.state(), it.pool.news()) == ((2, 15 - 2, 101.0, 101.0), ["begin"])
    it.receive(b"fg" + frame(b"hij")[:5], 107.0)
    assert (it.state(), it.pool.news()) == ((2, 20, 107.0, 107.0), ["end", "begin"])
    assert it.frames() == [b"abc", b"defg"]
    it.receive(b"ij", 108.0)
    assert (it.state(), it.pool.news()) == ((0, 22, 107.0, 108.0), ["end"])
    assert it.frames() == [b"abc", b"defg", b"hij"]


@pytest.mark.parametrize("piece", (1, 2, 3, 5, 4095, 4096, 4097, 9000))
def test_requests_in_pieces_of_any_size_are_the_same(rig, piece):
    it = rig()
    bodies = [bytes([each]) * size for each, size in enumerate((0, 1, 9999, 10_000, 7), 1)]
    data = b"".join(map(frame, bodies))
    for at in range(0, len(data), piece):
        it.receive(data[at : at + piece])
        assert len(it.connection._chunks) <= 4
    assert it.frames() == bodies
    assert it.pool.used_bytes == it.connection.held_bytes == len(data)


def test_small_pieces_are_joined_and_large_ones_are_not_copied(rig):
    it = rig()
    large = bytes(4096)
    for piece in (struct.pack(">i", 10_000), b"a", b"b", large, b"c", b"d", bytes(4095), b"e"):
        it.receive(piece)
    chunks = it.connection._chunks
    assert [(type(each).__name__, len(each)) for each in chunks] == [
        ("bytes", 4),
        ("bytearray", 2),
        ("bytes", 4096),
        ("bytearray", 2 + 4095 + 1),
    ]
    assert chunks[2] is large


def test_a_request_keeps_a_larger_rest_from_being_held(rig):
    it = rig()
    small, half = frame(b"abc"), frame(bytes(50))[:30]
    it.receive(small + half)
    assert it.connection._frames[0].obj == small
    it = rig()
    it.receive(small + half[:7])  # as long as the request
    assert len(it.connection._frames[0].obj) == 14


@pytest.mark.parametrize(
    ("is_authenticated", "size", "calls"),
    (
        (True, 10_000, []),
        (True, 10_001, ["abort"]),
        (True, 0, []),
        (True, -1, ["abort"]),
        (False, 500, []),
        (False, 501, ["abort"]),
    ),
)
def test_a_frame_above_the_limit_ends_the_connection(rig, is_authenticated, size, calls, caplog):
    it = rig()
    it.session.is_authenticated = is_authenticated
    it.receive(struct.pack(">i", size) + b"xy"[: max(0, size)])
    assert it.transport.calls == calls
    assert [each.getMessage() for each in caplog.records] == [
        f"h: received a frame of {size} bytes" for _ in calls
    ]
    assert it.session.is_over is it.tasks[0].is_cancelled is bool(calls)
    if calls:
        assert it.state() == (0, 0, 0.0, 100.0)
        assert it.pool.used_bytes == 0


def test_an_end_releases_what_was_held_once(rig):
    it = rig()
    it.receive(frame(b"abc") + frame(b"defg")[:6])
    assert it.pool.used_bytes == 13
    it.pool.news()
    it.connection.connection_lost(None)
    assert (it.connection.missing_bytes, it.connection.held_bytes) == (0, 0)
    assert (it.pool.used_bytes, it.pool.news(), it.frames()) == (0, ["end"], [])
    assert (it.ended, it.session.is_over) == ([it.connection], True)
    assert (it.tasks[0].is_cancelled, it.connection._chunks) == (True, [])
    it.connection.abort()
    it.receive(b"more")
    assert (it.pool.used_bytes, it.transport.calls) == (0, ["abort"])


def test_reading_stops_for_either_reason_and_resumes_without_both(rig):
    it = rig()

    def calls():
        made, it.transport.calls = it.transport.calls, []
        return made

    async def story():
        it.connection.pause_reading()
        it.connection.resume_reading()
        assert calls() == ["pause", "resume"]
        for _ in range(2):
            it.receive(frame(b"a") * 2)
            assert calls() == []
            it.receive(frame(b"a"))
            assert calls() == ["pause"]
            it.connection.pause_reading()
            it.receive(frame(b"a"))
            assert calls() == []
            for _ in range(4):
                await it.answer()
            assert calls() == []
            it.connection.resume_reading()
            assert calls() == ["resume"]
            it.connection.pause_reading()
            it.connection.pause_reading()
            assert calls() == ["pause"]
            it.receive(frame(b"a") * 3)
            it.connection.resume_reading()
            assert calls() == []
            await it.answer()
            await it.answer()
            assert calls() == []
            await it.answer()
            assert calls() == ["resume"]

    it.run(story())


def test_nothing_is_paused_or_resumed_after_the_end(rig):
    it = rig()
    it.connection.connection_lost(None)
    it.connection.pause_reading()
    assert it.transport.calls == []
    it = rig()
    it.connection.pause_reading()
    it.connection.connection_lost(None)
    it.connection.resume_reading()
    assert it.transport.calls == ["pause"]


def test_while_a_request_is_handled_its_bytes_are_held_since_its_handling_began(rig):
    it = rig()
    states = []

    def held():
        it.now = 150.0
        states.append((it.state(), it.pool.used_bytes))

    async def story():
        it.receive(frame(b"abc") + frame(b"defgh")[:5], 101.0)
        it.now = 120.0
        await it.answer(held)
        assert it.handled == b"abc"

    it.run(story())
    assert states == [((4, 12, 101.0, 101.0), 12)]
    assert (it.state(), it.pool.used_bytes) == ((4, 5, 101.0, 101.0), 5)
    it.receive(b"efgh", 160.0)
    states.clear()
    it.run(it.answer(held))
    assert it.handled == b"defgh"
    assert states == [((0, 9, 160.0, 160.0), 9)]
    assert (it.connection.held_bytes, it.pool.used_bytes) == (0, 0)


def test_bytes_are_released_if_a_request_fails(rig):
    it = rig()

    async def story():
        it.receive(frame(b"abc"))

        def fail():
            raise ValueError

        with pytest.raises(ValueError):
            await it.answer(fail)

    it.run(story())
    assert (it.connection.held_bytes, it.pool.used_bytes) == (0, 0)


def test_a_connection_is_idle_while_it_waits_and_is_not_held(rig):
    it = rig()
    seen = []

    async def story():
        task = asyncio.ensure_future(it.answer(lambda: seen.append(it.connection.is_idle)))
        await asyncio.sleep(0)
        assert it.connection.is_idle
        it.connection.pause_reading()
        assert not it.connection.is_idle
        it.connection.resume_reading()
        assert it.connection.is_idle
        it.receive(frame(b"abc"))
        it.receive(frame(b"def"))  # before the task has run
        await task
        assert (seen, it.handled) == ([False], b"abc")
        assert not it.connection.is_idle

    it.run(story())


def test_others_run_after_a_turn_of_five_milliseconds(rig):
    it = rig()
    turns = []

    async def other():
        while True:
            turns.append(it.now)
            await asyncio.sleep(0)

    async def story():
        it.receive(frame(b"a") * 9)
        task = asyncio.ensure_future(other())
        for now in (100.0, 100.005, 100.006, 100.011, 100.0115, 100.012):
            it.now = now
            await it.answer()
        first = list(turns)
        it.now = 200.0
        while it.connection._frames:
            await it.answer()
        turns.clear()
        # A wait for a request begins a new turn.
        waits = asyncio.ensure_future(it.answer())
        await asyncio.sleep(0)
        it.receive(frame(b"a") * 2, 300.0)
        await waits
        count = len(turns)
        it.now = 300.005
        await it.answer()
        assert len(turns) == count
        task.cancel()
        return first

    assert it.run(story()) == [100.006, 100.0115]


@pytest.mark.parametrize(
    ("sizes", "written"),
    (((1, 65_535), [65_536]), ((2, 65_535), [2, 65_535]), ((65_537,), [65_537])),
)
def test_small_buffers_are_joined_and_sending_is_activity(rig, sizes, written):
    it = rig()
    it.now = 107.0
    it.connection._send([bytes(each) for each in sizes])
    assert [len(each) for each in it.transport.written] == written
    assert it.connection.active_at == 107.0
    it.transport.close()
    it.now = 108.0
    it.connection._send([b"x"])
    assert (len(it.transport.written), it.connection.active_at) == (len(written), 107.0)


def test_a_client_that_reads_again_is_active(rig):
    it = rig()
    it.connection.pause_writing()
    assert it.connection._can_write is False
    it.now = 109.0
    it.connection.resume_writing()
    assert (it.connection._can_write, it.connection.active_at) == (True, 109.0)

    async def story():
        waiter = it.connection._drain_waiter = asyncio.get_running_loop().create_future()
        it.connection.resume_writing()
        assert waiter.done()
        it.connection.resume_writing()

    it.run(story())
