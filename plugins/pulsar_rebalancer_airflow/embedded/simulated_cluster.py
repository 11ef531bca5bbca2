"""Run the simulated cluster as a child process."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pulsar_rebalancer_airflow.embedded import EmbeddedError

if TYPE_CHECKING:
    from pathlib import Path

    from pydantic import JsonValue

    from pulsar_rebalancer_airflow.embedded.processes import Processes

_START_SECONDS = 60


def start(
    processes: Processes, folder: Path, *, brokers: int = 8, bundles: int = 200, hot_score: float = 85
) -> dict[str, JsonValue]:
    """Start a simulated cluster, wait until its brokers answer, and return the Airflow connection to it.

    Args:
        hot_score: score of the hot broker in percent.

    Raises:
        EmbeddedError: the simulated cluster ended, or is not ready within a minute.
    """
    folder.mkdir(parents=True, exist_ok=True)
    ready, token, log = folder / "ready.json", folder / "token", folder / "simulation.log"
    ready.unlink(missing_ok=True)
    options = {"token-file": token, "ready-file": ready, "brokers": brokers, "bundles": bundles, "hot-score": hot_score}
    # New figures every second: otherwise a run would not see the moves of the run just before, and move too much.
    options |= {"stats-period": 1, "host-check-period": 1}
    command = [sys.executable, "-m", "pulsar_simulator", *(f"--{name}={value}" for name, value in options.items())]
    processes.start("the simulated cluster", command, os.environ, log)
    limit = time.monotonic() + _START_SECONDS
    while not ready.exists():
        processes.check()
        if time.monotonic() > limit:
            raise EmbeddedError(f"the simulated cluster was not ready within {_START_SECONDS} s; see {log}")
        time.sleep(0.1)
    url, password = urlsplit(json.loads(ready.read_text())["urls"][0]), token.read_text().strip()
    return {"conn_type": "pulsar_admin", "schema": "http", "host": url.hostname, "port": url.port, "password": password}
