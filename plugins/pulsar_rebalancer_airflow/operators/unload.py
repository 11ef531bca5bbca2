"""Carry out a recorded plan: its splits, then wave after wave of moves, each verified with the brokers."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from pulsar_rebalancer.carry_out.client_gap_meter import ClientGapMeter
from pulsar_rebalancer.carry_out.gate import Verdict
from pulsar_rebalancer.carry_out.move_executor import AdaptivePace, carry_out_moves
from pulsar_rebalancer.carry_out.move_history import WaveHistory
from pulsar_rebalancer.carry_out.split_executor import SplitHistory, carry_out_splits
from pulsar_rebalancer.config.clusters_file import Origin
from pulsar_rebalancer.config.settings import MAX_CONCURRENT_MOVES, Settings
from pulsar_rebalancer.errors import PlanError
from pulsar_rebalancer.names import is_extensible, range_of
from pulsar_rebalancer.pulsar import AdminConnection, PulsarAdmin
from pulsar_rebalancer.pulsar.client import shedding_is_on, splitting_brokers
from pulsar_rebalancer.reasons import Reason, Trait, reasons_text
from pulsar_rebalancer.run.outcome import RETRIED, MoveOutcome, unmoved
from pulsar_rebalancer.run.plan import Move, Split, SplitOutcome, Summary, read_moves
from pulsar_rebalancer.run.snapshot import Snapshot, StateBefore
from pulsar_rebalancer.state import MovesState
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer.strategies.caps import needs_waves
from pulsar_rebalancer_airflow.hooks import PulsarAdminHook
from pulsar_rebalancer_airflow.operators.bases import RunOperator
from pulsar_rebalancer_airflow.operators.gate import Holds, current_verdict
from pulsar_rebalancer_airflow.options import current_xcom, fail_unless_temporary, run_folder
from pulsar_rebalancer_airflow.state_store import StateStore

if TYPE_CHECKING:
    from airflow.sdk import Context


class UnfinishedPlanError(Exception):
    """Some bundles could not be moved or split, but the next attempt might succeed."""


class PlanPartOperator(RunOperator):
    """Carry out part of a plan. The task's XCom is the number of bundles by outcome.

    A retry continues the work. A bundle that is already moved or split as planned counts as a success; no
    request is sent for it. Every attempt first applies the gate's rules again.
    """

    def __init__(self, *, settings: dict[str, object], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.settings = settings
        self._task: asyncio.Task[None] | None = None

    @property
    def dag_settings(self) -> Settings:
        return Settings.model_validate(self.settings)

    def _current_verdict(self, context: Context, run: StoragePath, *, has_begun: bool) -> Verdict:
        """Return the current verdict. A part that has begun has a later deadline, because it must be completed."""
        summary = Summary.read(run)
        until = summary.wave_resume_deadline if has_begun else summary.wave_start_deadline
        return current_verdict(context, self.cluster, run, self.dag_settings, until)

    def _connection(self) -> AdminConnection:
        """Return the cluster's connection. Raises AdminError `read_only`."""
        return PulsarAdminHook(self.dag_settings.connection).get_writable_connection()

    def _run_with_admin(self, connection: AdminConnection, work: Callable[[PulsarAdmin], Awaitable[None]]) -> None:
        async def run_work() -> None:
            self._task = asyncio.current_task()
            async with PulsarAdmin(connection) as admin:
                await work(admin)

        asyncio.run(run_work())

    def on_kill(self) -> None:
        """Prevent further moves and splits. Those in progress remain in the history without an outcome."""
        if self._task is not None:
            self._task.cancel()

    def _counts_or_error(self, label: str, outcomes: Iterable[MoveOutcome | SplitOutcome]) -> dict[str, int]:
        """Log the outcomes, and return the number of bundles by reason code.

        Raises:
            AirflowFailException: a broker refused a request, or a person stopped the run.
            UnfinishedPlanError: brokers did not answer. This is retried.
            AirflowSkipException: orders or settings prevented the whole part.
        """
        counts: Counter[Reason] = Counter()
        for outcome in outcomes:
            counts[outcome.reason] += 1
            self.log.info("%s: %s %s", outcome.bundle, outcome.reason, outcome.error or f"({outcome.reported_text})")
        ordered = {reason for reason in counts if reason.has(Trait.ORDERED)}
        refused = sorted(reason for reason in counts.keys() - ordered if reason.has(Trait.NEEDS_PERSON))
        if refused:
            raise AirflowFailException(f"{label}: {reasons_text(counts)}. {refused[0].meaning}")
        if any(reason.has(RETRIED) for reason in counts.keys() - ordered):
            raise UnfinishedPlanError(f"{label}: {reasons_text(counts)}; a retry continues with the remaining bundles")
        if ordered and ordered == counts.keys():
            raise AirflowSkipException(f"{label}: {reasons_text(counts)}. {min(ordered).meaning}")
        return {str(reason): count for reason, count in counts.items()}


_log = logging.getLogger(__name__)

_SECONDS_BETWEEN_REPORTS = 1.0


class _ProgressPublisher:
    """The progress of a wave, published as the XCom `progress` at most once a second."""

    def __init__(self, context: Context, move_count: int) -> None:
        self._context = context
        self._total = move_count
        self._published_at = -math.inf

    def publish_if_due(self, history: WaveHistory) -> None:
        if time.monotonic() - self._published_at >= _SECONDS_BETWEEN_REPORTS:
            self.publish(history)

    def publish(self, history: WaveHistory) -> None:
        done = history.ended_moves
        progress = {"done": len(done), "of": self._total, "failed": sum(not outcome.ok for outcome in done)}
        self._context["ti"].xcom_push(key="progress", value=progress)
        _log.info("%(done)d of %(of)d moves have ended; not as planned: %(failed)d", progress)
        self._published_at = time.monotonic()


class UnloadWaveOperator(PlanPartOperator):
    """Carry out one wave of a plan.

    A retry continues the wave. A bundle on its planned broker is not unloaded again, a bundle that was unloaded but not
    placed is placed, and a bundle with a final outcome is skipped. A bundle that its source still owns goes through all
    checks again.

    If a bundle has changed owner, has no topic or was placed on another broker, the outcome records this; it is not a
    failure. The task fails and is retried if brokers did not answer. It fails without a retry if brokers refused a
    request. The XCom `progress` holds the number of moves that have ended. The effect of each move on clients is
    measured (`ClientGapMeter`); after the last move, the task waits a few seconds for clients that are not yet back.

    If a person stops the run or another hold applies (`Holds`), no further move starts. A stop fails the task. After a
    pause, a lower mode or the end of a window, the task succeeds and reports the remaining bundles, or is skipped if no
    move had started. A cleared task continues the wave until another run has recorded a plan; then the verdict is
    `stale_plan`.

    Nothing is unloaded if the store now has another plan, or if Pulsar's own shedding was switched on. If the wave does
    not start in time, its moves are recorded as not made. The same applies to moves to a broker that is now drained, to
    those of a drain or rolling restart that has ended, to moves of a bundle or broker that a setting now excludes, and,
    if waves are made by hash range, to moves whose range a bundle of another wave still needs (`_ranges_to_wait_for`).
    """

    template_fields: Sequence[str] = ("run", "wave")

    def __init__(self, *, wave: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.wave = wave

    def execute(self, context: Context) -> dict[str, int]:
        """Carry out the wave, and return the number of bundles by reason code of the outcome.

        Raises:
            AirflowFailException: the plan is not the recorded plan, was changed, is too old or exceeds a cap; the
                folder belongs to another run; the connection is read-only; or the brokers refuse the credentials.
            UnfinishedPlanError: brokers did not answer for some bundles. This is retried.
            AirflowSkipException: orders or settings prevented the whole wave.
        """
        with fail_unless_temporary():
            run = run_folder(context, self.cluster, self.run)
            store = self._state_store(context)
            planned = [move for move in read_moves(run) if move.wave == int(self.wave)]
            history = WaveHistory(store.get(MovesState), store.change_moves_state, run, int(self.wave))
            summary = Summary.read(run)
            settings, by_hand = summary.resolved.settings, summary.by_hand
            # What a person chose to move needs no drain.
            served = StateBefore.read(run)
            served = StateBefore(control=served.control) if by_hand and by_hand.request.action else served
            holds = Holds(
                context, self.cluster, store, settings, self.dag_settings, served, count_failures=history.new_failures
            )
            moves = self._pending_moves(context, run, holds, history, planned)
            if moves:
                self._carry_out(settings, history, moves, holds, _ProgressPublisher(context, len(planned)))
        return self._counts_or_error(f"Wave {self.wave}", (history.outcomes[move.bundle] for move in planned))

    def _pending_moves(
        self, context: Context, run: StoragePath, holds: Holds, history: WaveHistory, planned_moves: list[Move]
    ) -> list[Move]:
        verdict, now = (
            self._current_verdict(context, run, has_begun=history.has_planned(planned_moves)),
            datetime.now(UTC),
        )
        # Bundles that an earlier attempt unloaded must still be placed, so they are not fresh.
        unloaded = history.maybe_unloaded_bundles
        fresh = [move for move in history.remaining_moves(planned_moves) if move.bundle not in unloaded]
        if verdict.reason is not Reason.OPEN:
            if verdict.reason is Reason.PLAN_TOO_OLD or verdict.reason.has(Trait.NOT_BEGUN):
                history.add_skipped_moves([unmoved(move, verdict.reason) for move in fresh], now)
            if verdict.reason.has(Trait.ORDERED) and all(move.bundle in history.outcomes for move in planned_moves):
                return []
            raise PlanError(verdict.reason, f"wave {self.wave} did not begin: {verdict.detail}")
        stop_reason, waiting = holds.stop_reason(), _ranges_to_wait_for(run, history, fresh)

        def skip_reason(move: Move) -> Reason | None:
            return holds.skip_reason(move) or (Reason.NOT_ATTEMPTED if range_of(move.bundle) in waiting else None)

        left = {move.bundle: unmoved(move, reason) for move in fresh if (reason := stop_reason or skip_reason(move))}
        history.add_skipped_moves(list(left.values()), now)
        if stop_reason is not None:
            return []
        moves = [move for move in verdict.moves if move.wave == int(self.wave)]
        return [move for move in history.remaining_moves(moves) if move.bundle not in left]

    def _carry_out(
        self, settings: Settings, history: WaveHistory, moves: list[Move], holds: Holds, progress: _ProgressPublisher
    ) -> None:
        connection = self._connection()
        given = {settings.unload_concurrency, self.dag_settings.unload_concurrency}
        limits = [limit for limit in given if limit != "auto"]
        pace = AdaptivePace(self.dag_settings.max_client_gap_seconds) if "auto" in given else None

        def record_outcome(outcome: MoveOutcome) -> None:
            history.add_outcome(outcome, datetime.now(UTC))
            progress.publish_if_due(history)

        async def work(admin: PulsarAdmin) -> None:
            admin.set_brokers({broker for move in moves for broker in (move.source, move.destination)})
            runtime = await admin.runtime_configuration()
            if shedding_is_on(runtime):
                raise PlanError(Reason.BUILTIN_SHEDDING_ON, f"wave {self.wave} did not begin")
            history.record_planned_moves(moves, datetime.now(UTC))
            await carry_out_moves(
                admin.bundles,
                moves,
                concurrency=min(limits, default=MAX_CONCURRENT_MOVES),
                timeout_seconds=settings.move_timeout_seconds,
                on_outcome=record_outcome,
                stop_reason=holds.stop_reason,
                skip_reason=holds.skip_reason,
                before_move=history.record_begin,
                unloaded_bundles=history.maybe_unloaded_bundles,
                uses_affinity=not is_extensible(runtime.get("loadManagerClassName", "")),
                meter=ClientGapMeter(admin, moves, history.record_client_gap),
                pace=pace,
            )

        try:
            self._run_with_admin(connection, work)
        finally:
            history.write_outcomes()
            progress.publish(history)


def _ranges_to_wait_for(run: StoragePath, history: WaveHistory, moves: Sequence[Move]) -> frozenset[str]:
    """Return the moves' hash ranges that must wait, because a bundle of another wave still has to be placed.

    Leaders before Pulsar 4.0.10 and 4.2.1 store one destination per hash range, which the unload would
    replace. A wave that waits for its retry lets the next one start.
    """
    ranges = history.unsettled_bundle_ranges.intersection(range_of(move.bundle) for move in moves)
    if not ranges or not needs_waves(Snapshot(run).read_broker_samples({})):
        return frozenset()
    _log.warning("Moves wait until another wave has moved the bundles with the same hash ranges: %s", sorted(ranges))
    return ranges


class SplitOperator(PlanPartOperator):
    """Carry out a plan's splits.

    If a bundle's range no longer exists or was split at other positions, the outcome records this; it is not a failure.
    The task fails and is retried if brokers did not answer. It fails without a retry if brokers refused a request or a
    person stopped the run. After a failure, the run moves nothing. Other holds (`Holds`) are not failures, and each
    wave checks them again. The task is skipped if the gate is closed, or if a broker now splits bundles automatically.

    `gate` is the gate's task id; `batch` is 0, because a plan has one batch of splits.
    """

    def __init__(self, *, gate: str, batch: int = 0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.gate = gate
        self.batch = batch

    def execute(self, context: Context) -> dict[str, int]:
        """Carry out the splits, and return the number of bundles by reason code of the outcome.

        Raises:
            AirflowSkipException: the gate was closed, or would be closed now; or a broker splits automatically.
            AirflowFailException: the folder belongs to another run, the connection is read-only, or the brokers refuse
                the credentials.
            UnfinishedPlanError: brokers did not answer. This is retried.
        """
        with fail_unless_temporary():
            run = run_folder(context, self.cluster, self.run)
            store = StateStore.from_context(context, self.cluster)
            history = SplitHistory(store.get(MovesState), store.change_moves_state, run)
            opened = current_xcom(context, self.gate, "reason")
            splits = self._pending_splits(context, run, history, str(opened))
            remaining, resolved = history.remaining_splits(splits), Summary.read(run).resolved
            served = StateBefore.read(run)
            holds = Holds(context, self.cluster, store, resolved.settings, self.dag_settings, served, check_always=True)
            # Ask if brokers split bundles by themselves, unless all splits are manual or the file sets `auto_split`.
            overruled = resolved.origins.get("auto_split") is Origin.FILE
            asked = not overruled and any(split.condition for split in remaining)

            async def work(admin: PulsarAdmin) -> None:
                splitting = await splitting_brokers(admin) if asked else []
                builtin = Reason.BUILTIN_SPLITTING_ON if splitting else None
                history.record_planned_splits(remaining, datetime.now(UTC))
                await carry_out_splits(
                    admin.bundles,
                    remaining,
                    max_bundles=resolved.settings.max_namespace_bundles,
                    timeout_seconds=resolved.settings.move_timeout_seconds,
                    on_outcome=lambda outcome: history.add_outcome(outcome, datetime.now(UTC)),
                    stop_reason=holds.stop_reason,
                    skip_reason=lambda split: builtin or holds.skip_reason(split),
                    before_split=history.record_begin,
                )
                if builtin is not None:
                    raise AirflowSkipException(f"The gate has closed: {builtin}; brokers: {', '.join(splitting)}")

            self._run_with_admin(self._connection(), work)
        return self._counts_or_error("Splits", (history.outcomes[split.bundle] for split in splits))

    def _pending_splits(self, context: Context, run: StoragePath, history: SplitHistory, gate: str) -> Sequence[Split]:
        if gate != Reason.OPEN:
            raise AirflowSkipException(f"The gate is closed: {gate}")
        verdict = self._current_verdict(context, run, has_begun=history.planned)
        if verdict.reason is not Reason.OPEN:
            raise AirflowSkipException(f"The gate has closed: {verdict.reason} {verdict.detail}")
        return verdict.splits
