"""Read the topics of data directories without opening a broker or a log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from logstore.broker.setup import (
    background_threads,
    build_runtime,
    parse_on_damage,
    resolve_data_dirs,
)
from logstore.manager.directories.opening import close_unused, open_directories
from logstore.runtime import DiskFileSystem

if TYPE_CHECKING:
    from logstore.config.broker_config import BrokerConfig
    from logstore.manager.topics.store import Topic
    from logstore.runtime import Clock


def read_topics(
    data_dirs: Sequence[str],
    clock: Clock,
    broker_config: BrokerConfig,
    on_damage: Literal["recover", "refuse", "pass_over"],
) -> list[Topic]:
    """Return the topics by name, as a read-only `Broker` with the same parameters would.

    Raises the same errors as its constructor.
    """
    threads = background_threads(broker_config)
    directories, _, catalog = open_directories(
        build_runtime(clock, DiskFileSystem(clock), None, read_only=True, threads=threads),
        resolve_data_dirs(data_dirs, absolute=False),
        broker_config,
        read_only=True,
        on_damage=parse_on_damage(on_damage, read_only=True),
    )
    try:
        return catalog.topics()
    finally:
        close_unused(directories)
