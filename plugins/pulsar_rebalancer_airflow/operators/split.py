"""Split: carry out a recorded plan's splits before its moves, and verify every split."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowSkipException

from pulsar_rebalancer.admin.builtin_shedding import splitting_brokers
from pulsar_rebalancer.carry_out.split_executor import carry_out_splits
from pulsar_rebalancer.carry_out.split_history import SplitHistory
from pulsar_rebalancer.config.resolution import Origin
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.plan import Summary
from pulsar_rebalancer.state.state_documents import MovesState
from pulsar_rebalancer_airflow.failures import final_unless_passing
from pulsar_rebalancer_airflow.locations import left_about_run, run_folder
from pulsar_rebalancer_airflow.operators.holds import Holds
from pulsar_rebalancer_airflow.operators.plan_part import PlanPartOperator
from pulsar_rebalancer_airflow.state_store import StateStore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Context

    from pulsar_rebalancer.admin import PulsarAdmin
    from pulsar_rebalancer.run.splits import Split
    from pulsar_rebalancer.storage.path import StoragePath


class SplitOperator(PlanPartOperator):
    """Carry out a plan's splits.

    If a bundle's range no longer exists or was split at other positions, the outcome records this; it is not a failure.
    The task fails and is retried if brokers did not answer. It fails without a retry if brokers refused a request or a
    person stopped the run. After a failure, the run moves nothing. Other holds (`Holds`) are not failures, and each
    wave checks them again. The task is skipped if the gate is closed, or if a broker now splits bundles automatically.

    Args:
        gate: task id of the gate.
        batch: 0; a plan has one batch of splits.
    """

    def __init__(self, *, gate: str, batch: int = 0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.gate = gate
        self.batch = batch

    def execute(self, context: Context) -> dict[str, int]:
        """Carry out the splits.

        Returns:
            Number of bundles by reason code of the outcome.

        Raises:
            AirflowSkipException: the gate was closed, or would be closed now; or a broker splits bundles automatically.
            AirflowFailException: the folder belongs to another run, the connection is read-only, or the brokers refuse
                the credentials.
            UnfinishedError: brokers did not answer. This is retried.
        """
        with final_unless_passing():
            run = run_folder(context, self.cluster, self.run)
            store = StateStore.of(context, self.cluster)
            history = SplitHistory(store.get(MovesState), store.change_moves, run)
            opened = left_about_run(context, self.gate, "reason")
            splits = self._open(context, run, history, str(opened))
            remaining, resolved = history.remaining(splits), Summary.read(run).resolved
            holds = Holds(context, self.cluster, store, resolved.settings, self.present, each_time=True)
            # Ask if brokers split bundles by themselves, unless all splits are manual or the file sets `auto_split`.
            overruled = resolved.origins.get("auto_split") is Origin.FILE
            asked = not overruled and any(split.condition for split in remaining)

            async def work(admin: PulsarAdmin) -> None:
                splitting = await splitting_brokers(admin) if asked else []
                builtin = Reason.BUILTIN_SPLITTING_ON if splitting else None
                history.plan(remaining, datetime.now(UTC))
                await carry_out_splits(
                    admin.bundles,
                    remaining,
                    most_bundles=resolved.settings.max_namespace_bundles,
                    timeout_seconds=resolved.settings.unload_timeout_seconds,
                    on_outcome=lambda outcome: history.add(outcome, datetime.now(UTC)),
                    held=holds.reason,
                    leaves=lambda split: builtin or holds.leaves(split),
                    begin=history.begin,
                )
                if builtin is not None:
                    raise AirflowSkipException(f"Closed by now: {builtin} on {', '.join(splitting)}")

            self._work(self._connection(), work)
        return self._conclude("Splits", (history.outcomes[split.bundle] for split in splits))

    def _open(self, context: Context, run: StoragePath, history: SplitHistory, opened: str) -> Sequence[Split]:
        """Return the splits of the plan, after checking that they may be carried out."""
        if opened != Reason.OPEN:
            raise AirflowSkipException(f"The gate is closed: {opened}")
        verdict = self._judge(context, run, begun=history.planned)
        if verdict.reason is not Reason.OPEN:
            raise AirflowSkipException(f"Closed by now: {verdict.reason} {verdict.detail}")
        return verdict.splits
