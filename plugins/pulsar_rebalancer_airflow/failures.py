"""Turn domain errors into task failures that state the reason and what to do, without a pointless retry."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from airflow.sdk.exceptions import AirflowFailException

from pulsar_rebalancer.errors import RebalancerError
from pulsar_rebalancer.reasons import Trait

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow.sdk import Context

FAILURE = "failure"
"""XCom key of a failed task's reason code."""


def sentence(error: RebalancerError) -> str:
    """Return the error's message, its reason code and what to do."""
    action = error.reason.action
    return f"{error} {action}".strip() if action not in error.message else str(error)


@contextmanager
def final_unless_passing(context: Context | None = None) -> Iterator[None]:
    """Turn a domain error into a failure without retry, unless its reason is passing.

    Args:
        context: task context, to store the reason code as the XCom `failure`; None for no XCom.

    Raises:
        AirflowFailException: in place of a `RebalancerError` that a retry cannot fix.
    """
    try:
        yield
    except RebalancerError as error:
        if context is not None:
            context["ti"].xcom_push(key=FAILURE, value=error.reason)
        if error.reason.has(Trait.PASSING):
            raise
        raise AirflowFailException(sentence(error)) from error
