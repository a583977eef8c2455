"""Erasure: each location of a key, each state, each rule, with exact times."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from logstore import Broker, VirtualClock
from logstore.analysis import erasure as module
from logstore.analysis.erasure import Occurrence, erasure, scan_file
from logstore.analysis.log_simulation import TransactionEnd
from logstore.coordinator.transactions.state import TransactionMetadata, TransactionState
from logstore.errors import CorruptRecordError
from logstore.record import layout
from logstore.record.codecs import Codec
from logstore.runtime import MemoryFileSystem
from tests.support.world.builders import batch, batches_of, commit
from tests.support.world.cleaning import Producer
from tests.support.world.legacy import message

KEY = b"ann"
T = 1_700_000_000_000
HOUR_MS = 3_600_000
MINUTE_MS = 60_000
LIMIT = 1 << 20


def scan(data: bytes, key: bytes = KEY, base_offset: int = 0) -> list[tuple]:
    """Return position, offset and state of each occurrence in a file with these bytes."""
    fs = MemoryFileSystem(VirtualClock())
    fs.make_dirs("/d")
    file = fs.open("/d/f", create=True)
    file.write_at([data], 0)
    found = list(scan_file(file, "/d/f", base_offset, key, LIMIT))
    assert {each.path for each in found} <= {"/d/f"}
    return [(each.position, each.offset, each.state) for each in found]


def broken(data: bytes, position: int = -1) -> bytes:
    """Return a batch with one bit flipped."""
    damaged = bytearray(data)
    damaged[position] ^= 1
    return bytes(damaged)


def test_the_scan_reports_each_record_with_its_batch() -> None:
    fs = MemoryFileSystem(VirtualClock())
    fs.make_dirs("/d")
    file = fs.open("/d/f", create=True)
    other = batch(0, 4)
    data = batch(5, timestamp=7, key=KEY) + batch(6, 7, timestamp=[8, 9], key=KEY)
    file.write_at([other + data + commit(8, 1)], 0)
    one, two = batches_of(data)
    assert list(scan_file(file, "/d/f", 0, KEY, LIMIT)) == [
        Occurrence("/d/f", len(other), (5, 7, False, ()), one.header, ""),
        Occurrence("/d/f", len(other) + len(one.data), (6, 8, False, ()), two.header, ""),
        Occurrence("/d/f", len(other) + len(one.data), (7, 9, False, ()), two.header, ""),
    ]


WHOLE = batch(0, 2)
HELD = batch(3, key=KEY)
AT = HELD.index(KEY)
ZIPPED = batch(3, 40, key=KEY, codec=Codec.GZIP)
OLD = message(0, KEY, b"v")


@pytest.mark.parametrize(
    ("data", "found"),
    (
        (b"", []),
        (WHOLE, []),
        (HELD[:20], []),
        (HELD[: AT + 3], [(AT, None, "torn_tail")]),
        (HELD[: AT + 2], []),
        (broken(HELD), [(AT, None, "torn_tail")]),
        (broken(HELD) + batch(4), [(AT, None, "damaged")]),
        (
            WHOLE + broken(HELD) + batch(4, key=KEY),
            [
                (len(WHOLE) + AT, None, "damaged"),
                (len(WHOLE) + len(HELD), 4, ""),
            ],
        ),
        (broken(ZIPPED), [(0, None, "unreadable")]),
        (WHOLE + broken(ZIPPED) + WHOLE, [(len(WHOLE), None, "unreadable")]),
        (ZIPPED[: layout.HEADER_SIZE], []),
        (ZIPPED[: layout.HEADER_SIZE + 1], [(0, None, "unreadable")]),
        (OLD, [(OLD.index(KEY), None, "torn_tail")]),
        (b"xx" + KEY, []),
        (b"\x06" + KEY + b"\x06" + KEY, [(1, None, "torn_tail"), (5, None, "torn_tail")]),
    ),
)
def test_the_scan_of_valid_and_other_bytes(data: bytes, found: list[tuple]) -> None:
    assert scan(data) == found


def test_an_empty_key_is_only_searched_in_valid_batches() -> None:
    empty = batch(0, key=b"")
    assert scan(empty, b"") == [(0, 0, "")]
    assert scan(broken(empty), b"") == []


@pytest.mark.parametrize("block", (64, 150, 151, 152, 153, 154, 155, 200))
def test_keys_across_the_blocks_of_a_read_are_found_once(
    monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(module, "_BLOCK", block)
    data = b"\x7f" * 150 + b"\x06" + KEY + b"\x7f" * 170 + b"\x06" + KEY + b"\x7f" * 30
    assert scan(data) == [(151, None, "torn_tail"), (325, None, "torn_tail")]
    assert scan(data + WHOLE + data[:160]) == [
        (151, None, "damaged"),
        (325, None, "damaged"),
        (len(data + WHOLE) + 151, None, "torn_tail"),
    ]


class Sparse:
    """A file larger than any segment, full of zeros."""

    def size(self) -> int:
        return 1 << 31

    def read(self, position: int, size: int) -> bytes:
        assert size <= layout.HEADER_SIZE, "searched"
        return bytes(size)


def test_a_file_larger_than_a_segment_is_not_searched() -> None:
    found = list(scan_file(Sparse(), "p", 0, KEY, LIMIT))
    assert found == [Occurrence("p", 0, None, None, "unreadable")]


@pytest.mark.parametrize(
    ("state", "end"),
    (
        ("PREPARE_COMMIT", TransactionEnd(7, 3, True, 0)),
        ("PREPARE_ABORT", TransactionEnd(7, 3, False, 0)),
        ("ONGOING", TransactionEnd(7, 4, False, T + 61)),
    ),
)
def test_the_end_of_a_transaction_is_decided_or_its_timeout(state: str, end) -> None:
    metadata = TransactionMetadata("x", 7, 3, 60, TransactionState[state], start_ms=T)
    assert module._end_of(metadata) == end


def places(configs: dict[str, str], fill, **broker_config: object) -> list[tuple]:
    """Return state, earliest and latest time from now, and the reasons of each location."""
    settings = {key.replace("_", "."): value for key, value in broker_config.items()}
    with Broker(clock=VirtualClock(T), broker_config=settings) as broker:
        broker.create_topic("t", configs=configs)
        fill(broker)
        now_ms = broker.clock.now_ms()
        report = broker.erasure("t", KEY)
        assert report.now_ms == now_ms
        return [
            (
                each.state,
                None if each.earliest_ms is None else each.earliest_ms - now_ms,
                None if each.latest_ms is None else each.latest_ms - now_ms,
                [(reason.code, dict(reason.values)) for reason in each.reasons],
            )
            for each in report.places
        ]


def put(*values: bytes | None):
    def fill(broker) -> None:
        for value in values:
            broker.append("t", key=KEY, value=value)

    return fill


def aborted(broker) -> None:
    producer = opened(broker)
    broker.clock.advance(ms=10)
    producer.abort_transaction()


def opened(broker):
    """Append a record before, in and after an open transaction."""
    producer = broker.producer(transactional_id="x", transaction_timeout_ms=5000, linger_ms=0)
    producer.init_transactions()
    producer.begin_transaction()
    put(b"v")(broker)
    producer.send("t", b"v", key=KEY).get()
    put(b"w")(broker)
    return producer


def timed_out(broker) -> None:
    """The coordinator looks for such transactions every ten seconds, the cleaner every 15."""
    opened(broker)
    broker.roll("t")


def hanging(broker) -> None:
    producer = Producer(broker.log("t"), 1)
    put(b"v")(broker)
    producer.send(1)
    put(b"w")(broker)


def late(broker) -> None:
    put(b"v")(broker)
    broker.append("t", key=KEY, value=b"v", timestamp=5)


def late_twice(broker) -> None:
    late(broker)
    broker.append("t", key=KEY, value=b"v", timestamp=6)


def late_and_closed(broker) -> None:
    late(broker)
    broker.alter_configs("t", {"max.message.bytes": "1"})


def start_moved(broker) -> None:
    put(b"v", b"w")(broker)
    broker.delete_records({broker.log("t").topic_partition: 1})


def closed(broker) -> None:
    put(b"v", b"w", None)(broker)
    broker.roll("t")


def renamed(broker) -> None:
    put(b"v")(broker)
    broker.roll("t")
    broker.clock.advance(ms=2000)
    broker.retain("t")
    broker.clock.advance(ms=70)


COMPACT = {"cleanup.policy": "compact"}
NOT_DUE = ("erasure.not_due", {})
NEVER_LIVE = ("live", None, None, [("erasure.until_superseded", {}), NOT_DUE])
SUPERSEDED = ("superseded", 0, None, [("erasure.by_superseding", {}), NOT_DUE])
TIMEOUT = ("erasure.transaction_timeout", {"at_ms": T + 5001, "producer_id": 0})
LAG = {
    "min.compaction.lag.ms": "5000",
    "max.compaction.lag.ms": "9000",
    "message.timestamp.before.max.ms": "0",
}
CASES = {
    "empty_policy": (
        {"cleanup.policy": ""},
        put(b"v"),
        [("live", None, None, [("erasure.empty_policy", {}), NOT_DUE])],
    ),
    "unlimited": (
        {"retention.ms": "-1"},
        put(b"v"),
        [("live", None, None, [("erasure.unlimited", {}), NOT_DUE])],
    ),
    "retention": (
        {"retention.ms": str(HOUR_MS)},
        put(b"v"),
        [
            (
                "live",
                HOUR_MS + 1,
                HOUR_MS + 1 + 6 * MINUTE_MS,
                [
                    ("erasure.by_retention", {"retention_ms": HOUR_MS}),
                    (
                        "erasure.retention_due",
                        {"at_ms": T + HOUR_MS + 1, "delay_ms": MINUTE_MS},
                    ),
                ],
            )
        ],
    ),
    "size": (
        {"retention.ms": "-1", "retention.bytes": "0"},
        put(b"v"),
        [
            (
                "live",
                0,
                6 * MINUTE_MS,
                [
                    ("erasure.by_log_start", {}),
                    ("erasure.retention_due", {"at_ms": T, "delay_ms": MINUTE_MS}),
                ],
            )
        ],
    ),
    "superseded": (
        COMPACT | {"delete.retention.ms": "1000"},
        put(b"v", b"w", None),
        [
            SUPERSEDED,
            SUPERSEDED,
            (
                "tombstone",
                1000,
                None,
                [("erasure.by_horizon", {"delete_retention_ms": 1000}), NOT_DUE],
            ),
        ],
    ),
    "never_cleaned": (
        COMPACT | {"min.cleanable.dirty.ratio": "1"},
        put(b"v", b"w"),
        [("superseded", None, None, [("erasure.never_cleaned", {}), NOT_DUE]), NEVER_LIVE],
    ),
    "min_lag": (
        COMPACT | LAG,
        put(b"v", b"w"),
        [
            (
                "superseded",
                5000,
                9001 + 15_000 + MINUTE_MS,
                [
                    ("erasure.by_superseding", {}),
                    ("erasure.min_lag", {"lag_ms": 5000}),
                    ("erasure.cleaning_due", {"at_ms": T + 9001, "delay_ms": MINUTE_MS}),
                ],
            ),
            NEVER_LIVE,
        ],
    ),
    "closed": (
        COMPACT
        | {
            "min.cleanable.dirty.ratio": "0",
            "delete.retention.ms": "1000",
            "file.delete.delay.ms": "600",
        },
        closed,
        [
            (
                "superseded",
                0,
                15_600,
                [
                    ("erasure.by_superseding", {}),
                    ("erasure.cleaning_due", {"at_ms": T, "delay_ms": 600}),
                ],
            )
        ]
        * 2
        + [
            (
                "tombstone",
                1000,
                None,
                [("erasure.by_horizon", {"delete_retention_ms": 1000}), NOT_DUE],
            )
        ],
    ),
    "hanging": (
        COMPACT,
        hanging,
        [
            NEVER_LIVE,
            ("unstable", None, None, [("erasure.hanging_transaction", {}), NOT_DUE]),
        ],
    ),
    "open_transaction": (
        COMPACT,
        opened,
        [
            ("live", 0, None, [("erasure.by_superseding", {}), TIMEOUT, NOT_DUE]),
            ("open_transaction", 0, None, [("erasure.by_cleaning", {}), TIMEOUT, NOT_DUE]),
            ("unstable", None, None, [("erasure.never_cleaned", {}), TIMEOUT, NOT_DUE]),
        ],
    ),
    "timeout": (
        COMPACT | {"min.cleanable.dirty.ratio": "0"},
        timed_out,
        [
            (
                state,
                0,
                15_001 + 15_000 + MINUTE_MS,
                [
                    (rule, {}),
                    TIMEOUT,
                    ("erasure.cleaning_due", {"at_ms": T + 15_001, "delay_ms": MINUTE_MS}),
                ],
            )
            for state, rule in (
                ("live", "erasure.by_superseding"),
                ("open_transaction", "erasure.by_cleaning"),
            )
        ]
        + [("unstable", None, None, [("erasure.never_cleaned", {}), TIMEOUT, NOT_DUE])],
    ),
    "aborted": (
        COMPACT,
        aborted,
        [SUPERSEDED, ("aborted", 0, None, [("erasure.by_cleaning", {}), NOT_DUE]), NEVER_LIVE],
    ),
    "versions": (
        COMPACT | {"compaction.strategy": "timestamp"},
        late,
        [
            NEVER_LIVE,
            (
                "superseded",
                0,
                None,
                [("erasure.by_superseding", {}), ("erasure.last_record", {}), NOT_DUE],
            ),
        ],
    ),
    "versions_before_the_last": (
        COMPACT | {"compaction.strategy": "timestamp"},
        late_twice,
        [
            NEVER_LIVE,
            SUPERSEDED,
            (
                "superseded",
                0,
                None,
                [("erasure.by_superseding", {}), ("erasure.last_record", {}), NOT_DUE],
            ),
        ],
    ),
    "versions_and_no_further_record": (
        COMPACT | {"compaction.strategy": "timestamp"},
        late_and_closed,
        [NEVER_LIVE, ("superseded", None, None, [("erasure.never_cleaned", {}), NOT_DUE])],
    ),
    "versions_removed_by_retention": (
        {
            "cleanup.policy": "compact,delete",
            "compaction.strategy": "timestamp",
            "min.compaction.lag.ms": str(2 * HOUR_MS),
            "retention.ms": str(HOUR_MS),
        },
        late,
        [
            (
                state,
                HOUR_MS + 1,
                HOUR_MS + 1 + 15_000 + MINUTE_MS,
                [
                    ("erasure.by_retention", {"retention_ms": HOUR_MS}),
                    ("erasure.retention_due", {"at_ms": T + HOUR_MS + 1, "delay_ms": MINUTE_MS}),
                ],
            )
            for state in ("live", "superseded")
        ],
    ),
    "log_start": (
        {"retention.ms": "-1"},
        start_moved,
        [
            ("below_log_start", None, None, [("erasure.unlimited", {}), NOT_DUE]),
            ("live", None, None, [("erasure.unlimited", {}), NOT_DUE]),
        ],
    ),
    "renamed": (
        {"retention.ms": "1000", "file.delete.delay.ms": "600"},
        renamed,
        [("deleted", 0, 530, [("erasure.file_delay", {"delay_ms": 600})])],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_each_rule_has_its_times_and_reasons(name: str) -> None:
    configs, fill, wanted = CASES[name]
    assert places(configs, fill) == [
        (state, earliest, latest, [(f"location.{state}", {}), *reasons])
        for state, earliest, latest, reasons in wanted
    ]


def test_a_disabled_cleaner_removes_nothing() -> None:
    first, second = places(COMPACT, put(b"v", b"w"), log_cleaner_enable="false")
    codes = [code for code, _ in first[3]]
    assert first[:3] == ("superseded", None, None)
    assert codes == ["location.superseded", "erasure.cleaner_disabled", "erasure.not_due"]
    assert second[3][1:] == NEVER_LIVE[3]


@pytest.mark.parametrize("commit", (True, False))
def test_a_decided_transaction_ends_at_once_without_a_timeout(
    monkeypatch: pytest.MonkeyPatch, commit: bool
) -> None:
    end = TransactionEnd(1, 0, commit, 0)
    monkeypatch.setattr(module._Transactions, "ends", lambda self, tp: (end,))

    def fill(broker) -> None:
        put(b"v")(broker)
        Producer(broker.log("t"), 1).send((KEY, b"w"))
        broker.roll("t")

    first, second = places(COMPACT | {"min.cleanable.dirty.ratio": "0"}, fill)
    assert first[:3] == ("live", 0 if commit else None, 75_000 if commit else None)
    assert second[:3] == ("open_transaction", None if commit else 0, None if commit else 75_000)
    for place in (first, second):
        assert "erasure.transaction_timeout" not in [code for code, _ in place[3]]


def test_progress_and_the_totals_of_files() -> None:
    with Broker(clock=VirtualClock(T)) as broker:
        broker.create_topic("t", 2)
        steps: list[tuple[str, int, int]] = []
        for _ in range(2):
            broker.append("t", key=KEY, value=b"v", partition=1)
            broker.roll("t", 1)
        [one, two, three] = [each.size_bytes for each in broker.log("t", 1).segments]
        report = erasure(broker, "t", KEY, progress=lambda *step: steps.append(step))
        assert [step for step in steps if step[0].startswith("reading")] == [
            ("reading t-0", 0, 0),
            ("reading t-1", 0, one),
            ("reading t-1", one, one + two),
            ("reading t-1", one + two, one + two + three),
        ]
        assert (report.files, report.bytes, len(report.places)) == (4, one + two + three, 2)
        assert report.gone is False
        assert {place.path.split("/")[-2] for place in report.places} == {"t-1"}
        assert broker.erasure("t", KEY, 0).gone


def test_records_of_a_deleted_partition_supersede_none() -> None:
    with Broker(clock=VirtualClock(T)) as broker:
        broker.create_topic("t", configs=COMPACT)
        broker.append("t", key=KEY, value=b"v")
        broker.append("t", key=b"other", value=b"v")
        directory = broker.log("t").directory
        fs = broker.runtime.fs
        folders = {f"{directory}.{0:032x}-delete": "deleted_partition"}
        folders[f"{directory}.{0:032x}-future"] = "foreign"
        for folder in folders:
            fs.make_dirs(folder)
            file = fs.open(f"{folder}/{1:020d}.log", create=True)
            file.append([batch(1, key=KEY)])
            file.close()
        report = broker.erasure("t", KEY)
        now = (T, T + MINUTE_MS)
        found = [
            (each.offset, each.state, each.earliest_ms, each.latest_ms) for each in report.places
        ]
        assert sorted(found) == [
            (0, "live", None, None),
            (1, "deleted_partition", *now),
            (1, "foreign", None, None),
        ]


@pytest.mark.parametrize(
    ("sizes", "position", "is_truncated"),
    (
        ({"log": 100}, 99, False),
        ({"log": 100}, 100, True),
        ({"other": 100}, 0, True),
        ({}, 100, False),
        (None, 100, False),
    ),
)
def test_bytes_behind_the_end_after_a_start_are_truncated(sizes, position, is_truncated) -> None:
    """Only a log that opens has known sizes."""
    partition = object.__new__(module._Partition)
    partition._sizes = sizes

    def fail():
        raise CorruptRecordError("damaged")

    partition._open_simulation = fail
    occurrence = SimpleNamespace(path="log", position=position)
    assert partition._is_truncated(occurrence) is is_truncated
    assert partition._sizes == (sizes or {})
