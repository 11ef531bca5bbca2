"""The only task for a cluster whose entry in the clusters file is invalid."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException

if TYPE_CHECKING:
    from airflow.sdk import Context


class RefuseOperator(BaseOperator):
    """Fail, and report the error in the entry. There are no retries, because they would fail in the same way.

    Args:
        reason: description of the error and the remedy.
    """

    def __init__(self, *, reason: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.reason = reason

    def execute(self, context: Context) -> None:
        """Fail with the reason.

        Raises:
            AirflowFailException: always.
        """
        raise AirflowFailException(self.reason)
