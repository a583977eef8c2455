"""Frames: a length, a header and a message (protocol guide, section "Network"; KIP-482)."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from logstore.errors import RequestError
from logstore.messages import Buffer, Message, decode_bounded, encode, size_of
from logstore.messages.apis import Api, apis
from logstore.messages.types import RequestHeader

LENGTH = struct.Struct(">i")
_START = struct.Struct(">hhi")
_CORRELATION = struct.Struct(">ii")
_TAGGED_FIELDS_MAX = 100
"""Maximum number of tagged fields in a request header. Real headers have far fewer."""


class UnsupportedRequestError(RequestError):
    """The frame is not a request of a supported API and version.

    As in Kafka, the connection is closed.
    """


class RequestHead(NamedTuple):
    """The header of a request.

    Attributes
    ----------
    body_at : int
        Position of the request body in the frame, or -1 if the version is unknown.
    """

    api: Api
    version: int
    correlation_id: int
    client_id: str | None
    body_at: int


def parse_request_head(frame: Buffer) -> RequestHead:
    """Decode the header of a request.

    Raises
    ------
    NotServed
        The frame is too short, or the API key is unknown.
    MessageError
        The header is malformed.
    """
    if len(frame) < _START.size:
        raise UnsupportedRequestError(f"a frame of {len(frame)} bytes is too short for a request")
    key, version, correlation_id = _START.unpack_from(frame)
    api = apis().get(key)
    if api is None:
        raise UnsupportedRequestError(f"unknown API key {key}")
    if version not in api.versions:
        return RequestHead(api, version, correlation_id, None, -1)
    header, body_at, _ = decode_bounded(
        RequestHeader, api.request_header_version(version), frame, 0, _TAGGED_FIELDS_MAX
    )
    return RequestHead(api, version, correlation_id, header.client_id, body_at)


def parse_body(head: RequestHead, frame: Buffer, elements_max: int) -> tuple[Message, int]:
    """Decode the body of a request. Return it and its total number of array elements.

    Raises
    ------
    TooManyElementsError
        The body has more than `elements_max` elements. The rest was not decoded.
    MessageError
        The body is malformed. As in Kafka, bytes after the end of the body are ignored.
    """
    assert head.body_at >= 0, "unsupported versions have been refused before"
    message, _, elements = decode_bounded(
        head.api.request, head.version, frame, head.body_at, elements_max
    )
    return message, elements


def response_frame(
    head: RequestHead, response: Message, version: int | None = None
) -> Sequence[Buffer]:
    """Encode a response as a sequence of buffers, without copying its records.

    Parameters
    ----------
    version : int, optional
        Version of the response. [default: the version of the request]
    """
    version = head.version if version is None else version
    body = encode(response, version)
    tags = b"\0" if head.api.response_header_version(version) else b""
    size = _CORRELATION.size - LENGTH.size + len(tags) + sum(map(size_of, body))
    return [_CORRELATION.pack(size, head.correlation_id) + tags, *body]
