"""Classes of settings are dataclasses in all but how their methods are made."""

from __future__ import annotations

import dataclasses

import pytest

from logstore.config.settings import Settings
from logstore.errors import InvalidConfigurationError
from tests.support.world.messages import exactly


class Lamp(Settings):
    height: int = 3
    colours: dict[str, int] = dataclasses.field(default_factory=dict, hash=False)
    notes: tuple[str, ...] = dataclasses.field(default=(), compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.height < 0:
            raise InvalidConfigurationError("below the floor")


def test_omitted_values_have_defaults():
    lamp = Lamp(height=5)
    assert (lamp.height, lamp.colours) == (5, {})
    assert lamp.colours is not Lamp().colours
    assert (lamp, hash(lamp)) == (Lamp(height=5), hash(Lamp(height=5)))
    assert lamp not in (Lamp(), (5, {}))
    assert hash(lamp) != hash(Lamp())
    noted = Lamp(height=5, notes=("green",))
    assert (lamp, hash(lamp)) == (noted, hash(noted))
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
    lamp = Lamp()
    with pytest.raises(
        dataclasses.FrozenInstanceError, match=exactly("cannot assign to field 'height'")
    ):
        lamp.height = 4
    with pytest.raises(
        dataclasses.FrozenInstanceError, match=exactly("cannot delete field 'height'")
    ):
        del lamp.height
    assert lamp.height == 3


def test_differences_from_dataclasses_are_none():
    """Next to the methods that `dataclass` generates."""

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Written:
        height: int = 3
        colours: dict[str, int] = dataclasses.field(default_factory=dict, hash=False)
        notes: tuple[str, ...] = dataclasses.field(default=(), compare=False, repr=False)

    written, lamp = Written(height=4, notes=("a",)), Lamp(height=4, notes=("a",))
    assert repr(lamp) == repr(written).rpartition(".")[2].replace("Written", "Lamp")
    assert hash(lamp) == hash(written)
    assert dataclasses.asdict(lamp) == dataclasses.asdict(written)
    assert [each.name for each in dataclasses.fields(lamp)] == list(dataclasses.asdict(written))
