"""Choose the runs of `pulsar_apply__<cluster>` to start in mode `approve`, so that only one question is open."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from pulsar_rebalancer.state.orders.question import Question
from pulsar_rebalancer_airflow.locations import APPLY_DAG
from pulsar_rebalancer_airflow.state_store import StateStore, state_asset

if TYPE_CHECKING:
    from airflow.sdk import Context


class QuestionsOperator(BaseOperator):
    """Return the runs to start: the run that asks a new question, and the previous run if it has not ended.

    The previous run is started again so that it ends, because its question is no longer current.

    Args:
        cluster: name in the clusters file.
    """

    def __init__(self, *, cluster: str, **kwargs: Any) -> None:
        super().__init__(**kwargs, inlets=[state_asset(cluster)])
        self.cluster = cluster

    def execute(self, context: Context) -> list[str]:
        """Return the ids of the runs to start."""
        question = StateStore.of(context, self.cluster).readable(Question)
        begins = [question.before] if is_open(context, self.cluster, question.before) else []
        asked = question.run_id and context["ti"].get_dr_count(f"{APPLY_DAG}{self.cluster}", run_ids=[question.run_id])
        return begins if asked or not question.run_id else [*begins, question.run_id]


def is_open(context: Context, cluster: str, run_id: str) -> bool:
    """Return whether the run that asks a question is queued or running; False if the id is empty."""
    states = ["queued", "running"]
    return bool(run_id and context["ti"].get_dr_count(f"{APPLY_DAG}{cluster}", run_ids=[run_id], states=states))
