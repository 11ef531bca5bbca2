"""Typed access to a cluster's state: a few documents in Airflow's asset state store.

The asset is an inlet, not an outlet, of every task that uses the state. An outlet has two drawbacks: every run would
create an asset event, and once the DAG file is removed, Airflow would soon delete the state.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from airflow.sdk import Asset, AssetAlias

from pulsar_rebalancer.config.clusters_file import Origin
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.errors import SnapshotError, StateError
from pulsar_rebalancer.orders.breaker import Breaker
from pulsar_rebalancer.orders.in_force import all_holds, orders_sentence
from pulsar_rebalancer.orders.manual_plans import Answers, Drains, HandedOverPlan, HandedOverPlans, Question, ShownPlans
from pulsar_rebalancer.orders.order import Control, JudgedRun, OrdersInForce
from pulsar_rebalancer.orders.roll_document import Roll
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.plan import Summary
from pulsar_rebalancer.show.incidents import AlertsState, WatchState
from pulsar_rebalancer.state import DecisionState, MovesState, StateDocument
from pulsar_rebalancer.storage.documents import ClusterStorage, last_committed_run
from pulsar_rebalancer_airflow.options import storage_of

if TYPE_CHECKING:
    from airflow.sdk import Context

ORDER_DOCUMENTS = (Control, Drains, Roll, Breaker)
"""Models of the documents that are read again before each bundle of a plan moves."""

ALL_DOCUMENTS = (
    *(DecisionState, MovesState, AlertsState, WatchState, ShownPlans, HandedOverPlans, Question, Answers),
    *ORDER_DOCUMENTS,
)
"""Models of all documents in the store. The first run writes all documents, so a missing document has been lost."""

_MAX_TIME = datetime.max.replace(tzinfo=UTC)

_Document = TypeVar("_Document", bound=StateDocument)


class StateAccessor(Protocol):
    """Read and write access to one asset's state: only the methods of Airflow's accessor used here."""

    def get(self, key: str, default: Any = None) -> Any: ...

    def set(self, key: str, value: Any) -> None: ...


def state_asset(cluster: str) -> Asset:
    """Return the asset that holds a cluster's state. If the asset were renamed, the state would be lost."""
    return Asset(name=f"pulsar_rebalancer/{cluster}/state", uri=f"x-pulsar-rebalancer://{cluster}/state")


def moves_asset(cluster: str) -> Asset:
    """Return the asset that receives an event when a run has moved or split bundles, to schedule DAGs on.

    The event's extra holds `cluster`, `plan_id`, `run` (URI of the run's folder), and the numbers of bundles
    `moved` and `split`.
    """
    return Asset(name=f"pulsar_rebalancer/{cluster}/moves", uri=f"x-pulsar-rebalancer://{cluster}/moves")


def moves_alias(cluster: str) -> AssetAlias:
    """Return the outlet of the *report* task. It is an alias, because an asset would receive an event in every run."""
    return AssetAlias(name=f"pulsar_rebalancer/{cluster}/moved")


class StoredState:
    """Read-only access to one cluster's documents.

    A document is lost if it cannot be read, or is missing although a run was committed. Then nothing is moved, and
    only a person who resets or restores the state has the documents written again. `read_raw` returns a document as
    stored, by its key; None if nothing is stored.
    """

    def __init__(self, read_raw: Callable[[str], Any], storage: ClusterStorage) -> None:
        self.raw = read_raw
        self.storage = storage

    def get(self, model: type[_Document]) -> _Document:
        document, why = self._read(model)
        if why:
            raise StateError(Reason.STATE_LOST, f"{model.KEY}: {why}")
        return document

    def peek(self, model: type[_Document]) -> _Document:
        """Return a document, only to show or replace it; an initial document if it is lost."""
        return self._read(model)[0]

    def lost_documents(self, models: Collection[type[StateDocument]] = ALL_DOCUMENTS) -> dict[str, str]:
        return {model.KEY: why for model in models if (why := self._read(model)[1])}

    def _read(self, model: type[_Document]) -> tuple[_Document, str]:
        document = self.raw(model.KEY)
        if document is None:
            return model(), "missing" if last_committed_run(self.storage, _MAX_TIME) else ""
        try:
            return model.parse(document, "the document"), ""
        except SnapshotError as error:
            return model(), error.message

    def last_plan_id(self) -> str:
        return self.peek(DecisionState).plan_id

    def orders(
        self, started_at: datetime | None = None, models: Collection[type[StateDocument]] = ALL_DOCUMENTS
    ) -> OrdersInForce:
        """Return the current orders. If a document is lost, `OrdersInForce.lost_text` says so: orders may be missing.

        `started_at` is the start of the run in progress, to decide whether a stop affects it, or None. `models`
        are the documents to check for a loss.
        """
        once = StoredState(cache(self.raw), self.storage)  # each read is a request to Airflow
        roll = once.peek(Roll)
        others = (once.peek(model) for model in (Control, Breaker, Question, Answers))
        drains = roll.add_roll_drain(once.peek(Drains))
        return OrdersInForce.build(
            *others, roll, drains, lost=_lost_documents_text(once.lost_documents(models)), started_at=started_at
        )

    def orders_text(
        self, settings: Settings, started_at: datetime | None, origins: Mapping[str, Origin] | None = None
    ) -> str:
        """Return a sentence that says which orders apply to the next run and who gave them.

        `started_at` is as in `orders`; `origins` are the sources of the settings, by name, if known.
        """
        now, orders = datetime.now(UTC), replace(self.orders(started_at), setting_origins=origins or {})
        closed = all_holds(settings, orders, now, JudgedRun(now, self.last_plan_id()))
        return orders_sentence(settings, closed, orders, now)

    def handed_over_plan(self, identity: str, airflow_run_id: str) -> HandedOverPlan | None:
        """Return the plan with this hash if it was handed over to this run, or None. Raises `state_lost`."""
        # Check plans made by hand first, because they need no answers.
        plan = self.get(HandedOverPlans).plans.get(identity)
        if plan is not None and plan.run_id == airflow_run_id:
            return plan
        approval = self.get(Answers).approval(identity, airflow_run_id)
        return approval.as_handed_over_plan if approval else None

    def is_approved(self, summary: Summary, airflow_run_id: str) -> bool:
        """Return whether a run carries out a plan that a person approved. Raises StateError `state_lost`."""
        carried = summary.by_hand.carries_out if summary.by_hand else ""
        plan = self.handed_over_plan(carried, airflow_run_id) if carried else None
        return plan is not None and plan.approved


class StateStore(StoredState):
    """Read and write access to one cluster's documents, through Airflow's accessor of the state asset."""

    def __init__(self, accessor: StateAccessor, storage: ClusterStorage) -> None:
        super().__init__(accessor.get, storage)
        self._accessor = accessor

    @classmethod
    def from_context(cls, context: Context, cluster: str) -> StateStore:
        return cls(context["asset_state_store"][state_asset(cluster)], storage_of(cluster))

    def put(self, document: StateDocument) -> None:
        self._accessor.set(document.KEY, document.model_dump(mode="json"))

    def write_missing_documents(self) -> None:
        """Write missing documents before the first run is committed, so that later losses are noticed.

        Raises StateError `state_lost`.
        """
        once = StoredState(cache(self.raw), self.storage)
        if lost := once.lost_documents():
            raise StateError(Reason.STATE_LOST, _lost_documents_text(lost))
        if any(once.raw(model.KEY) is None for model in ALL_DOCUMENTS):
            self.replace_lost_documents()

    def replace_lost_documents(self) -> None:
        for model in ALL_DOCUMENTS:
            if self.raw(model.KEY) is None or self.lost_documents((model,)):
                self.put(model())

    def change_moves_state(self, change: Callable[[MovesState], MovesState]) -> None:
        self.put(change(self.get(MovesState)))


def _lost_documents_text(lost_reasons: Mapping[str, str]) -> str:
    return "; ".join(f"{key}: {why}" for key, why in lost_reasons.items())
