"""No code knows a shedder by its name but the enumeration and the strategies: the others ask its profile."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from pulsar_rebalancer.config.field_types import Strategy

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = [ROOT / part for part in ("include/pulsar_rebalancer", "plugins", "spark_apps", "dags")]
AT_HOME = ("include/pulsar_rebalancer/strategies/", "include/pulsar_rebalancer/config/field_types.py")
NAME = re.compile(rf"\b({'|'.join(Strategy)})\b")


def python_names(text: str) -> Iterator[str]:
    """Members of the enumeration, and names that are spelt out; not in docstrings and descriptions of settings."""
    tree = ast.parse(text)
    silent = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    described = (node.value for node in ast.walk(tree) if isinstance(node, ast.keyword) and node.arg == "description")
    silent |= {id(part) for node in described for part in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "Strategy":
            yield f"Strategy.{node.attr}"
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in silent:
            yield from NAME.findall(node.value)


def named() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for file in (file for part in PRODUCT for file in part.rglob("*") if file.suffix in (".py", ".js", ".html")):
        path, text = file.relative_to(ROOT).as_posix(), file.read_text(encoding="utf-8")
        if not path.startswith(AT_HOME):
            found[path] = set(python_names(text) if file.suffix == ".py" else NAME.findall(text))
    assert len(found) > 150
    return {path: names for path, names in found.items() if names}


def test_nobody_else_knows_a_shedder_by_its_name() -> None:
    assert named() == {}
