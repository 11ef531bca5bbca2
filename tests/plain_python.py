"""Commands of the domain, in a Python in which Airflow, Spark and Great Expectations cannot be imported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_INCLUDE = Path(__file__).parents[1] / "include"


def run_without_frameworks(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a module as a program, and return its end with what it printed."""
    program = (
        "import runpy, sys\n"
        "sys.modules.update(airflow=None, pyspark=None, great_expectations=None)\n"
        f"runpy.run_module({module!r}, run_name='__main__')\n"
    )
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env=os.environ | {"PYTHONPATH": str(_INCLUDE)},
        capture_output=True,
        text=True,
        check=False,
    )
