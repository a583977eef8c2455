"""Frames: a length, a header, a message (the protocol guide's "Network", KIP-482 headers)."""

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
"""More tagged fields than any version of a request header will ever have."""


class NotServed(RequestError):
    """A frame that is no request, or of what is not served; Kafka closes the connection."""


class Head(NamedTuple):
    """What comes before a request's message.

    Attributes
    ----------
    body_at : int
        Where the message begins in the frame; -1 if the API has no such version, so that nobody
        can say.
    """

    api: Api
    version: int
    correlation_id: int
    client_id: str | None
    body_at: int


def parse_head(frame: Buffer) -> Head:
    """Take the header of a request apart.

    Raises
    ------
    NotServed
    MessageError
        The frame is too short, or the header no header.
    """
    if len(frame) < _START.size:
        raise NotServed(f"a frame of {len(frame)} bytes is no request")
    key, version, correlation_id = _START.unpack_from(frame)
    api = apis().get(key)
    if api is None:
        raise NotServed(f"there is no API {key}")
    if version not in api.versions:
        return Head(api, version, correlation_id, None, -1)
    header, body_at, _ = decode_bounded(
        RequestHeader, api.request_header_version(version), frame, 0, _TAGGED_FIELDS_MAX
    )
    return Head(api, version, correlation_id, header.client_id, body_at)


def parse_body(head: Head, frame: Buffer, elements_max: int) -> tuple[Message, int]:
    """Return the message of a request, and how many elements its arrays have together.

    Raises
    ------
    TooManyElementsError
        There are more than `elements_max`; no more were decoded.
    MessageError
        The frame is no such message. Bytes behind it are let pass, as Kafka lets them.
    """
    assert head.body_at >= 0, "versions that there are not are not served"
    message, _, elements = decode_bounded(
        head.api.request, head.version, frame, head.body_at, elements_max
    )
    return message, elements


def response_frame(head: Head, response: Message, version: int | None = None) -> Sequence[Buffer]:
    """Return the buffers of a response, one after another; records are handed on as they are.

    Parameters
    ----------
    version : int, optional
        Of the response, if it is not the request's.
    """
    version = head.version if version is None else version
    body = encode(response, version)
    tags = b"\0" if head.api.response_header_version(version) else b""
    size = _CORRELATION.size - LENGTH.size + len(tags) + sum(map(size_of, body))
    return [_CORRELATION.pack(size, head.correlation_id) + tags, *body]
