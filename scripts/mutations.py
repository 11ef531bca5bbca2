"""The faults of `make mutants`: each changes one expression or statement of a function.

Texts for people (f-strings), log lines, annotations, calls of a base class and what runs at import stay as they are.
"""

from __future__ import annotations

import ast
import copy
import re
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import CodeType

COMPARED: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
"""The boundary, and the opposite."""
CALCULATED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
CALLED = {"min": "max", "max": "min", "any": "all", "all": "any"}
LONGEST = 90
_PARTS = (ast.expr, ast.comprehension, ast.keyword, ast.withitem, ast.ExceptHandler)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_SKIPPED = {"annotation", "returns", "decorator_list", "targets", "target", "slice", "type_comment"}


class Mutant(NamedTuple):
    """One fault.

    Attributes:
        where: the qualified name of the function.
        lines: lines of the statement that changes; at least one of them runs if it does.
        place: node and name of its field, and the position if that is a list.
    """

    path: Path
    where: str
    change: str
    lines: range
    tree: ast.Module
    place: tuple[ast.AST, str, int | None]
    instead: ast.AST

    def code(self) -> CodeType:
        """Return the code of the module with the fault."""
        before = self._put(self.instead)
        try:
            return compile(ast.fix_missing_locations(self.tree), str(self.path), "exec")
        finally:
            self._put(before)

    def _put(self, instead: ast.AST) -> ast.AST:
        node, field, at = self.place
        held: Any = node.__dict__ if at is None else getattr(node, field)
        name = field if at is None else at
        before: ast.AST = held[name]
        held[name] = instead
        return before


def mutants(path: Path) -> Iterator[Mutant]:
    """Yield every fault of a module; its functions have different descriptions of changes."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for where, function in _functions(tree, ""):
        counted: Counter[str] = Counter()
        for statement, place in _statements(function):
            lines = _header(statement)
            parts = [(statement, place), *_expressions(statement)]
            for node, at in parts:
                for instead in _instead(node):
                    change = _change(node, instead)
                    counted[change] += 1
                    number = f" ({counted[change]})" if counted[change] > 1 else ""
                    yield Mutant(path, where, change + number, lines, tree, at, ast.copy_location(instead, node))


def _functions(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.AST]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _FUNCTIONS):
            yield prefix + child.name, child
        elif isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{prefix}{child.name}.")


def _places(node: ast.AST) -> Iterator[tuple[Any, tuple[ast.AST, str, int | None]]]:
    for field, value in ast.iter_fields(node):
        if isinstance(value, list):
            yield from ((child, (node, field, at)) for at, child in enumerate(value))
        else:
            yield value, (node, field, None)


def _statements(node: ast.AST) -> Iterator[tuple[ast.stmt, Any]]:
    for child, place in _places(node):
        if isinstance(child, ast.stmt):
            yield child, place
        if isinstance(child, (ast.stmt, ast.ExceptHandler, ast.match_case)):
            yield from _statements(child)


def _expressions(node: ast.AST) -> Iterator[tuple[ast.AST, Any]]:
    if isinstance(node, (ast.JoinedStr, ast.Assert, *_FUNCTIONS)) or _stays(node):
        return
    for child, place in _places(node):
        if isinstance(child, _PARTS) and place[1] not in _SKIPPED:
            yield child, place
            yield from _expressions(child)


def _header(statement: ast.stmt) -> range:
    body = getattr(statement, "body", None)
    end = body[0].lineno if body else (statement.end_lineno or 0) + 1
    return range(statement.lineno, max(end, statement.lineno + 1))


def _stays(node: ast.AST) -> bool:
    called = node.value if isinstance(node, ast.Expr | ast.Return) else node
    return isinstance(called, ast.Call) and bool(re.match(r"(self\.|_)?log\.|super\(\)", ast.unparse(called.func)))


def _instead(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.Expr(value=ast.Constant()):  # a docstring
            return
        case ast.Expr() | ast.Return() if _stays(node):
            return
        case ast.Expr() | ast.Raise() | ast.AugAssign():
            yield ast.Pass()
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield ast.Pass()
        case ast.Return(value=ast.expr() as value) if not (isinstance(value, ast.Constant) and value.value is None):
            yield ast.Return(ast.Constant(None))
        case ast.Continue():
            yield ast.Break()
        case ast.Break():
            yield ast.Continue()
        case ast.If() | ast.While():
            changed = copy.copy(node)
            changed.test = ast.UnaryOp(ast.Not(), node.test)
            yield changed
        case _:
            yield from _instead_of_expression(node)


def _instead_of_expression(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.Compare(left, operators, right):
            for at, operator in enumerate(operators):
                for other in COMPARED[type(operator)]:
                    yield ast.Compare(left, [*operators[:at], other(), *operators[at + 1 :]], right)
        case ast.BoolOp(operation, values):
            yield ast.BoolOp(ast.Or() if isinstance(operation, ast.And) else ast.And(), values)
            for rest in _without_one(values):
                yield ast.BoolOp(operation, rest) if len(rest) > 1 else rest[0]
        case ast.UnaryOp(ast.Not(), operand):
            yield operand
        case ast.IfExp(test, body, orelse):
            yield ast.IfExp(ast.UnaryOp(ast.Not(), test), body, orelse)
        case ast.comprehension(target, generated, conditions, asynchronous):
            yield from (ast.comprehension(target, generated, rest, asynchronous) for rest in _without_one(conditions))
        case _:
            yield from _instead_of_calculation(node)


def _instead_of_calculation(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.BinOp(left, operator, right) if type(operator) in CALCULATED:
            yield ast.BinOp(left, CALCULATED[type(operator)](), right)
        case ast.Call(ast.Name(name), arguments, keywords) if name in CALLED:
            yield ast.Call(ast.Name(CALLED[name], ast.Load()), arguments, keywords)
        case ast.Constant(bool() as value):
            yield ast.Constant(not value)
        case ast.Constant(int() | float() as value):
            yield from (ast.Constant(value + 1), ast.Constant(value - 1))


def _without_one(values: list[ast.expr]) -> Iterator[list[ast.expr]]:
    yield from (values[:at] + values[at + 1 :] for at in range(len(values)))


def _change(node: ast.AST, instead: ast.AST) -> str:
    """Return what changes into what; of long texts, the part that differs."""
    before, after = _text(node), _text(instead)
    if max(len(before), len(after)) > LONGEST:
        start = max(0, _same(before, after) - 20)
        end = max(0, _same(before[start:][::-1], after[start:][::-1]) - 20)
        first, last = "… " * (start > 0), " …" * (end > 0)
        before, after = (f"{first}{text[start : len(text) - end]}{last}" for text in (before, after))
    return " → ".join(text if len(text) <= LONGEST else f"{text[:LONGEST]} …" for text in (before, after))


def _same(one: str, other: str) -> int:
    """Return how many characters are the same at the beginning."""
    pairs = zip(one, other, strict=False)
    return next((at for at, (first, second) in enumerate(pairs) if first != second), min(len(one), len(other)))


def _text(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text.partition(":")[0] if isinstance(node, (ast.If, ast.While)) else text
