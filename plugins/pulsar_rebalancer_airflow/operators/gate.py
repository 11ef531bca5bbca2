"""Gate: open for the very plan that was recorded, or closed with a reason."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.plan import Summary
from pulsar_rebalancer.state.model import DecisionState
from pulsar_rebalancer.unload.gate import Verdict, judge_plan
from pulsar_rebalancer_airflow.failures import final_unless_passing
from pulsar_rebalancer_airflow.hooks.pulsar_admin import PulsarAdminHook
from pulsar_rebalancer_airflow.locations import run_folder, storage_of
from pulsar_rebalancer_airflow.state_store import StateStore, state_asset

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Context

    from pulsar_rebalancer.config.settings import Settings


class GateOperator(BaseOperator):
    """Answer with the waves to be carried out: all of the plan's when open, none when closed.

    The task succeeds either way; the reason code is its XCom `reason`. A retry judges anew by the clock, the store and
    the files, so it may close where an earlier attempt would have opened.

    Args:
        cluster: name in the clusters file.
        settings: the cluster's settings in the clusters file as it is now: a pause, a lower mode or a cap set after
            collect counts as well.
        run: address of the run's folder.
    """

    template_fields: Sequence[str] = ("run",)

    def __init__(self, *, cluster: str, settings: Settings, run: str, **kwargs: Any) -> None:
        super().__init__(**kwargs, inlets=[state_asset(cluster)])
        self.cluster = cluster
        self.settings = settings
        self.run = run

    def execute(self, context: Context) -> list[int]:
        """Judge the plan.

        Returns:
            Numbers of the waves to be carried out, ascending; empty when closed.

        Raises:
            AirflowFailException: the folder is not of this run (`foreign_run`); the files of the run or the stored
                state cannot be read.
        """
        with final_unless_passing(context):
            run = run_folder(context, self.cluster, self.run)
            store, until = StateStore.of(context, self.cluster), Summary.read(run).opens_until
            control = store.control(storage_of(self.cluster))
            verdict = judge_plan(run, store.get(DecisionState), self.settings, control, datetime.now(UTC), until)
            connection = self.settings.connection
            if verdict.reason is Reason.OPEN and PulsarAdminHook(connection).get_connection_settings().read_only:
                verdict = Verdict(Reason.READ_ONLY, connection)
        context["ti"].xcom_push(key="reason", value=verdict.reason)
        detail = f" ({verdict.detail})" if verdict.detail else ""
        state = Reason.OPEN if verdict.reason is Reason.OPEN else "closed"
        self.log.info("Gate %s: %s%s. %s", state, verdict.reason, detail, verdict.reason.meaning)
        return sorted({move.wave for move in verdict.moves})
