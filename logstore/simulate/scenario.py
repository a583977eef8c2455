"""Scenarios: TOML files with topics, workloads, consumers and timed actions.

See `logstore.workload.spec` for the keys of a topic. Configs have Kafka's names. A scenario is
validated as a whole before it runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from logstore.config.broker_config import BrokerConfig
from logstore.config.overrides import alter_overrides, effective_config
from logstore.config.suggest import and_nearest
from logstore.config.units import parse_duration, without_unit
from logstore.errors import InvalidConfigurationError
from logstore.names import KAFKAS_OWN_TOPICS, validate_topic_name
from logstore.simulate.actions import (
    ADD_PARTITIONS,
    CREATE_TOPIC,
    Action,
    InitialTopic,
    created_at_ms,
    plan_actions,
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
"""Name of the key distribution recorded in a directory."""

SAMPLES_MAX = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumer:
    """A consumer that reads a topic with a lag.

    The consumer reads each record `lag` after its append. It pauses for `away`, starting at
    `away_from`, and then catches up immediately.
    """

    name: str = setting("consumer", "Name in the series.")
    topic: str = setting("", "Topic; the consumer reads all partitions.")
    lag: str = span("0", "Time between the append and the read of a record: `30s`, `2h`, `7d`.")
    away_from: str = span("0", "Time after the start at which it stops reading.")
    away: str = span("0", "Duration of the pause.")

    @property
    def lag_ms(self) -> int:
        """`lag` in milliseconds."""
        return parse_duration(self.lag)

    @property
    def away_ms(self) -> tuple[int, int]:
        """Start and end of the pause, in ms after the start. Equal without a pause."""
        begin = parse_duration(self.away_from)
        return begin, begin + parse_duration(self.away)

    def read_until(self, now_ms: int) -> int:
        """Return the append time up to which the consumer has read, in ms after the start."""
        begin, end = self.away_ms
        return (begin if begin <= now_ms < end else now_ms) - self.lag_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A single message of a topic without a workload."""

    at: str = span("0", "Time after the start: `90m`, `10d`, `1d12h`.")
    key: str = setting("", "Key.")
    value: str = setting("", "Value.")
    delete: bool = setting(False, "Write a tombstone.")
    late: str = span("0", "Time by which the timestamp is before the append.")
    early: str = span("0", "Time by which the timestamp is after the append.")
    partition: int = setting(0, "Partition.", 0)

    @property
    def at_ms(self) -> int:
        """`at` in milliseconds after the start."""
        return parse_duration(self.at)

    @property
    def timestamp_ms(self) -> int:
        """Timestamp in ms after the start. Negative if before the start."""
        return self.at_ms - parse_duration(self.late) + parse_duration(self.early)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownKeys:
    """The `keys` table of a `continued` topic.

    Keys are sampled from records at or after the first dirty offsets, so that each key gets the
    same fraction of writes as before.
    """

    distribution: str = setting(RECORDED, "Distribution of the writes: as recorded.", None, None,
                                (RECORDED,))  # fmt: skip
    new_share: float = setting(0.0, "Share of records with a new key.", 0.0, 1.0)
    unseen: int = setting(
        0, "Number of equally frequent keys from which new keys are drawn; 0: every one differs.",
        0, 1 << 40,
    )  # fmt: skip
    quiet_share: float = setting(
        0.0, "Share of records with a key of the log that was not written recently.", 0.0, 1.0
    )
    discount: float = setting(
        0.0, "Subtracted from the number of writes of each key, as some keys occur by chance.",
        0.0, 0.999,
    )  # fmt: skip
    null_share: float = setting(0.0, "Share of records without a key.", 0.0, 1.0)
    recent: int = setting(
        0, "Number of preceding records whose keys an update may take; 0: all uncleaned records.",
        0, 1 << 24,
    )  # fmt: skip
    prefix: str = setting("new-", "Prefix of new keys, before their number.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic of a scenario: a workload, or messages in time order.

    Attributes
    ----------
    recorded : Recorded or None
        Arrivals that the workload replays, or None if it draws them.
    continued : bool
        Whether the topic starts with the records and keys in the scenario's directory.
    known : KnownKeys or None
        Distribution of these keys. If None, the workload's distribution is used over their ranks.
    shares : mapping of int to float
        Fraction of records by partition. Empty for equal fractions.
    replicas : int
        Number of replicas of each partition. Only one is simulated; the others take the same disk
        space.
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
    replicas: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A validated scenario. The result only depends on the scenario and its seed.

    Attributes
    ----------
    origins : tuple of str
        Directories from which continued topics start.
    broker : mapping
        Kafka broker configs.
    actions : tuple of Action
        Actions in time order, including inverse actions.
    tree : mapping
        Parsed tables, for building variants.
    """

    title: str
    about: str
    days: float
    start_ms: int
    seed: int
    origins: tuple[str, ...]
    broker: Mapping[str, str]
    topics: tuple[Topic, ...]
    consumers: tuple[Consumer, ...]
    actions: tuple[Action, ...]
    directories: int
    tree: Mapping[str, Any] = field(repr=False, compare=False)

    @property
    def span_ms(self) -> int:
        """Length in virtual time."""
        return round(self.days * DAY_MS)

    def partitions_of(self, topic: str) -> int:
        """Return the final number of partitions of a topic."""
        counts = [each.partitions for each in self.topics if each.name == topic]
        added = [each.partitions for each in self.actions if each.topic == topic]
        return max(counts + added)

    @property
    def continued_topics(self) -> list[str]:
        """Names of topics that start from directories."""
        return [topic.name for topic in self.topics if topic.continued]

    def with_origins(self, paths: Sequence[str]) -> Scenario:
        """Return a copy that starts from different directories."""
        return from_mapping({**self.tree, "from": list(paths)})

    def with_days(self, days: float) -> Scenario:
        """Return a copy with a different length."""
        return from_mapping({**self.tree, "days": days})

    def with_seed(self, seed: int) -> Scenario:
        """Return a copy with a different seed."""
        return from_mapping({**self.tree, "seed": seed})

    def with_replicas(self, replicas: int) -> Scenario:
        """Return a copy with this number of replicas for every topic."""
        topics = [{**each, "replicas": replicas} for each in _topics(self.tree)]
        return from_mapping({**self.tree, "topics": topics})

    def with_config(self, name: str, value: str) -> Scenario:
        """Return a copy with one config changed, in every topic or in the broker.

        Raises
        ------
        InvalidConfigurationError
            The key is unknown, or the value is invalid.
        """
        from logstore.config.topic_keys import TOPIC_KEYS

        if name in TOPIC_KEYS:
            topics = [merge_tables(each, {"configs": {name: value}}) for each in _topics(self.tree)]
            return from_mapping({**self.tree, "topics": topics})
        return from_mapping(merge_tables(self.tree, {"broker": {name: value}}))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Top:
    """Top-level keys of the file."""

    title: str = setting("", "Title in the report.")
    about: str = setting("", "Description, a sentence or two.")
    days: float = setting(30.0, "Length in virtual days.", 0.0, 36_500.0)
    start: str = setting("2024-01-01T00:00:00Z", "Start time, ISO 8601.")
    seed: int = setting(1, "Seed of all random numbers.", 0, (1 << 64) - 1)
    directories: int = setting(1, "Number of data directories, used for partitions.", 1, 100)
    replicas: int = setting(1, "Replicas of each partition, for the disk of a cluster.", 1, 1_000)
    from_: str = setting(
        "", "Data directory or partition directory that the scenario continues, or a list of them."
    )


_PARTS = ("broker", "topics", "consumers", "actions")


def parse(text: str, folder: Path | None = None) -> Scenario:
    """Parse a scenario from TOML.

    Parameters
    ----------
    text : str
        Top-level keys: `title`, `about`, `days`, `start`, `seed`, `directories`, `replicas`,
        `from`. `[broker]` has Kafka broker configs. Each `[[topics]]` is a workload
        (`logstore.workload.spec`) with the `name` of the topic. By default it covers the time of
        the scenario. It may have `records_per_day` instead of `records`, and its own `replicas`.
        With `records` 0 or `[[topics.messages]]` it is not a workload. With `continued`, it starts
        with the topic of the same name in the directory `from`, its `keys` are `KnownKeys`, and
        `partition_shares` spreads the records. `[[consumers]]`, `[[actions]]`,
        `[[topics.messages]]` and `[topics.replay]` have the keys of `Consumer`, `Action`, `Message`
        and `Replay`.
    folder : Path, optional
        Base of relative paths. [default: current directory]

    Raises
    ------
    InvalidConfigurationError
        The text is not valid TOML, or a key is unknown (the message suggests the closest name), has
        the wrong type or is out of range.
    """
    tree = read_toml(text, "scenario")
    if paths := _origins(tree):
        absolute = [str(Path(folder or "").absolute() / path) for path in paths]
        tree["from"] = absolute if isinstance(tree["from"], list) else absolute[0]
    for topic in _topics(tree):
        replay = topic.get("replay") if isinstance(topic, Mapping) else None
        if isinstance(replay, dict) and isinstance(replay.get("file"), str):
            replay["file"] = str(Path(folder or "").absolute() / replay["file"])
    return from_mapping(tree)


def from_mapping(tree: Mapping[str, Any]) -> Scenario:
    """Build a scenario from parsed tables. Raises the same errors as `parse`."""
    origins = _origins(tree)
    table = {name: value for name, value in tree.items() if name not in _PARTS}
    if origins:
        table["from"] = origins[0]
    top = read_table(_Top, table, "", also=_PARTS)
    start_ms = specs.Time(start=top.start).start_ms
    broker = _without_units(_texts(tree.get("broker", {}), "broker"))
    BrokerConfig.from_properties(broker, refuse_unknown=True)
    actions = tuple(
        _action(table, f"actions[{number}].")
        for number, table in enumerate(_tables(tree, "actions"))
    )
    topics = tuple(
        _with_replicas(table, number, top, actions) for number, table in enumerate(_topics(tree))
    )
    if not topics:
        raise InvalidConfigurationError("a scenario needs [[topics]]")
    for text in _origin_problems(top, topics, actions):
        raise InvalidConfigurationError(text)
    names = [topic.name for topic in topics]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidConfigurationError(f"duplicate topic {twice!r}")
    consumers = tuple(
        read_table(Consumer, table, f"consumers[{number}].")
        for number, table in enumerate(_tables(tree, "consumers"))
    )
    for consumer in consumers:
        if consumer.topic not in names:
            near = and_nearest(consumer.topic, names)
            raise InvalidConfigurationError(
                f"consumer {consumer.name!r} reads topic {consumer.topic!r}, which is not in the "
                f"scenario{near}"
            )
    first = {topic.name: InitialTopic(topic.partitions, topic.configs) for topic in topics}
    return Scenario(
        title=top.title or ", ".join(names),
        about=top.about,
        days=top.days,
        start_ms=start_ms,
        seed=top.seed,
        origins=origins,
        broker=broker,
        topics=topics,
        consumers=consumers,
        actions=plan_actions(actions, first, broker, top.directories),
        directories=top.directories,
        tree=tree,
    )


def _origins(tree: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the directories in `from`, which is a path or a list of paths."""
    value = tree.get("from")
    if not isinstance(value, list):
        return (value,) if isinstance(value, str) and value else ()
    if not all(isinstance(each, str) and each for each in value):
        raise InvalidConfigurationError(f"from must be a path or a list of paths, not {value!r}")
    return tuple(value)


def _origin_problems(
    top: _Top, topics: Sequence[Topic], actions: Sequence[Action]
) -> Iterator[str]:
    continued = [topic for topic in topics if topic.continued]
    if top.from_ and not continued:
        yield "the scenario has from, but no topic has continued = true"
    if top.from_ and top.directories != 1:
        yield f"a scenario with from has 1 data directory, not {top.directories}"
    for topic in continued:
        if not top.from_:
            yield f"topic {topic.name!r} is continued, but the scenario has no from"
        for action in actions:
            if action.topic == topic.name and action.do in (CREATE_TOPIC, ADD_PARTITIONS):
                yield f"topic {topic.name!r} is continued, so {action.do} is not possible"
        null_share = 0.0 if topic.known is None else topic.known.null_share
        if null_share and effective_config(topic.configs).compact:
            yield (
                f"topic {topic.name!r} is compacted, so its records need keys: keys.null_share "
                f"must be 0, not {null_share:g}"
            )


def internal_topic_error(name: str) -> str:
    """Return the error message for an internal Kafka topic."""
    return (
        f"topic {name!r} cannot be simulated: only Kafka writes it, in a format of its own. Random"
        " keys and values are not valid records of it"
    )


def _tables(tree: Mapping[str, Any], name: str) -> list[Any]:
    tables = tree.get(name, [])
    if not isinstance(tables, list):
        raise InvalidConfigurationError(f"{name} must be an array of tables: use [[{name}]]")
    return tables


def _topics(tree: Mapping[str, Any]) -> list[Any]:
    return _tables(tree, "topics")


def _texts(table: object, name: str) -> dict[str, str]:
    """Return a config table with values converted to strings."""
    return {
        word: str(value).lower() if isinstance(value, bool) else str(value)
        for word, value in flatten_configs(table, name).items()
    }


def _without_units(broker: Mapping[str, str]) -> dict[str, str]:
    """Convert values such as `7d` to milliseconds and `1GiB` to bytes."""
    values = {}
    for key, text in broker.items():
        try:
            values[key] = without_unit(key, text)
        except ValueError as error:
            raise InvalidConfigurationError(f"{key}: {error}", key=key) from error
    return values


@dataclass(frozen=True, slots=True, kw_only=True)
class _Copies:
    replicas: int = setting(1, "Replicas of each partition.", 1, 1_000)


def _with_replicas(table: object, number: int, top: _Top, actions: Sequence[Action]) -> Topic:
    """Build a topic. The number of replicas can be set for every kind of topic."""
    if not isinstance(table, Mapping) or "replicas" not in table:
        return replace(_topic(table, number, top, actions), replicas=top.replicas)
    others = {name: value for name, value in table.items() if name != "replicas"}
    topic = _topic(others, number, top, actions)
    copies = read_table(_Copies, {"replicas": table["replicas"]}, f"topics.{topic.name}.")
    return replace(topic, replicas=copies.replicas)


def _topic(table: object, number: int, top: _Top, actions: Sequence[Action]) -> Topic:
    if not isinstance(table, Mapping):
        raise InvalidConfigurationError("topics must be an array of tables: use [[topics]]")
    values = dict(table)
    name = values.pop("name", None)
    if not isinstance(name, str):
        raise InvalidConfigurationError(f"topics[{number}] needs a name")
    validate_topic_name(name)
    if name in KAFKAS_OWN_TOPICS:
        raise InvalidConfigurationError(internal_topic_error(name))
    values["topic"] = name
    values["configs"] = _texts(values.get("configs", {}), "configs")
    if "preset" not in values:  # workloads are compacted by default
        values["configs"].setdefault("cleanup.policy", "delete")
    replay = values.pop("replay", None)
    if replay is not None and "messages" in values:
        raise InvalidConfigurationError(f"topic {name!r} has both messages and a replay")
    if replay is not None and "continued" in values:
        raise InvalidConfigurationError(f"topic {name!r} has both continued and a replay")
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
                f"topics.{name} has both records and records_per_day: use one of them"
            )
        values["records"] = _total_records(per_day, time, f"topics.{name}.")
    is_continued = values.pop("continued", False)
    if not isinstance(is_continued, bool):
        raise InvalidConfigurationError(
            f"topics.{name}.continued must be true or false, not {is_continued!r}"
        )
    if is_continued:
        return _continued(name, values, actions)
    values.setdefault("partitions", 1)
    recorded = None
    if replay is not None:
        recorded = _recorded(read_replay(replay, f"topics.{name}.replay."), name, values, table)
    elif values.get("records") == 0:
        return _empty_topic(name, values["partitions"], values["configs"], actions)
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
    """Return the arrivals that a topic replays, and set the workload's records and keys.

    Raises
    ------
    InvalidConfigurationError
        The replay file is invalid, or the topic sets a value that the file determines.
    """
    recorded = replay.read()
    conflicts = {"records": "records" in table}
    conflicts |= {f"time.{key}": key != "start" for key in table.get("time", {})}
    if recorded.key is not None:
        conflicts |= {f"keys.{key}": key != "prefix" for key in table.get("keys", {})}
    if recorded.tombstone is not None:
        conflicts["deletes"] = "deletes" in table
    conflict = next((key for key, is_set in conflicts.items() if is_set), None)
    if conflict is not None:
        raise InvalidConfigurationError(
            f"topics.{name}.{conflict} conflicts with the replay file {replay.file!r}, which "
            "determines it"
        )
    values["records"] = recorded.events_before(round(values["time"]["days"] * DAY_MS))
    if not values["records"]:
        raise InvalidConfigurationError(
            f"the replay file {replay.file!r} has no record before the end of the scenario"
        )
    if recorded.key is not None:
        keys = {"count": int(recorded.key.max()) + 1, "distribution": specs.UNIFORM}
        values["keys"] = {**table.get("keys", {}), **keys}
    return recorded


def _iso(time_ms: int) -> str:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=time_ms)).isoformat()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rate:
    records_per_day: float = setting(0.0, "Average number of records per day.", 0.0, 1e12)


def _total_records(per_day: object, time: Mapping[str, Any], prefix: str) -> int:
    """Return the number of records over the entire time."""
    from logstore.workload.profiles import even_days

    rate = read_table(_Rate, {"records_per_day": per_day}, prefix).records_per_day
    return round(rate * even_days(read_table(specs.Time, time, f"{prefix}time.")))


def _continued(name: str, values: dict[str, Any], actions: Sequence[Action]) -> Topic:
    """Build a topic that continues a directory, with the partitions found there."""
    prefix = f"topics.{name}."
    if "partitions" in values:
        raise InvalidConfigurationError(
            f"{prefix}partitions cannot be set: a continued topic keeps the partitions that it has"
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
                f"{prefix}keys: the sum of new_share, quiet_share and null_share is above 1"
            )
    if not values.setdefault("records", 0):
        topic = _empty_topic(name, 1, values["configs"], actions)
        return replace(topic, continued=True, known=known or KnownKeys(), shares=shares)
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
        raise InvalidConfigurationError(f"{name} must be a table, not {table!r}")
    shares: dict[int, float] = {}
    for key, share in table.items():
        if not key.isdecimal() or isinstance(share, bool) or not isinstance(share, int | float):
            raise InvalidConfigurationError(
                f"{name} must map partition numbers to shares, not {key!r} to {share!r}"
            )
        if not 0 <= share < float("inf"):
            raise InvalidConfigurationError(
                f"{name}.{key} must be a number from 0 up, not {share!r}"
            )
        shares[int(key)] = float(share)
    if shares and not sum(shares.values()):
        raise InvalidConfigurationError(f"all shares in {name} are 0")
    return shares


def _empty_topic(
    name: str, partitions: int, configs: Mapping[str, str], actions: Sequence[Action]
) -> Topic:
    """Build a topic without records."""
    values = {"topic": name, "partitions": partitions, "configs": configs}
    return _scripted(name, values, actions)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scripted:
    """The keys of a topic without a workload."""

    topic: str = setting("", "Name.")
    records: int = setting(0, "Number of records: none.", 0, 0)
    partitions: int = setting(1, "Number of partitions.", 1, 10_000)


def _scripted(name: str, values: Mapping[str, Any], actions: Sequence[Action]) -> Topic:
    own = {word: value for word, value in values.items() if word not in ("messages", "configs")}
    table = read_table(_Scripted, own, f"topics.{name}.", also=("messages", "configs"))
    configs, _ = alter_overrides({}, values["configs"], ())
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
            f"the message at {wrong.at} names partition {wrong.partition} of topic {name!r}, which "
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
        raise InvalidConfigurationError("actions must be an array of tables: use [[actions]]")
    values = dict(table)
    configs = _texts(values.pop("configs", {}), "configs")
    return replace(read_table(Action, values, prefix, also=("configs",)), configs=configs)
