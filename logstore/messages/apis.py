"""Kafka's APIs: key, name, versions, and the headers before their requests and responses."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from logstore.messages.compiler import Message, classes
from logstore.messages.schema import parse, wire_definitions

API_VERSIONS = 18
CONTROLLED_SHUTDOWN = 7


@dataclass(frozen=True)
class Api:
    """One of Kafka's APIs, with all versions that the tables know; a server may serve fewer.

    Attributes
    ----------
    versions, flexible, unstable : frozenset of int
        Those that there are; those with compact lengths and tagged fields; those that Kafka has
        not settled yet.
    """

    key: int
    name: str
    versions: frozenset[int]
    flexible: frozenset[int]
    unstable: frozenset[int]

    @property
    def request(self) -> type[Message]:
        """The class of its requests."""
        return classes(f"{self.name}Request")[f"{self.name}Request"]

    @property
    def response(self) -> type[Message]:
        """The class of its responses."""
        return classes(f"{self.name}Response")[f"{self.name}Response"]

    def request_header_version(self, version: int) -> int:
        """Return the version of RequestHeader before a request of a version."""
        if self.key == CONTROLLED_SHUTDOWN and version == 0:
            return 0
        return 2 if version in self.flexible else 1

    def response_header_version(self, version: int) -> int:
        """Return the version of ResponseHeader before a response of a version.

        That of ApiVersions is never flexible: who asks does not know yet what the other speaks.
        """
        return int(version in self.flexible and self.key != API_VERSIONS)


@cache
def apis() -> dict[int, Api]:
    """Return all APIs by key."""
    # The first line is enough here; fields are parsed together with their message.
    heads = (
        parse(text.partition("\n")[0])
        for name, text in wire_definitions().items()
        if name.endswith("Request")
    )
    found = (
        Api(
            head.key, head.name.removesuffix("Request"), head.versions, head.flexible, head.unstable
        )
        for head in heads
        if head.key is not None
    )
    return {api.key: api for api in sorted(found, key=lambda api: api.key)}


@cache
def apis_by_name() -> dict[str, Api]:
    """Return all APIs by names as `Fetch`."""
    return {api.name: api for api in apis().values()}
