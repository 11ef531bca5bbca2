"""Unload: one wave of a recorded plan, every move verified."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException

from pulsar_rebalancer.admin import PulsarAdmin
from pulsar_rebalancer.admin.builtin_shedding import shedding_is_on
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.errors import AdminError, PlanError
from pulsar_rebalancer.reasons import Reason, Trait
from pulsar_rebalancer.run.outcome import not_moved
from pulsar_rebalancer.run.plan import Summary, read_moves
from pulsar_rebalancer.unload.executor import carry_out
from pulsar_rebalancer.unload.gate import judge
from pulsar_rebalancer.unload.history import RETRIED, WaveHistory
from pulsar_rebalancer_airflow.failures import final_unless_passing
from pulsar_rebalancer_airflow.hooks.pulsar_admin import PulsarAdminHook
from pulsar_rebalancer_airflow.locations import run_folder, storage_of
from pulsar_rebalancer_airflow.state_store import StateStore, state_asset

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Context

    from pulsar_rebalancer.admin import AdminConnection
    from pulsar_rebalancer.run.outcome import MoveOutcome
    from pulsar_rebalancer.run.plan import Move
    from pulsar_rebalancer.storage.path import StoragePath


_log = logging.getLogger(__name__)

_SECONDS_BETWEEN_LOOKS = 1.0


class UnfinishedWaveError(Exception):
    """Some moves of a wave met an obstacle that may be gone at the next attempt."""


class _Watch:
    """What others see of a wave while it is carried out, and whether one of them has stopped it.

    Args:
        context: of the task; its XCom `progress` is written at most once a second.
        store: of the cluster, which is asked as often.
        total: moves of the wave.
    """

    def __init__(self, context: Context, store: StateStore, total: int) -> None:
        self._context = context
        self._store = store
        self._total = total
        self._told_at = self._asked_at = -math.inf
        self._stopped = False

    def stopped(self) -> bool:
        """Return whether somebody has stopped the run since it started."""
        if not self._stopped and time.monotonic() - self._asked_at >= _SECONDS_BETWEEN_LOOKS:
            self._stopped = self._store.stopped_since(self._context["dag_run"].start_date)
            self._asked_at = time.monotonic()
        return self._stopped

    def ended(self, history: WaveHistory) -> None:
        """Note that another move has ended."""
        if time.monotonic() - self._told_at >= _SECONDS_BETWEEN_LOOKS:
            self.tell(history)

    def tell(self, history: WaveHistory) -> None:
        """Write how many moves have ended, and how many of them not on their planned broker."""
        outcomes = history.outcomes.values()
        done = [outcome for outcome in outcomes if not outcome.reason.has(Trait.NOT_BEGUN)]
        progress = {"done": len(done), "of": self._total, "failed": sum(not outcome.ok for outcome in done)}
        self._context["ti"].xcom_push(key="progress", value=progress)
        _log.info("%(done)d of %(of)d, %(failed)d not on their planned broker", progress)
        self._told_at = time.monotonic()


class UnloadWaveOperator(BaseOperator):
    """Carry out one wave; how many bundles had which outcome is the XCom of the task.

    A retry resumes: a bundle on its planned broker is not unloaded again, one that was unloaded and not placed is
    placed, one with a final outcome is left alone. Bundles that moved on, have no topic or landed elsewhere are
    outcomes and no failures; the task fails when brokers did not answer (tried again) or refused (not tried again).
    How many moves have ended is the XCom `progress`. When a person stops the run, no further bundle is begun and the
    task fails; it goes on when it is cleared after the end of the run.
    Nothing is unloaded when the store holds another plan by now, when the cluster was paused or its mode lowered, or
    when Pulsar's own shedding was switched on. A wave that was not begun in time is left, and its moves say so.

    Args:
        cluster: name in the clusters file.
        settings: the cluster's settings in the clusters file as it is now, in JSON form.
        run: address of the run's folder.
        wave: number of the wave.
    """

    template_fields: Sequence[str] = ("run", "wave")

    def __init__(self, *, cluster: str, settings: dict[str, Any], run: str, wave: int, **kwargs: Any) -> None:
        # A mapped task is not built before it runs: the DAG names the inlet then, for the scheduler to see.
        super().__init__(**{"inlets": [state_asset(cluster)]} | kwargs)
        self.cluster = cluster
        self.settings = settings
        self.run = run
        self.wave = wave
        self._task: asyncio.Task[None] | None = None

    def execute(self, context: Context) -> dict[str, int]:
        """Carry the wave out.

        Returns:
            Reason code of an outcome to how many bundles had it.

        Raises:
            AirflowFailException: the plan is not the recorded one, was altered, is too old or over a cap; the folder
                is not of this run; the connection is read-only; the brokers refuse the credentials.
            UnfinishedWaveError: brokers did not answer for some bundles; tried again.
        """
        with final_unless_passing():
            run = run_folder(context, self.cluster, self.run)
            store, present = StateStore.of(context, self.cluster), Settings.model_validate(self.settings)
            planned = [move for move in read_moves(run) if move.wave == int(self.wave)]
            history = WaveHistory(store.moves(), store.change_moves, run, int(self.wave))
            moves = self._open(run, store, present, history, planned)
            connection = PulsarAdminHook(present.connection).get_connection_settings(present.pulsar_cluster)
            if connection.read_only:
                raise AdminError(
                    Reason.READ_ONLY, f"connection {present.connection} is read-only; nothing was unloaded"
                )
            settings = Summary.read(run).resolved.settings
            concurrency = min(settings.unload_concurrency, present.unload_concurrency)
            watch = _Watch(context, store, len(moves))
            self._carry_out(connection, settings, concurrency, history, moves, watch)
        return self._conclude(history, moves)

    def _open(
        self, run: StoragePath, store: StateStore, present: Settings, history: WaveHistory, planned: list[Move]
    ) -> list[Move]:
        """Return the moves of the wave if it may be carried out."""
        summary, now = Summary.read(run), datetime.now(UTC)
        until = summary.waves_resume_until if history.begun(planned) else summary.waves_begin_until
        verdict = judge(run, store.decision(), present, store.control(storage_of(self.cluster)), now, until)
        if verdict.reason is not Reason.OPEN:
            if verdict.reason is Reason.PLAN_TOO_OLD:
                history.leave([not_moved(move, verdict.reason) for move in planned if not history.begun([move])])
            raise PlanError(verdict.reason, f"wave {self.wave} was not begun: {verdict.detail}")
        return [move for move in verdict.moves if move.wave == int(self.wave)]

    def _carry_out(
        self,
        connection: AdminConnection,
        settings: Settings,
        concurrency: int,
        history: WaveHistory,
        moves: list[Move],
        watch: _Watch,
    ) -> None:
        remaining = history.remaining(moves)
        unloaded = history.unloaded(remaining)

        def ended(outcome: MoveOutcome) -> None:
            history.add(outcome, datetime.now(UTC))
            watch.ended(history)

        async def go() -> None:
            self._task = asyncio.current_task()
            async with PulsarAdmin(connection) as admin:
                runtime = await admin.runtime_configuration()
                if shedding_is_on(runtime):
                    raise PlanError(Reason.BUILTIN_SHEDDING_ON, f"wave {self.wave} was not begun")
                history.plan(remaining, datetime.now(UTC))
                await carry_out(
                    admin.bundles,
                    remaining,
                    concurrency=concurrency,
                    retries=settings.unload_retries,
                    timeout_seconds=settings.unload_timeout_seconds,
                    on_outcome=ended,
                    stopped=watch.stopped,
                    unloaded=unloaded,
                    affinity="Extensible" not in runtime.get("loadManagerClassName", ""),
                )

        try:
            asyncio.run(go())
        finally:
            history.write()
            watch.tell(history)

    def on_kill(self) -> None:
        """Begin no further unload; what was begun stays in the unload history as planned."""
        if self._task is not None:
            self._task.cancel()

    def _conclude(self, history: WaveHistory, moves: list[Move]) -> dict[str, int]:
        counts: dict[str, int] = {}
        for move in moves:
            outcome = history.outcomes[move.bundle]
            counts[outcome.reason] = counts.get(outcome.reason, 0) + 1
            self.log.info("%s: %s %s", move.bundle, outcome.reason, outcome.error or f"(owner {outcome.owner or '-'})")
        refused = sorted(Reason.having(Trait.NEEDS_PERSON) & counts.keys())
        if refused:
            raise AirflowFailException(f"Wave {self.wave}: {counts}. {refused[0].meaning}")
        if Reason.having(RETRIED) & counts.keys():
            raise UnfinishedWaveError(f"Wave {self.wave}: {counts}; a retry resumes what is not in place")
        return counts
