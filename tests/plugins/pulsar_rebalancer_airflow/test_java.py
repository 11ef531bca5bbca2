"""One Java for set-up, class archive and Spark: that of JAVA_HOME if it is set, else the first on PATH."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pulsar_rebalancer_airflow.embedded.airflow_home import CHECKOUT

NO_SUCH = "no-such"

# JAVA_HOME's version, that on PATH, which is found; an error's part if none is.
CASES = [
    (None, 17, 17, ""),
    (21, None, 21, ""),
    (21, 17, 21, ""),
    (11, 17, None, "JAVA_HOME="),
    (NO_SUCH, 17, None, "JAVA_HOME="),
    (None, 11, None, "install a JRE"),
    (None, None, None, "install a JRE"),
]


def place(folder: Path, version: int | str | None) -> Path:
    folder.mkdir(parents=True)
    if isinstance(version, int):
        (folder / "java").write_text(f"#!/bin/sh\necho 'openjdk version \"{version}.0.1\" 2026-01-01' >&2\n")
        (folder / "java").chmod(0o700)
    return folder


@pytest.fixture(params=CASES, ids=str)
def case(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[int | None, str]:
    home, path, found, complaint = request.param
    monkeypatch.setenv("PATH", str(place(tmp_path / "path", path)))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    if home is not None:
        monkeypatch.setenv("JAVA_HOME", str(place(tmp_path / "home" / "bin", home).parent))
    return found, complaint


def test_set_up_judges_the_same_java(case: tuple[int | None, str], tmp_path: Path) -> None:
    found, complaint = case
    tree, commands = tmp_path / "tree", Path(os.environ["PATH"])
    for name in ("scripts", ".venv/bin"):
        (tree / name).mkdir(parents=True)
    shutil.copy(CHECKOUT / "scripts" / "setup.sh", tree / "scripts")
    for name in ("requirements.lock", "pyproject.toml"):
        (tree / name).touch()
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"  # SHA-256 of nothing
    (tree / ".venv" / ".stamp").write_text(f"{empty}\n")
    (tree / ".venv" / "bin" / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (tree / ".venv" / "bin" / "python").chmod(0o700)
    for name in ("sh", "bash", "cat", "cut", "dirname", "id", "sha256sum"):  # and no apt-get
        (commands / name).symlink_to(next(p for p in (Path("/bin", name), Path("/usr/bin", name)) if p.exists()))

    done = subprocess.run([commands / "bash", tree / "scripts" / "setup.sh"], capture_output=True, text=True)

    assert (done.returncode == 0) is bool(found), done.stderr
    assert complaint in done.stderr
