"""Control: carry out a person's order, and report the current orders."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypedDict

from airflow.sdk.exceptions import AirflowRuntimeError

from pulsar_rebalancer.errors import SettingsError, SnapshotError, StateError
from pulsar_rebalancer.orders.control_document import (
    Control,
    ControlAction,
    ControlRequest,
    Order,
    PauseOrder,
    SkipBrokerOrder,
    parse_control_form,
)
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.request import RunRequest
from pulsar_rebalancer.state.state_documents import DecisionState, MovesState
from pulsar_rebalancer.storage.documents import ClusterStorage, time_of
from pulsar_rebalancer_airflow import control_actions
from pulsar_rebalancer_airflow.control_actions import UnderWay, in_force, loss, note
from pulsar_rebalancer_airflow.failures import final_unless_passing
from pulsar_rebalancer_airflow.notifications import emit_orders
from pulsar_rebalancer_airflow.operators.bases import ClusterOperator, refuse_repeated, requester
from pulsar_rebalancer_airflow.options import REBALANCE_DAG
from pulsar_rebalancer_airflow.state_store import StateStore

if TYPE_CHECKING:
    from airflow.sdk import Context


class Ordered(TypedDict, total=False):
    """Input of the *control* task.

    Attributes:
        lost: the errors for unreadable documents that were dropped, by key.
        found: the plan in progress at the time of a stop or pause; missing if one of the run's files cannot be read.
        undecided: True if a run without a plan was in progress when a stop or pause was ordered.
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
                pause does (`wrong_setting`, `contradiction`); the stored orders are unreadable, and the action does not
                replace them (`control_unreadable`); the run was cleared (`no_user`).
        """
        with final_unless_passing(context):
            store, storage, ordered = self._store(context), self.storage, Ordered()
            if parse_control_form(context["params"]).action.stops:
                # Only runs that began before the order are sure to obey it.
                with suppress(AirflowRuntimeError):
                    ordered["undecided"] = self._undecided(context, store)
            request, order = asked(context)
            if request.action in (ControlAction.RESET, ControlAction.RESTORE):
                _forget_used_skip(store, storage)
            elif request.action.is_order:
                ordered["lost"] = _store(store, storage, request, order)
            if request.action.stops:
                with suppress(StateError, SnapshotError):  # the order is in force; the *control* task reports the error
                    ordered["found"] = control_actions.under_way(store, storage)
        emit_orders(context, self.entry.name, self.entry.settings)
        return ordered

    def _undecided(self, context: Context, store: StateStore) -> bool:
        """Return whether a run without a recorded plan is in progress."""
        ti, dag_id = context["ti"], f"{REBALANCE_DAG}{self.entry.name}"
        running = ti.get_dr_count(dag_id, states=["running"])
        last = self.storage.run(store.last_plan()) if running else None
        try:
            recorded = [RunRequest.read(last).airflow_run_id] if last else []
        except SnapshotError:
            recorded = []
        return running > (ti.get_dr_count(dag_id, run_ids=recorded, states=["running"]) if recorded else 0)


def asked(context: Context) -> tuple[ControlRequest, Order]:
    """Return the completed form, and the order with the person's name and the current time.

    Raises:
        SettingsError: `wrong_setting`, `contradiction`.
        PlanError: `no_user`.
    """
    request = parse_control_form(context["params"])
    if request.changes:
        refuse_repeated(context)
    return request, Order(at=datetime.now(UTC), by=requester(context), reason=request.reason)


def _store(store: StateStore, storage: ClusterStorage, request: ControlRequest, order: Order) -> dict[str, str]:
    """Store an order in the `control` document; return why dropped parts could not be read, by key.

    If part of the stored orders is unreadable, a pause or resume drops that part, a stop is added to the readable part,
    and any other order is refused.

    Raises:
        StateError: `control_unreadable`.
    """
    action, present = request.action, store.control(storage)
    lost = {Control.KEY: present.unreadable} if present.unreadable else {}
    details = {"until": request.until.isoformat()} if request.until else {}
    if lost and action is ControlAction.STOP:
        store.put_stop(storage, order)
        note(storage, action, order, details)
        return {}
    if lost and action not in (ControlAction.PAUSE, ControlAction.RESUME):
        raise StateError(Reason.CONTROL_UNREADABLE, f"{action} was not ordered: {present.unreadable}")
    was = loss(store, lost)
    turn = store.readable_roll(storage).broker
    if request.broker and request.broker != turn:
        raise SettingsError(
            Reason.CONTRADICTION, f"form: broker: it is not the turn of {request.broker}, but of {turn!r}"
        )
    store.put_control(storage, _ordered(present, request, order))
    note(storage, action, order, was | details)
    return lost


def _forget_used_skip(store: StateStore, storage: ClusterStorage) -> None:
    """Remove an order to skip a run once a run has been skipped.

    Otherwise, after a reset or restore, the order would apply to another run.
    """
    control, last = store.control(storage), time_of(control_actions.last_plan(store, storage))
    used = control.skip is not None and last is not None and last > control.skip.at
    if used and not control.unreadable:
        store.put_control(storage, control.model_copy(update={"skip": None}))


def _ordered(control: Control, request: ControlRequest, order: Order) -> Control:
    """Return the document with the new order. A resume removes the pause and the order to skip a run.

    Raises:
        SettingsError: a pause would end in the past (`wrong_setting`), or before the current pause does
            (`contradiction`).
    """
    changes: dict[ControlAction, dict[str, Order | None]] = {
        ControlAction.SKIP: {"skip": order},
        ControlAction.STOP: {"stop": order},
        ControlAction.CLOSE_BREAKER: {"breaker_closed": order},
        ControlAction.SKIP_BROKER: {"skip_broker": SkipBrokerOrder(**order.model_dump(), broker=request.broker)},
        ControlAction.STOP_ROLL: {"stop_roll": order},
        ControlAction.RESUME: {"pause": None, "skip": None},
    }
    if request.until is not None:
        if request.until <= order.at:
            raise SettingsError(Reason.WRONG_SETTING, f"form: until: {request.until} is not after {order.at}")
        if control.pause is not None and control.pause.until > request.until:
            raise SettingsError(
                Reason.CONTRADICTION,
                f"form: until: the pause until {control.pause.until} {control.pause.because} ends later; resume first",
            )
        changes[ControlAction.PAUSE] = {"pause": PauseOrder(**order.model_dump(), until=request.until)}
    return control.model_copy(update=changes[request.action])


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
            if self.ordered.get("undecided"):
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
            told["file"] = control_actions.export(store, storage, order.at)
        elif action in (ControlAction.RESET, ControlAction.RESTORE):
            lost = control_actions.change(store, storage, action, order, request.file)
            told["state"] = _state(store)
        elif action is ControlAction.SHOW:
            told |= {"state": _state(store), "unreadable": store.unreadable(storage)}
        return told | ({"lost": lost} if lost else {})

    def _stopped(self, store: StateStore, storage: ClusterStorage) -> dict[str, object] | str:
        """Return the outcome of the stopped run, or the error message if one of the run's files cannot be read."""
        try:
            under_way = self.ordered.get("found") or control_actions.under_way(store, storage)
            stopped = control_actions.wait(store, storage, under_way, self.timeout_seconds)
        except (StateError, SnapshotError) as error:
            return error.message
        return {
            "finished": dict(list(stopped.finished.items())[:_NAMED]),
            "unfinished": list(stopped.unfinished[:_NAMED]),
            "not_begun": stopped.not_begun,
        }

    def _in_force(self, store: StateStore, storage: ClusterStorage) -> str:
        last = store.last_plan()
        # A stop is shown while a run that it may affect is in progress.
        in_progress = control_actions.in_progress(storage, last, datetime.now(UTC))
        return in_force(store, storage, self.entry.settings, time_of(last) if in_progress else None)


def _state(store: StateStore) -> control_actions.StateSummary:
    return control_actions.summary(store.get(DecisionState), store.get(MovesState))
