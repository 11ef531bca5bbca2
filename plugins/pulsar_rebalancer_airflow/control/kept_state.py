"""Show, export, reset or restore a cluster's state."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, TypedDict

from pulsar_rebalancer.errors import SnapshotError, StateError
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.state.backup import committed_sequences, copy_of, keep_copy
from pulsar_rebalancer.state.manual_plans import Drains, HandedOverPlans, ShownPlans
from pulsar_rebalancer.state.orders.breaker import Breaker, readable_breaker
from pulsar_rebalancer.state.orders.control_document import Control
from pulsar_rebalancer.state.orders.control_form import FILE_NAME
from pulsar_rebalancer.state.state_documents import DecisionState, MovesState
from pulsar_rebalancer_airflow.control.audit import loss, note
from pulsar_rebalancer_airflow.state_store import DOCUMENTS

if TYPE_CHECKING:
    from datetime import datetime

    from pulsar_rebalancer.state.orders.control_document import Order
    from pulsar_rebalancer.storage.layout import ClusterStorage
    from pulsar_rebalancer_airflow.state_store import StateStore

_log = logging.getLogger(__name__)


class StateSummary(TypedDict):
    """A summary of a cluster's state, with at most twenty brokers (most hits first) and twenty stored destinations."""

    seq: int
    plan_id: str
    counted_at: str | None
    strategy: str
    means: str
    brokers_with_hits: int
    most_hits: dict[str, dict[str, float]]
    recently_unloaded: int
    destinations_kept: dict[str, str]


def export(store: StateStore, storage: ClusterStorage, now: datetime) -> str:
    """Write the documents `decision` and `moves` to one file in the cluster's state folder, and return the file's name.

    Raises:
        StateError: `state_version`.
    """
    file = storage.state / f"export-{now:%Y%m%dT%H%M%SZ}.json"
    file.write_json(
        {
            DecisionState.KEY: store.get(DecisionState).model_dump(mode="json"),
            MovesState.KEY: store.get(MovesState).model_dump(mode="json"),
        }
    )
    _log.info("Exported to %s", file.uri)
    return file.name


def change(store: StateStore, storage: ClusterStorage, action: str, order: Order, name: str) -> dict[str, str]:
    """Reset the state, or restore it from a file. Unreadable documents other than `control` are replaced.

    The state gets a new sequence number, so a plan in progress becomes stale and is not recorded. Only a pause or a
    resume replaces an unreadable `control` document.

    Args:
        action: `reset` or `restore`.
        order: the person who requested the change, and the reason.
        name: name of the file to restore; empty for the newest copy.

    Returns:
        The reason why each dropped document could not be read, by key.

    Raises:
        StateError: the file's name or content is invalid, or there is nothing to restore.
        SnapshotError: the file cannot be read.
    """
    before = _sequence(store.raw(DecisionState.KEY), storage)
    lost = {key: why for key, why in store.unreadable(storage).items() if key != Control.KEY}
    details = loss(store, lost)
    source, decision, moves = ("", DecisionState(), MovesState())
    if action == "restore":
        source, decision, moves = _restorable(storage, name)
    # No plan id: a plan recorded earlier must not be carried out after a restore.
    means = decision.means if decision.means and (storage.state / decision.means).exists() else ""
    state = decision.model_copy(update={"seq": before + 1, "plan_id": "", "means": means})
    details |= {"file": source, "seq_before": before, "seq_after": state.seq}
    # Noted first as begun, in case the task is killed before it notes the end.
    note(storage, action, order, details | {"done": False})
    store.put(state)
    store.put(_history(store.raw(MovesState.KEY), moves, reset=action == "reset"))
    _rewrite(store, storage, lost, order.at)
    keep_copy(storage, state)
    note(storage, action, order, details | {"done": True})
    if decision.means and not means:
        _log.warning("%s is gone: the means of bundles start from scratch", decision.means)
    return lost


def _rewrite(store: StateStore, storage: ClusterStorage, lost: Collection[str], now: datetime) -> None:
    """Replace unreadable documents, so that no plan is carried out twice and every readable drain continues.

    The circuit breaker is treated as having just opened.
    """
    for model in DOCUMENTS:
        if model.KEY in lost and model not in (DecisionState, MovesState, Drains, Breaker):
            store.put(model())
    if HandedOverPlans.KEY in lost:
        store.put(ShownPlans())
    if Drains.KEY in lost:
        store.put_drains(storage, store.readable_drains(storage)[0])
    if Breaker.KEY in lost:
        store.put(readable_breaker(store.raw(Breaker.KEY), now))


def last_plan(store: StateStore, storage: ClusterStorage) -> str:
    """Return the id of the last recorded plan. If the document cannot be read, the newest readable copy is used."""
    if isinstance(store.raw(DecisionState.KEY), Mapping):
        return store.last_plan()
    for seq in reversed(committed_sequences(storage)):
        try:
            return DecisionState.parse(copy_of(storage, seq).read_json()).plan_id
        except (SnapshotError, StateError):
            continue
    return ""


def _sequence(document: Any, storage: ClusterStorage) -> int:
    """Return the highest sequence number in the copies and in the stored document; an invalid document is ignored."""
    stored = document.get("seq") if isinstance(document, Mapping) else None
    return max([stored if isinstance(stored, int) else 0, *committed_sequences(storage)])


def _restorable(storage: ClusterStorage, name: str) -> tuple[str, DecisionState, MovesState]:
    if not name:
        copies = committed_sequences(storage)
        if not copies:
            raise StateError(Reason.FILE_MISSING, f"{storage.state.uri} holds no copy of a committed state")
        name = copy_of(storage, copies[-1]).name
    if re.fullmatch(FILE_NAME, name) is None:
        raise StateError(
            Reason.WRONG_SETTING, f"file: {name!r} is neither decision-<number>.json nor export-<time>.json"
        )
    document = (storage.state / name).read_json()
    if name.startswith("export-"):
        if not isinstance(document, Mapping) or set(document) != {DecisionState.KEY, MovesState.KEY}:
            raise StateError(
                Reason.FILE_DAMAGED, f"{name} is not an export: it must hold {DecisionState.KEY} and {MovesState.KEY}"
            )
        return name, DecisionState.parse(document[DecisionState.KEY]), MovesState.parse(document[MovesState.KEY])
    return name, DecisionState.parse(document), MovesState()


def _history(stored: Any, restored: MovesState, *, reset: bool) -> MovesState:
    """Merge the restored and the stored history, so that the grace period of recently moved bundles continues.

    A stored history that cannot be read is dropped. A reset drops the stored destinations, because people reset the
    state after the leader has restarted and lost its destinations.
    """
    try:
        present = MovesState.parse(stored)
    except StateError:
        return restored
    return MovesState(
        unloads=restored.unloads | present.unloads,
        kept={} if reset else restored.kept | present.kept,
        splits=restored.splits | present.splits,
    )


def summary(decision: DecisionState, moves: MovesState) -> StateSummary:
    """Return a summary of the two documents."""
    most = sorted(decision.hits.items(), key=lambda item: (-item[1].high, -item[1].low, item[0]))
    return {
        "seq": decision.seq,
        "plan_id": decision.plan_id,
        "counted_at": decision.counted_at.isoformat() if decision.counted_at else None,
        "strategy": decision.strategy,
        "means": decision.means,
        "brokers_with_hits": len(decision.hits),
        "most_hits": {broker: {"high": count.high, "low": count.low} for broker, count in most[:20]},
        "recently_unloaded": len(moves.unloads),
        "destinations_kept": {bundle: kept.destination for bundle, kept in sorted(moves.kept.items())[:20]},
    }
