"""The layers of packages: no cycle of imports, and docs/ARCHITECTURE.md has the current table."""

from tests.support.docs import layers

ROOT_MODULES = {"__init__", "__main__", "errors", "types", "lazy", "names"}


def test_the_page_has_the_current_packages():
    old = layers.TARGET.read_text(encoding="utf-8")
    assert layers.page(old) == old, "run: make docs"


def test_no_cycle_of_packages_or_modules():
    known = layers.modules()
    assert layers.cycles(layers.package_imports(known)) == []
    assert layers.cycles(layers.module_imports(known)) == []


def test_the_root_has_six_modules_and_every_module_says_what_it_is():
    root = layers.ROOT / "logstore"
    assert {path.stem for path in root.glob("*.py")} == ROOT_MODULES
    assert [name for name, path in layers.modules().items() if not layers.about(path)] == []


def test_cycles_and_layers_of_a_small_graph(tmp_path):
    graph = {"a": {"b", "c"}, "b": {"c"}, "c": set()}
    assert layers.cycles(graph) == []
    assert layers.layers(graph) == {"a": 2, "b": 1, "c": 0}
    assert layers.cycles(graph | {"c": {"a"}, "d": {"a"}}) == [("a", "b", "c")]
    path = tmp_path / "x.py"
    path.write_text(
        "import a\nif TYPE_CHECKING:\n    from p import b\ndef f():\n    from c import name\n"
    )
    known = dict.fromkeys(["a", "p.b", "c"], path)
    assert list(layers.imports_of(path, known)) == ["a", "p.b", "c"]
