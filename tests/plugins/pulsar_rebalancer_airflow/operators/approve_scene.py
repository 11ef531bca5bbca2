"""Mode `approve`: a plan as the gate keeps it, its question, and an answer, task by task."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException, DagRunTriggerException
from tests.airflow_context import context
from tests.airflow_runs import CLUSTER, make_run, move_row

from pulsar_rebalancer.config.clusters_file import ClusterEntry
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.run.tables import BUNDLES, table
from pulsar_rebalancer.state.orders.control_document import Approvals, Awaiting, Order
from pulsar_rebalancer.state.state_documents import DecisionState
from pulsar_rebalancer_airflow.operators import (
    ApplyOperator,
    ApproveOperator,
    AskOperator,
    GateOperator,
    RecordOperator,
    ShowAwaitingOperator,
)
from pulsar_rebalancer_airflow.state_store import StateStore

if TYPE_CHECKING:
    from tests.airflow_context import MemoryState

    from pulsar_rebalancer.storage.layout import ClusterStorage
    from pulsar_rebalancer.storage.path import StoragePath

NOW = datetime.now(UTC)
MOVES = [move_row(1, "a:1", "b:1"), move_row(2, "a:1", "b:1")]
OTHERS = [move_row(3, "a:1", "b:1"), move_row(4, "a:1", "b:1")]
ADA = {"id": "7", "name": "ada"}
YES = {"chosen_options": ["Approve"], "responded_by_user": ADA}


def settings(**given: Any) -> Settings:
    given = {"mode": "approve", "connection": "pulsar_test", "min_awaiting_minutes": 0} | given
    return Settings.model_validate(given)


def entry(**given: Any) -> ClusterEntry:
    return ClusterEntry(name=CLUSTER, given={}, settings=settings(**given))


def gate(
    storage: ClusterStorage,
    state: MemoryState,
    run: StoragePath,
    record: bool = True,
    runs: dict[str, str] | None = None,
    **present: Any,
) -> str:
    given: Any = context(CLUSTER, state)
    waits = StateStore(state).answers_or_none(Awaiting)
    asked = filter(None, [waits.asked, *waits.older])
    given["ti"].runs = dict.fromkeys(asked, "running") if runs is None else runs
    if record:
        RecordOperator(task_id="record", cluster=CLUSTER, root=storage.root, run=run.uri).execute(given)
    GateOperator(task_id="gate", cluster=CLUSTER, settings=settings(**present), run=run.uri).execute(given)
    return str(given["ti"].pushed["reason"])


def plan(storage: ClusterStorage, state: MemoryState, moves: Any = MOVES, **given: Any) -> StoragePath:
    seq = StateStore(state).get(DecisionState).seq
    run = make_run(storage, moves, base_seq=seq, **({"mode": "approve"} | given))
    (run / "input" / "bundles.parquet").write_table(table([], BUNDLES))
    return run


def awaiting(state: MemoryState) -> Awaiting:
    return StateStore(state).get(Awaiting)


def ask(state: MemoryState, reason: str, runs: dict[str, str] | None = None) -> str:
    given: Any = context(CLUSTER, state, xcoms={("gate", "reason"): reason})
    given["ti"].runs = runs or {}
    with pytest.raises((DagRunTriggerException, AirflowSkipException)) as ended:
        AskOperator(task_id="ask", cluster=CLUSTER, gate="gate").execute(given)
    asked = ended.value
    return f"{asked.trigger_dag_id} {asked.dag_run_id}" if isinstance(asked, DagRunTriggerException) else ""


def show(storage: ClusterStorage, state: MemoryState, run_id: str = "") -> dict[str, str]:
    given = context(CLUSTER, state, run_id=run_id or awaiting(state).asked)
    return ShowAwaitingOperator(task_id="show", entry=entry(), root=storage.root).execute(given)


def apply(
    storage: ClusterStorage,
    state: MemoryState,
    shown: dict[str, str],
    *,
    answer: Any = YES,
    run_id: str = "",
    runs: dict[str, str] | None = None,
    noted: bool = True,
    **present: Any,
) -> str:
    """The reason code, or the id of the run that carries the plan out; ada's approval is noted if it is to be."""
    if noted:
        approvals = Approvals(
            plans={StateStore(state).answers_or_none(Awaiting).plan_id: Order(at=NOW, by="ada", reason="")}
        )
        StateStore(state).put(approvals)
    given: Any = context(CLUSTER, state, user=None, run_id=run_id or awaiting(state).asked)
    given["ti"].runs = runs or {}
    pulled = {"show": shown, "approve": answer}
    given["ti"].xcom_pull = lambda *, task_ids: pulled[task_ids]
    with pytest.raises((DagRunTriggerException, AirflowFailException)) as ended:
        ApplyOperator(task_id="carry_out", entry=entry(**present), root=storage.root).execute(given)
    if isinstance(ended.value, AirflowFailException):
        return str(given["ti"].pushed["failure"])
    assert ended.value.conf == {"plan": shown["plan"]}
    return str(ended.value.dag_run_id)


def reject(
    storage: ClusterStorage,
    state: MemoryState,
    run: StoragePath,
    answer: str = "Reject",
    by: str = "ada",
    why: str = "",
) -> None:
    """What the task *approve* does with an answer."""
    given: Any = context(CLUSTER, state, run_id=f"ask__{run.name}")
    given["task"] = Mock(get_direct_relatives=Mock(return_value=[]))
    event = {
        "chosen_options": [answer],
        "params_input": {"reason": why} if why else {},
        "responded_at": NOW,
        "responded_by_user": {"id": "7", "name": by} if by else None,
    }
    ApproveOperator(
        task_id="approve", entry=entry(), root=storage.root, subject="Move?", body="2 bundles"
    ).execute_complete(given, event)
