"""S-192 … S-197: loading after a swap was interrupted at a given operation.

Two closed segments, A at 0 and B at 4, become one. A test names the last operation, with all
earlier ones of its kind durable, or tries all of them.
"""

import pytest

from logstore.names import CLEANED_SUFFIX, DELETED_SUFFIX, SWAP_SUFFIX
from logstore.testing import FaultyFileSystem, Kind
from tests.crash.harness import BOUNDED, KEPT, files, run
from tests.crash.journal import (
    check_log,
    checkpoint_of,
    found_in,
    open_broker,
    stored,
)
from tests.crash.scenarios import clean_in_groups, clean_to_nothing, prepare_segments
from tests.crash.session import Session
from tests.support.world.builders import bases_of
from tests.support.world.crashes import modes

A_LOG = "00000000000000000000.log"
A_TIMEINDEX = "00000000000000000000.timeindex"
B_TIMEINDEX = "00000000000000000004.timeindex"

BEFORE = [0, 1, 2, 3, 4, 5, 6, 7, 8]
AFTER = [0, 1, 4, 5, 6, 7, 8]


def two_into_one(session):
    session.create_topic("t", cleanup_policy="compact", segment_bytes=4000, file_delete_delay_ms=0)
    prepare_segments(session, 2)
    session.flush()
    session.begin()
    session.clean()


@pytest.fixture(scope="module")
def whole():
    """The disk and journal of the run without a crash."""
    return run(two_into_one)


def renamed(whole, name, suffix):
    """Return the number of the operation that gave a file its new name."""
    fs, _ = whole
    return next(
        operation.number
        for operation in fs.operations
        if operation.kind is Kind.RENAME and operation.target.endswith(name + suffix)
    )


def reopened(whole, number, mode=KEPT):
    """Return the log that is loaded after a crash at an operation, and its broker."""
    _, journal = whole
    fs, _ = run(two_into_one, crash_at=number)
    broker = open_broker(FaultyFileSystem(journal.clock, fs.crash(mode)), journal.clock)
    log = broker.log("t")
    check_log(log)  # no file with a suffix remains, lookups agree with a scan
    return log, broker


def names_left(whole, number):
    fs, _ = run(two_into_one, crash_at=number)
    return fs.crash(KEPT).list_dir("/disk/data/t-0")


def test_the_scenario_is_as_the_others_take_it(whole):
    _, journal = whole
    (partition,) = journal.partitions.values()
    (cleaning,) = partition.cleanings
    assert (cleaning.before, cleaning.after) == (BEFORE, AFTER)
    assert (cleaning.bases_before, cleaning.bases_after) == ([0, 4, 8], [0, 8])


@pytest.mark.parametrize("scenario", (two_into_one, clean_to_nothing, clean_in_groups))
def test_each_step_of_a_swap_is_durable_before_the_next(scenario):
    """If the power fails after the first rename of a step, no other name is lost."""
    fs, _ = run(scenario)
    first: dict[str, int] = {}
    for operation in fs.operations:
        if operation.kind is Kind.RENAME and A_LOG in operation.target:
            first.setdefault(operation.target.rpartition("/")[2], operation.number)
    assert list(first) == [A_LOG + SWAP_SUFFIX, A_LOG + DELETED_SUFFIX, A_LOG]
    names = {
        name: run(scenario, crash_at=number)[0].pending_names for name, number in first.items()
    }
    # Renames to `.swap` begin with the highest segment, which has three files.
    highest = 3 if scenario is clean_in_groups else 0
    assert list(names.values()) == [highest + 1, 1, 1]


def test_s192_crash_with_cleaned_files_complete_and_nothing_renamed(whole):
    """`.cleaned` is complete, no rename was done: all original records are there."""
    before_the_first = renamed(whole, A_LOG, SWAP_SUFFIX) - 1
    left = names_left(whole, before_the_first)
    assert any(name.endswith(CLEANED_SUFFIX) for name in left)
    assert not any(name.endswith(SWAP_SUFFIX) for name in left)
    log, _ = reopened(whole, before_the_first)
    assert list(stored(log)) == BEFORE
    assert bases_of(log) == [0, 4, 8]


def test_s193_crash_after_the_rename_of_the_log_before_that_of_its_index(whole):
    number = renamed(whole, A_LOG, SWAP_SUFFIX)
    left = names_left(whole, number)
    assert A_LOG + SWAP_SUFFIX in left
    assert "00000000000000000000.index" + CLEANED_SUFFIX in left
    log, _ = reopened(whole, number)
    assert list(stored(log)) == BEFORE
    assert bases_of(log) == [0, 4, 8]


def test_s194_crash_with_all_files_swapped_and_the_originals_present(whole):
    number = renamed(whole, A_TIMEINDEX, SWAP_SUFFIX)
    left = names_left(whole, number)
    assert not any(name.endswith((CLEANED_SUFFIX, DELETED_SUFFIX)) for name in left)
    assert A_LOG in left
    log, _ = reopened(whole, number)
    assert list(stored(log)) == AFTER
    assert bases_of(log) == [0, 8]


@pytest.mark.parametrize(
    ("name", "suffix"),
    (
        pytest.param(B_TIMEINDEX, DELETED_SUFFIX, id="originals renamed"),
        pytest.param(A_LOG, "", id="log final, time index still .swap"),
        pytest.param(A_TIMEINDEX, "", id="everything but the deletions"),
    ),
)
def test_s195_crash_after_the_originals_were_renamed(whole, name, suffix):
    number = renamed(whole, name, suffix)
    log, _ = reopened(whole, number)
    assert list(stored(log)) == AFTER
    assert bases_of(log) == [0, 8]
    assert log.segments.first.time_index.entries > 0


def test_s196_clean_again_after_a_crash_at_any_operation_of_the_swap(whole):
    """After each operation of the pass, in each mode: the result equals a run without a crash."""
    fs, journal = whole
    ended = found_in(open_broker(FaultyFileSystem(journal.clock, fs.crash(KEPT)), journal.clock))
    first = next(op.number for op in fs.operations if op.path.endswith(CLEANED_SUFFIX))
    seen = set()
    for number in range(first, fs.operation_count + 1):
        crashed, _ = run(two_into_one, crash_at=number)
        for mode in modes(crashed, BOUNDED):
            image = crashed.crash(mode)
            key = str(sorted(files(image).items()))
            if key in seen:
                continue
            seen.add(key)
            again = FaultyFileSystem(journal.clock, image)
            broker = open_broker(again, journal.clock)
            broker.clean("t", force=True)
            journal.clock.advance(minutes=2)
            broker.clean("t", force=True)  # the delete delay is over
            assert found_in(broker) == ended, f"{crashed.operations[-1]}, {mode}"
            log = broker.log("t")
            check_log(log)
            assert checkpoint_of(broker, log) == 8
    assert len(seen) > 40


def test_s197_leftovers_of_a_failed_pass_are_removed_before_the_next_writes(whole):
    """The first pass fails while writing; the second finds its longer files."""
    _, journal = whole
    image = run(two_into_one, crash_at=journal.first_operation)[0].crash(KEPT)
    again = FaultyFileSystem(journal.clock, image)
    broker = open_broker(again, journal.clock)
    log = broker.log("t")
    for kind in (".log", ".index", ".timeindex", ".txnindex"):
        file = again.open(f"{log.directory}/{0:020}{kind}{CLEANED_SUFFIX}", create=True)
        file.append([b"left over " * 1000])
        file.close()
    broker.clean("t", force=True)
    assert list(stored(log)) == AFTER
    assert log.segments.first.txn_index.is_empty
    check_log_after_deletions(broker, log)


def test_s197_a_pass_that_failed_can_be_repeated(whole):
    """A write to `.cleaned` fails: the partition is offline; the next start removes the rest."""
    _, journal = whole
    fs = FaultyFileSystem(journal.clock)
    fs.fail("write", error="ENOSPC", nth=1, suffix=".log" + CLEANED_SUFFIX, written=7)
    session = Session(fs, journal, go_on=True)
    two_into_one(session)
    assert len(journal.failures) == 1
    assert any(name.endswith(CLEANED_SUFFIX) for name in fs.list_dir("/disk/data/t-0"))
    again = FaultyFileSystem(journal.clock, fs.crash(KEPT))
    broker = open_broker(again, journal.clock)
    log = broker.log("t")
    check_log(log)
    assert list(stored(log)) == BEFORE
    broker.clean("t", force=True)
    assert list(stored(log)) == AFTER


def check_log_after_deletions(broker, log):
    log.delete_expired_files(force=True)
    check_log(log)
