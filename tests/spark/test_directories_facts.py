"""Facts from two data directories before the oracle starts, without a JVM."""

import errno
import os
import shutil

import pytest

pytest.importorskip("pyspark")

from logstore import Broker, TopicPartition, VirtualClock
from logstore.errors import (
    InvalidConfigurationError,
    KafkaStorageError,
    UnknownTopicOrPartitionError,
)
from logstore.runtime import SystemClock
from logstore.spark.oracle import directories
from logstore.spark.oracle.directories import verify_directories
from logstore.spark.oracle.verify import Cleaned, StartState, Verdict
from tests.support.world.messages import exactly

NOW = 1_800_000_000_000


class Asked(list):
    """The runs of the oracle: rules, cleaned and begun. `scans` has the frames of the last run."""

    def verdict_of(self, before, after, rules, cleaned, *, begun, order, folded, examples):
        self.append((rules, cleaned, begun))
        self.scans = {"before": before, "after": after, "order": order, "folded": folded}
        return Verdict({}, [], 0, 0)

    @property
    def rules(self):
        return {topic: each for rules, _, _ in self for (topic, _), each in rules.items()}

    @property
    def cleaned(self):
        return {place: each for _, cleaned, _ in self for place, each in cleaned.items()}

    @property
    def begun(self):
        return {place: each for _, _, begun in self for place, each in begun.items()}


@pytest.fixture
def asked(monkeypatch):
    found = Asked()
    monkeypatch.setattr(directories, "verify", found.verdict_of)
    for name in ("scan", "scan_in_order", "scan_folded"):
        monkeypatch.setattr(directories, name, lambda _, *given, name=name: (name, *given))
    return found


@pytest.fixture
def pair(tmp_path):
    """Return a maker of a directory, which copies it before the second function works on it."""

    def make(fill, work):
        clock = VirtualClock()
        with Broker(tmp_path / "after", clock=clock) as broker:
            fill(broker)
        shutil.copytree(tmp_path / "after", tmp_path / "before")
        with Broker(tmp_path / "after", clock=clock) as broker:
            work(broker)
        return tmp_path / "before", tmp_path / "after"

    return make


def compacted(broker, topic, segments=3, **configs):
    broker.create_topic(
        topic,
        configs={
            "cleanup.policy": "compact",
            **{k.replace("_", "."): v for k, v in configs.items()},
        },
    )
    for _ in range(segments):
        broker.append_many(topic, [(b"k", b"v")] * 10, partition=0)
        broker.roll(topic)


def test_ranges_come_from_checkpoints_and_log_starts(asked, pair):
    def fill(broker):
        compacted(broker, "fresh")
        compacted(broker, "never")
        compacted(broker, "again")
        compacted(broker, "front", cleanup_policy="compact,delete")
        broker.delete_records({TopicPartition("front", 0): 5})
        broker.clean("again", force=True)
        broker.append_many("again", [(b"k", b"v")] * 5, partition=0)
        broker.roll("again")
        compacted(broker, "rest")
        broker.clean("rest", force=True)

    def work(broker):
        broker.append_many("fresh", [(b"k", b"v")] * 5, partition=0)
        broker.roll("fresh")
        for topic in ("fresh", "again", "front"):
            broker.clean(topic, force=True)
        broker.delete_records({TopicPartition("front", 0): 12})

    before, after = pair(fill, work)
    # Entries outside their log, just above its end and just below its start, are ignored.
    (before / "cleaner-offset-checkpoint").write_text(
        "0\n4\nfresh 0 31\nagain 0 30\nfront 0 4\nrest 0 30\n"
    )
    verify_directories(None, before, after)
    assert asked.cleaned == {
        ("fresh", 0): Cleaned(0, 30, 30),
        ("never", 0): Cleaned(0, 0, 30),
        ("again", 0): Cleaned(0, 35, 35),
        ("front", 0): Cleaned(12, 30, 30),
        ("rest", 0): Cleaned(0, 30, 30),
    }
    assert asked.begun == {
        ("fresh", 0): StartState(0, 0),
        ("never", 0): StartState(0, 0),
        ("again", 0): StartState(0, 30),
        ("front", 0): StartState(5, 5),
        ("rest", 0): StartState(0, 30),
    }
    assert len(asked) == 1, "all topics are judged in one run"


def test_every_topic_has_its_own_rules_and_explicit_values_win(asked, pair):
    def fill(broker):
        compacted(broker, "plain", delete_retention_ms="5", min_compaction_lag_ms="6")
        compacted(broker, "time", compaction_strategy="timestamp", max_compaction_lag_ms="7")
        compacted(broker, "nameless", compaction_strategy="header")
        broker.create_topic(
            "version",
            configs={
                "cleanup.policy": "compact",
                "compaction.strategy": "header",
                "compaction.strategy.header": " v ",
                "logstore.compaction.strategy.header.encoding": "varlong",
            },
        )
        broker.append("version", value=b"1", key=b"k")

    dirs = pair(fill, lambda broker: broker.alter_configs("time", {"delete.retention.ms": "9"}))
    verify_directories(None, *dirs, since_ms=NOW - 1, now_ms=NOW)
    rules = asked.rules
    assert {topic: (r.strategy, r.header, r.encoding) for topic, r in rules.items()} == {
        "plain": ("offset", "", "long"),
        "time": ("timestamp", "", "long"),
        "nameless": ("offset", "", "long"),
        "version": ("header", "v", "varlong"),
    }
    assert (rules["plain"].delete_retention_ms, rules["time"].delete_retention_ms) == (5, 9)
    assert [rules[t].min_compaction_lag_ms for t in ("plain", "time")] == [6, 0]
    assert [rules[t].max_compaction_lag_ms for t in ("plain", "time")] == [None, 7]
    assert {(r.since_ms, r.now_ms) for r in rules.values()} == {(NOW - 1, NOW)}

    asked.clear()
    verify_directories(None, *dirs, strategy="header", header="w", encoding="long", now_ms=NOW)
    assert {(r.strategy, r.header, r.encoding) for r in asked.rules.values()} == {
        ("header", "w", "long")
    }
    asked.clear()
    verify_directories(None, *dirs, strategy="offset", topic="version")
    assert {topic: r.strategy for topic, r in asked.rules.items()} == {"version": "offset"}
    with pytest.raises(
        InvalidConfigurationError,
        match=exactly("the strategy 'header' needs the name of the header"),
    ):
        verify_directories(None, *dirs, strategy="header")


def test_times_and_what_is_judged_by_them(asked, pair):
    def fill(broker):
        lags = {"min_compaction_lag_ms": "6", "max_compaction_lag_ms": "7"}
        compacted(broker, "t", **lags)

    dirs = pair(fill, lambda broker: broker.clean("t", force=True))
    verify_directories(None, *dirs, now_ms=NOW)
    (rules,) = asked.rules.values()
    assert (rules.since_ms, rules.now_ms) == (NOW, NOW)
    assert (rules.min_compaction_lag_ms, rules.max_compaction_lag_ms) == (6, 7)

    verdict = verify_directories(None, *dirs, now_ms=NOW, forced=True)
    assert (asked.rules["t"].min_compaction_lag_ms, asked.rules["t"].max_compaction_lag_ms) == (
        0, None,
    )  # fmt: skip
    assert verdict.notes == ()

    started = SystemClock().now_ms()
    verdict = verify_directories(None, *dirs)
    rules = asked.rules["t"]
    assert rules.since_ms is None
    assert started <= rules.now_ms <= SystemClock().now_ms()
    assert (rules.min_compaction_lag_ms, rules.max_compaction_lag_ms) == (0, None)
    assert verdict.notes == (
        "the time of the pass is unknown: tombstones without a delete horizon are accepted either "
        "way, and lags are not checked",
    )
    with pytest.raises(
        InvalidConfigurationError,
        match=exactly(
            "the first cleaning pass (1800000000001) is later than the last (1800000000000)"
        ),
    ):
        verify_directories(None, *dirs, since_ms=NOW + 1, now_ms=NOW)


def test_a_copy_without_the_topics_configuration_is_judged_by_that_of_before(asked, pair):
    def fill(broker):
        compacted(broker, "t", compaction_strategy="timestamp", delete_retention_ms="11")

    before, after = pair(fill, lambda broker: broker.clean("t", force=True))
    (after / "logstore-topics.json").unlink()
    verify_directories(None, before, after)
    assert (asked.rules["t"].strategy, asked.rules["t"].delete_retention_ms) == ("timestamp", 11)
    (before / "logstore-topics.json").unlink()
    asked.clear()
    defaults = {"log.cleaner.delete.retention.ms": "12"}
    verify_directories(None, before, after, broker_config=defaults)
    assert (asked.rules["t"].strategy, asked.rules["t"].delete_retention_ms) == ("offset", 12)
    assert asked.cleaned == {("t", 0): Cleaned(0, 30, 30)}, "whatever the policy says by now"
    assert asked.rules["t"].order == ("offset", "", "long")


def test_partitions_that_one_side_lacks_are_violations(asked, pair):
    def fill(broker):
        for topic in ("kept", "lost"):
            broker.create_topic(topic, partitions=3)
            for partition in range(2):  # 2 of each stays empty
                broker.append(topic, value=b"v", partition=partition)

    def work(broker):
        broker.create_partitions("kept", 5)
        broker.append("kept", value=b"v", partition=4)
        broker.append("kept", value=b"v", partition=2)

    before, after = pair(fill, work)
    shutil.rmtree(after / "kept-1")
    for folder in after.glob("lost-*"):
        shutil.rmtree(folder)
    verdict = verify_directories(None, before, after)
    assert verdict.violations == {"partition_lost": 3, "partition_invented": 1}
    assert [(e["kind"], e["topic"], e["partition"], e["offset"]) for e in verdict.examples] == [
        ("partition_lost", "kept", 1, None),
        ("partition_lost", "lost", 0, None),
        ("partition_lost", "lost", 1, None),
        ("partition_invented", "kept", 4, None),
    ]
    assert asked.cleaned == {("kept", 0): Cleaned(0, 0, 1), ("kept", 2): Cleaned(0, 0, 0)}
    assert verify_directories(None, before, after, topic="kept", partition=0).ok
    assert verify_directories(None, before, after, topic="lost").violations == {"partition_lost": 2}
    assert len(verify_directories(None, before, after, examples=1).examples) == 2


def test_nothing_to_compare_with_is_refused(asked, pair, tmp_path):
    before, after = pair(lambda broker: compacted(broker, "t"), lambda broker: None)
    with pytest.raises(UnknownTopicOrPartitionError, match=exactly("unknown topic 'nobody'")):
        verify_directories(None, before, after, topic="nobody")
    with pytest.raises(
        InvalidConfigurationError, match=exactly("data directory {path}/nowhere does not exist")
    ):
        verify_directories(None, before, tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(
        InvalidConfigurationError, match=exactly("{path}/empty: no partition to compare with")
    ):
        verify_directories(None, tmp_path / "empty", after)
    verdict = verify_directories(None, before, tmp_path / "empty")
    assert verdict.violations == {"partition_lost": 1}


def test_a_directory_that_cannot_be_read_is_an_error_and_no_loss(asked, pair, tmp_path):
    before, after = pair(lambda broker: compacted(broker, "t"), lambda broker: None)
    Broker(tmp_path / "other").close()
    checkpoint = after / "recovery-point-offset-checkpoint"
    checkpoint.unlink()
    checkpoint.symlink_to(checkpoint)
    with pytest.raises(
        KafkaStorageError,
        match=exactly(
            f"data directory {after} is offline: cannot open: [Errno {errno.ELOOP}] "
            f"{os.strerror(errno.ELOOP)}: '{checkpoint}'"
        ),
    ):
        verify_directories(None, before, [tmp_path / "other", after])


def test_all_log_directories_of_a_broker_count(asked, tmp_path):
    dirs = [tmp_path / name for name in ("one", "two")]
    with Broker(dirs, clock=VirtualClock()) as broker:
        broker.create_topic("t", partitions=4, configs={"cleanup.policy": "compact"})
        for partition in range(4):
            broker.append_many("t", [(b"k", b"v")] * 5, partition=partition)
            broker.roll("t", partition)
        broker.clean("t", force=True)
    verify_directories(None, dirs, dirs)
    assert asked.cleaned == {("t", n): Cleaned(0, 5, 5) for n in range(4)}
    assert verify_directories(None, dirs, dirs[:1]).violations == {"partition_lost": 2}


@pytest.mark.parametrize(
    ("policy", "later", "start"),
    (
        ("compact", "compact", 0),
        ("compact,delete", "compact,delete", 12),
        ("delete", "compact", 12),
        ("compact", "delete", 12),
    ),
)
def test_only_where_the_policy_deletes_may_the_front_be_gone(asked, pair, policy, later, start):
    def fill(broker):
        broker.create_topic("t", configs={"cleanup.policy": policy})
        broker.append_many("t", [(b"k%d" % n, b"v") for n in range(20)])

    def work(broker):
        broker.alter_configs("t", {"cleanup.policy": later})

    before, after = pair(fill, work)
    (after / "log-start-offset-checkpoint").write_text("0\n1\nt 0 12\n")
    verify_directories(None, before, after)
    assert asked.cleaned["t", 0].log_start_offset == start


def test_a_header_that_no_topic_is_compacted_by_is_refused(asked, pair):
    def fill(broker):
        broker.create_topic("t")
        broker.append("t", key=b"k", value=b"v")

    before, after = pair(fill, lambda broker: None)
    with pytest.raises(
        InvalidConfigurationError,
        match=exactly(
            "header and encoding have no effect: no topic is compacted by header; set "
            "strategy 'header'"
        ),
    ):
        verify_directories(None, before, after, header="version")
    verify_directories(None, before, after, header="version", strategy="header")
    assert asked.rules["t"].header == "version"


@pytest.mark.parametrize(
    ("configs", "how", "retention_ms", "unproven"),
    (
        ({"retention.ms": "1000"}, "retain", 1000, ()),
        ({"retention.ms": "1000"}, "delete-records", None, ("retention",)),
        ({"retention.ms": "1000", "retention.bytes": "10"}, "retain", None, ("retention",)),
        ({"retention.ms": "-1"}, "boundary", 2**63 - 1, ()),
    ),
)
def test_only_where_age_alone_moved_the_log_start_retention_is_judged(
    asked, pair, configs, how, retention_ms, unproven
):
    def fill(broker):
        compacted(broker, "t", cleanup_policy="compact,delete")
        broker.alter_configs("t", configs)

    def work(broker):
        if how == "retain":
            broker.clock.advance(seconds=2)
            broker.retain("t")
        else:
            offset = 10 if how == "boundary" else 12
            broker.delete_records({TopicPartition("t", 0): offset})

    dirs = pair(fill, work)
    verdict = verify_directories(None, *dirs, now_ms=NOW)
    cleaned = asked.cleaned["t", 0]
    assert cleaned.log_start_offset == {"retain": 30, "boundary": 10}.get(how, 12)
    assert cleaned.retention_ms == retention_ms
    assert verdict.unproven == unproven
    assert verdict.notes == (
        "never cleaned, expected to be unchanged: t-0",
        "the log start moved, records below it are only counted: t-0",
    )
    asked.clear()
    verdict = verify_directories(None, *dirs)
    assert asked.cleaned["t", 0].retention_ms is None
    assert verdict.unproven == ("tombstones", "retention")


def test_a_note_lists_at_most_ten_partitions(asked, pair):
    def fill(broker):
        for topic, partitions in (("ten", 10), ("more", 11)):
            broker.create_topic(topic, partitions=partitions)
            for partition in range(partitions):
                broker.append(topic, value=b"v", partition=partition)

    dirs = pair(fill, lambda broker: None)

    def note(topic):
        return verify_directories(None, *dirs, topic=topic, now_ms=NOW).notes

    listed = ", ".join(f"{{0}}-{number}" for number in range(10))
    assert note("ten") == (f"never cleaned, expected to be unchanged: {listed.format('ten')}",)
    assert note("more") == (f"never cleaned, expected to be unchanged: {listed.format('more')}, …",)


@pytest.mark.parametrize(
    ("configs", "unproven"),
    (
        ({"min_compaction_lag_ms": "6"}, ("lags",)),
        ({"max_compaction_lag_ms": "7"}, ("lags",)),
        ({"delete_retention_ms": "8"}, ()),
    ),
)
def test_unjudged_items_are_listed_in_the_verdict(asked, pair, configs, unproven):
    def fill(broker):
        compacted(broker, "t", **configs)
        compacted(broker, "without")

    def work(broker):
        broker.clean("t", force=True)
        broker.clean("without", force=True)

    dirs = pair(fill, work)
    assert verify_directories(None, *dirs).unproven == ("tombstones", *unproven)
    assert verify_directories(None, *dirs, now_ms=NOW, forced=True).unproven == unproven
    assert verify_directories(None, *dirs, now_ms=NOW).unproven == ()


def test_all_scans_read_the_same_partitions_each_with_its_columns(asked, pair):
    def fill(broker):
        compacted(broker, "plain", cleanup_policy="compact,delete")
        broker.create_topic("version", partitions=2, configs={
            "cleanup.policy": "compact",
            "compaction.strategy": "header",
            "compaction.strategy.header": "v",
        })  # fmt: skip
        for partition in range(2):
            broker.append("version", value=b"1", key=b"k", partition=partition)

    def work(broker):
        broker.clean("plain", force=True)
        broker.delete_records({TopicPartition("plain", 0): 12})

    before, after = map(str, pair(fill, work))
    columns = (
        "topic,partition,offset,key,timestamp,timestampType,aborted,deleteHorizonMs,valueDigest,"
        "headersDigest"
    )

    def scans(assign, columns_before):
        stored = {"assign": assign, "order": "stored"}
        first = {"assign": assign, "columns": columns_before}
        return {
            "before": ("scan", [before], first),
            "after": ("scan_in_order", [after], {**stored, "columns": columns}),
            "order": ("scan", [after], {**stored, "columns": "topic,partition,offset"}),
            "folded": ("scan_folded", [before], first, {("plain", 0): (12, 30)}),
        }

    verify_directories(None, before, after)
    both = scans('{"plain": [0], "version": [0, 1]}', f"{columns},headers")
    assert asked.scans == both
    verify_directories(None, before, after, topic="plain")
    assert asked.scans == scans('{"plain": [0]}', columns)


def test_uncleaned_data_is_a_violation_on_request(asked, pair):
    def fill(broker):
        for topic in ("done", "left", "was"):
            compacted(broker, topic)
        for topic in ("became", "plain"):
            compacted(broker, topic, cleanup_policy="delete")
        broker.create_topic("empty", configs={"cleanup.policy": "compact"})

    def work(broker):
        broker.clean("done", force=True)
        broker.alter_configs("became", {"cleanup.policy": "compact"})
        broker.alter_configs("was", {"cleanup.policy": "delete"})

    dirs = pair(fill, work)
    assert verify_directories(None, *dirs).ok
    verdict = verify_directories(None, *dirs, require_cleaned=True)
    assert verdict.violations == {"not_cleaned": 3}
    assert [(e["kind"], e["topic"], e["offset"]) for e in verdict.examples] == [
        ("not_cleaned", topic, None) for topic in ("became", "left", "was")
    ]
