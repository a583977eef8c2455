"""Old names of configuration keys and values, as the texts behind this engine spell them.

KAFKA-631 proposed `topic.cleanup.policy` with the policy `dedupe`, a pool of cleaner threads with
a buffer each and two throughput limits; operators' guides know `log.cleanup.interval.mins`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from logstore.config.broker_keys import BROKER_KEYS
from logstore.config.keys import ConfigKey, Kind
from logstore.config.topic_keys import AT_LEAST_1, COMPACT
from logstore.types import MINUTE_MS

OLD_POLICY_KEY = "topic.cleanup.policy"
OLD_COMPACT = "dedupe"


class OldName(NamedTuple):
    """An old broker key, today's key, and what its value means for that one."""

    old: str
    current: str
    reading: str


OLD_BROKER_NAMES = (
    OldName(OLD_POLICY_KEY, "log.cleanup.policy", f"the same; {OLD_COMPACT} is {COMPACT}"),
    OldName("cleaner.thread.pool.size", "log.cleaner.threads", "the same"),
    OldName(
        "cleaner.buffer.size.bytes",
        "log.cleaner.dedupe.buffer.size",
        "bytes of one thread, so times the threads",
    ),
    OldName(
        "cleaner.max.read.throughput",
        "logstore.cleaner.max.read.bytes.per.second",
        "the same, in bytes a second",
    ),
    OldName(
        "cleaner.max.write.throughput",
        "logstore.cleaner.max.write.bytes.per.second",
        "the same, in bytes a second",
    ),
    OldName("log.cleanup.interval.mins", "log.retention.check.interval.ms", "minutes, times 60000"),
)

_TODAY = {name.old: name.current for name in OLD_BROKER_NAMES}


def translate_policy(key: str, text: str, current: str, notes: list[str]) -> tuple[str, str]:
    """Return a key and its value with old names of the cleanup policy replaced.

    Parameters
    ----------
    key, text : str
        As given.
    current : str
        Today's name of the policy: cleanup.policy, or log.cleanup.policy for a broker.
    notes : list of str
        Takes a note on each translation.
    """
    if key == OLD_POLICY_KEY:
        notes.append(f"{OLD_POLICY_KEY} is an old name of {current}")
        key = current
    if key == current and OLD_COMPACT in (parts := [part.strip() for part in text.split(",")]):
        notes.append(f"{current}: {OLD_COMPACT} is an old name of {COMPACT}")
        text = ",".join(COMPACT if part == OLD_COMPACT else part for part in parts)
    return key, text


def translate_broker(texts: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return broker properties under today's names, and notes on what was translated.

    A key given under both names keeps the value of today's.

    Raises
    ------
    InvalidConfigurationError
        A number under an old name does not parse or is below 1.
    """
    current = dict(texts)
    notes: list[str] = []

    def replace(old: str, text: str, remark: str = "") -> None:
        key = _TODAY[old]
        if key in current:
            notes.append(f"{old}: ignored, since {key} is set")
            return
        current[key] = text
        notes.append(f"{old}: old, read as {key} = {text}{remark}")

    if (threads := current.pop("cleaner.thread.pool.size", None)) is not None:
        replace("cleaner.thread.pool.size", threads)
    if (minutes := current.pop("log.cleanup.interval.mins", None)) is not None:
        interval_ms = MINUTE_MS * _old_number("log.cleanup.interval.mins", minutes)
        replace("log.cleanup.interval.mins", str(interval_ms))
    if (buffer := current.pop("cleaner.buffer.size.bytes", None)) is not None:
        per_thread = _old_number("cleaner.buffer.size.bytes", buffer)
        threads_row = BROKER_KEYS["log.cleaner.threads"]
        count = threads_row.parse(current.get(threads_row.key, str(threads_row.default)))
        assert isinstance(count, int)
        replace(
            "cleaner.buffer.size.bytes",
            str(per_thread * max(count, 1)),
            f" ({per_thread} for each thread)",
        )
    for old in ("cleaner.max.read.throughput", "cleaner.max.write.throughput"):
        if (limit := current.pop(old, None)) is not None:
            _old_number(old, limit)
            replace(old, limit)
    if (policy := current.pop(OLD_POLICY_KEY, None)) is not None:
        replace(OLD_POLICY_KEY, policy)
    if "log.cleanup.policy" in current:
        _, current["log.cleanup.policy"] = translate_policy(
            "log.cleanup.policy", current["log.cleanup.policy"], "log.cleanup.policy", notes
        )
    return current, notes


def _old_number(key: str, text: str) -> int:
    row = ConfigKey(key, Kind.LONG, 1, "", AT_LEAST_1)
    value = row.parse(text)
    assert isinstance(value, int)
    return value
