"""Refusals: Kafka errors for a request, or for a part of a request."""

from __future__ import annotations

from logstore.errors import KAFKA_CODES, LogStoreError, RequestError


class Refusal(RequestError):
    """Raised to respond with a Kafka error.

    Attributes
    ----------
    error : str
        Kafka's error name.
    message : str or None
        The error message, or None to send no message.
    """

    def __init__(self, error: str, message: str | None = None) -> None:
        super().__init__(message or error)
        self.error = error
        self.message = message


def code_of(error: LogStoreError) -> int:
    """Return the error code for an exception."""
    return KAFKA_CODES[error.error] if isinstance(error, Refusal) else error.code


def message_of(error: LogStoreError) -> str | None:
    """Return the error message for an exception, or None to send no message."""
    return error.message if isinstance(error, Refusal) else str(error)
