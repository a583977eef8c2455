"""The abrupt end of a broker: a killed process, or a power failure that loses unsynced data."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from logstore.errors import InvalidConfigurationError, KafkaStorageError, LogStoreError
from logstore.faults.faultfs import FaultyFileSystem

if TYPE_CHECKING:
    from logstore.broker.plugins import Closable
    from logstore.clients.consumer import Consumer
    from logstore.clients.producer import Producer
    from logstore.faults.crash import CrashMode
    from logstore.faults.disk import FaultyDisk
    from logstore.manager.manager import LogManager
    from logstore.runtime import FileSystem


def end_process(
    manager: LogManager,
    listeners: Iterable[Closable],
    clients: Iterable[Consumer | Producer],
    why: str = "was killed",
) -> None:
    """End a broker like a killed process. Its files remain as written."""
    for listener in listeners:
        listener.close()
    for client in clients:
        with suppress(LogStoreError):
            client.crash()
    manager.abandon(why)


def lose_power(
    disk: FaultyDisk,
    mode: CrashMode | None,
    manager: LogManager,
    listeners: Iterable[Closable],
    clients: Iterable[Consumer | Producer],
) -> FileSystem:
    """End a broker by a power failure and return the remaining files; see `Broker.crash`."""
    base = disk.base
    image: FileSystem | None = None
    if isinstance(base, FaultyFileSystem):
        image = base.crash(mode)
    elif mode is not None:
        raise InvalidConfigurationError(
            "crash modes require fs=FaultyFileSystem(…); other file systems always keep synced data"
        )
    disk.cut_power()
    end_process(manager, listeners, clients, "has lost power")
    if image is None:
        try:
            disk.lose_power()
        except OSError as error:
            raise KafkaStorageError(f"unsynced data cannot be discarded: {error}") from error
        image = base
    return image
