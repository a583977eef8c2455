"""The findings of opening a log, one for each file that was repaired, removed or retained."""

from __future__ import annotations

from typing import NamedTuple


class Finding(NamedTuple):
    """A change or problem found while opening a log.

    `action` names the stage and its result, `path` the file, `detail` the reason:

    - `removed_leftover`, `finished_swap`: an interrupted cleaning pass, split or deletion;
    - `rebuilt_index`: missing or damaged indexes; `reset_epochs`, `removed_snapshot`: a damaged
      small file. All three are derived from the batches;
    - `split_segment`: a segment with offset overflow; `kept_overflow`: such a segment that cannot
      be split and is served unchanged;
    - `truncated_tail`, `removed_segment`: a torn batch, from an unclean stop or an incomplete copy,
      and the segments after it; `left_damaged_end`: an end with any other damage;
    - `overlapping_segments`: two segments with the same offsets; both are retained;
    - `leftover_segment`: a segment, or its beginning, that a finished swap superseded; readers skip
      it, and commands that write remove it;
    - `reset_log`: the data ended below the log start; `ignored_log_start`: no evidence that the log
      ever reached the log start.
    """

    action: str
    path: str
    detail: str
