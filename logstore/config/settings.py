"""Base class of configurations whose fields declare their keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, FrozenInstanceError, dataclass, field, fields
from functools import partial
from typing import Any, ClassVar, NoReturn, dataclass_transform

from logstore.config.keys import ConfigKey, Kind

bool_key: Any = partial(ConfigKey, "", Kind.BOOLEAN)
int_key: Any = partial(ConfigKey, "", Kind.INT)
long_key: Any = partial(ConfigKey, "", Kind.LONG)
double_key: Any = partial(ConfigKey, "", Kind.DOUBLE)
string_key: Any = partial(ConfigKey, "", Kind.STRING)
list_key: Any = partial(ConfigKey, "", Kind.LIST)
"""Declare a field of `Settings` and its key; the arguments are a default and a description,
followed by the other attributes of `ConfigKey`. The key is named like the field, with dots."""


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
class Settings:
    """Base class of configurations.

    Works like `dataclass(frozen=True, kw_only=True)` but loads faster.

    `dataclass` generates and compiles methods for sixty fields, which takes several milliseconds at
    each start. Here, all subclasses share methods that loop over the fields.

    Attributes
    ----------
    keys : mapping of str to ConfigKey
        The configuration keys by name. A field declared by `int_key` or a similar function has the
        default of its key. Without an annotation, it is a key without a field.
    """

    keys: ClassVar[Mapping[str, ConfigKey]] = {}

    def __init_subclass__(cls) -> None:
        declared = {name: row for name, row in vars(cls).items() if isinstance(row, ConfigKey)}
        for name, row in declared.items():
            if name in cls.__annotations__:
                setattr(cls, name, row.default)
            else:
                delattr(cls, name)
        rows = [row._replace(key=name.replace("_", ".")) for name, row in declared.items()]
        if rows:
            cls.keys = {row.key: row for row in rows}
        dataclass(init=False, repr=False, eq=False)(cls)

    def __init__(self, **values: object) -> None:
        attributes = self.__dict__  # bypass `__setattr__`, which always raises
        for each in fields(self):  # type: ignore[arg-type]  # subclasses are dataclasses
            name = each.name
            if name in values:
                attributes[name] = values.pop(name)
            elif each.default_factory is MISSING:
                attributes[name] = each.default
            else:
                attributes[name] = each.default_factory()
        if values:
            raise TypeError(f"{type(self).__name__} has no field {', '.join(values)}")
        self.__post_init__()

    def __post_init__(self) -> None:
        """Check the values after they are set."""

    def __repr__(self) -> str:
        shown = [each.name for each in fields(self) if each.repr]  # type: ignore[arg-type]  # as above
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)
        return f"{type(self).__qualname__}({values})"

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(
            getattr(self, each.name) == getattr(other, each.name)
            for each in fields(self)  # type: ignore[arg-type]  # as above
            if each.compare
        )

    def __hash__(self) -> int:
        hashed = [each.name for each in fields(self) if _is_hashed(each)]  # type: ignore[arg-type]  # as above
        return hash(tuple(getattr(self, name) for name in hashed))

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> NoReturn:
        raise FrozenInstanceError(f"cannot delete field {name!r}")


def _is_hashed(each: Any) -> bool:  # noqa: ANN401  # a field of any type
    return bool(each.compare if each.hash is None else each.hash)
