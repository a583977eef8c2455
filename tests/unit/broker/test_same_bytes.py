"""The same seed makes the same bytes, and memory holds the files that a disk does."""

import random

import pytest

from logstore import Broker, VirtualClock
from logstore.runtime import DiskFileSystem, MemoryFileSystem
from tests.support.world.golden_dirs import tree

SMALL = {"offsets.topic.num.partitions": 3, "transaction.state.log.num.partitions": 3}
GROUP = {"group_id": "g", "auto_offset_reset": "earliest", "isolation_level": "read_committed"}


def story(broker, seed):
    """Members that join, read, commit, die and leave, next to producers, cleanings and time."""
    rng = random.Random(seed)
    broker.create_topic("t", partitions=3, configs={"cleanup.policy": "compact,delete"})
    members = [broker.consumer("t", **GROUP)]
    producers = [broker.producer(linger_ms=20), broker.producer(transactional_id="x")]
    producers[1].init_transactions()
    for _ in range(40):
        kind = rng.choice(("send", "send", "transaction", "poll", "poll", "join", "end", "time"))
        key = b"%d" % rng.randrange(9)
        if kind == "send":
            producers[0].send("t", rng.choice((b"v", None)), key=key)
        elif kind == "transaction":
            producers[1].begin_transaction()
            producers[1].send("t", b"in one", key=key)
            rng.choice((producers[1].commit_transaction, producers[1].abort_transaction))()
        elif kind == "poll":
            for member in members:
                member.poll(timeout_ms=100)
                member.commit()
        elif kind == "join" and len(members) < 3:
            members.append(broker.consumer("t", **GROUP))
        elif kind == "end" and len(members) > 1:
            rng.choice((members[-1].crash, members[-1].close))()
            members.pop()
        elif kind == "time":
            broker.clock.advance(hours=rng.randrange(40))
            broker.clean(force=True, roll=True)
    return broker.groups.committed("g")


def files_after(seed, fs, clock, path, *, background):
    with Broker(
        path, fs=fs, clock=clock, seed=seed, broker_config=SMALL, background=background
    ) as broker:
        committed = story(broker, seed)
    files = tree(fs, path)
    files.pop(".lock", None)
    return files, committed


@pytest.mark.parametrize(("seed", "background"), ((0, False), (1, True)))
def test_memory_and_disk_hold_the_same_files_and_a_run_repeats_them(seed, background, tmp_path):
    clocks = [VirtualClock() for _ in range(3)]
    runs = [
        files_after(seed, MemoryFileSystem(clocks[0]), clocks[0], "/data", background=background),
        files_after(seed, MemoryFileSystem(clocks[1]), clocks[1], "/data", background=background),
        files_after(
            seed, DiskFileSystem(clocks[2]), clocks[2], str(tmp_path), background=background
        ),
    ]
    assert runs[0][1], "something was committed"
    assert runs[0] == runs[1]
    assert runs[0] == runs[2]
    assert any(name.startswith("__consumer_offsets") for name in runs[0][0])
