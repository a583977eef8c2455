"""Simulations equal the results of Kafka's log and cleaner, day by day, to the byte."""

import pytest

from tests.interop import simulated

pytestmark = pytest.mark.interop

KIB = 1024
SCENARIOS = {
    "updates and deletes": {
        "days": 12,
        "keys": {"count": 2_000, "exponent": 0.8},
        "deletes": {"share": 0.1},
        "time": {"arrival": "poisson", "daily_swing": 0.7},
        "configs": {"cleanup.policy": "compact", "delete.retention.ms": "1d"},
    },
    "both lags": {
        "days": 12,
        "keys": {"count": 20_000, "distribution": "uniform"},
        "deletes": {"share": 0.05},
        "configs": {
            "cleanup.policy": "compact",
            "segment.ms": "12h",
            "min.compaction.lag.ms": "6h",
            "max.compaction.lag.ms": "2d",
            "delete.retention.ms": "6h",
        },
    },
    "transactions": {
        "days": 8,
        "keys": {"count": 3_000},
        "deletes": {"share": 0.05},
        "producers": {
            "count": 3, "transactional": 2, "transaction_records": 40, "abort_share": 0.2,
        },
        "configs": {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.2"},
    },
    "compact and delete": {
        "days": 12,
        "keys": {"count": 5_000},
        "configs": {
            "cleanup.policy": "compact,delete",
            "retention.ms": "4d",
            "segment.ms": "1d",
            "min.cleanable.dirty.ratio": "0.3",
        },
    },
    "compressed bursts": {
        "days": 8,
        "keys": {"count": 1_000, "distribution": "moving-hot-set", "hot_keys": 50},
        "time": {"burst_share": 0.7, "late_share": 0.1},
        "batches": {"min_records": 5, "max_records": 60, "codec": "lz4"},
        "configs": {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.4"},
    },
}  # fmt: skip


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_simulation_equals_kafkas_result(name, kafka3, scratch, row):
    report = SCENARIOS[name]
    topic = {
        "name": "simulated", "records": 15_000, "values": {"bytes": 80},
        "batches": {"min_records": 5, "max_records": 40},
        **{key: value for key, value in report.items() if key != "days"},
    }  # fmt: skip
    topic["configs"] = {"segment.bytes": str(64 * KIB), **topic["configs"]}
    diary, scenario = simulated.live({"days": report["days"], "topics": [topic]})
    days = simulated.follow(diary, scenario, kafka3, scratch)
    assert days == report["days"]
    assert diary.passes > 2
    assert diary.removals > 2 or name != "compact and delete"
    row("days of simulations lived by Kafka's log and cleaner, to the byte", kafka3, days)
