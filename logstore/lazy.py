"""Packages whose public names are imported on first use (PEP 562)."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any


def import_on_use(
    package: str, homes: Mapping[str, Iterable[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for a package that imports its public names on first use.

    Parameters
    ----------
    package : str
        The package's `__name__`. Its `__all__` must be set.
    homes : mapping
        For each module, the public names that are imported from it.
    """
    public: list[str] = sys.modules[package].__all__
    home_of = {name: home for home, names in homes.items() for name in names}

    def load(name: str) -> Any:  # noqa: ANN401  # any public name
        home = home_of.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(home), name)
        setattr(sys.modules[package], name, value)
        return value

    return load, lambda: sorted(public)
