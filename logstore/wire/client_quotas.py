"""The client quotas of a listener: stored and described, but not enforced."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

Entity = tuple[tuple[str, str | None], ...]
"""Types and names of a quota's users, clients or addresses, sorted; None is the default."""


class ClientQuotas:
    """The quotas of a listener, or of all listeners of a cluster."""

    def __init__(self) -> None:
        self._quotas: dict[Entity, dict[str, float]] = {}

    def alter(self, entity: Entity, values: Mapping[str, float | None]) -> None:
        """Set or, with None, remove quotas."""
        own: dict[str, float | None] = {**self._quotas.get(entity, {}), **values}
        left = {key: value for key, value in own.items() if value is not None}
        # Replaced as a whole, because other threads iterate over it.
        quotas = {**self._quotas, entity: left}
        self._quotas = {each: values for each, values in quotas.items() if values}

    def __iter__(self) -> Iterator[tuple[Entity, Mapping[str, float]]]:
        return iter(self._quotas.items())
