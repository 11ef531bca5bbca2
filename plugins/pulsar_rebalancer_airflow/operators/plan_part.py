"""Base class for the tasks that carry out part of a recorded plan: its splits, or one wave of its moves."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from pulsar_rebalancer.admin import PulsarAdmin
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.reasons import Reason, Trait
from pulsar_rebalancer.run.attempts import RETRIED
from pulsar_rebalancer.run.plan import Summary
from pulsar_rebalancer_airflow.hooks.pulsar_admin import PulsarAdminHook
from pulsar_rebalancer_airflow.operators.bases import RunOperator
from pulsar_rebalancer_airflow.operators.gate import present_verdict

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from airflow.sdk import Context

    from pulsar_rebalancer.admin import AdminConnection
    from pulsar_rebalancer.carry_out.gate import Verdict
    from pulsar_rebalancer.run.outcome import MoveOutcome
    from pulsar_rebalancer.run.splits import SplitOutcome
    from pulsar_rebalancer.storage.path import StoragePath


class UnfinishedError(Exception):
    """Some bundles could not be moved or split, but the next attempt might succeed."""


class PlanPartOperator(RunOperator):
    """Carry out part of a plan. The task's XCom is the number of bundles by outcome.

    A retry continues the work. A bundle that is already moved or split as planned counts as a success; no request is
    sent for it. Every attempt first applies the gate's rules again.

    Args:
        settings: the cluster's current settings in the clusters file, in JSON form.
    """

    def __init__(self, *, settings: dict[str, object], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.settings = settings
        self._task: asyncio.Task[None] | None = None

    @property
    def present(self) -> Settings:
        """Return the cluster's current settings from the clusters file."""
        return Settings.model_validate(self.settings)

    def _judge(self, context: Context, run: StoragePath, *, begun: bool) -> Verdict:
        """Return the gate's current verdict.

        Once a part of the plan has started, it has a later deadline, because it must be completed.
        """
        summary = Summary.read(run)
        until = summary.waves_resume_until if begun else summary.waves_begin_until
        return present_verdict(context, self.cluster, run, self.present, until)

    def _connection(self) -> AdminConnection:
        """Return the cluster's connection.

        Raises:
            AdminError: `read_only`.
        """
        return PulsarAdminHook(self.present.connection).get_writing_settings(self.present.pulsar_cluster)

    def _work(self, connection: AdminConnection, work: Callable[[PulsarAdmin], Awaitable[None]]) -> None:
        async def go() -> None:
            self._task = asyncio.current_task()
            async with PulsarAdmin(connection) as admin:
                await work(admin)

        asyncio.run(go())

    def on_kill(self) -> None:
        """Prevent further moves and splits. Those in progress remain in the history without an outcome."""
        if self._task is not None:
            self._task.cancel()

    def _conclude(self, part: str, outcomes: Iterable[MoveOutcome | SplitOutcome]) -> dict[str, int]:
        """Log the outcomes of this part of the plan, and return the number of bundles by reason code.

        Raises:
            AirflowFailException: a broker refused a request, or a person stopped the run.
            UnfinishedError: brokers did not answer. This is retried.
            AirflowSkipException: orders or settings prevented the whole part.
        """
        counts: Counter[Reason] = Counter()
        for outcome in outcomes:
            counts[outcome.reason] += 1
            self.log.info("%s: %s %s", outcome.bundle, outcome.reason, outcome.error or f"({outcome.read_back})")
        by_code = {str(reason): count for reason, count in counts.items()}
        ordered = {reason for reason in counts if reason.has(Trait.ORDERED)}
        refused = sorted(reason for reason in counts.keys() - ordered if reason.has(Trait.NEEDS_PERSON))
        if refused:
            raise AirflowFailException(f"{part}: {by_code}. {refused[0].meaning}")
        if any(reason.has(RETRIED) for reason in counts.keys() - ordered):
            raise UnfinishedError(f"{part}: {by_code}; a retry resumes what is not in place")
        if ordered and ordered == counts.keys():
            raise AirflowSkipException(f"{part}: {by_code}. {min(ordered).meaning}")
        return by_code
