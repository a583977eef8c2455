"""In-memory snapshots of a broker: its files, settings and time.

A snapshot contains all files as they were written, synced or not, and the time of the clock. A
broker started from it opens the files as after the end of a process. Open transactions are still
open, group members can rejoin within their session timeout, and the producers, consumers and logs
of the original broker do not belong to it. Taking a snapshot is cheap, because the files share
immutable blocks.
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
    """The files, settings and time of a broker at one point in time, from `Broker.snapshot()`.

    Parameters
    ----------
    make : callable
        The class of the broker.
    runtime : Runtime
        A runtime in memory with a virtual clock.
    data_dirs : sequence of str
    broker_config : BrokerConfig
    background : bool
        Whether the new brokers run background tasks.
    disk_faults : bool
        Whether the disks of the new brokers can fail.

    Raises
    ------
    InvalidConfigurationError
        The files are not in memory, or the clock is not virtual.
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
                "a snapshot requires a broker in memory with a virtual clock"
            )
        self._fs = fs.fork(clock.copy())
        self._clock = clock.copy()
        self._make = make
        self._data_dirs = tuple(data_dirs)
        self._broker_config = broker_config
        self._background = background
        self._disk_faults = disk_faults
        # If the broker has a seed, all brokers created from the snapshot have the same seed.
        rng = runtime.rng
        self._next_seed = copy(rng).getrandbits(64) if is_repeatable(rng) else None

    def __repr__(self) -> str:
        return f"Snapshot({', '.join(self._data_dirs)} at {self._clock!r})"

    def broker(self) -> B:
        """Return a new broker in the state of the snapshot, with its own clock."""
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
