"""The layers of packages: no cycle of imports, and docs/ARCHITECTURE.md has the current table."""

from graphlib import CycleError

import pytest

from tools import layers

ROOT_MODULES = {"__init__", "__main__", "errors", "types", "lazy", "names"}


def test_the_page_has_the_current_packages():
    old = layers.TARGET.read_text(encoding="utf-8")
    assert layers.page(old) == old, "run: make docs"


def test_neither_packages_nor_modules_import_in_a_cycle():
    known = layers.modules()
    layers.layers(layers.package_imports(known))
    layers.layers(layers.module_imports(known))


def test_the_root_has_six_modules_and_every_module_says_what_it_is():
    root = layers.ROOT / "logstore"
    assert {path.stem for path in root.glob("*.py")} == ROOT_MODULES
    assert [name for name, path in layers.modules().items() if not layers.about(path)] == []


def test_layers_of_a_small_graph(tmp_path):
    graph = {"a": {"b", "c"}, "b": {"c"}, "c": set()}
    assert layers.layers(graph) == {"a": 2, "b": 1, "c": 0}
    with pytest.raises(CycleError) as cycle:
        layers.layers(graph | {"c": {"a"}, "d": {"a"}})
    assert set(cycle.value.args[1]) <= {"a", "b", "c"}
    path = tmp_path / "x.py"
    path.write_text(
        "import a\nif TYPE_CHECKING:\n    from p import b\ndef f():\n    from c import name\n"
    )
    known = dict.fromkeys(["a", "p.b", "c"], path)
    assert list(layers.imports_of(path, known)) == ["a", "p.b", "c"]
