"""A log under a configuration that is supposed: what would be decided of it, and a dry run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logstore.storage.log.log import Log

if TYPE_CHECKING:
    from logstore.config.log_config import LogConfig


class SupposedLog(Log):
    """A log as if its topic was configured otherwise.

    It is the log itself, with its files and offsets as they are at each moment, and ends with it:
    nothing is opened or copied. Decisions (`retention_decision`, `next_expiry_ms`, those of the
    cleaner) and dry runs go by the supposed configuration; appends and rolls would go by the real
    one, and are not for it.

    Parameters
    ----------
    log : Log
    config : LogConfig
        Supposed to be in force.
    """

    def __init__(self, log: Log, config: LogConfig) -> None:
        # Its parts are those of the log, which the log alone answers for.
        self.__dict__.update(log.__dict__)
        self._supposed = config

    @property
    def config(self) -> LogConfig:
        """The settings that are supposed to be in force."""
        return self._supposed
