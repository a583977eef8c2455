"""Keys and positions as people type them, JSON and bytes as the page shows them."""

from base64 import b64encode

import pytest


@pytest.mark.parametrize(
    ("form", "text", "expected"),
    (
        ("text", "user 17", {"key": "user 17"}),
        ("text", '"a"', {"key": '"a"'}),
        ("text", "", None),
        ("hex", "00ff17", {"key_base64": "AP8X"}),
        ("hex", "0x00 FF:17", {"key_base64": "AP8X"}),
        ("hex", "00f", None),
        ("hex", "xy", None),
        ("hex", " ", None),
        ("json", '"a\\u0000b"', {"key": "a\0b"}),
        ("json", '{"id": 17, "a b": [1.0, "x  y"]}', {"key": '{"id":17,"a b":[1.0,"x  y"]}'}),
        ("json", "9007199254740993", {"key": "9007199254740993"}),
        ("json", '{"id":', None),
    ),
)
def test_a_key_is_typed_as_text_hex_or_json(front, form, text, expected):
    assert front.call("keys.js", "parseKey", (form, text)) == [expected]


def test_a_record_s_key_is_picked_as_it_is_typed(front):
    assert front.call(
        "keys.js", "keyQuery", ({"key": "a b"},), ({"key_base64": "AP8X"},), ({"key": None},), ({},)
    ) == [{"key": "a b", "as": None}, {"key": "00ff17", "as": "hex"}, None, None]
    picked = [{"key_base64": b64encode(bytes([byte])).decode()} for byte in range(256)]
    typed = front.call("keys.js", "keyQuery", *((each,) for each in picked))
    assert front.call("keys.js", "parseKey", *(("hex", each["key"]) for each in typed)) == picked


@pytest.mark.parametrize(
    ("text", "expected"),
    (
        (" 1200 ", {"offset": 1200}),
        ("2024", {"offset": 2024}),
        ("@1704067200000", {"ms": 1_704_067_200_000}),
        ("2024-01-01", {"ms": 1_704_067_200_000}),
        ("2024-01-01 00:00", {"ms": 1_704_067_200_000}),
        ("2024-01-01T01:00+01:00", {"ms": 1_704_067_200_000}),
        ("yesterday", None),
        ("", None),
        ("-1", None),
        ("2024-13-01", None),
    ),
)
def test_a_position_is_an_offset_or_a_time(front, text, expected):
    assert front.call("keys.js", "parsePosition", (text,)) == [expected]


def test_conditions_of_an_address_become_parameters(front):
    (asked, wrong, bad_key) = front.call(
        "search.js",
        "requestOf",
        ({"from": "7", "until": "2024-01-01", "key": "00", "as": "hex", "pattern": "a+"},),
        ({"from": "soon"},),
        ({"key": "0", "as": "hex"},),
    )
    assert asked == {
        "from_offset": 7,
        "until_timestamp": 1_704_067_200_000,
        "key_base64": "AA==",
        "pattern": "a+",
    }
    assert "neither an offset nor a time" in wrong["complaint"]
    assert "hex" in bad_key["complaint"]


def test_json_is_indented_with_its_numbers_as_written(front):
    (shown,) = front.call(
        "keys.js", "indented", ('{"id":9007199254740993,"a":[1.0,{}],"b":"{,:}"}',)
    )
    assert shown == (
        '{\n  "id": 9007199254740993,\n  "a": [\n    1.0,\n    {}\n  ],\n  "b": "{,:}"\n}'
    )
    nothing = ["text", "17", '"a"', "{", '{"a": 1} x', "[" * 300_000]
    assert front.call("keys.js", "indented", *((each,) for each in nothing)) == [None] * 6
    (deep,) = front.call("keys.js", "indented", ("[" * 5_000 + "]" * 5_000,))
    assert max(map(len, deep.splitlines())) < 100


def test_bytes_are_shown_in_lines_of_sixteen(front):
    code = """async (world) => {
        const { hexLines } = await world.load("keys.js");
        return hexLines(Uint8Array.from("logstore\\x00\\xff and more", (c) => c.charCodeAt(0)));
    }"""
    assert front.run(code).splitlines() == [
        "000000  6c 6f 67 73 74 6f 72 65 00 ff 20 61 6e 64 20 6d  logstore.. and m",
        "000010  6f 72 65                                         ore",
    ]


def test_a_field_is_one_line_whatever_it_holds(front):
    lines = front.call(
        "bytes.js",
        "lineOf",
        ({"value": "a\nb"}, "value"),
        ({"value_base64": "AP8="}, "value"),
        ({"value": None}, "value"),
        ({"value": "x", "decoded": {"value": {"a": 1}}}, "value"),
        ({"value": "x" * 9_999}, "value"),
    )
    assert lines[:4] == ["a\\nb", "\\x00\\xff", None, '{"a":1}']
    assert len(lines[4]) == 500


@pytest.mark.parametrize(
    ("code", "values", "expected"),
    (
        ("erasure.cleaning_due", {"at_ms": 5}, "by the next pass"),
        ("erasure.cleaning_due", {"at_ms": 6}, "by the next pass, later"),
        ("erasure.retention_due", {"at_ms": 5}, "by retention"),
        ("erasure.not_due", {}, "only after an append"),
        ("erasure.no_rule", {}, "after another event"),
    ),
)
def test_groups_of_one_state_name_what_makes_their_removal_due(front, code, values, expected):
    reasons = [{"code": "location.superseded", "values": {}}, {"code": code, "values": values}]
    assert front.call("key.js", "dueInWords", ({"reasons": reasons}, 5)) == [expected]
