"""No test reads the clock when it is imported: a long session would run it with a time that is past."""

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]


def at_import(node: ast.AST) -> Iterator[ast.AST]:
    """What is evaluated at import: all but the bodies of functions."""
    for child in ast.iter_child_nodes(node):
        yield child
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            for part in (*child.decorator_list, child.args):
                yield from ast.walk(part)
        elif not isinstance(child, ast.Lambda):
            yield from at_import(child)


def test_the_clock_is_read_in_tests_only() -> None:
    modules = [path for path in TESTS.rglob("*.py") if "vectors" not in path.parts]
    assert len(modules) > 200
    assert [
        f"{path.relative_to(TESTS)}:{node.lineno}"
        for path in modules
        for node in at_import(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in ("now", "utcnow", "today")
    ] == []
