"""Progress bars on standard error, only shown on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self, TypeVar

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from logstore.cleaner.command import ProgressListener
    from logstore.cleaner.passes.clean import PassProgress
    from logstore.types import TopicPartition

BYTES = "bytes"
FINISHED_SHOWN_MAX = 8

T = TypeVar("T")


class ProgressBar:
    """Progress bars, one per task, created at the first update.

    Parameters
    ----------
    unit : str
        Unit of the counts: `bytes`, which also shows a speed, or a noun such as `partitions`.
    with_output : bool
        Whether results are printed at the same time. If they are printed to the terminal, no bar is
        shown.
    """

    def __init__(self, unit: str = BYTES, *, with_output: bool = False) -> None:
        self.visible = sys.stderr.isatty() and not (with_output and sys.stdout.isatty())
        self._unit = unit
        self._finished: list[TaskID] = []
        self._progress: Progress | None = None
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    def update(self, task: str, done: int, total: int | None, detail: str = "") -> None:
        """Show that `done` of `total` (None if unknown) are completed."""
        if not self.visible:
            return
        if self._progress is None:
            self._progress = _new_progress(self._unit)
            self._progress.start()
        if task not in self._tasks:
            self._tasks[task] = self._progress.add_task(task, total=total, detail=detail)
        self._progress.update(self._tasks[task], completed=done, total=total, detail=detail)

    def finish(self, task: str) -> None:
        """Show a task as completed. The most recent ones remain visible."""
        if self._progress is not None and task in self._tasks:
            number = self._tasks.pop(task)
            total = next(each.total for each in self._progress.tasks if each.id == number)
            self._progress.update(number, completed=total)
            self._finished.append(number)
            if len(self._finished) > FINISHED_SHOWN_MAX:
                self._progress.remove_task(self._finished.pop(0))


def watched(
    items: Sequence[T], task: str, unit: str = "partitions", *, with_output: bool = False
) -> Iterator[T]:
    """Yield items and count them on a progress bar; see `ProgressBar`."""
    with ProgressBar(unit, with_output=with_output) as bar:
        for done, item in enumerate(items):
            if len(items) > 1:
                bar.update(task, done, len(items), str(item))
            yield item


@contextmanager
def dry_run_bars(
    is_wanted: bool, *, with_output: bool = False
) -> Iterator[ProgressListener | None]:
    """Show the progress of dry runs. Yields a listener, or None if not wanted."""
    if not is_wanted:
        yield None
        return
    with ProgressBar(with_output=with_output) as bar:

        def show(topic_partition: TopicPartition, step: PassProgress) -> None:
            task = f"dry run of {topic_partition}"
            bar.update(task, step.bytes_done, step.bytes_total, step.phase)

        yield show if bar.visible else None


def _new_progress(unit: str) -> Progress:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        Task,
        TextColumn,
        TimeElapsedColumn,
        TransferSpeedColumn,
    )
    from rich.text import Text

    class Speed(TransferSpeedColumn):
        """A speed column that is blank, instead of a question mark, while the speed is unknown."""

        def render(self, task: Task) -> Text:
            return super().render(task) if task.finished_speed or task.speed else Text()

    counts: list[ProgressColumn] = (
        [DownloadColumn(binary_units=True), Speed()]
        if unit == BYTES
        else [MofNCompleteColumn(), TextColumn(unit)]
    )
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        *counts,
        TimeElapsedColumn(),
        TextColumn("{task.fields[detail]}"),
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=False,  # otherwise redirected output would go to the terminal
    )
