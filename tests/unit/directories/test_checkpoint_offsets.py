"""Checkpoints that a data directory rewrites: which offsets are lowered, kept and proved."""

import pytest

from logstore.checkpoint.offsets import RECOVERY_POINTS, REPLICATION_OFFSETS
from logstore.errors import KafkaStorageError
from logstore.types import TopicPartition

A0 = TopicPartition("a", 0)


@pytest.fixture
def directory(home):
    manager = home.open()
    manager.topics.create("a", 1, {})
    manager.log(A0)
    yield manager.registry.directory_of(A0)
    home.kill(manager)


@pytest.mark.parametrize(
    ("recovery_point", "high_watermark", "offset", "log_start", "expected"),
    (
        (10, 0, 4, 6, (4, 6)),
        (10, 5, 4, 6, (4, 6)),
        (10, 6, 4, 6, (4, 6)),
        (10, 8, 4, 6, (4, 8)),
        (10, 0, 6, 6, (6, 0)),
        (10, 0, 4, 4, (4, 0)),
        (10, 0, 10, 12, (10, 0)),
        (10, 0, 11, 12, (10, 0)),
    ),
)
def test_a_lowered_recovery_point_leaves_a_proof_of_a_log_start_above_it(
    directory, recovery_point, high_watermark, offset, log_start, expected
):
    directory.checkpoint(RECOVERY_POINTS).write({A0: recovery_point})
    directory.checkpoint(REPLICATION_OFFSETS).write({A0: high_watermark})
    directory.lower_recovery_point(A0, offset, log_start)
    stored = (directory.checkpoint(name).read() for name in (RECOVERY_POINTS, REPLICATION_OFFSETS))
    assert tuple(offsets[A0] for offsets in stored) == expected


def test_a_lost_lock_is_noticed_even_if_there_is_nothing_new_to_write(directory):
    assert directory.write_high_watermarks({})
    writes = directory.checkpoint_writes
    assert directory.write_high_watermarks({})
    assert directory.checkpoint_writes == writes
    directory.runtime.fs.remove(f"{directory.path}/.lock")
    with pytest.raises(KafkaStorageError, match="was removed or replaced"):
        directory.write_high_watermarks({})


def test_a_directory_without_its_lock_rewrites_no_checkpoint(directory):
    directory.write_cleaner_offset(A0, 1)
    writes = directory.checkpoint_writes
    directory.runtime.fs.remove(f"{directory.path}/.lock")
    with pytest.raises(KafkaStorageError, match="was removed or replaced"):
        directory.write_cleaner_offset(A0, 2)
    assert directory.checkpoint_writes == writes
