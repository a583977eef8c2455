"""Requests of the page, as the functions that answer them see them, and the routes that lead there.

A function of `api/` takes an `Ask` and returns what becomes JSON; it may block. A route names the
parameters that it knows: any other is refused by name. What is raised becomes an answer, too.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import Route

from logstore import errors
from logstore.config.suggest import and_nearest, nearest
from logstore.errors import (
    CorruptionError,
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
    from logstore.ui.site import Deed, Site

logger = logging.getLogger(__name__)

BODY_BYTES_MAX = 1024 * 1024
"""Of a request; what says that it is larger is refused before it is read."""

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
"""Of an error; the first class that it belongs to. Any other is 500."""

_FORBIDDEN: Mapping[ResourceType, type[LogStoreError]] = {
    ResourceType.TOPIC: TopicAuthorizationFailedError,
    ResourceType.GROUP: GroupAuthorizationFailedError,
}


class Answer(NamedTuple):
    """An answer that is not simply 200."""

    status: int
    value: object


class Ask:
    """One request.

    Parameters
    ----------
    site : Site
        What is asked.
    path, query, body : mapping
        The parts of the address, its parameters and the members of the body, the names of the
        last two known to the route.
    host : str
        Where it comes from.
    address : str
        Method and path as they were asked.
    """

    def __init__(
        self,
        site: Site,
        path: Mapping[str, str],
        query: Mapping[str, str],
        body: Mapping[str, Any],
        host: str,
        address: str = "",
    ) -> None:
        self.site = site
        self.path = path
        self.query = query
        self.body = body
        self.host = host
        self.address = address

    @classmethod
    def without_parts(cls, site: Site, request: Request) -> Ask:
        """Return a request of which nothing matters but who asks."""
        return cls(site, {}, {}, {}, _host(request))

    @property
    def broker(self) -> Broker:
        """The broker that is asked about."""
        return self.site.broker

    # -- parts of the address --------------------------------------------------------------

    def topic(self, *operations: str) -> str:
        """Return the topic of the address, once it is allowed to do these to it, and it is there.

        Raises
        ------
        TopicAuthorizationFailedError, UnknownTopicOrPartitionError
        """
        return self.known_topic(self.path["topic"], *operations)

    def known_topic(self, name: str, *operations: str) -> str:
        """Return a topic's name; as `topic`."""
        for operation in operations or ("describe",):
            self.require(operation, "topic", name)
        known = [topic.name for topic in self.broker.topics()]
        if name not in known:
            raise unknown_topic(name, self.visible(known))
        return name

    def visible(self, topics: Iterable[str]) -> list[str]:
        """Return those of some topics that the principal may know of."""
        return [each for each in topics if self.allows("describe", "topic", each)]

    def topic_partition(self, *operations: str) -> TopicPartition:
        """Return the partition of the address; as `topic`."""
        topic = self.topic(*operations)
        number = _whole("partition", self.path["partition"], 0, INT32_MAX)
        return self.broker.partitions(topic, number)[0]

    def place(self, name: str) -> int:
        """Return an offset that is part of the address."""
        return _whole(name, self.path[name], 0, INT64_MAX)

    # -- parameters ------------------------------------------------------------------------

    def number(self, name: str, default: int, *, least: int = 0, most: int = INT64_MAX) -> int:
        """Return a parameter that is a whole number, both bounds among those allowed."""
        text = self.query.get(name)
        return default if text is None else _whole(name, text, least, most)

    def window(self, most: int) -> tuple[int, int]:
        """Return with which item of a list an answer begins, and how many it has at most."""
        return self.number("first", 0), self.number("count", 100, most=most)

    def text(self, name: str, default: str = "") -> str:
        """Return a parameter that may be anything."""
        return self.query.get(name, default)

    def choice(self, name: str, choices: Collection[str], default: str) -> str:
        """Return a parameter that is one of a few words."""
        return self._chosen(name, self.query.get(name, default), choices)

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Return a parameter that is yes or no: `1`, `true`, `0`, `false`."""
        return _yes_or_no(name, self.query[name]) if name in self.query else default

    # -- members of the body ---------------------------------------------------------------

    def member(self, name: str, kind: type | tuple[type, ...], default: Any = ...) -> Any:  # noqa: ANN401  # of that kind
        """Return a member of the body of a kind; without a default it has to be there."""
        if name not in self.body:
            if default is ...:
                raise InvalidRequestError(f"the request lacks {name!r}", field=name)
            return default
        value = self.body[name]
        kinds = kind if isinstance(kind, tuple) else (kind,)
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            wanted = " or ".join(each.__name__ for each in kinds)
            raise InvalidRequestError(
                f"{name}: {wanted} is wanted, not {json.dumps(value)[:80]}", field=name
            )
        return value

    @staticmethod
    def check_number(name: str, value: int, least: int, most: int) -> int:
        """Return a member that is a number, if it is within both bounds.

        Raises
        ------
        InvalidRequestError
        """
        if least <= value <= most:
            return value
        bounds = f"from {least} on" if most == INT64_MAX else f"{least} to {most}"
        raise InvalidRequestError(f"{name}: a whole number {bounds}, not {value}", field=name)

    @staticmethod
    def _chosen(name: str, value: str, choices: Collection[str]) -> str:
        if value not in choices:
            raise InvalidRequestError(
                f"{name}: no {value!r}{and_nearest(value, choices)}, of {', '.join(choices)}",
                field=name,
                suggestion=nearest(value, choices),
            )
        return value

    # -- permissions -----------------------------------------------------------------------

    def allows(self, operation: str, resource_type: str, name: str = CLUSTER_NAME) -> bool:
        """Tell whether the principal may do something to something, both in Kafka's words."""
        authorizer = self.site.authorizer
        if authorizer is None:
            return True
        return authorizer.authorize(
            self.site.principal, self.host, operation, resource_type, name
        ).allowed

    def require(self, operation: str, resource_type: str, name: str = CLUSTER_NAME) -> None:
        """Refuse unless it may; as `allows`.

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
                f"{self.site.principal} may not {operation.upper()} {what}"
            )

    def may(self, deed: Deed) -> bool:
        """Tell whether there can be anything to which a deed may be done."""
        if self.site.read_only_because is not None:
            return False
        authorizer = self.site.authorizer
        if authorizer is None:
            return True
        kind, what = (
            word_of(ResourceType, deed.resource_type),
            word_of(AclOperation, deed.operation),
        )
        return authorizer.authorize_by_resource_type(
            self.site.principal, self.host, what, kind
        ).allowed


_TOLD = (
    ("field", "field"),
    ("suggestion", "suggestion"),
    ("field", "key"),  # of a wrong setting
    ("suggestion", "nearest"),
)
"""Members of an error in the answer, and attributes of the error that they come from."""

Call = Callable[[Ask], object]


# -- routes ------------------------------------------------------------------------------------


class ApiRoute(Route):
    """A route to a function of `api`.

    Attributes
    ----------
    deed : Deed or None
        What it changes.
    """

    deed: Deed | None = None


def get(path: str, call: Call, *query: str) -> ApiRoute:
    """Return the route of a question, with the parameters that it knows."""
    return ApiRoute(path, partial(_answer, call, query, None, None), methods=["GET"])


def post(
    path: str,
    call: Call,
    *members: str,
    deed: Deed | None = None,
    method: str = "POST",
    query: Iterable[str] = (),
    rehearsable: bool = False,
) -> ApiRoute:
    """Return the route of a request with a body, and the members that this may have.

    Parameters
    ----------
    deed : Deed, optional
        What it changes: refused where all is only looked at. The function asks for the permission
        of the very thing itself.
    rehearsable : bool
        Whether it may be asked to change nothing, which the function sees to: then it also refuses
        where all is only looked at.
    """
    known = tuple(query)
    refused = None if rehearsable else deed
    route = ApiRoute(path, partial(_answer, call, known, members, refused), methods=[method])
    route.deed = deed
    return route


async def _answer(
    call: Call,
    query: tuple[str, ...],
    members: tuple[str, ...] | None,
    deed: Deed | None,
    request: Request,
) -> Response:
    site: Site = request.app.state.site
    try:
        if deed is not None:
            site.check_writable()
        given = _parameters(request, query)
        body = {} if members is None else _members(await _body(request), members)
        address = f"{request.method} {request.url.path}"
        ask = Ask(site, request.path_params, given, body, _host(request), address)
        return await site.run(partial(_answered, call, ask))
    except ClientDisconnect:
        return Response(status_code=400)  # to nobody
    except Exception as error:
        return failure(error)


def _answered(call: Call, ask: Ask) -> Response:
    """Answer in a thread that may block, the writing of the JSON among what takes its time."""
    value = call(ask)
    if isinstance(value, Answer):
        return as_json(value.value, value.status)
    return as_json(value)


def as_json(value: object, status: int = 200) -> Response:
    """Return an answer in JSON."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Response(text.encode("utf-8", "surrogatepass"), status, media_type="application/json")


def failure(error: Exception, status: int | None = None) -> Response:
    """Return the answer that an error makes; one that is none of ours is logged with its trace."""
    if isinstance(error, LogStoreError):
        text = str(error)
    else:
        logger.error("a request of the page failed", exc_info=error)
        text = f"unexpected {type(error).__name__}: {error}; this is a defect"
    if status is None:
        status = next((number for kind, number in _STATUSES if isinstance(error, kind)), 500)
    told: dict[str, Any] = {"type": type(error).__name__, "message": text}
    for name, attribute in _TOLD:
        if isinstance(said := getattr(error, attribute, None), str):
            told[name] = said
    return as_json({"error": told}, status)


# -- reading what was sent -----------------------------------------------------------------------


def refuse_parameters(request: Request) -> None:
    """Refuse a request that has a parameter, where there are none."""
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
        raise InvalidRequestError(f"unknown {what} {name!r}; there are none here", field=name)
    raise InvalidRequestError(
        f"unknown {what} {name!r}{and_nearest(name, known)}",
        field=name,
        suggestion=nearest(name, known),
    )


def _check_length(size_bytes: int) -> None:
    if size_bytes > BODY_BYTES_MAX:
        raise RequestTooLargeError(f"the request is longer than {BODY_BYTES_MAX} bytes")


async def _body(request: Request) -> Mapping[str, Any]:
    """Return the JSON object of a request; an empty body is an empty object."""
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
        raise InvalidRequestError(f"the request is no JSON: {error}") from error
    if not isinstance(body, dict):
        raise InvalidRequestError("the request is no JSON object")
    return body


def _whole(name: str, text: str, least: int, most: int) -> int:
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdigit() and len(digits) < 20 and least <= int(text) <= most:
        return int(text)
    bounds = f"from {least} on" if most == INT64_MAX else f"{least} to {most}"
    raise InvalidRequestError(f"{name}: a whole number {bounds}, not {text!r}", field=name)


def _yes_or_no(name: str, text: str) -> bool:
    if text.lower() not in ("1", "true", "0", "false"):
        raise InvalidRequestError(f"{name}: 1, true, 0 or false, not {text!r}", field=name)
    return text.lower() in ("1", "true")


def unknown_topic(name: str, known: Collection[str]) -> UnknownTopicOrPartitionError:
    """Return the refusal of a topic that is not there, with the nearest of those that are."""
    if not known:
        return UnknownTopicOrPartitionError(f"unknown topic '{name}'; there are none")
    return UnknownTopicOrPartitionError(
        f"unknown topic '{name}'{and_nearest(name, known)}", suggestion=nearest(name, known)
    )
