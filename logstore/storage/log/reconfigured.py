"""A log with a hypothetical configuration, for decisions and dry runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logstore.storage.log.log import Log

if TYPE_CHECKING:
    from logstore.config.log_config import LogConfig


class ReconfiguredLog(Log):
    """A log as if its topic had a different configuration.

    It shares the current state of the log and is closed with it. No file is opened or copied.
    Decisions (of the cleaner, and of retention, such as `next_expiry_ms`) and dry runs use the
    hypothetical configuration. The caller must not append to it or roll it, because both would use
    the actual configuration.

    Parameters
    ----------
    log : Log
    config : LogConfig
        The hypothetical configuration.
    """

    __slots__ = ("_hypothetical",)  # not in `__dict__`, which is shared with the log

    def __init__(self, log: Log, config: LogConfig) -> None:
        self.__dict__ = log.__dict__
        self._hypothetical = config
        self.lifetime.add(self)

    @property
    def config(self) -> LogConfig:  # type: ignore[override]  # nobody sets it
        """The hypothetical configuration."""
        return self._hypothetical
