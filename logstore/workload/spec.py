"""Workload specs: TOML files that are validated before anything starts.

`Spec` and its tables define every key with its default, range and description. A file may be based
on a preset. The `configs` table contains Kafka topic configs, which the engine validates.
Independent of Spark and NumPy.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from logstore.config.overrides import alter_overrides, effective_config
from logstore.config.suggest import and_nearest
from logstore.errors import InvalidConfigurationError, InvalidTopicError
from logstore.names import validate_topic_name
from logstore.record.layout import HEADER_SIZE
from logstore.types import DAY_MS
from logstore.workload.presets import PRESETS
from logstore.workload.tables import (
    Allowed,
    flatten_configs,
    merge_tables,
    read_table,
    read_toml,
    setting,
)

BLOCK_RECORDS = 65_536
"""Number of records per block. If it changes, a seed generates a different workload."""

ZIPF_KEYS_MAX = 50_000_000
"""Limit for a Zipf distribution, whose table takes 8 bytes per key."""

MEAN_VALUE_BYTES_MAX = 16_384
"""Limits the values of a block to 1 GiB."""

PROFILE_PARTS_MAX = 1_000_000
"""Limit for repetitions of a profile, which take 24 bytes of memory per part."""

MAX_MESSAGE_BYTES = "max.message.bytes"
DEFAULT_CONFIGS: Mapping[str, str] = {"cleanup.policy": "compact"}
"""Default topic configs. Workloads exercise the cleaner, so topics are compacted."""

INT64_MAX = (1 << 63) - 1

ZIPF = "zipf"
UNIFORM = "uniform"
MOVING_HOT_SET = "moving-hot-set"

FIXED = "fixed"
LOGNORMAL = "lognormal"

_RECORD_OVERHEAD_MAX = 1 + 5 + 10 + 5 + 5 + 5 + 1
_CODEC_SHARE_MAX, _CODEC_BYTES_MAX = 128, 4096
"""Expansion of incompressible data by a codec: one byte per this many, plus a constant."""

EVEN = "even"
POISSON = "poisson"

WORDS = "words"
RANDOM = "random"


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """Keys, and how often each key is written."""

    count: int = setting(1_000_000, "Number of distinct keys.", 1, 1 << 40)
    prefix: str = setting("key-", "Prefix of each key; the key number follows in decimal digits.")
    distribution: str = setting(
        ZIPF, "Distribution of writes over keys.", choice=(ZIPF, UNIFORM, MOVING_HOT_SET)
    )
    exponent: float = setting(1.1, "zipf: key number n has weight (n+1)^-exponent.", 0.0, 10.0)
    hot_keys: int = setting(1_000, "moving-hot-set: number of hot keys at a time.", 1, 1 << 40)
    hot_share: float = setting(0.9, "moving-hot-set: share of writes to hot keys.", 0, 1)
    sweeps: float = setting(
        1.0, "moving-hot-set: how often the hot set passes over all keys in the run.", 0.0, 1e6
    )

    @property
    def digits(self) -> int:
        """Number of digits in a key number. Zero-padding makes all keys equally long."""
        return len(str(self.count - 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """Sizes and contents of values."""

    sizes: str = setting(FIXED, "Distribution of sizes.", choice=(FIXED, UNIFORM, LOGNORMAL))
    bytes: int = setting(100, "fixed: size; lognormal: median size.", 0, 1 << 20)
    min_bytes: int = setting(0, "uniform, lognormal: smallest size.", 0, 1 << 20)
    max_bytes: int = setting(1_000, "uniform, lognormal: largest size, inclusive.", 0, 1 << 20)
    sigma: float = setting(1.0, "lognormal: standard deviation of the size's logarithm.", 0.0, 4.0)
    content: str = setting(
        WORDS, "Compressible text, or incompressible bytes.", choice=(WORDS, RANDOM)
    )

    @property
    def largest_bytes(self) -> int:
        """Maximum size of a value."""
        return self.bytes if self.sizes == FIXED else self.max_bytes

    @property
    def mean_bytes(self) -> float:
        """Expected size. For lognormal sizes, an upper bound, because limits are applied later."""
        if self.sizes == FIXED:
            return self.bytes
        if self.sizes == UNIFORM:
            return (self.min_bytes + self.max_bytes) / 2
        return min(self.max_bytes, self.min_bytes + self.bytes * math.exp(self.sigma**2 / 2))


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletes:
    """Deletion of keys."""

    share: float = setting(0.0, "Share of writes that delete their key.", 0.0, 1.0)
    with_event: bool = setting(
        False, "Precede each tombstone with a record that has a value, like Debezium."
    )
    on_expiry: bool = setting(
        False, "Delete a key when it leaves the moving hot set, like an expired session."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Time:
    """Arrivals in virtual time, and the lag of timestamps."""

    start: str = setting("2024-01-01T00:00:00Z", "Arrival of the first record, ISO 8601.")
    days: float = setting(1.0, "Virtual days over which the records arrive.", 0.0, 36_500.0)
    daily_swing: float = setting(
        0.0,
        "Daily variation of the rate: 0 is none; near 1, noon is busy and midnight quiet (rate at "
        "noon 1/(1-swing)).",
        0.0,
        0.99,
    )
    arrival: str = setting(
        EVEN, "Intervals between arrivals: constant or random.", choice=(EVEN, POISSON)
    )
    burst_share: float = setting(0.0, "Share of records that arrive in bursts.", 0.0, 1.0)
    burst_every_ms: int = setting(3_600_000, "Time from one burst to the next.", 1, 1 << 40)
    burst_ms: int = setting(60_000, "Duration of a burst.", 1, 1 << 40)
    profile: tuple[float, ...] = setting(
        (), "Relative rate in each of several equal parts of the time; empty for a flat rate.", 0.0
    )
    profile_days: float = setting(
        0.0,
        "Period of the profile in days, counted from Monday, 0:00 UTC; 0 for a single profile.",
        0.0,
        366.0,
    )
    late_share: float = setting(0.0, "Share of records whose timestamp lags.", 0.0, 1.0)
    late_ms: int = setting(600_000, "Largest lag of a timestamp.", 1, 1 << 40)

    @property
    def start_ms(self) -> int:
        """Start in Unix milliseconds. A time without a time zone is UTC."""
        start = datetime.fromisoformat(self.start)
        if start.tzinfo is None:
            start = start.replace(tzinfo=UTC)
        since = start - datetime(1970, 1, 1, tzinfo=UTC)
        return (since.days * DAY_MS) + since.seconds * 1000 + since.microseconds // 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """The version header of KIP-280: 8 bytes, big-endian, ascending in event order."""

    header: str = setting("", "Name of the version header; empty for records without versions.")
    first: int = setting(1, "Version of the first event.", 0, 1 << 62)
    late_share: float = setting(0.0, "Share of records with an older version.", 0.0, 1.0)
    late_records: int = setting(10_000, "Largest age of an older version, in events.", 1, 1 << 40)
    missing_share: float = setting(0.0, "Share of records without the header.", 0.0, 1.0)
    malformed_share: float = setting(
        0.0, "Share of records whose header is shorter than 8 bytes.", 0.0, 1.0
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Producers:
    """The producers. Each fills one batch per partition and sends it when full.

    Two updates of a key by different producers can therefore be reordered (the race in KIP-280).
    """

    count: int = setting(1, "Number of concurrent producers.", 1, 1_000)
    transactional: int = setting(0, "Number of transactional producers.", 0, 1_000)
    transaction_records: int = setting(100, "Records of a transaction.", 1, BLOCK_RECORDS)
    abort_share: float = setting(0.0, "Share of transactions that are aborted.", 0.0, 1.0)
    idempotent: bool = setting(
        True, "Whether the other producers are idempotent (Kafka's default since 3.0)."
    )

    @property
    def with_id(self) -> int:
        """Number of producers with an id. Producer numbers are the ids."""
        return self.count if self.idempotent else self.transactional


@dataclass(frozen=True, slots=True, kw_only=True)
class Batches:
    """How records are packed into batches."""

    min_records: int = setting(100, "Minimum number of records in a full batch.", 1, BLOCK_RECORDS)
    max_records: int = setting(100, "Maximum number of records in a batch.", 1, BLOCK_RECORDS)
    codec: str = setting(
        "none", "Compression codec.", choice=("none", "gzip", "snappy", "lz4", "zstd")
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """A workload. Equal specs produce the same bytes.

    Raises
    ------
    InvalidConfigurationError
        Values contradict each other.
    """

    topic: str = setting("workload", "Name of the topic.")
    records: int = setting(1_000_000, "Records in all partitions, without markers.", 1, 1 << 40)
    partitions: int = setting(
        8, "Number of partitions; Kafka's default partitioner (murmur2) assigns keys.", 1, 10_000
    )
    seed: int = setting(1, "Seed of all random draws.", 0, (1 << 64) - 1)
    keys: Keys = field(default_factory=Keys)
    values: Values = field(default_factory=Values)
    deletes: Deletes = field(default_factory=Deletes)
    time: Time = field(default_factory=Time)
    versions: Versions = field(default_factory=Versions)
    producers: Producers = field(default_factory=Producers)
    batches: Batches = field(default_factory=Batches)
    configs: Mapping[str, str] = field(
        default_factory=lambda: dict(DEFAULT_CONFIGS),
        hash=False,
        metadata={"allowed": Allowed("Topic configurations, by Kafka's names.")},
    )

    def __post_init__(self) -> None:
        for wrong, text in (*self._contradictions(), *self._too_large()):
            if wrong:
                raise InvalidConfigurationError(text)

    def _contradictions(self) -> Iterable[tuple[bool, str]]:
        keys, values, versions = self.keys, self.values, self.versions
        batches, producers = self.batches, self.producers
        expiry = self.deletes.on_expiry
        try:
            validate_topic_name(self.topic)
        except InvalidTopicError as error:
            yield True, str(error)
        yield (
            keys.distribution == ZIPF and keys.count > ZIPF_KEYS_MAX,
            f"keys.count {keys.count} is above {ZIPF_KEYS_MAX}, the maximum for zipf",
        )
        yield (
            keys.distribution == MOVING_HOT_SET and keys.hot_keys > keys.count,
            f"keys.hot_keys {keys.hot_keys} is above keys.count {keys.count}",
        )
        yield (
            values.min_bytes > values.max_bytes,
            f"values.min_bytes {values.min_bytes} is above values.max_bytes {values.max_bytes}",
        )
        yield (
            values.mean_bytes > MEAN_VALUE_BYTES_MAX,
            f"values are {values.mean_bytes:.0f} bytes on average, above {MEAN_VALUE_BYTES_MAX}",
        )
        yield (
            expiry and keys.distribution != MOVING_HOT_SET,
            f"deletes.on_expiry needs keys.distribution {MOVING_HOT_SET!r}",
        )
        yield (
            expiry and keys.count * keys.sweeps > self.records,
            f"deletes.on_expiry deletes keys.count x keys.sweeps = {keys.count * keys.sweeps:.0f} "
            f"keys, which exceeds the number of records ({self.records})",
        )
        yield (
            not versions.header
            and versions.late_share + versions.missing_share + versions.malformed_share > 0,
            "versions.late_share, missing_share and malformed_share need versions.header",
        )
        yield (
            versions.missing_share + versions.malformed_share > 1,
            "the sum of versions.missing_share and versions.malformed_share is above 1",
        )
        yield (
            producers.transactional > producers.count,
            f"producers.transactional {producers.transactional} is above producers.count "
            f"{producers.count}",
        )
        yield (
            batches.min_records > batches.max_records,
            f"batches.min_records {batches.min_records} is above batches.max_records "
            f"{batches.max_records}",
        )
        time = self.time
        yield (
            bool(time.burst_share) and time.burst_ms >= time.burst_every_ms,
            f"time.burst_ms {time.burst_ms} is not below time.burst_every_ms {time.burst_every_ms}",
        )
        yield bool(time.profile) and not sum(time.profile), "time.profile is 0 in all parts"
        yield (
            bool(time.profile_days) and not time.profile,
            f"time.profile_days {time.profile_days:g} needs time.profile",
        )
        parts = len(time.profile) * time.days / time.profile_days if time.profile_days else 0
        yield (
            parts > PROFILE_PARTS_MAX,
            f"time.profile has {parts:.0f} parts in {time.days:g} days, above {PROFILE_PARTS_MAX}",
        )
        try:
            earliest = self.time.start_ms - (self.time.late_ms if self.time.late_share else 0)
        except ValueError as error:
            yield True, f"time.start {self.time.start!r} is not an ISO 8601 time: {error}"
        else:
            yield (
                earliest < 0,
                f"time.start {self.time.start!r} minus time.late_ms is before 1970: Kafka refuses "
                "negative timestamps",
            )

    def _too_large(self) -> Iterable[tuple[bool, str]]:
        largest = self.largest_batch_bytes
        config = effective_config(self.configs)
        limits = {
            "segment.bytes": config.segment_bytes,
            "logstore.decompression.max.bytes": config.logstore_decompression_max_bytes,
        }
        if MAX_MESSAGE_BYTES in self.configs:
            limits[MAX_MESSAGE_BYTES] = config.max_message_bytes
        for name, limit in limits.items():
            yield (
                largest > limit,
                f"a batch of batches.max_records {self.batches.max_records} may take {largest} "
                f"bytes, above {name} {limit}: raise {name}, or use fewer or smaller records",
            )

    @property
    def largest_batch_bytes(self) -> int:
        """Upper bound of a batch's size in bytes."""
        versions = self.versions.header.encode()
        header = 5 + len(versions) + 1 + 8 if versions else 0
        key = len(self.keys.prefix.encode()) + self.keys.digits
        record = _RECORD_OVERHEAD_MAX + key + self.values.largest_bytes + header
        section = self.batches.max_records * record
        return HEADER_SIZE + section + section // _CODEC_SHARE_MAX + _CODEC_BYTES_MAX

    @property
    def topic_configs(self) -> dict[str, str]:
        """Topic configs.

        `max.message.bytes` is raised to the size of the largest batch, unless `configs` sets it.
        """
        if self.largest_batch_bytes <= effective_config(self.configs).max_message_bytes:
            return dict(self.configs)
        return {**self.configs, MAX_MESSAGE_BYTES: str(self.largest_batch_bytes)}

    def with_configs(self, configs: Mapping[str, object]) -> Spec:
        """Return the workload with additional topic configs, which take precedence.

        Raises
        ------
        InvalidConfigurationError
            A config is unknown (the message suggests the closest name), not allowed, or contradicts
            another config.
        """
        changed = replace(self, configs=alter_overrides(self.configs, configs, ())[0])
        _check_compacts(changed.configs)
        return changed

    @property
    def blocks(self) -> int:
        """Number of blocks. The last block may be shorter."""
        return -(-self.records // BLOCK_RECORDS)


TABLES: Mapping[str, type] = {
    "keys": Keys,
    "values": Values,
    "deletes": Deletes,
    "time": Time,
    "versions": Versions,
    "producers": Producers,
    "batches": Batches,
}


_NEEDS: Mapping[tuple[str, str], tuple[str, tuple[str, ...]]] = {
    ("keys", "exponent"): ("distribution", (ZIPF,)),
    ("keys", "hot_keys"): ("distribution", (MOVING_HOT_SET,)),
    ("keys", "hot_share"): ("distribution", (MOVING_HOT_SET,)),
    ("keys", "sweeps"): ("distribution", (MOVING_HOT_SET,)),
    ("values", "min_bytes"): ("sizes", (UNIFORM, LOGNORMAL)),
    ("values", "max_bytes"): ("sizes", (UNIFORM, LOGNORMAL)),
    ("values", "sigma"): ("sizes", (LOGNORMAL,)),
}
"""Keys that have an effect only if another key of the table has one of these values."""


def parse(text: str) -> Spec:
    """Parse a workload from TOML.

    Parameters
    ----------
    text : str
        Top-level keys: `topic`, `records`, `partitions`, `seed`, and `preset`, which provides
        defaults. Tables: `TABLES`, and `configs` with Kafka's keys.

    Raises
    ------
    InvalidConfigurationError
        The text is not valid TOML, a key, table or preset is unknown (the message suggests the
        closest name), or a value has the wrong type, is out of range or contradicts another value.
    """
    return from_mapping(read_toml(text, "workload"))


def from_mapping(tree: Mapping[str, Any], *, must_compact: bool = True) -> Spec:
    """Build a workload from parsed TOML. Raises the same errors as `parse`.

    Parameters
    ----------
    must_compact : bool
        Whether to reject a topic that is not compacted.
    """
    values = dict(tree)
    name = values.pop("preset", None)
    if name is not None:
        if not isinstance(name, str) or name not in PRESETS:
            raise InvalidConfigurationError(
                f"unknown preset {name!r}; presets are {', '.join(PRESETS)}"
                f"{and_nearest(str(name), PRESETS)}"
            )
        values = merge_tables(PRESETS[name], values)
    values = {
        name: read_table(TABLES[name], value, f"{name}.") if name in TABLES else value
        for name, value in values.items()
    }
    _refuse_ineffective(tree, values)
    values["configs"], _ = alter_overrides(
        DEFAULT_CONFIGS, flatten_configs(values.get("configs", {})), ()
    )
    if must_compact:
        _check_compacts(values["configs"])
    return read_table(Spec, values, "", also=("preset",), ready=(*TABLES, "configs"))


def _check_compacts(configs: Mapping[str, str]) -> None:
    if not effective_config(configs).compact:
        raise InvalidConfigurationError(
            f"configs cleanup.policy {configs.get('cleanup.policy')!r} does not include compact"
        )


def _refuse_ineffective(tree: Mapping[str, Any], tables: Mapping[str, Any]) -> None:
    """Reject keys that have no effect, except those from the preset."""
    for (table, name), (choice, values) in _NEEDS.items():
        given = tree.get(table)
        if isinstance(given, Mapping) and name in given:
            chosen = getattr(tables[table], choice)
            if chosen not in values:
                raise InvalidConfigurationError(
                    f"{table}.{name} {given[name]!r} has no effect with "
                    f"{table}.{choice} {chosen!r}: "
                    f"it needs {' or '.join(map(repr, values))}"
                )
    given = tree.get("producers")
    share = given.get("abort_share") if isinstance(given, Mapping) else None
    if share and not tables["producers"].transactional:
        raise InvalidConfigurationError(
            f"producers.abort_share {share} needs producers.transactional above 0"
        )
