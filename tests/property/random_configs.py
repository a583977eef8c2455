"""Random configurations of brokers, topics and groups, whose values and errors are stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from random import Random

from logstore.config import dynamic, group_keys, overrides
from logstore.config.broker_config import BrokerConfig
from logstore.config.broker_keys import BROKER_KEYS
from logstore.config.dynamic import Layer
from logstore.config.group_keys import GROUP_KEYS
from logstore.config.inert_keys import STORED_BROKER_KEYS, STORED_TOPIC_KEYS
from logstore.config.keys import ConfigKey, to_text
from logstore.config.topic_keys import TOPIC_KEYS
from logstore.config.units import without_unit
from logstore.errors import InvalidConfigurationError
from tests.support.world.transcripts import Transcript

FEW = 48
STEPS = 25
SYNONYMS = {each.key: row for row in TOPIC_KEYS.values() for each in row.synonyms}
UNKNOWN_KEYS = ("log.retention.m", "retention.mss", "listeners.x", "mine", "x" * 300, "")
NUMBERS = (100, 4999, 5000, 5001, 15_000, 44_999, 45_000, 46_000, 60_000, 1 << 20, 1 << 30)
VALUES = (
    "",
    "x",
    "-1",
    "0",
    "1",
    "5",
    " 1000 ",
    "1h",
    "2 MiB",
    "true",
    "delete",
    "compact",
    "gzip",
)


def transcribe(seed: int) -> Transcript:
    """Return random changes of configurations, and their outcomes."""
    return _Configs(seed).run()


class _Configs:
    """The configurations of a broker, of topics and of a group, while they change."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.transcript = Transcript()
        self.broker = BrokerConfig()
        self.topic: overrides.Overrides = overrides.parse_overrides({})[0]
        self.group: dict[str, str] = {}

    def run(self) -> Transcript:
        """Make random changes."""
        change_broker, change_topic = [self.set_dynamic] * 2, [self.alter_topic] * 2
        steps = [self.set_static, self.alter_group, *change_broker, *change_topic]
        for _ in range(STEPS):
            self.attempt(self.rng.choice(steps))
        self.describe()
        return self.transcript

    def attempt(self, step: Callable[[], None]) -> None:
        """Take a step, or note why it is refused."""
        try:
            step()
        except InvalidConfigurationError as error:
            self.transcript.note(step.__name__, error, error.key, error.nearest)

    def values(self, keys: Sequence[str], rows: dict[str, ConfigKey]) -> dict[str, object]:
        """Draw keys and values, most of them at the edge of what is allowed."""
        rng = self.rng
        count = rng.choice((1, 1, 2, 3))
        drawn = [rng.choice(keys if rng.random() < 0.9 else UNKNOWN_KEYS) for _ in range(count)]
        is_wrong = rng.random() < 0.2
        return {key: rng.choice(_values(rows.get(key))[is_wrong]) for key in drawn}

    def set_static(self) -> None:
        given = self.values([*BROKER_KEYS, *SYNONYMS], BROKER_KEYS | SYNONYMS)
        config = BrokerConfig.from_properties(given, refuse_unknown=self.rng.random() < 0.3)
        self.broker = config
        self.transcript.note("static", given, config, config.given, config.notes, config.log_dirs)

    def set_dynamic(self) -> None:
        rng = self.rng
        keys = [*sorted(dynamic.RECONFIGURABLE_KEYS), "num.partitions", "node.id"]
        given = self.values(keys, BROKER_KEYS | SYNONYMS | STORED_BROKER_KEYS)
        unset = [rng.choice(keys)] if rng.random() < 0.3 else []
        layer = rng.choice(list(Layer))
        changes = dynamic.changes_of(
            given, [*unset, *list(dynamic.own_layer(self.broker, layer))[:1]]
        )
        self.transcript.note("dynamic", layer, changes)
        self.broker, notes = dynamic.reconfigure(
            self.broker, changes, layer, refuse_unknown=rng.random() < 0.3
        )
        self.transcript.note(
            self.broker, notes, *(dynamic.own_layer(self.broker, each) for each in Layer)
        )

    def alter_topic(self) -> None:
        keys = [*STORED_TOPIC_KEYS, "leader.replication.throttled.rate"]
        given = self.values(keys, STORED_TOPIC_KEYS)
        unset = [self.rng.choice([*keys, *self.topic])] if self.rng.random() < 0.4 else []
        self.transcript.note("topic", given, unset)
        self.topic, notes = overrides.alter_overrides(self.topic, given, unset, self.broker)
        self.transcript.note(dict(self.topic), notes)
        self.transcript.note(overrides.effective_config(self.topic, self.broker))

    def alter_group(self) -> None:
        given = self.values(list(GROUP_KEYS), GROUP_KEYS)
        unset = [key for key in GROUP_KEYS if self.rng.random() < 0.3]
        self.group = group_keys.alter_group_overrides(self.group, given, unset, self.broker)
        self.transcript.note("group", given, unset, self.group)
        self.transcript.note(group_keys.effective_group_config(self.group, self.broker))

    def describe(self) -> None:
        """Note the descriptions of everything."""
        note = self.transcript.note
        for described in (
            overrides.describe(self.topic, self.broker),
            overrides.describe_broker_values(self.broker),
            group_keys.describe_group(self.group, self.broker),
        ):
            for key, value in described.items():
                note(key, value._replace(doc=""))
        for setting in (
            *overrides.describe_broker(self.broker),
            *overrides.describe_cluster_wide(self.broker),
        ):
            note(setting._replace(row=None), setting.row.key)


@cache
def _values(row: ConfigKey | None) -> tuple[list[object], list[object]]:
    """Return values for a key, those that it allows and others."""
    if row is None:
        return list(VALUES), list(VALUES)
    ends = [end for span in row.ranges for end in span if isinstance(end, int)]
    near = [end + step for end in ends for step in (-1, 0, 1)]
    everything: list[object] = [*VALUES, *NUMBERS, *near, *row.values, row.default]
    allowed = [each for each in everything if _is_allowed(row, each)]
    return allowed, [each for each in everything if each not in allowed] or allowed


def _is_allowed(row: ConfigKey, value: object) -> bool:
    try:
        row.parse(without_unit(row.key, to_text(value)))
    except (ValueError, InvalidConfigurationError):
        return False
    return True
