"""Records of partitions that are being moved to another data directory.

`logstore-moves.json` in the source directory is written before the first file is copied and removed
with its last entry. After a crash, the next start reads from it which of two copies is valid
(`moving`). Kafka ignores the file.
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
    """A move that has started.

    Attributes
    ----------
    target : str
        The target data directory.
    folder : str
        Name of the copy's folder in the target until the copy is complete. The last step renames
        it.
    undone : bool
        Whether the move failed. If so, the partition remains in the source, whatever the target
        contains.
    """

    target: str
    folder: str
    undone: bool = False


def read_moves(
    fs: FileSystem, log_dir: str, max_bytes: int = SMALL_FILE_MAX_BYTES
) -> dict[TopicPartition, Move]:
    """Return the moves recorded in a data directory. Empty if the file is missing.

    Raises
    ------
    CorruptCheckpointError
        The file is invalid, so it is unknown which copy of a partition is valid.
    """
    path = f"{log_dir}/{MOVES_FILE}"
    try:
        data = read_bytes(fs, path, max_bytes)
    except FileNotFoundError:
        return {}  # another process may have just finished a move
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
        raise ValueError(f"{name!r} is not a partition")
    return parsed.topic_partition


def _move(target: object, folder: object, undone: object) -> Move:
    if not (isinstance(target, str) and isinstance(folder, str) and isinstance(undone, bool)):
        raise TypeError("a move must have a target, a folder and a flag")
    return Move(target, folder, undone)


def write_moves(fs: FileSystem, log_dir: str, moves: Mapping[TopicPartition, Move]) -> None:
    """Replace a directory's recorded moves, or remove the file if there are none.

    The change is durable on return.
    """
    path = f"{log_dir}/{MOVES_FILE}"
    if moves:
        rows = {str(tp): move._asdict() for tp, move in sorted(moves.items())}
        text = json.dumps({"version": _VERSION, "moves": rows}, indent=2) + "\n"
        write_atomically(fs, path, text.encode())
    elif fs.exists(path):
        fs.remove(path)
        fs.sync_dir(log_dir)
