"""Lines of `append`: the record of each valid one, and the error of each invalid one."""

import base64

import pytest

from logstore.cli.commands.append_lines import MalformedLineError, numbered_lines, parser
from logstore.storage.log.drafts import NewRecord
from logstore.types import INT32_MAX, INT64_MAX


def b64(data):
    return base64.b64encode(data).decode()


@pytest.mark.parametrize(
    ("line", "record", "partition"),
    (
        ('{"key": "k", "value": "v"}', NewRecord(b"k", b"v"), None),
        (' {"value": null}\t', NewRecord(None, None), None),
        ('{"key": null, "value": "é"}', NewRecord(None, "é".encode()), None),
        (f'{{"value_base64": "{b64(b"/v")}"}}', NewRecord(None, b"/v"), None),
        (
            f'{{"key_base64": "{b64(b"/k")}", "value_base64": "{b64(b"")}"}}',
            NewRecord(b"/k", b""),
            None,
        ),
        ('{"value": "v", "timestamp": -1}', NewRecord(None, b"v", -1), None),
        (f'{{"value": "v", "timestamp": {INT64_MAX}}}', NewRecord(None, b"v", INT64_MAX), None),
        ('{"value": "v", "timestamp": null, "partition": null}', NewRecord(None, b"v"), None),
        ('{"value": "v", "partition": 0}', NewRecord(None, b"v"), 0),
        (f'{{"value": "v", "partition": {INT32_MAX}}}', NewRecord(None, b"v"), INT32_MAX),
        ('{"value": "v", "headers": []}', NewRecord(None, b"v"), None),
        ('{"value": "v", "headers": null}', NewRecord(None, b"v"), None),
        (
            '{"value": "v", "headers": [["a", "1"], ["b", null], ["c", {"base64": "Mg=="}]]}',
            NewRecord(None, b"v", None, (("a", b"1"), ("b", None), ("c", b"2"))),
            None,
        ),
        (
            f'{{"value": "v", "headers": [[{{"base64": "{b64(bytes([255]))}"}}, "1"]]}}',
            NewRecord(None, b"v", None, (("\udcff", b"1"),)),
            None,
        ),
        (
            '{"value": "v", "offset": 7, "topic": "t", "timestamp_type": 0, "decoded": {}}',
            NewRecord(None, b"v"),
            None,
        ),
    ),
)  # fmt: skip
def test_a_line_of_json_is_a_record(line, record, partition):
    assert parser("jsonl").parse(line.encode()) == (record, partition)


@pytest.mark.parametrize(
    ("value", "stored"),
    (
        ('{"a": [1, 2.5], "é": null}', '{"a":[1,2.5],"é":null}'),
        ("[]", "[]"),
        ("0", "0"),
        ("false", "false"),
        ('"text"', "text"),
    ),
)
def test_values_of_json_are_stored_as_text_if_that_is_asked_for(value, stored):
    parse = parser("jsonl", json_values=True).parse
    record, _ = parse(f'{{"key": {value}, "value": {value}}}'.encode())
    assert record == NewRecord(stored.encode(), stored.encode())
    assert parse(b'{"value": null}')[0] == NewRecord(None, None)


@pytest.mark.parametrize(
    ("line", "message"),
    (
        (b"\xff", "not UTF-8: 'utf-8' codec can't decode byte 0xff in position 0"),
        (b"{", "not JSON: Expecting property name"),
        (b'{"value": NaN}', "not JSON: NaN is not a JSON number"),
        (b'{"value": "v"} x', "not JSON: extra text at column 15"),
        (b"[1]", "expected a JSON object, not a list"),
        (b"null", "expected a JSON object, not null"),
        (b"true", "expected a JSON object, not a boolean"),
        (b"1.5", "expected a JSON object, not a number"),
        (b'"x"', "expected a JSON object, not a string"),
        (b'{"key": "k"}', "value is missing (null is a tombstone)"),
        (
            b'{"key": 1, "value": "v"}',
            "key must be a string or null, not a number; --json-values stores JSON text",
        ),
        (
            b'{"value": {}}',
            "value must be a string or null, not an object; --json-values stores JSON text",
        ),
        (b'{"value": "\\ud800"}', "key or value has a lone surrogate"),
        (b'{"value": "v", "zeta": 1, "beta": 1}', "unknown name 'beta'"),
        (b'{"value": "v", "beta": 1}', "unknown name 'beta'"),
        (b'{"key": "k", "key_base64": "", "value": "v"}', "both key and key_base64"),
        (b'{"value": "v", "value_base64": ""}', "both value and value_base64"),
        (b'{"value_base64": 1}', "value_base64 must be a string, not a number"),
        (b'{"key_base64": [], "value": "v"}', "key_base64 must be a string, not a list"),
        (b'{"value_base64": "a"}', "value_base64 is not base64: Invalid base64-encoded string"),
        (b'{"value": "v", "timestamp": -2}', "timestamp must be Unix ms or -1, not -2"),
        (b'{"value": "v", "timestamp": true}', "timestamp must be Unix ms or -1, not True"),
        (b'{"value": "v", "timestamp": "1"}', "timestamp must be Unix ms or -1, not a string"),
        (
            b'{"value": "v", "timestamp": 9223372036854775808}',
            "timestamp must be Unix ms or -1, not 9223372036854775808",
        ),
        (b'{"value": "v", "partition": -1}', "partition must be a number, not -1"),
        (b'{"value": "v", "partition": 1.0}', "partition must be a number, not 1.0"),
        (b'{"value": "v", "partition": 2147483648}', "partition must be a number, not 2147483648"),
        (b'{"value": "v", "headers": ""}', "headers must be a list, not a string"),
        (b'{"value": "v", "headers": {"a": 1}}', "headers must be a list, not an object"),
        (b'{"value": "v", "headers": 0}', "headers must be a list, not a number"),
        (b'{"value": "v", "headers": [["a"]]}', "a header must be [name, value]"),
        (b'{"value": "v", "headers": [["a", "b", "c"]]}', "a header must be [name, value]"),
        (b'{"value": "v", "headers": ["ab"]}', "a header must be [name, value]"),
        (b'{"value": "v", "headers": [[null, "1"]]}', "a header's name must not be null"),
        (b'{"value": "v", "headers": [["\\ud800", ""]]}', "a header's name has a lone surrogate"),
        (b'{"value": "v", "headers": [["a", "\\ud800"]]}', "a header's value has a lone surrogate"),
        (
            b'{"value": "v", "headers": [["a", 1]]}',
            'a header\'s value must be a string or {"base64": \u2026}',
        ),
        (
            b'{"value": "v", "headers": [[{"base64": "", "x": 1}, ""]]}',
            'a header\'s name must be a string or {"base64": \u2026}',
        ),
        (
            b'{"value": "v", "headers": [["a", {"base64": 1}]]}',
            "a header's value must be a string, not a number",
        ),
    ),
)
def test_a_malformed_json_line_is_reported_with_the_reason(line, message):
    with pytest.raises(MalformedLineError) as refused:
        parser("jsonl").parse(line)
    assert str(refused.value).startswith(message)


def test_a_line_of_tsv_has_key_and_value():
    parse, is_blank = parser("tsv")
    assert parse(b"k\tv\tw") == (NewRecord(b"k", b"v\tw"), None)
    assert parse(b"\\N\t\\N") == (NewRecord(None, None), None)
    assert parse(b"\t") == (NewRecord(b"", b""), None)
    with pytest.raises(MalformedLineError, match=r"^no tab between key and value$"):
        parse(b"k")
    assert [is_blank(line) for line in (b"", b" ", b"\t")] == [True, False, False]
    assert [parser("jsonl").is_blank(line) for line in (b"", b" \t", b"{}")] == [True, True, False]


def test_lines_are_numbered_and_lose_their_ends_and_the_mark_at_the_beginning():
    lines = (b"\xef\xbb\xbfa\r\n", b"\xef\xbb\xbfb\n", b"c\r\r\n", b"d")
    assert [*numbered_lines(lines)] == [(1, b"a"), (2, b"\xef\xbb\xbfb"), (3, b"c\r"), (4, b"d")]
