"""`--format csv`: every command's items as rows; null, bytes and nested values are distinct."""

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
    """Return the JSON value of a row, as far as CSV preserves it."""
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


def test_every_command_supports_csv(run):
    for name in COMMANDS:
        if name != "topic":
            assert "table|json|jsonl|csv" in run(name, "--help").stdout


def test_columns_of_a_list_match_all_items():
    items = [json.dumps({"a": number}) for number in range(30)]
    last = json.dumps({"a": None, "b": [True]})
    assert next(csv_lines([*items, last])) == "a,b"
    assert next(csv_lines(iter([*items, last]))) == "a"
    assert list(csv_lines([items[3], last])) == ["a,b", r"3,\N", r"\N,[true]"]
    assert list(csv_lines([])) == []


HOSTILE = [
    (b"esc", b"\x1b[31mred\x07"),
    (b"\x00nul", b"a\rb"),
    (b"lines", b"a\nb\tc\n"),
    (b"=1+1", b"@SUM(A1)"),
    (b"+1", b"-1"),
    (b"\t=1", "\uff1d1".encode()),
    (b"plain", b"1=1"),
]
ESCAPED = [
    ("esc", NULL, r"\x1b[31mred\x07", "G1szMW1yZWQH"),
    (r"\x00nul", "AG51bA==", r"a\rb", "YQ1i"),
    ("lines", NULL, "a\nb\tc\n", NULL),
    ("=1+1", NULL, "@SUM(A1)", NULL),
    ("+1", NULL, "-1", NULL),
    ("\t=1", NULL, "\uff1d1", NULL),
    ("plain", NULL, "1=1", NULL),
]
TEXT_AND_BASE64 = ("key", "key_base64", "value", "value_base64")


@pytest.fixture(params=("read", "export"))
def written(request, run, data_dir, tmp_path):
    """Return the CSV that a command writes for a topic with hostile keys and values."""
    with Broker(data_dir) as broker:
        broker.create_topic("t")
        broker.append_many("t", HOSTILE)

    def write(*options):
        if request.param == "read":
            return run("read", "t", "--format", "csv", *options).stdout
        path = tmp_path / "t.csv"
        run("export", "t", "--out", path, "--overwrite", *options)
        return path.read_bytes().decode()

    return write


def test_control_characters_are_escaped_and_the_bytes_kept_in_base64(written):
    text = written()
    assert not any(character in text for character in "\x1b\x07\x00")
    assert [tuple(row[name] for name in TEXT_AND_BASE64) for row in rows_of(text)] == ESCAPED


def test_formulas_get_an_apostrophe_on_request(written):
    found = [(row["key"], row["value"]) for row in rows_of(written("--escape-formulas"))]
    assert found[3:] == [
        ("'=1+1", "'@SUM(A1)"),
        ("'+1", "'-1"),
        ("'\t=1", "'\uff1d1"),
        ("plain", "1=1"),
    ]
    offsets = [row["offset"] for row in rows_of(written("--escape-formulas"))]
    assert offsets == [str(offset) for offset in range(len(HOSTILE))]


def test_decoded_keys_and_values_are_escaped(run, data_dir, tmp_path):
    path = tmp_path / "t.csv"
    with Broker(data_dir) as broker:
        broker.create_topic("t")
        broker.append("t", key=b"-1", value=b'"\x7f"')
    run(
        *("export", "t", "--out", path, "--escape-formulas"),
        *("--key-format", "json", "--value-format", "json"),
    )
    (row,) = rows_of(path.read_text())
    assert (row["decoded_key"], row["decoded_value"]) == ("'-1", r'"\x7f"')


def test_texts_of_other_commands_are_escaped(run, data_dir):
    run("topic", "create", "t")
    (data_dir / "odd\x1bname").mkdir()
    text = run("check", "--format", "csv", code=None).stdout
    assert "\x1b" not in text
    assert "odd\\x1bname" in text


def test_line_ends_inside_of_a_cell_are_retained():
    for text in ("a\nb", "a\r\nb", "a\n"):
        [row] = rows_of("\n".join(csv_lines([json.dumps({"value": text})])))
        assert row == {"value": text, "value_base64": NULL}
