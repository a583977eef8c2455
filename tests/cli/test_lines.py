"""Input lines as records; the property test writes them as `read` does."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore.cli.commands.append_lines import MalformedLineError, numbered_lines, parse_tsv, parser
from logstore.cli.show.output import display_bytes, header_json, record_json
from logstore.record.records import Record
from logstore.storage.log import NewRecord
from tests.support.world.messages import exactly

parse = parser("jsonl").parse


@pytest.mark.parametrize(
    ("line", "record"),
    (
        ('{"value": null}', NewRecord(None, None)),
        ('{"key": "", "value": ""}', NewRecord(b"", b"")),
        ('{"key": null, "value": "ä"}', NewRecord(None, "ä".encode())),
        ('{"key_base64": "/w==", "value_base64": "AAE="}', NewRecord(b"\xff", b"\0\1")),
        ('{"value": "v", "timestamp": -1}', NewRecord(None, b"v", -1)),
        ('{"value": "v", "timestamp": null, "partition": null}', NewRecord(None, b"v")),
        (
            '{"value": "v", "headers": [["a", "1"], ["a", null], ["b", {"base64": "/w=="}]]}',
            NewRecord(None, b"v", None, (("a", b"1"), ("a", None), ("b", b"\xff"))),
        ),
        (
            '{"value": "v", "headers": [[{"base64": "/w=="}, "1"]]}',
            NewRecord(None, b"v", None, (("\udcff", b"1"),)),
        ),
        ('{"value": "v", "offset": 7, "topic": "t", "timestamp_type": 1}', NewRecord(None, b"v")),
        ('  {"value": "v"}\t', NewRecord(None, b"v")),
    ),
)
def test_line_is_read(line, record):
    assert parse(line.encode()) == (record, None)


def test_line_names_its_partition():
    assert parse(b'{"value": "v", "partition": 3}') == (NewRecord(None, b"v"), 3)


@pytest.mark.parametrize(
    ("line", "message"),
    (
        (b'{"key": "k"}', "value is missing"),
        (b'{"key": 1, "value": "v"}', "key must be a string or null, not a number"),
        (b'{"value": {"a": 1}}', "value must be a string or null, not an object"),
        (b'{"value": true}', "not a boolean"),
        (b'{"value": [1]}', "not a list"),
        (b'{"value": "v", "vlaue": 1}', "unknown name 'vlaue'"),
        (b'{"value": "v", "key": "k", "key_base64": "aw=="}', "both key and key_base64"),
        (b'{"value_base64": "?"}', "value_base64 is not base64"),
        (b'{"value_base64": 1}', "value_base64 must be a string"),
        (b'{"value": "v", "timestamp": "now"}', "timestamp must be Unix ms"),
        (b'{"value": "v", "timestamp": 1.5}', "timestamp must be Unix ms"),
        (b'{"value": "v", "timestamp": true}', "timestamp must be Unix ms"),
        (b'{"value": "v", "timestamp": -2}', "timestamp must be Unix ms"),
        (b'{"value": "v", "timestamp": 9223372036854775808}', "timestamp must be Unix ms"),
        (b'{"value": "v", "partition": -1}', "partition must be a number"),
        (b'{"value": "v", "partition": "0"}', "partition must be a number"),
        (b'{"value": "v", "headers": {"a": "1"}}', "headers must be a list"),
        (b'{"value": "v", "headers": "a"}', "headers must be a list"),
        (b'{"value": "v", "headers": 0}', "headers must be a list"),
        (b'{"value": "v", "headers": [["a"]]}', r"a header must be \[name, value\]"),
        (b'{"value": "v", "headers": [[null, "1"]]}', "name must not be null"),
        (b'{"value": "v", "headers": [["a", 1]]}', "header's value must be a string"),
        (b'{"value": "\\ud800"}', "lone surrogate"),
        (b'{"value": "v", "headers": [["\\ud800", null]]}', "lone surrogate"),
        (b'{"value": NaN}', "NaN is not a JSON number"),
        (b'{"value": "v"} {}', "extra text at column"),
        (b'{"value": "v"', "not JSON"),
        (b"[]", "expected a JSON object, not a list"),
        (b"null", "not null"),
        (b'{"value": "\xff"}', "not UTF-8"),
        (b"[" * 100_000, "not JSON"),
    ),
)
def test_a_malformed_line_is_reported_with_the_reason(line, message):
    with pytest.raises(MalformedLineError, match=message):
        parse(line)


def test_json_values_are_stored_as_compact_json():
    parse_json = parser("jsonl", json_values=True).parse
    record, _ = parse_json('{"key": 1, "value": {"a": [1.5, "ä", null, true]}}'.encode())
    assert record == NewRecord(b"1", '{"a":[1.5,"ä",null,true]}'.encode())
    assert parse_json(b'{"key": "k", "value": null}')[0] == NewRecord(b"k", None)


@pytest.mark.parametrize(
    ("line", "record"),
    (
        (b"k\tv", NewRecord(b"k", b"v")),
        (b"\t", NewRecord(b"", b"")),
        (b"\\N\t\\N", NewRecord(None, None)),
        (b"k\t\\N ", NewRecord(b"k", b"\\N ")),
        (b"k\ta\tb", NewRecord(b"k", b"a\tb")),
        (b"\xff\t\xfe", NewRecord(b"\xff", b"\xfe")),
    ),
)
def test_tsv_line_is_read(line, record):
    assert parse_tsv(line) == (record, None)


def test_tsv_line_needs_a_tab():
    with pytest.raises(MalformedLineError, match=exactly("no tab between key and value")):
        parse_tsv(b"key value")


def test_blank_lines_differ_by_format():
    assert parser("jsonl").is_blank(b" \t ")
    assert not parser("tsv").is_blank(b"\t")
    assert parser("tsv").is_blank(b"")


def test_lines_are_numbered_without_their_ends_and_byte_order_mark():
    stream = [b"\xef\xbb\xbfa\r\n", b"\n", b"\xef\xbb\xbfb"]
    assert list(numbered_lines(stream)) == [(1, b"a"), (2, b""), (3, b"\xef\xbb\xbfb")]


some_bytes = st.none() | st.binary(max_size=20) | st.text(max_size=20).map(str.encode)
header_names = st.binary(max_size=6).map(lambda name: name.decode("utf-8", "surrogateescape"))
records = st.builds(
    Record,
    offset=st.integers(0, 2**62),
    timestamp=st.integers(-1, 2**63 - 1),
    key=some_bytes,
    value=some_bytes,
    headers=st.lists(st.tuples(header_names, some_bytes), max_size=3).map(tuple),
)


@given(record=records, timestamp_type=st.sampled_from([0, 1]))
def test_written_record_reads_back_and_equals_json_output(record, timestamp_type):
    text = record_json("t", 5, timestamp_type, record)
    assert parse(text.encode()) == (
        NewRecord(record.key, record.value, record.timestamp, record.headers),
        5,
    )
    item = json.loads(text)
    assert text == json.dumps(item)
    assert text.isascii()
    assert "\n" not in text
    assert item["headers"] == [header_json(header) for header in record.headers]
    assert (item["offset"], item["timestamp_type"]) == (record.offset, timestamp_type)


def test_further_names_follow_a_record_s_own():
    text = record_json(None, None, 1, Record(1, 2, None, None), position=3, is_control=True)
    assert text.endswith('"headers": [], "position": 3, "is_control": true}')
    assert json.loads(text)["topic"] is None


def test_names_of_a_record_are_the_contract_s():
    item = json.loads(record_json("t", 0, 0, Record(1, 2, b"k", b"\xff", (("h", None),))))
    assert item == {
        "topic": "t",
        "partition": 0,
        "offset": 1,
        "timestamp": 2,
        "timestamp_type": 0,
        "key": "k",
        "value_base64": "/w==",
        "headers": [["h", None]],
    }


def test_control_characters_never_reach_the_terminal():
    assert display_bytes(b"\x1b[31mred\n") == "\\x1b[31mred\\n"
    assert display_bytes(b"\xff") == "base64:/w=="
    assert display_bytes(None) == "∅"
    assert display_bytes("grün".encode()) == "grün"
