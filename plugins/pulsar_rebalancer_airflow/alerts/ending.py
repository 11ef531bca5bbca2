"""What is known of a run that ends: read for alerts, so whatever cannot be read is left out."""

from __future__ import annotations

import logging
from datetime import UTC
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ValidationError

from pulsar_rebalancer.errors import RebalancerError
from pulsar_rebalancer.plan import Summary
from pulsar_rebalancer.run import RunRequest, Validation
from pulsar_rebalancer.storage import Folder
from pulsar_rebalancer_airflow.alerts.sightings import BEFORE_UNLOAD, Ended
from pulsar_rebalancer_airflow.failures import FAILURE
from pulsar_rebalancer_airflow.outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from airflow.sdk import Context

_log = logging.getLogger(__name__)
_Document = TypeVar("_Document")


def read_ended(context: Context, run: str | None, now: datetime) -> Ended:
    """The run of a context, at its end.

    Args:
        context: of a task that runs after all others.
        run: address of the run's folder; None when nothing was collected.
        now: the present.
    """
    ti, dag_run = context["ti"], context["dag_run"]
    states = ti.get_task_states(dag_id=dag_run.dag_id, run_ids=[dag_run.run_id]).get(dag_run.run_id, {})
    failures = {task: _failure(ti, task) for task in BEFORE_UNLOAD if states.get(task) == "failed"}
    started = dag_run.start_date
    folder = Folder(run) if run else None
    return Ended(
        states={task: str(state) for task, state in states.items()},
        failures={task: reason for task, reason in failures.items() if reason},
        seconds=(now - started.astimezone(UTC)).total_seconds() if started else None,
        manual=dag_run.run_type == "manual",
        request=_read(RunRequest.read, folder),
        validation=_read(Validation.read, folder),
        summary=_read(Summary.read, folder),
        outcome=_read(Outcome.read, folder),
    )


def _failure(ti: Any, task: str) -> str:
    found = ti.xcom_pull(task_ids=task, key=FAILURE)
    return found if isinstance(found, str) else ""


def _read(read: Callable[[Folder], _Document], folder: Folder | None) -> _Document | None:
    if folder is None:
        return None
    try:
        return read(folder)
    except (RebalancerError, ValidationError, OSError) as error:
        _log.debug("Not in this run: %s", type(error).__name__)
        return None
