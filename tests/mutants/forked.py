"""A plugin of pytest: collects the tests once, and runs some of them in a fork for each fault.

The driver (`tests.mutants.run`) starts pytest with `-p tests.mutants.forked` and writes one JSON
object a line to the file descriptor `MUTANTS_REQUESTS`: `path`, `source` (with the fault), `line`,
`tests` (node ids) and `seconds`. The answer on `MUTANTS_ANSWERS` is `found`, `survived`, `hung`,
or `elsewhere`, if no function contains the fault and a new process has to import it.

A fork starts in milliseconds, where a new process imports and collects for seconds. In the fork
the code of each function object that contains the fault is replaced, wherever it was imported to.
"""

from __future__ import annotations

import ast
import gc
import json
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from types import CodeType, FunctionType
from typing import Any, NamedTuple, TextIO

import pytest


class Place(NamedTuple):
    """Qualified name and first line of a function, as its code object states them."""

    name: str
    line: int


def function_at(tree: ast.AST, line: int, prefix: str = "") -> Place | None:
    """Return the outermost function whose body contains a line, or None if there is none."""
    for node in ast.iter_child_nodes(tree):
        if not isinstance(node, ast.stmt) or not node.lineno <= line <= (node.end_lineno or 0):
            continue
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            return Place(prefix + node.name, first) if node.body[0].lineno <= line else None
        name = f"{prefix}{node.name}." if isinstance(node, ast.ClassDef) else prefix
        return function_at(node, line, name)
    return None


def codes_in(code: CodeType) -> Iterator[CodeType]:
    """Yield the code objects within one, of all depths."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from codes_in(constant)


def replace_code(path: str, source: str, line: int) -> bool:
    """Give all function objects that contain a line the code of a changed source.

    Returns
    -------
    bool
        False if no function object changes: the line runs at import, or is a default value.
    """
    place = function_at(ast.parse(source), line)
    module = compile(source, path, "exec", dont_inherit=True)
    new = {Place(code.co_qualname, code.co_firstlineno): code for code in codes_in(module)}
    if place is None or place not in new:
        return False
    changed = False
    for each in gc.get_objects():
        if type(each) is not FunctionType:
            continue
        code = each.__code__
        if Place(code.co_qualname, code.co_firstlineno) != place or code == new[place]:
            continue
        # A package may be imported by a link to its folder.
        if os.path.realpath(code.co_filename) == os.path.realpath(path):
            if code.co_freevars != new[place].co_freevars:
                return False
            each.__code__ = new[place]
            changed = True
    return changed


class Runner:
    """Answers the driver's requests instead of running all tests."""

    def __init__(self) -> None:
        self._failed = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._failed = self._failed or report.failed

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {item.nodeid: item for item in session.items}
        requests = os.fdopen(int(os.environ["MUTANTS_REQUESTS"]))
        answers = os.fdopen(int(os.environ["MUTANTS_ANSWERS"]), "w")
        gc.freeze()  # so that no collection in a fork copies its pages
        _answer(answers, "ready")
        for line in requests:
            request = json.loads(line)
            chosen = [items[name] for name in request["tests"] if name in items]
            _answer(answers, self._in_a_fork(request, chosen))
        return True

    def _in_a_fork(self, request: dict[str, Any], items: Sequence[pytest.Item]) -> str:
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            verdict = "found"
            try:
                os.setpgid(0, 0)
                nowhere = os.open(os.devnull, os.O_RDWR)
                os.dup2(nowhere, sys.__stdout__.fileno())
                os.dup2(nowhere, sys.__stderr__.fileno())
                verdict = self._run(request, items)
            finally:
                os.write(writing, verdict.encode())
                os._exit(0)
        os.close(writing)
        end = time.monotonic() + request["seconds"]
        is_over = False
        while not is_over and time.monotonic() < end:
            time.sleep(0.005)
            is_over = os.waitpid(child, os.WNOHANG)[0] == child
        if not is_over:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        with suppress(ProcessLookupError):  # processes that the tests started
            os.killpg(child, signal.SIGKILL)
        with os.fdopen(reading) as pipe:
            # A fork that dies has noticed the fault, too.
            return (pipe.read() or "found") if is_over else "hung"

    def _run(self, request: dict[str, Any], items: Sequence[pytest.Item]) -> str:
        gc.unfreeze()
        if not replace_code(request["path"], request["source"], request["line"]):
            return "elsewhere"
        for item, following in pairwise([*items, None]):
            assert item is not None
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self._failed:
                return "found"
        return "survived"


def _answer(answers: TextIO, text: str) -> None:
    print(text, file=answers, flush=True)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Runner())
