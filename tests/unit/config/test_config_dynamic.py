"""What may change while a broker runs, and what comes of it."""

import pytest

from logstore.config.broker_config import BrokerConfig
from logstore.config.dynamic import RECONFIGURABLE_KEYS, reconfigured
from logstore.config.overrides import effective_config
from logstore.errors import InvalidConfigurationError


def broker(**properties):
    return BrokerConfig.from_properties(
        {key.replace("_", "."): value for key, value in properties.items()}
    )


def test_fields_and_defaults_change_and_the_rest_stays():
    before = broker(log_cleaner_threads="2", log_retention_hours="5", log_segment_bytes="2000")
    after, notes = reconfigured(
        before,
        {
            "log.cleaner.threads": 4,
            "log.cleaner.backoff.ms": "7",
            "log.retention.ms": "1000",
            "log.preallocate": "true",
        },
    )
    assert (after.log_cleaner_threads, after.log_cleaner_backoff_ms) == (4, 7)
    effective = effective_config({}, after)
    assert (effective.retention_ms, effective.segment_bytes) == (1000, 2000)
    assert effective.preallocate is True
    assert notes == ()
    assert effective_config({}, before).retention_ms == 5 * 3_600_000


def test_none_gives_a_key_back_to_its_default():
    before = broker(log_cleaner_backoff_ms="9", log_cleaner_min_cleanable_ratio="0.1")
    after, _ = reconfigured(
        before, {"log.cleaner.backoff.ms": None, "log.cleaner.min.cleanable.ratio": None}
    )
    assert after.log_cleaner_backoff_ms == 15_000
    assert effective_config({}, after).min_cleanable_dirty_ratio == 0.5


def test_old_names_are_understood():
    after, notes = reconfigured(BrokerConfig(), {"cleaner.max.read.throughput": "5000"})
    assert after.logstore_cleaner_max_read_bytes_per_second == 5000
    assert notes == (
        "cleaner.max.read.throughput: old, read as "
        "logstore.cleaner.max.read.bytes.per.second = 5000",
    )


@pytest.mark.parametrize(
    "key", ("log.cleaner.enable", "log.dirs", "log.retention.hours", "nonsense")
)
def test_other_keys_are_refused_by_name(key):
    with pytest.raises(InvalidConfigurationError, match=f"{key} cannot be changed"):
        reconfigured(BrokerConfig(), {key: "true" if key == "log.cleaner.enable" else "1"})


@pytest.mark.parametrize(
    ("now", "wanted", "words"),
    (
        ("1", "0", "at least 1"),
        ("1", "3", "at most twice the present 1"),
        ("4", "1", "at least half of the present 4"),
        ("5", "2", "at least half of the present 5"),
        ("0", "1", "at most twice the present 0"),
    ),
)
def test_threads_change_by_a_factor_of_two_at_most(now, wanted, words):
    with pytest.raises(InvalidConfigurationError, match=words):
        reconfigured(broker(log_cleaner_threads=now), {"log.cleaner.threads": wanted})


@pytest.mark.parametrize(("now", "wanted"), (("1", "2"), ("4", "2"), ("5", "3"), ("2", "2")))
def test_threads_within_that_factor_are_taken(now, wanted):
    after, _ = reconfigured(broker(log_cleaner_threads=now), {"log.cleaner.threads": wanted})
    assert after.log_cleaner_threads == int(wanted)


@pytest.mark.parametrize(
    "changes",
    (
        {"log.cleaner.backoff.ms": "soon"},
        {"log.cleaner.backoff.ms": "-1"},
        {"log.cleaner.dedupe.buffer.size": "1048576"},
        {"log.cleaner.max.compaction.lag.ms": "5", "log.cleaner.min.compaction.lag.ms": "6"},
    ),
)
def test_wrong_values_and_contradictions_are_refused(changes):
    with pytest.raises(InvalidConfigurationError):
        reconfigured(BrokerConfig(), changes)


def test_the_keys_are_kafkas_dynamic_ones_and_this_engines():
    assert {"message.max.bytes", "log.cleaner.threads", "log.retention.ms"} <= RECONFIGURABLE_KEYS
    assert not {"log.cleaner.enable", "log.retention.hours"} & RECONFIGURABLE_KEYS
