"""Servers for a broker that are implemented in higher layers.

They are found through entry points instead of imports.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, Self, TypedDict

from logstore.errors import InvalidConfigurationError

if TYPE_CHECKING:
    from logstore.inspect.schemas.files import SchemaFiles
    from logstore.security.authorizer import Authorizer

ENTRY_POINTS = "logstore.servers"


class Closable(Protocol):
    """A server that is closed together with its broker."""

    def close(self) -> None:
        """Stop serving."""


class PageSettings(TypedDict, total=False):
    """Keyword settings of `Broker.ui`; see `logstore.ui.server.Ui`."""

    token: str | None
    authorizer: Authorizer | None
    principal: str
    schemas: SchemaFiles | None


class Page(Protocol):
    """The web page of a broker, as returned by `Broker.ui`.

    Attributes
    ----------
    url : str
        The address to open. It includes the token.
    token : str
        The secret part of the address, which authorizes its holder.
    address : tuple of str and int
        Host and port of the server.
    """

    @property
    def url(self) -> str:
        """The address to open. It includes the token."""

    @property
    def token(self) -> str:
        """The secret part of the address."""

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of the server."""

    @property
    def is_closed(self) -> bool:
        """Whether the server was closed."""

    def close(self) -> None:
        """Stop serving."""

    def __enter__(self) -> Self:
        """Return the page."""

    def __exit__(self, *_: object) -> None:
        """Close the page."""


def find_plugin(name: str) -> Callable[..., Any]:
    """Return the function that opens the server registered under an entry point.

    Raises
    ------
    InvalidConfigurationError
        No installed package provides this entry point.
    """
    from importlib.metadata import entry_points

    for point in entry_points(group=ENTRY_POINTS, name=name):
        opener: Callable[..., Any] = point.load()
        return opener
    raise InvalidConfigurationError(
        f"no installed package has the entry point '{name}' of {ENTRY_POINTS}:"
        " reinstall kafka-logstore"
    )
