"""The example of docs/simulation.md against a simulated cluster of its own, as a reader would type it."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.project.documentation import commands_in_blocks

PAGE = "simulation.md"
START, *ASKED, _ = commands_in_blocks(PAGE)  # the last one is `make run`: tested with the other commands
FIRST_PORT = 18080


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[list[str]]:
    """What the documented command starts, on ports that are free: its brokerIds."""
    words = shlex.split(START.replace(f"--port {FIRST_PORT}", "--port 0"))
    assert words[0] == "python"
    environment = {name: value for name, value in os.environ.items() if name != "PULSAR_SIMULATION_TOKEN"}
    command = [sys.executable, *words[1:]]
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            ready = json.loads(process.stdout.readline())
            assert set(ready) == {"cluster", "urls", "brokers", "pid"}
            yield ready["brokers"]
        finally:
            process.terminate()


def test_the_example(brokers: list[str], tmp_path: Path) -> None:
    script = "\necho; echo ----\n".join(ASKED)
    for number, broker in enumerate(brokers):
        script = script.replace(f"127.0.0.1:{FIRST_PORT + number}", broker)
    done = subprocess.run(["bash", "-e", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    _, listed, sound, state, fault, broken, cleared = done.stdout.split("\n----\n")

    assert json.loads(listed) == brokers
    assert {"leader", "brokers", "owners", "affinities", "faults"} <= json.loads(state).keys()
    assert json.loads(fault)["kind"] == "nan_usage"
    assert [_cpu(sound) == "NaN", _cpu(broken) == "NaN"] == [False, True]
    assert cleared.strip() == ""


def _cpu(report: str) -> Any:
    return json.loads(report)["cpu"]["usage"]
