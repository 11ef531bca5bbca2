"""`decide` over a Spark Connect server that is warm, next to the same by spark-submit."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from lab.benchmarks import clusters, decide
from lab.benchmarks.measure import BenchmarkError, Comparison, Taken, alternately, process
from lab.benchmarks.spark import submit, submit_command
from pulsar_rebalancer.run.plan import Summary
from pulsar_rebalancer_airflow.embedded.airflow_home import find_free_port
from pulsar_rebalancer_airflow.operators.spark_application import app_path, driver_environment

if TYPE_CHECKING:
    from collections.abc import Iterator

NAME = "AvgShedder, 200 x 128, warm Spark Connect server"
SUBMITTED = "by spark-submit"
WARM_AFTER = 10
"""Runs until Java has compiled what they need; a server decides one a minute."""


def measure(repetitions: int) -> Comparison:
    """Measure the application by turns over a warm server and by spark-submit."""
    with tempfile.TemporaryDirectory() as root, server(Path(root)) as (_, address):
        run = clusters.make(root, 200, 128)
        asked = ["--root", root, "--run", run.uri]
        submitted = submit(app_path("application"), *asked)
        hashes = set()

        def connected() -> Taken:
            decide.forget(root)
            with driver_environment():
                taken = process([sys.executable, app_path("application"), *asked], os.environ | address)
            hashes.add(Summary.read(run).hash)
            return taken

        def alone() -> Taken:
            decide.forget(root)
            taken = submitted()
            hashes.add(Summary.read(run).hash)
            return taken

        for _ in range(WARM_AFTER):
            connected()
        taken = alternately({decide.APPLICATION: connected, SUBMITTED: alone}, repetitions)
    if len(hashes) != 1:
        raise BenchmarkError(f"{NAME}: {len(hashes)} plans")
    return Comparison(NAME, taken, notes={"hash": hashes.pop()})


@contextmanager
def server(folder: Path) -> Iterator[tuple[psutil.Process, dict[str, str]]]:
    """Start a Spark Connect server; yield its process, and the variables of its clients."""
    port, log = find_free_port(), folder / "server.log"
    own = {"spark.connect.grpc.binding.address": "127.0.0.1", "spark.connect.grpc.binding.port": str(port)}
    own |= {"spark.log.level": "INFO"}
    command = [
        *submit_command(**own),
        "--class",
        "org.apache.spark.sql.connect.service.SparkConnectServer",
        "spark-internal",
    ]
    with driver_environment(), log.open("w") as output:
        token = {"SPARK_CONNECT_AUTHENTICATE_TOKEN": secrets.token_urlsafe()}
        running = subprocess.Popen(command, env=os.environ | token, stdout=output, stderr=subprocess.STDOUT)
    try:
        while "Spark Connect server started" not in log.read_text():
            if running.poll() is not None:
                raise BenchmarkError(f"the Spark Connect server ended:\n{log.read_text()[-2000:]}")
            time.sleep(0.1)
        yield psutil.Process(running.pid), token | {"SPARK_REMOTE": f"sc://localhost:{port}"}
    finally:
        running.terminate()
        running.wait()
