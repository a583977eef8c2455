"""The guard of file operations: what fails on a disk takes its owner offline."""

from __future__ import annotations

from typing import Protocol

from logstore.errors import KafkaStorageError


class DiskUser(Protocol):
    """A log or a data directory: what a failure of its disk puts an end to."""

    def go_offline(self, reason: str) -> None:
        """Refuse all use from now on."""


class StorageGuard:
    """A context in which an `OSError` takes the owner offline and becomes a `KafkaStorageError`.

    Parameters
    ----------
    owner : DiskUser
    name : object
        What messages call the owner.
    what : str
        What failed: "cannot append".
    """

    __slots__ = ("_name", "_owner", "_what")

    def __init__(self, owner: DiskUser, name: object, what: str) -> None:
        self._owner = owner
        self._name = name
        self._what = what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            reason = f"{self._what}: {error}"
            self._owner.go_offline(reason)
            raise KafkaStorageError(f"{self._name}: {reason}") from error
