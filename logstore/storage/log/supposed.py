"""A log under another configuration, for decisions and dry runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logstore.storage.log.log import Log

if TYPE_CHECKING:
    from logstore.config.log_config import LogConfig


class SupposedLog(Log):
    """A log as if its topic had another configuration.

    It shares the state of the log, now and later, and ends with it: nothing is opened or copied.
    Decisions (`retention_decision`, `next_expiry_ms`, those of the cleaner) and dry runs use the
    supposed configuration. Do not append to it or roll it: both would use the real one.

    Parameters
    ----------
    log : Log
    config : LogConfig
        The supposed configuration.
    """

    __slots__ = ("_supposed",)  # outside the attributes, which are those of the log

    def __init__(self, log: Log, config: LogConfig) -> None:
        self.__dict__ = log.__dict__
        self._supposed = config
        self.lifetime.add(self)

    @property
    def config(self) -> LogConfig:  # type: ignore[override]  # nobody sets it
        """The supposed configuration."""
        return self._supposed
