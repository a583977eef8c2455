"""A view of a `.log` file that consists of complete batches of magic 2.

The view omits damaged ranges, corrects lengths and magics, and converts messages of magic 0 and 1.
With it, any log reader can read a damaged or old file.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, NoReturn

if TYPE_CHECKING:
    from logstore.runtime.fs import Buffer, File


class Piece(NamedTuple):
    """A range of a file that is part of the view.

    Attributes
    ----------
    start, size : int
        Position and size in the view.
    position, size_bytes : int
        Position and size in the file.
    make : callable or None
        Converts the bytes of the file. None if the bytes are used unchanged.
    """

    start: int
    size: int
    position: int
    size_bytes: int
    make: Callable[[bytes], bytes] | None = None


class Splice:
    """The pieces of a file that form the view.

    Parameters
    ----------
    path : str
        Path of the file.
    pieces : sequence of Piece
        In view order, without gaps.
    """

    def __init__(self, path: str, pieces: Sequence[Piece]) -> None:
        self.path = path
        self._pieces = tuple(pieces)
        self._starts = [piece.start for piece in self._pieces]
        self.size = self._pieces[-1].start + self._pieces[-1].size if pieces else 0

    def from_position(self, position: int) -> Iterator[Piece]:
        """Yield the piece at a position of the view and all later pieces."""
        yield from self._pieces[max(bisect_right(self._starts, position) - 1, 0) :]


class SplicedFile:
    """A read-only file that shows the content of a splice.

    Parameters
    ----------
    base : File
        The file on disk, which is closed together with this file.
    """

    def __init__(self, base: File, splice: Splice) -> None:
        self._base = base
        self._splice = splice
        self._made: tuple[Piece, bytes] | None = None

    def size(self) -> int:
        """Return the length of the view in bytes."""
        return self._splice.size

    def read(self, position: int, size: int) -> bytes:
        """Read up to `size` bytes from `position`. Returns fewer bytes only at the end."""
        data = bytearray(max(0, min(size, self._splice.size - position)))
        count = self.read_into(memoryview(data), position)
        return bytes(memoryview(data)[:count])

    def read_into(self, view: memoryview, position: int) -> int:
        """Fill `view` from `position`. Return the number of bytes read, fewer only at the end."""
        done = 0
        for piece in self._splice.from_position(position):
            inside = position + done - piece.start
            count = min(piece.size - inside, len(view) - done)
            if count <= 0:
                break
            target = view[done : done + count]
            if piece.make is None:
                found = self._base.read_into(target, piece.position + inside)
            else:
                target[:] = self._bytes(piece)[inside : inside + count]
                found = count
            done += found
            if found < count:
                break
        return done

    def _bytes(self, piece: Piece) -> bytes:
        """Return the bytes of a converted piece. The last one is cached."""
        known = self._made
        if known is None or known[0] is not piece:
            assert piece.make is not None
            made = piece.make(self._base.read(piece.position, piece.size_bytes))
            known = self._made = (piece, made)
        return known[1]

    def append(self, buffers: Sequence[Buffer]) -> NoReturn:
        """Raise `PermissionError`."""
        self._refuse()

    def write_at(self, buffers: Sequence[Buffer], position: int) -> NoReturn:
        """Raise `PermissionError`."""
        self._refuse()

    def truncate(self, size: int) -> NoReturn:
        """Raise `PermissionError`."""
        self._refuse()

    def sync(self) -> NoReturn:
        """Raise `PermissionError`."""
        self._refuse()

    def close(self) -> None:
        """Close the underlying file."""
        self._base.close()

    def _refuse(self) -> NoReturn:
        raise PermissionError(f"{self._splice.path} is only read")
