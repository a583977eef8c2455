"""The leader of a partition. It serves followers, and maintains the high watermark and the ISR.

The log's lock guards the state, because the high watermark advances while that lock is held. A
fetch waits until there are new records, or until the high watermark or the log start offset has
changed.

Source: Kafka's Partition and DelayedFetch.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from logstore.cluster.messages import EpochRequest, EpochResponse, FetchRequest, FetchResponse
from logstore.cluster.states import NO_LEADER
from logstore.errors import (
    FencedLeaderEpochError,
    LogStoreError,
    NotEnoughReplicasError,
    NotLeaderForPartitionError,
    OffsetOutOfRangeError,
)
from logstore.storage.log.epochs import UNDEFINED_END_OFFSET
from logstore.storage.log.reader import Isolation
from logstore.types import NO_OFFSET

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from logstore.cluster.broker_process import BrokerProcess
    from logstore.cluster.states import PartitionState
    from logstore.runtime import ScheduledTask
    from logstore.storage.log.log import Log

logger = logging.getLogger(__name__)


def _caught_up_ms(follower: FollowerState, now_ms: int) -> int:
    return now_ms if follower.behind_since_ms is None else follower.behind_since_ms


class FollowerState:
    """The state of a follower as known to the leader.

    Attributes
    ----------
    log_end_offset, log_start_offset : int
        The offsets in the follower's last fetch in this epoch, or -1 if there was none.
    behind_since_ms : int or None
        Monotonic time when the follower was last caught up, or None if it is caught up.
    refused_epoch : int or None
        The leader's outdated partition epoch with which the controller refused to add the follower
        to the ISR after its last fetch, or None if it did not refuse.
    """

    def __init__(self, replica: int, behind_since_ms: int) -> None:
        self.replica = replica
        self.log_end_offset = NO_OFFSET
        self.log_start_offset = NO_OFFSET
        self.behind_since_ms: int | None = behind_since_ms
        self.last_fetch_ms = behind_since_ms
        self.leader_end_at_last_fetch = 0
        self.number = 0
        self.waiting: FetchRequest | None = None
        self.refused_epoch: int | None = None


class Leadership:
    """A leader during one leader epoch.

    Parameters
    ----------
    process : BrokerProcess
        The interface to the broker.
    log : Log
    state : PartitionState
        The state at the start of the epoch.

    Attributes
    ----------
    state : PartitionState
    followers : dict of int to FollowerState
    start_offset : int
        The start offset of the epoch. A follower must reach it to join the ISR.
    """

    def __init__(self, process: BrokerProcess, log: Log, state: PartitionState) -> None:
        self._process = process
        self._me = process.broker_id
        self.log = log
        self.state = state
        self.followers: dict[int, FollowerState] = {}
        self._early: dict[int, FetchRequest] = {}  # fetches of replicas that are not followers yet
        self.start_offset = 0
        self._lag_check: ScheduledTask | None = None
        self._is_serving = False
        self._is_delayed = False
        self._is_over = False
        self._unsubscribe: Callable[[], object] | None = None

    def begin(self) -> None:
        """Become the leader. The caller must hold the log's lock."""
        log, state = self.log, self.state
        self.start_offset = log.log_end_offset
        log.epochs.assign(state.leader_epoch, self.start_offset)
        log.epochs.flush()  # if `Replicas.store_epochs` has failed
        self._set_followers()
        log.offsets.high_watermark_for = self._after_append
        log.writer.refuse = None
        self._unsubscribe = log.subscribe(self._wake)
        self._move_high_watermark()
        self._schedule_lag_check()

    def _set_followers(self) -> None:
        """Add and remove followers after a change of the replicas."""
        state, now_ms = self.state, self._process.monotonic_ms()
        followers = {}
        for replica in state.replicas:
            if replica != self._me:
                # A follower outside the ISR has never caught up with this leader.
                lag_ms = 0 if replica in state.isr else self._process.lag_max_ms + 1
                new = FollowerState(replica, now_ms - lag_ms)
                followers[replica] = self.followers.get(replica, new)
        self.followers = followers
        for replica in sorted(self._early.keys() & followers.keys()):
            early = self._early.pop(replica)
            answer = FetchResponse(early.number, NotLeaderForPartitionError.kafka_error)
            self._send(replica, answer)

    def end(self) -> None:
        """Stop being the leader. The caller must hold the log's lock."""
        self._is_over = True
        if self._unsubscribe is not None:
            self._unsubscribe()
        if self._lag_check is not None:
            self._lag_check.cancel()
        self.log.offsets.freeze_high_watermark()

    def update(self, state: PartitionState) -> None:
        """Apply a new state of the same epoch. The caller must hold the log's lock."""
        self.state = state
        self._set_followers()
        self._move_high_watermark()
        self._wake()
        self._process.progress.emit(state.topic_partition)

    # -- acks ----------------------------------------------------------------------------

    @property
    def min_isr(self) -> int:
        """The value of `min.insync.replicas`, at most the number of replicas."""
        return min(self.log.config.min_insync_replicas, len(self.state.replicas))

    def check_enough(self) -> None:
        """Raise `NotEnoughReplicasError` if fewer than `min.insync.replicas` are in sync."""
        if len(self.state.isr) < self.min_isr:
            tp = self.state.topic_partition
            raise NotEnoughReplicasError(
                f"{tp}: {len(self.state.isr)} replicas are in sync, fewer than"
                f" min.insync.replicas = {self.min_isr}"
            )

    @property
    def low_watermark(self) -> int:
        """The lowest log start offset of the live replicas, as of their last fetches."""
        alive = set(self._process.controller.alive)
        starts = [f.log_start_offset for f in self.followers.values() if f.replica in alive]
        return min([self.log.log_start_offset, *starts])

    # -- requests ------------------------------------------------------------------------

    def on_fetch(self, request: FetchRequest) -> None:
        """Update a follower's progress. Respond now, or when there is news."""
        log = self.log
        with log.lock:
            error = self._role_error(request.leader_epoch)
            follower = self.followers.get(request.replica)
            if follower is not None:
                if request.number < follower.number:
                    return  # the follower has already sent a newer request
                follower.number = request.number
                follower.waiting = follower.refused_epoch = None
            if error is not None:
                self._send(request.replica, FetchResponse(request.number, error))
                return
            if follower is None:
                # A reassignment has removed the replica, or has added it and the new state has not
                # arrived yet. In that case, it must fetch again, because it may have restarted.
                self._early[request.replica] = request
                return
            if not log.log_start_offset <= request.offset <= log.log_end_offset:
                self._send(request.replica, self._out_of_range(request))
                return
            self._note(follower, request, log.log_end_offset)
            follower.waiting = request
        self._process.progress.emit(self.state.topic_partition)
        self._serve()

    def _note(self, follower: FollowerState, request: FetchRequest, end_offset: int) -> None:
        now_ms = self._process.monotonic_ms()
        if request.offset >= end_offset:
            follower.behind_since_ms = None
        elif request.offset >= follower.leader_end_at_last_fetch:
            # The follower has reached the leader's log end offset as of its previous fetch.
            since = follower.behind_since_ms
            last_ms = follower.last_fetch_ms
            follower.behind_since_ms = last_ms if since is None else max(since, last_ms)
        elif follower.behind_since_ms is None:
            follower.behind_since_ms = now_ms
        follower.last_fetch_ms = now_ms
        follower.leader_end_at_last_fetch = end_offset
        follower.log_end_offset = request.offset
        follower.log_start_offset = request.log_start_offset
        self._maybe_expand_isr(follower)
        self._move_high_watermark()

    def on_epoch(self, request: EpochRequest) -> None:
        """Respond to a follower with the end offset of an epoch."""
        log = self.log
        with log.lock:
            error = self._role_error(request.leader_epoch)
            found = UNDEFINED_END_OFFSET
            if error is None:
                found = log.epochs.end_offset_for(request.epoch, log.log_end_offset)
        tp = self.state.topic_partition
        answer = EpochResponse(request.number, error, *found)
        self._process.send(
            request.replica,
            "OffsetForLeaderEpoch-response",
            lambda peer: peer.on_epoch_response(tp, answer),
        )

    def _role_error(self, epoch: int) -> str | None:
        """Return the error for a request with a leader epoch, or None.

        Without a response, a follower that has received a newer state than this broker would not
        send another request.
        """
        if self._is_over:
            return NotLeaderForPartitionError.kafka_error
        own = self.state.leader_epoch
        if epoch == own:
            return None
        return "FENCED_LEADER_EPOCH" if epoch < own else "UNKNOWN_LEADER_EPOCH"

    def preferred_follower(self, brokers: Collection[int], offset: int) -> int:
        """Return the preferred follower for reading from an offset, or -1 if there is none.

        The follower must be in sync and among the given brokers. The longest log is preferred, then
        the follower that was caught up most recently.
        """
        with self.log.lock:
            now_ms = self._process.monotonic_ms()
            ranks = [
                (each.log_end_offset, _caught_up_ms(each, now_ms), each.replica)
                for each in self.followers.values()
                if each.replica in brokers
                and each.replica in self.state.isr
                and each.log_start_offset <= offset <= each.log_end_offset
            ]
        return max(ranks)[-1] if ranks else NO_LEADER

    # -- answers -------------------------------------------------------------------------

    def _wake(self) -> None:
        """Schedule the responses to waiting fetches, which are sent without holding the lock."""
        if self._is_serving or self._is_over:
            return
        if any(self._can_answer(follower) for follower in self.followers.values()):
            self._is_serving = True
            self._process.call_soon("DelayedFetch", self._serve_later)

    def _serve_later(self) -> None:
        self._is_serving = False
        self._serve()

    def _can_answer(self, follower: FollowerState) -> bool:
        request = follower.waiting
        if request is None:
            return False
        log = self.log
        if log.lifetime.is_over or log.is_offline:
            return False
        # A refused follower must fetch again, even without news, to be added to the ISR.
        was_refused = follower.refused_epoch not in (None, self.state.partition_epoch)
        has_news = request.offset < log.log_end_offset or request.heard != self._offsets()
        return has_news or was_refused

    def _offsets(self) -> tuple[int, int]:
        return self.log.offsets.high_watermark, self.log.offsets.log_start_offset

    def _serve(self) -> None:
        quota = self._process.leader_quota
        for follower in self.followers.values():
            with self.log.lock:
                if self._is_over or not self._can_answer(follower):
                    continue
                is_throttled = follower.replica not in self.state.isr and quota.applies_to(
                    self.state.topic_partition, follower.replica
                )
                if is_throttled and (delay_ms := quota.delay_ms()):
                    if not self._is_delayed:  # do not schedule a task for each append
                        self._is_delayed = True
                        self._process.call_later("throttled-fetch", self._serve_delayed, delay_ms)
                    continue
                request, follower.waiting = follower.waiting, None
                high_watermark, log_start_offset = self._offsets()
            assert request is not None
            try:
                read = self.log.reader.read(
                    request.offset,
                    self._process.fetch_max_bytes,
                    isolation=Isolation.LOG_END,
                    min_one_message=True,
                )
            except OffsetOutOfRangeError:  # the log start has risen since the request arrived
                answer = self._out_of_range(request)
            except LogStoreError as error:
                logger.warning(
                    "%s cannot be read for broker %d: %s", self.log, follower.replica, error
                )
                answer = FetchResponse(request.number, error.kafka_error)
            else:
                if is_throttled:
                    quota.spend(len(read.data))
                answer = FetchResponse(
                    request.number,
                    data=read.data,
                    high_watermark=high_watermark,
                    log_start_offset=log_start_offset,
                )
            self._send(follower.replica, answer)

    def _out_of_range(self, request: FetchRequest) -> FetchResponse:
        with self.log.lock:
            return FetchResponse(
                request.number,
                "OFFSET_OUT_OF_RANGE",
                log_start_offset=self.log.log_start_offset,
                log_end_offset=self.log.log_end_offset,
            )

    def _serve_delayed(self) -> None:
        self._is_delayed = False
        self._serve()

    def _send(self, replica: int, answer: FetchResponse) -> None:
        tp = self.state.topic_partition
        self._process.send(
            replica,
            "Fetch-response",
            lambda peer: peer.on_fetch_response(tp, answer),
        )

    # -- high watermark ------------------------------------------------------------------

    def _after_append(self, end_offset: int) -> int:
        """Return the high watermark after an append. The caller must hold the log's lock."""
        me, network = self._me, self._process.network
        for follower in self.followers.values():
            if follower.behind_since_ms is None:
                cut_ms = network.cut_since_ms(me, follower.replica)
                now_ms = self._process.monotonic_ms()
                follower.behind_since_ms = now_ms if cut_ms is None else cut_ms
        self._schedule_lag_check()
        return self._high_watermark(end_offset)

    def _high_watermark(self, end_offset: int) -> int:
        current = self.log.offsets.high_watermark
        isr = self.state.isr
        if len(isr) < self.min_isr:
            # as in Kafka, no record is committed while the ISR is below min.insync.replicas
            return current
        for follower in self.followers.values():
            if follower.log_end_offset < end_offset and (
                follower.replica in isr or self._is_about_to_join(follower)
            ):
                end_offset = follower.log_end_offset
        return max(current, end_offset)

    def _is_about_to_join(self, follower: FollowerState) -> bool:
        return not self._lags(follower) and self._is_eligible(follower)

    def _is_eligible(self, follower: FollowerState) -> bool:
        tp = self.state.topic_partition
        return self._process.controller.is_eligible(follower.replica, tp)

    def _move_high_watermark(self) -> None:
        log = self.log
        mark = self._high_watermark(log.log_end_offset)
        if mark > log.high_watermark:
            log.offsets.set_high_watermark(mark)

    # -- in sync -------------------------------------------------------------------------

    def _lags(self, follower: FollowerState) -> bool:
        since = follower.behind_since_ms
        return since is not None and (
            self._process.monotonic_ms() - since > self._process.lag_max_ms
        )

    def _maybe_expand_isr(self, follower: FollowerState) -> None:
        """Add a follower to the ISR if it has reached the high watermark and the epoch start."""
        state = self.state
        if (
            follower.replica not in state.isr
            and follower.log_end_offset >= max(self.log.high_watermark, self.start_offset)
            and self._is_eligible(follower)
        ):
            self._alter_isr((*state.isr, follower.replica))
            if follower.replica not in self.state.isr:
                follower.refused_epoch = state.partition_epoch

    def _schedule_lag_check(self) -> None:
        """Schedule the next check for lagging followers. The caller must hold the log's lock."""
        if self._lag_check is not None:
            return
        isr = self.state.isr
        moments = [
            each.behind_since_ms
            for each in self.followers.values()
            if each.replica in isr and each.behind_since_ms is not None
        ]
        if moments:
            due_ms = min(moments) + self._process.lag_max_ms + 1
            delay_ms = max(0, due_ms - self._process.monotonic_ms())
            self._lag_check = self._process.call_later("isr-expiration", self._check_lags, delay_ms)

    def _check_lags(self) -> None:
        with self.log.lock:
            self._lag_check = None
            if self._is_over:
                return
            lagging = {each.replica for each in self.followers.values() if self._lags(each)}
            isr = tuple(each for each in self.state.isr if each not in lagging)
            if isr != self.state.isr:
                logger.info("%s: shrinking the ISR to %s", self.state.topic_partition, isr)
                self._alter_isr(isr)
                self._move_high_watermark()
            self._schedule_lag_check()
        self._process.progress.emit(self.state.topic_partition)

    def _alter_isr(self, isr: tuple[int, ...]) -> None:
        try:
            state = self._process.controller.alter_isr(self.state, isr)
            if state.leader_epoch != self.state.leader_epoch:
                # The new state arrives as a new epoch. Until then, its in-sync replicas must have
                # all new records.
                state = replace(self.state, isr=isr)
            self.state = state
        except FencedLeaderEpochError as error:  # the new state has not arrived yet
            logger.info("%s", error)
