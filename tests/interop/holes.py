"""Directories of `logstore.testing.holes`, for both loaders."""

from functools import partial
from pathlib import Path

from logstore.testing import holes
from tests.interop.directories import TOPIC, WRITERS, Written
from tests.interop.stories import START_MS


def _log(shape: str, path: Path) -> Written:
    holes.make(shape, path, topic=TOPIC)
    return Written(path, dict(holes.CONFIGS), START_MS)


WRITERS |= {f"holes: {shape}": partial(_log, shape) for shape in holes.SHAPES}
