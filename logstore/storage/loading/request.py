"""A request to open a partition, with the values stored in its data directory."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from logstore.storage.loading.on_damage import OnDamage
from logstore.types import SMALL_FILE_MAX_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from logstore.config.log_config import LogConfig
    from logstore.types import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRequest:
    """The arguments of `open_log`.

    Attributes
    ----------
    directory : str
        The partition's folder, which must exist.
    clean : bool
        Whether the log was closed cleanly. If so, opening only reads the first 17 bytes of each
        segment and the batches after the last index entry.
    recovery_point, log_start_offset : int
        From the checkpoints of the data directory, or 0 if absent.
    producer_id_expiration_ms : int
        `producer.id.expiration.ms` of the broker.
    finding_level : int
        The level of `logging` for findings.
    small_file_max_bytes : int
        Maximum size of files that are read as a whole.
    reached_offset : int
        An offset that the log once reached, from the stored high watermark, or 0 if unknown.
    store_reached_offset : callable, optional
        Stores such an offset durably, before recovery or a crash removes the other evidence.
    high_watermark : int, optional
        The stored high watermark of a replica, which the leader advances later. By default it is
        the log end offset, as in a log without followers.
    on_damage : OnDamage
        How to handle damage that is followed by valid batches.
    keep_below : int
        With `REFUSE`, every valid batch below this offset is retained, because it is known to have
        been durable.
    surveys : bool
        Check every batch of every segment first, and skip damage. Only used on an overlay, to
        reopen the log after `PASS_OVER` refused the first attempt.
    keeps_cleaned : bool
        Keep `.cleaned` files, because the cleaner is rewriting the log.
    is_named : bool
        Whether the directory's name is known to be durable.
    """

    directory: str
    topic_partition: TopicPartition
    config: LogConfig
    clean: bool
    recovery_point: int = 0
    log_start_offset: int = 0
    producer_id_expiration_ms: int = 86_400_000
    finding_level: int = logging.WARNING
    small_file_max_bytes: int = SMALL_FILE_MAX_BYTES
    reached_offset: int = 0
    store_reached_offset: Callable[[int], None] | None = None
    high_watermark: int | None = None
    on_damage: OnDamage = OnDamage.RECOVER
    keep_below: int = 0
    surveys: bool = False
    keeps_cleaned: bool = False
    is_named: bool = False
