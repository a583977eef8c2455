"""Progress of a Spark command: how many tasks of its stages are done, on a terminal."""

from __future__ import annotations

import threading
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from py4j.protocol import Py4JError

from logstore.cli.show.progress import ProgressBar

if TYPE_CHECKING:
    from collections.abc import Sequence

PERIOD_S = 0.3
"""Time between two looks at what Spark does."""

JOIN_S = 5
"""How long the end waits for a last look: a JVM that hangs must not keep the command."""


class StageInfo(Protocol):
    """A stage as Spark's status tracker shows it."""

    numTasks: int
    numCompletedTasks: int


class Tracker(Protocol):
    """Spark's status tracker, as far as it is used here."""

    def getActiveStageIds(self) -> Sequence[int]:
        """Return the stages that run."""

    def getStageInfo(self, stageId: int) -> StageInfo | None:
        """Return a stage; None once Spark has forgotten it."""


class SparkProgress:
    """The project's progress bar, fed from Spark's status tracker by a thread.

    Parameters
    ----------
    name : str
        What the command does, for the bar.
    tracker : Tracker
        Of the session.
    bar : ProgressBar, optional
        By default one that is shown where standard error is a terminal.
    """

    def __init__(self, name: str, tracker: Tracker, bar: ProgressBar | None = None) -> None:
        self._name = name
        self._tracker = tracker
        self._bar = ProgressBar("tasks") if bar is None else bar
        self._stages: dict[int, tuple[int, int]] = {}
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="logstore-progress", daemon=True)

    def __enter__(self) -> Self:
        self._bar.__enter__()
        if self._bar.visible:
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_over.set()
        if self._bar.visible:
            self._thread.join(JOIN_S)
        self._bar.__exit__(kind, error, trace)

    def _watch(self) -> None:
        # A JVM that died is the command's to report.
        with suppress(Py4JError, OSError):
            while not self._is_over.wait(PERIOD_S):
                self.look()

    def look(self) -> None:
        """Show how many tasks are done of the stages that have begun."""
        active = set(self._tracker.getActiveStageIds())
        for stage in active:
            info = self._tracker.getStageInfo(stage)
            if info is not None:
                self._stages[stage] = info.numCompletedTasks, info.numTasks
        for stage in self._stages.keys() - active:
            total = self._stages[stage][1]
            self._stages[stage] = total, total
        if self._stages:
            done = sum(done for done, _ in self._stages.values())
            self._bar.update(self._name, done, sum(total for _, total in self._stages.values()))
