"""Specs of workloads: a declarative TOML file, checked before anything starts.

`Spec` and its tables name every key with its default, range and meaning; a preset is a set of
values that a file may build upon. The table `configs` has Kafka's topic configurations by their own
names, checked by the engine. Needs neither Spark nor NumPy.
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
from logstore.workload.tables import Allowed, dotted, laid_over, read_table, read_toml, setting

BLOCK_RECORDS = 65_536
"""Records of a block, the unit in which a workload is made; part of what a seed means."""

ZIPF_KEYS_MAX = 50_000_000
"""A Zipf distribution is held as a table of 8 bytes a key."""

MEAN_VALUE_BYTES_MAX = 16_384
"""So that a block's values stay below 1 GiB."""

PROFILE_PARTS_MAX = 1_000_000
"""A profile is laid out over the whole time, with 24 bytes a part."""

MAX_MESSAGE_BYTES = "max.message.bytes"
DEFAULT_CONFIGS: Mapping[str, str] = {"cleanup.policy": "compact"}
"""Configurations of a topic that says nothing else: a workload is there to be cleaned."""

INT64_MAX = (1 << 63) - 1

ZIPF = "zipf"
UNIFORM = "uniform"
MOVING_HOT_SET = "moving-hot-set"

FIXED = "fixed"
LOGNORMAL = "lognormal"

_RECORD_OVERHEAD_MAX = 1 + 5 + 10 + 5 + 5 + 5 + 1
_CODEC_SHARE_MAX, _CODEC_BYTES_MAX = 128, 4096
"""Bytes that a codec adds to those that it cannot compress: one in so many, and so many."""

EVEN = "even"
POISSON = "poisson"

WORDS = "words"
RANDOM = "random"


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """Which keys there are and how often each is written."""

    count: int = setting(1_000_000, "Different keys.", 1, 1 << 40)
    prefix: str = setting("key-", "What a key begins with; its number follows in decimal digits.")
    distribution: str = setting(ZIPF, "Of the writes.", choice=(ZIPF, UNIFORM, MOVING_HOT_SET))
    exponent: float = setting(1.1, "Of zipf: key number n weighs (n+1)^-exponent.", 0.0, 10.0)
    hot_keys: int = setting(1_000, "Of moving-hot-set: keys that are hot at a time.", 1, 1 << 40)
    hot_share: float = setting(0.9, "Of moving-hot-set: share of the writes that go to them.", 0, 1)
    sweeps: float = setting(1.0, "How often the hot set passes over all keys in the run.", 0.0, 1e6)

    @property
    def digits(self) -> int:
        """Decimal digits of a key's number, zero-padded: all keys are equally long."""
        return len(str(self.count - 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """Sizes and contents of values."""

    sizes: str = setting(FIXED, "Distribution of the sizes.", choice=(FIXED, UNIFORM, LOGNORMAL))
    bytes: int = setting(100, "The size (fixed) or the median (lognormal).", 0, 1 << 20)
    min_bytes: int = setting(0, "Smallest, of uniform and lognormal.", 0, 1 << 20)
    max_bytes: int = setting(1_000, "Largest, of uniform and lognormal; inclusive.", 0, 1 << 20)
    sigma: float = setting(1.0, "Of lognormal: deviation of the size's logarithm.", 0.0, 4.0)
    content: str = setting(WORDS, "Compressible text, or bytes that no codec makes smaller.",
                        choice=(WORDS, RANDOM))  # fmt: skip

    @property
    def largest_bytes(self) -> int:
        """The largest size there can be."""
        return self.bytes if self.sizes == FIXED else self.max_bytes

    @property
    def mean_bytes(self) -> float:
        """Expected size; for lognormal an upper bound, as the limits are applied later."""
        if self.sizes == FIXED:
            return self.bytes
        if self.sizes == UNIFORM:
            return (self.min_bytes + self.max_bytes) / 2
        return min(self.max_bytes, self.min_bytes + self.bytes * math.exp(self.sigma**2 / 2))


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletes:
    """Deletion of keys."""

    share: float = setting(0.0, "Share of the writes that delete their key.", 0.0, 1.0)
    with_event: bool = setting(
        False, "A delete is a record with a value first, its tombstone follows (Debezium's way)."
    )
    on_expiry: bool = setting(
        False, "A key is deleted when it leaves the moving hot set (a session's time to live)."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Time:
    """Arrival of records in virtual time, and the lag of their timestamps."""

    start: str = setting("2024-01-01T00:00:00Z", "Arrival of the first record, ISO 8601.")
    days: float = setting(1.0, "Virtual days over which the records arrive.", 0.0, 36_500.0)
    daily_swing: float = setting(
        0.0,
        "0: evenly; towards 1: noon busy, midnight quiet (rate at noon 1/(1-swing)).",
        0.0,
        0.99,
    )
    arrival: str = setting(
        EVEN, "Between the moments: always alike, or by chance.", choice=(EVEN, POISSON)
    )
    burst_share: float = setting(0.0, "Share of the records that come in bursts.", 0.0, 1.0)
    burst_every_ms: int = setting(3_600_000, "From one burst to the next.", 1, 1 << 40)
    burst_ms: int = setting(60_000, "How long each takes.", 1, 1 << 40)
    profile: tuple[float, ...] = setting(
        (), "How much comes in each of so many equal parts of the time; empty: equally much.", 0.0
    )
    profile_days: float = setting(
        0.0,
        "After how many days the profile begins again, counted from Monday, 0:00 UTC; 0: never.",
        0.0,
        366.0,
    )
    late_share: float = setting(0.0, "Share of records with a timestamp that lags.", 0.0, 1.0)
    late_ms: int = setting(600_000, "Largest lag of such a timestamp.", 1, 1 << 40)

    @property
    def start_ms(self) -> int:
        """The start in milliseconds since the epoch; a time without a zone is UTC."""
        moment = datetime.fromisoformat(self.start)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        since = moment - datetime(1970, 1, 1, tzinfo=UTC)
        return (since.days * DAY_MS) + since.seconds * 1000 + since.microseconds // 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """The version header of KIP-280: 8 bytes, big-endian, rising with the event at the source."""

    header: str = setting("", "Its name; empty: records bear no version.")
    first: int = setting(1, "Version of the first event.", 0, 1 << 62)
    late_share: float = setting(0.0, "Share of records that bear an older version.", 0.0, 1.0)
    late_records: int = setting(10_000, "How many events older at most.", 1, 1 << 40)
    missing_share: float = setting(0.0, "Share of records without the header.", 0.0, 1.0)
    malformed_share: float = setting(0.0, "Share of records whose header is no 8 bytes.", 0.0, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Producers:
    """The producers: each fills a batch a partition and sends it when full (KIP-280's race).

    So two updates of a key by two producers can arrive in the other order.
    """

    count: int = setting(1, "Producers at work at the same time.", 1, 1_000)
    transactional: int = setting(0, "How many of them write in transactions.", 0, 1_000)
    transaction_records: int = setting(100, "Records of a transaction.", 1, BLOCK_RECORDS)
    abort_share: float = setting(0.0, "Share of the transactions that are aborted.", 0.0, 1.0)
    idempotent: bool = setting(
        True, "Producers without transactions number their batches (Kafka's default since 3.0)."
    )

    @property
    def with_id(self) -> int:
        """Number of producers with an id; ids are their numbers."""
        return self.count if self.idempotent else self.transactional


@dataclass(frozen=True, slots=True, kw_only=True)
class Batches:
    """Packing of records into batches."""

    min_records: int = setting(100, "Fewest records of a full batch.", 1, BLOCK_RECORDS)
    max_records: int = setting(100, "Most records of a batch, inclusive.", 1, BLOCK_RECORDS)
    codec: str = setting("none", "Compression.", choice=("none", "gzip", "snappy", "lz4", "zstd"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """A workload; equal specs make equal bytes.

    Raises
    ------
    InvalidConfigurationError
        Values that are each allowed contradict one another.
    """

    topic: str = setting("workload", "Topic to write.")
    records: int = setting(1_000_000, "Records in all partitions, markers not counted.", 1, 1 << 40)
    partitions: int = setting(8, "Partitions; a key's is Kafka's default, by murmur2.", 1, 10_000)
    seed: int = setting(1, "Seed of everything random.", 0, (1 << 64) - 1)
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
        metadata={"allowed": Allowed("The topic's configurations, by Kafka's names.")},
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
            f"keys.count {keys.count} is above {ZIPF_KEYS_MAX}, the most that zipf can have",
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
            f"keys, more than there are records ({self.records})",
        )
        yield (
            not versions.header
            and versions.late_share + versions.missing_share + versions.malformed_share > 0,
            "versions.late_share, missing_share and malformed_share need versions.header",
        )
        yield (
            versions.missing_share + versions.malformed_share > 1,
            "versions.missing_share and versions.malformed_share are above 1 together",
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
        yield bool(time.profile) and not sum(time.profile), "time.profile has nothing in any part"
        yield (
            bool(time.profile_days) and not time.profile,
            f"time.profile_days {time.profile_days:g} needs a time.profile",
        )
        parts = len(time.profile) * time.days / time.profile_days if time.profile_days else 0
        yield (
            parts > PROFILE_PARTS_MAX,
            f"time.profile has {parts:.0f} parts in {time.days:g} days, above {PROFILE_PARTS_MAX}",
        )
        try:
            earliest = self.time.start_ms - (self.time.late_ms if self.time.late_share else 0)
        except ValueError as error:
            yield True, f"time.start {self.time.start!r} is no ISO 8601 time: {error}"
        else:
            yield (
                earliest < 0,
                f"time.start {self.time.start!r} minus time.late_ms lies before 1970: Kafka "
                "refuses negative timestamps",
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
                f"bytes, above {name} {limit}: allow more, or fewer or smaller records",
            )

    @property
    def largest_batch_bytes(self) -> int:
        """Bytes that no batch exceeds: as many records as it may have, the largest there are."""
        versions = self.versions.header.encode()
        header = 5 + len(versions) + 1 + 8 if versions else 0
        key = len(self.keys.prefix.encode()) + self.keys.digits
        record = _RECORD_OVERHEAD_MAX + key + self.values.largest_bytes + header
        section = self.batches.max_records * record
        return HEADER_SIZE + section + section // _CODEC_SHARE_MAX + _CODEC_BYTES_MAX

    @property
    def topic_configs(self) -> dict[str, str]:
        """The configs of the topic: `configs`, and room for the largest batch if it needs it.

        Who sets `max.message.bytes` has it as it is.
        """
        if self.largest_batch_bytes <= effective_config(self.configs).max_message_bytes:
            return dict(self.configs)
        return {**self.configs, MAX_MESSAGE_BYTES: str(self.largest_batch_bytes)}

    def with_configs(self, configs: Mapping[str, object]) -> Spec:
        """Return the workload with further configurations of the topic laid over its own.

        Raises
        ------
        InvalidConfigurationError
            One is unknown (with the nearest name), not allowed, or in contradiction to others.
        """
        changed = replace(self, configs=alter_overrides(self.configs, configs, ())[0])
        _check_compacts(changed.configs)
        return changed

    @property
    def blocks(self) -> int:
        """Number of blocks of the workload; the last may be short."""
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
"""Keys that mean nothing unless another key of their table has one of these values."""


def parse(text: str) -> Spec:
    """Read a workload from TOML.

    Parameters
    ----------
    text : str
        Top level: `topic`, `records`, `partitions`, `seed`, and `preset`, whose values stand
        where the text names none. Tables: `TABLES`, and `configs` with Kafka's keys.

    Raises
    ------
    InvalidConfigurationError
        No TOML; an unknown key, table or preset (with the nearest name); a value of a wrong type,
        out of range, or in contradiction to another.
    """
    return from_mapping(read_toml(text, "workload"))


def from_mapping(tree: Mapping[str, Any], *, must_compact: bool = True) -> Spec:
    """Build a workload from what `parse` reads; the same errors.

    Parameters
    ----------
    must_compact : bool
        Refuse a topic that is not there to be cleaned.
    """
    values = dict(tree)
    name = values.pop("preset", None)
    if name is not None:
        if not isinstance(name, str) or name not in PRESETS:
            raise InvalidConfigurationError(
                f"unknown preset {name!r}; there are {', '.join(PRESETS)}"
                f"{and_nearest(str(name), PRESETS)}"
            )
        values = laid_over(PRESETS[name], values)
    values = {
        name: read_table(TABLES[name], value, f"{name}.") if name in TABLES else value
        for name, value in values.items()
    }
    _refuse_idle(tree, values)
    values["configs"], _ = alter_overrides(DEFAULT_CONFIGS, dotted(values.get("configs", {})), ())
    if must_compact:
        _check_compacts(values["configs"])
    return read_table(Spec, values, "", also=("preset",), ready=(*TABLES, "configs"))


def _check_compacts(configs: Mapping[str, str]) -> None:
    if not effective_config(configs).compact:
        raise InvalidConfigurationError(
            f"configs cleanup.policy {configs.get('cleanup.policy')!r} does not compact: a "
            "workload is there to be cleaned"
        )


def _refuse_idle(tree: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    """Look whether what a file says itself counts; of a preset some keys may not."""
    for (table, name), (choice, values) in _NEEDS.items():
        said = tree.get(table)
        if isinstance(said, Mapping) and name in said:
            chosen = getattr(own[table], choice)
            if chosen not in values:
                raise InvalidConfigurationError(
                    f"{table}.{name} {said[name]!r} means nothing with "
                    f"{table}.{choice} {chosen!r}: "
                    f"it needs {' or '.join(map(repr, values))}"
                )
    said = tree.get("producers")
    share = said.get("abort_share") if isinstance(said, Mapping) else None
    if share and not own["producers"].transactional:
        raise InvalidConfigurationError(
            f"producers.abort_share {share} needs producers.transactional above 0"
        )
