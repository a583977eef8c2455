"""A large batch is checked some records at a time, with the same findings."""

import pytest

from logstore.inspect.check.batches import verify_batch
from logstore.record import batch as batches
from logstore.record import columns
from logstore.record.batch import RecordBatch, build_batch
from logstore.record.records import Record
from tests.fuzz.mutate import repair_batches

ROWS = 7
COUNT = 20
RECORD_BYTES = 9


@pytest.fixture(params=("python", "kernel"), autouse=True)
def windows(request, monkeypatch):
    """Decode seven records at a time, in each of the two ways."""
    monkeypatch.setattr(batches, "decodes_by_kernel", lambda count: request.param == "kernel")
    monkeypatch.setattr(batches, "LISTED_RECORDS_MAX", ROWS)
    decode = columns.decode_windows
    monkeypatch.setattr(
        columns, "decode_windows", lambda *arguments: decode(*arguments, rows_max=ROWS)
    )


def sound():
    return build_batch([Record(n, 1000 + n % 5, b"k", b"v") for n in range(COUNT)])


def findings(data):
    found = verify_batch(RecordBatch(repair_batches(data)), 10**6)
    return [(each.check, each.expected, each.found) for each in found]


def test_nothing_is_found_in_a_sound_batch():
    assert findings(sound()) == []


@pytest.mark.parametrize("row", (1, 6, 7, 8, 13, 14, 19))
def test_an_offset_that_does_not_rise_is_found_on_either_side_of_a_window(row):
    data = bytearray(sound())
    data[61 + RECORD_BYTES * row + 3] = 2 * (row - 1)
    (found,) = findings(bytes(data))
    assert found[0] == "offset_delta"
    assert str(row - 1) in str(found[2])


@pytest.mark.parametrize("row", (2, 6, 7, 8, 14, 19))
def test_the_offset_that_does_not_rise_is_reported(row):
    data = bytearray(sound())
    data[61 + RECORD_BYTES * row + 3] = 2 * (row - 2)
    ((_, _, found),) = findings(bytes(data))
    assert found == row - 2


@pytest.mark.parametrize("row", (0, 6, 7, 19))
def test_the_largest_timestamp_matches_all_records(row):
    data = bytearray(sound())
    data[61 + RECORD_BYTES * row + 2] = 2 * 50  # the timestamp delta
    ((check, _, _),) = findings(bytes(data))
    assert check == "max_timestamp"


@pytest.mark.parametrize("row", (0, 6, 7, 19))
def test_a_record_that_cannot_be_read_is_found(row):
    data = bytearray(sound())
    data[61 + RECORD_BYTES * row + 4] = 2 * 60  # the length of a key that runs beyond the record
    ((check, _, _),) = findings(bytes(data))
    assert check == "record_structure"
