"""`--format csv`: every command's items as rows, with null, bytes and nested values kept apart."""

from __future__ import annotations

import csv
import io
import json

import pytest

from logstore import Broker
from logstore.cli.main import COMMANDS
from logstore.cli.show.csv_rows import NULL, csv_lines


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text, newline="")))


def restored(row):
    """Return the JSON value of a row, as far as CSV can tell."""
    return {name: None if text == NULL else text for name, text in row.items()}


@pytest.fixture
def topic(data_dir):
    with Broker(data_dir) as broker:
        broker.create_topic("t", 2)
        records = [(b"a", b'1,"2"\n3'), (None, None), (b"\xff", b""), (b"\\N", b"\\N")]
        broker.append_many("t", records, partition=0)
        broker.append("t", key=b"b", value=b"v", partition=1, headers=[("h", b"x")])


def test_records_keep_text_bytes_and_null_apart(run, topic):
    rows = rows_of(run("read", "t", "--format", "csv").stdout)
    found = [tuple(row[n] for n in ("key", "key_base64", "value", "value_base64")) for row in rows]
    assert found == [
        ("a", NULL, '1,"2"\n3', NULL),
        (NULL, NULL, NULL, NULL),
        (NULL, "/w==", "", NULL),
        (NULL, "XE4=", NULL, "XE4="),
        ("b", NULL, "v", NULL),
    ]
    assert json.loads(rows[-1]["headers"]) == [["h", "x"]]


@pytest.mark.parametrize(
    "command",
    (
        ("topic", "list"),
        ("topic", "describe", "t"),
        ("offsets", "t"),
        ("explain",),
        ("inspect",),
        ("inspect", "t", "--batches"),
        ("inspect", "t", "--partition", "1", "--fate"),
        ("retain", "--dry-run"),
        ("check",),
        ("clean", "--dry-run", "--now", "2030-01-01"),
        ("roll", "t", "--partition", "0"),
    ),
    ids=" ".join,
)
def test_rows_are_the_items_of_jsonl(run, topic, command):
    now = ("--now", "2030-01-01")
    items = run(*command, *now, "--format", "jsonl", code=None).jsonl
    rows = rows_of(run(*command, *now, "--format", "csv", code=None).stdout)
    if command[0] == "roll":
        assert rows[0]["topic"] == "t"
        return
    assert [restored(row) for row in rows] == [
        {
            name: value if value is None or isinstance(value, str) else json.dumps(value)
            for name in rows[0]
            for value in [item.get(name)]
        }
        for item in items
    ]
    assert all(set(item) <= set(rows[0]) for item in items)


def test_every_command_takes_it(run):
    for name in COMMANDS:
        if name != "topic":
            assert "table|json|jsonl|csv" in run(name, "--help").stdout


def test_columns_of_a_list_are_those_of_all_items():
    items = [json.dumps({"a": number}) for number in range(30)]
    last = json.dumps({"a": None, "b": [True]})
    assert next(csv_lines([*items, last])) == "a,b"
    assert next(csv_lines(iter([*items, last]))) == "a"
    assert list(csv_lines([items[3], last])) == ["a,b", r"3,\N", r"\N,[true]"]
    assert list(csv_lines([])) == []
