"""What a person sees of a wave, and stops: no further bundle is begun, and a run that is cleared goes on."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk.exceptions import AirflowFailException
from tests.airflow_context import context
from tests.airflow_runs import CLUSTER

from pulsar_rebalancer.control.documents import Control, Order
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.outcome import conclude
from pulsar_rebalancer_airflow.operators import UnloadWaveOperator
from pulsar_rebalancer_airflow.operators import unload as module
from pulsar_rebalancer_airflow.state_store import StateStore

if TYPE_CHECKING:
    from tests.plugins.pulsar_rebalancer_airflow.operators.unload_scene import UnloadScene

    from pulsar_rebalancer.storage.path import StoragePath

NOW = datetime.now(UTC)


def unload(scene: UnloadScene, run: StoragePath, started: datetime) -> dict[str, Any]:
    """Carry wave 0 out in a run that started then; what the task pushed."""
    given: Any = context(CLUSTER, scene.state, started=started)
    settings = {"mode": "auto", "connection": "pulsar_test", "unload_concurrency": 1}
    UnloadWaveOperator(task_id="unload", cluster=CLUSTER, settings=settings, run=run.uri, wave=0).execute(given)
    pushed: dict[str, Any] = given["ti"].pushed
    return pushed


def test_a_stop_ends_a_wave_between_two_bundles_and_a_cleared_run_goes_on(scene: UnloadScene) -> None:
    moves = scene.moves(4)
    run = scene.run(moves)
    scene.monkeypatch.setattr(module, "_SECONDS_BETWEEN_LOOKS", 0.0)
    stop = Control(stop=Order(at=NOW, by="ada", reason="wait"))
    scene.before_unloads(lambda _: StateStore(scene.state).put_control(scene.storage, stop))

    with pytest.raises(AirflowFailException, match="stopped"):
        unload(scene, run, NOW - timedelta(minutes=1))

    assert conclude(run, Reason.OPEN, (), NOW).counts == {"stopped": 3, "moved": 1}
    assert sum(scene.cluster.owner(move["bundle"]) == move["destination"] for move in moves) == 1

    pushed = unload(scene, run, NOW + timedelta(seconds=1))

    assert conclude(run, Reason.OPEN, (), NOW).counts == {"moved": 4}
    assert scene.all_on(moves, "destination")
    assert pushed["progress"] == {"done": 4, "of": 4, "failed": 0}
