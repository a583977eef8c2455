"""Producer ids: unique across restarts, reserved in blocks, above all ids in the logs."""

import json

import pytest

from logstore.coordinator.transactions.producer_ids import PRODUCER_IDS_FILE, ProducerIds
from logstore.errors import CorruptCheckpointError, KafkaStorageError, RequestError
from logstore.runtime import Runtime, VirtualClock, make_dirs_durably
from logstore.storage.checkpoint.atomic import read_bytes
from logstore.testing import FaultyFileSystem
from logstore.types import INT64_MAX

PATH = f"/data/{PRODUCER_IDS_FILE}"


@pytest.fixture
def fs():
    fs = FaultyFileSystem(VirtualClock())
    make_dirs_durably(fs, "/data")
    return fs


def open_ids(fs, largest_known=-1):
    return ProducerIds(fs, "/data", Runtime(VirtualClock(), fs).lock(), lambda: largest_known)


def stored(fs):
    return json.loads(read_bytes(fs, PATH))


def test_the_first_id_is_0_and_its_block_is_reserved_before_it_is_used(fs):
    ids = open_ids(fs)
    assert not fs.exists(PATH)
    assert ids.take() == 0
    assert stored(fs) == {"version": 1, "next_producer_id": 1000}


def test_a_block_is_a_thousand_ids(fs):
    ids = open_ids(fs)
    taken = [ids.take() for _ in range(1000)]
    assert taken == list(range(1000))
    assert stored(fs)["next_producer_id"] == 1000
    assert ids.take() == 1000
    assert stored(fs)["next_producer_id"] == 2000


def test_the_rest_of_a_block_is_not_used_by_the_next_process(fs):
    open_ids(fs).take()
    assert open_ids(fs).take() == 1000


def test_the_reservation_survives_a_crash_right_after_the_first_id(fs):
    open_ids(fs).take()
    left = FaultyFileSystem(VirtualClock(), fs.crash())
    assert open_ids(left).take() == 1000


def test_the_first_block_starts_above_the_ids_in_the_logs(fs):
    assert open_ids(fs, largest_known=4711).take() == 4712
    assert stored(fs)["next_producer_id"] == 5712
    assert open_ids(fs, largest_known=17).take() == 5712


def test_the_logs_count_even_with_a_file(fs):
    """The file may be older than partitions copied into the directory."""
    assert open_ids(fs).take() == 0
    assert open_ids(fs, largest_known=5000).take() == 5001
    assert stored(fs)["next_producer_id"] == 6001


def test_the_logs_are_read_once(fs):
    asked = []
    ids = ProducerIds(
        fs, "/data", Runtime(VirtualClock(), fs).lock(), lambda: asked.append(1) or -1
    )
    for _ in range(2500):
        ids.take()
    assert asked == [1]


NO_JSON = "not a file of producer ids: "
NO_ID = "next_producer_id is not a valid producer id"


@pytest.mark.parametrize(
    ("text", "message", "expected", "found"),
    (
        ("", NO_JSON, None, None),
        ("{", NO_JSON, None, None),
        ("[]", NO_JSON, None, None),
        ('{"version": 1}', f"{NO_JSON}'next_producer_id'", None, None),
        (
            '{"version": 2, "next_producer_id": 0}',
            "unknown version",
            1,
            2,
        ),
        ('{"version": 1, "next_producer_id": -1}', NO_ID, None, -1),
        ('{"version": 1, "next_producer_id": true}', NO_ID, None, True),
        ('{"version": 1, "next_producer_id": 9223372036854775808}', NO_ID, None, 2**63),
        ("[" * 5000, NO_JSON, None, None),
    ),
)
def test_a_malformed_file_is_refused_and_kept(fs, text, message, expected, found):
    file = fs.open(PATH, create=True)
    file.append([text.encode()])
    file.close()
    with pytest.raises(CorruptCheckpointError) as raised:
        open_ids(fs).take()
    assert raised.value.path == PATH
    assert str(raised.value).startswith(f"{PATH}: {message}")
    assert (raised.value.expected, raised.value.found) == (expected, found)
    assert read_bytes(fs, PATH).decode() == text


def test_an_id_that_cannot_be_reserved_is_not_returned(fs):
    ids = open_ids(fs)
    fs.fail("write", error="ENOSPC", nth=1)
    with pytest.raises(KafkaStorageError, match="producer ids"):
        ids.take()
    assert ids.take() == 0


def test_ids_end(fs):
    with pytest.raises(RequestError, match="all producer ids"):
        open_ids(fs, largest_known=INT64_MAX - 1000).take()


def test_the_last_block_is_used_up(fs):
    """Its end is the largest number of 64 bits."""
    ids = open_ids(fs, largest_known=INT64_MAX - 1001)
    assert [ids.take() for _ in range(1000)][-1] == INT64_MAX - 1
    assert stored(fs)["next_producer_id"] == INT64_MAX
    with pytest.raises(RequestError) as raised:
        ids.take()
    assert str(raised.value) == "all producer ids have been used"
