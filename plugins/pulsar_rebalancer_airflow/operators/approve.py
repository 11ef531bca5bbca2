"""Approval: Airflow's own question, whose answer counts however early it comes, and is remembered when it is no."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import Param
from airflow.sdk.exceptions import TaskAwaitingInput

from pulsar_rebalancer.errors import PlanError, RebalancerError
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.plan import Actions, read_moves
from pulsar_rebalancer.run.splits import read_splits
from pulsar_rebalancer.state.orders.control_document import Approvals, Order, Rejection, Rejections
from pulsar_rebalancer.storage.layout import ClusterStorage
from pulsar_rebalancer.texts import one_line
from pulsar_rebalancer_airflow.state_store import StateStore, state_asset

if TYPE_CHECKING:
    from airflow.sdk import Context

    from pulsar_rebalancer.config.clusters_file import ClusterEntry

ASK = "ask__"
"""Prefix of the ids of runs of the apply DAG; the plan_id of the only plan that a run shows follows."""

_ASKED = "asked"


class ApproveOperator(ApprovalOperator):
    """Ask a person; no answer in time is a rejection, which is not remembered as a person's is.

    Airflow fails a task that is answered before the scheduler has heard that it waits. The attempt that follows asks
    nothing anew: the question still stands, and goes on with the answer that it has. Once it is cleared, it asks anew.

    Args:
        entry: the cluster's entry in the clusters file.
        root: storage root.
        kwargs: the texts of the question.
    """

    def __init__(self, *, entry: ClusterEntry, root: str, **kwargs: Any) -> None:
        why = Param(None, type=["null", "string"], maxLength=500, title="Reason", description="kept with the answer")
        super().__init__(
            defaults=self.REJECT,
            response_timeout=timedelta(minutes=entry.settings.max_awaiting_minutes),
            params={"reason": why},
            **kwargs,
            inlets=[state_asset(entry.name)],
        )
        self.entry = entry
        self.storage = ClusterStorage(root, entry.name)

    def execute(self, context: Context) -> None:
        """Ask, and wait."""
        ti, kept = context["ti"], context["task_state_store"]
        first = ti.max_tries - (self.retries or 0) + 1  # since the task was cleared last
        if ti.try_number > first and kept.get(_ASKED):
            raise TaskAwaitingInput(method_name="execute_complete", timeout=self.response_timeout)
        try:
            super().execute(context)
        except TaskAwaitingInput:
            kept.set(_ASKED, True)
            raise

    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        """Go on with the answer; a person's is noted first."""
        if "error" not in event:
            event = event | {"params_input": {"reason": reason_of(event)}}
            if responder(event):
                self._note(context, event)
        return super().execute_complete(context, event)

    def _note(self, context: Context, event: dict[str, Any]) -> None:
        """Write who approved or rejected; a document that cannot be read is written anew."""
        store, by, now = StateStore.of(context, self.entry.name), responder(event), datetime.now(UTC)
        rejections, plan_id = store.answers_or_none(Rejections), context["dag_run"].run_id.removeprefix(ASK)
        kept = timedelta(minutes=self.entry.settings.max_awaiting_minutes)
        yes = event["chosen_options"] == [self.APPROVE]
        approval = Order(at=now, by=by, reason=reason_of(event)) if yes else None
        store.put(store.answers_or_none(Approvals).noted(plan_id, approval, now, kept))
        if event["chosen_options"] == [self.REJECT]:
            rejection = Rejection(at=now, by=by, reason=reason_of(event), plan_id=plan_id)
            try:
                rejections = rejections.added(_identity(self.storage, plan_id), rejection, kept)
            except RebalancerError as error:
                self.log.warning("What %s rejected cannot be read, and may be asked for again: %s", by, error)
            self.log.warning("Rejected %s", rejection.because)
        store.put(rejections)


def _identity(storage: ClusterStorage, plan_id: str) -> str:
    run = storage.run(plan_id)
    if run is None:
        raise PlanError(Reason.OTHER_PLAN, f"{plan_id!r} is no run")
    return Actions(read_moves(run), read_splits(run)).identity


def responder(answer: Any) -> str:
    """Return Airflow's user who answered; empty: nobody did."""
    user = answer.get("responded_by_user") if isinstance(answer, dict) else None
    return one_line(str(user.get("name") or user.get("id") or ""), 200) if isinstance(user, dict) else ""


def reason_of(answer: Any) -> str:
    """Return why, as far as whoever answered said it."""
    given = answer.get("params_input") if isinstance(answer, dict) else None
    said = given.get("reason") if isinstance(given, dict) else None
    return one_line(said.strip(), 500) if isinstance(said, str) else ""
