"""The site of a simulation: a broker that stops, dies and comes back, and disks that fail."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator
from contextlib import closing
from os import PathLike, fspath
from typing import TYPE_CHECKING

from logstore.analysis.broker_state import cleaner_view
from logstore.broker.broker import Broker
from logstore.broker.setup import MEMORY_DIR
from logstore.errors import LogStoreError, UnknownTopicOrPartitionError
from logstore.names import DELETE_DIR_SUFFIX, DELETED_SUFFIX, LOG_SUFFIX
from logstore.record.layout import CRC_POSITION
from logstore.record.walk import walk_headers
from logstore.runtime import DiskFileSystem, MemoryFileSystem
from logstore.runtime.clock import SkewedClock, VirtualClock
from logstore.runtime.deterministic import DeterministicScheduler
from logstore.simulate.deeds import CRASH, FILL_DISK, KILL, STOP_BROKER
from logstore.simulate.starting import laid_out

if TYPE_CHECKING:
    from logstore.config.broker_config import BrokerConfig
    from logstore.faults.rules import Call, FaultRule
    from logstore.runtime.fs import FileSystem
    from logstore.simulate.deeds import Action
    from logstore.simulate.scenario import Scenario
    from logstore.storage.log.log import Log
    from logstore.types import TopicPartition

ONLINE, UNCLEANABLE, OFFLINE, ABSENT, DOWN = "online", "uncleanable", "offline", "absent", "down"
"""States of a partition."""

_FULL = "ENOSPC"


class Site:
    """A broker that comes and goes, and what stays meanwhile: files, clocks, and faults of disks.

    Parameters
    ----------
    data_dir : path, optional
        Where the logs lie; in memory by default.
    clock : VirtualClock
        The time that passes. The broker's own clock may be wrong by `clock.skew_ms`.

    Attributes
    ----------
    running : Broker or None
        None while it is down.
    """

    def __init__(
        self, scenario: Scenario, data_dir: str | PathLike[str] | None, clock: VirtualClock
    ) -> None:
        self._scenario = scenario
        self._time = clock
        self.clock = SkewedClock(clock)
        self.fs: FileSystem
        if scenario.origin:
            self.fs, root = laid_out(scenario, clock, data_dir)
        elif data_dir is None:
            self.fs, root = MemoryFileSystem(clock), MEMORY_DIR
        else:
            self.fs, root = DiskFileSystem(clock), fspath(data_dir).rstrip("/") or "/"
        count = scenario.directories
        self.directories = (
            [root] if count == 1 else [posixpath.join(root, str(n)) for n in range(count)]
        )
        self._failing: list[tuple[Action, FaultRule | None]] = []
        self.running: Broker[VirtualClock] | None = None
        self._opened = 0
        self.open()
        self._config = self.broker.broker_config

    @property
    def broker(self) -> Broker[VirtualClock]:
        """The broker, which runs."""
        assert self.running is not None, "the broker is down"
        return self.running

    @property
    def config(self) -> BrokerConfig:
        """The broker's settings in force, or those of its end."""
        if self.running is not None:
            self._config = self.running.broker_config
        return self._config

    # -- coming and going ----------------------------------------------------------------

    def open(self) -> None:
        """Start the broker on what is on its disks."""
        self._started(
            Broker(
                self.directories,
                clock=self.clock,
                broker_config=self._scenario.broker,
                seed=self._scenario.seed + self._opened,
                fs=self.fs,
                background=True,
                disk_faults=True,
            )
        )

    def end(self, how: str) -> None:
        """Stop the broker, kill it, or let its power fail."""
        broker, self._config, self.running = self.broker, self.config, None
        if how == STOP_BROKER:
            broker.close()
        elif how == KILL:
            broker._kill()
        else:
            assert how == CRASH
            broker._lose_power()

    def close(self) -> None:
        """Close the broker if there is one."""
        if self.running is not None:
            self.running.close()

    def _started(self, broker: Broker[VirtualClock]) -> None:
        self.running = broker
        self._opened += 1
        for place, (action, _) in enumerate(self._failing):
            self._failing[place] = (action, self._rule(action))

    # -- partitions ----------------------------------------------------------------------

    def look(self, tp: TopicPartition) -> tuple[str, Log | None]:
        """Return how it stands with a partition, and its log if it can be used."""
        if self.running is None:
            return DOWN, None
        try:
            log = self.running.log(tp)
            log.check_open()
        except UnknownTopicOrPartitionError:
            return ABSENT, None
        except LogStoreError:
            return OFFLINE, None
        return (ONLINE if cleaner_view(self.running, tp).uncleanable is None else UNCLEANABLE), log

    # -- time ----------------------------------------------------------------------------

    def next_due_ms(self) -> int | None:
        """Return when the broker has something to do next; None if never."""
        if self.running is None:
            return None
        scheduler = self.running.runtime.scheduler
        assert isinstance(scheduler, DeterministicScheduler)
        due_ms = scheduler.next_due_ms()
        return None if due_ms is None else due_ms - self.clock.skew_ms

    # -- disks ---------------------------------------------------------------------------

    def fail(self, action: Action) -> None:
        """Let operations of disks fail or be slow from now on, or let them be full."""
        rule = None if self.running is None else self._rule(action)
        self._failing.append((action, rule))

    def mend(self, is_meant: Callable[[Action], bool]) -> None:
        """Let disks be sound again, where a fault is meant; what is offline stays so."""
        for action, rule in self._failing:
            if is_meant(action) and rule is not None:
                rule.remove()
        self._failing = [each for each in self._failing if not is_meant(each[0])]

    def _rule(self, action: Action) -> FaultRule:
        if action.do == FILL_DISK:
            return self.broker.fail("write", error=_FULL)
        delay_ms = action.delay_ms
        return self.broker.fail(
            action.operation,
            error=action.error or (None if delay_ms else "EIO"),
            delay=delay_ms or None,
            topic=action.topic or None,
            partition=action.partition if action.partition >= 0 else None,
            when=self._inside(action.directory) if action.directory >= 0 else None,
        )

    def _inside(self, number: int) -> Callable[[Call], bool]:
        root = f"{self.directories[number]}/"

        def is_inside(call: Call) -> bool:
            return call.path is not None and call.path.startswith(root)

        return is_inside

    def log_files(self, directory: str) -> Iterator[str]:
        """Yield the paths of the `.log` files in a partition's folder, in their order."""
        if self.fs.is_dir(directory):
            for name in sorted(self.fs.list_dir(directory)):
                if name.endswith(LOG_SUFFIX):
                    yield f"{directory}/{name}"

    def waiting_bytes(self, tp: TopicPartition, directory: str | None) -> int:
        """Return the bytes of a partition's files that wait for their removal."""
        if directory is not None:
            return self._size(directory, DELETED_SUFFIX)
        found = 0
        for root in self.directories:
            for name in self.fs.list_dir(root):
                if name.startswith(f"{tp}.") and name.endswith(DELETE_DIR_SUFFIX):
                    found += self._size(f"{root}/{name}", LOG_SUFFIX)
        return found

    def _size(self, directory: str, suffix: str) -> int:
        names = (name for name in self.fs.list_dir(directory) if name.endswith(suffix))
        return sum(self.fs.stat(f"{directory}/{name}").size for name in names)

    def corrupt(self, directory: str, offset: int) -> bool:
        """Flip a bit in the checksum of the batch that holds an offset; False if none does."""
        for path in self.log_files(directory):
            with closing(self.fs.open(path, write=True)) as file:
                for at in walk_headers(file, path):
                    if at.header.base_offset <= offset <= at.header.last_offset:
                        position = at.position + CRC_POSITION
                        (byte,) = file.read(position, 1)
                        file.write_at([bytes([byte ^ 1])], position)
                        file.sync()
                        return True
        return False
