"""House rules that no linter knows: where things may stand, and what must have a test."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Groups of the numbered behaviour scenarios whose subject is built. An issue that builds more of
# them adds its ranges here (both ends included).
SCENARIO_GROUPS = {
    "A batch and record coding": (1, 14),
    "B compression framing": (15, 21),
    "C offset map": (22, 27),
    "D indexes": (28, 38),
    "E segment": (39, 53),
    "F append and validation": (54, 67),
    "G rolling": (68, 75),
    "H reads and offset lookups": (76, 83),
    "I retention and log start": (84, 97),
    "J truncation, flush, leader epochs": (98, 108),
    "K producers and transactions": (109, 122),
    "L small files and names": (123, 128),
    "M loading and recovery": (129, 148),
    "N map building and basic cleaning": (149, 165),
    "O tombstones and delete horizon": (166, 176),
    "P cleaning of transactions": (177, 188),
    "Q grouping, swap and its crashes": (189, 202),
    "R selection": (203, 214),
    "S states and checkpoints": (215, 225),
    "T background behaviour": (226, 235),
    "U dump command": (236, 243),
    "V compaction strategies": (244, 260),
}


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def sources(*tops: str, outside: tuple[str, ...] = ()) -> list[Path]:
    """All Python files under `tops`, except those under or equal to `outside`."""
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
"""Folders that are programs: they print, and open files of their own."""


def calls_of_builtin(name: str, path: Path) -> Iterator[ast.Call]:
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name:
            yield node


def imports_of(package: str, path: Path) -> Iterator[ast.stmt]:
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


# --- where things may stand ------------------------------------------------------------------


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


def test_only_the_spark_folder_imports_pyspark() -> None:
    report(
        "pyspark outside logstore/spark",
        [
            place(path, node)
            for path in sources("logstore", "cleaner", "bench", outside=("logstore/spark",))
            for node in imports_of("pyspark", path)
        ],
    )


# --- nothing of the machine it was made on ---------------------------------------------------


def test_lock_files_pin_and_hash_everything_and_name_no_host() -> None:
    files = sorted((ROOT / "requirements").glob("*.txt"))
    assert {path.stem for path in files} == {"core", "dev", "all"}
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
            f"{place(path)}:{number}: {found.group()}"
            for path in sorted(texts)
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
            if (found := machine.search(line))
        ],
    )


# --- what must have a test -------------------------------------------------------------------


def is_kernel(function: ast.FunctionDef) -> bool:
    for decorator in function.decorator_list:
        target = decorator.func if isinstance(decorator, ast.Call) else decorator
        name = target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", "")
        if name in {"kernel", "inline_kernel"}:
            return True
    return False


def kernels() -> Iterator[tuple[Path, ast.FunctionDef]]:
    for path in sources("logstore", "cleaner"):
        for node in parsed(path).body:
            if isinstance(node, ast.FunctionDef) and is_kernel(node):
                yield path, node


def test_every_kernel_has_a_docstring() -> None:
    report(
        "kernels without a docstring (arrays with shape and dtype, units, preconditions, cost)",
        [place(path, node) for path, node in kernels() if not ast.get_docstring(node)],
    )


def test_every_kernel_is_named_in_a_test() -> None:
    """A private kernel (leading underscore) may instead be called by one that is named."""
    text = "\n".join(
        path.read_text(encoding="utf-8") for path in sources("tests", outside=("tests/meta",))
    )
    named = set(re.findall(r"\w+", text))
    found = list(kernels())
    covered = {node.name for _, node in found if node.name in named}
    reached = True
    while reached:
        called = {
            name.id
            for _, node in found
            if node.name in covered
            for name in ast.walk(node)
            if isinstance(name, ast.Name)
        }
        private = {node.name for _, node in found if node.name.startswith("_")}
        reached = bool(new := (private & called) - covered)
        covered |= new
    report(
        "kernels that no test names",
        [f"{place(path, node)} {node.name}" for path, node in found if node.name not in covered],
    )


@cache
def scenarios_with_a_test() -> frozenset[int]:
    """Numbers in the names of test functions, and every `S-nnn` within one or its decorators."""
    numbers: set[int] = set()
    for path in sources("tests", outside=("tests/meta", "tests/support")):
        lines = path.read_text(encoding="utf-8").splitlines()
        for node in ast.walk(parsed(path)):
            if not isinstance(node, ast.FunctionDef) or not node.name.startswith("test_"):
                continue
            first = min([node.lineno, *(item.lineno for item in node.decorator_list)])
            body = "\n".join(lines[first - 1 : node.end_lineno])
            numbers |= {int(part) for part in re.findall(r"(?<=_)s(\d{3})(?=_|$)", node.name)}
            numbers |= {int(part) for part in re.findall(r"\bS-(\d{3})\b", body)}
    return frozenset(numbers)


@pytest.mark.parametrize("group", SCENARIO_GROUPS)
def test_every_scenario_of_group_has_a_test_that_names_it(group: str) -> None:
    first, last = SCENARIO_GROUPS[group]
    missing = [
        f"S-{number:03}"
        for number in range(first, last + 1)
        if number not in scenarios_with_a_test()
    ]
    report(f"group {group}: scenarios that no test names", [", ".join(missing)] if missing else [])


def test_nobody_imports_the_cleaner_or_bench_by_the_names_of_their_folders() -> None:
    """A second copy would have exceptions of its own, which nobody catches."""
    offences = [
        place(path, node)
        for path in sources("logstore", "cleaner", "bench", "pyspark_logstore", "tests", "tools")
        for name in ("bench", "cleaner")
        for node in imports_of(name, path)
    ]
    report("imports go by logstore.cleaner and logstore.bench", offences)
    for name in ("bench", "cleaner"):
        with pytest.raises(ImportError, match=f"import logstore.{name}"):
            importlib.import_module(name)
