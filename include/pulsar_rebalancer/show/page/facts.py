"""What is in no file of a run: what Airflow knows of a cluster, and what its state store holds."""

from __future__ import annotations

from pydantic import AwareDatetime

from pulsar_rebalancer.show.page.view import View
from pulsar_rebalancer.state.manual_plans import Drain
from pulsar_rebalancer.state.orders.control_document import Control
from pulsar_rebalancer.state.orders.question import Answers, Question


class FailedRun(View):
    """The newest run that has ended, if it failed.

    Attributes:
        task: which one failed; empty: none did, the run took too long.
        reason: code that the task left; empty when it left none.
    """

    run_id: str
    at: AwareDatetime
    task: str = ""
    reason: str = ""


class AirflowFacts(View):
    """What the page is told beside the files of runs.

    Attributes:
        paused: no run of the DAG starts by itself.
        scheduled: whether Airflow's scheduler is alive: without it no run starts at all.
        next_run_at: when the next one does.
        opened: the DAG run that is under way, if its gate has opened.
        failed: the newest run that has ended, if it failed.
        control: what people ordered, and the circuit breaker.
        last_plan: id of the plan that was recorded last.
        drains: brokers that are drained; `unreadable`: why that is not known.
        question: what a person is asked; `answers`: what people answered.
    """

    paused: bool = False
    scheduled: bool = True
    next_run_at: AwareDatetime | None = None
    opened: str = ""
    failed: FailedRun | None = None
    control: Control = Control()
    last_plan: str = ""
    drains: dict[str, Drain] = {}
    unreadable: str = ""
    question: Question = Question()
    answers: Answers = Answers()
