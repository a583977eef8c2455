"""Refusals: Kafka errors for a request or a part of it."""

from __future__ import annotations

from logstore.errors import KAFKA_CODES, LogStoreError, RequestError


class Refusal(RequestError):
    """An error response by Kafka's error name.

    Attributes
    ----------
    error : str
        Kafka's error name.
    message : str or None
        Error message; None sends none.
    """

    def __init__(self, error: str, message: str | None = None) -> None:
        super().__init__(message or error)
        self.error = error
        self.message = message


def code_of(error: LogStoreError) -> int:
    """Return the error code to send for an error."""
    return KAFKA_CODES[error.error] if isinstance(error, Refusal) else error.code


def message_of(error: LogStoreError) -> str | None:
    """Return the error message to send for an error, or None."""
    return error.message if isinstance(error, Refusal) else str(error)
