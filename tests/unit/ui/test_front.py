"""The page's files are consistent, need no other host, and leave vendored files unchanged."""

from __future__ import annotations

import hashlib
import re
from functools import cache
from pathlib import Path

import pytest

FRONT = Path(__file__).resolve().parents[3] / "logstore" / "ui" / "front"
VENDOR = FRONT / "vendor"
MODULES = sorted(path for path in FRONT.glob("*.js"))
TEXTS = [*MODULES, FRONT / "index.html", FRONT / "style.css", FRONT / "icon.svg"]

FROM = re.compile(r"""import\s*(?:\{(?P<names>[^}]*)\}\s*from\s*)?["'](?P<static>[^"']+)["']""")
LAZY = re.compile(r"""import\(\s*["']([^"']+)["']\s*\)""")
EXPORT = re.compile(r"^export\s+(?:async\s+)?(?:function|class|const|let)\s+(\w+)", re.MULTILINE)
EXPORTS = re.compile(r"export\s*\{([^}]*)\}")


@cache
def source(path: Path) -> str:
    """A module without its comments, which may contain any name."""
    text = path.read_text(encoding="utf-8")
    return re.sub(r"^\s*//[^\n]*$|/\*.*?\*/", "", text, flags=re.MULTILINE | re.DOTALL)


def exported(path: Path) -> set[str]:
    names = set(EXPORT.findall(source(path)))
    for group in EXPORTS.findall(source(path)):
        names |= {part.split(" as ")[-1].strip() for part in group.split(",")}
    return names


def imported(path: Path) -> list[tuple[Path, set[str]]]:
    found = []
    for each in FROM.finditer(source(path)):
        names = {part.split(" as ")[0].strip() for part in (each["names"] or "").split(",")}
        found.append((each["static"], names - {""}))
    found += [(target, set()) for target in LAZY.findall(source(path))]
    return [(path.parent / target, names) for target, names in found]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_imported_modules_exist(path):
    for target, names in imported(path):
        assert target.resolve().is_file(), f"{path.name} imports {target.name}"
        assert names <= exported(target.resolve()), f"{path.name} imports from {target.name}"


def test_every_module_is_reached_from_the_index():
    index = (FRONT / "index.html").read_text(encoding="utf-8")
    named = [FRONT / name for name in re.findall(r'(?:href|src)="([^"#]+\.\w+)"', index)]
    assert all(path.is_file() for path in named)
    reached: set[Path] = set()
    waiting = [FRONT / "main.js"]
    while waiting:
        path = waiting.pop().resolve()
        if path not in reached and path.parent == FRONT:
            reached.add(path)
            waiting += [target for target, _ in imported(path)]
    assert reached == set(MODULES)
    assert {path for path in named if path.suffix == ".js"} <= {*MODULES, VENDOR / "htm-preact.js"}


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)
def test_no_content_is_loaded_from_another_host(path):
    text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"""https?:|["'(]//|@import|\bimportScripts\b|sendBeacon""", text)


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)
def test_the_content_security_policy_has_nothing_to_forbid(path):
    """It allows no script and no style inside of the markup, and no code made of text."""
    text = source(path)
    assert not re.search(r"""\sstyle=["']|\son[a-z]+=["']|javascript:""", text)
    assert not re.search(r"\beval\(|new Function\(|innerHTML|document\.write", text)
    assert not re.search(r"<style|<script(?! type=\"module\" src=)", text)


def test_style_properties_that_are_used_are_defined():
    css = source(FRONT / "style.css")
    used = set(re.findall(r"var\((--[\w-]+)", css))
    defined = set(re.findall(r"(--[\w-]+):", css))
    by_scripts = {name for path in MODULES for name in re.findall(r'"(--[\w-]+)"', source(path))}
    assert used <= defined | by_scripts
    assert defined <= used


def test_both_schemes_define_the_same_colours():
    """Except the first theme's variables that are not colours."""
    css = source(FRONT / "style.css")
    light, dark = re.findall(r":root\s*\{(.*?)\}", css, re.DOTALL)
    named = {name for name, value in re.findall(r"(--[\w-]+):\s*([^;]+)", light) if value[0] == "#"}
    assert set(re.findall(r"(--[\w-]+):", dark)) == named


def test_vendored_files_are_unchanged():
    lines = (VENDOR / "SHA256SUMS").read_text(encoding="utf-8").splitlines()
    sums = {name: digest for digest, name in (line.split() for line in lines)}
    files = {path.name for path in VENDOR.iterdir()} - {"README.md", "SHA256SUMS"}
    assert set(sums) == files
    for name, digest in sums.items():
        assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() == digest, name
    assert {name for name in files if name.endswith(".LICENSE.txt")} == {
        "htm.LICENSE.txt",
        "preact.LICENSE.txt",
    }
