"""Small faults of a source text: one token or one statement changed, the rest as it was."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Container, Iterator
from typing import NamedTuple


class Fault(NamedTuple):
    """One change: `before` at `line` (from 1) and `column` (from 0) becomes `after`.

    `text` is the whole line without its indentation, by which a fault is known again when the
    lines around it have moved.
    """

    line: int
    column: int
    before: str
    after: str
    text: str

    def __str__(self) -> str:
        return f"{self.before or 'nothing'} → {self.after}"

    def plant(self, source: str) -> str:
        """Return the source with the fault in it."""
        lines = source.splitlines(keepends=True)
        start = sum(map(len, lines[: self.line - 1])) + self.column
        assert source.startswith(self.before, start)
        return source[:start] + self.after + source[start + len(self.before) :]


NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}
"""Functions whose results agree as long as all values are equal."""

OPERATORS = {
    "<": "<=",
    "<=": "<",
    ">": ">=",
    ">=": ">",
    "==": "!=",
    "!=": "==",
    "+": "-",
    "-": "+",
    "*": "//",
    "//": "*",
    "%": "*",
    "&": "|",
    "|": "&",
    "<<": ">>",
    ">>": "<<",
    "+=": "-=",
    "-=": "+=",
    "and": "or",
    "or": "and",
    "break": "continue",
    "continue": "break",
    "True": "False",
    "False": "True",
    "is": "is not",
    "is not": "is",
    "in": "not in",
    "not in": "in",
}


def faults_of(source: str, lines: Container[int]) -> Iterator[Fault]:
    """Yield the faults that can be planted in some lines of a module, from the first on."""
    tree = ast.parse(source)
    texts = source.splitlines()
    quiet = _quiet_lines(tree)
    found = {*_of_tokens(source, tree), *_of_statements(source, tree), *_of_habits(source, tree)}
    for line, column, before, after in sorted(found):
        if line in lines and line not in quiet:
            yield Fault(line, column, before, after, texts[line - 1].strip())


Place = tuple[int, int, str, str]


def _of_tokens(source: str, tree: ast.AST) -> Iterator[Place]:
    annotations = _annotation_spans(tree)
    loops = _loop_heads(tree)
    previous = ""
    for token in _joined(source):
        line, column = token.start
        if any(start <= token.start < end for start, end in annotations):
            continue
        if token.type == tokenize.NUMBER and token.string.isdecimal():
            yield line, column, token.string, str(int(token.string) + 1)
        elif token.string in NAMES and previous != "." and token.line[token.end[1] :][:1] == "(":
            yield line, column, token.string, NAMES[token.string]
        elif token.string in OPERATORS:
            is_unary = token.string in "+-*" and (
                previous in {"", "(", "[", "{", ",", "=", ":", "return", "*", "**", "lambda"}
                or previous in OPERATORS
            )
            if not is_unary and token.start not in loops:
                yield line, column, token.string, OPERATORS[token.string]
        if token.type not in (tokenize.NL, tokenize.COMMENT):
            previous = token.string


def _joined(source: str) -> Iterator[tokenize.TokenInfo]:
    """Yield tokens; `is not` and `not in` as one each."""
    pending: tokenize.TokenInfo | None = None
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if pending is not None:
            pair = f"{pending.string} {token.string}"
            if pair in OPERATORS and pending.end[0] == token.start[0]:
                yield pending._replace(string=pair, end=token.end)
                pending = None
                continue
            yield pending
            pending = None
        if token.string in ("is", "not"):
            pending = token
        else:
            yield token


def _of_statements(source: str, tree: ast.AST) -> Iterator[Place]:
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt) and _can_go(node):
            yield _replaced(source, node, "pass")
        elif isinstance(node, ast.If | ast.While | ast.IfExp | ast.Assert):
            test = node.test
            if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
                text = ast.get_source_segment(source, test.operand) or ""
                yield _replaced(source, test, f"({text})")
            elif not isinstance(test, ast.Compare | ast.BoolOp | ast.Constant | ast.NamedExpr):
                text = ast.get_source_segment(source, test) or ""
                yield _replaced(source, test, f"(not {text})")
        elif isinstance(node, ast.With) and all(item.optional_vars is None for item in node.items):
            first, last = node.items[0].context_expr, node.items[-1].context_expr
            before = _text(
                source, first.lineno, first.col_offset, last.end_lineno, last.end_col_offset
            )
            yield first.lineno, first.col_offset, before, "__import__('contextlib').nullcontext()"


def _of_habits(source: str, tree: ast.AST) -> Iterator[Place]:
    """Yield the faults that tests with equal values, single rounds and no failures do not notice.

    A condition less, one branch of a conditional expression, a unit not converted, a failure not
    handled, an argument left at its default, a variable that keeps its earlier value.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.BoolOp):
            for operand in node.values:
                rest = [each for each in node.values if each is not operand]
                word = " and " if isinstance(node.op, ast.And) else " or "
                kept = word.join(f"({_source_of(source, each)})" for each in rest)
                yield _replaced(source, node, kept if len(rest) == 1 else f"({kept})")
        elif isinstance(node, ast.IfExp):
            for branch in (node.body, node.orelse):
                yield _replaced(source, node, f"({_source_of(source, branch)})")
        elif isinstance(node, ast.comprehension):
            for test in node.ifs:
                yield _replaced(source, test, "True")
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Div | ast.FloorDiv):
            if isinstance(node.right, ast.Constant) and node.right.value in UNITS:
                yield _replaced(source, node, f"({_source_of(source, node.left)})")
        elif isinstance(node, ast.ExceptHandler) and not isinstance(node.body[0], ast.Raise):
            yield _replaced(source, node.body[0], "raise")
        elif isinstance(node, ast.Call):
            for keyword in node.keywords:
                if keyword.arg is not None:
                    yield _replaced(source, keyword, "**{}")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            bound = {each.arg for each in ast.walk(node.args) if isinstance(each, ast.arg)}
            names = [each for each in ast.walk(node) if isinstance(each, ast.Assign)]
            for assign in sorted(names, key=lambda each: each.lineno):
                if isinstance(target := assign.targets[0], ast.Name):
                    if target.id in bound:
                        yield _replaced(source, assign, "pass")
                    bound.add(target.id)


UNITS = (1000, 1_000_000, 1_000_000_000)
"""Factors between seconds, milliseconds, microseconds and nanoseconds."""


def _source_of(source: str, node: ast.expr) -> str:
    text = ast.get_source_segment(source, node)
    assert text is not None
    return text


def _can_go(node: ast.stmt) -> bool:
    """Return whether a module without a statement is still valid, and different."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Call | ast.Await)
    if isinstance(node, ast.Assign):
        return all(isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets)
    return isinstance(node, ast.Raise | ast.AugAssign | ast.Delete)


def _replaced(source: str, node: ast.stmt | ast.expr | ast.keyword, after: str) -> Place:
    before = ast.get_source_segment(source, node)
    assert before is not None
    column = len(source.splitlines()[node.lineno - 1].encode()[: node.col_offset].decode())
    return node.lineno, column, before, after


def _text(source: str, line: int, column: int, last_line: int | None, last: int | None) -> str:
    assert last_line is not None
    assert last is not None
    lines = source.splitlines(keepends=True)[line - 1 : last_line]
    lines[-1] = lines[-1].encode()[:last].decode()
    lines[0] = lines[0].encode()[column:].decode()
    return "".join(lines)


def _quiet_lines(tree: ast.AST) -> set[int]:
    """Return the lines without a decision: imports, logging, branches for type checkers."""
    quiet: set[int] = set()
    for node in ast.walk(tree):
        is_quiet = isinstance(node, ast.Import | ast.ImportFrom)
        if isinstance(node, ast.If):
            is_quiet = isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            called = node.value.func
            is_quiet = (
                isinstance(called, ast.Attribute)
                and isinstance(called.value, ast.Name)
                and called.value.id == "logger"
            )
        if is_quiet and isinstance(node, ast.stmt):
            quiet.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return quiet


def _annotation_spans(tree: ast.AST) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Return the positions of annotations, where `int | None` is not arithmetic."""
    spans = []
    for node in ast.walk(tree):
        written: list[ast.expr | None] = []
        if isinstance(node, ast.arg | ast.AnnAssign):
            written.append(node.annotation)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            written.append(node.returns)
        for each in written:
            if each is not None and each.end_lineno is not None and each.end_col_offset is not None:
                start = (each.lineno, each.col_offset)
                spans.append((start, (each.end_lineno, each.end_col_offset)))
    return spans


def _loop_heads(tree: ast.AST) -> set[tuple[int, int]]:
    """Return the positions of `in` between a loop's variable and its iterable."""
    heads = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
            end = node.target.end_col_offset
            line = node.target.end_lineno
            assert end is not None
            assert line is not None
            heads |= {(line, column) for column in range(end, end + 3)}
    return heads
