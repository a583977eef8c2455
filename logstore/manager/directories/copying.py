"""Copy a partition's files."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from logstore.runtime import FileKind, read_pieces

if TYPE_CHECKING:
    from logstore.runtime import FileStat, FileSystem

Guard = Callable[[], AbstractContextManager[None]]


def files_of(fs: FileSystem, folder: str) -> dict[str, FileStat]:
    """Return the regular files in a partition directory, without links and special files."""
    paths = {name: f"{folder}/{name}" for name in fs.list_dir(folder)}
    return {name: fs.stat(path) for name, path in paths.items() if fs.kind(path) is FileKind.FILE}


def copy_file(
    fs: FileSystem,
    path: str,
    stat: FileStat,
    target: FileSystem,
    target_path: str,
    *,
    reading: Guard = nullcontext,
    writing: Guard = nullcontext,
    progress: Callable[[int], None] | None = None,
) -> None:
    """Copy a file with its modification time. The copy is durable except for its name.

    Parameters
    ----------
    stat : FileStat
        The file's state when the directory was listed. Later appends are not copied. The copy is
        shorter if the file was truncated in the meantime.
    target : FileSystem
        The file system to copy to.
    reading, writing : callable, optional
        Return a guard for each operation on the source or the copy.
    progress : callable, optional
        Called with the number of bytes copied, before each piece.
    """
    with reading():
        file = fs.open(path)
    try:
        with writing():
            copy = target.open(target_path, create=True)
        try:
            pieces = read_pieces(file, 0, stat.size)
            done = 0
            while True:
                with reading():
                    piece = next(pieces, b"")
                if not piece:
                    break
                if progress is not None:
                    progress(done)
                with writing():
                    copy.append([piece])
                done += len(piece)
            with writing():
                target.set_mtime(target_path, stat.mtime_ms)
                copy.sync()
        finally:
            copy.close()
    finally:
        file.close()
