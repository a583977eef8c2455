"""The cleaning state of each partition: in progress, aborted or paused.

    none ──begin──► in progress ──done──► none
                         │ abort_and_pause
                         ▼
                      aborted ──done──► paused(1)
    none ──abort_and_pause──► paused(1) ──abort_and_pause / resume──► paused(n ± 1), none

Before a log is truncated, its topic is deleted, or `compact` is removed from its policy, the caller
stops the pass and waits for it to end. Source: docs/spec/cleaner.md §3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from logstore.cleaner.errors import CleaningAbortedError, IllegalCleaningStateError
from logstore.runtime import Deadlock

if TYPE_CHECKING:
    from logstore.runtime import Runtime
    from logstore.types import TopicPartition


STOP_WAIT_MS = 30_000
"""Maximum time to wait for passes to stop. A chunk takes a fraction of it."""


class CleaningState(NamedTuple):
    """The state of a partition in use. `pauses` is the number of callers that have paused it."""

    name: str
    pauses: int = 0

    def __str__(self) -> str:
        return f"paused({self.pauses})" if self.pauses else self.name


IN_PROGRESS = CleaningState("in progress")
ABORTED = CleaningState("aborted")


def paused(count: int) -> CleaningState:
    """Return the state of a partition paused by `count` callers."""
    return CleaningState("paused", count)


class CleaningStates:
    """The states of a broker's partitions.

    Thread-safe. Waiting callers hold no lock. They wait with the runtime's scheduler, so that a
    pass in the same thread can continue.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._scheduler = runtime.scheduler
        self._lock = runtime.lock()
        self._states: dict[TopicPartition, CleaningState] = {}
        self._stopped = False

    def of(self, topic_partition: TopicPartition) -> CleaningState | None:
        """Return the state of a partition, or None if it is not in use."""
        return self._states.get(topic_partition)

    def is_in_progress(self, topic_partition: TopicPartition) -> bool:
        """Return whether a cleaning pass or retention run is in progress."""
        return self._states.get(topic_partition) == IN_PROGRESS

    def is_claimed(self, topic_partition: TopicPartition) -> bool:
        """Return whether a pass or retention run is using a partition, even if aborted."""
        return self._states.get(topic_partition) in (IN_PROGRESS, ABORTED)

    def begin(self, topic_partition: TopicPartition) -> bool:
        """Claim a partition for a pass or for retention.

        Returns False if the partition is already claimed or paused, or `stop` was called.
        """
        with self._lock:
            if self._stopped or topic_partition in self._states:
                return False
            self._states[topic_partition] = IN_PROGRESS
            return True

    def check_not_aborted(self, topic_partition: TopicPartition) -> None:
        """Raise `CleaningAbortedError` if the pass over the partition was aborted."""
        if self._states.get(topic_partition) == ABORTED:
            raise CleaningAbortedError(f"the cleaning of {topic_partition} was aborted")

    def done(
        self, topic_partition: TopicPartition, store: Callable[[], None] | None = None
    ) -> bool:
        """End a pass or a retention run.

        Parameters
        ----------
        store : callable, optional
            Called if the run was not aborted, before another caller can claim the partition, so
            that the stored value is consistent with the log. It must not wait.

        Returns
        -------
        bool
            False if the run was aborted. The caller that aborted it then continues and is
            responsible for the checkpoint.

        Raises
        ------
        IllegalCleaningStateError
            The partition is not in progress.
        """
        with self._lock:
            state = self._states.get(topic_partition)
            if state == IN_PROGRESS:
                try:
                    if store is not None:
                        store()
                finally:
                    del self._states[topic_partition]
            elif state == ABORTED:
                self._states[topic_partition] = paused(1)
            else:
                raise self._illegal("done with", topic_partition, state)
        self._scheduler.notify()
        return state == IN_PROGRESS

    def abort_and_pause(self, topic_partition: TopicPartition) -> None:
        """Stop cleaning a partition, wait for the pass to end, and pause the partition.

        Raises
        ------
        IllegalCleaningStateError
            Another caller is already stopping the pass.
        """
        is_stopping = False
        try:
            with self._lock:
                state = self._states.get(topic_partition)
                if state is None:
                    self._states[topic_partition] = paused(1)
                    return
                if state == ABORTED:
                    raise self._illegal("abort", topic_partition, state)  # noqa: TRY301  # one block
                if state != IN_PROGRESS:
                    self._states[topic_partition] = paused(state.pauses + 1)
                    return
                is_stopping = True
                self._states[topic_partition] = ABORTED
            self._scheduler.wait_until(lambda: self._states.get(topic_partition) != ABORTED)
        except BaseException:
            if is_stopping:
                self._give_up(topic_partition)
            raise

    def _give_up(self, topic_partition: TopicPartition) -> None:
        """Undo a pause whose wait was interrupted, because the caller will not resume it."""
        with self._lock:
            if self._states.get(topic_partition) == ABORTED:
                self._states[topic_partition] = IN_PROGRESS
                return
        self.resume(topic_partition)

    def pause_in_turn(self, topic_partition: TopicPartition) -> None:
        """Call `abort_and_pause` when no other caller is stopping the pass."""
        while True:
            self._scheduler.wait_until(lambda: self._states.get(topic_partition) != ABORTED)
            with suppress(IllegalCleaningStateError):  # another caller is stopping a later pass
                self.abort_and_pause(topic_partition)
                return

    def resume(self, topic_partition: TopicPartition) -> None:
        """Undo one pause.

        Raises
        ------
        IllegalCleaningStateError
            The partition is not paused.
        """
        with self._lock:
            state = self._states.get(topic_partition)
            if state is None or not state.pauses:
                raise self._illegal("resume", topic_partition, state)
            if state.pauses == 1:
                del self._states[topic_partition]
            else:
                self._states[topic_partition] = paused(state.pauses - 1)
        self._scheduler.notify()

    def abort(self, topic_partition: TopicPartition) -> None:
        """Stop cleaning a partition, wait for the pass to end, and release the partition."""
        self.pause_in_turn(topic_partition)
        self.resume(topic_partition)

    def stop(self) -> None:
        """Stop all passes, wait for them to end, and prevent new ones.

        A pass that its caller has suspended, or that calls this itself, cannot end and remains
        aborted.
        """
        with self._lock:
            self._stopped = True
            for tp, state in self._states.items():
                if state == IN_PROGRESS:
                    self._states[tp] = ABORTED
        limit_ms = STOP_WAIT_MS if self._scheduler.is_concurrent else None
        with suppress(Deadlock):
            self._scheduler.wait_until(self._is_none_aborted, timeout_ms=limit_ms)

    def _is_none_aborted(self) -> bool:
        return ABORTED not in self._states.copy().values()

    def pause_idle(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Pause the partitions that are not in use, and return them."""
        with self._lock:
            idle = [partition for partition in partitions if partition not in self._states]
            self._states.update(dict.fromkeys(idle, paused(1)))
        return idle

    def forget(self, topic_partition: TopicPartition) -> None:
        """Drop the state of a removed partition, and the pause of the caller that removed it.

        Pauses by other callers remain. These callers resume the partition later, even if there is a
        new partition with the same name.
        """
        with self._lock:
            state = self._states.pop(topic_partition, None)
            if state is not None and state.pauses > 1:
                self._states[topic_partition] = paused(state.pauses - 1)

    @staticmethod
    def _illegal(
        what: str, topic_partition: TopicPartition, state: CleaningState | None
    ) -> IllegalCleaningStateError:
        return IllegalCleaningStateError(
            f"cannot {what} {topic_partition}, whose cleaning state is {state or 'none'}"
        )
