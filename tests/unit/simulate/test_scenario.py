"""Scenarios as files say them."""

import pytest

from logstore.errors import InvalidConfigurationError, InvalidTopicError
from logstore.simulate import library
from logstore.simulate.scenario import DEEDS, parse

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
        ("days = ", "no TOML"),
        ("dais = 3", "unknown key dais; the nearest is 'days'"),
        ("days = -1", "days -1.0 is below 0"),
        ("days = 3", r"needs \[\[topics\]\]"),
        ("[topics]\nname = 'a'", r"write \[\[topics\]\]"),
        ("[[topics]]\nrecords = 3", r"topics\[0\] needs a name"),
        ("[[topics]]\nname = 'a/b'", "topic name 'a/b'"),
        ("[[topics]]\nname = 'a'\nrecord = 3", "unknown key record; the nearest is 'records'"),
        ("[[topics]]\nname = 'a'\nconfigs.segment.byte = 3", "segment.byte"),
        ("[broker]\nlog.cleaner.thread = 3", "log.cleaner.thread"),
        (SMALL + "[[topics]]\nname = 'users'", "two topics are called 'users'"),
        (SMALL + "[[consumers]]\ntopic = 'user'", "'user', which is none .* nearest is 'users'"),
        (
            SMALL + "[[consumers]]\ntopic = 'users'\nlag = '3x'",
            r"consumers\[0\]\.lag: '3x' is no duration",
        ),
        (SMALL + "[[actions]]\ndo = 'allter'", "nearest is 'alter'"),
        (SMALL + "[[actions]]\ndo = 'roll'", "roll at 0 needs a topic"),
        (SMALL + "[[actions]]\ndo = 'crash'\nconfigs = {a = 1}", "crash at 0 takes no configs"),
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


def test_every_deed_is_known():
    for deed in DEEDS:
        parse(SMALL + f"[[actions]]\nat = '1d'\ndo = '{deed}'\ntopic = 'users'")
