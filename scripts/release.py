"""Build the distributions into dist/ and check them; `--tag` also tags the commit as a release.

Nothing is tagged while the metadata lacks a field that only the publisher knows.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PARTS = (ROOT, ROOT / "include" / "pulsar_rebalancer", ROOT / "include" / "pulsar_simulator")
"""Folders of the distributions: Airflow's and Spark's side, the domain, the simulated cluster."""
URLS = ("Source", "Issues", "Documentation", "Changelog")
"""Addresses that a release needs, in `[project.urls]`."""


def metadata(folder: Path) -> dict[str, Any]:
    """Return the table `[project]` of a folder's `pyproject.toml`."""
    project: dict[str, Any] = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    return project


def missing(project: dict[str, Any]) -> list[str]:
    """Return the metadata that a release needs and `pyproject.toml` lacks, one line per field."""
    people = [*project.get("authors", ()), *project.get("maintainers", ())]
    lines = [] if any({"name", "email"} <= person.keys() for person in people) else ["authors: a name and an email"]
    return lines + [f"urls.{name}: an address" for name in URLS if not project.get("urls", {}).get(name)]


def problems(version: str) -> list[str]:
    """Return why this commit cannot be tagged as a release, one line per reason."""
    lines = []
    for folder in PARTS:
        project, name = metadata(folder), (folder / "pyproject.toml").relative_to(ROOT)
        lines += [f"{name} lacks {field}" for field in missing(project)]
        if project["version"] != version:
            lines.append(f"{name} has version {project['version']}: all are released as {version}")
    if not re.search(rf"^## {re.escape(version)} \(\d{{4}}-\d\d-\d\d\)$", (ROOT / "CHANGELOG.md").read_text(), re.M):
        lines.append(f"CHANGELOG.md has no heading '## {version} (<date>)'")
    if _output("git", "status", "--porcelain"):
        lines.append("the working tree has changes that are not committed")
    if _output("git", "tag", "--list", f"v{version}"):
        lines.append(f"the tag v{version} exists: raise the version")
    return lines


def build() -> None:
    """Build the source distribution and all wheels, and check them with twine and check-wheel-contents."""
    shutil.rmtree(ROOT / "dist", ignore_errors=True)
    command = (sys.executable, "-m", "build", "--no-isolation", "--outdir", str(ROOT / "dist"))
    for part in ((str(ROOT),), *(("--wheel", str(folder)) for folder in PARTS[1:])):
        subprocess.run([*command, *part], check=True, stdout=subprocess.DEVNULL)
    made = sorted(map(str, (ROOT / "dist").iterdir()))
    subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *made], check=True)
    wheels = [name for name in made if name.endswith(".whl")]
    subprocess.run([sys.executable, "-m", "check_wheel_contents", *wheels], check=True, cwd=ROOT)


def main(arguments: list[str]) -> int:
    """Build and check; with `--tag` refuse first if something is missing, and tag at the end."""
    version = metadata(ROOT)["version"]
    found = problems(version) if arguments == ["--tag"] else []
    if found:
        print("not released:", *found, sep="\n  ", file=sys.stderr)
        return 1
    build()
    if arguments == ["--tag"]:
        tag = f"v{version}"
        subprocess.run(["git", "tag", "--annotate", tag, "--message", tag], check=True, cwd=ROOT)
        print(f"tagged {tag}; push it to publish")
    return 0


def _output(*command: str) -> str:
    return subprocess.run(command, check=True, cwd=ROOT, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except subprocess.CalledProcessError as error:
        sys.exit(f"not released: {error}")
