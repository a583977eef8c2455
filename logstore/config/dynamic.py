"""Broker settings that may change while the broker runs, and what a change makes of them.

Kafka's dynamic broker configurations, as far as this engine knows the keys: the cleaner's own
settings, the defaults for topics under the first of their names, and whether batches of
transactions are verified.
Source: cleaner-semantics §12.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from logstore.config.broker_config import BrokerConfig, topic_defaults_of
from logstore.config.broker_keys import BROKER_KEYS
from logstore.config.keys import Value, to_text
from logstore.config.legacy import translate_broker
from logstore.config.topic_keys import TOPIC_KEYS
from logstore.errors import InvalidConfigurationError

CLEANER_KEYS = (
    "log.cleaner.threads",
    "log.cleaner.io.max.bytes.per.second",
    "logstore.cleaner.max.read.bytes.per.second",
    "logstore.cleaner.max.write.bytes.per.second",
    "log.cleaner.dedupe.buffer.size",
    "log.cleaner.io.buffer.size",
    "log.cleaner.io.buffer.load.factor",
    "log.cleaner.backoff.ms",
)
"""Keys that cleaners take up at once: their threads are stopped and begun anew."""

_TOPIC_SYNONYMS = {row.synonyms[0].key: row for row in TOPIC_KEYS.values() if row.synonyms}

RECONFIGURABLE_KEYS = (
    frozenset(CLEANER_KEYS)
    | frozenset(_TOPIC_SYNONYMS)
    | {"transaction.partition.verification.enable"}
)
"""Broker keys that may change at run time."""


def reconfigured(
    broker: BrokerConfig, changes: Mapping[str, object]
) -> tuple[BrokerConfig, tuple[str, ...]]:
    """Return a broker's configuration after a change at run time, checked as a whole.

    Parameters
    ----------
    changes : mapping
        Broker keys, today's or old ones; None gives a key back to its default.

    Returns
    -------
    BrokerConfig
    tuple of str
        Notes on old names that were translated.

    Raises
    ------
    InvalidConfigurationError
        A key cannot change at run time, a value is not allowed, there would be no cleaner thread
        left, more than twice or less than half as many as now, or values contradict each other.
    """
    texts, notes = translate_broker(
        {key.strip(): to_text(value) for key, value in changes.items() if value is not None}
    )
    parsed: dict[str, Value | None] = {
        key.strip(): None for key, value in changes.items() if value is None
    }
    for key, text in texts.items():
        parsed[key] = BROKER_KEYS[key].parse(text) if key in BROKER_KEYS else text
    fixed = sorted(parsed.keys() - RECONFIGURABLE_KEYS)
    if fixed:
        raise InvalidConfigurationError(
            f"{', '.join(fixed)} cannot be changed while the broker runs; what can is "
            f"{', '.join(sorted(RECONFIGURABLE_KEYS))}"
        )
    fields: dict[str, Value] = {}
    defaults = dict(broker.topic_defaults)
    defaults |= topic_defaults_of({k: value for k, value in parsed.items() if value is not None})
    for key, value in parsed.items():
        if key in _TOPIC_SYNONYMS:
            if value is None:
                defaults.pop(_TOPIC_SYNONYMS[key].key, None)
        else:
            broker_row = BROKER_KEYS[key]
            fields[broker_row.attribute] = broker_row.default if value is None else value
    changed = dataclasses.replace(broker, topic_defaults=defaults, **fields)  # type: ignore[arg-type]
    _check_threads(broker.log_cleaner_threads, changed.log_cleaner_threads)
    return changed, tuple(notes)


def _check_threads(now: int, wanted: int) -> None:
    """Hold Kafka's rule for changing the size of a thread pool."""
    if now == wanted:
        return
    name = "log.cleaner.threads"
    if wanted < 1:
        raise InvalidConfigurationError(f"{name} = {wanted} is not allowed: at least 1")
    if wanted < now / 2:
        raise InvalidConfigurationError(
            f"{name} = {wanted} is not allowed: at least half of the present {now}"
        )
    if wanted > 2 * now:
        raise InvalidConfigurationError(
            f"{name} = {wanted} is not allowed: at most twice the present {now}"
        )
