"""Partitions that are on their way to another data directory, as the one that they leave notes it.

`logstore-moves.json` is written before the first file is copied and goes with its last entry, so
that after a crash the next start knows which of two copies counts (`moving`). Kafka looks at no
file of that name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from logstore.errors import CorruptCheckpointError
from logstore.names import parse_log_dir
from logstore.storage.checkpoint.atomic import read_bytes, write_atomically
from logstore.types import SMALL_FILE_MAX_BYTES, TopicPartition

if TYPE_CHECKING:
    from logstore.runtime import FileSystem

MOVES_FILE = "logstore-moves.json"
_VERSION = 1


class Move(NamedTuple):
    """A move that was begun.

    Attributes
    ----------
    target : str
        The data directory it leads to.
    folder : str
        Name of the copy there until it is complete; its last step gives it the partition's name.
    undone : bool
        It failed, and the partition lives on where it was, whatever stands in the target.
    """

    target: str
    folder: str
    undone: bool = False


def read_moves(
    fs: FileSystem, log_dir: str, max_bytes: int = SMALL_FILE_MAX_BYTES
) -> dict[TopicPartition, Move]:
    """Return the moves that a data directory notes; none if it has no such file.

    Raises
    ------
    CorruptCheckpointError
        It cannot be understood; nobody can tell then which copy of a partition counts.
    """
    path = f"{log_dir}/{MOVES_FILE}"
    try:
        data = read_bytes(fs, path, max_bytes)
    except FileNotFoundError:
        return {}  # also where another process has just finished a move
    try:
        document = json.loads(data)
        version, rows = document["version"], document["moves"].items()
        moves = {_partition(name): _move(**row) for name, row in rows}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CorruptCheckpointError(
            f"not a file of moves: {error}", path=path, check="json"
        ) from error
    if version != _VERSION:
        raise CorruptCheckpointError(
            "unknown version", path=path, check="version", expected=_VERSION, found=version
        )
    return moves


def _partition(name: str) -> TopicPartition:
    parsed = parse_log_dir(name)
    if parsed is None or parsed.state:
        raise ValueError(f"{name!r} is no partition")
    return parsed.topic_partition


def _move(target: object, folder: object, undone: object) -> Move:
    if not (isinstance(target, str) and isinstance(folder, str) and isinstance(undone, bool)):
        raise TypeError("a move is two names and whether it was undone")
    return Move(target, folder, undone)


def write_moves(fs: FileSystem, log_dir: str, moves: Mapping[TopicPartition, Move]) -> None:
    """Replace what a data directory notes; durable on return. Without moves there is no file."""
    path = f"{log_dir}/{MOVES_FILE}"
    if moves:
        rows = {str(tp): move._asdict() for tp, move in sorted(moves.items())}
        text = json.dumps({"version": _VERSION, "moves": rows}, indent=2) + "\n"
        write_atomically(fs, path, text.encode())
    elif fs.exists(path):
        fs.remove(path)
        fs.sync_dir(log_dir)
