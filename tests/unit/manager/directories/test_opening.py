"""Partitions that several data directories hold."""

import logging
from types import SimpleNamespace

import pytest

from logstore import Broker
from logstore.errors import InvalidConfigurationError, KafkaStorageError
from logstore.manager.directories.opening import _find_partitions
from logstore.names import LOCK_FILE, METADATA_LOG
from logstore.runtime import MemoryFileSystem, Runtime, VirtualClock
from logstore.types import TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def directory(path, *partitions):
    return SimpleNamespace(path=path, partitions=set(partitions))


def test_each_partition_has_the_directory_it_is_in():
    one, two, homes = directory("/one", A0), directory("/two", A1, B0), {}
    _find_partitions([one, two], homes)
    assert homes == {A0: one, A1: two, B0: two}


def test_a_partition_in_two_directories_is_refused_with_both():
    with pytest.raises(InvalidConfigurationError) as caught:
        _find_partitions([directory("/one", A0), directory("/two", B0), directory("/3", A0)], {})
    assert str(caught.value) == "partition a-0 exists in both /one and /3"


def test_of_several_metadata_logs_the_first_is_used(caplog):
    caplog.set_level(logging.WARNING)
    one, two = directory("/one", A0), directory("/two", METADATA_LOG, A1)
    three, homes = directory("/3", METADATA_LOG, B0), {}
    _find_partitions([one, two, three], homes)
    assert homes == {A0: one, METADATA_LOG: two, A1: two, B0: three}
    assert (two.partitions, three.partitions) == ({METADATA_LOG, A1}, {B0})
    assert caplog.messages == [
        "/3/__cluster_metadata-0 is ignored, because /two contains this partition, too; use its"
        " path to inspect it"
    ]


def test_directories_opened_before_one_that_fails_are_closed():
    runtime = Runtime(VirtualClock(), MemoryFileSystem(VirtualClock()))
    runtime.fs.make_dirs("/two")
    taken = runtime.fs.lock(f"/two/{LOCK_FILE}")
    for _ in range(2):  # the first attempt leaves no lock of its own
        with pytest.raises(KafkaStorageError) as caught:
            Broker(["/one", "/two"], clock=runtime.clock, fs=runtime.fs)
        assert "/two" in str(caught.value)
        runtime.fs.lock(f"/one/{LOCK_FILE}").release()
    taken.release()
