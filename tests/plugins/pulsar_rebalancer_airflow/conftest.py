import tests.airflow_home  # noqa: F401 - before anything of Airflow

# isort: split

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.airflow_context import MemoryState
from tests.airflow_runs import CLUSTER
from tests.plugins.pulsar_rebalancer_airflow.notifications.receivers import Webhook, connect, webhook

from pulsar_rebalancer.storage.documents import ClusterStorage
from pulsar_rebalancer_airflow.options import STORAGE_VARIABLE
from pulsar_simulator.load import NO_NOISE
from pulsar_simulator.scenario import build_cluster
from pulsar_simulator.serve import RunningCluster, serve
from pulsar_simulator.timeline import RealClock


@pytest.fixture
def storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClusterStorage:
    monkeypatch.setenv(STORAGE_VARIABLE, str(tmp_path))
    return ClusterStorage(str(tmp_path), CLUSTER)


@pytest.fixture
def state() -> MemoryState:
    return MemoryState()


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Webhook]:
    """A webhook that is the one receiver of the connection `alerts`."""
    with webhook() as found:
        connect(monkeypatch, found.url)
        yield found


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningCluster]:
    """A simulated cluster over HTTP, and the connection `pulsar_test` to it."""
    cluster = build_cluster(brokers=4, bundles=40, noise=NO_NOISE, clock=RealClock())
    with serve(cluster) as found:
        monkeypatch.setenv("AIRFLOW_CONN_PULSAR_TEST", connection_document(found))
        yield found


def connection_document(served: RunningCluster, **extra: object) -> str:
    host = ",".join(url.removeprefix("http://") for url in served.urls)
    return json.dumps({"conn_type": "pulsar_admin", "host": host, "password": served.token, "extra": extra})
