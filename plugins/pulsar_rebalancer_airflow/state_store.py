"""Typed access to a cluster's state: a few documents in Airflow's asset state store.

The asset is an inlet, not an outlet, of every task that uses the state. An outlet has two drawbacks: every run would
create an asset event, and once the DAG file is removed, Airflow would soon delete the state.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from airflow.sdk import Asset, AssetAlias

from pulsar_rebalancer.config.settings import BreakerRules
from pulsar_rebalancer.errors import RebalancerError, SnapshotError, StateError
from pulsar_rebalancer.orders.breaker import Breaker, Round, advance, readable_breaker
from pulsar_rebalancer.orders.control_document import Control, Order
from pulsar_rebalancer.orders.in_force import OrdersInForce
from pulsar_rebalancer.orders.manual_plans import Answers, Drains, HandedOver, HandedOverPlans, Question, ShownPlans
from pulsar_rebalancer.orders.roll_document import Roll
from pulsar_rebalancer.reasons import Reason, Trait
from pulsar_rebalancer.run.plan import Summary
from pulsar_rebalancer.show.incidents import AlertsState, WatchState
from pulsar_rebalancer.state.state_documents import DecisionState, MovesState, StateDocument, committed_sequences
from pulsar_rebalancer.storage.documents import ClusterStorage

if TYPE_CHECKING:
    from airflow.sdk import Context

DOCUMENTS = (
    *(DecisionState, MovesState, AlertsState, WatchState, ShownPlans, HandedOverPlans),
    *(Drains, Question, Answers, Breaker, Control, Roll),
)
"""The models of all documents in the store."""

_Document = TypeVar("_Document", bound=StateDocument)


class Reader(Protocol):
    """Read access to one asset's state."""

    def get(self, key: str, default: Any = None) -> Any:
        """Return the stored value, or the default."""
        ...


class Accessor(Reader, Protocol):
    """Read and write access to one asset's state.

    It declares only the methods of Airflow's accessor that are used here.
    """

    def set(self, key: str, value: Any) -> None:
        """Store a value; an earlier value is replaced."""
        ...


def state_asset(cluster: str) -> Asset:
    """Return the asset that holds a cluster's state. If the asset were renamed, the state would be lost."""
    return Asset(name=f"pulsar_rebalancer/{cluster}/state", uri=f"x-pulsar-rebalancer://{cluster}/state")


def moves_asset(cluster: str) -> Asset:
    """Return the asset that receives an event when a run has moved or split bundles. DAGs can be scheduled on it.

    The event's extra holds `cluster`, `plan_id`, `run` (URI of the run's folder), and the numbers of bundles `moved`
    and `split`.
    """
    return Asset(name=f"pulsar_rebalancer/{cluster}/moves", uri=f"x-pulsar-rebalancer://{cluster}/moves")


def moves_alias(cluster: str) -> AssetAlias:
    """Return the outlet of the *report* task. It is an alias, because an asset would receive an event in every run."""
    return AssetAlias(name=f"pulsar_rebalancer/{cluster}/moved")


class StoredState:
    """Read-only access to one cluster's documents.

    Args:
        reader: read access to the cluster's state asset.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def raw(self, key: str) -> Any:
        """Return a document as stored; None if nothing is stored."""
        return self._reader.get(key)

    def get(self, model: type[_Document]) -> _Document:
        """Return a document; an initial document if nothing is stored.

        Raises:
            StateError: `state_version`.
        """
        return model.parse(self.raw(model.KEY))

    def last_plan(self) -> str:
        """Return the id of the last recorded plan; empty if there is none or the document cannot be read."""
        document = self.raw(DecisionState.KEY)
        return str(document.get("plan_id") or "") if isinstance(document, dict) else ""

    def answers(self, model: type[_Document]) -> _Document:
        """Return the `question` or the `answers` document.

        Raises:
            StateError: `approval_unreadable`.
        """
        try:
            return self.get(model)
        except StateError as error:
            raise StateError(Reason.APPROVAL_UNREADABLE, f"{model.KEY}: {error.message}") from None

    def readable(self, model: type[_Document]) -> _Document:
        """Return a document; if it cannot be read, return an initial document.

        Use this only before replacing the document, or to show it.
        """
        try:
            return self.get(model)
        except StateError:
            return model()

    def unreadable(self, storage: ClusterStorage) -> dict[str, str]:
        """Return why documents or their copies cannot be read, by key; empty if all can be read."""
        why = {}
        for model in DOCUMENTS:
            try:
                self.get(model)
            except StateError as error:
                why[model.KEY] = error.message
        try:
            self.roll(storage)
        except (StateError, SnapshotError) as error:
            why[Roll.KEY] = error.message
        copies = {Drains.KEY: self.readable_drains(storage)[1], Control.KEY: self.control(storage).unreadable}
        return {key: text for key, text in copies.items() if text} | why

    def roll(self, storage: ClusterStorage) -> Roll:
        """Return the `roll` document or its copy, whichever changed last.

        Raises:
            StateError: `state_version`.
            SnapshotError: the store has no document, and the copy cannot be read.
        """
        stored = self.get(Roll)
        try:
            copy = Roll.parse(storage.roll.read_json()) if storage.roll.exists() else stored
        except (StateError, SnapshotError):
            if self.raw(Roll.KEY) is None:
                raise
            return stored
        return max(stored, copy, key=lambda roll: roll.changed_at)

    def readable_roll(self, storage: ClusterStorage) -> Roll:
        """Return the `roll` document for display only; an initial document if it cannot be read."""
        try:
            return self.roll(storage)
        except (StateError, SnapshotError):
            return Roll()

    def drained(self, storage: ClusterStorage) -> Drains:
        """Return the brokers drained by people or a rolling restart. Raise the same errors as `roll` and `drains`."""
        return _with_rolled(self.drains(storage), self.roll(storage))

    def known_drained(self, storage: ClusterStorage) -> tuple[Drains, RebalancerError | None]:
        """Return the known drained brokers, for display only, and the error of `drained` (None if all are known)."""
        try:
            return self.drained(storage), None
        except (StateError, SnapshotError) as error:
            unknown = error
        try:
            drains, _ = self.readable_drains(storage)
        except SnapshotError:
            drains = self.readable(Drains)
        return _with_rolled(drains, self.readable_roll(storage)), unknown

    def drains(self, storage: ClusterStorage) -> Drains:
        """Return the brokers drained by people, from the `drains` document and its copy.

        A drain continues even if one of the two is lost.

        Raises:
            StateError: `drains_unreadable`.
            SnapshotError: `storage_failed`.
        """
        drains, unreadable = self.readable_drains(storage)
        if unreadable:
            raise StateError(Reason.DRAINS_UNREADABLE, unreadable)
        return drains

    def readable_drains(self, storage: ClusterStorage) -> tuple[Drains, str]:
        """Return the drained brokers from the readable documents, and an error message (empty if both can be read).

        Raises:
            SnapshotError: `storage_failed`.
        """
        drains, unreadable = Drains(), ""
        for read in (partial(_copied_drains, storage), partial(self.get, Drains)):
            try:
                drains = drains.united(read())
            except (StateError, SnapshotError) as error:
                if error.reason.has(Trait.PASSING):
                    raise
                unreadable = error.message
        return drains, unreadable

    def control(self, storage: ClusterStorage) -> Control:
        """Return people's orders, from the `control` document and its copy. If these differ, the stricter orders apply.

        If the document or the copy is unreadable, the gate is closed (`Control.unreadable`), and readable orders still
        apply.
        """
        control, unreadable = Control(), ""
        for read in (partial(_copied_control, storage), partial(self.get, Control)):
            try:
                control = control.stricter(read())
            except (StateError, SnapshotError) as error:
                unreadable = error.message
        breaker = readable_breaker(self.raw(Breaker.KEY), datetime.now(UTC))
        rolling = self.readable_roll(storage).under_way
        return control.model_copy(update={"breaker": breaker, "unreadable": unreadable, "rolling": rolling})

    def told(self, storage: ClusterStorage, drains: Drains, started: datetime | None = None) -> OrdersInForce:
        """Return the input for the sentence about current orders. Unreadable approvals are left out.

        Args:
            drains: the result of the method `drained`.
            started: start of the run in progress, to decide whether a stop affects it; None if no run is in progress.
        """
        return OrdersInForce(
            control=self.control(storage),
            drains=drains.brokers,
            roll=self.readable_roll(storage),
            question=self.readable(Question),
            answers=self.readable(Answers),
            started=started,
        )


class StateStore(StoredState):
    """Read and write access to one cluster's documents.

    Args:
        accessor: Airflow's accessor of the cluster's state asset.
    """

    def __init__(self, accessor: Accessor) -> None:
        super().__init__(accessor)
        self._accessor = accessor

    @classmethod
    def of(cls, context: Context, cluster: str) -> StateStore:
        """Return the store of a cluster. The running task must have the cluster's state asset as an inlet."""
        return cls(context["asset_state_store"][state_asset(cluster)])

    def put(self, document: StateDocument) -> None:
        """Store a document with a single write."""
        self._accessor.set(document.KEY, document.model_dump(mode="json"))

    def change_moves(self, change: Callable[[MovesState], MovesState]) -> None:
        """Apply a change to the stored `moves` document."""
        self.put(change(self.get(MovesState)))

    def decision_or_lost(self, storage: ClusterStorage) -> DecisionState:
        """Return the `decision` document. Before the first run, this is the initial document.

        Raises:
            StateError: `state_version`, or `state_lost` if the store is empty although there are copies of committed
                states.
        """
        document = self.raw(DecisionState.KEY)
        copies = committed_sequences(storage)
        if document is None and copies:
            raise StateError(
                Reason.STATE_LOST,
                f"the state store has no state of {storage.cluster}, but {storage.state.uri} holds copies up to "
                f"sequence number {copies[-1]}: run pulsar_control__{storage.cluster} with the action restore or reset",
            )
        return DecisionState.parse(document)

    def handed_over(self, identity: str, airflow_run_id: str) -> HandedOver | None:
        """Return the plan with this hash if it was handed over to this run; None otherwise.

        Raises:
            StateError: `state_version`, `approval_unreadable`.
        """
        # Check plans made by hand first, because they need no answers.
        plan = self.get(HandedOverPlans).plans.get(identity)
        if plan is not None and plan.run_id == airflow_run_id:
            return plan
        approval = self.answers(Answers).approval(identity, airflow_run_id)
        return approval.handed_over if approval else None

    def is_approved(self, summary: Summary, airflow_run_id: str) -> bool:
        """Return whether a run carries out a plan that a person approved.

        Raises:
            StateError: `state_version`, `approval_unreadable`.
        """
        carried = summary.by_hand.carries_out if summary.by_hand else ""
        plan = self.handed_over(carried, airflow_run_id) if carried else None
        return plan is not None and plan.approved

    def put_drains(self, storage: ClusterStorage, state: Drains) -> None:
        """Store the `drains` document and its copy."""
        self.put(state)
        storage.drains.write_json(state.model_dump(mode="json"))

    def put_roll(self, storage: ClusterStorage, state: Roll) -> None:
        """Store the `roll` document and its copy."""
        self.put(state)
        storage.roll.write_json(state.model_dump(mode="json"))

    def put_control(self, storage: ClusterStorage, state: Control) -> None:
        """Store the `control` document and its copy."""
        self.put(state)
        storage.control.write_json(state.model_dump(mode="json"))

    def put_stop(self, storage: ClusterStorage, stop: Order) -> None:
        """Store a stop in the `control` document and in its copy. If one of them is unreadable, it is left unchanged.

        An unreadable document closes the gate and stops any wave in progress anyway.
        """
        with suppress(StateError):
            self.put(self.get(Control).model_copy(update={"stop": stop}))
        with suppress(StateError, SnapshotError):
            copy = _copied_control(storage).model_copy(update={"stop": stop})
            storage.control.write_json(copy.model_dump(mode="json"))

    def change_breaker(
        self, rules: BreakerRules, seen: Round, now: datetime, run: str, closed_at: datetime | None
    ) -> None:
        """Update the `breaker` document after a run. If it cannot be read, the breaker is treated as just opened.

        Args:
            seen: the run's results.
            run: the report, which is counted only once (`Breaker.run`).
            closed_at: when a person last closed the breaker; None if never.
        """
        present = readable_breaker(self.raw(Breaker.KEY), now)
        changed = advance(present, rules, seen, now, run, closed_at)
        if changed != present or present.opened_at == now:
            self.put(changed)


def _with_rolled(drains: Drains, roll: Roll) -> Drains:
    """Return drains with those of a rolling restart, unless a person has released the broker since."""
    rolled = {
        name: drain
        for name, drain in roll.drains().items()
        if name not in drains.released or drains.released[name] < drain.at
    }
    return drains.model_copy(update={"brokers": rolled | drains.brokers})


def _copied_drains(storage: ClusterStorage) -> Drains:
    return Drains.parse(storage.drains.read_json()) if storage.drains.exists() else Drains()


def _copied_control(storage: ClusterStorage) -> Control:
    return Control.parse(storage.control.read_json()) if storage.control.exists() else Control()
