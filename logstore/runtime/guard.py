"""A guard for file operations that takes their owner offline if the disk fails."""

from __future__ import annotations

from typing import NoReturn, Protocol

from logstore.errors import KafkaStorageError


class DiskUser(Protocol):
    """A log or data directory, which goes offline when its disk fails."""

    def go_offline(self, reason: str) -> None:
        """Refuse all further use."""


def is_disk_failure(error: OSError) -> bool:
    """Return whether an error came from the disk and not from a signal handler.

    Handlers that enforce a timeout raise `TimeoutError`, which is an `OSError` without an errno.
    """
    return error.errno is not None or not isinstance(error, TimeoutError)


class StorageGuard:
    """A context in which an `OSError` takes the owner offline and becomes a `KafkaStorageError`.

    Parameters
    ----------
    owner : DiskUser or None
        The owner, or None if a failure has no further effect. For example, writes may still succeed
        after a failed read.
    name : object
        Name of the owner, for messages.
    what : str
        The failed action, such as "cannot append".
    reason : str, optional
        The failed action as passed to the owner, if it differs from `what`.
    """

    __slots__ = ("_name", "_owner", "_reason", "_what")

    def __init__(
        self, owner: DiskUser | None, name: object, what: str, reason: str | None = None
    ) -> None:
        self._owner = owner
        self._name = name
        self._what = what
        self._reason = what if reason is None else reason

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            self.fail(error)

    def fail(self, error: OSError) -> NoReturn:
        """Take the owner offline and raise the error. For hot paths where `with` is too slow."""
        if not is_disk_failure(error):
            raise error
        if self._owner is not None:
            self._owner.go_offline(f"{self._reason}: {error}")
        raise KafkaStorageError(f"{self._name}: {self._what}: {error}") from error
