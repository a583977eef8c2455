"""API requests, routes and error responses.

An API function takes an `ApiRequest` and returns a JSON-serializable value. It may block. A route
declares its parameters and rejects all others. Exceptions become error responses.
"""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import Route

from logstore import errors
from logstore.analysis.view import Damaged
from logstore.config.suggest import and_nearest, nearest
from logstore.errors import (
    CorruptionError,
    CorruptRecordError,
    GroupAuthorizationFailedError,
    GroupIdNotFoundError,
    IllegalStateError,
    InvalidConfigurationError,
    KafkaStorageError,
    LogStoreError,
    RequestError,
    TopicAlreadyExistsError,
    TopicAuthorizationFailedError,
)
from logstore.security.acls import CLUSTER_NAME, AclOperation, ResourceType, word_of
from logstore.types import INT32_MAX, INT64_MAX, TopicPartition
from logstore.ui.errors import (
    BusyError,
    ClockError,
    ClusterAuthorizationFailedError,
    InvalidRequestError,
    ReadOnlyError,
    RequestTooLargeError,
    UnknownPlaceError,
    UnknownTopicOrPartitionError,
)

if TYPE_CHECKING:
    from starlette.requests import Request

    from logstore.broker import Broker
    from logstore.ui.context import Action, Context

logger = logging.getLogger(__name__)

BODY_BYTES_MAX = 1024 * 1024
"""Maximum size of a request body. A larger Content-Length is rejected unread."""

_STATUSES: tuple[tuple[type[Exception], int], ...] = (
    (errors.UnknownTopicOrPartitionError, 404),
    (GroupIdNotFoundError, 404),
    (UnknownPlaceError, 404),
    (TopicAuthorizationFailedError, 403),
    (GroupAuthorizationFailedError, 403),
    (ClusterAuthorizationFailedError, 403),
    (ReadOnlyError, 403),
    (ClockError, 409),
    (TopicAlreadyExistsError, 409),
    (BusyError, 503),
    (RequestTooLargeError, 413),
    (RequestError, 400),
    (InvalidConfigurationError, 400),
    (CorruptionError, 409),
    (KafkaStorageError, 503),
    (IllegalStateError, 503),
)
"""HTTP status by error class. The first match applies; the default is 500."""

_FORBIDDEN: Mapping[ResourceType, type[LogStoreError]] = {
    ResourceType.TOPIC: TopicAuthorizationFailedError,
    ResourceType.GROUP: GroupAuthorizationFailedError,
}


class ApiResponse(NamedTuple):
    """A JSON response with a status code."""

    status: int
    value: object


class ApiRequest:
    """An API request.

    Parameters
    ----------
    context : Context
        The shared state of the page.
    path, query, body : mapping
        Path parameters, query parameters and body members. The route has checked all names except
        those in `path`.
    host : str
        The client's host.
    address : str
        Method and path of the request.
    """

    def __init__(
        self,
        context: Context,
        path: Mapping[str, str],
        query: Mapping[str, str],
        body: Mapping[str, Any],
        host: str,
        address: str = "",
    ) -> None:
        self.context = context
        self.path = path
        self.query = query
        self.body = body
        self.host = host
        self.address = address

    @classmethod
    def without_parameters(cls, context: Context, request: Request) -> ApiRequest:
        """Return a request without parameters, for permission checks."""
        return cls(context, {}, {}, {}, _host(request))

    @property
    def broker(self) -> Broker:
        """The broker of the page."""
        return self.context.broker

    # -- path parameters -------------------------------------------------------------------

    def topic(self, *operations: str) -> str:
        """Return the topic in the path, after checking that it exists and access is permitted.

        Raises
        ------
        TopicAuthorizationFailedError, UnknownTopicOrPartitionError
        """
        return self.known_topic(self.path["topic"], *operations)

    def known_topic(self, name: str, *operations: str) -> str:
        """Return a topic name after the checks of `topic`."""
        for operation in operations or ("describe",):
            self.require(operation, "topic", name)
        known = [topic.name for topic in self.broker.topics()]
        if name not in known:
            raise unknown_topic(name, self.visible(known))
        return name

    def visible(self, topics: Iterable[str]) -> list[str]:
        """Return the topics that the principal may describe."""
        return [each for each in topics if self.allows("describe", "topic", each)]

    def topic_partition(self, *operations: str) -> TopicPartition:
        """Return the partition in the path, after the checks of `topic`."""
        topic = self.topic(*operations)
        number = _parse_integer("partition", self.path["partition"], 0, INT32_MAX)
        return self.broker.partitions(topic, number)[0]

    def note_damage(self, error: CorruptRecordError) -> None:
        """Show the damage that a request found in a partition in the list of partitions."""
        if "partition" in self.path:
            damaged = Damaged(str(error), error.path)
            self.context.partitions.note_damage(self.topic_partition(), damaged)

    def path_offset(self, name: str) -> int:
        """Return an offset in the path."""
        return _parse_integer(name, self.path[name], 0, INT64_MAX)

    # -- query parameters ------------------------------------------------------------------

    def number(self, name: str, default: int, *, least: int = 0, most: int = INT64_MAX) -> int:
        """Return an integer parameter within inclusive bounds."""
        text = self.query.get(name)
        return default if text is None else _parse_integer(name, text, least, most)

    def window(self, most: int) -> tuple[int, int]:
        """Return the index of the first item of a page, and the maximum number of items."""
        return self.number("first", 0), self.number("count", 100, most=most)

    def text(self, name: str, default: str = "") -> str:
        """Return a text parameter."""
        return self.query.get(name, default)

    def choice(self, name: str, choices: Collection[str], default: str) -> str:
        """Return a parameter that must be one of `choices`."""
        return self._chosen(name, self.query.get(name, default), choices)

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Return a boolean parameter: `1`, `true`, `0` or `false`."""
        return _yes_or_no(name, self.query[name]) if name in self.query else default

    def key(self) -> bytes | None:
        """Return the parameter `key` (text) or `key_base64`, or None if neither is set."""
        if "key" in self.query and "key_base64" in self.query:
            raise InvalidRequestError("exactly one of key and key_base64 is required", field="key")
        if "key" in self.query:
            return self.query["key"].encode("utf-8", "surrogateescape")
        text = self.query.get("key_base64")
        if text is None:
            return None
        try:
            return base64.b64decode(text, validate=True)
        except ValueError as error:  # includes non-ASCII characters
            raise InvalidRequestError(
                f"key_base64: {text[:80]!r} is not base64: {error}", field="key_base64"
            ) from error

    # -- body ------------------------------------------------------------------------------

    def member(self, name: str, kind: type | tuple[type, ...], default: Any = ...) -> Any:  # noqa: ANN401  # of that kind
        """Return a field of the request body of type `kind`; required without a default."""
        if name not in self.body:
            if default is ...:
                raise InvalidRequestError(f"the request lacks {name!r}", field=name)
            return default
        value = self.body[name]
        kinds = kind if isinstance(kind, tuple) else (kind,)
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            wanted = " or ".join(each.__name__ for each in kinds)
            raise InvalidRequestError(
                f"{name}: expected {wanted}, not {json.dumps(value)[:80]}", field=name
            )
        return value

    @staticmethod
    def check_number(name: str, value: int, least: int, most: int) -> int:
        """Return `value` if it is within inclusive bounds.

        Raises
        ------
        InvalidRequestError
        """
        if least <= value <= most:
            return value
        bounds = f"at least {least}" if most == INT64_MAX else f"from {least} to {most}"
        raise InvalidRequestError(f"{name}: expected an integer {bounds}, not {value}", field=name)

    @staticmethod
    def _chosen(name: str, value: str, choices: Collection[str]) -> str:
        if value not in choices:
            raise InvalidRequestError(
                f"{name}: unknown {value!r}{and_nearest(value, choices)}; one of"
                f" {', '.join(choices)}",
                field=name,
                suggestion=nearest(value, choices),
            )
        return value

    # -- permissions -----------------------------------------------------------------------

    def allows(self, operation: str, resource_type: str, name: str = CLUSTER_NAME) -> bool:
        """Return whether the principal may perform an operation on a resource."""
        authorizer = self.context.authorizer
        if authorizer is None:
            return True
        return authorizer.authorize(
            self.context.principal, self.host, operation, resource_type, name
        ).allowed

    def require(self, operation: str, resource_type: str, name: str = CLUSTER_NAME) -> None:
        """Raise an error unless the principal may perform an operation on a resource.

        Raises
        ------
        TopicAuthorizationFailedError, GroupAuthorizationFailedError
        ClusterAuthorizationFailedError
        """
        if not self.allows(operation, resource_type, name):
            kind = word_of(ResourceType, resource_type)
            what = (
                "the cluster" if kind is ResourceType.CLUSTER else f"{kind.name.lower()} '{name}'"
            )
            raise _FORBIDDEN.get(kind, ClusterAuthorizationFailedError)(
                f"{self.context.principal} may not {operation.upper()} {what}"
            )

    def may_change_any(self, action: Action) -> bool:
        """Return whether the principal may perform an operation on any resource."""
        if self.context.read_only_because is not None:
            return False
        authorizer = self.context.authorizer
        if authorizer is None:
            return True
        kind, what = (
            word_of(ResourceType, action.resource_type),
            word_of(AclOperation, action.operation),
        )
        return authorizer.authorize_by_resource_type(
            self.context.principal, self.host, what, kind
        ).allowed


_ERROR_MEMBERS = (
    ("field", "field"),
    ("suggestion", "suggestion"),
    ("field", "key"),  # of an invalid config
    ("suggestion", "nearest"),
)
"""Members of an error in the response, and the attributes of the exception that provide them."""

ApiFunction = Callable[[ApiRequest], object]


# -- routes ------------------------------------------------------------------------------------


class ApiRoute(Route):
    """A route to an API function.

    Attributes
    ----------
    action : Action or None
        The operation, or None if the route does not change state.
    """

    action: Action | None = None


def get(path: str, call: ApiFunction, *query: str) -> ApiRoute:
    """Return a GET route with its query parameters."""
    return ApiRoute(path, partial(_respond, call, query, None, None), methods=["GET"])


def post(
    path: str,
    call: ApiFunction,
    *members: str,
    action: Action | None = None,
    method: str = "POST",
    query: Iterable[str] = (),
    allows_dry_run: bool = False,
) -> ApiRoute:
    """Return a POST route with a JSON body and its permitted members.

    Parameters
    ----------
    action : Action, optional
        The operation, if the route changes state. If the page is read-only, the request is
        rejected. The function must check permissions itself.
    allows_dry_run : bool
        Whether a dry run is possible. If so, the function must check itself whether the page is
        read-only.
    """
    known = tuple(query)
    refused = None if allows_dry_run else action
    route = ApiRoute(path, partial(_respond, call, known, members, refused), methods=[method])
    route.action = action
    return route


async def _respond(
    call: ApiFunction,
    query: tuple[str, ...],
    members: tuple[str, ...] | None,
    action: Action | None,
    request: Request,
) -> Response:
    context: Context = request.app.state.context
    try:
        if action is not None:
            context.check_writable()
        given = _parameters(request, query)
        body = {} if members is None else _members(await _body(request), members)
        address = f"{request.method} {request.url.path}"
        api_request = ApiRequest(context, request.path_params, given, body, _host(request), address)
        return await context.run(partial(_call_api, call, api_request))
    except ClientDisconnect:
        return Response(status_code=400)  # the client has disconnected
    except Exception as error:
        return failure(error)


def _call_api(call: ApiFunction, api_request: ApiRequest) -> Response:
    """Call the function and serialize its result. May block."""
    try:
        value = call(api_request)
    except CorruptRecordError as error:
        api_request.note_damage(error)
        raise
    if isinstance(value, ApiResponse):
        return as_json(value.value, value.status)
    return as_json(value)


def as_json(value: object, status: int = 200) -> Response:
    """Return a JSON response."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Response(text.encode("utf-8", "surrogatepass"), status, media_type="application/json")


def failure(error: Exception, status: int | None = None) -> Response:
    """Return an error response. Unexpected errors are logged with a traceback."""
    if isinstance(error, LogStoreError):
        text = str(error)
    else:
        logger.error("a request of the page failed", exc_info=error)
        text = f"unexpected {type(error).__name__}: {error}; this is a bug"
    if status is None:
        status = next((number for kind, number in _STATUSES if isinstance(error, kind)), 500)
    members: dict[str, Any] = {"type": type(error).__name__, "message": text}
    for name, attribute in _ERROR_MEMBERS:
        if isinstance(value := getattr(error, attribute, None), str):
            members[name] = value
    return as_json({"error": members}, status)


# -- reading a request --------------------------------------------------------------------------


def refuse_parameters(request: Request) -> None:
    """Raise an error if the request has parameters."""
    _parameters(request, ())


def _host(request: Request) -> str:
    return request.client.host if request.client is not None else ""


def _parameters(request: Request, known: tuple[str, ...]) -> dict[str, str]:
    given: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        _check_known("parameter", name, known)
        if name in given:
            raise InvalidRequestError(f"parameter {name!r} was given twice", field=name)
        given[name] = value
    return given


def _members(body: Mapping[str, Any], known: tuple[str, ...]) -> Mapping[str, Any]:
    for name in body:
        _check_known("member", name, known)
    return body


def _check_known(what: str, name: str, known: tuple[str, ...]) -> None:
    if name in known:
        return
    if not known:
        raise InvalidRequestError(f"unknown {what} {name!r}; none is accepted", field=name)
    raise InvalidRequestError(
        f"unknown {what} {name!r}{and_nearest(name, known)}",
        field=name,
        suggestion=nearest(name, known),
    )


def _check_length(size_bytes: int) -> None:
    if size_bytes > BODY_BYTES_MAX:
        raise RequestTooLargeError(f"the request is longer than {BODY_BYTES_MAX} bytes")


async def _body(request: Request) -> Mapping[str, Any]:
    """Return the JSON object in the body. An empty body counts as an empty object."""
    found = bytearray()
    _check_length(int(request.headers.get("content-length", "0")))
    async for part in request.stream():
        found += part
        _check_length(len(found))
    if not found:
        return {}
    try:
        body = json.loads(found)
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"the request is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise InvalidRequestError("the request is not a JSON object")
    return body


def _parse_integer(name: str, text: str, least: int, most: int) -> int:
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdigit() and len(digits) < 20 and least <= int(text) <= most:
        return int(text)
    bounds = f"at least {least}" if most == INT64_MAX else f"from {least} to {most}"
    raise InvalidRequestError(f"{name}: expected an integer {bounds}, not {text!r}", field=name)


def _yes_or_no(name: str, text: str) -> bool:
    if text.lower() not in ("1", "true", "0", "false"):
        raise InvalidRequestError(f"{name}: expected 1, true, 0 or false, not {text!r}", field=name)
    return text.lower() in ("1", "true")


def unknown_topic(name: str, known: Collection[str]) -> UnknownTopicOrPartitionError:
    """Return the error for an unknown topic, which suggests the closest name."""
    if not known:
        return UnknownTopicOrPartitionError(f"unknown topic '{name}'; there are no topics")
    return UnknownTopicOrPartitionError(
        f"unknown topic '{name}'{and_nearest(name, known)}", suggestion=nearest(name, known)
    )
