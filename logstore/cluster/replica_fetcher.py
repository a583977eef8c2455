"""A follower of a partition. It truncates its log to match the leader's log, and then fetches.

At the start of a leader epoch, the follower asks the leader for the end offset of the latest epoch
in its log, and truncates the log to this offset. If the leader only knows an older epoch that the
log lacks, the follower repeats this with its previous epoch (KIP-101, KIP-279). Each fetch sends
the follower's log end offset and log start offset, and returns batches and the leader's high
watermark and log start offset. At most one request is in flight. It is resent when a network
partition heals and, after an error, when `replica.fetch.backoff.ms` has elapsed.

Source: Kafka's AbstractFetcherThread and ReplicaFetcherThread.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from logstore.cluster.messages import EpochRequest, EpochResponse, FetchRequest, FetchResponse
from logstore.errors import LogStoreError, NotLeaderForPartitionError
from logstore.record.header import BatchHeader
from logstore.record.layout import HEADER_SIZE
from logstore.record.walk import walk_buffer
from logstore.storage.log.epochs import UNDEFINED_EPOCH, UNDEFINED_OFFSET
from logstore.types import AppendOrigin

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from logstore.cluster.broker_process import BrokerProcess
    from logstore.cluster.states import PartitionState
    from logstore.storage.log.log import Log

logger = logging.getLogger(__name__)


class ReplicaFetcher:
    """A follower during one leader epoch.

    Parameters
    ----------
    process : BrokerProcess
        The interface to the broker.
    log : Log
    state : PartitionState
        The state at the start of the epoch. If its leader is -1, the follower waits for a new
        state.
    """

    def __init__(self, process: BrokerProcess, log: Log, state: PartitionState) -> None:
        self._process = process
        self.log = log
        self.state = state
        self._number = 0
        self._is_truncated = False
        self._requested_epoch: int | None = None
        self._last_leader_offsets: tuple[int, int] | None = None
        self._own_start = 0  # the log start to restore when its batch has been fetched
        self._is_over = False

    def begin(self) -> None:
        """Refuse writes that are not from the leader. The caller must hold the log's lock."""
        self.log.writer.refuse = self._refuse
        self.log.offsets.freeze_high_watermark()

    def end(self) -> None:
        """Ignore all further responses. The caller must hold the log's lock."""
        self._is_over = True

    def _refuse(self) -> NoReturn:
        raise NotLeaderForPartitionError(
            f"broker {self._process.broker_id} is not the leader of {self.state.topic_partition}:"
            f" the leader is broker {self.state.leader}"
        )

    def send_next_request(self) -> None:
        """Send the next request. Responses to earlier requests are ignored."""
        with self.log.lock:
            if self._is_over or self.state.leader < 0 or self.log.is_offline:
                return
            self._number = self._process.network.number()
            if self._is_truncated:
                self._fetch()
            else:
                self._request_epoch_end()

    # -- truncation ----------------------------------------------------------------------

    def _request_epoch_end(self) -> None:
        latest = self.log.epochs.latest if self._requested_epoch is None else None
        if self._requested_epoch is None:
            if latest is None:
                number = self._number
                self._process.call_soon("truncate", lambda: self._truncate_without_epoch(number))
                return
            self._requested_epoch = latest.epoch
        tp, epoch = self.state.topic_partition, self._requested_epoch
        replica, number = self._process.broker_id, self._number
        request = EpochRequest(replica, number, self.state.leader_epoch, epoch)
        self._process.send(
            self.state.leader,
            "OffsetForLeaderEpoch",
            lambda peer: peer.on_epoch(tp, request),
        )

    def _truncate_without_epoch(self, number: int) -> None:
        """Truncate the log to the high watermark, because it has no leader epochs."""
        with self._cutting(number) as is_due:
            if not is_due:
                return
            self._truncate(self.log.high_watermark)
            self._is_truncated = True
        self.send_next_request()

    def on_epoch_response(self, answer: EpochResponse) -> None:
        """Truncate the log, and then fetch or ask for an older epoch."""
        with self._cutting(answer.number) as is_due:
            if not is_due:
                return
            if answer.error is not None:
                self._back_off(answer.error)
                return
            try:
                self._follow_epoch(answer)
            except LogStoreError as error:
                logger.warning("%s cannot be truncated: %s", self.log, error)
                self._is_truncated = False
                self._back_off(error.kafka_error)
                return
        self.send_next_request()

    def _follow_epoch(self, answer: EpochResponse) -> None:
        log = self.log
        end_offset = log.log_end_offset
        self._is_truncated = True
        if answer.end_offset == UNDEFINED_OFFSET or answer.epoch == UNDEFINED_EPOCH:
            # The leader has neither this epoch nor an older epoch.
            self._truncate(min(log.high_watermark, end_offset))
        else:
            own = log.epochs.end_offset_for(answer.epoch, end_offset)
            if own.end_offset == UNDEFINED_OFFSET:
                self._truncate(min(answer.end_offset, end_offset))
            elif own.epoch == answer.epoch:
                self._truncate(min(own.end_offset, answer.end_offset, end_offset))
            else:
                # This log does not contain the leader's epoch, so truncate it to the end of the
                # previous epoch.
                self._truncate(min(own.end_offset, end_offset))
                self._is_truncated = False
                self._requested_epoch = own.epoch

    @contextmanager
    def _cutting(self, number: int) -> Iterator[bool]:
        """Pin the role during a truncation. Yield False if the response is outdated.

        A truncation may wait for a cleaner without holding the log's lock. If the replica became
        the leader in the meantime, truncating its log would lose records.
        """
        with self._process.keeping_role(self.state.topic_partition):
            yield not self._is_over and number == self._number

    def _truncate(self, offset: int) -> None:
        if offset < self.log.log_end_offset:
            logger.info(
                "%s: truncated from %d to %d, where it diverges from the log of leader %d",
                self.state.topic_partition,
                self.log.log_end_offset,
                offset,
                self.state.leader,
            )
        self._process.manager.truncate_to(self.state.topic_partition, offset)

    # -- fetching ------------------------------------------------------------------------

    def _fetch(self) -> None:
        log, tp = self.log, self.state.topic_partition
        request = FetchRequest(
            self._process.broker_id,
            self._number,
            self.state.leader_epoch,
            log.log_end_offset,
            log.log_start_offset,
            self._last_leader_offsets,
        )
        self._process.send(
            self.state.leader,
            "Fetch",
            lambda peer: peer.on_fetch(tp, request),
        )

    def on_fetch_response(self, answer: FetchResponse) -> None:
        """Append the fetched batches, apply the leader's offsets, and fetch again."""
        if self._is_stale(answer):
            return
        try:
            if answer.error == "OFFSET_OUT_OF_RANGE":
                with self._cutting(answer.number) as is_due:
                    if is_due:
                        self._move_into_range(answer)
            elif answer.error is not None:
                self._back_off(answer.error)
                return
            else:
                self._append_fetched(answer)
        except LogStoreError as error:
            logger.warning("%s cannot follow: %s", self.log, error)
            self._back_off(error.kafka_error)
            return
        if delay_ms := self._throttle(answer):
            self._process.call_later("throttled-fetch", self._resend_if_current(), delay_ms)
        else:
            self.send_next_request()

    def _throttle(self, answer: FetchResponse) -> int:
        """Return the milliseconds to wait because of `follower.replication.throttled.rate`."""
        quota = self._process.follower_quota
        me, tp = self._process.broker_id, self.state.topic_partition
        is_behind = self.log.log_end_offset < answer.high_watermark
        if not (is_behind and quota.applies_to(tp, me)):
            return 0
        quota.spend(len(answer.data))
        return quota.delay_ms()

    def _append_fetched(self, answer: FetchResponse) -> None:
        log = self.log
        self._align_log_start(answer)
        with log.lock:
            if self._is_stale(answer):
                return
            if answer.data:
                self._append(answer.data)
            log.offsets.set_high_watermark(answer.high_watermark)
            self._last_leader_offsets = answer.high_watermark, answer.log_start_offset
        start = min(max(answer.log_start_offset, self._own_start), log.high_watermark)
        if start > log.log_start_offset:
            self._process.manager.raise_log_start(self.state.topic_partition, start)

    def _align_log_start(self, answer: FetchResponse) -> None:
        """Restart the log at the first batch if that starts below the log end offset.

        The leader's log start offset may be inside a batch. A follower without later records
        appends this batch as a whole.
        """
        if len(answer.data) < HEADER_SIZE:
            return
        first_offset, log = BatchHeader.unpack_from(answer.data).base_offset, self.log
        is_empty = log.log_start_offset == log.log_end_offset
        if first_offset < log.log_end_offset and (
            is_empty or log.log_end_offset <= answer.log_start_offset
        ):
            self._own_start = log.log_start_offset
            with self._cutting(answer.number) as is_due:
                if is_due:
                    tp = self.state.topic_partition
                    self._process.manager.truncate_fully_and_start_at(tp, first_offset)

    def _append(self, data: bytes) -> None:
        """Append batches, one at a time if they might not fit into a segment.

        The leader's segments may be larger. The caller must hold the log's lock.
        """
        writer, limit = self.log.writer, self.log.config.segment_bytes
        if len(data) <= limit:
            writer.append_batches(data, AppendOrigin.REPLICATION)
            return
        for batch in walk_buffer(data, None, 0):
            writer.append_batches(bytes(batch.data), AppendOrigin.REPLICATION)

    def _move_into_range(self, answer: FetchResponse) -> None:
        """Restart the log at the leader's log start, or truncate it to the leader's log end."""
        tp, manager = self.state.topic_partition, self._process.manager
        end_offset = self.log.log_end_offset
        if end_offset > answer.log_end_offset:
            # This only happens after an unclean election, which loses acknowledged records.
            logger.warning("%s: the leader's log ends at %d", self.log, answer.log_end_offset)
            manager.truncate_to(tp, answer.log_end_offset)
        elif end_offset < answer.log_start_offset:
            manager.truncate_fully_and_start_at(tp, answer.log_start_offset)

    # -- errors --------------------------------------------------------------------------

    def _is_stale(self, answer: FetchResponse) -> bool:
        return self._is_over or answer.number != self._number

    def _back_off(self, error: str) -> None:
        logger.info(
            "%s: broker %d answers %s", self.state.topic_partition, self.state.leader, error
        )
        self._process.call_later(
            "fetch-backoff", self._resend_if_current(), self._process.backoff_ms
        )

    def _resend_if_current(self) -> Callable[[], None]:
        """Return an action that sends the next request, unless a newer request has been sent."""
        number = self._number

        def send_next_request() -> None:
            if number == self._number:
                self.send_next_request()

        return send_next_request
