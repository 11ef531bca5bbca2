"""Facts about a cluster that are not in its runs' files: they come from Airflow and the state store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

from pydantic import AwareDatetime

from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.orders.in_force import WORDING_BY_REASON, all_holds, order_texts, orders_sentence
from pulsar_rebalancer.orders.manual_plans import Answer, Answers, Drain, Drains, HandedOverPlans, Question, answer_due
from pulsar_rebalancer.orders.order import Control, Hold, JudgedRun, OrdersInForce, Situation, Wording
from pulsar_rebalancer.orders.roll_document import Phase, Roll
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.show.page.page_model import Attention, DrainView, View
from pulsar_rebalancer.show.page.recent_runs import Run


class FailedRun(View):
    """The latest run that has ended, if it failed.

    `task` is empty if the run exceeded its time limit, `reason` and `message` if the task reported none.
    """

    run_id: str
    at: AwareDatetime
    task: str = ""
    reason: str = ""
    message: str = ""


class AirflowContext(View):
    """Input for the page in addition to the runs' files.

    Attributes:
        scheduled: True if Airflow's scheduler is alive; if not, no run starts.
        running_since: when the DAG run in progress began; None if there is none.
        opened_run_id: id of the DAG run in progress whose gate has opened; empty if there is none.
        queued_run_ids: ids of the DAG runs that are waiting for their turn.
        orders: operators' orders and the circuit breaker.
        why_not_handed_over: why approved plans were not handed over to be carried out, by plan id.
        handed_over_plans: manual plans that operators handed over to be carried out.
    """

    paused: bool = False
    scheduled: bool = True
    next_run_at: AwareDatetime | None = None
    running_since: AwareDatetime | None = None
    opened_run_id: str = ""
    queued_run_ids: tuple[str, ...] = ()
    failed: FailedRun | None = None
    orders: OrdersInForce = OrdersInForce()
    last_plan_id: str = ""
    why_not_handed_over: dict[str, Reason] = {}
    handed_over_plans: HandedOverPlans = HandedOverPlans()

    @property
    def drains(self) -> dict[str, Drain]:
        return self.orders.get(Drains).brokers

    @property
    def roll(self) -> Roll:
        return self.orders.get(Roll).displayed_roll(self.orders.get(Control))

    @property
    def question(self) -> Question:
        return self.orders.get(Question)

    def situation(self, settings: Settings, now: datetime) -> Situation:
        return Situation(settings, self.orders, now, JudgedRun(now, self.last_plan_id))

    def run_holds(self, settings: Settings, now: datetime) -> list[Hold]:
        """Return why the next run would not carry out the strategy's moves, except for the mode.

        The settings, here and below, are those of the current clusters file.
        """
        rolls = [Hold(Reason.ROLLING, self.roll.progress)] if self.roll.is_active else []
        return [closing for closing in self.gate_holds(settings, now) if closing.reason is not Reason.OBSERVE] + rolls

    def answer_deadline(self, settings: Settings, now: datetime) -> datetime | None:
        return answer_due(self.situation(settings, now))

    def question_concerns(self, run: Run) -> bool:
        """Return whether the open question is about a run's moves; the same moves are not asked about again."""
        return self.question.at is not None and self.question.at <= run.request.collected_at

    def answer_about(self, run: Run) -> Answer | None:
        answers, question = self.orders.get(Answers).plans, self.question.plan_id if self.question_concerns(run) else ""
        return answers.get(run.folder.name) or answers.get(question)

    def orders_text(self, settings: Settings, run: Run | None, now: datetime) -> str:
        """Return the current orders and who gave them; empty if there are none.

        `run` is the run on the page, which an operator might have stopped.
        """
        closed = self.gate_holds(settings, now)
        said = order_texts(settings, closed, self.orders, now)
        sentences = [orders_sentence(settings, closed, self.orders, now)] if said else []
        stop = self.orders.get(Control).last_order("stop")
        if stop is not None and run is not None and run.request.collected_at <= stop.at and run.was_stopped:
            sentences.append(f"The run was stopped at {stop.at:%Y-%m-%d %H:%M %Z} {stop.by_text}")
        sentences += [
            f"A plan by {handed.by or 'unknown'} ({handed.plan.action or 'moves'}) waits for its run to start"
            for handed in self.handed_over_plans.plans.values()
            if handed.run_id in self.queued_run_ids
        ]
        return " ".join(f"{text}." for text in sentences)

    def attention(self, settings: Settings, drain_views: Iterable[DrainView], now: datetime) -> Iterator[Attention]:
        """Yield what waits for a person; `drain_views` are the drained brokers after the latest run."""
        if self.orders.lost_text:
            yield Attention(text=f"{Reason.STATE_LOST.meaning} {Reason.STATE_LOST.action}", acts=("Restore", "Reset"))
        until, roll = self.answer_deadline(settings, now), self.roll
        if until is not None and self.question.at is not None:
            text = (
                f"The {self.question.at:%H:%M} plan to {self.question.what} waits for approval until {until:%H:%M %Z}."
            )
            yield Attention(text=text, since=self.question.at, acts=("Approve", "Reject"))
        if roll.is_active and roll.phase is Phase.RESTARTING and roll.may_restart and not settings.roll_restart_dag:
            text = f"Rolling restart, broker {len(roll.done) + 1} of {len(roll.order)}: restart {roll.broker} now."
            yield Attention(text=text, since=roll.since, acts=("Skip broker", "Stop roll"))
        for drain in drain_views:
            if drain.broker == roll.stranded and roll.ended is not None:
                text = f"The rolling restart has ended, but {drain.broker} is still drained: release it."
                yield Attention(text=text, since=roll.ended_at, acts=("Release",))
            elif drain.is_empty and not (roll.is_active and drain.broker in roll.order):
                order = self.drains[drain.broker]
                text = f"{drain.broker} is empty and safe to stop; drained by {order.by or 'unknown'}: {order.reason}."
                yield Attention(text=text, since=order.at, acts=("Release",))

    def gate_holds(self, settings: Settings, now: datetime) -> list[Hold]:
        """Return why the gate would be closed for any plan now; empty if it would open."""
        return all_holds(settings, self.orders, now, JudgedRun(now, self.last_plan_id))


def hold_text(hold: Hold) -> str:
    return WORDING_BY_REASON.get(hold.reason, Wording()).next_run_text.replace("{}", hold.detail) or hold.reason.meaning
