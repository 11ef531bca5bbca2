"""Record the new state exactly once, and decide whether the plan may be carried out: at the gate and at each bundle."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pulsar_rebalancer.carry_out.gate import Approval, Verdict, judge_plan
from pulsar_rebalancer.config.field_types import Mode
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.errors import PlanError, SettingsError
from pulsar_rebalancer.orders.breaker import breaker_closed_at
from pulsar_rebalancer.orders.in_force import all_holds, new_exclusion
from pulsar_rebalancer.orders.manual_plans import Answers, Drains, GateOpening, Question
from pulsar_rebalancer.orders.order import Control, Hold, JudgedRun, OrdersInForce
from pulsar_rebalancer.orders.roll_document import Roll
from pulsar_rebalancer.reasons import Effect, Reason
from pulsar_rebalancer.run.plan import Move, Split, Summary, read_plan_state, verified_actions
from pulsar_rebalancer.run.request import Validation
from pulsar_rebalancer.run.retention import delete_unneeded_state_files
from pulsar_rebalancer.run.snapshot import StateBefore
from pulsar_rebalancer.state import DecisionState, accept_state
from pulsar_rebalancer.storage.documents import CommitMark
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer.strategies.shedders.registry import load_clusters
from pulsar_rebalancer_airflow.hooks import PulsarAdminHook
from pulsar_rebalancer_airflow.operators.approve import has_open_run
from pulsar_rebalancer_airflow.operators.bases import RunOperator, new_run_id
from pulsar_rebalancer_airflow.options import clusters_file, fail_unless_temporary, run_folder, storage_of
from pulsar_rebalancer_airflow.state_store import ORDER_DOCUMENTS, StateStore

if TYPE_CHECKING:
    from airflow.sdk import Context

_log = logging.getLogger(__name__)


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
        with fail_unless_temporary(context):
            run = run_folder(context, self.cluster, self.run)
            summary = Summary.read(run)
            actions = verified_actions(run, summary)
            blocking = Validation.read(run).reason_counts(Effect.BLOCK)
            if blocking:
                raise PlanError(Reason.BLOCKED, f"validation stopped this run: {', '.join(blocking)}")
            store = self._state_store(context)
            stored = store.get(DecisionState)
            document = accept_state(stored, read_plan_state(run).model_copy(update={"plan_hash": summary.hash}))
            if document is None:
                self.log.info("Plan %s was already recorded as state %d", stored.plan_id, stored.seq)
                document = stored
            else:
                store.put(document)
                self.log.info("Recorded plan %s as state %d (%s)", document.plan_id, document.seq, summary.counting)
                # Runs that only show a plan may still read the files of the state before.
                delete_unneeded_state_files(storage_of(self.cluster).state, document.file_names | stored.file_names)
            if not (run / CommitMark.FILE).exists():
                CommitMark(seq=document.seq, at=datetime.now(UTC)).write(run)
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
        with fail_unless_temporary(context):
            run = run_folder(context, self.cluster, self.run)
            summary = Summary.read(run)
            verdict = current_verdict(context, self.cluster, run, self.settings, summary.gate_deadline)
            connection, moving = self.settings.connection, (Reason.OPEN, Reason.AWAITING_APPROVAL)
            if verdict.reason in moving and PulsarAdminHook(connection).get_connection_settings().read_only:
                verdict = Verdict(Reason.READ_ONLY, connection)
            if verdict.reason is Reason.AWAITING_APPROVAL:
                self._ask_for_approval(context, run, summary)
            elif verdict.reason is Reason.OPEN:
                self._withdraw_question(context)
                self._reset_hits(context)
        context["ti"].xcom_push(key="reason", value=verdict.reason)
        detail = f" ({verdict.detail})" if verdict.detail else ""
        state = Reason.OPEN if verdict.reason is Reason.OPEN else "closed"
        meaning = f"{verdict.reason.meaning} {verdict.reason.action}".strip()
        self.log.info("Gate %s: %s%s. %s", state, verdict.reason, detail, meaning)
        return sorted({move.wave for move in verdict.moves})

    def _ask_for_approval(self, context: Context, run: StoragePath, summary: Summary) -> None:
        store = self._state_store(context)
        present, now = store.get(Question), datetime.now(UTC)
        if present.plan_id == summary.plan_id:
            return  # a retry
        identity, stands = verified_actions(run, summary).identity, has_open_run(context, self.cluster, present.run_id)
        until = present.answer_deadline(self.settings.max_awaiting_minutes)
        young = until is not None and now < until
        # A person who requested moves expects a question about this plan.
        if stands and young and present.identity == identity and summary.by_hand is None:
            self.log.info("Run %s already waits for approval of these moves", present.run_id)
            return
        question = Question(
            plan_id=summary.plan_id,
            hash=summary.hash,
            identity=identity,
            what=summary.actions_text,
            at=summary.collected_at,
            run_id=new_run_id("ask", summary.plan_id),
            before=present.run_id if stands else present.before,
            opening=present.opening,
        )
        store.put(question)

    def _reset_hits(self, context: Context) -> None:
        """Reset the hits of pairs whose bundles will move, if the plan was made without counting hits."""
        store = self._state_store(context)
        recorded = store.get(DecisionState)
        if recorded.restarts:
            store.put(recorded.with_hits_reset())

    def _withdraw_question(self, context: Context) -> None:
        """Withdraw the open question, and note the opening: a plan made earlier may no longer be valid."""
        store = self._state_store(context)
        present, opening = store.get(Question), GateOpening(datetime.now(UTC), context["dag_run"].run_id)
        if present != Question():
            store.put(Question(before=present.run_id or present.before, opening=opening))


def current_verdict(context: Context, cluster: str, run: StoragePath, settings: Settings, limit: datetime) -> Verdict:
    """Return the gate's current verdict on a run's plan, which is too old after `limit`.

    Raises SnapshotError if one of the run's files cannot be read.
    """
    store = StateStore.from_context(context, cluster)
    orders = store.orders()
    if orders.lost_text:
        return Verdict(Reason.STATE_LOST, orders.lost_text)
    approved = store.is_approved(Summary.read(run), context["dag_run"].run_id)
    answered = Approval(is_approved=approved, answers=orders.get(Answers))
    return judge_plan(run, store.get(DecisionState), settings, orders, datetime.now(UTC), limit, answered)


_SECONDS_BETWEEN_LOOKS = 1.0


class Holds:
    """The current holds: a stop, and the orders and settings that would close the gate now.

    Once noticed, a hold applies until the task ends.

    Args:
        planned_settings: the plan's settings.
        settings: the cluster's settings when the task started.
        state_before: the drains and the rolling restart that the plan serves, and the orders when it was made.
        check_always: True to check on every call; otherwise check at most once a second.
        count_failures: returns the number of failed moves that the circuit breaker has not counted yet.
    """

    def __init__(
        self,
        context: Context,
        cluster: str,
        store: StateStore,
        planned_settings: Settings,
        settings: Settings,
        state_before: StateBefore,
        *,
        check_always: bool = False,
        count_failures: Callable[[datetime | None], int] = lambda _: 0,
    ) -> None:
        self._run = JudgedRun(started_at=context["dag_run"].start_date)
        self._store = store
        self._file = _CurrentSettings(cluster, settings)
        self._mode = settings.mode
        self._planned = planned_settings
        self._present = settings
        self._between_looks = 0 if check_always else _SECONDS_BETWEEN_LOOKS
        self._looked_at = -math.inf
        self._failed = count_failures
        self._closed_at: datetime | None = None
        self._reason: Reason | None = None
        self._before = state_before
        self._control = Control()
        self._drained: frozenset[str] = frozenset()
        self._rolls = False

    def stop_reason(self) -> Reason | None:
        """Return why no further move or split may start; None if nothing prevents it."""
        self._refresh()
        if self._reason is None and self._has_reached_limit():
            self._reason = Reason.BREAKER_OPEN
            _log.warning("No more moves are started. Failed moves of this run: %d", self._failed(self._closed_at))
        return self._reason

    def _has_reached_limit(self) -> bool:
        """Return whether failed moves have reached the breaker's limit; the *report* task opens it later."""
        rules = self._present.breaker
        return (
            rules is not None and rules.failed_moves is not None and self._failed(self._closed_at) >= rules.failed_moves
        )

    def skip_reason(self, action: Move | Split) -> Reason | None:
        """Return why orders given after planning forbid or no longer want a move or split; None if allowed.

        Call `stop_reason` first, because it reads the current orders and settings.
        """
        if self._looked_at == -math.inf:
            self._refresh()
        if isinstance(action, Split):
            return self._exclusion_reason(action.bundle, {action.broker})
        if action.destination in self._drained:
            return Reason.DRAINING
        roll = self._before.roll
        if roll is not None and roll.broker in (action.source, action.destination) and not self._rolls:
            return Reason.ROLL_STOPPED
        if action.source in self._before.drains.brokers and action.source not in self._drained:
            return Reason.NOT_DRAINED
        return self._exclusion_reason(action.bundle, {action.source, action.destination})

    def _exclusion_reason(self, bundle: str, ends: Collection[str]) -> Reason | None:
        return new_exclusion((self._planned, self._before.control), (self._present, self._control), bundle, ends)

    def _refresh(self) -> None:
        if self._reason is not None or time.monotonic() - self._looked_at < self._between_looks:
            return
        orders = self._store.orders(models=ORDER_DOCUMENTS)
        self._control = control = orders.get(Control).without_ended_orders(datetime.now(UTC))
        roll, self._drained = orders.get(Roll), frozenset(orders.get(Drains).brokers)
        if self._before.roll is not None:
            ended = roll.stop_order(control) or roll.skip_order(control) or not roll.is_active
            self._rolls = roll.has_same_phase(self._before.roll) and not ended
        hold = self._current_hold(orders)
        if hold is not None:
            self._reason = hold[0]
            _log.warning("No more moves or splits are started, because of %s: %s", *hold)
        self._looked_at = time.monotonic()

    def _current_hold(self, orders: OrdersInForce) -> Hold | None:
        self._closed_at = breaker_closed_at(self._control)
        settings = self._file.settings()
        self._present = settings or self._present
        closed = all_holds(self._present, orders, datetime.now(UTC), self._run)
        if closed:
            return closed[0]
        if settings is None:
            return Hold(Reason.WRONG_SETTING, self._file.error)
        if settings.mode is Mode.APPROVE and self._mode is not Mode.APPROVE:
            return Hold(Reason.AWAITING_APPROVAL, f"the cluster's mode is now {settings.mode}")
        return None


class _CurrentSettings:
    """A cluster's current settings, read again whenever the clusters file changes; else those given."""

    def __init__(self, cluster: str, settings: Settings) -> None:
        self._cluster = cluster
        self._path = clusters_file()
        self._settings = settings
        self._stamp: tuple[int, int] | None = None
        self._failed = False
        self.error = ""

    def settings(self) -> Settings | None:
        """Return the settings; None after two failed reads, because one can fail while an editor writes."""
        try:
            self._reload()
        except (OSError, SettingsError) as error:
            self.error, again, self._failed = str(error), self._failed, True
            return None if again else self._settings
        self._failed = False
        return self._settings

    def _reload(self) -> None:
        if self._stamp is None and not self._path.exists():
            return
        status = self._path.stat()
        stamp = (status.st_mtime_ns, status.st_size)
        if stamp != self._stamp:
            entry = next((known for known in load_clusters(self._path) if known.name == self._cluster), None)
            if entry is None or entry.error:
                why = entry.error if entry else f"{self._path.name} no longer lists {self._cluster}"
                raise SettingsError(Reason.WRONG_SETTING, why)
            self._settings, self._stamp = entry.settings, stamp
