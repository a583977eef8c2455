"""After any history `check` finds nothing in a closed directory, and no error in an open one."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given, note

from logstore import Broker
from logstore.inspect.check import INFO, Checker
from logstore.record.batch import build_batch
from logstore.record.codecs import Codec
from logstore.record.records import Record
from logstore.runtime import MemoryFileSystem, ReadOnlyFileSystem, VirtualClock
from logstore.types import AppendOrigin
from tests.support.world.builders import abort, commit, data_batch

POLICIES = ("delete", "compact", "compact,delete")
OPEN = {"missing_index", "leftover_deleted", "checkpoint_below_start"}
"""Findings allowed in an open directory: indexes are loaded lazily, files are removed after a
delay, checkpoints follow their logs at intervals."""

records = st.lists(
    st.tuples(
        st.sampled_from([b"a", b"b", b"c", b"d"]), st.one_of(st.none(), st.binary(max_size=9))
    ),
    min_size=1,
    max_size=5,
)
times = st.integers(-2_000, 2_000)
steps = st.one_of(
    st.tuples(st.just("append"), records, st.sampled_from(list(Codec)), times),
    st.tuples(st.just("append"), records, st.sampled_from(list(Codec)), times),
    st.tuples(st.just("transaction"), st.integers(1, 3), st.booleans()),
    st.tuples(st.just("epoch"), records),
    st.tuples(st.just("roll")),
    st.tuples(st.just("clean")),
    st.tuples(st.just("delete"), st.integers(0, 100)),
    st.tuples(st.just("retain")),
    st.tuples(st.just("wait"), st.integers(1, 200_000_000)),
    st.tuples(st.just("check")),
    st.tuples(st.just("reopen")),
    st.tuples(st.just("crash")),
)


class History:
    """A broker in memory and the steps of a history."""

    def __init__(self, policy: str, segment_bytes: int, interval_bytes: int) -> None:
        self.clock = VirtualClock()
        self.fs = MemoryFileSystem(self.clock)
        self.policy = policy
        self.epoch = 0
        self.deleted = self.start_is_lost = False
        self.broker = self.open()
        self.broker.create_topic(
            "t",
            1,
            {
                "cleanup.policy": policy,
                "segment.bytes": segment_bytes,
                "index.interval.bytes": interval_bytes,
                "segment.index.bytes": 1200,
                "retention.ms": 100_000_000,
                "delete.retention.ms": 1000,
                "compression.type": "producer",
            },
        )

    def open(self) -> Broker:
        return Broker("/data", clock=self.clock, fs=self.fs, seed=1)

    @property
    def log(self):
        return self.broker.log("t")

    def append(self, pairs, codec, time) -> None:
        """Append as a client, under the epoch that a controller would set."""
        data = data_of(pairs, 0, self.clock.now_ms() + time, codec=codec)
        self.log.writer.append_batches(data, leader_epoch=self.epoch)

    def transaction(self, span, ends) -> None:
        """Topics with transactions are not cleaned for now, so no topic has both."""
        if self.policy != "delete":
            return
        first, now = self.log.log_end_offset, self.clock.now_ms()
        pid = first + 1
        marker = commit if ends else abort
        for data in (
            data_batch(first, first + span - 1, pid, timestamp=now, leader_epoch=self.epoch),
            marker(first + span, pid, timestamp=now, leader_epoch=self.epoch),
        ):
            self.log.writer.append_batches(data, AppendOrigin.REPLICATION)

    def new_epoch(self, pairs) -> None:
        """Append a follower's batch under another leader's epoch."""
        self.epoch += 2
        data = data_of(
            pairs,
            self.log.log_end_offset,
            self.clock.now_ms(),
            partition_leader_epoch=self.epoch,
        )
        self.log.writer.append_batches(data, AppendOrigin.REPLICATION)

    def delete(self, percent) -> None:
        log = self.log
        if self.policy != "compact":
            span = log.high_watermark - log.log_start_offset
            log.delete_records(log.log_start_offset + span * percent // 100)
            self.deleted = True

    def close(self) -> None:
        self.broker.close()
        self.deleted = False
        assert [each for each in self.findings() if each.check not in self.explained] == []

    def reopen(self) -> None:
        self.close()
        self.broker = self.open()

    @property
    def explained(self) -> set[str]:
        """In a crash, a log start that was not checkpointed moves back, but the epochs do not."""
        return {"epoch_missing"} if self.start_is_lost else set()

    def crash(self) -> None:
        """The process ends without a clean stop; its writes remain."""
        fs = MemoryFileSystem(self.clock)
        copy_tree(self.fs, fs, "/data")
        self.fs = fs
        self.start_is_lost = self.start_is_lost or self.deleted
        self.broker = self.open()

    def findings(self):
        result = list(Checker(ReadOnlyFileSystem(self.fs)).data_dirs(["/data"]))
        note(str(result))
        return result

    def take(self, step) -> None:
        name, *details = step
        match name:
            case "append":
                self.append(*details)
            case "transaction":
                self.transaction(*details)
            case "epoch":
                self.new_epoch(*details)
            case "roll":
                self.broker.roll("t", 0)
            case "clean":
                if self.policy != "delete":
                    self.broker.clean("t", force=True)
            case "delete":
                self.delete(*details)
            case "retain":
                self.log.delete_old_segments()
            case "wait":
                self.clock.advance(ms=details[0])
            case "check":
                self.check_open()
            case "reopen":
                self.reopen()
            case "crash":
                self.crash()

    def check_open(self) -> None:
        result = [each for each in self.findings() if each.check not in self.explained]
        assert {each.check for each in result} <= OPEN
        assert {each.severity for each in result} <= {INFO}


def data_of(pairs, first, time, **fields) -> bytes:
    records = [Record(first + at, time, *pair) for at, pair in enumerate(pairs)]
    return build_batch(records, **fields)


def copy_tree(source, target, path) -> None:
    target.make_dirs(path)
    for name in source.list_dir(path):
        full = f"{path}/{name}"
        if source.is_dir(full):
            copy_tree(source, target, full)
        else:
            file = source.open(full)
            data = file.read(0, file.size())
            file.close()
            copy = target.open(full, create=True)
            copy.append([data])
            copy.close()


@given(
    policy=st.sampled_from(POLICIES),
    segment_bytes=st.sampled_from([400, 1000, 100_000]),
    interval_bytes=st.sampled_from([0, 200, 4096]),
    taken=st.lists(steps, min_size=1, max_size=25),
)
def test_check_has_no_findings_after_any_history(policy, segment_bytes, interval_bytes, taken):
    history = History(policy, segment_bytes, interval_bytes)
    for step in taken:
        history.take(step)
    history.check_open()
    history.reopen()
    history.close()
