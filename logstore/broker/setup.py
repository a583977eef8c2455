"""Set-up of a broker: directories, files, clock and background work."""

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
"""The data directory of a broker that has none on a disk."""


def runtime_of(
    clock: Clock, fs: FileSystem, seed: int | None, *, read_only: bool, threads: int
) -> Runtime:
    """Return the world of a broker.

    Parameters
    ----------
    read_only : bool
        Changes go to memory, over the files as they are.
    threads : int
        For background work, on a clock that is not virtual.
    """
    if read_only:
        fs = OverlayFileSystem(ReadOnlyFileSystem(fs), clock)
    rng = random_source(seed)
    if isinstance(clock, VirtualClock):
        return Runtime(clock, fs, rng)
    return Runtime(clock, fs, rng, ThreadScheduler(clock, threads))


def on_damage_of(name: str, *, read_only: bool) -> OnDamage:
    """Return the rule of that name.

    Raises
    ------
    InvalidConfigurationError
        There is none, or it needs a broker that only reads.
    """
    try:
        rule = OnDamage(name)
    except ValueError:
        names = ", ".join(each.value for each in OnDamage)
        raise InvalidConfigurationError(f"on_damage {name!r} is none of {names}") from None
    if rule is OnDamage.PASS_OVER and not read_only:
        raise InvalidConfigurationError("on_damage 'pass_over' needs read_only=True")
    return rule


def disk_of(fs: FileSystem, faults: Faults) -> FaultyDisk:
    """Return files that fail by rule and can lose what is not synced."""
    from logstore.faults.disk import FaultyDisk

    return FaultyDisk(fs, faults, forgets=not isinstance(fs, FaultyDisk))


def background_threads(config: BrokerConfig) -> int:
    """Return how many threads background work takes: Kafka's, and one for each cleaner."""
    return BACKGROUND_THREADS + config.log_cleaner_threads


def resize_threads(runtime: Runtime, config: BrokerConfig) -> None:
    """Let background work have as many threads as the settings in force want."""
    if isinstance(runtime.scheduler, ThreadScheduler):
        runtime.scheduler.threads = background_threads(config)


def directories_of(
    data_dir: str | PathLike[str] | Sequence[str | PathLike[str]] | None, *, absolute: bool
) -> list[str]:
    """Return the paths of the data directories.

    Parameters
    ----------
    absolute : bool
        Resolve relative paths against the working directory, so that a later `os.chdir` does not
        change their meaning.

    Raises
    ------
    InvalidConfigurationError
        There is none among those given.
    """
    if data_dir is None:
        return [MEMORY_DIR]
    if isinstance(data_dir, str | PathLike):
        data_dir = [data_dir]
    if not data_dir:
        raise InvalidConfigurationError("at least one data directory is needed")
    paths = [fspath(path).rstrip("/") or "/" for path in data_dir]
    return [os.path.abspath(path) for path in paths] if absolute else paths  # noqa: PTH100  # a link keeps its name
