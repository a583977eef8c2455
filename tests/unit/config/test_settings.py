"""Classes of settings are dataclasses in all but how their `__init__` is made."""

from __future__ import annotations

import dataclasses

import pytest

from logstore.config.settings import settings
from logstore.errors import InvalidConfigurationError


@settings
class Lamp:
    height: int = 3
    colours: dict[str, int] = dataclasses.field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if self.height < 0:
            raise InvalidConfigurationError("below the floor")


def test_what_is_not_given_has_its_default():
    lamp = Lamp(height=5)
    assert (lamp.height, lamp.colours) == (5, {})
    assert lamp.colours is not Lamp().colours
    assert (lamp, hash(lamp)) == (Lamp(height=5), hash(Lamp(height=5)))
    assert lamp != Lamp()
    assert repr(lamp).endswith("Lamp(height=5, colours={})")


def test_a_replaced_field_is_checked_as_a_given_one():
    assert dataclasses.replace(Lamp(colours={"red": 1}), height=1) == Lamp(
        height=1, colours={"red": 1}
    )
    with pytest.raises(InvalidConfigurationError, match="below the floor"):
        dataclasses.replace(Lamp(), height=-1)


def test_nothing_else_can_be_given_and_nothing_changed():
    with pytest.raises(TypeError, match="Lamp has no field width, depth"):
        Lamp(width=1, depth=2)
    with pytest.raises(TypeError):
        Lamp(5)
    with pytest.raises(dataclasses.FrozenInstanceError):
        Lamp().height = 4
