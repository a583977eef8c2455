"""Sums over many stories: numbers and counters that add up."""

from __future__ import annotations

from collections import Counter
from typing import Self


class Sums:
    """A base of dataclasses whose fields are numbers and counters."""

    def add(self, other: Self) -> None:
        """Add the fields of another one to this one's."""
        for name, value in vars(other).items():
            if isinstance(value, Counter):
                getattr(self, name).update(value)
            else:
                setattr(self, name, getattr(self, name) + value)
