"""Kafka's APIs: keys, names, versions and header versions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from logstore.messages.compiler import Message, classes
from logstore.messages.schema import parse, wire_definitions

API_VERSIONS = 18
CONTROLLED_SHUTDOWN = 7


@dataclass(frozen=True)
class Api:
    """An API with all its versions, of which a server may support fewer.

    Attributes
    ----------
    versions, flexible, unstable : frozenset of int
        All versions, versions with compact lengths and tagged fields, and versions that may change.
    """

    key: int
    name: str
    versions: frozenset[int]
    flexible: frozenset[int]
    unstable: frozenset[int]

    @property
    def request(self) -> type[Message]:
        """The request class."""
        return classes(f"{self.name}Request")[f"{self.name}Request"]

    @property
    def response(self) -> type[Message]:
        """The response class."""
        return classes(f"{self.name}Response")[f"{self.name}Response"]

    def request_header_version(self, version: int) -> int:
        """Return the RequestHeader version for a request version."""
        if self.key == CONTROLLED_SHUTDOWN and version == 0:
            return 0
        return 2 if version in self.flexible else 1

    def response_header_version(self, version: int) -> int:
        """Return the ResponseHeader version for a response version.

        The header of an ApiVersions response is never flexible, because the client does not know
        the broker's versions yet.
        """
        return int(version in self.flexible and self.key != API_VERSIONS)


@cache
def apis() -> dict[int, Api]:
    """Return all APIs by key."""
    # Parse only the first lines. Fields are parsed when a message is used.
    heads = (
        parse(text.partition("\n")[0])
        for name, text in wire_definitions().items()
        if name.endswith("Request")
    )
    all_apis = (
        Api(
            head.key, head.name.removesuffix("Request"), head.versions, head.flexible, head.unstable
        )
        for head in heads
        if head.key is not None
    )
    return {api.key: api for api in sorted(all_apis, key=lambda api: api.key)}


@cache
def apis_by_name() -> dict[str, Api]:
    """Return all APIs by name, such as `Fetch`."""
    return {api.name: api for api in apis().values()}
