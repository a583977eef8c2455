"""The surviving record of a key: the strategy in force, a record's order, KIP-280's advice."""

from __future__ import annotations

import pytest

from logstore.cleaner.strategy import Order, Strategy, recommendations
from logstore.config.log_config import LogConfig
from logstore.record.varint import encode_varint

LOWEST, HIGHEST = -(2**63), 2**63 - 1
BY_HEADER = Strategy("header", "v")
BY_VARLONG = Strategy("header", "v", "varlong")


def long(version: int) -> bytes:
    return version.to_bytes(8, "big", signed=True)


def configured(**fields: object) -> Strategy:
    return Strategy.of(LogConfig(**fields))


# --- the strategy in force --------------------------------------------------------------------


def test_offset_is_the_default_strategy() -> None:
    strategy = configured()
    assert strategy == Strategy() == Strategy("offset")
    assert not strategy.has_versions
    assert strategy.entry_bytes == 24


@pytest.mark.parametrize("name", ("", "   ", "v"))
def test_the_headers_name_counts_under_strategy_header_only(name: str) -> None:
    for strategy in ("offset", "timestamp"):
        found = configured(compaction_strategy=strategy, compaction_strategy_header=name)
        assert found == Strategy(strategy)
        assert found.header == ""


@pytest.mark.parametrize("name", ("", " ", "\t\n"))
def test_strategy_header_without_a_name_is_offset(name: str) -> None:
    found = configured(compaction_strategy="header", compaction_strategy_header=name)
    assert found == Strategy()
    assert found.entry_bytes == 24


def test_strategies_with_versions_count_32_bytes_an_entry() -> None:
    for strategy in (configured(compaction_strategy="timestamp"), BY_HEADER):
        assert strategy.has_versions
        assert strategy.entry_bytes == 32


def test_the_encoding_counts_under_strategy_header_only() -> None:
    varlong = {"logstore_compaction_strategy_header_encoding": "varlong"}
    header = {"compaction_strategy": "header", "compaction_strategy_header": "v"}
    assert configured(**header) == BY_HEADER
    assert configured(**header, **varlong) == BY_VARLONG
    assert configured(compaction_strategy="timestamp", **varlong) == Strategy("timestamp")


# --- versions in headers ----------------------------------------------------------------------


@pytest.mark.parametrize("version", (LOWEST, -256, -1, 0, 1, 255, 2**62, HIGHEST))
def test_a_version_is_a_signed_big_endian_number(version: int) -> None:
    assert BY_HEADER.version_in([("v", long(version))]) == version
    assert BY_VARLONG.version_in([("v", encode_varint(version))]) == version


def test_names_are_compared_exactly() -> None:
    assert BY_HEADER.version_in([("V", long(1)), ("vv", long(2)), ("", long(3))]) is None
    assert Strategy("header", "größe").version_in([("größe", long(4))]) == 4


def test_the_last_of_several_headers_counts_whatever_the_others_say() -> None:
    assert BY_HEADER.version_in([("v", long(9)), ("w", long(7)), ("v", long(1))]) == 1
    assert BY_HEADER.version_in([("v", b"bad"), ("v", None), ("v", long(1))]) == 1
    assert BY_HEADER.version_in([("v", long(9)), ("v", None)]) is None
    assert BY_HEADER.version_in([("v", long(9)), ("v", b"1234")]) is None
    assert BY_HEADER.version_in([("v", long(9)), ("w", None)]) == 9


@pytest.mark.parametrize("value", (None, b"", b"1234", bytes(7), bytes(9), bytes(16)))
def test_only_8_bytes_are_a_version(value: bytes | None) -> None:
    assert BY_HEADER.version_in([("v", value)]) is None


@pytest.mark.parametrize(
    ("value", "version"),
    (
        (b"\x00", 0),
        (b"\x01", -1),
        (b"\x80\x01", 64),
        (b"\x80\x00", 0),  # longer than necessary, as Kafka's reader allows
        (b"\xff" * 9 + b"\x01", LOWEST),
        (None, None),
        (b"", None),
        (b"\x80", None),
        (b"\x02\x00", None),
        (b"\x80" * 10, None),
        (b"\x80" * 10 + b"\x00", None),
        (long(1), None),
    ),
)
def test_a_varlong_fills_its_header(value: bytes | None, version: int | None) -> None:
    assert BY_VARLONG.version_in([("v", value)]) == version


# --- order ------------------------------------------------------------------------------------


def test_by_offset_nothing_else_counts() -> None:
    order = Strategy().order_of
    assert order(1, 99, [("v", long(9))]) < order(2, -1, [])


def test_by_timestamp_the_larger_wins_and_among_equals_the_later() -> None:
    order = Strategy("timestamp").order_of
    assert order(1, 10, []) > order(2, 9, [])
    assert order(1, 10, []) < order(2, 10, [])
    assert order(1, -1, []) > order(2, LOWEST, [])
    assert order(1, -1, []) == Order(True, -1, 1), "-1 is a small timestamp, not a missing one"


def test_by_header_any_version_is_above_none() -> None:
    order = BY_HEADER.order_of
    assert order(1, 0, [("v", long(LOWEST))]) > order(2, 99, [])
    assert order(1, 0, [("v", long(-2))]) < order(2, 0, [("v", long(-1))])
    assert order(1, 0, [("v", long(HIGHEST))]) > order(2, 0, [("v", long(LOWEST))])
    assert order(1, 0, [("v", long(5))]) < order(2, 0, [("v", long(5))])
    assert order(1, 0, [("v", b"x")]) < order(2, 0, []), "malformed is missing: the later wins"


# --- KIP-280's advice -------------------------------------------------------------------------


def advice(**fields: object) -> list[str]:
    fields = {"cleanup_policy": ("compact",), "compaction_strategy": "timestamp"} | fields
    return list(recommendations(LogConfig(**fields)))


def test_segments_and_lags_should_stay_below_the_retention_of_tombstones() -> None:
    fits = {"segment_ms": 999, "max_compaction_lag_ms": 999, "delete_retention_ms": 1000}
    assert advice(**fits) == []
    (segment,) = advice(**fits | {"segment_ms": 1000})
    assert segment.startswith("segment.ms 1000 is not below delete.retention.ms 1000")
    (lag,) = advice(**fits | {"max_compaction_lag_ms": 1000})
    assert lag.startswith("max.compaction.lag.ms 1000 is not below delete.retention.ms 1000")
    assert len(advice()) == 2, "Kafka's defaults: a week, and no limit at all"


def test_no_advice_where_no_version_counts() -> None:
    assert advice(compaction_strategy="offset") == []
    assert advice(compaction_strategy="offset", compaction_strategy_header="v") == []


def test_a_topic_that_is_not_compacted_yet_is_advised_all_the_same() -> None:
    assert advice(cleanup_policy=("delete",)) == advice()


def test_a_strategy_without_the_headers_name_is_pointed_out() -> None:
    (text,) = advice(compaction_strategy="header")
    assert "compaction.strategy.header names none" in text
    assert len(advice(compaction_strategy="header", compaction_strategy_header="v")) == 2
