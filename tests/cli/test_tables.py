from __future__ import annotations

import pytest
from click.testing import CliRunner

from logstore import Broker
from logstore.cli.main import main
from logstore.cli.show import tables
from logstore.cli.show.inspect import section_bar
from logstore.cli.show.output import one_line, plural
from logstore.cli.show.prose import wrapped
from logstore.cli.show.tables import Styled, Table
from logstore.reasons.formats import format_size


def test_columns_are_aligned():
    table = Table(("name", "count"), right=("count",))
    assert list(table.lines([("a", "1"), (Styled("long name", "bold"), "1000")])) == [
        "name       count",
        "─" * 16,
        "a              1",
        "long name   1000",
    ]


def test_cells_have_no_control_characters():
    """Names that others gave are in many of them: of headers, folders and files."""
    cells = ("\x1b[31mred\x07", Styled("a\nb", "bold"))
    assert list(Table(("name", "text")).lines([cells]))[2:] == ["\\x1b[31mred\\x07  a\\nb"]


def test_sentences_have_no_control_characters():
    assert wrapped("a \x1b[31m\nb") == ["a \\x1b[31m b"]
    assert one_line("a \x1b[31m\nb") == "a \\x1b[31m b"


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


def test_last_column_moves_to_the_next_line_if_space_is_short(monkeypatch):
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


@pytest.fixture
def terminal(monkeypatch):
    """Bound the output by a width, as a terminal does."""

    def resize(columns):
        monkeypatch.setenv("COLUMNS", str(columns))

    return resize


def test_long_texts_are_cut_to_the_terminal_and_numbers_never(terminal):
    terminal(40)
    table = Table(("key", "offset", "value"), right=("offset",))
    rows = [("k" * 30, "1" * 12, "v" * 100), ("a", "2", "b")]
    assert list(table.lines(rows)) == [
        "key                 offset  value",
        "─" * 40,
        f"{'k' * 11}…  111111111111  {'v' * 11}…",
        "a                        2  b",
    ]
    assert max(map(len, Table(("a", "b")).lines([("x" * 9, "y" * 200)]))) == 40


def test_cells_that_fit_are_not_cut_and_others_get_the_minimal_width(terminal):
    terminal(40)
    assert list(Table(("a", "b")).lines([("x" * 19, "y" * 19)]))[2] == f"{'x' * 19}  {'y' * 19}"
    numbers = Table(("n", "text"), right=("n",))
    assert list(numbers.lines([("1" * 50, "x" * 50)]))[2] == f"{'1' * 50}  {'x' * 7}…"
    assert list(numbers.lines([("1" * 50, "x" * 8)]))[2] == f"{'1' * 50}  {'x' * 8}"


def test_rows_after_the_first_ones_are_cut_too(terminal):
    terminal(20)
    rows = [("a", "b")] * 300 + [("a" * 30, "b" * 30)]
    *_, last = Table(("k", "v")).lines(rows)
    assert len(last) <= 20


def test_a_folded_column_is_folded_and_the_others_are_cut_only_if_they_fill_the_line(terminal):
    terminal(40)
    table = Table(("key", "meaning"), wrap=True)
    assert list(table.lines([("k" * 36, "words")]))[2:] == ["k" * 36, "    words"]
    assert list(table.lines([("k" * 60, "words")]))[2:] == [f"{'k' * 39}…", "    words"]


def test_no_cell_is_cut_with_full_or_without_a_terminal(terminal, monkeypatch):
    terminal(40)
    tables.cut_cells(False)
    try:
        assert len(list(Table(("a",)).lines([("x" * 300,)]))[2]) == 300
    finally:
        tables.cut_cells(True)
    monkeypatch.delenv("COLUMNS")
    assert len(list(Table(("a",)).lines([("x" * 300,)]))[2]) == 300


def test_full_shows_the_whole_value(run, data_dir, monkeypatch):
    with Broker(data_dir) as broker:
        broker.create_topic("t")
        broker.append("t", key=b"k", value=b"v" * 500, timestamp=1_700_000_000_000)
    narrow = CliRunner(env={"LOGSTORE_DATA_DIR": str(data_dir), "COLUMNS": "80"})
    cut = narrow.invoke(main, ["read", "t"]).stdout
    assert 78 <= max(map(len, cut.splitlines())) <= 80
    assert "000Z" in cut
    assert "…" in cut
    assert "v" * 500 in narrow.invoke(main, ["read", "t", "--full"]).stdout
    assert "…" in narrow.invoke(main, ["read", "t"]).stdout
    assert "v" * 500 in run("read", "t").stdout


def test_a_truncated_partition_keeps_its_number(monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    table = Table(("partition", "size"), right=("size",))
    rows = [("__consumer_offsets-7", "1 B"), ("__consumer_offsets-42", "1 B"), ("x" * 30, "2 B")]
    assert list(table.lines(rows))[2:] == [
        "__consumer_…-7   1 B",
        "__consumer…-42   1 B",
        "xxxxxxxxxxxxx…   2 B",
    ]
