"""Report: what landed where, whatever happened before."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from pulsar_rebalancer.run import RunRequest
from pulsar_rebalancer.state import MovesState
from pulsar_rebalancer.storage import Folder
from pulsar_rebalancer_airflow.alerts.telling import tell_of_run
from pulsar_rebalancer_airflow.outcome import Outcome, conclude, describe
from pulsar_rebalancer_airflow.state_store import StateStore, moves_alias, moves_asset, state_asset

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Context

    from pulsar_rebalancer.settings import Settings


class ReportOperator(BaseOperator):
    """Write `outcome.json`, tidy the unload history, and tell other DAGs when something moved, and people of trouble.

    To be used as a teardown: it runs whatever happened, and its own failure does not fail the run. A retry writes the
    same again. The counts of outcomes are the XCom of the task.

    Args:
        cluster: name in the clusters file.
        run: address of the run's folder; None when nothing was collected.
        gate: task id of the gate.
        settings: of the clusters file, for alerts; None: no alerts.
    """

    template_fields: Sequence[str] = ("run",)

    def __init__(
        self, *, cluster: str, run: str | None, gate: str, settings: Settings | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs, inlets=[state_asset(cluster)], outlets=[moves_alias(cluster)])
        self.cluster = cluster
        self.run = run
        self.gate = gate
        self.settings = settings

    def execute(self, context: Context) -> dict[str, int]:
        """Report.

        Returns:
            Reason code of an outcome to how many moves had it.

        Raises:
            RebalancerError: a file of the run or the stored history cannot be read.
        """
        try:
            return self._report(context)
        finally:
            if self.settings is not None:
                tell_of_run(context, self.cluster, self.settings, self.run)

    def _report(self, context: Context) -> dict[str, int]:
        if not self.run:
            self.log.info("Cluster %s: nothing was collected", self.cluster)
            return {}
        run, now = Folder(self.run), datetime.now(UTC)
        store = StateStore.of(context, self.cluster)
        history = store.moves()
        begun = {bundle for bundle, unload in history.unloads.items() if unload.plan_id == run.name}
        gate = context["ti"].xcom_pull(task_ids=self.gate, key="reason") or ""
        outcome = conclude(run, str(gate), begun, now)
        outcome.write(run)
        settings = RunRequest.read(run).resolved.settings
        grace = max(settings.grace_period_minutes, settings.shedding_delay_seconds / 60)
        tidied = tidy(history, outcome, now, grace)
        if tidied != history:
            store.put_moves(tidied)
        self.log.info("%s", describe(outcome, run))
        if outcome.landed:
            extra: dict[str, Any] = {
                "cluster": self.cluster,
                "plan_id": run.name,
                "run": run.uri,
                "moved": outcome.landed,
            }
            context["outlet_events"][moves_alias(self.cluster)].add(moves_asset(self.cluster), extra=extra)
        return outcome.counts


def tidy(history: MovesState, outcome: Outcome, now: datetime, grace_minutes: float) -> MovesState:
    """The unload history after a run.

    Bundles that were left alone do not count as recently unloaded (Pulsar's ModularLoadManagerImpl records an unload
    only after it succeeded); interrupted ones do, because nobody knows. Unloads older than the grace period go.
    """
    untouched = {move.bundle for move in outcome.moves if move.attempts == 0 and not move.ok} - {
        move.bundle for move in outcome.moves if move.reason == "interrupted"
    }
    unloads = {}
    for bundle, unload in history.recent(now, grace_minutes).items():
        if unload.plan_id != outcome.plan_id:
            unloads[bundle] = unload
        elif bundle not in untouched:
            unloads[bundle] = unload if unload.outcome else unload.model_copy(update={"outcome": "interrupted"})
    return MovesState(unloads=unloads)
