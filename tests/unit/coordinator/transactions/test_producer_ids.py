"""Producer ids: unique across restarts, reserved in blocks, above all ids in the logs."""

import json

import pytest

from logstore import Broker
from logstore.coordinator.transactions.producer_ids import (
    PRODUCER_IDS_FILE,
    ProducerIds,
    largest_producer_id,
)
from logstore.errors import CorruptCheckpointError, KafkaStorageError, RequestError
from logstore.runtime import Runtime, VirtualClock, make_dirs_durably
from logstore.storage.checkpoint.atomic import read_bytes
from logstore.testing import FaultyFileSystem
from logstore.types import INT64_MAX
from tests.support.world.builders import batch
from tests.support.world.locks import HeldLock

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
    assert read_bytes(fs, PATH) == b'{\n  "version": 1,\n  "next_producer_id": 1000\n}\n'


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


def test_the_logs_are_read_once_and_each_id_is_taken_with_the_lock(fs):
    asked = []
    lock = HeldLock(Runtime(VirtualClock(), fs).lock())
    ids = ProducerIds(fs, "/data", lock, lambda: asked.append(lock.depth) or -1)
    for _ in range(2500):
        ids.take()
    assert (asked, lock.entered) == ([1], 2500)


def test_the_largest_id_of_all_logs(monkeypatch, caplog):
    """Including logs without producers, and without those that cannot be read."""
    with Broker(clock=VirtualClock()) as broker:
        broker.create_topic("t", 5)
        assert largest_producer_id(broker.manager) == -1
        for partition, ids in ((1, (3, 9, 5)), (2, (7,)), (4, (8,))):
            for producer_id in ids:
                data = batch(0, producer_id=producer_id, producer_epoch=0, base_sequence=0)
                broker.append_batches("t", data, partition=partition)
        assert largest_producer_id(broker.manager) == 9
        log = broker.manager.log

        def fail(tp):
            if tp.partition == 1:
                raise KafkaStorageError("no disk")
            return log(tp)

        monkeypatch.setattr(broker.manager, "log", fail)
        assert largest_producer_id(broker.manager) == 8
        assert caplog.messages == ["t-1: cannot read its producer ids: no disk"]


def write(fs, text):
    if fs.exists(PATH):
        fs.remove(PATH)
    file = fs.open(PATH, create=True)
    file.append([text.encode()])
    file.close()


NEXT = "next_producer_id"
NO_JSON = "not a file of producer ids: "
NO_ID = "next_producer_id is not a valid producer id"


@pytest.mark.parametrize(
    ("text", "message", "check", "expected", "found"),
    (
        ("", NO_JSON, "json", None, None),
        ("{", NO_JSON, "json", None, None),
        ("[]", NO_JSON, "json", None, None),
        ('{"version": 1}', f"{NO_JSON}'next_producer_id'", "json", None, None),
        ('{"version": 2, "next_producer_id": 0}', "unknown version", "version", 1, 2),
        ('{"version": 1, "next_producer_id": -1}', NO_ID, NEXT, None, -1),
        ('{"version": 1, "next_producer_id": true}', NO_ID, NEXT, None, True),
        ('{"version": 1, "next_producer_id": 9223372036854775808}', NO_ID, NEXT, None, 2**63),
        ("[" * 5000, NO_JSON, "json", None, None),
    ),
)
def test_a_malformed_file_is_refused_and_kept(fs, text, message, check, expected, found):
    write(fs, text)
    with pytest.raises(CorruptCheckpointError) as raised:
        open_ids(fs).take()
    assert raised.value.path == PATH
    assert str(raised.value).startswith(f"{PATH}: {message}")
    assert (raised.value.check, raised.value.expected, raised.value.found) == (
        check,
        expected,
        found,
    )
    assert read_bytes(fs, PATH).decode() == text


def test_the_smallest_and_the_largest_id_in_a_file(fs):
    write(fs, '{"version": 1, "next_producer_id": 0}')
    assert open_ids(fs).take() == 0
    write(fs, f'{{"version": 1, "next_producer_id": {INT64_MAX}}}')
    with pytest.raises(RequestError, match="all producer ids have been used"):
        open_ids(fs).take()


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
