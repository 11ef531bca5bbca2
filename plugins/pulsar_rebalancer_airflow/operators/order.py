"""Order: store a person's order for the runs of a cluster without waiting for other tasks."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypedDict

from pulsar_rebalancer.errors import SettingsError, SnapshotError, StateError
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.state.orders.control_document import Control, Order, PauseOrder
from pulsar_rebalancer.state.orders.control_form import ControlAction, parse_control_form
from pulsar_rebalancer.storage.layout import time_of
from pulsar_rebalancer_airflow.control import kept_state, stopping
from pulsar_rebalancer_airflow.control.audit import loss, note
from pulsar_rebalancer_airflow.failures import final_unless_passing
from pulsar_rebalancer_airflow.notifications.metrics import emit_orders
from pulsar_rebalancer_airflow.operators.bases import ClusterOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from pulsar_rebalancer.state.orders.control_form import ControlRequest
    from pulsar_rebalancer.storage.layout import ClusterStorage
    from pulsar_rebalancer_airflow.control.stopping import UnderWay
    from pulsar_rebalancer_airflow.state_store import StateStore


class Ordered(TypedDict, total=False):
    """Input of the *control* task.

    Attributes:
        lost: the errors for unreadable documents that were dropped, by key.
        found: the plan in progress at the time of a stop or pause; missing if one of the run's files cannot be read.
    """

    lost: dict[str, str]
    found: UnderWay


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
                replace them (`control_unreadable`).
        """
        with final_unless_passing(context):
            request, order = asked(context)
            store, storage = self._store(context), self.storage
            ordered = Ordered()
            if request.action in (ControlAction.RESET, ControlAction.RESTORE):
                _forget_used_skip(store, storage)
            elif request.action.is_order:
                ordered["lost"] = _store(store, storage, request, order)
            if request.action.stops:
                with suppress(StateError, SnapshotError):  # the order is in force; the *control* task reports the error
                    ordered["found"] = stopping.under_way(store, storage)
        emit_orders(context, self.entry.name, self.entry.settings)
        return ordered


def asked(context: Context) -> tuple[ControlRequest, Order]:
    """Return the completed form, and the order with the person's name and the current time.

    Raises:
        SettingsError: `wrong_setting`, `contradiction`.
    """
    request = parse_control_form(context["params"])
    by = context["dag_run"].triggering_user_name or ""
    return request, Order(at=datetime.now(UTC), by=by, reason=request.reason)


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
    store.put_control(storage, _ordered(present, request, order))
    note(storage, action, order, was | details)
    return lost


def _forget_used_skip(store: StateStore, storage: ClusterStorage) -> None:
    """Remove an order to skip a run once a run has been skipped.

    Otherwise, after a reset or restore, the order would apply to another run.
    """
    control, last = store.control(storage), time_of(kept_state.last_plan(store, storage))
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
        ControlAction.SKIP_BROKER: {"skip_broker": order},
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
