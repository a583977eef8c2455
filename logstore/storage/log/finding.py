"""Findings of opening a log: one for each file that it mended, removed or judged."""

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
    - `leftover_segment`: a segment, or its beginning, whose records a finished swap had put into
      another one; it is passed over, and removed by commands that write;
    - `reset_log`: the data ended below the log start; `ignored_log_start`: they never reached it.
    """

    action: str
    path: str
    detail: str
