"""House rules that no linter checks: allowed places of code, and code that needs a test."""

from __future__ import annotations

import ast
import importlib
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(text_of(path), str(path))


def sources(*tops: str, outside: tuple[str, ...] = ()) -> list[Path]:
    """All Python files under `tops`, except files at or under `outside`."""
    excluded = [ROOT / name for name in outside]
    return [
        path
        for top in tops
        for path in sorted((ROOT / top).rglob("*.py"))
        if not any(path.is_relative_to(place) for place in excluded)
    ]


def place(path: Path, node: ast.AST | None = None) -> str:
    line = f":{getattr(node, 'lineno', 1)}" if node is not None else ""
    return f"{path.relative_to(ROOT)}{line}"


EDGES = ("logstore/cli", "logstore/spark")
"""Directories of programs, which may print and open files."""


def calls_of_builtin(name: str, path: Path) -> Iterator[ast.Call]:
    if f"{name}(" not in text_of(path):  # parsing takes most of the time
        return
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name:
            yield node


def imports_of(package: str, path: Path) -> Iterator[ast.stmt]:
    if package not in text_of(path):
        return
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module or ""]
        else:
            continue
        if any(name.partition(".")[0] == package for name in names):
            yield node


def report(rule: str, offences: list[str]) -> None:
    if offences:
        pytest.fail("\n  ".join([f"{rule}:", *offences]), pytrace=False)


# --- allowed places of code ------------------------------------------------------------------


def test_files_are_opened_only_by_the_runtime() -> None:
    report(
        "builtin open() outside logstore/runtime; use its file system",
        [
            place(path, call)
            for path in sources("logstore", "cleaner", outside=(*EDGES, "logstore/runtime"))
            for call in calls_of_builtin("open", path)
        ],
    )


def test_only_the_command_line_prints() -> None:
    report(
        "print() outside logstore/cli; log it or return it",
        [
            place(path, call)
            for path in sources("logstore", "cleaner", outside=EDGES)
            for call in calls_of_builtin("print", path)
        ],
    )


def test_only_jit_imports_numba() -> None:
    report(
        "numba outside logstore/jit; use its decorators",
        [
            place(path, node)
            for path in sources("logstore", "cleaner", outside=("logstore/jit",))
            for node in imports_of("numba", path)
        ],
    )


# --- no traces of the build machine ----------------------------------------------------------


def test_lock_files_pin_and_hash_everything_and_name_no_host() -> None:
    files = sorted((ROOT / "requirements").glob("*.txt"))
    assert {path.stem for path in files} == {"core", "dev", "all", "lowest", "release", "site"}
    host = re.compile(r"://|^\s*(-i|-f|--\S*(index|find-links|trusted-host)\S*)\b| @ |^-[er]\b")
    offences = []
    for path in files:
        text = path.read_text(encoding="utf-8")
        offences += [f"{place(path)}: {line}" for line in text.splitlines() if host.search(line)]
        requirements = re.split(r"\n(?=\S)", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE))
        offences += [
            f"{place(path)}: {requirement.splitlines()[0]} is not pinned and hashed"
            for requirement in requirements
            if not re.match(r"[\w.-]+(\[.*\])?==\S+[^\n]*\\\n\s+--hash=sha256:", requirement)
        ]
    report("lock files name hosts or unhashed requirements; run make lock", offences)


def test_narrow_lock_files_agree_with_the_widest() -> None:
    def lines(name: str) -> set[str]:
        return set((ROOT / "requirements" / name).read_text(encoding="utf-8").splitlines())

    for narrow, wide in (("core.txt", "dev.txt"), ("dev.txt", "all.txt")):
        extra = sorted(lines(narrow) - lines(wide))
        report(f"{narrow} holds what {wide} does not; run make lock", extra)


def test_tools_do_not_change_the_versions_of_the_development_tools() -> None:
    def versions(name: str) -> dict[str, str]:
        text = (ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8")
        return dict(re.findall(r"^([\w.-]+)(?:\[.*\])?==(\S+)", text, re.MULTILINE))

    installed = versions("all")
    for name in ("release", "site"):
        different = [
            each
            for each, version in versions(name).items()
            if installed.get(each, version) != version
        ]
        report(f"{name}.txt has other versions than all.txt; run make lock", different)


def test_lowest_versions_are_those_that_are_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    text = (ROOT / "requirements/lowest.txt").read_text(encoding="utf-8")
    lowest = dict(re.findall(r"^([\w.-]+)==(\S+)", text, re.MULTILINE))
    extras = project["optional-dependencies"]
    tested = [extras[name] for name in sorted(extras.keys() - {"bench", "dev", "spark"})]
    for requirement in chain(project["dependencies"], *tested):
        name, declared = re.findall(r"^([\w.-]+)>=([\d.]+)", requirement)[0]
        assert f"{lowest[name]}.".startswith(f"{declared}."), requirement


def test_no_text_names_a_path_of_the_machine_it_was_written_on() -> None:
    texts = [
        *ROOT.glob("*.md"),
        *(
            path
            for name in ("Makefile", "NOTICE", "pyproject.toml")
            if (path := ROOT / name).exists()
        ),
        *(path for path in (ROOT / ".ci").glob("*") if path.is_file()),
        *(path for path in (ROOT / "requirements").glob("*") if path.is_file()),
        *(ROOT / "docs").rglob("*.md"),
        *sources("logstore", "cleaner", "bench", "tests", "tools"),
    ]
    machine = re.compile(r"(?<![\w.)}])/(?:work|root|Users|opt/wheels)/\S*|/home/(?!kafka)\w+")
    report(
        "machine paths",
        [
            f"{place(path)}:{number}: {result.group()}"
            for path in sorted(texts)
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
            if (result := machine.search(line))
        ],
    )


# --- code that needs a test ------------------------------------------------------------------


def is_kernel(function: ast.FunctionDef) -> bool:
    for decorator in function.decorator_list:
        target = decorator.func if isinstance(decorator, ast.Call) else decorator
        name = target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", "")
        if name in {"kernel", "inline_kernel", "kernel_like"}:
            return True
    return False


def kernels() -> Iterator[tuple[Path, ast.FunctionDef]]:
    for path in sources("logstore", "cleaner"):
        for node in parsed(path).body if "kernel" in text_of(path) else ():
            if isinstance(node, ast.FunctionDef) and is_kernel(node):
                yield path, node


def test_every_kernel_has_a_docstring() -> None:
    report(
        "kernels without a docstring (arrays with shape and dtype, units, preconditions, cost)",
        [place(path, node) for path, node in kernels() if not ast.get_docstring(node)],
    )


def test_every_kernel_is_named_in_a_test() -> None:
    """A private kernel (leading underscore) may instead be called by a tested one."""
    text = "\n".join(
        path.read_text(encoding="utf-8") for path in sources("tests", outside=("tests/meta",))
    )
    named = set(re.findall(r"\w+", text))
    result = list(kernels())
    covered = {node.name for _, node in result if node.name in named}
    reached = True
    while reached:
        called = {
            name.id
            for _, node in result
            if node.name in covered
            for name in ast.walk(node)
            if isinstance(name, ast.Name)
        }
        private = {node.name for _, node in result if node.name.startswith("_")}
        reached = bool(new := (private & called) - covered)
        covered |= new
    report(
        "kernels that no test names",
        [f"{place(path, node)} {node.name}" for path, node in result if node.name not in covered],
    )


def test_no_module_imports_the_cleaner_or_bench_by_directory_name() -> None:
    """A second copy of the module would have its own exception classes, which no caller catches."""
    statement = re.compile(r"^[ \t]*(?:import|from) (?:bench|cleaner)\b", re.MULTILINE)
    offences = [
        place(path)
        for path in sources("logstore", "cleaner", "bench", "pyspark_logstore", "tests", "tools")
        if statement.search(text_of(path))
    ]
    report("imports go by logstore.cleaner and logstore.bench", offences)
    for name in ("bench", "cleaner"):
        with pytest.raises(ImportError, match=f"import logstore.{name}"):
            importlib.import_module(name)
