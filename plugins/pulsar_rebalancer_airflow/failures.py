"""Convert the rebalancer's errors to task failures that give the reason and the remedy, without pointless retries."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from airflow.sdk.exceptions import AirflowFailException

from pulsar_rebalancer.errors import RebalancerError
from pulsar_rebalancer.reasons import Trait

if TYPE_CHECKING:
    from airflow.sdk import Context

FAILURE = "failure"
"""XCom key of a failed task's reason code."""

MESSAGE = "failure_message"
"""XCom key of a failed task's error message."""


def sentence(error: RebalancerError) -> str:
    """Return the error's message, reason code and remedy as text."""
    action = error.reason.action
    return f"{error} {action}".strip() if action not in error.message else str(error)


@contextmanager
def final_unless_passing(context: Context | None = None) -> Iterator[None]:
    """Convert the rebalancer's errors to AirflowFailException, which is not retried, unless they are temporary.

    The reason code and the message are stored as XComs of the context's task; None stores none.
    """
    try:
        yield
    except RebalancerError as error:
        if context is not None:
            context["ti"].xcom_push(key=FAILURE, value=error.reason)
            context["ti"].xcom_push(key=MESSAGE, value=error.message)
        if error.reason.has(Trait.PASSING):
            raise
        raise AirflowFailException(sentence(error)) from error
