"""A `.log` file as if it held whole batches of magic 2 and nothing else.

What is damaged is left out, what has a wrong length or magic has the right one, and messages of
magic 0 and 1 stand as batches. So whatever reads a log reads this, and never learns of the rest.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, NoReturn

if TYPE_CHECKING:
    from logstore.runtime.fs import Buffer, File


class Piece(NamedTuple):
    """A stretch of a file that is shown.

    Attributes
    ----------
    start, size : int
        Where it is shown, and how many bytes it takes there.
    position, size_bytes : int
        Where it lies.
    make : callable or None
        Makes of the bytes what is shown. None if they are shown as they are.
    """

    start: int
    size: int
    position: int
    size_bytes: int
    make: Callable[[bytes], bytes] | None = None


class Splice:
    """The pieces of one file.

    Parameters
    ----------
    path : str
        Where the file lies.
    pieces : sequence of Piece
        One after another, without a gap where they are shown.
    """

    def __init__(self, path: str, pieces: Sequence[Piece]) -> None:
        self.path = path
        self._pieces = tuple(pieces)
        self._starts = [piece.start for piece in self._pieces]
        self.size = self._pieces[-1].start + self._pieces[-1].size if pieces else 0

    def from_position(self, position: int) -> Iterator[Piece]:
        """Yield the piece that is shown at a position, and those behind it."""
        yield from self._pieces[max(bisect_right(self._starts, position) - 1, 0) :]


class SplicedFile:
    """The file of a splice; only read.

    Parameters
    ----------
    base : File
        The file as it lies; closed with this one.
    """

    def __init__(self, base: File, splice: Splice) -> None:
        self._base = base
        self._splice = splice
        self._made: tuple[Piece, bytes] | None = None

    def size(self) -> int:
        """Return the length in bytes."""
        return self._splice.size

    def read(self, position: int, size: int) -> bytes:
        """Return up to `size` bytes from `position` on, fewer only at the end."""
        data = bytearray(max(0, min(size, self._splice.size - position)))
        count = self.read_into(memoryview(data), position)
        return bytes(memoryview(data)[:count])

    def read_into(self, view: memoryview, position: int) -> int:
        """Fill `view` from `position` on; return the bytes read, fewer only at the end."""
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
        """Return what is shown of a piece; the last one is kept."""
        known = self._made
        if known is None or known[0] is not piece:
            assert piece.make is not None
            made = piece.make(self._base.read(piece.position, piece.size_bytes))
            known = self._made = (piece, made)
        return known[1]

    def append(self, buffers: Sequence[Buffer]) -> NoReturn:
        """Refuse."""
        self._refuse()

    def write_at(self, buffers: Sequence[Buffer], position: int) -> NoReturn:
        """Refuse."""
        self._refuse()

    def truncate(self, size: int) -> NoReturn:
        """Refuse."""
        self._refuse()

    def sync(self) -> NoReturn:
        """Refuse."""
        self._refuse()

    def close(self) -> None:
        """Close the file beneath."""
        self._base.close()

    def _refuse(self) -> NoReturn:
        raise PermissionError(f"{self._splice.path} is only read")
