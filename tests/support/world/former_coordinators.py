"""Directories with coordinators next to the brokers, as commit 796ad6b9 wrote them.

`tests/data/earlier/coordinator-directories.tar.xz` has three directories of a cluster of three. In
each, group `plain` committed an offset, and producers `x` and `y` committed or aborted offsets of
groups `g` and `h` in transactions. In `complete`, all transactions are complete; in `open`, `x` has
one more, with a record and an offset; `fault` was written with an earlier fault, so that
`__consumer_offsets` has no markers.
"""

import os
import shutil
import tarfile

from logstore import Cluster, TopicPartition, VirtualClock
from logstore.cluster import cluster as cluster_module
from logstore.faults.faultfs import SimulatedCrash
from logstore.runtime import DiskFileSystem
from tests.support.world.golden_dirs import ROOT

CONFIG = {
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 2,
    "log.index.size.max.bytes": 1024,
}
T0 = TopicPartition("t", 0)
OFFSETS = {"g": {0: 0, 1: 3}, "h": {0: 2}, "plain": {0: 3}}
"""Committed offsets of each group, by partition of topic `t`."""


def unpack(tmp_path, monkeypatch):
    """Return the folder with the three directories."""
    for name in ("fsync", "fdatasync"):  # a kill loses nothing that was written
        monkeypatch.setattr(os, name, lambda _: None)
    with tarfile.open(ROOT.parent / "earlier" / "coordinator-directories.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


def opened(path, **options):
    return Cluster(clock=VirtualClock(), data_dir=path, broker_config=CONFIG, seed=1, **options)


def groups_of(cluster, group_id):
    return cluster.brokers[cluster.group_coordinator(group_id)].groups


def coordinator_of(cluster, transactional_id):
    return cluster.brokers[cluster.transaction_coordinator(transactional_id)].coordinator


def committed(cluster):
    """Return the error or the offset that a reader of stable offsets gets, by group."""
    return {
        group_id: {
            tp.partition: each.error or each.committed.offset
            for tp, each in groups_of(cluster, group_id)
            .fetch(group_id, require_stable=True)
            .items()
        }
        for group_id in OFFSETS
    }


def states(cluster):
    return {
        each: coordinator_of(cluster, each).describe(each).state.kafka_name for each in ("x", "y")
    }


def settled(cluster):
    """Let the coordinators load their partitions, and the replicas catch up."""
    cluster.clock.advance(seconds=1)
    return committed(cluster), states(cluster)


COMPLETE = {"x": "CompleteCommit", "y": "CompleteCommit"}


class Killed(DiskFileSystem):
    """A file system whose process is killed at the n-th change of the cluster's own files."""

    left = 0

    def _count(self):
        Killed.left -= 1
        if Killed.left <= 0:
            raise SimulatedCrash

    def rename(self, source, target):
        self._count()
        super().rename(source, target)

    def remove(self, path):
        self._count()
        super().remove(path)

    def remove_dir(self, path):
        self._count()
        super().remove_dir(path)

    def sync_dir(self, path):
        self._count()
        super().sync_dir(path)

    def make_dirs(self, path):
        self._count()
        super().make_dirs(path)

    def open(self, path, *, write=False, create=False):
        if write:
            self._count()
        return super().open(path, write=write, create=create)


def killed(path, monkeypatch, number):
    """Open a cluster, and kill the process at the n-th change of a file; return whether it was."""
    Killed.left = number
    with monkeypatch.context() as patch:
        patch.setattr(cluster_module, "DiskFileSystem", Killed)
        try:
            with opened(path):
                pass
        except SimulatedCrash:
            return True
    return False


def run_killed(directory, monkeypatch, numbers):
    """Kill the migration of a directory at the n-th changes of a file, and open it again.

    Returns the number of migrations that were killed; it ends with the first that was not.
    """
    expected = {
        "open": (OFFSETS | {"g": {0: 0, 1: "UNSTABLE_OFFSET_COMMIT"}}, COMPLETE | {"x": "Ongoing"})
    }.get(directory.name, (OFFSETS, COMPLETE))
    for count, number in enumerate(numbers):
        of_killed, path = directory.parent / f"killed-{number}", directory.parent / f"{number}"
        shutil.copytree(directory, of_killed)
        was_killed = killed(of_killed, monkeypatch, number)
        shutil.copytree(of_killed, path)  # whose locks nobody holds
        with opened(path) as cluster:
            assert settled(cluster) == expected, number
        assert not (path / "coordinator").exists()
        shutil.rmtree(path)
        shutil.rmtree(of_killed)
        if not was_killed:
            return count
    return len(numbers)
