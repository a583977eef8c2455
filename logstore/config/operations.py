"""Operations on the values of keys, as IncrementalAlterConfigs has them (KIP-339)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum

from logstore.config.keys import ConfigKey, Kind, render
from logstore.errors import InvalidConfigurationError


class Operation(IntEnum):
    """What is done to a key; the numbers are the protocol's.

    DELETE gives it back to its default, APPEND and SUBTRACT change the elements of a list.
    """

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


def applied_operations(
    operations: Iterable[tuple[str, Operation, object]],
    keys: Mapping[str, ConfigKey],
    now: Mapping[str, str],
) -> tuple[dict[str, object], list[str]]:
    """Return the values to set and the keys to unset.

    Parameters
    ----------
    operations : iterable
        Key, operation, value.
    keys : mapping
        Those that there are.
    now : mapping
        The values in force as text, to which lists are added; defaults may be left out.

    Raises
    ------
    InvalidConfigurationError
        A key is no list that could be added to.
    """
    values: dict[str, object] = {}
    unset = []
    for key, operation, value in operations:
        if operation is Operation.SET:
            values[key] = value
        elif operation is Operation.DELETE:
            unset.append(key)
        else:
            if key not in keys or keys[key].kind is not Kind.LIST:
                raise InvalidConfigurationError(
                    f"Can't {operation.name} to key {key} because its type is not LIST."
                )
            in_force = now.get(key, render(keys[key].default))
            before = [each for each in in_force.split(",") if each]
            changed = [each for each in str(value).split(",") if each]
            if operation is Operation.APPEND:
                after = [*before, *(each for each in changed if each not in before)]
            else:
                after = [each for each in before if each not in changed]
            values[key] = ",".join(after)
    return values, unset
