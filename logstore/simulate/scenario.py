"""Scenarios: what arrives, who reads, what is done and when, as a TOML file says it.

Topics are described by the words of `logstore.workload.spec`; configurations by Kafka's keys.
Everything is checked before anything starts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from logstore.config.broker_config import BrokerConfig
from logstore.config.overrides import altered_overrides
from logstore.config.suggest import and_nearest
from logstore.config.units import parse_duration
from logstore.errors import InvalidConfigurationError
from logstore.names import validate_topic_name
from logstore.types import DAY_MS
from logstore.workload import spec as specs
from logstore.workload.tables import dotted, laid_over, read_table, read_toml, setting

ALTER, ROLL, CLEAN, DELETE_RECORDS = "alter", "roll", "clean", "delete-records"
STOP_CLEANER, START_CLEANER = "stop-cleaner", "start-cleaner"
FILL_DISK, FREE_DISK, CRASH = "fill-disk", "free-disk", "crash"
DEEDS = (
    ALTER,
    ROLL,
    CLEAN,
    DELETE_RECORDS,
    STOP_CLEANER,
    START_CLEANER,
    FILL_DISK,
    FREE_DISK,
    CRASH,
)
_OF_TOPICS = (ROLL, CLEAN, DELETE_RECORDS)

SAMPLES_MAX = 2_000

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumer:
    """Somebody who reads a topic, later than it is written.

    It has read everything up to `lag` ago, but for the time that it is away, from `away_from` on
    after the start, for `away`; then it catches up at once.
    """

    name: str = setting("consumer", "Its name in the series.")
    topic: str = setting("", "The topic that it reads, from all partitions.")
    lag: str = setting("0", "How long after a record was written it is read: `30s`, `2h`, `7d`.")
    away_from: str = setting("0", "When, after the start, it stops reading.")
    away: str = setting("0", "For how long it reads nothing.")

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
class Action:
    """Something that is done once, at a moment."""

    at: str = setting("0", "When, after the start: `90m`, `10d`, `1d12h`.")
    do: str = setting("", "What.", choice=DEEDS)
    topic: str = setting("", "To which topic; for `alter` none means the broker's own settings.")
    before: int = setting(-1, "Of `delete-records`: the offset; -1 is the high watermark.", -1)
    configs: Mapping[str, str] = field(default_factory=dict)

    @property
    def at_ms(self) -> int:
        """`at` in ms after the start."""
        return parse_duration(self.at)


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message that is sent at a moment, instead of a workload."""

    at: str = setting("0", "When, after the start: `90m`, `10d`, `1d12h`.")
    key: str = setting("", "Its key.")
    value: str = setting("", "Its value.")
    delete: bool = setting(False, "It deletes its key: the value is null.")
    late: str = setting("0", "How far its timestamp lies behind the moment.")
    early: str = setting("0", "How far its timestamp lies ahead of the moment.")
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
    """A topic of a scenario: a workload, or messages in the order in which they are sent."""

    name: str
    partitions: int
    configs: Mapping[str, str]
    workload: specs.Spec | None
    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A scenario, checked; equal ones with equal seeds give equal series and bytes.

    Attributes
    ----------
    broker : mapping
        Kafka's broker properties.
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
    tree: Mapping[str, Any] = field(repr=False, compare=False)

    @property
    def span_ms(self) -> int:
        """The virtual time that it takes."""
        return round(self.days * DAY_MS)

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


_PARTS = ("broker", "topics", "consumers", "actions")


def parse(text: str) -> Scenario:
    """Read a scenario from TOML.

    Parameters
    ----------
    text : str
        Top level: `title`, `about`, `days`, `start`, `seed`. `[broker]` has Kafka's broker
        properties. Each `[[topics]]` is a workload (`logstore.workload.spec`): `name` is its
        topic; its time is the scenario's unless it says otherwise. One with `records` 0 or with
        `[[topics.messages]]` is no workload. `[[consumers]]`, `[[actions]]` and messages as
        `Consumer`, `Action` and `Message`.

    Raises
    ------
    InvalidConfigurationError
        No TOML; something unknown (with the nearest name), of a wrong type or out of range.
    """
    return from_mapping(read_toml(text, "scenario"))


def from_mapping(tree: Mapping[str, Any]) -> Scenario:
    """Build a scenario from what `parse` reads; the same errors."""
    top = read_table(
        _Top, {name: value for name, value in tree.items() if name not in _PARTS}, "", also=_PARTS
    )
    start_ms = specs.Time(start=top.start).start_ms
    broker = _texts(tree.get("broker", {}), "broker")
    BrokerConfig.from_properties(broker, refuse_unknown=True)
    topics = tuple(_topic(table, number, top) for number, table in enumerate(_topics(tree)))
    if not topics:
        raise InvalidConfigurationError("a scenario needs [[topics]]")
    names = [topic.name for topic in topics]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidConfigurationError(f"two topics are called {twice!r}")
    consumers = tuple(
        _timed(read_table(Consumer, table, f"consumers[{number}]."), f"consumers[{number}].")
        for number, table in enumerate(_tables(tree, "consumers"))
    )
    actions = tuple(
        _action(table, f"actions[{number}].")
        for number, table in enumerate(_tables(tree, "actions"))
    )
    for text in _wrong(names, consumers, actions):
        raise InvalidConfigurationError(text)
    return Scenario(
        title=top.title or ", ".join(names),
        about=top.about,
        days=top.days,
        start_ms=start_ms,
        seed=top.seed,
        broker=broker,
        topics=topics,
        consumers=consumers,
        actions=tuple(sorted(actions, key=lambda action: action.at_ms)),
        tree=tree,
    )


def _wrong(
    names: Sequence[str], consumers: Sequence[Consumer], actions: Sequence[Action]
) -> Iterator[str]:
    for consumer in consumers:
        if consumer.topic not in names:
            yield f"consumer {consumer.name!r} reads {_unknown(consumer.topic, names)}"
    for action in actions:
        if action.topic and action.topic not in names:
            yield f"{action.do} at {action.at} is for {_unknown(action.topic, names)}"
        if action.do in _OF_TOPICS and not action.topic:
            yield f"{action.do} at {action.at} needs a topic"
        if action.configs and action.do != ALTER:
            yield f"{action.do} at {action.at} takes no configs"


def _unknown(name: str, names: Sequence[str]) -> str:
    return f"topic {name!r}, which is none of the scenario's{and_nearest(name, names)}"


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


def _topic(table: object, number: int, top: _Top) -> Topic:
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
    if "messages" in values or values.get("records") == 0:
        return _scripted(name, values)
    time = {"days": top.days, "start": top.start} | dict(values.get("time", {}))
    values["time"] = time
    values.setdefault("partitions", 1)
    values.setdefault("seed", top.seed + number)
    workload = specs.from_mapping(values, must_compact=False)
    return Topic(
        name=name,
        partitions=workload.partitions,
        configs=workload.topic_configs,
        workload=workload,
        messages=(),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scripted:
    """The keys of a topic that is no workload."""

    topic: str = setting("", "Its name.")
    records: int = setting(0, "None.", 0, 0)
    partitions: int = setting(1, "Partitions.", 1, 10_000)


def _scripted(name: str, values: Mapping[str, Any]) -> Topic:
    own = {word: value for word, value in values.items() if word not in ("messages", "configs")}
    table = read_table(_Scripted, own, f"topics.{name}.", also=("messages", "configs"))
    configs, _ = altered_overrides({}, values["configs"], ())
    messages = [
        _timed(read_table(Message, message, prefix), prefix)
        for number, message in enumerate(_tables(values, "messages"))
        for prefix in [f"topics.{name}.messages[{number}]."]
    ]
    wrong = next((each for each in messages if each.partition >= table.partitions), None)
    if wrong is not None:
        raise InvalidConfigurationError(
            f"a message at {wrong.at} goes to partition {wrong.partition} of topic {name!r}, which "
            f"has {table.partitions}"
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
    return replace(_timed(read_table(Action, values, prefix), prefix), configs=configs)


_SPANS = ("at", "lag", "away_from", "away", "late", "early")
"""Keys whose values are spans of time."""


def _timed(row: Row, prefix: str) -> Row:
    """Return a row whose spans of time are all sound."""
    for name in _SPANS:
        try:
            parse_duration(getattr(row, name, "0"))
        except ValueError as error:
            raise InvalidConfigurationError(f"{prefix}{name}: {error}") from error
    return row
