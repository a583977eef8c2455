"""The harness over the wire with fake brokers: outcomes, tables, options and rounds."""

from types import SimpleNamespace
from typing import ClassVar

import pytest
from confluent_kafka import KafkaError, KafkaException

from logstore.bench.rivals.kafka import Unavailable
from logstore.bench.wire import __main__ as wire
from logstore.bench.wire import conformance
from logstore.bench.wire.conformance import CHECKS, PAST_MS, YES, ReceivedRecord, check_conformance
from logstore.bench.wire.measuring import Shape
from logstore.bench.wire.result import FIGURES, Result, Side, lines, read_result

ALL_APIS = {19, 21, 24}

CLEAN = [
    ReceivedRecord(2, "a", "new"),
    ReceivedRecord(3, "gone", None),
    ReceivedRecord(4, "long gone", None),
    ReceivedRecord(5, "b", "new"),
    ReceivedRecord(7, "c", "new"),
]
BEFORE = [ReceivedRecord(0, "k", "kept")]
AFTER = [*BEFORE, ReceivedRecord(4, "k", "open"), ReceivedRecord(6, "k", "behind it")]


class FakeClient:
    """A broker that answers as Kafka does, except for the replaced answers."""

    patience_s = 7.4

    def __init__(self, **answers):
        self.calls = []
        self.answers = {
            "compacted": CLEAN,
            "expiring": [],
            "booked": iter((BEFORE, AFTER)),
            "old": [ReceivedRecord(6, "k", "6")],
            "low": {"compacted": 0, "old": 6},
            "deleted": 6,
            **answers,
        }
        self.admin = SimpleNamespace(delete_records=self.delete)

    def create(self, topic, configs):
        self.calls.append(("create", topic, configs))

    def touch(self, topic):
        self.calls.append(("touch", topic))

    def write(self, topic, key, value, *when):
        self.calls.append((topic, key, value, *when))

    def wait_for(self, topic, is_met):
        records = self.answers[topic]
        self.calls.append(("waited", topic, is_met(records)))
        return records

    def read(self, topic, isolation="read_uncommitted"):
        self.calls.append(("read", topic, isolation))
        answer = self.answers[topic]
        return next(answer) if topic == "booked" else answer

    def offset(self, topic, spec):
        return self.answers["low"][topic]

    def delete(self, partitions):
        places = [(each.topic, each.partition, each.offset) for each in partitions]
        self.calls.append(("delete", places))
        if isinstance(self.answers["deleted"], Exception):
            raise self.answers["deleted"]
        deleted = SimpleNamespace(low_watermark=self.answers["deleted"])
        return {"old": SimpleNamespace(result=lambda timeout: deleted)}

    def producer(self, **configs):
        def note(name):
            return lambda *arguments: self.calls.append((name, *arguments))

        self.calls.append(("producer", configs))
        names = ("init", "begin", "commit", "abort")
        return SimpleNamespace(
            produce=note("produce"),
            flush=lambda timeout: None,
            **{f"{n}_transaction" + "s" * (n == "init"): note(n) for n in names},
        )


def outcomes(monkeypatch, apis=ALL_APIS, **answers):
    client = FakeClient(**answers)
    monkeypatch.setattr(conformance, "_Client", lambda bootstrap, patience_s: client)
    monkeypatch.setattr(conformance.time, "time", lambda: 10_000_000.5)
    return check_conformance("host:1", apis, patience_s=7.4), client


def test_kafka_passes_every_check(monkeypatch):
    found, client = outcomes(monkeypatch)
    assert found == dict.fromkeys(CHECKS, YES)
    assert list(found) == list(CHECKS)
    assert client.calls == [
        ("create", "compacted", {"delete.retention.ms": "2592000000"}),
        ("compacted", "a", "old"),
        ("compacted", "gone", "old"),
        ("compacted", "a", "new"),
        ("compacted", "gone", None),
        ("compacted", "long gone", None, 10_000_000_500 - 2 * PAST_MS),
        ("compacted", "b", "new"),
        ("compacted", "c", "old"),
        ("compacted", "c", "new"),
        ("waited", "compacted", True),
        ("create", "expiring", {"delete.retention.ms": "100"}),
        ("expiring", "gone", "x"),
        ("expiring", "gone", None),
        ("waited", "expiring", True),
        ("touch", "booked"),
        ("producer", {"transactional.id": "booking"}),
        ("init", 60),
        ("begin",),
        ("produce", "booked", "kept", "k", 0),
        ("commit", 60),
        ("begin",),
        ("produce", "booked", "aborted", "k", 0),
        ("abort", 60),
        ("begin",),
        ("produce", "booked", "open", "k", 0),
        ("booked", "k", "behind it"),
        ("read", "booked", "read_committed"),
        ("commit", 60),
        ("read", "booked", "read_committed"),
        ("touch", "old"),
        *(("old", "k", str(number)) for number in range(10)),
        ("delete", [("old", 0, 6)]),
        ("read", "old", "read_uncommitted"),
    ]


NOT_CLEAN = dict.fromkeys(("holes", "log_start", "tombstone_kept", "horizon"), "no: not cleaned")
SEEN = [ReceivedRecord(1, "k", "open"), ReceivedRecord(2, "k", "behind it")]


@pytest.mark.parametrize(
    ("answers", "deviations"),
    (
        (
            {"compacted": [ReceivedRecord(0, "a", "old"), *CLEAN]},
            {"duplicates": "no: not after 7 s", **NOT_CLEAN},
        ),
        ({"compacted": CLEAN[1:]}, {"holes": "no: [(5, 'b'), (7, 'c')]"}),
        ({"low": {"compacted": 2, "old": 6}}, {"log_start": "no: it is 2"}),
        ({"compacted": [*CLEAN[:1], *CLEAN[2:]]}, {"tombstone_kept": "no: removed at once"}),
        ({"compacted": [*CLEAN[:2], *CLEAN[3:]]}, {"horizon": "no: from the record timestamp"}),
        ({"expiring": [ReceivedRecord(1, "gone", None)]}, {"tombstone_gone": "no: not after 7 s"}),
        (
            {"booked": iter(([], AFTER))},
            {"read_committed": "no: ", "stable_offset": "no: "},
        ),
        (
            {"booked": iter(([*BEFORE, ReceivedRecord(2, "k", "aborted")], AFTER))},
            {"read_committed": "no: kept, aborted", "stable_offset": "no: kept, aborted"},
        ),
        (
            {"booked": iter((BEFORE, [*BEFORE, ReceivedRecord(2, "k", "aborted"), *AFTER[1:]]))},
            {"read_committed": "no: kept", "stable_offset": "no: kept"},
        ),
        (
            {"booked": iter((AFTER, AFTER))},
            {"stable_offset": "no: kept, open, behind it"},
        ),
        ({"booked": iter((BEFORE, AFTER[:2]))}, {"stable_offset": "no: kept"}),
        ({"deleted": 0}, {"delete_records": "no: (0, 6, 6)"}),
        ({"low": {"compacted": 0, "old": 5}}, {"delete_records": "no: (6, 5, 6)"}),
        ({"old": [ReceivedRecord(0, "k", "0")]}, {"delete_records": "no: (6, 6, 0)"}),
        (
            {"deleted": KafkaException(KafkaError(KafkaError.POLICY_VIOLATION))},
            {"delete_records": "no: POLICY_VIOLATION"},
        ),
    ),
)
def test_a_deviation_is_the_outcome_of_its_check(monkeypatch, answers, deviations):
    found, _ = outcomes(monkeypatch, **answers)
    assert found == {**dict.fromkeys(CHECKS, YES), **deviations}


@pytest.mark.parametrize(
    ("api", "names", "why"),
    (
        (
            19,
            ("duplicates", "holes", "log_start", "tombstone_kept", "horizon", "tombstone_gone"),
            "topics have no configuration",
        ),
        (24, ("read_committed", "stable_offset"), "no transactions"),
        (21, ("delete_records",), "API not served"),
    ),
)
def test_checks_of_an_api_that_is_not_served_are_not_run(monkeypatch, api, names, why):
    found, _ = outcomes(monkeypatch, ALL_APIS - {api})
    assert found == {**dict.fromkeys(CHECKS, YES), **dict.fromkeys(names, f"no: {why}")}


# --- the client -------------------------------------------------------------------------------


class FakeProducer:
    """A producer whose delivery fails if `error` is set."""

    def __init__(self, configs):
        self.configs, self.sent, self.error = configs, [], None

    def produce(self, *arguments, on_delivery, **more):
        self.sent.append((*arguments, more))
        on_delivery(self.error, None)

    def flush(self, timeout):
        self.sent.append(timeout)


@pytest.fixture
def client(monkeypatch):
    monkeypatch.setattr(conformance, "AdminClient", lambda configs: SimpleNamespace(given=configs))
    monkeypatch.setattr(conformance, "Producer", FakeProducer)
    return conformance._Client("host:1", 5.0)


def test_a_client_uses_one_server(client):
    server = {"bootstrap.servers": "host:1", "log_level": 0}
    assert client.admin.given == server
    assert client._plain.configs == {**server, "linger.ms": 0}
    assert client.producer(acks="all").configs == {**server, "acks": "all"}


def test_a_topic_is_created_with_all_its_configurations(client):
    made = []

    def create_topics(topics):
        made.extend((each.topic, each.num_partitions, each.config) for each in topics)
        return {"t": SimpleNamespace(result=made.append)}

    client.admin.create_topics = create_topics
    client.create("t", {"delete.retention.ms": "5", "segment.ms": "9"})
    configs = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
    more = {"segment.ms": "9", "delete.retention.ms": "5"}
    assert made == [("t", 1, {**configs, **more}), 60]


def test_a_record_is_written_in_its_own_batch(client):
    client.write("t", "k", "v")
    client.write("t", "k", None, 77)
    timed = {"timestamp": 77}
    assert client._plain.sent == [("t", "v", "k", 0, {}), 60, ("t", None, "k", 0, timed), 60]
    client._plain.error = KafkaError(KafkaError.POLICY_VIOLATION)
    with pytest.raises(KafkaException):
        client.write("t", "k", "v")


def test_a_client_waits_for_a_condition_until_time_is_up(client, monkeypatch):
    now = [0.0]
    written = []

    def sleep(seconds):
        now[0] += seconds

    fake = SimpleNamespace(monotonic=lambda: now[0], sleep=sleep)
    monkeypatch.setattr(conformance, "time", fake)
    monkeypatch.setattr(client, "write", lambda *each: written.append(each))
    monkeypatch.setattr(client, "read", lambda topic: [topic, len(written)])
    assert client.wait_for("t", lambda records: records[1] == 9) == ["t", 9]
    assert written == [("t", f"filler {number % 7}", "filler") for number in range(9)]
    assert now[0] == pytest.approx(9 * 0.06)
    assert client.wait_for("t", lambda records: False)[1] == 9 + 84  # of 5 s, 0.06 s each
    partitions = iter(({}, {}, {0: 1}))
    answer = SimpleNamespace(topics={"t": SimpleNamespace()})

    def list_topics(topic, timeout):
        answer.topics["t"].partitions = next(partitions)
        return answer

    client.admin.list_topics = list_topics
    now[0] = 0.0
    client.touch("t")
    assert now[0] == pytest.approx(0.1)
    partitions = iter([{}] * 10_000)
    with pytest.raises(TimeoutError, match="t"):
        client.touch("t")
    assert 60 < now[0] < 61


# --- the harness ------------------------------------------------------------------------------


class FakeRunner:
    """A broker that writes down its rounds; the one named `missing` cannot start."""

    made: ClassVar[list[str]] = []

    def __init__(self, contestant, home, shape):
        self.contestant, self.apis = contestant, {len(contestant.name)}
        self.events = FakeRunner.made

        def stop():
            self.events.append(f"stop {contestant.name}")

        self.serving = SimpleNamespace(bootstrap=f"{contestant.name}:1", stop=stop)
        self.events.append(f"make {contestant.name} {shape.messages}")

    def start(self):
        if self.contestant.name == "missing":
            raise Unavailable("it needs a JVM")

    def round(self, number):
        self.events.append(f"round {number} {self.contestant.name}")

    def samples(self):
        return {"idle_mib": [1.0], "of": self.contestant.name}


@pytest.fixture
def brokers(monkeypatch):
    FakeRunner.made = []
    names = ("one", "missing", "three")
    available = [SimpleNamespace(name=name, title=name.upper()) for name in names]
    monkeypatch.setattr(wire, "contestants", lambda: available)
    monkeypatch.setattr(wire, "Runner", FakeRunner)
    monkeypatch.setattr(
        wire,
        "check_conformance",
        lambda bootstrap, apis, patience_s: {
            **dict.fromkeys(CHECKS, YES),
            "holes": f"{bootstrap} {apis} {patience_s}",
        },
    )
    return FakeRunner.made


def test_brokers_are_measured_in_alternating_rounds(brokers, tmp_path):
    said = []
    result = wire.measure(Shape(10, 20, 2), (), 5.0, said.append, str(tmp_path))
    assert brokers == [
        *("make one 10", "make missing 10", "make three 10"),
        *(f"round {number} {name}" for number in (0, 1, 2) for name in ("one", "three")),
        *("stop three", "stop one"),
    ]
    assert said == [
        *("starting ONE", "starting MISSING", "starting THREE"),
        *(f"round {number} of 2: {name}" for number in (0, 1, 2) for name in ("ONE", "THREE")),
        *("checking conformance: ONE", "checking conformance: THREE"),
    ]
    assert result.missing == {"MISSING": "it needs a JVM"}
    assert (result.messages, result.message_bytes, result.rounds) == (10, 20, 2)
    assert result.sides == [
        Side(
            name,
            name.upper(),
            {"idle_mib": [1.0], "of": name},
            {**dict.fromkeys(CHECKS, YES), "holes": f"{name}:1 {{{len(name)}}} 5.0"},
        )
        for name in ("one", "three")
    ]
    assert list(tmp_path.iterdir()) == []


def test_only_named_brokers_are_measured(brokers):
    result = wire.measure(Shape(1, 1, 1), ("three",), 5.0, lambda text: None)
    assert [side.name for side in result.sides] == ["three"]
    assert result.missing == {}
    with pytest.raises(
        LookupError, match=r"^unknown broker a, b; the brokers are: one, missing, three$"
    ):
        wire.measure(Shape(1, 1, 1), ("b", "one", "a"), 5.0, lambda text: None)


def sides():
    truths = dict.fromkeys(CHECKS, YES)
    names = list(FIGURES)
    values = ([1234.0, 9999.0, 1236.0], [0.123], [9.99], [10.4], [999.4])
    samples = dict(zip(names, values, strict=False))
    return [Side("a", "A", samples, truths), Side("b", "B", {}, {**truths, "holes": "no: x"})]


def result_of(load, **more):
    return Result(
        made_at="2026-11-27T10:00:00+00:00",
        seconds=1.0,
        machine={"processor": "P", "cores": 4, "memory_gib": 8.0, "system": "S"},
        versions={"confluent-kafka": "2.0"},
        load=load,
        messages=500_000,
        message_bytes=100,
        rounds=3,
        sides=sides(),
        **{"missing": {"C": "no JVM"}, **more},
    )


@pytest.mark.parametrize(("load", "is_busy"), (([2.0, 9.0], False), ([2.1, 3.4], True)))
def test_a_result_is_shown_as_tables(tmp_path, load, is_busy):
    result = result_of(load)
    assert result.is_busy is is_busy
    shown = list(lines(result))
    assert shown[0] == (
        "Measured 2026-11-27 on P, 4 cores, 8.0 GiB: confluent-kafka 2.0, in a separate process,"
        " writes 500,000 messages of 100 bytes to one partition and reads them. Medians of 3"
        " alternating rounds."
    )
    busy = ["The machine was busy (load 2 to 3), so the times are longer than on an idle one."]
    assert shown[1 : 1 + is_busy] == busy * is_busy
    rows = shown[1 + is_busy :]
    assert rows[:3] == ["", "| | A | B |", "|---|--:|--:|"]
    cells = ("1,240", "0.12", "10", "10", "999")
    figures = [f"| {title}, {unit} |" for title, unit in FIGURES.values()]
    expected = [f"{head} {cell} | – |" for head, cell in zip(figures, cells, strict=False)]
    assert rows[3:8] == expected
    assert rows[8 : 3 + len(FIGURES)] == [f"{head} – | – |" for head in figures[5:]]
    checks = rows[3 + len(FIGURES) :]
    assert checks[:3] == ["", "| | A | B |", "|---|---|---|"]
    assert checks[3:-1] == [
        f"| {title} | ✓ | {'no: x' if name == 'holes' else '✓'} |" for name, title in CHECKS.items()
    ]
    assert checks[-1] == "\nWithout C: no JVM"
    result.write(tmp_path / "r.json")
    assert read_result(tmp_path / "r.json") == result


def test_the_command_measures_writes_and_prints(monkeypatch, tmp_path, capsys):
    asked = []

    def measure(*arguments):
        asked.append((*arguments[:3], arguments[4]))
        return result_of([0.0, 0.0])

    monkeypatch.setattr(wire, "measure", measure)
    monkeypatch.setattr(wire, "RESULTS", tmp_path / "kept")
    options = ("--messages", "5", "--message-bytes", "6", "--rounds", "7", "--patience", "8.5")
    assert wire.main([*options, "--scratch", "/s"]) == 0
    assert asked == [(Shape(5, 6, 7), [], 8.5, "/s")]
    kept = tmp_path / "kept" / "2026-11-27.json"
    page = kept.with_suffix(".md")
    text = "\n".join(lines(read_result(kept)))
    assert page.read_text(encoding="utf-8") == f"# Brokers compared over the wire\n\n{text}\n"
    said = capsys.readouterr()
    assert said.out == f"{text}\n"
    assert said.err == f"written: {kept}\nwritten: {page}\n"
    page.unlink()
    assert wire.main(["--page", str(kept)]) == 0
    assert page.exists()
    out = tmp_path / "mine.json"
    assert wire.main(["--only", "a", "--only", "b", "--out", str(out)]) == 0
    assert asked[-1] == (Shape(), ["a", "b"], 30, None)
    assert out.exists()
    kept.unlink()
    assert wire.main(["--only", "a"]) == 0
    assert not kept.exists()


@pytest.mark.parametrize("error", (Unavailable("no checkout"), LookupError("no such broker")))
def test_wrong_usage_is_told(monkeypatch, capsys, error):
    def measure(*_):
        raise error

    monkeypatch.setattr(wire, "measure", measure)
    assert wire.main([]) == 2
    assert capsys.readouterr() == ("", f"error: {error.args[0]}\n")
