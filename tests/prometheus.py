"""A real Prometheus with the alert rules of the project."""

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml
from tests.debian import installed
from tests.monitoring import FOLDER
from tests.patience import PATIENCE

from pulsar_rebalancer_airflow.embedded.airflow_home import find_free_port

MISSING = "Prometheus is missing: install it (Debian: apt-get install --no-install-recommends prometheus)"


@dataclass(frozen=True)
class Prometheus:
    """A Prometheus that scrapes one target every second."""

    url: str

    def get(self, path: str, **parameters: Any) -> Any:
        answer = httpx.get(f"{self.url}/api/v1/{path}", params=parameters, trust_env=False, timeout=PATIENCE).json()
        assert answer["status"] == "success", answer
        return answer["data"]

    def query(self, expression: str, at: float | None = None) -> dict[str, float]:
        """The values of an expression by label `cluster`, now or at a time; NaN counts as no value."""
        found = self.get("query", query=expression, **({} if at is None else {"time": at}))["result"]
        values = {each["metric"].get("cluster", ""): float(each["value"][1]) for each in found}
        return {cluster: value for cluster, value in values.items() if value == value}

    def until(self, expression: str, at: float | None = None) -> dict[str, float]:
        """The values of an expression as soon as it has any."""
        limit = time.monotonic() + PATIENCE
        while not (found := self.query(expression, at)):
            assert time.monotonic() < limit, expression
            time.sleep(0.1)
        return found


@contextmanager
def prometheus(folder: Path, target: int) -> Iterator[Prometheus]:
    """Start a Prometheus, and end it."""
    program = installed("prometheus", lambda: shutil.which("prometheus"))
    assert program, MISSING
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(FOLDER / "alert-rules.yaml")],
        "scrape_configs": [{"job_name": "airflow", "static_configs": [{"targets": [f"127.0.0.1:{target}"]}]}],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    port = find_free_port()
    options = [f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [program, *options, f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=subprocess.STDOUT
        )
        try:
            yield _ready(Prometheus(f"http://127.0.0.1:{port}"), process, folder / "log")
        finally:
            process.terminate()
            process.wait(timeout=PATIENCE)


def _ready(made: Prometheus, process: subprocess.Popen[bytes], log: Path) -> Prometheus:
    limit = time.monotonic() + PATIENCE
    while process.poll() is None and time.monotonic() < limit:
        try:
            if httpx.get(f"{made.url}/-/ready", trust_env=False).is_success:
                return made
        except httpx.TransportError:
            pass
        time.sleep(0.05)
    raise AssertionError(f"Prometheus did not start:\n{log.read_text()[-2000:]}")
