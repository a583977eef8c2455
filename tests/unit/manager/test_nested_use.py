"""Changes of topics by a listener of a log, and the holders that release partitions."""

import pytest

from logstore.config.dynamic import Layer
from logstore.errors import IllegalStateError
from logstore.manager.services import LogServices
from logstore.runtime import MemoryFileSystem, VirtualClock
from logstore.types import TopicPartition
from tests.support.world.data_home import Home, fill

A0 = TopicPartition("a", 0)
KEY = "log.retention.ms"

ACTIONS = {
    "alter": lambda manager: manager.topics.alter("a", {"retention.ms": 5}),
    "delete": lambda manager: manager.topics.delete("a"),
    "reconfigure": lambda manager: manager.topics.reconfigure({KEY: 5}),
    "replace": lambda manager: manager.topics.replace_settings({KEY: "5"}, Layer.CLUSTER),
    "close": lambda manager: manager.close(),
}


@pytest.fixture
def manager():
    clock = VirtualClock()
    manager = Home(MemoryFileSystem(clock), "/data", clock).open()
    for name in "ab":
        manager.topics.create(name, 1, {})
        fill(manager.log(TopicPartition(name, 0)), 1)
    yield manager
    manager.close()


class Holder:
    """A holder that notes its calls; `busy` names the call that it refuses."""

    def __init__(self, name, calls, busy=None):
        self.name, self.calls, self.busy = name, calls, busy

    def _note(self, call, topic_partition):
        self.calls.append(f"{call} {self.name} {topic_partition}")
        if call == self.busy:
            raise IllegalStateError("would wait for itself")

    def check_pausable(self, topic_partition):
        self._note("check", topic_partition)

    def pause(self, topic_partition):
        self._note("pause", topic_partition)

    def try_pause(self, topic_partition):
        self.calls.append(f"try {self.name} {topic_partition}")
        return self.busy != "try"

    def resume(self, topic_partition):
        self._note("resume", topic_partition)


@pytest.mark.parametrize("name", ACTIONS)
def test_a_change_inside_a_change_of_a_log_is_refused_before_anything_happens(manager, name):
    changes = []
    manager.services.events.config_changed.subscribe(changes.append)
    log = manager.log(A0)
    stored = manager.catalog.topic("a")
    with pytest.raises(IllegalStateError, match=r"^a-0 cannot be changed by a signal handler"):
        log.change(lambda: ACTIONS[name](manager))
    assert (changes, manager.lifetime.is_over, log.lifetime.is_over) == ([], False, False)
    assert manager.catalog.topic("a") == stored
    assert manager.catalog.config("a").retention_ms == 7 * 24 * 3_600_000
    assert [manager.catalog.store.settings(layer) for layer in Layer] == [{}] * len(Layer)
    fill(log, 1)
    assert log.log_end_offset == 2


@pytest.mark.parametrize("name", ("alter", "delete"))
def test_a_change_that_a_holder_would_wait_for_is_refused(manager, name):
    calls = []
    manager.services.add_holder(Holder("h", calls, "check"))
    with pytest.raises(IllegalStateError, match="would wait for itself"):
        ACTIONS[name](manager)
    assert calls == ["check h a-0"]
    assert manager.catalog.config("a").retention_ms == 7 * 24 * 3_600_000
    assert manager.log(A0).log_end_offset == 1


def test_settings_that_are_in_force_are_not_stored_again(manager):
    events, changes = [], []
    manager.services.events.reconfigured.subscribe(events.append)
    manager.services.events.config_changed.subscribe(changes.append)
    manager.topics.replace_settings({}, Layer.CLUSTER)
    assert (events, changes) == ([], [])
    manager.topics.replace_settings({KEY: "7"}, Layer.CLUSTER)
    manager.topics.replace_settings({KEY: "7"}, Layer.CLUSTER)
    assert events == [manager.catalog.broker_config]
    assert changes == ["a", "b"]
    assert manager.catalog.config("a").retention_ms == 7
    assert manager.log(A0).config.retention_ms == 7
    assert manager.catalog.store.settings(Layer.CLUSTER) == {KEY: "7"}
    manager.topics.replace_settings({}, Layer.CLUSTER)
    assert manager.catalog.store.settings(Layer.CLUSTER) == {}
    assert manager.log(A0).config.retention_ms == 7 * 24 * 3_600_000


def services(*busy):
    calls, found = [], LogServices()
    for number, each in enumerate(busy):
        found.add_holder(Holder(str(number), calls, each))
    return found, calls


def test_paused_holders_resume_in_reverse_order():
    found, calls = services(None, None)
    with found.paused(A0):
        calls.append("work")
    assert calls == ["pause 0 a-0", "pause 1 a-0", "work", "resume 1 a-0", "resume 0 a-0"]
    calls.clear()
    with pytest.raises(ZeroDivisionError), found.paused(A0):
        1 / 0  # noqa: B018
    assert calls == ["pause 0 a-0", "pause 1 a-0", "resume 1 a-0", "resume 0 a-0"]


def test_only_holders_that_were_paused_resume():
    found, calls = services(None, "pause", None)
    with pytest.raises(IllegalStateError), found.paused(A0):
        calls.append("work")
    assert calls == ["pause 0 a-0", "pause 1 a-0", "resume 0 a-0"]


@pytest.mark.parametrize(
    ("busy", "is_idle", "calls"),
    (
        ((), True, []),
        (
            (None, None),
            True,
            ["try 0 a-0", "try 1 a-0", "work", "resume 1 a-0", "resume 0 a-0"],
        ),
        ((None, "try", None), False, ["try 0 a-0", "try 1 a-0", "work", "resume 0 a-0"]),
        (("try", None), False, ["try 0 a-0", "work"]),
    ),
)
def test_a_partition_is_paused_only_if_every_holder_is_idle(busy, is_idle, calls):
    found, made = services(*busy)
    with found.paused_if_idle(A0) as paused:
        made.append("work")
    assert paused is is_idle
    assert made == (calls or ["work"])
