"""Split: the splits of a recorded plan, before its moves, each read back."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from pulsar_rebalancer.admin import PulsarAdmin
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.reasons import Reason, Trait
from pulsar_rebalancer.run.plan import Summary
from pulsar_rebalancer.splitting.executor import carry_out
from pulsar_rebalancer.splitting.history import RETRIED, SplitHistory
from pulsar_rebalancer.unload.gate import judge
from pulsar_rebalancer_airflow.failures import final_unless_passing
from pulsar_rebalancer_airflow.hooks.pulsar_admin import PulsarAdminHook
from pulsar_rebalancer_airflow.locations import run_folder, storage_of
from pulsar_rebalancer_airflow.state_store import StateStore, state_asset

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from airflow.sdk import Context

    from pulsar_rebalancer.run.splits import Split
    from pulsar_rebalancer.storage.path import StoragePath


class UnfinishedSplitsError(Exception):
    """Some splits of a plan met an obstacle that may be gone at the next attempt."""


class SplitOperator(BaseOperator):
    """Carry out the splits of a plan; how many had which outcome is the XCom of the task.

    A retry resumes: bounds that are there already are a success, and nothing is asked for twice. Bundles whose range is
    gone or that somebody cut elsewhere are outcomes and no failures; the task fails when brokers did not answer (tried
    again), refused or a person stopped the run (not tried again), and then nothing is moved in this run. It is skipped
    when the gate is closed.

    Args:
        cluster: name in the clusters file.
        settings: the cluster's settings in the clusters file as it is now, in JSON form.
        run: address of the run's folder.
        gate: task id of the gate.
        batch: 0; a plan has one batch of splits.
    """

    template_fields: Sequence[str] = ("run",)

    def __init__(
        self, *, cluster: str, settings: dict[str, Any], run: str, gate: str, batch: int = 0, **kwargs: Any
    ) -> None:
        # A mapped task is not built before it runs: the DAG names the inlet then, for the scheduler to see.
        super().__init__(**{"inlets": [state_asset(cluster)]} | kwargs)
        self.cluster = cluster
        self.settings = settings
        self.run = run
        self.gate = gate
        self.batch = batch
        self._task: asyncio.Task[None] | None = None

    def execute(self, context: Context) -> dict[str, int]:
        """Carry the splits out.

        Returns:
            Reason code of an outcome to how many bundles had it.

        Raises:
            AirflowSkipException: the gate is closed, or would be by now.
            AirflowFailException: the folder is not of this run; the brokers refuse the credentials.
            UnfinishedSplitsError: brokers did not answer; tried again.
        """
        with final_unless_passing():
            run = run_folder(context, self.cluster, self.run)
            store, present = StateStore.of(context, self.cluster), Settings.model_validate(self.settings)
            history = SplitHistory(store.moves(), store.change_moves, run)
            opened = context["ti"].xcom_pull(task_ids=self.gate, key="reason")
            splits = self._open(run, store, present, history, str(opened))
            started = context["dag_run"].start_date
            self._carry_out(run, present, history, splits, stopped=lambda: store.stopped_since(started))
        return self._conclude(history, splits)

    def _open(
        self, run: StoragePath, store: StateStore, present: Settings, history: SplitHistory, opened: str
    ) -> Sequence[Split]:
        """Return the splits of the plan if they may be carried out."""
        if opened != Reason.OPEN:
            raise AirflowSkipException(f"The gate is closed: {opened}")
        summary, now = Summary.read(run), datetime.now(UTC)
        until = summary.waves_resume_until if history.begun else summary.waves_begin_until
        verdict = judge(run, store.decision(), present, store.control(storage_of(self.cluster)), now, until)
        if verdict.reason is not Reason.OPEN:
            raise AirflowSkipException(f"Closed by now: {verdict.reason} {verdict.detail}")
        return verdict.splits

    def _carry_out(
        self,
        run: StoragePath,
        present: Settings,
        history: SplitHistory,
        splits: Sequence[Split],
        stopped: Callable[[], bool],
    ) -> None:
        connection = PulsarAdminHook(present.connection).get_connection_settings(present.pulsar_cluster)
        settings = Summary.read(run).resolved.settings
        remaining = history.remaining(splits)

        async def go() -> None:
            self._task = asyncio.current_task()
            async with PulsarAdmin(connection) as admin:
                history.plan(remaining, datetime.now(UTC))
                await carry_out(
                    admin.bundles,
                    remaining,
                    most_bundles=settings.max_namespace_bundles,
                    timeout_seconds=settings.unload_timeout_seconds,
                    on_outcome=lambda outcome: history.add(outcome, datetime.now(UTC)),
                    begun=history.begun,
                    stopped=stopped,
                )

        asyncio.run(go())

    def on_kill(self) -> None:
        """Begin no further split; what was begun stays in the history as planned."""
        if self._task is not None:
            self._task.cancel()

    def _conclude(self, history: SplitHistory, splits: Sequence[Split]) -> dict[str, int]:
        outcomes = [history.outcomes[split.bundle] for split in splits]
        for outcome in outcomes:
            self.log.info("%s: %s %s", outcome.bundle, outcome.reason, outcome.error or f"(bounds {outcome.found})")
        counts = dict(Counter(outcome.reason for outcome in outcomes))
        refused = sorted(Reason.having(Trait.NEEDS_PERSON) & counts.keys())
        if refused:
            raise AirflowFailException(f"{counts}. {refused[0].meaning}")
        if Reason.having(RETRIED) & counts.keys():
            raise UnfinishedSplitsError(f"{counts}; a retry resumes what is not split")
        return {str(reason): count for reason, count in counts.items()}
