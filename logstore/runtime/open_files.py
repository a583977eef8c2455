"""Limit of open files among those that can be opened again.

A log of many segments would take three descriptors for each of them, and a process has 1,024 by
default. Who opens a file that it could open again says so here; beyond a share of what the process
may have, the one that was opened first is asked to let go of its file. It drops its reference and
no more: a reader in the middle of the file goes on, and the descriptor is closed with the last that
holds it.
"""

from __future__ import annotations

import resource
import weakref
from collections import OrderedDict
from typing import Protocol

OPEN_FILES_MIN = 64
"""So many stay open whatever the process's limit."""

SHARE = 4
"""Of the descriptors that the process may have, one in so many; the rest is other people's."""

TRIES_MAX = 8
"""How many that cannot let go are passed over for one more that is opened."""

DESCRIPTORS_MAX = 1 << 20
"""Most descriptors that are asked for, or reckoned with, where there is no limit."""


class Reopenable(Protocol):
    """Something that has a file open, and could open it again."""

    def let_go(self) -> bool:
        """Close the file until it is needed again; False if it must stay open for now."""
        ...


class OpenFiles:
    """The files that one process has open and could open again, oldest first.

    Thread safety: any thread may call. Whoever is asked to let go must not wait for a lock that is
    held while something is opened.
    """

    def __init__(self) -> None:
        self._holders: OrderedDict[int, weakref.ref[Reopenable]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._holders)

    def opened(self, holder: Reopenable) -> None:
        """Add an open file; the oldest beyond the limit are closed."""
        # One that is gone leaves by itself: a process may open and close brokers for days.
        reference = weakref.ref(holder, self._forget)
        self._holders[id(reference)] = reference
        if len(self._holders) <= OPEN_FILES_MIN:
            return
        limit = max(OPEN_FILES_MIN, descriptor_limit() // SHARE)
        tries = 0
        while len(self._holders) > limit and tries < TRIES_MAX:
            try:
                key, reference = self._holders.popitem(last=False)
            except KeyError:  # another thread was faster
                return
            other = reference()
            if other is not None and not other.let_go():
                self._holders[key] = reference
                tries += 1

    def _forget(self, reference: weakref.ref[Reopenable]) -> None:
        self._holders.pop(id(reference), None)


OPEN_FILES = OpenFiles()
"""Those of this process: its limit is one for all file systems and logs."""


def descriptor_limit() -> int:
    """Return how many files the process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return DESCRIPTORS_MAX if soft == resource.RLIM_INFINITY else min(soft, DESCRIPTORS_MAX)


def raise_descriptor_limit() -> None:
    """Raise the process's soft limit of open files to the hard one; for a program's start.

    Nothing for a library to do: what else is in the process may rely on its limit.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS_MAX if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError):  # some systems allow less than they say
            return
