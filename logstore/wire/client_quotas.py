"""The client quotas of a listener, which are stored and described but not enforced."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping

Entity = tuple[tuple[str, str | None], ...]
"""The sorted entity types and names of a quota. The name None means the default entity."""


class ClientQuotas:
    """The quotas of one listener, or of a cluster's listeners."""

    def __init__(self) -> None:
        self._quotas: dict[Entity, dict[str, float]] = {}
        self._lock = threading.Lock()

    def alter(self, changes: Iterable[tuple[Entity, Mapping[str, float | None]]]) -> None:
        """Set the quotas of several entities. A value of None removes a quota."""
        with self._lock:
            quotas = dict(self._quotas)
            for entity, values in changes:
                own: dict[str, float | None] = {**quotas.get(entity, {}), **values}
                quotas[entity] = {key: each for key, each in own.items() if each is not None}
                if not quotas[entity]:
                    del quotas[entity]
            # replace the mapping, because other threads iterate over it
            self._quotas = quotas

    def __iter__(self) -> Iterator[tuple[Entity, Mapping[str, float]]]:
        return iter(self._quotas.items())
