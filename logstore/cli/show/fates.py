"""Output of `inspect --fate`: the fate of each record in the next cleaning pass."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from logstore.analysis.fates import fate_json
from logstore.analysis.view import PartitionView
from logstore.cli.commands.clean import PHASES
from logstore.cli.show.damage import found_json, note_assumed_policy, report_damages
from logstore.cli.show.decoded import displayed_key
from logstore.cli.show.output import (
    emit,
    emit_failure,
    emit_items,
    emit_lines,
    format_count,
    note,
    plural,
)
from logstore.cli.show.progress import ProgressBar
from logstore.cli.show.tables import Cell, Styled, Table, output_width, paint
from logstore.errors import LogStoreError
from logstore.storage.loading.views import TRANSIENT

if TYPE_CHECKING:
    from logstore.analysis.fates import PartitionFates, RecordFate
    from logstore.broker import Broker
    from logstore.cleaner.passes.clean import PassProgress
    from logstore.storage.log.log import Log
    from logstore.types import TopicPartition

# Green is retained, yellow is removed. Records outside the cleanable range have the section's
# colour.
_STYLES = {
    "retained": "green",
    "superseded": "yellow",
    "tombstone_expired": "yellow",
    "aborted": "red",
    "control_expired": "yellow",
    "null_key": "red",
    "below_log_start": "dim",
    "active": "cyan",
    "not_yet_cleanable": "magenta",
    "added": "cyan",
    "lost": "red",
    "changed": "red",
    "foreign": "red",
}
_INDENT = "  "

Failures = list[tuple["TopicPartition", LogStoreError]]


def print_fates(
    broker: Broker,
    partitions: Sequence[TopicPartition],
    *,
    output: str,
    is_one: bool,
    raw: bool,
    force: bool,
    roll: bool,
) -> int:
    """Print the fates of partitions. If a partition fails, continue with the others.

    Unless `raw`, keys of internal topics are decoded. See `clean` for `force` and `roll`.

    Returns
    -------
    int
        The exit code.
    """
    failures: Failures = []
    listing_of = partial(_Listing, broker, force=force, roll=roll)
    if output == "table":
        note_assumed_policy(broker, partitions)
        for number, tp in enumerate(partitions):
            if number:
                emit("")
            try:
                _show(tp, listing_of(tp), raw=raw)
            except LogStoreError as error:
                if is_one:
                    raise
                failures.append((tp, error))
    else:
        items = _items(listing_of, partitions, failures, is_one=is_one, raw=raw)
        more = partial(found_json, broker, partitions)
        emit_items(items, output=output, name="fates", more=more)
    for tp, failure in failures:
        emit_failure(tp, str(failure), failure.kafka_error)
    code = report_damages(broker, partitions)
    return max([code, *(failure.exit_code for _, failure in failures)])


class _Listing:
    """Fates of a partition, with a progress bar while the offset map is built.

    On damage, the iteration restarts at the same record and skips the damaged batches.
    """

    def __init__(
        self, broker: Broker, topic_partition: TopicPartition, *, force: bool, roll: bool
    ) -> None:
        self._bar = ProgressBar()
        self._force = force
        self._roll = roll
        self._broker = broker
        self._view = PartitionView(broker, topic_partition)
        self.fates = self._view.evaluate(self._open_listing)

    def _open_listing(self, log: Log) -> PartitionFates:
        from logstore.analysis.fates import PartitionFates

        progress = self._progress if self._bar.visible else None
        return PartitionFates(
            self._broker.cleaner, log, force=self._force, roll=self._roll, progress=progress
        )

    def __iter__(self) -> Iterator[RecordFate]:
        last_offset, failures = -1, 0
        while True:
            log = self._view.log
            records = (record for record in self.fates if record.offset > last_offset)
            try:
                with self._bar:
                    first = next(records, None)
                for record in chain(() if first is None else (first,), records):
                    yield record
                    last_offset, failures = record.offset, 0
            except TRANSIENT as error:
                failures += 1
                self._view.reopen(log, failures, error)
                self.fates = self._view.evaluate(self._open_listing)
            else:
                return

    def _progress(self, topic_partition: TopicPartition, step: PassProgress) -> None:
        if step.phase != "rewrite":
            name = f"{PHASES.get(step.phase, step.phase)} {topic_partition}"
            self._bar.update(name, step.bytes_done, step.bytes_total)


# -- JSON ----------------------------------------------------------------------------------


def _items(
    listing_of: Callable[[TopicPartition], _Listing],
    partitions: Iterable[TopicPartition],
    failures: Failures,
    *,
    is_one: bool,
    raw: bool,
) -> Iterator[str]:
    for tp in partitions:
        try:
            listing = listing_of(tp)
            if not listing.fates.is_compacted:
                note(f"{tp}: {_never(listing.fates)}")
            for record in listing:
                yield fate_json(tp, record, raw=raw)
        except LogStoreError as error:
            if is_one:
                raise
            failures.append((tp, error))


# -- tables --------------------------------------------------------------------------------


def _show(topic_partition: TopicPartition, listing: _Listing, *, raw: bool) -> None:
    """Print a heading, a line per record, and the number of records by fate."""
    _show_heading(topic_partition, listing.fates)
    counts: Counter[str] = Counter()

    def rows() -> Iterator[tuple[Cell, ...]]:
        for record in listing:
            counts[record.fate] += 1
            yield fate_row(topic_partition.topic, record, raw=raw)

    found = rows()
    first = next(found, None)
    if first is None:
        emit("no records")
        return
    table = Table(("offset", "fate", "superseded by", "key"), right=("offset", "superseded by"))
    emit_lines(table.lines(chain((first,), found)))
    shown = ", ".join(
        paint(f"{format_count(counts[fate])} {fate_words(fate)}", style)
        for fate, style in _STYLES.items()
        if counts[fate]
    )
    emit(f"\n{plural(counts.total(), 'record')}: {shown}")
    stats, upper_bound = listing.fates.stats, listing.fates.decision.state.upper_bound_offset
    if stats is not None and stats.end_offset < upper_bound:
        end = stats.end_offset
        emit(f"The offset map is full at offset {end}: later passes clean the rest")


def _show_heading(topic_partition: TopicPartition, fates: PartitionFates) -> None:
    state, binding = fates.decision.state, fates.decision.binding
    first_dirty, upper_bound = state.first_dirty_offset, state.upper_bound_offset
    if not fates.is_compacted:
        what = _never(fates)
    elif first_dirty < upper_bound:
        what = f"the next cleaning pass compacts offsets {first_dirty}..{upper_bound}"
    else:
        what = f"no cleanable dirty records from offset {first_dirty} on"
    emit(f"{paint(str(topic_partition), 'bold')}  {what}")
    if fates.is_compacted and binding is not None:
        reason = textwrap.wrap(f"not due now: {binding.text}", output_width() - len(_INDENT))
        emit_lines(paint(f"{_INDENT}{line}", "dim") for line in reason)
    emit("")


def _never(fates: PartitionFates) -> str:
    gate = next(gate for gate in fates.decision.gates if gate.gate == "policy")
    return f"never cleaned: {gate.text}"


def fate_row(topic: str, record: RecordFate, *, raw: bool = False) -> tuple[Cell, ...]:
    """Return the cells for a record: offset, fate, superseding offset and key."""
    key: Cell = displayed_key(topic, record.key, raw=raw)
    if record.control is not None:
        key = Styled(f"{record.control} marker", "dim")
    return (
        str(record.offset),
        Styled(fate_words(record.fate), _STYLES.get(record.fate, "")),
        "" if record.superseded_by is None else str(record.superseded_by),
        key,
    )


def fate_words(fate: str) -> str:
    """Return a fate in words."""
    return fate.replace("_", " ")
