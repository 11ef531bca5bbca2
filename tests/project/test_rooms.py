"""What import-linter cannot say about the rooms of the domain."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]

TABLE = re.compile(r"(brokers|bundles|cluster|decisions|moves|splits)\.parquet$")

OPENERS = tuple(f"include/pulsar_rebalancer/{room}/" for room in ("run", "collect", "storage"))

READS = {"read_table", "read_batches"}

NOT_OF_A_RUN = {
    "decide/planning_sample.py": {"means"},
    "decide/run_input.py": {"self._means()"},
    "decide/run_lesson.py": {"run.known_costs"},
    "decide/split_planning.py": {"run.known_means"},
    "replay/variants.py": {"listed"},
    "replay/snapshots.py": {"listed"},
    "show/page/bundles.py": {"storage.state / state.costs"},
    "show/page/timeline.py": {"self.file"},
    # It copies tables into the history, and compares their versions there.
    "maintenance/compaction.py": {"part", "target"},
}
"""What else is read with `READS`: files of the state, and the history of a day."""

SPARKS_OWN = "spark_apps/pulsar_rebalancer_spark/bundles.py"
"""Spark reads the table of bundles itself, on the executors."""


def test_only_run_and_collect_open_the_tables_of_a_run() -> None:
    files = {
        str(file.relative_to(ROOT)): ast.parse(file.read_text(encoding="utf-8"))
        for folder in ("include/pulsar_rebalancer", "plugins", "spark_apps")
        for file in sorted((ROOT / folder).rglob("*.py"))
    }
    named = {file for file, tree in files.items() if any(map(TABLE.search, _texts(tree)))}
    others = {file: tree for file, tree in files.items() if not file.startswith(OPENERS)}

    assert {file for file in named if file.startswith(OPENERS)}
    assert named & others.keys() == {SPARKS_OWN}
    assert {file for file, tree in others.items() if _imports_opener(tree)} == set()
    read = {file.removeprefix("include/pulsar_rebalancer/"): _read(tree) for file, tree in others.items()}
    assert {file: what for file, what in read.items() if what} == NOT_OF_A_RUN


def _read(tree: ast.Module) -> set[str]:
    """What the module reads Parquet files from."""
    called = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return {ast.unparse(of.value) for of in called if isinstance(of, ast.Attribute) and of.attr in READS}


def _imports_opener(tree: ast.Module) -> bool:
    imported = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {f"{getattr(node, 'module', '')}.{alias.name}" for node in imported for alias in node.names}
    return any(name.endswith(("pyarrow.parquet", "compacted_tables.opened")) for name in names)


def _texts(tree: ast.Module) -> list[str]:
    """The texts of a module that are no part of another text, as names of files are."""
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts
    ]
