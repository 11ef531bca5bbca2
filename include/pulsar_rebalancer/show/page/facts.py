"""What no file of a run holds: what Airflow and its state store know of a cluster."""

from __future__ import annotations

from pydantic import AwareDatetime

from pulsar_rebalancer.show.page.view import View
from pulsar_rebalancer.state.manual_plans import Drain
from pulsar_rebalancer.state.orders.control_document import Control
from pulsar_rebalancer.state.orders.question import Answers, Question


class FailedRun(View):
    """The newest run that has ended, if it failed.

    Attributes:
        task: the failed task; empty when the run took too long.
        reason: the task's reason code; empty when it gave none.
    """

    run_id: str
    at: AwareDatetime
    task: str = ""
    reason: str = ""


class AirflowFacts(View):
    """What the page knows in addition to the files of runs.

    Attributes:
        paused: whether the DAG is paused in Airflow.
        scheduled: whether Airflow's scheduler is alive; without it no run starts.
        next_run_at: start of the next scheduled run.
        opened: id of the DAG run under way, if its gate has opened.
        control: people's orders, and the circuit breaker.
        last_plan: id of the plan recorded last.
        drains: drained brokers.
        unreadable: why the drained brokers are unknown; empty when they are known.
        question: the plan that waits for a person's approval.
        answers: people's answers to such questions.
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
