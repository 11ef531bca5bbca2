"""Gate: open for the very plan that was recorded, or closed with a reason."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from pulsar_rebalancer.carry_out.gate import Verdict
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.plan import Actions, Summary, read_moves
from pulsar_rebalancer.run.splits import read_splits
from pulsar_rebalancer.state.orders.control_document import Awaiting
from pulsar_rebalancer.state.state_documents import MovesState
from pulsar_rebalancer_airflow.failures import final_unless_passing
from pulsar_rebalancer_airflow.hooks.pulsar_admin import PulsarAdminHook
from pulsar_rebalancer_airflow.locations import run_folder
from pulsar_rebalancer_airflow.operators.apply import open_questions
from pulsar_rebalancer_airflow.operators.approve import ASK
from pulsar_rebalancer_airflow.operators.verdict import present_verdict
from pulsar_rebalancer_airflow.state_store import StateStore, state_asset

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Context

    from pulsar_rebalancer.config.settings import Settings
    from pulsar_rebalancer.storage.path import StoragePath


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
            summary = Summary.read(run)
            verdict = present_verdict(context, self.cluster, run, self.settings, summary.opens_until)
            connection, moving = self.settings.connection, (Reason.OPEN, Reason.AWAITING_APPROVAL)
            if verdict.reason in moving and PulsarAdminHook(connection).get_connection_settings().read_only:
                verdict = Verdict(Reason.READ_ONLY, connection)
            if verdict.reason in moving:
                self._keep(context, run, summary, waits=verdict.reason is Reason.AWAITING_APPROVAL)
        context["ti"].xcom_push(key="reason", value=verdict.reason)
        detail = f" ({verdict.detail})" if verdict.detail else ""
        state = Reason.OPEN if verdict.reason is Reason.OPEN else "closed"
        self.log.info("Gate %s: %s%s. %s", state, verdict.reason, detail, verdict.reason.meaning)
        return sorted({move.wave for move in verdict.moves})

    def _keep(self, context: Context, run: StoragePath, summary: Summary, *, waits: bool) -> None:
        """Keep the plan for a person in the place of the one that waits; none waits once another is carried out.

        A question that is still to be answered stands for some time: a plan by hand alone takes its place at once.
        """
        store = StateStore.of(context, self.cluster)
        # The gate alone writes it: one that cannot be read is written anew.
        present = store.answers_or_none(Awaiting)
        if waits and present.plan_id == summary.plan_id:
            return
        older = open_questions(context, self.cluster, filter(None, [*present.older, present.asked]))
        if waits:
            identity = Actions(read_moves(run), read_splits(run)).identity
            if summary.by_hand is None and present.asked in older and self._stands(store, present, identity):
                self.log.info("%s is not answered yet, and stands", present.asked)
                return
            kept = {"plan_id": summary.plan_id, "hash": summary.hash, "at": summary.collected_at}
            store.put(Awaiting(**kept, asked=f"{ASK}{summary.plan_id}", older=older, identity=identity))
        elif store.raw(Awaiting.KEY) not in (None, Awaiting().model_dump(mode="json")):
            store.put(Awaiting(older=older))

    def _stands(self, store: StateStore, waiting: Awaiting, identity: str) -> bool:
        least, most = (
            timedelta(minutes=minutes)
            for minutes in (self.settings.min_awaiting_minutes, self.settings.max_awaiting_minutes)
        )
        moved = waiting.at is not None and store.get(MovesState).moved_since(waiting.at)
        return not moved and waiting.stands(identity, datetime.now(UTC), least, most)
