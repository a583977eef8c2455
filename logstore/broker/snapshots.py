"""Snapshots of a broker in memory: its files, its settings and its time, to go on from again.

What is taken are the files as they are at that moment, all that was written included, and the
clock's time. A broker that is made of them opens these files as after the end of a process: open
transactions are open, members of groups have their session's length to report, and who had a
producer, a consumer or a log of the first broker has none of the other. Files share their sealed
blocks, so that a snapshot costs little, and any number of brokers can be made of one.
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
    """A broker's files, settings and time at one moment; made by `Broker.snapshot()`.

    Parameters
    ----------
    make : callable
        Makes a broker: the class.
    runtime : Runtime
        In memory, on a virtual clock.
    data_dirs : sequence of str
    broker_config : BrokerConfig
    background : bool
        Whether the brokers made of it have background work.
    disk_faults : bool
        Whether their disks can be made to fail.

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
        # A broker that can be repeated makes brokers that can: all of them alike.
        rng = runtime.rng
        self._next_seed = copy(rng).getrandbits(64) if is_repeatable(rng) else None

    def __repr__(self) -> str:
        return f"Snapshot({', '.join(self._data_dirs)} at {self._clock!r})"

    def broker(self) -> B:
        """Return a new broker that goes on from here, on a clock of its own."""
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
