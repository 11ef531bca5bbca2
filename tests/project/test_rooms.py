"""What import-linter cannot say about the rooms of the domain."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]

TABLE = re.compile(r"(brokers|bundles|cluster|decisions|moves|splits)\.parquet$")

OPENERS = ("include/pulsar_rebalancer/run/", "include/pulsar_rebalancer/collect/")

SPARKS_OWN = {"bundles.py"}
"""Spark reads the table of bundles itself, on the executors."""


def test_only_run_and_collect_open_the_tables_of_a_run() -> None:
    files = [file for folder in ("include/pulsar_rebalancer", "plugins", "spark_apps") for file in _modules(folder)]
    openers = {str(file.relative_to(ROOT)) for file in files if any(map(TABLE.search, _texts(file)))}

    assert {file for file in openers if file.startswith(OPENERS)}
    assert {
        file
        for file in openers
        if not file.startswith(OPENERS) and not (file.startswith("spark_apps/") and Path(file).name in SPARKS_OWN)
    } == set()


def _modules(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def _texts(file: Path) -> list[str]:
    """The texts of a module that are no part of another text, as names of files are."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts
    ]
