"""Classes of settings: frozen dataclasses of many fields, all of which have defaults."""

from __future__ import annotations

from dataclasses import MISSING, FrozenInstanceError, dataclass, field, fields
from typing import Any, NoReturn, dataclass_transform


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
class Settings:
    """What `dataclass(frozen=True, kw_only=True)` makes of a class, for less at each start.

    That writes out methods of sixty fields and compiles them, which takes milliseconds; these go
    through the fields, and serve all such classes.
    """

    def __init_subclass__(cls) -> None:
        dataclass(init=False, repr=False, eq=False)(cls)

    def __init__(self, **values: object) -> None:
        attributes = self.__dict__  # which `__setattr__` does not guard
        for each in fields(self):  # type: ignore[arg-type]  # of subclasses, which are dataclasses
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
        """Check the values."""

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
