"""`logstore explain`: the conditions for cleaning a partition, and when they are met."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from logstore.cli.options import (
    Settings,
    all_option,
    as_recovered_option,
    command,
    config_option,
    key_of,
    key_options,
    partition_option,
    topic_overrides,
    warn_of_strategy,
)
from logstore.cli.show.output import (
    display_bytes,
    emit,
    emit_failure,
    emit_items,
    emit_lines,
    format_count,
    plural,
)
from logstore.cli.show.progress import dry_run_bars, watched
from logstore.cli.show.prose import bullet_list, sentence, sentences, words, wrapped
from logstore.cli.show.tables import Styled, Table, can_print, output_width, paint
from logstore.cli.targets import Target, open_target
from logstore.reasons.formats import format_size, format_span, format_time

if TYPE_CHECKING:
    from logstore.analysis.key_explanation import KeyExplanation
    from logstore.analysis.reports import PartitionExplanation
    from logstore.analysis.verdict import Verdict
    from logstore.broker import Broker
    from logstore.cleaner.explaining import Remedy
    from logstore.cleaner.selection import CleaningDecision, Gate
    from logstore.cli.show.verdict import EmptyPartitions
    from logstore.errors import LogStoreError
    from logstore.types import TopicPartition

    Failures = list[tuple[TopicPartition, LogStoreError]]

_ROOMY = 110
"""Minimum terminal width for showing times next to durations."""

EITHER = ("dirty_ratio", "max_compaction_lag")
"""Gates of which only one must be open."""


@command(
    "explain",
    examples=[
        "logstore explain",
        "logstore explain users --partition 0",
        "logstore explain users --config min.cleanable.dirty.ratio=0.1",
        "logstore explain users --key ann",
        "logstore explain users --now 2024-12-31 --format json",
        "logstore explain ./kafka-logs/users-0 --config cleanup.policy=compact",
    ],
)
@click.argument("target", required=False, metavar="[TOPIC_OR_PATH]")
@partition_option("Partition of the topic. [default: all]")
@config_option("Topic configuration to assume. Can be repeated.")
@click.option(
    "--quick",
    is_flag=True,
    help="Read only batch headers: do not count tombstones, and do not detect damage.",
)
@click.option(
    "--exact",
    is_flag=True,
    help="Also dry-run partitions that are not due, to show how many bytes cleaning would free.",
)
@key_options
@all_option
@as_recovered_option
def explain(
    settings: Settings,
    target: str | None,
    partition: int | None,
    configs: tuple[tuple[str, str], ...],
    quick: bool,
    exact: bool,
    key: str | None,
    key_base64: str | None,
    lists_all: bool,
    as_recovered: bool,
) -> int:
    """Explain why partitions are or are not due for cleaning, and what to change.

    Every condition must hold, except that either the dirty ratio or the maximum lag is enough. For
    each unmet condition, the output shows when it will be met, or its cause and remedies. It also
    counts tombstones, and shows whether a pass that removes them is due. For partitions that are
    due, a dry run of the pass finds damage. With --key, lists the records of a key, when each can
    be removed, and what must happen first. Nothing is changed.

    A directory copied from a broker does not contain topic configs; pass them with --config.
    """
    from logstore.analysis.broker_state import topic_config
    from logstore.cli.show.verdict import (
        EmptyPartitions,
        summarize,
        summary_json,
        summary_lines,
    )

    wanted = key_of(key, key_base64)
    if quick and exact:
        raise click.UsageError("--quick and --exact are mutually exclusive")
    overrides = topic_overrides(configs)
    with open_target(settings, target, partition, as_recovered=as_recovered) as found:
        broker = found.opened()
        found.override(overrides)
        topics = {tp.topic for tp in found.partitions}
        compacted = [name for name in topics if topic_config(broker, name).compact]
        warn_of_strategy(broker, *sorted(compacted))
        failures: Failures = []
        verdicts: list[Verdict] = []
        is_damaged = False

        def explained() -> Iterator[PartitionExplanation]:
            nonlocal is_damaged
            for each in _explained(found, failures, quick=quick, exact=exact, key=wanted):
                is_damaged = is_damaged or bool(each.damages)
                if each.verdict is not None:
                    verdicts.append(each.verdict)
                yield each

        clock = () if settings.now_ms is not None else (_clock(broker),)
        if settings.as_table:
            # With a key, each partition has information about it.
            empty = EmptyPartitions(
                broker, found.partitions, lists_all=lists_all or wanted is not None
            )
            emit_lines(_lines(explained(), broker.clock.now_ms(), clock, empty))
            if len(found.partitions) > 1:
                emit("")
                emit_lines(summary_lines(summarize(broker, verdicts, failures)))
        else:
            items = map(json.dumps, _items(explained(), failures, clock))
            emit_items(
                items,
                output=settings.output,
                name="partitions",
                more=partial(summary_json, broker, verdicts, failures),
            )
    for tp, error in failures:
        emit_failure(tp, str(error), error.kafka_error)
    return max([int(is_damaged), *(error.exit_code for _, error in failures)])


def _clock(broker: Broker) -> str:
    from logstore.analysis.assumptions import clock_assumption

    return clock_assumption(format_time(broker.clock.now_ms()))


def _explained(
    target: Target, failures: Failures, *, quick: bool, exact: bool, key: bytes | None
) -> Iterator[PartitionExplanation]:
    """Yield the explanation of each partition. Add errors to `failures`."""
    from logstore.errors import LogStoreError

    for tp in watched(target.partitions, "explaining", with_output=True):
        try:
            with dry_run_bars(not quick, with_output=True) as progress:
                report = target.opened().explain(
                    tp.topic, tp.partition, quick=quick, exact=exact, key=key, progress=progress
                )
        except LogStoreError as error:
            if target.is_one:
                raise
            failures.append((tp, error))
        else:
            yield from report.partitions


def _items(
    found: Iterable[PartitionExplanation], failures: Failures, assumed: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """Yield the partitions, then the failures, which are complete by then."""
    for partition in found:
        item = partition.to_json()
        yield item | {"assumed": [*item["assumed"], *assumed]}
    for tp, error in failures:
        yield {**tp._asdict(), "error": error.kafka_error}


# -- the table -----------------------------------------------------------------------------


def _lines(
    found: Iterable[PartitionExplanation],
    now_ms: int,
    assumed: Sequence[str],
    empty: EmptyPartitions,
) -> Iterator[str]:
    """Yield the lines of each partition as they are computed.

    Each assumption is only listed with the first affected partition.
    """
    listed: dict[str, None] = {}
    is_first = True
    is_any = False
    for partition in found:
        is_any = True
        if not partition.damages and empty.omits(partition.topic, partition.verdict):
            continue
        if not is_first:
            yield ""
        yield from _headline(partition, now_ms)
        yield ""
        table = Table(("", "condition", "holds", "because"), wrap=True)
        yield from table.lines(
            _row(gate, partition.decision, now_ms) for gate in partition.decision.gates
        )
        yield from _notes(partition)
        texts = (*partition.assumed, *(assumed if is_first else ()))
        yield from bullet_list("assumed", [text for text in texts if text not in listed], "dim")
        listed |= dict.fromkeys(texts)
        is_first = False
    yield from empty.lines()
    if not is_any:
        yield "no partitions"


def _headline(each: PartitionExplanation, now_ms: int) -> Iterator[str]:
    from logstore.cli.show.verdict import verdict_lines

    state = each.decision.state
    yield from verdict_lines(state.topic_partition, each.verdict, now_ms)
    if each.will_clean:
        end = state.upper_bound_offset - 1
        parts = [f"offsets {state.first_dirty_offset}..{end}"]
        if (stats := each.first_pass) is not None:
            gone = stats.fates_total - stats.fates["retained"]
            parts.append(f"{format_count(gone)} of {plural(stats.fates_total, 'record')} removed")
        if each.passes_needed > 1:
            at_most = "" if each.first_pass is not None else "at most "
            parts.append(f"{at_most}{each.passes_needed} passes")
        yield from wrapped(", ".join(parts), "  ")
    elif each.opens_at_ms is not None:
        # A Kafka broker only rolls a segment on an append; logstore also rolls an idle segment.
        is_rolled = any(gate.gate == "active_segment" and not gate.open for gate in each.gates)
        cleaner = "logstore broker" if is_rolled else "cleaner"
        yield (
            f"  a running {cleaner} would clean it at {format_time(each.opens_at_ms)},"
            f" in {format_span(each.opens_at_ms - now_ms)}"
        )


def _notes(each: PartitionExplanation) -> Iterator[str]:
    """Yield remedies, and pending events of the active segment and tombstones."""
    pressing = _urgent_remedies(each)
    if len(pressing) > 1:
        yield ""
        both_or_all = "both" if len(pressing) == 2 else f"all {len(pressing)}"
        yield paint(f"{both_or_all} of the following conditions must be met", "bold")
    for remedy in pressing:
        yield ""
        name = words("condition", remedy.gate)
        yield from wrapped(f"not met ({name}): {sentences(remedy.causes)}", "", "bold")
        label = "remedies (one is enough)" if len(remedy.cures) > 1 else "remedy"
        yield from wrapped(f"{label}: {sentences(remedy.cures, '; or ')}", "  ")
    active = each.active_segment
    ways = [sentence(closing.reason) for closing in active.closings]
    if ways and not any(remedy.gate == "active_segment" for remedy in each.remedies):
        size = format_size(active.size_bytes)
        name = f"active segment {active.base_offset} ({size}) is rolled by"
        yield from bullet_list(name, ways)
    if each.tombstones is not None and each.tombstones.records:
        name = plural(each.tombstones.records, "tombstone")
        yield from bullet_list(name, [sentence(reason) for reason in each.tombstone_reasons])
    if each.key is not None:
        yield from _key(each.key)
    yield from bullet_list("damage", each.damages, "red")


def _when(moment_ms: int | None, now_ms: int, none: str) -> str:
    if moment_ms is None:
        return none
    return "now" if moment_ms <= now_ms else f"in {format_span(moment_ms - now_ms)}"


def _key(story: KeyExplanation) -> Iterator[str]:
    """Yield the records with a key, and the steps to their removal."""
    name = display_bytes(story.key)
    yield ""
    yield paint(f"key {name}: {plural(len(story.records), 'record')} in the log", "bold")
    if story.records:
        rows = (
            (
                str(record.offset),
                record.state.replace("_", " "),
                record.section,
                _when(record.delete_horizon_ms, story.now_ms, "-"),
                _when(record.earliest_ms, story.now_ms, "never"),
                _when(record.latest_ms, story.now_ms, "not by itself"),
            )
            for record in story.records
        )
        columns = ("offset", "state", "section", "horizon", "earliest", "latest")
        yield from Table(columns, right=("offset",)).lines(rows)
    yield from bullet_list(f"until {name} is gone", [sentence(step) for step in story.steps])


def _urgent_remedies(each: PartitionExplanation) -> list[Remedy]:
    """Return remedies for the binding gate, and for gates that do not open without intervention."""
    opens = {gate.gate: gate.opens_at_ms for gate in each.gates}
    binding = None if each.binding is None else opens[each.binding]
    return [
        remedy
        for remedy in each.remedies
        if remedy.gate == each.binding
        or (remedy.gate != "max_compaction_lag" and (binding is None or opens[remedy.gate] is None))
    ]


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
            opens = f"in {format_span(gate.opens_at_ms - now_ms)}"
            if output_width() >= _ROOMY:
                opens = f"{format_time(gate.opens_at_ms)}, {opens}"
    return mark, words("condition", gate.gate), opens, gate.text
