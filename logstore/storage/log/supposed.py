"""A log under another configuration, for decisions and dry runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logstore.storage.log.log import Log

if TYPE_CHECKING:
    from logstore.config.log_config import LogConfig


class SupposedLog(Log):
    """A log as if its topic had another configuration.

    It shares the current state of the log and is closed with it. No file is opened or copied.
    Decisions (of retention, such as `next_expiry_ms`, and of the cleaner) and dry runs use the
    supposed configuration. Do not append to it or roll it, because both would use the real
    configuration.

    Parameters
    ----------
    log : Log
    config : LogConfig
        The supposed configuration.
    """

    __slots__ = ("_supposed",)  # not in `__dict__`, which is shared with the log

    def __init__(self, log: Log, config: LogConfig) -> None:
        self.__dict__ = log.__dict__
        self._supposed = config
        self.lifetime.add(self)

    @property
    def config(self) -> LogConfig:  # type: ignore[override]  # nobody sets it
        """The supposed configuration."""
        return self._supposed
