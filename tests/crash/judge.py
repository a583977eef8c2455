"""Compare a reopened broker with a journal: no record missing, added or misplaced."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from logstore.broker import Broker
from logstore.inspect.check import ERROR, Checker, CheckFinding
from logstore.manager.directories.move_notes import MOVES_FILE
from logstore.names import FUTURE_DIR_SUFFIX
from logstore.runtime import FileSystem, ReadOnlyFileSystem
from logstore.storage.log import Log
from tests.crash.journal import (
    DATA_DIR,
    OTHER_DIR,
    Cleaning,
    Journal,
    Partition,
    Rec,
    check_log,
    checkpoint_of,
    stored,
)


def check_broker(broker: Broker, journal: Journal, reference: Journal) -> None:
    """Assert every invariant of a reopened broker.

    Parameters
    ----------
    journal : Journal
        As of the crash.
    reference : Journal
        The run without a crash: the result of a cleaning pass that was in progress.
    """
    check_topics(broker, journal)
    for tp in broker.partitions():
        log = broker.manager.log(tp)
        check_log(log)
        partition = journal.partitions.get(tp, Partition())
        complete = reference.partitions.get(tp, Partition())
        check_contents(log, partition, complete, checkpoint_of(broker, log))


def errors_in(fs: FileSystem, journal: Journal) -> list[CheckFinding]:
    """Return the errors that `check` reports after a crash; there must be none."""
    directories = [path for path in (DATA_DIR, OTHER_DIR) if fs.is_dir(path)]
    result = Checker(ReadOnlyFileSystem(fs)).data_dirs(directories)
    return [row for row in result if row.severity == ERROR and not is_of_a_hole(row, journal)]


def is_of_a_hole(row: CheckFinding, journal: Journal) -> bool:
    """Return whether a truncation to an offset inside a batch explains a checkpoint beyond the end.

    The truncation removes the whole batch, so the log ends above a hole. A lost batch looks the
    same.
    """
    ends = []
    for partition in journal.partitions.values():
        ends += partition.cut_batches
        cuts = [each.end for each in partition.reductions if each.end is not None]
        ends += [(partition.end_below(partition.base_at(end)), end) for end in cuts]
    is_beyond = row.check in ("checkpoint_beyond_end", "snapshot_offset")
    return is_beyond and any(a <= row.expected < row.found <= b for a, b in ends)


def check_topics(broker: Broker, journal: Journal) -> None:
    """Assert that the created topics, and only those, exist and are complete.

    A topic in deletion is complete or has no partitions.
    """
    topics = {topic.name: topic for topic in broker.topics()}
    lost = journal.topics.keys() - topics.keys() - journal.deleting
    assert not lost, f"topics {lost} are lost"
    for name, topic in topics.items():
        assert name in journal.tried_topics, f"topic {name} was invented, or came back"
        partitions, configs = journal.tried_topics[name]
        wanted = (tuple(range(partitions)), configs, False)
        result = (topic.partitions, dict(topic.configs), topic.adopted)
        assert result == wanted, f"topic {name} is another one: {result}"
    directories = broker.manager.directories
    names = [name for each in directories for name in broker.runtime.fs.list_dir(each.path)]
    partitions = [name for name in names if name.rpartition("-")[2].isdigit()]
    assert len(partitions) == len(set(partitions)), f"folders {partitions}"
    halves = [name for name in names if name.endswith(FUTURE_DIR_SUFFIX) or name == MOVES_FILE]
    assert not halves, f"half moved: {halves}"
    for tp in journal.homes.keys() & set(broker.partitions()):
        home = broker.manager.registry.directory_of(tp).path
        assert home in journal.homes[tp], f"{tp} is in {home}, not in {journal.homes[tp]}"
    folders = {name.rpartition("-")[0] for name in partitions}
    assert folders <= topics.keys(), f"folders {folders} of topics {topics.keys()}"
    lost = set(journal.partitions) - set(broker.partitions())
    lost = {tp for tp in lost if tp.topic not in journal.deleting}
    assert not any(journal.partitions[tp].flushed for tp in lost), f"flushed partitions lost {lost}"


def check_contents(
    log: Log, partition: Partition, complete: Partition, checkpoint: int | None
) -> None:
    """Assert that the log has all records that were acknowledged and may be durable."""
    check_bounds(log, partition)
    there = stored(log)
    start, end = log.log_start_offset, log.log_end_offset
    assert list(there) == sorted(there), "offsets rise"
    cleaned_to = 0
    checkpoints: set[int | None] = {None} if not partition.cleanings else set()
    if partition.is_cleaning:
        own = partition.cleanings[-1]
        intended = complete.cleanings[len(partition.cleanings) - 1 :]
        checkpoints.add(own.checkpoint_before)
        if not check_mixture(there, own, intended):
            checkpoints |= {cleaning.checkpoint_after for cleaning in intended}
        cleaned_to = own.bases_before[-1]
    elif partition.cleanings:
        own = partition.cleanings[-1]
        assert own.after is not None
        cleaned_to = own.bases_after[-1]
        inside = [offset for offset in there if offset < cleaned_to]
        cleaned = [offset for offset in own.after if start <= offset < cleaned_to]
        assert inside == cleaned, "a finished cleaning is not undone"
        checkpoints.add(own.checkpoint_after)
    for offset in there:
        if offset < cleaned_to:
            assert there[offset] == partition.acknowledged[offset]
    assert checkpoint in checkpoints, f"cleaner checkpoint {checkpoint} is none of {checkpoints}"
    restarts = {reduction.restart for reduction in partition.reductions}
    if not there and end in restarts:
        return
    # The new first segment may already precede the old ones.
    first = partition.start if start in restarts else start
    assert not there or next(iter(there)) >= first
    check_prefix(there, partition, max(cleaned_to, start, first), end)
    assert live(there.values()) == live(
        partition.acknowledged.get(offset, there.get(offset))
        for offset in range(start, end)
        if offset in partition.acknowledged or offset in there
    ), "the latest value of a key changed"


def check_bounds(log: Log, partition: Partition) -> None:
    """Assert that the log starts at its acknowledged start and ends no earlier than allowed.

    Records deleted below an acknowledged log start never reappear; an interrupted deletion reaches
    some segment boundary. The end stays above all flushed records, deleted or not, unless a
    truncation was in progress.
    """
    start, end = log.log_start_offset, log.log_end_offset
    starts, least_end = {partition.start}, partition.flushed_end
    for reduction in partition.reductions:
        if reduction.start is not None:
            between = (base for base in reduction.bases if partition.start < base)
            starts |= {base for base in between if base <= reduction.start} | {reduction.start}
        if reduction.end is not None:
            starts.add(min(partition.start, reduction.end))
            base = partition.base_at(reduction.end)
            least_end = min(least_end, partition.end_below(base))
        if reduction.restart is not None:
            starts.add(reduction.restart)
            least_end = min(least_end, partition.start, reduction.restart)
    assert start in starts, f"the log starts at {start}, not at one of {starts}"
    assert end >= least_end, f"flushed to {partition.flushed}, the log ends at {end}"


def check_mixture(there: dict[int, Rec], own: Cleaning, intended: list[Cleaning]) -> bool:
    """Assert that each source segment is as before or as cleaned; return whether any is as before.

    Parameters
    ----------
    intended : list of Cleaning
        This cleaning and later ones as they ended where nothing failed: a pass that is tried
        again may do the work of a later one.
    """
    mixed = False
    all_bases = {*own.bases_before, *(base for c in intended for base in c.bases_after)}
    for start, stop in pairwise(sorted(base for base in all_bases if base <= own.bases_before[-1])):

        def within(offsets: Iterable[int], start: int = start, stop: int = stop) -> list[int]:
            return [offset for offset in offsets if start <= offset < stop]

        allowed = [within(cleaning.after or []) for cleaning in intended]
        inside = within(there)
        mixed |= inside not in allowed
        allowed.append(within(own.before))
        assert inside in allowed, f"[{start}, {stop}) has {inside}, not one of {allowed}"
    return mixed


def check_prefix(there: dict[int, Rec], partition: Partition, start: int, end: int) -> None:
    """Assert that from `start` on whole batches follow each other as they were written.

    `start` may be in a batch, and batches may be missing only where a truncation removed one that
    began before it.
    """
    if start >= end:
        assert not any(at >= start for at in there)
        return
    offset = start
    for base, tries in partition.tried.items():
        if base < start < base + len(tries[-1]):
            offset = base
    while offset < end:
        if offset in partition.holes:
            offset = partition.holes[offset]
            continue
        tries = partition.tried.get(offset, [])
        if offset < partition.flushed:
            tries = tries[-1:]
        for batch in tries:
            records = [pair for pair in enumerate(batch, offset) if pair[0] >= start]
            if all(there.get(at) == record for at, record in records):
                offset += len(batch)
                break
        else:
            got = [there.get(at) for at in range(offset, end)]
            raise AssertionError(f"at offset {offset}: {got} was not written there: {tries}")
    assert offset == end, f"batches end at {offset}, the log at {end}"
    assert all(at < end for at in there)


def live(records: Iterable[Rec | None]) -> dict[bytes | None, bytes]:
    """Return the latest value of each key; a tombstone takes the key away."""
    values: dict[bytes | None, bytes] = {}
    for record in records:
        assert record is not None
        if record.value is None:
            values.pop(record.key, None)
        else:
            values[record.key] = record.value
    return values
