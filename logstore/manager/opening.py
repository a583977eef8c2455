"""Open many logs concurrently and report progress."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from logstore.errors import LogStoreError
from logstore.types import TopicPartition

if TYPE_CHECKING:
    from logstore.runtime import Runtime

logger = logging.getLogger(__name__)


class LoadProgress(NamedTuple):
    """Progress of opening directories that were not closed cleanly.

    `done` and `total` count partitions. `topic_partition` was opened last.
    """

    topic_partition: TopicPartition
    done: int
    total: int


LoadListener = Callable[[LoadProgress], None]


def load_logs(
    runtime: Runtime,
    partitions: Sequence[TopicPartition],
    load: Callable[[TopicPartition], None],
    *,
    threads: int,
    on_load: LoadListener | None = None,
) -> list[TopicPartition]:
    """Open logs in several threads.

    Parameters
    ----------
    load : callable
        Opens a log. Called by up to `threads` threads concurrently.
    on_load : callable, optional
        Called for each opened log, one call at a time. An exception from it ends the loading.

    Returns
    -------
    list of TopicPartition
        Partitions that could not be opened. The reasons are logged, and all others are opened.
    """
    lock = runtime.lock()
    done = 0

    def open_one(topic_partition: TopicPartition) -> None:
        nonlocal done
        load(topic_partition)
        with lock:
            done += 1
            if on_load is not None:
                on_load(LoadProgress(topic_partition, done, len(partitions)))

    refused: list[TopicPartition] = []
    tasks = [partial(open_one, tp) for tp in partitions]
    outcomes = runtime.scheduler.run_all(tasks, threads=threads)
    for tp, outcome in zip(partitions, outcomes, strict=True):
        if isinstance(outcome, LogStoreError):
            logger.error("%s cannot be opened: %s", tp, outcome)
            refused.append(tp)
        elif outcome is not None:
            raise outcome
    return refused
