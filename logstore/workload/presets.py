"""Built-in workloads, in the structure of a workload file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PRESETS: Mapping[str, Mapping[str, Any]] = {
    # KIP-354: personal data that must be deleted within a bounded time.
    "user-accounts": {
        "topic": "user-accounts",
        "keys": {"count": 1_000_000, "prefix": "user-", "distribution": "zipf", "exponent": 0.8},
        "values": {"sizes": "lognormal", "bytes": 300, "sigma": 0.6, "max_bytes": 4_000},
        "deletes": {"share": 0.02},
        "time": {"days": 30.0, "daily_swing": 0.7},
        "batches": {"min_records": 1, "max_records": 50, "codec": "lz4"},
        "configs": {
            "cleanup.policy": "compact",
            "segment.bytes": "67108864",
            "min.compaction.lag.ms": "86400000",  # consumers have a day to read each change
            "max.compaction.lag.ms": "604800000",  # a deleted user is removed within a week
            "delete.retention.ms": "86400000",
        },
    },
    # Few keys with tiny values that are constantly rewritten, as by a group coordinator.
    "consumer-offsets": {
        "topic": "consumer-offsets",
        "partitions": 50,
        "keys": {"count": 20_000, "prefix": "group-topic-", "distribution": "uniform"},
        "values": {"sizes": "fixed", "bytes": 24, "content": "random"},
        "deletes": {"share": 0.001},
        "time": {"days": 7.0},
        "batches": {"min_records": 1, "max_records": 20},
        "configs": {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": "104857600",
        },
    },
    # Table changes in transactions. A delete is an event followed by a tombstone.
    "cdc-table": {
        "topic": "cdc-table",
        "keys": {"count": 500_000, "prefix": "row-", "distribution": "zipf", "exponent": 1.0},
        "values": {"sizes": "lognormal", "bytes": 500, "sigma": 0.8, "max_bytes": 10_000},
        "deletes": {"share": 0.05, "with_event": True},
        "time": {"days": 14.0, "daily_swing": 0.5},
        "versions": {"header": "lsn"},
        "producers": {"count": 2, "transactional": 2, "transaction_records": 50,
                      "abort_share": 0.03},
        "batches": {"min_records": 10, "max_records": 200, "codec": "zstd"},
        "configs": {
            "cleanup.policy": "compact",
            "compaction.strategy": "header",
            "compaction.strategy.header": "lsn",
            "segment.bytes": "134217728",
            "delete.retention.ms": "172800000",  # enough for a consumer that stops over a weekend
        },
    },
    # Sensors that buffer while offline. The latest measurement counts, not the last one sent.
    "iot-last-value": {
        "topic": "iot-last-value",
        "keys": {"count": 200_000, "prefix": "device-", "distribution": "uniform"},
        "values": {"sizes": "uniform", "min_bytes": 40, "max_bytes": 120},
        "time": {"days": 3.0, "late_share": 0.1, "late_ms": 7_200_000},
        "versions": {"header": "measured", "late_share": 0.1, "late_records": 50_000},
        "producers": {"count": 16},
        "batches": {"min_records": 20, "max_records": 100, "codec": "snappy"},
        "configs": {
            "cleanup.policy": "compact",
            "compaction.strategy": "header",
            "compaction.strategy.header": "measured",
            "segment.bytes": "67108864",
            "min.cleanable.dirty.ratio": "0.1",
        },
    },
    # Sessions that are created, updated for a while, and deleted when they expire.
    "session-store": {
        "topic": "session-store",
        "keys": {"count": 100_000, "prefix": "session-", "distribution": "moving-hot-set",
                 "hot_keys": 5_000, "hot_share": 1.0},
        "values": {"sizes": "uniform", "min_bytes": 100, "max_bytes": 600},
        "deletes": {"on_expiry": True},
        "time": {"days": 2.0, "daily_swing": 0.8},
        "producers": {"count": 4},
        "batches": {"min_records": 5, "max_records": 50},
        "configs": {
            "cleanup.policy": "compact,delete",
            "retention.ms": "86400000",  # removes sessions after a day if the delete is missing
            "segment.ms": "3600000",
            "segment.bytes": "67108864",
            "delete.retention.ms": "3600000",
        },
    },
    # A combination of everything that is difficult for a cleaner.
    "adversarial": {
        "topic": "adversarial",
        "records": 200_000,
        "partitions": 3,
        "keys": {"count": 5_000, "prefix": "", "distribution": "zipf", "exponent": 1.4},
        "values": {"sizes": "lognormal", "bytes": 20, "sigma": 2.5, "max_bytes": 60_000,
                   "content": "random"},
        "deletes": {"share": 0.3},
        "time": {"days": 60.0, "daily_swing": 0.95, "late_share": 0.3, "late_ms": 864_000_000},
        "versions": {"header": "version", "late_share": 0.3, "late_records": 100_000,
                     "missing_share": 0.1, "malformed_share": 0.05},
        "producers": {"count": 7, "transactional": 4, "transaction_records": 17,
                      "abort_share": 0.4},
        "batches": {"min_records": 1, "max_records": 7, "codec": "gzip"},
        "configs": {
            "cleanup.policy": "compact",
            "compaction.strategy": "header",
            "compaction.strategy.header": "version",
            "segment.bytes": "1048576",
            "segment.ms": "43200000",
            "index.interval.bytes": "512",
            "delete.retention.ms": "3600000",
        },
    },
}  # fmt: skip
