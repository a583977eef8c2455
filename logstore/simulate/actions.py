"""The `[[actions]]` of a scenario: operations, crashes and faults."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import NamedTuple

from logstore.config.broker_config import BrokerConfig
from logstore.config.dynamic import reconfigure
from logstore.config.overrides import alter_overrides
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
"""Disk operations that can fail or be slow."""


class ActionKind(NamedTuple):
    """Keys and properties of a kind of action.

    Attributes
    ----------
    optional, required : tuple of str
        Keys in addition to `at` and `do`.
    inverse : str
        Action that reverts this one after `lasts`.
    while_down : bool
        Whether the action is possible while the broker is down.
    """

    optional: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    inverse: str = ""
    while_down: bool = False


_FAULT_SCOPE = ("operation", "topic", "partition", "directory")

ACTION_KINDS: Mapping[str, ActionKind] = {
    ALTER: ActionKind(("topic",), ("configs",)),
    ROLL: ActionKind(("partition",), ("topic",)),
    CLEAN: ActionKind(("partition",), ("topic",)),
    DELETE_RECORDS: ActionKind(("partition", "before"), ("topic",)),
    CREATE_TOPIC: ActionKind((), ("topic",)),
    DELETE_TOPIC: ActionKind((), ("topic",)),
    ADD_PARTITIONS: ActionKind((), ("topic", "partitions")),
    CORRUPT: ActionKind(("partition", "offset"), ("topic",), while_down=True),
    RETRY: ActionKind(("partition",), ("topic",)),
    STOP_CLEANER: ActionKind(inverse=START_CLEANER),
    START_CLEANER: ActionKind(),
    STOP_BROKER: ActionKind(inverse=START_BROKER),
    START_BROKER: ActionKind(while_down=True),
    KILL: ActionKind(inverse=START_BROKER),
    CRASH: ActionKind(inverse=START_BROKER),
    FILL_DISK: ActionKind(inverse=FREE_DISK, while_down=True),
    FREE_DISK: ActionKind(while_down=True),
    FAIL_DISK: ActionKind(
        (*_FAULT_SCOPE, "error", "delay"), ("operation",), MEND_DISK, while_down=True
    ),
    MEND_DISK: ActionKind(_FAULT_SCOPE, while_down=True),
    JUMP_CLOCK: ActionKind((), ("by",), JUMP_CLOCK, while_down=True),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """An action at a given time."""

    at: str = span("0", "Time after the start: `90m`, `10d`, `1d12h`.")
    do: str = setting("", "Kind of action.", choice=tuple(ACTION_KINDS))
    lasts: str = span("0", "Duration after which the action is reverted.")
    topic: str = setting("", "Topic.")
    partition: int = setting(-1, "Partition; -1 for all.", -1)
    before: int = setting(-1, "`delete-records`: offset; -1 for the high watermark.", -1)
    offset: int = setting(-1, "`corrupt`: offset in the batch; -1 for the first dirty offset.", -1)
    partitions: int = setting(0, "`add-partitions`: new number of partitions.", 0, 10_000)
    operation: str = setting("", "`fail-disk`: operation that fails.", choice=("", *OPERATIONS))
    error: str = setting("", "`fail-disk`: name of the errno.")
    delay: str = span("0", "`fail-disk`: additional time that the operation takes.")
    directory: int = setting(-1, "`fail-disk`: data directory; -1 for all.", -1)
    by: str = span("0", "`jump-clock`: change of the clock; negative is back.", is_signed=True)
    configs: Mapping[str, str] = field(default_factory=dict)

    @property
    def at_ms(self) -> int:
        """`at` in milliseconds after the start."""
        return parse_duration(self.at)

    @property
    def by_ms(self) -> int:
        """`by` in milliseconds."""
        return -parse_duration(self.by[1:]) if self.by[:1] == "-" else parse_duration(self.by)

    @property
    def delay_ms(self) -> int:
        """`delay` in milliseconds."""
        return parse_duration(self.delay)

    def repairs(self, fault: Action) -> bool:
        """Return whether a `mend-disk` action ends a fault. Keys that are not set match all."""
        return fault.do == FAIL_DISK and all(
            mine in (default, its)
            for mine, its, default in (
                (self.operation, fault.operation, ""),
                (self.topic, fault.topic, ""),
                (self.partition, fault.partition, -1),
                (self.directory, fault.directory, -1),
            )
        )

    @property
    def keys(self) -> tuple[str, ...]:
        """Keys that differ from their default, except `at` and `do`."""
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
            for name in self.keys
            if name not in ("topic", "configs", "lasts")
        ]
        words += [f"{name}={value}" for name, value in self.configs.items()]
        return " ".join(filter(None, words))

    def inverse(self) -> Action | None:
        """Return the action that reverts this one, or None if `lasts` is not set."""
        if self.lasts == "0":
            return None
        inverse = ACTION_KINDS[self.do].inverse
        values = {name: getattr(self, name) for name in ACTION_KINDS[inverse].optional}
        if self.do == JUMP_CLOCK:
            values["by"] = self.by.removeprefix("-") if self.by[:1] == "-" else f"-{self.by}"
        end_ms = self.at_ms + parse_duration(self.lasts)
        return Action(at=str(end_ms), do=inverse, **values)


class InitialTopic(NamedTuple):
    """Initial partitions and configs of a topic."""

    partitions: int
    configs: Mapping[str, str]


def plan_actions(
    actions: Sequence[Action],
    topics: Mapping[str, InitialTopic],
    broker: Mapping[str, str],
    directories: int,
) -> tuple[Action, ...]:
    """Check actions. Return them and their inverses in time order.

    Raises
    ------
    InvalidConfigurationError
        An action has a missing, unknown or invalid key, or is not possible at its time.
    """
    for action in actions:
        for problem in _key_problems(action, directories):
            raise InvalidConfigurationError(f"{action.do} at {action.at} {problem}")
    inverses = [each for action in actions if (each := action.inverse()) is not None]
    plan = sorted([*actions, *inverses], key=lambda action: action.at_ms)
    state = _PlannedState(plan, topics, broker)
    for action in plan:
        for problem in state.apply(action):
            raise InvalidConfigurationError(f"{action.do} at {action.at} {problem}")
    return tuple(plan)


def created_at_ms(actions: Iterable[Action], topic: str) -> int | None:
    """Return when a topic is created, in ms after the start, or None if it already exists."""
    changes = [
        each for each in actions if each.topic == topic and each.do in (CREATE_TOPIC, DELETE_TOPIC)
    ]
    first = min(changes, key=lambda action: action.at_ms, default=None)
    return first.at_ms if first is not None and first.do == CREATE_TOPIC else None


def _key_problems(action: Action, directories: int) -> Iterator[str]:
    kind = ACTION_KINDS[action.do]
    keys = (*kind.optional, *kind.required, *(("lasts",) if kind.inverse else ()))
    for name in kind.required:
        if name not in action.keys:
            yield f"needs {name}" if name != "topic" else "needs a topic"
    for name in action.keys:
        if name not in keys:
            yield f"does not accept {name}"
    if action.partition >= 0 and not action.topic:
        yield "has a partition but no topic"
    if action.error and action.error not in DISK_ERRORS:
        near = and_nearest(action.error, sorted(DISK_ERRORS))
        yield f"has unknown error {action.error!r}: expected the name of an errno{near}"
    if action.directory >= directories:
        yield f"has directory {action.directory}, but the scenario has only {directories}"


class _PlannedState:
    """The topics and the broker between the actions of a scenario."""

    def __init__(
        self,
        actions: Sequence[Action],
        topics: Mapping[str, InitialTopic],
        broker: Mapping[str, str],
    ) -> None:
        self._topics = topics
        self._partitions = {name: topic.partitions for name, topic in topics.items()}
        self._configs = {name: topic.configs for name, topic in topics.items()}
        self._existing = {name for name in topics if created_at_ms(actions, name) is None}
        self._broker = BrokerConfig.from_properties(broker, refuse_unknown=True)
        self._is_down = False

    def apply(self, action: Action) -> Iterator[str]:
        """Apply an action and yield its problems."""
        kind, name = ACTION_KINDS[action.do], action.topic
        if self._is_down and not kind.while_down:
            yield "is not possible while the broker is down"
        if name:
            yield from self._topic_problems(action)
        if action.do == START_BROKER and not self._is_down:
            yield "is not possible while the broker is running"
        if action.do in (STOP_BROKER, START_BROKER):
            self._is_down = action.do == STOP_BROKER
        elif action.do in (KILL, CRASH):
            self._is_down = action.lasts != "0"
        elif action.do == FREE_DISK:
            self._is_down = False
        elif action.do == CREATE_TOPIC:
            self._existing.add(name)
            self._configs[name] = self._topics[name].configs
        elif action.do == DELETE_TOPIC:
            self._existing.discard(name)
        elif action.do == ADD_PARTITIONS:
            self._partitions[name] = action.partitions
        elif action.do == ALTER:
            yield from self._alter(action)

    def _topic_problems(self, action: Action) -> Iterator[str]:
        name = action.topic
        if name not in self._topics:
            near = and_nearest(name, list(self._topics))
            yield f"names topic {name!r}, which is not in the scenario{near}"
            return
        if action.do == CREATE_TOPIC and name in self._existing:
            yield f"names topic {name!r}, which already exists"
        if action.do not in (CREATE_TOPIC, FAIL_DISK, MEND_DISK) and name not in self._existing:
            yield f"names topic {name!r}, which does not exist at that time"
        count = self._partitions[name]
        if action.partition >= count:
            yield f"names partition {action.partition} of topic {name!r}, which has {count}"
        if action.do == ADD_PARTITIONS and action.partitions <= count:
            yield f"sets {action.partitions} partitions for topic {name!r}, which has {count}"

    def _alter(self, action: Action) -> Iterator[str]:
        name = action.topic
        try:
            if name:
                changed, _ = alter_overrides(self._configs[name], action.configs, (), self._broker)
                self._configs[name] = changed
            else:
                self._broker, _ = reconfigure(self._broker, action.configs, refuse_unknown=True)
        except InvalidConfigurationError as error:
            yield f"is not possible: {error}"
