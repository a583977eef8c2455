"""Assumptions about facts that a directory does not contain.

An assumption is a sentence that states the missing fact, the assumed value, and how to provide the
actual one, with a command line option or by copying another file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from logstore.config.topic_keys import TOPIC_KEYS
from logstore.errors import InvalidConfigurationError
from logstore.names import configs_by_name
from logstore.reasons.formats import format_duration
from logstore.storage.checkpoint.offsets import (
    CLEANER_OFFSETS,
    LOG_START_OFFSETS,
    REPLICATION_OFFSETS,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from logstore.manager.manager import LogManager
    from logstore.types import TopicPartition


def assumptions(
    manager: LogManager, topic_partition: TopicPartition, *, cleaning: bool = False
) -> tuple[str, ...]:
    """Return the assumptions about an open partition.

    Parameters
    ----------
    cleaning : bool
        Whether the result depends on the cleaner checkpoint.
    """
    return tuple(_yield_assumptions(manager, topic_partition, cleaning=cleaning))


def clock_assumption(now_text: str) -> str:
    """Return the assumption that applies if no time was given."""
    return f"the current time is {now_text} (system clock); override with --now TIME"


def policy_assumption(manager: LogManager, topic: str) -> str | None:
    """Return the assumption about the cleanup.policy of a topic, or None if it is known."""
    laid = manager.catalog.temporary_overrides(topic)
    if not manager.catalog.topic(topic).adopted or "cleanup.policy" in laid:
        return None
    policy = ",".join(manager.catalog.config(topic).cleanup_policy) or "empty"
    policy += f" ({_origin(manager, 'cleanup.policy')})"
    given = " in addition to --config" if laid else ""
    known = configs_by_name(topic)
    rest = "the current defaults are assumed"
    if known is not None:
        settings = ", ".join(f"{key} {value}" for key, value in known.configs.items())
        policy, rest = settings.removeprefix("cleanup.policy "), f"{rest}, as {known.creator}"
    return (
        f"no configuration of topic {topic} is stored here: cleanup.policy {policy} and"
        f" {rest}{given}; override with --config KEY=VALUE"
    )


def limits_assumption(manager: LogManager, topic: str) -> str | None:
    """Return the assumption about the retention limits of a topic whose policy was given.

    None if the topic config is stored, or if the limits were also given or do not apply.
    """
    laid = manager.catalog.temporary_overrides(topic)
    if not manager.catalog.topic(topic).adopted or "cleanup.policy" not in laid:
        return None
    config = manager.catalog.config(topic)
    lacking = [key for key in ("retention.ms", "retention.bytes") if key not in laid]
    if not config.delete or not lacking:
        return None
    values = {
        "retention.ms": format_duration(config.retention_ms),
        "retention.bytes": str(config.retention_bytes),
    }
    limits = " and ".join(f"{key} {values[key]}" for key in lacking)
    origins = list(dict.fromkeys(_origin(manager, key) for key in lacking))
    if origins == ["Kafka's default"] and len(lacking) > 1:
        origins = ["Kafka's defaults"]
    verb = "is" if len(lacking) == 1 else "are"
    return (
        f"no configuration of topic {topic} is stored here: {limits} ({', '.join(origins)}) {verb}"
        " assumed in addition to --config; override with --config KEY=VALUE"
    )


def _origin(manager: LogManager, key: str) -> str:
    """Return the broker config that determines a topic config, or "Kafka's default"."""
    given = manager.catalog.broker_config.given
    for synonym in TOPIC_KEYS[key].synonyms:
        if synonym.key in given:
            return synonym.key
    return "Kafka's default"


def is_policy_known(manager: LogManager, topic: str) -> bool:
    """Return whether the cleanup.policy of a topic is stored, given, or follows from its name."""
    return policy_assumption(manager, topic) is None or configs_by_name(topic) is not None


def refuse_assumed_policy(manager: LogManager, topic_partition: TopicPartition) -> None:
    """Raise an error rather than delete data under an assumed cleanup.policy.

    Raises
    ------
    InvalidConfigurationError
    """
    topic = topic_partition.topic
    if policy_assumption(manager, topic) is not None:
        raise InvalidConfigurationError(
            f"no configuration of topic {topic} is stored here, so {topic_partition} was not"
            " changed; set --config cleanup.policy=POLICY, or use --dry-run to see what the"
            " defaults would delete"
        )


def _yield_assumptions(manager: LogManager, tp: TopicPartition, *, cleaning: bool) -> Iterator[str]:
    if not manager.catalog.topic(tp.topic).adopted:
        return  # created by this engine, which writes other files only if needed
    policy = policy_assumption(manager, tp.topic)
    if policy is not None:
        yield policy
    directory = manager.registry.directory_of(tp)
    log = manager.log(tp)
    if directory.cleaner_offset(tp) is None and cleaning and log.config.compact:
        yield (
            f"{CLEANER_OFFSETS} has no entry for {tp}: the log is assumed to be dirty from its"
            f" start {log.log_start_offset} on; copy this file as well to avoid this"
        )
    if not manager.runtime.fs.exists(f"{directory.path}/{LOG_START_OFFSETS}"):
        yield (
            f"{LOG_START_OFFSETS} is missing: the log is assumed to start with its first segment,"
            f" at {log.log_start_offset}; copy this file as well to avoid this"
        )
    if tp not in directory.high_watermarks:
        yield (
            f"{REPLICATION_OFFSETS} has no entry for {tp}: the log is assumed to be replicated up"
            f" to its end {log.log_end_offset}; copy this file as well to avoid this"
        )
