"""Gate: open for exactly the recorded plan, or closed with a reason."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from pulsar_rebalancer.carry_out.gate import Verdict
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.plan import Summary, verify
from pulsar_rebalancer.state.backup import keep_copy
from pulsar_rebalancer.state.orders.question import Question
from pulsar_rebalancer.state.state_documents import DecisionState
from pulsar_rebalancer_airflow.failures import final_unless_passing
from pulsar_rebalancer_airflow.hooks.pulsar_admin import PulsarAdminHook
from pulsar_rebalancer_airflow.locations import run_folder, storage_of
from pulsar_rebalancer_airflow.operators.ask import is_open
from pulsar_rebalancer_airflow.operators.hand_over import new_run_id
from pulsar_rebalancer_airflow.operators.verdict import present_verdict
from pulsar_rebalancer_airflow.state_store import StateStore, state_asset

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Context

    from pulsar_rebalancer.config.settings import Settings
    from pulsar_rebalancer.storage.path import StoragePath


class GateOperator(BaseOperator):
    """Return the waves to carry out: all waves of the plan if open, none if closed.

    The task succeeds either way; its XCom `reason` is the reason code. A retry judges again by the current clock, store
    and files, so it may close where an earlier attempt would have opened.

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
            if verdict.reason is Reason.AWAITING_APPROVAL:
                self._ask(context, run, summary)
            elif verdict.reason is Reason.OPEN:
                self._ask_no_more(context)
                self._restart_hits(context)
        context["ti"].xcom_push(key="reason", value=verdict.reason)
        detail = f" ({verdict.detail})" if verdict.detail else ""
        state = Reason.OPEN if verdict.reason is Reason.OPEN else "closed"
        self.log.info("Gate %s: %s%s. %s", state, verdict.reason, detail, verdict.reason.meaning)
        return sorted({move.wave for move in verdict.moves})

    def _ask(self, context: Context, run: StoragePath, summary: Summary) -> None:
        """Have people asked about a plan; the question before it ends, unless it is about the very same moves."""
        store = StateStore.of(context, self.cluster)
        # Only the gate writes this document, so it may replace one that cannot be read.
        present, now = store.readable(Question), datetime.now(UTC)
        if present.plan_id == summary.plan_id:
            return  # a retry
        identity, stands = verify(run, summary).identity, is_open(context, self.cluster, present.run_id)
        until = present.until(self.settings.max_awaiting_minutes)
        young = until is not None and now < until
        # A person who asks for it by hand means this plan.
        if stands and young and present.identity == identity and summary.by_hand is None:
            self.log.info("%s asks about these very moves", present.run_id)
            return
        question = Question(
            plan_id=summary.plan_id,
            hash=summary.hash,
            identity=identity,
            at=summary.collected_at,
            run_id=new_run_id("ask", summary.plan_id),
            before=present.run_id if stands else present.before,
        )
        store.put(question)

    def _restart_hits(self, context: Context) -> None:
        """Start the hits of the pairs again whose bundles move, if the plan was made without counting any."""
        store = StateStore.of(context, self.cluster)
        recorded = store.get(DecisionState)
        if recorded.restarts:
            store.put(recorded.carried_out())
            keep_copy(storage_of(self.cluster), recorded.carried_out())

    def _ask_no_more(self, context: Context) -> None:
        """End the question: nobody knows what another plan that is carried out makes of it."""
        store = StateStore.of(context, self.cluster)
        present = store.readable(Question)
        ended = Question(before=present.run_id or present.before)
        if store.raw(Question.KEY) not in (None, ended.model_dump(mode="json")):
            store.put(ended)
