"""Gate: decide whether the recorded plan may be carried out."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pulsar_rebalancer.carry_out.gate import Answered, Verdict, judge_plan
from pulsar_rebalancer.errors import StateError
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.plan import Summary, verify
from pulsar_rebalancer.state.backup import keep_copy
from pulsar_rebalancer.state.orders.question import Answers, Opening, Question
from pulsar_rebalancer.state.state_documents import DecisionState
from pulsar_rebalancer_airflow.failures import final_unless_passing
from pulsar_rebalancer_airflow.hooks.pulsar_admin import PulsarAdminHook
from pulsar_rebalancer_airflow.locations import run_folder, storage_of
from pulsar_rebalancer_airflow.operators.ask import is_open
from pulsar_rebalancer_airflow.operators.bases import RunOperator
from pulsar_rebalancer_airflow.operators.hand_over import new_run_id
from pulsar_rebalancer_airflow.state_store import StateStore

if TYPE_CHECKING:
    from airflow.sdk import Context

    from pulsar_rebalancer.config.settings import Settings
    from pulsar_rebalancer.storage.path import StoragePath


class GateOperator(RunOperator):
    """Decide on the recorded plan, and return the waves to carry out: all if the gate opens, else none.

    The task succeeds in both cases; its XCom `reason` is the reason code. A retry decides again, from the current time,
    store and files, so its verdict can differ from an earlier attempt's.

    Args:
        settings: the cluster's current settings in the clusters file. A pause, a lower mode or a cap applies even if it
            was set after *collect*.
    """

    def __init__(self, *, settings: Settings, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.settings = settings

    def execute(self, context: Context) -> list[int]:
        """Decide whether the plan may be carried out.

        Returns:
            Numbers of the waves to carry out, ascending; empty if the gate remains closed.

        Raises:
            AirflowFailException: the folder belongs to another run (`foreign_run`), or one of the run's files or the
                stored state cannot be read.
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
        """Open the question about a plan; it replaces the previous question if that is about other moves."""
        store = self._store(context)
        # Only the gate writes this document, so it may replace an unreadable document.
        present, now = store.readable(Question), datetime.now(UTC)
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
            keep_copy(storage_of(self.cluster), recorded.carried_out())

    def _ask_no_more(self, context: Context) -> None:
        """Withdraw the open question, and note the opening: a plan made earlier may no longer be valid."""
        store = self._store(context)
        if store.raw(Question.KEY) is not None:
            present, opening = store.readable(Question), Opening(datetime.now(UTC), context["dag_run"].run_id)
            store.put(Question(before=present.run_id or present.before, opening=opening))


def present_verdict(context: Context, cluster: str, run: StoragePath, present: Settings, until: datetime) -> Verdict:
    """Return the gate's current verdict on a run's plan.

    Args:
        context: context of a task that has the cluster's state asset as an inlet.
        cluster: name in the clusters file.
        present: the cluster's current settings in the clusters file.
        until: time after which the plan is too old to be carried out.

    Raises:
        SnapshotError: one of the run's files cannot be read.
        StateError: `state_version`.
    """
    store = StateStore.of(context, cluster)
    control, now = store.control(storage_of(cluster)), datetime.now(UTC)
    answered = _answered(store, Summary.read(run), context["dag_run"].run_id)
    return judge_plan(run, store.get(DecisionState), present, control, now, until, answered)


def _answered(store: StateStore, summary: Summary, airflow_run_id: str) -> Answered:
    try:
        if store.is_approved(summary, airflow_run_id):
            return Answered(approved=True)
        return Answered(answers=store.answers(Answers))
    except StateError:
        return Answered()  # no plan counts as approved
