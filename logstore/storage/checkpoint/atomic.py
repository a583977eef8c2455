"""Small files: read whole up to a limit, replaced as a whole."""

from __future__ import annotations

from collections.abc import Iterable

from logstore.errors import CorruptCheckpointError, CorruptionError
from logstore.runtime.fs import FileKind, FileSystem, NotRegularFileError, open_anew
from logstore.types import SMALL_FILE_MAX_BYTES

UNREADABLE = "readable file"
"""As the check that failed: what stands under a name was not even read."""
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
        The most that it may hold (`logstore.small.file.max.bytes`): a damaged one would take
        all memory.
    error : type, optional
        The error of one that is damaged.

    Raises
    ------
    FileNotFoundError
        There is none.
    CorruptionError
        It is larger, or no regular file; of the type `error`.
    """
    try:
        file = fs.open(path)
    except (IsADirectoryError, NotRegularFileError) as refusal:
        text = refusal.strerror or "is no regular file"
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
    """Replace a file's contents so that a crash leaves the old ones or the new ones.

    Parameters
    ----------
    fs : FileSystem
    path : str
        The file, with its directory. `<path>.tmp` is used on the way; what a crash left there
        is overwritten.
    data : bytes
        All of the new contents.

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
    """Remove what an interrupted `write_atomically` of these files left; return how many.

    Only files: what else bears such a name is not this engine's.
    """
    paths = [f"{directory}/{name}{TMP_SUFFIX}" for name in names]
    left = [path for path in paths if fs.kind(path) is FileKind.FILE]
    for path in left:
        fs.remove(path)
    return len(left)


def _parent(path: str) -> str:
    directory, slash, _ = path.rpartition("/")
    return directory or slash or "."
