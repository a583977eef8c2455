"""Snapshots of a broker in memory: its files, settings and time, from which new brokers can start.

A snapshot contains all files as written, synced or not, and the time of the clock. A broker made
from it opens the files as after the end of a process: open transactions are open, group members
have their session timeout to rejoin, and producers, consumers and logs of the first broker do not
belong to it. Files share their sealed blocks, so a snapshot is cheap.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Generic, TypeVar

from logstore.errors import InvalidConfigurationError
from logstore.faults.disk import FaultyDisk
from logstore.runtime import MemoryFileSystem, VirtualClock, is_repeatable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from logstore.config.broker_config import BrokerConfig
    from logstore.runtime import Runtime


B = TypeVar("B")


class Snapshot(Generic[B]):
    """A broker's files, settings and time at one point in time; made by `Broker.snapshot()`.

    Parameters
    ----------
    make : callable
        Makes a broker: the class.
    runtime : Runtime
        In memory, on a virtual clock.
    data_dirs : sequence of str
    broker_config : BrokerConfig
    background : bool
        Whether the new brokers do background work.
    disk_faults : bool
        Whether the new brokers' disks can fail.

    Raises
    ------
    InvalidConfigurationError
        The files are not in memory, or time is not virtual.
    """

    def __init__(
        self,
        make: Callable[..., B],
        runtime: Runtime,
        data_dirs: Sequence[str],
        broker_config: BrokerConfig,
        *,
        background: bool,
        disk_faults: bool,
    ) -> None:
        fs, clock = runtime.fs, runtime.clock
        if isinstance(fs, FaultyDisk):
            fs = fs.base
        if not isinstance(fs, MemoryFileSystem) or not isinstance(clock, VirtualClock):
            raise InvalidConfigurationError(
                "a snapshot is of a broker in memory, on a virtual clock"
            )
        self._fs = fs.fork(clock.copy())
        self._clock = clock.copy()
        self._make = make
        self._data_dirs = tuple(data_dirs)
        self._broker_config = broker_config
        self._background = background
        self._disk_faults = disk_faults
        # If the broker is repeatable, all brokers made from it are, with the same seed.
        rng = runtime.rng
        self._next_seed = copy(rng).getrandbits(64) if is_repeatable(rng) else None

    def __repr__(self) -> str:
        return f"Snapshot({', '.join(self._data_dirs)} at {self._clock!r})"

    def broker(self) -> B:
        """Return a new broker in the state of the snapshot, on its own clock."""
        clock = self._clock.copy()
        return self._make(
            self._data_dirs,
            clock=clock,
            broker_config=self._broker_config,
            fs=self._fs.fork(clock),
            background=self._background,
            disk_faults=self._disk_faults,
            seed=self._next_seed,
        )
