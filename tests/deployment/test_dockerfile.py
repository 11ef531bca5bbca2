"""The image cannot be built where there is no container engine: what can be known without one."""

import re
import tomllib
from importlib.metadata import requires

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tests.deployment.compose import SOURCE

DOCKERFILE = (SOURCE / "Dockerfile").read_text()
STAGES = re.split(r"^FROM ", DOCKERFILE, flags=re.MULTILINE)[1:]
PROJECTS = [
    tomllib.loads((SOURCE / folder / "pyproject.toml").read_text())["project"]
    for folder in (".", "include/pulsar_rebalancer")
]


def locked() -> dict[str, str]:
    lines = re.findall(r"^([A-Za-z0-9._-]+)==(\S+)", (SOURCE / "requirements.lock").read_text(), flags=re.MULTILINE)
    return {canonicalize_name(name): version for name, version in lines}


def test_the_base_is_pinned_to_the_locked_airflow() -> None:
    images = [stage.split()[0].partition("@")[0] for stage in STAGES]
    assert images == [f"apache/airflow:{locked()['apache-airflow']}-python3.11"] * 2


def test_image_runs_as_airflow_and_not_as_root() -> None:
    for stage in STAGES:
        assert re.findall(r"^USER (\S+)$", stage, flags=re.MULTILINE)[-1] == "airflow"


def test_image_user_cannot_change_the_code() -> None:
    """The user's group is root's, so the group may not write either."""
    build, final = STAGES
    copies = re.findall(r"^COPY (.*) (\S+)$", final, flags=re.MULTILINE)
    assert len(copies) == 3
    assert all("--chown=root:root" in options for options, _ in copies), copies
    protected = re.findall(r"chmod -R a\+rX,go-w (.*)$", build + final, flags=re.MULTILINE)
    for _, target in copies:
        assert any(target.startswith(place) for places in protected for place in places.split()), target
    assert len(re.findall(r"^USER ", final, flags=re.MULTILINE)) == 2
    assert final.rstrip().endswith("USER airflow")
    joined = re.sub(r"\\\n", " ", final)
    owned = {part for line in re.findall("--owner=airflow(.*)", joined) for part in line.split() if part[0] == "/"}
    assert owned == {f"/opt/airflow/{name}" for name in ("auth", "spark", "storage", "work")}


def test_hashes_are_checked_wherever_packages_are_installed() -> None:
    commands = re.sub(r"\\\n", " ", DOCKERFILE)
    installs = re.findall(r"(?:pip install|uv build) (.*?)(?:&&|$)", commands, flags=re.MULTILINE)
    assert len(installs) == 5
    assert all(
        "--require-hashes" in install or ("--no-deps" in install and "dist/*.whl" in install) for install in installs
    )


def test_the_lock_holds_all_that_the_image_needs() -> None:
    extras = re.findall(r"--extra (\w+)", DOCKERFILE)
    assert {"postgres", "kubernetes"} <= set(extras)
    wanted = [each for project in PROJECTS for each in project["dependencies"]]
    wanted += [
        each for project in PROJECTS for name in extras for each in project["optional-dependencies"].get(name, ())
    ]
    known, seen = locked(), set()
    waiting = [needed for needed in map(Requirement, wanted) if needed.name != PROJECTS[1]["name"]]
    while waiting:
        requirement = waiting.pop()
        key = (canonicalize_name(requirement.name), frozenset(requirement.extras))
        if key in seen:
            continue
        seen.add(key)
        assert key[0] in known, requirement
        assert requirement.specifier.contains(known[key[0]], prereleases=True), requirement
        for text in requires(requirement.name) or ():
            needed = Requirement(text)
            extras = ["", *requirement.extras]
            if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in extras):
                waiting.append(needed)
    assert len(seen) > 100
