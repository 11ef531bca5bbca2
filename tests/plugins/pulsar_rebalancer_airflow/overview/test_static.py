"""The logic of the page's JavaScript, by its own tests; a browser shows the rest in tests/integration/test_page*.py."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[4]
DENO = Path(sys.executable).parent / "deno"
FILES = sorted((Path(__file__).parent / "static").glob("test_*.js"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_logic(file: Path) -> None:
    done = subprocess.run(
        [DENO, "test", "--no-check", "--allow-net=127.0.0.1", file],
        cwd=ROOT,
        env=os.environ | {"DENO_DIR": str(ROOT / ".cache" / "deno"), "NO_COLOR": "1", "TZ": "UTC"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
