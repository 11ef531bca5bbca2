"""Maintain: compact days that are over, and remove what is older than the settings keep."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException

from pulsar_rebalancer.copies import KEPT, committed_sequences, copy_of
from pulsar_rebalancer.retention import Held, keep_up
from pulsar_rebalancer.state import parse_decision
from pulsar_rebalancer.storage import ClusterStorage
from pulsar_rebalancer_airflow.failures import final_unless_passing
from pulsar_rebalancer_airflow.state_store import DECISION, StateStore, state_asset

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Context

    from pulsar_rebalancer.clusters import ClusterEntry
    from pulsar_rebalancer.retention import Report

LISTED = 20
"""How many things that were left the log names one by one."""


class MaintainOperator(BaseOperator):
    """Look after a cluster's files; what went, with counts and bytes, is the XCom of the task.

    A scheduled run acts. A manual one says what it would do, unless its parameter `dry_run` is off. A retry goes on
    where an attempt was stopped. The state store is read and never written.

    Args:
        entry: the cluster's entry in the clusters file.
        root: storage root.
    """

    template_fields: Sequence[str] = ("root",)

    def __init__(self, *, entry: ClusterEntry, root: str, **kwargs: Any) -> None:
        super().__init__(**kwargs, inlets=[state_asset(entry.name)])
        self.entry = entry
        self.root = root

    def execute(self, context: Context) -> dict[str, Any]:
        """Compact and remove.

        Returns:
            The report of `pulsar_rebalancer.retention`.

        Raises:
            AirflowFailException: the state or a copy of it cannot be read, so that nothing is known to be free
                (nothing was deleted); or a day's history is damaged (the other days are done).
        """
        dry_run = context["dag_run"].run_type != "scheduled" and bool(context["params"]["dry_run"])
        storage = ClusterStorage(self.root, self.entry.name)
        with final_unless_passing():
            held = held_by(StateStore.of(context, self.entry.name), storage)
            report = keep_up(storage, self.entry.settings, held, datetime.now(UTC), dry_run=dry_run)
        self.log.info("Upkeep of cluster %s:\n%s", self.entry.name, describe(report))
        if report.problems:
            context["ti"].xcom_push("return_value", report.document())
            raise AirflowFailException("; ".join(report.problems))
        return report.document()


def held_by(store: StateStore, storage: ClusterStorage) -> Held:
    """What the stored state and its copies need.

    Raises:
        StateError: `state_version`.
        SnapshotError: a copy cannot be read.
    """
    stored, sequences = store.decision(), committed_sequences(storage)
    lost = store.raw(DECISION) is None
    # Copies of a higher number are of a store that was rolled back since: `keep_copy` does not keep them either.
    kept = sequences if lost else [seq for seq in sequences if seq <= stored.seq][-KEPT:]
    states = [stored, *(parse_decision(copy_of(storage, seq).read_json()) for seq in kept)]
    files = {copy_of(storage, seq).name for seq in kept} | {state.means for state in states}
    return Held(frozenset(state.plan_id for state in states), None if lost else frozenset(files))


def describe(report: Report) -> str:
    """The report as a table for the log."""
    lines = [f"{'would' if report.dry_run else 'did':<22}{'what':<14}{'runs':>8}{'files':>10}{'bytes':>18}"]
    lines += [f"{s.action:<22}{s.what:<14}{s.runs:>8}{s.files:>10}{s.size:>18,}" for s in report.steps]
    total = report.document()
    lines.append(f"{'total':<36}{sum(s.runs for s in report.steps):>8}{total['files']:>10}{total['bytes']:>18,}")
    lines += [f"left: {name}: {why}" for name, why in sorted(report.left.items())[:LISTED]]
    if len(report.left) > LISTED:
        lines.append(f"left: {len(report.left) - LISTED} more")
    return "\n".join([*lines, *(f"PROBLEM: {problem}" for problem in report.problems)])
