"""Scenarios as files say them."""

from pathlib import Path

import pytest

from logstore.errors import InvalidConfigurationError, InvalidTopicError
from logstore.simulate import library
from logstore.simulate.actions import ACTION_KINDS, Action
from logstore.simulate.scenario import parse

SMALL = """
days = 2
[[topics]]
name = "users"
records = 100
"""


def test_a_topic_is_kafkas_default_unless_it_says_otherwise():
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
        ("days = ", "not TOML"),
        ("dais = 3", "unknown key dais; the nearest is 'days'"),
        ("days = -1", "days -1.0 is below 0"),
        ("days = 3", r"needs \[\[topics\]\]"),
        ("[topics]\nname = 'a'", r"write \[\[topics\]\]"),
        ("[[topics]]\nrecords = 3", r"topics\[0\] needs a name"),
        ("[[topics]]\nname = 'a/b'", "topic name 'a/b'"),
        ("[[topics]]\nname = '__consumer_offsets'", "cannot be simulated: only Kafka writes it"),
        ("[[topics]]\nname = '__share_group_state'", "cannot be simulated: only Kafka writes it"),
        ("[[topics]]\nname = 'a'\nrecord = 3", "unknown key record; the nearest is 'records'"),
        ("[[topics]]\nname = 'a'\nconfigs.segment.byte = 3", "segment.byte"),
        ("[broker]\nlog.cleaner.thread = 3", "log.cleaner.thread"),
        (SMALL + "[[topics]]\nname = 'users'", "duplicate topic 'users'"),
        (SMALL + "[[consumers]]\ntopic = 'user'", "'user', which is not in .* nearest is 'users'"),
        (
            SMALL + "[[consumers]]\ntopic = 'users'\nlag = '3x'",
            r"consumers\[0\]\.lag '3x' is not a duration",
        ),
        (SMALL + "[[actions]]\ndo = 'allter'", "nearest is 'alter'"),
        (SMALL + "[[actions]]\ndo = 'roll'", "roll at 0 needs a topic"),
        (SMALL + "[[consumers]]\ntopic = 'users'\nlag = '-3'", "lag '-3' is below 0"),
        (
            SMALL + "[[actions]]\ndo = 'crash'\nconfigs = {a = 1}",
            "crash at 0 does not accept configs",
        ),
        (SMALL + "[[actions]]\ndo = 'crash'\nlast = '1d'", "last; the nearest is 'lasts'"),
        (SMALL + "[[actions]]\ndo = 'alter'", "alter at 0 needs configs"),
        (
            SMALL + "[[actions]]\ndo = 'alter'\ntopic = 'users'\nconfigs.segment.mss = 1",
            r"is not possible: .*segment\.mss",
        ),
        (
            SMALL + "[[actions]]\ndo = 'alter'\nconfigs.log.dirs = '/x'",
            r"is not possible: .*log\.dirs",
        ),
        (SMALL + "[[actions]]\ndo = 'clean'\ntopic = 'users'\npartition = 1", "which has 1"),
        (SMALL + "[[actions]]\ndo = 'create-topic'\ntopic = 'user'", "nearest is 'users'"),
        (
            SMALL + "[[actions]]\nat = '1h'\ndo = 'delete-topic'\ntopic = 'users'\n"
            "[[actions]]\nat = '2h'\ndo = 'roll'\ntopic = 'users'",
            "roll at 2h names topic 'users', which does not exist at that time",
        ),
        (
            SMALL
            + "[[actions]]\nat = '1h'\ndo = 'add-partitions'\ntopic = 'users'\npartitions = 1",
            "sets 1 partitions for topic 'users', which has 1",
        ),
        (
            SMALL + "[[actions]]\nat = '1h'\ndo = 'stop-broker'\nlasts = '3h'\n"
            "[[actions]]\nat = '2h'\ndo = 'clean'\ntopic = 'users'",
            "clean at 2h is not possible while the broker is down",
        ),
        (SMALL + "[[actions]]\ndo = 'start-broker'", "is not possible while the broker is running"),
        (SMALL + "[[actions]]\ndo = 'fail-disk'", "needs operation"),
        (SMALL + "[[actions]]\ndo = 'fail-disk'\noperation = 'writ'", "nearest is 'write'"),
        (
            SMALL + "[[actions]]\ndo = 'fail-disk'\noperation = 'write'\nerror = 'ENOSP'",
            "unknown error 'ENOSP': expected the name of an errno; the nearest is 'ENOSPC'",
        ),
        (
            SMALL + "[[actions]]\ndo = 'fail-disk'\noperation = 'write'\ndirectory = 1",
            "has directory 1, but the scenario has only 1",
        ),
        (SMALL + "[[actions]]\ndo = 'jump-clock'\nby = 'x'", "by 'x' is not a duration"),
        (
            "[[topics]]\nname = 'a'\n[[topics.messages]]\npartition = 1",
            "names partition 1 of topic 'a', which has 1",
        ),
    ),
)
def test_what_is_wrong_is_named_before_anything_starts(text, message):
    with pytest.raises((InvalidConfigurationError, InvalidTopicError), match=message):
        parse(text)


def test_a_configuration_is_laid_over_the_topics_or_the_broker():
    scenario = parse(SMALL).with_config("segment.ms", "1h").with_config("log.cleaner.threads", "2")
    assert scenario.topics[0].configs["segment.ms"] == "3600000"
    assert scenario.broker == {"log.cleaner.threads": "2"}
    with pytest.raises(InvalidConfigurationError, match=r"segment\.mss"):
        scenario.with_config("segment.mss", "1h")


def test_what_comes_along_is_sound_and_told_apart():
    titles = library.titles()
    assert len(set(titles.values())) == len(titles) >= 7
    with pytest.raises(InvalidConfigurationError, match="nearest is 'four-policies'"):
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


def test_what_lasts_is_undone_at_its_end():
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
