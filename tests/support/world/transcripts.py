"""Transcripts of runs that a seed repeats. Their digests are stored: any other outcome fails.

A transcript has all that the code under test answers, writes and schedules. To print the one of a
seed and compare it with another commit; to store all digests again::

    python -m tests.support.world.transcripts consumer_group_histories 17
    python -m tests.support.world.transcripts consumer_group_histories
    python -m tests.support.world.transcripts                             # of all modules
"""

from __future__ import annotations

import hashlib
import importlib
import logging
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from random import Random
from typing import Any

import pytest

# As in conftest.py, also for the commands above: an invariant that does not hold is an outcome.
os.environ["LOGSTORE_VERIFY"] = "1"

PROSE = ("documentation", "doc")
"""Fields that are not part of a transcript."""

TRAILING_COMMA = re.compile(
    r"(Expecting property name enclosed in double quotes"
    r"|Illegal trailing comma before end of object): line \d+ column \d+ \(char \d+\)"
)
"""Messages of the module `json` for a comma before `}`, before and since Python 3.13."""

FOLDER = Path(__file__).parents[2] / "property" / "transcripts"


class Transcript:
    """Lines of a run, and their digest."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def note(self, *values: object) -> None:
        """Add a line."""
        self.lines.append(" ".join(map(text_of, values)))

    def digest(self) -> str:
        """Return the first digits of the hash."""
        return hashlib.sha256(self.text().encode()).hexdigest()[:12]

    def text(self) -> str:
        """Return all lines, with escapes for bytes that are not UTF-8.

        The text is the same on all versions of Python.
        """
        text = "\n".join(self.lines).encode(errors="backslashreplace").decode()
        return TRAILING_COMMA.sub("trailing comma", text)


def text_of(value: Any) -> str:
    """Return a text of a value that does not depend on the order of sets."""
    if isinstance(value, str):
        return value
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    if isinstance(value, Mapping):
        shown = ((k, v) for k, v in value.items() if k not in PROSE)
        return f"{{{', '.join(f'{text_of(k)}: {text_of(v)}' for k, v in shown)}}}"
    if isinstance(value, set | frozenset):
        return f"{{{', '.join(sorted(map(text_of, value)))}}}"
    if isinstance(value, tuple | list):
        return f"({', '.join(map(text_of, value))})"
    if is_dataclass(value) and not isinstance(value, type):
        shown = {each.name: getattr(value, each.name) for each in fields(value) if each.repr}
        return f"{type(value).__name__} {text_of(shown)}"
    return repr(value)


@contextmanager
def recording_calls(owner: type, names: Iterable[str], transcript: Transcript) -> Iterator[None]:
    """Note all calls of some methods of a class."""
    with pytest.MonkeyPatch.context() as patch:
        for name in names:
            patch.setattr(owner, name, _recorded(owner, name, transcript))
        yield


class _Messages(logging.Handler):
    def __init__(self, note: Callable[[logging.LogRecord], None]) -> None:
        super().__init__()
        self._note = note

    def emit(self, record: logging.LogRecord) -> None:
        self._note(record)


@contextmanager
def recording_messages(
    name: str, level: int, note: Callable[[logging.LogRecord], None]
) -> Iterator[None]:
    """Note the messages of a logger from a level on, and show them nowhere else."""
    handler, logger = _Messages(note), logging.getLogger(name)
    former, propagate, disabled = logger.level, logger.propagate, logging.root.manager.disable
    logger.addHandler(handler)
    logger.setLevel(level)
    logger.propagate = False
    logging.disable(logging.NOTSET)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(former)
        logger.propagate = propagate
        logging.disable(disabled)


def drawn(rng: Random, configs: Mapping[str, Sequence[Any]], share: float) -> dict[str, Any]:
    """Draw a value for a share of the configs."""
    return {name: rng.choice(each) for name, each in configs.items() if rng.random() < share}


def _recorded(owner: type, name: str, transcript: Transcript) -> Callable[..., object]:
    method = getattr(owner, name)

    def call(self: object, *arguments: object) -> object:
        transcript.note(name, *arguments)
        return method(self, *arguments)

    return call


def stored(name: str) -> dict[int, str]:
    """Return the stored digests by seed."""
    lines = (FOLDER / f"{name}.txt").read_text(encoding="ascii").splitlines()
    return {int(seed): digest for seed, digest in map(str.split, lines)}


def check(name: str, seed: int, transcript: Transcript) -> None:
    """Assert that a run is the stored one."""
    assert transcript.digest() == stored(name)[seed], (
        f"seed {seed} has another outcome. Compare the outputs of `python -m"
        f" tests.support.world.transcripts {name} {seed}` before and after the change."
    )


def main(name: str | None = None, seed: str | None = None) -> None:
    """Print the transcript of a seed, or store the digests of a module or of all."""
    logging.disable(logging.CRITICAL)
    names = [each.stem for each in sorted(FOLDER.glob("*.txt"))] if name is None else [name]
    for each in names:
        module = importlib.import_module(f"tests.property.{each}")
        transcribe: Callable[[int], Transcript] = module.transcribe
        if seed is not None:
            print(transcribe(int(seed)).text())
            return
        lines = [f"{number} {transcribe(number).digest()}\n" for number in range(module.FEW)]
        (FOLDER / f"{each}.txt").write_text("".join(lines), encoding="ascii")


if __name__ == "__main__":
    main(*sys.argv[1:])
