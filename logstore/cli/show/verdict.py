"""Verdicts as text, for partitions and directories."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from logstore.analysis.verdict import (
    DAMAGED,
    DUE,
    EMPTY_LISTED,
    NOT_COMPACTED,
    NOTHING_TO_DO,
    STATES,
    UNCLEANABLE,
    UNKNOWN,
    WAITING,
    Summary,
    Verdict,
)
from logstore.cli.show.output import plural
from logstore.cli.show.prose import wrapped
from logstore.cli.show.tables import can_print
from logstore.reasons import text_of
from logstore.reasons.formats import format_size, format_span

if TYPE_CHECKING:
    from logstore.broker import Broker
    from logstore.errors import LogStoreError
    from logstore.types import TopicPartition

STYLES = {
    DAMAGED: "bold red",
    UNCLEANABLE: "bold magenta",
    DUE: "bold green",
    WAITING: "bold yellow",
    NOTHING_TO_DO: "bold",
    NOT_COMPACTED: "bold",
    UNKNOWN: "bold yellow",
}


def verdict_lines(name: object, verdict: Verdict | None, now_ms: int) -> Iterator[str]:
    """Yield the state, the bytes that can be freed, the reason and time, notes and remedies."""
    if verdict is None:
        return
    parts = [*_amounts(verdict)]
    if verdict.state != NOT_COMPACTED:
        parts.append(verdict.reason.text)
    if verdict.since_ms is not None and verdict.since_ms < now_ms:
        span = format_span(now_ms - verdict.since_ms, units=1)
        parts.append(f"failed {span} ago" if verdict.state == UNCLEANABLE else f"dirty for {span}")
    text = f"{name} {verdict.state.replace('_', ' ')}: {'; '.join(parts)}"
    yield from wrapped(text, "", STYLES[verdict.state])
    for each in verdict.notes:
        yield from wrapped(f"note: {each.text}", "  ", "yellow")
    if verdict.helps:
        helps = "; or ".join(each.text for each in verdict.helps)
        yield from wrapped(f"helps: {helps}", "  ")


def short_state(verdict: Verdict | None) -> str:
    """Return the state for a table cell."""
    return "" if verdict is None else verdict.state.replace("_", " ")


def short_amounts(verdict: Verdict | None) -> tuple[str, str]:
    """Return the bytes freed now, and after a roll, for two cells. `≤` marks an upper bound."""
    if verdict is None or verdict.state == UNKNOWN:
        return "", ""
    now, if_rolled = verdict.removable_bytes
    retained = verdict.retention.bytes
    return (
        _bounded(now, is_exact=now in (verdict.frees_bytes, retained)),
        _bounded(if_rolled, is_exact=if_rolled in (verdict.frees_bytes_if_rolled, retained)),
    )


def _bounded(size: int, *, is_exact: bool) -> str:
    bound = "" if is_exact or not size else "≤ " if can_print("≤") else "<= "
    return f"{bound}{format_size(size)}"


def _amounts(verdict: Verdict) -> Iterator[str]:
    total = format_size(verdict.size_bytes)
    removed = verdict.retention
    if verdict.state == NOT_COMPACTED:
        yield "never compacted"
    elif verdict.state != UNKNOWN and (verdict.exact or verdict.is_due or verdict.state == WAITING):
        yield from _cleaned(verdict, total)
    if verdict.state not in (UNKNOWN, NOTHING_TO_DO) and removed.segments:
        size = f"{format_size(removed.bytes)} of {total}"
        why = text_of(removed.reasons)
        yield f"retention removes {plural(removed.segments, 'segment')}, {size} ({why})"
    elif verdict.state == NOT_COMPACTED:
        yield f"retention keeps all {total}"


def _cleaned(verdict: Verdict, total: str) -> Iterator[str]:
    """Yield the bytes that the cleaner would remove."""
    frees = "frees" if verdict.is_due else "a forced pass frees"
    most, rolled = verdict.frees_bytes_at_most, verdict.frees_bytes_if_rolled_at_most
    at_most = "" if verdict.exact else "at most "
    if verdict.state == NOTHING_TO_DO:
        return
    if most:
        records = (
            "" if verdict.frees_records is None else f", {plural(verdict.frees_records, 'record')}"
        )
        yield f"{frees} {at_most}{format_size(most)} of {total}{records}"
    else:
        yield f"frees none of {total} now"
    if rolled != most:
        is_exact = verdict.frees_bytes_if_rolled is not None
        bound = "" if is_exact else "at most "
        yield f"{bound}{format_size(rolled)} if the active segment is rolled"


class EmptyPartitions:
    """Empty partitions, which a table counts instead of listing, unless there are few.

    Parameters
    ----------
    partitions : sequence of TopicPartition
        Partitions of the table.
    lists_all : bool
        Whether to list them in any case.
    """

    def __init__(
        self, broker: Broker, partitions: Sequence[TopicPartition], *, lists_all: bool
    ) -> None:
        self._topics: dict[str, int] = {}
        self._is_active = not lists_all and len(partitions) > EMPTY_LISTED
        if self._is_active:
            from logstore.analysis.reports import segment_sizes

            empty = sum(not any(segment_sizes(broker.manager, each)) for each in partitions)
            self._is_active = empty > EMPTY_LISTED

    def omits(self, topic: str, verdict: Verdict | None) -> bool:
        """Return whether the table omits a partition. If it does, count the partition."""
        if not self._is_active or verdict is None or not verdict.is_of_an_empty_log:
            return False
        self._topics[topic] = self._topics.get(topic, 0) + 1
        return True

    def lines(self) -> Iterator[str]:
        """Yield an empty line, and a sentence about omitted partitions."""
        if not self._topics:
            return
        count = plural(sum(self._topics.values()), "empty partition")
        topics = ", ".join(
            f"{count:,} of {topic}" for topic, count in [*self._topics.items()][:_TOPICS_NAMED]
        )
        if len(self._topics) > _TOPICS_NAMED:
            topics += f" and others of {plural(len(self._topics) - _TOPICS_NAMED, 'topic')}"
        yield ""
        text = f"{count} with nothing to do: {topics}; --all lists them"
        yield from wrapped(text, "", "dim")


_TOPICS_NAMED = 5


def summary_json(
    broker: Broker,
    verdicts: Iterable[Verdict],
    failures: Iterable[tuple[TopicPartition, LogStoreError]],
) -> dict[str, Any]:
    """Return the member `summary` of JSON."""
    return {"summary": summarize(broker, verdicts, failures).to_json()}


def summarize(
    broker: Broker,
    verdicts: Iterable[Verdict],
    failures: Iterable[tuple[TopicPartition, LogStoreError]],
) -> Summary:
    """Total the verdicts, including those on partitions that cannot be read."""
    found = [*verdicts]
    for tp, error in failures:
        from logstore.analysis.reports import segment_sizes  # only needed for empty partitions

        found.append(Verdict.of_error(error, sum(segment_sizes(broker.manager, tp))))
    return Summary.of(found)


def summary_lines(summary: Summary) -> list[str]:
    """Return the summary line for a directory."""
    parts = []
    for state in STATES:
        count = summary.states[state]
        if not count:
            continue
        text = f"{count:,} {state.replace('_', ' ')}"
        if state == DUE:
            text += f" ({_freed(summary)})"
        parts.append(text)
    if not summary.states[DUE] and summary.frees_bytes_at_most:
        parts.append(f"{_freed(summary)} by cleaning damaged ones")
    total = "" if summary.states[DUE] else f", {format_size(summary.bytes)}"
    text = f"{plural(summary.partitions, 'partition')}{total}: {', '.join(parts)}"
    if summary.retention_bytes:
        text += f"; retention removes {format_size(summary.retention_bytes)}"
        if summary.retention_bytes_of_due:
            of_due = format_size(summary.retention_bytes_of_due)
            text += f", {of_due} of it in partitions that are due"
    if summary.headers_only:
        is_all = summary.headers_only == summary.partitions
        text += "; headers only" if is_all else f"; headers only for {summary.headers_only:,}"
    return [*wrapped(text, "", "bold")]


def _freed(summary: Summary) -> str:
    at_most = "" if summary.frees_bytes is not None else "at most "
    size = format_size(summary.frees_bytes_at_most)
    return f"free {at_most}{size} of {format_size(summary.bytes)}"
