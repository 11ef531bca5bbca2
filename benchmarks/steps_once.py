"""The Spark application with a clock in it: `spark-submit steps_once.py ROOT RUN FILE`.

Writes the times of its steps, in seconds of the epoch, and what its calls into Java took, as JSON to the file.
"""

from __future__ import annotations

import json
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

_QUERIES = ("parquet", "collectToPython", "collectAsArrowToPython")
"""Methods that wait for a query; reading Parquet is among them and takes little."""


def main(root: str, run: str, file: str) -> int:
    """Decide the run; returns the application's exit code."""
    times = {"begun": time.time()}
    application: Any = import_module("pulsar_rebalancer_spark.application")
    gateway: Any = import_module("py4j.java_gateway").GatewayClient
    send, session = gateway.send_command, application.session
    calls: list[float] = []

    def timed(self: Any, command: str, *rest: Any, **named: Any) -> Any:
        begun = time.perf_counter()
        try:
            return send(self, command, *rest, **named)
        finally:
            if "session" in times and command.split("\n")[2:3] not in [[each] for each in _QUERIES]:
                calls.append(time.perf_counter() - begun)

    def noted() -> Any:
        found = session()
        times["session"] = time.time()
        return found

    gateway.send_command, application.session = timed, noted
    sys.argv[1:] = ["--root", root, "--run", run]
    code = int(application.main())
    times["ended"] = time.time()
    Path(file).write_text(json.dumps(times | {"calls": len(calls), "call_seconds": sum(calls)}), encoding="utf-8")
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
