"""The configuration in force for one log, every value resolved.

Source: docs/spec/storage-format.md §16, docs/spec/cleaner.md §12.
"""

from __future__ import annotations

from dataclasses import MISSING, FrozenInstanceError, dataclass, field, fields
from functools import cached_property
from typing import Any, NamedTuple, NoReturn, dataclass_transform

from logstore.config.topic_keys import COMPACT, DELETE, TOPIC_KEYS
from logstore.errors import InvalidConfigurationError
from logstore.types import INT64_MAX, TimestampType


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
class Settings:
    """What `dataclass(frozen=True, kw_only=True)` makes of a class, for less at each start.

    That writes out methods of sixty fields and compiles them, which takes milliseconds; these go
    through the fields, and serve all such classes.
    """

    def __init_subclass__(cls) -> None:
        dataclass(init=False, repr=False, eq=False)(cls)

    def __init__(self, **values: object) -> None:
        attributes = self.__dict__  # which `__setattr__` does not guard
        for each in fields(self):  # type: ignore[arg-type]  # of subclasses, which are dataclasses
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
        """Check the values."""

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


def _topic(key: str) -> Any:  # noqa: ANN401  # a dataclass default of the field's own type
    return TOPIC_KEYS[key].default


class LogConfig(Settings):
    """The configuration in force for the logs of one topic.

    Every field is a topic key with its dots turned into underscores; units, ranges and meanings
    are the rows of `TOPIC_KEYS`. `LogConfig()` is the defaults.

    Raises
    ------
    InvalidConfigurationError
        A value is out of its range, or max.compaction.lag.ms < min.compaction.lag.ms.
    """

    segment_bytes: int = _topic("segment.bytes")
    segment_ms: int = _topic("segment.ms")
    segment_jitter_ms: int = _topic("segment.jitter.ms")
    segment_index_bytes: int = _topic("segment.index.bytes")
    index_interval_bytes: int = _topic("index.interval.bytes")
    flush_messages: int = _topic("flush.messages")
    flush_ms: int = _topic("flush.ms")
    retention_bytes: int = _topic("retention.bytes")
    retention_ms: int = _topic("retention.ms")
    max_message_bytes: int = _topic("max.message.bytes")
    delete_retention_ms: int = _topic("delete.retention.ms")
    min_compaction_lag_ms: int = _topic("min.compaction.lag.ms")
    max_compaction_lag_ms: int = _topic("max.compaction.lag.ms")
    file_delete_delay_ms: int = _topic("file.delete.delay.ms")
    min_cleanable_dirty_ratio: float = _topic("min.cleanable.dirty.ratio")
    cleanup_policy: tuple[str, ...] = _topic("cleanup.policy")
    compression_type: str = _topic("compression.type")
    compression_gzip_level: int = _topic("compression.gzip.level")
    compression_lz4_level: int = _topic("compression.lz4.level")
    compression_zstd_level: int = _topic("compression.zstd.level")
    preallocate: bool = _topic("preallocate")
    message_timestamp_type: TimestampType = _topic("message.timestamp.type")
    message_timestamp_before_max_ms: int = _topic("message.timestamp.before.max.ms")
    message_timestamp_after_max_ms: int = _topic("message.timestamp.after.max.ms")
    message_timestamp_difference_max_ms: int = _topic("message.timestamp.difference.max.ms")
    unclean_leader_election_enable: bool = _topic("unclean.leader.election.enable")
    min_insync_replicas: int = _topic("min.insync.replicas")
    compaction_strategy: str = _topic("compaction.strategy")
    compaction_strategy_header: str = _topic("compaction.strategy.header")
    logstore_compaction_strategy_header_encoding: str = _topic(
        "logstore.compaction.strategy.header.encoding"
    )
    logstore_decompression_max_bytes: int = _topic("logstore.decompression.max.bytes")
    logstore_batch_max_records: int = _topic("logstore.batch.max.records")

    def __post_init__(self) -> None:
        for key in TOPIC_KEYS.values():
            key.check(getattr(self, key.attribute))
        check_lags(
            LagSetting(MIN_LAG, self.min_compaction_lag_ms),
            LagSetting(MAX_LAG, self.max_compaction_lag_ms),
        )

    @cached_property
    def batch_bytes_max(self) -> int:
        """Bytes above which a batch is refused, by either of the keys that limit it."""
        return min(self.max_message_bytes, self.segment_bytes)

    @cached_property
    def compact(self) -> bool:
        """Whether the policy includes compaction."""
        return COMPACT in self.cleanup_policy

    @cached_property
    def delete(self) -> bool:
        """Whether the policy includes deletion by age and size."""
        return DELETE in self.cleanup_policy

    @property
    def winner_keys(self) -> tuple[str, str, str]:
        """The settings that decide which record of a key wins; equal ones decide alike."""
        return (
            self.compaction_strategy,
            self.compaction_strategy_header,
            self.logstore_compaction_strategy_header_encoding,
        )

    @cached_property
    def max_segment_ms(self) -> int:
        """Age in ms at which a segment is rolled: a compacted log must keep its maximum lag."""
        if not self.compact:
            return self.segment_ms
        return min(self.segment_ms, self.max_compaction_lag_ms)

    @cached_property
    def timestamp_before_max_ms(self) -> int:
        """Most ms that a create time may lie in the past; the deprecated key may set it."""
        if self.message_timestamp_before_max_ms != INT64_MAX:
            return self.message_timestamp_before_max_ms
        return self.message_timestamp_difference_max_ms

    @cached_property
    def timestamp_after_max_ms(self) -> int:
        """Most ms that a create time may lie in the future; the deprecated key may set it."""
        if self.message_timestamp_after_max_ms != INT64_MAX:
            return self.message_timestamp_after_max_ms
        return self.message_timestamp_difference_max_ms


class LagSetting(NamedTuple):
    """A number, the name to complain of it under, and who set it, if there is a choice."""

    key: str
    value: int
    source: str = ""


def check_lags(low: LagSetting, high: LagSetting) -> None:
    """Raise `InvalidConfigurationError` unless the larger lag is at least the smaller one."""
    if high.value >= low.value:
        return
    sources = f": the first is {high.source}, the second {low.source}" if high.source else ""
    if high.source == low.source != "":
        sources = f": both are {low.source}"
    raise InvalidConfigurationError(
        f"{high.key} = {high.value} must not be below {low.key} = {low.value}{sources}",
        key=high.key,
    )
