"""A reference model of a disk that loses unsynced changes: plain objects, all states kept.

Only for operations that succeed. Nothing in it is shared with `logstore.faults`.
"""

from __future__ import annotations

from collections.abc import Iterator

from logstore.runtime import FileKind


class FileModel:
    """The bytes of a file as handles see them, and as of the last sync."""

    def __init__(self, data: bytes = b"") -> None:
        self.data = self.durable = data

    def append(self, buffers: list[bytes]) -> None:
        self.write_at(buffers, len(self.data))

    def write_at(self, buffers: list[bytes], position: int) -> None:
        data = b"".join(buffers)
        if data:
            before = self.data[:position].ljust(position, b"\0")
            self.data = before + data + self.data[position + len(data) :]

    def truncate(self, size: int) -> None:
        self.data = self.data[:size].ljust(size, b"\0")

    def sync(self) -> None:
        self.durable = self.data

    def close(self) -> None:
        pass


class DirectoryModel:
    """The names in a directory as handles see them, and those that a crash leaves."""

    def __init__(self) -> None:
        self.names: dict[str, FileModel | DirectoryModel] = {}
        self.durable: dict[str, FileModel | DirectoryModel] = {}


Change = tuple[DirectoryModel, str, FileModel | DirectoryModel | None]
"""A name that means a file or directory from now on, or nothing."""


class DiskModel:
    """Files with absolute paths, initially durable."""

    def __init__(self, files: dict[str, bytes | None]) -> None:
        self.root = DirectoryModel()
        self.pending: list[tuple[Change, ...]] = []
        for path, data in files.items():
            directory, name = self._place(path)
            directory.names[name] = DirectoryModel() if data is None else FileModel(data)
            directory.durable[name] = directory.names[name]

    def _find(self, path: str) -> FileModel | DirectoryModel | None:
        found: FileModel | DirectoryModel | None = self.root
        for name in filter(None, path.split("/")):
            found = found.names.get(name) if isinstance(found, DirectoryModel) else None
        return found

    def _place(self, path: str) -> tuple[DirectoryModel, str]:
        above, _, name = path.rpartition("/")
        directory = self._find(above)
        assert isinstance(directory, DirectoryModel)
        return directory, name

    def _change(self, *changes: Change) -> None:
        for directory, name, node in changes:
            _set(directory.names, name, node)
        self.pending.append(changes)

    def open(self, path: str, *, write: bool = False, create: bool = False) -> FileModel:
        file = self._find(path)
        if file is None and create:
            file = FileModel()
            self._change((*self._place(path), file))
        assert isinstance(file, FileModel)
        return file

    def kind(self, path: str) -> FileKind:
        is_file = isinstance(self._find(path), FileModel)
        return FileKind.FILE if is_file else FileKind.DIRECTORY

    def kinds(self, path: str) -> dict[str, FileKind]:
        directory = self._find(path)
        assert isinstance(directory, DirectoryModel)
        return {name: self.kind(f"{path}/{name}") for name in directory.names}

    def rename(self, source: str, target: str) -> None:
        if source != target:
            node = self._find(source)
            self._change((*self._place(source), None), (*self._place(target), node))

    def remove(self, path: str) -> None:
        self._change((*self._place(path), None))

    remove_dir = remove

    def make_dirs(self, path: str) -> None:
        if self._find(path) is None:
            self.make_dirs(path.rpartition("/")[0])
            self._change((*self._place(path), DirectoryModel()))

    def sync_dir(self, path: str) -> None:
        synced = self._find(path)
        needed: set[tuple[DirectoryModel, str]] = set()
        kept = []
        for changes in reversed(self.pending):
            places = {(directory, name) for directory, name, _ in changes}
            if needed & places or any(directory is synced for directory, _ in places):
                needed |= places
                kept.append(changes)
        self.pending = [changes for changes in self.pending if changes not in kept]
        for changes in reversed(kept):
            for directory, name, node in changes:
                _set(directory.durable, name, node)

    def crash(self, *, contents: bool, names: int) -> dict[str, bytes | None]:
        """Return the files after a crash that keeps all contents or none, and the first names."""
        left: dict[DirectoryModel, dict[str, FileModel | DirectoryModel]] = {}
        for changes in self.pending[:names]:
            for directory, name, node in changes:
                _set(left.setdefault(directory, dict(directory.durable)), name, node)

        def walk(directory: DirectoryModel, above: str) -> Iterator[tuple[str, bytes | None]]:
            for name, node in left.get(directory, directory.durable).items():
                path = f"{above}/{name}"
                if isinstance(node, DirectoryModel):
                    yield path, None
                    yield from walk(node, path)
                else:
                    yield path, node.data if contents else node.durable

        return dict(walk(self.root, ""))


def _set(
    names: dict[str, FileModel | DirectoryModel], name: str, node: FileModel | DirectoryModel | None
) -> None:
    if node is None:
        names.pop(name, None)
    else:
        names[name] = node
