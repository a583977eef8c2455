"""A clock that is moved from the page: to a time, by a duration, to the next event."""

import threading

import pytest

from logstore import Acl, Authorizer, Broker, VirtualClock
from logstore.runtime.clock import VIRTUAL_EPOCH_MS, FixedWallClock
from logstore.ui import locks
from logstore.ui.api import clock as clock_api
from tests.support.browser.front import Front
from tests.support.world.page import Asked

HOUR_MS = 3_600_000


@pytest.fixture
def living(monkeypatch):
    """A broker with background work in virtual time; a move takes as long as it takes."""
    monkeypatch.setattr(clock_api, "MOVE_MS", 10**9)
    with Broker(clock=VirtualClock(), seed=1, background=True) as broker, Asked(broker) as page:
        broker.create_topic("clicks", configs={"retention.ms": "1h", "segment.ms": "10m"})
        broker.append("clicks", value=b"old")
        yield page


def test_time_is_moved_and_what_falls_due_is_done(living):
    broker = living.context.broker
    told = living.get("/api/clock")
    assert (told["kind"], told["now_ms"]) == ("virtual", VIRTUAL_EPOCH_MS)
    assert told["next_event_ms"] == broker.clock.next_event_ms()
    moved = living.post("/api/clock", {"by_ms": 2 * HOUR_MS}).json
    assert moved["is_done"] is True
    assert moved["now_ms"] == moved["to_ms"] == VIRTUAL_EPOCH_MS + 2 * HOUR_MS
    assert moved["steps"] > 10
    assert list(broker.read("clicks")) == []  # retention ran on the way
    moved = living.post("/api/clock", {"to_ms": VIRTUAL_EPOCH_MS + 3 * HOUR_MS}).json
    assert moved["now_ms"] == living.get("/api/clock")["now_ms"] == VIRTUAL_EPOCH_MS + 3 * HOUR_MS
    again = living.post("/api/clock", {"to_ms": moved["now_ms"]}).json
    assert (again["is_done"], again["steps"]) == (True, 0)


def test_the_next_event_is_one_moment(living):
    expected = living.get("/api/clock")["next_event_ms"]
    moved = living.post("/api/clock", {"next_event": True}).json
    assert (moved["now_ms"], moved["steps"], moved["is_done"]) == (expected, 1, True)
    assert moved["next_event_ms"] > expected


def test_nothing_is_due_of_a_broker_without_background(page):
    moved = page.post("/api/clock", {"next_event": True}).json
    assert (moved["now_ms"], moved["steps"]) == (VIRTUAL_EPOCH_MS, 0)
    assert moved["next_event_ms"] is None
    moved = page.post("/api/clock", {"by_ms": 1}).json
    assert moved["now_ms"] == VIRTUAL_EPOCH_MS + 1


def test_a_long_move_is_answered_with_how_far_it_came(living, monkeypatch):
    """The time limit is zero here, so that each request takes one step."""
    monkeypatch.setattr(clock_api, "MOVE_MS", 0)
    to_ms = VIRTUAL_EPOCH_MS + HOUR_MS
    before, answers = VIRTUAL_EPOCH_MS, []
    while not answers or not answers[-1]["is_done"]:
        answers.append(living.post("/api/clock", {"to_ms": to_ms}).json)
        assert before <= answers[-1]["now_ms"] <= to_ms
        before = answers[-1]["now_ms"]
    assert len(answers) > 3
    assert all(each["to_ms"] == to_ms for each in answers)
    assert living.context.broker.clock.now_ms() == to_ms


def test_concurrent_clock_moves_are_serialized(living, monkeypatch):
    """Each span is walked in full, and no event is passed over or done twice."""
    monkeypatch.setattr(locks, "WAIT_S", 100_000.0)  # however slow the machine is
    runs = []
    broker = living.context.broker
    scheduler = broker.runtime.scheduler
    scheduler.schedule("tick", lambda: runs.append(broker.clock.now_ms()), period_ms=60_000)
    answers = []

    def move():
        answers.extend(living.post("/api/clock", {"by_ms": HOUR_MS}).json for _ in range(3))

    threads = [threading.Thread(target=move) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert broker.clock.now_ms() == VIRTUAL_EPOCH_MS + 12 * HOUR_MS
    assert sorted(each["now_ms"] for each in answers) == [
        VIRTUAL_EPOCH_MS + hours * HOUR_MS for hours in range(1, 13)
    ]
    assert runs == [VIRTUAL_EPOCH_MS + minutes * 60_000 for minutes in range(12 * 60 + 1)]


def test_the_machine_s_clock_moves_by_itself():
    with Broker() as broker, Asked(broker) as page:
        assert page.get("/api/clock")["kind"] == "system"
        refused = page.post("/api/clock", {"by_ms": 1})
        assert refused.status == 409
        assert refused.json["error"]["type"] == "ClockError"
        assert "only a virtual clock" in refused.json["error"]["message"]


def test_the_time_of_a_copied_directory_can_be_fixed(tmp_path, node):
    Broker(tmp_path / "logs").close()
    clock = FixedWallClock(VIRTUAL_EPOCH_MS)
    with Broker(tmp_path / "logs", read_only=True, clock=clock) as broker, Asked(broker) as page:
        about = page.get("/api/about")
    assert (about["clock"]["kind"], about["clock"]["now_ms"]) == ("fixed", VIRTUAL_EPOCH_MS)
    with Front(node, tmp_path) as own:
        lines = own.run(
            """async (world, clock) => {
                const root = await world.show("clock.js", "FixedTime", { clock });
                return root.childNodes.flatMap((each) => each.outline());
            }""",
            about["clock"],
        )
    assert lines[:2] == ["span", '  "Fixed time "']
    assert any("2024-01-01" in line for line in lines)


def test_time_is_moved_by_whom_it_is_allowed(broker):
    authorizer = Authorizer()
    with Asked(broker, authorizer, "User:ann") as page:
        assert page.post("/api/clock", {"by_ms": 1}).status == 403
        authorizer.add(Acl("User:ann", "alter", "cluster", "kafka-cluster"))
        assert page.post("/api/clock", {"by_ms": 1}).status == 200
