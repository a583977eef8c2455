"""A follower of a partition: it fetches from the leader, and cuts off what the leader has not.

At the beginning of an epoch it asks the leader where its own newest epoch ends there, cuts its log
to that, and asks on if the leader knows an older epoch only (KIP-101, KIP-279). Then it fetches:
its log end and log start go out, batches come in as they are, with the leader's high watermark and
log start. One message is under way at a time; whatever it was is asked anew when the link is whole
again, or after `replica.fetch.backoff.ms` when it was refused.
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
    from typing import NoReturn

    from logstore.cluster.states import PartitionState
    from logstore.cluster.station import Station
    from logstore.storage.log.log import Log

logger = logging.getLogger(__name__)


class Following:
    """One epoch of one follower.

    Parameters
    ----------
    station : Station
        Of the broker.
    log : Log
    state : PartitionState
        Its leader may be -1: then it waits for another state.
    """

    def __init__(self, station: Station, log: Log, state: PartitionState) -> None:
        self._station = station
        self.log = log
        self.state = state
        self._number = 0
        self._is_truncated = False
        self._epoch_asked: int | None = None
        self._heard: tuple[int, int] | None = None
        self._own_start = 0  # to come back to, once the batch that it lies in is there
        self._is_over = False

    def begin(self) -> None:
        """Write nothing but what the leader sends. The log's lock is held."""
        self.log.writer.refuse = self._refuse
        self.log.offsets.stay()

    def end(self) -> None:
        """Take no more answers. The log's lock is held."""
        self._is_over = True

    def _refuse(self) -> NoReturn:
        raise NotLeaderForPartitionError(
            f"broker {self._station.broker_id} does not lead {self.state.topic_partition}:"
            f" broker {self.state.leader} does"
        )

    def ask(self) -> None:
        """Ask the leader for what is needed next; what was asked before counts no more."""
        with self.log.lock:
            if self._is_over or self.state.leader < 0 or self.log.is_offline:
                return
            self._number = self._station.network.number()
            if self._is_truncated:
                self._fetch()
            else:
                self._ask_for_epoch()

    # -- truncation ----------------------------------------------------------------------

    def _ask_for_epoch(self) -> None:
        latest = self.log.epochs.latest if self._epoch_asked is None else None
        if self._epoch_asked is None:
            if latest is None:
                number = self._number
                self._station.soon("truncate", lambda: self._truncate_without_epoch(number))
                return
            self._epoch_asked = latest.epoch
        tp, epoch = self.state.topic_partition, self._epoch_asked
        replica, number = self._station.broker_id, self._number
        request = EpochRequest(replica, number, self.state.leader_epoch, epoch)
        self._station.send(
            self.state.leader,
            "OffsetForLeaderEpoch",
            lambda peer: peer.on_epoch(tp, request),
        )

    def _truncate_without_epoch(self, number: int) -> None:
        """Go by the high watermark: nothing else is known of the log."""
        with self._cutting(number) as is_due:
            if not is_due:
                return
            self._truncate(self.log.high_watermark)
            self._is_truncated = True
        self.ask()

    def on_epoch_response(self, answer: EpochResponse) -> None:
        """Cut off what the leader has not, and fetch, or ask for an older epoch."""
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
        self.ask()

    def _follow_epoch(self, answer: EpochResponse) -> None:
        log = self.log
        end_offset = log.log_end_offset
        self._is_truncated = True
        if answer.end_offset == UNDEFINED_OFFSET or answer.epoch == UNDEFINED_EPOCH:
            # The leader knows nothing of this epoch or any older one.
            self._truncate(min(log.high_watermark, end_offset))
        else:
            own = log.epochs.end_offset_for(answer.epoch, end_offset)
            if own.end_offset == UNDEFINED_OFFSET:
                self._truncate(min(answer.end_offset, end_offset))
            elif own.epoch == answer.epoch:
                self._truncate(min(own.end_offset, answer.end_offset, end_offset))
            else:
                # The leader's epoch is none of this log's: what lies beyond the one before it goes.
                self._truncate(min(own.end_offset, end_offset))
                self._is_truncated = False
                self._epoch_asked = own.epoch

    @contextmanager
    def _cutting(self, number: int) -> Iterator[bool]:
        """Keep the role inside, unless it is another already, or something else was asked since.

        What is cut may have to wait for a cleaner, so that the log's lock is not held: a log that
        is led by then must not be cut.
        """
        with self._station.keeping_role(self.state.topic_partition):
            yield not self._is_over and number == self._number

    def _truncate(self, offset: int) -> None:
        if offset < self.log.log_end_offset:
            logger.info(
                "%s: truncated from %d to %d, where the log of leader %d goes on otherwise",
                self.state.topic_partition,
                self.log.log_end_offset,
                offset,
                self.state.leader,
            )
        self._station.manager.truncate_to(self.state.topic_partition, offset)

    # -- fetching ------------------------------------------------------------------------

    def _fetch(self) -> None:
        log, tp = self.log, self.state.topic_partition
        request = FetchRequest(
            self._station.broker_id,
            self._number,
            self.state.leader_epoch,
            log.log_end_offset,
            log.log_start_offset,
            self._heard,
        )
        self._station.send(
            self.state.leader,
            "Fetch",
            lambda peer: peer.on_fetch(tp, request),
        )

    def on_fetch_response(self, answer: FetchResponse) -> None:
        """Append what came, follow the leader's offsets, and fetch on."""
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
                self._take(answer)
        except LogStoreError as error:
            logger.warning("%s cannot follow: %s", self.log, error)
            self._back_off(error.kafka_error)
            return
        self.ask()

    def _take(self, answer: FetchResponse) -> None:
        log = self.log
        self._begin_with(answer)
        with log.lock:
            if self._is_stale(answer):
                return
            if answer.data:
                self._append(answer.data)
            log.offsets.set_high_watermark(answer.high_watermark)
            self._heard = answer.high_watermark, answer.log_start_offset
        start = min(max(answer.log_start_offset, self._own_start), log.high_watermark)
        if start > log.log_start_offset:
            self._station.manager.raise_log_start(self.state.topic_partition, start)

    def _begin_with(self, answer: FetchResponse) -> None:
        """Begin anew with the first batch if that begins below the log's end.

        The leader's log start may lie inside a batch. Who has nothing beyond it, nothing at all or
        what the leader has deleted, takes that batch whole.
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
                    self._station.manager.truncate_fully_and_start_at(tp, first_offset)

    def _append(self, data: bytes) -> None:
        """Append batches as they are, in pieces that a segment holds. The lock is held.

        It may hold less than the leader's, whose settings were others.
        """
        writer, limit = self.log.writer, self.log.config.segment_bytes
        if len(data) <= limit:
            writer.append_batches(data, AppendOrigin.REPLICATION)
            return
        for batch in walk_buffer(data, None, 0):
            writer.append_batches(bytes(batch.data), AppendOrigin.REPLICATION)

    def _move_into_range(self, answer: FetchResponse) -> None:
        """Begin anew at the leader's log start, or end where the leader's log does."""
        tp, manager = self.state.topic_partition, self._station.manager
        end_offset = self.log.log_end_offset
        if end_offset > answer.log_end_offset:
            # Only after an unclean election: what was acknowledged is lost.
            logger.warning("%s: the leader's log ends at %d", self.log, answer.log_end_offset)
            manager.truncate_to(tp, answer.log_end_offset)
        elif end_offset < answer.log_start_offset:
            manager.truncate_fully_and_start_at(tp, answer.log_start_offset)

    # -- in vain -------------------------------------------------------------------------

    def _is_stale(self, answer: FetchResponse) -> bool:
        return self._is_over or answer.number != self._number

    def _back_off(self, error: str) -> None:
        number = self._number
        logger.info(
            "%s: broker %d answers %s", self.state.topic_partition, self.state.leader, error
        )

        def ask_again() -> None:
            if number == self._number:
                self.ask()

        self._station.later("fetch-backoff", ask_again, self._station.backoff_ms)
