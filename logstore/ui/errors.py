"""Errors of the web page, in addition to `logstore.errors`."""

from __future__ import annotations

from logstore import errors
from logstore.errors import LogStoreError, RequestError


class InvalidRequestError(RequestError):
    """A request parameter or body member is invalid.

    Attributes
    ----------
    field : str or None
        The invalid parameter or member, or None if unknown.
    suggestion : str or None
        The closest valid name or value, or None if none is similar.
    """

    kafka_error = "INVALID_REQUEST"

    def __init__(
        self, message: str, *, field: str | None = None, suggestion: str | None = None
    ) -> None:
        super().__init__(message)
        self.field = field
        self.suggestion = suggestion


class RequestTooLargeError(InvalidRequestError):
    """The request body is too large."""


class UnknownTopicOrPartitionError(errors.UnknownTopicOrPartitionError):
    """The topic or partition does not exist. The closest name is suggested.

    Attributes
    ----------
    suggestion : str or None
        The closest topic name that the principal may describe, or None if none is similar.
    """

    def __init__(self, message: str, *, suggestion: str | None = None) -> None:
        super().__init__(message)
        self.suggestion = suggestion


class UnknownPlaceError(RequestError):
    """The requested resource does not exist.

    Attributes
    ----------
    suggestion : str or None
        The closest existing address, or None if none is similar.
    """

    kafka_error = "RESOURCE_NOT_FOUND"

    def __init__(self, message: str, *, suggestion: str | None = None) -> None:
        super().__init__(message)
        self.suggestion = suggestion


class TooManyClientsError(LogStoreError):
    """The event stream has too many clients."""

    kafka_error = "THROTTLING_QUOTA_EXCEEDED"


class ClusterAuthorizationFailedError(RequestError):
    """The principal may not perform this operation on the broker."""

    kafka_error = "CLUSTER_AUTHORIZATION_FAILED"


class ReadOnlyError(LogStoreError):
    """The page is read-only."""

    kafka_error = "POLICY_VIOLATION"


class ClockError(LogStoreError):
    """The clock cannot be advanced because it is not virtual."""

    kafka_error = "INVALID_REQUEST"


class BusyError(LogStoreError):
    """Another operation of the page is in progress."""

    kafka_error = "REQUEST_TIMED_OUT"
