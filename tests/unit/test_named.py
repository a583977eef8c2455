"""Named tuples of the engine: what Python's own are, without what those cost."""

from __future__ import annotations

import copy
import pickle
import re
import typing
from pathlib import Path
from typing import Generic, TypeVar, get_type_hints

import pytest

from logstore import named

ROOT = Path(__file__).resolve().parents[2]
Item = TypeVar("Item")


class Place(named.NamedTuple):
    """Where something lies."""

    path: str
    position: int = 7
    note: str | None = None

    @property
    def end(self) -> int:
        return self.position + 1

    @classmethod
    def first(cls) -> Place:
        return cls("first", 0)

    def __str__(self) -> str:
        return f"at {super().__len__()}"


class Inner:
    class Held(named.NamedTuple):
        value: int


class Pair(named.NamedTuple, Generic[Item]):
    left: Item
    right: Item


class Nothing(named.NamedTuple):
    pass


def test_fields_defaults_and_methods():
    place = Place("a", note="n")
    assert (place, place.path, place.position, place.note) == (("a", 7, "n"), "a", 7, "n")
    assert (place.end, Place.first(), str(place)) == (8, ("first", 0, None), "at 3")
    assert repr(place) == "Place(path='a', position=7, note='n')"
    assert place._replace(position=1) == Place._make(["a", 1, "n"]) == ("a", 1, "n")
    assert place._asdict() == {"path": "a", "position": 7, "note": "n"}
    with pytest.raises(TypeError, match="path"):
        Place()
    with pytest.raises(AttributeError):
        place.position = 1
    assert not hasattr(place, "__dict__")
    match place:
        case Place(path, _, note=note):
            assert (path, note) == ("a", "n")


@pytest.mark.parametrize("value", (Place("a", 1, "n"), Inner.Held(1), Pair(1, 2), Nothing()))
def test_copies_and_pickles_come_back_as_what_they_were(value):
    for back in (pickle.loads(pickle.dumps(value)), copy.copy(value), copy.deepcopy(value)):
        assert (back, type(back)) == (value, type(value))


def test_a_class_tells_what_one_of_pythons_tells():
    class Theirs(typing.NamedTuple):
        path: str
        position: int = 7
        note: str | None = None

    assert (Place.__bases__, type(Place)) == (Theirs.__bases__, type(Theirs))
    assert set(vars(Theirs)) <= {*vars(Place), "__orig_bases__"}
    assert (Place._fields, Place.__match_args__) == (Theirs._fields, Theirs.__match_args__)
    assert Place._field_defaults == {"position": 7, "note": None}
    assert (Place.__doc__, Place.path.__doc__) == ("Where something lies.", Theirs.path.__doc__)
    assert Nothing.__doc__ == "Nothing()"
    assert (Place.__module__, Inner.Held.__qualname__) == (__name__, "Inner.Held")
    assert get_type_hints(Place) == get_type_hints(Theirs)
    assert Pair[int].__origin__ is Pair
    assert Pair(1, 2) == (1, 2)


def test_no_annotation_is_compiled():
    assert Place.__annotations__ == {"path": "str", "position": "int", "note": "str | None"}


def test_every_named_tuple_of_the_engine_is_one_of_these():
    pythons = re.compile(
        r"^from typing import (\([^)]*|[^(\n]*)\bNamedTuple\b(?! as )|typing\.NamedTuple\(",
        re.MULTILINE,
    )
    sources = [
        path for room in ("logstore", "cleaner", "bench") for path in ROOT.glob(f"{room}/**/*.py")
    ]
    assert len(sources) > 400
    odd = [path for path in sources if pythons.search(path.read_text(encoding="utf-8"))]
    assert odd == []
