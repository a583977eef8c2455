"""`logstore explain`: what stands between a partition and its cleaning, and until when."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from logstore.cli.options import (
    Settings,
    choose,
    command,
    config_option,
    partition_option,
    topic_overrides,
    warn_of_strategy,
)
from logstore.cli.show.output import emit_failure, emit_items, emit_lines
from logstore.cli.show.progress import watched
from logstore.cli.show.tables import Styled, Table, can_print, paint
from logstore.cli.times import format_duration, format_span, format_time

if TYPE_CHECKING:
    from logstore.broker import Broker
    from logstore.broker.reports import PartitionExplanation
    from logstore.cleaner.selection import CleaningDecision, Gate
    from logstore.errors import LogStoreError
    from logstore.types import TopicPartition

    Failures = list[tuple[TopicPartition, LogStoreError]]

CONDITIONS = {
    "policy": "compacted",
    "cleaner_disabled": "cleaner enabled",
    "uncleanable": "cleanable",
    "paused": "free",
    "empty": "filled",
    "active_segment": "closed segments",
    "last_stable_offset": "stable offsets",
    "min_compaction_lag": "old enough",
    "dirty_ratio": "dirty enough",
    "max_compaction_lag": "or overdue",
}
"""The gates in words."""

EITHER = ("dirty_ratio", "max_compaction_lag")
"""Of these gates one is enough."""


@command(
    "explain",
    examples=[
        "logstore explain",
        "logstore explain users --partition 0",
        "logstore explain users --config min.cleanable.dirty.ratio=0.1",
        "logstore explain users --now 2024-12-31 --format json",
    ],
)
@click.argument("topic", required=False)
@partition_option("Which one of the topic's. Default: all.")
@config_option("A topic configuration to suppose; repeatable.")
def explain(
    settings: Settings,
    topic: str | None,
    partition: int | None,
    configs: tuple[tuple[str, str], ...],
) -> int:
    """Say why the partitions of TOPIC, or of all topics, would be cleaned now, or why not.

    A cleaning has to pass every gate; of the dirty ratio and the maximum lag one is enough. A
    closed gate that time alone opens says when: one millisecond earlier nothing is cleaned.
    Changes nothing.
    """
    if partition is not None and topic is None:
        raise click.UsageError("--partition needs a topic")
    overrides = topic_overrides(configs)
    with settings.open_broker(read_only=True) as broker:
        choose(broker, topic, partition, overrides)
        partitions = broker.partitions(topic, partition)
        topics = {tp.topic for tp in partitions}
        compacted = [name for name in topics if broker.manager.catalog.config(name).compact]
        warn_of_strategy(broker, *sorted(compacted))
        failures: Failures = []
        found = _explained(broker, partitions, failures, is_one=partition is not None)
        if settings.as_table:
            emit_lines(_lines(found, broker.clock.now_ms()))
        else:
            items = map(json.dumps, _items(found, failures))
            emit_items(items, output=settings.output, name="partitions")
    for tp, error in failures:
        emit_failure(tp, str(error), error.kafka_error)
    return max((error.exit_code for _, error in failures), default=0)


def _explained(
    broker: Broker, partitions: Sequence[TopicPartition], failures: Failures, *, is_one: bool
) -> Iterator[PartitionExplanation]:
    """Look at one partition after another; one that cannot be opened hides no other."""
    from logstore.errors import LogStoreError

    for tp in watched(partitions, "explaining", beside_output=True):
        try:
            found = broker.explain(tp.topic, tp.partition).partitions
        except LogStoreError as error:
            if is_one:
                raise
            failures.append((tp, error))
        else:
            yield from found


def _items(found: Iterable[PartitionExplanation], failures: Failures) -> Iterator[dict[str, Any]]:
    """Yield the partitions, then those that could not be opened, which are known by then."""
    for partition in found:
        yield partition.to_json()
    for tp, error in failures:
        yield {**tp._asdict(), "error": error.kafka_error}


def _lines(found: Iterable[PartitionExplanation], now_ms: int) -> Iterator[str]:
    """Yield the lines of one partition after another, as they are looked at."""
    is_first = True
    for partition in found:
        if not is_first:
            yield ""
        is_first = False
        yield _headline(partition, now_ms)
        table = Table(("", "condition", "holds", "because"), wrap=True)
        yield from table.lines(
            _row(gate, partition.decision, now_ms) for gate in partition.decision.gates
        )
    if is_first:
        yield "no partitions"


def _headline(each: PartitionExplanation, now_ms: int) -> str:
    state, binding = each.decision.state, each.decision.binding
    name = paint(str(state.topic_partition), "bold")
    if binding is None:
        passes = f", in at most {each.passes_needed} passes" if each.passes_needed > 1 else ""
        will = paint("will be cleaned", "bold green")
        end = state.upper_bound_offset - 1
        return f"{name} {will}: offsets {state.first_dirty_offset}..{end}{passes}"
    opens = each.decision.opens_at_ms
    until = ""
    if opens is not None:
        until = f"; by itself on {format_time(opens)}, in {format_span(opens - now_ms)}"
    will_not = paint("will not be cleaned", "bold yellow")
    return f"{name} {will_not}: not {CONDITIONS.get(binding.gate, binding.gate)}{until}"


def _row(gate: Gate, decision: CleaningDecision, now_ms: int) -> tuple[str | Styled, ...]:
    marks = ("✓", "✗", "–") if can_print("✓✗–") else ("ok", "no", "-")
    spared = gate.gate in EITHER and any(g.open for g in decision.gates if g.gate in EITHER)
    opens = ""
    if gate.open:
        mark = Styled(marks[0], "green")
    else:
        mark = Styled(marks[2], "dim") if spared else Styled(marks[1], "bold red")
        opens = "not by itself"
        if gate.opens_at_ms is not None:
            opens = f"{format_time(gate.opens_at_ms)}, in {format_span(gate.opens_at_ms - now_ms)}"
    return mark, CONDITIONS.get(gate.gate, gate.gate), opens, _legible(gate)


def _legible(gate: Gate) -> str:
    """Return a gate's text with its milliseconds in words."""
    if not gate.gate.endswith("_lag"):
        return gate.text
    text = re.sub(r"\b(\d+) ms\b", lambda found: format_span(int(found[1])), gate.text)
    return re.sub(r"(lag\.ms )(\d+)", lambda found: found[1] + format_duration(int(found[2])), text)
