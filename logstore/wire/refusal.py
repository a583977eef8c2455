"""Refusals: errors of Kafka's for a request or a part of it."""

from __future__ import annotations

from logstore.errors import KAFKA_CODES, LogStoreError, RequestError


class Refusal(RequestError):
    """What is answered with an error, by its name; `message` None sends none.

    Attributes
    ----------
    error : str
        Kafka's name.
    message : str or None
    """

    def __init__(self, error: str, message: str | None = None) -> None:
        super().__init__(message or error)
        self.error = error
        self.message = message


def code_of(error: LogStoreError) -> int:
    """Return the number of what was refused."""
    return KAFKA_CODES[error.error] if isinstance(error, Refusal) else error.code


def message_of(error: LogStoreError) -> str | None:
    """Return what a client is told of it."""
    return error.message if isinstance(error, Refusal) else str(error)
