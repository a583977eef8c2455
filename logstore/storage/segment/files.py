"""The files of a segment: how they are named, opened, renamed, removed and flushed.

`LogSegment` handles the contents of the files.
"""

from __future__ import annotations

import errno
import threading
from typing import TYPE_CHECKING

from logstore.errors import CorruptRecordError
from logstore.names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    file_name,
)
from logstore.runtime.open_files import OPEN_FILES
from logstore.storage.index import OffsetIndex, TimeIndex, TransactionIndex
from logstore.types import INT32_MAX

if TYPE_CHECKING:
    from logstore.config.log_config import LogConfig
    from logstore.runtime import File, FileSystem


def check_segment_size(path: str, size_bytes: int) -> None:
    """Raise `CorruptRecordError` if a `.log` is larger than a segment can be."""
    if size_bytes > INT32_MAX:
        raise CorruptRecordError(
            f"a segment of {size_bytes} bytes is larger than 2^31-1",
            path=path,
            check="segment_size",
            expected=INT32_MAX,
            found=size_bytes,
        )


class SegmentFiles:
    """A `.log` file and its three indexes; see `LogSegment` for the parameters.

    Notes
    -----
    One thread at a time changes the files, under the log's lock. Readers take no lock: they open a
    file under its current name, keep it open through renames and removal, and never re-create a
    removed file.
    """

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        base_offset: int,
        config: LogConfig,
        *,
        suffix: str,
        create: bool,
    ) -> None:
        self._fs = fs
        self.directory = directory
        self.base_offset = base_offset
        self.config = config
        self.suffix = suffix
        # Guards the name and the opening of the `.log`. Each index has its own lock.
        self._names = threading.Lock()
        self._is_closed = False
        # The file is not opened for writing before the first change. Most segments are only read,
        # and a `.log` with several hard links is copied when it is opened for writing.
        self._file: File | None = None
        self._is_writable = False
        self._is_synced = True
        # Whether the file might be longer than its data, after preallocation or a partial write.
        self._may_be_longer = create
        if create:
            self._file = fs.open(self.log_path, create=True)
            self._is_writable = True
            self._file.truncate(config.segment_bytes if config.preallocate else 0)
            self._is_synced = False
            self.size_bytes = 0
            OPEN_FILES.opened(self)
        else:
            self.size_bytes = fs.stat(self.log_path).size
            check_segment_size(self.log_path, self.size_bytes)
        self.offset_index = OffsetIndex(
            fs,
            self._path(INDEX_SUFFIX),
            base_offset,
            max_index_bytes=config.segment_index_bytes,
            writable=True,
        )
        self.time_index = TimeIndex(
            fs,
            self._path(TIME_INDEX_SUFFIX),
            base_offset,
            max_index_bytes=config.segment_index_bytes,
            writable=True,
        )
        self.txn_index = TransactionIndex(fs, self._path(TXN_INDEX_SUFFIX), base_offset)

    def _path(self, kind: str) -> str:
        return f"{self.directory}/{file_name(self.base_offset, kind)}{self.suffix}"

    @property
    def log_path(self) -> str:
        """Path of the `.log` file under its current name."""
        return self._path(LOG_SUFFIX)

    @property
    def file(self) -> File:
        """The `.log` file, opened for reading on first use.

        Raises
        ------
        OSError
            The file cannot be opened, or has been closed: its path may now belong to another log.
        """
        file = self._file
        return self._open(write=False) if file is None else file

    def _writing(self) -> File:
        """Return the `.log` file for writing."""
        self._is_synced = False  # first, because `release_file` depends on it
        self._may_be_longer = True
        file = self._file
        return self._open(write=True) if file is None or not self._is_writable else file

    def _open(self, *, write: bool) -> File:
        with self._names:
            file = self._file
            if file is None or (write and not self._is_writable):
                if self._is_closed:
                    raise OSError(errno.EBADF, "closed for good", self.log_path)
                # Readers of the file that was open keep using it.
                file = self._file = self._fs.open(self.log_path, write=write)
                self._is_writable = write
        OPEN_FILES.opened(self)
        return file

    def release_file(self) -> bool:
        """Close the `.log` until it is next used.

        Reads in progress can continue. A file with unflushed changes remains open, because
        otherwise a failed write could not be reported.
        """
        if not self._is_synced:
            return False
        self._file = None
        return True

    @property
    def last_modified_ms(self) -> int:
        """Modification time of the `.log` file, in Unix milliseconds."""
        with self._names:
            return self._fs.stat(self.log_path).mtime_ms

    def set_last_modified_ms(self, mtime_ms: int) -> None:
        """Set the modification time of the `.log` file and both sparse indexes."""
        for path in (self.log_path, self.offset_index.path, self.time_index.path):
            if self._fs.exists(path):
                self._fs.set_mtime(path, mtime_ms)

    def change_suffix(self, suffix: str) -> None:
        """Rename every existing file of the segment to end in `suffix`.

        Open files remain valid, so readers of the segment can continue.
        """
        with self._names:
            source = self.log_path
            self.suffix = suffix
            self._fs.rename(source, self.log_path)
        self.offset_index.rename_to(self._path(INDEX_SUFFIX))
        self.time_index.rename_to(self._path(TIME_INDEX_SUFFIX))
        self.txn_index.rename_to(self._path(TXN_INDEX_SUFFIX))

    def delete_if_exists(self) -> None:
        """Close and remove every file of the segment."""
        self.close_handlers()
        self.remove_files()

    def remove_files(self) -> None:
        """Remove every file of the segment. Its readers can continue with open files.

        An index that is not open reads as empty from now on.
        """
        if self._fs.exists(self.log_path):
            self._fs.remove(self.log_path)
        self.remove_indexes()

    def remove_indexes(self) -> None:
        """Remove the index files. This object never re-creates them."""
        for index in (self.offset_index, self.time_index, self.txn_index):
            index.retire()
            if self._fs.exists(index.path):
                self._fs.remove(index.path)

    def flush(self) -> None:
        """Fsync the log and the indexes."""
        file = self.file
        self._is_synced = True
        try:
            file.sync()
        except OSError:
            self._is_synced = False
            raise
        self.offset_index.flush()
        self.time_index.flush()
        self.txn_index.flush()

    def close_handlers(self) -> None:
        """Close the files without trimming them."""
        self.offset_index.close_handler()
        self.time_index.close_handler()
        self.txn_index.close()
        self._close_log()

    def _close_log(self) -> None:
        with self._names:
            file, self._file = self._file, None
            self._is_closed = True
        if file is not None:
            file.close()

    def _trim_log(self) -> None:
        if self._may_be_longer and self.file.size() > self.size_bytes:
            self._writing().truncate(self.size_bytes)
        self._may_be_longer = False

    def resize_indexes(self) -> None:
        """Extend both sparse indexes to their full length without losing entries.

        The full length is the `segment.index.bytes` in effect when the segment was created or
        opened.
        """
        for index in (self.offset_index, self.time_index):
            index.resize(index.max_index_bytes)

    def truncate_file(self, size_bytes: int) -> None:
        """Truncate the `.log` to `size_bytes`. The caller (recovery) must handle the indexes."""
        self._writing().truncate(size_bytes)
        self.size_bytes = size_bytes
