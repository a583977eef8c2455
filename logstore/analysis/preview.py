"""Preview the effect of config changes on partitions.

The engine makes decisions and dry runs over the logs with the new configs (`Trial.of_log`). No log
is changed, opened or copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from logstore.analysis.assumptions import assumptions
from logstore.analysis.explaining import explanation
from logstore.analysis.facts import (
    NO_FACTS,
    Cleaned,
    RecordFacts,
    dry_run_pass,
    read_facts,
    stopped,
)
from logstore.analysis.losses import NOTHING_LOST, Loss, lost_by_retention
from logstore.analysis.reports import ConfigChange, changes_between
from logstore.analysis.tombstones import live_tombstones
from logstore.analysis.trial import Trial
from logstore.analysis.view import PartitionView
from logstore.cleaner.strategy import Strategy
from logstore.config.dynamic import Layer
from logstore.config.overrides import (
    alter_overrides,
    describe,
    describe_broker_values,
    effective_config,
    parse_overrides,
)
from logstore.errors import UnknownTopicOrPartitionError
from logstore.types import INT64_MAX, TopicPartition

if TYPE_CHECKING:
    from logstore.analysis.reports import PartitionExplanation
    from logstore.cleaner.selection import CleaningDecision
    from logstore.cleaner.stats import CleanerStats
    from logstore.config.broker_config import BrokerConfig
    from logstore.config.log_config import LogConfig
    from logstore.manager.manager import LogManager
    from logstore.storage.log.log import Log
    from logstore.storage.log.retention import RetentionDecision

_INDEPENDENT_GATES = ("policy", "cleaner_disabled", "uncleanable", "empty")
"""Gates that prevent any cleaning pass, regardless of dirty ratio and lags."""


# -- new settings ------------------------------------------------------------------------------


class HypotheticalConfigs(NamedTuple):
    """Hypothetical configs of a broker and its topics.

    Attributes
    ----------
    broker_config : BrokerConfig
    configs : mapping of str to LogConfig
        Configs of the affected topics.
    changed : tuple of ConfigChange
        The keys whose value or origin would change.
    notes : tuple of str
        Messages about old names that were replaced.
    """

    broker_config: BrokerConfig
    configs: Mapping[str, LogConfig]
    changed: tuple[ConfigChange, ...]
    notes: tuple[str, ...]


def hypothetical_topic_configs(
    manager: LogManager, topic: str, set_configs: Mapping[str, object], unset: Iterable[str]
) -> HypotheticalConfigs:
    """Return the configs after a topic change; see `alter_configs`.

    Raises
    ------
    UnknownTopicOrPartitionError, InvalidConfigurationError
    """
    catalog = manager.catalog
    broker_config = catalog.broker_config
    own = catalog.topic(topic).configs
    altered, notes = alter_overrides(own, set_configs, unset, broker_config)
    overrides = altered | parse_overrides(catalog.temporary_overrides(topic))[0]
    changed = changes_between(
        describe(catalog.overrides(topic), broker_config), describe(overrides, broker_config)
    )
    config = effective_config(overrides, broker_config)
    return HypotheticalConfigs(broker_config, {topic: config}, changed, notes)


def hypothetical_broker_configs(
    manager: LogManager, changes: Mapping[str, object], layer: Layer = Layer.BROKER
) -> HypotheticalConfigs:
    """Return the configs after a broker change; see `alter_broker_configs`.

    Raises
    ------
    InvalidConfigurationError
    """
    catalog = manager.catalog
    config, notes = manager.topics.check_reconfigured(changes, layer)
    configs = {}
    for topic in catalog.topics():
        then = effective_config(catalog.overrides(topic.name), config)
        if then != catalog.config(topic.name):
            configs[topic.name] = then
    now = describe_broker_values(catalog.broker_config)
    changed = changes_between(now, describe_broker_values(config))
    return HypotheticalConfigs(config, configs, changed, notes)


# -- their effect ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Outlook:
    """The future of a partition with given configs.

    Attributes
    ----------
    explanation : PartitionExplanation
        The decision, as in `explain`. If a pass is due now, `first_pass` contains its statistics.
    later_pass : CleanerStats or None
        If no pass is due now, the statistics of the next pass, assuming that the active segment is
        rolled and ignoring dirty ratio and lags.
    later_passes_needed : int
        Number of passes for that cleaning, or 0 without statistics.
    retention : RetentionDecision
        Removals if retention ran now.
    next_expiry_ms : int or None
        Time when retention may next remove segments without an append, in Unix milliseconds, or
        None if never.
    horizon_ms : int or None
        Delete horizon that the next cleaning pass would set: its time plus `delete.retention.ms`.
        None if no pass becomes due without an append.
    """

    explanation: PartitionExplanation
    later_pass: CleanerStats | None
    later_passes_needed: int
    retention: RetentionDecision
    next_expiry_ms: int | None
    horizon_ms: int | None

    def to_json(self) -> dict[str, Any]:
        """Return the item of `explain --format json` with these additional attributes."""
        removed = self.retention.removed
        later = self.later_pass
        return self.explanation.to_json() | {
            "later_passes_needed": self.later_passes_needed,
            "later_pass": None if later is None else later.to_json(),
            "horizon_ms": self.horizon_ms,
            "retention": {
                "segments": len(removed),
                "size_bytes": sum(each.size_bytes for each in removed),
                "log_start_offset": self.retention.log_start_offset,
                "reasons": sorted({str(each.rule) for each in removed}),
                "next_expiry_ms": self.next_expiry_ms,
            },
        }


@dataclass(frozen=True, slots=True)
class PartitionPreview:
    """A partition under the current and the new configs.

    Attributes
    ----------
    size_bytes, segments : int
        Current size of the partition.
    before, after : Outlook
        The outlook with the current and the new configs. `before` has no statistics.
    unread : str or None
        Why records were not read. None if they were read or are not needed.
    """

    topic: str
    partition: int
    size_bytes: int
    segments: int
    before: Outlook
    after: Outlook
    unread: str | None

    def to_json(self) -> dict[str, Any]:
        """Return an item of `partitions` in the JSON of a preview."""
        return {
            "topic": self.topic,
            "partition": self.partition,
            "size_bytes": self.size_bytes,
            "segments": self.segments,
            "before": self.before.to_json(),
            "after": self.after.to_json(),
            "unread": self.unread,
        }


@dataclass(frozen=True, slots=True)
class Preview:
    """The effect of new configs, as returned by `Broker.preview`.

    Attributes
    ----------
    topic : str or None
        The topic, or None for broker configs.
    changed : tuple of ConfigChange
        The keys whose value or origin would change.
    notes : tuple of str
        Messages about old names that were replaced.
    partitions : tuple of PartitionPreview
        The affected partitions, or all partitions if a topic is given.
    left_out : int
        Number of partitions that were not examined.
    loss : Loss
        Records that retention would remove only with the new configs.
    """

    topic: str | None
    changed: tuple[ConfigChange, ...]
    notes: tuple[str, ...]
    partitions: tuple[PartitionPreview, ...]
    left_out: int
    loss: Loss

    def __repr__(self) -> str:
        keys = ", ".join(each.key for each in self.changed) or "nothing"
        return f"<Preview: {keys} would change for {len(self.partitions)} partitions>"

    def to_json(self) -> dict[str, Any]:
        """Return the preview as a JSON object."""
        return {
            "topic": self.topic,
            "changed": [each.to_json() for each in self.changed],
            "notes": list(self.notes),
            "partitions": [each.to_json() for each in self.partitions],
            "left_out": self.left_out,
            "loses": self.loss.to_json() if self.loss else None,
        }


class Budget:
    """Number of bytes that may still be read. None if unlimited."""

    def __init__(self, bytes_max: int | None) -> None:
        self._left = bytes_max

    def take(self, size_bytes: int) -> bool:
        """Take a number of bytes if available. Return whether they were."""
        if self._left is None:
            return True
        if size_bytes > self._left:
            return False
        self._left -= size_bytes
        return True


def preview(
    broker: Cleaned,
    hypothetical: HypotheticalConfigs,
    topic: str | None = None,
    partition: int | None = None,
    *,
    quick: bool = False,
    read_bytes_max: int | None = None,
    partitions_max: int | None = None,
) -> Preview:
    """Return the effect of new configs; see `Broker.preview`."""
    catalog = broker.manager.catalog
    if topic is None:
        selected = [tp for name in hypothetical.configs for tp in catalog.partitions(name)]
    else:
        selected = catalog.partitions(topic, partition)
    examined = selected if partitions_max is None else selected[:partitions_max]
    budget = Budget(0 if quick else read_bytes_max)
    previews = []
    losses = []
    for tp in examined:
        with suppress(UnknownTopicOrPartitionError):  # deleted in the meantime
            one = _preview_partition(broker, hypothetical, tp, budget, quick=quick)
            previews.append(one)
            losses.append(lost_by_settings(broker, hypothetical, tp))
    return Preview(
        topic,
        hypothetical.changed,
        hypothetical.notes,
        tuple(previews),
        len(selected) - len(examined),
        Loss.of_all(losses),
    )


def lost_by_settings(
    broker: Cleaned, hypothetical: HypotheticalConfigs, tp: TopicPartition
) -> Loss:
    """Return the records that retention would remove only with the new configs."""
    log = broker.manager.log(tp)
    config = hypothetical.configs.get(tp.topic, log.config)
    then = Trial.of_log(broker.cleaner, log, config, hypothetical.broker_config).retention()
    now = log.retention_decision()
    if len(then.removed) <= len(now.removed):
        return NOTHING_LOST
    return lost_by_retention(log, then, beyond=now)


def _preview_partition(
    broker: Cleaned,
    hypothetical: HypotheticalConfigs,
    tp: TopicPartition,
    budget: Budget,
    *,
    quick: bool,
) -> PartitionPreview:
    config = hypothetical.configs[tp.topic]

    def trials() -> tuple[Trial, Trial]:
        log = broker.manager.log(tp)
        then = Trial.of_log(broker.cleaner, log, config, hypothetical.broker_config)
        return Trial(log, broker.cleaner), then

    now, then = trials()
    decision = then.decision()
    facts = then_facts = NO_FACTS
    unread = None
    first = later = None
    passes = later_passes = 0
    size_bytes = _bytes_to_read(then.log, decision)
    if config.compact and size_bytes and quick:
        unread = f"a quick preview reads no records ({size_bytes} bytes)"
    elif config.compact and not budget.take(size_bytes):
        unread = f"its {size_bytes} bytes exceed the read limit of this preview"
    elif config.compact:
        facts = then_facts = read_facts(broker, tp, decision)
        now, then = trials()  # logs may have been reopened after damage
        if facts.tombstones is not None and Strategy.of(config) != Strategy.of(now.log.config):
            then_facts = facts._replace(
                tombstones=live_tombstones(PartitionView(broker, tp), config)
            )
        if facts.obstacle is not None:
            decision = stopped(decision, facts)
        elif decision.will_clean:
            decision, first, passes = dry_run_pass(then.cleaner, then.log, decision)
        elif _can_be_due(decision):
            forced, later, later_passes = dry_run_pass(
                then.cleaner, then.log, decision, force=True, roll=True
            )
            for gate in forced.gates:
                if gate.gate == "uncleanable" and not gate.open:
                    decision = decision.stopped_by(gate)
    now_decision = now.decision()
    if now_decision.is_candidate:
        now_decision = stopped(now_decision, facts)
    assumed = assumptions(broker.manager, tp, cleaning=True)
    return PartitionPreview(
        tp.topic,
        tp.partition,
        now.log.size_bytes,
        len(now.log.segments),
        _outlook(now, now_decision, facts, assumed),
        _outlook(then, decision, then_facts, assumed, first, passes, later, later_passes),
        unread,
    )


def _can_be_due(decision: CleaningDecision) -> bool:
    """Return whether a cleaning pass could ever be due."""
    return all(gate.open for gate in decision.gates if gate.gate in _INDEPENDENT_GATES)


def _bytes_to_read(log: Log, decision: CleaningDecision) -> int:
    """Estimate the number of bytes to read for examining and dry-running a compacted log."""
    if not _can_be_due(decision):
        return log.size_bytes
    return 3 * log.size_bytes


def _outlook(
    trial: Trial,
    decision: CleaningDecision,
    facts: RecordFacts,
    assumed: Sequence[str],
    first_pass: CleanerStats | None = None,
    passes_needed: int = 0,
    later_pass: CleanerStats | None = None,
    later_passes_needed: int = 0,
) -> Outlook:
    log, cleaner = trial
    result = explanation(
        log,
        decision,
        facts,
        passes_needed or cleaner.passes_bound(log, decision.state),
        first_pass,
        assumed=assumed,
        kafka_exact=cleaner.chooser.kafka_exact,
    )
    next_pass_ms = decision.opens_at_ms
    horizon_ms = None
    if next_pass_ms is not None:
        horizon_ms = min(next_pass_ms + log.config.delete_retention_ms, INT64_MAX)
    return Outlook(
        result,
        later_pass,
        0 if later_pass is None else later_passes_needed,
        trial.retention(),
        log.next_expiry_ms(),
        horizon_ms,
    )
