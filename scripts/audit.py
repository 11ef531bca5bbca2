"""Asks a vulnerability service about every package of requirements.lock; 1 when it knows of one.

`uv audit` asks, and reads its own kind of lock: one is made of ours for it. An unreachable service is reported,
and is no failure: a network without it can still run everything else. Arguments go to `uv audit`, as `--ignore ID`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

LOCK = Path(__file__).resolve().parents[1] / "requirements.lock"
UV = Path(sys.executable).parent / "uv"
SECONDS = 50
_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", re.MULTILINE)
_UNREACHABLE = re.compile(r"error sending request|dns error|timed out|Request failed", re.IGNORECASE)
_HEAD = 'version = 1\nrevision = 3\nrequires-python = ">=3.11"\n'


def pins(lock: str) -> list[tuple[str, str]]:
    """Names and versions of a lock, in its order."""
    return list(dict.fromkeys((name.lower().replace("_", "-"), version) for name, version in _PIN.findall(lock)))


def uv_lock(packages: list[tuple[str, str]]) -> str:
    """Return a lock of uv with these packages below a project `locked`."""
    source = 'source = { registry = "." }'
    entries = [f'[[package]]\nname = "{name}"\nversion = "{version}"\n{source}' for name, version in packages]
    needed = ", ".join(f'{{ name = "{name}", version = "{version}", {source} }}' for name, version in packages)
    wanted = ", ".join(f'{{ name = "{name}", specifier = "=={version}" }}' for name, version in packages)
    root = f'[[package]]\nname = "locked"\nversion = "0"\nsource = {{ virtual = "." }}\ndependencies = [{needed}]\n'
    return "\n\n".join([_HEAD, *entries, f"{root}\n[package.metadata]\nrequires-dist = [{wanted}]\n"])


def audit(lock: str, arguments: list[str]) -> tuple[int, str]:
    """Exit code and what to say."""
    packages = pins(lock)
    with tempfile.TemporaryDirectory() as folder:
        project = '[project]\nname = "locked"\nversion = "0"\nrequires-python = ">=3.11"\ndependencies = [{}]\n'
        wanted = ", ".join(f'"{name}=={version}"' for name, version in packages)
        (Path(folder) / "pyproject.toml").write_text(project.format(wanted))
        (Path(folder) / "uv.lock").write_text(uv_lock(packages))
        command = [str(UV), "audit", "--preview", "--no-progress", "--frozen", *arguments]
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                env=os.environ | {"UV_HTTP_TIMEOUT": "15", "UV_HTTP_RETRIES": "1"},
                capture_output=True,
                text=True,
                timeout=SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return 0, f"NOT CHECKED: no answer of the vulnerability service within {SECONDS} s"
    said = f"{done.stdout}{done.stderr}".strip()
    if done.returncode and not done.stdout.strip() and _UNREACHABLE.search(done.stderr):
        return 0, f"NOT CHECKED: the vulnerability service cannot be reached\n{done.stderr.strip()}"
    return int(done.returncode != 0), f"{len(packages)} packages of {LOCK.name}\n{said}"


if __name__ == "__main__":
    code, text = audit(LOCK.read_text(encoding="utf-8"), sys.argv[1:])
    print(f"audit: {text}", file=sys.stderr if code else sys.stdout)
    sys.exit(code)
