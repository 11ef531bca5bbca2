"""Control: carry out a person's order, and report the current orders."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pulsar_rebalancer.errors import SnapshotError, StateError
from pulsar_rebalancer.run.request import RunRequest
from pulsar_rebalancer.state.orders.control_form import ControlAction
from pulsar_rebalancer.state.state_documents import DecisionState, MovesState
from pulsar_rebalancer.storage.layout import time_of
from pulsar_rebalancer_airflow.control import kept_state, stopping
from pulsar_rebalancer_airflow.control.stored_orders import in_force
from pulsar_rebalancer_airflow.failures import final_unless_passing
from pulsar_rebalancer_airflow.locations import REBALANCE_DAG
from pulsar_rebalancer_airflow.operators.bases import ClusterOperator
from pulsar_rebalancer_airflow.operators.order import Ordered, asked

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Context

    from pulsar_rebalancer.state.orders.control_document import Order
    from pulsar_rebalancer.state.orders.control_form import ControlRequest
    from pulsar_rebalancer.storage.layout import ClusterStorage
    from pulsar_rebalancer_airflow.state_store import StateStore

_NAMED = 20
"""Maximum number of bundles named in the answer to a stop or a pause."""


class ControlOperator(ClusterOperator):
    """Complete a stop, or change the state; then report the current orders.

    After a stop or a pause, the task waits for bundles in progress. The file `state/change-<time>-<action>.json`
    records the person, the time and the reason of a change. A retry repeats the action; a repeated reset or restore
    only increases the state's sequence number.

    Args:
        ordered: result of the *order* task.
        timeout_seconds: maximum time for bundles in progress to be completed after a stop.
    """

    template_fields: Sequence[str] = ("ordered",)

    def __init__(self, *, ordered: Ordered | None = None, timeout_seconds: float = 30, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.ordered = ordered or Ordered()
        self.timeout_seconds = timeout_seconds

    def execute(self, context: Context) -> dict[str, object]:
        """Carry out the action.

        Returns:
            `in_force`, the sentence about current orders. Depending on the action, also `state`, `file`, `unreadable`
            or `lost`. After a stop or a pause, also `stopped` (the outcome of bundles in progress) and
            `undecided` (True if a run has no plan yet).

        Raises:
            AirflowFailException: a field is invalid or missing, or the state cannot be restored (`kept_state.change`).
        """
        with final_unless_passing(context):
            request, order = asked(context)
            store, storage = self._store(context), self.storage
            answer = self._act(store, storage, request, order)
            if request.action.stops and self._undecided(context, store, storage):
                answer |= {"undecided": "the run under way has no plan yet, and will not carry its plan out"}
            answer = {"in_force": self._in_force(store, storage)} | answer
        self.log.info("%s of cluster %s:\n%s", request.action, self.entry.name, json.dumps(answer, indent=1))
        if request.changes:
            self.log.warning("%s of cluster %s %s", request.action, self.entry.name, order.because)
        return answer

    def _act(
        self, store: StateStore, storage: ClusterStorage, request: ControlRequest, order: Order
    ) -> dict[str, object]:
        action, lost = request.action, self.ordered.get("lost", {})
        told: dict[str, object] = {}
        if action.stops:
            told["stopped"] = self._stopped(store, storage)
        elif action is ControlAction.EXPORT:
            told["file"] = kept_state.export(store, storage, order.at)
        elif action in (ControlAction.RESET, ControlAction.RESTORE):
            lost = kept_state.change(store, storage, action, order, request.file)
            told["state"] = _state(store)
        elif action is ControlAction.SHOW:
            told |= {"state": _state(store), "unreadable": store.unreadable(storage)}
        return told | ({"lost": lost} if lost else {})

    def _stopped(self, store: StateStore, storage: ClusterStorage) -> dict[str, object] | str:
        """Return the outcome of the stopped run, or the error message if one of the run's files cannot be read."""
        try:
            under_way = self.ordered.get("found") or stopping.under_way(store, storage)
            stopped = stopping.wait(store, storage, under_way, self.timeout_seconds)
        except (StateError, SnapshotError) as error:
            return error.message
        return {
            "finished": dict(list(stopped.finished.items())[:_NAMED]),
            "unfinished": list(stopped.unfinished[:_NAMED]),
            "not_begun": stopped.not_begun,
        }

    def _undecided(self, context: Context, store: StateStore, storage: ClusterStorage) -> bool:
        """Return whether a run without a recorded plan is in progress. The order also applies to this run."""
        ti, dag_id = context["ti"], f"{REBALANCE_DAG}{self.entry.name}"
        running = ti.get_dr_count(dag_id, states=["running"])
        last = storage.run(store.last_plan()) if running else None
        try:
            recorded = [RunRequest.read(last).airflow_run_id] if last else []
        except SnapshotError:
            recorded = []
        return running > (ti.get_dr_count(dag_id, run_ids=recorded, states=["running"]) if recorded else 0)

    def _in_force(self, store: StateStore, storage: ClusterStorage) -> str:
        last = store.last_plan()
        # A stop is shown while a run that it may affect is in progress.
        in_progress = stopping.in_progress(storage, last, datetime.now(UTC))
        return in_force(store, storage, self.entry.settings, time_of(last) if in_progress else None)


def _state(store: StateStore) -> kept_state.StateSummary:
    return kept_state.summary(store.get(DecisionState), store.get(MovesState))
