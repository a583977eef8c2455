"""Fault rules: which calls fail or are delayed, how often, and with which error.

Each entry point for requests or file operations describes a call as a `Call`, and applies the rules
of its `Faults` in the order in which they were added. Each rule counts matching calls, so the same
calls always get the same faults. A rule has an error, a delay or both. The error replaces the call
or, with `after`, only the response: the call is performed, but the caller gets no response, as if
the connection was lost.

Entry points that can wait use `Faults.call_with_rules`. All others get the applicable rules from
`Faults.apply_to` and handle them.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple, Self, TypedDict, TypeVar

from logstore.config.suggest import and_nearest
from logstore.errors import (
    KAFKA_CODES,
    RETRIABLE_ERRORS,
    InvalidConfigurationError,
    LogStoreError,
    OffsetOutOfRangeError,
    error_class,
)
from logstore.names import LOG_SUFFIX
from logstore.runtime import VirtualClock
from logstore.types import NO_OFFSET, TopicPartition

if TYPE_CHECKING:
    from logstore.runtime import Clock

T = TypeVar("T")

KAFKA_ERRORS = frozenset(KAFKA_CODES) - {"NONE"}
DISK_ERRORS = frozenset(errno.errorcode.values())


class Call(NamedTuple):
    """A call, as passed to the `when` of a rule. Fields that do not apply are None or empty.

    Attributes
    ----------
    kind : str
        The kind, as in `fail(kind)`.
    partitions : tuple of TopicPartition
        Partitions of the request, or the partition of the file.
    group_id, client_id : str or None
    path, target : str or None
        Path of the file, and its new path for a rename.
    """

    kind: str
    partitions: tuple[TopicPartition, ...] = ()
    group_id: str | None = None
    client_id: str | None = None
    path: str | None = None
    target: str | None = None

    @property
    def topic(self) -> str | None:
        """Topic of the first partition."""
        return self.partitions[0].topic if self.partitions else None

    @property
    def partition(self) -> int | None:
        """Number of the first partition."""
        return self.partitions[0].partition if self.partitions else None


class Kind(NamedTuple):
    """A kind of call to which rules can apply.

    Attributes
    ----------
    is_disk : bool
        Whether calls fail with an `errno` instead of a Kafka error.
    changes : bool
        Whether the call can be performed while its response is lost.
    on_disk : str or None
        Operation on `.log` files to which a rule with an `errno` applies instead.
    """

    name: str
    is_disk: bool = False
    changes: bool = False
    on_disk: str | None = None


REQUEST_KINDS = (
    Kind("append", changes=True, on_disk="write"),
    Kind("fetch", on_disk="read"),
    Kind("commit", changes=True),
    Kind("join", changes=True),
)
"""Requests to a broker that can fail."""

DISK_KINDS = (
    Kind("write", is_disk=True),
    Kind("read", is_disk=True),
    Kind("fsync", is_disk=True),
    Kind("rename", is_disk=True),
    Kind("swap", is_disk=True),
)
"""Disk operations that can fail. A swap is a rename to or from `.swap`."""

FILE_KINDS = (
    *DISK_KINDS,
    *(
        Kind(name, is_disk=True)
        for name in (
            *("change", "create", "truncate", "remove", "make_dir", "remove_dir", "sync_dir"),
            *("set_mtime", "open", "stat", "list", "size", "lock"),
        )
    ),
)
"""Operations of a `FaultyFileSystem` that can fail. `change` is any change."""


class RuleOptions(TypedDict, total=False):
    """Options of a rule, in addition to its error; see `Faults.add`."""

    delay: timedelta | float | None
    nth: int | None
    times: int | None
    topic: str | TopicPartition | None
    partition: int | None
    when: Callable[[Call], bool] | None
    after: bool


@dataclass(eq=False, repr=False, kw_only=True)
class FaultRule:
    """A rule, active until `remove` or the end of its `with` block.

    Attributes
    ----------
    kind : str
    error : str or None
        Name of a Kafka error or an `errno`. None if calls are only delayed.
    delay_ms : int
    nth : int
        First matching call to which the rule applies, counted from 1.
    times : int or None
        Number of calls to which the rule applies, or None for all.
    topic, partition : str, int or None
        Only match calls about this topic or partition.
    when : callable or None
        Returns whether a `Call` matches.
    after : bool
        Whether the call is performed before it fails.
    written : int
        Number of bytes that a failing write of a `FaultyFileSystem` still writes.
    calls : int
        Number of matching calls so far.
    hits : int
        Number of calls to which the rule has been applied.

    Notes
    -----
    Thread-safe. `when` is called without a lock, before the call is counted. It may use the broker,
    since the rule does not apply to calls made by its own `when`. Rules for disk operations are
    evaluated during changes, when the log does not permit a second change.
    """

    kind: str
    is_disk: bool
    error: str | None
    delay_ms: int
    nth: int
    times: int | None
    topic: str | None
    partition: int | None
    when: Callable[[Call], bool] | None
    after: bool
    written: int
    _remove: Callable[[FaultRule], None]
    calls: int = 0
    hits: int = 0
    _threads_inside: set[int] = field(default_factory=set)

    def __repr__(self) -> str:
        parts = [repr(self.kind)]
        if self.topic is not None:
            parts.append(f"topic={self.topic!r}")
        if self.partition is not None:
            parts.append(f"partition={self.partition}")
        if self.when is not None:
            parts.append(f"when={getattr(self.when, '__name__', self.when)}")
        if self.nth > 1 or self.times == 1:
            parts.append(f"nth={self.nth}")
        if self.times not in (None, 1):
            parts.append(f"times={self.times}")
        if self.error is not None:
            parts.append(f"error={self.error!r}")
        if self.delay_ms:
            parts.append(f"delay={self.delay_ms}")
        if self.after:
            parts.append("after=True")
        return f"<fail({', '.join(parts)}): {self.hits} of {self.calls} calls>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def remove(self) -> None:
        """End the rule. Its counts remain available. A second call has no effect."""
        self._remove(self)

    @property
    def is_spent(self) -> bool:
        """Whether the rule has been applied to `times` calls."""
        return self.times is not None and self.hits >= self.times

    def count(self) -> bool:
        """Count a call and return whether the rule applies. The caller must hold the lock."""
        self.calls += 1
        if self.calls < self.nth or self.is_spent:
            return False
        self.hits += 1
        return True

    def is_about(self, call: Call) -> bool:
        """Return whether a call matches."""
        if call.kind != self.kind:
            return False
        if self.topic is not None or self.partition is not None:
            for topic, partition in call.partitions:
                if self.topic in (None, topic) and self.partition in (None, partition):
                    break
            else:
                return False
        return self.when is None or self._is_wanted(call, self.when)

    def _is_wanted(self, call: Call, when: Callable[[Call], bool]) -> bool:
        thread = threading.get_ident()
        if thread in self._threads_inside:
            return False
        self._threads_inside.add(thread)
        try:
            return bool(when(call))
        finally:
            self._threads_inside.discard(thread)

    def exception(self, call: Call) -> Exception:
        """Return the error of the rule as an exception. The rule must have an error."""
        assert self.error is not None, "a rule that only delays has no error to raise"
        if self.is_disk:
            code = getattr(errno, self.error)
            error = OSError(code, os.strerror(code), call.path)
            vars(error)["written"] = self.written
            return error
        about = ", ".join(map(str, call.partitions)) or call.group_id or call.client_id
        what = f"{call.kind} of {about}" if about else call.kind
        how = "was completed, and its response dropped," if self.after else "was refused"
        return kafka_exception(self.error, f"{what} {how} by a fault rule: {self.error}")


class Faults(Collection[FaultRule]):
    """The rules of a broker, a listener or a disk, in the order they were added.

    Parameters
    ----------
    kinds : collection of Kind
        Kinds of calls for which rules can be added.
    clock : Clock
        Clock for delays.

    Attributes
    ----------
    rules : tuple of FaultRule
        The rules, for a quick check whether there are any.

    Notes
    -----
    Thread-safe.
    """

    def __init__(self, kinds: Collection[Kind], clock: Clock) -> None:
        self._kinds = {kind.name: kind for kind in kinds}
        self._clock = clock
        self._lock = threading.Lock()
        # Replaced, never modified, so that it can be read without the lock.
        self.rules: tuple[FaultRule, ...] = ()

    def __len__(self) -> int:
        return len(self.rules)

    def __iter__(self) -> Iterator[FaultRule]:
        return iter(self.rules)

    def __contains__(self, rule: object) -> bool:
        return rule in self.rules

    def __getitem__(self, index: int) -> FaultRule:
        return self.rules[index]

    def __repr__(self) -> str:
        return f"[{', '.join(map(repr, self.rules))}]"

    def add(
        self,
        kind: str,
        *,
        error: str | int | type[Exception] | None = None,
        delay: timedelta | float | None = None,
        nth: int | None = None,
        times: int | None = None,
        topic: str | TopicPartition | None = None,
        partition: int | None = None,
        when: Callable[[Call], bool] | None = None,
        after: bool = False,
        written: int = 0,
    ) -> FaultRule:
        """Make calls of a kind fail, or delay them.

        Parameters
        ----------
        kind : str
            A kind given to the constructor.
        error : str, int or exception class, optional
            Name of a Kafka error, or an error class of `logstore.errors` or kafka-python. For a
            disk, the name or number of an `errno`. [default without a delay: `EIO`]
        delay : timedelta or ms, optional
            Time to wait before the call.
        nth : int, optional
            First matching call to which the rule applies, counted from 1. Unless `times` is given,
            the rule only applies to this call.
        times : int, optional
            Number of calls to which the rule applies. [default: all]
        topic : str or TopicPartition, optional
            Match only calls about this topic or partition.
        partition : int, optional
            Match only calls about partitions with this number.
        when : callable, optional
            Returns whether a `Call` matches, based on its `topic`, `partition`, `group_id`,
            `client_id` and `path`.
        after : bool
            Perform the call, but lose its response.
        written : int
            Number of bytes that a failing write of a `FaultyFileSystem` writes before it fails.

        Raises
        ------
        InvalidConfigurationError
            The kind or error is unknown (the message suggests the closest name), or the rule has no
            effect.
        """
        row = self._kinds.get(kind)
        if row is None:
            meant = and_nearest(str(kind), self._kinds)
            raise InvalidConfigurationError(
                f"unknown kind of call {kind!r}{meant}; known: {', '.join(self._kinds)}"
            )
        if isinstance(topic, TopicPartition):
            topic, partition = topic
        if row.on_disk is not None and _is_errno(error):
            row, when = self._kinds[row.on_disk], _of_log_files(when)
        delay_ms = _checked_delay_ms(delay)
        name = None if error is None else _error_name(row, error)
        if name is None and row.is_disk and delay is None:
            name = "EIO"
        if name is None and delay is None:
            raise InvalidConfigurationError(
                f"fail({kind!r}) requires an error, such as error='REQUEST_TIMED_OUT', or a delay"
            )
        if after and not row.changes:
            raise InvalidConfigurationError(
                f"after=True does not apply to {kind}: it changes nothing, or is a file operation"
            )
        for what, number in (("nth", nth), ("times", times)):
            if number is not None and (type(number) is not int or number < 1):
                raise InvalidConfigurationError(f"{what} must be a positive int, not {number!r}")
        if when is not None and not callable(when):
            raise InvalidConfigurationError(
                f"when must be a function that takes a Call, not {when!r}"
            )
        rule = FaultRule(
            kind=row.name,
            is_disk=row.is_disk,
            error=name,
            delay_ms=delay_ms,
            nth=1 if nth is None else nth,
            times=1 if times is None and nth is not None else times,
            topic=topic,
            partition=partition,
            when=when,
            after=after,
            written=written,
            _remove=self._remove,
        )
        with self._lock:
            self.rules = (*self.rules, rule)
        return rule

    def clear(self) -> None:
        """Remove all rules."""
        with self._lock:
            self.rules = ()

    def _remove(self, rule: FaultRule) -> None:
        with self._lock:
            self.rules = tuple(each for each in self.rules if each is not rule)

    def apply_to(self, call: Call) -> list[FaultRule]:
        """Count a call and return the rules that apply, up to the first rule with an error.

        The caller must handle them in order: wait for `delay_ms`, and return the error instead of
        the result. Unless `after` is set, the caller must not perform the call.
        """
        rules = []
        for rule in self.rules:
            if not rule.is_about(call):
                continue
            with self._lock:
                applies = rule.count()
            if applies:
                rules.append(rule)
                if rule.error is not None:
                    break
        return rules

    def request(
        self,
        kind: str,
        partitions: Iterable[TopicPartition],
        action: Callable[[], T],
        *,
        group_id: str | None = None,
        client_id: str | None = None,
    ) -> T:
        """Serve a request, applying the rules; see `call_with_rules`."""
        if not self.rules:
            return action()
        return self.call_with_rules(Call(kind, tuple(partitions), group_id, client_id), action)

    def has_injected(self, error: str) -> bool:
        """Return whether an active rule has answered a request with this Kafka error.

        If so, a retry may succeed, as with a real broker. No other error here is temporary.
        """
        return any(rule.hits and rule.error == error for rule in self.rules)

    def call_with_rules(self, call: Call, action: Callable[[], T]) -> T:
        """Perform a call, applying the rules. Delays use the clock.

        Raises
        ------
        LogStoreError, OSError
            The error of a rule. See `is_injected` for Kafka errors.
        """
        rules = self.apply_to(call)
        self.apply(rules, call, after=False)
        result = action()
        self.apply(rules, call, after=True)
        return result

    def apply(self, rules: Iterable[FaultRule], call: Call, *, after: bool) -> None:
        """Wait and raise errors according to the rules that apply before or after a call."""
        for rule in rules:
            if rule.after is after:
                self._apply_rule(rule, call)

    def _apply_rule(self, rule: FaultRule, call: Call) -> None:
        if rule.delay_ms:
            clock = self._clock
            if rule.is_disk and isinstance(clock, VirtualClock):
                # Disk operations run while locks are held, so due jobs must not run.
                with clock.held():
                    clock.sleep(rule.delay_ms / 1000)
            else:
                clock.sleep(rule.delay_ms / 1000)
        if rule.error is not None:
            raise rule.exception(call)


def is_injected(error: BaseException) -> bool:
    """Return whether a Kafka error was raised by a rule."""
    return "is_injected" in vars(error)


def is_retriable_injection(error: LogStoreError) -> bool:
    """Return whether clients retry after an error, which requires that a rule raised it.

    The error must also be retriable in Kafka. Without a rule, such errors are permanent here. For
    example, a disk remains offline, and a topic remains unknown.
    """
    return is_injected(error) and error.kafka_error in RETRIABLE_ERRORS


def kafka_exception(name: str, message: str) -> LogStoreError:
    """Return an injected Kafka error by name, as its own class or as a `RequestError`."""
    kind = error_class(name)
    if kind is OffsetOutOfRangeError:
        error: LogStoreError = OffsetOutOfRangeError(
            message, offset=NO_OFFSET, log_start_offset=NO_OFFSET, log_end_offset=NO_OFFSET
        )
    else:
        error = kind(message)
    if kind.kafka_error != name:
        vars(error).update(kafka_error=name, code=KAFKA_CODES[name])
    vars(error)["is_injected"] = True
    return error


def _is_errno(error: object) -> bool:
    return error in DISK_ERRORS or (type(error) is int and error in errno.errorcode)


def _of_log_files(when: Callable[[Call], bool] | None) -> Callable[[Call], bool]:
    def of_log_files(call: Call) -> bool:
        is_log = call.path is not None and call.path.endswith(LOG_SUFFIX)
        return is_log and (when is None or when(call))

    return of_log_files


def _checked_delay_ms(delay: timedelta | float | None) -> int:
    if delay is None:
        return 0
    ms = delay / timedelta(milliseconds=1) if isinstance(delay, timedelta) else delay
    if not 0 < ms < float("inf"):
        raise InvalidConfigurationError(
            f"a delay must be a timedelta or a positive number of ms, not {delay!r}"
        )
    return -int(-ms // 1)


def _error_name(kind: Kind, error: object) -> str:
    """Return the name of an error given for a rule.

    Raises
    ------
    InvalidConfigurationError
    """
    names = DISK_ERRORS if kind.is_disk else KAFKA_ERRORS
    if kind.is_disk and type(error) is int and error in errno.errorcode:
        return errno.errorcode[error]
    if not kind.is_disk and isinstance(error, type):
        # The error classes of kafka-python store the code as `errno`.
        found = getattr(error, "kafka_error", _NAMES_BY_CODE.get(getattr(error, "errno", 0)))
        if found in names:
            return str(found)
    if isinstance(error, str):
        if error in names:
            return error
        if error in DISK_ERRORS:
            raise InvalidConfigurationError(
                f"{kind.name} cannot fail with the disk error {error}: use 'write' or 'read'"
            )
        whose = "a disk" if kind.is_disk else "a Kafka"
        raise InvalidConfigurationError(
            f"{error!r} is not {whose} error{and_nearest(error, sorted(names))}"
        )
    wanted = "an errno" if kind.is_disk else "the name or class of a Kafka error"
    raise InvalidConfigurationError(f"{kind.name}: error must be {wanted}, not {error!r}")


_NAMES_BY_CODE: dict[object, str] = {code: name for name, code in KAFKA_CODES.items()}
