"""Scenarios as files say them."""

from pathlib import Path

import pytest

from logstore.errors import InvalidConfigurationError, InvalidTopicError
from logstore.simulate import library
from logstore.simulate.deeds import DEEDS
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
        (SMALL + "[[topics]]\nname = 'users'", "two topics are called 'users'"),
        (SMALL + "[[consumers]]\ntopic = 'user'", "'user', which is none .* nearest is 'users'"),
        (
            SMALL + "[[consumers]]\ntopic = 'users'\nlag = '3x'",
            r"consumers\[0\]\.lag '3x' is no duration",
        ),
        (SMALL + "[[actions]]\ndo = 'allter'", "nearest is 'alter'"),
        (SMALL + "[[actions]]\ndo = 'roll'", "roll at 0 needs a topic"),
        (SMALL + "[[consumers]]\ntopic = 'users'\nlag = '-3'", "lag '-3' is below 0"),
        (SMALL + "[[actions]]\ndo = 'crash'\nconfigs = {a = 1}", "crash at 0 takes no configs"),
        (SMALL + "[[actions]]\ndo = 'crash'\nlast = '1d'", "last; the nearest is 'lasts'"),
        (SMALL + "[[actions]]\ndo = 'alter'", "alter at 0 needs configs"),
        (
            SMALL + "[[actions]]\ndo = 'alter'\ntopic = 'users'\nconfigs.segment.mss = 1",
            r"cannot be done: .*segment\.mss",
        ),
        (
            SMALL + "[[actions]]\ndo = 'alter'\nconfigs.log.dirs = '/x'",
            r"cannot be done: .*log\.dirs",
        ),
        (SMALL + "[[actions]]\ndo = 'clean'\ntopic = 'users'\npartition = 1", "which has 1"),
        (SMALL + "[[actions]]\ndo = 'create-topic'\ntopic = 'user'", "nearest is 'users'"),
        (
            SMALL + "[[actions]]\nat = '1h'\ndo = 'delete-topic'\ntopic = 'users'\n"
            "[[actions]]\nat = '2h'\ndo = 'roll'\ntopic = 'users'",
            "roll at 2h is for topic 'users', which is not there then",
        ),
        (
            SMALL
            + "[[actions]]\nat = '1h'\ndo = 'add-partitions'\ntopic = 'users'\npartitions = 1",
            "1 partitions; it has 1 already",
        ),
        (
            SMALL + "[[actions]]\nat = '1h'\ndo = 'stop-broker'\nlasts = '3h'\n"
            "[[actions]]\nat = '2h'\ndo = 'clean'\ntopic = 'users'",
            "clean at 2h comes while the broker is down",
        ),
        (SMALL + "[[actions]]\ndo = 'start-broker'", "comes while the broker runs"),
        (SMALL + "[[actions]]\ndo = 'fail-disk'", "needs operation"),
        (SMALL + "[[actions]]\ndo = 'fail-disk'\noperation = 'writ'", "nearest is 'write'"),
        (
            SMALL + "[[actions]]\ndo = 'fail-disk'\noperation = 'write'\nerror = 'ENOSP'",
            "error 'ENOSP', which is no errno; the nearest is 'ENOSPC'",
        ),
        (
            SMALL + "[[actions]]\ndo = 'fail-disk'\noperation = 'write'\ndirectory = 1",
            "directory 1; there are 1",
        ),
        (SMALL + "[[actions]]\ndo = 'jump-clock'\nby = 'x'", "by 'x' is no duration"),
        (
            "[[topics]]\nname = 'a'\n[[topics.messages]]\npartition = 1",
            "goes to partition 1 of topic 'a', which has 1",
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


@pytest.mark.parametrize("deed", DEEDS)
def test_every_deed_is_known_and_told(deed):
    needs = {*DEEDS[deed].needs, *({"topic"} & {*DEEDS[deed].takes})}
    words = "".join(f"{name} = {WORDS[name]}\n" for name in needs)
    before = f"[[actions]]\ndo = '{BEFORE[deed]}'\n" if deed in BEFORE else ""
    scenario = parse(f"{SMALL}{before}[[actions]]\nat = '1d'\ndo = '{deed}'\n{words}")
    assert str(scenario.actions[-1]).startswith(deed)
    page = Path(__file__).parents[3] / "docs" / "SIMULATION.md"
    assert f"`{deed}`" in page.read_text(encoding="utf-8")


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
