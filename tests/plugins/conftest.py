from __future__ import annotations

import tests.airflow_home  # noqa: F401 - before anything of Airflow

# isort: split

import json
from typing import TYPE_CHECKING

import pytest
from tests.airflow_context import MemoryState
from tests.airflow_runs import CLUSTER

from pulsar_rebalancer.simulation.clock import RealClock
from pulsar_rebalancer.simulation.load import QUIET
from pulsar_rebalancer.simulation.scenario import build
from pulsar_rebalancer.simulation.serve import running
from pulsar_rebalancer.storage import ClusterStorage

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pulsar_rebalancer.simulation.serve import Running


@pytest.fixture
def storage(tmp_path: Path) -> ClusterStorage:
    return ClusterStorage(str(tmp_path), CLUSTER)


@pytest.fixture
def state() -> MemoryState:
    return MemoryState()


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    """A simulated cluster over HTTP, and the connection `pulsar_test` to it."""
    cluster = build(brokers=4, bundles=40, noise=QUIET, clock=RealClock())
    with running(cluster) as found:
        monkeypatch.setenv("AIRFLOW_CONN_PULSAR_TEST", connection_document(found))
        yield found


def connection_document(served: Running, **extra: object) -> str:
    host = ",".join(url.removeprefix("http://") for url in served.urls)
    return json.dumps({"conn_type": "pulsar_admin", "host": host, "password": served.token, "extra": extra})
