"""The simulated cluster as a child process."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pulsar_rebalancer_airflow.embedded import EmbeddedError

if TYPE_CHECKING:
    from pathlib import Path

    from pydantic import JsonValue

    from pulsar_rebalancer_airflow.embedded.processes import Processes

_START_SECONDS = 60


@dataclass(frozen=True)
class SimulatedCluster:
    """A running simulated cluster.

    Attributes:
        urls: base URL of every broker.
        token: super-user token, from a file that only its owner may read.
    """

    urls: list[str]
    token: str

    def connection(self) -> dict[str, JsonValue]:
        """Return the Airflow connection to it."""
        host, _, port = self.urls[0].removeprefix("http://").partition(":")
        return {"conn_type": "pulsar_admin", "schema": "http", "host": host, "port": int(port), "password": self.token}


def start(
    processes: Processes, folder: Path, *, brokers: int = 8, bundles: int = 200, seed: int = 1, hot_score: float = 85
) -> SimulatedCluster:
    """Start a simulated cluster and wait until its brokers answer.

    Args:
        hot_score: score of its hot broker, percent.

    Raises:
        EmbeddedError: it ended, or is not ready within a minute.
    """
    folder.mkdir(parents=True, exist_ok=True)
    ready, token, log = folder / "ready.json", folder / "token", folder / "simulation.log"
    ready.unlink(missing_ok=True)
    command = [
        sys.executable,
        "-m",
        "pulsar_simulator",
        "--token-file",
        str(token),
        "--ready-file",
        str(ready),
    ]
    # New figures every second: otherwise a run right after another would not see its moves, and move too much.
    command += ["--stats-period", "1", "--host-check-period", "1"]
    command += ["--brokers", str(brokers), "--bundles", str(bundles), "--seed", str(seed)]
    command += ["--hot-score", str(hot_score)]
    processes.start("the simulated cluster", command, os.environ, log)
    limit = time.monotonic() + _START_SECONDS
    while not ready.exists():
        processes.check()
        if time.monotonic() > limit:
            raise EmbeddedError(f"the simulated cluster was not ready within {_START_SECONDS} s; see {log}")
        time.sleep(0.1)
    return SimulatedCluster(json.loads(ready.read_text())["urls"], token.read_text().strip())
