"""A consumer with kafka-python's API, in the broker's process.

The consumer communicates with the group coordinator through a membership, and reads each partition
through a `Position`. With a virtual clock, `poll` advances the time by at most its timeout and runs
the tasks that become due, so several consumers in one thread can complete a rebalance by polling in
turn. With other clocks, or if the broker has ever had a listener, `poll` blocks until there are
records or other work.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self, TypeVar

from logstore.clients.arguments import EARLIEST, LATEST, to_topic_partition
from logstore.clients.consumer_config import NONE, ConsumerConfig
from logstore.clients.consumer_membership import ConsumerProtocolMembership
from logstore.clients.consumer_metrics import COORDINATOR_GROUP, FETCH_GROUP, ConsumerMetrics
from logstore.clients.coordinators import GroupRequests
from logstore.clients.group_membership import RETRY_TASK, GroupMembership, Phase
from logstore.clients.membership import Membership
from logstore.clients.positions import ConsumedRecord, Position
from logstore.clients.results import OffsetAndTimestamp
from logstore.coordinator.groups.offsets import (
    NO_GENERATION,
    NO_MEMBER,
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    to_offsets,
)
from logstore.errors import (
    CommitFailedError,
    CorruptRecordError,
    FencedInstanceIdError,
    IllegalStateError,
    InvalidConfigurationError,
    KafkaTimeoutError,
    LogStoreError,
    NoOffsetForPartitionError,
    OffsetMetadataTooLargeError,
    OffsetOutOfRangeError,
    RebalanceInProgressError,
    RequestError,
    UnknownTopicOrPartitionError,
    WakeupError,
)
from logstore.faults.rules import Call, is_retriable_injection, kafka_exception
from logstore.names import INTERNAL_COMPACTED_TOPICS
from logstore.runtime import ThreadGuard, for_one_thread
from logstore.runtime.patterns import compile_pattern
from logstore.types import TopicPartition

if TYPE_CHECKING:
    from logstore.coordinator.groups.coordinator import GroupCoordinator
    from logstore.manager.manager import LogManager
    from logstore.runtime import Runtime, Unsubscribe
    from logstore.storage.log.log import Log

logger = logging.getLogger(__name__)

_EXCLUSIVE = (
    "subscription by topics, subscription by pattern and assignment of partitions are mutually"
    " exclusive"
)

_COMMIT_ERRORS: dict[str, type[LogStoreError]] = {
    "UNKNOWN_MEMBER_ID": CommitFailedError,
    "ILLEGAL_GENERATION": CommitFailedError,
    "STALE_MEMBER_EPOCH": CommitFailedError,
    "REBALANCE_IN_PROGRESS": RebalanceInProgressError,
    "FENCED_INSTANCE_ID": FencedInstanceIdError,
    "UNKNOWN_TOPIC_OR_PARTITION": UnknownTopicOrPartitionError,
    "OFFSET_METADATA_TOO_LARGE": OffsetMetadataTooLargeError,
}


T = TypeVar("T")


class _Retriable(LogStoreError):
    """A commit failed with a retriable error."""


class CommitFuture:
    """The result of a `commit_async`, with the API of kafka-python's futures.

    Attributes
    ----------
    value : dict or None
        The committed offsets, or None if the commit failed.
    exception : Exception or None
        The error, or None if the offsets were committed.
    is_done : bool
        Always True.
    """

    is_done = True

    def __init__(
        self,
        value: dict[TopicPartition, OffsetAndMetadata] | None,
        exception: Exception | None,
    ) -> None:
        self.value = value
        self.exception = exception

    def __repr__(self) -> str:
        return f"CommitFuture({self.value if self.exception is None else self.exception!r})"

    def succeeded(self) -> bool:
        """Return whether the offsets were committed."""
        return self.exception is None

    def failed(self) -> bool:
        """Return whether the commit failed."""
        return self.exception is not None


@for_one_thread("wakeup", "crash", "metrics")
class Consumer:
    """A client that consumes records from topics.

    Use `Broker.consumer(*topics, **configs)` to create a consumer. The configs have kafka-python's
    names and defaults; see `logstore.clients.consumer_config`.

    Parameters
    ----------
    runtime : Runtime
    manager : LogManager
    coordinator : GroupCoordinator
    topics : sequence of str
        Topics to subscribe to.
    configs : mapping
    on_close : callable, optional
        Called with the consumer when it has been closed.

    Raises
    ------
    InvalidConfigurationError
        A config is unknown or unsupported, or two configs conflict.

    Notes
    -----
    Like the Java consumer, this consumer is not thread-safe. A call raises `IllegalStateError`
    while another thread is using the consumer. Only `wakeup`, `metrics` and `crash` may be called
    from any thread. Rebalance listeners run inside `poll`.

    On a read-only broker, the consumer does not join its group. It reads all partitions of its
    topics, starting at the group's committed offsets, and cannot commit.
    """

    def __init__(
        self,
        runtime: Runtime,
        manager: LogManager,
        coordinator: GroupCoordinator,
        topics: Collection[str],
        configs: Mapping[str, Any],
        on_close: Callable[[Consumer], object] | None = None,
    ) -> None:
        self._guard = ThreadGuard("use one consumer per thread, or call wakeup() to end the poll")
        self._is_woken = False
        self.config = config = ConsumerConfig.of(configs)
        self._clock = runtime.clock
        self._manager = manager
        self._coordinator = GroupRequests(coordinator, config.group_id or "")
        self._faults = manager.faults
        self._metrics = ConsumerMetrics(self._clock.monotonic_ns())
        self._on_close = on_close
        self._membership: GroupMembership | None = None
        if config.group_id is not None and not manager.read_only:
            if config.uses_consumer_protocol:
                self._membership = ConsumerProtocolMembership(runtime, self._coordinator, config)
            else:
                self._membership = Membership(
                    runtime, self._coordinator, config, self._partition_counts
                )
        self._topics: frozenset[str] | None = None
        self._matches_pattern: Callable[[str], bool] | None = None
        self._is_assigned = False
        self._listener: Any = None
        self._positions: dict[TopicPartition, Position] = {}
        self._subscriptions: dict[TopicPartition, Unsubscribe] = {}
        self._next_commit_ms = self._clock.monotonic_ms() + config.auto_commit_interval_ms
        self._auto_committed: dict[TopicPartition, OffsetAndMetadata] = {}
        self._closed = False
        manager.lifetime.add(self)
        if topics:
            self.subscribe(topics)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # If the block raised an error, do not commit: the last records might not have been
        # processed.
        self.close(autocommit=kind is None)

    def __repr__(self) -> str:
        return f"Consumer({self.config.client_id}, group_id={self.config.group_id!r})"

    # -- subscription and assignment ---------------------------------------------------------

    def subscribe(
        self,
        topics: Collection[str] = (),
        pattern: str | None = None,
        listener: object = None,
    ) -> None:
        """Subscribe to a list of topics or to a topic pattern.

        Parameters
        ----------
        topics : collection of str
            Topic names.
        pattern : str, optional
            Regular expression in RE2 syntax, used instead of `topics`. It must match from the start
            of a topic name.
        listener : object, optional
            Rebalance listener with kafka-python's methods `on_partitions_revoked(partitions)`,
            `on_partitions_assigned(partitions)` and, optionally, `on_partitions_lost(partitions)`.

        Raises
        ------
        IllegalStateError
            Partitions were assigned manually, or the call would switch between topics and a
            pattern.
        ValueError, TypeError
            Neither or both of `topics` and `pattern` are given, or `topics` is a single string.
        InvalidRegularExpressionError
        """
        self._check_open()
        if isinstance(topics, str):
            raise TypeError(f"topics must be a list, not the string {topics!r}")
        for topic in topics:
            if not isinstance(topic, str):
                raise TypeError(
                    f"a topic must be a string, not {topic!r}; for partitions, use assign()"
                )
        if bool(topics) == (pattern is not None):
            raise ValueError("pass either topics or a pattern")
        if pattern is not None and not isinstance(pattern, str):
            raise TypeError(f"a pattern must be a string, not {pattern!r}")
        was_by_pattern = self._matches_pattern is not None
        is_other_kind = self._topics is not None and was_by_pattern != (pattern is not None)
        if self._is_assigned or is_other_kind:
            raise IllegalStateError(_EXCLUSIVE)
        for name in ("on_partitions_revoked", "on_partitions_assigned"):
            if listener is not None and not callable(getattr(listener, name, None)):
                raise TypeError(f"a rebalance listener needs a method {name}: {listener!r}")
        matches = None if pattern is None else compile_pattern(pattern, is_prefix=True)
        self._listener, self._matches_pattern = listener, matches
        self._topics = frozenset(topics)
        self._watch_topics()

    def unsubscribe(self) -> None:
        """Cancel the subscription or the manual assignment, and leave the group."""
        self._check_open()
        self._commit_automatically()
        if self._membership is not None:
            self._call_listener("on_partitions_revoked", self._positions.keys())
            self._membership.leave()
        self._topics = self._matches_pattern = self._listener = None
        self._is_assigned = False
        self._take_partitions(())

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Assign partitions to this consumer manually, replacing any previous assignment.

        Manual assignment does not use group membership. An empty list has the same effect as
        `unsubscribe`.

        Raises
        ------
        IllegalStateError
            The consumer has a subscription.
        UnknownTopicOrPartitionError
        """
        self._check_open()
        wanted = [to_topic_partition(tp) for tp in partitions]
        if not wanted:
            self.unsubscribe()
            return
        if self._topics is not None:
            raise IllegalStateError(_EXCLUSIVE)
        for tp in wanted:
            self._log(tp)
        self._commit_automatically()
        self._is_assigned = True
        self._take_partitions(wanted)

    def subscription(self) -> set[str] | None:
        """Return the subscribed topics, or None if the consumer has no subscription."""
        return None if self._topics is None else set(self._topics)

    def assignment(self) -> set[TopicPartition]:
        """Return the partitions currently assigned to this consumer."""
        return set(self._positions)

    def topics(self) -> set[str]:
        """Return the names of all topics. Internal topics are excluded by default."""
        return {
            topic.name
            for topic in self._manager.catalog.topics()
            if not (self.config.exclude_internal_topics and topic.name in INTERNAL_COMPACTED_TOPICS)
        }

    def partitions_for_topic(self, topic: str) -> set[int]:
        """Return a topic's partition numbers, or an empty set if the topic does not exist."""
        with suppress(UnknownTopicOrPartitionError):
            return set(self._manager.catalog.topic(topic).partitions)
        return set()

    # -- reading -------------------------------------------------------------------------------

    def poll(
        self, timeout_ms: float = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumedRecord]]:
        """Fetch records from the assigned partitions.

        Parameters
        ----------
        timeout_ms : float
            Maximum time to wait for records. With a virtual clock, the call does not sleep but
            advances the time by at most this much. If the broker has ever had a listener, the call
            blocks instead, and the virtual clock follows the system clock.
        max_records : int, optional
            Maximum number of records. [default: `max_poll_records`]

        Raises
        ------
        OffsetOutOfRangeError, NoOffsetForPartitionError
            A partition's offset is missing or out of range, and `auto_offset_reset` is 'none'.
        CorruptRecordError
            A batch is corrupt. The message contains its file and position.
        FencedInstanceIdError, InconsistentGroupProtocolError, GroupMaxSizeReachedError …
            The group rejected this consumer.
        IllegalStateError
            The consumer is closed or in use by another thread, or has neither a subscription nor an
            assignment.
        WakeupError
            `wakeup` was called.
        """
        self._check_open()
        if timeout_ms < 0:
            raise ValueError(f"timeout_ms must not be negative: {timeout_ms}")
        limit = self.config.max_poll_records if max_records is None else max_records
        if type(limit) is not int:
            raise TypeError(f"max_records must be an int, not {max_records!r}")
        if limit <= 0:
            raise ValueError(f"max_records must be positive: {limit}")
        if self._topics is None and not self._is_assigned:
            raise IllegalStateError("call subscribe() or assign() before reading")
        deadline_ns = self._clock.monotonic_ns() + int(min(timeout_ms, 2**53) * 1_000_000)
        while True:
            self._raise_if_woken()
            self._advance()
            records = self._fetch(limit)
            left_ns = deadline_ns - self._clock.monotonic_ns()
            if records or left_ns <= 0:
                return records
            self._wait(left_ns, is_endless=timeout_ms == float("inf"))

    def wakeup(self) -> None:
        """Interrupt a `poll` in another thread, which then raises `WakeupError`.

        If no thread is polling, the next `poll` is interrupted. Any thread may call this method.
        The consumer remains usable.
        """
        self._is_woken = True
        self._coordinator.scheduler.notify()

    def _raise_if_woken(self) -> None:
        if self._is_woken:
            self._is_woken = False
            raise WakeupError(f"{self!r} was woken up")

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ConsumedRecord:
        """Return the next record. Stop after `consumer_timeout_ms` without a record.

        Without a timeout, a consumer with a virtual clock raises `Deadlock` if no scheduled task
        can produce a record. If the broker has ever had a listener, the call blocks instead.
        """
        if self._closed:
            raise StopIteration
        by_partition = self.poll(self.config.consumer_timeout_ms, max_records=1)
        for records in by_partition.values():
            return records[0]
        raise StopIteration

    def position(self, partition: TopicPartition, timeout_ms: float | None = None) -> int:
        """Return the offset of the next record that will be fetched.

        The position advances over offset gaps, control batches and aborted records, but not past
        the last batch. As in other clients, it may therefore remain below the end offset.

        Raises
        ------
        IllegalStateError
            The partition is not assigned.
        NoOffsetForPartitionError
            The group has no committed offset, and `auto_offset_reset` is 'none'.
        """
        position = self._position_of(partition)
        return self._within(timeout_ms, "not fetched", lambda: self._resolve_position(position))

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Set the offset from which the partition is read next.

        Raises
        ------
        ValueError
            The partition is not assigned, or the offset is negative.
        """
        position = self._require_assigned(partition)
        if type(offset) is not int or offset < 0:
            raise ValueError(f"an offset must be a non-negative int, not {offset!r}")
        position.seek(offset)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Seek to the first available offset of the given or of all assigned partitions.

        The next `poll` or `position` looks up the offset.
        """
        for position in self._require_assigned_or_all(partitions):
            position.seek_to(EARLIEST)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Seek to the end of the given or of all assigned partitions.

        The next `poll` or `position` looks up the offset.
        """
        for position in self._require_assigned_or_all(partitions):
            position.seek_to(LATEST)

    def pause(self, *partitions: TopicPartition) -> None:
        """Suspend fetching from partitions. `poll` skips them until `resume` is called."""
        for tp in partitions:
            self._position_of(tp).is_paused = True

    def resume(self, *partitions: TopicPartition) -> None:
        """Resume fetching from paused partitions."""
        for tp in partitions:
            self._position_of(tp).is_paused = False

    def paused(self) -> set[TopicPartition]:
        """Return the partitions that were paused with `pause`."""
        return {tp for tp, position in self._positions.items() if position.is_paused}

    # -- offsets -------------------------------------------------------------------------------

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the first offset of each partition."""
        return {tp: self._log(tp).log_start_offset for tp in map(to_topic_partition, partitions)}

    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the end offset of each partition.

        The end is the high watermark or, with `read_committed`, the last stable offset.
        """
        return {tp: self._end_of(self._log(tp)) for tp in map(to_topic_partition, partitions)}

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Look up each partition's first offset at or after a timestamp, or None if none exists."""
        from logstore.clients import partition_requests as admin

        return admin.offsets_for_times(
            self._manager, {to_topic_partition(tp): time for tp, time in timestamps.items()}
        )

    def highwater(self, partition: TopicPartition) -> int:
        """Return the high watermark of an assigned partition."""
        return self._log(self._position_of(partition).topic_partition).high_watermark

    def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None,
        timeout_ms: float | None = None,
    ) -> None:
        """Commit offsets for the group, by default the positions of all assigned partitions.

        Raises
        ------
        CommitFailedError
            The group has removed this consumer or rebalanced without it. Nothing was committed.
        RebalanceInProgressError
            The group is rebalancing. Call `poll`, and then commit the partitions that remain
            assigned.
        IllegalStateError
            The consumer has no `group_id`.
        UnknownTopicOrPartitionError, OffsetMetadataTooLargeError, RequestError
            A partition's offset was rejected. All other offsets were committed.
        KafkaTimeoutError
            The coordinator was unavailable for `timeout_ms`. [default: `request_timeout_ms`]
        """
        wanted = self._offsets_to_commit(offsets)
        self._commit_within(wanted, timeout_ms)

    def _commit_within(
        self, wanted: Mapping[TopicPartition, OffsetAndMetadata], timeout_ms: float | None
    ) -> None:
        """Commit offsets, and retry after retriable errors until the timeout."""

        def commit() -> None:
            if (error := self._commit_once(wanted)) is not None:
                raise _Retriable(error)

        self._within(timeout_ms, "not committed", commit)

    def _within(self, timeout_ms: float | None, failure: str, request: Callable[[], T]) -> T:
        """Send a request to the coordinator, and retry while it is unavailable.

        Raises
        ------
        KafkaTimeoutError
            The coordinator was unavailable for `timeout_ms`. [default: `request_timeout_ms`]
        """
        timeout_ms = self.config.request_timeout_ms if timeout_ms is None else timeout_ms
        until_ns = self._clock.monotonic_ns() + int(min(timeout_ms, 2**53) * 1_000_000)
        backoff_ms = self.config.retry_backoff_ms
        while True:
            try:
                return request()
            except LogStoreError as error:
                if not isinstance(error, _Retriable) and not self._coordinator.is_moving(error):
                    raise
                if self._clock.monotonic_ns() + backoff_ms * 1_000_000 > until_ns:
                    raise KafkaTimeoutError(
                        f"{failure} within {timeout_ms:g} ms: {error}"
                    ) from error
            self._clock.sleep(backoff_ms / 1000)

    def _offsets_to_commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        self._require_membership()
        return self._consumed_offsets() if offsets is None else to_offsets(offsets)

    def _commit_once(self, wanted: Mapping[TopicPartition, OffsetAndMetadata]) -> str | None:
        """Try to commit offsets once.

        Return the name of a retriable error, or None on success. Raise other errors like `commit`.
        """
        membership = self._require_membership()
        if not wanted:
            return None
        generation_id, member_id, instance_id = NO_GENERATION, NO_MEMBER, None
        if self._topics is not None:
            if membership.generation_id == NO_GENERATION or membership.is_lost:
                message = f"{self!r} is not a member of its group: poll, then commit again"
                raise (CommitFailedError if membership.is_lost else RebalanceInProgressError)(
                    message
                )
            _, generation_id, member_id, instance_id = membership.metadata
        errors = self._coordinator.commit(wanted, generation_id, member_id, instance_id)
        refused = {tp: error for tp, error in errors.items() if error is not None}
        if len(refused) < len(errors):
            self._metrics.commits += 1
        if not refused:
            return None
        error = next(iter(refused.values()))
        if self._coordinator.may_pass(error):
            return error
        if (
            error in ("UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION", "GROUP_ID_NOT_FOUND")
            and member_id != NO_MEMBER
        ):
            membership.mark_lost(error)
        elif error == "REBALANCE_IN_PROGRESS":
            membership.request_rejoin()
        kind = _COMMIT_ERRORS.get(error, RequestError)
        raise kind(
            f"group '{membership.group_id}' rejected the offsets of {list(refused)}: {error}"
        )

    def _commit_now(self, wanted: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Commit offsets without retries. Raise any error."""
        if (error := self._commit_once(wanted)) is not None:
            group_id = self._require_membership().group_id
            raise kafka_exception(error, f"group '{group_id}' did not commit the offsets: {error}")

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None,
        callback: Callable[..., object] | None = None,
    ) -> CommitFuture:
        """Commit offsets like `commit`, but pass the result to `callback(offsets, error or None)`.

        The commit is complete when the call returns. It is not retried after a retriable error.
        """
        wanted = self._offsets_to_commit(offsets)
        failure: LogStoreError | None = None
        try:
            self._commit_now(wanted)
        except LogStoreError as error:
            failure = error
        callback = self.config.default_offset_commit_callback if callback is None else callback
        if callback is not None:
            callback(wanted, failure)
        return CommitFuture(None if failure is not None else wanted, failure)

    def committed(
        self, partition: TopicPartition, metadata: bool = False, timeout_ms: float | None = None
    ) -> Any:  # noqa: ANN401  # kafka-python's: the type depends on `metadata`
        """Return the committed offset of a partition, or None if there is none.

        With `metadata`, the result is an `OffsetAndMetadata`.
        """
        tp = to_topic_partition(partition)
        self._check_open()
        if self.config.group_id is None:
            raise IllegalStateError("the consumer has no group_id")
        fetched = self._within(timeout_ms, "not fetched", lambda: self._coordinator.fetch([tp]))
        committed = fetched[tp].committed
        return committed if metadata or committed is None else committed.offset

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Return this consumer's group metadata for `send_offsets_to_transaction`.

        Raises
        ------
        IllegalStateError
            The consumer has no `group_id`.
        """
        return self._require_membership().metadata

    def metrics(self, raw: bool = False) -> dict[str, Any] | None:
        """Return the metrics by group and name, or None if `metrics_enabled` is False.

        Parameters
        ----------
        raw : bool
            Whether to return metrics by name only, without groups and without the lags of
            partitions.
        """
        self._check_open()
        if not self.config.metrics_enabled:
            return None
        lags = {}
        for tp, position in self._positions.items():
            with suppress(UnknownTopicOrPartitionError):
                lags[tp] = max(0, self._end_of(self._log(tp)) - (position.offset or 0))
        values = self._metrics.values(self._clock.monotonic_ns(), lags)
        if not raw:
            return values
        return {**values[FETCH_GROUP], **values[COORDINATOR_GROUP]}

    # -- closing -------------------------------------------------------------------------------

    def close(self, autocommit: bool = True, timeout_ms: float | None = None) -> None:
        """Close the consumer: commit its positions if auto-commit is enabled, and leave the group.

        Raises
        ------
        IllegalStateError
            Another thread is using the consumer. Call `wakeup`, and close the consumer in that
            thread.
        """
        self._close(autocommit=autocommit, waits=True, timeout_ms=timeout_ms)

    def _close(
        self, *, autocommit: bool = True, waits: bool = False, timeout_ms: float | None = None
    ) -> None:
        """Close the consumer, even if another thread is using it.

        The broker calls this when it closes.

        If `waits` is True, the commit is retried while the coordinator is unavailable, and the call
        returns once the member's removal is replicated.
        """
        if self._closed:
            return
        try:
            if autocommit:
                self._commit_automatically(waits=waits, timeout_ms=timeout_ms)
            if self._membership is not None:
                if self._topics is not None and self._positions:
                    self._call_listener("on_partitions_revoked", self._positions.keys())
                self._membership.leave(waits=waits)
        finally:
            self._end()
            for close in self.config.close_deserializers:
                close()

    def crash(self) -> None:
        """Simulate a crash: stop without committing offsets and without leaving the group.

        The partitions are reassigned to other members after the session timeout.
        """
        self._check_open()
        if self._membership is not None:
            self._membership.abandon()
        self._end()

    def _end(self) -> None:
        self._take_partitions(())
        self._coordinator.close()
        self._closed = True
        if self._on_close is not None:
            self._on_close(self)

    # -- inside: the group -----------------------------------------------------------------

    def _advance(self) -> None:
        """Continue a rebalance in progress, and commit offsets if an auto-commit is due."""
        if self._topics is not None:
            self._watch_topics()
            if self._membership is not None:
                self._follow_group(self._membership)
        if self._clock.monotonic_ms() >= self._next_commit_ms:
            self._commit_automatically()

    def _watch_topics(self) -> None:
        """Update the matching topics. Without a group, assign all of their partitions."""
        assert self._topics is not None
        if self._matches_pattern is not None:
            self._topics = self._matches(self._matches_pattern)
        if self._membership is not None:
            self._membership.watch(self._topics)
            return
        partitions = [
            TopicPartition(topic, number)
            for topic in sorted(self._topics)
            for number in sorted(self.partitions_for_topic(topic))
        ]
        if set(partitions) != self._positions.keys():
            self._take_partitions(partitions)

    def _matches(self, matches: Callable[[str], bool]) -> frozenset[str]:
        return frozenset(filter(matches, self.topics()))

    def _follow_group(self, membership: GroupMembership) -> None:
        membership.keep_polling()
        if membership.phase is Phase.MEMBER and not membership.is_lost:
            # Clients learn about a rebalance from their next heartbeat. A heartbeat is cheap here,
            # so each poll sends one, and members in one thread can rebalance within a few polls
            # without waiting.
            membership.send_heartbeat()
        while membership.has_news or membership.must_join:
            if membership.must_join:
                self._prepare_to_join(membership)
            if not membership.advance():
                if membership.must_join:
                    continue
                return
            self._take_share(membership)

    def _prepare_to_join(self, membership: GroupMembership) -> None:
        if membership.is_lost:
            lost = list(self._positions)
            self._take_partitions(())
            name = "on_partitions_lost"
            if not callable(getattr(self._listener, name, None)):
                name = "on_partitions_revoked"
            self._call_listener(name, lost)
        else:
            self._commit_automatically()
            if not membership.is_cooperative:
                revoked = list(self._positions)
                self._call_listener("on_partitions_revoked", revoked)
                self._take_partitions(())

    def _take_share(self, membership: GroupMembership) -> None:
        share = set(membership.share)
        revoked = self._positions.keys() - share
        if revoked:
            if isinstance(membership, ConsumerProtocolMembership):
                self._commit_automatically()
            self._call_listener("on_partitions_revoked", revoked)
        added = share - self._positions.keys()
        self._take_partitions(sorted(share))
        self._next_commit_ms = self._clock.monotonic_ms() + self.config.auto_commit_interval_ms
        if added or not membership.is_cooperative:
            self._call_listener("on_partitions_assigned", added, even_none=True)

    def _call_listener(
        self, name: str, partitions: Iterable[TopicPartition], *, even_none: bool = False
    ) -> None:
        partition_set = set(partitions)
        if self._listener is not None and (partition_set or even_none):
            getattr(self._listener, name)(partition_set)

    def _has_to_commit(self) -> bool:
        """Return whether a position has changed since the last auto-commit."""
        is_automatic = self.config.enable_auto_commit and self._membership is not None
        return is_automatic and self._consumed_offsets() != self._auto_committed

    def _commit_automatically(
        self, *, waits: bool = False, timeout_ms: float | None = None
    ) -> None:
        if not self.config.enable_auto_commit or self._membership is None:
            return
        self._next_commit_ms = self._clock.monotonic_ms() + self.config.auto_commit_interval_ms
        try:
            wanted = self._offsets_to_commit(None)
            if waits:
                self._commit_within(wanted, timeout_ms)
            else:
                self._commit_now(wanted)
            self._auto_committed = wanted
        except LogStoreError as error:
            # As in other clients, the records since the last commit will be read again.
            logger.warning("%r could not commit: %s", self, error)

    def _consumed_offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        return {
            tp: OffsetAndMetadata(position.offset, "", position.leader_epoch)
            for tp, position in self._positions.items()
            if position.offset is not None
        }

    def _require_membership(self) -> GroupMembership:
        self._check_open()
        if self._membership is not None:
            return self._membership
        if self.config.group_id is None:
            raise IllegalStateError("the consumer has no group_id")
        raise InvalidConfigurationError(
            f"cannot commit or join group '{self.config.group_id}' because the broker is read-only"
        )

    # -- inside: partitions ----------------------------------------------------------------

    def _take_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Set the assigned partitions. Partitions that remain assigned keep their positions."""
        before = self._positions
        self._positions = {tp: before.get(tp) or Position(tp) for tp in partitions}
        for tp in before.keys() - self._positions.keys():
            unsubscribe = self._subscriptions.pop(tp, None)
            if unsubscribe is not None:
                unsubscribe()

    def _fetch(self, limit: int) -> dict[TopicPartition, list[ConsumedRecord]]:
        fetched: dict[TopicPartition, list[ConsumedRecord]] = {}
        left = limit
        for tp, position in list(self._positions.items()):
            if left == 0:
                break
            if position.is_paused:
                continue
            records = self._read(position, left)
            if records:
                fetched[tp] = records
                self._metrics.record_fetch(len(records), sum(map(_size_of, records)))
                left -= len(records)
        # Move the partitions just read to the end, so that no partition starves.
        for tp in fetched:
            self._positions[tp] = self._positions.pop(tp)
        return fetched

    def _read(self, position: Position, limit: int) -> list[ConsumedRecord]:
        try:
            log = self._log(position.topic_partition)
        except UnknownTopicOrPartitionError:
            if self._is_assigned:
                raise
            return []  # the topic was deleted; the next rebalance removes the partition
        if position.offset is None and not self._may_resolve(position):
            return []
        if self._faults and not self._may_fetch(position):
            return []
        try:
            return position.take(log, self.config, limit)
        except OffsetOutOfRangeError:
            if self.config.auto_offset_reset == NONE:
                raise
            position.seek_to(self.config.auto_offset_reset)
            self._resolve_position(position)
            return position.take(log, self.config, limit)

    def _may_resolve(self, position: Position) -> bool:
        """Look up a position. Return False if the coordinator is unavailable."""
        if self._clock.monotonic_ns() < position.retry_ns:
            return False
        try:
            self._resolve_position(position)
        except LogStoreError as error:
            if not self._coordinator.is_moving(error):
                raise
            self._retry_later(position)
            return False
        return True

    def _retry_later(self, position: Position) -> None:
        backoff_ms = self.config.retry_backoff_ms
        position.retry_ns = self._clock.monotonic_ns() + backoff_ms * 1_000_000
        scheduler = self._coordinator.scheduler
        scheduler.schedule(RETRY_TASK, scheduler.notify, delay_ms=backoff_ms)

    def _may_fetch(self, position: Position) -> bool:
        """Apply the fault rules. Return False if a rule fails this fetch with a retriable error."""
        now_ns = self._clock.monotonic_ns()
        if now_ns < position.retry_ns:
            return False
        tp, config = position.topic_partition, self.config
        call = Call("fetch", (tp,), config.group_id, config.client_id)
        try:
            self._faults.call_with_rules(call, lambda: None)
        except OffsetOutOfRangeError:
            if config.auto_offset_reset == NONE:
                raise
            position.seek_to(config.auto_offset_reset)
            self._resolve_position(position)
        except LogStoreError as error:
            # As in other clients, a corrupt record is raised, and retriable errors are retried.
            if not is_retriable_injection(error) or isinstance(error, CorruptRecordError):
                raise
            self._retry_later(position)
            return False
        return True

    def _resolve_position(self, position: Position) -> int:
        """Return the position in a partition, looking it up if it is unknown."""
        if position.offset is None:
            tp = position.topic_partition
            reset = position.reset
            if reset is None and self.config.group_id is not None:
                fetched = self._coordinator.fetch([tp])
                committed = fetched[tp].committed
                if committed is not None:
                    position.seek(committed.offset)
                    return committed.offset
            log = self._log(tp)
            reset = reset or self.config.auto_offset_reset
            if reset == NONE:
                raise NoOffsetForPartitionError(
                    f"{tp}: no committed offset, and auto_offset_reset is {NONE!r}"
                )
            position.seek(log.log_start_offset if reset == EARLIEST else self._end_of(log))
        assert position.offset is not None
        return position.offset

    def _end_of(self, log: Log) -> int:
        return log.reader.upper_offset(self.config.isolation)

    def _log(self, tp: TopicPartition) -> Log:
        return self._manager.log(tp)

    def _partition_counts(self, topics: Iterable[str]) -> dict[str, int]:
        counts = {topic: len(self.partitions_for_topic(topic)) for topic in topics}
        return {topic: count for topic, count in counts.items() if count}

    # -- inside: waiting -------------------------------------------------------------------

    def _wait(self, left_ns: int, *, is_endless: bool) -> None:
        """Wait until there are records or other work, or until the timeout."""
        scheduler = self._coordinator.scheduler
        for tp in self._positions.keys() - self._subscriptions.keys():
            with suppress(UnknownTopicOrPartitionError):
                self._subscriptions[tp] = self._log(tp).subscribe(scheduler.notify)
        timeout_ms = None if is_endless else -(-left_ns // 1_000_000)
        if self._has_to_commit():
            left_ms = max(1, self._next_commit_ms - self._clock.monotonic_ms())
            timeout_ms = left_ms if timeout_ms is None else min(timeout_ms, left_ms)
        scheduler.wait_until(self._has_news, timeout_ms=timeout_ms)

    def _has_news(self) -> bool:
        if self._is_woken:
            return True
        if self._membership is not None and self._topics is not None:
            self._membership.keep_polling()
            if self._membership.has_news:
                return True
        if self._topics is not None and self._topics_changed():
            return True
        return any(self._may_read(position) for position in self._positions.values())

    def _topics_changed(self) -> bool:
        matches = self._matches_pattern
        if matches is not None and self._matches(matches) != self._topics:
            return True
        if self._membership is not None:
            return self._membership.is_stale
        counts = self._partition_counts(self._topics or ())
        return sum(counts.values()) != len(self._positions)

    def _may_read(self, position: Position) -> bool:
        if position.is_paused or self._clock.monotonic_ns() < position.retry_ns:
            return False
        with suppress(UnknownTopicOrPartitionError):
            return position.has_data(self._log(position.topic_partition), self.config.isolation)
        return self._is_assigned

    # -- inside: checks --------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._closed:
            raise IllegalStateError(f"{self!r} is closed")

    def _position_of(self, partition: TopicPartition) -> Position:
        self._check_open()
        tp = to_topic_partition(partition)
        if tp not in self._positions:
            raise IllegalStateError(f"{tp} is not assigned to {self!r}")
        return self._positions[tp]

    def _require_assigned(self, partition: TopicPartition) -> Position:
        self._check_open()
        tp = to_topic_partition(partition)
        if tp not in self._positions:
            raise ValueError(f"{tp} is not assigned to {self!r}")
        return self._positions[tp]

    def _require_assigned_or_all(self, partitions: Collection[TopicPartition]) -> list[Position]:
        self._check_open()
        if partitions:
            return [self._require_assigned(tp) for tp in partitions]
        if not self._positions:
            raise ValueError(f"{self!r} has no assigned partitions")
        return list(self._positions.values())


def _size_of(record: ConsumedRecord) -> int:
    """Return the total size of a record's key, value and headers in bytes."""
    sizes = (
        record.serialized_key_size,
        record.serialized_value_size,
        record.serialized_header_size,
    )
    return sum(max(size, 0) for size in sizes)
