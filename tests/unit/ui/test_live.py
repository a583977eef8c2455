"""Events are sent as they happen, coalesced, to authorized clients; slow readers miss some."""

import asyncio
import json
from types import SimpleNamespace
from unittest.mock import ANY, Mock

import pytest

from logstore import Acl, Authorizer, Broker, TopicPartition, VirtualClock
from logstore.analysis.verdict import partition_verdict
from logstore.errors import KafkaStorageError
from logstore.ui import live as live_module
from logstore.ui.live import CLEANED_MAX, READERS_MAX, SAMPLE_S, Reader
from tests.support.world.page import Asked


class Along:
    """A reader along, looked at between ticks of the loop; time plays no part."""

    def __init__(self, page, sees=lambda topic: True):
        self.page = page
        self.sees = sees

    def __enter__(self):
        self.reader = self.page.call(self._begin())
        self.first = self.news()
        return self

    async def _begin(self):
        return self.page.context.live.connect(self.sees)

    def __exit__(self, *_):
        self.page.context.live.disconnect(self.reader)

    def news(self):
        """The events of one more check, as (event, data)."""
        return self.page.call(self._looked())

    async def _looked(self):
        await self.page.context.live.poll_once()
        return parsed("".join(self.reader._take_events()))


def parsed(text):
    events = []
    for block in text.split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line)
        if "event" in lines:
            events.append((lines["event"], json.loads(lines["data"])))
    return events


def names(events):
    return [
        (each["topic"], each["partition"])
        for event, data in events
        if event == "partitions"
        for each in data["partitions"]
    ]


def test_changed_partitions_are_reported_once_per_check(page, broker):
    with Along(page) as along:
        assert along.news() == []
        for _ in range(5):
            broker.append("users", key=b"a", value=b"b")
        assert names(along.news()) == [("users", 0)]
        assert along.news() == []
        broker.append("events", value=b"b", partition=0)
        broker.append("users", key=b"a", value=b"b")
        assert names(along.news()) == [("events", 0), ("users", 0)]


@pytest.mark.parametrize(
    ("change", "changed"),
    (
        (lambda broker: broker.roll("users"), [("users", 0)]),
        (lambda broker: broker.create_topic("new"), [("new", 0)]),
        (lambda broker: broker.delete_topic("events"), [("events", 0), ("events", 1)]),
        (lambda broker: broker.alter_configs("users", {"retention.ms": "1"}), [("users", 0)]),
        (
            lambda broker: broker.cleaner.uncleanable_partitions.add(
                broker.partitions("users")[0], OSError("x")
            ),
            None,  # not reported before the first event
        ),
    ),
    ids=("roll", "create", "delete", "alter", "mark"),
)
def test_every_change_of_a_row_is_reported(page, broker, change, changed):
    for tp in broker.partitions():
        broker.log(tp)
    with Along(page) as along:
        change(broker)
        if changed is None:
            broker.cleaner.changed.emit()
            changed = [("users", 0)]
        assert names(along.news()) == changed


def test_the_end_of_every_pass_is_reported(page, broker):
    with Along(page) as along:
        report = broker.clean("users", force=True)
        told = dict(along.news())["cleaned"]
        assert told == report.cleaned[0].to_json() | {"at_ms": broker.clock.now_ms()}
        ended_ms = broker.clock.now_ms()
        broker.clean("users", force=True)
        broker.clock.advance(days=1)  # before anybody looks
        assert dict(along.news())["cleaned"]["at_ms"] == ended_ms
        assert broker.clean("users", force=True, dry_run=True).cleaned
        assert "cleaned" not in dict(along.news())
    assert len(page.get("/api/history")["cleanings"]) == 2


def test_progress_is_reported_during_a_pass(page, broker):
    seen = []
    with Along(page) as along:
        broker.clean("users", force=True, progress=lambda *_: seen.append(along.news()))
        steps = [data["under_way"] for news in seen for event, data in news if event == "cleaning"]
        assert [(s["topic"], s["phase"]) for (s,) in steps] == [
            ("users", "map"),
            ("users", "rewrite"),
        ]
        assert ("cleaning", {"under_way": []}) in along.news()


def test_virtual_time_notifies_listeners_when_it_moves(page, broker):
    with Along(page) as along:
        broker.clock.advance(days=1)
        ((event, clock),) = along.news()
        assert (event, clock["now_ms"]) == ("clock", broker.clock.now_ms())
        assert along.news() == []


def test_a_reader_sees_only_topics_it_may_describe(page, broker):
    with Along(page, sees=lambda topic: topic == "events") as along:
        broker.append("users", key=b"a", value=b"b")
        broker.clean("users", force=True)
        assert along.news() == []
        broker.append("events", value=b"b")
        assert [topic for topic, _ in names(along.news())] == ["events"]


def test_a_new_reader_gets_the_state_of_the_clock_and_real_time_only_once():
    with Broker() as broker, Asked(broker) as page, Along(page) as along:
        assert along.first == [("clock", ANY), ("cleaning", {"under_way": []})]
        assert along.first[0][1] | {"now_ms": 0} == {
            "kind": "system",
            "now_ms": 0,
            "next_event_ms": None,
            "next_event": None,
        }
        start_ms = broker.clock.now_ms()
        while broker.clock.now_ms() < start_ms + 2:
            assert along.news() == []


def test_changes_are_reported_after_a_failure_to_read_them(page, broker, monkeypatch):
    with Along(page) as along:
        for failure in (KafkaStorageError("x"), OSError("x")):
            broker.append("users", key=b"a", value=b"b")
            with monkeypatch.context() as patched:
                patched.setattr(live_module, "_versions", Mock(side_effect=failure))
                assert along.news() == []
            broker.append("events", value=b"b", partition=1)
            assert names(along.news()) == [("events", 1), ("users", 0)]


def test_a_slow_reader_has_what_is_new_once_and_holds_no_more(page, broker):
    with Along(page) as along:
        live = page.context.live
        stats = broker.clean("users", force=True).cleaned[0]

        async def tick_often():
            for _ in range(CLEANED_MAX + 5):
                broker.append("users", key=b"a", value=b"b")
                broker.clock.advance(seconds=1)
                live._ended.append((stats, 0))
                await live.poll_once()

        page.call(tick_often())
        told = [event for event, _ in along.news()]
        assert told.count("cleaned") == CLEANED_MAX
        assert told.count("partitions") == told.count("clock") == 1


def test_unobserved_changes_are_not_recorded(page, broker, monkeypatch):
    asked = []
    monkeypatch.setattr("logstore.ui.live._versions", asked.append)
    page.call(page.context.live.poll_once())
    broker.append("users", key=b"a", value=b"b")
    page.call(page.context.live.poll_once())
    assert asked == []


def test_a_first_reader_receives_no_earlier_changes(page, broker):
    with Along(page):
        pass
    broker.append("users", key=b"k", value=b"v")  # while nobody reads along
    with Along(page) as along:
        assert names(along.first) == []
        assert along.news() == []
        broker.append("users", key=b"k", value=b"w")
        assert names(along.news()) == [("users", 0)]


def test_readers_are_bounded(page):
    async def many():
        live = page.context.live
        readers = [live.connect(bool) for _ in range(READERS_MAX + 1)]
        for reader in readers[:-1]:
            live.disconnect(reader)
        return readers[-1]

    assert page.call(many()) is None


def test_a_stream_ends_with_the_page(page):
    async def to_the_end():
        reader = page.context.live.connect(bool)
        texts = reader.texts()
        first = await anext(texts)
        page.context.live.close()
        rest = [text async for text in texts]
        return first + b"".join(rest)

    text = page.call(to_the_end())
    assert text.startswith(b"retry: ")


def test_the_event_stream_over_http_has_what_is_seen_by_its_principal(broker):
    authorizer = Authorizer([Acl("User:ann", "describe", "topic", "events")])
    with Asked(broker, authorizer, "User:ann") as page:
        sent = []

        async def stream():
            left = asyncio.Event()

            async def receive():
                await left.wait()
                return {"type": "http.disconnect"}

            async def send(message):
                sent.append(message)
                if b"event: partitions" in message.get("body", b""):
                    left.set()

            async def happen():
                live = page.context.live
                while not left.is_set():
                    broker.append("users", key=b"a", value=b"b")
                    broker.append("events", value=b"b", partition=0)
                    await live.poll_once()
                    await asyncio.sleep(0)

            happening = asyncio.ensure_future(happen())
            await page.app(page.scope("GET", "/api/events"), receive, send)
            await happening

        page.call(stream())
        assert dict(sent[0]["headers"])[b"content-type"].startswith(b"text/event-stream")
        text = b"".join(message.get("body", b"") for message in sent).decode()
        assert set(names(parsed(text))) == {("events", 0)}
        assert page.context.live._readers == set()


def test_a_copied_directory_has_only_measured_data(tmp_path):
    with Broker(tmp_path) as broker:
        broker.create_topic("users", 2)
        broker.append("users", value=b"b", partition=1)
    with Broker(tmp_path, read_only=True) as broker, Asked(broker) as page, Along(page) as along:
        page.get("/api/partitions")
        told = set()
        while told < {("users", 0), ("users", 1)}:  # they are measured in another thread
            told.update(names(along.news()))


def test_time_that_passes_in_the_main_thread_waits_for_no_page():
    """The test's thread runs the broker; the page's threads look at it meanwhile."""
    with Broker(clock=VirtualClock(), background=True) as broker, Asked(broker) as page:
        broker.create_topic("users", 1, {"cleanup.policy": "compact", "segment.bytes": "1KiB"})
        with Along(page) as along:
            for _ in range(20):
                broker.append_many("users", [(b"%d" % (n % 5), b"v" * 50) for n in range(20)])
                broker.clock.advance(minutes=1)
                assert page.get("/api/cleaner")["enabled"] is True
                along.news()
        assert page.get("/api/history?topic=users&partition=0")["cleanings"]


def test_a_reader_takes_each_event_once_and_states_first():
    reader = Reader(lambda topic: topic != "hidden")
    reader.add_partitions([TopicPartition("hidden", 0)])
    reader.add_cleaned({"topic": "hidden"})
    assert not reader._woken.is_set()
    reader.add_partitions([TopicPartition("b", 1), TopicPartition("a", 0), TopicPartition("b", 1)])
    reader.add_cleaned({"topic": "a", "n": 1})
    reader.add_cleaned({"topic": "a", "n": 2})
    reader.set_state("clock", {"now_ms": 1})
    reader.set_state("clock", {"now_ms": 2})
    reader.set_cleaning([{"topic": "hidden"}, {"topic": "a"}])
    assert reader._woken.is_set()
    assert "".join(reader._take_events()) == (
        'event: clock\ndata: {"now_ms":2}\n\n'
        'event: cleaning\ndata: {"under_way":[{"topic":"a"}]}\n\n'
        'event: cleaned\ndata: {"topic":"a","n":1}\n\n'
        'event: cleaned\ndata: {"topic":"a","n":2}\n\n'
        'event: partitions\ndata: {"partitions":[{"topic":"b","partition":1},'
        '{"topic":"a","partition":0}]}\n\n'
    )
    assert list(reader._take_events()) == []


def test_an_idle_stream_gets_comments(page, monkeypatch):
    monkeypatch.setattr(live_module, "KEEPALIVE_S", 0.0)

    async def begin():
        texts = Reader(bool).texts()
        return [await anext(texts) for _ in range(3)]

    assert page.call(begin()) == [b"retry: 1000\n\n", b": nothing new\n\n", b": nothing new\n\n"]


def test_curves_are_sampled_at_intervals_and_with_no_reader(page, monkeypatch):
    samples = []
    live = page.context.live
    now_s = [100.0]
    monkeypatch.setattr(live.history, "sample", lambda: samples.append(now_s[0]))
    monkeypatch.setattr(
        live_module.asyncio, "get_running_loop", lambda: SimpleNamespace(time=lambda: now_s[0])
    )
    for at_s in (100.0, 100.0 + SAMPLE_S - 0.1, 100.0 + SAMPLE_S, 101.0 + SAMPLE_S):
        now_s[0] = at_s
        asyncio.run(_ticked(live))
    assert samples == [100.0, 100.0 + SAMPLE_S]


async def _ticked(live):
    async def ask(question):
        return question()

    live._loops, loops = SimpleNamespace(blocking=ask), live._loops
    try:
        await live.poll_once()
    finally:
        live._loops = loops


def test_too_many_readers_are_refused(page, monkeypatch):
    monkeypatch.setattr(live_module, "READERS_MAX", 0)
    refused = page.ask("GET", "/api/events")
    assert (refused.status, refused.json["error"]) == (
        503,
        {
            "type": "TooManyClientsError",
            "message": "too many clients of the event stream",
        },
    )
    assert page.ask("GET", "/api/events?x=1").status == 400


def test_measured_partitions_are_forgotten_with_no_reader(page, broker):
    live = page.context.live
    live.note_measured(broker.partitions("users")[0])
    page.call(live.poll_once())
    with Along(page) as along:
        assert names(along.first) == []
        live.note_measured(broker.partitions("users")[0])
        assert names(along.news()) == [("users", 0)]
        assert along.news() == []


def test_a_change_during_the_look_at_versions_is_for_the_next_event(page, broker, monkeypatch):
    read, appends = live_module._versions, iter((True,))

    def read_then_append(each):
        versions = read(each)
        if next(appends, False):
            broker.append("users", key=b"k", value=b"2")
        return versions

    with Along(page) as along:
        assert along.news() == []
        monkeypatch.setattr(live_module, "_versions", read_then_append)
        broker.append("events", value=b"1", partition=0)
        assert names(along.news()) == [("events", 0)]
        assert names(along.news()) == [("users", 0)]
        assert along.news() == []


def test_nothing_is_noted_after_the_end(page, broker):
    live = page.context.live
    live.close()
    broker.clean("users", force=True)
    assert list(live._ended) == []


def test_the_progress_of_a_dry_run_is_sent_to_clients_that_may_see_its_topic(page, broker):
    tp = TopicPartition("users", 0)
    steps = []
    live = page.context.live
    with Along(page) as along, Along(page, lambda topic: False) as blind:
        with live.dry_run(tp) as progress:
            partition_verdict(
                broker, tp, exact=True, progress=lambda *step: steps.append(step) or progress(*step)
            )
            assert steps
            [(event, data)] = along.news()
            assert event == "measuring"
            assert data["under_way"] == [{**tp._asdict(), **steps[-1][1]._asdict()}]
        assert along.news() == [("measuring", {"under_way": []})]
        assert blind.news() == [("measuring", {"under_way": []})]
