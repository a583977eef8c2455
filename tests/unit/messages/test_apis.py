"""The table of APIs: keys, versions, headers."""

import pytest

from logstore.messages import decode_at, encode_bytes, types
from logstore.messages.apis import apis, apis_by_name
from logstore.messages.schema import schema


def test_every_request_has_its_response_of_the_same_versions():
    assert len(apis()) > 90
    for key, api in apis().items():
        request, response = schema(f"{api.name}Request"), schema(f"{api.name}Response")
        assert (request.key, response.key) == (key, key)
        assert request.versions == response.versions == api.versions
        assert request.flexible == response.flexible == api.flexible
        assert (api.request.__name__, api.response.__name__) == (request.name, response.name)


@pytest.mark.parametrize(
    ("name", "key", "first", "last"),
    (
        ("Produce", 0, 0, 13),
        ("Fetch", 1, 0, 18),
        ("ListOffsets", 2, 0, 11),
        ("Metadata", 3, 0, 13),
        ("LeaderAndIsr", 4, 0, 7),
        ("OffsetCommit", 8, 0, 10),
        ("JoinGroup", 11, 0, 9),
        ("ApiVersions", 18, 0, 5),
        ("DeleteRecords", 21, 0, 2),
        ("DescribeLogDirs", 35, 0, 5),
        ("DescribeTopicPartitions", 75, 0, 0),
    ),
)
def test_versions_that_kafka_4_dropped_are_there(name, key, first, last):
    api = apis_by_name()[name]
    assert (api.key, api.versions) == (key, frozenset(range(first, last + 1)))


@pytest.mark.parametrize(
    ("name", "version", "request_header", "response_header"),
    (
        ("Fetch", 11, 1, 0),
        ("Fetch", 12, 2, 1),
        ("ApiVersions", 2, 1, 0),
        ("ApiVersions", 3, 2, 0),
        ("ControlledShutdown", 0, 0, 0),
        ("ControlledShutdown", 1, 1, 0),
        ("SaslHandshake", 1, 1, 0),
    ),
)
def test_headers(name, version, request_header, response_header):
    api = apis_by_name()[name]
    assert api.request_header_version(version) == request_header
    assert api.response_header_version(version) == response_header


def test_the_client_id_is_never_compact():
    """A server reads it before it can know whether the version is one of its own."""
    header = types.RequestHeader(
        request_api_key=1, request_api_version=12, correlation_id=5, client_id="ab"
    )
    data = encode_bytes(header, 2)
    assert data == b"\0\1" + b"\0\x0c" + b"\0\0\0\5" + b"\0\2ab" + b"\0"
    assert decode_at(types.RequestHeader, 2, data + b"body") == (header, len(data))
    without = encode_bytes(types.RequestHeader(client_id=None), 1)
    assert without == bytes(8) + b"\xff\xff"
