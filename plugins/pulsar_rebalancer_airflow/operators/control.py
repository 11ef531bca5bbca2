"""Store an operator's order at once, then carry it out and report the orders in force."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypedDict

from airflow.sdk.exceptions import AirflowRuntimeError

from pulsar_rebalancer.errors import SnapshotError, StateError
from pulsar_rebalancer.orders.in_force import EXPORT, RESET, RESTORE, SHOW, ControlRequest, parse_control_form
from pulsar_rebalancer.orders.order import Control, GivenOrder
from pulsar_rebalancer.orders.pause import without_used_skip
from pulsar_rebalancer.run.request import RunRequest
from pulsar_rebalancer.storage.documents import last_committed, time_of
from pulsar_rebalancer_airflow import control_actions
from pulsar_rebalancer_airflow.control_actions import UnderWay, loss, note
from pulsar_rebalancer_airflow.notifications import emit_orders
from pulsar_rebalancer_airflow.operators.bases import ClusterOperator, refuse_repeated, requester
from pulsar_rebalancer_airflow.options import REBALANCE_DAG, final_unless_passing
from pulsar_rebalancer_airflow.state_store import StateStore

if TYPE_CHECKING:
    from airflow.sdk import Context


class Ordered(TypedDict, total=False):
    """Input of the *control* task.

    Attributes:
        lost: why the `control` document was lost before a pause replaced it, by key.
        found: the plan in progress at a stop or pause; missing if one of the run's files is unreadable.
        undecided: a run without a plan was in progress at the stop or pause.
    """

    lost: dict[str, str]
    found: UnderWay
    undecided: bool


class OrderOperator(ClusterOperator):
    """Store an order in the `control` document, which only this task writes.

    The task does not wait for other runs, so a stop applies immediately, even if an earlier run of this DAG is still in
    progress. A retry would overrule newer orders, so there is none.
    """

    def execute(self, context: Context) -> Ordered:
        """Store the order if the action requires an order.

        Raises:
            AirflowFailException: a field is invalid or missing, or a pause would end in the past or before the current
                pause does (`wrong_setting`, `contradiction`); the stored orders are lost, and the action is not a pause
                (`state_lost`); the run was cleared (`no_user`).
        """
        with final_unless_passing(context):
            store, ordered = self._store(context), Ordered()
            if parse_control_form(context["params"]).chosen.stops:
                # Only runs that began before the order are sure to obey it.
                with suppress(AirflowRuntimeError):
                    ordered["undecided"] = self._undecided(context, store)
            request, order = asked(context)
            if request.action in (RESET, RESTORE):
                _forget_used_skip(store)
            elif request.chosen.gives:
                ordered["lost"] = _store(store, request, order)
            if request.chosen.stops:
                with suppress(StateError, SnapshotError):  # the order is in force; the *control* task reports the error
                    ordered["found"] = control_actions.under_way(store)
        emit_orders(context, self.entry.name, self.entry.settings)
        return ordered

    def _undecided(self, context: Context, store: StateStore) -> bool:
        ti, dag_id = context["ti"], f"{REBALANCE_DAG}{self.entry.name}"
        running = ti.get_dr_count(dag_id, states=["running"])
        last = self.storage.run(store.last_plan()) if running else None
        try:
            recorded = [RunRequest.read(last).airflow_run_id] if last else []
        except SnapshotError:
            recorded = []
        return running > (ti.get_dr_count(dag_id, run_ids=recorded, states=["running"]) if recorded else 0)


def asked(context: Context) -> tuple[ControlRequest, GivenOrder]:
    """Return the form and the order. Raises `wrong_setting`, `contradiction` or PlanError `no_user`."""
    request = parse_control_form(context["params"])
    if request.chosen.needs_reason:
        refuse_repeated(context)
    return request, GivenOrder(at=datetime.now(UTC), by=requester(context), **dict(request))


def _store(store: StateStore, request: ControlRequest, order: GivenOrder) -> dict[str, str]:
    """Store an order in the `control` document; return why the document was lost, by key.

    Only a pause replaces a lost document, so that nothing is moved until operators have given all orders
    again; any other action raises `state_lost`.
    """
    lost, chosen = store.lost((Control,)), request.chosen
    if not chosen.after_loss:
        store.get(Control)
    was = loss(store, lost)
    if chosen.gives:
        store.put(chosen.gives(store.orders(), order))
    details = {name: str(value) for name in ("subject", "until") if (value := getattr(order, name))}
    note(store.storage, request.action, order, was | details)
    return lost


def _forget_used_skip(store: StateStore) -> None:
    """Remove a used order to skip a run; after a reset or restore, it would apply to another run."""
    control, last = store.readable(Control), last_committed(store.storage, datetime.now(UTC))
    at = time_of(last.name) if last else None
    changed = without_used_skip(control, at) if at else control
    if changed != control:
        store.put(changed)


_NAMED = 20
"""Maximum number of bundles named in the answer to a stop or a pause."""


class ControlOperator(ClusterOperator):
    """Complete a stop, or change the state; then report the current orders.

    After a stop or a pause, the task waits up to `timeout_seconds` for bundles in progress. The file
    `state/change-<time>-<action>.json` records the person, the time and the reason of a change. A retry
    repeats the action; a repeated reset or restore only increases the state's sequence number.
    """

    template_fields: Sequence[str] = ("ordered",)

    def __init__(self, *, ordered: Ordered | None = None, timeout_seconds: float = 30, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.ordered = ordered or Ordered()
        self.timeout_seconds = timeout_seconds

    def execute(self, context: Context) -> dict[str, object]:
        """Carry out the action.

        Returns:
            `in_force`, the sentence about current orders. Depending on the action, also `state`, `file` or `lost` (why
            documents are lost, or were before they were replaced). After a stop or a pause, also `stopped` (the outcome
            of bundles in progress) and `undecided` (True if a run has no plan yet).

        Raises:
            AirflowFailException: a field is invalid or missing, or the state cannot be restored (`kept_state.change`).
        """
        with final_unless_passing(context):
            (request, order), store = asked(context), self._store(context)
            answer = self._act(store, request, order)
            if self.ordered.get("undecided"):
                answer |= {"undecided": "the run in progress has no plan yet, and will carry none out"}
            answer = {"in_force": self._in_force(store)} | answer
        self.log.info("%s of cluster %s:\n%s", request.action, self.entry.name, json.dumps(answer, indent=1))
        if request.chosen.needs_reason:
            self.log.warning("%s of cluster %s %s", request.action, self.entry.name, order.because)
        return answer

    def _act(self, store: StateStore, request: ControlRequest, order: GivenOrder) -> dict[str, object]:
        action, lost = request.action, self.ordered.get("lost", {})
        told: dict[str, object] = {}
        if request.chosen.stops:
            told["stopped"] = self._stopped(store)
        elif action == EXPORT:
            told["file"] = control_actions.export(store, order.at)
        elif action in (RESET, RESTORE):
            lost = control_actions.change(store, action, order, request.subject)
            told["state"] = control_actions.summary(store)
        elif action == SHOW:
            told["state"], lost = control_actions.summary(store), store.lost()
        return told | ({"lost": lost} if lost else {})

    def _stopped(self, store: StateStore) -> dict[str, object] | str:
        """Return the outcome of the stopped run, or the error message if one of the run's files cannot be read."""
        try:
            under_way = self.ordered.get("found") or control_actions.under_way(store)
            stopped = control_actions.wait(store, under_way, self.timeout_seconds)
        except (StateError, SnapshotError) as error:
            return error.message
        return {
            "finished": dict(list(stopped.finished.items())[:_NAMED]),
            "unfinished": list(stopped.unfinished[:_NAMED]),
            "not_begun": stopped.not_begun,
        }

    def _in_force(self, store: StateStore) -> str:
        last = store.last_plan()
        # A stop is shown while a run that it may affect is in progress.
        in_progress = control_actions.in_progress(self.storage, last, datetime.now(UTC))
        return store.in_force(self.entry.settings, time_of(last) if in_progress else None)
