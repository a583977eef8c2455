"""Findings of opening a log, one for each file that it mended, removed or judged; and damages."""

from __future__ import annotations

from typing import NamedTuple


class Finding(NamedTuple):
    """Something that opening a log found.

    `action` names the stage and how it ended, `path` the file, `detail` the reason:

    - `removed_leftover`, `finished_swap`: a cleaning, split or deletion that was interrupted;
    - `rebuilt_index`: indexes missing or damaged; `reset_epochs`, `removed_snapshot`: a small file
      that was damaged; all three are derived from the batches;
    - `split_segment`: offsets beyond what a segment can hold; `kept_overflow`: such a segment
      that cannot be split is served as it is;
    - `truncated_tail`, `removed_segment`: what an unclean stop left torn, or a copy that is not
      whole, and what came after it; `left_damaged_end`: an end that is damaged in another way;
    - `overlapping_segments`: offsets that two segments hold; both are kept;
    - `reset_log`: the data ended below the log start; `ignored_log_start`: they never reached it.
    """

    action: str
    path: str
    detail: str


class Damage(NamedTuple):
    """A stretch of a `.log` that holds no batch which could be served, and what lies around it.

    Valid batches lie behind it, in its file or in a later one. What is torn at the very end of a
    log is none: a crash leaves that, and a process at work.

    Attributes
    ----------
    path : str
        The file as it lies on the disk.
    position, size_bytes : int
        The stretch.
    check : str
        What is wrong, by a name of `logstore.check.CHECKS`.
    last_offset_before, first_offset_after : int or None
        Offsets of the valid batches around it; None where there is none.
    """

    path: str
    position: int
    size_bytes: int
    check: str
    last_offset_before: int | None
    first_offset_after: int | None

    def __str__(self) -> str:
        before, after = self.last_offset_before, self.first_offset_after
        around = "" if before is None else f" after offset {before}"
        around += "" if after is None else f"{' and' if around else ''} before offset {after}"
        return (
            f"{self.path}: {self.size_bytes} bytes at position {self.position}{around} are damaged"
            f" ({self.check})"
        )
