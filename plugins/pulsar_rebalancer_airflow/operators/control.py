"""Control: what a person orders from outside a run."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowNotFoundException

from pulsar_rebalancer.errors import RebalancerError, SettingsError, SnapshotError, StateError
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.request import RunRequest
from pulsar_rebalancer.state.orders.control_document import Control, Order, PauseOrder
from pulsar_rebalancer.state.orders.control_form import ControlAction, parse_control_form
from pulsar_rebalancer.state.state_documents import DecisionState, MovesState
from pulsar_rebalancer.storage.layout import ClusterStorage, time_of
from pulsar_rebalancer_airflow.control import handover, kept_state, stopping
from pulsar_rebalancer_airflow.control.audit import loss, note
from pulsar_rebalancer_airflow.control.stored_orders import in_force
from pulsar_rebalancer_airflow.failures import final_unless_passing
from pulsar_rebalancer_airflow.hooks.pulsar_admin import PulsarAdminHook
from pulsar_rebalancer_airflow.locations import REBALANCE_DAG
from pulsar_rebalancer_airflow.state_store import StateStore, state_asset

if TYPE_CHECKING:
    from airflow.sdk import Context
    from pydantic import JsonValue

    from pulsar_rebalancer.config.clusters_file import ClusterEntry
    from pulsar_rebalancer.state.orders.control_form import ControlRequest

_NAMED = 20
"""Maximum bundles named in the answer to a stop or a pause."""


class ControlOperator(BaseOperator):
    """Do what the form asks for; what is in force afterwards, and what came of it, is the XCom of the task.

    Who, when and why stays in `state/change-<time>-<action>.json`. A retry does the same again: a pause, a stop and a
    hand-over twice are the same as once; a reset or restore gives the state one more sequence number.

    Args:
        entry: the cluster's entry in the clusters file.
        timeout_seconds: how long brokers have to take a value, and how long the answer to a stop waits for bundles that
            are under way.
    """

    def __init__(self, *, entry: ClusterEntry, root: str, timeout_seconds: float = 30, **kwargs: Any) -> None:
        super().__init__(**kwargs, inlets=[state_asset(entry.name)])
        self.entry = entry
        self.root = root
        self.timeout_seconds = timeout_seconds

    def execute(self, context: Context) -> dict[str, object]:
        """Carry out the action.

        Returns:
            `in_force`, a sentence, and by action: `state`, `shedding`, `file`, and for a stop or a pause `stopped`, the
            outcome of the bundles that were under way, and `undecided` where a run has not recorded its plan yet.

        Raises:
            AirflowFailException: a field is wrong or missing (`wrong_setting`, `contradiction`); a pause ends in the
                past, or before the one in force; the orders cannot be read, and neither a pause nor a resume
                rewrites them (`control_unreadable`); why a state cannot be restored (`kept_state.change`) or shedding
                not be switched (`handover.switch`).
            AdminError: no broker answered; tried again if the task has retries.
        """
        with final_unless_passing(context):
            request = parse_control_form(context["params"])
            order = Order(at=datetime.now(UTC), by=context["dag_run"].triggering_user_name or "", reason=request.reason)
            store, storage = StateStore.of(context, self.entry.name), ClusterStorage(self.root, self.entry.name)
            answer = self._act(store, storage, request, order)
            if "stopped" in answer and self._undecided(context, store, storage):
                answer |= {"undecided": "the run that is under way has no plan yet, and begins nothing of it"}
            answer = {"in_force": self._in_force(store, storage)} | answer
        self.log.info("%s of cluster %s:\n%s", request.action, self.entry.name, json.dumps(answer, indent=1))
        if request.changes:
            self.log.warning("%s of cluster %s %s", request.action, self.entry.name, order.because)
        return answer

    def _act(
        self, store: StateStore, storage: ClusterStorage, request: ControlRequest, order: Order
    ) -> dict[str, object]:
        action = request.action
        lost: dict[str, str] = {}
        if action in (ControlAction.TAKE_OVER, ControlAction.HAND_BACK):
            if action is ControlAction.HAND_BACK:  # two that move bundles would work against each other
                PulsarAdminHook(self.entry.settings.connection).get_writing_settings()
                store.put_stop(storage, order)
            return {
                "shedding": handover.switch(self.entry.settings, storage, action, order, self.timeout_seconds),
            }
        if action in (ControlAction.RESET, ControlAction.RESTORE):
            _forget_used_skip(store, storage)
            lost = kept_state.change(store, storage, action, order, request.file)
        elif action is ControlAction.EXPORT:
            return {"file": kept_state.export(store, storage, order.at)}
        elif action is not ControlAction.SHOW:
            return self._order(store, storage, request, order)
        told: dict[str, object] = {"state": kept_state.summary(store.get(DecisionState), store.get(MovesState))}
        if lost:
            told["lost"] = lost
        if action is ControlAction.SHOW:
            told |= {"shedding": self._shedding(), "unreadable": store.unreadable(storage)}
        return told

    def _order(
        self, store: StateStore, storage: ClusterStorage, request: ControlRequest, order: Order
    ) -> dict[str, object]:
        """Rewrite the `control` document; a pause or a resume drops the part that cannot be read."""
        action, present = request.action, store.control(storage)
        lost: dict[str, str] = {}
        details: dict[str, JsonValue] = {}
        if present.unreadable and action is ControlAction.STOP:
            store.put_stop(storage, order)
        elif present.unreadable and action not in (ControlAction.PAUSE, ControlAction.RESUME):
            raise StateError(Reason.CONTROL_UNREADABLE, f"{action} was not ordered: {present.unreadable}")
        else:
            lost = {Control.KEY: present.unreadable} if present.unreadable else {}
            details |= loss(store, lost)
            store.put_control(storage, _ordered(present, request, order))
        note(storage, action, order, details | ({"until": request.until.isoformat()} if request.until else {}))
        answer: dict[str, object] = {"lost": lost} if lost else {}
        if action not in (ControlAction.STOP, ControlAction.PAUSE):
            return answer
        try:
            stopped = stopping.wait(store, storage, self.timeout_seconds)
        except (StateError, SnapshotError) as error:  # what was ordered holds all the same
            return answer | {"stopped": error.message}
        return answer | {
            "stopped": {
                "finished": dict(list(stopped.finished.items())[:_NAMED]),
                "unfinished": list(stopped.unfinished[:_NAMED]),
                "not_begun": stopped.not_begun,
            }
        }

    def _undecided(self, context: Context, store: StateStore, storage: ClusterStorage) -> bool:
        """Return whether a run is under way whose plan was not recorded yet: an order holds for it all the same."""
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
        under_way = stopping.under_way(storage, last, datetime.now(UTC))
        return in_force(store, storage, self.entry.settings, time_of(last) if under_way else None)

    def _shedding(self) -> dict[str, str] | str:
        """Return Pulsar's own shedding by broker; the reason code when brokers cannot be asked: nothing is changed."""
        try:
            return handover.read(self.entry.settings.connection)
        except AirflowNotFoundException:
            return Reason.CONNECTION_NOT_FOUND
        except RebalancerError as error:
            self.log.warning("%s", error)
            return error.reason


def _forget_used_skip(store: StateStore, storage: ClusterStorage) -> None:
    """Lift a skip that a run has used: a reset or restore forgets that run, and would have another one skipped."""
    control, last = store.control(storage), time_of(kept_state.last_plan(store, storage))
    used = control.skip is not None and last is not None and last > control.skip.at
    if used and not control.unreadable:
        store.put_control(storage, control.model_copy(update={"skip": None}))


def _ordered(control: Control, request: ControlRequest, order: Order) -> Control:
    """Return the document with one order more, or without a pause and a skip.

    Raises:
        SettingsError: a pause ends in the past (`wrong_setting`), or before the one in force (`contradiction`).
    """
    changes: dict[ControlAction, dict[str, Order | None]] = {
        ControlAction.SKIP: {"skip": order},
        ControlAction.STOP: {"stop": order},
        ControlAction.CLOSE_BREAKER: {"breaker_closed": order},
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
