"""The fast record parser against the checking one; rows against records."""

from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.errors import InvalidRecordError
from logstore.record.batch import RecordBatch, build_batch
from logstore.record.records import (
    Record,
    _decode_plain,
    _decode_record,
    encode_headers,
    encode_record,
)

small = st.one_of(st.none(), st.binary(max_size=70), st.integers(8100, 8300).map(bytes))
headers = st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=2)
records = st.builds(
    lambda stamp, place, key, value, headers: encode_record(
        stamp, place, key, value, encode_headers(headers)
    ),
    st.one_of(st.integers(-9000, 9000), st.integers(-(2**63), 2**63 - 1)),
    st.one_of(st.integers(0, 9000), st.integers(0, 2**31 - 1)),
    small,
    small,
    st.just([]) | headers,
)


def careful(data, start, end):
    try:
        return _decode_record(data, start, end)
    except InvalidRecordError:
        return None


@given(data=records, lead=st.integers(0, 2), tail=st.binary(max_size=3))
@settings(deadline=None, max_examples=200)
def test_the_fast_parser_equals_the_checking_one(data, lead, tail):
    whole = bytes(lead) + data + tail
    plain = _decode_plain(whole, lead, len(whole))
    if plain is not None:
        assert _decode_record(whole, lead, len(whole)) == (*plain[:4], (), plain[4])


@given(
    data=records,
    changes=st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), min_size=1, max_size=4),
    cut=st.integers(0, 6),
)
@settings(deadline=None, max_examples=600)
def test_the_fast_parser_refuses_damaged_records(data, changes, cut):
    changed = bytearray(data)
    for at, byte in changes:
        changed[at % len(changed)] = byte
    whole = bytes(changed[: len(changed) - cut])
    plain = _decode_plain(whole, 0, len(whole))
    if plain is not None:
        assert careful(whole, 0, len(whole)) == (*plain[:4], (), plain[4])


def test_common_records_use_the_fast_parser():
    for size in (0, 10, 63, 64, 100, 8191):
        data = encode_record(-5, 70, b"k" * 16, bytes(size))
        assert _decode_plain(data, 0, len(data)) is not None or size > 8000
    for other in (
        encode_record(0, 0, b"k", b"v", encode_headers([("h", None)])),
        encode_record(2**40, 0, b"k", b"v"),
        encode_record(0, 2**20, b"k", b"v"),
        encode_record(0, -1, b"k", b"v"),
    ):
        assert _decode_plain(other, 0, len(other)) is None


@given(
    count=st.sampled_from((1, 64, 65, 1500)), base=st.integers(0, 2**40), with_headers=st.booleans()
)
@settings(deadline=None, max_examples=12)
def test_rows_are_the_records(count, base, with_headers):
    made = [
        Record(
            base + number,
            number % 7 - 1,
            None if number % 5 == 0 else b"%d" % number,
            None if number % 3 == 0 else bytes(number % 90),
            (("h", None),) if with_headers and number % 4 == 0 else (),
        )
        for number in range(count)
    ]
    batch = RecordBatch(build_batch(made))
    assert [tuple(row) for rows in batch.row_lists() for row in rows] == [tuple(r) for r in made]
    assert batch.records() == made
