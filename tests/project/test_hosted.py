"""Files for a hosted repository and for pre-commit are of their schemas, and run targets that exist."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
from packaging.specifiers import SpecifierSet
from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parents[2]
HOSTED = ROOT / ".github"
SCHEMAS = {
    "workflows/*.yml": "github-workflows",
    "ISSUE_TEMPLATE/[!c]*.yml": "github-issue-forms",
    "ISSUE_TEMPLATE/config.yml": "github-issue-config",
    "dependabot.yml": "dependabot",
}
FILES = [(path, schema) for pattern, schema in SCHEMAS.items() for path in sorted(HOSTED.glob(pattern))]


def load(path: Path) -> Any:
    """A document of YAML 1.2, in which `on` is no boolean."""
    return YAML(typ="safe").load(path)


CI: dict[str, Any] = load(HOSTED / "workflows" / "ci.yml")


def test_every_file_is_checked() -> None:
    assert {path for path, _ in FILES} == set(HOSTED.rglob("*.yml"))


@pytest.mark.parametrize(("path", "schema"), FILES, ids=lambda each: Path(each).stem)
def test_files_are_of_their_schema(path: Path, schema: str) -> None:
    known = json.loads((files("check_jsonschema") / f"builtin_schemas/vendor/{schema}.json").read_text())
    jsonschema.validate(load(path), known)


def test_workflows_run_targets_that_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    run = {name for path, _ in FILES for name in re.findall(r"run: make ([a-z-]+)", path.read_text())}
    assert {"lint", "audit", "test", "coverage", "test-sdist", "test-versions", "wheel"} <= run <= targets


def test_tests_run_on_every_python_that_the_package_supports() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    supported = SpecifierSet(project["requires-python"])
    expected = [f"3.{minor}" for minor in range(30) if supported.contains(f"3.{minor}")]
    job = CI["jobs"]["test"]
    assert job["strategy"]["matrix"]["python"] == expected
    assert all("${{ matrix.python }}" in name for name in (job["container"], job["env"]["PYTHON"]))


def test_only_the_job_that_publishes_may_ask_for_an_identity() -> None:
    for path in (HOSTED / "workflows").glob("*.yml"):
        document = load(path)
        assert document["permissions"] == {"contents": "read"}
        asking = {name: job["permissions"] for name, job in document["jobs"].items() if "permissions" in job}
        assert asking == ({"publish": {"id-token": "write"}} if path.stem == "publish" else {})


def test_pre_commit_runs_make_lint_and_refuses_a_long_subject(tmp_path: Path) -> None:
    file = ROOT / ".pre-commit-config.yaml"
    subprocess.run([sys.executable, "-m", "pre_commit", "validate-config", file], check=True)
    (repository,) = load(file)["repos"]
    assert repository["repo"] == "local"
    lint, subject = repository["hooks"]
    assert lint["entry"] == "make lint"
    message = tmp_path / "message"
    for length, code in ((72, 0), (73, 1)):
        message.write_text(f"{'x' * length}\n\n{'a body may have longer lines ' * 3}\n")
        words = [*subject["args"], subject["entry"], message]
        assert subprocess.run([sys.executable, "-m", "pre_commit.languages.pygrep", *words]).returncode == code
