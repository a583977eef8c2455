"""A topic with several partitions is created durably, with few syncs, whenever a crash comes."""

from __future__ import annotations

from collections import Counter

import pytest

from logstore import Broker, VirtualClock
from logstore.errors import TopicAlreadyExistsError
from logstore.manager.registry import CREATED_TOGETHER
from logstore.testing import CrashMode, FaultyFileSystem, Names, SimulatedCrash

PARTITIONS = 3


def create(fs: FaultyFileSystem, partitions: int = PARTITIONS) -> None:
    broker = Broker("/data", clock=VirtualClock(), fs=fs, seed=1)
    broker.create_topic("before", 1)
    fs.operations.clear()
    broker.create_topic("a", partitions)


@pytest.mark.parametrize("partitions", (1, PARTITIONS, 2 * CREATED_TOGETHER + 1))
def test_each_partition_needs_two_syncs_and_all_share_the_one_of_their_names(partitions):
    fs = FaultyFileSystem(VirtualClock())
    create(fs, partitions)
    syncs = Counter(
        each.path if each.path == "/data" or "topics" in each.path else each.kind.value
        for each in fs.operations
        if each.kind.value in ("sync", "sync_dir")
    )
    # The topics file and the names of the folders each need a sync of the data directory.
    assert syncs.pop("/data") == 2
    assert syncs.pop("/data/logstore-topics.json.tmp") == 1
    assert syncs == {"sync": partitions, "sync_dir": partitions}
    with Broker("/data", clock=VirtualClock(), fs=fs.crash(CrashMode()), seed=1) as recovered:
        ids = {recovered.topic("a").id}
        for number in range(partitions):
            text = recovered.manager.runtime.fs.open(f"/data/a-{number}/partition.metadata")
            ids.add(text.read(0, text.size()).decode().rpartition(" ")[2])
        assert len(ids) == 1


@pytest.mark.parametrize("names", (Names.UNDONE, Names.KEPT))
def test_a_crash_at_any_point_leaves_a_topic_or_none(names):
    whole = FaultyFileSystem(VirtualClock())
    create(whole)
    last = whole.operation_count
    assert last > 8 * PARTITIONS
    for number in range(1, last + 1):
        fs = FaultyFileSystem(VirtualClock())
        broker = Broker("/data", clock=VirtualClock(), fs=fs, seed=1)
        broker.create_topic("before", 1)
        fs.operations.clear()
        fs.crash_at(number)
        with pytest.raises(SimulatedCrash):
            broker.create_topic("a", PARTITIONS)
        image = fs.crash(CrashMode(names=names))
        with Broker("/data", clock=VirtualClock(), fs=image, seed=2) as recovered:
            try:
                recovered.create_topic("a", PARTITIONS)
            except TopicAlreadyExistsError:
                assert recovered.topic("a").partitions == tuple(range(PARTITIONS))
            for partition in range(PARTITIONS):
                assert recovered.append("a", value=b"v", partition=partition).offset == 0
