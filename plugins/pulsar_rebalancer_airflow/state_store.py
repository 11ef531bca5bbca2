"""Typed access to what a cluster keeps between runs: a few documents in Airflow's asset state store.

The asset is an inlet of every task that touches the state: an outlet would write an asset event every interval, and
Airflow deletes the state of an asset that is an outlet alone soon after its DAG file is gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from airflow.sdk import Asset, AssetAlias

from pulsar_rebalancer.alerts.incidents import AlertsState, parse_alerts
from pulsar_rebalancer.control.documents import Control, parse_control
from pulsar_rebalancer.errors import SnapshotError, StateError
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.state.backup import committed_sequences
from pulsar_rebalancer.state.by_hand import Drains, ShownPlans, parse_drains, parse_shown
from pulsar_rebalancer.state.model import DecisionState, MovesState, parse_decision, parse_moves

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from airflow.sdk import Context

    from pulsar_rebalancer.storage.layout import ClusterStorage

DECISION, MOVES = "decision", "moves"
"""Keys of the documents that decisions are made from.

One rebalancing run is active at a time: record alone writes the first, unload and report the second; the control
DAG writes both, when somebody resets or restores them.
"""

ALERTS, WATCH = "alerts", "watch"
"""Keys of the open conditions: what report sees, and what the watch sees.

Each has one writer; while a cluster has no alerts, and so no watch, report empties both.
"""

SHOWN, DRAINS = "shown", "drains"
"""Keys of what people do by hand: plans that were shown, brokers that are drained.

The by-hand DAG alone writes them. No reset or restore touches them.
"""

CONTROL = "control"
"""Key of what people order: a pause, a run to be skipped, the last stop. The control DAG alone writes it.

No reset or restore touches it.
"""


class Accessor(Protocol):
    """What is used of Airflow's accessor of one asset's state."""

    def get(self, key: str, default: Any = None) -> Any:
        """Return the stored value, or the default."""
        ...

    def set(self, key: str, value: Any) -> None:
        """Write or overwrite the value."""
        ...


def state_asset(cluster: str) -> Asset:
    """Return the asset that carries a cluster's state; renaming it would lose the state."""
    return Asset(name=f"pulsar_rebalancer/{cluster}/state", uri=f"x-pulsar-rebalancer://{cluster}/state")


def moves_asset(cluster: str) -> Asset:
    """Return the asset that has an event whenever a run moved something: other DAGs can be scheduled on it."""
    return Asset(name=f"pulsar_rebalancer/{cluster}/moves", uri=f"x-pulsar-rebalancer://{cluster}/moves")


def moves_alias(cluster: str) -> AssetAlias:
    """Return the outlet of report: an alias has an event only when one is added, an asset has one in every run."""
    return AssetAlias(name=f"pulsar_rebalancer/{cluster}/moved")


class StateStore:
    """The documents of one cluster.

    Args:
        accessor: of the cluster's state asset.
    """

    def __init__(self, accessor: Accessor) -> None:
        self._accessor = accessor

    @classmethod
    def of(cls, context: Context, cluster: str) -> StateStore:
        """Return the store of a cluster whose state asset is an inlet of the running task."""
        return cls(context["asset_state_store"][state_asset(cluster)])

    def raw(self, key: str) -> Any:
        """Return a document as it is stored; None when there is none."""
        return self._accessor.get(key)

    def decision(self) -> DecisionState:
        """Return the `decision` document; the initial one when nothing is stored.

        Raises:
            StateError: `state_version`.
        """
        return parse_decision(self.raw(DECISION))

    def decision_or_lost(self, storage: ClusterStorage) -> DecisionState:
        """Return the `decision` document; an empty store is fine only before the first run.

        Raises:
            StateError: `state_version`, or `state_lost` when the store is empty beside copies of committed states.
        """
        document = self.raw(DECISION)
        copies = committed_sequences(storage)
        if document is None and copies:
            raise StateError(
                Reason.STATE_LOST,
                f"the state store has no state of {storage.cluster}, but {storage.state.uri} holds copies up to "
                f"sequence number {copies[-1]}: run pulsar_control__{storage.cluster} with the action restore or reset",
            )
        return parse_decision(document)

    def last_plan(self) -> str:
        """Return the id of the plan that was recorded last; empty when there is none, or it cannot be read."""
        document = self.raw(DECISION)
        return str(document.get("plan_id") or "") if isinstance(document, dict) else ""

    def put_decision(self, state: DecisionState) -> None:
        """Store the `decision` document, in one write."""
        self._accessor.set(DECISION, state.model_dump(mode="json"))

    def moves(self) -> MovesState:
        """Return the `moves` document; the initial one when nothing is stored.

        Raises:
            StateError: `state_version`.
        """
        return parse_moves(self.raw(MOVES))

    def put_moves(self, state: MovesState) -> None:
        """Store the `moves` document, in one write."""
        self._accessor.set(MOVES, state.model_dump(mode="json"))

    def change_moves(self, change: Callable[[MovesState], MovesState]) -> None:
        """Store the `moves` document as the change makes it of the one that is stored now."""
        self.put_moves(change(self.moves()))

    def shown(self) -> ShownPlans:
        """Return the `shown` document; an empty one when nothing is stored.

        Raises:
            StateError: `state_version`.
        """
        return parse_shown(self.raw(SHOWN))

    def put_shown(self, state: ShownPlans) -> None:
        """Store the `shown` document, in one write."""
        self._accessor.set(SHOWN, state.model_dump(mode="json"))

    def drains(self, storage: ClusterStorage) -> Drains:
        """Return the brokers that are drained, by the `drains` document and its copy: the loss of one ends no drain.

        Raises:
            StateError: `state_version`.
            SnapshotError: the copy cannot be read.
        """
        copy = parse_drains(storage.drains.read_json()) if storage.drains.exists() else Drains()
        return Drains(brokers=copy.brokers | parse_drains(self.raw(DRAINS)).brokers)

    def put_drains(self, storage: ClusterStorage, state: Drains) -> None:
        """Store the `drains` document and its copy."""
        document = state.model_dump(mode="json")
        self._accessor.set(DRAINS, document)
        storage.drains.write_json(document)

    def control(self, storage: ClusterStorage) -> Control:
        """Return what people ordered, by the `control` document and its copy; of both the stricter holds.

        What cannot be read holds as well: it says so (`Control.unreadable`).
        """
        try:
            copy = parse_control(storage.control.read_json()) if storage.control.exists() else Control()
            return copy.stricter(parse_control(self.raw(CONTROL)))
        except (StateError, SnapshotError) as error:
            return Control(unreadable=error.message)

    def put_control(self, storage: ClusterStorage, state: Control) -> None:
        """Store the `control` document and its copy."""
        document = state.model_dump(mode="json")
        self._accessor.set(CONTROL, document)
        storage.control.write_json(document)

    def stopped_since(self, started: datetime | None) -> bool:
        """Return whether somebody stopped what was under way then.

        Raises:
            StateError: `state_version`.
        """
        return parse_control(self.raw(CONTROL)).stopped_since(started)

    def alerts(self, key: str = ALERTS) -> AlertsState:
        """Return the document of open conditions under one of its two keys; an empty one when none can be read."""
        return parse_alerts(self.raw(key))

    def put_alerts(self, state: AlertsState, key: str = ALERTS) -> None:
        """Store a document of open conditions, in one write."""
        self._accessor.set(key, state.model_dump(mode="json"))
