"""The effective configuration of a log.

Source: docs/spec/storage-format.md §16, docs/spec/cleaner.md §12.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, FrozenInstanceError, dataclass, field, fields
from functools import cached_property
from typing import Any, NamedTuple, NoReturn, dataclass_transform

from logstore.config.keys import ConfigKey
from logstore.config.topic_keys import COMPACT, DELETE, TOPIC_KEYS
from logstore.errors import InvalidConfigurationError
from logstore.types import INT64_MAX, TimestampType

KEY: Any = object()
"""The default of a field that has a key's name: the default of that key."""


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
class Settings:
    """Base class of configurations.

    It is like `dataclass(frozen=True, kw_only=True)` but loads faster.

    `dataclass` generates and compiles methods for sixty fields, which takes several milliseconds at
    each start. Here, the methods loop over the fields, and all subclasses share them.
    """

    def __init_subclass__(cls, keys: Mapping[str, ConfigKey] = {}) -> None:
        defaults = {row.attribute: row.default for row in keys.values()}
        for name in [name for name, default in vars(cls).items() if default is KEY]:
            setattr(cls, name, defaults[name])
        dataclass(init=False, repr=False, eq=False)(cls)

    def __init__(self, **values: object) -> None:
        attributes = self.__dict__  # bypass `__setattr__`, which always raises
        for each in fields(self):  # type: ignore[arg-type]  # subclasses are dataclasses
            name = each.name
            if name in values:
                attributes[name] = values.pop(name)
            elif each.default_factory is MISSING:
                attributes[name] = each.default
            else:
                attributes[name] = each.default_factory()
        if values:
            raise TypeError(f"{type(self).__name__} has no field {', '.join(values)}")
        self.__post_init__()

    def __post_init__(self) -> None:
        """Check the values after they have been set."""

    def __repr__(self) -> str:
        shown = [each.name for each in fields(self) if each.repr]  # type: ignore[arg-type]  # as above
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)
        return f"{type(self).__qualname__}({values})"

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(
            getattr(self, each.name) == getattr(other, each.name)
            for each in fields(self)  # type: ignore[arg-type]  # as above
            if each.compare
        )

    def __hash__(self) -> int:
        hashed = [each.name for each in fields(self) if _is_hashed(each)]  # type: ignore[arg-type]  # as above
        return hash(tuple(getattr(self, name) for name in hashed))

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> NoReturn:
        raise FrozenInstanceError(f"cannot delete field {name!r}")


def _is_hashed(each: Any) -> bool:  # noqa: ANN401  # a field of any type
    return bool(each.compare if each.hash is None else each.hash)


MIN_LAG = "min.compaction.lag.ms"
MAX_LAG = "max.compaction.lag.ms"


class LogConfig(Settings, keys=TOPIC_KEYS):
    """The effective configuration of a topic's logs.

    The fields are named like the topic keys (`TOPIC_KEYS`), with underscores instead of dots.
    `LogConfig()` has the defaults of Kafka.

    Raises
    ------
    InvalidConfigurationError
        A value is out of range, or max.compaction.lag.ms < min.compaction.lag.ms.
    """

    segment_bytes: int = KEY
    segment_ms: int = KEY
    segment_jitter_ms: int = KEY
    segment_index_bytes: int = KEY
    index_interval_bytes: int = KEY
    flush_messages: int = KEY
    flush_ms: int = KEY
    retention_bytes: int = KEY
    retention_ms: int = KEY
    max_message_bytes: int = KEY
    delete_retention_ms: int = KEY
    min_compaction_lag_ms: int = KEY
    max_compaction_lag_ms: int = KEY
    file_delete_delay_ms: int = KEY
    min_cleanable_dirty_ratio: float = KEY
    cleanup_policy: tuple[str, ...] = KEY
    compression_type: str = KEY
    compression_gzip_level: int = KEY
    compression_lz4_level: int = KEY
    compression_zstd_level: int = KEY
    preallocate: bool = KEY
    message_timestamp_type: TimestampType = KEY
    message_timestamp_before_max_ms: int = KEY
    message_timestamp_after_max_ms: int = KEY
    message_timestamp_difference_max_ms: int = KEY
    unclean_leader_election_enable: bool = KEY
    min_insync_replicas: int = KEY
    compaction_strategy: str = KEY
    compaction_strategy_header: str = KEY
    logstore_compaction_strategy_header_encoding: str = KEY
    logstore_decompression_max_bytes: int = KEY
    logstore_batch_max_records: int = KEY

    def __post_init__(self) -> None:
        for key in TOPIC_KEYS.values():
            key.check(getattr(self, key.attribute))
        check_lags(
            LagSetting(MIN_LAG, self.min_compaction_lag_ms),
            LagSetting(MAX_LAG, self.max_compaction_lag_ms),
        )

    @cached_property
    def batch_bytes_max(self) -> int:
        """Maximum size of a batch in bytes. Both max.message.bytes and segment.bytes limit it."""
        return min(self.max_message_bytes, self.segment_bytes)

    @cached_property
    def compact(self) -> bool:
        """Whether the cleanup policy includes compaction."""
        return COMPACT in self.cleanup_policy

    @cached_property
    def delete(self) -> bool:
        """Whether the cleanup policy includes deletion by age and size."""
        return DELETE in self.cleanup_policy

    @property
    def winner_keys(self) -> tuple[str, str, str]:
        """The settings that determine which record of a key survives compaction."""
        return (
            self.compaction_strategy,
            self.compaction_strategy_header,
            self.logstore_compaction_strategy_header_encoding,
        )

    @cached_property
    def max_segment_ms(self) -> int:
        """Age in ms at which a segment is rolled.

        With compaction, max.compaction.lag.ms limits it.
        """
        if not self.compact:
            return self.segment_ms
        return min(self.segment_ms, self.max_compaction_lag_ms)

    @cached_property
    def timestamp_before_max_ms(self) -> int:
        """Maximum age of a create time in ms. The deprecated key is used if it is set."""
        if self.message_timestamp_before_max_ms != INT64_MAX:
            return self.message_timestamp_before_max_ms
        return self.message_timestamp_difference_max_ms

    @cached_property
    def timestamp_after_max_ms(self) -> int:
        """Maximum time in ms that a create time may be in the future.

        See `timestamp_before_max_ms`.
        """
        if self.message_timestamp_after_max_ms != INT64_MAX:
            return self.message_timestamp_after_max_ms
        return self.message_timestamp_difference_max_ms


class LagSetting(NamedTuple):
    """A compaction lag, the key to name in error messages, and the origin of the value if known."""

    key: str
    value: int
    source: str = ""


def check_lags(low: LagSetting, high: LagSetting) -> None:
    """Raise `InvalidConfigurationError` if the maximum lag is less than the minimum lag."""
    if high.value >= low.value:
        return
    sources = f": the first is {high.source}, the second {low.source}" if high.source else ""
    if high.source == low.source != "":
        sources = f": both are {low.source}"
    raise InvalidConfigurationError(
        f"{high.key} = {high.value} must not be below {low.key} = {low.value}{sources}",
        key=high.key,
    )
