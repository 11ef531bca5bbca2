"""Gate: open for the very plan that was recorded, or closed with a reason."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from airflow.sdk import BaseOperator

from pulsar_rebalancer.choices import Mode
from pulsar_rebalancer.errors import PlanError
from pulsar_rebalancer.plan import Summary, verify
from pulsar_rebalancer.reasons import REASONS, Effect
from pulsar_rebalancer.run import Validation
from pulsar_rebalancer.storage import Folder
from pulsar_rebalancer_airflow.failures import final_unless_passing
from pulsar_rebalancer_airflow.hook import PulsarAdminHook
from pulsar_rebalancer_airflow.state_store import StateStore, state_asset

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Context

    from pulsar_rebalancer.settings import Settings
    from pulsar_rebalancer.state import DecisionState


class Answer(NamedTuple):
    """What the gate answers.

    Attributes:
        reason: reason code, `open` or why it is closed.
        detail: the figure or name behind it.
    """

    reason: str
    detail: str = ""


def stopped(settings: Settings, now: datetime) -> Answer | None:
    """Why nothing may be moved by these settings; None when it may."""
    if settings.mode is not Mode.AUTO:
        return Answer("observe", f"mode {settings.mode}")
    if settings.pause is not None and now < settings.pause.until:
        return Answer("paused", f"until {settings.pause.until:%Y-%m-%d %H:%M %Z}: {settings.pause.reason}")
    return None


def is_recorded(stored: DecisionState, summary: Summary) -> bool:
    """Whether the store holds this very plan: files written again since would have another hash."""
    return (stored.plan_id, stored.plan_hash) == (summary.plan_id, summary.hash)


def answer(settings: Settings, validation: Validation, age_seconds: float, now: datetime, *, moves: int) -> Answer:
    """Whether a recorded plan may be carried out, as far as its run can tell.

    Args:
        settings: effective settings of the run.
        validation: what validation found.
        age_seconds: age of the snapshot that the plan was made from.
        now: the present, for pauses.
        moves: how many bundles the plan moves.
    """
    if moves == 0:
        return Answer("nothing_to_do")
    stop = stopped(settings, now)
    if stop is not None:
        return stop
    holds = validation.reasons(Effect.HOLD)
    if holds:
        return Answer("on_hold", ", ".join(holds))
    if age_seconds > settings.max_plan_age_seconds:
        return Answer("plan_too_old", f"{age_seconds:.0f} s, at most {settings.max_plan_age_seconds:g} s")
    return Answer("open", f"{moves} bundles")


class GateOperator(BaseOperator):
    """Answer with the waves to be carried out: all of the plan's when open, none when closed.

    The task succeeds either way; the reason code is its XCom `reason`. A retry judges anew by the clock, the store and
    the files, so it may close where an earlier attempt would have opened.

    Args:
        cluster: name in the clusters file.
        settings: the cluster's settings in the clusters file as it is now: a pause or a lower mode set after collect
            counts as well.
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
            AirflowFailException: the files of the run or the stored state cannot be read.
        """
        with final_unless_passing(context):
            run = Folder(self.run)
            summary = Summary.read(run)
            found, waves = self._judge(run, summary, StateStore.of(context, self.cluster).decision())
        opened = found.reason == "open"
        context["ti"].xcom_push(key="reason", value=found.reason)
        detail = f" ({found.detail})" if found.detail else ""
        state = "open" if opened else "closed"
        self.log.info("Gate %s: %s%s. %s", state, found.reason, detail, REASONS[found.reason].meaning)
        return waves if opened else []

    def _judge(self, run: Folder, summary: Summary, stored: DecisionState) -> tuple[Answer, list[int]]:
        if not is_recorded(stored, summary):
            return Answer("not_recorded", f"recorded: {stored.plan_id or 'none'} {stored.plan_hash[:12]}"), []
        try:
            moves = verify(run, summary)
        except PlanError as error:
            return Answer(error.reason, error.message), []
        now = datetime.now(UTC)
        settings = summary.resolved.settings
        age = (now - summary.collected_at).total_seconds()
        found = answer(settings, Validation.read(run), age, now, moves=len(moves))
        if found.reason == "open":
            found = stopped(self.settings, now) or found
        if found.reason == "open" and PulsarAdminHook(settings.connection).get_connection_settings().read_only:
            found = Answer("read_only", settings.connection)
        return found, sorted({move.wave for move in moves})
