"""Compare how Kafka's classes and this engine read one directory."""

from __future__ import annotations

from pathlib import Path

from tests.interop.directories import Written
from tests.support.interop.judge import Judge
from tests.support.interop.view import complaints, differences, view_of


def agree(judge: Judge, written: Written, scratch: Path, *, clean: bool | None = None) -> list[str]:
    """Open a directory with both; return every difference and every complaint."""
    theirs = judge.ask(
        "judge", written.path, written.topic, config=written.config, now=written.now_ms,
        dump=written.is_sound, dump_closed=True, **({} if clean is None else {"clean": clean}),
    )  # fmt: skip
    ours = view_of(
        written.path, scratch, written.topic, written.config, written.now_ms, clean=clean
    )
    result = differences(theirs, ours)
    for segment in theirs["segments"]:
        result += segment["sanity"]
    if written.is_sound and theirs["was_clean"] and clean is not False:
        result += complaints(theirs["dump"], ours)
    # A directory that was not closed cleanly can be dumped only after a recovery.
    result += complaints(theirs["dump_closed"], ours)
    return result
