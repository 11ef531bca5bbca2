"""What a person sees of a wave, and stops: no further bundle is begun, and a run that is cleared goes on."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk.exceptions import AirflowFailException
from tests.airflow_context import context
from tests.airflow_runs import CLUSTER, make_run
from tests.plugins.pulsar_rebalancer_airflow.operators.test_unload import loaded_moves, recorded

from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.outcome import conclude
from pulsar_rebalancer.state.by_hand import Stop
from pulsar_rebalancer_airflow.operators import UnloadWaveOperator
from pulsar_rebalancer_airflow.operators import unload as module
from pulsar_rebalancer_airflow.state_store import StateStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.airflow_context import MemoryState

    from pulsar_rebalancer.storage.layout import ClusterStorage
    from pulsar_rebalancer.storage.path import StoragePath
    from pulsar_simulator.serve import Running

NOW = datetime.now(UTC)


def unload(run: StoragePath, state: MemoryState, started: datetime) -> dict[str, Any]:
    """Carry wave 0 out in a run that started then; what the task pushed."""
    given: Any = context(CLUSTER, state, started=started)
    settings = {"mode": "auto", "connection": "pulsar_test", "unload_concurrency": 1}
    operator = UnloadWaveOperator(task_id="unload", cluster=CLUSTER, settings=settings, run=run.uri, wave=0)
    try:
        operator.execute(given)
    finally:
        pushed: dict[str, Any] = given["ti"].pushed
    return pushed


def stopping(state: MemoryState, real: Callable[..., Any]) -> Callable[..., Any]:
    def unload_at(*args: Any, **kwargs: Any) -> Any:
        StateStore(state).put_stop(Stop(at=NOW, by="ada", reason="wait"))
        return real(*args, **kwargs)

    return unload_at


def test_a_stop_ends_a_wave_between_two_bundles_and_a_cleared_run_goes_on(
    served: Running, storage: ClusterStorage, state: MemoryState, monkeypatch: pytest.MonkeyPatch
) -> None:
    moves = loaded_moves(served.cluster, 4)
    run = make_run(storage, moves)
    recorded(state, run)
    monkeypatch.setattr(module, "_SECONDS_BETWEEN_LOOKS", 0.0)
    monkeypatch.setattr(served.cluster, "unload_at", stopping(state, served.cluster.unload_at))

    with pytest.raises(AirflowFailException, match="stopped"):
        unload(run, state, NOW - timedelta(minutes=1))

    assert conclude(run, Reason.OPEN, (), NOW).counts == {"stopped": 3, "moved": 1}
    assert sum(served.cluster.owner(move["bundle"]) == move["destination"] for move in moves) == 1

    monkeypatch.undo()
    monkeypatch.setenv("PULSAR_REBALANCER_STORAGE", storage.root)
    monkeypatch.setenv("AIRFLOW_CONN_PULSAR_TEST", _connection(served))
    pushed = unload(run, state, NOW + timedelta(seconds=1))

    assert conclude(run, Reason.OPEN, (), NOW).counts == {"moved": 4}
    assert pushed["progress"] == {"done": 4, "of": 4, "failed": 0}


def _connection(served: Running) -> str:
    from tests.plugins.pulsar_rebalancer_airflow.conftest import connection_document

    return connection_document(served)
