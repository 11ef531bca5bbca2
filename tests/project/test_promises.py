import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
ROW = re.compile(
    r"^\| (?P<promise>.+) \| (unit|operator|scene|real brokers|project) \| `(?P<test>.+\.py::.+)` \|$", re.M
)


@cache
def names(file: Path) -> set[str]:
    tree = ast.parse(file.read_text(encoding="utf-8")) if file.is_file() else ast.Module([], [])
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    methods = {f"{each.name}::{node.name}" for each in classes for node in each.body if hasattr(node, "name")}
    return methods | {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_every_promise_has_its_test() -> None:
    text = (TESTS / "PROMISES.md").read_text(encoding="utf-8")
    rows = [found.groupdict() for found in ROW.finditer(text)]
    assert len(rows) == len(re.findall(r"^\|.*::", text, re.M)) > 250
    assert [each for each, count in Counter(row["promise"] for row in rows).items() if count > 1] == []
    proofs = [row["test"].partition("::") for row in rows]
    assert [f"{file}::{name}" for file, _, name in proofs if name not in names(TESTS / file)] == []
