"""A Spark Connect server for tests, which decides for all runs that are given its connection."""

import os
import re
import shlex
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from airflow.sdk import Connection
from tests.patience import PATIENCE
from tests.project.documentation import commands_in_blocks

from pulsar_rebalancer_airflow.operators.spark_application import driver_environment

TOKEN = "known-to-server-and-connection"


class SparkConnectServer:
    """A Spark Connect server as operations.md says, without any Python."""

    def __init__(self, folder: Path, port: str = "0") -> None:
        self.log = folder / "server.log"
        own = {
            "spark.connect.grpc.binding.port": port,
            "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
            "spark.driver.memory": "1g",
        }
        (documented,) = [each for each in commands_in_blocks("operations.md") if "SparkConnectServer" in each]
        token, *command, last = shlex.split(documented.replace("\\ ", "").replace("<token>", TOKEN))
        options = [part for name, value in own.items() for part in ("--conf", f"{name}={value}")]
        with driver_environment():
            self.process = subprocess.Popen(
                [*command, *options, last],
                env=os.environ | dict([token.split("=")]) | {"PYSPARK_PYTHON": "/no/python/on/the/server"},
                cwd=folder,
                stdout=self.log.open("w"),
                stderr=subprocess.STDOUT,
            )
        started = r"Spark Connect server started at: \S*:(\d+)\s"
        self.await_line(started)
        (self.port,) = re.findall(started, self.log.read_text())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait()

    def fields(self, token: str = TOKEN) -> dict[str, Any]:
        """What an Airflow connection to it holds."""
        return {"conn_type": "spark_connect", "host": "127.0.0.1", "port": int(self.port), "password": token}

    def connection(self, token: str = TOKEN) -> Connection:
        return Connection(conn_id="connect", **self.fields(token))

    def await_line(self, pattern: str) -> None:
        self.until(lambda: re.search(pattern, self.log.read_text()) is not None)

    def until(self, true: Callable[[], bool]) -> None:
        limit = time.monotonic() + PATIENCE
        while not true():
            assert self.process.poll() is None, self.log.read_text()[-2000:]
            assert time.monotonic() < limit, self.log.read_text()[-2000:]
            time.sleep(0.05)
