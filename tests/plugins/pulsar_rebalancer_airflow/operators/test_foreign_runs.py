"""Whoever may write an XCom may not choose whose run a task works on: every task looks at what it was given."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException
from tests.airflow_context import MemoryState, context
from tests.airflow_runs import CLUSTER, make_run, move_row

from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.errors import PlanError
from pulsar_rebalancer.run.plan import Summary
from pulsar_rebalancer.state import DecisionState
from pulsar_rebalancer.storage.documents import ClusterStorage
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer_airflow.operators import (
    DecideOperator,
    GateOperator,
    PlanByHandOperator,
    RecordOperator,
    ReportOperator,
    SplitOperator,
    UnloadWaveOperator,
    ValidateOperator,
)

MOVES = [move_row(1, "a:1", "b:1")]
PRESENT: dict[str, Any] = {"mode": "auto", "connection": "pulsar_test"}
OPERATORS: dict[str, Callable[[str, Any], Any]] = {
    "validate": lambda root, run: ValidateOperator(task_id="validate", cluster=CLUSTER, run=run),
    "decide": lambda root, run: DecideOperator(task_id="decide", cluster=CLUSTER, root=root, run=run, conn_id="spark"),
    "record": lambda _, run: RecordOperator(task_id="record", cluster=CLUSTER, run=run),
    "gate": lambda root, run: GateOperator(task_id="gate", cluster=CLUSTER, settings=Settings(**PRESENT), run=run),
    "split": lambda root, run: SplitOperator(task_id="split", cluster=CLUSTER, settings=PRESENT, run=run, gate="gate"),
    "plan by hand": lambda root, run: PlanByHandOperator(task_id="plan", cluster=CLUSTER, root=root, run=run),
    "unload": lambda root, run: UnloadWaveOperator(
        task_id="unload", cluster=CLUSTER, settings=PRESENT, run=run, wave=0
    ),
    "report": lambda root, run: ReportOperator(task_id="report", cluster=CLUSTER, run=run, gate="gate"),
}


def link_out_of_the_root(storage: ClusterStorage, elsewhere: ClusterStorage) -> str:
    made = make_run(elsewhere, MOVES)
    link = Path(storage.runs.uri, made.uri.split("/")[-2], made.name)
    link.parent.mkdir(parents=True)
    link.symlink_to(made.uri)
    return str(link)


def way_around(storage: ClusterStorage, _: ClusterStorage) -> str:
    made = make_run(ClusterStorage(storage.root, "west"), MOVES)
    return f"{storage.base.uri}/../west{made.uri.removeprefix(f'{storage.root}/west')}"


FORGED: dict[str, Callable[[ClusterStorage, ClusterStorage], Any]] = {
    "another cluster": lambda own, _: make_run(ClusterStorage(own.root, "west"), MOVES, cluster="west").uri,
    "another cluster with our name in it": lambda own, _: make_run(ClusterStorage(own.root, "west"), MOVES).uri,
    "another run": lambda own, _: make_run(own, MOVES, airflow_run_id="manual__2").uri,
    "outside the root": lambda _, elsewhere: make_run(elsewhere, MOVES).uri,
    "a link out of the root": link_out_of_the_root,
    "a way around": way_around,
    "no text": lambda own, _: {"run": make_run(own, MOVES).uri},
}


@pytest.fixture
def storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClusterStorage:
    monkeypatch.setenv("AIRFLOW__PULSAR_REBALANCER__STORAGE_ROOT", str(tmp_path / "root"))
    return ClusterStorage(str(tmp_path / "root"), CLUSTER)


def files(folder: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.parametrize("forge", FORGED)
@pytest.mark.parametrize("task", OPERATORS)
def test_a_folder_that_is_not_of_this_run_is_refused(storage, state, tmp_path, task, forge):
    address = FORGED[forge](storage, ClusterStorage(str(tmp_path / "elsewhere"), CLUSTER))
    if isinstance(address, str) and (Path(address) / "plan").exists():
        # As if it had been recorded: what is refused is the folder, and nothing else stands in the way.
        recorded(state, Path(address))
    before, stored = files(tmp_path), dict(state.documents)
    given = context(CLUSTER, state, xcoms={("gate", "reason"): "open"})

    with pytest.raises((AirflowFailException, PlanError), match="foreign_run"):
        OPERATORS[task](storage.root, address).execute(given)

    assert files(tmp_path) == before
    assert state.documents == stored


def recorded(state: MemoryState, run: Path) -> None:
    folder = ClusterStorage(str(run.parents[3]), run.parents[2].name).run_folder(run.name)
    assert folder is not None
    document = (folder / "plan" / "state.json").read_json()
    state.set(DecisionState.KEY, document | {"plan_hash": Summary.read(folder).hash})


def execute(task: str, storage: ClusterStorage, run: StoragePath, state: MemoryState) -> Any:
    return OPERATORS[task](storage.root, run.uri).execute(context(CLUSTER, state))


def test_a_run_whose_folder_is_a_copy_elsewhere_in_the_root_is_refused(storage, state):
    run = make_run(storage, MOVES)
    copy = run.sibling("20261121T120000.000000Z-01234567")
    shutil.copytree(run.uri, copy.uri)

    with pytest.raises(AirflowFailException, match="foreign_run"):
        execute("record", storage, copy, state)
