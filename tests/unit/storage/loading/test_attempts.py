"""How often a view is loaded, when, and which files it holds open."""

import logging
from types import SimpleNamespace

import pytest

from logstore.errors import CorruptRecordError, KafkaStorageError
from logstore.runtime import MemoryFileSystem, VirtualClock
from logstore.storage.loading import views
from logstore.storage.loading.views import Views, pause_after


class Files:
    """An overlay that notes which files are held, and how often a folder was read again."""

    def __init__(self, clock, missing=()):
        self.base = MemoryFileSystem(clock)
        self.base.make_dirs("/p")
        self.missing, self.held, self.calls = missing, [], []

    def refresh(self, folder):
        self.calls.append(f"refresh {folder}")

    def exists(self, path):
        return path not in self.missing

    def pin(self, path):
        self.held.append(path)

    def unpin(self, path):
        self.held.remove(path)


def log_of(*names, actions=()):
    index = [SimpleNamespace(path=f"{name}.{kind}") for name in names for kind in "xyz"]
    segments = [
        SimpleNamespace(
            log_path=name,
            offset_index=index[3 * n],
            time_index=index[3 * n + 1],
            txn_index=index[3 * n + 2],
        )
        for n, name in enumerate(names)
    ]
    log = SimpleNamespace(segments=segments, closed=0)
    log.findings = tuple(SimpleNamespace(action=action) for action in actions)
    log.close = lambda: setattr(log, "closed", log.closed + 1)
    return log


@pytest.fixture
def scene():
    clock = VirtualClock(1_000_000)
    fs = Files(clock)
    writer = [1]
    found = Views(fs, clock, lambda: writer[0], lambda: fs.calls.append("again"))
    return SimpleNamespace(clock=clock, fs=fs, writer=writer, views=found)


@pytest.mark.parametrize(("attempt", "pause_ms"), ((1, 5), (2, 10), (3, 20), (8, 640)))
def test_each_pause_is_twice_as_long(attempt, pause_ms):
    clock = VirtualClock(1_000_000)
    pause_after(attempt, clock)
    assert clock.now_ms() == 1_000_000 + pause_ms


def test_a_view_is_loaded_until_it_is_consistent(scene, caplog):
    caplog.set_level(logging.INFO)
    damaged = log_of("a", actions=("removed_leftover", "truncated_tail"))
    sound = log_of("b", actions=("removed_leftover", "rebuilt_index"))
    results, levels = [CorruptRecordError("torn", path="/p/0.log"), damaged, sound], []

    def load(level):
        levels.append(level)
        result = results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result

    assert scene.views.take("/p", load) is sound
    assert levels == [logging.INFO] * 3
    assert (damaged.closed, sound.closed, sound.findings) == (1, 0, ())
    assert scene.clock.now_ms() == 1_000_000 + 5 + 10
    once = ["refresh /p", "refresh /p", "again"]
    assert scene.fs.calls == [*once, *once, "refresh /p"]
    assert scene.fs.held == ["b", "b.x", "b.y", "b.z"]
    [message] = caplog.messages
    assert message.startswith("/p: attempt 1: ")
    assert "torn" in message


def test_the_last_attempt_counts_whatever_it_finds(scene):
    last = log_of("c", actions=("truncated_tail",))
    levels = []

    def load(level):
        levels.append(level)
        raise KafkaStorageError("still changing")

    assert scene.views.take("/p", load, lambda level: levels.append(level) or last) is last
    assert levels == [logging.INFO] * 8 + [logging.WARNING]
    assert scene.clock.now_ms() == 1_000_000 + 5 * (2**8 - 1)
    assert len(last.findings) == 1

    def fail(_):
        raise FileNotFoundError(2, "gone")

    with pytest.raises(KafkaStorageError) as caught:
        scene.views.take("/p", fail)
    assert str(caught.value) == (
        "/p: another process changed it during each of 9 attempts to read it; try again"
        " ([Errno 2] gone)"
    )


def test_without_a_writer_the_first_attempt_is_the_last(scene):
    scene.writer[0] = None
    levels = []
    log = log_of("a", actions=("truncated_tail",))
    assert scene.views.take("/p", lambda level: levels.append(level) or log) is log
    assert (levels, scene.fs.calls, scene.fs.held) == ([logging.WARNING], [], [])


def test_the_oldest_files_are_closed_above_the_limit(scene, monkeypatch):
    monkeypatch.setattr(views, "HELD_FILES_MAX", 6)
    scene.fs.missing = {"a.y", "b.z"}
    scene.views.take("/p", lambda _: log_of("a", "b"))
    assert scene.fs.held == ["a", "a.x", "a.z", "b", "b.x", "b.y"]
    scene.views.take("/p", lambda _: log_of("c"))
    assert scene.fs.held == ["b.x", "b.y", "c", "c.x", "c.y", "c.z"]
