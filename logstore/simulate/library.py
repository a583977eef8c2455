"""The built-in scenarios."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources

from logstore.config.suggest import and_nearest
from logstore.errors import InvalidConfigurationError

_SUFFIX = ".toml"


def names() -> list[str]:
    """Return the names of the built-in scenarios in alphabetical order."""
    folder = resources.files(__package__) / "scenarios"
    return sorted(
        entry.name.removesuffix(_SUFFIX)
        for entry in folder.iterdir()
        if entry.name.endswith(_SUFFIX)
    )


def text_of(name: str) -> str:
    """Return the TOML of a built-in scenario.

    Raises
    ------
    InvalidConfigurationError
        The name is unknown. The message suggests the closest name.
    """
    if name not in names():
        near = and_nearest(name, names())
        raise InvalidConfigurationError(f"{name!r} is neither a file nor a built-in scenario{near}")
    file = resources.files(__package__) / "scenarios" / f"{name}{_SUFFIX}"
    return file.read_text(encoding="utf-8")


def titles() -> Mapping[str, str]:
    """Return the title of each scenario, by name."""
    from logstore.simulate.scenario import parse

    return {name: parse(text_of(name)).title for name in names()}
