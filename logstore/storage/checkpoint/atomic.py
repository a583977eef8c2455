"""Small files that are read and replaced as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

from logstore.errors import CorruptCheckpointError, CorruptionError
from logstore.runtime.fs import FileKind, FileSystem, NotRegularFileError, open_anew
from logstore.types import SMALL_FILE_MAX_BYTES

if TYPE_CHECKING:
    from logstore.runtime import Runtime

SYNC_THREADS = 8
"""Number of threads that sync files concurrently.

A file system can commit several waiting syncs together.
"""

UNREADABLE = "readable file"
"""The failed check of a file that could not be read at all."""
TMP_SUFFIX = ".tmp"


def read_bytes(
    fs: FileSystem,
    path: str,
    max_bytes: int = SMALL_FILE_MAX_BYTES,
    *,
    error: type[CorruptionError] = CorruptCheckpointError,
) -> bytes:
    """Return the contents of a small file.

    Parameters
    ----------
    fs : FileSystem
    path : str
    max_bytes : int, optional
        Maximum size of the file (`logstore.small.file.max.bytes`). Without a limit, a damaged file
        could exhaust memory.
    error : type, optional
        Type of the error raised for a damaged file.

    Raises
    ------
    FileNotFoundError
        The file does not exist.
    CorruptionError
        The file exceeds the limit or is not a regular file. The error has the type `error`.
    """
    try:
        file = fs.open(path)
    except (IsADirectoryError, NotRegularFileError) as refusal:
        text = refusal.strerror or "is not a regular file"
        raise error(text, path=path, check=UNREADABLE) from refusal
    try:
        if (size := file.size()) > max_bytes:
            raise error(
                f"its size of {size} bytes exceeds logstore.small.file.max.bytes = {max_bytes}",
                path=path,
                check=UNREADABLE,
                expected=max_bytes,
                found=size,
            )
        return file.read(0, size)
    finally:
        file.close()


def write_atomically(fs: FileSystem, path: str, data: bytes) -> None:
    """Replace the contents of a file. After a crash, it has either the old or the new contents.

    Parameters
    ----------
    fs : FileSystem
    path : str
        The file to replace. `<path>.tmp` is used temporarily; a leftover from a crash is
        overwritten.
    data : bytes
        The new contents.

    Notes
    -----
    Fsyncs twice: the contents before the rename, the directory after it. Concurrent writers of one
    path must be serialized; `OffsetCheckpoint` takes a lock for that.
    """
    _write_temporary(fs, path, data)
    fs.rename(path + TMP_SUFFIX, path)
    fs.sync_dir(_parent(path))


def write_all_atomically(runtime: Runtime, contents: Mapping[str, bytes]) -> None:
    """Replace the contents of several files, each as `write_atomically` does.

    The fsyncs run concurrently, and all files are written before the first is renamed.
    """
    fs = runtime.fs
    _run_all(runtime, [partial(_write_temporary, fs, *each) for each in contents.items()])
    for path in contents:
        fs.rename(path + TMP_SUFFIX, path)
    directories = dict.fromkeys(_parent(path) for path in contents)
    _run_all(runtime, [partial(fs.sync_dir, directory) for directory in directories])


def _run_all(runtime: Runtime, tasks: Sequence[Callable[[], None]]) -> None:
    """Run tasks concurrently, wait for all of them, and raise the first error."""
    for error in runtime.scheduler.run_all(tasks, threads=min(SYNC_THREADS, len(tasks)) or 1):
        if error is not None:
            raise error


def _write_temporary(fs: FileSystem, path: str, data: bytes) -> None:
    """Write the temporary file for a path and fsync it."""
    with closing(open_anew(fs, path + TMP_SUFFIX)) as file:
        file.append([data])
        file.sync()


def remove_temporary(fs: FileSystem, directory: str, names: Iterable[str]) -> int:
    """Remove the temporary files of interrupted `write_atomically` calls, and return their number.

    Only regular files are removed, because the engine creates no others.
    """
    paths = [f"{directory}/{name}{TMP_SUFFIX}" for name in names]
    left = [path for path in paths if fs.kind(path) is FileKind.FILE]
    for path in left:
        fs.remove(path)
    return len(left)


def _parent(path: str) -> str:
    directory, slash, _ = path.rpartition("/")
    return directory or slash or "."
