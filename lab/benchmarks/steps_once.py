"""The Spark application with a clock in it: `spark-submit steps_once.py ROOT RUN FILE`.

Writes to the file, as JSON: the times of its steps, in seconds of the epoch, and the seconds of its calls into Java.
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
    times = {"begun": time.time(), "calls": 0.0, "queries": 0.0}
    application: Any = import_module("pulsar_rebalancer_spark.application")
    gateway: Any = import_module("py4j.java_gateway").GatewayClient
    send, session = gateway.send_command, application.session

    def timed(self: Any, command: str, *rest: Any, **named: Any) -> Any:
        begun = time.time()
        try:
            return send(self, command, *rest, **named)
        finally:
            if "session" in times:
                queries = any(command.split("\n")[2:3] == [name] for name in _QUERIES)
                times["queries" if queries else "calls"] += time.time() - begun
                if queries:
                    times["queried"] = time.time()

    def noted() -> Any:
        spark = session()
        times["session"] = time.time()
        return spark

    gateway.send_command, application.session = timed, noted
    sys.argv[1:] = ["--root", root, "--run", run]
    code = int(application.main())
    Path(file).write_text(json.dumps(times | {"ended": time.time()}), encoding="utf-8")
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
