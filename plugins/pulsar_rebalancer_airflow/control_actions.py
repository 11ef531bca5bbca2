"""The actions of the control DAG: show, export, reset or restore the state, stop a run, and the audit trail."""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypedDict

from pydantic import JsonValue

from pulsar_rebalancer.config.clusters_file import Origin
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.errors import RebalancerError, SnapshotError, StateError
from pulsar_rebalancer.orders.breaker import Breaker, readable_breaker
from pulsar_rebalancer.orders.control_document import FILE_NAME, Control, Order
from pulsar_rebalancer.orders.in_force import JudgedRun, closings, sentence
from pulsar_rebalancer.orders.manual_plans import Drains, HandedOverPlans, ShownPlans
from pulsar_rebalancer.reasons import Reason, Trait
from pulsar_rebalancer.run.outcome import read_waves
from pulsar_rebalancer.run.plan import LONGEST_RUN, read_moves, read_outcomes, read_splits
from pulsar_rebalancer.state.state_documents import DecisionState, MovesState, committed_sequences, copy_of, keep_copy
from pulsar_rebalancer.storage.documents import ClusterStorage, time_of
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer_airflow.state_store import DOCUMENTS, StateStore


def loss(store: StateStore, lost: Mapping[str, str]) -> dict[str, JsonValue]:
    """Return the errors (`lost`) and JSON texts (`was`) of lost documents, by key, for `note`; empty if none."""
    texts: dict[str, JsonValue] = {key: json.dumps(store.raw(key), default=str) for key in lost}
    return {"lost": dict(lost), "was": texts} if lost else {}


def note(storage: ClusterStorage, action: str, order: Order, details: Mapping[str, JsonValue]) -> StoragePath:
    """Write `state/change-<time>-<action>.json`, and return its path.

    An earlier file for the same order is replaced.
    """
    file = storage.state / f"change-{order.at:%Y%m%dT%H%M%S.%fZ}-{action}.json"
    who_and_why = {"at": order.at.isoformat(), "action": action, "by": order.by, "reason": order.reason}
    file.write_json({**who_and_why, **details})
    return file


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


_SECONDS_BETWEEN_LOOKS = 1.0


class Stopped(NamedTuple):
    """The outcome of a stop.

    Attributes:
        finished: reason code by bundle, for bundles that were in progress and have been completed.
        unfinished: bundles of the current wave that have no outcome. Those not yet started will not be started.
        not_begun: number of bundles that the run will not move or split, including later waves.
    """

    finished: dict[str, Reason]
    unfinished: tuple[str, ...]
    not_begun: int


class UnderWay(TypedDict):
    """The last recorded plan, its bundles in progress, and the number of its bundles without an outcome."""

    plan: str
    bundles: list[str]
    without_outcome: int


def under_way(store: StateStore, storage: ClusterStorage) -> UnderWay:
    """Return the last recorded plan, and its bundles that are in progress.

    Raises:
        StateError: `state_version`.
        SnapshotError: one of the run's files cannot be read.
    """
    plan = store.get(DecisionState).plan_id
    run, begun = storage.run(plan), _without_outcome(store, plan)
    to_do = _to_do(run) | begun if run else begun
    return UnderWay(plan=plan, bundles=sorted(begun), without_outcome=len(to_do))


def wait(store: StateStore, storage: ClusterStorage, found: UnderWay, longest_seconds: float) -> Stopped:
    """Wait until no bundle is in progress, and return the outcome of the stop.

    The task that carries out the plan checks for a stop before each bundle. Until this task ends, it is unknown which
    bundles it had started.

    Args:
        store: the cluster's store, in which the stop is already stored.
        found: the plan in progress when the stop was stored.
        longest_seconds: maximum time to wait. Bundles that have no outcome by then are `unfinished`.
    """
    until, begun = time.monotonic() + longest_seconds, set(found["bundles"])
    left = begun & _without_outcome(store, found["plan"])
    while left and time.monotonic() < until:
        time.sleep(_SECONDS_BETWEEN_LOOKS)
        left &= _without_outcome(store, found["plan"])
    run = storage.run(found["plan"])
    ended = {bundle: reason for bundle, reason in _reasons(run).items() if bundle in begun - left} if run else {}
    finished = {bundle: reason for bundle, reason in ended.items() if not reason.has(Trait.NOT_BEGUN)}
    return Stopped(finished, tuple(sorted(left)), found["without_outcome"] - len(finished) - len(left))


def in_progress(storage: ClusterStorage, plan: str, now: datetime) -> bool:
    """Return whether a plan's run is still in progress."""
    at, run = time_of(plan), storage.run(plan)
    return at is not None and run is not None and now - at <= LONGEST_RUN and not (run / "outcome.json").exists()


def _to_do(run: StoragePath) -> set[str]:
    """Return a plan's bundles without an outcome; empty once the run has ended."""
    if (run / "outcome.json").exists():
        return set()
    planned = {move.bundle for move in read_moves(run)} | {split.bundle for split in read_splits(run)}
    return planned - _reasons(run).keys()


def _reasons(run: StoragePath) -> dict[str, Reason]:
    moves = {bundle: outcome.reason for bundle, outcome in read_waves(run).items()}
    splits = {bundle: outcome.reason for bundle, outcome in read_outcomes(run).items()}
    return dict(sorted((moves | splits).items()))


def _without_outcome(store: StateStore, plan: str) -> set[str]:
    moves = store.get(MovesState)
    known = {bundle: (unload.plan_id, unload.outcome) for bundle, unload in moves.unloads.items()}
    known |= {bundle: (split.plan_id, split.outcome) for bundle, split in moves.splits.items()}
    return {bundle for bundle, (plan_id, outcome) in known.items() if plan_id == plan and not outcome}


def in_force(
    store: StateStore,
    storage: ClusterStorage,
    settings: Settings,
    started: datetime | None,
    origins: Mapping[str, Origin] | None = None,
) -> str:
    """Return a sentence that says which orders apply to the next run and who gave them.

    Args:
        settings: the effective settings.
        started: start of the run in progress, to decide whether a stop affects it; None if no run is in progress.
        origins: source of each setting, by name, if known.
    """
    now = datetime.now(UTC)
    try:
        orders = replace(store.told(storage, store.drained(storage), started), origins=origins or {})
    except RebalancerError as error:
        return f"Nothing is moved: {error.message}"
    return sentence(settings, closings(settings, orders.control, now, JudgedRun(now, store.last_plan())), orders, now)
