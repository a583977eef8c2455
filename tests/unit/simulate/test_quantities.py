"""Quantities of a run: their units, as texts and back, and the documentation's table."""

from pathlib import Path

import pytest

from logstore.errors import InvalidConfigurationError
from logstore.simulate.quantities import QUANTITIES, SWEPT, format_value, quantity
from tests.support.world.messages import exactly

DOCS = Path(__file__).parents[3] / "docs" / "SIMULATION.md"
UNITS = {"bytes": "size", "ms": "duration", "count": "number", "ratio": "number", "share": "share"}


@pytest.mark.parametrize(
    ("name", "text", "value", "shown"),
    (
        ("bytes", "1.5KiB", None, "bytes: '1.5KiB' is not a size"),
        ("bytes", "3MiB", 3 << 20, "3.0 MiB"),
        ("oldest", "90m", 5_400_000, "1h 30m"),
        ("oldest", "2", 2, "2ms"),
        ("live", "80%", 0.8, "80%"),
        ("live", "0.805", 0.805, "80%"),
        ("written", "1.5", 1.5, "1.50"),
        ("passes", "12345", 12345, "12,345"),
        ("passes", "80%", None, "passes: could not convert string to float: '80%'"),
        ("live", "x%", None, "live: could not convert string to float: 'x'"),
    ),
)
def test_a_value_has_the_unit_of_its_quantity(name, text, value, shown):
    asked = quantity(name)
    if value is None:
        with pytest.raises(InvalidConfigurationError) as refused:
            asked.parse(text)
        assert str(refused.value).startswith(shown)
    else:
        assert asked.parse(text) == value
        assert asked.format(value) == shown


def test_a_duration_is_rounded_and_a_count_has_no_fraction():
    assert quantity("oldest").format(1999.6) == "2s"
    assert quantity("passes").format(2.5) == "2"


def test_a_quantity_is_known_by_its_name_and_by_its_cost():
    for cost, each in QUANTITIES.items():
        assert quantity(cost) is quantity(each.name) is each
        assert each.cost == cost
    assert {*SWEPT} < {*QUANTITIES}
    with pytest.raises(
        InvalidConfigurationError,
        match=exactly("unknown quantity 'byte'; the nearest is 'bytes'"),
    ):
        quantity("byte")


@pytest.mark.parametrize(
    ("column", "value", "shown"),
    (
        ("oldest_dirty_ms", 61_000.4, "1m 1s"),
        ("bytes", 2048, "2.0 KiB"),
        ("swap_bytes", 10, "10 B"),
        ("cleaner_bytes_per_second", 1024, "1.0 KiB"),
        ("cleanable_ratio", 0.456, "0.46"),
        ("cleaner_load", 1, "1.00"),
        ("write_amplification", 1.234, "1.23"),
        ("live_records", 1234.5, "1,234"),
    ),
)
def test_a_column_says_its_unit_in_its_name(column, value, shown):
    assert format_value(column, value) == shown


def test_the_documentation_lists_all_quantities():
    rows = [
        f"| `{each.name}` | {UNITS[each.unit]} | {each.doc} (`{each.cost}`) |"
        for each in QUANTITIES.values()
    ]
    lines = DOCS.read_text(encoding="utf-8").splitlines()
    at = lines.index("| quantity | unit | meaning |") + 2
    assert lines[at : at + len(rows) + 1] == [*rows, ""]
