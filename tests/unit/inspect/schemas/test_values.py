"""Decoded values as JSON: limits of documents, and kinds that JSON lacks."""

import math
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from uuid import UUID

import pytest

from logstore.errors import InvalidRecordError
from logstore.inspect.schemas.values import DEPTH_MAX, check_depth, parse_json, plain


def nested(depth, opening="[", closing="]"):
    return (opening * depth + "1" + closing * depth).encode()


@pytest.mark.parametrize(
    ("data", "value"),
    (
        (b' {"a": [1, 2.5, null, true]} ', {"a": [1, 2.5, None, True]}),
        (b"1e308", 1e308),
        (b"-1e-400", 0.0),
        (b"12345678901234567890", 12345678901234567890),
        ('"é"'.encode(), "é"),
        (b'{"a": 1, "a": 2}', {"a": 2}),
    ),
)
def test_a_document_is_parsed(data, value):
    assert parse_json(data) == value


@pytest.mark.parametrize(
    ("data", "message"),
    (
        (b"", "not JSON: Expecting value"),
        (b"NaN", "not JSON: NaN is not a JSON number"),
        (b"[-Infinity]", "not JSON: -Infinity is not a JSON number"),
        (b"1e309", "not JSON: 1e309 is too large"),
        (b"-1e309", "not JSON: -1e309 is too large"),
        (b"1" * 90 + b".5e400", f"not JSON: {'1' * 80} is too large"),
        (b"[1", "not JSON: Expecting ',' delimiter"),
        (b'"\xff"', "not JSON: 'utf-8' codec can't decode byte 0xff"),
        (nested(DEPTH_MAX + 1), f"JSON is nested more than {DEPTH_MAX} levels deep"),
        (nested(DEPTH_MAX + 1, '{"a":', "}"), f"JSON is nested more than {DEPTH_MAX} levels deep"),
        (nested(100_000), "not JSON: maximum recursion depth exceeded"),
    ),
)
def test_other_documents_are_refused(data, message):
    with pytest.raises(InvalidRecordError) as refused:
        parse_json(data)
    assert str(refused.value).startswith(message)


def test_depth_counts_lists_and_objects_not_items():
    for opening, closing in (("[", "]"), ('{"a":', "}")):
        parse_json(nested(DEPTH_MAX, opening, closing))
    wide = b"[" + b",".join([b"[]"] * (2 * DEPTH_MAX)) + b"]"
    assert len(parse_json(wide)) == 2 * DEPTH_MAX
    check_depth([[{"a": 1}], 2], 3)
    check_depth(1, 0)
    with pytest.raises(InvalidRecordError, match=r"^JSON is nested more than 2 levels deep$"):
        check_depth([1, [{"a": 1}]], 2)


@pytest.mark.parametrize(
    ("value", "shown"),
    (
        ({1: (b"\xff", bytearray(b"a"))}, {"1": [{"base64": "/w=="}, {"base64": "YQ=="}]}),
        (memoryview(b"a"), {"base64": "YQ=="}),
        (datetime(2024, 1, 2, 3, 4, 5, 6000, UTC), "2024-01-02T03:04:05.006000+00:00"),
        (date(2024, 1, 2), "2024-01-02"),
        (time(3, 4, 5), "03:04:05"),
        (timedelta(minutes=1, milliseconds=500), 60.5),
        (Decimal("1.50"), "1.50"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        ([math.nan, math.inf, -math.inf, 1.5], ["NaN", "Infinity", "-Infinity", 1.5]),
        ([None, True, "text", 7], [None, True, "text", 7]),
    ),
)
def test_values_that_json_lacks_are_shown_so(value, shown):
    assert plain(value) == shown
