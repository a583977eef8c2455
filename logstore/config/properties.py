"""Java properties files, as brokers and tools are configured with."""

from __future__ import annotations

from logstore.errors import InvalidConfigurationError
from logstore.runtime.fs import read_input
from logstore.types import LINE_END


def read_properties(path: str) -> dict[str, str]:
    """Read a Java properties file, or a pipe that yields one.

    Raises
    ------
    InvalidConfigurationError
        There is no such file, or it is malformed.
    """
    try:
        data = read_input(path)
    except FileNotFoundError as error:
        raise InvalidConfigurationError(f"there is no configuration file {path}") from error
    return parse_properties(data, path)


def parse_properties(data: bytes, path: str) -> dict[str, str]:
    """Return what a Java properties file says; `path` names it in errors.

    Raises
    ------
    InvalidConfigurationError
        It is malformed.
    """
    # Few commands are given a file, and the library takes its time to load.
    import javaproperties

    try:
        return javaproperties.loads(_joined(data.decode("latin-1")))
    except ValueError as error:
        raise InvalidConfigurationError(f"{path} is no properties file: {error}") from error


def _joined(text: str) -> str:
    """Return properties with each logical line in one line; the library's time to join is squared.

    A line goes on in the next one if it ends in an odd number of backslashes, but for comments.
    """
    lines: list[str] = []
    parts: list[str] = []
    for line in LINE_END.split(text):
        piece = line.lstrip(" \t\f")
        if not parts and piece.startswith(("#", "!")):
            continue
        if (len(piece) - len(piece.rstrip("\\"))) % 2:
            parts.append(piece[:-1])
            continue
        whole = "".join([*parts, piece])
        # A line that begins so only once it is joined is a key, no comment.
        lines.append(f"\\{whole}" if parts and whole.startswith(("#", "!")) else whole)
        parts.clear()
    return "\n".join([*lines, "".join(parts)])
