"""Producer ids, reserved durably in blocks of one thousand.

The file `logstore-producer-ids.json` in the first data directory contains the first unreserved id.
A block is reserved before its first id is used, so that a crash cannot lead to duplicate ids. As in
Kafka, the remaining ids of a block are not used after a restart. The logs of a directory that was
copied from a broker may contain higher ids, so a process's first block starts above them.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from logstore.errors import CorruptCheckpointError, LogStoreError, RequestError
from logstore.names import PRODUCER_IDS_FILE
from logstore.runtime import FileSystem
from logstore.runtime.guard import StorageGuard
from logstore.storage.checkpoint.atomic import read_bytes, write_atomically
from logstore.types import INT64_MAX, NO_PRODUCER_ID, SMALL_FILE_MAX_BYTES

if TYPE_CHECKING:
    from logstore.manager.manager import LogManager

logger = logging.getLogger(__name__)

BLOCK_SIZE = 1000
"""The number of ids in a block (Kafka's `ProducerIdsBlock.PRODUCER_ID_BLOCK_SIZE`)."""

_VERSION = 1


class ProducerIds:
    """Generates unique producer ids.

    Parameters
    ----------
    fs : FileSystem
    log_dir : str
        The first data directory.
    lock : context manager
        The lock to hold while an id is allocated.
    largest_known : callable
        Returns the highest producer id in the logs, or -1 if there is none. It is called once,
        before the first block is reserved.
    max_bytes : int
        Maximum size of the file.
    """

    def __init__(
        self,
        fs: FileSystem,
        log_dir: str,
        lock: AbstractContextManager[object],
        largest_known: Callable[[], int],
        max_bytes: int = SMALL_FILE_MAX_BYTES,
    ) -> None:
        self._fs = fs
        self.path = f"{log_dir}/{PRODUCER_IDS_FILE}"
        self._lock = lock
        self._largest_known = largest_known
        self._max_bytes = max_bytes
        self._next = 0
        self._reserved_end: int | None = None

    def take(self) -> int:
        """Return a new producer id.

        Raises
        ------
        CorruptCheckpointError
            The file is malformed.
        KafkaStorageError
            The file cannot be read or written.
        RequestError
            All producer ids have been used.
        """
        with self._lock:
            if self._reserved_end is None or self._next == self._reserved_end:
                self._reserve()
            producer_id = self._next
            self._next += 1
            return producer_id

    def _reserve(self) -> None:
        # No directory is passed, because a failure of this file does not take a directory offline.
        with StorageGuard(None, self.path, "cannot reserve producer ids"):
            first = self._read()
            if self._reserved_end is None:
                first = max(first, self._largest_known() + 1)
            if first > INT64_MAX - BLOCK_SIZE:
                raise RequestError("all producer ids have been used")
            document = {"version": _VERSION, "next_producer_id": first + BLOCK_SIZE}
            text = json.dumps(document, indent=2) + "\n"
            write_atomically(self._fs, self.path, text.encode())
        self._next = first
        self._reserved_end = first + BLOCK_SIZE

    def _read(self) -> int:
        """Return the first unreserved id."""
        if not self._fs.exists(self.path):
            return 0
        try:
            document = json.loads(read_bytes(self._fs, self.path, self._max_bytes))
            version, first = document["version"], document["next_producer_id"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise CorruptCheckpointError(
                f"not a file of producer ids: {error}", path=self.path, check="json"
            ) from error
        if version != _VERSION:
            raise CorruptCheckpointError(
                "unknown version",
                path=self.path,
                check="version",
                expected=_VERSION,
                found=version,
            )
        if type(first) is not int or not 0 <= first <= INT64_MAX:
            raise CorruptCheckpointError(
                "next_producer_id is not a valid producer id",
                path=self.path,
                check="next_producer_id",
                found=first,
            )
        return first


def largest_producer_id(manager: LogManager) -> int:
    """Return the highest producer id in a manager's logs, or -1 if there is none."""
    largest = NO_PRODUCER_ID
    for tp in manager.catalog.partitions():
        try:
            known = manager.log(tp).producer_state.active_producers()
        except LogStoreError as error:
            logger.warning("%s: cannot read its producer ids: %s", tp, error)
            continue
        largest = max(largest, *known, NO_PRODUCER_ID)
    return largest
