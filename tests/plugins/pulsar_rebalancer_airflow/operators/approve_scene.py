"""Mode `approve`: a plan as the gate keeps it, its question, and an answer, task by task."""

from datetime import UTC, datetime
from typing import Any
from unittest.mock import Mock, patch

from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException, DagRunTriggerException, TaskAwaitingInput
from tests.airflow_context import MemoryState, context, store_of
from tests.airflow_runs import CLUSTER, make_run, move_row

from pulsar_rebalancer.config.clusters_file import ClusterEntry
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.orders.manual_plans import Question
from pulsar_rebalancer.run.tables import BUNDLES, table
from pulsar_rebalancer.state import DecisionState
from pulsar_rebalancer.storage.documents import ClusterStorage
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer_airflow.operators import (
    ApproveOperator,
    CarryOutApprovedOperator,
    GateOperator,
    QuestionsOperator,
    RecordOperator,
)

MOVES = [move_row(1, "a:1", "b:1"), move_row(2, "a:1", "b:1")]
OTHERS = [move_row(3, "a:1", "b:1"), move_row(4, "a:1", "b:1")]


def settings(**given: Any) -> Settings:
    given = {"mode": "approve", "connection": "pulsar_test"} | given
    return Settings.model_validate(given)


def entry(**given: Any) -> ClusterEntry:
    return ClusterEntry(name=CLUSTER, given={}, settings=settings(**given))


def question(state: MemoryState) -> Question:
    return store_of(state).get(Question)


def plan(storage: ClusterStorage, state: MemoryState, moves: Any = MOVES, **given: Any) -> StoragePath:
    seq = store_of(state).get(DecisionState).seq
    run = make_run(storage, moves, base_seq=seq, **({"mode": "approve"} | given))
    (run / "input" / "bundles.parquet").write_table(table([], BUNDLES))
    return run


def gate(storage, state, run, record=True, runs=None, run_id="manual__1", **present):
    """What the gate says of a plan; the run that asks is under way unless `runs` says otherwise."""
    given: Any = context(CLUSTER, state, run_id=run_id)
    given["ti"].runs = {store_of(state).peek(Question).run_id: "running"} if runs is None else runs
    if record:
        RecordOperator(task_id="record", cluster=CLUSTER, run=run.uri).execute(given)
    GateOperator(task_id="gate", cluster=CLUSTER, settings=settings(**present), run=run.uri).execute(given)
    return str(given["ti"].pushed["reason"])


def begun(state: MemoryState, runs: dict[str, str] | None = None) -> list[str]:
    given: Any = context(CLUSTER, state)
    given["ti"].runs = runs or {}
    return QuestionsOperator(task_id="questions", cluster=CLUSTER).execute(given)


def asked(storage, state, run_id="", attempt=(1, 2), known=False, **present):
    """The text that a run asks with; `stands`: nothing is asked anew; else why not: `skipped`, or a reason code."""
    operator = ApproveOperator(task_id="approve", entry=entry(**present), root=storage.root, retries=2)
    given: Any = context(CLUSTER, state, run_id=run_id or question(state).run_id)
    given["ti"].id, (given["ti"].try_number, given["ti"].max_tries) = "7", attempt
    given |= {"task_instance": given["ti"], "task_state_store": MemoryState({"asked": True} if known else {})}
    try:
        with patch("airflow.providers.standard.operators.hitl.upsert_hitl_detail") as written:
            operator.execute(given)
    except TaskAwaitingInput:
        assert given["task_state_store"].get("asked")
        minutes = operator.response_timeout and round(operator.response_timeout.total_seconds() / 60)
        return f"{operator.subject}\n{operator.body}\n{minutes} minutes" if written.called else "stands"
    except AirflowSkipException:
        return "skipped"
    except AirflowFailException:
        return str(given["ti"].pushed["failure"])
    raise AssertionError("nobody was asked")


def answer(storage, state, option, by="ada", why="", run_id="", paused=False, **present):
    """What the *approve* task does with an answer: the reason code if it refuses it, `asked again` if it drops it."""
    given: Any = context(CLUSTER, state, run_id=run_id or question(state).run_id)
    given |= {"task": Mock(get_direct_relatives=Mock(return_value=[])), "task_instance": Mock(id="7")}
    given["ti"].paused = paused
    event = {
        "chosen_options": [option],
        "params_input": {"reason": why} if why else {},
        "responded_at": datetime.now(UTC),
        "responded_by_user": {"id": "7", "name": by} if isinstance(by, str) and by else by or None,
    }
    operator = ApproveOperator(task_id="approve", entry=entry(**present), root=storage.root)
    try:
        with patch("airflow.providers.standard.operators.hitl.upsert_hitl_detail") as written:
            operator.execute_complete(given, event)
    except AirflowFailException:
        return str(given["ti"].pushed["failure"])
    except TaskAwaitingInput:
        assert written.called  # which removes the answer
        assert operator.response_timeout is not None
        return "asked again"
    return ""


def carried_out(
    storage: ClusterStorage, state: MemoryState, run_id: str = "", *, paused: bool = False, **present: Any
) -> tuple[str, str]:
    """The run that carries the approved plan out, and the plan's hash; refused, the reason code and nothing."""
    given: Any = context(CLUSTER, state, user=None, run_id=run_id or question(state).run_id)
    given["ti"].paused = paused
    try:
        CarryOutApprovedOperator(task_id="carry_out", entry=entry(**present), root=storage.root).execute(given)
    except AirflowFailException:
        return str(given["ti"].pushed["failure"]), ""
    except DagRunTriggerException as handed_over:
        return handed_over.dag_run_id, (handed_over.conf or {})["plan"]
    raise AssertionError("nothing was handed over, nor refused")
