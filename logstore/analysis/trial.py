"""The log and cleaner of a partition with different configs or at a later time.

Previews, dry runs and simulations use the engine, so that each rule is implemented only once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from logstore.cleaner.checkpoints import CleanerCheckpoints
from logstore.manager.directories.directory import redirtied
from logstore.manager.manager import LogManager
from logstore.runtime import (
    OverlayFileSystem,
    ReadOnlyFileSystem,
    Runtime,
    VirtualClock,
    random_source,
)
from logstore.storage.log.reconfigured import ReconfiguredLog

if TYPE_CHECKING:
    from logstore.cleaner.manager import LogCleanerManager
    from logstore.cleaner.selection import CleaningDecision
    from logstore.config.broker_config import BrokerConfig
    from logstore.config.log_config import LogConfig
    from logstore.runtime import FileSystem
    from logstore.storage.log.log import Log
    from logstore.storage.log.retention import RetentionDecision
    from logstore.types import TopicPartition


class _RedirtiedCheckpoints(CleanerCheckpoints):
    """The checkpoints that the cleaner would use after a change of compaction strategy."""

    def of(self, topic_partition: TopicPartition) -> int | None:
        stored = super().of(topic_partition)
        return None if stored is None else redirtied(stored)


class Trial(NamedTuple):
    """A log and its cleaner with given configs.

    `of_log` shares the open log and its clock, for decisions and dry runs. `of_copy` opens the
    partition over an in-memory overlay, so it can also append, clean and remove records, at any
    time.
    """

    log: Log
    cleaner: LogCleanerManager

    @classmethod
    def of_log(
        cls, cleaner: LogCleanerManager, log: Log, config: LogConfig, settings: BrokerConfig
    ) -> Trial:
        """Return an open log with different configs, without opening or copying it.

        Parameters
        ----------
        cleaner : LogCleanerManager
            The broker's cleaner.
        config : LogConfig
            The topic's config.
        settings : BrokerConfig
            Broker config.
        """
        checkpoints = cleaner.checkpoints
        if config.winner_keys != log.config.winner_keys:
            checkpoints = _RedirtiedCheckpoints(cleaner.logs.registry.directory_of)
        return cls(
            ReconfiguredLog(log, config), cleaner.with_hypothetical_configs(settings, checkpoints)
        )

    @classmethod
    def of_copy(
        cls,
        fs: FileSystem,
        log_dirs: Sequence[str],
        settings: BrokerConfig,
        topic_partition: TopicPartition,
        configs: Mapping[str, str],
        clock: VirtualClock,
    ) -> Trial:
        """Open a partition as a starting broker does, without changing its files.

        Parameters
        ----------
        fs : FileSystem
            Only read. All changes stay in memory.
        configs : mapping of str to str
            Overrides of topic configs.

        Raises
        ------
        LogStoreError
            The partition cannot be opened.
        """
        from logstore.cleaner.manager import LogCleanerManager  # not needed for quick verdicts

        overlay = OverlayFileSystem(ReadOnlyFileSystem(fs), clock)
        runtime = Runtime(clock, overlay, random_source(0))
        manager = LogManager(runtime, log_dirs, settings, read_only=True)
        if configs:
            manager.catalog.override(topic_partition.topic, configs)
        return cls(manager.log(topic_partition), LogCleanerManager(runtime, manager, settings))

    @property
    def is_cleaned(self) -> bool:
        """Whether cleaner threads ever clean the log."""
        return self.cleaner.chooser.broker_config.log_cleaner_enable and self.log.config.compact

    @property
    def is_idle(self) -> bool:
        """Whether a cleaner thread would roll the active segment without an append."""
        return self.is_cleaned and self.cleaner.chooser.is_idle(self.log)

    @property
    def is_due(self) -> bool:
        """Whether a cleaner thread would clean the log now."""
        if not self.is_cleaned:
            return False
        chooser = self.cleaner.chooser
        return chooser.decision_of(self.log, rolled=chooser.is_idle(self.log)).will_clean

    @property
    def first_dirty_offset(self) -> int:
        """The checkpointed first dirty offset, or 0."""
        return self.cleaner.checkpoints.of(self.log.topic_partition) or 0

    def decision(self) -> CleaningDecision:
        """Return the next selection's decision, and when closed gates open."""
        return self.cleaner.chooser.explain(self.log)

    def retention(self) -> RetentionDecision:
        """Return what retention would remove now."""
        first_dirty_offset = self.first_dirty_offset if self.log.config.compact else 0
        return self.log.retention_decision(first_dirty_offset=first_dirty_offset)

    def next_due_ms(self) -> int | None:
        """Return the next time when retention or cleaning may become due without an append.

        None if nothing will become due.
        """
        times = [self.log.next_expiry_ms()]
        if self.is_cleaned:
            times.append(self.cleaner.chooser.next_cleaning_ms(self.log))
        now_ms = self.log.runtime.clock.now_ms()
        return min((each for each in times if each is not None and each > now_ms), default=None)

    def close(self) -> None:
        """Close a copy made by `of_copy` and discard its changes."""
        self.cleaner.logs.close()
