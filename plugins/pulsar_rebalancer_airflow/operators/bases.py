"""Base classes for tasks that use a cluster's stored state."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import BaseOperator

from pulsar_rebalancer.config.clusters_file import ClusterEntry
from pulsar_rebalancer.errors import PlanError
from pulsar_rebalancer.orders.in_force import LASTING_REASONS, all_holds
from pulsar_rebalancer.orders.manual_plans import Answers, HandedOverPlans
from pulsar_rebalancer.orders.order import JudgedRun
from pulsar_rebalancer.orders.roll_document import Roll
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.snapshot import StateBefore
from pulsar_rebalancer.storage.documents import ClusterStorage
from pulsar_rebalancer.texts import one_line
from pulsar_rebalancer_airflow.options import REBALANCE_DAG
from pulsar_rebalancer_airflow.state_store import StateStore, state_asset

if TYPE_CHECKING:
    from airflow.sdk import Context


def is_retry(context: Context, task: BaseOperator) -> bool:
    """Return whether the task has been attempted since it was last cleared."""
    ti = context["ti"]
    return ti.try_number > ti.max_tries - (task.retries or 0) + 1


def requesting_user(context: Context) -> str:
    """Return the Airflow user who triggered the run; empty if this is unknown.

    Airflow keeps the user's name when another person clears the run, and copies it to runs that the run's tasks start.
    """
    run = context["dag_run"]
    known = run.run_type == "manual" and not run.clear_number
    return one_line(run.triggering_user_name or "") if known else ""


def refuse_cleared_task(context: Context) -> None:
    """Raise `no_user` if the run was cleared: the order may be old, and it is unknown who repeats it."""
    run = context["dag_run"]
    if run.clear_number:
        raise PlanError(Reason.NO_USER, f"run {run.run_id} was cleared, so it is unknown who repeats the order")


class ClusterOperator(BaseOperator):
    """A task that belongs to a cluster but not to a rebalancing run."""

    def __init__(self, *, entry: ClusterEntry, root: str, **kwargs: Any) -> None:
        super().__init__(**kwargs, inlets=[state_asset(entry.name)])
        self.entry = entry
        self.storage = ClusterStorage(root, entry.name)

    def _state_store(self, context: Context) -> StateStore:
        return StateStore.from_context(context, self.entry.name)


class RunOperator(BaseOperator):
    """A task of a rebalancing run; `run` is the address of the run's folder."""

    template_fields: Sequence[str] = ("run",)

    def __init__(self, *, cluster: str, run: str, **kwargs: Any) -> None:
        # A mapped task is only built when it runs, so the DAG names its inlet for the scheduler.
        super().__init__(**{"inlets": [state_asset(cluster)]} | kwargs)
        self.cluster = cluster
        self.run = run

    def _state_store(self, context: Context) -> StateStore:
        return StateStore.from_context(context, self.cluster)


class HandOverOperator(TriggerDagRunOperator):
    """Start a rebalancing run that takes a new snapshot and carries out a plan.

    A retry does not hand over a plan twice, because the run's id is stored before the run is started.
    """

    def __init__(self, *, entry: ClusterEntry, root: str, **kwargs: Any) -> None:
        super().__init__(
            trigger_dag_id=f"{REBALANCE_DAG}{entry.name}",
            skip_when_already_exists=True,
            # Only our own keys are allowed in a run's parameters; any other key would be refused.
            openlineage_inject_parent_info=False,
            logical_date=None,
            **kwargs,
            inlets=[state_asset(entry.name)],
        )
        self.entry = entry
        self.storage = ClusterStorage(root, entry.name)


def plan_refusal(
    context: Context, entry: ClusterEntry, store: StateStore, now: datetime, *, may_wait: bool = False
) -> PlanError | None:
    """Return why no plan is handed over now; None if plans are handed over.

    The reason is `dag_paused`, because the plan's run would only wait, or why the gate would be closed.
    `may_wait`: the plan's moves can wait until the gate opens by itself.
    """
    dag_id = f"{REBALANCE_DAG}{entry.name}"
    if context["ti"].get_dag(dag_id).is_paused:
        return PlanError(Reason.DAG_PAUSED, f"DAG {dag_id} is paused, so a new run would not start yet")
    closed = all_holds(entry.settings, store.orders(), now, JudgedRun(now, store.last_plan_id()))
    closed = [each for each in closed if not may_wait or each.reason in LASTING_REASONS]
    return PlanError(closed[0].reason, f"the plan is not carried out: {closed[0].detail}") if closed else None


def roll_refusal(store: StateStore, plan_id: str) -> PlanError | None:
    """Return why an approved plan is not carried out in a rolling restart; None if the plan is of the roll's phase."""
    roll, run = store.get(Roll), store.storage.run_folder(plan_id)
    if not roll.is_active or (run is not None and roll.has_same_phase(StateBefore.read(run).roll)):
        return None
    return PlanError(Reason.ROLLING, roll.progress)


def refuse_while_plan_waits(context: Context, dag_id: str, store: StateStore) -> None:
    """Refuse a new plan while a run of the DAG that carries out a person's plan is queued or running.

    Raises PlanError `plan_under_way` or StateError `state_lost`.
    """
    runs = {answer.carried_out_by for answer in store.get(Answers).plans.values()} - {""}
    runs.update(other.run_id for other in store.get(HandedOverPlans).plans.values())
    runs -= cancelled_runs(context, dag_id, runs)
    if runs and context["ti"].get_dr_count(dag_id, run_ids=sorted(runs), states=["queued", "running"]):
        raise PlanError(
            Reason.PLAN_UNDER_WAY, f"one of these runs of {dag_id} has not ended: {', '.join(sorted(runs))}"[:500]
        )


def cancelled_runs(context: Context, dag_id: str, runs: Collection[str]) -> set[str]:
    states = context["ti"].get_task_states(dag_id=dag_id, task_ids=["collect"], run_ids=sorted(runs)) if runs else {}
    return {run_id for run_id in runs if states.get(run_id, {}).get("collect") == "skipped"}


def new_run_id(prefix: str, plan_id: str) -> str:
    """Return a random run id, so that nobody else can start a run with this id first."""
    return f"{prefix}__{plan_id}__{secrets.token_hex(8)}"
