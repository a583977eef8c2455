"""What requests of the page are refused with, besides the errors of the engine."""

from __future__ import annotations

from logstore import errors
from logstore.errors import LogStoreError, RequestError


class InvalidRequestError(RequestError):
    """A parameter or a member of a request that nobody can obey.

    Attributes
    ----------
    field : str or None
        Its name.
    suggestion : str or None
        The name or value that was meant, perhaps.
    """

    kafka_error = "INVALID_REQUEST"

    def __init__(
        self, message: str, *, field: str | None = None, suggestion: str | None = None
    ) -> None:
        super().__init__(message)
        self.field = field
        self.suggestion = suggestion


class RequestTooLargeError(InvalidRequestError):
    """A request that is longer than any that could be meant."""


class UnknownTopicOrPartitionError(errors.UnknownTopicOrPartitionError):
    """The engine's error of that name, and the topic that was meant.

    Attributes
    ----------
    suggestion : str or None
        Of the topics that the principal may see the one most alike.
    """

    def __init__(self, message: str, *, suggestion: str | None = None) -> None:
        super().__init__(message)
        self.suggestion = suggestion


class UnknownPlaceError(RequestError):
    """Nothing is at an address, or not there any more.

    Attributes
    ----------
    suggestion : str or None
        The address that was meant, perhaps.
    """

    kafka_error = "RESOURCE_NOT_FOUND"

    def __init__(self, message: str, *, suggestion: str | None = None) -> None:
        super().__init__(message)
        self.suggestion = suggestion


class TooManyReadersError(LogStoreError):
    """As many as can be told what happens are told it."""

    kafka_error = "THROTTLING_QUOTA_EXCEEDED"


class ClusterAuthorizationFailedError(RequestError):
    """The principal may not do this to the broker."""

    kafka_error = "CLUSTER_AUTHORIZATION_FAILED"


class ReadOnlyError(LogStoreError):
    """What this page shows is only looked at."""

    kafka_error = "POLICY_VIOLATION"


class ClockError(LogStoreError):
    """A clock that moves by itself, and not because somebody asks."""

    kafka_error = "INVALID_REQUEST"


class BusyError(LogStoreError):
    """Another deed of the page takes its time."""

    kafka_error = "REQUEST_TIMED_OUT"
