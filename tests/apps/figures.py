"""The table at the end of a run: one row for each application, its clients and its brokers."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass
class Figures:
    """The counts of a test.

    Attributes
    ----------
    records_in, records_out : int
        Given to the application, and found at its end.
    restarts, kills : int
        Of the application.
    broker_restarts, broker_kills : int
    note : str
        Other counts, for the result.
    result : str
        `equal` to the model, or the differences.
    """

    application: str
    clients: str
    brokers: str
    records_in: int = 0
    records_out: int = 0
    restarts: int = 0
    kills: int = 0
    broker_restarts: int = 0
    broker_kills: int = 0
    note: str = ""
    result: str = "not finished"
    started: float = field(default_factory=time.monotonic)
    seconds: float = 0

    def compare(
        self, name: str, expected: Mapping[str, object], found: Mapping[str, object]
    ) -> None:
        """Compare key by key; note and raise the differences."""
        wrong = [key for key in {**expected, **found} if expected.get(key) != found.get(key)]
        if wrong:
            self.result = f"{name}: {len(wrong)} of {len(expected)} keys differ"
            first = wrong[0]
            raise AssertionError(
                f"{self.result}; {first}: expected {expected.get(first)}, found {found.get(first)}"
            )

    def end(self) -> None:
        """Stop the clock."""
        self.seconds = time.monotonic() - self.started

    def cells(self) -> tuple[str, ...]:
        """Return the row of the table."""
        return (
            self.application,
            self.clients,
            self.brokers,
            f"{self.records_in:,}",
            f"{self.records_out:,}",
            f"{self.restarts} / {self.kills}",
            f"{self.broker_restarts} / {self.broker_kills}",
            f"{self.seconds:.0f}",
            self.result,
        )


HEADINGS = (
    "application",
    "clients",
    "brokers",
    "records in",
    "records out",
    "app restarts / kills",
    "broker restarts / kills",
    "s",
    "compared with the model",
)


def table(rows: Sequence[Figures]) -> list[str]:
    """Return the lines of a table in Markdown."""
    cells = [HEADINGS, *(row.cells() for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(HEADINGS))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in cells
    ]
    return [lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]]
