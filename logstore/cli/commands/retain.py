"""`logstore retain`: run retention once, with the rule and reason for each segment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from logstore.cli.options import (
    Settings,
    accept_data_loss_option,
    choose,
    command,
    config_option,
    partition_option,
    topic_overrides,
)
from logstore.cli.show.damage import assumed_of, note_assumed_limits, note_assumed_policy
from logstore.cli.show.output import (
    emit,
    emit_failure,
    emit_json,
    emit_lines,
    emit_values,
    format_count,
    plural,
)
from logstore.cli.show.progress import watched
from logstore.cli.show.tables import Cell, Styled, Table, paint
from logstore.cli.targets import open_target, refuse_path
from logstore.reasons.formats import format_size, format_span, format_time

if TYPE_CHECKING:
    from logstore.analysis.reports import RetainReport
    from logstore.broker import Broker
    from logstore.errors import LogStoreError
    from logstore.storage.log.retention import RetentionDecision, SegmentVerdict
    from logstore.types import TopicPartition

Failures = list[tuple["TopicPartition", "LogStoreError"]]


@command(
    "retain",
    examples=[
        "logstore retain --dry-run",
        "logstore retain events",
        "logstore retain ./kafka-logs --dry-run --config cleanup.policy=delete",
        "logstore retain events --partition 0 --dry-run --now 2024-12-31",
        "logstore retain events --config retention.ms=7d --dry-run --format json",
    ],
)
@click.argument("target", required=False, metavar="[TOPIC_OR_PATH]")
@partition_option("Partition of the topic. [default: all]")
@click.option(
    "--dry-run",
    is_flag=True,
    help="Show which segments would be deleted and why, without changing anything.",
)
@config_option(
    "Topic configuration for this run. Can be repeated. Units such as 7d, 12h or 1GiB are accepted."
)
@accept_data_loss_option
def retain(
    settings: Settings,
    target: str | None,
    partition: int | None,
    dry_run: bool,
    configs: tuple[tuple[str, str], ...],
) -> int:
    """Delete old segments of a topic, or of all topics, according to retention.

    With --dry-run, TOPIC_OR_PATH may be the path of a partition directory or a data directory.

    The rules apply in Kafka's order: the log start offset, retention.bytes, then retention.ms. Each
    starts at the oldest segment and stops at the first one that it retains. The last two apply only
    if cleanup.policy includes delete. Only whole segments are deleted. If the active segment is
    deleted too, the log is rolled first.

    Every segment is listed with the reason. For retained segments, the time at which they expire by
    age is shown. With compact,delete, a cleaning pass that merges older and newer records can
    change this time (KIP-354); the reason then mentions it.

    A directory copied from a broker does not contain topic configs: pass cleanup.policy, and limits
    that differ from the defaults, with --config. Without cleanup.policy, nothing is deleted there.
    """
    if partition is not None and target is None:
        raise click.UsageError("--partition needs a topic")
    overrides = topic_overrides(configs)
    if dry_run:
        with open_target(settings, target, partition, dry_run=True) as found:
            found.opened()
            found.override(overrides)
            failures = _run(settings, found.opened(), found.partitions, dry_run=True)
    else:
        refuse_path(target, "--dry-run")
        with settings.open_broker() as broker:
            choose(broker, target, partition, overrides)
            partitions = broker.partitions(target, partition)
            failures = _run(settings, broker, partitions, dry_run=False)
    for tp, error in failures:
        emit_failure(tp, str(error), error.kafka_error)
    return max((error.exit_code for _, error in failures), default=0)


def _run(
    settings: Settings, broker: Broker, partitions: Sequence[TopicPartition], *, dry_run: bool
) -> Failures:
    note_assumed_limits(broker, partitions)
    report, failures = _retain(broker, partitions, dry_run=dry_run)
    assumed = assumed_of(broker, partitions)
    if dry_run and settings.as_table:
        note_assumed_policy(broker, partitions)
    if report.decisions or not failures or not settings.as_table:
        _print(settings, report, broker.clock.now_ms(), assumed)
    return failures


def _retain(
    broker: Broker, partitions: Sequence[TopicPartition], *, dry_run: bool
) -> tuple[RetainReport, Failures]:
    """Run retention on each partition. An error in one partition does not affect the others.

    Unless this is a dry run, an assumed cleanup.policy counts as such an error.
    """
    from logstore.analysis.reports import RetainReport
    from logstore.errors import LogStoreError

    decisions: list[RetentionDecision] = []
    failures: Failures = []
    task = "deciding" if dry_run else "removing"
    for tp in watched(partitions, task):
        try:
            broker.log(*tp)  # report errors of opening first
            decisions += broker.retain(tp.topic, tp.partition, dry_run=dry_run).decisions
        except LogStoreError as error:
            failures.append((tp, error))
    return RetainReport(tuple(decisions), dry_run), failures


# -- output --------------------------------------------------------------------------------


def _print(settings: Settings, report: RetainReport, now_ms: int, assumed: list[str]) -> None:
    if settings.output == "json":
        emit_json(report.to_json() | {"assumed": assumed})
    elif settings.as_items:
        emit_values(report.to_json()["removed"], output=settings.output)
    else:
        _show(report, now_ms)


def _show(report: RetainReport, now_ms: int) -> None:
    if not report.decisions:
        emit("no partitions")
        return
    table = Table(("partition", "offsets", "size", "fate", "why"), right=("size",), wrap=True)
    emit_lines(
        table.lines(
            row
            for decision in report.decisions
            for row in _rows(decision, now_ms, dry_run=report.dry_run)
        )
    )
    emit("")
    emit(_totals(report))


def _rows(decision: RetentionDecision, now_ms: int, *, dry_run: bool) -> Iterator[Sequence[Cell]]:
    name = str(decision.topic_partition)
    for verdict in decision.segments:
        if verdict.rule is not None:
            fate = Styled("delete" if dry_run else "deleted", "yellow")
            why = f"{verdict.rule}: {verdict.reason}"
        else:
            fate = Styled("keep" if dry_run else "kept", "green")
            why = f"{verdict.reason}{_expiry(verdict, now_ms)}"
        yield (name, _offsets(verdict), format_size(verdict.size_bytes), fate, why)
    if decision.rolls:
        end = str(decision.log_start_offset)
        yield (name, end, format_size(0), Styled("new", "cyan"), "no segment was left to append to")


def _offsets(verdict: SegmentVerdict) -> str:
    """Return `0..9`, or `10` for an empty segment."""
    if verdict.end_offset == verdict.base_offset:
        return str(verdict.base_offset)
    return f"{verdict.base_offset}..{verdict.end_offset - 1}"


def _expiry(verdict: SegmentVerdict, now_ms: int) -> str:
    """Return when a segment expires by age. Empty unless this is in the future."""
    from logstore.types import INT64_MAX

    at_ms = verdict.expires_at_ms
    if at_ms is None or at_ms <= now_ms or at_ms == INT64_MAX:
        return ""
    span = format_span(at_ms - now_ms)
    if verdict.delayed_by_merging:  # the reason contains the time
        return f"; that is in {span}"
    return f"; expires at {format_time(at_ms)}, in {span}"


def _totals(report: RetainReport) -> str:
    gone = [verdict for decision in report.decisions for verdict in decision.removed]
    kept = [verdict for decision in report.decisions for verdict in decision.kept]
    left = len(kept) + sum(decision.rolls for decision in report.decisions)
    if not gone:
        return f"nothing to delete: {plural(left, 'segment')} left, {_size(kept)}"
    what = f"{plural(len(gone), 'segment')} {{}}, {_size(gone)} freed"
    rest = f"{format_count(left)} left, {_size(kept)}"
    if report.dry_run:
        what = what.format("would be deleted")
        return f"{paint(what, 'bold yellow')}; {rest} (nothing was changed)"
    return f"{paint(what.format('deleted'), 'bold green')}; {rest}"


def _size(verdicts: Sequence[SegmentVerdict]) -> str:
    return format_size(sum(verdict.size_bytes for verdict in verdicts))
