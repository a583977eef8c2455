"""Deeds: what operators do and what befalls a broker, as the `[[actions]]` of scenarios say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import NamedTuple

from logstore.config.broker_config import BrokerConfig
from logstore.config.dynamic import reconfigured
from logstore.config.overrides import altered_overrides
from logstore.config.suggest import and_nearest
from logstore.config.units import parse_duration
from logstore.errors import InvalidConfigurationError
from logstore.faults.rules import DISK_ERRORS, DISK_KINDS
from logstore.workload.tables import setting, span

ALTER, ROLL, CLEAN, DELETE_RECORDS = "alter", "roll", "clean", "delete-records"
CREATE_TOPIC, DELETE_TOPIC, ADD_PARTITIONS = "create-topic", "delete-topic", "add-partitions"
RETRY, CORRUPT = "retry", "corrupt"
STOP_CLEANER, START_CLEANER = "stop-cleaner", "start-cleaner"
STOP_BROKER, START_BROKER, KILL, CRASH = "stop-broker", "start-broker", "kill", "crash"
FILL_DISK, FREE_DISK, FAIL_DISK, MEND_DISK = "fill-disk", "free-disk", "fail-disk", "mend-disk"
JUMP_CLOCK = "jump-clock"

OPERATIONS = tuple(kind.name for kind in DISK_KINDS)
"""Operations of a disk that can fail or be slow."""


class Deed(NamedTuple):
    """What an action of a kind says, besides when it is.

    Attributes
    ----------
    takes, needs : tuple of str
        Keys that it may have, and those that it must.
    undone_by : str
        What follows it where it has `lasts`.
    while_down : bool
        Whether it can be done while no broker runs.
    """

    takes: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    undone_by: str = ""
    while_down: bool = False


_OF_DISKS = ("operation", "topic", "partition", "directory")

DEEDS: Mapping[str, Deed] = {
    ALTER: Deed(("topic",), ("configs",)),
    ROLL: Deed(("partition",), ("topic",)),
    CLEAN: Deed(("partition",), ("topic",)),
    DELETE_RECORDS: Deed(("partition", "before"), ("topic",)),
    CREATE_TOPIC: Deed((), ("topic",)),
    DELETE_TOPIC: Deed((), ("topic",)),
    ADD_PARTITIONS: Deed((), ("topic", "partitions")),
    CORRUPT: Deed(("partition", "offset"), ("topic",), while_down=True),
    RETRY: Deed(("partition",), ("topic",)),
    STOP_CLEANER: Deed(undone_by=START_CLEANER),
    START_CLEANER: Deed(),
    STOP_BROKER: Deed(undone_by=START_BROKER),
    START_BROKER: Deed(while_down=True),
    KILL: Deed(undone_by=START_BROKER),
    CRASH: Deed(undone_by=START_BROKER),
    FILL_DISK: Deed(undone_by=FREE_DISK, while_down=True),
    FREE_DISK: Deed(while_down=True),
    FAIL_DISK: Deed((*_OF_DISKS, "error", "delay"), ("operation",), MEND_DISK, while_down=True),
    MEND_DISK: Deed(_OF_DISKS, while_down=True),
    JUMP_CLOCK: Deed((), ("by",), JUMP_CLOCK, while_down=True),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """Something that is done once, at a moment."""

    at: str = span("0", "When, after the start: `90m`, `10d`, `1d12h`.")
    do: str = setting("", "What.", choice=tuple(DEEDS))
    lasts: str = span("0", "After which time it is undone.")
    topic: str = setting("", "To which topic.")
    partition: int = setting(-1, "To which of its partitions; -1 is all.", -1)
    before: int = setting(-1, "Of `delete-records`: the offset; -1 is the high watermark.", -1)
    offset: int = setting(-1, "Of `corrupt`: whose batch; -1 is the first dirty one.", -1)
    partitions: int = setting(0, "Of `add-partitions`: how many there are then.", 0, 10_000)
    operation: str = setting("", "Of `fail-disk`: which fails.", choice=("", *OPERATIONS))
    error: str = setting("", "Of `fail-disk`: the name of an errno.")
    delay: str = span("0", "Of `fail-disk`: how much longer it takes.")
    directory: int = setting(-1, "Of `fail-disk`: in which data directory; -1 is all.", -1)
    by: str = span("0", "Of `jump-clock`: how far, back if negative.", is_signed=True)
    configs: Mapping[str, str] = field(default_factory=dict)

    @property
    def at_ms(self) -> int:
        """`at` in ms after the start."""
        return parse_duration(self.at)

    @property
    def by_ms(self) -> int:
        """`by` in ms."""
        return -parse_duration(self.by[1:]) if self.by[:1] == "-" else parse_duration(self.by)

    @property
    def delay_ms(self) -> int:
        """`delay` in ms."""
        return parse_duration(self.delay)

    def is_about(self, fault: Action) -> bool:
        """Tell whether it mends a fault of disks; where it says nothing it is about all."""
        return fault.do == FAIL_DISK and all(
            mine in (unsaid, its)
            for mine, its, unsaid in (
                (self.operation, fault.operation, ""),
                (self.topic, fault.topic, ""),
                (self.partition, fault.partition, -1),
                (self.directory, fault.directory, -1),
            )
        )

    @property
    def said(self) -> tuple[str, ...]:
        """The keys that say something, besides `at` and `do`."""
        return tuple(
            row.name
            for row in fields(self)
            if row.name not in ("at", "do")
            and getattr(self, row.name) != (row.default if row.name != "configs" else {})
        )

    def __str__(self) -> str:
        words = [self.do, self.topic]
        words += [
            f"{name}={getattr(self, name)}"
            for name in self.said
            if name not in ("topic", "configs", "lasts")
        ]
        words += [f"{name}={value}" for name, value in self.configs.items()]
        return " ".join(filter(None, words))

    def undone(self) -> Action | None:
        """Return what follows it, None if it stays."""
        if self.lasts == "0":
            return None
        kept = DEEDS[DEEDS[self.do].undone_by].takes
        words = {name: getattr(self, name) for name in kept}
        if self.do == JUMP_CLOCK:
            words["by"] = self.by.removeprefix("-") if self.by[:1] == "-" else f"-{self.by}"
        end_ms = self.at_ms + parse_duration(self.lasts)
        return Action(at=str(end_ms), do=DEEDS[self.do].undone_by, **words)


class FirstTopic(NamedTuple):
    """Partitions and configurations with which a topic begins."""

    partitions: int
    configs: Mapping[str, str]


def in_order(
    actions: Sequence[Action],
    topics: Mapping[str, FirstTopic],
    broker: Mapping[str, str],
    directories: int,
) -> tuple[Action, ...]:
    """Return actions in the order of their moments, with those that undo them, all checked.

    Raises
    ------
    InvalidConfigurationError
        One says too much, too little or something wrong, or cannot be done where it stands.
    """
    for action in actions:
        for problem in _spoken_wrong(action, directories):
            raise InvalidConfigurationError(f"{action.do} at {action.at} {problem}")
    undone = [each for action in actions if (each := action.undone()) is not None]
    found = sorted([*actions, *undone], key=lambda action: action.at_ms)
    plan = _Plan(found, topics, broker)
    for action in found:
        for problem in plan.follow(action):
            raise InvalidConfigurationError(f"{action.do} at {action.at} {problem}")
    return tuple(found)


def created_at_ms(actions: Iterable[Action], topic: str) -> int | None:
    """Return when a topic is created, in ms after the start; None if it is there from the start."""
    about = [each for each in actions if each.topic == topic]
    lives = [each for each in about if each.do in (CREATE_TOPIC, DELETE_TOPIC)]
    first = min(lives, key=lambda action: action.at_ms, default=None)
    return first.at_ms if first is not None and first.do == CREATE_TOPIC else None


def _spoken_wrong(action: Action, directories: int) -> Iterator[str]:
    deed = DEEDS[action.do]
    may = (*deed.takes, *deed.needs, *(("lasts",) if deed.undone_by else ()))
    for name in deed.needs:
        if name not in action.said:
            yield f"needs {name}" if name != "topic" else "needs a topic"
    for name in action.said:
        if name not in may:
            yield f"takes no {name}"
    if action.partition >= 0 and not action.topic:
        yield "has a partition and no topic"
    if action.error and action.error not in DISK_ERRORS:
        near = and_nearest(action.error, sorted(DISK_ERRORS))
        yield f"has error {action.error!r}, which is no errno{near}"
    if action.directory >= directories:
        yield f"is about directory {action.directory}; there are {directories}"


class _Plan:
    """What is there as the actions are done one after another."""

    def __init__(
        self, actions: Sequence[Action], topics: Mapping[str, FirstTopic], broker: Mapping[str, str]
    ) -> None:
        self._topics = topics
        self._partitions = {name: topic.partitions for name, topic in topics.items()}
        self._configs = {name: topic.configs for name, topic in topics.items()}
        self._there = {name for name in topics if created_at_ms(actions, name) is None}
        self._broker = BrokerConfig.from_properties(broker, refuse_unknown=True)
        self._is_down = False

    def follow(self, action: Action) -> Iterator[str]:
        """Do an action in the plan; yield what is wrong with it."""
        deed, name = DEEDS[action.do], action.topic
        if self._is_down and not deed.while_down:
            yield "comes while the broker is down"
        if name:
            yield from self._topic_problems(action)
        if action.do == START_BROKER and not self._is_down:
            yield "comes while the broker runs"
        if action.do in (STOP_BROKER, START_BROKER):
            self._is_down = action.do == STOP_BROKER
        elif action.do in (KILL, CRASH):
            self._is_down = action.lasts != "0"
        elif action.do == FREE_DISK:
            self._is_down = False
        elif action.do == CREATE_TOPIC:
            self._there.add(name)
            self._configs[name] = self._topics[name].configs
        elif action.do == DELETE_TOPIC:
            self._there.discard(name)
        elif action.do == ADD_PARTITIONS:
            self._partitions[name] = action.partitions
        elif action.do == ALTER:
            yield from self._alter(action)

    def _topic_problems(self, action: Action) -> Iterator[str]:
        name = action.topic
        if name not in self._topics:
            near = and_nearest(name, list(self._topics))
            yield f"is for topic {name!r}, which is none of the scenario's{near}"
            return
        if action.do == CREATE_TOPIC and name in self._there:
            yield f"finds topic {name!r} there already"
        if action.do not in (CREATE_TOPIC, FAIL_DISK, MEND_DISK) and name not in self._there:
            yield f"is for topic {name!r}, which is not there then"
        count = self._partitions[name]
        if action.partition >= count:
            yield f"is for partition {action.partition} of topic {name!r}, which has {count}"
        if action.do == ADD_PARTITIONS and action.partitions <= count:
            yield f"lets topic {name!r} have {action.partitions} partitions; it has {count} already"

    def _alter(self, action: Action) -> Iterator[str]:
        name = action.topic
        try:
            if name:
                changed, _ = altered_overrides(
                    self._configs[name], action.configs, (), self._broker
                )
                self._configs[name] = changed
            else:
                self._broker, _ = reconfigured(self._broker, action.configs, refuse_unknown=True)
        except InvalidConfigurationError as error:
            yield f"cannot be done: {error}"
