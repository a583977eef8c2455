"""When a Produce request leaves the event loop, and when a waiting Fetch reads again."""

from types import SimpleNamespace

import pytest

from logstore.errors import LogStoreError
from logstore.messages.types import ProduceRequest
from logstore.record import layout
from logstore.record.codecs import Codec
from logstore.wire import data
from logstore.wire.data import _Load
from logstore.wire.fetch import _ReadPositions


def batch(size=layout.HEADER_SIZE, records=1, codec=Codec.NONE, bits=0, magic=2):
    found = bytearray(size)
    found[layout.MAGIC_POSITION] = magic
    found[layout.ATTRIBUTES_POSITION + 1] = codec | bits
    at = layout.RECORD_COUNT_POSITION
    found[at : at + 4] = records.to_bytes(4, "big", signed=True)
    return bytes(found)


def request(*topics):
    return ProduceRequest(
        topic_data=[
            ProduceRequest.TopicProduceData(
                partition_data=[
                    ProduceRequest.PartitionProduceData(records=each) for each in batches
                ]
            )
            for batches in topics
        ]
    )


TRANSACTIONAL = layout.TRANSACTIONAL_BIT
HALF = 1 << 20
CASES = {
    "nothing": ([], (False, False)),
    "no records": ([[None, b"", bytes(layout.HEADER_SIZE - 1)]], (False, False)),
    "2 MiB": ([[batch(HALF)], [batch(HALF)]], (False, False)),
    "2 MiB in one": ([[batch(2 * HALF)]], (False, False)),
    "more": ([[batch(HALF)], [None, batch(HALF + 1)]], (True, False)),
    "20000 records": ([[batch(records=9000), batch(records=11_000)]], (False, False)),
    "more records": ([[batch(records=9000)], [batch(records=11_001)]], (True, False)),
    "a negative count": ([[batch(records=-5), batch(records=20_001)]], (True, False)),
    "negative counts": ([[batch(records=-9), batch(records=20_000)]], (False, False)),
    "compressed": ([[batch(100, codec=Codec.GZIP)]], (True, False)),
    "zstd": ([[batch(100, codec=Codec.ZSTD)]], (True, False)),
    "an unknown codec": ([[batch(100, codec=5)]], (False, False)),
    "compressed to 2 MiB": ([[batch(99, codec=Codec.GZIP)]], (False, False)),
    "transactional": ([[batch(bits=TRANSACTIONAL)], [batch()]], (False, True)),
    "transactional and compressed": (
        [[batch(100, codec=Codec.LZ4, bits=TRANSACTIONAL)]],
        (True, True),
    ),
    "an older magic": ([[batch(bits=TRANSACTIONAL, magic=1)]], (False, False)),
    "one of them older": (
        [[batch(bits=TRANSACTIONAL), batch(bits=TRANSACTIONAL, magic=1)]],
        (False, True),
    ),
}


@pytest.mark.parametrize(("topics", "load"), CASES.values(), ids=CASES)
def test_the_load_of_a_request_is_estimated_from_its_headers(topics, load, monkeypatch):
    bound = 2 * HALF - 99

    def size_bound(codec, section):
        assert codec in (Codec.GZIP, Codec.LZ4, Codec.ZSTD)
        return bound + len(section) - (99 - layout.HEADER_SIZE)

    monkeypatch.setattr(data, "size_bound", size_bound)
    assert tuple(_Load.of(request(*topics))) == load


class World:
    """Logs and their leaders, as a waiting fetch sees them."""

    def __init__(self, count=2):
        self.leaders = {}
        self.logs = []
        for number in range(count):
            end = SimpleNamespace(offset=10, base_offset=0, position=1000)
            log = SimpleNamespace(topic_partition=number, is_offline=False, log_end=end, upper=10)
            log.reader = SimpleNamespace(upper_offset=lambda _, log=log: log.upper)
            self.logs.append(log)
            self.leaders[number] = (0, 0)

    def leader_of(self, number):
        if self.leaders[number] is None:
            raise LogStoreError("deleted")
        return self.leaders[number]

    def append(self, number, size, count=1, readable=None):
        log = self.logs[number]
        end = log.log_end
        log.log_end = SimpleNamespace(
            offset=end.offset + count, base_offset=end.base_offset, position=end.position + size
        )
        log.upper = log.log_end.offset if readable is None else readable

    def stand(self):
        wanted = [SimpleNamespace(log=each) for each in (*self.logs, self.logs[0], None)]
        return _ReadPositions.of(wanted, "any", self)


@pytest.mark.parametrize(("missing", "is_left"), ((99, True), (100, True), (101, False)))
def test_a_fetch_reads_again_once_all_logs_have_grown_by_what_is_missing(missing, is_left):
    world = World()
    stand = world.stand()
    assert stand.logs == world.logs
    assert not stand.is_due(0)
    world.append(0, 60)
    assert stand.is_due(60)
    assert not stand.is_due(61)
    world.append(1, 40)
    assert stand.is_due(missing) is is_left
    assert not world.stand().is_due(0)


def test_bytes_that_cannot_be_read_yet_do_not_count():
    world = World()
    stand = world.stand()
    world.append(0, 500, readable=10)
    assert not stand.is_due(0)
    # They become readable: any progress counts.
    stand = world.stand()
    world.logs[0].upper = 11
    assert stand.is_due(10**9)
    # So it does behind an open transaction, even while others are appended.
    world.append(0, 5, count=3, readable=12)
    stand = world.stand()
    world.append(0, 5, readable=13)
    assert stand.is_due(10**9)


def _roll(world):
    world.append(1, 1)
    world.logs[1].log_end.base_offset = 11


def _shrink(world):
    world.append(1, -1)


def _elect(world):
    world.leaders[1] = (1, 1)


def _fail(world):
    world.logs[1].is_offline = True


def _delete(world):
    world.leaders[1] = None


@pytest.mark.parametrize("change", (_roll, _shrink, _elect, _fail, _delete))
def test_a_fetch_reads_again_after_a_roll_a_truncation_an_election_or_a_deletion(change):
    world = World()
    stand = world.stand()
    change(world)
    assert stand.is_due(10**9)
    if change is not _roll and change is not _shrink:
        assert not world.stand().is_due(10**9), "only the change counts"
