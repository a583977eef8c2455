"""Running targets: executions counted by outcome, findings kept apart and made small."""

from __future__ import annotations

import hashlib
import random
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.fuzz import (
    check_targets,
    clean_target,
    log_targets,
    message_targets,
    schema_targets,
    targets,
    wire_targets,
)
from tests.fuzz.contract import Target
from tests.fuzz.mutate import mutate

HERE = Path(__file__).resolve().parent
CORPUS = HERE / "corpus"
CRASHES = HERE / "crashes"

TARGETS: dict[str, Target] = {
    **targets.TARGETS,
    **log_targets.TARGETS,
    **clean_target.TARGETS,
    **check_targets.TARGETS,
    **message_targets.TARGETS,
    **schema_targets.TARGETS,
    **wire_targets.TARGETS,
}

Signature = tuple[str, str]
"""Kind of the exception, and the last place in the project that it passed."""


def corpus_of(name: str) -> dict[str, bytes]:
    """The kept inputs of a target by file name: each once was a finding, or reaches far."""
    return {path.name: path.read_bytes() for path in sorted((CORPUS / name).glob("*.bin"))}


def starts_of(name: str) -> list[bytes]:
    """Everything a mutator may start from."""
    return [*TARGETS[name].seeds(), *corpus_of(name).values()]


def mutants(name: str, seed: object, starts: list[bytes] | None = None) -> Iterator[bytes]:
    """Yield mutated inputs without end; the same seed gives the same ones."""
    rng = random.Random(f"{name} {seed}")
    starts = starts_of(name) if starts is None else starts
    shape = TARGETS[name].shape
    recent: list[bytes] = []
    while True:
        # Now and then a mutant is mutated on, so that several changes add up.
        pool = recent if recent and rng.random() < 0.2 else starts
        data = mutate(rng, rng.choice(pool), shape, starts)
        recent = [*recent[-20:], data]
        yield data


def warm_up() -> None:
    """Compile every kernel that targets call, so that time and memory limits see none of it."""
    for target in TARGETS.values():
        for data in target.seeds():
            target.run(data)


class Findings:
    """Executions of one target: outcomes counted, the smallest input of each failure kept."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.target = TARGETS[name]
        self.outcomes: Counter[str] = Counter()
        self.failures: dict[Signature, bytes] = {}

    def execute(self, data: bytes) -> Signature | None:
        """Run the target once; return the signature of a failure."""
        signature = self._try(data)
        if signature is None:
            return None
        self.outcomes["FAILED"] += 1
        smallest = self.failures.get(signature)
        if smallest is None or len(data) < len(smallest):
            self.failures[signature] = data
        return signature

    def _try(self, data: bytes) -> Signature | None:
        try:
            self.outcomes[self.target.run(data)] += 1
        except Exception as error:  # whatever is raised is what we look for
            return signature_of(error)
        return None

    def minimise(self) -> None:
        """Shorten every failing input while it fails in the same way."""
        for signature, data in self.failures.items():
            self.failures[signature] = self._shortened(signature, data)

    def _shortened(self, signature: Signature, data: bytes) -> bytes:
        piece = len(data) // 2
        while piece:
            start = 0
            while start < len(data):
                shorter = data[:start] + data[start + piece :]
                if self._try(shorter) == signature:
                    data = shorter
                else:
                    start += piece
            piece //= 2
        return data

    def save(self) -> list[Path]:
        """Write the failing inputs below `crashes/`; return the files."""
        written = []
        for (kind, place), data in self.failures.items():
            name = f"{kind}-{hashlib.sha256(place.encode() + data).hexdigest()[:12]}.bin"
            path = CRASHES / self.name / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            written.append(path)
        return written


def signature_of(error: BaseException) -> Signature:
    """Return the identity of a failure: its kind and its location in the project."""
    root = str(HERE.parents[1])
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename.startswith(root) and "site-packages" not in frame.filename
    ]
    place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "?"
    return type(error).__name__, place
