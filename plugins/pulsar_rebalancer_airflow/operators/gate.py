"""Record the new state exactly once, then decide whether the recorded plan may be carried out."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pulsar_rebalancer.carry_out.gate import Answered, Verdict, judge_plan
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.errors import PlanError
from pulsar_rebalancer.maintenance.retention import drop_means
from pulsar_rebalancer.orders.manual_plans import Answers, Opening, Question
from pulsar_rebalancer.reasons import Effect, Reason
from pulsar_rebalancer.run.plan import Summary, read_state, verify
from pulsar_rebalancer.run.request import Validation
from pulsar_rebalancer.state.state_documents import DecisionState, commit
from pulsar_rebalancer.storage.documents import Committed
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer_airflow.hooks.pulsar_admin import PulsarAdminHook
from pulsar_rebalancer_airflow.operators.approve import is_open
from pulsar_rebalancer_airflow.operators.bases import RunOperator, new_run_id
from pulsar_rebalancer_airflow.options import final_unless_passing, run_folder, storage_of
from pulsar_rebalancer_airflow.state_store import StateStore

if TYPE_CHECKING:
    from airflow.sdk import Context


class RecordOperator(RunOperator):
    """Store the state that results from a plan. The task's XCom is the list of split batches.

    A retry does not store a state twice: a plan whose id is already in the store is skipped. A plan that is based on an
    earlier state is refused without a retry. The mark in the run's folder is written after the store; a retry writes it
    if it is missing.
    """

    def execute(self, context: Context) -> list[int]:
        """Commit the state.

        Returns:
            `[0]`, the number of the only batch, if the plan splits bundles; otherwise an empty list, so no split task
            starts.

        Raises:
            AirflowFailException: `stale_plan`, `plan_changed`, `foreign_run`, `blocked` (a person marked a failed
                validation as successful), `state_lost`, or the plan cannot be read.
        """
        with final_unless_passing(context):
            run = run_folder(context, self.cluster, self.run)
            summary = Summary.read(run)
            actions = verify(run, summary)
            blocking = Validation.read(run).reasons(Effect.BLOCK)
            if blocking:
                raise PlanError(Reason.BLOCKED, f"validation stopped this run: {', '.join(blocking)}")
            store = self._store(context)
            stored = store.get(DecisionState)
            document = commit(stored, read_state(run).model_copy(update={"plan_hash": summary.hash}))
            if document is None:
                self.log.info("Plan %s is recorded already, as number %d", stored.plan_id, stored.seq)
                document = stored
            else:
                store.put(document)
                self.log.info("Recorded plan %s as number %d (%s)", document.plan_id, document.seq, summary.counting)
                # Runs that only show a plan may still read the files of the state before.
                drop_means(storage_of(self.cluster).state, document.files | stored.files)
            if not (run / Committed.FILE).exists():
                Committed(seq=document.seq, at=datetime.now(UTC)).write(run)
        return [0] if actions.splits else []


class GateOperator(RunOperator):
    """Decide on the recorded plan, and return the waves to carry out: all if the gate opens, else none.

    The task succeeds in both cases; its XCom `reason` is the reason code. A retry decides again, from the
    current time, store and files, so its verdict can differ. A pause, a lower mode or a cap in the clusters
    file applies even if it was set after *collect*.
    """

    def __init__(self, *, settings: Settings, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.settings = settings

    def execute(self, context: Context) -> list[int]:
        """Return the numbers of the waves to carry out, ascending; empty if the gate remains closed.

        Raises AirflowFailException: `foreign_run`, or one of the run's files cannot be read.
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
        meaning = f"{verdict.reason.meaning} {verdict.reason.action}".strip()
        self.log.info("Gate %s: %s%s. %s", state, verdict.reason, detail, meaning)
        return sorted({move.wave for move in verdict.moves})

    def _ask(self, context: Context, run: StoragePath, summary: Summary) -> None:
        store = self._store(context)
        present, now = store.get(Question), datetime.now(UTC)
        if present.plan_id == summary.plan_id:
            return  # a retry
        identity, stands = verify(run, summary).identity, is_open(context, self.cluster, present.run_id)
        until = present.until(self.settings.max_awaiting_minutes)
        young = until is not None and now < until
        # A person who requested moves expects a question about this plan.
        if stands and young and present.identity == identity and summary.by_hand is None:
            self.log.info("%s already asks about these moves", present.run_id)
            return
        question = Question(
            plan_id=summary.plan_id,
            hash=summary.hash,
            identity=identity,
            at=summary.collected_at,
            run_id=new_run_id("ask", summary.plan_id),
            before=present.run_id if stands else present.before,
            opening=present.opening,
        )
        store.put(question)

    def _restart_hits(self, context: Context) -> None:
        """Reset the hits of pairs whose bundles will move, if the plan was made without counting hits."""
        store = self._store(context)
        recorded = store.get(DecisionState)
        if recorded.restarts:
            store.put(recorded.carried_out())

    def _ask_no_more(self, context: Context) -> None:
        """Withdraw the open question, and note the opening: a plan made earlier may no longer be valid."""
        store = self._store(context)
        present, opening = store.get(Question), Opening(datetime.now(UTC), context["dag_run"].run_id)
        if present != Question():
            store.put(Question(before=present.run_id or present.before, opening=opening))


def present_verdict(context: Context, cluster: str, run: StoragePath, present: Settings, until: datetime) -> Verdict:
    """Return the gate's current verdict on a run's plan, which is too old after `until`.

    Raises SnapshotError if one of the run's files cannot be read.
    """
    store = StateStore.of(context, cluster)
    orders = store.orders()
    if orders.lost:
        return Verdict(Reason.STATE_LOST, orders.lost)
    approved = store.is_approved(Summary.read(run), context["dag_run"].run_id)
    answered = Answered(approved=approved, answers=orders.get(Answers))
    return judge_plan(run, store.get(DecisionState), present, orders, datetime.now(UTC), until, answered)
