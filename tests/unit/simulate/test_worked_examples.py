"""The worked examples of KIP-354 and of the operators' guide, to the millisecond and the record."""

import pytest

from logstore import Broker
from logstore.simulate import library, parse, run
from logstore.types import DAY_MS, MINUTE_MS

HOUR_MS = 60 * MINUTE_MS
SECOND_MS = 1_000


class Lived:
    """A scenario that was run, and its remaining records."""

    def __init__(self, name, folder):
        self.outcome = run(parse(library.text_of(name)), samples=10, data_dir=folder)
        with Broker(folder, read_only=True) as broker:
            self.left = {
                topic.name: [
                    (record.offset, record.key, record.value)
                    for _, record in broker.log(topic.name).reader.records(
                        broker.log(topic.name).log_start_offset
                    )
                ]
                for topic in broker.topics()
            }

    def moments(self, table, **values):
        """Return when rows came, in ms after the start."""
        found = getattr(self.outcome, table).where(**values)["time_ms"]
        return (found - self.outcome.scenario.start_ms).tolist()


@pytest.fixture(scope="module")
def lived(tmp_path_factory):
    folder = tmp_path_factory.mktemp("examples")
    names = ("kip-354", "kip-354-worst-case", "four-policies")
    return {name: Lived(name, folder / name) for name in names}


def test_kip_354s_bound(lived):
    """An hour after the first record it is due, without appends: a round runs each second."""
    example = lived["kip-354"]
    assert example.moments("passes") == [HOUR_MS + SECOND_MS]
    assert example.moments("partitions", event="roll") == []  # with the pass, at the same time
    (row,) = zip(*example.outcome.passes.arrays().values(), strict=True)
    told = dict(zip(example.outcome.passes.columns, row, strict=True))
    assert told["oldest_dirty_ms"] == HOUR_MS + SECOND_MS
    assert (told["first_dirty_offset"], told["end_offset"]) == (0, 3)
    assert (told["messages_read"], told["messages_written"]) == (3, 2)
    # John Doe's data are gone, and late readers still get the delete.
    jane = b'{"name": "Jane Doe", "phone": "6666666"}'
    assert example.left == {"users": [(1, b"2", jane), (2, b"1", None)]}


def test_without_the_bound_nothing_is_ever_cleaned():
    scenario = parse(library.text_of("kip-354")).with_config("max.compaction.lag.ms", "3650d")
    assert len(run(scenario, samples=10).passes) == 0


def test_kip_354s_worst_case(lived):
    """D ahead and D behind: the second record is cleaned D + M after it came, D + M + D old."""
    example = lived["kip-354-worst-case"]
    D, M = 30 * MINUTE_MS, HOUR_MS
    (cleaned_ms,) = example.moments("passes")
    assert cleaned_ms == D + M + SECOND_MS
    timestamp_ms = -D
    assert cleaned_ms - timestamp_ms == D + M + D + SECOND_MS == 2 * HOUR_MS + SECOND_MS
    assert example.left == {"users": [(0, b"1", b"ahead"), (2, b"2", b"behind, again")]}


def offset_5(example, topic):
    """Return the message at offset 5, None once it is gone."""
    return next((row for row in example.left[topic] if row[0] == 5), None)


RETENTION_BEGINS_MS = 30 * SECOND_MS
"""Kafka's first look comes so long after the start; then every 5 minutes, as the scenario says."""


@pytest.mark.parametrize(
    ("topic", "gone_ms"),
    (
        # Its segment's last timestamp is 5 minutes; a look must come later than that by retention.
        ("delete", 3 * DAY_MS + 5 * MINUTE_MS + RETENTION_BEGINS_MS),
        ("by-default", 7 * DAY_MS + 5 * MINUTE_MS + RETENTION_BEGINS_MS),
        # Compacted logs are retained by the cleaner, which looks every 15 seconds.
        ("compact-delete", 3 * DAY_MS + 5 * MINUTE_MS + 15 * SECOND_MS),
    ),
)
def test_the_guides_message_goes_by_its_age_where_the_policy_has_delete(lived, topic, gone_ms):
    example = lived["four-policies"]
    assert example.moments("partitions", topic=topic, event="retain")[0] == gone_ms
    assert offset_5(example, topic) is None
    assert example.left[topic] == []


def test_the_guides_message_stays_under_compaction_alone(lived):
    """As the last word on key2; of the others only the last words stay."""
    example = lived["four-policies"]
    assert offset_5(example, "compact") == (5, b"key2", b"v2")
    assert example.left["compact"] == [
        (2, b"key1", b"v2"),  # the third is in the open segment, which no cleaning pass looks into
        (4, b"key3", b"v2"),
        (5, b"key2", b"v2"),
        (6, b"key1", b"v3"),
    ]
    assert example.moments("partitions", topic="compact", event="retain") == []


def test_the_guides_message_stays_till_then(lived):
    """A topic with both policies is compacted first: at the roll of the second day."""
    example = lived["four-policies"]
    for topic in ("compact", "compact-delete"):
        assert example.moments("passes", topic=topic) == [2 * DAY_MS + 15 * SECOND_MS]
    assert example.moments("passes", topic="delete") == []
