"""Unload: one wave of a recorded plan, every move verified."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException

from pulsar_rebalancer.admin import PulsarAdmin
from pulsar_rebalancer.errors import AdminError, PlanError
from pulsar_rebalancer.handover import shedding_is_on
from pulsar_rebalancer.plan import Summary, verify
from pulsar_rebalancer.reasons import REASONS
from pulsar_rebalancer.settings import Settings
from pulsar_rebalancer.storage import Folder
from pulsar_rebalancer.unloading import carry_out
from pulsar_rebalancer_airflow.failures import final_unless_passing
from pulsar_rebalancer_airflow.hook import PulsarAdminHook
from pulsar_rebalancer_airflow.operators.gate import is_recorded, stopped
from pulsar_rebalancer_airflow.state_store import StateStore, state_asset
from pulsar_rebalancer_airflow.wave_history import REFUSED, REPEATED, WaveHistory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Context

    from pulsar_rebalancer.admin import AdminConnection
    from pulsar_rebalancer.plan import Move

LONGEST_RUN = timedelta(minutes=30)
"""Time-out of a DAG run: an older plan is not of a run that is still going on, so its waves are not carried out."""


class UnfinishedWaveError(Exception):
    """Some moves of a wave met an obstacle that may be gone at the next attempt."""


class UnloadWaveOperator(BaseOperator):
    """Carry out one wave; how many bundles had which outcome is the XCom of the task.

    A retry resumes: a bundle on its planned broker is not unloaded again, one that was unloaded and not placed is
    placed, one with a final outcome is left alone. Bundles that moved on, have no topic or landed elsewhere are
    outcomes and no failures; the task fails when brokers did not answer (tried again) or refused (not tried again).
    Nothing is unloaded when the store holds another plan by now, when the cluster was paused or its mode lowered, or
    when Pulsar's own shedding was switched on.

    Args:
        cluster: name in the clusters file.
        standing: mode and pause in the clusters file as it is now, in JSON form.
        run: address of the run's folder.
        wave: number of the wave.
    """

    template_fields: Sequence[str] = ("run", "wave")

    def __init__(self, *, cluster: str, standing: dict[str, Any], run: str, wave: int, **kwargs: Any) -> None:
        # A mapped task is not built before it runs: the DAG names the inlet then, for the scheduler to see.
        super().__init__(**{"inlets": [state_asset(cluster)]} | kwargs)
        self.cluster = cluster
        self.standing = standing
        self.run = run
        self.wave = wave
        self._task: asyncio.Task[None] | None = None

    def execute(self, context: Context) -> dict[str, int]:
        """Carry the wave out.

        Returns:
            Reason code of an outcome to how many bundles had it.

        Raises:
            AirflowFailException: the plan is not the recorded one, was altered or is too old; the connection is
                read-only; the brokers refuse the credentials.
            UnfinishedWaveError: brokers did not answer for some bundles; tried again.
        """
        with final_unless_passing():
            run = Folder(self.run)
            summary = Summary.read(run)
            store = StateStore.of(context, self.cluster)
            moves = self._moves(run, summary, store)
            settings = summary.resolved.settings
            connection = PulsarAdminHook(settings.connection).get_connection_settings(settings.pulsar_cluster)
            if connection.read_only:
                raise AdminError("read_only", f"connection {settings.connection} is read-only; nothing was unloaded")
            history = WaveHistory(store, run, summary.plan_id, int(self.wave))
            self._carry_out(connection, settings, history, moves)
        return self._conclude(history, moves)

    def _moves(self, run: Folder, summary: Summary, store: StateStore) -> list[Move]:
        stored, now = store.decision(), datetime.now(UTC)
        if not is_recorded(stored, summary):
            raise PlanError("not_recorded", f"the store holds plan {stored.plan_id or 'none'}, not {summary.plan_id}")
        stop = stopped(Settings.model_validate(self.standing), now)
        if stop is not None:
            raise PlanError(stop.reason, f"wave {self.wave} was not begun: {stop.detail}")
        age = now - summary.collected_at
        if age > max(LONGEST_RUN, timedelta(seconds=summary.resolved.settings.max_plan_age_seconds)):
            raise PlanError("plan_too_old", f"plan {summary.plan_id} is {age.total_seconds():.0f} s old")
        return [move for move in verify(run, summary) if move.wave == int(self.wave)]

    def _carry_out(
        self, connection: AdminConnection, settings: Settings, history: WaveHistory, moves: list[Move]
    ) -> None:
        remaining = history.remaining(moves)

        async def go() -> None:
            self._task = asyncio.current_task()
            async with PulsarAdmin(connection) as admin:
                if shedding_is_on(await admin.runtime_configuration()):
                    raise PlanError("builtin_shedding_on", f"wave {self.wave} was not begun")
                history.plan(remaining, datetime.now(UTC))
                await carry_out(
                    admin,
                    remaining,
                    concurrency=settings.unload_concurrency,
                    retries=settings.unload_retries,
                    timeout_seconds=settings.unload_timeout_seconds,
                    on_outcome=lambda outcome: history.add(outcome, datetime.now(UTC)),
                )

        try:
            asyncio.run(go())
        finally:
            history.write()

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
        refused = sorted(REFUSED & counts.keys())
        if refused:
            raise AirflowFailException(f"Wave {self.wave}: {counts}. {REASONS[refused[0]].meaning}")
        if REPEATED & counts.keys():
            raise UnfinishedWaveError(f"Wave {self.wave}: {counts}; a retry resumes what is not in place")
        return counts
