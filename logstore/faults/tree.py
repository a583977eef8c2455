"""Files and directories as nodes of a tree: for layers that know what of it is durable."""

from __future__ import annotations


class Node:
    """A file or directory; its path follows the volatile names of those above."""

    def __init__(self, parent: Directory | None, name: str) -> None:
        self.parent = parent
        self.name = name

    @property
    def path(self) -> str:
        """Where it stands, or stood last."""
        if self.parent is None:
            return self.name
        above = self.parent.path
        return f"{above}{self.name}" if above in ("", "/") else f"{above}/{self.name}"


class Directory(Node):
    """The names in a directory, and those of them that a crash spares."""

    def __init__(self, parent: Directory | None, name: str) -> None:
        super().__init__(parent, name)
        self.names: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}
