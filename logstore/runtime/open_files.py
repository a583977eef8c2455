"""A limit on open files that can be reopened.

A log would use three descriptors per segment, and a process has 1,024 by default. Owners of files
that can be reopened register them here. If they use more than a certain share of the descriptors,
the file that was opened first is closed by dropping the owner's reference. A reader that is using
the file has its own reference, and the descriptor is closed with the last reference.
"""

from __future__ import annotations

import resource
import weakref
from collections import OrderedDict
from typing import Protocol

OPEN_FILES_MIN = 64
"""Number of files that remain open even if the limit of the process is low."""

SHARE = 4
"""One in this many descriptors of the process is used. The rest are left to other code."""

TRIES_MAX = 8
"""Number of files passed over for each opened one because they cannot be closed."""

DESCRIPTORS_MAX = 1 << 20
"""Descriptors to request or assume if the system sets no limit."""


class Reopenable(Protocol):
    """An owner of an open file that can be reopened."""

    def release_file(self) -> bool:
        """Close the file until it is next used, or return False if it must remain open."""


class OpenFiles:
    """A process's open files that can be reopened, oldest first.

    Thread-safe. `release_file` must not wait for a lock that is held while files are opened.
    """

    def __init__(self) -> None:
        self._holders: OrderedDict[int, weakref.ref[Reopenable]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._holders)

    def opened(self, holder: Reopenable) -> None:
        """Register an open file, and close the oldest files beyond the limit."""
        # The references are weak, because a process may open and close brokers for days.
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
            if other is not None and not other.release_file():
                self._holders[key] = reference
                tries += 1

    def _forget(self, reference: weakref.ref[Reopenable]) -> None:
        self._holders.pop(id(reference), None)


OPEN_FILES = OpenFiles()
"""The open files of this process, over all file systems and logs."""


def descriptor_limit() -> int:
    """Return the maximum number of open files of the process."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return DESCRIPTORS_MAX if soft == resource.RLIM_INFINITY else min(soft, DESCRIPTORS_MAX)


def raise_descriptor_limit() -> None:
    """Raise the soft limit of open files to the hard limit, at the start of a program.

    Libraries must not call this, because other code in the process may rely on the limit.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS_MAX if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError):  # some systems allow less than they report
            return
