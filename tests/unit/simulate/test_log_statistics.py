"""The statistics count the same records as a reader of the log."""

from contextlib import closing

import numpy as np
import pytest

from logstore import Broker, VirtualClock
from logstore.simulate import kernels, log_statistics
from logstore.simulate.log_statistics import LogStatistics

CONFIGS = {"cleanup.policy": "compact", "segment.bytes": "4096"}


@pytest.fixture
def broker():
    with Broker(clock=VirtualClock(), seed=1) as broker:
        yield broker


def fill(broker, count, **options):
    for start in range(0, count, 7):
        rows = [
            (b"k%d" % (n % 13), None if n % 5 == 0 else b"v" * (n % 40))
            for n in range(start, min(start + 7, count))
        ]
        broker.append_many("t", rows, partition=0, **options)


def counted(broker, statistics):
    log = broker.log("t")
    statistics.update(log, broker.runtime.fs)
    return (
        statistics.records,
        statistics.tombstones.offsets.tolist(),
        statistics.tombstones.timestamps.tolist(),
    )


def expected(broker):
    records = [record for _, record in broker.log("t").reader.records(0)]
    deleted = [record for record in records if record.value is None]
    return len(records), [r.offset for r in deleted], [r.timestamp for r in deleted]


@pytest.mark.parametrize("compression", ("none", "lz4"))
@pytest.mark.parametrize("stamp", ("CreateTime", "LogAppendTime"))
def test_it_grows_with_the_log_and_follows_a_cleaning(broker, compression, stamp):
    broker.create_topic("t", configs=CONFIGS | {"message.timestamp.type": stamp})
    statistics = LogStatistics()
    for _ in range(3):
        fill(broker, 60, compression=compression)
        broker.clock.advance(days=1)
        assert counted(broker, statistics) == expected(broker)
    broker.clean("t", force=True, roll=True)
    assert counted(broker, statistics) == expected(broker)
    broker.clock.advance(days=2)
    broker.clean("t", force=True)
    assert counted(broker, statistics) == expected(broker)
    assert statistics.records < 180


def test_a_deleted_log_has_nothing(broker):
    broker.create_topic("t", configs={"cleanup.policy": "delete", "retention.ms": "1000"})
    statistics = LogStatistics()
    fill(broker, 20)
    counted(broker, statistics)
    broker.clock.advance(days=1)
    broker.retain()
    assert counted(broker, statistics) == (0, [], [])


def test_survey_stops_where_it_has_no_room_or_no_whole_batch(broker):
    broker.create_topic("t")
    fill(broker, 21)
    log = broker.log("t")
    with closing(broker.runtime.fs.open(log.active_segment.log_path)) as file:
        data = np.frombuffer(file.read(0, log.size_bytes), np.uint8)
    offsets, timestamps = np.empty((2, 7), np.int64)
    status, position, records, found = kernels.survey(data, 0, offsets, timestamps, 0)
    assert (status, records, found) == (kernels.FULL, 7, 2)  # 7 more may all be tombstones
    assert offsets[:2].tolist() == [0, 5]
    more, stamps = np.empty((2, 64), np.int64)
    whole = kernels.survey(data, position, more, stamps, 0)
    assert whole == (kernels.WHOLE, len(data), 14, 3)
    cut_off = kernels.survey(data[:-1], position, more, stamps, 0)
    assert cut_off[:3] == (kernels.WHOLE, len(data) - _last_size(data), 7)


def _last_size(data):
    position = size = 0
    while position < len(data):
        size = 12 + int.from_bytes(data[position + 8 : position + 12].tobytes(), "big")
        position += size
    return size


@pytest.mark.parametrize("read_bytes", (64, 128, 4096))
def test_batches_longer_than_a_read_are_counted(broker, read_bytes, monkeypatch):
    monkeypatch.setattr(log_statistics, "READ_BYTES", read_bytes)
    broker.create_topic("t", configs=CONFIGS)
    statistics = LogStatistics()
    fill(broker, 60)
    assert counted(broker, statistics) == expected(broker)
