"""Explain partitions: the decision about each, and facts from reading their records."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from logstore.analysis.assumptions import assumptions
from logstore.analysis.facts import (
    NO_FACTS,
    Cleaned,
    RecordFacts,
    dry_run_pass,
    read_facts,
    stopped,
)
from logstore.analysis.reports import ExplainReport, PartitionExplanation
from logstore.analysis.verdict import explained_verdict
from logstore.analysis.view import PartitionView
from logstore.cleaner.explaining import ActiveSegment, Tombstones, remedies, verdict
from logstore.errors import UnknownTopicOrPartitionError

if TYPE_CHECKING:
    from logstore.cleaner.command import ProgressListener
    from logstore.cleaner.selection import CleaningDecision
    from logstore.cleaner.stats import CleanerStats
    from logstore.reasons import Reason
    from logstore.storage.log.log import Log
    from logstore.types import TopicPartition

_UNREAD = "every batch is assumed to be valid: --quick reads no records"


def explain(
    broker: Cleaned,
    partitions: Sequence[TopicPartition],
    *,
    quick: bool = False,
    exact: bool = False,
    key: bytes | None = None,
    progress: ProgressListener | None = None,
) -> ExplainReport:
    """Explain which gates prevent cleaning of partitions; see `Broker.explain`."""
    explanations = []
    for tp in partitions:
        with suppress(UnknownTopicOrPartitionError):  # deleted in the meantime
            explanations.append(
                explain_partition(broker, tp, quick=quick, exact=exact, key=key, progress=progress)
            )
    return ExplainReport(tuple(explanations))


def explain_partition(
    broker: Cleaned,
    topic_partition: TopicPartition,
    *,
    quick: bool = False,
    exact: bool = False,
    key: bytes | None = None,
    progress: ProgressListener | None = None,
) -> PartitionExplanation:
    """Explain which gates prevent cleaning of a partition; see `Broker.explain`."""
    return PartitionView(broker, topic_partition).evaluate(
        lambda log: _explained(broker, log, quick=quick, exact=exact, key=key, progress=progress)
    )


def _explained(
    broker: Cleaned,
    log: Log,
    *,
    quick: bool,
    exact: bool,
    key: bytes | None,
    progress: ProgressListener | None,
) -> PartitionExplanation:
    topic_partition = log.topic_partition
    cleaner = broker.cleaner
    chooser = cleaner.chooser
    decision = chooser.explain(log)
    passes_needed = cleaner.passes_bound(log, decision.state)
    assumed = assumptions(broker.manager, topic_partition, cleaning=True)
    facts = NO_FACTS
    first_pass = None
    if log.config.compact and quick:
        assumed = (*assumed, _UNREAD)
    elif log.config.compact:
        facts = read_facts(broker, topic_partition, decision)
        log = broker.manager.log(topic_partition)  # reopened after damage
        if facts.obstacle is not None:
            decision = stopped(decision, facts)
        elif decision.will_clean:
            decision, first_pass, passes_needed = dry_run_pass(
                cleaner, log, decision, progress=progress
            )
    result = explanation(
        log,
        decision,
        facts,
        passes_needed,
        first_pass,
        assumed=assumed,
        kafka_exact=chooser.kafka_exact,
    )
    found = explained_verdict(
        broker, log, (decision, first_pass, passes_needed), facts, exact=exact, progress=progress
    )
    result = replace(result, verdict=found)
    if key is None:
        return result
    from logstore.analysis.key_explanation import explain_key

    key_explanation = explain_key(broker, topic_partition, key, decision, result.remedies)
    return replace(result, key=key_explanation)


def explanation(
    log: Log,
    decision: CleaningDecision,
    facts: RecordFacts,
    passes_needed: int,
    first_pass: CleanerStats | None,
    *,
    assumed: Sequence[str],
    kafka_exact: bool,
) -> PartitionExplanation:
    """Explain a decision made with foresight, using facts from reading the records."""
    active = ActiveSegment.of(log, kafka_exact=kafka_exact)
    tombstones = None
    tombstone_reasons: tuple[Reason, ...] = ()
    if facts.tombstones is not None:
        tombstones = Tombstones.of(facts.tombstones, facts.now_ms, decision)
        tombstone_reasons = tombstones.reasons(decision, log.config.delete_retention_ms)
    return PartitionExplanation.of(
        decision,
        passes_needed,
        reason=verdict(decision, active),
        remedies=remedies(log, decision, active),
        key=None,
        active_segment=active,
        tombstones=tombstones,
        tombstone_reasons=tombstone_reasons,
        damages=facts.damages,
        first_pass=first_pass,
        assumed=tuple(assumed),
    )
