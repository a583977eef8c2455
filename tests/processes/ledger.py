"""Check that everything that killed processes acknowledged is in the log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from logstore import Broker
from logstore.inspect.check import ERROR, Checker
from logstore.names import parse_partition_dir
from logstore.runtime import DiskFileSystem, ReadOnlyFileSystem
from tests.processes.worker import (
    BROKER_CONFIGS,
    PARTITIONS,
    SERIAL,
    TOPICS,
    Sent,
    make_topics,
)

HARMLESS = {
    "topics_partition",  # a topic's folders are made one by one, and the missing when first used
    "epoch_missing",  # delete-records cuts the epochs first; it was not acknowledged
}
"""Warnings that a kill may leave for good."""


class Stored(NamedTuple):
    """A record read from the log."""

    offset: int
    sent: Sent


class PartitionLedger:
    """One partition's records by their numbers.

    Attributes
    ----------
    sent : dict of int to Sent
        All that may be there: acknowledged, or under way when the process fell.
    offsets : dict of int to int
        Where the acknowledged ones were stored.
    forbidden : set of int
        Numbers that must not be seen: aborted, or missing once already.
    start : int
        The end of the acknowledged deletions.
    start_max : int
        Highest log start possible after deletions that were not acknowledged.
    """

    def __init__(self) -> None:
        self.sent: dict[int, Sent] = {}
        self.offsets: dict[int, int] = {}
        self.forbidden: set[int] = set()
        self.start = 0
        self.start_max = 0


class Ledger:
    """The reports of all workers, merged over many lives."""

    def __init__(self, directories: Sequence[str]) -> None:
        self.directories = list(directories)
        self.partitions = {str(tp): PartitionLedger() for tp in PARTITIONS}
        self.homes: dict[str, set[str]] = {}
        self.has_topics = False
        self.topics: set[str] = set()
        self.deleted: set[str] = set()
        self.in_doubt: set[str] = set()
        self.transactions: dict[str, list[tuple[str, Sent]]] = {}
        self.transactional_ids: set[str] = set()
        self.tally: Counter[str] = Counter()

    # -- reports of workers --------------------------------------------------------------

    def take(self, what: str, kind: str, *rest: Any) -> None:
        """Take one line in."""
        getattr(self, f"_{what}_{kind}")(*rest)
        if what == "did":
            self.tally[kind] += 1

    def _will_append(self, tp: str, records: list[list[Any]]) -> None:
        for record in records:
            sent = Sent(*record)
            self.partitions[tp].sent[sent.serial] = sent

    def _did_append(self, tp: str, serials: list[int], offsets: list[int]) -> None:
        assert len(serials) == len(offsets)
        self.partitions[tp].offsets.update(zip(serials, offsets, strict=True))
        self.tally["records"] += len(serials)

    def _will_transaction(self, name: str, records: list[list[Any]], commits: bool) -> None:
        self.transactional_ids.add(f"t-{name}")
        own = self.transactions[name] = [(tp, Sent(*record)) for tp, *record in records]
        for tp, sent in own:
            self.partitions[tp].sent[sent.serial] = sent
            if not commits:
                self.partitions[tp].forbidden.add(sent.serial)

    def _did_transaction(self, name: str, serials: list[int], offsets: list[int]) -> None:
        own = self.transactions.pop(name)
        assert [sent.serial for _, sent in own] == serials
        for (tp, sent), offset in zip(own, offsets, strict=False):
            self.partitions[tp].offsets[sent.serial] = offset
        self.tally["records"] += len(offsets)

    def _will_start(self, tp: str, offset: int) -> None:
        own = self.partitions[tp]
        own.start_max = max(own.start_max, offset)

    def _did_start(self, tp: str, offset: int) -> None:
        own = self.partitions[tp]
        own.start = max(own.start, offset)

    def _will_clean(self, topic: str) -> None:
        pass

    def _did_clean(self, topic: str) -> None:
        pass

    def _will_move(self, tp: str, target: str) -> None:
        self.homes.setdefault(tp, set(self.directories)).add(target)

    def _did_move(self, tp: str, target: str) -> None:
        self.homes[tp] = {target}

    def _will_create(self, name: str) -> None:
        self.in_doubt.add(name)

    def _did_create(self, name: str) -> None:
        self.in_doubt.discard(name)
        self.topics.add(name)

    def _will_delete(self, name: str) -> None:
        self.topics.discard(name)
        self.in_doubt.add(name)

    def _did_delete(self, name: str) -> None:
        self.in_doubt.discard(name)
        self.deleted.add(name)

    # -- state on disk -------------------------------------------------------------------

    def verify(self, *, background: bool = False) -> None:
        """Reopen the directory, compare it with the reports, close it cleanly, and check the files.

        Parameters
        ----------
        background : bool
            Whether retention ran in the background, unreported.
        """
        with Broker(self.directories, broker_config=BROKER_CONFIGS) as broker:
            if not self.has_topics:  # nobody lived long enough to make them all
                make_topics(broker)
                self.has_topics = True
            for transactional_id in self.transactional_ids:
                # Abort the transactions that the last process left open.
                with broker.producer(transactional_id=transactional_id) as producer:
                    producer.init_transactions()
            self._verify_topics(broker)
            result = {
                name: self._verify_partition(broker, name, own, background=background)
                for name, own in self.partitions.items()
            }
            self._verify_transactions(result)
        self._verify_files()
        self.tally["verifications"] += 1

    def _verify_topics(self, broker: Broker) -> None:
        names = {topic.name for topic in broker.topics() if not topic.name.startswith("__")}
        assert self.topics | TOPICS.keys() <= names, "a topic is lost"
        invented = names - self.topics - TOPICS.keys() - self.in_doubt
        assert not invented, f"{invented} came back, or was never created"
        for name in self.in_doubt:
            (self.topics if name in names else self.deleted).add(name)
        self.in_doubt.clear()
        for tp, homes in self.homes.items():
            parsed = parse_partition_dir(tp)
            assert parsed is not None
            home = broker.manager.registry.directory_of(parsed).path
            assert home in homes, f"{tp} is in {home}, not in {homes}"
            self.homes[tp] = {home}

    def _verify_partition(
        self, broker: Broker, name: str, own: PartitionLedger, *, background: bool
    ) -> dict[int, Stored]:
        tp = parse_partition_dir(name)
        assert tp is not None
        log = broker.log(*tp)
        start, end = log.log_start_offset, log.log_end_offset
        assert log.last_stable_offset == end, f"{name}: a transaction is open still"
        may_retain = background and tp.topic != "kept"
        start_max = end if may_retain else max(own.start, own.start_max)
        assert own.start <= start <= start_max, (
            f"{name} starts at {start}: {own.start} was acknowledged, {start_max} is the most"
        )
        result: dict[int, Stored] = {}
        latest: dict[str, int] = {}
        previous = -1
        for record in broker.read(*tp, isolation="read_committed"):
            assert record.offset > previous, f"{name}: {record.offset} after {previous}"
            previous = record.offset
            serial = int(dict(record.headers)[SERIAL])
            sent = own.sent.get(serial)
            assert sent is not None, f"{name}: record {serial} at {record.offset} was never sent"
            assert serial not in result, f"{name}: record {serial} is there twice"
            assert serial not in own.forbidden, f"{name}: record {serial} is back"
            assert record.key == sent.key.encode(), (name, record, sent)
            text = None if sent.is_tombstone else b"%s=%d;" % (record.key, serial)
            assert (record.value is None) == (text is None), (name, record, sent)
            assert record.value is None or record.value.startswith(text or b""), (record, sent)
            result[serial] = Stored(record.offset, sent)
            latest[sent.key] = record.offset
            known = own.offsets.get(serial, record.offset)
            assert known == record.offset, f"{name}: {serial} moved from {known}"
        is_compacted = tp.topic != "events"
        for serial, offset in own.offsets.items():
            assert offset < end, f"{name}: acknowledged at {offset}, the log ends at {end}"
            if offset < start or serial in result:
                continue
            superseded = is_compacted and latest.get(own.sent[serial].key, -1) > offset
            assert superseded, f"{name}: record {own.sent[serial]} at offset {offset} is lost"
        self._settle(own, result, start)
        return result

    def _settle(self, own: PartitionLedger, result: dict[int, Stored], start: int) -> None:
        """Treat records that were read as acknowledged; missing ones must never appear later."""
        own.forbidden |= own.sent.keys() - result.keys()
        own.offsets = {serial: each.offset for serial, each in result.items()}
        own.sent = {serial: each.sent for serial, each in result.items()}
        own.start = own.start_max = start
        self.tally["compared"] += len(result)

    def _verify_transactions(self, result: dict[str, dict[int, Stored]]) -> None:
        """Check that a transaction without a reported end is present as a whole or not at all.

        Records may be missing if later ones superseded them or if they are below the log start
        offset. New records have neither, except for the cleaner's own keys.
        """
        for own in self.transactions.values():
            last = {(tp, sent.key): sent.serial for tp, sent in own}
            there = {serial in result[tp] for (tp, _), serial in last.items()}
            starts = {self.partitions[tp].start for tp, _ in own}
            if len(there) > 1:
                assert any(starts), f"half of a transaction is there: {own}"
        self.transactions.clear()

    def verify_as_left(self) -> None:
        """Assert that `check` reports no error in the files as a kill left them."""
        checker = Checker(ReadOnlyFileSystem(DiskFileSystem()))
        for row in checker.data_dirs([path for path in self.directories if Path(path).is_dir()]):
            assert row.severity != ERROR, row
        self.tally["checks"] += 1

    def _verify_files(self) -> None:
        checker = Checker(ReadOnlyFileSystem(DiskFileSystem()))
        for row in checker.data_dirs(self.directories):
            assert row.severity == "info" or row.check in HARMLESS, row
        for directory in self.directories:
            left = [
                str(path)
                for path in Path(directory).rglob("*")
                if path.name.endswith((".cleaned", ".swap", ".deleted", ".tmp", "-future"))
            ]
            assert not left, left
