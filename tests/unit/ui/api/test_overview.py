"""The description of the broker, and the list of partitions."""

import logging
import shutil
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import pytest

from logstore import Acl, Authorizer, Broker, ShiftedClock, TopicPartition, VirtualClock
from logstore.analysis.verdict import Verdict
from logstore.cleaner import selection
from logstore.errors import CorruptRecordError, KafkaStorageError, LogStoreError
from logstore.ui import partitions as partition_rows
from logstore.ui.partitions import SORTS, PartitionList, Row, _CachedRow
from tests.support.world.page import Asked

GOLDEN = Path(__file__).resolve().parents[3] / "data" / "kafka-3.9"


def test_about_lists_the_listeners_and_their_access(page, broker):
    told = page.get("/api/about")
    assert told["data_dirs"] == ["/memory"]
    assert (told["read_only"], told["read_only_because"]) == (False, None)
    assert told["clock"]["kind"] == "virtual"
    assert told["clock"]["now_ms"] == broker.clock.now_ms()
    assert (told["node_id"], told["principal"]) == (0, "User:ANONYMOUS")


def test_a_clock_of_the_machine_has_no_next_event():
    with Broker() as broker, Asked(broker) as page:
        assert page.get("/api/about")["clock"]["next_event_ms"] is None


def test_the_next_event_is_where_the_clock_moves_to():
    with Broker(clock=VirtualClock(), background=True) as broker, Asked(broker) as page:
        moment = page.get("/api/about")["clock"]["next_event_ms"]
        assert moment is not None
        assert broker.clock.step()
        assert broker.clock.now_ms() == moment


def test_rows_grow_old_as_the_clock_is_moved(page, broker):
    broker.alter_configs("users", {"max.compaction.lag.ms": "1h"})
    target = "/api/partitions?topic=users"
    for minutes, delay_ms in ((0, 0), (50, 0), (30, 20 * 60_000)):
        broker.clock.advance(minutes=minutes)
        (row,) = page.get(target)["partitions"]
        assert row["max_compaction_delay_ms"] == delay_ms
    assert row["lag_ms"] == 80 * 60_000


def test_rows_are_measured_as_explain_does(page, broker):
    rows = {
        (row["topic"], row["partition"]): row
        for row in (page.get("/api/partitions"), page.get("/api/partitions"))[1]["partitions"]
    }
    row = rows["users", 0]
    explained = broker.explain("users").partitions[0]
    assert row["cleanable_ratio"] == explained.cleanable_ratio == 1.0
    assert row["dirty_bytes"] == explained.decision.state.cleanable_bytes == 707
    assert row["will_clean"] is explained.will_clean is True
    assert (row["log_start_offset"], row["log_end_offset"], row["segments"]) == (0, 11, 2)
    assert rows["events", 1]["cleanable_ratio"] is None
    assert rows["events", 1]["cleanup_policy"] == "delete"


def test_rows_have_verdicts_and_the_list_their_summary(page, broker):
    told = page.get("/api/partitions?sort=frees")
    rows = {(row["topic"], row["partition"]): row for row in told["partitions"]}
    verdict = rows["users", 0]["verdict"]
    assert (verdict["state"], verdict["exact"], verdict["frees_bytes"]) == ("due", False, None)
    assert verdict["frees_bytes_at_most"] == 707
    assert told["partitions"][0]["topic"] == "users"
    assert rows["events", 0]["verdict"]["state"] == "not_compacted"
    assert told["summary"]["partitions"] == 3
    assert told["summary"]["due"] == 1
    assert told["summary"]["frees_bytes"] is None
    assert told["summary"]["frees_bytes_at_most"] == 707
    assert told["summary"]["bytes"] == told["size_bytes"]


def test_empty_partitions_are_counted_instead_of_listed_on_request(page, broker):
    broker.create_topic("empty", 3)
    broker.create_topic("orders")
    found = page.get("/api/partitions?empty=0")
    listed = [(row["topic"], row["partition"]) for row in found["partitions"]]
    assert listed == [("events", 1), ("users", 0)]
    assert found["total"] == 2
    assert found["empty"] == {"empty": 3, "events": 1, "orders": 1}
    assert found["summary"]["partitions"] == 7
    assert page.get("/api/partitions")["total"] == 7
    assert page.get("/api/partitions")["empty"] == {}


def test_the_list_is_exact_after_dry_runs(page, broker):
    assert page.get("/api/partitions")["is_exact"] is False
    page.get("/api/partitions/users/0/verdict")
    assert page.get("/api/partitions")["is_exact"] is True


def test_damaged_partitions_can_be_listed_first(page, broker):
    told = page.get("/api/partitions?sort=damage")["partitions"]
    assert [row["verdict"]["state"] for row in told] == ["due", "not_compacted", "not_compacted"]
    row = Row(TopicPartition("a", 0), None, 7, 1, "compact", 0, 0.5)
    broken = replace(row, verdict=Verdict.of_error(CorruptRecordError("a bad CRC"), 7))
    lost = replace(row, verdict=Verdict.of_error(KafkaStorageError("no disk"), 7))
    rows = sorted((row, lost, broken), key=SORTS["damage"], reverse=True)
    assert rows == [broken, lost, row]
    assert (broken.verdict.state, lost.verdict.state) == ("damaged", "unknown")


def test_a_row_is_measured_again_once_its_log_has_changed(page, broker):
    assert page.get("/api/partitions?topic=users")["partitions"][0]["cleanable_ratio"] == 1.0
    broker.clean("users", force=True)
    row = page.get("/api/partitions?topic=users")["partitions"][0]
    assert (row["cleanable_ratio"], row["deleted_bytes"]) == (0.0, 707)


def test_the_bound_of_kip_354_is_reported(page, broker):
    broker.alter_configs("users", {"max.compaction.lag.ms": "1h"})
    broker.clock.advance(hours=2)
    told = page.get("/api/partitions?sort=delay&count=1")
    (row,) = told["partitions"]
    assert (row["max_compaction_delay_ms"], row["lag_ms"]) == (3_600_000, 7_200_000)
    assert (row["must_clean"], told["must_clean"]) == (True, 1)


@pytest.mark.parametrize(
    ("query", "names"),
    (
        ("", ["events-1", "users-0", "events-0"]),
        ("sort=name", ["events-0", "events-1", "users-0"]),
        ("sort=name&descending=1", ["users-0", "events-1", "events-0"]),
        ("sort=bytes&descending=0", ["events-0", "users-0", "events-1"]),
        ("sort=ratio", ["users-0", "events-0", "events-1"]),
        ("sort=segments", ["users-0", "events-0", "events-1"]),
        ("filter=S-1", ["events-1"]),
        ("topic=users", ["users-0"]),
        ("topic=user", []),
        ("first=1&count=1", ["users-0"]),
        ("first=9", []),
    ),
)
def test_the_list_is_sorted_filtered_and_paged(page, broker, query, names):
    for tp in broker.partitions():
        broker.log(tp)
    told = page.get(f"/api/partitions?{query}")
    assert [f"{row['topic']}-{row['partition']}" for row in told["partitions"]] == names


@pytest.mark.parametrize(
    ("query", "field", "suggestion"),
    (
        ("sorted=bytes", "sorted", "sort"),
        ("sort=byte", "sort", "bytes"),
        ("count=1001", "count", None),
        ("count=-1", "count", None),
        ("first=one", "first", None),
        ("first=1&first=2", "first", None),
        ("descending=yes", "descending", None),
    ),
)
def test_an_invalid_parameter_is_named(page, query, field, suggestion):
    refused = page.ask("GET", f"/api/partitions?{query}")
    assert refused.status == 400
    error = refused.json["error"]
    assert (error["field"], error.get("suggestion")) == (field, suggestion)


def test_topics_that_may_not_be_seen_are_not_listed(broker):
    authorizer = Authorizer([Acl("User:ann", "describe", "topic", "events")])
    with Asked(broker, authorizer, "User:ann") as page:
        told = page.get("/api/partitions")
        assert {row["topic"] for row in told["partitions"]} == {"events"}
        assert told["total"] == 2
        refused = page.ask("GET", "/api/partitions/users/0")
        assert refused.status == 403
        unknown = page.ask("GET", "/api/partitions/userz/0")
        assert unknown.status == 403  # its existence is not revealed
        near = page.ask("GET", "/api/partitions/events/9").json["error"]
        assert "users" not in near["message"]


def test_names_and_sizes_are_shown_before_a_log_is_opened(tmp_path):
    with Broker(tmp_path) as broker:
        broker.create_topic("users", 3, {"cleanup.policy": "compact"})
        for partition in range(3):
            broker.append("users", key=b"a", value=b"b" * partition, partition=partition)
            broker.roll("users", partition)
    with Broker(tmp_path, read_only=True) as broker:
        beside = []
        with Asked(broker) as page:
            page.context.partitions._run_in_background = beside.append
            told = page.get("/api/partitions?sort=name&first=2&count=1")
            (row,) = told["partitions"]
            assert (told["total"], told["measured"]) == (3, 0)
            assert (row["size_bytes"], row["segments"], row["measured"]) == (71, 2, False)
            assert row["cleanable_ratio"] is None
            assert list(broker.manager.registry.open_logs()) == []
            (measure,) = beside
            order = []
            page.context.partitions._on_measured = order.append
            measure()
            assert [tp.partition for tp in order] == [
                2,
                0,
                1,
            ]  # the requested partition comes first
            told = page.get("/api/partitions?sort=name")
            assert (told["total"], told["measured"], beside) == (3, 3, [measure])
            assert told["partitions"][2]["cleanable_ratio"] == 1.0


def test_a_partition_that_cannot_be_opened_reports_the_reason_and_is_not_retried(tmp_path):
    with Broker(tmp_path) as broker:
        broker.create_topic("users", 2)
        for partition in range(2):
            broker.append("users", value=b"b", partition=partition)
    (tmp_path / "users-1" / "leader-epoch-checkpoint").write_text("no checkpoint\n")
    path = tmp_path / "users-1" / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[16] = 1  # magic 1
    path.write_bytes(data)
    with Broker(tmp_path, read_only=True) as broker, Asked(broker) as page:
        page.context.partitions._run_in_background = lambda measure: measure()
        page.get("/api/partitions")
        told = page.get("/api/partitions?sort=name")
        assert told["measured"] == 2
        assert [row["error"] is None for row in told["partitions"]] == [True, False]


def test_a_shifted_clock_is_not_a_virtual_one():
    with Broker(clock=ShiftedClock()) as broker, Asked(broker) as page:
        assert page.get("/api/about")["clock"]["next_event_ms"] is None


def test_the_metadata_log_of_a_kraft_node_is_listed_and_read(tmp_path):
    path = tmp_path / "data"
    shutil.copytree(GOLDEN / "decoders", path)
    with Broker(path, read_only=True, metadata_log=True) as broker, Asked(broker) as page:
        listed = {row["topic"] for row in page.get("/api/partitions")["partitions"]}
        assert "__cluster_metadata" in listed
        at = "/api/partitions/__cluster_metadata/0"
        assert page.get(at)["records"] == page.get(at)["log_end_offset"]
        record = page.get(f"{at}/records?count=1")["records"][0]
        assert record["decoded"]["type"] == "AbortTransactionRecord"


def test_about_and_the_rows_have_exactly_these_members(page, broker):
    assert page.get("/api/about") == {
        "version": version("kafka-logstore"),
        "data_dirs": ["/memory"],
        "read_only": False,
        "read_only_because": None,
        "clock": {
            "kind": "virtual",
            "now_ms": 1_704_067_200_000,
            "next_event_ms": None,
            "next_event": None,
        },
        "node_id": 0,
        "principal": "User:ANONYMOUS",
        "may": [
            "alter-broker-configs",
            "alter-configs",
            "clean",
            "create-topic",
            "delete-records",
            "delete-topic",
            "move-clock",
            "retain",
            "retry",
            "roll",
        ],
        "notes": [],
    }
    listed = page.get("/api/partitions?sort=dirty&first=0&count=1")
    assert listed == {
        "total": 3,
        "measured": 3,
        "is_exact": False,
        "empty": {},
        "topics": 2,
        "size_bytes": 2851,
        "must_clean": 0,
        "uncleanable": 0,
        "summary": {
            "partitions": 3,
            "damaged": 0,
            "uncleanable": 0,
            "due": 1,
            "waiting": 0,
            "nothing_to_do": 0,
            "not_compacted": 2,
            "unknown": 0,
            "frees_bytes": None,
            "frees_bytes_at_most": 707,
            "bytes": 2851,
            "retention_bytes": 0,
            "retention_bytes_of_due": 0,
            "headers_only": 2,
        },
        "partitions": [
            {
                "verdict": {
                    "state": "due",
                    "exact": False,
                    "frees_bytes": None,
                    "frees_records": None,
                    "frees_bytes_if_rolled": None,
                    "frees_bytes_at_most": 707,
                    "frees_bytes_if_rolled_at_most": 781,
                    "removable_bytes": {"now": 707, "if_rolled": 781},
                    "reason": {
                        "code": "verdict.due",
                        "values": {},
                        "text": "will be cleaned by the next pass",
                    },
                    "since_ms": broker.clock.now_ms(),
                    "helps": ["logstore clean users --partition 0"],
                    "help_reasons": [
                        {
                            "code": "help.clean",
                            "values": {"topic": "users", "partition_id": 0},
                            "text": "logstore clean users --partition 0",
                        }
                    ],
                    "retention": {"segments": 0, "bytes": 0, "reasons": []},
                    "notes": [],
                    "examined": "headers",
                },
                "topic": "users",
                "partition": 0,
                "path": "/memory/users-0",
                "measured": True,
                "size_bytes": 781,
                "segments": 2,
                "log_start_offset": 0,
                "log_end_offset": 11,
                "cleanup_policy": "compact",
                "cleanable_ratio": 1.0,
                "dirty_bytes": 707,
                "first_dirty_offset": 0,
                "max_compaction_delay_ms": 0,
                "max_compaction_lag_ms": 2**63 - 1,
                "min_cleanable_dirty_ratio": 0.5,
                "lag_ms": 0,
                "must_clean": False,
                "will_clean": True,
                "is_policy_assumed": False,
                "uncleanable": None,
                "in_progress": None,
                "deleted_bytes": 0,
                "error": None,
            }
        ],
    }


def test_the_list_does_not_compute_when_gates_open(page, broker, monkeypatch):
    """That takes one decision per gate, and thousands of rows need none."""

    def fail(*_):
        raise AssertionError

    monkeypatch.setattr(selection, "_forecast_opening", fail)
    broker.clean("users", force=True)
    (row,) = page.get("/api/partitions?topic=users")["partitions"]
    assert (row["cleanable_ratio"], row["will_clean"], row["error"]) == (0.0, False, None)


def test_a_failed_measurement_is_the_row_s_error(page, broker, monkeypatch):
    def fail(*_, **__):
        raise LogStoreError("no answer")

    monkeypatch.setattr(partition_rows, "cleaning_decision", fail)
    (row,) = page.get("/api/partitions?topic=users")["partitions"]
    assert (row["measured"], row["error"], row["will_clean"]) == (True, "no answer", None)
    assert (row["size_bytes"], row["segments"]) == (781, 2)


ROWS = {
    "a": {"size_bytes": 3, "segments": 1, "cleanable_ratio": 0.5, "dirty_bytes": 9},
    "b": {"size_bytes": 1, "segments": 3, "dirty_bytes": 0, "max_compaction_delay_ms": 0},
    "c": {"size_bytes": 2, "segments": 2, "cleanable_ratio": 0.0, "max_compaction_delay_ms": 5},
    "d": {"size_bytes": 1, "segments": 1, "error": "broken"},
}


@pytest.mark.parametrize(
    ("sort", "names"),
    (
        ("bytes", "acbd"),
        ("ratio", "acbd"),
        ("dirty", "abcd"),
        ("delay", "cbad"),
        ("uncleanable", "dabc"),
        ("segments", "bcad"),
        ("name", "dcba"),
    ),
)
def test_rows_without_a_number_are_sorted_last(sort, names):
    rows = [
        Row(
            TopicPartition(name, 0),
            None,
            **{"size_bytes": 0, "segments": 0} | values,
            cleanup_policy="compact",
            max_compaction_lag_ms=1,
            min_cleanable_dirty_ratio=0.5,
        )
        for name, values in ROWS.items()
    ]
    rows.sort(key=SORTS[sort], reverse=True)
    assert "".join(row.topic_partition.topic for row in rows) == names


def test_a_row_is_reused_while_both_clocks_are_within_the_limit():
    known = _CachedRow(None, None, 1000, 50_000)
    assert known.is_fresh(1009, 50_009, 10)
    assert known.is_fresh(1009, 49_991, 10)
    assert not known.is_fresh(1010, 50_000, 10)
    assert not known.is_fresh(1000, 50_010, 10)
    assert not known.is_fresh(1000, 49_990, 10)


def test_rows_without_a_folder_and_of_deleted_logs(tmp_path):
    """Measuring in the background ends with the page."""
    with Broker(tmp_path) as broker:
        broker.create_topic("users", 2)
        broker.append("users", value=b"b", partition=0)
    with Broker(tmp_path, read_only=True) as broker:
        measured, started = [], []
        rows = PartitionList(broker, started.append, measured.append)
        found = rows.rows(broker.topics())
        assert [(row.size_bytes, row.segments, row.measured) for row in found] == [
            (69, 1, False),
            (0, 1, False),
        ]
        rows.measure(found, found)
        rows.measure(found, found)  # one thread is enough
        assert len(started) == 1
        started[0]()
        assert measured == [row.topic_partition for row in found]
        again = rows.rows(broker.topics())
        assert [row.log_end_offset for row in again] == [1, 0]
        rows.measure(again, again)  # all rows are measured
        assert len(started) == 1
        rows.measure(found, found)
        assert len(started) == 2
        rows.close()
        started[1]()
        rows.measure(found, found)
        assert (len(started), len(measured)) == (2, 2)


def test_a_copy_without_configuration_names_its_assumptions_and_warnings(tmp_path):
    with Broker(tmp_path / "whole", clock=VirtualClock()) as broker:
        broker.create_topic("users", 1, {"cleanup.policy": "compact"})
        broker.append("users", key=b"1", value=b"ann")
    part = tmp_path / "part"
    shutil.copytree(tmp_path / "whole" / "users-0", part / "users-0")
    shutil.copytree(tmp_path / "whole" / "users-0", part / "orders-0")
    with Broker(part, read_only=True) as broker, Asked(broker) as page:
        logging.getLogger("logstore.manager").warning("a  file\nis strange")
        logging.getLogger("logstore.ui").warning("a request failed")
        logging.getLogger("logstore.manager").info("nothing")
        assumed, warning = page.get("/api/about")["notes"]
        assert assumed.startswith("Assumed: no configuration of topic orders is stored here")
        assert assumed.endswith("(likewise for 1 more)")
        assert warning == "a file is strange"
        rows = page.get("/api/partitions?sort=name")["partitions"]
        assert [row["is_policy_assumed"] for row in rows] == [True, True]
        assert page.get("/api/partitions/users/0")["is_policy_assumed"] is True
        authorizer = Authorizer([Acl("User:ann", "describe", "topic", "users")])
        with Asked(broker, authorizer, "User:ann") as other:
            logging.getLogger("logstore.manager").warning("topic orders is strange")
            (assumed,) = other.get("/api/about")["notes"]  # no warning, which may name any topic
            assert "topic users" in assumed
        gauges = page.get("/api/cleaner")["gauges"]
        assert (gauges["partitions"], gauges["due-partitions"]) == (2, 0)
    logging.getLogger("logstore.manager").warning("after the page is closed")
    with Broker(tmp_path / "whole", read_only=True) as broker, Asked(broker) as page:
        assert page.get("/api/about")["notes"] == []
        assert page.get("/api/partitions")["partitions"][0]["is_policy_assumed"] is False
