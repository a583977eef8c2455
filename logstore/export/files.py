"""The output file of an export, which gets its final name once it is complete."""

from __future__ import annotations

import errno
import io
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from logstore.runtime.fs import open_anew

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

    from logstore.runtime.fs import File, FileSystem

PARTIAL_SUFFIX = ".partial"
_BUFFER_BYTES = 1 << 20


class ExportFile:
    """A file that is written under a temporary name and renamed when complete.

    Leaving the `with` block renames the file; an exception removes it. The temporary file of a
    killed export is overwritten by the next export.

    Parameters
    ----------
    path : str
        Path in an existing directory.
    overwrite : bool
        Whether to replace an existing file.

    Raises
    ------
    FileExistsError
        Raised at the start or, if the file was created in the meantime, at the end.
    """

    def __init__(self, fs: FileSystem, path: str, *, overwrite: bool = False) -> None:
        self._fs = fs
        self._path = path
        self._overwrite = overwrite
        self._partial = path + PARTIAL_SUFFIX
        self._refuse_if_there()
        self._file = open_anew(fs, self._partial)
        self.stream = io.BufferedWriter(_Stream(self._file), _BUFFER_BYTES)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            try:
                self._publish()
            except BaseException:
                self._discard()
                raise
        else:
            self._discard()

    def _publish(self) -> None:
        self.stream.flush()
        self._file.sync()
        self._file.close()
        self._refuse_if_there()
        self._fs.rename(self._partial, self._path)
        directory, slash, _ = self._path.rpartition("/")
        self._fs.sync_dir(directory or slash or ".")

    def _discard(self) -> None:
        with suppress(OSError):  # flushing fails if the disk is full
            self.stream.close()
        self._file.close()
        with suppress(OSError):  # do not hide the original error
            self._fs.remove(self._partial)

    def _refuse_if_there(self) -> None:
        if not self._overwrite and self._fs.exists(self._path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), self._path)


class _Stream(io.RawIOBase):
    """Adapts a file of `logstore.runtime` to `io`. Closing the adapter does not close the file."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._position = 0

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def tell(self) -> int:
        return self._position

    def write(self, data: ReadableBuffer, /) -> int:
        view = memoryview(data).cast("B")
        self._file.append([view])
        self._position += len(view)
        return len(view)
