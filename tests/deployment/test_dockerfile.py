"""The image cannot be built where there is no container engine: what can be known without one."""

import re

from packaging.utils import canonicalize_name
from tests.deployment.compose import SOURCE

DOCKERFILE = (SOURCE / "Dockerfile").read_text()
STAGES = re.split(r"^FROM ", DOCKERFILE, flags=re.MULTILINE)[1:]


def locked() -> dict[str, str]:
    lines = re.findall(r"^([A-Za-z0-9._-]+)==(\S+)", (SOURCE / "requirements.lock").read_text(), flags=re.MULTILINE)
    return {canonicalize_name(name): version for name, version in lines}


def test_the_base_is_pinned_to_the_locked_airflow() -> None:
    images = [stage.split()[0].partition("@")[0] for stage in STAGES]
    assert images == [f"apache/airflow:{locked()['apache-airflow']}-python3.11"] * 2


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
