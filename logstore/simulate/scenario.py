"""Scenarios: what arrives, who reads, what is done and when, as a TOML file says it.

Topics are described by the words of `logstore.workload.spec`; configurations by Kafka's keys.
Everything is checked before anything starts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from logstore.config.broker_config import BrokerConfig
from logstore.config.overrides import altered_overrides
from logstore.config.suggest import and_nearest
from logstore.config.units import parse_duration
from logstore.errors import InvalidConfigurationError
from logstore.names import validate_topic_name
from logstore.simulate.deeds import Action, FirstTopic, created_at_ms, in_order
from logstore.simulate.replay import Replay, read_replay
from logstore.types import DAY_MS
from logstore.workload import spec as specs
from logstore.workload.tables import dotted, laid_over, read_table, read_toml, setting, span

if TYPE_CHECKING:
    from logstore.workload.recorded import Recorded

SAMPLES_MAX = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumer:
    """Somebody who reads a topic, later than it is written.

    It has read everything up to `lag` ago, but for the time that it is away, from `away_from` on
    after the start, for `away`; then it catches up at once.
    """

    name: str = setting("consumer", "Its name in the series.")
    topic: str = setting("", "The topic that it reads, from all partitions.")
    lag: str = span("0", "How long after a record was written it is read: `30s`, `2h`, `7d`.")
    away_from: str = span("0", "When, after the start, it stops reading.")
    away: str = span("0", "For how long it reads nothing.")

    @property
    def lag_ms(self) -> int:
        """`lag` in ms."""
        return parse_duration(self.lag)

    @property
    def away_ms(self) -> tuple[int, int]:
        """When it stops reading and when it reads again, in ms after the start; equal: never."""
        begin = parse_duration(self.away_from)
        return begin, begin + parse_duration(self.away)

    def read_until(self, now_ms: int) -> int:
        """Return up to which moment it has read, both in ms after the start."""
        begin, end = self.away_ms
        return (begin if begin <= now_ms < end else now_ms) - self.lag_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message that is sent at a moment, instead of a workload."""

    at: str = span("0", "When, after the start: `90m`, `10d`, `1d12h`.")
    key: str = setting("", "Its key.")
    value: str = setting("", "Its value.")
    delete: bool = setting(False, "It deletes its key: the value is null.")
    late: str = span("0", "How far its timestamp lies behind the moment.")
    early: str = span("0", "How far its timestamp lies ahead of the moment.")
    partition: int = setting(0, "Where it goes.", 0)

    @property
    def at_ms(self) -> int:
        """`at` in ms after the start."""
        return parse_duration(self.at)

    @property
    def timestamp_ms(self) -> int:
        """Its timestamp in ms after the start; before it where negative."""
        return self.at_ms - parse_duration(self.late) + parse_duration(self.early)


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic of a scenario: a workload, or messages in the order in which they are sent.

    A workload arrives as it was `recorded`, if it was.
    """

    name: str
    partitions: int
    configs: Mapping[str, str]
    workload: specs.Spec | None
    messages: tuple[Message, ...]
    recorded: Recorded | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A scenario, checked; equal ones with equal seeds give equal series and bytes.

    Attributes
    ----------
    broker : mapping
        Kafka's broker properties.
    actions : tuple of Action
        In the order of their moments, with those that undo others.
    tree : mapping
        The tables that it was made from, for variants.
    """

    title: str
    about: str
    days: float
    start_ms: int
    seed: int
    broker: Mapping[str, str]
    topics: tuple[Topic, ...]
    consumers: tuple[Consumer, ...]
    actions: tuple[Action, ...]
    directories: int
    tree: Mapping[str, Any] = field(repr=False, compare=False)

    @property
    def span_ms(self) -> int:
        """The virtual time that it takes."""
        return round(self.days * DAY_MS)

    def partitions_of(self, topic: str) -> int:
        """Return how many partitions a topic has at last."""
        counts = [each.partitions for each in self.topics if each.name == topic]
        added = [each.partitions for each in self.actions if each.topic == topic]
        return max(counts + added)

    def with_seed(self, seed: int) -> Scenario:
        """Return it with everything random drawn from another seed."""
        return from_mapping({**self.tree, "seed": seed})

    def with_config(self, name: str, value: str) -> Scenario:
        """Return it with one configuration changed: of every topic, or else of the broker.

        Raises
        ------
        InvalidConfigurationError
            Neither knows the key, or the value is wrong.
        """
        from logstore.config.topic_keys import TOPIC_KEYS

        if name in TOPIC_KEYS:
            topics = [laid_over(each, {"configs": {name: value}}) for each in _topics(self.tree)]
            return from_mapping({**self.tree, "topics": topics})
        return from_mapping(laid_over(self.tree, {"broker": {name: value}}))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Top:
    """The keys of the file itself."""

    title: str = setting("", "What it is called in the report.")
    about: str = setting("", "A sentence or two about it.")
    days: float = setting(30.0, "Virtual days that it takes.", 0.0, 36_500.0)
    start: str = setting("2024-01-01T00:00:00Z", "When it begins, ISO 8601.")
    seed: int = setting(1, "Seed of everything random.", 0, (1 << 64) - 1)
    directories: int = setting(1, "Data directories, over which partitions are spread.", 1, 100)


_PARTS = ("broker", "topics", "consumers", "actions")


def parse(text: str, folder: Path | None = None) -> Scenario:
    """Read a scenario from TOML.

    Parameters
    ----------
    text : str
        Top level: `title`, `about`, `days`, `start`, `seed`, `directories`. `[broker]` has
        Kafka's broker properties. Each `[[topics]]` is a workload (`logstore.workload.spec`):
        `name` is its topic; its time is the scenario's unless it says otherwise. One with
        `records` 0 or with `[[topics.messages]]` is no workload. `[[consumers]]`, `[[actions]]`
        and messages as `Consumer`, `Action` and `Message`; `[topics.replay]` as `Replay`.
    folder : Path, optional
        Where files that it names are looked for; the current directory by default.

    Raises
    ------
    InvalidConfigurationError
        No TOML; something unknown (with the nearest name), of a wrong type or out of range.
    """
    tree = read_toml(text, "scenario")
    for topic in _topics(tree):
        replay = topic.get("replay") if isinstance(topic, Mapping) else None
        if isinstance(replay, dict) and isinstance(replay.get("file"), str):
            replay["file"] = str(Path(folder or "").absolute() / replay["file"])
    return from_mapping(tree)


def from_mapping(tree: Mapping[str, Any]) -> Scenario:
    """Build a scenario from what `parse` reads; the same errors."""
    top = read_table(
        _Top, {name: value for name, value in tree.items() if name not in _PARTS}, "", also=_PARTS
    )
    start_ms = specs.Time(start=top.start).start_ms
    broker = _texts(tree.get("broker", {}), "broker")
    BrokerConfig.from_properties(broker, refuse_unknown=True)
    actions = tuple(
        _action(table, f"actions[{number}].")
        for number, table in enumerate(_tables(tree, "actions"))
    )
    topics = tuple(
        _topic(table, number, top, actions) for number, table in enumerate(_topics(tree))
    )
    if not topics:
        raise InvalidConfigurationError("a scenario needs [[topics]]")
    names = [topic.name for topic in topics]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidConfigurationError(f"two topics are called {twice!r}")
    consumers = tuple(
        read_table(Consumer, table, f"consumers[{number}].")
        for number, table in enumerate(_tables(tree, "consumers"))
    )
    for consumer in consumers:
        if consumer.topic not in names:
            near = and_nearest(consumer.topic, names)
            raise InvalidConfigurationError(
                f"consumer {consumer.name!r} reads topic {consumer.topic!r}, which is none of the "
                f"scenario's{near}"
            )
    first = {topic.name: FirstTopic(topic.partitions, topic.configs) for topic in topics}
    return Scenario(
        title=top.title or ", ".join(names),
        about=top.about,
        days=top.days,
        start_ms=start_ms,
        seed=top.seed,
        broker=broker,
        topics=topics,
        consumers=consumers,
        actions=in_order(actions, first, broker, top.directories),
        directories=top.directories,
        tree=tree,
    )


def _tables(tree: Mapping[str, Any], name: str) -> list[Any]:
    tables = tree.get(name, [])
    if not isinstance(tables, list):
        raise InvalidConfigurationError(f"{name} is a list of tables: write [[{name}]]")
    return tables


def _topics(tree: Mapping[str, Any]) -> list[Any]:
    return _tables(tree, "topics")


def _texts(table: object, name: str) -> dict[str, str]:
    """Return configurations as texts: TOML's numbers and truth values are allowed."""
    return {
        word: str(value).lower() if isinstance(value, bool) else str(value)
        for word, value in dotted(table, name).items()
    }


def _topic(table: object, number: int, top: _Top, actions: Sequence[Action]) -> Topic:
    if not isinstance(table, Mapping):
        raise InvalidConfigurationError("topics is a list of tables: write [[topics]]")
    values = dict(table)
    name = values.pop("name", None)
    if not isinstance(name, str):
        raise InvalidConfigurationError(f"topics[{number}] needs a name")
    validate_topic_name(name)
    values["topic"] = name
    values["configs"] = _texts(values.get("configs", {}), "configs")
    if "preset" not in values:  # a workload's own default is to be compacted
        values["configs"].setdefault("cleanup.policy", "delete")
    replay = values.pop("replay", None)
    if replay is not None and "messages" in values:
        raise InvalidConfigurationError(f"topic {name!r} has messages and a replay")
    if replay is None and ("messages" in values or values.get("records") == 0):
        return _scripted(name, values, actions)
    created_ms = created_at_ms(actions, name) or 0
    time = {
        "days": max(0.0, top.days - created_ms / DAY_MS),
        "start": _iso(specs.Time(start=top.start).start_ms + created_ms),
    }
    values["time"] = time | dict(values.get("time", {}))
    values.setdefault("partitions", 1)
    values.setdefault("seed", top.seed + number)
    recorded = None
    if replay is not None:
        recorded = _recorded(read_replay(replay, f"topics.{name}.replay."), name, values, table)
    workload = specs.from_mapping(values, must_compact=False)
    return Topic(
        name=name,
        partitions=workload.partitions,
        configs=workload.topic_configs,
        workload=workload,
        messages=(),
        recorded=recorded,
    )


def _recorded(
    replay: Replay, name: str, values: dict[str, Any], table: Mapping[str, Any]
) -> Recorded:
    """Return what a topic replays, and let its workload have as many records and keys.

    Raises
    ------
    InvalidConfigurationError
        The recording is wrong, or the topic says what the recording does.
    """
    recorded = replay.recorded
    said = {"records": "records" in table}
    said |= {f"time.{word}": word != "start" for word in table.get("time", {})}
    if recorded.key is not None:
        said |= {f"keys.{word}": word != "prefix" for word in table.get("keys", {})}
    if recorded.tombstone is not None:
        said["deletes"] = "deletes" in table
    twice = next((word for word, is_said in said.items() if is_said), None)
    if twice is not None:
        raise InvalidConfigurationError(
            f"topics.{name}.{twice} is what the recording {replay.file!r} says"
        )
    values["records"] = recorded.events_before(round(values["time"]["days"] * DAY_MS))
    if not values["records"]:
        raise InvalidConfigurationError(
            f"nothing of the recording {replay.file!r} comes before the end"
        )
    if recorded.key is not None:
        keys = {"count": int(recorded.key.max()) + 1, "distribution": specs.UNIFORM}
        values["keys"] = {**table.get("keys", {}), **keys}
    return recorded


def _iso(time_ms: int) -> str:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=time_ms)).isoformat()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scripted:
    """The keys of a topic that is no workload."""

    topic: str = setting("", "Its name.")
    records: int = setting(0, "None.", 0, 0)
    partitions: int = setting(1, "Partitions.", 1, 10_000)


def _scripted(name: str, values: Mapping[str, Any], actions: Sequence[Action]) -> Topic:
    own = {word: value for word, value in values.items() if word not in ("messages", "configs")}
    table = read_table(_Scripted, own, f"topics.{name}.", also=("messages", "configs"))
    configs, _ = altered_overrides({}, values["configs"], ())
    messages = [
        read_table(Message, message, prefix)
        for number, message in enumerate(_tables(values, "messages"))
        for prefix in [f"topics.{name}.messages[{number}]."]
    ]
    added = [each.partitions for each in actions if each.topic == name]
    partitions = max(table.partitions, *added, 1)
    wrong = next((each for each in messages if each.partition >= partitions), None)
    if wrong is not None:
        raise InvalidConfigurationError(
            f"a message at {wrong.at} goes to partition {wrong.partition} of topic {name!r}, which "
            f"has {partitions}"
        )
    messages.sort(key=lambda message: message.at_ms)
    return Topic(
        name=name,
        partitions=table.partitions,
        configs=configs,
        workload=None,
        messages=tuple(messages),
    )


def _action(table: object, prefix: str) -> Action:
    if not isinstance(table, Mapping):
        raise InvalidConfigurationError("actions is a list of tables: write [[actions]]")
    values = dict(table)
    configs = _texts(values.pop("configs", {}), "configs")
    return replace(read_table(Action, values, prefix, also=("configs",)), configs=configs)
