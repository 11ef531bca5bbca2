"""Show, export, reset or restore what is kept between runs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypedDict

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException

from pulsar_rebalancer.errors import StateError
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.state.backup import committed_sequences, copy_of, keep_copy
from pulsar_rebalancer.state.model import DecisionState, MovesState, parse_decision, parse_moves
from pulsar_rebalancer.storage.layout import ClusterStorage
from pulsar_rebalancer_airflow.failures import final_unless_passing
from pulsar_rebalancer_airflow.state_store import DECISION, MOVES, StateStore, state_asset

if TYPE_CHECKING:
    from airflow.sdk import Context

ACTIONS = ("show", "export", "reset", "restore")
FILE_NAME = r"(decision-\d{1,18}|export-\d{8}T\d{6}Z)\.json"
"""Names of the files that can be restored; never a path."""


class StateSummary(TypedDict):
    """What is told of a cluster's state: the twenty brokers with the most hits, and twenty kept destinations."""

    seq: int
    plan_id: str
    counted_at: str | None
    strategy: str
    means: str
    brokers_with_hits: int
    most_hits: dict[str, dict[str, float]]
    recently_unloaded: int
    destinations_kept: dict[str, str]


class StateOperator(BaseOperator):
    """Do with a cluster's state what the run's parameters ask for.

    Reset and restore give the state a new sequence number, so a plan that is under way becomes stale and is not
    recorded. A retry of them does it once more, which changes nothing but that number.

    Args:
        cluster: name in the clusters file.
        root: storage root.
    """

    def __init__(self, *, cluster: str, root: str, **kwargs: Any) -> None:
        super().__init__(**kwargs, inlets=[state_asset(cluster)])
        self.cluster = cluster
        self.root = root

    def execute(self, context: Context) -> StateSummary:
        """Carry out the action.

        Returns:
            A summary of the state after it.

        Raises:
            AirflowFailException: no reason was given, a file has a wrong name or cannot be read, or nothing is there
                to restore.
        """
        params = context["params"]
        action, reason = params["action"], str(params["reason"] or "").strip()
        changes = action in ("reset", "restore")
        if action not in ACTIONS:
            raise AirflowFailException(f"action: {action!r} is none of {', '.join(ACTIONS)}")
        if changes and not reason:
            raise AirflowFailException(f"reason: say why the state is changed; {action} did nothing")
        storage, now = ClusterStorage(self.root, self.cluster), datetime.now(UTC)
        store = StateStore.of(context, self.cluster)
        with final_unless_passing():
            if changes:
                self._change(context, store, storage, now, action, reason, str(params["file"] or "").strip())
            elif action == "export":
                self._export(store, storage, now)
            summary = _summary(store.decision(), store.moves())
        self.log.info("State of cluster %s:\n%s", self.cluster, json.dumps(summary, indent=1))
        return summary

    def _export(self, store: StateStore, storage: ClusterStorage, now: datetime) -> None:
        file = storage.state / f"export-{now:%Y%m%dT%H%M%SZ}.json"
        file.write_json(
            {DECISION: store.decision().model_dump(mode="json"), MOVES: store.moves().model_dump(mode="json")}
        )
        self.log.info("Exported to %s", file.uri)

    def _change(
        self,
        context: Context,
        store: StateStore,
        storage: ClusterStorage,
        now: datetime,
        action: str,
        reason: str,
        name: str,
    ) -> None:
        before = _sequence(store.raw(DECISION), storage)
        source, decision, moves = ("", DecisionState(), MovesState())
        if action == "restore":
            source, decision, moves = _restorable(storage, name)
        # No plan id: a plan that was recorded once must not be carried out after a restore.
        means = decision.means if decision.means and (storage.state / decision.means).exists() else ""
        state = decision.model_copy(update={"seq": before + 1, "plan_id": "", "means": means})
        store.put_decision(state)
        store.put_moves(_history(store.raw(MOVES), moves, reset=action == "reset"))
        keep_copy(storage, state)
        by = context["dag_run"].triggering_user_name or ""
        entry = {
            "at": now.isoformat(),
            "action": action,
            "by": by,
            "reason": reason,
            "file": source,
            "seq_before": before,
            "seq_after": state.seq,
        }
        (storage.state / f"change-{now:%Y%m%dT%H%M%SZ}-{state.seq}.json").write_json(entry)
        self.log.warning("%s of the state of cluster %s by %s: %s", action, self.cluster, by or "unknown", entry)
        if decision.means and not means:
            self.log.warning("%s is gone: the means of bundles start anew", decision.means)


def _sequence(document: Any, storage: ClusterStorage) -> int:
    """Return the highest sequence number known, also of a document that cannot be read."""
    stored = document.get("seq") if isinstance(document, Mapping) else None
    return max([stored if isinstance(stored, int) else 0, *committed_sequences(storage)])


def _restorable(storage: ClusterStorage, name: str) -> tuple[str, DecisionState, MovesState]:
    if not name:
        copies = committed_sequences(storage)
        if not copies:
            raise StateError(Reason.FILE_MISSING, f"{storage.state.uri} holds no copy of a committed state")
        name = copy_of(storage, copies[-1]).name
    if re.fullmatch(FILE_NAME, name) is None:
        raise StateError(Reason.WRONG_SETTING, f"file: {name!r} is no decision-<number>.json or export-<time>.json")
    document = (storage.state / name).read_json()
    if name.startswith("export-"):
        if not isinstance(document, Mapping) or set(document) != {DECISION, MOVES}:
            raise StateError(Reason.FILE_DAMAGED, f"{name} is no export: it must hold {DECISION} and {MOVES}")
        return name, parse_decision(document[DECISION]), parse_moves(document[MOVES])
    return name, parse_decision(document), MovesState()


def _history(stored: Any, restored: MovesState, *, reset: bool) -> MovesState:
    """Return both histories: bundles that were moved lately stay in their grace period, unless it is unreadable.

    A reset forgets the destinations that the leader may remember: whoever has restarted it says so in this way.
    """
    try:
        present = parse_moves(stored)
    except StateError:
        return restored
    return MovesState(
        unloads=restored.unloads | present.unloads,
        kept={} if reset else restored.kept | present.kept,
        splits=restored.splits | present.splits,
    )


def _summary(decision: DecisionState, moves: MovesState) -> StateSummary:
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
        "destinations_kept": {bundle: found.destination for bundle, found in sorted(moves.kept.items())[:20]},
    }
