"""Set up a broker: its directories, files, clock and background tasks."""

from __future__ import annotations

import os
from collections.abc import Sequence
from os import PathLike, fspath
from typing import TYPE_CHECKING

from logstore.errors import InvalidConfigurationError
from logstore.runtime import (
    Clock,
    FileSystem,
    OverlayFileSystem,
    ReadOnlyFileSystem,
    Runtime,
    ThreadScheduler,
    VirtualClock,
    random_source,
)
from logstore.runtime.threads import BACKGROUND_THREADS
from logstore.storage.loading.on_damage import OnDamage

if TYPE_CHECKING:
    from logstore.config.broker_config import BrokerConfig
    from logstore.faults.disk import FaultyDisk
    from logstore.faults.rules import Faults

MEMORY_DIR = "/memory"
"""The data directory of a broker in memory."""


def build_runtime(
    clock: Clock, fs: FileSystem, seed: int | None, *, read_only: bool, threads: int
) -> Runtime:
    """Create the runtime of a broker.

    Parameters
    ----------
    read_only : bool
        Leave the files unchanged and only make changes in memory.
    threads : int
        Number of background threads, if the clock is not virtual.
    """
    if read_only:
        fs = OverlayFileSystem(ReadOnlyFileSystem(fs), clock)
    rng = random_source(seed)
    if isinstance(clock, VirtualClock):
        return Runtime(clock, fs, rng)
    return Runtime(clock, fs, rng, ThreadScheduler(clock, threads))


def parse_on_damage(name: str, *, read_only: bool) -> OnDamage:
    """Return the rule for damaged logs with this name.

    Raises
    ------
    InvalidConfigurationError
        The name is unknown, or the rule requires a read-only broker.
    """
    try:
        rule = OnDamage(name)
    except ValueError:
        names = ", ".join(each.value for each in OnDamage)
        raise InvalidConfigurationError(f"on_damage must be one of {names}, not {name!r}") from None
    if rule is OnDamage.PASS_OVER and not read_only:
        raise InvalidConfigurationError("on_damage 'pass_over' requires read_only=True")
    return rule


def wrap_disk(fs: FileSystem, faults: Faults) -> FaultyDisk:
    """Return a file system that can fail according to rules and can lose unsynced data."""
    from logstore.faults.disk import FaultyDisk

    return FaultyDisk(fs, faults, forgets=not isinstance(fs, FaultyDisk))


def background_threads(config: BrokerConfig) -> int:
    """Return the number of background threads: Kafka's number, plus one per cleaner thread."""
    return BACKGROUND_THREADS + config.log_cleaner_threads


def resize_threads(runtime: Runtime, config: BrokerConfig) -> None:
    """Adjust the number of background threads to the current settings."""
    if isinstance(runtime.scheduler, ThreadScheduler):
        runtime.scheduler.threads = background_threads(config)


def resolve_data_dirs(
    data_dir: str | PathLike[str] | Sequence[str | PathLike[str]] | None, *, absolute: bool
) -> list[str]:
    """Return the paths of the data directories.

    Parameters
    ----------
    absolute : bool
        Resolve relative paths, so that a later `os.chdir` does not change them.

    Raises
    ------
    InvalidConfigurationError
        The list is empty.
    """
    if data_dir is None:
        return [MEMORY_DIR]
    if isinstance(data_dir, str | PathLike):
        data_dir = [data_dir]
    if not data_dir:
        raise InvalidConfigurationError("at least one data directory is required")
    paths = [fspath(path).rstrip("/") or "/" for path in data_dir]
    return [os.path.abspath(path) for path in paths] if absolute else paths  # noqa: PTH100  # a link keeps its name
