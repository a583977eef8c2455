"""Progress bars for Spark commands, based on completed tasks."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol, Self

from py4j.protocol import Py4JError

from logstore.cli.show.progress import ProgressBar

if TYPE_CHECKING:
    from collections.abc import Sequence

PERIOD_S = 0.3
"""Interval between updates."""

JOIN_S = 5
"""Time to wait for the last update, so that a hung JVM cannot block the command."""


class StageInfo(Protocol):
    """A stage in Spark's status tracker."""

    numTasks: int
    numCompletedTasks: int


class Tracker(Protocol):
    """The methods of Spark's status tracker that are used here."""

    def getActiveStageIds(self) -> Sequence[int]:
        """Return the ids of the active stages."""

    def getStageInfo(self, stageId: int) -> StageInfo | None:
        """Return a stage, or None if Spark has forgotten it."""


class SparkProgress:
    """A progress bar that a thread updates from Spark's status tracker.

    Parameters
    ----------
    name : str
        Label.
    tracker : Tracker
        Status tracker.
    bar : ProgressBar, optional
        [default: a bar on standard error if it is a terminal]
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

    def __exit__(self, *error: object) -> None:
        self._is_over.set()
        if self._bar.visible:
            self._thread.join(JOIN_S)
        self._bar.__exit__(*error)

    def _watch(self) -> None:
        # The command reports that the JVM died.
        with suppress(Py4JError, OSError):
            while not self._is_over.wait(PERIOD_S):
                self.refresh()

    def refresh(self) -> None:
        """Update the bar with the completed tasks of all started stages."""
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
