"""Changes that Kafka's later releases made to the keys."""

from __future__ import annotations

from typing import NamedTuple

from logstore.config.keys import Ranges, Value
from logstore.types import HOUR_MS


class ReleaseChange(NamedTuple):
    """A change of a key in a later release of Kafka; None where it left things as they were.

    Attributes
    ----------
    since : str
        The release, as `4.0`.
    removed : bool
        Whether the release knows the key no more.
    """

    key: str
    since: str
    default: Value | None = None
    ranges: Ranges | None = None
    removed: bool = False


LATER_RELEASES = (
    ReleaseChange("node.id", "4.0", ranges=((0, None),)),
    ReleaseChange("segment.bytes", "4.0", ranges=((1 << 20, None),)),
    ReleaseChange("message.timestamp.after.max.ms", "4.0", default=HOUR_MS),
    ReleaseChange("message.timestamp.difference.max.ms", "4.0", removed=True),
    ReleaseChange("num.recovery.threads.per.data.dir", "4.0", default=2),
)
"""By topic key, for its broker keys as well; else by broker key. As of Kafka 4.4."""
