"""The latest record of each key: what a compacted topic comes down to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from logstore.broker.records import ConsumerRecord
from logstore.errors import PolicyViolationError

if TYPE_CHECKING:
    from logstore.config import LogConfig

OFFSET_STRATEGY = "offset"


def latest_per_key(
    records: Iterable[ConsumerRecord], config: LogConfig
) -> Iterator[ConsumerRecord]:
    """Yield the winning record of each key in offset order; deleted keys are left out.

    Parameters
    ----------
    records : iterable of ConsumerRecord
        One partition's, in offset order. Records without a key belong to no row.
    config : LogConfig
        Of the topic; its compaction strategy decides.

    Raises
    ------
    PolicyViolationError
        The strategy is not supported yet.

    Notes
    -----
    Holds one record a key.
    """
    strategy = config.compaction_strategy
    if strategy == "header" and not config.compaction_strategy_header.strip():
        strategy = OFFSET_STRATEGY
    if strategy != OFFSET_STRATEGY:
        raise PolicyViolationError(
            f"the latest record per key under compaction.strategy {strategy} is not supported yet"
        )
    latest: dict[bytes, ConsumerRecord] = {}
    for record in records:
        if record.key is None:
            continue
        # Taken out first, so that the order of insertion stays that of the offsets.
        latest.pop(record.key, None)
        if record.value is not None:
            latest[record.key] = record
    yield from latest.values()
