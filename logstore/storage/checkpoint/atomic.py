"""Small files, which are read and replaced as a whole."""

from __future__ import annotations

from collections.abc import Iterable

from logstore.errors import CorruptCheckpointError, CorruptionError
from logstore.runtime.fs import FileKind, FileSystem, NotRegularFileError, open_anew
from logstore.types import SMALL_FILE_MAX_BYTES

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
        Size of the largest file that is read (`logstore.small.file.max.bytes`); a damaged file
        could exhaust memory.
    error : type, optional
        The type of the error for a damaged file.

    Raises
    ------
    FileNotFoundError
        The file does not exist.
    CorruptionError
        The file is larger, or not a regular file; of the type `error`.
    """
    try:
        file = fs.open(path)
    except (IsADirectoryError, NotRegularFileError) as refusal:
        text = refusal.strerror or "is not a regular file"
        raise error(text, path=path, check=UNREADABLE) from refusal
    try:
        if (size := file.size()) > max_bytes:
            raise error(
                f"{size} bytes are more than logstore.small.file.max.bytes = {max_bytes}",
                path=path,
                check=UNREADABLE,
                expected=max_bytes,
                found=size,
            )
        return file.read(0, size)
    finally:
        file.close()


def write_atomically(fs: FileSystem, path: str, data: bytes) -> None:
    """Replace the contents of a file; a crash leaves the old or the new contents.

    Parameters
    ----------
    fs : FileSystem
    path : str
        The file, with its directory. `<path>.tmp` is used temporarily, and overwritten if a crash
        left one.
    data : bytes
        The new contents.

    Notes
    -----
    Two syncs: the contents before the rename, the directory after it. Writers of one path must
    not overlap; `OffsetCheckpoint` takes a lock for that.
    """
    temporary = path + TMP_SUFFIX
    file = open_anew(fs, temporary)
    try:
        file.append([data])
        file.sync()
    finally:
        file.close()
    fs.rename(temporary, path)
    fs.sync_dir(_parent(path))


def remove_temporary(fs: FileSystem, directory: str, names: Iterable[str]) -> int:
    """Remove the temporary files of interrupted `write_atomically` calls, and return their number.

    Only regular files are removed. Others are not the engine's.
    """
    paths = [f"{directory}/{name}{TMP_SUFFIX}" for name in names]
    left = [path for path in paths if fs.kind(path) is FileKind.FILE]
    for path in left:
        fs.remove(path)
    return len(left)


def _parent(path: str) -> str:
    directory, slash, _ = path.rpartition("/")
    return directory or slash or "."
