import json

import pytest
from tests.airflow_context import MemoryState
from tests.include.pulsar_rebalancer.pulsar.scripted_broker import closed_port
from tests.plugins.pulsar_rebalancer_airflow.operators.unload_scene import UnloadScene

from pulsar_rebalancer.carry_out import client_gap_meter
from pulsar_rebalancer.storage.documents import ClusterStorage
from pulsar_simulator.serve import RunningCluster

NOBODY = json.dumps({"conn_type": "pulsar_admin", "host": closed_port()})


@pytest.fixture(autouse=True)
def connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection `pulsar_test` is there; nobody answers unless a cluster is `served`."""
    monkeypatch.setenv("AIRFLOW_CONN_PULSAR_TEST", NOBODY)


@pytest.fixture
def scene(
    served: RunningCluster, storage: ClusterStorage, state: MemoryState, monkeypatch: pytest.MonkeyPatch
) -> UnloadScene:
    monkeypatch.setattr(client_gap_meter, "MAX_COUNT_BEFORE_S", 60.0)  # a busy machine has time
    return UnloadScene(served, storage, state, monkeypatch)
