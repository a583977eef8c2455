"""Doors to a broker that live above it: found by name, so that the engine imports none of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, Self

from logstore.errors import InvalidConfigurationError

ENTRY_POINTS = "logstore.doors"


class Closing(Protocol):
    """Somebody at whose door others ask, and who closes with the broker."""

    def close(self) -> None:
        """Answer nobody any more."""


class Page(Protocol):
    """The page of a broker, as `Broker.ui` returns it.

    Attributes
    ----------
    url : str
        The address to open; whoever has it may use the page.
    token : str
        The part of it that others lack.
    address : tuple of str and int
        Host and port that it listens at.
    """

    @property
    def url(self) -> str:
        """The address to open, with the token."""

    @property
    def token(self) -> str:
        """What a reader has to know."""

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""

    @property
    def is_closed(self) -> bool:
        """Whether it was closed."""

    def close(self) -> None:
        """Answer nobody any more."""

    def __enter__(self) -> Self:
        """Return itself."""

    def __exit__(self, *_: object) -> None:
        """Close it."""


def find_door(name: str) -> Callable[..., Any]:
    """Return what opens a door of that name.

    Raises
    ------
    InvalidConfigurationError
        No package that is installed has it.
    """
    from importlib.metadata import entry_points

    for point in entry_points(group=ENTRY_POINTS, name=name):
        opener: Callable[..., Any] = point.load()
        return opener
    raise InvalidConfigurationError(
        f"no package that is installed has the door '{name}': install kafka-logstore anew"
    )
