"""Scenarios as files say them."""

from pathlib import Path

import pytest

from logstore.errors import InvalidConfigurationError, InvalidTopicError
from logstore.simulate import library
from logstore.simulate.actions import ACTION_KINDS, Action
from logstore.simulate.scenario import parse
from tests.support.world.messages import exactly

SMALL = """
days = 2
[[topics]]
name = "users"
records = 100
"""


def test_a_topic_has_kafkas_defaults_without_overrides():
    topic = parse(SMALL).topics[0]
    assert topic.configs == {"cleanup.policy": "delete"}
    assert topic.partitions == 1
    assert topic.workload.time.days == 2.0


def test_presets_bring_their_configurations():
    scenario = parse('[[topics]]\nname = "a"\npreset = "cdc-table"\nrecords = 10')
    assert scenario.topics[0].configs["compaction.strategy"] == "header"


@pytest.mark.parametrize(
    ("text", "message"),
    (
        ("days = ", "the scenario is not TOML: Invalid value (at end of document)"),
        ("dais = 3", "unknown key dais; the nearest is 'days'"),
        ("days = -1", "days -1.0 is below 0.0"),
        ("days = 3", "a scenario needs [[topics]]"),
        ("[topics]\nname = 'a'", "topics must be an array of tables: use [[topics]]"),
        ("[[topics]]\nrecords = 3", "topics[0] needs a name"),
        (
            "[[topics]]\nname = 'a/b'",
            ("topic name 'a/b' has characters other than ASCII letters, digits, '.', '_' and '-'"),
        ),
        (
            "[[topics]]\nname = '__consumer_offsets'",
            (
                "topic '__consumer_offsets' cannot be simulated: only Kafka writes it, in a "
                "format of its own. Random keys and values are not valid records of it"
            ),
        ),
        (
            "[[topics]]\nname = '__share_group_state'",
            (
                "topic '__share_group_state' cannot be simulated: only Kafka writes it, in a "
                "format of its own. Random keys and values are not valid records of it"
            ),
        ),
        ("[[topics]]\nname = 'a'\nrecord = 3", "unknown key record; the nearest is 'records'"),
        (
            "[[topics]]\nname = 'a'\nconfigs.segment.byte = 3",
            "unknown topic configuration 'segment.byte'; the nearest is 'segment.bytes'",
        ),
        (
            "[broker]\nlog.cleaner.thread = 3",
            (
                "unknown broker configuration 'log.cleaner.thread'; the nearest is "
                "'log.cleaner.threads'"
            ),
        ),
        (SMALL + "[[topics]]\nname = 'users'", "duplicate topic 'users'"),
        (
            SMALL + "[[consumers]]\ntopic = 'user'",
            (
                "consumer 'consumer' reads topic 'user', which is not in the scenario; the "
                "nearest is 'users'"
            ),
        ),
        (
            SMALL + "[[consumers]]\ntopic = 'users'\nlag = '3x'",
            (
                "consumers[0].lag '3x' is not a duration: use milliseconds, or 7d, 12h, 5m, "
                "30s, 250ms"
            ),
        ),
        (
            SMALL + "[[actions]]\ndo = 'allter'",
            (
                "actions[0].do 'allter' is not one of alter, roll, clean, delete-records, "
                "create-topic, delete-topic, add-partitions, corrupt, retry, stop-cleaner, "
                "start-cleaner, stop-broker, start-broker, kill, crash, fill-disk, free-disk,"
                " fail-disk, mend-disk, jump-clock; the nearest is 'alter'"
            ),
        ),
        (SMALL + "[[actions]]\ndo = 'roll'", "roll at 0 needs a topic"),
        (SMALL + "[[consumers]]\ntopic = 'users'\nlag = '-3'", "consumers[0].lag '-3' is below 0"),
        (
            SMALL + "[[actions]]\ndo = 'crash'\nconfigs = {a = 1}",
            "crash at 0 does not accept configs",
        ),
        (
            SMALL + "[[actions]]\ndo = 'crash'\nlast = '1d'",
            "unknown key actions[0].last; the nearest is 'lasts'",
        ),
        (SMALL + "[[actions]]\ndo = 'alter'", "alter at 0 needs configs"),
        (
            SMALL + "[[actions]]\ndo = 'alter'\ntopic = 'users'\nconfigs.segment.mss = 1",
            (
                "alter at 0 is not possible: unknown topic configuration 'segment.mss'; the "
                "nearest is 'segment.ms'"
            ),
        ),
        (
            SMALL + "[[actions]]\ndo = 'alter'\nconfigs.log.dirs = '/x'",
            (
                "alter at 0 is not possible: log.dirs cannot be changed while the broker "
                "runs; the dynamic keys are background.threads, compression.gzip.level, "
                "compression.lz4.level, compression.type, compression.zstd.level, "
                "follower.replication.throttled.rate, group.consumer.assignment.interval.ms, "
                "leader.replication.throttled.rate, log.cleaner.backoff.ms, "
                "log.cleaner.compaction.strategy, log.cleaner.compaction.strategy.header, "
                "log.cleaner.dedupe.buffer.size, log.cleaner.delete.retention.ms, "
                "log.cleaner.io.buffer.load.factor, log.cleaner.io.buffer.size, "
                "log.cleaner.io.max.bytes.per.second, log.cleaner.max.compaction.lag.ms, "
                "log.cleaner.min.cleanable.ratio, log.cleaner.min.compaction.lag.ms, "
                "log.cleaner.threads, log.cleanup.policy, log.flush.interval.messages, "
                "log.flush.interval.ms, log.index.interval.bytes, log.index.size.max.bytes, "
                "log.message.timestamp.after.max.ms, log.message.timestamp.before.max.ms, "
                "log.message.timestamp.difference.max.ms, log.message.timestamp.type, "
                "log.preallocate, log.retention.bytes, log.retention.ms, log.roll.jitter.ms, "
                "log.roll.ms, log.segment.bytes, log.segment.delete.delay.ms, "
                "logstore.batch.max.records, logstore.cleaner.max.read.bytes.per.second, "
                "logstore.cleaner.max.write.bytes.per.second, "
                "logstore.compaction.strategy.header.encoding, "
                "logstore.decompression.max.bytes, max.connection.creation.rate, "
                "max.connections, max.connections.per.ip, message.max.bytes, "
                "min.insync.replicas, num.io.threads, num.network.threads, "
                "num.replica.fetchers, replica.alter.log.dirs.io.max.bytes.per.second, "
                "sasl.kerberos.min.time.before.relogin, "
                "transaction.partition.verification.enable, unclean.leader.election.enable"
            ),
        ),
        (
            SMALL + "[[actions]]\ndo = 'clean'\ntopic = 'users'\npartition = 1",
            "clean at 0 names partition 1 of topic 'users', which has 1",
        ),
        (
            SMALL + "[[actions]]\ndo = 'create-topic'\ntopic = 'user'",
            (
                "create-topic at 0 names topic 'user', which is not in the scenario; the "
                "nearest is 'users'"
            ),
        ),
        (
            SMALL + "[[actions]]\nat = '1h'\ndo = 'delete-topic'\ntopic = 'users'\n"
            "[[actions]]\nat = '2h'\ndo = 'roll'\ntopic = 'users'",
            "roll at 2h names topic 'users', which does not exist at that time",
        ),
        (
            SMALL
            + "[[actions]]\nat = '1h'\ndo = 'add-partitions'\ntopic = 'users'\npartitions = 1",
            "add-partitions at 1h sets 1 partitions for topic 'users', which has 1",
        ),
        (
            SMALL + "[[actions]]\nat = '1h'\ndo = 'stop-broker'\nlasts = '3h'\n"
            "[[actions]]\nat = '2h'\ndo = 'clean'\ntopic = 'users'",
            "clean at 2h is not possible while the broker is down",
        ),
        (
            SMALL + "[[actions]]\ndo = 'start-broker'",
            "start-broker at 0 is not possible while the broker is running",
        ),
        (SMALL + "[[actions]]\ndo = 'fail-disk'", "fail-disk at 0 needs operation"),
        (
            SMALL + "[[actions]]\ndo = 'fail-disk'\noperation = 'writ'",
            (
                "actions[0].operation 'writ' is not one of , write, read, fsync, rename, "
                "swap; the nearest is 'write'"
            ),
        ),
        (
            SMALL + "[[actions]]\ndo = 'fail-disk'\noperation = 'write'\nerror = 'ENOSP'",
            (
                "fail-disk at 0 has unknown error 'ENOSP': expected the name of an errno; the"
                " nearest is 'ENOSPC'"
            ),
        ),
        (
            SMALL + "[[actions]]\ndo = 'fail-disk'\noperation = 'write'\ndirectory = 1",
            "fail-disk at 0 has directory 1, but the scenario has only 1",
        ),
        (
            SMALL + "[[actions]]\ndo = 'jump-clock'\nby = 'x'",
            ("actions[0].by 'x' is not a duration: use milliseconds, or 7d, 12h, 5m, 30s, 250ms"),
        ),
        (
            "[[topics]]\nname = 'a'\n[[topics.messages]]\npartition = 1",
            "the message at 0 names partition 1 of topic 'a', which has 1",
        ),
    ),
)
def test_errors_are_reported_before_anything_starts(text, message):
    with pytest.raises((InvalidConfigurationError, InvalidTopicError), match=exactly(message)):
        parse(text)


def test_a_configuration_is_laid_over_the_topics_or_the_broker():
    scenario = parse(SMALL).with_config("segment.ms", "1h").with_config("log.cleaner.threads", "2")
    assert scenario.topics[0].configs["segment.ms"] == "3600000"
    assert scenario.broker == {"log.cleaner.threads": "2"}
    with pytest.raises(InvalidConfigurationError, match=r"segment\.mss"):
        scenario.with_config("segment.mss", "1h")


def test_copied_files_are_valid_and_distinguished():
    titles = library.titles()
    assert len(set(titles.values())) == len(titles) >= 7
    with pytest.raises(
        InvalidConfigurationError,
        match=exactly(
            "'for-policies' is neither a file nor a built-in scenario; the nearest is "
            "'four-policies'"
        ),
    ):
        library.text_of("for-policies")


WORDS = {
    "topic": "'users'",
    "configs": "{ 'segment.ms' = '1h' }",
    "partitions": "2",
    "operation": "'write'",
    "by": "'-1h'",
}
BEFORE = {
    "create-topic": "delete-topic' \ntopic = 'users",
    "start-broker": "stop-broker",
}


@pytest.mark.parametrize("kind", ACTION_KINDS)
def test_every_kind_of_action_is_parsed_and_documented(kind):
    needs = {*ACTION_KINDS[kind].required, *({"topic"} & {*ACTION_KINDS[kind].optional})}
    words = "".join(f"{name} = {WORDS[name]}\n" for name in needs)
    before = f"[[actions]]\ndo = '{BEFORE[kind]}'\n" if kind in BEFORE else ""
    scenario = parse(f"{SMALL}{before}[[actions]]\nat = '1d'\ndo = '{kind}'\n{words}")
    assert str(scenario.actions[-1]).startswith(kind)
    page = Path(__file__).parents[3] / "docs" / "SIMULATION.md"
    assert f"`{kind}`" in page.read_text(encoding="utf-8")


def test_an_action_with_a_duration_is_undone_at_its_end():
    scenario = parse(
        SMALL + "[[actions]]\nat = '1h'\ndo = 'jump-clock'\nby = '-5m'\nlasts = '2h'\n"
        "[[actions]]\nat = '2h'\ndo = 'fail-disk'\noperation = 'read'\ndelay = '5'\nlasts = '30m'"
    )
    found = [(action.at_ms // 60_000, str(action)) for action in scenario.actions]
    assert found == [
        (60, "jump-clock by=-5m"),
        (120, "fail-disk operation=read delay=5"),
        (150, "mend-disk operation=read"),
        (180, "jump-clock by=5m"),
    ]


def test_a_topic_that_is_created_later_begins_then():
    scenario = parse(SMALL + "[[actions]]\nat = '12h'\ndo = 'create-topic'\ntopic = 'users'")
    workload = scenario.topics[0].workload
    assert (workload.time.days, workload.time.start_ms - scenario.start_ms) == (1.5, 43_200_000)


def action(at, do, **words):
    """Return an action as TOML."""
    rows = {"at": at, "do": do, **words}
    return "[[actions]]\n" + "".join(f"{name} = {value!r}\n" for name, value in rows.items())


SCOPE = {"operation": "write", "topic": "users", "partition": 0, "directory": 0}


@pytest.mark.parametrize(
    ("text", "plan"),
    (
        (action("1h", "stop-cleaner", lasts="2h"), ["1h stop-cleaner", "3h start-cleaner"]),
        (action("1h", "stop-broker", lasts="2h"), ["1h stop-broker", "3h start-broker"]),
        (action("1h", "kill", lasts="2h"), ["1h kill", "3h start-broker"]),
        (action("1h", "crash", lasts="2h"), ["1h crash", "3h start-broker"]),
        (action("1h", "fill-disk", lasts="2h"), ["1h fill-disk", "3h free-disk"]),
        (action("1h", "jump-clock", by="5m", lasts="2h"),
         ["1h jump-clock by=5m", "3h jump-clock by=-5m"]),
        (action("1h", "fail-disk", **SCOPE, error="EIO", delay="4m", lasts="2h"),
         ["1h fail-disk users partition=0 operation=write error=EIO delay=4m directory=0",
          "3h mend-disk users partition=0 operation=write directory=0"]),
        (action("1h", "kill") + action("2h", "roll", topic="users"), ["1h kill", "2h roll users"]),
        (action("1h", "crash") + action("2h", "roll", topic="users"),
         ["1h crash", "2h roll users"]),
        (action("1h", "stop-broker") + action("2h", "free-disk")
         + action("3h", "clean", topic="users"),
         ["1h stop-broker", "2h free-disk", "3h clean users"]),
        (action("1h", "stop-broker") + action("2h", "corrupt", topic="users", offset=0)
         + action("3h", "fill-disk") + action("4h", "fail-disk", operation="fsync")
         + action("5h", "mend-disk") + action("6h", "jump-clock", by="-2h"),
         ["1h stop-broker", "2h corrupt users offset=0", "3h fill-disk",
          "4h fail-disk operation=fsync", "5h mend-disk", "6h jump-clock by=-2h"]),
        (action("3h", "create-topic", topic="users") + action("2h", "delete-topic", topic="users")
         + action("1h", "delete-records", topic="users", partition=0, before=0),
         ["1h delete-records users partition=0 before=0", "2h delete-topic users",
          "3h create-topic users"]),
        (action("1h", "add-partitions", topic="users", partitions=2)
         + action("2h", "retry", topic="users", partition=1)
         + action("3h", "alter", topic="users")
         + "configs = { 'segment.ms' = 5, preallocate = true }\n",
         ["1h add-partitions users partitions=2", "2h retry users partition=1",
          "3h alter users segment.ms=5 preallocate=true"]),
    ),
)  # fmt: skip
def test_the_plan_has_these_actions(text, plan):
    actions = parse(SMALL + text).actions
    assert [f"{each.at_ms // 3_600_000}h {each}" for each in actions] == plan


@pytest.mark.parametrize(
    ("text", "message"),
    (
        (action("1h", "roll", topic="users") + action("2h", "create-topic", topic="users"),
         "roll at 1h names topic 'users', which does not exist at that time"),
        (action("1h", "create-topic", topic="users") + action("2h", "create-topic", topic="users"),
         "create-topic at 2h names topic 'users', which already exists"),
        (action("1h", "roll", topic="users", partition=-2),
         "actions[0].partition -2 is below -1"),
        (action("1h", "delete-records", topic="users", before=-2),
         "actions[0].before -2 is below -1"),
        (action("1h", "corrupt", topic="users", offset=-2), "actions[0].offset -2 is below -1"),
        (action("1h", "mend-disk", directory=-2), "actions[0].directory -2 is below -1"),
        (action("1h", "add-partitions", topic="users", partitions=10_001),
         "actions[0].partitions 10001 is above 10000"),
        (action("1h", "mend-disk", partition=0), "mend-disk at 1h has a partition but no topic"),
        (action("1h", "start-cleaner", lasts="1h"), "start-cleaner at 1h does not accept lasts"),
        (action("1h", "roll", topic="users", before=0), "roll at 1h does not accept before"),
        (action("1h", "stop-cleaner", topic="users"), "stop-cleaner at 1h does not accept topic"),
        (action("1h", "add-partitions", topic="users"), "add-partitions at 1h needs partitions"),
        (action("1h", "jump-clock"), "jump-clock at 1h needs by"),
        (action("1h", "alter", topic="users"), "alter at 1h needs configs"),
        (action("1h", "delete-topic"), "delete-topic at 1h needs a topic"),
        (action("1h", "clean", topic="users", partition=1),
         "clean at 1h names partition 1 of topic 'users', which has 1"),
        (action("1h", "add-partitions", topic="users", partitions=3)
         + action("2h", "add-partitions", topic="users", partitions=3),
         "add-partitions at 2h sets 3 partitions for topic 'users', which has 3"),
        *((action("1h", do, lasts="2h") + action("2h", "stop-cleaner"),
           "stop-cleaner at 2h is not possible while the broker is down")
          for do in ("kill", "crash", "stop-broker")),
        (action("1h", "stop-broker") + action("2h", "start-broker") + action("3h", "start-broker"),
         "start-broker at 3h is not possible while the broker is running"),
        (action("1h", "mend-disk", topic="uers"),
         "mend-disk at 1h names topic 'uers', which is not in the scenario; the nearest is "
         "'users'"),
        (action("1h", "fail-disk", operation="write", error="ENOSP"),
         "fail-disk at 1h has unknown error 'ENOSP': expected the name of an errno; the nearest "
         "is 'ENOSPC'"),
        (action("1h", "mend-disk", directory=1),
         "mend-disk at 1h has directory 1, but the scenario has only 1"),
    ),
)  # fmt: skip
def test_an_impossible_action_is_refused_with_its_reason(text, message):
    with pytest.raises(InvalidConfigurationError) as refusal:
        parse(SMALL + text)
    assert str(refusal.value) == message


@pytest.mark.parametrize(
    ("words", "repairs"),
    (
        ({}, True),
        (SCOPE, True),
        ({"operation": "read"}, False),
        ({"topic": "other"}, False),
        ({"partition": 1, "topic": "users"}, False),
        ({"directory": 1}, False),
        ({"directory": 0}, True),
    ),
)
def test_a_mended_disk_repairs_the_faults_in_its_scope(words, repairs):
    mend = Action(do="mend-disk", **words)
    assert mend.repairs(Action(do="fail-disk", **SCOPE)) is repairs
    assert not mend.repairs(Action(do="fill-disk", **SCOPE))


def test_an_action_without_a_scope_has_no_key_and_no_inverse():
    assert Action(do="roll", at="2h").keys == ()
    assert Action(do="roll", at="2h", topic="a", partition=0).keys == ("topic", "partition")
    assert Action(do="kill", at="2h").inverse() is None
    assert Action(do="kill", at="2h", lasts="1h").inverse() == Action(
        at="10800000", do="start-broker"
    )


CONTINUED = 'from = "/x"\n[[topics]]\nname = "t"\ncontinued = true\n'
TOPIC = "[[topics]]\nname = 't'\n"


@pytest.mark.parametrize(
    ("text", "message"),
    (
        ("topics = [3]", "topics must be an array of tables: use [[topics]]"),
        ("topics = 3", "topics must be an array of tables: use [[topics]]"),
        ("days = 3", "a scenario needs [[topics]]"),
        ("[[topics]]\nname = 3", "topics[0] needs a name"),
        ("actions = [3]" + SMALL, "actions must be an array of tables: use [[actions]]"),
        ("actions = 3" + SMALL, "actions must be an array of tables: use [[actions]]"),
        ("consumers = 3" + SMALL, "consumers must be an array of tables: use [[consumers]]"),
        (SMALL + SMALL.partition("2\n")[2], "duplicate topic 'users'"),
        (SMALL + "[[consumers]]\nname = 'c'\ntopic = 'user'",
         "consumer 'c' reads topic 'user', which is not in the scenario; the nearest is 'users'"),
        (TOPIC + "replay.file = 'x'\nmessages = []", "topic 't' has both messages and a replay"),
        (TOPIC + "replay.file = 'x'\ncontinued = false",
         "topic 't' has both continued and a replay"),
        (TOPIC + "continued = 3", "topics.t.continued must be true or false, not 3"),
        (TOPIC + "continued = true", "topic 't' is continued, but the scenario has no from"),
        ("from = '/x'\n" + TOPIC + "records = 0",
         "the scenario has from, but no topic has continued = true"),
        ("directories = 2\n" + CONTINUED, "a scenario with from has 1 data directory, not 2"),
        (CONTINUED + "partitions = 3",
         "topics.t.partitions cannot be set: a continued topic keeps the partitions that it has"),
        (CONTINUED + action("0", "add-partitions", topic="t", partitions=3),
         "topic 't' is continued, so add-partitions is not possible"),
        (CONTINUED + action("0", "create-topic", topic="t"),
         "topic 't' is continued, so create-topic is not possible"),
        (CONTINUED + "keys.null_share = 0.25\nconfigs = { 'cleanup.policy' = 'compact' }",
         "topic 't' is compacted, so its records need keys: keys.null_share must be 0, not 0.25"),
        (CONTINUED + "keys = { new_share = 0.5, quiet_share = 0.3, null_share = 0.3 }",
         "topics.t.keys: the sum of new_share, quiet_share and null_share is above 1"),
        (CONTINUED + "records = 1\nrecords_per_day = 1",
         "topics.t has both records and records_per_day: use one of them"),
        (CONTINUED + "records_per_day = -1", "topics.t.records_per_day -1.0 is below 0.0"),
        (CONTINUED + "records_per_day = 1\ntime = { day = 3 }",
         "unknown key topics.t.time.day; the nearest is 'days'"),
        (CONTINUED + "partition_shares = 3",
         "topics.t.partition_shares must be a table, not 3"),
        (CONTINUED + "partition_shares = { 0 = true }",
         "topics.t.partition_shares must map partition numbers to shares, not '0' to True"),
        (CONTINUED + "partition_shares = { -1 = 1 }",
         "topics.t.partition_shares must map partition numbers to shares, not '-1' to 1"),
        (CONTINUED + "partition_shares = { 0 = -0.5 }",
         "topics.t.partition_shares.0 must be a number from 0 up, not -0.5"),
        (CONTINUED + "partition_shares = { 0 = inf }",
         "topics.t.partition_shares.0 must be a number from 0 up, not inf"),
        (CONTINUED + "partition_shares = { 0 = 0, 3 = 0.0 }",
         "all shares in topics.t.partition_shares are 0"),
        (TOPIC + "partitions = 2\nmessages = [ { at = '3h', partition = 2 } ]",
         "the message at 3h names partition 2 of topic 't', which has 2"),
        (TOPIC + "messages = [ { partition = -1 } ]",
         "topics.t.messages[0].partition -1 is below 0"),
        (TOPIC + "messages = 3", "messages must be an array of tables: use [[messages]]"),
        (TOPIC + "records = 0\npartitions = 10_001", "topics.t.partitions 10001 is above 10000"),
        ("broker = 3" + SMALL, "broker must be a table, not 3"),
    ),
)  # fmt: skip
def test_an_invalid_scenario_is_refused_with_its_reason(text, message):
    with pytest.raises(InvalidConfigurationError) as refusal:
        parse(text)
    assert str(refusal.value) == message


def test_a_scenario_has_these_parts():
    text = """
    days = 4
    seed = 5
    start = "2024-03-01T00:00:00Z"
    directories = 3
    [broker]
    "log.cleaner.enable" = true
    [[topics]]
    name = "a"
    records_per_day = 30
    time = { days = 2, profile = [1, 3] }
    [[topics]]
    name = "b"
    partitions = 2
    messages = [
      { at = "2h", key = "x" }, { at = "1h", key = "y", late = "3h", early = "30m", partition = 2 }
    ]
    [[topics]]
    name = "c"
    records = 0
    partitions = 5
    [[consumers]]
    topic = "a"
    lag = "2h"
    away_from = "10h"
    away = "5h"
    [[actions]]
    at = "1d"
    do = "add-partitions"
    topic = "b"
    partitions = 3
    [[actions]]
    at = "36h"
    do = "alter"
    topic = "b"
    configs = { "preallocate" = true, "segment.ms" = 5 }
    [[actions]]
    do = "delete-topic"
    topic = "c"
    at = "1h"
    [[actions]]
    do = "create-topic"
    topic = "c"
    at = "2d"
    """
    scenario = parse(text)
    a, b, c = scenario.topics
    assert (scenario.title, scenario.about, scenario.origins) == ("a, b, c", "", ())
    assert (scenario.days, scenario.seed, scenario.directories) == (4.0, 5, 3)
    assert (scenario.start_ms, scenario.span_ms) == (1_709_251_200_000, 345_600_000)
    assert scenario.broker == {"log.cleaner.enable": "true"}
    assert (a.workload.records, a.workload.seed, a.workload.partitions) == (60, 5, 1)
    assert (a.workload.time.days, a.workload.time.start_ms) == (2.0, scenario.start_ms)
    assert [each.partitions for each in (a, b, c)] == [1, 2, 5]
    assert [scenario.partitions_of(name) for name in "abc"] == [1, 3, 5]
    assert [(each.key, each.at_ms, each.timestamp_ms) for each in b.messages] == [
        ("y", 3_600_000, -5_400_000), ("x", 7_200_000, 7_200_000),
    ]  # fmt: skip
    assert (c.messages, c.workload, c.continued, c.known, c.shares) == ((), None, False, None, {})
    assert [str(each) for each in scenario.actions] == [
        "delete-topic c", "add-partitions b partitions=3", "alter b preallocate=true segment.ms=5",
        "create-topic c",
    ]  # fmt: skip
    (consumer,) = scenario.consumers
    assert (consumer.name, consumer.lag_ms, consumer.away_ms) == (
        "consumer", 7_200_000, (36_000_000, 54_000_000),
    )  # fmt: skip
    hour = 3_600_000
    read = [consumer.read_until(at * hour) // hour for at in (9, 10, 11, 14, 15)]
    assert read == [7, 8, 8, 8, 13]
    assert scenario.with_days(1).days == 1
    assert scenario.with_seed(8).topics[1].partitions == 2
    assert [each.workload.seed for each in parse(text).with_seed(8).topics[:1]] == [8]
    assert scenario.continued_topics == []


def test_a_continued_topic_has_these_parts():
    text = CONTINUED + "partition_shares = { 0 = 1, 4 = 3 }\nkeys.new_share = 0.5\n"
    (silent,) = parse(text).topics
    assert (silent.partitions, silent.workload, silent.continued) == (1, None, True)
    assert (silent.known.new_share, silent.shares) == (0.5, {0: 1.0, 4: 3.0})
    (topic,) = parse(text + "records_per_day = 10").topics
    assert (topic.partitions, topic.workload.records, topic.continued) == (5, 300, True)
    assert (topic.known.new_share, topic.shares) == (0.5, {0: 1.0, 4: 3.0})
    (ranked,) = parse(CONTINUED + "records = 3\nkeys.distribution = 'uniform'").topics
    assert (ranked.known, ranked.workload.keys.distribution) == (None, "uniform")
    assert (ranked.partitions, ranked.shares, ranked.configs) == (
        1, {}, {"cleanup.policy": "delete"},
    )  # fmt: skip
    scenario = parse(CONTINUED + TOPIC.replace("'t'", "'u'"))
    assert scenario.continued_topics == ["t"]
    assert scenario.with_origins(["/y"]).origins == ("/y",)
    several = parse(CONTINUED.replace('"/x"', '["/x", "y"]'), Path("/z"))
    assert several.origins == ("/x", "/z/y")
    (exact,) = parse(
        CONTINUED + "keys = { new_share = 0.3, quiet_share = 0.6, null_share = 0.1 }"
    ).topics
    assert exact.known.null_share == 0.1


def test_a_scenario_continues_other_folders_in_their_order():
    scenario = parse('from = "x"\n[[topics]]\nname = "t"\ncontinued = true\n')
    assert scenario.with_origins(["/b", "/a"]).origins == ("/b", "/a")
    assert scenario.with_origins(["/c"]).origins == ("/c",)
