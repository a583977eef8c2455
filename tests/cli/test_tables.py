from __future__ import annotations

import pytest

from logstore.cli.show import tables
from logstore.cli.show.inspect import section_bar
from logstore.cli.show.output import format_size, plural
from logstore.cli.show.tables import Styled, Table


def test_columns_are_aligned():
    table = Table(("name", "count"), right=("count",))
    assert list(table.lines([("a", "1"), (Styled("long name", "bold"), "1000")])) == [
        "name       count",
        "─" * 16,
        "a              1",
        "long name   1000",
    ]


def test_table_of_any_length_needs_its_first_rows_only():
    rows = ((str(number), "x") for number in range(10**9))
    lines = Table(("number", "text")).lines(rows)
    assert [next(lines) for _ in range(3)][2] == "0       x"


def test_last_column_is_folded_into_the_terminal(monkeypatch):
    monkeypatch.setattr(tables, "output_width", lambda: 40)
    table = Table(("key", "meaning"), wrap=True)
    assert list(table.lines([("a", "words " * 10)]))[2:] == [
        "a    words words words words words words",
        "     words words words words",
    ]


def test_last_column_goes_beneath_where_little_room_is_left(monkeypatch):
    monkeypatch.setattr(tables, "output_width", lambda: 40)
    table = Table(("key", "meaning"), wrap=True)
    assert list(table.lines([("x" * 30, "words " * 8), ("y", "")])) == [
        "key",
        "─" * 32,
        "x" * 30,
        "    words words words words words words",
        "    words words",
        "y",
    ]


@pytest.mark.parametrize(
    ("size", "text"),
    (
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (5_242_880, "5.0 MiB"),
        (2**50, "1024.0 TiB"),
    ),
)
def test_sizes(size, text):
    assert format_size(size) == text


def test_numbers_of_things():
    assert plural(1, "pass", "passes") == "1 pass"
    assert plural(2, "pass", "passes") == "2 passes"
    assert plural(1000, "record") == "1,000 records"


@pytest.mark.parametrize(
    ("sizes", "bar"),
    (
        ({"clean": 5, "dirty": 5}, "█████▓▓▓▓▓"),
        ({"clean": 999, "dirty": 1}, "█████████▓"),
        ({"clean": 1, "dirty": 1, "uncleanable": 1, "active": 997}, "█▓▒░░░░░░░"),
        ({"clean": 0, "active": 3}, "░░░░░░░░░░"),
    ),
)
def test_bar_shows_every_section_that_has_bytes(sizes, bar):
    assert next(section_bar(sizes, width=10)) == bar


def test_bar_of_nothing():
    assert list(section_bar({"clean": 0}, width=10)) == ["no data"]
