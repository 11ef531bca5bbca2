"""`browser`: the page of a cluster in Chromium, from its address to its first content, next to an empty page."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import httpx
import tests.airflow_home  # noqa: F401 - before anything of Airflow

# isort: split

import yaml
from airflow.utils import db
from tests.airflow_server import airflow_server
from tests.browser import browser
from tests.overview_scene import Scene, history, uneven

from lab.benchmarks.measure import BenchmarkError, Comparison, Goal, Taken
from pulsar_rebalancer_airflow.options import CLUSTERS_VARIABLE, STORAGE_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.browser import Browser

BROKERS = (3, 200)
GOAL = Goal.fixed(1.0)
MOST_BYTES = 300_000
RUNS = 30


_NOTED = """new MutationObserver((_, observer) => {
  if (!document.querySelector('h1 .word')) return;
  window.firstContent = performance.now();
  observer.disconnect();
}).observe(document, {childList: true, subtree: true})"""
"""Runs in each page before anything of its own does."""

_CONTENT = "window.firstContent"
_LOADED = "performance.getEntriesByType('navigation')[0].loadEventEnd"


def measure(repetitions: int, only: str) -> Iterator[Comparison]:
    """Open the page of a cluster that nobody has looked at before and an empty page, by turns, repeatedly."""
    names = [f"{brokers} brokers" for brokers in BROKERS]
    with tempfile.TemporaryDirectory() as folder, _served(Path(folder), repetitions) as url, browser() as chromium:
        token = httpx.post(f"{url}/auth/token", json={"username": "vera", "password": "vera"}).json()["access_token"]
        chromium.send("Network.setCookie", name="_token", value=token, url=url)
        chromium.send("Page.addScriptToEvaluateOnNewDocument", source=_NOTED)
        chromium.size(1200, 900)
        _opened(chromium, f"{url}/pulsar_rebalancer/page/pulsar_rebalance__warm", _CONTENT)  # imports, code of the page
        for brokers, name in zip(BROKERS, names, strict=True):
            if only not in name:
                continue
            taken: dict[str, list[Taken]] = {"first content": [], "empty page": []}
            for number in range(repetitions):
                chromium.requests.clear()
                address = f"{url}/pulsar_rebalancer/page/pulsar_rebalance__of-{brokers}-{number}"
                taken["first content"].append(Taken(_opened(chromium, address, _CONTENT)))
                taken["empty page"].append(Taken(_opened(chromium, f"{url}/api/v2/version", _LOADED)))
            size = _bytes(set(chromium.requests), token)
            if size > MOST_BYTES:
                raise BenchmarkError(f"{name}: {size:,} bytes, at most {MOST_BYTES:,}")
            remark = f"{size / 1000:.0f} kB"
            yield Comparison(name, taken, GOAL, notes={"bytes": size}, remark=remark)


def _opened(chromium: Browser, address: str, until: str) -> float:
    """Return the seconds from the address on."""
    chromium.open("about:blank")
    chromium.open(address)
    return float(chromium.until(f"location.href === {address!r} && {until}")) / 1000


def _bytes(addresses: set[str], token: str) -> int:
    with httpx.Client(headers={"Authorization": f"Bearer {token}"}) as client:
        asked = [address for address in addresses if "/pulsar_rebalancer/" in address]
        return sum(len(client.get(address).raise_for_status().content) for address in asked)


@contextmanager
def _served(folder: Path, repetitions: int) -> Iterator[str]:
    """Serve clusters of each size, as many as there are repetitions: nothing of them is known to the server yet."""
    clusters: dict[str, Any] = {"warm": {"mode": "auto"}}
    root = folder / "root"
    history(Scene(str(root), uneven(3), cluster="warm"), datetime.now(UTC), 1)
    for brokers in BROKERS:
        first = f"of-{brokers}-0"
        history(Scene(str(root), uneven(brokers), cluster=first), datetime.now(UTC), RUNS)
        for number in range(repetitions):
            clusters[f"of-{brokers}-{number}"] = {"mode": "auto"}
            if number:
                shutil.copytree(root / first, root / f"of-{brokers}-{number}")
    (folder / "clusters.yaml").write_text(yaml.safe_dump({"clusters": clusters}))
    where = {CLUSTERS_VARIABLE: str(folder / "clusters.yaml"), STORAGE_VARIABLE: str(root)}
    with mock.patch.dict("os.environ", where):
        db.initdb()
        with airflow_server() as url:
            yield url
