"""The parent of worker processes: starts them, reads their reports, and kills them."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

from tests.processes.ledger import Ledger
from tests.processes.worker import Life

ROOT = Path(__file__).resolve().parents[2]
SILENCE_SECONDS = 60
"""A worker that reports nothing for this long hangs."""

SILENCES_MAX = 10


def thread_states(pid: int) -> set[str]:
    """Return the states of a process's threads: R runs or could run, D waits for a disk."""
    states = set()
    for path in Path(f"/proc/{pid}/task").glob("*/stat"):
        with suppress(FileNotFoundError):
            states.add(path.read_text().rpartition(")")[2].split()[0])
    return states


class Nursery:
    """The process that forks workers; see `tests.processes.worker`."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.processes.worker"],
            cwd=ROOT,
            # Invariant checks are off, as for users; they run when the files are opened again.
            env=os.environ | {"LOGSTORE_VERIFY": "0"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        assert self._process.stdout is not None
        self._pipe = self._process.stdout.fileno()
        self._rest = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(SILENCE_SECONDS)

    def start(self, life: Life) -> None:
        """Bring up a child."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asdict(life)).encode() + b"\n")

    def lines(self, seconds: float = SILENCE_SECONDS) -> Iterator[list[Any]]:
        """Yield the reports so far; wait at most this long for the first."""
        end = time.monotonic() + seconds
        while True:
            ready, _, _ = select.select([self._pipe], [], [], max(0, end - time.monotonic()))
            if not ready:
                return
            data = os.read(self._pipe, 1 << 16)
            assert data, "the nursery is gone"
            *lines, self._rest = (self._rest + data).split(b"\n")
            yield from map(json.loads, lines)
            if lines:
                return


class Worker:
    """One worker, until it ends or is killed.

    Attributes
    ----------
    pid : int
    code : int or None
        Its exit code once it ended, negative if a signal ended it.
    """

    def __init__(self, nursery: Nursery, ledger: Ledger, life: Life) -> None:
        self._nursery = nursery
        self._ledger = ledger
        self.life = life
        self.code: int | None = None
        self.is_open = False
        self.told = 0
        self.pid = 0
        nursery.start(life)
        while not self.pid:
            self.listen(SILENCE_SECONDS)

    def listen(self, seconds: float) -> bool:
        """Read reports, waiting at most this long for the first; return whether there were any."""
        heard = False
        for pid, what, *rest in self._nursery.lines(seconds):
            heard = True
            if what == "born":
                (self.pid,) = rest
            elif what == "ended":
                assert rest[0] == self.pid
                self.code = rest[1]
            elif what == "open":
                self.is_open = self._ledger.has_topics = True
            elif what == "disk":
                pass  # this run is about failing disks; the ledger has the stored records
            elif what == "failed":
                raise AssertionError(f"worker {pid} of {self.life} failed:\n{rest[0]}")
            else:
                self.told += 1
                self._ledger.take(what, *rest)
        return heard

    def listen_for(self, seconds: float) -> None:
        """Let the worker run for a time, or until it ends."""
        end = time.monotonic() + seconds
        while self.code is None and (left := end - time.monotonic()) > 0:
            self.listen(left)

    def listen_to_the_end(self) -> int:
        """Let the worker run until it ends; return its exit code.

        A worker that reports nothing prints the stacks of its threads. It fails if they all wait,
        or after `SILENCES_MAX` such times: on a busy machine it may only lack a processor.
        """
        silences = 0
        while self.code is None:
            if self.listen(SILENCE_SECONDS):
                silences = 0
                continue
            silences += 1
            has_work = bool(thread_states(self.pid) & {"R", "D"})
            os.kill(self.pid, signal.SIGUSR1)
            assert has_work, "all of its threads wait"
            assert silences < SILENCES_MAX, "it is stuck"
        return self.code

    def kill(self) -> None:
        """Kill the worker unless it has ended, and read its last reports."""
        if self.code is None:
            with suppress(ProcessLookupError):  # it has just ended by itself
                os.kill(self.pid, signal.SIGKILL)
            while self.code is None:
                self.listen(SILENCE_SECONDS)
        self._ledger.tally["kills"] += self.code == -signal.SIGKILL


@contextmanager
def working(nursery: Nursery, ledger: Ledger, life: Life) -> Iterator[Worker]:
    """Have a worker, which is killed in the end."""
    worker = Worker(nursery, ledger, life)
    try:
        yield worker
    finally:
        worker.kill()
