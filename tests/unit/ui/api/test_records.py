"""Pages of records, and their selection."""

import base64
import io
import json
from types import SimpleNamespace

import fastavro
import pytest

from logstore import Broker, VirtualClock
from logstore.inspect.schemas.files import load_schemas
from logstore.ui import context
from logstore.ui.api import records
from tests.support.world.page import Asked

AT = "/api/partitions/users/0/records"
ORDER = {"type": "record", "name": "Order", "fields": [{"name": "article", "type": "string"}]}
START_MS = 1_704_067_200_000


def offsets(page, query):
    return [each["offset"] for each in page.get(f"{AT}?{query}")["records"]]


def test_a_page_continues_behind_its_last_record(page):
    first = page.get(f"{AT}?from_offset=0&count=4")
    assert [each["offset"] for each in first["records"]] == [0, 1, 2, 3]
    assert first["next_offset"] == 4
    assert first["scanned"]["records"] == 4


@pytest.fixture
def various():
    """One record a minute: keys k0 to k2, JSON values, a header, and bytes that are not text."""
    with Broker(clock=VirtualClock()) as broker, Asked(broker) as page:
        broker.create_topic("users", 1, {"cleanup.policy": "compact"})
        for number in range(6):
            broker.append(
                "users",
                key=b"k%d" % (number % 3),
                value=f'{{"name": "Änne", "number": {number}}}'.encode(),
                headers=[("trace", b"t-%d" % number)] if number % 2 else [],
            )
            broker.clock.advance(minutes=1)
        broker.append("users", key=b"\xff\x00", value=b"\xfe" * 10)
        yield page


@pytest.mark.parametrize(
    ("query", "found"),
    (
        ("key=k1", [1, 4]),
        ("key=k", []),
        (f"key_base64={base64.b64encode(bytes([255, 0])).decode()}", [6]),
        ("text=%C3%84nne", [0, 1, 2, 3, 4, 5]),
        ("text=k2", [2, 5]),
        ("text=t-3", [3]),
        ("pattern=number.*[45]", [4, 5]),
        ("pattern=(%3Fi)^%7B.*%C3%A4NNE", [0, 1, 2, 3, 4, 5]),
        ("pattern=^k0$", [0, 3]),
        ("header=trace", [1, 3, 5]),
        ("header=trace&header_text=-5", [5]),
        ("header_text=t", [1, 3, 5]),
        ("header=Trace", []),
        ("from_offset=2&until_offset=4", [2, 3]),
        ("until_offset=2", [0, 1]),
        ("until_offset=99&from_offset=5", [5, 6]),
        ("from_offset=4&until_offset=4", []),
        (f"from_timestamp={START_MS + 60_000}&until_timestamp={START_MS + 180_000}", [1, 2]),
        (f"until_timestamp={START_MS + 1}", [0]),
        (f"key=k0&from_timestamp={START_MS + 1}", [3]),
    ),
)
def test_records_are_selected(various, query, found):
    assert offsets(various, query) == found


@pytest.mark.parametrize("pattern", ("(", "%28%3F%3Dx%29a", "x%7B1001%7D"))
def test_an_invalid_pattern_is_named(page, pattern):
    answer = page.ask("GET", f"{AT}?pattern={pattern}")
    assert answer.status == 400
    assert answer.json["error"]["field"] == "pattern"
    assert "RE2" in answer.json["error"]["message"]


def test_a_pattern_takes_linear_time(various):
    """Python's `re` would take longer than the age of the universe."""
    various.context.broker.append("users", key=b"a" * 40 + b"!", value=b"")
    assert offsets(various, "pattern=^(a%2B)%2B$") == []


def test_a_search_ends_early_and_continues(page, monkeypatch):
    """A request reads a bounded part of the log."""
    monkeypatch.setattr(records, "SCAN_RECORDS_MAX", 4)
    first = page.get(f"{AT}?key=k0")
    assert [each["offset"] for each in first["records"]] == [0, 3]
    assert (first["next_offset"], first["scanned"]["records"]) == (4, 4)
    second = page.get(f"{AT}?key=k0&from_offset=4")
    assert [each["offset"] for each in second["records"]] == [6]
    third = page.get(f"{AT}?key=k0&from_offset=8")
    assert [each["offset"] for each in third["records"]] == [9, 10]
    assert third["next_offset"] == third["log_end_offset"] == 11
    monkeypatch.setattr(records, "SCAN_BYTES_MAX", 5)
    assert page.get(f"{AT}?text=nothing")["next_offset"] < 4


def test_long_values_are_cut_between_characters(various):
    various.context.broker.append("users", key=b"k" * 9, value="äöü".encode())
    (cut,) = various.get(f"{AT}?from_offset=7&field_bytes=5")["records"]
    assert (cut["key"], cut["value"], cut["cut"]) == ("kkkkk", "äö", {"key": 9, "value": 6})
    (cut,) = various.get(f"{AT}?from_offset=6&count=1&field_bytes=5")["records"]
    assert base64.b64decode(cut["value_base64"]) == b"\xfe" * 5
    (whole,) = various.get(f"{AT}?from_offset=7&field_bytes=9")["records"]
    assert (whole["value"], "cut" in whole) == ("äöü", False)


def test_values_with_a_schema_are_decoded_and_searched(tmp_path):
    path = tmp_path / "7.avsc"
    path.write_text(json.dumps(ORDER))
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(ORDER), {"article": "tea"})
    value = b"\0" + (7).to_bytes(4, "big") + stream.getvalue()
    with Broker(clock=VirtualClock()) as broker:
        broker.create_topic("users", 1)
        for data in (value, value[:-1], b"\0\0\0\0\x09x", b"plain"):
            broker.append("users", key=b"1", value=data)
        with Asked(broker, schemas=load_schemas({7: [str(path)]})) as page:
            decoded = [each.get("decoded") for each in page.get(AT)["records"]]
            assert decoded[0] == {"value": {"article": "tea"}}
            assert decoded[1]["error"].startswith("value: does not match its Avro schema")
            assert decoded[2:] == [None, None]
            assert offsets(page, 'text="article":%20"tea"') == [0]


def test_keys_and_values_with_the_frame_of_a_known_schema_are_decoded(tmp_path, monkeypatch):
    path = tmp_path / "7.json"
    path.write_text("{}")
    frame = b"\0\0\0\0\x07"
    with (
        Broker(clock=VirtualClock()) as broker,
        Asked(broker, schemas=load_schemas({7: [str(path)]})) as page,
    ):

        def decoded(key, value):
            return page.context.decoded(SimpleNamespace(key=key, value=value))

        found = {"key": 1, "value": {"a": 2}}
        assert decoded(frame + b"1", frame + b'{"a": 2}') == {"decoded": found}
        for plain in (None, b"\1" + frame[1:] + b"1", b"\0\0\0\0\x081", b"\0\7"):
            assert decoded(plain, None) == decoded(None, plain) == {}
        errors = decoded(frame + b"x", frame)["decoded"]
        assert [*errors] == ["error"]
        key, value = errors["error"].split("; value: ")
        assert key.startswith("key: ")
        assert f"{decoded(None, frame)['decoded']['error']}" == f"value: {value}"
        monkeypatch.setattr(context, "DECODED_BYTES_MAX", 8)
        assert decoded(frame + b"123", frame + b"1234") == {"decoded": {"key": 123}}


@pytest.mark.parametrize("payload", (b"1e999", *(b"[" * n + b"]" * n for n in range(975, 995))))
def test_json_of_any_kind_does_not_hide_other_records(tmp_path, payload):
    path = tmp_path / "7.json"
    path.write_text("{}")
    with Broker(clock=VirtualClock()) as broker:
        broker.create_topic("users", 1)
        broker.append("users", value=b"\0\0\0\0\x07" + payload)
        with Asked(broker, schemas=load_schemas({7: [str(path)]})) as page:
            for query in ("", "?text=%5B"):
                for each in page.get(f"{AT}{query}")["records"]:
                    assert "value: " in each["decoded"]["error"]


@pytest.mark.parametrize("query", ("", "&until_offset=3"))
def test_a_page_does_not_skip_records_of_an_open_transaction(query):
    with Broker(clock=VirtualClock()) as broker, Asked(broker) as page:
        broker.create_topic("users", 1)
        broker.append("users", value=b"a")
        producer = broker.producer(transactional_id="x")
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("users", b"b")
        producer.flush()
        committed = f"{AT}?isolation=read_committed{query}"
        assert page.get(committed)["next_offset"] == 1
        producer.commit_transaction()
        assert [each["offset"] for each in page.get(f"{committed}&from_offset=1")["records"]] == [1]
