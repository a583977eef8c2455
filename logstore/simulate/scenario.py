"""Scenarios: what arrives, who reads, what is done and when, as a TOML file says it.

Topics are described by the words of `logstore.workload.spec`; configurations by Kafka's keys.
Everything is checked before anything starts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from logstore.config.broker_config import BrokerConfig
from logstore.config.overrides import altered_overrides, effective_config
from logstore.config.suggest import and_nearest
from logstore.config.units import parse_duration
from logstore.errors import InvalidConfigurationError
from logstore.names import KAFKAS_OWN_TOPICS, validate_topic_name
from logstore.simulate.deeds import (
    ADD_PARTITIONS,
    CREATE_TOPIC,
    Action,
    FirstTopic,
    created_at_ms,
    in_order,
)
from logstore.simulate.replay import Replay, read_replay
from logstore.types import DAY_MS
from logstore.workload import spec as specs
from logstore.workload.tables import (
    flatten_configs,
    merge_tables,
    read_table,
    read_toml,
    setting,
    span,
)

if TYPE_CHECKING:
    from logstore.workload.recorded import Recorded

RECORDED = "recorded"
"""The distribution of keys that a directory shows."""

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
class KnownKeys:
    """Keys of a topic that begins with what lies in a directory: `keys` with `continued`.

    The records that nobody has cleaned yet show how keys were written lately. An update takes the
    key of one of them, so that keys keep the share that they had.
    """

    distribution: str = setting(RECORDED, "Of the writes: as they were recorded.", None, None,
                                (RECORDED,))  # fmt: skip
    new_share: float = setting(0.0, "Share of the records whose key nobody has written.", 0.0, 1.0)
    unseen: int = setting(
        0, "How many such keys there are, written equally often; 0: there is no end of them.",
        0, 1 << 40,
    )  # fmt: skip
    quiet_share: float = setting(
        0.0, "Share of the records with a key of the log that nobody wrote lately.", 0.0, 1.0
    )
    discount: float = setting(
        0.0, "Taken off how often each key was written, as who was met once was met by chance.",
        0.0, 0.999,
    )  # fmt: skip
    null_share: float = setting(0.0, "Share of the records without a key.", 0.0, 1.0)
    recent: int = setting(
        0, "An update takes the key of one of so many records before it; 0: of all written lately.",
        0, 1 << 24,
    )  # fmt: skip
    prefix: str = setting("new-", "What a new key begins with; its number follows.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic of a scenario: a workload, or messages in the order in which they are sent.

    A workload arrives as it was `recorded`, if it was.

    Attributes
    ----------
    continued : bool
        It begins with what lies under its name in the scenario's directory, and knows its keys.
    known : KnownKeys or None
        Which of those keys are written; None: those that the workload draws, by their rank.
    shares : mapping of int to float
        Of the records, by partition; empty: evenly.
    """

    name: str
    partitions: int
    configs: Mapping[str, str]
    workload: specs.Spec | None
    messages: tuple[Message, ...]
    recorded: Recorded | None = None
    continued: bool = False
    known: KnownKeys | None = None
    shares: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A scenario, checked; equal ones with equal seeds give equal series and bytes.

    Attributes
    ----------
    origin : str
        The directory whose state is the start of topics that say so; empty: none.
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
    origin: str
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

    @property
    def continued_topics(self) -> list[str]:
        """The topics that begin with what lies in the directory."""
        return [topic.name for topic in self.topics if topic.continued]

    def with_origin(self, path: str) -> Scenario:
        """Return it from another directory."""
        return from_mapping({**self.tree, "from": path})

    def with_days(self, days: float) -> Scenario:
        """Return it with another length."""
        return from_mapping({**self.tree, "days": days})

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
            topics = [merge_tables(each, {"configs": {name: value}}) for each in _topics(self.tree)]
            return from_mapping({**self.tree, "topics": topics})
        return from_mapping(merge_tables(self.tree, {"broker": {name: value}}))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Top:
    """The keys of the file itself."""

    title: str = setting("", "What it is called in the report.")
    about: str = setting("", "A sentence or two about it.")
    days: float = setting(30.0, "Virtual days that it takes.", 0.0, 36_500.0)
    start: str = setting("2024-01-01T00:00:00Z", "When it begins, ISO 8601.")
    seed: int = setting(1, "Seed of everything random.", 0, (1 << 64) - 1)
    directories: int = setting(1, "Data directories, over which partitions are spread.", 1, 100)
    from_: str = setting("", "The data directory, or partition's folder, whose state is the start.")


_PARTS = ("broker", "topics", "consumers", "actions")


def parse(text: str, folder: Path | None = None) -> Scenario:
    """Read a scenario from TOML.

    Parameters
    ----------
    text : str
        Top level: `title`, `about`, `days`, `start`, `seed`, `directories`, `from`. `[broker]` has
        Kafka's broker properties. Each `[[topics]]` is a workload (`logstore.workload.spec`):
        `name` is its topic; its time is the scenario's unless it says otherwise, and
        `records_per_day` may stand for `records`. One with `records` 0 or with
        `[[topics.messages]]` is no workload. One with `continued` begins with what lies under its
        name in the directory that `from` names; its `keys` are `KnownKeys`, and `partition_shares`
        tell how records are spread. `[[consumers]]`, `[[actions]]` and messages as `Consumer`,
        `Action` and `Message`; `[topics.replay]` as `Replay`.
    folder : Path, optional
        Where files that it names are looked for; the current directory by default.

    Raises
    ------
    InvalidConfigurationError
        No TOML; something unknown (with the nearest name), of a wrong type or out of range.
    """
    tree = read_toml(text, "scenario")
    if isinstance(tree.get("from"), str) and tree["from"]:
        tree["from"] = str(Path(folder or "").absolute() / tree["from"])
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
    for text in _wrong_start(top, topics, actions):
        raise InvalidConfigurationError(text)
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
        origin=top.from_,
        broker=broker,
        topics=topics,
        consumers=consumers,
        actions=in_order(actions, first, broker, top.directories),
        directories=top.directories,
        tree=tree,
    )


def _wrong_start(top: _Top, topics: Sequence[Topic], actions: Sequence[Action]) -> Iterator[str]:
    continued = [topic for topic in topics if topic.continued]
    if top.from_ and not continued:
        yield "the scenario is from a directory, but none of its topics is continued = true"
    if top.from_ and top.directories != 1:
        yield f"a scenario from a directory has one, not {top.directories}"
    for topic in continued:
        if not top.from_:
            yield f"topic {topic.name!r} is continued, but the scenario is from no directory"
        for action in actions:
            if action.topic == topic.name and action.do in (CREATE_TOPIC, ADD_PARTITIONS):
                yield f"topic {topic.name!r} is continued: {action.do} cannot be done to it"
        null_share = 0.0 if topic.known is None else topic.known.null_share
        if null_share and effective_config(topic.configs).compact:
            yield (
                f"topic {topic.name!r} is compacted, so its records have keys: keys.null_share "
                f"{null_share:g} cannot be"
            )


def own_topic_text(name: str) -> str:
    """Return why one of Kafka's own topics cannot be simulated."""
    return (
        f"topic {name!r} cannot be simulated: only Kafka writes it, in a format of its own. Keys"
        " and values that are drawn at random are no valid records of it"
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
        for word, value in flatten_configs(table, name).items()
    }


def _topic(table: object, number: int, top: _Top, actions: Sequence[Action]) -> Topic:
    if not isinstance(table, Mapping):
        raise InvalidConfigurationError("topics is a list of tables: write [[topics]]")
    values = dict(table)
    name = values.pop("name", None)
    if not isinstance(name, str):
        raise InvalidConfigurationError(f"topics[{number}] needs a name")
    validate_topic_name(name)
    if name in KAFKAS_OWN_TOPICS:
        raise InvalidConfigurationError(own_topic_text(name))
    values["topic"] = name
    values["configs"] = _texts(values.get("configs", {}), "configs")
    if "preset" not in values:  # a workload's own default is to be compacted
        values["configs"].setdefault("cleanup.policy", "delete")
    replay = values.pop("replay", None)
    if replay is not None and "messages" in values:
        raise InvalidConfigurationError(f"topic {name!r} has messages and a replay")
    if replay is not None and "continued" in values:
        raise InvalidConfigurationError(f"topic {name!r} is continued, and has a replay")
    is_workload = replay is not None or "continued" in values
    if "messages" in values or (values.get("records") == 0 and not is_workload):
        return _scripted(name, values, actions)
    created_ms = created_at_ms(actions, name) or 0
    time = {
        "days": max(0.0, top.days - created_ms / DAY_MS),
        "start": _iso(specs.Time(start=top.start).start_ms + created_ms),
    } | dict(values.get("time", {}))
    values["time"] = time
    values.setdefault("seed", top.seed + number)
    per_day = values.pop("records_per_day", None)
    if per_day is not None:
        if "records" in values:
            raise InvalidConfigurationError(
                f"topics.{name} has records and records_per_day: one of them says it all"
            )
        values["records"] = _records(per_day, time, f"topics.{name}.")
    is_continued = values.pop("continued", False)
    if not isinstance(is_continued, bool):
        raise InvalidConfigurationError(
            f"topics.{name}.continued is true or false, not {is_continued!r}"
        )
    if is_continued:
        return _continued(name, values, actions)
    values.setdefault("partitions", 1)
    recorded = None
    if replay is not None:
        recorded = _recorded(read_replay(replay, f"topics.{name}.replay."), name, values, table)
    elif values.get("records") == 0:
        return _silent(name, values["partitions"], values["configs"], actions)
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
class _Rate:
    records_per_day: float = setting(0.0, "Records that come in a day at the mean.", 0.0, 1e12)


def _records(per_day: object, time: Mapping[str, Any], prefix: str) -> int:
    """Return how many records come in all of a time."""
    from logstore.workload.profiles import even_days

    rate = read_table(_Rate, {"records_per_day": per_day}, prefix).records_per_day
    return round(rate * even_days(read_table(specs.Time, time, f"{prefix}time.")))


def _continued(name: str, values: dict[str, Any], actions: Sequence[Action]) -> Topic:
    """Return a topic that begins with what lies in a directory; its partitions are those there."""
    prefix = f"topics.{name}."
    if "partitions" in values:
        raise InvalidConfigurationError(
            f"{prefix}partitions cannot be said: they are those that lie in the directory"
        )
    shares = _shares(values.pop("partition_shares", {}), f"{prefix}partition_shares")
    keys = values.pop("keys", {})
    known = None
    if isinstance(keys, Mapping) and keys.get("distribution", RECORDED) != RECORDED:
        values["keys"] = keys
    else:
        known = read_table(KnownKeys, keys, f"{prefix}keys.")
        if known.new_share + known.quiet_share + known.null_share > 1 + 1e-9:
            raise InvalidConfigurationError(
                f"{prefix}keys: new_share, quiet_share and null_share are above 1 together"
            )
    if not values.setdefault("records", 0):
        silent = _silent(name, 1, values["configs"], actions)
        return replace(silent, continued=True, known=known or KnownKeys(), shares=shares)
    workload = specs.from_mapping(values, must_compact=False)
    return Topic(
        name=name,
        partitions=1 + max(shares, default=0),
        configs=workload.topic_configs,
        workload=workload,
        messages=(),
        continued=True,
        known=known,
        shares=shares,
    )


def _shares(table: object, name: str) -> dict[int, float]:
    """Return shares by partition number."""
    if not isinstance(table, Mapping):
        raise InvalidConfigurationError(f"{name} is a table, not {table!r}")
    found: dict[int, float] = {}
    for word, share in table.items():
        if not word.isdecimal() or isinstance(share, bool) or not isinstance(share, int | float):
            raise InvalidConfigurationError(
                f"{name} gives a share to each number of a partition, not {share!r} to {word!r}"
            )
        if not 0 <= share < float("inf"):
            raise InvalidConfigurationError(f"{name}.{word} {share!r} is no share")
        found[int(word)] = float(share)
    if found and not sum(found.values()):
        raise InvalidConfigurationError(f"{name} gives nothing to any partition")
    return found


def _silent(
    name: str, partitions: int, configs: Mapping[str, str], actions: Sequence[Action]
) -> Topic:
    """Return a topic to which nothing comes."""
    values = {"topic": name, "partitions": partitions, "configs": configs}
    return _scripted(name, values, actions)


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
