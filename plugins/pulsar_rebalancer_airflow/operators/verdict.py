"""The gate's verdict at this moment, for the gate itself and again before splits and each wave."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pulsar_rebalancer.carry_out.gate import Answered, judge_plan
from pulsar_rebalancer.errors import StateError
from pulsar_rebalancer.run.plan import Summary
from pulsar_rebalancer.state.orders.question import Answers
from pulsar_rebalancer.state.state_documents import DecisionState
from pulsar_rebalancer_airflow.locations import storage_of
from pulsar_rebalancer_airflow.state_store import StateStore

if TYPE_CHECKING:
    from airflow.sdk import Context

    from pulsar_rebalancer.carry_out.gate import Verdict
    from pulsar_rebalancer.config.settings import Settings
    from pulsar_rebalancer.storage.path import StoragePath


def present_verdict(context: Context, cluster: str, run: StoragePath, present: Settings, until: datetime) -> Verdict:
    """Return whether the plan of a run may be carried out now.

    Args:
        context: context of a task that has the cluster's state asset as an inlet.
        cluster: name in the clusters file.
        present: the cluster's current settings in the clusters file.
        until: end of the time in which the plan may be carried out.

    Raises:
        SnapshotError: a file of the run cannot be read.
        StateError: `state_version`.
    """
    store = StateStore.of(context, cluster)
    control, now = store.control(storage_of(cluster)), datetime.now(UTC)
    answered = _answered(store, Summary.read(run), context["dag_run"].run_id)
    return judge_plan(run, store.get(DecisionState), present, control, now, until, answered)


def _answered(store: StateStore, summary: Summary, airflow_run_id: str) -> Answered:
    try:
        if store.is_approved(summary, airflow_run_id):
            return Answered(approved=True)
        return Answered(answers=store.answers(Answers))
    except StateError as error:
        return Answered(unreadable=f"{error.message} [{error.reason}]")
