"""Errors of the page's requests, in addition to the engine's errors."""

from __future__ import annotations

from logstore import errors
from logstore.errors import LogStoreError, RequestError


class InvalidRequestError(RequestError):
    """A request has an invalid parameter or member.

    Attributes
    ----------
    field : str or None
        Name of the parameter or member.
    suggestion : str or None
        A similar name or value that is valid.
    """

    kafka_error = "INVALID_REQUEST"

    def __init__(
        self, message: str, *, field: str | None = None, suggestion: str | None = None
    ) -> None:
        super().__init__(message)
        self.field = field
        self.suggestion = suggestion


class RequestTooLargeError(InvalidRequestError):
    """The body of a request is too large."""


class UnknownTopicOrPartitionError(errors.UnknownTopicOrPartitionError):
    """The engine's error of the same name, with a suggestion.

    Attributes
    ----------
    suggestion : str or None
        The most similar topic among those that the principal may describe.
    """

    def __init__(self, message: str, *, suggestion: str | None = None) -> None:
        super().__init__(message)
        self.suggestion = suggestion


class UnknownPlaceError(RequestError):
    """The requested resource does not exist.

    Attributes
    ----------
    suggestion : str or None
        A similar address that exists.
    """

    kafka_error = "RESOURCE_NOT_FOUND"

    def __init__(self, message: str, *, suggestion: str | None = None) -> None:
        super().__init__(message)
        self.suggestion = suggestion


class TooManyClientsError(LogStoreError):
    """Too many clients read the event stream."""

    kafka_error = "THROTTLING_QUOTA_EXCEEDED"


class ClusterAuthorizationFailedError(RequestError):
    """The principal may not perform this operation on the broker."""

    kafka_error = "CLUSTER_AUTHORIZATION_FAILED"


class ReadOnlyError(LogStoreError):
    """The page is read-only."""

    kafka_error = "POLICY_VIOLATION"


class ClockError(LogStoreError):
    """The clock cannot be moved, because it is not a manual clock."""

    kafka_error = "INVALID_REQUEST"


class BusyError(LogStoreError):
    """Another operation of the page is in progress."""

    kafka_error = "REQUEST_TIMED_OUT"
