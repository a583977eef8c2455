"""Headers of requests and frames of responses, byte by byte."""

import struct
from dataclasses import asdict

import pytest

from logstore.errors import MessageError, TooManyElementsError
from logstore.messages import decode
from logstore.messages.types import ApiVersionsResponse, MetadataRequest, MetadataResponse
from logstore.wire.frames import (
    UnsupportedRequestError,
    parse_body,
    parse_request_head,
    response_frame,
)
from logstore.wire.limits import Limits


def head(api_key, version, client_id=b"me", tags=None):
    size = -1 if client_id is None else len(client_id)
    start = struct.pack(">hhih", api_key, version, 77, size) + (client_id or b"")
    if tags is None:
        return start
    return start + bytes([tags]) + b"".join(bytes([tag, 0]) for tag in range(tags))


@pytest.mark.parametrize(
    ("frame", "fields"),
    (
        (head(3, 1), (1, 77, "me", 12)),
        (head(3, 1, None), (1, 77, None, 10)),
        (head(3, 12, tags=0), (12, 77, "me", 13)),
        (head(3, 12, tags=100), (12, 77, "me", 213)),
        (head(3, 999), (999, 77, None, -1)),
        (head(3, -1), (-1, 77, None, -1)),
    ),
)
def test_a_header_is_parsed_up_to_its_body(frame, fields):
    found = parse_request_head(frame + b"body")
    assert found.api.name == "Metadata"
    assert found[1:] == fields


def test_a_header_of_more_than_a_hundred_tagged_fields_is_refused():
    with pytest.raises(TooManyElementsError):
        parse_request_head(head(3, 12, tags=101) + bytes(50))


@pytest.mark.parametrize("size", range(8))
def test_a_frame_without_a_whole_start_is_refused(size):
    with pytest.raises(UnsupportedRequestError) as raised:
        parse_request_head(head(3, 1)[:size])
    assert str(raised.value) == f"a frame of {size} bytes is too short for a request"
    with pytest.raises(MessageError):
        parse_request_head(head(3, 1)[:9])


def test_an_unknown_api_is_refused():
    with pytest.raises(UnsupportedRequestError) as raised:
        parse_request_head(head(999, 0))
    assert str(raised.value) == "unknown API key 999"


def test_a_body_is_decoded_up_to_a_number_of_elements():
    frame = head(3, 1) + struct.pack(">i", 3) + struct.pack(">h1s", 1, b"t") * 3 + b"more"
    found = parse_request_head(frame)
    request, elements = parse_body(found, frame, 3)
    assert isinstance(request, MetadataRequest)
    assert ([each.name for each in request.topics], elements) == (["t"] * 3, 3)
    with pytest.raises(TooManyElementsError):
        parse_body(found, frame, 2)


@pytest.mark.parametrize(
    ("version", "answered", "tags"), ((1, None, b""), (12, None, b"\0"), (12, 1, b""))
)
def test_a_response_is_framed_in_a_version(version, answered, tags):
    response = MetadataResponse(cluster_id="c", controller_id=5)
    found = parse_request_head(head(3, version, tags=0 if version == 12 else None))
    data = b"".join(response_frame(found, response, answered))
    assert struct.unpack_from(">ii", data) == (len(data) - 4, 77)
    assert data[8 : 8 + len(tags)] == tags
    body = data[8 + len(tags) :]
    again = decode(MetadataResponse, version if answered is None else answered, body)
    assert again.controller_id == 5


def test_api_versions_are_answered_without_tags_in_the_header():
    """Clients that do not know the version read the header of version 0 (KIP-511)."""
    found = parse_request_head(head(18, 3, tags=0))
    data = b"".join(response_frame(found, ApiVersionsResponse(error_code=35)))
    assert data[4:10] == struct.pack(">ih", 77, 35)


def test_limits_by_default():
    assert asdict(Limits()) == {
        "frame_bytes": 100 << 20,
        "frame_bytes_before_authentication": 512 << 10,
        "queued_bytes": 256 << 20,
        "frame_ms": 30_000,
        "connections": 2000,
        "connections_per_address": 2**31 - 1,
        "idle_ms": 600_000,
        "in_flight": 64,
        "fetch_bytes": 55 << 20,
        "fetch_sessions": 1000,
        "entries": 100_000,
        "partitions": 10_000,
        "remembered_requests": 1000,
        "remembered_bytes": 8 << 20,
    }
