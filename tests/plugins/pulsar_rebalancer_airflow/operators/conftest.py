from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.plugins.pulsar_rebalancer_airflow.operators.unload_scene import UnloadScene

if TYPE_CHECKING:
    from tests.airflow_context import MemoryState

    from pulsar_rebalancer.storage.layout import ClusterStorage
    from pulsar_simulator.serve import Running


@pytest.fixture(autouse=True)
def connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection `pulsar_test` is there; nobody answers unless a cluster is `served`."""
    monkeypatch.setenv("AIRFLOW_CONN_PULSAR_TEST", '{"conn_type": "pulsar_admin", "host": "nowhere"}')


@pytest.fixture
def scene(served: Running, storage: ClusterStorage, state: MemoryState, monkeypatch: pytest.MonkeyPatch) -> UnloadScene:
    return UnloadScene(served, storage, state, monkeypatch)
