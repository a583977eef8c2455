"""A partition that is left alone because work on it failed."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple, Self

from logstore.errors import LogStoreError

if TYPE_CHECKING:
    from logstore.types import TopicPartition

logger = logging.getLogger(__name__)


class UncleanablePartition(NamedTuple):
    """A partition whose cleaning failed, so that it is left alone.

    Attributes
    ----------
    log_dir : str
        Data directory it lives in.
    reason : str
        What was wrong with it.
    since_ms : int
        When that was found, Unix ms.
    """

    topic_partition: TopicPartition
    log_dir: str
    reason: str
    since_ms: int

    @classmethod
    def because_of(
        cls, error: Exception, topic_partition: TopicPartition, log_dir: str, now_ms: int
    ) -> Self:
        """Return the mark that a failure leaves, and log it; a defect's with its trace."""
        reason, trace = str(error), None
        if not isinstance(error, LogStoreError | OSError):
            reason, trace = f"{type(error).__name__}: {error}", error
        logger.warning("%s is not cleaned any more: %s", topic_partition, reason, exc_info=trace)
        return cls(topic_partition, log_dir, reason, now_ms)
