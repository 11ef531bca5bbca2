"""A run that the previous release began goes on under this one, task by task."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk.exceptions import AirflowFailException
from tests.airflow_context import MemoryState
from tests.airflow_context import context as any_context
from tests.include.pulsar_rebalancer import previous_release as previous

from pulsar_rebalancer.config.clusters_file import ClusterEntry
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.errors import SnapshotError
from pulsar_rebalancer.run.outcome import Outcome, read_waves
from pulsar_rebalancer.state.state_documents import VERSION, DecisionState, MovesState
from pulsar_rebalancer_airflow.locations import STORAGE_VARIABLE
from pulsar_rebalancer_airflow.operators import (
    ControlOperator,
    GateOperator,
    RecordOperator,
    ReportOperator,
    UnloadWaveOperator,
    ValidateOperator,
)
from pulsar_rebalancer_airflow.state_store import StateStore
from pulsar_simulator import serve
from pulsar_simulator.clock import RealClock
from pulsar_simulator.load import QUIET
from pulsar_simulator.scenario import build

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pulsar_rebalancer.storage.layout import ClusterStorage
    from pulsar_rebalancer.storage.path import StoragePath
    from pulsar_simulator.cluster import Cluster

EAST = previous.CLUSTER
PRESENT: dict[str, Any] = {"mode": "auto", "connection": "pulsar_east"}
context = partial(any_context, run_id="manual__2026-11-21T17:08:41.747976+00:00")


@pytest.fixture
def storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClusterStorage:
    monkeypatch.setenv(STORAGE_VARIABLE, str(tmp_path))
    return previous.unpack(tmp_path)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """The cluster that the previous release saw, at the same addresses."""
    monkeypatch.setattr(serve, "BrokerServer", partial(serve.BrokerServer, host=previous.HOST, port=previous.PORT))
    built = build(brokers=3, bundles=12, noise=QUIET, clock=RealClock())
    with serve.running(built) as served:
        connection = {
            "conn_type": "pulsar_admin",
            "host": previous.HOST,
            "port": previous.PORT,
            "password": served.token,
        }
        monkeypatch.setenv("AIRFLOW_CONN_PULSAR_EAST", json.dumps(connection))
        yield built


def decided(storage: ClusterStorage, age: timedelta = timedelta(0)) -> StoragePath:
    """The run as decide left it, and so young; the hash of a plan does not cover its age."""
    run = previous.run_of(storage)
    for name in ("unload", "outcome.json"):
        (run / name).delete()
    summary = run / "plan" / "summary.json"
    summary.write_json(summary.read_json() | {"collected_at": (datetime.now(UTC) - age).isoformat()})
    return run


def record(storage: ClusterStorage, run: StoragePath, state: MemoryState) -> list[int]:
    return RecordOperator(task_id="record", cluster=EAST, root=storage.root, run=run.uri).execute(context(EAST, state))


def gate(run: StoragePath, state: MemoryState) -> tuple[list[int], str]:
    given: Any = context(EAST, state)
    waves = GateOperator(task_id="gate", cluster=EAST, settings=Settings(**PRESENT), run=run.uri).execute(given)
    return waves, given["ti"].pushed["reason"]


@pytest.mark.parametrize("recorded", [False, True])
def test_a_plan_that_was_decided_before_is_carried_out_after(
    storage: ClusterStorage, cluster: Cluster, recorded: bool
) -> None:
    run = decided(storage)
    state = MemoryState({DecisionState.KEY: previous.stored("moved" if recorded else "counted")[DecisionState.KEY]})

    assert record(storage, run, state) == []  # it splits nothing
    assert state.documents[DecisionState.KEY]["seq"] == 2
    assert gate(run, state) == ([0], "open")
    assert {cluster.owner(bundle) for bundle in previous.BUNDLES} == {previous.HOT}
    unload = UnloadWaveOperator(task_id="unload", cluster=EAST, settings=PRESENT, run=run.uri, wave=0)
    assert unload.execute(context(EAST, state)) == {"moved": 2}
    given = context(EAST, state, xcoms={("gate", "reason"): "open"})
    assert ReportOperator(task_id="report", cluster=EAST, run=run.uri, gate="gate").execute(given) == {"moved": 2}

    assert {cluster.owner(bundle) for bundle in previous.BUNDLES} == {previous.COLD}
    assert Outcome.read(run).verdict == "open"
    assert state.documents[MovesState.KEY]["version"] == VERSION
    if not recorded:
        assert state.documents[DecisionState.KEY]["version"] == VERSION


def test_it_is_not_once_it_is_old(storage: ClusterStorage, cluster: Cluster) -> None:
    run = decided(storage, age=timedelta(seconds=181))
    state = MemoryState({DecisionState.KEY: previous.stored("moved")[DecisionState.KEY]})

    assert record(storage, run, state) == []  # it splits nothing
    assert state.documents[DecisionState.KEY]["seq"] == 2
    assert gate(run, state) == ([], "plan_too_old")


def test_a_wave_that_was_carried_out_before_is_not_again(storage: ClusterStorage, cluster: Cluster) -> None:
    run = previous.run_of(storage)
    state = MemoryState(previous.stored("moved"))
    given = context(EAST, state, xcoms={("gate", "reason"): "open"})

    assert ReportOperator(task_id="report", cluster=EAST, run=run.uri, gate="gate").execute(given) == {"moved": 2}
    assert {cluster.owner(bundle) for bundle in previous.BUNDLES} == {previous.HOT}


def test_a_run_that_was_collected_alone_is_collected_anew(storage: ClusterStorage) -> None:
    operator = ValidateOperator(task_id="validate", cluster=EAST, run=previous.run_of(storage).uri)
    with pytest.raises(AirflowFailException, match=r"version 1.*file_version.*Clear the run's collect task"):
        operator.execute(context(EAST, MemoryState()))


def test_its_copies_are_restored(storage: ClusterStorage) -> None:
    state = MemoryState()
    params = {"action": "restore", "reason": "the database was lost", "file": "decision-1.json"}
    entry = ClusterEntry(name=EAST, given={}, settings=Settings())
    operator = ControlOperator(task_id="control", entry=entry, root=storage.root)

    assert operator.execute(context(EAST, state, params=params))["state"]["brokers_with_hits"] == 2

    restored = StateStore(state).get(DecisionState)
    assert (restored.version, restored.seq, restored.means) == (VERSION, 3, "means-1-d60d8ce9.parquet")


@pytest.mark.parametrize(
    ("path", "changes"),
    [("plan/summary.json", {"version": 2}), ("plan/state.json", {"version": VERSION + 1})],
)
def test_a_plan_of_a_newer_release_is_not_recorded(storage: ClusterStorage, path: str, changes: dict[str, Any]) -> None:
    run, state = decided(storage), MemoryState({DecisionState.KEY: previous.stored("counted")[DecisionState.KEY]})
    (run / path).write_json((run / path).read_json() | changes)

    with pytest.raises(AirflowFailException, match=r"file_version.*Clear|plan_changed"):
        record(storage, run, state)
    assert state.writes == []


def test_outcomes_of_a_newer_release_are_refused(storage: ClusterStorage) -> None:
    run = previous.run_of(storage)
    assert set(read_waves(run)) == set(previous.BUNDLES)
    (run / "outcome.json").write_json((run / "outcome.json").read_json() | {"version": 2})
    with pytest.raises(SnapshotError, match="file_version"):
        Outcome.read(run)
    wave = run / "unload" / "wave-00.json"
    wave.write_json([row | {"of_the_next_release": 1} for row in wave.read_json()])
    with pytest.raises(SnapshotError, match=r"does not know of_the_next_release \[file_version\]"):
        read_waves(run)
