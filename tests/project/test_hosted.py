"""Files for a hosted repository and for pre-commit are of their schemas, and run targets that exist."""

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
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


@pytest.mark.parametrize(("path", "schema"), FILES, ids=lambda each: Path(each).stem)
def test_files_are_of_their_schema(path: Path, schema: str) -> None:
    known = json.loads((files("check_jsonschema") / f"builtin_schemas/vendor/{schema}.json").read_text())
    jsonschema.validate(load(path), known)


def test_only_the_job_that_publishes_may_ask_for_an_identity() -> None:
    for path in (HOSTED / "workflows").glob("*.yml"):
        document = load(path)
        assert document["permissions"] == {"contents": "read"}
        asking = {name: job["permissions"] for name, job in document["jobs"].items() if "permissions" in job}
        assert asking == ({"publish": {"id-token": "write"}} if path.stem == "publish" else {})
