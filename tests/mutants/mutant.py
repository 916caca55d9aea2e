"""One mutant: a small defect in one place of the source, such as a condition left out or an fsync removed.

Every mutant replaces one expression, or one statement, by another text. Its kind says what a reviewer would call it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

TURNED = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in",
}  # fmt: skip
CHECKS = frozenset({"require", "check", "refuse", "permit", "authorize"})
FILTERS = frozenset({"where", "and_", "filter"})
LEAVES = (ast.Return, ast.Raise, ast.Continue, ast.Break)


@dataclass(frozen=True)
class Mutant:
    """``line``, ``column`` … ``end_column``: the place, in bytes of the file; ``at``: the statement's line."""

    path: str
    function: str
    kind: str
    at: int
    line: int
    column: int
    end_line: int
    end_column: int
    before: str
    after: str

    @property
    def name(self) -> str:
        return f"{self.path}:{self.line} {self.function}: {self.kind}: {self.before!r} → {self.after!r}"

    def apply(self, source: str) -> str:
        """The text of the file with the defect.

        Raises:
            ValueError: the file is another one.
        """
        lines = source.encode().splitlines(keepends=True)
        start = sum(map(len, lines[: self.line - 1])) + self.column
        end = sum(map(len, lines[: self.end_line - 1])) + self.end_column
        text = source.encode()
        if text[start:end].decode() != self.before:
            raise ValueError(f"{self.path} has changed since this mutant was made")
        return (text[:start] + self.after.encode() + text[end:]).decode()

    def as_row(self) -> dict[str, Any]:
        return asdict(self)


def mutants_of(path: Path, root: Path) -> Iterator[Mutant]:
    """All mutants of a file, in the order of its text."""
    source = path.read_text()
    yield from _Finder(str(path.relative_to(root)), source).find()


class _Finder:
    def __init__(self, path: str, source: str) -> None:
        self.path = path
        self.source = source
        self.lines = source.splitlines()

    def find(self) -> Iterator[Mutant]:
        tree = ast.parse(self.source)
        yield from self._of_functions(tree, ())

    def _of_functions(self, node: ast.AST, names: tuple[str, ...]) -> Iterator[Mutant]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                for statement in child.body:
                    yield from self._of_statement(statement, statement.lineno, ".".join((*names, child.name)))
            elif isinstance(child, ast.ClassDef):
                yield from self._of_functions(child, (*names, child.name))

    def _of_statement(self, node: ast.AST, at: int, function: str) -> Iterator[Mutant]:
        """Mutants of a statement, and of what is in it; ``at``: the statement before which a probe can stand."""
        if isinstance(node, ast.stmt) and not self.lines[node.lineno - 1].lstrip().startswith("elif "):
            at = node.lineno
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            at = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
        for kind, place, after in _changes(node, self.source):
            yield self._mutant(kind, place, after, at, function)
        for child in ast.iter_child_nodes(node):
            yield from self._of_statement(child, at, function)

    def _mutant(self, kind: str, place: Any, after: str, at: int, function: str) -> Mutant:
        before = ast.get_source_segment(self.source, place) or ""
        where = (place.lineno, place.col_offset, place.end_lineno, place.end_col_offset)
        return Mutant(self.path, function, kind, at, *where, before, after)


def _changes(  # noqa: C901 - a list of cases
    node: ast.AST, source: str
) -> Iterator[tuple[str, ast.AST, str]]:
    """What may be wrong at a place: the kind, the part that is replaced, and its new text."""
    match node:
        case ast.BoolOp(op=op, values=values):
            for value in values:
                yield "condition left out", value, "True" if isinstance(op, ast.And) else "False"
        case ast.Compare(ops=[op], left=left, comparators=[right]):
            sides = [ast.get_source_segment(source, side) for side in (left, right)]
            yield "comparison turned", node, f"({sides[0]} {TURNED[type(op)]} {sides[1]})"
        case ast.If(test=test, body=[only], orelse=[]) if isinstance(only, LEAVES):
            yield "guard removed", test, "False"
        case ast.Expr(value=ast.Await() as value):
            yield "await removed", value, "None"
        case ast.Expr(value=ast.Call(func=function) as value) if not _only_reports(function):
            yield _kind_of_call(function), value, "None"
        case ast.Call(func=ast.Attribute(attr=name), args=[_, _, *_] as arguments) if name in FILTERS:
            for argument in arguments:
                if not isinstance(argument, ast.Starred):
                    yield "SQL condition left out", argument, "sa.true()"
        case ast.Return(value=ast.Constant(value=bool() as value) as constant):
            yield "answer turned", constant, str(not value)
        case ast.BinOp(left=ast.expr() as left, op=ast.Add(), right=ast.Constant(value=int())):
            yield "step left out", node, ast.get_source_segment(source, left) or ""


def _kind_of_call(function: ast.expr) -> str:
    words = ast.unparse(function).split(".")[-1].split("_")
    if not {"fsync", "fdatasync", "syncfs", "sync"}.isdisjoint(words):
        return "fsync removed"
    return "check removed" if words[-1] and not CHECKS.isdisjoint(words) else "call removed"


def _only_reports(function: ast.expr) -> bool:
    """Whether a call writes a log line or emits an event, and does nothing else."""
    return ast.unparse(function).split(".")[-1] in {"emit", "log", "debug", "info", "warning", "exception"}
