"""Producer ids: handed out one by one, reserved durably by the thousand.

`logstore-producer-ids.json` in the first data directory says from which id on none is reserved. A
block is taken there before its first id is used, so that no crash makes an id be given twice;
what is left of a block when the process ends is never used, as with Kafka's brokers. A directory
that was copied from a broker knows ids that this file does not: the first block of a process
starts above all that the logs know.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager

from logstore.errors import CorruptCheckpointError, RequestError
from logstore.names import PRODUCER_IDS_FILE
from logstore.runtime import FileSystem
from logstore.runtime.guard import StorageGuard
from logstore.storage.checkpoint.atomic import read_bytes, write_atomically
from logstore.types import INT64_MAX, SMALL_FILE_MAX_BYTES

BLOCK_SIZE = 1000
"""Ids reserved at a time: Kafka's `ProducerIdsBlock.PRODUCER_ID_BLOCK_SIZE`."""

_VERSION = 1


class ProducerIds:
    """Hands out producer ids that nobody has.

    Parameters
    ----------
    fs : FileSystem
    log_dir : str
        The first data directory.
    lock : context manager
        Held while an id is taken.
    largest_known : callable
        Gives the largest id that the logs know, -1 if none; asked once, before the first block.
    max_bytes : int
        Bytes that the file may have, to be read.
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
        """Return an id that was never returned before.

        Raises
        ------
        CorruptCheckpointError
            The file cannot be understood.
        KafkaStorageError
            It cannot be read or written.
        RequestError
            All ids are used.
        """
        with self._lock:
            if self._reserved_end is None or self._next == self._reserved_end:
                self._reserve()
            producer_id = self._next
            self._next += 1
            return producer_id

    def _reserve(self) -> None:
        # A file that could not be read may still be written: no failure takes a directory offline.
        with StorageGuard(None, self.path, "cannot reserve producer ids"):
            first = self._read()
            if self._reserved_end is None:
                first = max(first, self._largest_known() + 1)
            if first > INT64_MAX - BLOCK_SIZE:
                raise RequestError("all producer ids are used")
            document = {"version": _VERSION, "next_producer_id": first + BLOCK_SIZE}
            text = json.dumps(document, indent=2) + "\n"
            write_atomically(self._fs, self.path, text.encode())
        self._next = first
        self._reserved_end = first + BLOCK_SIZE

    def _read(self) -> int:
        """Return the first id that is not reserved."""
        if not self._fs.exists(self.path):
            return 0
        try:
            document = json.loads(read_bytes(self._fs, self.path, self._max_bytes))
            version, first = document["version"], document["next_producer_id"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise CorruptCheckpointError(
                f"no file of producer ids: {error}", path=self.path, check="json"
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
                "the next producer id is no such number",
                path=self.path,
                check="next_producer_id",
                found=first,
            )
        return first
