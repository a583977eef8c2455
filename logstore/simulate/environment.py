"""The environment of a simulation: a broker that can be restarted, and disks that can fail."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator
from contextlib import closing
from os import PathLike, fspath
from typing import TYPE_CHECKING, cast

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
from logstore.simulate.actions import CRASH, FILL_DISK, KILL, STOP_BROKER
from logstore.simulate.start_state import copy_start_state

if TYPE_CHECKING:
    from logstore.config.broker_config import BrokerConfig
    from logstore.faults.names import DiskError, FaultError, FaultKind
    from logstore.faults.rules import Call, FaultRule
    from logstore.runtime.fs import FileSystem
    from logstore.simulate.actions import Action
    from logstore.simulate.scenario import Scenario
    from logstore.storage.log.log import Log
    from logstore.types import TopicPartition

ONLINE, UNCLEANABLE, OFFLINE, ABSENT, DOWN = "online", "uncleanable", "offline", "absent", "down"
"""States of a partition."""

_FULL: DiskError = "ENOSPC"


class Environment:
    """A broker that can be stopped and restarted, with its files, clock and disk faults.

    Parameters
    ----------
    data_dir : path, optional
        Directory for the logs. [default: in memory]
    clock : VirtualClock
        Simulated time. The broker's clock is offset by `clock.skew_ms`.

    Attributes
    ----------
    running_broker : Broker or None
        The broker, or None while it is down.
    """

    def __init__(
        self, scenario: Scenario, data_dir: str | PathLike[str] | None, clock: VirtualClock
    ) -> None:
        self._scenario = scenario
        self._time = clock
        self.clock = SkewedClock(clock)
        self.fs: FileSystem
        if scenario.origins:
            self.fs, root = copy_start_state(scenario, clock, data_dir)
        elif data_dir is None:
            self.fs, root = MemoryFileSystem(clock), MEMORY_DIR
        else:
            self.fs, root = DiskFileSystem(clock), fspath(data_dir).rstrip("/") or "/"
        count = scenario.directories
        self.directories = (
            [root] if count == 1 else [posixpath.join(root, str(n)) for n in range(count)]
        )
        self._faults: list[tuple[Action, FaultRule | None]] = []
        self.running_broker: Broker[VirtualClock] | None = None
        self._starts = 0
        self.start()
        self._config = self.broker.broker_config

    @property
    def broker(self) -> Broker[VirtualClock]:
        """The running broker."""
        assert self.running_broker is not None, "the broker is down"
        return self.running_broker

    @property
    def config(self) -> BrokerConfig:
        """The broker's config. While the broker is down, its last config."""
        if self.running_broker is not None:
            self._config = self.running_broker.broker_config
        return self._config

    # -- start and stop ------------------------------------------------------------------

    def start(self) -> None:
        """Start the broker with the existing files."""
        self._set_broker(
            Broker(
                self.directories,
                clock=self.clock,
                broker_config=self._scenario.broker,
                seed=self._scenario.seed + self._starts,
                fs=self.fs,
                background=True,
                disk_faults=True,
            )
        )

    def stop(self, action: str) -> None:
        """Stop the broker, kill it, or simulate a power loss."""
        broker, self._config, self.running_broker = self.broker, self.config, None
        if action == STOP_BROKER:
            broker.close()
        elif action == KILL:
            broker._kill()
        else:
            assert action == CRASH
            broker._lose_power()

    def close(self) -> None:
        """Close the broker if it is running."""
        if self.running_broker is not None:
            self.running_broker.close()

    def _set_broker(self, broker: Broker[VirtualClock]) -> None:
        self.running_broker = broker
        self._starts += 1
        for index, (action, _) in enumerate(self._faults):
            self._faults[index] = (action, self._rule(action))

    # -- partitions ----------------------------------------------------------------------

    def partition_state(self, tp: TopicPartition) -> tuple[str, Log | None]:
        """Return the state of a partition, and its log if usable."""
        if self.running_broker is None:
            return DOWN, None
        try:
            log = self.running_broker.log(tp)
            log.check_open()
        except UnknownTopicOrPartitionError:
            return ABSENT, None
        except LogStoreError:
            return OFFLINE, None
        is_cleanable = cleaner_view(self.running_broker, tp).uncleanable is None
        return (ONLINE if is_cleanable else UNCLEANABLE), log

    # -- time ----------------------------------------------------------------------------

    def next_due_ms(self) -> int | None:
        """Return the time of the broker's next scheduled task, or None if there is none."""
        if self.running_broker is None:
            return None
        scheduler = self.running_broker.runtime.scheduler
        assert isinstance(scheduler, DeterministicScheduler)
        due_ms = scheduler.next_due_ms()
        return None if due_ms is None else due_ms - self.clock.skew_ms

    # -- disks ---------------------------------------------------------------------------

    def add_fault(self, action: Action) -> None:
        """From now on, make disk operations fail or slow, or fill disks."""
        rule = None if self.running_broker is None else self._rule(action)
        self._faults.append((action, rule))

    def repair(self, is_repaired: Callable[[Action], bool]) -> None:
        """Remove faults. Offline directories remain offline."""
        for action, rule in self._faults:
            if is_repaired(action) and rule is not None:
                rule.remove()
        self._faults = [each for each in self._faults if not is_repaired(each[0])]

    def _rule(self, action: Action) -> FaultRule:
        if action.do == FILL_DISK:
            return self.broker.fail("write", error=_FULL)
        delay_ms = action.delay_ms
        return self.broker.fail(
            cast("FaultKind", action.operation),
            error=cast("FaultError", action.error or (None if delay_ms else "EIO")),
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
        """Yield the `.log` files in a partition directory, in offset order."""
        if self.fs.is_dir(directory):
            for name in sorted(self.fs.list_dir(directory)):
                if name.endswith(LOG_SUFFIX):
                    yield f"{directory}/{name}"

    def waiting_bytes(self, tp: TopicPartition, directory: str | None) -> int:
        """Return the total size of a partition's files that await removal."""
        if directory is not None:
            return self._size(directory, DELETED_SUFFIX)
        size = 0
        for root in self.directories:
            for name in self.fs.list_dir(root):
                if name.startswith(f"{tp}.") and name.endswith(DELETE_DIR_SUFFIX):
                    size += self._size(f"{root}/{name}", LOG_SUFFIX)
        return size

    def _size(self, directory: str, suffix: str) -> int:
        names = (name for name in self.fs.list_dir(directory) if name.endswith(suffix))
        return sum(self.fs.stat(f"{directory}/{name}").size for name in names)

    def corrupt(self, directory: str, offset: int) -> bool:
        """Flip a bit in the checksum of the batch that contains an offset.

        Returns False if no batch contains the offset.
        """
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
