"""Count patterns of translated prose and words of the old private vocabulary, by package.

    python -m tools.prose             # hits and words of each package
    python -m tools.prose logstore/ui # the hits of a package, by file
    python -m tools.prose --check     # fail if a package exceeds its limit
    python -m tools.prose --lower     # lower the limits to the current counts

The text is Markdown pages, docstrings, comments and strings of Python, and comments and strings of
JavaScript and TOML files.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
LIMITS = ROOT / "tests" / "meta" / "prose_limits.toml"

AIM = 1.0
"""Hits per thousand words that a package without a limit may have."""

PATTERNS = {
    "what for a noun": r"\b[Ww]hat (is|was|has|had|are|were|it|they|one|a|an|the|no|nobody|others?"
    r"|can|may|must|stands|lies|comes|goes|stays|follows|makes|needs|does|each)\b(?![^.?\n]*\?)",
    "who for a noun": r"\b([Ww]hoever|[Ww]ho) (is|was|has|asks|reads|writes|wants|needs|takes|looks"
    r"|knows|may|can|must|does|there)\b(?![^.?\n]*\?)",
    "tell": r"\b(told|[Tt]ells?|telling)\b",
    "stand, lie": r"\b(stands?|stood|lies|lay|lain)\b",
    "that of": r"\b(that|those) of\b",
    "is no": r"\b(is|are|was|were) no (?!longer|more|less|matter|doubt|way|need)[a-z]+",
    "fronted Of": r"(^|[.;:] )Of (a|an|the|each|all|those|these|two|one|several|many|what|which"
    r"|them|it|no)\b",
    "beside": r"\b[Bb]eside\b",
    "nothing is": r"\b(nothing|nobody|somebody) (is|of|has|does|else)\b",
    # Marked by readers who compared pages of this project with kafka-python's.
    "go, stay": r"\b([Gg]oes|gone|[Ss]tays?|stayed)\b",
    "hold for contain": r"\b(may|can|cannot|that|which|it|file|batch|segment|record|index|map|log"
    r"|directory|folder|topic|checkpoint|buffer|entry|snapshot)s? holds?\b(?! (back|up|by|under)\b)"
    r"(?!( [\w'`]+){0,5},? (locks?|descriptors?|exclusive\w*|it|them)\b)",
    "is kept": r"\b(is|are|was|were|be|been) kept\b",
    "chain of of": r"(?<!umber )(?<!ount )\bof (the |a |an |its |each |all |every )?[\w`'-]+ of"
    r" (the|a|an|its|each|all)\b",
    "the offset of the end": r"\bthe (offset|time|timestamp|size|name|number) of the"
    r" (end|start|name|size|offset|time)\b",
    "a cleaning": r"\b([Aa]|[Tt]he|[Ee]ach|[Ee]very|[Nn]o|[Oo]ne|[Aa]ny|next|first|last|later"
    r"|forced|same|previous|another) cleaning\b(?! (pass|thread|rule|round|run|up))|\bcleanings\b",
    "'s own": r"\b\w+('s|s') own\b",
    "clause without a verb": r"; (?!(see|return|raise|yield|write|read|list|run)\b)((?!"
    r"(is|are|was|were|has|have|had|does|do|can|may|must|will|use|abort|clean|retry|skip|never)\b"
    r"|\w+(s|ed)\b)[\w`'-]+ ){0,4}(?!\w+(s|ed)\b)[\w`'-]+\.(?=\s|$)",
    "most for maximum": r"(^ *|[;:,] )[Mm]ost (bytes|records|offsets|batches|rows|partitions"
    r"|examples|segments|keys) (of|that|in|per|to|and)\b",
    "so many": r"\b(up to|room for) so (many|much)\b",
    # The same faults in another dress.
    "that which": r"\b([Tt]hat|[Tt]hose) which\b",
    "reside, inform": r"\b([Rr]esid(es?|ed|ing)|[Ii]nform(s|ed|ing)?)\b",
}
"""Name and expression of each pattern."""

WORDS = {
    "deed": (r"\b[Dd]eeds?\b", "action, operation"),
    "door": (r"\b[Dd]oors?\b(?!/)", "listener, entry point, plugin"),
    "in thought": (r"\bin thought\b", "as a dry run"),
    "census": (r"\b[Cc]ensus\b", "key statistics"),
    "the machine's clock": (r"\bmachine's (own )?(clock|time)\b", "system clock"),
    "in hand": (r"\b(in|at) (its |their |the )?hand\b", "manual clock"),
    "lent": (r"\blent\b", "borrowed"),
    "second look": (r"\bsecond looks?\b", "re-read, check"),
    "small work": (r"\b[Ss]mall work\b", "below the compilation threshold"),
    "manieth": (r"\bmanieth\b", "n-th"),
    "lived through": (r"\blived through\b", "run, simulated"),
    "moment": (r"\b[Mm]oments?\b", "time, timestamp"),
    "said": (r"\b[Ss]aid\b", "reported, printed"),
    "strip": (r"\b([Tt]he|[Aa]) strip\b|\bstrip of\b", "segment map"),
    "for ever, anew": (r"\bfor ever\b|\banew\b", "forever, again"),
    "whoever": (r"\b[Ww]hoever\b(?! (is|was|has|asks|reads|writes))", "the client, the caller"),
}
"""Words that the glossary of plain English replaces: an expression and the word to use."""

OWN = ("tools/prose.py", "tests/meta/test_prose.py")
"""Files that quote the patterns."""

FOREIGN = ("tests/data/", "logstore/messages/definitions/", "logstore/ui/front/vendor/")
"""Folders of sources from Kafka or from another project. Their Markdown pages are ours."""

RESULTS = "bench/results/"
"""Results of benchmarks, as they were measured."""


class Passage(NamedTuple):
    """A piece of prose: its package, its file and the line on which it starts."""

    package: str
    file: str
    line: int
    text: str


class Hit(NamedTuple):
    """A match of a pattern, with the line of text around it."""

    package: str
    file: str
    line: int
    name: str
    text: str


def package(name: str) -> str:
    """Return the package of a file: `logstore/cli`, `cleaner`, `tests/meta`, or `docs`."""
    if name.endswith(".md"):
        return "docs"
    top, _, rest = name.partition("/")
    if top in ("logstore", "tests") and "/" in rest:
        return f"{top}/{rest.partition('/')[0]}"
    return top if rest else "."


# --- text of files ------------------------------------------------------------------------------


def python(source: str) -> Iterator[tuple[int, str]]:
    """Yield the docstrings, comments and strings with three spaces of a Python file."""
    bare: set[int] = set()
    inside: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            bare.add(id(node.value))
        elif isinstance(node, ast.Constant | ast.JoinedStr):
            inside.update(range(node.lineno, node.end_lineno or 0))
            value = getattr(node, "value", None)
            if isinstance(value, str) and (id(node) in bare or value.count(" ") >= 3):
                yield node.lineno, value
    # `tokenize` would take most of the time of a run.
    for number, line in enumerate(source.splitlines(), 1):
        if "#" in line and number not in inside and (comment := COMMENT.match(line)):
            text = comment["text"]
            if not re.search(r"type:|noqa", text):
                yield number, text.lstrip("# ")


COMMENT = re.compile(r"""(?:[^'"#]|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*")*(?P<text>#.*)""")
"""A line with a comment after its strings."""


JAVASCRIPT = re.compile(
    r"//(?P<line>[^\n]*)|/\*(?P<block>.*?)\*/"
    r"""|"(?P<double>(?:\\.|[^"\\\n])*)"|'(?P<single>(?:\\.|[^'\\\n])*)'"""
    r"|`(?P<template>(?:\\.|[^`\\])*)`",
    re.DOTALL,
)
TOML = re.compile(
    r'"""(?P<long>.*?)"""|"(?P<double>(?:\\.|[^"\\\n])*)"'
    r"|'(?P<single>[^'\n]*)'|#(?P<line>[^\n]*)",
    re.DOTALL,
)


def scanned(source: str, grammar: re.Pattern[str]) -> Iterator[tuple[int, str]]:
    """Yield the comments and the strings with three spaces of a file."""
    for found in grammar.finditer(source):
        kind = found.lastgroup or ""
        text = found[kind]
        if kind == "template":
            text = re.sub(r"<[^>]*>|\$\{[^}]*\}", " … ", text)
        if kind in ("line", "block") or text.count(" ") >= 3:
            yield source.count("\n", 0, found.start()) + 1, text


def markdown(source: str) -> Iterator[tuple[int, str]]:
    """Yield the page without its fenced blocks, whose lines remain empty."""
    blank = re.compile(r"```.*?```", re.DOTALL)
    yield 1, blank.sub(lambda block: "\n" * block[0].count("\n"), source)


def tracked() -> list[str]:
    """Return the names of the files that may have prose, sorted."""
    command = ["git", "ls-files", "*.md", "*.py", "*.pyi", "*.js", "*.toml"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    files = (ROOT / name for name in listed.stdout.splitlines())
    found = (path for path in files if path.is_file() and not path.is_symlink())
    return sorted(path.relative_to(ROOT).as_posix() for path in found)


@cache
def passages() -> list[Passage]:
    """Return all prose of the tracked files."""
    collected = []
    for name in tracked():
        pieces: Iterator[tuple[int, str]]
        foreign = name.startswith(FOREIGN) and not name.endswith(".md")
        if name in OWN or foreign or name.startswith(RESULTS):
            continue
        source = (ROOT / name).read_text(encoding="utf-8")
        if name.endswith(".md"):
            pieces = markdown(source)
        elif name.endswith((".py", ".pyi")):
            pieces = python(source)
        elif name.endswith(".js"):
            pieces = scanned(source, JAVASCRIPT)
        else:
            pieces = scanned(source, TOML)
        collected += [Passage(package(name), name, line, text) for line, text in pieces]
    return collected


# --- counts -------------------------------------------------------------------------------------

COMPILED = {
    **{name: re.compile(pattern, re.MULTILINE) for name, pattern in PATTERNS.items()},
    **{name: re.compile(expression) for name, (expression, _) in WORDS.items()},
}


def hits(passage: Passage) -> Iterator[Hit]:
    """Yield the matches in a passage."""
    for name, pattern in COMPILED.items():
        for found in pattern.finditer(passage.text):
            start = passage.text.rfind("\n", 0, found.start() + 1) + 1
            around = passage.text[start:].partition("\n")[0]
            line = passage.line + passage.text.count("\n", 0, found.start())
            yield Hit(passage.package, passage.file, line, name, around.strip())


@cache
def found() -> tuple[dict[str, list[Hit]], dict[str, int]]:
    """Return the hits and the number of words of each package."""
    matches: dict[str, list[Hit]] = {}
    words: dict[str, int] = {}
    for passage in passages():
        count = len(re.findall(r"[A-Za-z']+", passage.text))
        words[passage.package] = words.get(passage.package, 0) + count
        matches.setdefault(passage.package, []).extend(hits(passage))
    return matches, words


def rate(name: str) -> float:
    """Return the hits of a package per thousand words."""
    matches, words = found()
    return 1000 * len(matches[name]) / max(1, words[name])


def limits() -> dict[str, int]:
    """Return the most hits that each package may have."""
    loaded: dict[str, int] = tomllib.loads(LIMITS.read_text(encoding="utf-8"))["hits"]
    return loaded


def lower() -> None:
    """Lower each limit to the current count; drop the limits of packages that reached the aim."""
    matches, _ = found()
    old = limits() if LIMITS.exists() else {name: len(matches[name]) for name in matches}
    lines = [
        "# The most hits that each package may have (tools/prose.py). They only fall:",
        "# `python -m tools.prose --lower` writes the current counts where they are lower.",
        "# A package without an entry may have one hit per thousand words. If a package is moved,",
        "# move its entry.",
        "[hits]",
    ]
    lines += [
        f'"{name}" = {min(len(matches[name]), old[name])}'
        for name in sorted(matches)
        if name in old and rate(name) > AIM
    ]
    LIMITS.write_text("\n".join([*lines, ""]), encoding="utf-8")


def excess() -> list[str]:
    """Return lines that name the packages above their limits, and limits of packages that are gone.

    A package without a limit may have `AIM` hits per thousand words.
    """
    matches, _ = found()
    allowed = limits()
    lines = [
        f"{name}: no such package; remove its limit" for name in allowed if name not in matches
    ]
    for name, hits in sorted(matches.items()):
        if len(hits) > allowed.get(name, 0) and rate(name) > AIM:
            lines.append(f"{name}: {len(hits)} hits, limit {allowed.get(name, 0)}; the last 20:")
            lines += [f"  {hit.file}:{hit.line}: {hit.name}: {hit.text}" for hit in hits[-20:]]
    return lines


def main(arguments: list[str]) -> None:
    """Print the counts, or the hits of the packages or files that are named."""
    if arguments == ["--lower"]:
        lower()
        return
    if arguments == ["--check"]:
        if lines := excess():
            advice = "Rewrite until there are fewer (python -m tools.prose PACKAGE lists all):"
            sys.exit("\n".join([advice, *lines]))
        return
    matches, words = found()
    for name in sorted(matches, key=rate, reverse=True):
        print(f"{rate(name):6.1f}  {len(matches[name]):5} hits  {words[name]:7,} words  {name}")
        for hit in matches[name]:
            if any(hit.file.startswith(each) or name == each for each in arguments):
                print(f"    {hit.file}:{hit.line}: {hit.name}: {hit.text}")


if __name__ == "__main__":
    main(sys.argv[1:])
