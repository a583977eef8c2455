"""The plan of the house: arrows point down, and the picture of it is that of today."""

from tests.support.docs import floors

ROOT_FILES = {"__init__", "__main__", "errors", "types", "named", "names"}


def test_the_picture_is_that_of_the_imports():
    old = floors.TARGET.read_text(encoding="utf-8")
    assert floors.page(old) == old, "run: make docs"


def test_no_circle_of_rooms_or_modules():
    known = floors.modules()
    assert floors.circles(floors.rooms(known)) == []
    assert floors.circles(floors.arrows(known)) == []


def test_the_root_has_six_files_and_no_room_is_empty():
    root = floors.ROOT / "logstore"
    assert {path.stem for path in root.glob("*.py")} == ROOT_FILES
    assert [name for name, path in floors.modules().items() if not floors.about(path)] == []


def test_circles_and_floors_of_a_small_house(tmp_path):
    house = {"a": {"b", "c"}, "b": {"c"}, "c": set()}
    assert floors.circles(house) == []
    assert floors.floors(house) == {"a": 2, "b": 1, "c": 0}
    assert floors.circles(house | {"c": {"a"}, "d": {"a"}}) == [("a", "b", "c")]
    path = tmp_path / "x.py"
    path.write_text(
        "import a\nif TYPE_CHECKING:\n    from p import b\ndef f():\n    from c import name\n"
    )
    known = dict.fromkeys(["a", "p.b", "c"], path)
    assert list(floors.imports_of(path, known)) == ["a", "p.b", "c"]
